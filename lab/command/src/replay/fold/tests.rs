//! What becomes of events on pages of 16 KiB: four recorded pages each.

use vellum_engine::Pages;

use super::Fold;
use vellum_trace::{Access, EventKind, FileId, MapOrigin, Prot, TaskId};

const READ: Prot = Prot(1);
const WRITE: Prot = Prot(3);

fn fold() -> Fold {
    let pages = Pages {
        shift: 14,
        user_end: 1 << 34,
    };
    Fold::new(pages, 3, None).expect("the pages are others")
}

fn events(fold: &mut Fold, task: u32, kind: EventKind) -> Vec<EventKind> {
    let mut out = Vec::new();
    fold.event(TaskId(task), kind, &mut out)
        .expect("there is room");
    out
}

fn map(start: u64, pages: u64, prot: Prot, file: Option<(u32, u64)>) -> EventKind {
    EventKind::Map {
        address: start << 12,
        length: pages << 12,
        prot,
        shared: false,
        grows_down: false,
        file: file.map(|(file, _)| FileId(file)),
        offset: file.map_or(0, |(_, page)| page << 12),
        origin: MapOrigin::Mmap,
    }
}

fn unmap(start: u64, pages: u64) -> EventKind {
    EventKind::Unmap {
        address: start << 12,
        length: pages << 12,
    }
}

fn protect(start: u64, pages: u64, prot: Prot) -> EventKind {
    EventKind::Protect {
        address: start << 12,
        length: pages << 12,
        prot,
    }
}

fn remap(old: (u64, u64), new: (u64, u64)) -> EventKind {
    EventKind::Remap {
        address: old.0 << 12,
        length: old.1 << 12,
        new_address: new.0 << 12,
        new_length: new.1 << 12,
    }
}

fn fault(page: u64, access: Access) -> EventKind {
    EventKind::Fault {
        address: page << 12,
        access,
        kernel: false,
        present: false,
    }
}

fn advise(start: u64, pages: u64, advice: u32) -> EventKind {
    EventKind::Advise {
        address: start << 12,
        length: pages << 12,
        advice,
    }
}

#[test]
fn the_recorded_pages_need_no_fold() {
    assert!(Fold::new(Pages::X86_64, 1, None).is_none());
    let wider = Pages {
        shift: 12,
        user_end: 1 << 44,
    };
    assert!(Fold::new(wider, 1, None).is_none());
}

#[test]
fn a_mapping_is_rounded_outwards_and_leaves_the_pages_of_others_alone() {
    let mut fold = fold();
    // Pages 6..14: large pages 1, 2 and 3.
    let first = map(6, 8, WRITE, None);
    assert_eq!(events(&mut fold, 0, first), [map(1, 3, WRITE, None)]);
    // 14..20 shares large page 3 with it.
    let second = map(14, 6, WRITE, Some((5, 8)));
    assert_eq!(
        events(&mut fold, 0, second),
        [map(4, 1, WRITE, Some((5, 2)))]
    );
    // Within one large page: only its rights may change.
    assert_eq!(events(&mut fold, 0, map(5, 1, READ, None)), []);
    let executable = Prot(5);
    let wanted = protect(1, 1, Prot(7));
    assert_eq!(events(&mut fold, 0, map(4, 1, executable, None)), [wanted]);
    // Over everything that was there.
    let over = map(4, 16, READ, None);
    assert_eq!(events(&mut fold, 0, over), [map(1, 4, READ, None)]);
}

#[test]
fn a_large_page_goes_with_its_last_part() {
    let mut fold = fold();
    events(&mut fold, 0, map(8, 12, WRITE, None));
    assert_eq!(events(&mut fold, 0, unmap(9, 4)), [], "8 and 13.. are left");
    assert_eq!(events(&mut fold, 0, unmap(13, 5)), [unmap(3, 1)]);
    assert_eq!(events(&mut fold, 0, unmap(8, 1)), [unmap(2, 1)]);
    assert_eq!(events(&mut fold, 0, unmap(0, 100)), [unmap(0, 25)]);
    assert_eq!(events(&mut fold, 0, unmap(0, 100)), [], "nothing is mapped");
}

#[test]
fn a_large_page_allows_what_any_of_its_parts_allows() {
    let mut fold = fold();
    events(&mut fold, 0, map(0, 16, WRITE, None));
    // 2..10: large page 1 whole, halves of 0 and 2 that stay writable.
    let change = protect(2, 8, READ);
    assert_eq!(events(&mut fold, 0, change), [protect(1, 1, READ)]);
    assert_eq!(
        events(&mut fold, 0, protect(0, 2, READ)),
        [protect(0, 1, READ)]
    );
    // A store to page 9 is refused, to page 10 it is not; both are large page 2.
    assert_eq!(events(&mut fold, 0, fault(9, Access::Write)), []);
    let store = fault(10, Access::Write);
    assert_eq!(events(&mut fold, 0, store), [fault(2, Access::Write)]);
    let refused = fault(5, Access::Write);
    assert_eq!(events(&mut fold, 0, refused), [fault(1, Access::Write)]);
    // The writable half goes, and with it the right.
    assert_eq!(events(&mut fold, 0, unmap(10, 2)), [protect(2, 1, READ)]);
}

