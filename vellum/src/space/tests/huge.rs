//! Superpages of shared memory: what calls do to one of which they have all pages or a part,
//! and what becomes of the object's pages.

use super::*;
use crate::addr::Geometry;
use crate::frame::{FailAt, PageFlags, Site};
use crate::rmap::{Family, ReverseMap};
use crate::space::FileRequest;
use crate::swap::SwapArea;

const BASE: u64 = 0x10000;
const PAGES: u64 = 512;
const PAGE: u64 = 4096;

with_each_design! {
    a_part_of_a_range_loses_the_leaf_and_no_page => parts;
    pages_that_leave_the_object_leave_every_mapping => cuts;
    children_and_private_copies_have_single_pages => copies;
    a_page_goes_to_swap_and_the_others_stay => swaps;
    a_locked_leaf_stays_whoever_else_maps_its_pages => locks;
}

/// Shared memory of two superpages and some pages, of which a space maps all.
struct World<R: ReverseMap> {
    vm: TestVm<R>,
    object: ObjectId,
    space: SpaceId,
}

fn world<R: ReverseMap>(design: &str) -> World<R> {
    let vm = vm_with::<R>(&std::format!("huge=always,{design}"), 8192);
    let area = SwapArea::new(77, 100);
    vm.swap_on(area).unwrap();
    let object = vm.memory_pages(2 * PAGES + 9).unwrap();
    let space = vm.begin_space().unwrap();
    let request = MapRequest::object(object, 0, 2 * PAGES + 9, RW).shared();
    map(&vm, space, BASE, request);
    World { vm, object, space }
}

impl<R: ReverseMap> World<R> {
    /// The first pages of the large leaves of the space.
    fn large(&self) -> Vec<u64> {
        large_leaves(&self.vm, self.space)
    }

    fn resident(&self) -> u64 {
        self.vm.space_stats(self.space).unwrap().rss.shared_memory
    }

    fn use_all(&self) {
        for page in [3, PAGES + 100] {
            touch(&self.vm, self.space, BASE + page, Access::Write);
        }
        assert_eq!(self.large(), [BASE, BASE + PAGES]);
        assert_eq!(self.resident(), 2 * PAGES);
        self.vm.audit().unwrap();
    }

    fn byte(&self, page: u64) -> u8 {
        let mut byte = [0];
        let read = self
            .vm
            .page_cache()
            .read_at(self.object, page * PAGE, &mut [&mut byte]);
        assert_eq!(read, Ok(1));
        byte[0]
    }

    fn set_byte(&self, page: u64, byte: u8) {
        let written = self
            .vm
            .page_cache()
            .write_at(self.object, page * PAGE, &[&[byte]]);
        assert_eq!(written, Ok(1));
    }

    /// How many pages of a leaf through which somebody stored, or did not, are dirty when the leaf
    /// has gone.
    fn dirty_after(&self, stores: bool, end: impl FnOnce(&TestVm<R>, SpaceId)) -> u64 {
        let (vm, space) = (&self.vm, self.space);
        touch(vm, space, BASE, Access::Read);
        let (first, _) = vm.translate(space, Vpn(BASE)).unwrap();
        let frames = (0..PAGES as u32).map(|step| vm.memory.frame(first.offset(step)));
        // As if they had been written back.
        frames.clone().for_each(|frame| {
            frame.page().clear(PageFlags::DIRTY);
        });
        if stores {
            touch(vm, space, BASE + 8, Access::Write);
        }
        end(vm, space);
        frames
            .filter(|frame| frame.page().has(PageFlags::DIRTY))
            .count() as u64
    }

    fn end(self) {
        self.vm.audit().unwrap();
        self.vm.exit(self.space).unwrap();
        self.vm.page_cache().release_object(self.object).unwrap();
        let report = self.vm.audit().unwrap();
        assert_eq!(report.frames.of(Kind::Object), 0);
    }
}

