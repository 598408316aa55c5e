//! An arena: hand out, take back, grow.

use alloc::boxed::Box;
use core::marker::PhantomData;

use super::batch::Batch;
use super::cache::{Cache, SlotDepot, Slots};
use super::directory::{Directory, Entry, HANDLE_BITS, Zeroable};
use super::handle::Handle;
use super::home::{Home, Layout, MOST_SLOTS};
use super::numbers::{Numbers, Taken};
use super::pinned::{ForGood, Stay};
use crate::addr::Pfn;
use crate::frame::{Kind, OutOfMemory, PhysicalMemory, Relief, Request, Site};
use crate::platform::Machine;
use crate::sync::atomic::{AtomicU32, Ordering};
use crate::sync::limbo::{Chain, ChainLinks};
use crate::sync::report::{Fields, Kind as Reported, name, report};
use crate::sync::{CachePadded, PerCpu, Pin};

/// Retirements of one CPU after which it tries to move the epoch on, at least.
const ADVANCE_INTERVAL: u32 = 64;
/// Retired slots for which a CPU without vacant ones tries it, rather than take a frame.
const WORTH_ADVANCING: u32 = 16;

/// Vacant slots of a CPU's list, at least: as many as come back at a time when an epoch
/// has passed.
const LIST: u32 = ADVANCE_INTERVAL;

/// Lists of so many slots that a CPU may keep: two of vacant ones, and what waits.
const LISTS_OF_A_CPU: usize = 4;

/// Frames that an arena may have on however small a machine.
const LEAST_FRAMES: usize = 128;

/// Slots that anybody may have, however few are left for all.
const FEW: u64 = 64;
/// Who has more may have one in so many of those that are left.
const PARTS_LEFT: u64 = 4;

/// A type that lives in an arena.
///
/// Its values are shared with stale readers for as long as the arena lives, so
/// all of it is atomics or constant, and it is never dropped.
pub trait Item: Sync + 'static {
    /// The number of the place that its allocations have.
    const SITE: Site;
    /// Names of fields, with their offsets.
    const FIELDS: Fields = &[];
    /// An arena may take one in so many frames of the machine ([`ArenaMaker`](super::ArenaMaker)).
    const SHARE: usize = 32;
    /// What helps a call when the arena has taken those.
    const RELIEF: Relief = Relief::Others;

    /// What a slot holds until it is used for the first time.
    fn vacant() -> Self;

    /// A word that is the arena's while the slot is vacant. Stale readers must
    /// not interpret it.
    fn link(&self) -> &AtomicU32;
}

/// Slots for values of one type.
///
/// `S` says how long their frames stay the arena's, and with that who may follow a handle or an
/// address: anybody ([`ForGood`]), or whoever is pinned ([`WhilePinned`](super::WhilePinned)).
pub struct Arena<T: Item, S: Stay = ForGood> {
    pub(super) directory: Directory<Entry>,
    /// Log2 of the handles that a chunk takes up.
    pub(super) slot_bits: u32,
    slot_mask: u32,
    /// Slots in a chunk, and in a batch.
    pub(super) slots: u32,
    /// Slots of a full list of a CPU's: whole batches.
    list: u32,
    pub(super) frame_size: usize,
    advance_interval: u32,
    /// What a handle that was never handed out leads to.
    vacant: Box<T>,
    pub(super) caches: PerCpu<Cache>,
    /// Numbers for the next chunks of each CPU.
    pub(super) taken: PerCpu<Taken>,
    pub(super) depot: CachePadded<SlotDepot>,
    pub(super) growth: CachePadded<Growth>,
    slot: PhantomData<fn() -> (T, S)>,
}

/// What changes when an arena grows, apart from what every use of a handle reads.
#[repr(C)]
pub(super) struct Growth {
    /// Of the chunks there are, are being made, and that CPUs will make next.
    pub(super) numbers: Numbers,
    /// Frames of the directory.
    pub(super) leaf_frames: AtomicU32,
    /// Where vacant slots and their chunks go, if frames are given back.
    pub(super) home: Option<Box<Home>>,
}

