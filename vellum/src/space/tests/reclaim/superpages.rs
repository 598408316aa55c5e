//! Superpages of private memory when memory is short.

use super::*;
#[cfg(feature = "published")]
use crate::frame::{FailAt, Site};
use crate::reclaim::{Cooled, Evictor, PageKind, Rule, Taken, Walked};
use crate::rmap::Family;
#[cfg(feature = "published")]
use crate::rmap::{AnonVma, AnonVmaChain, Anonmm, Chains, Partial, Pv};
use crate::sync::{Pin, Turn, Unpinned};

/// First page of a range that may be a superpage, and its pages.
const BASE: u64 = 0x10000;
const PAGES: u64 = 512;
const EAGER: &str = "superpage=eager";
const RESERVE: &str = "superpage=reserve";

/// A manager with a swap area.
fn swapping<R: ReverseMap>(options: &str, frames: u32) -> TestVm<R> {
    let vm = vm_of(options, frames);
    vm.swap_on(SWAP).unwrap();
    vm
}

fn at(page: u64) -> Vpn {
    Vpn(BASE + page)
}

/// What was stored to a page.
fn byte(page: u64, turn: u64) -> u8 {
    (page * 7 + turn * 31 + 1) as u8
}

/// Stores to a page through its entry.
fn fill<R: ReverseMap>(vm: &TestVm<R>, space: SpaceId, page: u64, turn: u64) {
    let frame = fault(vm, space, at(page), Access::Write);
    vm.platform().scribble(frame, byte(page, turn));
}

fn check_page<R: ReverseMap>(vm: &TestVm<R>, space: SpaceId, page: u64, turn: u64) {
    let frame = fault(vm, space, at(page), Access::Read);
    let bytes = vm.platform().peek(frame);
    assert!(bytes.iter().all(|&b| b == byte(page, turn)), "page {page}");
}

/// A space whose pages from [`BASE`] on, as many as `ranges` superpages have, were stored to.
fn filled<R: ReverseMap>(vm: &TestVm<R>, ranges: u64) -> SpaceId {
    let space = vm.begin_space().unwrap();
    let request = MapRequest::anonymous(ranges * PAGES, RW).at(Placement::Fixed(at(0)));
    vm.map(space, &request).unwrap();
    for page in 0..ranges * PAGES {
        fill(vm, space, page, 0);
    }
    space
}

/// How many large leaves a space has.
fn large<R: ReverseMap>(vm: &TestVm<R>, space: SpaceId) -> usize {
    let mut count = 0;
    vm.for_each_leaf(space, |_, _, pages, _| count += usize::from(pages > 1))
        .unwrap();
    count
}

fn swapped<R: ReverseMap>(vm: &TestVm<R>, space: SpaceId) -> u64 {
    vm.space_stats(space).unwrap().swapped
}

/// Has nobody use anything: takes all accessed marks.
fn rest<R: ReverseMap>(vm: &TestVm<R>, space: SpaceId, pages: u64) {
    vm.scan_space(space, PageRange::new(at(0), pages)).unwrap();
}

/// Has whatever can leave do so, as far as nobody used it.
fn reclaim_all<R: ReverseMap>(vm: &TestVm<R>) {
    while vm.reclaim_pages(PAGES) > 0 {}
}

fn a_locked_superpage_is_not_split<R: ReverseMap>(options: &str) {
    let vm: TestVm<R> = swapping(options, 4096);
    let space = filled(&vm, 2);
    rest(&vm, space, 2 * PAGES);
    vm.lock_pages(space, at(0), PAGES).unwrap();
    reclaim_all(&vm);
    assert_eq!((large(&vm, space), swapped(&vm, space)), (1, PAGES));
    vm.unlock_pages(space, at(0), PAGES).unwrap();
    rest(&vm, space, PAGES);
    reclaim_all(&vm);
    assert_eq!((large(&vm, space), swapped(&vm, space)), (0, 2 * PAGES));
    vm.audit().unwrap();
}

