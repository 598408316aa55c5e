//! From a CPU's list back to the buddy lists.

use super::buddy::FreeLists;
use super::memory::PhysicalMemory;
use super::record::Flags;
use super::ring::Ring;
use crate::addr::Pfn;
use crate::platform::Platform;
use crate::sync::{Pin, SpinGuard};

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
        self.frames > 0
            && pfn.0 == self.first.0.wrapping_add(self.frames)
            && (zone, zeroed) == (self.zone, self.zeroed)
    }
}

impl<P: Platform> PhysicalMemory<P> {
    /// Makes room for a frame in a list that has none, or keeps the frame elsewhere.
    /// Returns whether it is still to be put there.
    #[cold]
    pub(super) fn make_room_for(&self, pin: &Pin<'_>, ring: &Ring, pfn: Pfn) -> bool {
        if let Some(linked) = self.linked() {
            self.free_linked(linked, pin, pfn);
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
        if let Some(linked) = self.linked() {
            for index in 0..frames {
                self.free_linked(linked, pin, first.offset(index));
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
        let mut held: Option<(u16, SpinGuard<'_, FreeLists>)> = None;
        let mut run = FreeRun::EMPTY;
        for _ in 0..count {
            let Some(pfn) = ring.pop_oldest() else { break };
            let frame = self.frame(pfn);
            let (zone, zeroed) = (frame.zone() as u16, frame.has(Flags::ZEROED));
            if run.goes_on_with(pfn, zone, zeroed) {
                run.frames += 1;
                continue;
            }
            self.give_run(pin, &mut held, run);
            run = FreeRun {
                first: pfn,
                frames: 1,
                zone,
                zeroed,
            };
        }
        self.give_run(pin, &mut held, run);
        self.let_go(held);
    }

    /// Gives a run back under its zone's lock, which stays `held`.
    fn give_run<'a>(
        &'a self,
        pin: &'a Pin<'_>,
        held: &mut Option<(u16, SpinGuard<'a, FreeLists>)>,
        run: FreeRun,
    ) {
        if run.frames == 0 {
            return;
        }
        if held.as_ref().is_none_or(|(zone, _)| *zone != run.zone) {
            self.let_go(held.take());
            *held = Some((run.zone, self.zones.get(run.zone).lists.lock(pin)));
        }
        if let Some((_, lists)) = held {
            lists.give_run(&self.table, run.first, run.frames, run.zeroed);
        }
    }

    fn let_go(&self, held: Option<(u16, SpinGuard<'_, FreeLists>)>) {
        if let Some((number, lists)) = held {
            self.zones.get(number).publish(&lists);
        }
    }
}
