//! What is asked of mmap.

use crate::addr::{Pfn, Prot, Vpn};
use crate::object::ObjectId;
use crate::space::state::region::Traits;

/// What a mapping shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// Zeroes; with [`Traits::SHARED`], an object of shared memory of its own.
    Anonymous,
    /// An object from the given page on.
    Object {
        /// Which object.
        id: ObjectId,
        /// Its page at the mapping's start.
        page: u64,
    },
    /// Frames in a row that the manager does not manage ([`MapRequest::frames`]).
    Frames {
        /// The one at the mapping's start.
        first: Pfn,
        /// Whether all entries are made now, and not one by one by faults.
        at_once: bool,
    },
}

/// Where a mapping goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Placement {
    /// In the highest gap, away from stacks ([`crate::space::Limits::stack_gap_pages`]); in a space that
    /// is divided because many CPUs change it ([`Space::divide`](crate::space::Space::divide)), in
    /// the highest gap of a part of it.
    Anywhere,
    /// The same, at a page that is a multiple of two to this power: of 9, with pages of 4 KiB, where
    /// superpages of 2 MiB can begin.
    Aligned(u32),
    /// There if it is free and not too close to a stack, else as with [`Placement::Anywhere`]: so
    /// are what the format cannot map, and the lowest pages, which are kept free so that null
    /// pointers fault, and ranges that are kept free ([`Layout`]).
    ///
    /// [`Layout`]: crate::space::Layout
    Hint(Vpn),
    /// There, in place of whatever is mapped; at the lowest pages only if
    /// [`Layout::lowest`](crate::space::Layout::lowest) says so.
    Fixed(Vpn),
    /// There, if nothing is mapped.
    FixedFree(Vpn),
}

/// A request to map memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MapRequest {
    /// Length in pages.
    pub pages: u64,
    /// Rights. What hardware cannot withhold is given, too
    /// ([`Format::given`](crate::table::Format::given)): who may store may load. The region shows the
    /// rights that it gives.
    pub prot: Prot,
    /// [`Traits::SHARED`], [`Traits::LOCKED`], [`Traits::NO_RESERVE`], and for private zeroes
    /// [`Traits::GROWS_DOWN`], or none. The others, which regions get by other calls, are refused.
    pub traits: Traits,
    /// What it shows.
    pub source: Source,
    /// Where it goes.
    pub placement: Placement,
    /// A word of the embedder's own: what its kernel knows of the mapping, or where that is. It is
    /// shown with the region ([`MapEntry::tag`](crate::space::MapEntry::tag)), a fork of the region
    /// has it, too, and regions are united only if theirs are equal. 0 if nothing is said.
    pub tag: u64,
}

impl MapRequest {
    /// Private zeroes, `pages` pages, anywhere.
    pub const fn anonymous(pages: u64, prot: Prot) -> MapRequest {
        MapRequest {
            pages,
            prot,
            traits: Traits::NONE,
            source: Source::Anonymous,
            placement: Placement::Anywhere,
            tag: 0,
        }
    }

    /// A private view of `pages` pages of an object, anywhere.
    pub const fn object(id: ObjectId, page: u64, pages: u64, prot: Prot) -> MapRequest {
        MapRequest {
            pages,
            prot,
            traits: Traits::NONE,
            source: Source::Object { id, page },
            placement: Placement::Anywhere,
            tag: 0,
        }
    }

    /// A shared view of `pages` frames from `first` on that the manager does not manage: memory of a
    /// device, or frames that the embedder keeps for itself
    /// ([`OwnedBlock::reserve`](crate::frame::OwnedBlock::reserve)), anywhere (`remap_pfn_range`).
    /// `prot` may have a memory type ([`Prot::with_type`]), which [`Space::protect`] keeps.
    ///
    /// All entries are made now, unless [`MapRequest::on_fault`] says otherwise, and again by `fork`
    /// in the child: nothing but a store without the right to it faults there. They are large where
    /// pages and frames are aligned alike, for which [`Placement::Anywhere`] looks. Nobody counts
    /// the frames as memory, copies, zeroes, reclaims or locks them. The kernel's own access
    /// ([`Space::read`], [`Space::pin_pages`]) is [`FaultError::Unmanaged`]: what a load or a store
    /// means there only a driver knows. Advice is refused, [`Space::lock`] does nothing, and
    /// [`Space::remap`] moves and cuts the mapping but does not make it longer.
    ///
    /// A private mapping (without [`Traits::SHARED`]) is never stored to: it would need
    /// a copy of what nobody but the device can read.
    ///
    /// [`Space::map`] refuses frames of the memory map that were not reserved with
    /// [`MapError::Managed`](crate::space::MapError::Managed).
    ///
    /// [`Space::protect`]: crate::space::Space::protect
    /// [`Space::read`]: crate::space::Space::read
    /// [`Space::pin_pages`]: crate::space::Space::pin_pages
    /// [`Space::lock`]: crate::space::Space::lock
    /// [`Space::remap`]: crate::space::Space::remap
    /// [`Space::map`]: crate::space::Space::map
    /// [`FaultError::Unmanaged`]: crate::space::FaultError::Unmanaged
    pub const fn frames(first: Pfn, pages: u64, prot: Prot) -> MapRequest {
        MapRequest {
            pages,
            prot,
            traits: Traits::SHARED,
            source: Source::Frames {
                first,
                at_once: true,
            },
            placement: Placement::Anywhere,
            tag: 0,
        }
    }

    /// The same, if it shows frames that are not managed, with entries that faults make.
    pub const fn on_fault(mut self) -> MapRequest {
        if let Source::Frames { first, .. } = self.source {
            let at_once = false;
            self.source = Source::Frames { first, at_once };
        }
        self
    }

    /// The same, with stores seen by all.
    pub const fn shared(mut self) -> MapRequest {
        self.traits = self.traits.union(Traits::SHARED);
        self
    }

    /// The same, extended downwards by faults below it.
    pub const fn growing_down(mut self) -> MapRequest {
        self.traits = self.traits.union(Traits::GROWS_DOWN);
        self
    }

    /// The same, with nothing charged of what is promised before it is used (`MAP_NORESERVE`):
    /// private memory that can be written, and shared memory of its own. Ignored with
    /// [`CommitPolicy::Never`](crate::frame::CommitPolicy::Never), as on Linux, and with
    /// `commit=off`.
    pub const fn no_reserve(mut self) -> MapRequest {
        self.traits = self.traits.union(Traits::NO_RESERVE);
        self
    }

    /// The same, with rights that it may get at most, now and by [`Space::protect`]: those with which
    /// a file was opened.
    ///
    /// [`Space::protect`]: crate::space::Space::protect
    pub const fn at_most(mut self, most: Prot) -> MapRequest {
        self.traits = self.traits.at_most(most);
        self
    }

    /// The same, with a word of the embedder's own.
    pub const fn tagged(mut self, tag: u64) -> MapRequest {
        self.tag = tag;
        self
    }

    /// The same, placed.
    pub const fn at(mut self, placement: Placement) -> MapRequest {
        self.placement = placement;
        self
    }
}
