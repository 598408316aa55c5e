//! Page tables on their way from use into a list, and from CPU to CPU
//! (invariant 4).

use std::sync::atomic::{AtomicU32 as Tally, Ordering::SeqCst};

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

use super::{check, pin};
use crate::addr::Pfn;
use crate::lists::{TableDepot, TableFrames, WordList};
use crate::platform::CpuId;
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::sync::limbo::{Chain, ChainLinks, Limbo};
use crate::sync::{Epochs, Pin};

const TABLES: u32 = 4;
/// What a table holds in its next life.
const NEXT_LIFE: u64 = 0xfeed_0000;

/// Tables with one entry each, and a word that leads to table 0.
struct Model {
    epochs: Epochs,
    linked: AtomicU32,
    links: Vec<AtomicU64>,
    entries: Vec<AtomicU64>,
    /// What a CPU knows of a table that it has for itself.
    owned: Vec<UnsafeCell<u32>>,
    depot: TableDepot,
}

impl ChainLinks for Model {
    const END: u32 = Pfn::NONE.0;

    fn next(&self, table: u32) -> u32 {
        self.links[table as usize].load(Ordering::Relaxed) as u32
    }

    fn set_next(&self, table: u32, next: u32) {
        self.links[table as usize].store(u64::from(next), Ordering::Relaxed);
    }
}

impl TableFrames for Model {
    fn link(&self, table: Pfn) -> &AtomicU64 {
        &self.links[table.0 as usize]
    }

    fn first_entry(&self, table: Pfn) -> &AtomicU64 {
        &self.entries[table.0 as usize]
    }
}

impl Model {
    fn new() -> Arc<Model> {
        Arc::new(Model {
            epochs: Epochs::new(2),
            linked: AtomicU32::new(1),
            links: (0..TABLES).map(|_| AtomicU64::new(0)).collect(),
            entries: (0..TABLES).map(|_| AtomicU64::new(0)).collect(),
            owned: (0..TABLES).map(|_| UnsafeCell::new(0)).collect(),
            depot: TableDepot::new(),
        })
    }

    /// A walk without locks: what it finds in table 0 is an entry of that table.
    fn walk(&self, walks: &Tally) {
        let _pin = pin(&self.epochs, 1);
        if self.linked.load(Ordering::Acquire) == 1 {
            let entry = self.entries[0].load(Ordering::Relaxed);
            assert_eq!(entry, 0, "a walker took a list's link for an entry");
            walks.fetch_add(1, SeqCst);
        }
    }

    fn touch(&self, table: Pfn) {
        self.owned[table.0 as usize].with_mut(|value| {
            // SAFETY: the model checker verifies that nobody else has the table.
            unsafe { *value += 1 }
        });
    }
}

/// A walker against a CPU that unlinks table 0, and lists it when its epoch has
/// passed, or `at_once`; then the table is used anew.
fn walker_and_list(at_once: bool) {
    let tallies = std::sync::Arc::new((Tally::new(0), Tally::new(0)));
    let seen = tallies.clone();
    check(move || {
        let model = Model::new();
        let walker = {
            let (model, tallies) = (model.clone(), tallies.clone());
            thread::spawn(move || model.walk(&tallies.0))
        };
        let (waiting, list) = (Limbo::default(), WordList::new());
        // Another table, so that there is something to link to.
        list.push(&*model, Pfn(1));
        {
            let pin = pin(&model.epochs, 0);
            model.linked.store(0, Ordering::Relaxed);
            let tables = Chain::of(&*model, 0);
            if at_once {
                list.push(&*model, Pfn(0));
            } else {
                assert!(waiting.add(&*model, &pin, tables).is_empty());
            }
        }
        for _ in 0..2 {
            model.epochs.try_advance();
        }
        let mut passed = waiting.passed(&pin(&model.epochs, 0));
        if let Some(table) = passed.pop(&*model).map(Pfn) {
            assert_eq!((table, waiting.len()), (Pfn(0), 0));
            list.push(&*model, table);
            assert_eq!(list.pop(&*model), Some(table));
            assert_eq!(model.entries[0].load(Ordering::Relaxed), 0);
            model.entries[0].store(NEXT_LIFE, Ordering::Relaxed);
            tallies.1.fetch_add(1, SeqCst);
        }
        walker.join().unwrap();
    });
    assert!(seen.0.load(SeqCst) > 0, "the table was never walked");
    assert!(seen.1.load(SeqCst) > 0, "the table was never used anew");
}

