//! Words that many CPUs change by compare-and-exchange, one after the other.
//!
//! A compare-and-exchange fails if another CPU has changed the word since it was read.
//! With hundreds of CPUs at one word nearly all of them fail, and each failure moves the
//! word's cache line as a change would. So whoever has failed waits in a queue, of which
//! only the first tries again.
//!
//! Those who wait for a lock that many want may do so in such queues, too ([`LockTurn`]), but in
//! queues of their own: whoever changes a word may hold the lock that they wait for, and must not
//! stand behind them. The first of a queue of [`Turn`]s needs nobody else to get on.

use alloc::boxed::Box;

use super::queue::Tail;
use super::report::{Kind, name, report_lock};
use super::{CachePadded, Pin};

/// Times that somebody tries who is in no queue.
const TRIES: u32 = 2;

/// The queues, which words and locks share by their numbers.
pub struct Turns {
    /// As many for words, and after them as many for locks.
    tails: Box<[CachePadded<Tail>]>,
}

/// What those in a queue wait for.
#[derive(Clone, Copy)]
enum For {
    /// To change a word. They may hold locks.
    Word,
    /// A lock. They hold none.
    Lock,
}

impl Turns {
    /// For as many CPUs; with none of them, nobody waits.
    pub(super) fn new(cpus: usize) -> Turns {
        let queues = if cpus > 1 {
            cpus.next_power_of_two()
        } else {
            0
        };
        let tails = (0..2 * queues).map(|_| CachePadded::default());
        let tails: Box<[CachePadded<Tail>]> = tails.collect();
        let (words, locks) = tails.split_at(queues);
        name("queues at counts", &[], words.as_ptr(), queues);
        name("queues at locks", &[], locks.as_ptr(), queues);
        Turns { tails }
    }

    /// Where those wait who change word `number`, or for lock `number`.
    fn queue(&self, number: u32, what: For) -> Option<&Tail> {
        let (words, locks) = self.tails.split_at(self.tails.len() / 2);
        let queues = match what {
            For::Word => words,
            For::Lock => locks,
        };
        let hash = number.wrapping_mul(0x9e37_79b1) >> 16;
        let place = hash as usize & queues.len().wrapping_sub(1);
        Some(&queues.get(place)?.0)
    }

    /// Calls `work` as the first of a queue.
    fn first<T>(&self, (number, what): (u32, For), pin: &Pin<'_>, work: impl FnOnce() -> T) -> T {
        let queues = pin.queues();
        let place = self.queue(number, what).and_then(|queue| {
            report_lock(Kind::LockAwaited, queue);
            let place = queues.enter_pinned(queue, pin)?;
            report_lock(Kind::LockTaken, queue);
            Some((queue, place))
        });
        let result = work();
        if let Some((queue, place)) = place {
            report_lock(Kind::LockReleased, queue);
            queues.leave_pinned(queue, place, pin);
        }
        result
    }
}

/// A pinned CPU's access to a word that others may be changing too.
///
/// The number, a frame's or a handle's, chooses the queue. Two words of one number may
/// share it, and nothing but time is lost by that.
#[derive(Clone, Copy)]
pub struct Turn<'p> {
    pin: &'p Pin<'p>,
    number: u32,
}

impl<'p> Turn<'p> {
    /// For the word with this number.
    #[inline]
    pub fn at(pin: &'p Pin<'p>, number: u32) -> Turn<'p> {
        Turn { pin, number }
    }

    /// Calls `attempt` with what the word holds, which is `now` at first, until it returns
    /// its result. It returns what it has found instead if the word has changed.
    #[inline]
    pub fn change<W: Copy, T>(self, now: W, attempt: impl Fn(W) -> Result<T, W>) -> T {
        let mut now = now;
        for _ in 0..TRIES {
            match attempt(now) {
                Ok(result) => return result,
                Err(found) => now = found,
            }
        }
        self.change_in_turn(now, attempt)
    }

    #[cold]
    #[inline(never)]
    fn change_in_turn<W: Copy, T>(self, now: W, attempt: impl Fn(W) -> Result<T, W>) -> T {
        (self.pin.turns()).first((self.number, For::Word), self.pin, || {
            let mut now = now;
            loop {
                match attempt(now) {
                    Ok(result) => break result,
                    Err(found) => now = found,
                }
            }
        })
    }
}

