//! Delayed invalidation (`di=`): entries leave the lists of pages before their CPUs are
//! flushed, so that no list is locked over a flush. Whoever then finds a page without
//! entries must not yet believe that nobody uses it.
//!
//! A CPU that clears entries is in the queue from before the first until its flush, with a
//! generation above those before it. It stamps what it takes entries from with that.
//! When it leaves, its generation passes to the one before it in the queue, or, if it
//! is the first, becomes that of the queue: then everybody up to it has flushed, and whoever
//! waits for a stamp up to it goes on.
//!
//! The queue is a list under a lock (`locked`, FreeBSD until 2019), or one that is changed
//! by exchanges of one word, in which each CPU has its generation and who comes next
//! (`lockless`; FreeBSD has two words and exchanges both). With `epoch` there is none of
//! this: the references of entries that were cleared keep their pages until the flush,
//! as under every design, and nobody waits.

use alloc::boxed::Box;

use crate::platform::CpuId;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::list::{Link, Links, List, NONE};
use crate::sync::{CachePadded, Counter, Pin, SpinLock};

/// Bits of a word that name the next CPU, and the one that says that the word must not be
/// changed by others: its CPU enters or leaves, or is in no queue.
const NEXT: u64 = (1 << 15) - 1;
const CLOSED: u64 = 1 << 15;
const GENERATION_SHIFT: u32 = 16;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Word(u64);

impl Word {
    fn new(generation: u64, next: u64) -> Word {
        Word(generation << GENERATION_SHIFT | next)
    }

    fn generation(self) -> u64 {
        self.0 >> GENERATION_SHIFT
    }

    /// The number of the next CPU, from 1; 0 if there is none.
    fn next(self) -> u64 {
        self.0 & NEXT
    }

    fn is_closed(self) -> bool {
        self.0 & CLOSED != 0
    }
}

/// What a CPU has.
#[derive(Default)]
struct Place {
    /// Of the lockless queue.
    word: AtomicU64,
    /// Of the locked queue.
    generation: AtomicU64,
    link: Link,
    /// Operations of the CPU that are in the queue, one within the other.
    depth: Counter,
    /// Times that the CPU began anew because the queue changed.
    restarts: Counter,
    /// Times that it waited for others.
    waits: Counter,
}

impl Links for [CachePadded<Place>] {
    fn link(&self, name: u32) -> &Link {
        &self[name as usize].link
    }
}

/// How the queue is kept.
enum Queue {
    Locked(CachePadded<SpinLock<List>>),
    Lockless,
}

/// The operations that have cleared entries and not flushed yet.
pub(super) struct Delayed {
    queue: Queue,
    /// Generation of the queue, and who is first.
    head: CachePadded<AtomicU64>,
    cpus: Box<[CachePadded<Place>]>,
}

impl Delayed {
    pub fn new(cpus: usize, locked: bool) -> Delayed {
        let place = |_| {
            let place = Place::default();
            place.word.store(CLOSED, Ordering::Relaxed);
            CachePadded(place)
        };
        Delayed {
            queue: match locked {
                true => Queue::Locked(CachePadded::default()),
                false => Queue::Lockless,
            },
            head: CachePadded(AtomicU64::new(0)),
            cpus: (0..cpus).map(place).collect(),
        }
    }

    fn place(&self, cpu: CpuId) -> &Place {
        &self.cpus[usize::from(cpu.0)].0
    }

    /// The CPU is about to clear entries.
    pub fn begin(&self, pin: &Pin<'_>) {
        let own = self.place(pin.cpu());
        own.depth.bump();
        if own.depth.get() > 1 {
            return;
        }
        match &self.queue {
            Queue::Locked(queue) => {
                let mut queue = queue.lock(pin);
                let before = match queue.last() {
                    NONE => self.head.load(Ordering::Relaxed),
                    last => self.cpus[last as usize].generation.load(Ordering::Relaxed),
                };
                own.generation.store(before + 1, Ordering::Relaxed);
                queue.push_back(&*self.cpus, u32::from(pin.cpu().0));
            }
            Queue::Lockless => self.enter(own, pin),
        }
    }

    /// The CPU has flushed what it cleared.
    pub fn end(&self, pin: &Pin<'_>) {
        let own = self.place(pin.cpu());
        own.depth.sub(1);
        if own.depth.get() > 0 {
            return;
        }
        match &self.queue {
            Queue::Locked(queue) => {
                let mut queue = queue.lock(pin);
                let generation = own.generation.swap(0, Ordering::Relaxed);
                let heir = match own.link.previous() {
                    NONE => &self.head.0,
                    before => &self.cpus[before as usize].generation,
                };
                heir.store(generation, Ordering::Release);
                queue.remove(&*self.cpus, u32::from(pin.cpu().0));
            }
            Queue::Lockless => self.leave(own, pin),
        }
    }

