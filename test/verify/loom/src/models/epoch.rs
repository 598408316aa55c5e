//! Retired memory is not used anew while a reader can see it (invariant 7).

use std::sync::atomic::{AtomicU32 as Tally, Ordering::SeqCst};

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

use super::{Host, check, pin};
use crate::platform::CpuId;
use crate::sync::atomic::{AtomicU32, Ordering};
use crate::sync::{EpochStamp, Epochs};

/// One item, and the word that leads to it.
struct Model {
    epochs: Epochs,
    linked: AtomicU32,
    item: UnsafeCell<u32>,
    reads: Tally,
}

impl Model {
    fn new() -> Arc<Self> {
        Arc::new(Model {
            epochs: Epochs::new(3),
            linked: AtomicU32::new(1),
            item: UnsafeCell::new(0),
            reads: Tally::new(0),
        })
    }

    /// Follows the link, if it is there.
    fn read(&self) {
        if self.linked.load(Ordering::Relaxed) == 1 {
            let value = self.item.with(|item| {
                // SAFETY: the model checker verifies that nobody writes.
                unsafe { *item }
            });
            assert_eq!(value, 0, "the item was used anew");
            self.reads.fetch_add(1, SeqCst);
        }
    }

    fn unlink(&self, cpu: u16) -> EpochStamp {
        let _pin = pin(&self.epochs, cpu);
        self.linked.store(0, Ordering::Relaxed);
        self.epochs.stamp()
    }

    fn reuse(&self) {
        self.item.with_mut(|item| {
            // SAFETY: the model checker verifies that nobody reads.
            unsafe { *item = 1 }
        });
    }
}

/// Runs a reader against a writer that unlinks the item, moves the epoch on
/// twice if it can, and uses the item anew if its epoch has passed. Both must
/// have happened in some run: the item read, and the item used anew.
fn reader_and_writer(reader: fn(&Model)) {
    let (reads, reuses) = (Tally::new(0), Tally::new(0));
    let tallies = std::sync::Arc::new((reads, reuses));
    let seen = tallies.clone();
    check(move || {
        let model = Model::new();
        let thread = {
            let model = model.clone();
            thread::spawn(move || reader(&model))
        };
        let stamp = model.unlink(0);
        for _ in 0..2 {
            model.epochs.try_advance();
        }
        if model.epochs.passed(stamp) {
            model.reuse();
            tallies.1.fetch_add(1, SeqCst);
        }
        thread.join().unwrap();
        tallies.0.fetch_add(model.reads.load(SeqCst), SeqCst);
    });
    assert!(seen.0.load(SeqCst) > 0, "the item was never read");
    assert!(seen.1.load(SeqCst) > 0, "the item was never used anew");
}

#[test]
fn a_retired_item_is_not_reused_under_a_reader() {
    reader_and_writer(|model| {
        let _pin = pin(&model.epochs, 1);
        model.read();
    });
}

#[test]
fn it_does_not_matter_who_moves_the_epoch_on() {
    check(|| {
        let model = Model::new();
        let reader = {
            let model = model.clone();
            thread::spawn(move || {
                let _pin = pin(&model.epochs, 1);
                model.read();
            })
        };
        let mover = {
            let model = model.clone();
            thread::spawn(move || {
                model.epochs.try_advance();
                model.epochs.try_advance();
            })
        };
        let stamp = model.unlink(0);
        if model.epochs.passed(stamp) {
            model.reuse();
        }
        mover.join().unwrap();
        reader.join().unwrap();
    });
}

/// Runs a reader that announces a later epoch half way and stays pinned, so
/// that only that announcement lets the epoch go on to where the item may be
/// used anew. The yields make loom go to and fro at the right places.
fn announces_again(reader: fn(&Model)) {
    let reuses = std::sync::Arc::new(Tally::new(0));
    let sum = reuses.clone();
    check(move || {
        let model = Model::new();
        let thread = {
            let model = model.clone();
            thread::spawn(move || reader(&model))
        };
        thread::yield_now();
        let stamp = model.unlink(0);
        model.epochs.try_advance();
        thread::yield_now();
        model.epochs.try_advance();
        if model.epochs.passed(stamp) {
            model.reuse();
            sum.fetch_add(1, SeqCst);
        }
        thread.join().unwrap();
    });
    assert!(reuses.load(SeqCst) > 0, "the item was never used anew");
}

