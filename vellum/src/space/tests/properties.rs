//! Properties of regions, and advice by the sentences of madvise(2), with every reverse-mapping
//! design and on two formats.

use super::*;
use crate::frame::{FailAt, Site};
use crate::rmap::{Family, ReverseMap};
use crate::space::{RemapPlacement, Space};
use crate::swap::SwapArea;

mod files;
mod guards;
mod layouts;
mod moves;
mod nodes;
mod random;
mod shift;
mod withdrawn;

/// Tests that call a check of one reverse-mapping design for each, and of one for another format,
/// with the design's options.
macro_rules! with_each_design_and_format {
    ($($name:ident => $check:ident;)*) => {$(
        #[test]
        fn $name() {
            for text in crate::design::variants("rmap") {
                let design = crate::Design::parse(&text).unwrap();
                crate::with_rmap!(design.rmap, R => $check::<crate::table::X86_64, R>(&text));
            }
            $check::<crate::table::Aarch64_4K, crate::rmap::Family>("rmap=family");
        }
    )*};
}
use with_each_design_and_format;

/// First page of a region.
const AT: u64 = 0x1000;
const SWAP: u64 = 77;

type AnyVm<F, R> = Vm<TestMachine, F, R>;
type AnySpace<'a, F, R> = Space<'a, TestMachine, F, R>;

fn any_vm<F: Format, R: ReverseMap>(design: &str, frames: u32) -> AnyVm<F, R> {
    run_on(0);
    let design = Design::parse(design).unwrap();
    Vm::new(TestMachine::simple(2, frames), design).unwrap()
}

fn map_at<F: Format, R: ReverseMap>(space: AnySpace<'_, F, R>, page: u64, request: MapRequest) {
    let request = request.at(Placement::Fixed(Vpn(page)));
    assert_eq!(space.map(&request), Ok(Vpn(page)));
}

/// A space with 8 pages at [`AT`], each of which holds its number and one.
fn with_pages<F: Format, R: ReverseMap>(
    vm: &AnyVm<F, R>,
    request: MapRequest,
) -> AnySpace<'_, F, R> {
    let space = vm.create_space().unwrap();
    map_at(space, AT, request);
    for page in 0..8 {
        put(space, AT + page, page as u8 + 1);
    }
    space
}

fn put<F: Format, R: ReverseMap>(space: AnySpace<'_, F, R>, page: u64, byte: u8) {
    assert_eq!(space.write(page << 12, &[byte; 64]), Ok(64));
}

/// What the first byte of a page is, or why nobody may load it.
fn get<F: Format, R: ReverseMap>(space: AnySpace<'_, F, R>, page: u64) -> Result<u8, FaultError> {
    let mut byte = [0];
    space.read(page << 12, &mut byte).map(|_| byte[0])
}

fn all<F: Format, R: ReverseMap>(space: AnySpace<'_, F, R>, pages: u64) -> Vec<Option<u8>> {
    (0..pages).map(|page| get(space, AT + page).ok()).collect()
}

fn ranges<F: Format, R: ReverseMap>(space: AnySpace<'_, F, R>) -> Vec<(u64, u64)> {
    let mut found = Vec::new();
    let each = |entry: &MapEntry| found.push((entry.range.start.0, entry.range.end.0));
    space.for_each_region(each).unwrap();
    found
}

