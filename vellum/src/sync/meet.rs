//! Two sides that must not miss each other.
//!
//! Each side stores a word of its own and then loads the other's. The processor
//! may let the load pass the store, and then neither sees the other. With a full
//! fence between the two on both sides at least one does. These types hold
//! store, fence and load of one side together, so that none of the three can be
//! left out where they are used; `test/verify/loom` checks them.

use core::mem::MaybeUninit;

use super::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use crate::platform::{CpuId, CpuSet, CpuWords};

/// The CPUs that may hold translations of a space, or be inside its regions, on machines
/// of up to 64 CPUs. On larger ones they are in [`ManyActiveCpus`], and here is how many
/// CPUs share a bit there, as a shift.
#[derive(Debug, Default)]
pub struct ActiveCpus(AtomicU64);

/// The CPUs of a machine of more than 64, in a line of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct ManyActiveCpus([AtomicU64; CpuWords::COUNT]);

/// The CPUs of one space.
///
/// A CPU enters and then reads the space's tables and gates. Whoever changes
/// those asks afterwards who has entered: a CPU that is not in the answer sees
/// the change.
#[derive(Clone, Copy, Debug)]
pub struct ActiveSet<'s> {
    few: &'s ActiveCpus,
    many: Option<&'s ManyActiveCpus>,
}

impl<'s> ActiveSet<'s> {
    /// Of a machine of up to 64 CPUs, or, with `many`, of more.
    #[inline]
    pub const fn new(few: &'s ActiveCpus, many: Option<&'s ManyActiveCpus>) -> Self {
        ActiveSet { few, many }
    }

    /// Nobody: the space begins, on a machine of `cpus` CPUs.
    pub fn reset(self, cpus: usize) {
        let Some(many) = self.many else {
            self.few.0.store(0, Ordering::Relaxed);
            return;
        };
        let shift = CpuWords::shift_for(cpus);
        self.few.0.store(u64::from(shift), Ordering::Relaxed);
        for word in &many.0 {
            word.store(0, Ordering::Relaxed);
        }
    }

    /// `cpu` will use the space.
    #[inline]
    pub fn enter(self, cpu: CpuId) {
        let Some(many) = self.many else {
            enter(&self.few.0, CpuSet::bit(cpu));
            return;
        };
        let shift = self.shift();
        let (word, bit) = CpuWords::place(cpu, shift);
        enter(&many.0[word], bit);
        // A CPU that finds a bit set by another has passed no fence.
        if shift > 0 {
            fence(Ordering::SeqCst);
        }
    }

    /// Who has entered, asked after everything that the caller has changed. What
    /// the caller reads next is read after the change, too. `room` holds the answer on
    /// machines of more than 64 CPUs.
    #[inline]
    pub(crate) fn after_change<'r>(self, room: &'r mut CpuRoom) -> CpuSet<'r> {
        fence(Ordering::SeqCst);
        match self.many {
            None => CpuSet::from_bits(self.few.0.load(Ordering::Acquire)),
            Some(many) => many.copy_to(self.shift(), room),
        }
    }

    /// Whether another CPU than `cpu`, which has entered, has or had. A guess: nothing
    /// orders this.
    #[inline]
    pub(crate) fn has_others(self, cpu: CpuId) -> bool {
        match self.many {
            None => self.few.0.load(Ordering::Relaxed) & !CpuSet::bit(cpu) != 0,
            Some(many) => many.has_others(CpuWords::place(cpu, self.shift())),
        }
    }

    fn shift(self) -> u32 {
        self.few.0.load(Ordering::Relaxed) as u32
    }
}

/// Sets a CPU's bit. What the CPU reads of the space comes after this.
#[inline]
fn enter(word: &AtomicU64, bit: u64) {
    // An exchange is a full fence on x86-64 and aarch64, and the fence makes it one
    // everywhere.
    if word.load(Ordering::Relaxed) & bit == 0 {
        word.fetch_or(bit, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }
}

impl ManyActiveCpus {
    #[cold]
    #[inline(never)]
    fn has_others(&self, (own, bit): (usize, u64)) -> bool {
        let others = |word: usize| if word == own { !bit } else { !0 };
        let words = self.0.iter().enumerate();
        words.fold(0, |found, (word, cpus)| {
            found | (cpus.load(Ordering::Relaxed) & others(word))
        }) != 0
    }

    #[cold]
    #[inline(never)]
    fn copy_to<'r>(&self, shift: u32, room: &'r mut CpuRoom) -> CpuSet<'r> {
        let words = core::array::from_fn(|word| self.0[word].load(Ordering::Acquire));
        CpuSet::of(room.0.write(CpuWords::new(words, shift)))
    }
}

