//! The manager: what it is made of, and how it finds an address space.

use crate::sync::ActiveSet;
use alloc::boxed::Box;
use alloc::format;
use alloc::sync::Arc;
use core::marker::PhantomData;
use core::ops::Deref;

use super::account::{Delta, Resident};
use super::common::{Common, PageCache};
use super::error::CreateError;
use super::extras::{Extras, could_have_superpages};
use super::region::Region;
use super::spaces::{Live, Loaded, SpaceId, SpaceRecord};
use super::tract::Tracts;
use crate::addr::Pfn;
use crate::design::{CommitMode, Design, FileHuge, GroupMode, HugePages, Superpages};
use crate::frame::{MOST_RESERVED, MemoryView, PhysicalMemory};
use crate::object::{Aging, Objects};
use crate::platform::{CpuSet, Platform, SpaceTag};
use crate::reclaim::Reclaim;
use crate::rmap::{Env, ReverseMap, VisitReport};
use crate::slab::{Arena, ArenaMaker, Handle, WhilePinned};
use crate::swap::Swap;
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::sync::{Announcements, Counter, PerCpu, Pin, WaitTable};
use crate::table::{Format, SpaceLock, TablePages, Tables, source_of};
use crate::tree::RangeNode;

/// What each CPU keeps.
#[derive(Default)]
pub(in crate::space) struct VmCpu {
    /// What it added to the space it has loaded.
    pub(in crate::space) delta: Delta,
    /// Where that space lies, as its arena says. A CPU that has loaded none has the
    /// address of one that never was: the name 0, which callers may make up, leads there.
    space_at: AtomicU64,
    /// The region of its last fault, or 0.
    pub(in crate::space) last_region: AtomicU32,
    /// What its gate was then, in which nothing has changed if it still is.
    pub(in crate::space) last_region_opened: AtomicU32,
    /// Where that region lies, as its arena says.
    pub(in crate::space) last_region_at: AtomicU64,
    pub(in crate::space) events: Events,
    /// The page that it last mapped where it found room in a space in tracts, and that space's
    /// key.
    pub(in crate::space) mapped_at: AtomicU64,
    pub(in crate::space) mapped_in: AtomicU64,
}

/// Event counts of one CPU.
#[derive(Default)]
pub(in crate::space) struct Events {
    pub(in crate::space) faults: Counter,
    pub(in crate::space) spurious_faults: Counter,
    pub(in crate::space) zero_maps: Counter,
    pub(in crate::space) zero_fills: Counter,
    pub(in crate::space) file_maps: Counter,
    pub(in crate::space) around_maps: Counter,
    pub(in crate::space) cow_copies: Counter,
    pub(in crate::space) cow_reuses: Counter,
    pub(in crate::space) fault_retries: Counter,
    pub(in crate::space) tables_made: Counter,
    pub(in crate::space) tables_freed: Counter,
    pub(in crate::space) tables_moved: Counter,
    pub(in crate::space) forks: Counter,
    pub(in crate::space) fork_entries: Counter,
    pub(in crate::space) maps: Counter,
    pub(in crate::space) unmaps: Counter,
    pub(in crate::space) zapped_entries: Counter,
    pub(in crate::space) exits: Counter,
    pub(in crate::space) page_reads: Counter,
    pub(in crate::space) page_writes: Counter,
    pub(in crate::space) lost_objects: Counter,
    pub(in crate::space) lookups: Counter,
    pub(in crate::space) lookup_hits: Counter,
    pub(in crate::space) lookup_misses: Counter,
    pub(in crate::space) lookup_retries: Counter,
    pub(in crate::space) superpage_maps: Counter,
    pub(in crate::space) superpage_failures: Counter,
    pub(in crate::space) superpage_demotions: Counter,
    pub(in crate::space) superpage_collapses: Counter,
    pub(in crate::space) superpage_promotions: Counter,
    pub(in crate::space) reservations: Counter,
    pub(in crate::space) folio_maps: Counter,
    pub(in crate::space) folio_pages: Counter,
    pub(in crate::space) folio_failures: Counter,
    pub(in crate::space) contiguous_runs: Counter,
    pub(in crate::space) contiguous_ends: Counter,
    pub(in crate::space) swap_ins: Counter,
}

