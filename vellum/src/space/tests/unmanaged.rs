//! Mappings of frames that the manager does not manage.

use std::collections::BTreeMap;
use std::string::String;

use super::*;
use crate::addr::MemoryType;
use crate::frame::{FailAt, OwnedBlock, Request, Site};
use crate::object::ObjectKind;
use crate::rmap::ReverseMap;
use crate::table::{Aarch64_4K, Sv39};

/// Tests that call a check of one reverse-mapping design and format for each design.
macro_rules! with_each_design_in {
    ($($name:ident => $check:ident in $format:ident;)*) => {$(
        #[test]
        fn $name() {
            for text in crate::design::variants("rmap") {
                let design = Design::parse(&text).unwrap();
                crate::with_rmap!(design.rmap, R => $check::<$format, R>(&text));
            }
        }
    )*};
}

with_each_design_in! {
    frames_of_a_device_are_mapped_at_once_and_nobody_counts_them => at_once in X86_64;
    and_so_on_arm => at_once in Aarch64_4K;
    faults_map_frames_of_a_device_where_that_was_asked => on_fault in X86_64;
    large_leaves_of_a_device_are_split_where_a_part_changes => split in X86_64;
    large_leaves_of_a_device_are_split_on_risc_v => split in Sv39;
    a_mapping_of_a_device_moves_and_shrinks => moved in X86_64;
    what_needs_the_bytes_of_a_device_is_refused => refused in X86_64;
    random_mappings_show_what_was_named => random in X86_64;
    random_mappings_show_what_was_named_on_arm => random in Aarch64_4K;
    a_mapping_at_once_that_lacks_a_table_changes_nothing => without_tables in X86_64;
}

type AnyVm<F, R> = Vm<TestMachine, F, R>;

/// Far beyond the memory of the machine, at the start of a large leaf.
const DEVICE: Pfn = Pfn(0x80_0000);
const LARGE: u64 = 512;
/// At the start of a large leaf, too.
const AT: u64 = 0x10_0000;
const REGISTERS: Prot = RW.with_type(MemoryType::Uncached);

fn machine<F: Format, R: ReverseMap>(design: &str) -> AnyVm<F, R> {
    plain(&std::format!("reclaim=on,aging=generations,{design}"))
}

/// One that does not try again when memory is lacking.
fn plain<F: Format, R: ReverseMap>(design: &str) -> AnyVm<F, R> {
    run_on(0);
    Vm::new(TestMachine::simple(2, 2048), Design::parse(design).unwrap()).unwrap()
}

fn fixed(request: MapRequest, at: u64) -> MapRequest {
    request.at(Placement::Fixed(Vpn(at)))
}

/// Pages of each leaf, by its first page, with frame and rights.
fn all_leaves<F: Format, R: ReverseMap>(
    vm: &AnyVm<F, R>,
    space: SpaceId,
) -> BTreeMap<u64, (Pfn, u64, Prot)> {
    let mut found = BTreeMap::new();
    vm.for_each_leaf(space, |page, frame, pages, prot| {
        found.insert(page.0, (frame, pages, prot));
    })
    .unwrap();
    found
}

fn sizes<F: Format, R: ReverseMap>(vm: &AnyVm<F, R>, space: SpaceId) -> Vec<u64> {
    let mut sizes: Vec<u64> = Vec::new();
    for (_, pages, _) in all_leaves(vm, space).into_values() {
        // Single pages together.
        match sizes.last_mut() {
            Some(last) if pages == 1 && *last < LARGE => *last += 1,
            _ => sizes.push(pages),
        }
    }
    sizes
}

fn shows<F: Format, R: ReverseMap>(
    vm: &AnyVm<F, R>,
    space: SpaceId,
    pages: core::ops::Range<u64>,
    first: Pfn,
    prot: Prot,
) {
    for (step, page) in pages.enumerate() {
        let shown = vm.translate(space, Vpn(page));
        assert_eq!(shown, Some((first.offset(step as u32), prot)), "{page:#x}");
    }
}