#[test]
fn a_walker_never_reads_the_link_of_a_listed_table() {
    walker_and_list(false);
}

#[test]
#[should_panic(expected = "took a list's link for an entry")]
fn a_table_listed_before_its_epoch_shows_its_link() {
    walker_and_list(true);
}

/// Table 0 waits on CPU 1, and its epoch has passed. The CPU is pinned again, and takes it
/// when it retires table 1; `collect` takes it on CPU 0 meanwhile.
fn owner_and_collector(collect: fn(&Limbo, &Pin<'_>) -> Chain) {
    let tallies = std::sync::Arc::new((Tally::new(0), Tally::new(0)));
    let seen = tallies.clone();
    check(move || {
        let (model, waiting) = (Model::new(), Arc::new(Limbo::default()));
        {
            let pin = pin(&model.epochs, 1);
            let table = Chain::of(&*model, 0);
            assert!(waiting.add(&*model, &pin, table).is_empty());
        }
        for _ in 0..2 {
            assert!(model.epochs.try_advance());
        }
        let take = |model: &Model, mut tables: Chain| {
            let count = tables.count();
            while let Some(table) = tables.pop(model).map(Pfn) {
                assert_eq!(table, Pfn(0), "its epoch has not passed");
                model.touch(table);
            }
            count
        };
        let owner = {
            let (model, waiting) = (model.clone(), waiting.clone());
            thread::spawn(move || {
                let pin = pin(&model.epochs, 1);
                let table = Chain::of(&*model, 1);
                take(&model, waiting.add(&*model, &pin, table))
            })
        };
        let collected = {
            let pin = pin(&model.epochs, 0);
            take(&model, collect(&waiting, &pin))
        };
        let taken = owner.join().unwrap();
        assert_eq!(collected + taken, 1, "taken twice, or lost");
        assert_eq!(waiting.len(), 1);
        tallies.0.fetch_add(collected, SeqCst);
        tallies.1.fetch_add(taken, SeqCst);
    });
    assert!(seen.0.load(SeqCst) > 0, "nothing was collected");
    assert!(seen.1.load(SeqCst) > 0, "the owner never took it");
}

#[test]
fn what_has_passed_on_a_cpu_is_taken_by_it_or_by_another() {
    owner_and_collector(|waiting, pin| waiting.passed_of(CpuId(1), pin));
}

#[test]
#[should_panic]
fn a_collector_who_does_not_look_whether_the_owner_is_pinned_takes_what_it_takes() {
    owner_and_collector(|waiting, pin| waiting.passed(pin));
}

/// Takes every batch of the depot.
fn take_all(model: &Model, pin: &Pin<'_>) -> Vec<Pfn> {
    let mut taken = Vec::new();
    while let Some(mut batch) = model.depot.pop(model, pin) {
        while let Some(table) = batch.pop(model).map(Pfn) {
            model.touch(table);
            assert_eq!(model.entries[table.0 as usize].load(Ordering::Relaxed), 0);
            taken.push(table);
        }
    }
    taken
}

#[test]
fn every_table_of_a_depot_is_taken_once() {
    assert_eq!(2 * TableDepot::BATCH, TABLES);
    let moved = std::sync::Arc::new(Tally::new(0));
    let sum = moved.clone();
    check(move || {
        let model = Model::new();
        let work = |model: &Model, cpu: u16| {
            let pin = pin(&model.epochs, cpu);
            let mut batch = Chain::EMPTY;
            for table in 0..TableDepot::BATCH {
                let table = Pfn(u32::from(cpu) * TableDepot::BATCH + table);
                model.touch(table);
                batch.push(model, table.0);
            }
            model.depot.push(model, batch, &pin);
            take_all(model, &pin)
        };
        let other = {
            let model = model.clone();
            thread::spawn(move || work(&model, 1))
        };
        let mut all = work(&model, 0);
        let others = other.join().unwrap();
        let foreign = others.iter().filter(|table| table.0 < TableDepot::BATCH);
        sum.fetch_add(foreign.count() as u32, SeqCst);
        all.extend(others);
        all.extend(take_all(&model, &pin(&model.epochs, 0)));
        all.sort_unstable();
        assert_eq!(all, (0..TABLES).map(Pfn).collect::<Vec<_>>());
        assert_eq!(model.depot.len(), 0);
    });
    assert!(moved.load(SeqCst) > 0, "no table went to the other CPU");
}
