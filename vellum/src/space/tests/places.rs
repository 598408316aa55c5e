//! Places that are none: past the end of what a user space can map, on both
//! sides of that edge, and around the end of 64 bits. Every call that takes an
//! address or a range refuses them, or finds nothing, and changes nothing.

use std::fmt::Debug;
use std::vec::Vec;

use super::*;
use crate::design::TableFormat;
use crate::frame::Counts;
use crate::object::INDEX_END;
use crate::rmap::Family;
use crate::table::Format;
use crate::vm::AuditReport;

/// Where pages are mapped, beside the last page there is.
const AT: u64 = 0x1234;
const MAPPED: u64 = 4;

type Manager<F> = Vm<TestMachine, F, Family>;

struct World<F: Format> {
    vm: Manager<F>,
    space: SpaceId,
    file: ObjectId,
    /// What a caller saw last.
    seen: Option<State>,
}

/// What a caller can see.
#[derive(PartialEq, Debug)]
struct State {
    regions: Vec<MapEntry>,
    leaves: Vec<(Vpn, Pfn, Prot, Counts)>,
    report: AuditReport,
    stats: Option<SpaceStats>,
    heap: Option<PageRange>,
    length: Option<u64>,
}

impl<F: Format> World<F> {
    fn new() -> Self {
        run_on(0);
        let machine = TestMachine::with_frames(2, 256, F::FRAME_SHIFT);
        let design = Design::parse("superpage=eager,folio=64k").unwrap();
        let vm = Vm::new(machine, design).unwrap();
        let space = vm.begin_space().unwrap();
        let file = vm.stored_pages(1, 8).unwrap();
        let mut world = World {
            vm,
            space,
            file,
            seen: None,
        };
        for (start, pages) in [(AT, MAPPED), (F::USER_END.0 - 1, 1)] {
            let request = MapRequest::anonymous(pages, RW).at(Placement::Fixed(Vpn(start)));
            assert_eq!(world.vm.map(space, &request), Ok(Vpn(start)));
            world.vm.populate(space, Vpn(start), pages).unwrap();
        }
        world.seen = Some(world.state());
        world
    }

    fn state(&self) -> State {
        let (vm, space) = (&self.vm, self.space);
        let mut regions = Vec::new();
        vm.for_each_region(space, |entry| regions.push(*entry))
            .unwrap();
        let mut leaves = Vec::new();
        vm.for_each_leaf(space, |page, frame, _, prot| {
            let counts = vm.memory.frame(frame).counts();
            leaves.push((page, frame, prot, counts));
        })
        .unwrap();
        State {
            regions,
            leaves,
            report: vm.audit().unwrap(),
            stats: vm.space_stats(space),
            heap: vm.heap(space),
            length: vm.page_cache().size(self.file),
        }
    }

    /// That `call` answers `expected` and changes nothing.
    fn refuses<T: PartialEq + Debug>(
        &self,
        what: &str,
        place: impl Debug,
        expected: T,
        call: impl FnOnce(&Manager<F>, SpaceId) -> T,
    ) {
        let answer = call(&self.vm, self.space);
        let format = F::NAME;
        assert_eq!(answer, expected, "{what} of {place:x?} on {format}");
        assert_eq!(
            Some(self.state()),
            self.seen,
            "{what} of {place:x?} on {format}"
        );
    }
}

/// First page and number of pages: at least one of them is none.
fn past_the_end<F: Format>() -> Vec<(u64, u64)> {
    let end = F::USER_END.0;
    let mut places = std::vec![
        (end, 1),
        (end - 1, 2),
        (end + 1, 1),
        (end | AT, MAPPED),
        (0, end + 1),
        (AT, end),
        (AT, u64::MAX),
        (end - 1, u64::MAX),
        (u64::MAX, 1),
        (u64::MAX, 2),
        (u64::MAX - 1, 2),
        (u64::MAX, u64::MAX),
        // The end wraps around to page 0, and into the mapped pages.
        (AT, AT.wrapping_neg()),
        (end, end.wrapping_neg()),
        (end, (AT + 2).wrapping_sub(end)),
    ];
    // The mapped pages with a bit more: tables would be indexed alike, or the
    // address would be the same.
    for bit in u64::BITS - (F::USER_END.0 - 1).leading_zeros()..64 {
        places.push((1 << bit | AT, 1));
        places.push((1 << bit | AT, MAPPED));
    }
    places
}