fn at_once<F: Format, R: ReverseMap>(design: &str) {
    let vm = machine::<F, R>(design);
    let space = vm.begin_space().unwrap();
    let (before, faults) = (vm.memory().stats(), vm.stats().events.faults);
    let request = MapRequest::frames(DEVICE.offset(510), 2 * LARGE + 5, REGISTERS);
    let at = vm.map(space, &request).unwrap();
    // Three single pages at the ends of two large leaves, wherever that is.
    assert_eq!(at.0 % LARGE, 510);
    assert_eq!(sizes(&vm, space), [2, LARGE, LARGE, 3]);
    let end = at.0 + 2 * LARGE + 5;
    shows(&vm, space, at.0..end, DEVICE.offset(510), REGISTERS);
    vm.audit().unwrap();
    let stats = vm.space_stats(space).unwrap();
    assert_eq!(stats.rss, Rss::default());
    assert_eq!((stats.pages, stats.locked), (2 * LARGE + 5, 0));
    // A child has them, too.
    let child = vm.fork(space).unwrap();
    shows(&vm, child, at.0..end, DEVICE.offset(510), REGISTERS);
    assert_eq!(sizes(&vm, child), [2, LARGE, LARGE, 3]);
    vm.audit().unwrap();
    // Nothing that looks for pages finds one.
    let scanned = vm.scan_space(space, PageRange::new(at, 2 * LARGE)).unwrap();
    assert_eq!(scanned, ScanReport::default());
    assert_eq!(vm.lock_pages(space, at, 20), Ok(()));
    assert_eq!(vm.space_stats(space).unwrap().locked, 0);
    assert_eq!(vm.collapse(space, at, 4, 1).unwrap().collapsed, 0);
    vm.reclaim_pages(100);
    shows(&vm, space, at.0..end, DEVICE.offset(510), REGISTERS);
    assert_eq!(vm.stats().events.faults, faults);
    for space in [child, space] {
        assert_eq!(vm.exit(space), Ok(true));
        vm.audit().unwrap();
    }
    let after = vm.memory().stats();
    assert_eq!(
        after.bytes_zeroed,
        after.bytes_zeroed.min(before.bytes_zeroed + (64 << 12))
    );
    assert_eq!(after.bytes_copied, before.bytes_copied);
}

fn on_fault<F: Format, R: ReverseMap>(design: &str) {
    let vm = machine::<F, R>(design);
    let space = vm.begin_space().unwrap();
    let request = MapRequest::frames(DEVICE.offset(510), 2 * LARGE, RW).on_fault();
    vm.map(space, &fixed(request, AT + 510)).unwrap();
    assert!(all_leaves(&vm, space).is_empty());
    let fault = |space, page, access| vm.fault(space, page << 12, access);
    assert_eq!(fault(space, AT + 510, Access::Read), Ok(Resolved::Mapped));
    assert_eq!(fault(space, AT + 700, Access::Write), Ok(Resolved::Mapped));
    assert_eq!(
        fault(space, AT + 701, Access::Write),
        Ok(Resolved::Spurious)
    );
    // The rest of the last large leaf is not the mapping's.
    assert_eq!(fault(space, AT + 1500, Access::Write), Ok(Resolved::Mapped));
    let execute = fault(space, AT + 700, Access::Execute);
    assert_eq!(execute, Err(FaultError::Protection));
    let pages: Vec<_> = all_leaves(&vm, space).into_iter().collect();
    let single = |page: u64| (AT + page, (DEVICE.offset(page as u32), 1, RW));
    let large = (AT + 512, (DEVICE.offset(512), LARGE, RW));
    assert_eq!(pages, [single(510), large, single(1500)]);
    vm.audit().unwrap();
    // The child's faults find its pages.
    let child = vm.fork(space).unwrap();
    assert!(all_leaves(&vm, child).is_empty());
    assert_eq!(fault(child, AT + 512, Access::Read), Ok(Resolved::Mapped));
    assert_eq!(
        vm.translate(child, Vpn(AT + 512)),
        Some((DEVICE.offset(512), RW))
    );
    let populated = vm.populate(child, Vpn(AT + 510), 2 * LARGE);
    assert_eq!(populated, Ok(()));
    shows(
        &vm,
        child,
        AT + 510..AT + 510 + 2 * LARGE,
        DEVICE.offset(510),
        RW,
    );
    for space in [space, child] {
        vm.audit().unwrap();
        assert_eq!(vm.exit(space), Ok(true));
    }
    vm.audit().unwrap();
}

