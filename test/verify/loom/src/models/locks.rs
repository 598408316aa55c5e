//! Bit locks, as the chains take them, and spin locks.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

use super::{check, pin};
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{BitLock, Epochs, NestedLock, SpinLock};

const LOCK: u32 = 63;

struct Chain {
    epochs: Epochs,
    word: AtomicU64,
    nodes: UnsafeCell<u64>,
}

fn two_cpus(work: fn(&Chain, u16)) -> Chain {
    let chain = Arc::new(Chain {
        epochs: Epochs::new(2),
        word: AtomicU64::new(0),
        nodes: UnsafeCell::new(0),
    });
    let other = {
        let chain = chain.clone();
        thread::spawn(move || work(&chain, 1))
    };
    work(&chain, 0);
    other.join().unwrap();
    let Ok(chain) = Arc::try_unwrap(chain) else {
        unreachable!("the other thread has ended");
    };
    chain
}

fn add(chain: &Chain) {
    chain.nodes.with_mut(|nodes| {
        // SAFETY: the model checker verifies that nobody else is in here.
        unsafe { *nodes += 1 }
    });
}

#[test]
fn a_chain_lock_admits_one_and_keeps_the_word() {
    check(|| {
        let chain = two_cpus(|chain, cpu| {
            let pin = pin(&chain.epochs, cpu);
            let guard = chain.word.lock_bit(LOCK, &pin);
            let value = guard.value();
            add(chain);
            guard.unlock_with(value + 1);
        });
        assert_eq!(chain.word.load(Ordering::Relaxed), 2);
    });
}

#[test]
fn a_chain_lock_dropped_leaves_the_word() {
    check(|| {
        let chain = two_cpus(|chain, cpu| {
            let pin = pin(&chain.epochs, cpu);
            let _guard = chain.word.lock_bit(LOCK, &pin);
            add(chain);
        });
        assert_eq!(chain.word.load(Ordering::Relaxed), 0);
    });
}

#[test]
fn a_try_that_fails_leaves_the_lock_held() {
    check(|| {
        two_cpus(|chain, cpu| {
            let pin = pin(&chain.epochs, cpu);
            if let Some(_guard) = chain.word.try_lock_bit(LOCK, &pin) {
                add(chain);
            }
        });
    });
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_chain_unlocked_without_release_is_noticed() {
    check(|| {
        two_cpus(|chain, cpu| {
            let pin = pin(&chain.epochs, cpu);
            let guard = chain.word.lock_bit(LOCK, &pin);
            add(chain);
            core::mem::forget(guard);
            chain.word.store(0, Ordering::Relaxed);
        });
    });
}

#[test]
fn a_spin_lock_admits_one() {
    check(|| {
        let shared = Arc::new((Epochs::new(2), SpinLock::new(UnsafeCell::new(0))));
        let work = |shared: &(Epochs, SpinLock<UnsafeCell<u32>>), cpu| {
            let pin = pin(&shared.0, cpu);
            shared.1.lock(&pin).with_mut(|count| {
                // SAFETY: the model checker verifies that nobody else is in here.
                unsafe { *count += 1 }
            });
        };
        let other = {
            let shared = shared.clone();
            thread::spawn(move || work(&shared, 1))
        };
        work(&shared, 0);
        other.join().unwrap();
        let pin = pin(&shared.0, 0);
        let count = shared.1.try_lock(&pin).unwrap().with(|count| {
            // SAFETY: as above.
            unsafe { *count }
        });
        assert_eq!(count, 2);
    });
}

/// A lock that its holder takes twice, and two values that it guards.
struct Nested {
    epochs: Epochs,
    lock: NestedLock,
    guarded: UnsafeCell<u32>,
}

fn two_with_a_nested_lock(work: fn(&Nested, u16)) {
    let nested = Arc::new(Nested {
        epochs: Epochs::new(2),
        lock: NestedLock::default(),
        guarded: UnsafeCell::new(0),
    });
    let other = {
        let nested = nested.clone();
        thread::spawn(move || work(&nested, 1))
    };
    work(&nested, 0);
    other.join().unwrap();
    assert!(!nested.lock.is_held());
}

impl Nested {
    fn add(&self) {
        self.guarded.with_mut(|guarded| {
            // SAFETY: the model checker verifies that nobody else is in here.
            unsafe { *guarded += 1 }
        });
    }
}

#[test]
fn a_nested_lock_admits_one_cpu_until_it_was_given_up_as_often_as_taken() {
    check(|| {
        two_with_a_nested_lock(|nested, cpu| {
            let pin = pin(&nested.epochs, cpu);
            nested.lock.acquire(&pin);
            assert!(nested.lock.try_acquire(&pin));
            nested.add();
            nested.lock.release();
            nested.add();
            nested.lock.release();
        });
    });
}

#[test]
fn a_nested_lock_is_tried_for_without_harm() {
    check(|| {
        two_with_a_nested_lock(|nested, cpu| {
            let pin = pin(&nested.epochs, cpu);
            if nested.lock.try_acquire(&pin) {
                nested.add();
                nested.lock.release();
            }
        });
    });
}

#[test]
#[should_panic(expected = "Causality violation")]
fn what_is_done_after_a_nested_lock_was_given_up_is_noticed() {
    check(|| {
        two_with_a_nested_lock(|nested, cpu| {
            let pin = pin(&nested.epochs, cpu);
            nested.lock.acquire(&pin);
            nested.add();
            nested.lock.release();
            nested.add();
        });
    });
}