/// What items of every type have in common, compiled once.
impl Growth {
    /// A frame for a chunk, and its number, whose entry has a leaf.
    #[cold]
    #[inline(never)]
    fn new_chunk<P: Machine>(
        &self,
        directory: &Directory<Entry>,
        taken: &Taken,
        pin: &Pin<'_>,
        memory: &PhysicalMemory<P>,
        relief: Relief,
    ) -> Result<(u32, Pfn), OutOfMemory> {
        let frame = take_frame(pin, memory, Request::page(Site::SlabFrame).low())?;
        let used_before = self.home.as_ref().and_then(|home| home.take_number(pin));
        let number = match used_before {
            Some(number) => Ok(Some(number)),
            None => self.numbers.take(taken, |from, to| {
                if directory.entry(to).is_some() {
                    return Ok(());
                }
                if let Some(home) = &self.home {
                    // First, so that a number with an entry has a book.
                    self.add_leaves(&home.books, pin, memory, (from, to))?;
                }
                self.add_leaves(directory, pin, memory, (from, to))
            }),
        };
        if let Ok(Some(number)) = number {
            if let Some(home) = &self.home {
                home.note_frame(number, frame);
            }
            return Ok((number, frame));
        }
        memory.put(pin, frame);
        if number.is_ok() {
            memory.note_refusal(pin, relief);
        }
        Err(OutOfMemory)
    }

    /// Adds the leaves that are missing of the entries `from` to `to`, in ascending order: if an
    /// entry has a leaf, so have all before it.
    #[cold]
    fn add_leaves<P: Machine, E: Zeroable>(
        &self,
        directory: &Directory<E>,
        pin: &Pin<'_>,
        memory: &PhysicalMemory<P>,
        (from, to): (u32, u32),
    ) -> Result<(), OutOfMemory> {
        let mut number = from;
        loop {
            if directory.entry(number).is_none() {
                let request = Request::page(Site::SlabDirectory).low().zeroed();
                let frame = take_frame(pin, memory, request)?;
                // SAFETY: the frame is zeroed and ours alone, and the directory's from here on if
                // it is added; the caller of `Arena::new` keeps the memory alive.
                if unsafe { directory.install(number, memory.direct(frame)) } {
                    self.leaf_frames.fetch_add(1, Ordering::Relaxed);
                } else {
                    // Somebody else has added it.
                    memory.put(pin, frame);
                }
            }
            match directory.next_leaf(number) {
                next if next <= to => number = next,
                _ => return Ok(()),
            }
        }
    }
}

/// Vacant slots, linked by their handles.
impl<T: Item, S: Stay> ChainLinks for Arena<T, S> {
    const END: u32 = 0;

    #[inline]
    fn next(&self, slot: u32) -> u32 {
        self.link_of(slot).load(Ordering::Relaxed)
    }

    #[inline]
    fn set_next(&self, slot: u32, next: u32) {
        self.link_of(slot).store(next, Ordering::Relaxed);
    }
}

impl<T: Item, S: Stay> Layout for Arena<T, S> {
    fn chunk(&self) -> (u32, u32) {
        (self.slot_bits, self.slots)
    }

    #[inline]
    fn link_of(&self, slot: u32) -> &AtomicU32 {
        // SAFETY: whoever has a vacant slot, or has the lock of what is at home, keeps its chunk
        // from being given back: that takes all slots of a chunk, at home, and the lock.
        unsafe { self.get_as(Handle::from_raw(slot)) }.link()
    }
}

impl<T: Item, S: Stay> Slots for Arena<T, S> {
    fn place(&self, index: u32) -> (&AtomicU32, &AtomicU32) {
        // A batch exists only if a chunk of a number above its place does, and
        // a chunk's number has a leaf.
        let Some(entry) = self.directory.entry(index) else {
            unreachable!("more batches than chunks");
        };
        (&entry.head, &entry.tail)
    }
}

impl<T: Item> Arena<T> {
    /// The slot of a handle. It may have been freed and used anew since the
    /// handle was read; the caller re-verifies.
    #[inline]
    pub fn get(&self, handle: Handle<T>) -> &T {
        // SAFETY: the frame stays the arena's.
        unsafe { self.get_as(handle) }
    }

