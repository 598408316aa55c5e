//! Making superpages beside those who enter no region: reclaim, and pins. What they do comes
//! while the CPUs forget the pages, between the look at them and their copy.

use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::rmap::ReverseMap;
use crate::swap::SwapArea;
use crate::sync::Unpinned;

const BASE: u64 = 0x10000;
const PAGES: u64 = 512;

with_each_design! {
    a_page_that_goes_to_swap_during_a_collapse_is_not_lost => swapped_out;
    pages_that_are_dropped_during_a_collapse_end_it => dropped;
    a_page_that_is_pinned_during_a_collapse_stays => pinned;
}

/// Eight single pages, each full of its number, in a range that could be a superpage.
fn world<R: ReverseMap>(design: &str) -> (Arc<TestVm<R>>, SpaceId) {
    let vm = vm_with::<R>(&std::format!("superpage=eager,{design}"), 4096);
    vm.swap_on(SwapArea::new(7, 600)).unwrap();
    let space = vm.begin_space().unwrap();
    map(&vm, space, BASE, MapRequest::anonymous(PAGES, RW));
    touch(&vm, space, BASE, Access::Write);
    vm.advise(space, Vpn(BASE + 8), PAGES - 8, Advice::DontNeed)
        .unwrap();
    for page in 0..8 {
        vm.platform()
            .scribble(frame(&vm, space, page), page as u8 + 1);
    }
    (Arc::new(vm), space)
}

fn frame<R: ReverseMap>(vm: &TestVm<R>, space: SpaceId, page: u64) -> Pfn {
    vm.translate(space, Vpn(BASE + page)).unwrap().0
}

/// Collapses the range while another CPU does `beside` once. Returns how many superpages were
/// made.
fn collapse_beside<R: ReverseMap>(
    vm: &Arc<TestVm<R>>,
    space: SpaceId,
    beside: impl Fn(&TestVm<R>) + Send + Sync + 'static,
) -> u64 {
    let _loaded = vm.load(space).unwrap();
    let weak = Arc::downgrade(vm);
    let done = Arc::new(AtomicBool::new(false));
    let was_done = done.clone();
    vm.platform().on_flush(move || {
        if done.swap(true, Ordering::Relaxed) {
            return;
        }
        let vm = weak.upgrade().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                run_on(1);
                beside(&vm);
            });
        });
    });
    let collapsed = vm.collapse(space, Vpn(BASE), 1, 1).unwrap().collapsed;
    vm.platform().on_flush(|| {});
    assert!(was_done.load(Ordering::Relaxed));
    vm.audit().unwrap();
    collapsed
}

fn shows<R: ReverseMap>(vm: &TestVm<R>, space: SpaceId, bytes: [u8; 8]) {
    for (page, byte) in (0..).zip(bytes) {
        touch(vm, space, BASE + page, Access::Write);
        let shown = vm.platform().peek(frame(vm, space, page));
        assert_eq!(shown, [byte; 4096], "{page}");
    }
    vm.audit().unwrap();
    assert_eq!(vm.exit(space), Ok(true));
    vm.audit().unwrap();
}

fn swapped_out<R: ReverseMap>(design: &str) {
    let (vm, space) = world::<R>(design);
    let collapsed = collapse_beside(&vm, space, move |vm| {
        let page = frame(vm, space, 3);
        vm.memory.frame(page).get();
        assert!(
            vm.page_cache()
                .swap_out_page(Unpinned::at_door(), page)
                .is_ok()
        );
        vm.memory.put(&vm.pin(), page);
    });
    assert_eq!(collapsed, 0, "{design}");
    assert_eq!(vm.space_stats(space).unwrap().swapped, 1, "{design}");
    shows(&vm, space, [1, 2, 3, 4, 5, 6, 7, 8]);
}

fn dropped<R: ReverseMap>(design: &str) {
    // All of them, or one.
    for (gone, left) in [(0..8, [0; 8]), (2..3, [1, 2, 0, 4, 5, 6, 7, 8])] {
        let (vm, space) = world::<R>(design);
        vm.advise(space, Vpn(BASE), 8, Advice::Free).unwrap();
        let collapsed = collapse_beside(&vm, space, move |vm| {
            for page in gone.clone() {
                let page = frame(vm, space, page);
                vm.memory.frame(page).get();
                assert!(vm.page_cache().mappings.drop_freed(page));
                vm.memory.put(&vm.pin(), page);
            }
        });
        assert_eq!(collapsed, 0, "{design}");
        shows(&vm, space, left);
    }
}

fn pinned<R: ReverseMap>(design: &str) {
    let (vm, space) = world::<R>(design);
    let before = frame(&vm, space, 5);
    let collapsed = collapse_beside(&vm, space, move |vm| {
        // Its entry is looked at again, whoever pins and enters what.
        assert!(vm.memory.frame(before).pin());
    });
    assert_eq!(collapsed, 0, "{design}");
    assert_eq!(frame(&vm, space, 5), before, "{design}");
    // SAFETY: pinned above, and not unpinned since.
    unsafe { vm.unpin(&[before]) };
    shows(&vm, space, [1, 2, 3, 4, 5, 6, 7, 8]);
}