fn an_idle_superpage_is_split_and_its_pages_come_back<R: ReverseMap>(options: &str) {
    let vm: TestVm<R> = swapping(options, 4096);
    let space = filled(&vm, 1);
    assert_eq!(large(&vm, space), 1);
    rest(&vm, space, PAGES);
    let first = vm.reclaim_pages(100);
    assert_eq!((large(&vm, space), swapped(&vm, space)), (0, first));
    assert!((100..200).contains(&first), "{first}");
    assert_eq!(vm.stats().events.superpage_demotions, 1);
    vm.audit().unwrap();
    reclaim_all(&vm);
    assert_eq!(swapped(&vm, space), PAGES);
    vm.audit().unwrap();
    for page in 0..PAGES {
        check_page(&vm, space, page, 0);
    }
    vm.audit().unwrap();
    vm.exit(space).unwrap();
    assert_eq!(vm.swap_stats().free, vm.swap_stats().slots);
    vm.audit().unwrap();
}

fn both_spaces_get_the_pages_of_a_shared_superpage_back<R: ReverseMap>(options: &str) {
    let vm: TestVm<R> = swapping(options, 4096);
    let space = filled(&vm, 1);
    let child = vm.fork(space).unwrap();
    assert_eq!((large(&vm, space), large(&vm, child)), (1, 1));
    rest(&vm, space, PAGES);
    rest(&vm, child, PAGES);
    reclaim_all(&vm);
    vm.audit().unwrap();
    assert_eq!(vm.stats().events.superpage_demotions, 2);
    assert_eq!((swapped(&vm, space), swapped(&vm, child)), (PAGES, PAGES));
    for page in 0..PAGES {
        fill(&vm, child, page, 1);
    }
    for page in 0..PAGES {
        check_page(&vm, space, page, 0);
        check_page(&vm, child, page, 1);
    }
    vm.exit(space).unwrap();
    vm.audit().unwrap();
    vm.exit(child).unwrap();
    vm.audit().unwrap();
}

/// It is judged by its first page.
fn a_superpage_that_is_used_stays_whole<R: ReverseMap>(options: &str) {
    let vm: TestVm<R> = swapping(options, 4096);
    let space = filled(&vm, 1);
    let take = |page| {
        let frame = vm.translate(space, at(page)).unwrap().0;
        vm.page_cache().take(
            Unpinned::at_door(),
            frame,
            PageKind::SwapBacked,
            Rule::Inactive,
        )
    };
    // Others have no record of their own, or stay.
    let other = if options.contains(EAGER) {
        Taken::Gone
    } else {
        Taken::Kept
    };
    // It was stored to.
    assert_eq!(take(3), other);
    assert_eq!(take(0), Taken::Active);
    assert_eq!(take(3), other);
    assert_eq!((large(&vm, space), swapped(&vm, space)), (1, 0));
    assert_eq!(take(0), Taken::Freed);
    assert_eq!((large(&vm, space), swapped(&vm, space)), (0, 1));
    vm.audit().unwrap();
    vm.exit(space).unwrap();
    vm.audit().unwrap();
}

fn four_times_memory_is_used<R: ReverseMap>(options: &str) {
    const RANGES: u64 = 8;
    let vm: TestVm<R> = swapping(options, 1400);
    let mut rng = Rng::new(7);
    let space = filled(&vm, RANGES);
    let mut turns = vec![0; (RANGES * PAGES) as usize];
    let mut child = None;
    for step in 0..3000 {
        let page = rng.below((RANGES * PAGES) as usize) as u64;
        match rng.below(100) {
            0..40 => check_page(&vm, space, page, turns[page as usize]),
            40..80 => {
                turns[page as usize] = step;
                fill(&vm, space, page, step);
            }
            80 if child.is_none() => child = vm.fork(space).ok().map(|it| (it, turns.clone())),
            81 if child.is_some() => vm.exit(child.take().unwrap().0).map(|_| ()).unwrap(),
            82 => {
                let first = page & !(PAGES - 1);
                vm.unmap(space, at(first), PAGES).unwrap();
                let request = MapRequest::anonymous(PAGES, RW).at(Placement::Fixed(at(first)));
                vm.map(space, &request).unwrap();
                for page in first..first + PAGES {
                    turns[page as usize] = step;
                    fill(&vm, space, page, step);
                }
            }
            _ => {
                if let Some((child, turns)) = &child {
                    check_page(&vm, *child, page, turns[page as usize]);
                }
            }
        }
        if step % 500 == 0 {
            vm.audit().unwrap();
        }
    }
    for page in 0..RANGES * PAGES {
        check_page(&vm, space, page, turns[page as usize]);
    }
    let events = vm.stats().events;
    assert!(events.superpage_demotions > 1, "{events:?}");
    for space in [Some(space), child.map(|(child, _)| child)]
        .iter()
        .flatten()
    {
        vm.exit(*space).unwrap();
    }
    assert_eq!(vm.swap_stats().free, vm.swap_stats().slots);
    vm.audit().unwrap();
}

