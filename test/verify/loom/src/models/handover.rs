//! Vacant slots that go from one CPU to another through the depot.

use std::sync::atomic::{AtomicU32 as Tally, Ordering::SeqCst};

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

use super::{check, pin};
use crate::cache::{Cache, SlotDepot, Slots};
use crate::sync::atomic::{AtomicU32, Ordering};
use crate::sync::limbo::{Chain, ChainLinks};
use crate::sync::{Epochs, Pin};

const SLOTS: u32 = 4;

/// Slots with a value each, which whoever has the slot may change.
struct Model {
    epochs: Epochs,
    depot: SlotDepot,
    links: Vec<AtomicU32>,
    places: Vec<(AtomicU32, AtomicU32)>,
    values: Vec<UnsafeCell<u32>>,
}

impl ChainLinks for Model {
    const END: u32 = 0;

    fn next(&self, slot: u32) -> u32 {
        self.links[slot as usize].load(Ordering::Relaxed)
    }

    fn set_next(&self, slot: u32, next: u32) {
        self.links[slot as usize].store(next, Ordering::Relaxed);
    }
}

impl Slots for Model {
    fn place(&self, index: u32) -> (&AtomicU32, &AtomicU32) {
        let (head, tail) = &self.places[index as usize];
        (head, tail)
    }
}

impl Model {
    fn new() -> Self {
        Model {
            epochs: Epochs::new(2),
            depot: SlotDepot::default(),
            links: (0..=SLOTS).map(|_| AtomicU32::new(0)).collect(),
            places: (0..SLOTS).map(|_| Default::default()).collect(),
            values: (0..=SLOTS).map(|_| UnsafeCell::new(0)).collect(),
        }
    }

    /// Uses a slot that is ours.
    fn touch(&self, slot: u32) {
        self.values[slot as usize].with_mut(|value| {
            // SAFETY: the model checker verifies that nobody else has the slot.
            unsafe { *value += 1 }
        });
    }

    /// Frees slots with batches of `batch`, the surplus to the depot.
    fn free(&self, cache: &Cache, slots: impl Iterator<Item = u32>, batch: u32, pin: &Pin<'_>) {
        for slot in slots {
            self.touch(slot);
            if let Some(full) = cache.push(self, slot, batch) {
                self.depot.push(self, full, batch, pin);
            }
        }
    }

    /// Takes what the CPU has, and then what the depot has.
    fn take(&self, cache: &Cache, batch: u32, pin: &Pin<'_>) -> Vec<u32> {
        let mut taken = Vec::new();
        loop {
            let slot = cache.pop(self);
            if slot != 0 {
                self.touch(slot);
                taken.push(slot);
            } else {
                let spare = cache.take_spare();
                match spare.or_else(|| self.depot.pop(self, batch, 1, pin)) {
                    Some(list) => cache.set_active(list),
                    None => return taken,
                }
            }
        }
    }
}

/// Each of two CPUs frees two slots, and then takes what it finds. Returns how
/// many slots CPU 1 took of what CPU 0 had freed.
fn exchange(batch: u32) -> u32 {
    let model = Arc::new(Model::new());
    let work = move |model: &Model, cpu: u16| {
        let pin = pin(&model.epochs, cpu);
        let cache = Cache::default();
        let first = u32::from(cpu) * 2 + 1;
        model.free(&cache, first..first + 2, batch, &pin);
        if let Some(spare) = cache.take_spare() {
            model.depot.push(model, spare, batch, &pin);
        }
        model.take(&cache, batch, &pin)
    };
    let other = {
        let model = model.clone();
        thread::spawn(move || work(&model, 1))
    };
    let mut all = work(&model, 0);
    let others = other.join().unwrap();
    let moved = others.iter().filter(|&&slot| slot <= 2).count() as u32;
    all.extend(others);
    let rest = pin(&model.epochs, 0);
    all.extend(model.take(&Cache::default(), batch, &rest));
    all.sort_unstable();
    assert_eq!(all, [1, 2, 3, 4], "every slot is taken once");
    moved
}

#[test]
fn batches_of_one_are_taken_once() {
    let moved = std::sync::Arc::new(Tally::new(0));
    let sum = moved.clone();
    check(move || {
        sum.fetch_add(exchange(1), SeqCst);
    });
    assert!(moved.load(SeqCst) > 0, "no slot went to the other CPU");
}

#[test]
fn a_batch_hands_over_its_links_and_values() {
    check(|| {
        let model = Arc::new(Model::new());
        let other = {
            let model = model.clone();
            thread::spawn(move || {
                let pin = pin(&model.epochs, 1);
                model.take(&Cache::default(), 2, &pin)
            })
        };
        let cpu = pin(&model.epochs, 0);
        let mut list = Chain::EMPTY;
        for slot in 1..=2 {
            model.touch(slot);
            list.push(&*model, slot);
        }
        model.depot.push(&*model, list, 2, &cpu);
        let mut all = other.join().unwrap();
        all.extend(model.take(&Cache::default(), 2, &cpu));
        assert_eq!(all, [2, 1]);
    });
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_depot_without_a_lock_is_noticed() {
    check(|| {
        let model = Arc::new(Model::new());
        let shown = Arc::new(AtomicU32::new(0));
        let other = {
            let (model, shown) = (model.clone(), shown.clone());
            thread::spawn(move || {
                if shown.load(Ordering::Relaxed) == 1 {
                    model.touch(model.places[0].0.load(Ordering::Relaxed));
                }
            })
        };
        model.touch(1);
        model.places[0].0.store(1, Ordering::Relaxed);
        shown.store(1, Ordering::Relaxed);
        other.join().unwrap();
    });
}
