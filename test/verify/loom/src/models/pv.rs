//! pv entries (`rmap=pv`): locks of one byte, generations of lists, delayed invalidation.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

use super::{check, pin};
use crate::byte::{Bucket, ByteLock};
use crate::delayed::Delayed;
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::sync::{Epochs, Pin, SpinLock};

/// Runs `other` on CPU 1 beside `this` on CPU 0.
fn beside<T: 'static>(shared: T, other: fn(&T), this: fn(&T)) {
    let shared = Arc::new(shared);
    let thread = {
        let shared = shared.clone();
        thread::spawn(move || other(&shared))
    };
    this(&shared);
    thread.join().unwrap();
}

struct Bytes {
    epochs: Epochs,
    bucket: Bucket,
    locks: [ByteLock; 2],
    guarded: [UnsafeCell<u32>; 2],
}

impl Bytes {
    fn new() -> Bytes {
        Bytes {
            epochs: Epochs::new(3),
            bucket: Bucket::default(),
            locks: Default::default(),
            guarded: Default::default(),
        }
    }

    /// Changes what lock `which` guards; returns whether a wake was in vain.
    fn change(&self, cpu: u16, which: usize) -> bool {
        let pin = pin(&self.epochs, cpu);
        let waited = self.locks[which].acquire(&self.bucket, &pin);
        self.guarded[which].with_mut(|guarded| {
            // SAFETY: the model checker verifies that nobody else is in here.
            unsafe { *guarded += 1 }
        });
        self.locks[which].release(&self.bucket, &pin);
        waited.in_vain > 0
    }
}

#[test]
fn a_byte_lock_admits_one_and_nobody_waits_for_ever() {
    check(|| {
        beside(
            Bytes::new(),
            |bytes| {
                bytes.change(1, 0);
            },
            |bytes| {
                bytes.change(0, 0);
            },
        );
    });
}

