//! Reads of objects beside truncations, and errors of writing back.

use loom::sync::Arc;
use loom::thread;

use super::check;
use crate::errors::{Told, WriteErrors};
use crate::sync::CutCount;
use crate::sync::atomic::{AtomicU64, Ordering};

/// An object of one page: its length, the slot of the page in the tree (0: none), and
/// the count of its cuts.
struct Object {
    cuts: CutCount,
    size: AtomicU64,
    slot: AtomicU64,
}

impl Object {
    /// Cuts the page off, and writes another.
    fn rewrite(&self) {
        {
            let _cut = self.cuts.cut();
            self.size.store(0, Ordering::Release);
            self.slot.store(0, Ordering::Release);
        }
        self.slot.store(2, Ordering::Release);
        self.size.store(1, Ordering::Release);
    }

    /// What is below the end, if the read counts. 0 is a hole.
    fn read(&self, counts: fn(&CutCount, u32) -> bool) -> Option<u64> {
        let begun = self.cuts.begin()?;
        let size = self.size.load(Ordering::Acquire);
        let page = self.slot.load(Ordering::Acquire);
        (counts(&self.cuts, begun) && size > 0).then_some(page)
    }
}

fn read_beside_rewrite(counts: fn(&CutCount, u32) -> bool) {
    check(move || {
        let object = Arc::new(Object {
            cuts: CutCount::default(),
            size: AtomicU64::new(1),
            slot: AtomicU64::new(1),
        });
        let other = {
            let object = object.clone();
            thread::spawn(move || object.rewrite())
        };
        let first = object.read(counts);
        let second = object.read(counts);
        assert!(first != Some(0) && second != Some(0), "a hole was read");
        if let (Some(first), Some(second)) = (first, second) {
            assert!(first <= second, "an older page was read");
        }
        other.join().unwrap();
    });
}

#[test]
fn a_read_sees_no_hole_where_there_was_none() {
    read_beside_rewrite(CutCount::valid);
}

#[test]
#[should_panic(expected = "a hole was read")]
fn a_read_that_does_not_look_for_cuts_is_noticed() {
    read_beside_rewrite(|_, _| true);
}

/// An error beside two who have the file open: each is told once, in the end.
#[test]
fn everybody_is_told_of_an_error_once() {
    check(|| {
        let errors = Arc::new(WriteErrors::default());
        let here = errors.begin();
        let other = {
            let errors = errors.clone();
            thread::spawn(move || {
                let told = errors.begin();
                errors.record();
                assert!(errors.tell(&told), "not told of its own");
                assert!(!errors.tell(&told), "told twice");
            })
        };
        let before = errors.tell(&here);
        other.join().unwrap();
        assert_eq!(errors.tell(&here), !before, "told twice, or not at all");
    });
}

/// Two threads ask for one open file.
fn asked_by_two(tell: fn(&WriteErrors, &Told) -> bool) {
    check(move || {
        let errors = Arc::new(WriteErrors::default());
        let told = Arc::new(errors.begin());
        errors.record();
        let other = {
            let (errors, told) = (errors.clone(), told.clone());
            thread::spawn(move || tell(&errors, &told))
        };
        let here = tell(&errors, &told);
        let there = other.join().unwrap();
        assert!(here != there, "told twice, or not at all");
    });
}

#[test]
fn one_of_two_who_share_an_open_file_is_told() {
    asked_by_two(WriteErrors::tell);
}

#[test]
#[should_panic(expected = "told twice")]
fn an_open_file_that_each_asks_for_itself_is_noticed() {
    asked_by_two(|errors, _| errors.tell(&Told::default()));
}