    /// The generation to stamp with what entries are taken from; 0 if the CPU has not
    /// begun, and so has flushed before it clears.
    #[inline]
    pub fn generation(&self, cpu: CpuId) -> u64 {
        let own = self.place(cpu);
        if own.depth.get() == 0 {
            return 0;
        }
        match self.queue {
            Queue::Locked(_) => own.generation.load(Ordering::Relaxed),
            Queue::Lockless => Word(own.word.load(Ordering::Relaxed)).generation(),
        }
    }

    /// Whether everybody who stamped up to `stamp` has flushed.
    pub fn has_passed(&self, stamp: u64) -> bool {
        let head = self.head.load(Ordering::Acquire);
        let generation = match self.queue {
            Queue::Locked(_) => head,
            Queue::Lockless => Word(head).generation(),
        };
        generation >= stamp
    }

    /// Waits until everybody who stamped up to `stamp` has flushed. The CPU is in no
    /// queue and holds no lock that they may want.
    pub fn wait(&self, stamp: u64, pin: &Pin<'_>) {
        let mut spins = 0;
        while !self.has_passed(stamp) {
            debug_assert!(
                self.place(pin.cpu()).depth.get() == 0,
                "waits for itself to flush"
            );
            if spins == 0 {
                self.place(pin.cpu()).waits.bump();
            }
            pin.relax(spins);
            spins += 1;
        }
    }

    /// Times that CPUs began anew, and that they waited.
    pub fn counts(&self) -> (u64, u64) {
        self.cpus.iter().fold((0, 0), |(restarts, waits), cpu| {
            (restarts + cpu.restarts.get(), waits + cpu.waits.get())
        })
    }

    /// The word of a CPU by its number from 1, or the head's.
    fn word(&self, number: u64) -> &AtomicU64 {
        match number.checked_sub(1) {
            None => &self.head.0,
            Some(cpu) => &self.cpus[cpu as usize].word,
        }
    }

    /// Enters at the end of the lockless queue (FreeBSD: `pmap_delayed_invl_start_u`).
    fn enter(&self, own: &Place, pin: &Pin<'_>) {
        let number = u64::from(pin.cpu().0) + 1;
        loop {
            if let Some((last, word)) = self.last() {
                // Closed until it is in the queue: whoever comes by an old word must not
                // enter behind it. A last word that has changed has another generation,
                // because those of a place only grow.
                let generation = word.generation() + 1;
                own.word
                    .store(Word::new(generation, CLOSED).0, Ordering::Relaxed);
                let entered = Word::new(word.generation(), number);
                if last
                    .compare_exchange(word.0, entered.0, Ordering::AcqRel, Ordering::Relaxed)
                    .is_ok()
                {
                    own.word
                        .store(Word::new(generation, 0).0, Ordering::Release);
                    return;
                }
            }
            own.restarts.bump();
            pin.relax(0);
        }
    }

    /// The last word of the queue, unless it is closed.
    fn last(&self) -> Option<(&AtomicU64, Word)> {
        let mut number = 0;
        loop {
            let place = self.word(number);
            let word = Word(place.load(Ordering::Acquire));
            if word.is_closed() {
                return None;
            }
            number = word.next();
            if number == 0 {
                return Some((place, word));
            }
        }
    }

    /// Leaves the lockless queue (FreeBSD: `pmap_delayed_invl_finish_u`).
    fn leave(&self, own: &Place, pin: &Pin<'_>) {
        let number = u64::from(pin.cpu().0) + 1;
        loop {
            if let Some(before) = self.before(number) {
                // From here on nobody changes our word.
                let word = Word(own.word.fetch_or(CLOSED, Ordering::AcqRel));
                let found = Word(before.load(Ordering::Acquire));
                if !found.is_closed() && found.next() == number {
                    let left = Word::new(word.generation(), word.next());
                    if before
                        .compare_exchange(found.0, left.0, Ordering::AcqRel, Ordering::Relaxed)
                        .is_ok()
                    {
                        return;
                    }
                }
                own.word.fetch_and(!CLOSED, Ordering::Release);
            }
            own.restarts.bump();
            pin.relax(0);
        }
    }

    /// The word that leads to `number`.
    fn before(&self, number: u64) -> Option<&AtomicU64> {
        let mut at = 0;
        loop {
            let place = self.word(at);
            let word = Word(place.load(Ordering::Acquire));
            if word.next() == number {
                return Some(place);
            }
            if word.is_closed() || word.next() == 0 {
                return None;
            }
            at = word.next();
        }
    }
}