macro_rules! whatever_design {
    ($($name:ident;)*) => {$(
        mod $name {
            use super::*;

            whatever_design!(@ $name family: Family);
            #[cfg(feature = "published")]
            whatever_design!(@ $name chains: Chains, partial: Partial, anon_vma: AnonVma,
                anonmm: Anonmm, anon_vma_chain: AnonVmaChain, pv: Pv);
        }
    )*};
    (@ $name:ident $($rmap:ident: $design:ident),*) => {$(
        #[test]
        fn $rmap() {
            for superpages in [EAGER, RESERVE] {
                for aging in aging() {
                    super::$name::<$design>(&std::format!("{aging},{superpages}"));
                }
            }
        }
    )*};
}
whatever_design! {
    an_idle_superpage_is_split_and_its_pages_come_back;
    both_spaces_get_the_pages_of_a_shared_superpage_back;
    a_superpage_that_is_used_stays_whole;
    a_locked_superpage_is_not_split;
    four_times_memory_is_used;
}

#[test]
fn a_superpage_of_a_space_that_is_being_changed_stays() {
    for superpages in [EAGER, RESERVE] {
        let vm: TestVm<Family> = swapping(&std::format!("reclaim=on,{superpages}"), 4096);
        let space = filled(&vm, 1);
        rest(&vm, space, PAGES);
        let guard = vm.lock_named(Unpinned::at_door(), space).unwrap();
        assert_eq!(vm.reclaim_pages(PAGES), 0);
        drop(guard);
        assert_eq!(large(&vm, space), 1);
        reclaim_all(&vm);
        assert_eq!(swapped(&vm, space), PAGES);
        vm.exit(space).unwrap();
        vm.audit().unwrap();
    }
}

/// `chains` needs nodes for each frame of a superpage that is shared.
#[cfg(feature = "published")]
#[test]
fn a_superpage_that_cannot_be_split_for_want_of_memory_stays_and_leaves_later() {
    let vm: TestVm<Chains> = swapping("reclaim=on,superpage=eager", 4096);
    let space = filled(&vm, 1);
    let child = vm.fork(space).unwrap();
    rest(&vm, space, PAGES);
    rest(&vm, child, PAGES);
    let (site, after) = (Site::SlabFrame, 0);
    vm.memory().inject(Some(FailAt { site, after }));
    let first = vm.translate(space, at(0)).unwrap().0;
    let taken = vm.page_cache().take(
        Unpinned::at_door(),
        first,
        PageKind::SwapBacked,
        Rule::Inactive,
    );
    assert_eq!(taken, Taken::Kept);
    assert_eq!((large(&vm, space), large(&vm, child)), (1, 1));
    assert_eq!(vm.memory().reached(site), 1);
    vm.memory().inject(None);
    vm.audit().unwrap();
    reclaim_all(&vm);
    for space in [space, child] {
        assert_eq!(swapped(&vm, space), PAGES);
        (0..PAGES).for_each(|page| check_page(&vm, space, page, 0));
        vm.exit(space).unwrap();
    }
    vm.audit().unwrap();
}

