//! The tree of regions alone: the memory slots of a virtual machine, or the windows of a
//! device, found by address.
//!
//! Its nodes and items are arena items in frames of the platform, so it allocates nothing, and
//! inserting can be prepared while failing is still possible.
//!
//! `cargo run -p vellum --example ranges`

#[path = "board/mod.rs"]
mod board;

use std::error::Error;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use board::{Board, PAGE};
use vellum::frame::{PhysicalMemory, Site};
use vellum::slab::{Arena, ArenaMaker, Handle, Item};
use vellum::tree::{RangeNode, RangeTree};

/// What a range leads to. Items are shared by all who find them, so their fields are atomics.
#[derive(Default)]
struct Slot {
    /// Where the slot's memory is.
    backing: AtomicU64,
    handle: AtomicU32,
    link: AtomicU32,
}

impl Item for Slot {
    const SITE: Site = Site::Region;
    fn vacant() -> Self {
        Slot::default()
    }
    fn link(&self) -> &AtomicU32 {
        &self.link
    }
}

/// The slots of one machine. A kernel has a lock around changes; readers beside a writer
/// validate what they found with a sequence count (`vellum::sync::SeqCount`).
struct Slots {
    nodes: Arena<RangeNode>,
    slots: Arena<Slot>,
    root: AtomicU64,
    // Dropped last: nodes and slots lie in its frames.
    memory: PhysicalMemory<Board>,
}

impl Slots {
    fn new() -> Result<Slots, Box<dyn Error>> {
        let memory = PhysicalMemory::new(Board::new(1024))?;
        // SAFETY: both arenas are used with the memory beside them, which goes after them.
        let maker = unsafe { ArenaMaker::new(1, memory.frame_count(), PAGE) };
        Ok(Slots {
            nodes: maker.make(),
            slots: maker.make(),
            root: AtomicU64::new(0),
            memory,
        })
    }

    fn tree(&self) -> RangeTree<'_, Slot> {
        // SAFETY: the root belongs to these arenas, which have no other tree.
        unsafe { RangeTree::new(&self.nodes, &self.slots, &self.root) }
    }

    /// Adds a slot in the highest gap below `limit`: where.
    fn add(&self, bytes: u64, limit: u64, backing: u64) -> Result<u64, Box<dyn Error>> {
        let start = self.tree().highest_gap(bytes, 0, limit).ok_or("no gap")?;
        let pin = self.memory.pin();
        // What can fail comes first.
        let room = self.tree().make_room(&pin, &self.memory)?;
        let handle = self.slots.alloc(&pin, &self.memory)?;
        let slot = self.slots.get(handle);
        slot.backing.store(backing, Ordering::Relaxed);
        slot.handle.store(handle.raw(), Ordering::Relaxed);
        self.tree().insert(&pin, room, handle, start, start + bytes);
        Ok(start)
    }

    /// What lies behind an address.
    fn find(&self, address: u64) -> Option<u64> {
        let found = self.tree().first_ending_after(address)?;
        let backing = found.item.backing.load(Ordering::Relaxed);
        (found.start <= address).then(|| backing + (address - found.start))
    }

    fn remove(&self, address: u64) -> bool {
        let Some(found) = self.tree().first_ending_after(address) else {
            return false;
        };
        if found.start > address {
            return false;
        }
        let pin = self.memory.pin();
        self.tree().remove(&pin, found.start);
        let handle = Handle::from_raw(found.item.handle.load(Ordering::Relaxed));
        self.slots.free(&pin, handle);
        true
    }
}

/// Some hundred slots, found, removed and replaced.
pub fn main() -> Result<(), Box<dyn Error>> {
    let slots = Slots::new()?;
    let (bytes, limit) = (0x20_0000, 1 << 32);
    let mut places = Vec::new();
    for number in 0..500u64 {
        places.push(slots.add(bytes, limit, number << 32)?);
    }
    assert_eq!(places[0], limit - bytes, "from the top down");
    for (number, &place) in places.iter().enumerate() {
        let number = number as u64;
        assert_eq!(slots.find(place + 77), Some((number << 32) + 77));
        assert_eq!(
            slots.find(place + bytes - 1),
            Some((number << 32) + bytes - 1)
        );
    }
    assert_eq!(slots.find(places[499] - 1), None);
    // Every third goes, and one that is twice as large fits nowhere between.
    for place in places.iter().step_by(3) {
        assert!(slots.remove(*place) && slots.find(*place).is_none());
    }
    let large = slots.add(2 * bytes, limit, 1 << 60)?;
    assert_eq!(large, places[499] - 2 * bytes);
    let small = slots.add(bytes, limit, 2 << 60)?;
    assert_eq!(small, places[0]);
    let walked: Vec<_> = slots.tree().walk(0).map(|found| found.start).collect();
    assert_eq!(walked.len(), 500 - 167 + 2);
    assert!(walked.is_sorted());
    println!(
        "{} slots, {} frames",
        walked.len(),
        slots.memory.stats().used()
    );
    Ok(())
}