/// A virtual-memory manager on platform `P`, with page tables of format `F`
/// and the reverse-mapping design `R`.
pub struct Vm<P: Platform, F: Format, R: ReverseMap> {
    pub(in crate::space) common: Common<P>,
    pub(crate) rmap: R,
    pub(crate) table_pages: Arc<dyn TablePages<P>>,
    pub(crate) spaces: Arena<SpaceRecord<R>>,
    pub(crate) regions: Arena<Region<R>>,
    /// By itself: a manager is made on a small stack, and faults find nodes by their addresses.
    pub(crate) region_nodes: Box<Arena<RangeNode, WhilePinned>>,
    pub(crate) tracts: Box<Tracts>,
    pub(in crate::space) announcements: Announcements,
    pub(crate) zero_page: Pfn,
    extras: Extras,
    /// Whether there are more CPUs than a [`CpuSet`] holds in one word.
    pub(in crate::space) has_many_cpus: bool,
    format: PhantomData<F>,
}

/// What calls on files and reclaim work on is found in a manager as its own.
impl<P: Platform, F: Format, R: ReverseMap> Deref for Vm<P, F, R> {
    type Target = Common<P>;

    #[inline]
    fn deref(&self) -> &Common<P> {
        &self.common
    }
}

impl<P: Platform, F: Format, R: ReverseMap> Vm<P, F, R> {
    /// A manager over the platform's memory. The only call that uses the
    /// global allocator. Reverse mapping and format are those of the type
    /// parameters; the default of these options in `design` stands for them.
    ///
    /// # Errors
    /// [`CreateError`] says what about the platform or the design does not fit, such as a design
    /// that names another reverse mapping or format than the types.
    pub fn new(platform: P, design: Design) -> Result<Self, CreateError> {
        if platform.frame_shift() != F::FRAME_SHIFT {
            return Err(CreateError(format!(
                "the platform counts frames of {} bytes, the {} format needs {}",
                1u64 << platform.frame_shift(),
                F::NAME,
                F::FRAME_SIZE
            )));
        }
        design
            .check_built_in()
            .map_err(|error| CreateError(error.0))?;
        let design = fitting_types::<F, R>(design)?;
        if let Some(option) = design.without_its_part(P::PARTS) {
            return Err(CreateError(format!(
                "{option} needs a part of the core that the platform leaves out (`Machine::PARTS`)"
            )));
        }
        let mut memory =
            PhysicalMemory::new(platform).map_err(|error| CreateError(format!("{error}")))?;
        let cpus = memory.platform().cpus();
        // SAFETY: every arena made becomes part of this manager, whose memory
        // is the one they are used with and whose pins it takes, and nothing reaches them once the
        // manager is dropped.
        let arenas = unsafe { ArenaMaker::new(cpus, memory.frame_count(), F::FRAME_SIZE) };
        let arenas = arenas.spanning(memory.view().span(), memory.platform().nodes());
        let zero_page = memory
            .reserve_zeroed()
            .ok_or_else(|| CreateError("no low memory for the shared zero page".into()))?;
        let mut aging: Option<Box<dyn Aging>> = None;
        // One or the other, not one made of the other, which would be on the stack twice.
        #[cfg(not(feature = "published"))]
        let objects = Objects::new(&arenas, design.region_index);
        #[cfg(feature = "published")]
        let mut objects = Objects::new(&arenas, design.region_index);
        #[cfg(feature = "published")]
        if P::PARTS.published {
            aging = objects.keep_pages_of(&design, memory.view());
        }
        let mut reclaim = None;
        if P::PARTS.reclaim && design.reclaim {
            if design.groups != GroupMode::Off {
                memory.keep_groups(design.groups == GroupMode::All);
            }
            let lists = Arc::new(Reclaim::new(
                memory.view(),
                memory.platform(),
                design.page_aging,
                memory.groups().cloned(),
            ));
            aging = Some(Box::new(Arc::clone(&lists)));
            reclaim = Some(lists);
            memory.tell_of_shortage();
            memory.keep_dirty_pages();
        }
        if P::PARTS.commit && design.commit != CommitMode::Off {
            memory.keep_commit(design.commit);
        }
        #[cfg(feature = "published")]
        if P::PARTS.published {
            memory.keep_lists_of(&design);
        }
        // Before there are reservations, whose statistics can be had on a CPU only.
        let table_pages = source_of(&design, &mut memory);
        let reserves = design.superpages == Superpages::Reserve || design.huge != HugePages::Never;
        if P::PARTS.superpages && reserves && F::INDEX_BITS <= MOST_RESERVED {
            memory.keep_reservations(F::INDEX_BITS);
        }
        // Before what lies on the stack until the manager is made.
        let region_nodes = Box::new(arenas.make());
        let spaces: Arena<SpaceRecord<R>> = arenas.make();
        let no_space = spaces.vacant_address();
        Ok(Vm {
            rmap: R::new(&design, cpus, &arenas),
            table_pages,
            spaces,
            regions: arenas.make(),
            region_nodes,
            tracts: Tracts::new(&arenas),
            announcements: Announcements::new(cpus),
            zero_page,
            extras: Extras::of(&design),
            has_many_cpus: cpus > CpuSet::SMALL,
            format: PhantomData,
            common: Common {
                objects,
                cpus: PerCpu::new(cpus, |_| VmCpu {
                    space_at: AtomicU64::new(no_space),
                    ..VmCpu::default()
                }),
                waits: WaitTable::with_queues(cpus),
                aging,
                swap: P::PARTS.swap.then(Swap::boxed),
                reclaim,
                superpage_order: F::INDEX_BITS,
                has_huge: wants_huge(&design) && could_have_superpages::<F>(),
                memory,
                design,
            },
        })
    }