fn check_ranges<F: Format>() {
    let world = World::<F>::new();
    let empty = [0, AT, F::USER_END.0 - 1, F::USER_END.0, u64::MAX].map(|start| (start, 0));
    for (start, pages) in past_the_end::<F>().into_iter().chain(empty) {
        let place = (start, pages);
        let first = Vpn(start);
        for placement in [Placement::Fixed(first), Placement::FixedFree(first)] {
            let request = MapRequest::anonymous(pages, RW).at(placement);
            let bad = Err(MapError::BadRange);
            world.refuses("map", place, bad, |vm, id| vm.map(id, &request));
            let file = MapRequest {
                source: Source::Object {
                    id: world.file,
                    page: 0,
                },
                ..request
            };
            world.refuses("map a file", place, bad, |vm, id| vm.map(id, &file));
        }
        let bad = Err(MapError::BadRange);
        world.refuses("unmap", place, bad, |vm, id| vm.unmap(id, first, pages));
        world.refuses("protect", place, bad, |vm, id| {
            vm.protect(id, first, pages, Prot::READ)
        });
        for advice in [
            Advice::DontNeed,
            Advice::Free,
            Advice::PageOut,
            Advice::Folio(Some(4)),
        ] {
            world.refuses("advise", place, bad, |vm, id| {
                vm.advise(id, first, pages, advice)
            });
        }
        // Of no pages, what is mapped there is to be mapped once more, if it is shared.
        let shown = world.vm.region_at(world.space, first);
        let refused = Err(match shown {
            Some(_) if pages == 0 => MapError::WrongKind,
            None if pages == 0 && first < F::USER_END => MapError::NotMapped,
            _ => MapError::BadRange,
        });
        for placement in [
            RemapPlacement::MayMove,
            RemapPlacement::InPlace,
            RemapPlacement::Fixed(Vpn(AT + 0x100)),
        ] {
            world.refuses("remap", place, refused, |vm, id| {
                vm.remap(id, first, pages, 1, placement)
            });
        }
        let bad = Err(MapError::BadRange);
        world.refuses("remap to", place, bad, |vm, id| {
            vm.remap(id, Vpn(AT), MAPPED, pages, RemapPlacement::Fixed(first))
        });
        let nothing = Err(FaultError::NoRegion);
        world.refuses("populate", place, nothing, |vm, id| {
            vm.populate(id, first, pages)
        });
        let range = PageRange {
            start: first,
            end: Vpn(start.saturating_add(pages)),
        };
        world.refuses("is_accessible", range, Ok(range.is_empty()), |vm, id| {
            vm.is_accessible(id, range, Access::Read)
        });
    }
}

fn check_pages<F: Format>() {
    let world = World::<F>::new();
    for (start, pages) in past_the_end::<F>() {
        let first = Vpn(start);
        let place = (start, pages);
        for access in [Access::Read, Access::Write] {
            let mut frames = [Pfn::NONE; 16];
            let count = pages.min(16) as usize;
            if start
                .checked_add(count as u64)
                .is_none_or(|end| end > F::USER_END.0)
            {
                let refused = Err(PinError::Fault(FaultError::NoRegion));
                world.refuses("pin_pages", place, refused, |vm, id| {
                    vm.pin_pages(id, first, access, &mut frames[..count])
                });
                assert_eq!(frames, [Pfn::NONE; 16]);
            }
        }
        let range = PageRange {
            start: first.max(F::USER_END),
            end: Vpn(start.saturating_add(pages)),
        };
        let nothing = Some(ScanReport::default());
        world.refuses("scan_space", range, nothing, |vm, id| {
            vm.scan_space(id, range)
        });
        let made = Ok(0);
        world.refuses("collapse", place, made, |vm, id| {
            Ok::<u64, MapError>(vm.collapse(id, first, pages, 1)?.collapsed)
        });
        if first < F::USER_END {
            continue;
        }
        world.refuses("translate", place, None, |vm, id| vm.translate(id, first));
        world.refuses("came_in_superpage", place, false, |vm, id| {
            vm.came_in_superpage(id, first)
        });
        world.refuses("came_in_folio", place, false, |vm, id| {
            vm.came_in_folio(id, first)
        });
        world.refuses("region_at", place, None, |vm, id| vm.region_at(id, first));
        let bad = Err(MapError::BadRange);
        world.refuses("set_heap_start", place, bad, |vm, id| {
            vm.set_heap_start(id, first)
        });
        for access in [Access::Read, Access::Write, Access::Execute] {
            // As far as the page has an address.
            if let Some(page) = start.checked_mul(F::FRAME_SIZE as u64) {
                let nothing = Err(FaultError::NoRegion);
                world.refuses("fault", page, nothing, |vm, id| vm.fault(id, page, access));
            }
        }
    }
    for access in [Access::Read, Access::Write, Access::Execute] {
        let nothing = Err(FaultError::NoRegion);
        world.refuses("fault", u64::MAX, nothing, |vm, id| {
            vm.fault(id, u64::MAX, access)
        });
    }
}

/// Runs a check on every format.
macro_rules! on_formats {
    ($check:ident) => {
        for &format in TableFormat::ALL {
            crate::with_format!(format, F => $check::<F>());
        }
    };
}

#[test]
fn ranges_that_no_space_can_have_are_refused() {
    on_formats!(check_ranges);
}

#[test]
fn pages_that_no_space_can_have_are_not_found() {
    on_formats!(check_pages);
}

