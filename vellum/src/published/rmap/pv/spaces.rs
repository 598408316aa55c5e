//! Address spaces as pv entries know them, and their chunks: FreeBSD's `pmap`.

use core::mem::offset_of;

use super::entry::{Chunk, EntryName, OfSpace};
use crate::addr::Pfn;
use crate::frame::{PhysicalMemory, Site};
use crate::platform::Platform;
use crate::slab::{Arena, Handle, Item};
use crate::sync::atomic::{AtomicU32, Ordering};
use crate::sync::list::{Link, Links, List, NONE};
use crate::sync::report::Fields;
use crate::sync::{NestedLock, SpinLock};

/// The chunks of a space: those with free entries, and full ones.
#[derive(Debug, Default)]
pub(super) struct SpaceChunks {
    with_room: List,
    full: List,
    /// Turns to be taken back that chunks had.
    turns: u32,
}

/// What pv entries keep of a space.
#[repr(C, align(64))]
pub(super) struct PvSpace {
    /// Guards the lists and what the chunks in them say of their entries.
    pub chunks: SpinLock<SpaceChunks>,
    /// Handle of the space, or 0.
    pub space: AtomicU32,
    /// Taken in place of the locks of its tables, with `pmaplock=space`. Beside the chunks, as
    /// in FreeBSD's `pmap`, where one lock guards both.
    pub tables: NestedLock,
    link: AtomicU32,
    /// In the list of all spaces, with `pvlru=pmap`.
    turn: Link,
}

impl Item for PvSpace {
    const SITE: Site = Site::PvSpace;
    const FIELDS: Fields = &[
        ("chunks", 0),
        ("tables", offset_of!(PvSpace, tables)),
        ("turn", offset_of!(PvSpace, turn)),
    ];

    fn vacant() -> Self {
        PvSpace {
            chunks: SpinLock::default(),
            space: AtomicU32::new(0),
            tables: NestedLock::default(),
            link: AtomicU32::new(0),
            turn: Link::new(),
        }
    }

    fn link(&self) -> &AtomicU32 {
        &self.link
    }
}

impl PvSpace {
    /// Handle of the space.
    #[inline]
    pub fn handle(&self) -> u32 {
        self.space.load(Ordering::Relaxed)
    }
}

impl SpaceChunks {
    /// Takes an entry of the first chunk that has one.
    #[inline]
    pub fn take<P: Platform>(&mut self, memory: &PhysicalMemory<P>) -> Option<EntryName> {
        let first = self.with_room.first();
        if first == NONE {
            return None;
        }
        let chunk = Chunk::at(memory, Pfn(first));
        let place = chunk.take();
        debug_assert!(place.is_some(), "a full chunk among those with room");
        if chunk.is_full() {
            let links = &OfSpace(memory);
            self.with_room.remove(links, first);
            self.full.push_back(links, first);
        }
        place.map(|place| EntryName::in_chunk(Pfn(first), place))
    }

    /// A chunk of the space without used entries, the next one to take from.
    pub fn add<P: Platform>(&mut self, memory: &PhysicalMemory<P>, chunk: Pfn) {
        self.with_room.push_front(&OfSpace(memory), chunk.0);
    }

    /// Takes an entry back. Its chunk comes to the front, where the next entry is taken;
    /// if that was its last, it leaves the space, and its frame is returned.
    pub fn give<P: Platform>(
        &mut self,
        memory: &PhysicalMemory<P>,
        name: EntryName,
    ) -> Option<Pfn> {
        let frame = name.chunk();
        let chunk = Chunk::at(memory, frame);
        let links = &OfSpace(memory);
        let was_full = chunk.is_full();
        chunk.give(name);
        if was_full {
            self.full.remove(links, frame.0);
            self.with_room.push_front(links, frame.0);
        } else if chunk.used() > 0 {
            self.with_room.move_front(links, frame.0);
        }
        if chunk.used() > 0 {
            return None;
        }
        self.with_room.remove(links, frame.0);
        chunk.leave();
        Some(frame)
    }

    /// The chunk whose turn it is to be taken back, which comes last next time.
    pub fn next_turn<P: Platform>(&mut self, memory: &PhysicalMemory<P>) -> Option<Pfn> {
        self.turns = self.turns.wrapping_add(1);
        let full =
            self.with_room.is_empty() || self.turns.is_multiple_of(2) && !self.full.is_empty();
        let list = match full {
            true => &mut self.full,
            false => &mut self.with_room,
        };
        let first = list.first();
        if first == NONE {
            return None;
        }
        list.move_back(&OfSpace(memory), first);
        Some(Pfn(first))
    }

    pub fn is_empty(&self) -> bool {
        self.full.is_empty() && self.with_room.is_empty()
    }
}

/// The links of spaces in the list of all.
pub(super) struct Turns<'a>(pub &'a Arena<PvSpace>);

impl Links for Turns<'_> {
    fn link(&self, name: u32) -> &Link {
        &self.0.get(Handle::from_raw(name)).turn
    }
}