    /// What a first store may get beside a frame for its page.
    #[inline]
    pub(in crate::space) fn extras(&self) -> Extras {
        match P::PARTS.superpages {
            true => self.extras,
            false => Extras::NONE,
        }
    }

    /// Whether private memory is mapped in superpages.
    #[inline]
    pub(in crate::space) fn superpages(&self) -> Superpages {
        match P::PARTS.superpages {
            true => self.design.superpages,
            false => Superpages::Off,
        }
    }

    /// Tells `aging` of every page that enters or leaves memory, or is used by a call, from
    /// now on. With `fileio=pages` there are lists from the beginning
    /// (`TwoLists`), which it replaces. It replaces the lists of `reclaim=on`, too, which
    /// becomes `off` by that.
    pub fn set_aging(&mut self, aging: Box<dyn Aging>) {
        self.common.reclaim = None;
        self.common.design.reclaim = false;
        self.common.aging = Some(aging);
    }

    /// The design the manager was made with, with the reverse mapping and the format
    /// that its type parameters name. A type that is not in the table of options
    /// has no name there, and leaves what [`Vm::new`] was given.
    pub fn design(&self) -> &Design {
        &self.design
    }

    /// The platform.
    pub fn platform(&self) -> &P {
        self.memory.platform()
    }

    /// Physical memory, for statistics, planned failures, and frames of the
    /// embedder's own. Frames of the manager's can be looked at and not changed:
    /// arenas and tables hold addresses in them that it follows.
    #[inline]
    pub fn memory(&self) -> MemoryView<'_, P> {
        self.memory.view()
    }

    /// Binds the caller to its CPU. Until the pin ends, a call that may sleep is refused, or
    /// panics when it comes to that (`docs/soundness.md`).
    #[inline]
    pub fn pin(&self) -> Pin<'_> {
        self.memory.pin()
    }

    #[inline]
    pub(in crate::space) fn env<'a>(&'a self, pin: &'a Pin<'_>) -> Env<'a, P> {
        Env {
            memory: &self.memory,
            pin,
        }
    }

    /// Page cache and swap cache, with whom to ask who maps their pages.
    #[inline]
    pub(crate) fn page_cache(&self) -> PageCache<'_, P> {
        PageCache {
            common: &self.common,
            mappings: self,
        }
    }

    /// The space in a place of the arena, whoever it is now.
    #[inline]
    pub(in crate::space) fn live_at(&self, handle: u32) -> Live<'_, R> {
        let space = self.spaces.get(Handle::from_raw(handle));
        let generation = space.generation.load(Ordering::Acquire);
        Live {
            space,
            key: u64::from(generation) << 32 | u64::from(handle),
        }
    }

    /// The space with this name, if it exists.
    #[inline]
    pub(in crate::space) fn find_space(&self, id: SpaceId) -> Option<Live<'_, R>> {
        self.slot_of(id)?.named(id)
    }

    /// Where the space with this name lies or lay. The name may be another manager's.
    #[inline]
    pub(in crate::space) fn slot_of(&self, id: SpaceId) -> Option<&SpaceRecord<R>> {
        self.spaces.try_get(Handle::from_raw(id.handle))
    }

    pub(in crate::space) fn tables<'a>(
        &'a self,
        pin: &'a Pin<'_>,
        space: Live<'a, R>,
    ) -> Tables<'a, P, F> {
        self.tables_under(pin, space, space.root())
    }

    /// The tables of whatever space is in this place, if there is one: it may be ending.
    pub(in crate::space) fn tables_if_any<'a>(
        &'a self,
        pin: &'a Pin<'_>,
        space: Live<'a, R>,
    ) -> Option<Tables<'a, P, F>> {
        let root = space.root();
        (!root.is_none()).then(|| self.tables_under(pin, space, root))
    }

    fn tables_under<'a>(
        &'a self,
        pin: &'a Pin<'_>,
        space: Live<'a, R>,
        root: Pfn,
    ) -> Tables<'a, P, F> {
        let (memory, source) = (&self.memory, &*self.table_pages);
        // SAFETY: `create_space` made the root, and a root is retired only when the
        // space cannot be found any more (invariant 7). What the core puts into tables
        // beside other tables are leaves.
        let tables = unsafe { Tables::new(memory, source, pin, root, space.handle()) };
        tables
            .under(self.tables_lock(space))
            .keeping_upper(space.keeps_tables())
    }

    /// The lock of all tables of a space, if it has one.
    #[inline]
    pub(in crate::space) fn tables_lock<'a>(&'a self, space: Live<'a, R>) -> SpaceLock<'a> {
        self.rmap.tables_lock(&space.get().rmap)
    }

    /// [`Space::load`](crate::space::Space::load).
    pub(crate) fn load(&self, id: SpaceId) -> Option<Loaded> {
        let pin = self.pin();
        let space = self.load_named(&pin, self.cpus.get(&pin), id)?;
        Some(Loaded {
            tag: SpaceTag(id.handle),
            root: space.root(),
        })
    }

    /// The space with this name, if it exists, loaded on this CPU.
    #[inline]
    pub(in crate::space) fn load_named(
        &self,
        pin: &Pin<'_>,
        cpu: &VmCpu,
        id: SpaceId,
    ) -> Option<Live<'_, R>> {
        if cpu.delta.space.load(Ordering::Relaxed) == id.to_bits() {
            // SAFETY: this CPU stored the address in `switch`, together with the name; or it
            // has the address that `new` gave it.
            return unsafe { self.spaces.at(cpu.space_at.load(Ordering::Relaxed)) }.named(id);
        }
        let space = self.find_space(id)?;
        self.switch(pin, space);
        Some(space)
    }

    #[cold]
    fn switch(&self, pin: &Pin<'_>, space: Live<'_, R>) {
        self.settle(pin);
        let cpu = self.cpus.get(pin);
        let address = self.spaces.address(Handle::from_raw(space.handle()));
        cpu.space_at.store(address, Ordering::Relaxed);
        cpu.delta.space.store(space.key(), Ordering::Relaxed);
        self.active_set(space.get()).enter(pin.cpu());
    }

    /// Counts tables made for or freed from a space.
    pub(in crate::space) fn count_tables(
        &self,
        pin: &Pin<'_>,
        space: Live<'_, R>,
        made: u32,
        freed: u32,
    ) {
        let (made, freed) = (u64::from(made), u64::from(freed));
        let cpu = self.cpus.get(pin);
        cpu.events.tables_made.add(made);
        cpu.events.tables_freed.add(freed);
        if made != freed {
            cpu.count_resident(space, Resident::Table, made.wrapping_sub(freed));
        }
    }

    /// Counts that so many pages were looked up, and what that met.
    pub(in crate::space) fn count_lookups(&self, pin: &Pin<'_>, pages: u64, visit: &VisitReport) {
        let events = self.events(pin);
        events.lookups.add(pages);
        events.lookup_hits.add(u64::from(visit.hits));
        events.lookup_misses.add(u64::from(visit.false_probes));
        events.lookup_retries.add(u64::from(visit.lock_failures));
    }

    /// Who has entered `space`, to be asked later.
    #[inline]
    pub(in crate::space) fn active_set<'a>(&self, space: &'a SpaceRecord<R>) -> ActiveSet<'a> {
        ActiveSet::new(
            &space.active,
            self.has_many_cpus.then_some(&space.many_active),
        )
    }
}

/// Whether objects are to have superpages.
fn wants_huge(design: &Design) -> bool {
    design.huge != HugePages::Never || design.file_huge != FileHuge::Never
}

/// `design` with the reverse mapping and the format of the types, which are what runs. The default
/// of either option stands for whatever the types are; a design that names another is refused.
fn fitting_types<F: Format, R: ReverseMap>(design: Design) -> Result<Design, CreateError> {
    let default = Design::default();
    let of_type = |option, name| Design::parse(&format!("{option}={name}")).ok();
    let rmap = of_type("rmap", R::NAME).map(|named| named.rmap);
    let table_format = of_type("format", F::NAME).map(|named| named.format);
    let differs = if design.rmap != default.rmap && Some(design.rmap) != rmap {
        Some(("rmap", R::NAME))
    } else if design.format != default.format && Some(design.format) != table_format {
        Some(("format", F::NAME))
    } else {
        None
    };
    if let Some((option, name)) = differs {
        return Err(CreateError(format!(
            "the manager's type has {option}={name}, and the design names another"
        )));
    }
    Ok(Design {
        rmap: rmap.unwrap_or(design.rmap),
        format: table_format.unwrap_or(design.format),
        ..design
    })
}