    /// The slot of a handle that may be made up: `None` if there is no such
    /// slot. It need not be in use.
    #[inline]
    pub(crate) fn try_get(&self, handle: Handle<T>) -> Option<&T> {
        // SAFETY: as above.
        unsafe { self.slot(handle) }
    }
}

impl<T: Item, S: Stay> Arena<T, S> {
    /// An arena without slots; see [`ArenaMaker`](super::ArenaMaker).
    ///
    /// # Safety
    /// The arena is used with one [`PhysicalMemory`] only, and not after that
    /// was dropped: slots live in its frames.
    pub(super) unsafe fn new(cpus: usize, frames: usize, frame_size: usize) -> Self {
        const { assert!(!core::mem::needs_drop::<T>() && size_of::<T>() > 0) };
        assert!(
            size_of::<T>() <= frame_size && align_of::<T>() <= frame_size,
            "a node has to fit into a frame"
        );
        let slots = (frame_size / size_of::<T>()) as u32;
        let slot_bits = slots.next_power_of_two().ilog2();
        let most = (1u32 << (HANDLE_BITS - slot_bits)) - 1;
        let batches = LIST.div_ceil(slots);
        // Each CPU may keep full lists of vacant slots, and as many that wait for their epoch.
        let least = LEAST_FRAMES + LISTS_OF_A_CPU * batches as usize * cpus;
        let chunks = (frames / T::SHARE).max(least).min(frames);
        let chunks = u32::try_from(chunks).unwrap_or(most);
        let numbers = Numbers::new(chunks, most, cpus);
        let frame_shift = frame_size.ilog2();
        let home = S::RETURNS.then(|| {
            assert!(slots <= MOST_SLOTS, "a frame with too many nodes");
            Box::new(Home::new(numbers.most(), frame_shift))
        });
        Arena {
            directory: Directory::new(numbers.most(), frame_shift),
            slot_bits,
            slot_mask: (1 << slot_bits) - 1,
            slots,
            list: slots * batches,
            frame_size,
            advance_interval: ADVANCE_INTERVAL.max(cpus as u32),
            // Made where it stays: some are large, and a manager is made on a small stack.
            vacant: Box::write(Box::new_uninit(), T::vacant()),
            caches: PerCpu::new(cpus, |_| Cache::default()),
            taken: PerCpu::new(cpus, |_| Taken::default()),
            depot: CachePadded(SlotDepot::default()),
            growth: CachePadded(Growth {
                numbers,
                leaf_frames: AtomicU32::new(0),
                home,
            }),
            slot: PhantomData,
        }
    }

    /// Where vacant slots go, if frames are given back. What follows for others is not compiled.
    #[inline(always)]
    pub(super) fn home(&self) -> Option<&Home> {
        match S::RETURNS {
            true => self.growth.home.as_deref(),
            false => None,
        }
    }

    /// The slot of a handle, or a value that was never in use.
    ///
    /// # Safety
    /// As for [`Arena::slot`].
    #[inline]
    pub(super) unsafe fn get_as(&self, handle: Handle<T>) -> &T {
        // SAFETY: the caller's promise.
        let found = unsafe { self.slot(handle) };
        debug_assert!(found.is_some(), "{handle:?} was never handed out");
        found.unwrap_or(&self.vacant)
    }

    /// The slot of a handle, if there is one.
    ///
    /// # Safety
    /// If frames are given back, the caller was pinned when it called this and is as long as it
    /// uses the slot, or keeps the slot from being vacant, or the chunk from being given back.
    #[inline]
    pub(super) unsafe fn slot(&self, handle: Handle<T>) -> Option<&T> {
        let base = self.locate(handle)?;
        // SAFETY: `base` was published by `carve` with `slots` initialised
        // values behind it, in a frame that is the arena's own from then on, or until it was
        // cleared and whoever was pinned then no longer is, and not given back before if the caller
        // keeps its promise; that of `new` keeps the memory alive; values are only changed
        // through their own interior.
        Some(unsafe { &*base })
    }

    /// Where the slot of a handle is.
    #[inline]
    fn locate(&self, handle: Handle<T>) -> Option<*const T> {
        let raw = handle.raw();
        let slot = raw & self.slot_mask;
        let base = self.directory.entry(raw >> self.slot_bits)?.base::<T>();
        if base.is_null() || slot >= self.slots {
            return None;
        }
        // `slot` is one of the chunk's.
        Some(base.wrapping_add(slot as usize))
    }