#[test]
fn a_refreshed_pin_lets_go_of_what_it_has_read() {
    announces_again(|model| {
        let mut pin = pin(&model.epochs, 1);
        model.read();
        thread::yield_now();
        pin.refresh();
        core::mem::forget(pin);
    });
}

#[test]
fn a_refreshed_pin_keeps_what_it_reads_afterwards() {
    announces_again(|model| {
        let mut pin = pin(&model.epochs, 1);
        thread::yield_now();
        pin.refresh();
        model.read();
        core::mem::forget(pin);
    });
}

#[test]
fn a_pin_taken_anew_does_not_hide_the_one_before() {
    announces_again(|model| {
        let first = pin(&model.epochs, 1);
        model.read();
        thread::yield_now();
        drop(first);
        core::mem::forget(pin(&model.epochs, 1));
    });
}

#[test]
fn a_nested_pin_does_not_end_the_outer_one() {
    reader_and_writer(|model| {
        let _outer = pin(&model.epochs, 1);
        drop(pin(&model.epochs, 1));
        model.read();
    });
}

#[test]
fn a_nested_pin_that_outlives_the_outer_one_keeps_its_epoch() {
    reader_and_writer(|model| {
        let outer = pin(&model.epochs, 1);
        let _inner = pin(&model.epochs, 1);
        drop(outer);
        model.read();
    });
}

#[test]
fn an_outer_pin_is_not_refreshed_under_a_nested_one() {
    check(|| {
        let model = Model::new();
        let mut outer = pin(&model.epochs, 1);
        let inner = pin(&model.epochs, 1);
        let stamp = model.epochs.stamp();
        assert!(model.epochs.try_advance());
        outer.refresh();
        assert!(!model.epochs.try_advance());
        drop(inner);
        outer.refresh();
        assert!(model.epochs.try_advance());
        assert!(model.epochs.passed(stamp));
    });
}

#[test]
#[should_panic(expected = "Causality violation")]
fn one_epoch_is_too_short() {
    check(|| {
        let model = Model::new();
        let reader = {
            let model = model.clone();
            thread::spawn(move || {
                let _pin = pin(&model.epochs, 1);
                model.read();
            })
        };
        let stamp = model.unlink(0);
        if model.epochs.try_advance() && model.epochs.stamp() > stamp {
            model.reuse();
        }
        reader.join().unwrap();
    });
}

#[test]
fn an_exchange_takes_the_place_of_the_fence_of_a_pin() {
    reader_and_writer(|model| {
        let lock = AtomicU32::new(0);
        let take = || assert_eq!(lock.swap(1, Ordering::Acquire), 0);
        // SAFETY: each thread of a model has a number of its own.
        let _pin = unsafe { model.epochs.enter_by_exchange(&Host, CpuId(1), take) };
        model.read();
        assert_eq!(lock.load(Ordering::Relaxed), 1);
    });
}

#[test]
fn a_nested_pin_needs_no_exchange() {
    check(|| {
        let epochs = Epochs::new(1);
        let _outer = pin(&epochs, 0);
        let mut done = false;
        // SAFETY: there is one thread.
        let _inner = unsafe { epochs.enter_by_exchange(&Host, CpuId(0), || done = true) };
        assert!(!done);
    });
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_reader_without_a_pin_is_noticed() {
    reader_and_writer(Model::read);
}

/// The announcement alone, with and without the fences between each side's
/// store and its load.
fn announce(fenced: bool) {
    use crate::sync::atomic::{AtomicU64, fence};
    let model = Model::new();
    let slot = Arc::new(AtomicU64::new(0));
    let reader = {
        let (model, slot) = (model.clone(), slot.clone());
        thread::spawn(move || {
            slot.store(1, Ordering::Relaxed);
            if fenced {
                fence(Ordering::SeqCst);
            }
            model.read();
            slot.store(0, Ordering::Release);
        })
    };
    model.linked.store(0, Ordering::Relaxed);
    if fenced {
        fence(Ordering::SeqCst);
    }
    if slot.load(Ordering::Acquire) == 0 {
        model.reuse();
    }
    reader.join().unwrap();
}

#[test]
fn fences_keep_an_announcement_from_being_missed() {
    check(|| announce(true));
}

#[test]
#[should_panic(expected = "Causality violation")]
fn an_announcement_without_fences_is_missed() {
    check(|| announce(false));
}