#[test]
fn advice_to_drop_is_rounded_inwards_and_to_populate_outwards() {
    let mut fold = fold();
    events(&mut fold, 0, map(0, 18, WRITE, None));
    assert_eq!(events(&mut fold, 0, advise(1, 10, 4)), [advise(1, 1, 4)]);
    assert_eq!(events(&mut fold, 0, advise(1, 2, 4)), []);
    // Pages 16 and 17 are all there is of large page 4.
    assert_eq!(events(&mut fold, 0, advise(12, 6, 4)), [advise(3, 2, 4)]);
    assert_eq!(events(&mut fold, 0, advise(1, 10, 23)), [advise(0, 3, 23)]);
}

#[test]
fn a_move_takes_the_large_pages_that_it_leaves_empty() {
    let mut fold = fold();
    events(&mut fold, 0, map(0, 16, WRITE, None));
    // 2..16 leaves large page 0 half mapped; at 102.. it needs pages 25 to 28.
    let wanted = remap((1, 3), (25, 4));
    assert_eq!(events(&mut fold, 0, remap((2, 14), (102, 14))), [wanted]);
    // Two pages within one large page: nothing becomes empty there.
    events(&mut fold, 0, map(202, 1, READ, None));
    assert_eq!(
        events(&mut fold, 0, remap((104, 2), (200, 2))),
        [protect(50, 1, WRITE)],
        "the target is another's, which now allows stores"
    );
    // In place: the last large page's mapping grows, or the tail goes.
    assert_eq!(
        events(&mut fold, 0, remap((106, 10), (106, 12))),
        [remap((28, 1), (28, 2))]
    );
    assert_eq!(
        events(&mut fold, 0, remap((106, 12), (106, 4))),
        [unmap(28, 2)]
    );
}

#[test]
fn the_heap_begins_where_no_other_mapping_is() {
    let brk = |page: u64| EventKind::Brk { end: page << 12 };
    let mut fold = fold();
    events(&mut fold, 0, map(0, 6, WRITE, None));
    assert_eq!(
        events(&mut fold, 0, brk(6)),
        [brk(2)],
        "large page 1 is taken"
    );
    assert_eq!(events(&mut fold, 0, brk(8)), [brk(2)]);
    assert_eq!(events(&mut fold, 0, brk(17)), [brk(5)]);
    assert_eq!(events(&mut fold, 0, brk(12)), [brk(3)]);
    assert_eq!(events(&mut fold, 0, brk(6)), [brk(2)]);
    events(&mut fold, 1, map(0, 4, WRITE, None));
    assert_eq!(
        events(&mut fold, 1, brk(6)),
        [brk(1)],
        "large page 1 is free"
    );
    assert_eq!(events(&mut fold, 1, brk(7)), [brk(2)]);
}

#[test]
fn files_are_counted_in_large_pages() {
    let mut fold = fold();
    let read = |offset, length| EventKind::FileRead {
        file: FileId(0),
        offset,
        length,
    };
    assert_eq!(
        events(&mut fold, 0, read(20_000, 20_000)),
        [read(4096, 8192)]
    );
    let size = |size| EventKind::Truncate {
        file: FileId(0),
        size,
    };
    assert_eq!(events(&mut fold, 0, size(16_385)), [size(8192)]);
    assert_eq!(events(&mut fold, 0, size(0)), [size(0)]);
    assert_eq!((fold.file_pages(0), fold.file_pages(5)), (0, 2));
    // The file's page 7 lies in its large page 1, and so on from there.
    let mapping = map(9, 8, READ, Some((0, 7)));
    assert_eq!(
        events(&mut fold, 0, mapping),
        [map(2, 3, READ, Some((0, 1)))]
    );
}

#[test]
fn a_forked_space_goes_its_own_way() {
    let mut fold = fold();
    events(&mut fold, 0, map(0, 4, WRITE, None));
    let fork = |child, clone_flags| EventKind::Create {
        child: TaskId(child),
        clone_flags,
    };
    assert_eq!(events(&mut fold, 0, fork(1, 0)), [fork(1, 0)]);
    events(&mut fold, 0, fork(2, 0x100));
    assert_eq!(events(&mut fold, 1, unmap(0, 2)), []);
    assert_eq!(events(&mut fold, 1, unmap(2, 2)), [unmap(0, 1)]);
    assert_eq!(events(&mut fold, 2, unmap(0, 2)), []);
    assert_eq!(
        events(&mut fold, 0, unmap(2, 2)),
        [unmap(0, 1)],
        "a thread did the rest"
    );
    events(&mut fold, 2, EventKind::Exit);
    events(&mut fold, 0, EventKind::Exec { name: 0 });
    assert_eq!(
        events(&mut fold, 0, map(0, 1, READ, None)),
        [map(0, 1, READ, None)]
    );
}