/// A pinned CPU's way to a spin lock that many want at once. The CPU holds no spin lock: those
/// behind it in the queue may wait for that one.
#[derive(Clone, Copy)]
pub struct LockTurn<'p> {
    pin: &'p Pin<'p>,
    number: u32,
}

impl<'p> LockTurn<'p> {
    /// For the lock with this number.
    #[inline]
    pub fn at(pin: &'p Pin<'p>, number: u32) -> LockTurn<'p> {
        pin.assert_holds(0);
        LockTurn { pin, number }
    }

    /// Has the caller, who has found the lock taken, wait for it by `lock` when nobody is before
    /// it who waits for a lock of this number. Meanwhile nothing of the lock's line moves on its
    /// behalf.
    #[cold]
    #[inline(never)]
    pub fn lock<T>(self, lock: impl FnOnce() -> T) -> T {
        (self.pin.turns()).first((self.number, For::Lock), self.pin, lock)
    }
}

#[cfg(all(test, not(vellum_loom)))]
mod tests {
    use super::*;
    use crate::frame::PhysicalMemory;
    use crate::sync::atomic::{AtomicU32, Ordering};
    use crate::testing::{TestMachine, run_on};

    const CPUS: usize = 4;

    fn memory() -> PhysicalMemory<TestMachine> {
        run_on(0);
        PhysicalMemory::new(TestMachine::simple(CPUS, 1024)).unwrap()
    }

    #[test]
    fn who_fails_again_and_again_changes_the_word_in_turn_and_leaves_the_queue() {
        let memory = memory();
        let pin = memory.pin();
        // More often than there are nodes of queues.
        for _ in 0..10 {
            let word = AtomicU32::new(0);
            // As if another CPU had been there between, three times.
            let found = Turn::at(&pin, 7).change(0, |old| match old {
                0..3 => {
                    let queue = pin.turns().queue(7, For::Word).expect("several CPUs");
                    let is_alone = pin.queues().is_free(queue);
                    assert_eq!(is_alone, old < TRIES, "who waits is in the queue");
                    Err(word.fetch_add(1, Ordering::Relaxed) + 1)
                }
                _ => Ok(old),
            });
            assert_eq!(found, 3);
            let queue = pin.turns().queue(7, For::Word).unwrap();
            assert!(pin.queues().is_free(queue));
        }
    }

    #[test]
    fn who_holds_a_lock_changes_a_word_beside_those_who_wait_for_the_lock() {
        let memory = memory();
        let holder = memory.pin();
        run_on(1);
        let waiter = memory.pin();
        memory.platform().give_up_after(100);
        let word = AtomicU32::new(0);
        let changed = LockTurn::at(&waiter, 7).lock(|| {
            // The holder fails as often as it may without a queue. It lets go of the lock when
            // it has changed the word.
            Turn::at(&holder, 7).change(0, |old| match old {
                0..TRIES => Err(word.fetch_add(1, Ordering::Relaxed) + 1),
                _ => Ok(old),
            })
        });
        assert_eq!(changed, TRIES);
        drop((waiter, holder));
        run_on(0);
    }

    #[test]
    fn no_change_is_lost() {
        const TIMES: u32 = 2_000;
        let (memory, word) = (memory(), AtomicU32::new(0));
        std::thread::scope(|scope| {
            for cpu in 0..CPUS as u16 {
                let (memory, word) = (&memory, &word);
                scope.spawn(move || {
                    run_on(cpu);
                    for _ in 0..TIMES {
                        let pin = memory.pin();
                        Turn::at(&pin, 1).change(word.load(Ordering::Relaxed), |old| {
                            let order = Ordering::Relaxed;
                            // Others come between more often.
                            std::thread::yield_now();
                            word.compare_exchange(old, old + 1, order, order)
                        });
                    }
                });
            }
        });
        assert_eq!(word.load(Ordering::Relaxed), TIMES * CPUS as u32);
    }
}
