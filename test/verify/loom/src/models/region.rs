//! Region lookup: found by sequence count, entered by announcement, changed
//! only when nobody is inside.

use std::sync::atomic::{AtomicU32 as Tally, Ordering::SeqCst};

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

use super::{Host, check, pin};
use crate::platform::CpuId;
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use crate::sync::{ActiveCpus, ActiveSet, Announcements, Epochs, Pin, RegionGate, SeqCount};

const KEY: u64 = 7;

/// A region of two words that belong together, and what its readers use.
struct Model {
    epochs: Epochs,
    active: ActiveCpus,
    announcements: Announcements,
    gate: RegionGate,
    /// What the gate was when the reader that announces ahead was last inside.
    opened: u32,
    seq: SeqCount,
    start: AtomicU64,
    end: AtomicU64,
    entries: UnsafeCell<u64>,
    /// What readers found inside: the words before the change, and after it.
    found: [Tally; 2],
}

impl Model {
    fn new() -> Arc<Self> {
        let mut model = Model {
            epochs: Epochs::new(2),
            active: ActiveCpus::default(),
            announcements: Announcements::new(2),
            gate: RegionGate::default(),
            opened: 0,
            seq: SeqCount::default(),
            start: AtomicU64::new(1),
            end: AtomicU64::new(1),
            entries: UnsafeCell::new(1),
            found: Default::default(),
        };
        model.gate.open();
        model.opened = model.gate.opened();
        Arc::new(model)
    }

    /// The region has begun with the CPU that is likely to be its first.
    fn begun_for(cpu: u16) -> Arc<Self> {
        let mut model = Self::new();
        let begun = Arc::get_mut(&mut model).unwrap();
        begun.gate.close();
        begun.gate.begin(CpuId(cpu));
        begun.gate.open();
        begun.opened = begun.gate.opened();
        model
    }

    fn active_set(&self) -> ActiveSet<'_> {
        ActiveSet::new(&self.active, None)
    }

    /// Looks the region up, unless a change is under way.
    fn find(&self) -> Option<u64> {
        let begun = self.seq.begin()?;
        let start = self.start.load(Ordering::Relaxed);
        let end = self.end.load(Ordering::Relaxed);
        if !self.seq.valid(begun) {
            return None;
        }
        assert_eq!(start, end, "half of a change was seen");
        Some(start)
    }

    /// What a reader does inside.
    fn work(&self) {
        let start = self.start.load(Ordering::Relaxed);
        let entries = self.entries.with(|entries| {
            // SAFETY: the model checker verifies that nobody writes.
            unsafe { *entries }
        });
        let end = self.end.load(Ordering::Relaxed);
        assert_eq!((start, end), (entries, entries), "changed under a reader");
        self.found[entries as usize - 1].fetch_add(1, SeqCst);
    }

    fn read(&self, cpu: u16) {
        let pin = pin(&self.epochs, cpu);
        self.active_set().enter(CpuId(cpu));
        if self.find().is_some()
            && let Some(_access) = self.announcements.enter(&self.gate, KEY, &pin)
        {
            self.work();
        }
    }

    /// As [`Model::read`], with the region announced together with the epoch,
    /// before it is looked up.
    fn read_expected(&self, cpu: u16) {
        let mut expected = None;
        let announce = || expected = Some(self.announcements.expect(CpuId(cpu), KEY));
        // SAFETY: each thread of a model has a number of its own.
        let pin = unsafe { self.epochs.enter_with(&Host, CpuId(cpu), announce) };
        self.active_set().enter(CpuId(cpu));
        if self.find().is_some()
            && let Some(expected) = expected
        {
            let entered = expected.enter((&self.gate, self.opened), KEY, &pin);
            let enter = || self.announcements.enter(&self.gate, KEY, &pin);
            if let Some(_access) = entered.or_else(enter) {
                self.work();
            }
        }
    }

    fn wait_out(&self, pin: &Pin<'_>, concerns: fn(u64) -> bool) {
        self.announcements
            .wait_out(self.active_set(), pin, concerns);
    }

    /// The change, by a writer that has kept readers out.
    fn change(&self, pin: &Pin<'_>) {
        let change = self.seq.write(pin);
        self.start.store(2, Ordering::Relaxed);
        self.entries.with_mut(|entries| {
            // SAFETY: the model checker verifies that nobody reads.
            unsafe { *entries = 2 }
        });
        self.end.store(2, Ordering::Relaxed);
        drop(change);
    }

    fn write(&self, cpu: u16, wait: bool) {
        let pin = pin(&self.epochs, cpu);
        self.gate.close();
        if wait {
            self.wait_out(&pin, |key| key == KEY);
        }
        self.change(&pin);
        self.gate.open();
    }

    /// The same by a writer that looks only where the gate says that there may be readers.
    fn write_one(&self, cpu: u16) {
        let pin = pin(&self.epochs, cpu);
        self.gate.close();
        self.announcements
            .wait_out_one(&self.gate, KEY, self.active_set(), &pin);
        self.change(&pin);
        self.gate.open();
    }
}