/// The locked leaf stays, and so do its pages, when another space or reclaim has pages leave.
fn locks<R: ReverseMap>(design: &str) {
    for options in ["reclaim=on", "reclaim=on,aging=generations"] {
        let world = world::<R>(&std::format!("{options},{design}"));
        world.use_all();
        let vm = &world.vm;
        let other = vm.begin_space().unwrap();
        let request = MapRequest::object(world.object, 0, 2 * PAGES, RW).shared();
        map(vm, other, BASE, request);
        for page in [3, PAGES + 100] {
            touch(vm, other, BASE + page, Access::Read);
        }
        vm.lock_pages(world.space, Vpn(BASE), PAGES).unwrap();
        vm.advise(other, Vpn(BASE), 1, Advice::PageOut).unwrap();
        vm.advise(other, Vpn(BASE + PAGES), 1, Advice::PageOut)
            .unwrap();
        assert_eq!(vm.swap_stats().outs, 1, "{options}");
        assert_eq!(world.large(), [BASE], "{options}");
        for _ in 0..4 {
            vm.reclaim_pages(2 * PAGES);
        }
        assert_eq!(vm.swap_stats().outs, 100, "{options}: the area is full");
        assert_eq!(world.large(), [BASE], "{options}");
        vm.exit(other).unwrap();
        world.end();
    }
}

/// Reclaim takes the leaf of one space, and the other locks its own meanwhile.
#[test]
fn a_leaf_that_is_locked_while_another_is_taken_stays() {
    let World { vm, object, space } = world::<Family>("reclaim=on");
    let vm = Arc::new(vm);
    touch(&vm, space, BASE + 3, Access::Write);
    let other = vm.begin_space().unwrap();
    let request = MapRequest::object(object, 0, PAGES, RW).shared();
    map(&vm, other, BASE, request);
    touch(&vm, other, BASE + 3, Access::Read);
    let _loaded = vm.load(space).unwrap();
    let weak = Arc::downgrade(&vm);
    let taken = Arc::new(Mutex::new(false));
    let seen = taken.clone();
    vm.platform().on_flush(move || {
        let vm = weak.upgrade().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                run_on(1);
                let mut seen = seen.lock().unwrap();
                if !*seen && large_leaves(&vm, space).is_empty() {
                    vm.lock_pages(other, Vpn(BASE), PAGES).unwrap();
                    *seen = true;
                }
            });
        });
    });
    vm.advise(space, Vpn(BASE), 1, Advice::PageOut).unwrap();
    vm.platform().on_flush(|| {});
    assert!(*taken.lock().unwrap());
    assert_eq!(large_leaves(&vm, other), [BASE]);
    vm.audit().unwrap();
}

#[test]
fn the_first_use_makes_and_maps_a_range_whole() {
    let world = world::<Family>("");
    world.use_all();
    let (first, _) = world.vm.translate(world.space, Vpn(BASE)).unwrap();
    assert_eq!(u64::from(first.0) % PAGES, 0);
    for step in 0..PAGES as u32 {
        assert_eq!(world.vm.platform().peek(first.offset(step)), [0; 4096]);
    }
    assert_eq!(world.vm.stats().events.superpage_maps, 2);
    assert!(world.vm.came_in_superpage(world.space, Vpn(BASE + 9)));
    // The end of the object is no superpage.
    touch(&world.vm, world.space, BASE + 2 * PAGES, Access::Write);
    assert_eq!(world.resident(), 2 * PAGES + 1);
    assert!(
        !world
            .vm
            .came_in_superpage(world.space, Vpn(BASE + 2 * PAGES))
    );
    world.end();
}

#[test]
fn objects_say_for_themselves_what_the_design_lets_them() {
    for (design, told, expected) in [
        ("never", Some(true), false),
        ("advise", None, false),
        ("advise", Some(true), true),
        ("always", Some(false), false),
        ("always", None, true),
    ] {
        let vm = vm_with::<Family>(&std::format!("huge={design}"), 8192);
        let object = vm.memory_pages(PAGES).unwrap();
        vm.page_cache().set_huge(object, told).unwrap();
        assert!(!vm.objects.find(object).unwrap().is_file());
        let space = vm.begin_space().unwrap();
        let request = MapRequest::object(object, 0, PAGES, RW).shared();
        map(&vm, space, BASE, request);
        touch(&vm, space, BASE, Access::Read);
        let resident = vm.space_stats(space).unwrap().rss.shared_memory;
        assert_eq!(resident == PAGES, expected, "huge={design}, told {told:?}");
        vm.audit().unwrap();
        vm.page_cache().release_object(object).unwrap();
    }
}