    /// Where the slot of a handle lies, as a word to be kept and followed with
    /// [`Arena::at`], which takes a load less than following the handle.
    #[inline]
    pub fn address(&self, handle: Handle<T>) -> u64 {
        let place = self.locate(handle);
        debug_assert!(place.is_some(), "{handle:?} was never handed out");
        place.unwrap_or(&raw const *self.vacant).expose_provenance() as u64
    }

    /// Where a value lies that was never in use, as a word like those of
    /// [`Arena::address`].
    pub(crate) fn vacant_address(&self) -> u64 {
        core::ptr::from_ref(&*self.vacant).expose_provenance() as u64
    }

    /// The slot at an address. It may have been freed and used anew since the
    /// address was read; the caller re-verifies.
    ///
    /// # Safety
    /// [`Arena::address`] of this arena, or `Arena::vacant_address`, returned `address`, and the
    /// caller sees what was written before that call: the address was published by a release and
    /// read by an acquire, or under a lock. If frames are given back, the slot was in use at some
    /// time since the caller was pinned, and the pin lasts; or it is in use.
    #[inline]
    pub unsafe fn at(&self, address: u64) -> &T {
        let slot = core::ptr::with_exposed_provenance::<T>(address as usize);
        // SAFETY: slots are never anything but a `T` from the time they have an
        // address (invariant 7), and stay where they are for as long as the caller says, or the
        // arena lives.
        unsafe { &*slot }
    }

    /// A slot, with whatever its last user left in it.
    ///
    /// # Errors
    /// [`OutOfMemory`] if there is no vacant slot and no frame for more, or
    /// the failure was planned.
    #[inline]
    pub fn alloc<P: Machine>(
        &self,
        pin: &Pin<'_>,
        memory: &PhysicalMemory<P>,
    ) -> Result<Handle<T>, OutOfMemory> {
        if memory.fail_now(T::SITE) {
            return Err(OutOfMemory);
        }
        let cache = self.caches.get(pin);
        let mut slot = cache.pop(self);
        if slot == 0 {
            self.refill(pin, memory)?;
            slot = cache.pop(self);
        }
        cache.count_allocs(1);
        Ok(Handle::from_raw(slot))
    }

    /// Adds `count` slots to `out`: all of them or none.
    ///
    /// # Errors
    /// As [`Arena::alloc`]; a plan counts the whole batch once.
    pub fn alloc_batch<P: Machine>(
        &self,
        pin: &Pin<'_>,
        memory: &PhysicalMemory<P>,
        count: usize,
        out: &mut Batch<T>,
    ) -> Result<(), OutOfMemory> {
        if memory.fail_now(T::SITE) {
            return Err(OutOfMemory);
        }
        let taken = self.gather(pin, memory, count)?;
        self.caches.get(pin).count_allocs(count as u64);
        out.list.prepend(self, taken);
        Ok(())
    }

    /// Takes `count` vacant slots together, or none.
    fn gather<P: Machine>(
        &self,
        pin: &Pin<'_>,
        memory: &PhysicalMemory<P>,
        count: usize,
    ) -> Result<Chain, OutOfMemory> {
        let cache = self.caches.get(pin);
        let mut taken = Chain::EMPTY;
        while (taken.count as usize) < count {
            let left = count - taken.count as usize;
            if cache.active_count() == 0
                && let Err(error) = self.refill(pin, memory)
            {
                self.put_list(pin, taken);
                return Err(error);
            }
            if cache.active_count() as usize <= left {
                taken.prepend(self, cache.take_active());
            } else {
                for _ in 0..left {
                    let slot = cache.pop(self);
                    taken.push(self, slot);
                }
            }
        }
        Ok(taken)
    }