/// Runs both at once; some reader must have been inside before the change, and
/// some after it.
fn reader_and_writer(reader: fn(&Model), writer: fn(&Model)) {
    let found = std::sync::Arc::new([Tally::new(0), Tally::new(0)]);
    let sum = found.clone();
    check(move || {
        let model = Model::new();
        let thread = {
            let model = model.clone();
            thread::spawn(move || reader(&model))
        };
        writer(&model);
        thread.join().unwrap();
        for (sum, found) in sum.iter().zip(&model.found) {
            sum.fetch_add(found.load(SeqCst), SeqCst);
        }
    });
    assert!(
        found.iter().all(|found| found.load(SeqCst) > 0),
        "a state was never seen"
    );
}

#[test]
fn a_reader_inside_sees_no_change() {
    reader_and_writer(|model| model.read(1), |model| model.write(0, true));
}

#[test]
fn a_reader_finds_a_change_that_is_complete() {
    reader_and_writer(
        |model| {
            model.read(1);
            model.read(1);
        },
        |model| model.write(0, true),
    );
}

#[test]
fn a_reader_that_announced_ahead_sees_no_change() {
    reader_and_writer(|model| model.read_expected(1), |model| model.write(0, true));
}

/// The first to enter was expected, or somebody else was.
#[test]
fn a_writer_finds_the_only_reader_and_one_that_nobody_expected() {
    fn run(cpu: u16, reader: fn(&Model)) {
        let found = std::sync::Arc::new([Tally::new(0), Tally::new(0)]);
        let sum = found.clone();
        check(move || {
            let model = Model::begun_for(cpu);
            let thread = {
                let model = model.clone();
                thread::spawn(move || reader(&model))
            };
            model.write_one(0);
            thread.join().unwrap();
            for (sum, found) in sum.iter().zip(&model.found) {
                sum.fetch_add(found.load(SeqCst), SeqCst);
            }
        });
        let seen = found.each_ref().map(|found| found.load(SeqCst) > 0);
        assert_eq!(seen, [true; 2], "a state was never seen");
    }
    for cpu in [0, 1] {
        run(cpu, |model| model.read(1));
    }
    run(1, |model| model.read_expected(1));
}

/// Whoever was inside before the region changed, or became another, has to look it up.
#[test]
fn what_has_changed_is_not_entered_by_an_announcement() {
    check(|| {
        let model = Model::new();
        let mut expected = None;
        let announce = || expected = Some(model.announcements.expect(CpuId(1), KEY));
        // SAFETY: there is one thread.
        let pin = unsafe { model.epochs.enter_with(&Host, CpuId(1), announce) };
        model.gate.close();
        model.gate.begin(CpuId(0));
        model.gate.open();
        let gate = (&model.gate, model.opened);
        assert!(expected.unwrap().enter(gate, KEY, &pin).is_none());
    });
}

/// A reader that has left goes on to another region while the writer looks: what it
/// did in the first is done.
#[test]
fn a_reader_that_is_in_another_region_by_now_has_left() {
    check(|| {
        let model = Model::new();
        let reader = {
            let model = model.clone();
            thread::spawn(move || {
                let other = RegionGate::default();
                other.open();
                model.read(1);
                let pin = pin(&model.epochs, 1);
                let access = model.announcements.enter(&other, KEY + 1, &pin);
                assert!(access.is_some());
            })
        };
        model.write(0, true);
        reader.join().unwrap();
    });
}

/// The same within one pin, which has no fence between the two regions.
#[test]
fn a_reader_that_goes_on_to_another_region_in_its_pin_has_left() {
    check(|| {
        let model = Model::new();
        let reader = {
            let model = model.clone();
            thread::spawn(move || {
                let other = RegionGate::default();
                other.open();
                let pin = pin(&model.epochs, 1);
                model.active_set().enter(CpuId(1));
                if let Some(access) = model.announcements.enter(&model.gate, KEY, &pin) {
                    model.work();
                    drop(access);
                }
                let access = model.announcements.enter(&other, KEY + 1, &pin);
                assert!(access.is_some());
            })
        };
        model.write(0, true);
        reader.join().unwrap();
    });
}

/// The same with the other region announced ahead of the next pin's fence.
#[test]
fn a_reader_that_announces_another_region_ahead_has_left() {
    check(|| {
        let model = Model::new();
        let reader = {
            let model = model.clone();
            thread::spawn(move || {
                model.read(1);
                let announce = || drop(model.announcements.expect(CpuId(1), KEY + 1));
                // SAFETY: each thread of a model has a number of its own.
                drop(unsafe { model.epochs.enter_with(&Host, CpuId(1), announce) });
            })
        };
        model.write(0, true);
        reader.join().unwrap();
    });
}