#[test]
fn what_does_not_lie_as_a_superpage_is_mapped_page_by_page() {
    let vm = vm_with::<Family>("huge=always", 8192);
    let object = vm.memory_pages(2 * PAGES).unwrap();
    let space = vm.begin_space().unwrap();
    // Shifted by a page, private, and a part of a range.
    let whole = MapRequest::object(object, 0, 2 * PAGES, RW);
    map(&vm, space, BASE + 1, whole.shared());
    map(&vm, space, BASE + 4 * PAGES, whole);
    let part = MapRequest::object(object, 0, PAGES - 1, RW).shared();
    map(&vm, space, BASE + 8 * PAGES, part);
    for at in [BASE + 1, BASE + 4 * PAGES, BASE + 8 * PAGES] {
        touch(&vm, space, at + 17, Access::Read);
    }
    // A range where a leaf could be, of the end of one superpage and the beginning of another.
    touch(&vm, space, BASE + PAGES + 17, Access::Read);
    assert_eq!(vm.stats().events.superpage_maps, 0);
    vm.audit().unwrap();
}

#[test]
fn pages_that_lie_right_are_mapped_whole_whoever_made_them() {
    let world = world::<Family>("");
    // A write into the middle of a hole makes the range.
    world.set_byte(PAGES + 7, 9);
    assert_eq!(world.resident(), 0);
    let (cached, record) = (PAGES, world.vm.objects.find(world.object).unwrap().cached());
    assert_eq!(record, cached);
    touch(&world.vm, world.space, BASE + PAGES + 7, Access::Read);
    assert_eq!(world.large(), [BASE + PAGES]);
    assert_eq!(world.byte(PAGES + 7), 9);
    assert_eq!(world.byte(PAGES + 8), 0);
    world.end();
}

#[test]
fn a_read_maps_without_the_right_to_store_and_a_store_gets_it() {
    let world = world::<Family>("");
    touch(&world.vm, world.space, BASE + 5, Access::Read);
    let prot = |page| world.vm.translate(world.space, Vpn(page)).unwrap().1;
    assert_eq!(prot(BASE + 400), Prot::READ);
    touch(&world.vm, world.space, BASE + 6, Access::Write);
    assert_eq!(prot(BASE + 400), RW);
    assert_eq!(world.large(), [BASE]);
    // Rights of all pages change and the leaf stays.
    world
        .vm
        .protect(world.space, Vpn(BASE), PAGES, Prot::READ)
        .unwrap();
    assert_eq!(prot(BASE + 400), Prot::READ);
    assert_eq!(world.large(), [BASE]);
    world.end();
}

#[test]
fn a_pin_holds_one_page_and_the_leaf_stays() {
    let world = world::<Family>("");
    world.use_all();
    let mut frames = [Pfn::NONE; 2];
    let (vm, space) = (&world.vm, world.space);
    vm.pin_pages(space, Vpn(BASE + 40), Access::Write, &mut frames)
        .unwrap();
    assert_eq!(frames[1], frames[0].offset(1));
    assert_eq!(
        Some(frames[0]),
        vm.translate(space, Vpn(BASE + 40)).map(|(frame, _)| frame)
    );
    assert_eq!(world.large(), [BASE, BASE + PAGES]);
    vm.audit().unwrap();
    // SAFETY: pinned above.
    unsafe { vm.unpin(&frames) };
    world.end();
}

#[test]
fn single_pages_do_where_something_is_lacking() {
    // No block, no node, no table: each in turn.
    for site in [Site::Superpage, Site::RadixNode, Site::TablePage] {
        for after in 0..12 {
            let world = world::<ByEntries>("");
            let plan = FailAt { site, after };
            world.vm.memory().inject(Some(plan));
            let result = world.vm.fault(world.space, (BASE + 3) << 12, Access::Write);
            world.vm.memory().inject(None);
            world.vm.audit().unwrap();
            if result.is_err() {
                touch(&world.vm, world.space, BASE + 3, Access::Write);
            }
            world.end();
        }
    }
}

