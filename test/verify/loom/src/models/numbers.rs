//! Numbers for chunks of an arena that several CPUs take at once, each of which must have its leaf
//! of the directory.

use loom::sync::Arc;
use loom::thread;

use super::check;
use crate::numbers::{Numbers, Taken};
use crate::sync::atomic::{AtomicBool, Ordering};

/// Numbers that are taken in a model.
const TAKEN: usize = 4;

/// Numbers for CPUs, and which of them have a leaf, one for each.
struct World {
    numbers: Numbers,
    leaves: [AtomicBool; TAKEN + 3],
}

impl World {
    fn take(&self, of: &Taken) -> Option<u32> {
        let taken = self.numbers.take(of, |from, to| {
            if !self.has_leaf(to) {
                for number in from..=to {
                    self.leaves[number as usize].store(true, Ordering::Release);
                }
            }
            Ok::<_, ()>(())
        });
        let number = taken.expect("room for leaves")?;
        assert!(self.has_leaf(number), "a number without a leaf");
        Some(number)
    }

    fn has_leaf(&self, number: u32) -> bool {
        self.leaves[number as usize].load(Ordering::Acquire)
    }
}

/// Two CPUs that take two numbers each, of a directory that sees to leaves for `cpus`.
fn each_has_a_leaf(cpus: usize) {
    check(move || {
        let world = Arc::new(World {
            numbers: Numbers::new(TAKEN as u32 + 1, u32::MAX, cpus),
            leaves: Default::default(),
        });
        let other = {
            let world = world.clone();
            thread::spawn(move || {
                let of = Taken::default();
                [world.take(&of), world.take(&of)]
            })
        };
        let of = Taken::default();
        let here = [world.take(&of), world.take(&of)];
        let mut taken = [here, other.join().unwrap()].concat();
        taken.sort_unstable();
        let all: Vec<_> = (1..=TAKEN as u32).map(Some).collect();
        assert_eq!(taken, all);
        assert_eq!(world.numbers.taken(), TAKEN as u32);
    });
}

#[test]
fn every_number_that_is_taken_has_a_leaf() {
    each_has_a_leaf(2);
}

#[test]
#[should_panic(expected = "a number without a leaf")]
fn leaves_for_the_next_number_alone_are_too_few() {
    each_has_a_leaf(1);
}

#[test]
fn the_last_number_is_taken_once() {
    check(|| {
        let world = Arc::new(World {
            numbers: Numbers::new(1, 1, 2),
            leaves: Default::default(),
        });
        let other = {
            let world = world.clone();
            thread::spawn(move || world.take(&Taken::default()))
        };
        let of = Taken::default();
        let mut taken = [world.take(&of), other.join().unwrap()];
        taken.sort_unstable();
        assert_eq!(taken, [None, Some(1)]);
        assert_eq!(world.take(&of), None);
        assert_eq!(world.numbers.taken(), 1);
    });
}