fn check_last_page<F: Format>() {
    let World { vm, space, .. } = World::<F>::new();
    let last = Vpn(F::USER_END.0 - 1);
    let range = PageRange::new(last, 1);
    assert_eq!(vm.is_accessible(space, range, Access::Write), Ok(true));
    assert_eq!(
        vm.region_at(space, last).map(|found| found.range),
        Some(range)
    );
    let mut frames = [Pfn::NONE];
    assert_eq!(
        vm.pin_pages(space, last, Access::Write, &mut frames),
        Ok(())
    );
    assert_eq!(vm.translate(space, last), Some((frames[0], RW)));
    // SAFETY: pinned above, and not unpinned since.
    unsafe { vm.unpin(&frames) };
    let address = last.address::<F>() | (F::FRAME_SIZE as u64 - 1);
    assert_eq!(
        vm.fault(space, address, Access::Write),
        Ok(Resolved::Spurious)
    );
    let report = vm.scan_space(space, range).unwrap();
    assert_eq!((report.pages, report.hits), (1, 1));
    assert_eq!(vm.unmap(space, last, 1), Ok(()));
    assert_eq!(vm.translate(space, last), None);
}

#[test]
fn the_last_page_is_like_others() {
    on_formats!(check_last_page);
}

#[test]
fn lengths_that_nothing_can_have_are_refused() {
    let mut world = World::<X86_64>::new();
    for pages in [
        X86_64::USER_END.0,
        X86_64::USER_END.0 + 1,
        u64::MAX - 1,
        u64::MAX,
    ] {
        let anywhere = MapRequest::anonymous(pages, RW);
        let no_gap = Err(MapError::NoGap);
        world.refuses("map", pages, no_gap, |vm, id| vm.map(id, &anywhere));
        let refused = if pages > X86_64::USER_END.0 {
            MapError::BadRange
        } else {
            MapError::NoGap
        };
        for placement in [RemapPlacement::MayMove, RemapPlacement::InPlace] {
            let result = world
                .vm
                .remap(world.space, Vpn(AT), MAPPED, pages, placement);
            let refused = match placement {
                RemapPlacement::InPlace if refused == MapError::NoGap => MapError::Occupied,
                _ => refused,
            };
            assert_eq!(
                result,
                Err(refused),
                "remap to {pages:#x} pages, {placement:?}"
            );
        }
    }
    world.refuses(
        "set_heap_end",
        u64::MAX,
        Err(MapError::BadRange),
        |vm, id| vm.set_heap_end(id, Vpn(u64::MAX)),
    );
    assert_eq!(world.vm.set_heap_start(world.space, Vpn(0x8000)), Ok(()));
    world.seen = Some(world.state());
    for end in [X86_64::USER_END.0 + 1, u64::MAX] {
        world.refuses("set_heap_end", end, Err(MapError::BadRange), |vm, id| {
            vm.set_heap_end(id, Vpn(end))
        });
    }
}

#[test]
fn places_that_no_object_has_are_refused() {
    let mut world = World::<X86_64>::new();
    let file = world.file;
    for (first, pages) in [
        (8, 1),
        (8, u64::MAX),
        (INDEX_END, 1),
        (INDEX_END - 1, 2),
        (u64::MAX, 1),
        (u64::MAX, 0),
        (u64::MAX - 1, u64::MAX),
        (0, 0),
    ] {
        let place = (first, pages);
        world.refuses("read_pages", place, Ok(0), |vm, _| {
            vm.page_cache()
                .read_pages(file, first, pages, |_, _| panic!("there is no page"))
        });
        world.refuses(
            "scan_object",
            place,
            Some(ScanReport::default()),
            |vm, _| vm.scan_object(file, first, pages),
        );
        if pages > 0 && first.saturating_add(pages) > INDEX_END {
            let past = Err(FileError::TooLarge);
            world.refuses("write_pages", place, past, |vm, _| {
                vm.page_cache()
                    .write_pages(file, first, pages, |_, _| panic!("there is no page"))
            });
            let request = MapRequest {
                source: Source::Object {
                    id: file,
                    page: first,
                },
                ..MapRequest::anonymous(pages, RW)
            };
            let bad = Err(MapError::BadRange);
            world.refuses("map", place, bad, |vm, id| vm.map(id, &request));
        }
    }
    // A region at the very end of what an object can hold does not grow.
    let request = MapRequest {
        source: Source::Object {
            id: file,
            page: INDEX_END - 1,
        },
        ..MapRequest::anonymous(1, RW)
    };
    let page = world.vm.map(world.space, &request).unwrap();
    world.seen = Some(world.state());
    for placement in [
        RemapPlacement::MayMove,
        RemapPlacement::Fixed(Vpn(AT + 0x100)),
    ] {
        world.refuses("remap", placement, Err(MapError::BadRange), |vm, id| {
            vm.remap(id, page, 1, 2, placement)
        });
    }
    let end = INDEX_END - 1;
    world.refuses("fault", end, Err(FaultError::PastEnd), |vm, id| {
        vm.fault(id, page.address::<X86_64>(), Access::Read)
    });
}