/// A mount that allows for less, and one that does while there is no block: what was counted
/// for the superpage is not, but for the one page.
#[test]
fn a_mount_counts_the_pages_that_came_of_a_superpage_that_could_not_be() {
    for (limit, has_block) in [(PAGES - 1, true), (4 * PAGES, false)] {
        let vm = vm_with::<Family>("huge=always", 8192);
        let mount = vm.page_cache().begin_mount(limit).unwrap();
        let object = vm
            .page_cache()
            .begin_file(&FileRequest::in_mount(mount))
            .unwrap();
        vm.page_cache().set_size(object, 2 * PAGES * PAGE).unwrap();
        let space = vm.begin_space().unwrap();
        let request = MapRequest::object(object, 0, 2 * PAGES, RW).shared();
        map(&vm, space, BASE, request);
        let (site, after) = (Site::Superpage, 0);
        let plan = (!has_block).then_some(FailAt { site, after });
        vm.memory().inject(plan);
        touch(&vm, space, BASE, Access::Write);
        vm.memory().inject(None);
        assert_eq!(
            vm.page_cache().mount_stats(mount).unwrap().used,
            1,
            "limit {limit}"
        );
        assert_eq!(vm.stats().events.superpage_failures, 1);
        vm.audit().unwrap();
    }
}

#[test]
fn an_object_has_no_page_past_its_end() {
    let vm = vm_with::<Family>("huge=within_size", 8192);
    let object = vm.memory_pages(PAGES + 9).unwrap();
    let cached = || vm.objects.find(object).unwrap().cached();
    vm.page_cache()
        .write_at(object, (PAGES + 3) * PAGE, &[&[1]])
        .unwrap();
    assert_eq!(cached(), 1);
    vm.page_cache().write_at(object, 3 * PAGE, &[&[1]]).unwrap();
    assert_eq!(cached(), 1 + PAGES);
    vm.audit().unwrap();
}

/// Pages in swap are pages: a range of which all that there is lies there is not made anew.
#[test]
fn a_range_with_a_page_in_swap_and_none_in_memory_is_not_made_whole() {
    let world = world::<Family>("");
    let (vm, space) = (&world.vm, world.space);
    vm.page_cache().set_huge(world.object, Some(false)).unwrap();
    world.set_byte(70, 6);
    touch(vm, space, BASE + 70, Access::Read);
    let advice = Advice::PageOut;
    vm.advise(space, Vpn(BASE + 70), 1, advice).unwrap();
    let counts = || {
        let object = vm.objects.find(world.object).unwrap();
        (object.cached(), object.swapped())
    };
    assert_eq!(counts(), (0, 1));
    vm.page_cache().set_huge(world.object, None).unwrap();
    touch(vm, space, BASE + 300, Access::Write);
    assert_eq!(counts(), (1, 1));
    assert!(world.large().is_empty());
    assert_eq!(world.byte(70), 6);
    world.end();
}

/// The leaf's mark is that of all pages when it goes, of which any may have been stored to.
#[test]
fn stores_through_a_leaf_make_all_of_its_pages_dirty() {
    for stores in [false, true] {
        let world = world::<Family>("");
        let dirty = world.dirty_after(stores, |vm, space| {
            vm.unmap(space, Vpn(BASE + 100), 1).unwrap();
        });
        assert_eq!(dirty, if stores { PAGES } else { 0 });
        world.end();
    }
}

/// Where no CPU could hold a translation any more, the mark still goes to the pages.
#[test]
fn stores_through_a_leaf_outlive_the_space_that_made_them() {
    for stores in [false, true] {
        let world = world::<Family>("");
        let dirty = world.dirty_after(stores, |vm, space| {
            vm.exit(space).unwrap();
        });
        assert_eq!(dirty, if stores { PAGES } else { 0 });
        world.vm.audit().unwrap();
    }
}

