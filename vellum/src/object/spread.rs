//! Further sets for the regions of an object that many processes map.
//!
//! Every process that begins or ends takes the lock of the regions of each library that it
//! maps, and with one lock for each file that is what CPUs wait for most in a build. So an
//! object may have its regions spread over several sets, each with its own lock: a region that
//! maps it goes into the set of its CPU, and a copy that fork makes into the set of the region
//! that it copies.
//!
//! Whoever looks for regions goes through all sets in order, one lock after the other. It finds
//! every region that there is all the while, because a region moves to later sets only, holding
//! the locks of both (invariant 11 asks no more of regions in different sets: none is copied
//! from one to another).

use alloc::boxed::Box;
use core::mem::offset_of;

use super::region_set::RegionRoots;
use crate::design::RegionIndex;
use crate::frame::{PhysicalMemory, Site};
use crate::platform::{CpuId, Platform};
use crate::slab::{Arena, ArenaMaker, Handle, Item};
use crate::sync::Pin;
use crate::sync::atomic::AtomicU32;
use crate::sync::report::Fields;

/// Sets beside an object's own.
const FURTHER: usize = 15;

/// The words of one of them, in a line of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Line(RegionRoots);

/// The further sets of one object.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct SpreadRoots {
    link: AtomicU32,
    lines: [Line; FURTHER],
}

impl Item for SpreadRoots {
    const SITE: Site = Site::RegionSets;
    const FIELDS: Fields = &[("regions", offset_of!(SpreadRoots, lines))];

    fn vacant() -> Self {
        SpreadRoots::default()
    }

    fn link(&self) -> &AtomicU32 {
        &self.link
    }
}

/// How objects keep their regions, and the further sets of those that have some.
pub(super) struct Spread {
    pub(super) index: RegionIndex,
    arena: Arena<SpreadRoots>,
    cpus: usize,
}

impl Spread {
    /// A call of its own, with the value in the heap: a manager is made on a small stack.
    #[inline(never)]
    pub(super) fn new(index: RegionIndex, arenas: &ArenaMaker) -> Box<Self> {
        Box::new(Spread {
            index,
            arena: arenas.make(),
            cpus: arenas.cpus(),
        })
    }

    /// The arena of further sets.
    pub(super) fn arena(&self) -> &Arena<SpreadRoots> {
        &self.arena
    }

    /// Whether an object whose own set has come to be as it is should have further ones.
    pub(super) fn would_help(&self, own: &RegionRoots) -> bool {
        let wanted = match self.index {
            RegionIndex::Auto => own.is_crowded(),
            RegionIndex::Spread => true,
            RegionIndex::Tree | RegionIndex::List => false,
        };
        wanted && own.further() == 0
    }

    /// Further sets in use of an object that has some.
    fn used(&self) -> usize {
        self.cpus.min(FURTHER)
    }

    /// The set of regions that a CPU adds to an object that has further sets. Neighbours share
    /// one.
    pub(super) fn set_of(&self, cpu: CpuId) -> u32 {
        1 + (usize::from(cpu.0) * self.used() / self.cpus) as u32
    }

    /// The last set of an object.
    pub(super) fn last(&self, own: &RegionRoots) -> u32 {
        match own.further() {
            0 => 0,
            _ => self.used() as u32,
        }
    }

    /// The words of a set of an object whose own are `own`.
    pub(super) fn roots<'a>(&'a self, own: &'a RegionRoots, set: u32) -> &'a RegionRoots {
        match set.checked_sub(1) {
            None => own,
            Some(further) => {
                let roots = self.arena.get(Handle::from_raw(own.further()));
                &roots.lines[further as usize % FURTHER].0
            }
        }
    }

    /// Gives an object that has none further sets, if there is memory for them. The lock of its
    /// own is the caller's.
    #[cold]
    #[inline(never)]
    pub(super) fn spread<P: Platform>(
        &self,
        memory: &PhysicalMemory<P>,
        pin: &Pin<'_>,
        own: &RegionRoots,
    ) {
        match self.arena.alloc(pin, memory) {
            Ok(further) => own.set_further(further.raw()),
            Err(_) => own.forget_waits(),
        }
    }

    /// Takes the further sets of an object whose regions have all gone.
    pub(super) fn gather(&self, pin: &Pin<'_>, own: &RegionRoots) {
        // Somebody may still be looking through them, and finds them as long as the object is
        // not made anew.
        let further = own.further();
        if further != 0 {
            self.arena.retire(pin, Handle::from_raw(further));
        }
    }
}