/// Who looks at pages in a moment in which nobody seems to have them.
struct FindsNobody<'a, R: ReverseMap>(&'a TestVm<R>);

impl<R: ReverseMap> Evictor for FindsNobody<'_, R> {
    fn pin_by<'a>(&'a self, unpinned: &'a Unpinned<'_>) -> Pin<'a> {
        self.0.pin_by(unpinned)
    }

    fn take(&self, _: Unpinned<'_>, _page: Pfn, _kind: PageKind, _rule: Rule) -> Taken {
        Taken::Gone
    }

    fn cool(&self, _page: Pfn, _kind: PageKind) -> Cooled {
        Cooled::Gone
    }

    fn walk(&self, _: Unpinned<'_>, _walk: (usize, u32), _used: &mut dyn FnMut(Pfn)) -> Walked {
        Walked::default()
    }

    fn is_unused(&self, page: Pfn) -> bool {
        self.0.page_cache().is_unused(page)
    }

    fn can_swap(&self) -> bool {
        true
    }

    fn wait_for_frames(&self, _: Unpinned<'_>) {}

    fn wait_for_pins(&self, _: Unpinned<'_>) {}

    fn reclaim_ended(&self) -> u32 {
        self.0.page_cache().reclaim_ended()
    }

    fn wait_for_reclaimer(&self, _: Unpinned<'_>, _ended: u32) -> bool {
        false
    }
}

/// While a fork tries to make one record of theirs, pages of a superpage seem to be nobody's.
#[test]
fn pages_that_keep_records_of_their_own_are_listed_after_a_fork_tried_to_unite_them() {
    for aging in aging() {
        let vm: TestVm<Family> = swapping(&std::format!("{aging},{RESERVE}"), 4096);
        let space = filled(&vm, 1);
        assert_eq!(large(&vm, space), 1);
        let frames: Vec<Pfn> = (0..PAGES)
            .map(|page| vm.translate(space, at(page)).unwrap().0)
            .collect();
        // As another has who looks at it.
        let pin = vm.pin();
        let turn = Turn::at(&pin, frames[5].0);
        assert!(vm.memory.frame(frames[5]).try_get(turn));
        drop(pin);
        let reclaim = vm.reclaim().unwrap();
        let listed = || frames.iter().filter(|&&it| reclaim.is_known(it)).count();
        assert_eq!(listed(), PAGES as usize);
        reclaim.shrink_node(Unpinned::at_door(), &FindsNobody(&vm), 0, PAGES);
        assert_eq!(listed(), 0);
        let child = vm.fork(space).unwrap();
        assert!(frames[1..5].iter().all(|&it| reclaim.is_known(it)));
        vm.memory.put(&vm.pin(), frames[5]);
        vm.exit(child).unwrap();
        vm.exit(space).unwrap();
        vm.audit().unwrap();
    }
}

#[test]
fn a_group_with_superpages_keeps_its_limit() {
    for superpages in [EAGER, RESERVE] {
        for aging in aging() {
            let options = std::format!("{aging},groups=on,{superpages}");
            let vm: TestVm<Family> = swapping(&options, 4096);
            let group = vm.page_cache().new_group(700).unwrap();
            let space = vm.begin_space().unwrap();
            vm.set_group(space, group).unwrap();
            let request = MapRequest::anonymous(4 * PAGES, RW).at(Placement::Fixed(at(0)));
            vm.map(space, &request).unwrap();
            fill(&vm, space, 0, 0);
            let first = if superpages == EAGER { PAGES } else { 1 };
            assert_eq!(vm.page_cache().group_stats(group).unwrap().usage, first);
            for page in 0..4 * PAGES {
                fill(&vm, space, page, 0);
                assert!(
                    vm.page_cache().group_stats(group).unwrap().usage <= 700,
                    "page {page}"
                );
            }
            vm.audit().unwrap();
            (0..4 * PAGES).for_each(|page| check_page(&vm, space, page, 0));
            vm.exit(space).unwrap();
            assert_eq!(vm.page_cache().group_stats(group).unwrap().usage, 0);
            vm.audit().unwrap();
        }
    }
}