#[test]
fn an_announcement_made_in_vain_ends() {
    check(|| {
        let model = Model::new();
        let mut expected = None;
        let announce = || expected = Some(model.announcements.expect(CpuId(1), KEY + 1));
        // SAFETY: there is one thread.
        let pin = unsafe { model.epochs.enter_with(&Host, CpuId(1), announce) };
        model.active_set().enter(CpuId(1));
        let expected = expected.unwrap();
        let gate = (&model.gate, model.opened);
        assert!(expected.enter(gate, KEY, &pin).is_none());
        // Would not return if it still stood.
        model.gate.close();
        model.wait_out(&pin, |_| true);
    });
}

#[test]
fn readers_of_other_regions_are_not_waited_for() {
    check(|| {
        let model = Model::new();
        let inside = pin(&model.epochs, 1);
        model.active_set().enter(CpuId(1));
        let other = RegionGate::default();
        other.open();
        let access = model.announcements.enter(&other, KEY + 1, &inside);
        assert!(access.is_some());
        // Would not return if it waited.
        model.write(0, true);
        drop(access);
    });
}

#[test]
fn a_closed_region_refuses_and_leaves_nothing_announced() {
    check(|| {
        let model = Model::new();
        let reader = pin(&model.epochs, 1);
        model.active_set().enter(CpuId(1));
        model.gate.close();
        assert!(
            model
                .announcements
                .enter(&model.gate, KEY, &reader)
                .is_none()
        );
        model.wait_out(&reader, |key| key == KEY);
    });
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_writer_that_does_not_wait_is_noticed() {
    reader_and_writer(|model| model.read(1), |model| model.write(0, false));
}

#[test]
#[should_panic(expected = "half of a change was seen")]
fn a_lookup_without_validation_is_noticed() {
    reader_and_writer(
        |model| {
            let start = model.start.load(Ordering::Relaxed);
            let end = model.end.load(Ordering::Relaxed);
            assert_eq!(start, end, "half of a change was seen");
        },
        |model| model.write(0, true),
    );
}

/// What the second owner of a slot does before its first store to it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fence {
    /// A change of its own count begins, as with a region.
    OfItsCount,
    /// What is for slots without a count of their own, as objects are.
    BeforeReuse,
    Nothing,
}

/// A reader that is not pinned, of a slot that leaves its owner and is used by
/// another one: what is found valid was the first owner's. The second owner
/// writes the slot after a fence, or without one.
fn slot_used_anew(fence: Fence) {
    let shared = Arc::new((
        SeqCount::default(),
        SeqCount::default(),
        AtomicU64::new(1),
        AtomicU32::new(0),
        Epochs::new(2),
    ));
    let first = {
        let shared = shared.clone();
        thread::spawn(move || {
            let (first, _, _, free, epochs) = &*shared;
            drop(first.write(&pin(epochs, 0)));
            free.store(1, Ordering::Release);
        })
    };
    let second = {
        let shared = shared.clone();
        thread::spawn(move || {
            let (_, second, slot, free, epochs) = &*shared;
            let pin = pin(epochs, 1);
            if free.load(Ordering::Acquire) == 1 {
                let change = (fence == Fence::OfItsCount).then(|| second.write(&pin));
                if fence == Fence::BeforeReuse {
                    SeqCount::before_reuse();
                }
                slot.store(2, Ordering::Relaxed);
                drop(change);
            }
        })
    };
    let (count, _, slot, ..) = &*shared;
    if let Some(begun) = count.begin() {
        let found = slot.load(Ordering::Relaxed);
        if begun == 0 && count.valid(begun) {
            assert_eq!(found, 1, "the other owner's was taken for ours");
        }
    }
    first.join().unwrap();
    second.join().unwrap();
}

#[test]
fn a_slot_that_was_used_anew_is_not_taken_for_what_it_was() {
    check(|| slot_used_anew(Fence::OfItsCount));
    check(|| slot_used_anew(Fence::BeforeReuse));
}

#[test]
#[should_panic(expected = "the other owner's was taken for ours")]
fn a_slot_used_anew_without_a_fence_is_noticed() {
    check(|| slot_used_anew(Fence::Nothing));
}

/// Announcement and gate alone, with and without the fences between each
/// side's store and its load.
fn gate(fenced: bool) {
    let shared = Arc::new((AtomicU64::new(0), AtomicU32::new(0), UnsafeCell::new(0u32)));
    let reader = {
        let shared = shared.clone();
        thread::spawn(move || {
            let (slot, closed, content) = &*shared;
            slot.store(KEY, Ordering::Relaxed);
            if fenced {
                fence(Ordering::SeqCst);
            }
            if closed.load(Ordering::Acquire) == 0 {
                content.with(|_| ());
            }
            slot.store(0, Ordering::Release);
        })
    };
    let (slot, closed, content) = &*shared;
    closed.store(1, Ordering::Relaxed);
    if fenced {
        fence(Ordering::SeqCst);
    }
    if slot.load(Ordering::Acquire) == 0 {
        content.with_mut(|_| ());
    }
    reader.join().unwrap();
}

#[test]
fn fences_let_one_side_see_the_other() {
    check(|| gate(true));
}

#[test]
#[should_panic(expected = "Causality violation")]
fn without_fences_neither_side_sees_the_other() {
    check(|| gate(false));
}