/// Waiters of both locks share a bucket.
#[test]
fn a_byte_lock_beside_its_neighbour_admits_one() {
    check(|| {
        beside(
            Bytes::new(),
            |bytes| {
                bytes.change(1, 1);
                bytes.change(1, 0);
            },
            |bytes| {
                bytes.change(0, 0);
                bytes.change(0, 1);
            },
        );
    });
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_byte_lock_of_the_neighbour_is_no_lock() {
    check(|| {
        beside(
            Bytes::new(),
            |bytes| {
                bytes.change(1, 0);
            },
            |bytes| {
                let pin = pin(&bytes.epochs, 0);
                bytes.locks[1].acquire(&bytes.bucket, &pin);
                bytes.guarded[0].with_mut(|guarded| {
                    // SAFETY: none: the model checker is to notice.
                    unsafe { *guarded += 1 }
                });
                bytes.locks[1].release(&bytes.bucket, &pin);
            },
        );
    });
}

impl Bytes {
    /// Reads what lock 0 guards, beside others.
    fn read(&self, cpu: u16) {
        let pin = pin(&self.epochs, cpu);
        self.locks[0].acquire_shared(&self.bucket, &pin);
        self.guarded[0].with(|guarded| {
            // SAFETY: the model checker verifies that nobody changes it meanwhile.
            unsafe { *guarded }
        });
        self.locks[0].release_shared(&self.bucket, &pin);
    }

    /// Adds to what lock 0 guards as somebody who only reads at first; `alone` makes sure
    /// that nobody else does.
    fn read_and_add(&self, cpu: u16, alone: fn(&Bytes, &Pin<'_>)) {
        let pin = pin(&self.epochs, cpu);
        self.locks[0].acquire_shared(&self.bucket, &pin);
        alone(self, &pin);
        self.guarded[0].with_mut(|guarded| {
            // SAFETY: the model checker verifies that nobody else is in here.
            unsafe { *guarded += 1 }
        });
        self.locks[0].share(&self.bucket);
        self.locks[0].release_shared(&self.bucket, &pin);
    }

    /// As a visit does that takes an entry out of a list.
    fn keep_others_out(&self, pin: &Pin<'_>) {
        if !self.locks[0].try_upgrade() {
            self.locks[0].release_shared(&self.bucket, pin);
            self.locks[0].acquire(&self.bucket, pin);
        }
    }
}

#[test]
fn readers_of_a_byte_lock_see_nothing_half_changed_and_keep_nobody_out_for_ever() {
    check(|| {
        beside(
            Bytes::new(),
            |bytes| {
                bytes.read(1);
                bytes.read(1);
            },
            |bytes| {
                bytes.change(0, 0);
                bytes.read(0);
            },
        );
    });
}

#[test]
fn two_readers_of_a_byte_lock_that_want_to_change_something_do_so_in_turn() {
    check(|| {
        let bytes = Bytes::new();
        beside(
            bytes,
            |bytes| bytes.read_and_add(1, Bytes::keep_others_out),
            |bytes| bytes.read_and_add(0, Bytes::keep_others_out),
        );
    });
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_reader_of_a_byte_lock_that_changes_something_beside_others_is_noticed() {
    check(|| {
        beside(
            Bytes::new(),
            |bytes| bytes.read(1),
            |bytes| {
                let pin = pin(&bytes.epochs, 0);
                bytes.locks[0].acquire_shared(&bytes.bucket, &pin);
                bytes.guarded[0].with_mut(|guarded| {
                    // SAFETY: none: the model checker is to notice.
                    unsafe { *guarded += 1 }
                });
                bytes.locks[0].release_shared(&bytes.bucket, &pin);
            },
        );
    });
}

/// The model counts two readers at the most.
#[test]
fn a_reader_more_than_are_counted_waits_for_the_first_that_goes() {
    check(|| {
        beside(
            Bytes::new(),
            |bytes| bytes.read(1),
            |bytes| {
                let (one, other) = (pin(&bytes.epochs, 0), pin(&bytes.epochs, 2));
                bytes.locks[0].acquire_shared(&bytes.bucket, &one);
                bytes.locks[0].acquire_shared(&bytes.bucket, &other);
                bytes.locks[0].release_shared(&bytes.bucket, &one);
                bytes.locks[0].release_shared(&bytes.bucket, &other);
            },
        );
    });
}

/// A list of one entry, which leads to a table. Whoever clears the entry has the table
/// first and the list second; a visit the other way round.
struct Listed {
    epochs: Epochs,
    bucket: Bucket,
    lock: ByteLock,
    generation: AtomicU32,
    listed: AtomicU32,
    /// Whether the entry is in the table.
    table: SpinLock<UnsafeCell<bool>>,
}

impl Listed {
    fn new() -> Listed {
        Listed {
            epochs: Epochs::new(2),
            bucket: Bucket::default(),
            lock: ByteLock::default(),
            generation: AtomicU32::new(0),
            listed: AtomicU32::new(1),
            table: SpinLock::new(UnsafeCell::new(true)),
        }
    }

    fn clear(&self) {
        let pin = pin(&self.epochs, 1);
        let table = self.table.lock(&pin);
        table.with_mut(|there| {
            // SAFETY: the table is locked.
            unsafe { *there = false }
        });
        self.lock.acquire(&self.bucket, &pin);
        self.listed.store(0, Ordering::Relaxed);
        let next = self.generation.load(Ordering::Relaxed) + 1;
        self.generation.store(next, Ordering::Relaxed);
        self.lock.release(&self.bucket, &pin);
    }

    /// Visits the entry, and finds it where its list says that it is.
    fn visit(&self, looks_again: bool) {
        let pin = pin(&self.epochs, 0);
        loop {
            self.lock.acquire(&self.bucket, &pin);
            if self.listed.load(Ordering::Relaxed) == 0 {
                break self.lock.release(&self.bucket, &pin);
            }
            let table = match self.table.try_lock(&pin) {
                Some(table) => table,
                None => {
                    let generation = self.generation.load(Ordering::Relaxed);
                    self.lock.release(&self.bucket, &pin);
                    let table = self.table.lock(&pin);
                    self.lock.acquire(&self.bucket, &pin);
                    let now = self.generation.load(Ordering::Relaxed);
                    if looks_again && now != generation {
                        self.lock.release(&self.bucket, &pin);
                        continue;
                    }
                    table
                }
            };
            let there = table.with(|there| {
                // SAFETY: the table is locked.
                unsafe { *there }
            });
            assert!(there, "the list has an entry that the table has not");
            break self.lock.release(&self.bucket, &pin);
        }
    }
}

#[test]
fn a_visit_that_waited_for_a_table_starts_over_if_the_list_changed() {
    check(|| beside(Listed::new(), Listed::clear, |listed| listed.visit(true)));
}

#[test]
#[should_panic(expected = "the list has an entry that the table has not")]
fn a_visit_that_does_not_look_at_the_generation_is_noticed() {
    check(|| beside(Listed::new(), Listed::clear, |listed| listed.visit(false)));
}

/// A page with an entry, and what a CPU has of it in its TLB.
struct Flushed {
    epochs: Epochs,
    delayed: Delayed,
    /// Whether the entry is listed, and the stamp of its page.
    page: SpinLock<UnsafeCell<(bool, u64)>>,
    translated: AtomicU64,
}

impl Flushed {
    fn new(locked: bool) -> Flushed {
        Flushed {
            epochs: Epochs::new(3),
            delayed: Delayed::new(3, locked),
            page: SpinLock::new(UnsafeCell::new((true, 0))),
            translated: AtomicU64::new(1),
        }
    }

    fn clear(&self) {
        let pin = pin(&self.epochs, 1);
        self.delayed.begin(&pin);
        let page = self.page.lock(&pin);
        page.with_mut(|page| {
            // SAFETY: the page is locked.
            unsafe { *page = (false, self.delayed.generation(pin.cpu())) }
        });
        drop(page);
        self.translated.store(0, Ordering::Relaxed);
        self.delayed.end(&pin);
    }

    /// Finds no entry, and then nobody that uses the page.
    fn visit(&self, waits: bool) {
        let pin = pin(&self.epochs, 0);
        let page = self.page.lock(&pin);
        let (listed, stamp) = page.with(|page| {
            // SAFETY: the page is locked.
            unsafe { *page }
        });
        drop(page);
        if listed {
            return;
        }
        if waits {
            self.delayed.wait(stamp, &pin);
        }
        assert_eq!(
            self.translated.load(Ordering::Relaxed),
            0,
            "a page without entries is in use"
        );
    }

    /// Clears something else.
    fn work(&self) {
        let pin = pin(&self.epochs, 0);
        self.delayed.begin(&pin);
        self.delayed.end(&pin);
    }
}

#[test]
fn a_visit_waits_for_flushes_under_the_lock() {
    check(|| beside(Flushed::new(true), Flushed::clear, |page| page.visit(true)));
}

#[test]
fn a_visit_waits_for_flushes_without_a_lock() {
    check(|| beside(Flushed::new(false), Flushed::clear, |page| page.visit(true)));
}

#[test]
fn generations_pass_in_whatever_order_operations_end() {
    for locked in [true, false] {
        check(move || {
            let new = if locked {
                || Flushed::new(true)
            } else {
                || Flushed::new(false)
            };
            beside(new(), Flushed::clear, |page| {
                page.work();
                page.visit(true);
            });
        });
    }
}

#[test]
#[should_panic(expected = "a page without entries is in use")]
fn a_visit_that_does_not_wait_is_noticed() {
    check(|| {
        beside(Flushed::new(false), Flushed::clear, |page| {
            page.visit(false)
        })
    });
}