    /// Makes sure that the next `count` calls of `Arena::take_reserved`
    /// under this pin succeed, whatever is freed or retired in between. What
    /// is not taken stays with the CPU for its next reservation. No
    /// [`Arena::alloc`] or [`Arena::alloc_batch`] may come in between.
    ///
    /// # Errors
    /// As [`Arena::alloc`]; a plan counts the whole reservation once.
    #[inline]
    pub fn reserve<P: Machine>(
        &self,
        pin: &Pin<'_>,
        memory: &PhysicalMemory<P>,
        count: usize,
    ) -> Result<(), OutOfMemory> {
        if memory.fail_now(T::SITE) {
            return Err(OutOfMemory);
        }
        // Up to a batch, what frees leave at hand is enough: they send a batch
        // to the depot only when they leave another.
        let cache = self.caches.get(pin);
        let suffices = count <= self.slots as usize && count <= cache.at_hand() as usize;
        if suffices || count <= cache.reserved_count() as usize {
            return Ok(());
        }
        self.set_aside(pin, memory, count)
    }

    #[cold]
    fn set_aside<P: Machine>(
        &self,
        pin: &Pin<'_>,
        memory: &PhysicalMemory<P>,
        count: usize,
    ) -> Result<(), OutOfMemory> {
        let cache = self.caches.get(pin);
        let missing = count.saturating_sub(cache.reserved_count() as usize);
        let list = self.gather(pin, memory, missing)?;
        cache.add_reserved(self, list);
        Ok(())
    }

    /// A slot that was reserved under this pin, with whatever its last user
    /// left in it.
    ///
    /// # Panics
    /// If more slots are taken than were reserved.
    #[inline]
    pub(crate) fn take_reserved(&self, pin: &Pin<'_>) -> Handle<T> {
        let cache = self.caches.get(pin);
        let mut slot = cache.pop(self);
        if slot == 0 {
            slot = cache.pop_at_hand(self);
            assert!(slot != 0, "more slots taken than were reserved");
        }
        cache.count_allocs(1);
        Handle::from_raw(slot)
    }

    /// Takes back a slot that nobody uses any more. It may be handed out again
    /// at once; stale readers notice.
    #[inline]
    pub fn free(&self, pin: &Pin<'_>, handle: Handle<T>) {
        debug_assert!(!handle.is_none(), "no slot to free");
        let cache = self.caches.get(pin);
        cache.count_frees(1);
        if let Some(list) = cache.push(self, handle.raw(), self.list) {
            self.depot.push(self, list, self.slots, pin);
        }
    }

    /// Takes back what is left of a batch.
    pub fn free_batch(&self, pin: &Pin<'_>, batch: Batch<T>) {
        self.caches
            .get(pin)
            .count_frees(u64::from(batch.list.count));
        self.put_list(pin, batch.list);
    }

    /// Takes back a slot that stale readers must not see used anew: it is
    /// handed out again once everybody who is pinned now no longer is.
    pub(crate) fn retire(&self, pin: &Pin<'_>, handle: Handle<T>) {
        debug_assert!(!handle.is_none(), "no slot to retire");
        let cache = self.caches.get(pin);
        let passed = cache.retire(self, handle.raw(), pin);
        self.free_list(pin, passed);
        if cache.time_to_advance(self.advance_interval) {
            pin.epochs().try_advance_alone(pin);
            self.free_passed(pin);
        }
    }

    /// Frees what this CPU retired and nobody can see any more.
    fn free_passed(&self, pin: &Pin<'_>) {
        loop {
            let passed = self.caches.get(pin).take_passed(pin);
            if passed.is_empty() {
                break;
            }
            self.free_list(pin, passed);
        }
    }

    fn free_list(&self, pin: &Pin<'_>, list: Chain) {
        self.caches.get(pin).count_frees(u64::from(list.count));
        self.put_list(pin, list);
    }

    /// Puts slots into the cache without counting them.
    fn put_list(&self, pin: &Pin<'_>, mut list: Chain) {
        let cache = self.caches.get(pin);
        loop {
            if list.count == self.slots && self.slots == self.list && cache.active_count() > 0 {
                self.depot.push(self, list, self.slots, pin);
                return;
            }
            let Some(slot) = list.pop(self) else { break };
            if let Some(full) = cache.push(self, slot, self.list) {
                self.depot.push(self, full, self.slots, pin);
            }
        }
    }

