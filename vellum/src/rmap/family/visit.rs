//! Finding the entries that map a frame.

use super::Family;
use super::hint::{Name, entry_of};
use crate::addr::Pfn;
use crate::frame::{Frame, Kind};
use crate::platform::Platform;
use crate::rmap::{Env, ReverseMap, Slot, Topology, Verdict, VisitReport};
use crate::slab::Handle;
use crate::table::{Format, PteRef};

/// One visit of a frame.
pub(super) struct FamilyVisit<'v, 'a, P: Platform, F: Format> {
    pub(super) env: &'v Env<'a, P>,
    pub(super) pfn: Pfn,
    pub(super) frame: &'v Frame,
    /// Entries still to be found.
    pub(super) wanted: u32,
    pub(super) stopped: bool,
    pub(super) report: VisitReport,
    pub(super) visitor: &'v mut dyn FnMut(&Slot<'_, F>) -> Verdict,
}

impl<P: Platform, F: Format> FamilyVisit<'_, '_, P, F> {
    fn is_over(&self) -> bool {
        self.stopped || self.wanted == 0
    }
}

impl Family {
    /// Looks at an entry that may map the frame, waiting for its table.
    fn try_entry<P: Platform, F: Format>(
        &self,
        visit: &mut FamilyVisit<'_, '_, P, F>,
        pte: PteRef,
    ) {
        let env = visit.env;
        let mut spins = 0;
        let slot = loop {
            match Slot::<F>::open(env, (pte, None), visit.pfn) {
                Ok(Some(slot)) => break slot,
                Ok(None) => {
                    visit.report.false_probes += 1;
                    return;
                }
                Err(_) => {
                    // Its holder waits for nothing that we hold.
                    visit.report.lock_failures += 1;
                    env.pin.relax(spins);
                    spins += 1;
                }
            }
        };
        // Another one, if a large leaf was split.
        let pte = slot.pte();
        visit.report.hits += 1;
        visit.wanted = visit.wanted.saturating_sub(1);
        match (visit.visitor)(&slot) {
            Verdict::Keep => self.note_kept(visit.frame, pte),
            Verdict::Stop => visit.stopped = true,
            Verdict::Unmapped => {
                visit.report.unmapped += 1;
                self.cpus.get(env.pin).removes.bump();
                self.hints.forget(visit.frame, pte);
                let before = visit.frame.remove_mapping();
                if before.maps() == 1 && visit.frame.kind() == Kind::Anonymous {
                    self.unmapped(env, visit.pfn);
                }
            }
        }
    }

    /// A visit met an entry, whose table is locked. If it is the only one, the
    /// next visit is spared the search.
    pub(super) fn note_kept(&self, frame: &Frame, pte: PteRef) {
        if frame.counts().maps() == 1 {
            self.hints.remember(frame, pte);
        }
    }

    /// Searches the family of the frame's owner, leaving out the entry `seen`.
    fn search<P: Platform, F: Format>(
        &self,
        topology: &dyn Topology<()>,
        visit: &mut FamilyVisit<'_, '_, P, F>,
        name: Name,
        seen: Option<PteRef>,
    ) {
        // A frame that is just becoming a private page names its space first.
        if self.nodes.try_get(Handle::from_raw(name.owner)).is_none() {
            return;
        }
        let pin = visit.env.pin;
        let cpu = self.cpus.get(pin);
        cpu.locks.bump();
        let Some(family) = self.families.lock(&self.nodes, name.owner, pin) else {
            return;
        };
        if Name::of(visit.frame) != name {
            return;
        }
        family.spaces(name.owner, name.stamp, |space| {
            cpu.spaces_searched.bump();
            match topology.leaf(pin, space, name.page) {
                Some(pte) if Some(pte) == seen => {}
                Some(pte) => self.try_entry(visit, pte),
                None => visit.report.false_probes += 1,
            }
            !visit.is_over()
        });
    }

    pub(super) fn visit_private<P: Platform, F: Format>(
        &self,
        topology: &dyn Topology<()>,
        visit: &mut FamilyVisit<'_, '_, P, F>,
    ) {
        loop {
            let name = Name::of(visit.frame);
            visit.wanted = visit.frame.counts().maps();
            if visit.wanted == 0 {
                return;
            }
            let seen = entry_of(visit.frame);
            if let Some(pte) = seen {
                self.try_entry(visit, pte);
            }
            if !visit.is_over() {
                self.search(topology, visit, name, seen);
            }
            if visit.is_over() || Name::of(visit.frame) == name {
                return;
            }
        }
    }

    pub(super) fn visit_file<P: Platform, F: Format>(
        &self,
        topology: &dyn Topology<()>,
        visit: &mut FamilyVisit<'_, '_, P, F>,
    ) {
        visit.wanted = visit.frame.counts().maps();
        if visit.wanted == 1
            && let Some(pte) = entry_of(visit.frame)
        {
            self.try_entry(visit, pte);
        }
        if visit.is_over() {
            return;
        }
        let visitor = &mut *visit.visitor;
        let report = self.visit_run(visit.env, topology, &[visit.pfn], &mut |_, slot| {
            visitor(slot)
        });
        visit.report.merge(report);
    }
}
