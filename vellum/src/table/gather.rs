//! Batched unmapping: one flush for many pages, and nothing freed before it.
//!
//! A frame keeps its reference, and an unlinked table its contents, until the
//! CPUs that may hold translations have been flushed. Tables are then retired:
//! walkers without a lock may read them until their epoch has passed.

use super::pages::{Chain, TablePages};
use crate::addr::{PageRange, Pfn, Vpn};
use crate::frame::{PageFlags, PhysicalMemory};
use crate::platform::{CpuSet, Flush, Machine, SpaceTag};
use crate::sync::{ActiveSet, CpuRoom, Pin};

/// Runs of frames a gather holds before it flushes by itself.
const RUNS: usize = 256;
/// How many of them have a place from the start. Most unmappings need no more, and the
/// others' places are filled only then.
const FIRST_RUNS: usize = 16;
/// Beside a run's count: stores to its frames may be under way.
const DIRTY: u32 = 1 << 31;
/// Instead of a count: the frames are those of a large leaf, whose log2 is in the low bits.
const LARGE: u32 = 1 << 30;

/// Whose translations an unmapping makes stale.
#[derive(Clone, Copy, Debug)]
pub struct FlushTarget<'t> {
    /// The space's tag.
    pub tag: SpaceTag,
    /// Every CPU that may hold its translations.
    pub cpus: CpuSet<'t>,
}

/// Frames in a row, and how many, with [`DIRTY`], or [`LARGE`].
type Run = (Pfn, u32);

/// The runs of a gather.
struct Runs {
    first: [Run; FIRST_RUNS],
    more: Option<[Run; RUNS - FIRST_RUNS]>,
    used: usize,
}

impl Runs {
    #[inline]
    fn new() -> Runs {
        Runs {
            first: [(Pfn::NONE, 0); FIRST_RUNS],
            more: None,
            used: 0,
        }
    }

    /// The place of a run; `None` for one that has none yet.
    #[inline]
    fn place(&mut self, place: usize) -> Option<&mut Run> {
        match place.checked_sub(FIRST_RUNS) {
            None => self.first.get_mut(place),
            Some(place) => self.more.as_mut()?.get_mut(place),
        }
    }

    #[inline]
    fn last(&mut self) -> Option<&mut Run> {
        self.place(self.used.checked_sub(1)?)
    }

    /// Adds a run. There is room.
    #[inline]
    fn push(&mut self, run: Run) {
        debug_assert!(self.used < RUNS, "gather not flushed when full");
        if self.used == FIRST_RUNS && self.more.is_none() {
            self.make_room();
        }
        if let Some(place) = self.place(self.used) {
            *place = run;
            self.used += 1;
        }
    }

    #[cold]
    #[inline(never)]
    fn make_room(&mut self) {
        self.more = Some([(Pfn::NONE, 0); RUNS - FIRST_RUNS]);
    }

    fn iter(&self) -> impl Iterator<Item = &Run> {
        let more = self.more.iter().flatten();
        self.first.iter().chain(more).take(self.used)
    }
}

/// Collects what an unmapping makes free.
pub struct Gather<'g, P: Machine> {
    memory: &'g PhysicalMemory<P>,
    source: &'g dyn TablePages<P>,
    pin: &'g Pin<'g>,
    target: FlushTarget<'g>,
    /// Whom to ask at each flush.
    live: Option<ActiveSet<'g>>,
    runs: Runs,
    stale: PageRange,
    tables: Chain,
    tables_freed: u32,
}

impl<'g, P: Machine> Gather<'g, P> {
    /// An empty gather. A `target` without CPUs needs no flush.
    ///
    /// # Safety
    /// With each frame that the caller puts in goes a reference that it holds; each
    /// table was unlinked, is empty, and came from `source`; and `target` has every CPU
    /// that may hold a translation of what is put in.
    #[inline]
    pub unsafe fn new(
        memory: &'g PhysicalMemory<P>,
        source: &'g dyn TablePages<P>,
        pin: &'g Pin<'g>,
        target: FlushTarget<'g>,
    ) -> Self {
        Gather {
            memory,
            source,
            pin,
            target,
            live: None,
            runs: Runs::new(),
            stale: PageRange::default(),
            tables: Chain::EMPTY,
            tables_freed: 0,
        }
    }

    /// The same for a space that other CPUs may begin to use meanwhile: each
    /// flush goes to the CPUs in `active` by then. A CPU enters the set before
    /// it reads the space's tables, so that one which is not in it when the
    /// entries have been changed has seen none of the old ones.
    #[inline]
    pub(crate) fn following(mut self, active: ActiveSet<'g>) -> Self {
        self.live = Some(active);
        self
    }

    /// Whether no CPU can hold a translation, now or later: what is unmapped is
    /// free at once.
    #[inline]
    pub(crate) fn needs_no_flush(&self) -> bool {
        self.live.is_none() && self.target.cpus.is_empty()
    }