fn split<F: Format, R: ReverseMap>(design: &str) {
    let vm = machine::<F, R>(design);
    let space = vm.begin_space().unwrap();
    let request = MapRequest::frames(DEVICE, 4 * LARGE, RW);
    vm.map(space, &fixed(request, AT)).unwrap();
    assert_eq!(sizes(&vm, space), [LARGE; 4]);
    // One whole, and a part of another.
    vm.protect(space, Vpn(AT), LARGE, Prot::READ).unwrap();
    assert_eq!(sizes(&vm, space), [LARGE; 4]);
    vm.protect(space, Vpn(AT + LARGE + 7), 5, Prot::NONE)
        .unwrap();
    assert_eq!(sizes(&vm, space), [LARGE, LARGE, LARGE, LARGE]);
    vm.unmap(space, Vpn(AT + 2 * LARGE - 1), 3).unwrap();
    let end = AT + 4 * LARGE;
    let shown = |pages: core::ops::Range<u64>, prot| {
        let first = DEVICE.offset((pages.start - AT) as u32);
        shows(&vm, space, pages, first, prot);
    };
    shown(AT..AT + LARGE, Prot::READ);
    shown(AT + LARGE..AT + LARGE + 7, RW);
    shown(AT + LARGE + 7..AT + LARGE + 12, Prot::NONE);
    shown(AT + LARGE + 12..AT + 2 * LARGE - 1, RW);
    for page in 2 * LARGE - 1..2 * LARGE + 2 {
        assert_eq!(vm.translate(space, Vpn(AT + page)), None);
        let fault = vm.fault(space, (AT + page) << 12, Access::Read);
        assert_eq!(fault, Err(FaultError::NoRegion));
    }
    shown(AT + 2 * LARGE + 2..end, RW);
    assert_eq!(all_leaves(&vm, space)[&(AT + 3 * LARGE)].1, LARGE);
    vm.audit().unwrap();
    // All rights come back, at once.
    for (start, pages) in [(0, 2 * LARGE - 1), (2 * LARGE + 2, 2 * LARGE - 2)] {
        vm.protect(space, Vpn(AT + start), pages, RW).unwrap();
        shown(AT + start..AT + start + pages, RW);
    }
    vm.audit().unwrap();
    assert_eq!(vm.exit(space), Ok(true));
    vm.audit().unwrap();
}

fn moved<F: Format, R: ReverseMap>(design: &str) {
    let vm = machine::<F, R>(design);
    let space = vm.begin_space().unwrap();
    let request = MapRequest::frames(DEVICE, 2 * LARGE, REGISTERS);
    vm.map(space, &fixed(request, AT)).unwrap();
    let remap = |at, pages, new, to| vm.remap(space, Vpn(at), pages, new, to);
    for place in [RemapPlacement::InPlace, RemapPlacement::MayMove] {
        let longer = remap(AT, 2 * LARGE, 2 * LARGE + 1, place);
        assert_eq!(longer, Err(MapError::WrongKind));
    }
    remap(AT, 2 * LARGE, LARGE + 3, RemapPlacement::InPlace).unwrap();
    shows(&vm, space, AT..AT + LARGE + 3, DEVICE, REGISTERS);
    let to = AT + 10 * LARGE + 77;
    vm.map(space, &fixed(MapRequest::anonymous(20, RW), to))
        .unwrap();
    vm.fault(space, to << 12, Access::Write).unwrap();
    remap(AT, LARGE + 3, LARGE + 1, RemapPlacement::Fixed(Vpn(to))).unwrap();
    shows(&vm, space, to..to + LARGE + 1, DEVICE, REGISTERS);
    assert_eq!(all_leaves(&vm, space).len() as u64, LARGE + 1);
    vm.audit().unwrap();
    // From its middle, over a mapping like it.
    let request = MapRequest::frames(DEVICE.offset(9000), LARGE, RW);
    vm.map(space, &fixed(request, AT)).unwrap();
    remap(to + 5, 10, 10, RemapPlacement::Fixed(Vpn(AT + 100))).unwrap();
    shows(&vm, space, AT + 100..AT + 110, DEVICE.offset(5), REGISTERS);
    shows(&vm, space, AT + 110..AT + LARGE, DEVICE.offset(9110), RW);
    vm.audit().unwrap();
    assert_eq!(vm.exit(space), Ok(true));
    vm.audit().unwrap();
}

