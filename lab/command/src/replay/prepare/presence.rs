//! Which pages of a space the recorded kernel had mapped, as far as the trace
//! tells: what explains a fault that the replay does not have.

use std::collections::BTreeMap;

use vellum_engine::Access;

use super::memory::Holding;
use crate::replay::explain::Expectation;
use crate::replay::regions::{Region, Regions, Source};

/// Pages in a window of the map: one bit each.
const WINDOW: u64 = 64;

/// One bit per page of a window, for each thing known about a page.
#[derive(Clone, Copy, Default, Debug)]
struct Window {
    /// Faulted by this space.
    faulted: u64,
    /// Faulted for a write since the last fork; private mappings.
    written: u64,
    /// Faulted for a write; shared mappings.
    written_shared: u64,
    /// Private pages that this space made.
    own: u64,
    /// Mapped in the parent at fork.
    inherited: u64,
    /// Offered by the kernel's fault-around.
    offered: u64,
    /// In the fault-around window of the replay beside a page that was faulted.
    around: u64,
}

impl Window {
    fn forget(&mut self, mask: u64) {
        self.faulted &= !mask;
        self.written &= !mask;
        self.written_shared &= !mask;
        self.own &= !mask;
        self.inherited &= !mask;
        self.offered &= !mask;
        self.around &= !mask;
    }

    /// What explains that a page is mapped before its recorded fault.
    fn explain(&self, bit: u64, region: &Region, access: Access, users: u32) -> Expectation {
        let write = access == Access::Write;
        let again = match write {
            true => (self.written | self.written_shared) & bit != 0,
            false => self.faulted & bit != 0,
        };
        if again {
            return match users {
                0 | 1 => Expectation::Repeated,
                _ => Expectation::Raced,
            };
        }
        if write && !region.shared {
            // The page has to become private first: only an earlier write can
            // have done that.
            return Expectation::AsRecorded;
        }
        if write && self.faulted & bit != 0 {
            return Expectation::SharedWrite;
        }
        if self.inherited & bit != 0 {
            return Expectation::InheritedAtFork;
        }
        if self.offered & bit != 0 {
            return Expectation::OfferedAround;
        }
        match self.around & bit != 0 {
            true => Expectation::FaultAround,
            false => Expectation::AsRecorded,
        }
    }
}

/// What the trace says about the pages of one space.
#[derive(Clone, Default, Debug)]
pub(super) struct Presence {
    windows: BTreeMap<u64, Window>,
    /// Private pages that this space made and has.
    own: u64,
    /// Such pages that it no longer has, copied on write or unmapped.
    left: u64,
}

/// A mask of the bits `from..to` of a window, `to <= WINDOW`.
fn mask(from: u64, to: u64) -> u64 {
    let below = |bits: u64| match bits {
        WINDOW.. => u64::MAX,
        _ => (1 << bits) - 1,
    };
    below(to) & !below(from)
}

/// The part of the aligned window of `around` pages around `page` where the
/// object behind `region` is mapped without a break. It may reach into
/// neighbouring regions: the replay may have merged them.
fn stretch(regions: &Regions, region: &Region, page: u64, around: u64) -> (u64, u64) {
    let low = page - page % around;
    let (mut lowest, mut highest) = (region, region);
    while lowest.start > low {
        match regions.at(lowest.start - 1) {
            Some(below) if below.behind(lowest.start) == lowest.source => lowest = below,
            _ => break,
        }
    }
    while highest.end < low + around {
        match regions.at(highest.end) {
            Some(above) if highest.behind(highest.end) == above.source => highest = above,
            _ => break,
        }
    }
    (lowest.start.max(low), highest.end.min(low + around))
}

impl Presence {
    /// Explains a fault on `page`, which is mapped, then remembers it. `around` is
    /// the replay's fault-around window in pages; `users` the tasks in the space.
    pub(super) fn fault(
        &mut self,
        page: u64,
        regions: &Regions,
        access: Access,
        around: u64,
        users: u32,
    ) -> Expectation {
        let Some(region) = regions.at(page) else {
            return Expectation::AsRecorded;
        };
        let bit = 1 << (page % WINDOW);
        let window = self.windows.entry(page / WINDOW).or_default();
        let known = *window;
        window.faulted |= bit;
        if access == Access::Write {
            match region.shared {
                true => window.written_shared |= bit,
                false => {
                    let is_own = window.own & bit != 0;
                    self.own += u64::from(!is_own);
                    // Written the first time after a fork: copied.
                    self.left += u64::from(is_own && window.written & bit == 0);
                    window.own |= bit;
                    window.written |= bit;
                }
            }
        }
        let why = known.explain(bit, region, access, users);
        let maps_around = region.shared || access != Access::Write;
        if maps_around && region.source != Source::Anonymous && around > 1 {
            let (from, to) = stretch(regions, region, page, around);
            self.mark(from, to, |window| &mut window.around);
        }
        why
    }

