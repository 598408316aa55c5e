//! Pairs of sides that must not miss each other: each stores, passes a fence,
//! and loads what the other stores. Beside each pair is the same without its
//! fences, which must be seen to fail.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

use super::check;
use crate::frame::{Frame, MappingsCounted, PageFlags};
use crate::platform::CpuId;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{
    ActiveCpus, ActiveSet, CarriedMark, CpuRoom, DirtyMarks, Length, ManyActiveCpus,
};

/// Both sides at once: `here` and `there` return whether each missed the other.
fn never_both<T: Sync + Send + 'static>(
    make: fn() -> T,
    here: fn(&T) -> bool,
    there: fn(&T) -> bool,
) {
    check(move || {
        let shared = Arc::new(make());
        let other = {
            let shared = shared.clone();
            thread::spawn(move || there(&shared))
        };
        let missed = here(&shared);
        assert!(
            !(other.join().unwrap() && missed),
            "neither side saw the other"
        );
    });
}

/// A space's CPUs and an entry of its tables, 1 as long as it is there.
#[derive(Default)]
struct Space {
    few: ActiveCpus,
    /// Those of a machine of more than 64 CPUs.
    many: Option<ManyActiveCpus>,
    cleared: AtomicU64,
}

impl Space {
    fn large() -> Space {
        Space {
            many: Some(ManyActiveCpus::default()),
            ..Space::default()
        }
    }

    fn active_set(&self) -> ActiveSet<'_> {
        ActiveSet::new(&self.few, self.many.as_ref())
    }

    /// Whether the CPU is in the set that is asked for now.
    fn has(&self, cpu: CpuId) -> bool {
        self.active_set()
            .after_change(&mut CpuRoom::new())
            .contains(cpu)
    }
}

/// The CPU enters the space and reads the entry: has it seen the old one?
fn reads_old(space: &Space) -> bool {
    space.active_set().enter(CpuId(1));
    space.cleared.load(Ordering::Acquire) == 0
}

#[test]
fn a_cpu_that_is_not_flushed_has_not_seen_what_was_cleared() {
    for make in [Space::default, Space::large] {
        never_both(make, reads_old, |space| {
            space.cleared.store(1, Ordering::Relaxed);
            !space.has(CpuId(1))
        });
    }
}

#[test]
#[should_panic(expected = "neither side saw the other")]
fn a_flush_that_asks_without_a_fence_is_noticed() {
    // The answer of a set that was asked before the change.
    never_both(Space::default, reads_old, |space| {
        let was_there = space.has(CpuId(1));
        space.cleared.store(1, Ordering::Relaxed);
        !was_there
    });
}

/// A page of an object, mapped by nobody, and what is in it.
struct Page {
    frame: Frame,
    content: UnsafeCell<u32>,
}

fn page() -> Page {
    let page = Page {
        frame: Frame::default(),
        content: UnsafeCell::new(1),
    };
    page.frame.init_counts(2, 0);
    page
}

/// A fault counts its mapping and uses the page, unless it is locked.
fn map(page: &Page, look: fn()) {
    page.frame.adopt_mapping();
    look();
    if !page.frame.page().has(PageFlags::LOCKED) {
        page.content.with(|_| ());
    }
}

/// A truncation locks the page and takes it away, unless it is mapped.
fn take_out(page: &Page, maps: fn(&Frame) -> u32) {
    page.frame.page().set(PageFlags::LOCKED);
    if maps(&page.frame) == 0 {
        page.content.with_mut(|_| ());
    }
}

fn map_and_take_out(look: fn(), maps: fn(&Frame) -> u32) {
    check(move || {
        let shared = Arc::new(page());
        let other = {
            let shared = shared.clone();
            thread::spawn(move || map(&shared, look))
        };
        take_out(&shared, maps);
        other.join().unwrap();
    });
}