/// A range of the space where a leaf could be shows the end of one superpage of the object and
/// the beginning of another.
#[test]
fn a_mapping_that_lies_across_superpages_shows_its_own_pages() {
    let world = world::<Family>("");
    world.use_all();
    let (vm, space) = (&world.vm, world.space);
    let shifted = BASE + 4 * PAGES + 1;
    let request = MapRequest::object(world.object, 0, 2 * PAGES, RW).shared();
    map(vm, space, shifted, request);
    for page in [PAGES - 1, PAGES, PAGES + 17] {
        touch(vm, space, shifted + page, Access::Read);
        let frame = |page| vm.translate(space, Vpn(page)).unwrap().0;
        assert_eq!(frame(shifted + page), frame(BASE + page), "page {page}");
    }
    assert_eq!(world.large(), [BASE, BASE + PAGES]);
    world.end();
}

fn parts<R: ReverseMap>(text: &str) {
    let world = world::<R>(text);
    let (vm, space) = (&world.vm, world.space);
    world.use_all();
    world.set_byte(40, 7);
    // The tail of one is unmapped, and some pages of the other.
    vm.unmap(space, Vpn(BASE + 100), 20).unwrap();
    assert_eq!(world.large(), [BASE + PAGES], "{text}");
    vm.protect(space, Vpn(BASE + PAGES + 1), 3, Prot::READ)
        .unwrap();
    assert!(world.large().is_empty());
    assert_eq!(world.resident(), 0);
    for page in [40, 200, PAGES, PAGES + 2, PAGES + 300] {
        touch(vm, space, BASE + page, Access::Read);
    }
    assert_eq!(world.byte(40), 7);
    assert!(vm.fault(space, (BASE + 110) << 12, Access::Read).is_err());
    assert!(
        vm.fault(space, (BASE + PAGES + 2) << 12, Access::Write)
            .is_err()
    );
    vm.audit().unwrap();
    // Advice and moves about parts.
    let other = vm.begin_space().unwrap();
    let request = MapRequest::object(world.object, 0, 2 * PAGES, RW).shared();
    map(vm, other, BASE, request);
    touch(vm, other, BASE, Access::Write);
    touch(vm, other, BASE + PAGES, Access::Write);
    let resident = || vm.space_stats(other).unwrap().rss.shared_memory;
    assert_eq!(resident(), 2 * PAGES, "{text}");
    vm.audit().unwrap();
    vm.advise(other, Vpn(BASE + 10), 3, Advice::DontNeed)
        .unwrap();
    assert_eq!(resident(), PAGES);
    let to = RemapPlacement::Fixed(Vpn(BASE + 8 * PAGES + 4));
    vm.remap(other, Vpn(BASE + PAGES), 30, 30, to).unwrap();
    assert_eq!(resident(), 0);
    touch(vm, other, BASE + 8 * PAGES + 4, Access::Read);
    vm.exit(other).unwrap();
    world.end();
}

fn cuts<R: ReverseMap>(text: &str) {
    let world = world::<R>(text);
    let (vm, space, object) = (&world.vm, world.space, world.object);
    world.use_all();
    let other = vm.begin_space().unwrap();
    let request = MapRequest::object(object, 0, 2 * PAGES, RW).shared();
    map(vm, other, BASE + 4 * PAGES, request);
    touch(vm, other, BASE + 4 * PAGES + 1, Access::Write);
    for page in [30, 31, 32] {
        world.set_byte(page, 5);
    }
    vm.page_cache().punch_hole(object, 31 * PAGE, PAGE).unwrap();
    assert_eq!(world.large(), [BASE + PAGES], "{text}");
    assert_eq!(vm.translate(other, Vpn(BASE + 4 * PAGES + 31)), None);
    vm.audit().unwrap();
    let bytes = [30, 31, 32].map(|page| world.byte(page));
    assert_eq!(bytes, [5, 0, 5]);
    // The hole is filled from elsewhere, and single pages are what there is.
    touch(vm, space, BASE + 31, Access::Write);
    assert_eq!(world.large(), [BASE + PAGES]);
    // In the middle of the second.
    vm.page_cache()
        .set_size(object, (PAGES + 50) << 12)
        .unwrap();
    assert!(world.large().is_empty());
    let past = vm.fault(space, (BASE + PAGES + 50) << 12, Access::Read);
    assert_eq!(past, Err(FaultError::PastEnd));
    touch(vm, space, BASE + PAGES + 49, Access::Read);
    vm.audit().unwrap();
    vm.exit(other).unwrap();
    world.end();
}

