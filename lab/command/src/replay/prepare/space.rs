//! The spaces of a replay and their slots.

use std::collections::BTreeMap;

use super::presence::Presence;
use super::schedule::Place;
use crate::replay::regions::Regions;

/// What is known about a space at the current moment of the trace.
#[derive(Clone, Default, Debug)]
pub(super) struct Space {
    /// Whose memory it is.
    pub(super) node: u32,
    pub(super) regions: Regions,
    pub(super) presence: Presence,
    /// Heap, in pages, once the trace has shown it.
    pub(super) heap: Option<(u64, u64)>,
    /// Tasks that use it.
    pub(super) users: u32,
    /// Touches, by page, since the space was last changed, while several tasks in
    /// several streams use it: these may happen in another order than was recorded.
    pub(super) recent: BTreeMap<u64, Vec<Place>>,
}

impl Space {
    /// What a forked child starts with, whose memory is that of `node`.
    pub(super) fn fork(&mut self, node: u32) -> Self {
        Self {
            node,
            regions: self.regions.clone(),
            presence: self.presence.fork(),
            heap: self.heap,
            users: 1,
            recent: BTreeMap::new(),
        }
    }

    /// Nothing is mapped in `start..end` any longer.
    pub(super) fn unmap(&mut self, start: u64, end: u64) {
        self.regions.remove(start, end);
        self.presence.forget(start, end);
    }
}

/// Slots by number. A slot is used again only in the stream that ended its space, or
/// in one that has waited for that: then the two spaces are apart without another wait.
#[derive(Default)]
pub(super) struct Slots {
    pub(super) spaces: Vec<Space>,
    free: Vec<Vec<u32>>,
}

impl Slots {
    pub(super) fn new(streams: usize) -> Self {
        Self {
            spaces: Vec::new(),
            free: vec![Vec::new(); streams],
        }
    }

    /// A slot for `space`, which an operation of `stream` creates.
    pub(super) fn take(&mut self, stream: u32, space: Space) -> u32 {
        match self.free[stream as usize].pop() {
            Some(slot) => {
                self.spaces[slot as usize] = space;
                slot
            }
            None => {
                self.spaces.push(space);
                (self.spaces.len() - 1) as u32
            }
        }
    }

    /// A task in `stream` leaves the space in `slot`. Returns the node of its memory
    /// if it was the last one.
    pub(super) fn leave(&mut self, stream: u32, slot: u32) -> Option<u32> {
        let space = &mut self.spaces[slot as usize];
        space.users = space.users.saturating_sub(1);
        (space.users == 0).then(|| {
            self.free[stream as usize].push(slot);
            std::mem::take(space).node
        })
    }

    /// What comes next in `stream` has waited for all that `ended` holds by now.
    pub(super) fn inherit(&mut self, stream: u32, ended: u32) {
        let slots = std::mem::take(&mut self.free[ended as usize]);
        self.free[stream as usize].extend(slots);
    }
}
