//! From a CPU's list back to the buddy lists.

use super::buddy::FreeLists;
use super::memory::PhysicalMemory;
use super::record::FreeFlags;
use super::ring::Ring;
use crate::addr::Pfn;
use crate::platform::Machine;
use crate::sync::{Pin, SpinGuard};

/// Most runs that are given back together.
const RUNS_TO_GIVE: usize = 32;

/// Free frames in a row that are alike.
#[derive(Clone, Copy)]
struct FreeRun {
    first: Pfn,
    frames: u32,
    zone: u16,
    zeroed: bool,
}

impl FreeRun {
    const EMPTY: FreeRun = FreeRun {
        first: Pfn::NONE,
        frames: 0,
        zone: 0,
        zeroed: false,
    };

    fn goes_on_with(&self, pfn: Pfn, zone: u16, zeroed: bool) -> bool {
        pfn.0 == self.first.0.wrapping_add(self.frames)
            && (zone, zeroed) == (self.zone, self.zeroed)
    }
}

impl<P: Machine> PhysicalMemory<P> {
    /// Makes room for a frame in a list that has none, or keeps the frame elsewhere.
    /// Returns whether it is still to be put there.
    #[cold]
    pub(super) fn make_room_for(&self, pin: &Pin<'_>, ring: &Ring, pfn: Pfn) -> bool {
        if let Some(lists) = self.other_lists() {
            lists.give(self, pin, pfn);
            return false;
        }
        self.make_room(pin, ring);
        true
    }

    /// [`PhysicalMemory::make_room_for`] for a row of frames.
    #[cold]
    pub(super) fn make_room_for_row(
        &self,
        pin: &Pin<'_>,
        ring: &Ring,
        (first, frames): (Pfn, u32),
    ) -> bool {
        if let Some(lists) = self.other_lists() {
            for index in 0..frames {
                lists.give(self, pin, first.offset(index));
            }
            return false;
        }
        while ring.len() > 0 && ring.len() + frames > ring.high {
            self.make_room(pin, ring);
        }
        true
    }

    fn make_room(&self, pin: &Pin<'_>, ring: &Ring) {
        self.cpus.get(pin).counters.drains.bump();
        self.give_back(pin, ring, ring.batch);
        self.heed_shortage(pin);
    }

    /// Gives the oldest `count` frames of a list back to their zones. Frames in
    /// a row go as one run: what was handed out in order is mostly freed in
    /// order, and need not find its buddies frame by frame.
    pub(super) fn give_back(&self, pin: &Pin<'_>, ring: &Ring, count: u32) {
        let mut runs = [FreeRun::EMPTY; RUNS_TO_GIVE];
        let mut filled = 0;
        for _ in 0..count {
            let Some(pfn) = ring.pop_oldest() else { break };
            let frame = self.frame(pfn);
            let (zone, zeroed) = (frame.zone() as u16, frame.unused().has(FreeFlags::ZEROED));
            if let Some(run) = runs[..filled].last_mut()
                && run.goes_on_with(pfn, zone, zeroed)
            {
                run.frames += 1;
                continue;
            }
            if filled == RUNS_TO_GIVE {
                self.give_runs(pin, &runs);
                filled = 0;
            }
            runs[filled] = FreeRun {
                first: pfn,
                frames: 1,
                zone,
                zeroed,
            };
            filled += 1;
        }
        self.give_runs(pin, &runs[..filled]);
    }

    /// Gives runs back, each under its zone's lock, which stays held from one to the next.
    fn give_runs(&self, pin: &Pin<'_>, runs: &[FreeRun]) {
        // Before any lock: many CPUs may wait for it.
        for run in runs {
            FreeLists::mark_run(&self.table, run.zone, run.first, run.frames);
        }
        let mut held: Option<(u16, SpinGuard<'_, FreeLists>)> = None;
        for run in runs {
            if held.as_ref().is_none_or(|(zone, _)| *zone != run.zone) {
                self.let_go(held.take());
                held = Some((run.zone, self.zones.get(run.zone).lists.lock(pin)));
            }
            if let Some((_, lists)) = &mut held {
                lists.give_run(&self.table, run.first, run.frames, run.zeroed);
            }
        }
        self.let_go(held);
    }

    fn let_go(&self, held: Option<(u16, SpinGuard<'_, FreeLists>)>) {
        if let Some((number, lists)) = held {
            self.zones.get(number).publish(&lists);
        }
    }
}
