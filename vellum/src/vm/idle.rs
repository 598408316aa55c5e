//! What the embedder calls when a CPU has nothing else to do, when memory is
//! short, and when a CPU is taken away.

use crate::platform::Platform;
use crate::rmap::ReverseMap;
use crate::slab::AtHand;
use crate::space::Vm;
use crate::table::Format;

impl<P: Platform, F: Format, R: ReverseMap> Vm<P, F, R> {
    /// For the idle loop of a CPU: frees page tables that are kept beyond the
    /// watermark, a few at a time, and gives frames of other nodes back to
    /// them. Returns whether another call would do more. Bounded, and pinned
    /// only meanwhile.
    pub fn idle(&self) -> bool {
        let pin = self.pin();
        let trimmed = self.table_pages.trim(&self.memory, &pin);
        self.memory.send_home(&pin);
        trimmed > 0
    }

    /// For the idle loop of a CPU: zeroes up to `budget` free frames of its
    /// node, around the caches. Returns how many were zeroed: 0 if enough are,
    /// or if the design has no use for them (`ptepage=zeroaware` has).
    pub fn zero_idle(&self, budget: u32) -> u32 {
        self.memory.zero_idle(&self.pin(), budget)
    }

    /// Frees what this CPU keeps at hand, for others to use: free frames, and
    /// free page tables; and frames of nodes (of page caches, of trees of regions, of reverse
    /// mapping) that hold none any more, as soon as no CPU is pinned that could see them. For memory
    /// pressure; allocations that fail, or leave a zone short, do it by themselves.
    pub fn relieve(&self) {
        let pin = self.pin();
        self.give_back_frames(&pin, AtHand::Given);
        self.memory.drain(&pin);
    }

    /// Frees what this CPU keeps because it goes offline. Returns how many
    /// page tables and frames still wait for their epoch here; call again, on
    /// this CPU, until there are none: what other CPUs may still see cannot go
    /// earlier.
    pub fn offline(&self) -> u64 {
        // Each round can move the epoch on once, and two are needed.
        for _ in 0..3 {
            self.relieve();
        }
        let pin = self.pin();
        if let Some(reclaim) = self.reclaim() {
            reclaim.lists.settle(&pin);
        }
        if let Some(groups) = self.memory.groups() {
            groups.settle(&pin);
        }
        self.memory.waiting_here(&pin)
    }
}