fn refused<F: Format, R: ReverseMap>(design: &str) {
    let vm = machine::<F, R>(design);
    let space = vm.begin_space().unwrap();
    // Only frames that are nobody's.
    let own = vm.memory().span();
    let zero = vm.zero_page;
    for (first, pages) in [
        (own.0, 1),
        (zero, 1),
        (Pfn(own.0.0 - 1), 2),
        (Pfn(own.1.0 - 1), 1),
        (Pfn(u32::MAX), 1),
        (Pfn(u32::MAX - 10), 11),
        (DEVICE, 1 << 33),
    ] {
        for request in [
            MapRequest::frames(first, pages, RW),
            MapRequest::frames(first, pages, RW).on_fault(),
        ] {
            let mapped = vm.map(space, &request);
            assert_eq!(mapped, Err(MapError::Managed), "{first:?}, {pages}");
        }
    }
    assert_eq!(
        vm.map(space, &MapRequest::frames(DEVICE, 0, RW)),
        Err(MapError::BadRange)
    );
    vm.map(space, &MapRequest::frames(Pfn(own.0.0 - 1), 1, RW))
        .unwrap();
    vm.map(space, &MapRequest::frames(own.1, 1, RW)).unwrap();
    // Nobody makes copies of them.
    let private = |prot| MapRequest {
        traits: Traits::NONE,
        ..MapRequest::frames(DEVICE, 4, prot)
    };
    assert_eq!(vm.map(space, &private(RW)), Err(MapError::Rights));
    let at = vm.map(space, &private(Prot::READ)).unwrap();
    assert_eq!(vm.protect(space, at, 1, RW), Err(MapError::Rights));
    assert_eq!(vm.protect(space, at, 1, Prot::READ_EXECUTE), Ok(()));
    let forced = vm.space(space).write_forced(at.0 << 12, &[1]);
    assert_eq!(forced, Err(FaultError::Unmanaged));
    let growing = MapRequest::frames(DEVICE, 4, RW).growing_down();
    assert_eq!(vm.map(space, &growing), Err(MapError::WrongKind));
    let locked = MapRequest {
        traits: Traits::SHARED.union(Traits::LOCKED),
        ..MapRequest::frames(DEVICE, 4, RW)
    };
    vm.map(space, &locked).unwrap();
    assert_eq!(vm.space_stats(space).unwrap().locked, 0);

    for request in [
        MapRequest::frames(DEVICE, LARGE, RW),
        MapRequest::frames(DEVICE, LARGE, RW).on_fault(),
    ] {
        let at = vm.map(space, &request).unwrap();
        let (user, address) = (vm.space(space), at.0 << 12);
        let unmanaged = FaultError::Unmanaged;
        assert_eq!(user.read(address, &mut [0; 8]), Err(unmanaged));
        assert_eq!(user.write(address, &[0; 8]), Err(unmanaged));
        assert_eq!(user.read_string(address, &mut [0; 8]), Err(unmanaged));
        assert_eq!(user.read_forced(address, &mut [0; 8]), Err(unmanaged));
        assert_eq!(user.write_forced(address, &[0; 8]), Err(unmanaged));
        let word = user.update_word(address, Some);
        assert_eq!(word, Err(UpdateError::Fault(unmanaged)));
        for access in [Access::Read, Access::Write] {
            let frames = &mut [Pfn::NONE; 2];
            let pinned = user.pin_pages(at, access, frames);
            assert_eq!(pinned.err(), Some(PinError::Fault(unmanaged)));
        }
        for advice in [
            Advice::DontNeed,
            Advice::Free,
            Advice::Cold,
            Advice::PageOut,
        ] {
            assert_eq!(
                user.advise(at, 1, advice),
                Err(MapError::WrongKind),
                "{advice:?}"
            );
        }
        // What it shows can be asked, and not be used as a name.
        let (id, kind, page) = user.region_at(at).unwrap().object.unwrap();
        assert!(matches!(kind, ObjectKind::Unmanaged { first: DEVICE, .. }));
        assert_eq!(page, 0);
        let again = vm.map(space, &MapRequest::object(id, 0, 1, RW));
        assert_eq!(again, Err(MapError::NoObject));
        assert_eq!(vm.file(id).release(), Err(FileError::NoObject));
        assert_eq!(vm.file(id).set_size(0), Err(FileError::NoObject));
    }
    vm.audit().unwrap();
    assert_eq!(vm.exit(space), Ok(true));
    vm.audit().unwrap();
}

#[test]
fn frames_that_the_embedder_reserved_are_mapped_and_stay() {
    let vm = vm();
    let space = vm.begin_space().unwrap();
    let pin = vm.pin();
    let block = vm
        .memory()
        .alloc(&pin, Request::page(Site::AnonymousPage).order(2))
        .unwrap();
    let held = MapRequest::frames(block.first(), 4, Prot::READ);
    assert_eq!(
        vm.map(space, &held),
        Err(MapError::Managed),
        "it could be given back"
    );
    block.write(&pin, 0, &[7]);
    let first = OwnedBlock::reserve(block);
    drop(pin);
    let too_many = MapRequest::frames(first, 5, Prot::READ);
    assert_eq!(vm.map(space, &too_many), Err(MapError::Managed));
    let at = vm.map(space, &held).unwrap();
    shows(&vm, space, at.0..at.0 + 4, first, Prot::READ);
    vm.audit().unwrap();
    assert_eq!(vm.exit(space), Ok(true));
    vm.audit().unwrap();
    assert_eq!(vm.platform().peek(first)[0], 7);
}