/// Room for the CPUs of a large machine, which costs nothing until it is used.
#[derive(Debug)]
pub struct CpuRoom(MaybeUninit<CpuWords>);

impl CpuRoom {
    /// Room with nothing in it.
    #[inline]
    #[must_use]
    pub const fn new() -> CpuRoom {
        CpuRoom(MaybeUninit::uninit())
    }
}

impl Default for CpuRoom {
    fn default() -> Self {
        CpuRoom::new()
    }
}

/// A bit for each of 64 things that are newer than their copies.
///
/// Whoever changes a thing marks it after that; whoever copies it takes the mark away
/// before that. So the copy has the change, or the mark is there again.
#[derive(Debug, Default)]
pub struct DirtyMarks(AtomicU64);

impl DirtyMarks {
    /// The marks of `bits`.
    #[inline]
    pub fn get(&self, bits: u64) -> u64 {
        self.0.load(Ordering::Acquire) & bits
    }

    /// Nothing is marked: nobody else knows the things.
    pub fn begin(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    /// Marks `bits`, after everything that the caller has changed there. Returns those
    /// that were not marked; writes nothing if all were.
    #[inline]
    pub(crate) fn mark_after_change(&self, bits: u64) -> u64 {
        fence(Ordering::SeqCst);
        if self.0.load(Ordering::Relaxed) & bits == bits {
            return 0;
        }
        bits & !self.0.fetch_or(bits, Ordering::AcqRel)
    }

    /// Takes the marks of `bits` away, before the caller copies what is there. Returns those
    /// there were.
    #[inline]
    pub(crate) fn take_before_copy(&self, bits: u64) -> u64 {
        if self.0.load(Ordering::Relaxed) & bits == 0 {
            return 0;
        }
        let taken = bits & self.0.fetch_and(!bits, Ordering::AcqRel);
        fence(Ordering::SeqCst);
        taken
    }
}

/// A mark of an item that others may be about to replace.
///
/// A thread that marks an item looks for it once more after that. A thread that replaces the item first
/// changes what such a look finds, and then asks for the mark, to carry it over. So the mark is carried
/// over, or the look finds the change.
#[derive(Debug, Default)]
pub struct CarriedMark(AtomicU32);

impl CarriedMark {
    /// Whether the item is marked.
    pub(crate) fn get(&self) -> bool {
        self.0.load(Ordering::Acquire) != 0
    }

    /// Nobody else knows the item.
    pub(crate) fn begin(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    /// Marks an item that nobody replaces meanwhile.
    pub(crate) fn set(&self) {
        self.0.store(1, Ordering::Release);
    }

    /// Marks the item, and then does `look`.
    pub(crate) fn mark_then<T>(&self, look: impl FnOnce() -> T) -> T {
        self.set();
        fence(Ordering::SeqCst);
        look()
    }

    /// Whether the item is marked, asked after the caller has begun to replace it.
    pub(crate) fn get_after_change(&self) -> bool {
        fence(Ordering::SeqCst);
        self.get()
    }

    /// Takes the mark; returns whether the item was marked.
    pub(crate) fn take(&self) -> bool {
        self.0.swap(0, Ordering::AcqRel) != 0
    }
}

/// A length that is shortened while others add below it.
///
/// Whoever adds something below the length stores it, passes a full fence, and
/// then asks for the length; whoever shortens it does so and then looks for what
/// has been added. So what is beyond the new end is found by the one, or not
/// used by the other.
#[derive(Debug, Default)]
pub struct Length(AtomicU64);

impl Length {
    /// The length now.
    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    /// Sets the length of something that nobody else knows.
    pub fn begin(&self, length: u64) {
        self.0.store(length, Ordering::Relaxed);
    }

    /// Makes it at least `length`.
    pub(crate) fn extend_to(&self, length: u64) {
        self.0.fetch_max(length, Ordering::AcqRel);
    }

    /// Sets the length, and then does `look`.
    pub(crate) fn set_then<T>(&self, length: u64, look: impl FnOnce() -> T) -> T {
        self.0.store(length, Ordering::Release);
        fence(Ordering::SeqCst);
        look()
    }
}