    /// The CPUs to flush, after the entries have been changed.
    fn cpus<'r>(&'r self, room: &'r mut CpuRoom) -> CpuSet<'r> {
        match self.live {
            Some(active) => active.after_change(room),
            None => self.target.cpus,
        }
    }

    /// The translation of `page` was removed or lost rights.
    #[inline]
    pub fn stale(&mut self, page: Vpn) {
        if self.stale.is_empty() {
            self.stale = PageRange::new(page, 1);
        } else {
            self.stale.start = self.stale.start.min(page);
            self.stale.end = self.stale.end.max(page.offset(1));
        }
    }

    /// The translations of the pages of a large leaf were removed or lost rights.
    #[inline]
    pub(crate) fn stale_leaf(&mut self, page: Vpn, pages: u64) {
        self.stale(page);
        self.stale(page.offset(pages - 1));
    }

    /// Takes over a reference to the run of a large leaf, taken while the run was whole, to
    /// drop after the flush. Called with the table of the translation locked, and not the
    /// run.
    pub fn run(&mut self, first: Pfn, order: u32) {
        if self.needs_no_flush() {
            self.memory.put_run(self.pin, first, order);
            return;
        }
        self.runs.push((first, LARGE | order));
    }

    /// Takes over a reference to `frame`, to drop after the flush. Called with
    /// the table of the translation locked; [`Gather::room`] tells when the
    /// caller must unlock and flush before it goes on.
    #[inline]
    pub fn frame(&mut self, frame: Pfn) {
        if self.needs_no_flush() {
            self.memory.put(self.pin, frame);
            return;
        }
        self.add(frame, 0);
    }

    /// [`Gather::frame`] for a page of an object whose entry was marked dirty:
    /// until the flush a CPU may store to it without setting a mark anywhere,
    /// so it is marked dirty after the flush.
    #[inline]
    pub(crate) fn dirty_frame(&mut self, frame: Pfn) {
        if self.needs_no_flush() {
            self.memory.put(self.pin, frame);
            return;
        }
        self.add(frame, DIRTY);
    }

    #[inline]
    fn add(&mut self, frame: Pfn, mark: u32) {
        if let Some((first, count)) = self.runs.last()
            && *count & (DIRTY | LARGE) == mark
            && first.offset(*count & !DIRTY) == frame
        {
            *count += 1;
            return;
        }
        self.runs.push((frame, mark | 1));
    }

    /// How many more frames fit for certain.
    #[inline]
    pub fn room(&self) -> usize {
        if self.needs_no_flush() {
            usize::MAX
        } else {
            RUNS - self.runs.used
        }
    }

    /// Takes over an unlinked table.
    pub fn table(&mut self, table: Pfn) {
        let frame = self.memory.frame(table).table();
        // The entry that led to it may be cached, even if none in it was live.
        self.stale(frame.base());
        // The live count of an unlinked table is not needed any more. Tables go
        // back in the order in which they were unlinked, in rows if they lie so.
        self.tables.append(self.memory, table.0);
        self.tables_freed += 1;
    }

    /// Whether there is nothing to flush or to free.
    pub fn is_empty(&self) -> bool {
        self.runs.used == 0 && self.stale.is_empty() && self.tables.is_empty()
    }

    /// Tables taken over so far.
    pub(crate) fn tables_freed(&self) -> u32 {
        self.tables_freed
    }

    /// Flushes and frees what was gathered. The caller holds no spin lock.
    pub fn flush(&mut self) {
        let has_tables = !self.tables.is_empty();
        if !self.needs_no_flush() && (has_tables || !self.stale.is_empty()) {
            let mut room = CpuRoom::new();
            let cpus = self.cpus(&mut room);
            if !cpus.is_empty() {
                let request = Flush {
                    space: self.target.tag,
                    range: Some(self.stale),
                    tables: has_tables,
                };
                self.memory.flush(self.pin, cpus, &request);
            }
        }
        self.stale = PageRange::default();
        for &(first, count) in self.runs.iter() {
            if count & LARGE != 0 {
                self.memory.put_run(self.pin, first, count & !LARGE);
                continue;
            }
            for frame in 0..count & !DIRTY {
                let frame = first.offset(frame);
                if count & DIRTY != 0 {
                    self.memory.frame(frame).page().set(PageFlags::DIRTY);
                }
                self.memory.put(self.pin, frame);
            }
        }
        self.runs.used = 0;
        if has_tables {
            let tables = core::mem::replace(&mut self.tables, Chain::EMPTY);
            self.memory.uncharge_tables(self.pin, tables);
            // SAFETY: unlinked and empty, as the caller of `new` promised, and flushed.
            unsafe { self.source.retire(self.memory, self.pin, tables) };
        }
    }
}

impl<P: Machine> Drop for Gather<'_, P> {
    fn drop(&mut self) {
        self.flush();
    }
}