fn without_tables<F: Format, R: ReverseMap>(design: &str) {
    let vm = plain::<F, R>(design);
    let space = vm.begin_space().unwrap();
    let file = vm.stored_pages(3, 40).unwrap();
    vm.map(space, &fixed(MapRequest::anonymous(40, RW), AT + 500))
        .unwrap();
    vm.map(
        space,
        &fixed(MapRequest::object(file, 0, 40, RW), AT + 1000),
    )
    .unwrap();
    let device = MapRequest::frames(DEVICE, 2 * LARGE, RW);
    vm.map(space, &fixed(device, AT + 2 * LARGE)).unwrap();
    for page in [500, 520, 1010] {
        vm.fault(space, (AT + page) << 12, Access::Write).unwrap();
    }
    let state = |vm: &AnyVm<F, R>| {
        let mut regions = Vec::new();
        vm.for_each_region(space, |entry| regions.push(*entry))
            .unwrap();
        let tables = vm.space_stats(space).unwrap().table_bytes;
        // A large leaf may have been split by then.
        let frames: BTreeMap<u64, Pfn> = all_leaves(vm, space)
            .into_iter()
            .flat_map(|(page, (frame, pages, _))| {
                (0..pages).map(move |step| (page + step, frame.offset(step as u32)))
            })
            .collect();
        (regions, frames, tables)
    };
    let sites = [
        Site::TablePage,
        Site::Region,
        Site::Object,
        Site::RegionNode,
    ];
    let request = fixed(
        MapRequest::frames(DEVICE.offset(77), 3 * LARGE, RW),
        AT + 510,
    );
    for site in sites {
        for after in 0.. {
            let before = state(&vm);
            vm.memory().inject(Some(FailAt { site, after }));
            let mapped = vm.map(space, &request);
            let reached = vm.memory().reached(site) > u64::from(after);
            vm.memory().inject(None);
            vm.audit()
                .unwrap_or_else(|error| panic!("{site:?} {after}: {error}"));
            if mapped.is_ok() {
                assert!(!reached || site != Site::TablePage, "{site:?} {after}");
                break;
            }
            assert_eq!(mapped, Err(MapError::OutOfMemory));
            let now = state(&vm);
            assert_eq!((&now.0, &now.1), (&before.0, &before.1), "{site:?} {after}");
            assert!(now.2 <= before.2 + (2 << 12), "{site:?} {after}");
        }
        // Again as it was.
        vm.unmap(space, Vpn(AT), 8 * LARGE).unwrap();
        vm.map(space, &fixed(MapRequest::anonymous(40, RW), AT + 500))
            .unwrap();
        vm.fault(space, (AT + 520) << 12, Access::Write).unwrap();
        vm.map(space, &fixed(device, AT + 2 * LARGE)).unwrap();
        for after in 0.. {
            let before = state(&vm);
            vm.memory().inject(Some(FailAt { site, after }));
            let child = vm.fork(space);
            let cut = vm.unmap(space, Vpn(AT + 3 * LARGE + 9), 1);
            vm.memory().inject(None);
            vm.audit()
                .unwrap_or_else(|error| panic!("{site:?} {after}: {error}"));
            if let Ok(child) = child {
                vm.exit(child).unwrap();
            }
            if cut.is_ok() {
                break;
            }
            let now = state(&vm);
            assert_eq!((&now.0, &now.1), (&before.0, &before.1), "{site:?} {after}");
        }
    }
    assert_eq!(vm.exit(space), Ok(true));
    vm.audit().unwrap();
}

/// What a page of the model shows.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Page {
    Private,
    /// The frame, whether it has an entry for sure, and its rights.
    Device(u32, bool, Prot),
}