    /// The kernel's fault-around offered pages `start..end`.
    pub(super) fn offer(&mut self, start: u64, end: u64) {
        self.mark(start, end, |window| &mut window.offered);
    }

    /// Sets the bits of pages `start..end`.
    fn mark(&mut self, start: u64, end: u64, bits: impl Fn(&mut Window) -> &mut u64) {
        let mut at = start;
        while at < end {
            let base = at - at % WINDOW;
            let window = self.windows.entry(at / WINDOW).or_default();
            *bits(window) |= mask(at - base, (end - base).min(WINDOW));
            at = base + WINDOW;
        }
    }

    /// Pages `start..end` are no longer mapped.
    pub(super) fn forget(&mut self, start: u64, end: u64) {
        if start >= end {
            return;
        }
        let (first, last) = (start / WINDOW, (end - 1) / WINDOW);
        for index in [first, last] {
            if let Some(window) = self.windows.get_mut(&index) {
                let base = index * WINDOW;
                let mask = mask(start.saturating_sub(base), (end - base).min(WINDOW));
                let gone = u64::from((window.own & mask).count_ones());
                self.own -= gone;
                self.left += gone;
                window.forget(mask);
            }
        }
        if last > first + 1 {
            let inner: Vec<u64> = self
                .windows
                .range(first + 1..last)
                .map(|(index, _)| *index)
                .collect();
            for index in inner {
                if let Some(window) = self.windows.remove(&index) {
                    let gone = u64::from(window.own.count_ones());
                    self.own -= gone;
                    self.left += gone;
                }
            }
        }
    }

    /// Pages `start..end` moved to `to`.
    pub(super) fn relocate(&mut self, start: u64, end: u64, to: u64) {
        if start >= end {
            return;
        }
        let moved: Vec<(u64, Window)> = self
            .windows
            .range(start / WINDOW..=(end - 1) / WINDOW)
            .map(|(index, window)| (*index, *window))
            .collect();
        self.forget(to, to + (end - start));
        for (index, window) in moved {
            for bit in 0..WINDOW {
                let page = index * WINDOW + bit;
                if (start..end).contains(&page) {
                    self.copy_bit(&window, bit, to + (page - start));
                }
            }
        }
        self.forget(start, end);
    }

    fn copy_bit(&mut self, from: &Window, bit: u64, page: u64) {
        let set = |mask: u64| (mask >> bit & 1) << (page % WINDOW);
        let known = from.faulted | from.inherited | from.offered | from.around;
        if known >> bit & 1 == 0 {
            return;
        }
        let window = self.windows.entry(page / WINDOW).or_default();
        window.faulted |= set(from.faulted);
        window.written |= set(from.written);
        window.written_shared |= set(from.written_shared);
        self.own += u64::from((set(from.own) & !window.own).count_ones());
        window.own |= set(from.own);
        window.inherited |= set(from.inherited);
        window.offered |= set(from.offered);
        window.around |= set(from.around);
    }

    /// What a child of this space starts with; here, private pages are
    /// write-protected again.
    pub(super) fn fork(&mut self) -> Self {
        let child = self
            .windows
            .iter()
            .map(|(index, window)| {
                let child = Window {
                    inherited: window.faulted | window.inherited,
                    offered: window.offered,
                    around: window.around,
                    ..Window::default()
                };
                (*index, child)
            })
            .collect();
        for window in self.windows.values_mut() {
            window.written = 0;
        }
        Self {
            windows: child,
            ..Self::default()
        }
    }

    /// What the space holds. `shared` says whether descendants may have pages
    /// that it no longer has.
    pub(super) fn holding(&mut self, shared: bool) -> Holding {
        if !shared {
            self.left = 0;
        }
        Holding {
            own: self.own,
            left: self.left,
            windows: self.windows.len() as u64,
        }
    }
}