fn copies<R: ReverseMap>(text: &str) {
    for forkcopy in ["needed", "all"] {
        let world = world::<R>(&std::format!("{text},forkcopy={forkcopy}"));
        let (vm, space, object) = (&world.vm, world.space, world.object);
        world.use_all();
        world.set_byte(60, 3);
        let request = MapRequest::object(object, 0, PAGES, RW);
        map(vm, space, BASE + 4 * PAGES, request);
        touch(vm, space, BASE + 4 * PAGES + 60, Access::Write);
        let child = vm.fork(space).unwrap();
        assert_eq!(world.large(), [BASE, BASE + PAGES], "{text}");
        vm.audit().unwrap();
        let frame_of = |id, page| vm.translate(id, Vpn(page)).map(|(frame, _)| frame);
        touch(vm, child, BASE + 60, Access::Write);
        assert_eq!(frame_of(child, BASE + 60), frame_of(space, BASE + 60));
        touch(vm, child, BASE + 4 * PAGES + 60, Access::Write);
        let copy = frame_of(space, BASE + 4 * PAGES + 60).unwrap();
        assert_ne!(frame_of(child, BASE + 4 * PAGES + 60), Some(copy));
        vm.platform().scribble(copy, 8);
        assert_eq!(world.byte(60), 3);
        vm.audit().unwrap();
        vm.exit(child).unwrap();
        world.end();
    }
}

fn swaps<R: ReverseMap>(text: &str) {
    let world = world::<R>(text);
    let (vm, space) = (&world.vm, world.space);
    world.use_all();
    world.set_byte(70, 6);
    vm.advise(space, Vpn(BASE + 70), 2, Advice::PageOut)
        .unwrap();
    assert_eq!(world.large(), [BASE + PAGES], "{text}");
    let swapped = || vm.objects.find(world.object).unwrap().swapped();
    assert_eq!(swapped(), 2);
    vm.audit().unwrap();
    // Nothing is made around a page that is in swap.
    touch(vm, space, BASE + 300, Access::Write);
    assert_eq!(swapped(), 2);
    touch(vm, space, BASE + 70, Access::Write);
    assert_eq!((world.byte(70), swapped()), (6, 1));
    world.end();
}

#[test]
fn reclaim_judges_pages_of_a_superpage_one_by_one() {
    let world = world::<Family>("reclaim=on");
    world.use_all();
    let gone = world.vm.reclaim_pages(64);
    assert!(gone > 0, "nothing left memory");
    world.vm.audit().unwrap();
    for page in 0..2 * PAGES {
        touch(&world.vm, world.space, BASE + page, Access::Write);
    }
    world.end();
}

#[test]
fn formats_without_such_leaves_have_none() {
    use crate::table::Aarch64_16K;
    run_on(0);
    let machine = TestMachine::with_frames(2, 4096, 14);
    let design = Design::parse("huge=always").unwrap();
    let vm: Vm<_, Aarch64_16K, Family> = Vm::new(machine, design).unwrap();
    let object = vm.memory_pages(4096).unwrap();
    let space = vm.begin_space().unwrap();
    let request = MapRequest::object(object, 0, 4096, RW).shared();
    let request = request.at(Placement::Fixed(Vpn(4096)));
    vm.map(space, &request).unwrap();
    vm.fault(space, 5000 << Aarch64_16K::FRAME_SHIFT, Access::Write)
        .unwrap();
    assert_eq!(vm.space_stats(space).unwrap().rss.shared_memory, 1);
    vm.audit().unwrap();
}