fn random<F: Format, R: ReverseMap>(design: &str) {
    const PAGES: u64 = 3 * LARGE;
    let vm = machine::<F, R>(design);
    let mut rng = Rng::new(58);
    let mut spaces = std::vec![(vm.begin_space().unwrap(), BTreeMap::<u64, Page>::new())];
    let kinds = [
        RW,
        Prot::READ,
        REGISTERS,
        Prot::READ.with_type(MemoryType::WriteCombining),
    ];
    for step in 0..160 {
        let count = spaces.len();
        let which = rng.below(count);
        let log = String::from(design) + &std::format!(", step {step}");
        let (id, model) = &mut spaces[which];
        let (id, start) = (*id, rng.below(PAGES as usize) as u64);
        let most = PAGES - start;
        let pages = (1 + rng.below(most as usize) as u64).min(1 + rng.below(700) as u64);
        let range = start..start + pages;
        let at = Vpn(AT + start);
        match rng.below(12) {
            0..3 => {
                // Aligned like the pages, or not.
                let first = (start + rng.below(2) as u64 * 3) as u32;
                let (prot, at_once) = (kinds[rng.below(4)], rng.below(2) == 0);
                let request = MapRequest::frames(DEVICE.offset(first), pages, prot);
                let request = if at_once { request } else { request.on_fault() };
                vm.map(id, &fixed(request, at.0)).unwrap();
                for (step, page) in range.enumerate() {
                    model.insert(page, Page::Device(first + step as u32, at_once, prot));
                }
            }
            3 => {
                vm.map(id, &fixed(MapRequest::anonymous(pages, RW), at.0))
                    .unwrap();
                model.extend(range.map(|page| (page, Page::Private)));
            }
            4 => {
                vm.unmap(id, at, pages).unwrap();
                model.retain(|page, _| !range.contains(page));
            }
            5 | 6 => {
                let prot = [RW, Prot::READ, Prot::NONE][rng.below(3)];
                let is_mapped = range.clone().all(|page| model.contains_key(&page));
                let result = vm.protect(id, at, pages, prot);
                assert_eq!(result.is_ok(), is_mapped, "{log}");
                if is_mapped {
                    for page in range {
                        if let Some(Page::Device(_, _, now)) = model.get_mut(&page) {
                            *now = prot.with_type(now.memory_type());
                        }
                    }
                }
            }
            7 | 8 => {
                let to = PAGES + rng.below(PAGES as usize) as u64;
                let place = RemapPlacement::Fixed(Vpn(AT + to));
                if vm.remap(id, at, pages, pages, place).is_ok() {
                    let moved: Vec<_> = range.map(|page| model.remove(&page)).collect();
                    for (step, page) in moved.into_iter().enumerate() {
                        model.insert(to + step as u64, page.unwrap());
                    }
                }
            }
            9 if count < 4 => {
                let model = model.clone();
                spaces.push((vm.fork(id).unwrap(), model));
            }
            10 if count > 1 => {
                assert_eq!(vm.exit(id), Ok(true));
                spaces.swap_remove(which);
            }
            _ => {
                for page in start..start + 4 {
                    let resolved = vm.fault(id, (AT + page) << 12, Access::Read);
                    let wanted = match model.get(&page) {
                        None => Err(FaultError::NoRegion),
                        Some(Page::Device(_, _, prot)) if !prot.can_read() => {
                            Err(FaultError::Protection)
                        }
                        Some(Page::Device(_, true, _)) => Ok(Resolved::Spurious),
                        Some(_) => continue,
                    };
                    if let (Some(Page::Device(_, false, _)), Ok(_)) = (model.get(&page), resolved) {
                        continue;
                    }
                    assert_eq!(resolved, wanted, "{log}, page {page}");
                }
            }
        }
        if step % 8 > 0 {
            continue;
        }
        vm.audit().unwrap_or_else(|error| panic!("{log}: {error}"));
        for (id, model) in &spaces {
            for page in 0..2 * PAGES {
                let shown = vm.translate(*id, Vpn(AT + page));
                match model.get(&page) {
                    None => assert_eq!(shown, None, "{log}, page {page}"),
                    Some(&Page::Device(frame, at_once, prot)) => {
                        let wanted = Some((
                            DEVICE.offset(frame),
                            F::prot(F::leaf(Pfn(1), 1, prot, Default::default()), 1),
                        ));
                        assert!(
                            shown == wanted || !at_once && shown.is_none(),
                            "{log}, page {page}: {shown:?}"
                        );
                    }
                    Some(Page::Private) => {
                        assert!(shown.is_none_or(|(frame, _)| vm.memory().contains(frame)));
                    }
                }
            }
        }
    }
    for (id, _) in spaces {
        vm.exit(id).unwrap();
    }
    vm.audit().unwrap();
}