    /// Gives an empty cache slots: its spare batch, one from the depot, retired
    /// ones, or those of a new frame.
    #[cold]
    #[inline(never)]
    fn refill<P: Machine>(
        &self,
        pin: &Pin<'_>,
        memory: &PhysicalMemory<P>,
    ) -> Result<(), OutOfMemory> {
        let cache = self.caches.get(pin);
        // So that neither a few allocations nor a few frees come back here.
        let half = (self.list / self.slots).div_ceil(2);
        let batch = cache
            .take_spare()
            .or_else(|| self.depot.pop(self, self.slots, half, pin));
        let home = self.home();
        let batch = batch.or_else(|| home?.take(self, self.slots * half, pin));
        if let Some(batch) = batch {
            cache.set_active(batch);
            return Ok(());
        }
        if cache.waiting() >= WORTH_ADVANCING {
            pin.epochs().try_advance_alone(pin);
        }
        self.free_passed(pin);
        if cache.active_count() > 0 {
            return Ok(());
        }
        if let Some(batch) = cache.take_spare() {
            cache.set_active(batch);
            return Ok(());
        }
        cache.set_active(self.carve(pin, memory)?);
        Ok(())
    }

    /// Makes a frame into slots, in ascending order.
    fn carve<P: Machine>(
        &self,
        pin: &Pin<'_>,
        memory: &PhysicalMemory<P>,
    ) -> Result<Chain, OutOfMemory> {
        debug_assert!(
            memory.frame_size() == self.frame_size,
            "another machine's memory"
        );
        let (number, frame) =
            self.growth
                .new_chunk(&self.directory, self.taken.get(pin), pin, memory, T::RELIEF)?;
        let chunk = memory.direct(frame);
        let first = number << self.slot_bits;
        for slot in 0..self.slots {
            let value = T::vacant();
            let last = slot + 1 == self.slots;
            let next = if last { 0 } else { first + slot + 1 };
            value.link().store(next, Ordering::Relaxed);
            // SAFETY: the frame is ours alone, is aligned to its size, and has
            // room for `slots` values.
            let place = unsafe { chunk.cast::<T>().add(slot as usize) };
            report(Reported::PlainWrite, place.as_ptr().cast(), size_of::<T>());
            // SAFETY: as above.
            unsafe { place.write(value) };
        }
        let values = chunk.cast::<T>().as_ptr();
        let what = core::any::type_name::<T>();
        name(what, T::FIELDS, values.cast_const(), self.slots as usize);
        let entry = self.directory.entry(number);
        debug_assert!(entry.is_some(), "a chunk without an entry");
        if let Some(entry) = entry {
            entry.set_base(chunk);
        }
        Ok(Chain {
            head: first,
            tail: first + self.slots - 1,
            count: self.slots,
        })
    }

    /// Whether somebody who has `count` slots may have more: few, or a quarter of what is left for
    /// all others. So one alone gets a fifth of what the arena may have, ten one after the other
    /// leave a tenth, and whoever comes last finds a quarter of that. (What CPUs keep at hand
    /// does not count as left.)
    #[inline]
    pub(crate) fn may_have_more(&self, count: u64) -> bool {
        count < FEW || count <= self.left() / PARTS_LEFT
    }

    /// Slots that anybody could have.
    fn left(&self) -> u64 {
        let numbers = &self.growth.numbers;
        let home = self.home();
        let chunks =
            numbers.most() - numbers.taken() + self.depot.depth() + home.map_or(0, Home::numbers);
        u64::from(chunks) * u64::from(self.slots) + home.map_or(0, |home| home.slots().into())
    }

    /// Names the depot, and what changes with growth.
    #[cfg(vellum_instrumented)]
    pub(crate) fn name_parts(&self, [depot, growth]: [&'static str; 2]) {
        name(depot, &[], &raw const self.depot, 1);
        name(growth, &[], &raw const self.growth, 1);
    }
}

fn take_frame<P: Machine>(
    pin: &Pin<'_>,
    memory: &PhysicalMemory<P>,
    request: Request,
) -> Result<Pfn, OutOfMemory> {
    let frame = memory.alloc(pin, request)?;
    memory.frame(frame).set_kind(Kind::Slab);
    Ok(frame)
}