/// Ends the spaces; nothing is left anywhere.
fn finish<F: Format, R: ReverseMap>(vm: &AnyVm<F, R>, spaces: &[AnySpace<'_, F, R>]) {
    vm.audit().unwrap();
    for space in spaces {
        assert_eq!(space.exit(), Ok(true));
        vm.audit().unwrap();
    }
    let report = vm.audit().unwrap();
    assert_eq!(report.frames.of(Kind::Anonymous), 0);
    assert_eq!(report.spaces, 0);
}

with_each_design_and_format! {
    a_child_has_nothing_where_it_does_not_inherit => not_inherited;
    a_child_finds_zeroes_where_fork_wipes => wiped;
    properties_cut_and_unite_regions_and_move_with_them => cut_and_united;
    sealed_memory_that_nobody_may_store_to_stays_in_children => sealed;
    populating_faults_in_as_the_access_would => populated;
    what_is_needed_soon_is_read => will_need;
    a_hole_is_made_in_what_is_mapped => removed;
    a_property_that_cannot_be_noted_changes_nothing => no_memory;
}

fn advise<F: Format, R: ReverseMap>(
    space: AnySpace<'_, F, R>,
    (first, pages): (u64, u64),
    advice: Advice,
) -> Result<(), MapError> {
    space.advise(Vpn(AT + first), pages, advice)
}

fn not_inherited<F: Format, R: ReverseMap>(design: &str) {
    let vm = any_vm::<F, R>(design, 1024);
    let space = with_pages(&vm, MapRequest::anonymous(8, RW));
    let file = vm.memory_pages(4).unwrap();
    map_at(space, AT + 20, MapRequest::object(file, 0, 4, RW).shared());
    put(space, AT + 20, 9);
    advise(space, (2, 3), Advice::DontFork).unwrap();
    advise(space, (20, 4), Advice::DontFork).unwrap();
    let shown = space.region_at(Vpn(AT + 2)).unwrap();
    assert!(shown.traits.has(Traits::NOT_FORKED), "{design}");
    let child = space.fork().unwrap();
    assert_eq!(ranges(child), [(AT, AT + 2), (AT + 5, AT + 8)], "{design}");
    assert_eq!(get(child, AT + 3), Err(FaultError::NoRegion), "{design}");
    assert_eq!(get(child, AT + 5), Ok(6), "{design}");
    assert_eq!(get(space, AT + 3), Ok(4), "{design}");
    assert_eq!(child.stats().unwrap().pages, 5, "{design}");
    // The parent's stores need no copy: nobody shares the pages.
    put(space, AT + 3, 44);
    vm.audit().unwrap();
    advise(space, (2, 3), Advice::DoFork).unwrap();
    let other = space.fork().unwrap();
    assert_eq!(get(other, AT + 3), Ok(44), "{design}");
    finish(&vm, &[child, space, other]);
}

fn wiped<F: Format, R: ReverseMap>(design: &str) {
    let vm = any_vm::<F, R>(design, 1024);
    let space = with_pages(&vm, MapRequest::anonymous(8, RW));
    advise(space, (0, 3), Advice::WipeOnFork).unwrap();
    let child = space.fork().unwrap();
    let wiped: Vec<_> = [0, 0, 0, 4, 5, 6, 7, 8].map(Some).into();
    assert_eq!(all(child, 8), wiped, "{design}");
    assert_eq!(get(space, AT + 1), Ok(2), "{design}");
    // A child wipes its own children's, too.
    put(child, AT + 1, 11);
    let grandchild = child.fork().unwrap();
    assert_eq!(get(grandchild, AT + 1), Ok(0), "{design}");
    assert_eq!(get(child, AT + 1), Ok(11), "{design}");
    advise(child, (0, 3), Advice::KeepOnFork).unwrap();
    let kept = child.fork().unwrap();
    assert_eq!(get(kept, AT + 1), Ok(11), "{design}");
    // For private memory without an object alone.
    let memory = vm.memory_pages(4).unwrap();
    map_at(space, AT + 20, MapRequest::object(memory, 0, 4, RW));
    map_at(space, AT + 30, MapRequest::anonymous(1, RW).shared());
    for first in [20, 30] {
        let refused = advise(space, (first, 1), Advice::WipeOnFork);
        assert_eq!(refused, Err(MapError::WrongKind), "{design}");
    }
    // Not inherited comes before wiped.
    advise(space, (0, 3), Advice::DontFork).unwrap();
    let without = space.fork().unwrap();
    assert_eq!(get(without, AT), Err(FaultError::NoRegion), "{design}");
    finish(&vm, &[without, space, grandchild, child, kept]);
}

fn cut_and_united<F: Format, R: ReverseMap>(design: &str) {
    let vm = any_vm::<F, R>(design, 1024);
    let space = with_pages(&vm, MapRequest::anonymous(8, RW));
    let pairs = [
        (Advice::DontFork, Advice::DoFork, Traits::NOT_FORKED),
        (
            Advice::WipeOnFork,
            Advice::KeepOnFork,
            Traits::WIPED_BY_FORK,
        ),
        (Advice::Sequential, Advice::Normal, Traits::SEQUENTIAL),
        (Advice::Random, Advice::Normal, Traits::RANDOM),
    ];
    for (on, off, shown) in pairs {
        advise(space, (2, 2), on).unwrap();
        let cut = [(AT, AT + 2), (AT + 2, AT + 4), (AT + 4, AT + 8)];
        assert_eq!(ranges(space), cut, "{on:?} {design}");
        let traits = space.region_at(Vpn(AT + 3)).unwrap().traits;
        assert!(traits.has(shown), "{on:?} {design}");
        let around = space.region_at(Vpn(AT + 4)).unwrap().traits;
        assert!(!around.has(shown), "{on:?} {design}");
        let to = RemapPlacement::Fixed(Vpn(AT + 50));
        space.remap(Vpn(AT + 2), 2, 2, to).unwrap();
        let moved = space.region_at(Vpn(AT + 50)).unwrap().traits;
        assert!(moved.has(shown), "{on:?} {design}");
        let back = RemapPlacement::Fixed(Vpn(AT + 2));
        space.remap(Vpn(AT + 50), 2, 2, back).unwrap();
        assert_eq!(advise(space, (7, 2), on), Err(MapError::NotMapped));
        advise(space, (0, 8), off).unwrap();
        let traits = space.region_at(Vpn(AT + 3)).unwrap().traits;
        assert!(!traits.has(shown), "{off:?} {design}");
        vm.audit().unwrap();
    }
    // Each of these ends the other.
    for (one, other) in [
        (
            (Advice::Sequential, Traits::SEQUENTIAL),
            (Advice::Random, Traits::RANDOM),
        ),
        (
            (Advice::Huge, Traits::HUGE),
            (Advice::NoHuge, Traits::NOT_HUGE),
        ),
    ] {
        for (first, second) in [(one, other), (other, one)] {
            advise(space, (0, 8), first.0).unwrap();
            advise(space, (0, 8), second.0).unwrap();
            let traits = space.region_at(Vpn(AT)).unwrap().traits;
            assert!(traits.has(second.1) && !traits.has(first.1), "{design}");
        }
    }
    assert_eq!(
        advise(space, (0, 0), Advice::DontFork),
        Err(MapError::BadRange)
    );
    let limits = Limits {
        regions: ranges(space).len() as u32 + 1,
        ..Limits::default()
    };
    space.set_limits(limits).unwrap();
    assert_eq!(
        advise(space, (2, 2), Advice::DontFork),
        Err(MapError::Limit)
    );
    assert_eq!(advise(space, (0, 2), Advice::DontFork), Ok(()), "{design}");
    finish(&vm, &[space]);
}

fn sealed<F: Format, R: ReverseMap>(design: &str) {
    let vm = any_vm::<F, R>(design, 1024);
    let space = with_pages(&vm, MapRequest::anonymous(8, RW));
    space.protect(Vpn(AT), 4, Prot::READ).unwrap();
    space.seal(Vpn(AT), 8).unwrap();
    for advice in [Advice::DontFork, Advice::WipeOnFork, Advice::InstallGuards] {
        assert_eq!(
            advise(space, (0, 4), advice),
            Err(MapError::Sealed),
            "{advice:?}"
        );
        assert_eq!(advise(space, (4, 1), advice), Ok(()), "{advice:?}");
    }
    assert_eq!(
        advise(space, (0, 4), Advice::Sequential),
        Ok(()),
        "{design}"
    );
    finish(&vm, &[space]);
}

fn populated<F: Format, R: ReverseMap>(design: &str) {
    let vm = any_vm::<F, R>(design, 1024);
    let space = vm.create_space().unwrap();
    map_at(space, AT, MapRequest::anonymous(8, RW));
    advise(space, (0, 4), Advice::PopulateRead).unwrap();
    let rss = |space: AnySpace<'_, F, R>| space.stats().unwrap().rss;
    assert_eq!((rss(space).zero, rss(space).anonymous), (4, 0), "{design}");
    advise(space, (2, 4), Advice::PopulateWrite).unwrap();
    assert_eq!((rss(space).zero, rss(space).anonymous), (2, 4), "{design}");
    // Stores that make shared pages dirty, which loads do not.
    let file = vm.stored_pages(1, 4).unwrap();
    map_at(space, AT + 20, MapRequest::object(file, 0, 6, RW).shared());
    advise(space, (20, 2), Advice::PopulateRead).unwrap();
    assert_eq!(
        space.translate(Vpn(AT + 20)).unwrap().1,
        Prot::READ,
        "{design}"
    );
    advise(space, (20, 2), Advice::PopulateWrite).unwrap();
    assert_eq!(space.translate(Vpn(AT + 20)).unwrap().1, RW, "{design}");
    // Errors: past the end, rights, holes, stacks, a store that fails.
    let past_end = Err(MapError::Fault(FaultError::PastEnd));
    for advice in [Advice::PopulateRead, Advice::PopulateWrite] {
        assert_eq!(advise(space, (22, 4), advice), past_end, "{design}");
        assert_eq!(advise(space, (6, 4), advice), Err(MapError::NotMapped));
        assert!(
            space.translate(Vpn(AT + 7)).is_ok(),
            "those before were done"
        );
        map_at(space, AT + 40, MapRequest::anonymous(2, Prot::NONE));
        assert_eq!(advise(space, (40, 2), advice), Err(MapError::Rights));
    }
    map_at(space, AT + 42, MapRequest::anonymous(2, Prot::READ));
    assert_eq!(
        advise(space, (42, 2), Advice::PopulateWrite),
        Err(MapError::Rights)
    );
    map_at(space, AT + 64, MapRequest::anonymous(2, RW).growing_down());
    let below = advise(space, (60, 6), Advice::PopulateWrite);
    assert_eq!(below, Err(MapError::NotMapped), "no stack grows");
    map_at(
        space,
        AT + 70,
        MapRequest::object(vm.stored_pages(2, 4).unwrap(), 0, 4, RW),
    );
    vm.platform()
        .broken_store
        .store(true, std::sync::atomic::Ordering::Relaxed);
    let refused = advise(space, (70, 4), Advice::PopulateRead);
    assert_eq!(refused, Err(MapError::Fault(FaultError::Io)), "{design}");
    vm.platform()
        .broken_store
        .store(false, std::sync::atomic::Ordering::Relaxed);
    vm.memory().inject(Some(FailAt {
        site: Site::AnonymousPage,
        after: 0,
    }));
    map_at(space, AT + 80, MapRequest::anonymous(2, RW));
    let lacking = advise(space, (80, 2), Advice::PopulateWrite);
    vm.memory().inject(None);
    assert!(
        matches!(lacking, Ok(()) | Err(MapError::OutOfMemory)),
        "{lacking:?}"
    );
    finish(&vm, &[space]);
}

fn will_need<F: Format, R: ReverseMap>(design: &str) {
    let vm = any_vm::<F, R>(&std::format!("{design},faultaround=1"), 2048);
    vm.swap_on(SwapArea::new(SWAP, 200)).unwrap();
    let file = vm.stored_pages(1, 200).unwrap();
    let space = with_pages(&vm, MapRequest::anonymous(8, RW));
    map_at(
        space,
        AT + 20,
        MapRequest::object(file, 100, 50, Prot::READ).shared(),
    );
    advise(space, (20, 20), Advice::WillNeed).unwrap();
    let cached = || vm.file(file).stats().unwrap().cached;
    assert_eq!(cached(), 20, "{design}");
    assert_eq!(space.stats().unwrap().rss.file, 0, "none is mapped");
    advise(space, (0, 8), Advice::PageOut).unwrap();
    assert_eq!(space.stats().unwrap().swapped, 8, "{design}");
    assert_eq!(
        advise(space, (2, 12), Advice::WillNeed),
        Err(MapError::NotMapped)
    );
    assert_eq!(space.stats().unwrap().swapped, 2, "{design}");
    let numbers: Vec<_> = (1..=8).map(Some).collect();
    assert_eq!(all(space, 8), numbers, "{design}");
    // What cannot be read is left to who needs it.
    vm.platform()
        .broken_store
        .store(true, std::sync::atomic::Ordering::Relaxed);
    assert_eq!(
        advise(space, (40, 10), Advice::WillNeed),
        Ok(()),
        "{design}"
    );
    vm.platform()
        .broken_store
        .store(false, std::sync::atomic::Ordering::Relaxed);
    // Faults read ahead where pages are used in turn, and else their own.
    let before = cached();
    assert!(get(space, AT + 60).is_ok());
    assert_eq!(cached(), before + 1, "{design}");
    advise(space, (20, 50), Advice::Sequential).unwrap();
    assert!(get(space, AT + 65).is_ok());
    assert_eq!(cached(), before + 2 + 32, "{design}");
    finish(&vm, &[space]);
}

fn removed<F: Format, R: ReverseMap>(design: &str) {
    let vm = any_vm::<F, R>(design, 1024);
    let memory = vm.memory_pages(8).unwrap();
    let space = with_pages(&vm, MapRequest::object(memory, 0, 8, RW).shared());
    map_at(space, AT + 20, MapRequest::object(memory, 0, 8, RW));
    put(space, AT + 22, 99);
    advise(space, (2, 3), Advice::Remove).unwrap();
    let holes: Vec<_> = [1, 2, 0, 0, 0, 6, 7, 8].map(Some).into();
    assert_eq!(all(space, 8), holes, "{design}");
    assert_eq!(get(space, AT + 22), Ok(99), "copies stay");
    assert_eq!(get(space, AT + 23), Ok(0), "{design}");
    // Rights of the moment do not matter, those that it may get do.
    space.protect(Vpn(AT), 8, Prot::READ).unwrap();
    assert_eq!(advise(space, (0, 1), Advice::Remove), Ok(()), "{design}");
    assert_eq!(get(space, AT), Ok(0), "{design}");
    let read_only = MapRequest::object(memory, 0, 8, Prot::READ).shared();
    map_at(space, AT + 40, read_only.at_most(Prot::READ));
    map_at(space, AT + 60, MapRequest::anonymous(4, RW));
    for (first, pages, why) in [
        (20, 1, MapError::Rights),
        (40, 1, MapError::Rights),
        (60, 1, MapError::WrongKind),
        (7, 4, MapError::NotMapped),
    ] {
        assert_eq!(
            advise(space, (first, pages), Advice::Remove),
            Err(why),
            "{first}"
        );
    }
    assert_eq!(get(space, AT + 7), Ok(0), "what is mapped was done");
    space.lock(Vpn(AT + 5), 1).unwrap();
    assert_eq!(
        advise(space, (5, 1), Advice::Remove),
        Err(MapError::Locked),
        "{design}"
    );
    assert_eq!(get(space, AT + 5), Ok(6), "{design}");
    finish(&vm, &[space]);
}

fn no_memory<F: Format, R: ReverseMap>(design: &str) {
    let vm = any_vm::<F, R>(design, 1024);
    let space = with_pages(&vm, MapRequest::anonymous(8, RW));
    let mut refused = 0;
    for &site in Site::ALL {
        for after in 0..3 {
            vm.memory().inject(Some(FailAt { site, after }));
            let answer = advise(space, (2, 2), Advice::DontFork);
            vm.memory().inject(None);
            match answer {
                Ok(()) => advise(space, (2, 2), Advice::DoFork).unwrap(),
                Err(error) => {
                    assert_eq!(error, MapError::OutOfMemory, "{site:?} {design}");
                    assert_eq!(ranges(space), [(AT, AT + 8)], "{site:?} {design}");
                    refused += 1;
                }
            }
            vm.audit().unwrap();
        }
    }
    let _ = refused;
    finish(&vm, &[space]);
}

/// Superpages come where they are asked for, and nowhere else.
#[test]
fn superpages_are_where_they_are_wanted() {
    const PAGES: u64 = 512;
    let large = |design: &str, advice: Option<Advice>| {
        let vm = vm_with::<Family>(design, 8192);
        let space = vm.create_space().unwrap();
        let request = MapRequest::anonymous(2 * PAGES, RW);
        map_at(space, 8 * PAGES, request);
        if let Some(advice) = advice {
            space.advise(Vpn(8 * PAGES), 2 * PAGES, advice).unwrap();
        }
        touch(&vm, space.id(), 8 * PAGES, Access::Write);
        let found = large_leaves(&vm, space.id());
        vm.audit().unwrap();
        space.exit().unwrap();
        vm.audit().unwrap();
        !found.is_empty()
    };
    let (huge, none) = (Some(Advice::Huge), Some(Advice::NoHuge));
    let wanted = |design| [None, huge, none].map(|advice| large(design, advice));
    assert_eq!(wanted("superpage=advise"), [false, true, false]);
    assert_eq!(wanted("superpage=eager"), [true, true, false]);
    assert_eq!(wanted("superpage=off"), [false, false, false]);
}

#[test]
fn pages_are_not_collapsed_or_put_into_folios_where_large_ones_are_not_wanted() {
    let vm = vm_with::<Family>("superpage=advise,folio=64k", 8192);
    let space = vm.create_space().unwrap();
    for (base, advice) in [(4096, Advice::NoHuge), (8192, Advice::Normal)] {
        map_at(space, base, MapRequest::anonymous(512, RW));
        space.advise(Vpn(base), 512, advice).unwrap();
        touch(&vm, space.id(), base, Access::Write);
    }
    let pages = || space.stats().unwrap().rss.anonymous;
    assert_eq!(pages(), 1 + 16, "one page, and a folio");
    let collapsed = |base| space.collapse(Vpn(base), 1, 1).unwrap().collapsed;
    assert_eq!((collapsed(4096), collapsed(8192)), (0, 1));
    space.advise(Vpn(4096), 512, Advice::Huge).unwrap();
    touch(&vm, space.id(), 4096 + 64, Access::Write);
    assert_eq!(pages(), 1 + 512 + 16);
    assert_eq!(collapsed(4096), 1);
    vm.audit().unwrap();
}

#[test]
fn a_page_of_swap_is_read_alone_where_pages_are_used_in_no_order() {
    for (advice, read) in [(Advice::Normal, 8), (Advice::Random, 1)] {
        let vm = vm_with::<Family>("reclaim=on", 1024);
        vm.swap_on(SwapArea::new(SWAP, 200)).unwrap();
        let space = with_pages(&vm, MapRequest::anonymous(8, RW));
        self::advise(space, (0, 8), Advice::PageOut).unwrap();
        self::advise(space, (0, 8), advice).unwrap();
        vm.platform().take_read();
        assert_eq!(get(space, AT + 3), Ok(4));
        let pages: usize = vm
            .platform()
            .take_read()
            .iter()
            .map(|(_, pages)| pages)
            .sum();
        assert_eq!(pages, read, "{advice:?}");
        vm.audit().unwrap();
    }
}
