//! What locks cost: how often they were taken, waited for, and for how long they were held.

use std::collections::HashMap;

use vellum::sync::report::Kind;

use crate::names::{What, what_is_at};
use crate::places::Places;

/// What one lock cost all CPUs; times in picoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct LockCosts {
    /// How often it was taken.
    pub acquired: u64,
    /// How often it was not free at first.
    pub contended: u64,
    /// Time from then on until it was taken.
    pub waited: u64,
    /// Time from its taking to its release.
    pub held: u64,
}

impl LockCosts {
    /// Adds those of another lock.
    pub fn add(&mut self, other: &LockCosts) {
        self.acquired += other.acquired;
        self.contended += other.contended;
        self.waited += other.waited;
        self.held += other.held;
    }
}

/// A lock that was taken.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProfiledLock {
    /// The place it is in; empty for a lock on a stack.
    pub place: String,
    /// Its offset there in bytes.
    pub offset: usize,
    /// What the core has there, if it has said so.
    pub what: Option<What>,
    /// What it cost.
    pub costs: LockCosts,
}

/// The locks of a run, those waited for longest first.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct LockProfile {
    /// All of them.
    pub locks: Vec<ProfiledLock>,
}

/// Follows the locks of a run, by the host addresses of their words.
#[derive(Debug)]
pub(crate) struct Locks {
    costs: HashMap<usize, LockCosts>,
    /// Since when locks are held. One that sleeps may be released on another CPU.
    held: HashMap<usize, u64>,
    /// By CPU, what it waits for, and since when. While it waits for one it may take others.
    awaited: Vec<Vec<(usize, u64)>>,
}

impl Locks {
    pub(crate) fn new(cpus: usize) -> Locks {
        Locks {
            costs: HashMap::new(),
            held: HashMap::new(),
            awaited: vec![Vec::new(); cpus],
        }
    }

    /// Forgets what locks have cost so far. Those that are held or waited for count whole when
    /// that ends.
    pub(crate) fn forget_costs(&mut self) {
        self.costs.clear();
    }

    /// What is reported of a lock on a CPU.
    pub(crate) fn note(&mut self, cpu: usize, what: Kind, lock: usize, now: u64) {
        let awaited = &mut self.awaited[cpu];
        match what {
            Kind::LockAwaited if awaited.iter().all(|(other, _)| *other != lock) => {
                awaited.push((lock, now));
            }
            Kind::LockTaken | Kind::LockWaitEnded => {
                let costs = self.costs.entry(lock).or_default();
                if let Some(place) = awaited.iter().position(|(other, _)| *other == lock) {
                    let (_, since) = awaited.swap_remove(place);
                    costs.contended += 1;
                    costs.waited += now - since;
                }
                if what == Kind::LockTaken {
                    costs.acquired += 1;
                    self.held.insert(lock, now);
                }
            }
            Kind::LockReleased => {
                if let Some(since) = self.held.remove(&lock) {
                    self.costs.entry(lock).or_default().held += now.saturating_sub(since);
                }
            }
            _ => {}
        }
    }

    pub(crate) fn profile(&self, places: &mut Places) -> LockProfile {
        let locks = self.costs.iter().map(|(&address, &costs)| {
            let (place, offset) = match places.find(address) {
                Some((place, offset)) => (places.named(place).0.to_owned(), offset),
                None => (String::new(), 0),
            };
            ProfiledLock {
                place,
                offset,
                what: what_is_at(address),
                costs,
            }
        });
        let mut locks: Vec<ProfiledLock> = locks.collect();
        locks.sort_by(|one, other| {
            let costs = |lock: &ProfiledLock| (lock.costs.waited, lock.costs.held);
            let by_time = costs(other).cmp(&costs(one));
            by_time
                .then_with(|| one.place.cmp(&other.place))
                .then(one.offset.cmp(&other.offset))
        });
        LockProfile { locks }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What two CPUs did with locks: which of them, what, with the lock at which place, when.
    fn noted(events: &[(usize, Kind, usize, u64)]) -> Locks {
        let mut locks = Locks::new(2);
        for &(cpu, kind, place, at) in events {
            locks.note(cpu, kind, place, at);
        }
        locks
    }

    #[test]
    fn a_wait_lasts_from_the_first_failure_to_the_taking() {
        let locks = noted(&[
            (0, Kind::LockTaken, 8, 100),
            (1, Kind::LockAwaited, 8, 120),
            (1, Kind::LockAwaited, 8, 150),
            // While it waits it takes another.
            (1, Kind::LockTaken, 16, 160),
            (1, Kind::LockReleased, 16, 165),
            (0, Kind::LockReleased, 8, 200),
            (1, Kind::LockTaken, 8, 230),
            // Released by the other CPU.
            (0, Kind::LockReleased, 8, 300),
        ]);
        let expected = LockCosts {
            acquired: 2,
            contended: 1,
            waited: 110,
            held: 100 + 70,
        };
        assert_eq!(locks.costs[&8], expected);
        assert_eq!((locks.costs[&16].contended, locks.costs[&16].held), (0, 5));
    }

    #[test]
    fn who_waits_for_a_lock_need_not_take_it() {
        let locks = noted(&[
            (0, Kind::LockTaken, 8, 100),
            (1, Kind::LockAwaited, 8, 120),
            (0, Kind::LockReleased, 8, 200),
            (1, Kind::LockWaitEnded, 8, 210),
            (1, Kind::LockTaken, 8, 900),
            (1, Kind::LockReleased, 8, 910),
        ]);
        let expected = LockCosts {
            acquired: 2,
            contended: 1,
            waited: 90,
            held: 100 + 10,
        };
        assert_eq!(locks.costs[&8], expected);
    }
}