#[test]
fn a_page_that_is_taken_out_is_not_mapped() {
    map_and_take_out(
        || {
            let _ = MappingsCounted::now();
        },
        Frame::maps_after_lock,
    );
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_fault_that_looks_without_a_fence_is_noticed() {
    map_and_take_out(|| (), Frame::maps_after_lock);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_truncation_that_looks_without_a_fence_is_noticed() {
    map_and_take_out(
        || {
            let _ = MappingsCounted::now();
        },
        |frame| frame.counts().maps(),
    );
}

/// An object's length, and a page put into its cache.
struct Object {
    length: Length,
    cached: AtomicU64,
}

fn object() -> Object {
    let object = Object {
        length: Length::default(),
        cached: AtomicU64::new(0),
    };
    object.length.begin(1);
    object
}

/// A fault puts the page at index 0 into the cache and maps it: does it think
/// the page is below the end?
fn cache_and_map(object: &Object) -> bool {
    object.cached.store(1, Ordering::Release);
    let _ = MappingsCounted::now();
    object.length.get() > 0
}

#[test]
fn a_page_behind_a_new_end_is_found_or_not_mapped() {
    never_both(object, cache_and_map, |object| {
        object
            .length
            .set_then(0, || object.cached.load(Ordering::Acquire) == 0)
    });
}

#[test]
#[should_panic(expected = "neither side saw the other")]
fn a_length_set_after_looking_is_noticed() {
    never_both(object, cache_and_map, |object| {
        let missed = object.cached.load(Ordering::Acquire) == 0;
        object.length.set_then(0, || missed)
    });
}

#[test]
#[should_panic(expected = "neither side saw the other")]
fn a_length_asked_for_without_a_fence_is_noticed() {
    never_both(
        object,
        |object| {
            object.cached.store(1, Ordering::Release);
            object.length.get() > 0
        },
        |object| {
            object
                .length
                .set_then(0, || object.cached.load(Ordering::Acquire) == 0)
        },
    );
}

/// Two mappings go. Before the first does, a visit gives the page another owner;
/// whoever takes the last one away lets that owner go.
fn last_mapping(owner: fn(&Frame) -> u32) {
    check(move || {
        let frame = Arc::new(Frame::default());
        frame.init_counts(2, 2);
        frame.set_owner(1);
        let other = {
            let frame = frame.clone();
            thread::spawn(move || {
                frame.set_owner(2);
                frame.remove_mapping();
            })
        };
        if frame.remove_mapping().maps() == 1 {
            assert_eq!(owner(&frame), 2, "the owner of before is let go");
        }
        other.join().unwrap();
    });
}

#[test]
fn the_last_mapping_leads_to_the_last_owner() {
    last_mapping(Frame::owner_after_last_mapping);
}

#[test]
#[should_panic(expected = "the owner of before is let go")]
fn an_owner_read_without_a_fence_is_noticed() {
    last_mapping(Frame::owner);
}

/// A region, and what a lookup finds of its space: 1 while the region is being cut.
#[derive(Default)]
struct Region {
    lost: CarriedMark,
    cut: AtomicU64,
}

/// Reclaim marks the region that it found: does it find the same once more?
fn marks(region: &Region) -> bool {
    let look = || region.cut.load(Ordering::Acquire) == 0;
    region.lost.mark_then(look)
}

/// A cut asks by `get` if its second part has to be marked, too: does it leave that out?
fn cuts(region: &Region, get: fn(&CarriedMark) -> bool) -> bool {
    region.cut.store(1, Ordering::Relaxed);
    !get(&region.lost)
}

#[test]
fn a_mark_is_carried_over_or_the_change_is_found() {
    never_both(Region::default, marks, |region| {
        cuts(region, CarriedMark::get_after_change)
    });
}

#[test]
#[should_panic(expected = "neither side saw the other")]
fn a_mark_that_is_asked_for_without_a_fence_is_noticed() {
    never_both(Region::default, marks, |region| {
        cuts(region, CarriedMark::get)
    });
}

#[test]
#[should_panic(expected = "neither side saw the other")]
fn a_look_without_a_fence_is_noticed() {
    let marks = |region: &Region| {
        region.lost.set();
        region.cut.load(Ordering::Acquire) == 0
    };
    never_both(Region::default, marks, |region| {
        cuts(region, CarriedMark::get_after_change)
    });
}

/// A word of a page of a file, and the page's mark.
#[derive(Default)]
struct Written {
    word: AtomicU64,
    mark: DirtyMarks,
}

/// A write finds the page marked, and a write-back takes the mark: at the end the page is
/// marked, or the store has the word.
fn write_and_copy(write: fn(&Written), copy: fn(&Written) -> u64) {
    check(move || {
        let shared = Arc::new(Written::default());
        shared.mark.mark_after_change(1);
        let other = {
            let shared = shared.clone();
            thread::spawn(move || write(&shared))
        };
        let copied = copy(&shared);
        other.join().unwrap();
        assert!(
            shared.mark.get(1) == 1 || copied == 1,
            "neither side saw the other"
        );
    });
}

fn write(page: &Written) {
    page.word.store(1, Ordering::Relaxed);
    page.mark.mark_after_change(1);
}

fn copy(page: &Written) -> u64 {
    page.mark.take_before_copy(1);
    page.word.load(Ordering::Relaxed)
}

#[test]
fn what_is_written_is_copied_or_stays_marked() {
    write_and_copy(write, copy);
}

#[test]
#[should_panic(expected = "neither side saw the other")]
fn a_mark_that_is_set_before_the_change_is_noticed() {
    write_and_copy(
        |page| {
            page.mark.mark_after_change(1);
            page.word.store(1, Ordering::Relaxed);
        },
        copy,
    );
}

#[test]
#[should_panic(expected = "neither side saw the other")]
fn a_mark_that_is_taken_after_the_copy_is_noticed() {
    write_and_copy(write, |page| {
        let copied = page.word.load(Ordering::Relaxed);
        page.mark.take_before_copy(1);
        copied
    });
}
