//! Going over the mappings of a page, list first and table second: against the order of
//! locks.

use super::Pv;
use super::entry::EntryName;
use super::lists::Listed;
use super::locks::LockName;
use super::supply::EntryChain;
use crate::addr::Pfn;
use crate::platform::Platform;
use crate::rmap::{Env, Slot, Topology, Verdict, VisitReport};
use crate::sync::Pin;
use crate::table::Format;

/// The lists that a page's mappings are in, under their locks: its own and, if superpages
/// are mapped that cover it, theirs. Nobody promotes or demotes meanwhile, which takes
/// both locks.
struct Lists<'a> {
    frame: Pfn,
    own: Listed<'a>,
    large: Option<Listed<'a>>,
}

/// How a visit of the lists ended.
enum Ended {
    /// There are no more entries, or the visitor has seen enough.
    Done,
    /// A table was waited for, and the lists are others now.
    Changed,
}

impl Lists<'_> {
    fn generations(&self) -> (u32, Option<u32>) {
        let large = self.large.as_ref().map(|large| large.head.generation());
        (self.own.head.generation(), large)
    }
}

/// Which of the two lists an entry is in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Which {
    Own,
    Large,
}

impl Pv {
    /// The lists of a page, locked to be looked at.
    fn lock_lists(&self, pin: &Pin<'_>, frame: Pfn) -> Lists<'_> {
        self.lock_to_read(pin, self.locks.of(frame));
        let large = self.listed_large(frame);
        // Without the lock: superpages that are mapped meanwhile may be missed. Those that
        // are there stay what they are, for the page's lock is held.
        let large = match large.head.first() {
            EntryName::NONE => None,
            _ => {
                if let Some(lock) = self.lock_beside(frame) {
                    self.lock_to_read(pin, lock);
                }
                Some(large)
            }
        };
        Lists {
            frame,
            own: self.listed(frame),
            large,
        }
    }

    /// The lock of the superpage's list, if it is not that of the page too.
    fn lock_beside(&self, frame: Pfn) -> Option<LockName> {
        let large = self.locks.of_large(frame);
        (large != self.locks.of(frame)).then_some(large)
    }

    /// The lock of the list of the superpage, if it is held beside the page's.
    fn held_beside(&self, lists: &Lists<'_>) -> Option<LockName> {
        lists.large.as_ref()?;
        self.lock_beside(lists.frame)
    }

    fn lock_again(&self, pin: &Pin<'_>, lists: &Lists<'_>) {
        self.lock_to_read(pin, self.locks.of(lists.frame));
        if let Some(lock) = self.held_beside(lists) {
            self.lock_to_read(pin, lock);
        }
    }

    fn unlock_lists(&self, pin: &Pin<'_>, lists: &Lists<'_>) {
        if let Some(lock) = self.held_beside(lists) {
            self.locks.release_read(lock, pin);
        }
        self.locks.release_read(self.locks.of(lists.frame), pin);
    }

    /// The lock under which a list changes.
    fn lock_of(&self, lists: &Lists<'_>, which: Which) -> LockName {
        let own = self.locks.of(lists.frame);
        match which {
            Which::Own => own,
            Which::Large => self.lock_beside(lists.frame).unwrap_or(own),
        }
    }

    /// Makes sure that nobody else looks at a list, until [`PvListLocks::read_on`]. If others
    /// do, both locks are given up and taken again. Returns whether the lists are the same
    /// as before. The caller has locked the table of an entry, which stays where it is.
    ///
    /// [`PvListLocks::read_on`]: super::locks::PvListLocks::read_on
    fn keep_others_out(&self, pin: &Pin<'_>, lists: &Lists<'_>, which: Which) -> bool {
        let lock = self.lock_of(lists, which);
        if self.locks.try_to_change(lock) {
            return true;
        }
        let generations = lists.generations();
        self.unlock_lists(pin, lists);
        let own = self.locks.of(lists.frame);
        for each in [Some(own), self.held_beside(lists)].into_iter().flatten() {
            match each == lock {
                true => self.lock(pin, each),
                false => self.lock_to_read(pin, each),
            }
        }
        lists.generations() == generations
    }

    /// Hands out the entries that map a page.
    pub(super) fn visit_page<'a, P: Platform, F: Format>(
        &'a self,
        env: &Env<'a, P>,
        topology: &dyn Topology<()>,
        frame: Pfn,
        visitor: &mut dyn FnMut(&Slot<'_, F>) -> Verdict,
    ) -> VisitReport {
        let mut report = VisitReport::default();
        loop {
            let lists = self.lock_lists(env.pin, frame);
            let ended = self.visit_lists(env, topology, &lists, &mut report, visitor);
            self.unlock_lists(env.pin, &lists);
            if let Ended::Done = ended {
                return report;
            }
        }
    }

    fn visit_lists<'a, P: Platform, F: Format>(
        &'a self,
        env: &Env<'a, P>,
        topology: &dyn Topology<()>,
        lists: &Lists<'_>,
        report: &mut VisitReport,
        visitor: &mut dyn FnMut(&Slot<'_, F>) -> Verdict,
    ) -> Ended {
        let own = Some((Which::Own, &lists.own));
        let large = lists.large.as_ref().map(|large| (Which::Large, large));
        for (which, list) in [own, large].into_iter().flatten() {
            let mut name = list.head.first();
            while !name.is_none() {
                let entry = self.entry(env, name);
                let after = entry.next();
                let space = self.space(self.owner(env, name));
                let pte = topology.leaf(env.pin, space.handle(), entry.page());
                let place = pte.map(|pte| (pte, self.tables_of(space)));
                let slot = match place.map(|place| (place, Slot::open(env, place, lists.frame))) {
                    None => None,
                    Some((_, Ok(slot))) => slot,
                    Some((place, Err(_))) => {
                        let generations = lists.generations();
                        self.unlock_lists(env.pin, lists);
                        let slot = Slot::wait(env, place, &mut report.lock_failures);
                        self.lock_again(env.pin, lists);
                        if lists.generations() != generations {
                            return Ended::Changed;
                        }
                        slot.filter(|slot: &Slot<'_, F>| slot.maps(lists.frame))
                    }
                };
                let Some(slot) = slot else {
                    report.false_probes += 1;
                    name = after;
                    continue;
                };
                report.hits += 1;
                match visitor(&slot) {
                    Verdict::Keep => {}
                    Verdict::Stop => return Ended::Done,
                    Verdict::Unmapped => {
                        report.unmapped += 1;
                        let is_same = self.keep_others_out(env.pin, lists, which);
                        self.unlink(env, list, name);
                        env.memory.frame(lists.frame).remove_mapping();
                        self.locks.read_on(self.lock_of(lists, which));
                        self.cpus.get(env.pin).removes.bump();
                        // Before the table is unlocked: its space cannot end earlier.
                        let mut freed = EntryChain::default();
                        self.push(env, &mut freed, name);
                        self.give(env, &mut freed);
                        if !is_same {
                            return Ended::Changed;
                        }
                    }
                }
                drop(slot);
                name = after;
            }
        }
        Ended::Done
    }
}
