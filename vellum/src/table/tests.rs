//! Tests of page tables: encodings against the architecture's manual, and the
//! tables of one space against a map.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::vec::Vec;

use super::*;
use crate::addr::{Geometry, PageRange, Pfn, Prot, Vpn};
use crate::frame::{FailAt, PhysicalMemory, Site};
use crate::platform::{CpuId, CpuSet, SpaceTag};
use crate::sync::{ActiveCpus, ActiveSet, Pin};
use crate::testing::{Rng, TestMachine, run_on};

mod aarch64;
mod contiguous;
mod cursor;
mod encoding;
mod formats;
mod gather;
mod riscv;
mod x86_pae;

type Memory = PhysicalMemory<TestMachine>;
type SpaceTables<'a> = Tables<'a, TestMachine, X86_64>;

fn memory() -> Memory {
    run_on(0);
    PhysicalMemory::new(TestMachine::simple(2, 4096)).unwrap()
}

fn tables<'a>(memory: &'a Memory, pin: &'a Pin<'_>) -> SpaceTables<'a> {
    let root = SpaceTables::make_root(memory, &Fresh, pin, 7).unwrap();
    // SAFETY: the root was made for the test, of this memory.
    unsafe { Tables::new(memory, &Fresh, pin, root, 7) }
}

fn target(cpus: u64) -> FlushTarget<'static> {
    FlushTarget {
        tag: SpaceTag(7),
        cpus: CpuSet::from_bits(cpus),
    }
}

fn gather<'a>(memory: &'a Memory, pin: &'a Pin<'a>) -> Gather<'a, TestMachine> {
    // SAFETY: what is put in is the test's own.
    unsafe { Gather::new(memory, &Fresh, pin, target(1)) }
}

fn leaf(frame: u32) -> u64 {
    X86_64::leaf(Pfn(frame), 1, Prot::READ_WRITE, Marks::default())
}

/// Makes an entry; returns how many tables that took.
fn fill(tables: &SpaceTables<'_>, page: u64, frame: u32) -> u32 {
    let mut made = 0;
    let table = tables.lock_or_make(Vpn(page), &mut made).unwrap();
    table.fill(X86_64::index(Vpn(page), 1), leaf(frame));
    table.count_made(1);
    made
}

/// Makes a leaf of `1 << (9 * (level - 1))` pages.
fn fill_large(tables: &SpaceTables<'_>, page: u64, level: u32, frame: u32) {
    let table = tables.lock_or_make_at(Vpn(page), level, &mut 0).unwrap();
    assert_eq!(table.level(), level);
    let entry = X86_64::leaf(Pfn(frame), level, Prot::READ_EXECUTE, Marks::ACCESSED);
    table.fill(X86_64::index(Vpn(page), level), entry);
    table.count_made(1);
}

/// Clears whatever leaves are in the range and frees tables left empty.
fn clear(tables: &SpaceTables<'_>, range: PageRange, gather: &mut Gather<'_, TestMachine>) {
    for span in tables.spans(range) {
        let mut cleared = 0;
        for index in span.first..span.first + span.count {
            if span.table.load(index) != 0 {
                gather.stale(span.table.page(index));
                span.table.clear(index, Users::Hardware);
                cleared += 1;
            }
        }
        span.table.count_cleared(cleared);
        tables.unlink_if_empty(span.table, gather);
    }
}

fn used(memory: &Memory) -> u64 {
    memory.stats().used()
}

#[test]
fn tables_are_made_down_to_the_leaf_and_found_again() {
    let memory = memory();
    let pin = memory.pin();
    let tables = tables(&memory, &pin);
    assert_eq!(fill(&tables, 500, 1), 3);
    assert_eq!(fill(&tables, 511, 2), 0, "the same table");
    assert_eq!(fill(&tables, 512, 3), 1, "the next one");
    assert_eq!(fill(&tables, 1 << 18, 4), 2);
    assert_eq!(fill(&tables, 1 << 27, 5), 3);
    assert_eq!(used(&memory), 1 + 9);
    for (page, frame) in [(500, 1), (511, 2), (512, 3), (1 << 18, 4), (1 << 27, 5)] {
        assert_eq!(tables.peek(Vpn(page)), (leaf(frame), 1));
    }
    assert_eq!(tables.peek(Vpn(501)), (0, 1));
    assert_eq!(tables.peek(Vpn(1024)), (0, 2));
    assert_eq!(tables.peek(Vpn(2 << 18)), (0, 3));
    assert_eq!(tables.peek(Vpn(2 << 27)), (0, 4));
    assert!(tables.lock(Vpn(1024)).is_none());
    let table = tables.lock(Vpn(501)).unwrap();
    assert_eq!((table.level(), table.live(), table.owner()), (1, 2, 7));
    assert_eq!((table.page(0), table.page(511)), (Vpn(0), Vpn(511)));
    assert_eq!(Some(table.table()), tables.leaf_table(Vpn(0)));
}

/// A walk finds an entry empty and waits for its table; meanwhile somebody links a
/// table there.
#[test]
fn a_table_that_was_linked_while_a_walk_waited_is_found() {
    let memory = memory();
    let pin = memory.pin();
    let root = SpaceTables::make_root(&memory, &Fresh, &pin, 7).unwrap();
    // SAFETY: the root was made for the test, of this memory.
    let tables: SpaceTables<'_> = unsafe { Tables::new(&memory, &Fresh, &pin, root, 7) };
    fill(&tables, 500, 1);
    fill(&tables, 1000, 2);
    let lowest = tables.lock(Vpn(500)).unwrap().table();
    let above = (0..4096)
        .map(|frame| Pfn(0x100 + frame))
        .find(|&pfn| {
            let frame = memory.frame(pfn);
            frame.as_table().is_some_and(|table| table.level() == 2)
        })
        .and_then(|pfn| LockedTable::<X86_64>::lock(&memory, &pin, pfn, None))
        .unwrap();
    let link = above.clear(0, Users::None);
    std::thread::scope(|scope| {
        let walk = scope.spawn(|| {
            run_on(1);
            let pin = memory.pin();
            // SAFETY: the root is that of the test's tables.
            let tables: SpaceTables<'_> = unsafe { Tables::new(&memory, &Fresh, &pin, root, 7) };
            tables.lock(Vpn(500)).map(|table| table.table())
        });
        while memory.platform().waits.load(Ordering::Relaxed) == 0 {
            std::thread::yield_now();
        }
        above.fill(0, link);
        drop(above);
        assert_eq!(walk.join().unwrap(), Some(lowest));
    });
}

#[test]
fn spans_visit_each_table_of_a_sparse_range_once() {
    let memory = memory();
    let pin = memory.pin();
    let tables = tables(&memory, &pin);
    let pages = [3, 511, 512, 5 << 9, 1 << 18, (1 << 18) + 600, 3 << 27];
    for (frame, page) in pages.into_iter().enumerate() {
        fill(&tables, page, frame as u32 + 1);
    }
    let spans = |start, end| -> Vec<(u64, u64)> {
        let range = PageRange {
            start: Vpn(start),
            end: Vpn(end),
        };
        let spans = tables.spans(range);
        spans
            .map(|span| (span.table.page(span.first).0, span.count as u64))
            .collect()
    };
    let all = [
        (0, 512),
        (512, 512),
        (5 << 9, 512),
        (1 << 18, 512),
        ((1 << 18) + 512, 512),
        (3 << 27, 512),
    ];
    assert_eq!(spans(0, 1 << 35), all);
    assert_eq!(spans(511, 513), [(511, 1), (512, 1)]);
    assert_eq!(spans(600, 601), [(600, 1)]);
    assert_eq!(spans(1024, 5 << 9), []);
    assert_eq!(spans((1 << 18) + 700, 3 << 27), [((1 << 18) + 700, 324)]);
    assert_eq!(spans(7, 7), []);
}

#[test]
fn emptying_the_last_entry_frees_the_chain_of_tables_above() {
    let memory = memory();
    let pin = memory.pin();
    let tables = tables(&memory, &pin);
    fill(&tables, 500, 1);
    fill(&tables, 600, 2);
    fill(&tables, 1 << 27, 3);
    {
        let mut gather = gather(&memory, &pin);
        clear(&tables, PageRange::new(Vpn(500), 1), &mut gather);
        assert_eq!(gather.tables_freed(), 1);
        assert_eq!(tables.peek(Vpn(600)).0, leaf(2), "its neighbour stays");
        clear(&tables, PageRange::new(Vpn(600), 1), &mut gather);
        assert_eq!(gather.tables_freed(), 4, "nothing else was below them");
        assert_eq!(tables.lock(Vpn(1 << 27)).unwrap().live(), 1);
        clear(&tables, PageRange::new(Vpn(0), 1 << 28), &mut gather);
        assert_eq!(gather.tables_freed(), 7, "the root stays");
    }
    assert_eq!(tables.descend_level(Vpn(500)), 4);
    assert_eq!(used(&memory), 1);
}

impl SpaceTables<'_> {
    /// Level of the lowest table on the way to `page`.
    fn descend_level(&self, page: Vpn) -> u32 {
        self.peek(page).1
    }
}

/// A table without entries may be cached by walkers all the same: its address
/// belongs to what is flushed when it goes. (A machine found this: stores went
/// to a table that had been freed.)
#[test]
fn an_unlinked_table_is_flushed_even_if_nothing_in_it_was() {
    let memory = memory();
    let pin = memory.pin();
    let tables = tables(&memory, &pin);
    drop(tables.lock_or_make(Vpn((1 << 18) + 700), &mut 0).unwrap());
    memory.platform().take_flushes();
    {
        let mut gather = gather(&memory, &pin);
        let table = tables.lock(Vpn((1 << 18) + 700)).unwrap();
        tables.unlink_if_empty(table, &mut gather);
    }
    let flushes = memory.platform().take_flushes();
    assert_eq!(flushes.len(), 1);
    let (_, request) = flushes[0];
    assert!(request.tables);
    let range = request.range.unwrap();
    assert!(
        range.contains(Vpn((1 << 18) + 512)),
        "{range:?} misses the table's pages"
    );
}

/// A CPU that begins to use the space while entries are being cleared may have
/// read the old ones.
#[test]
fn a_flush_goes_to_cpus_that_came_after_the_gather_began() {
    let memory = memory();
    let pin = memory.pin();
    let active = ActiveCpus::default();
    let frame = memory
        .alloc(&pin, crate::frame::Request::page(Site::AnonymousPage))
        .unwrap();
    memory.platform().take_flushes();
    // SAFETY: what is put in is the test's own.
    let gather = unsafe { Gather::new(&memory, &Fresh, &pin, target(0)) };
    let entered = ActiveSet::new(&active, None);
    let mut gather = gather.following(entered);
    entered.enter(CpuId(1));
    gather.stale(Vpn(500));
    gather.frame(frame);
    assert_eq!(
        memory.frame(frame).counts().refs(),
        1,
        "not free before the flush"
    );
    drop(gather);
    let flushes = memory.platform().take_flushes();
    assert_eq!(flushes.len(), 1);
    assert!(flushes[0].0 == [CpuId(1)]);
    assert_eq!(used(&memory), 0);
}

#[test]
fn a_gather_flushes_once_and_frees_only_then() {
    let memory = memory();
    let pin = memory.pin();
    let request = crate::frame::Request::page(Site::AnonymousPage);
    let frames: Vec<Pfn> = (0..300)
        .map(|_| memory.alloc(&pin, request).unwrap())
        .collect();
    memory.platform().take_flushes();
    let mut gather = gather(&memory, &pin);
    for (index, &frame) in frames.iter().enumerate() {
        if gather.room() == 0 {
            gather.flush();
        }
        gather.stale(Vpn(1000 + index as u64));
        gather.frame(frame);
    }
    let before = memory.platform().take_flushes().len();
    drop(gather);
    let flushes = memory.platform().take_flushes();
    assert_eq!(flushes.len(), 1);
    assert_eq!(flushes[0].1.range.unwrap().end, Vpn(1300));
    assert!(before <= 1, "runs of frames take one place");
    assert_eq!(used(&memory), 0);
}

#[test]
fn leaves_may_stand_at_levels_2_and_3() {
    let memory = memory();
    let pin = memory.pin();
    let tables = tables(&memory, &pin);
    fill_large(&tables, 1 << 9, 2, 0x200);
    fill_large(&tables, 1 << 18, 3, 0x40000);
    fill(&tables, 3, 9);
    assert_eq!(tables.peek(Vpn(700)).1, 2);
    assert_eq!(tables.peek(Vpn((1 << 18) + 99_999)).1, 3);
    assert_eq!(tables.leaf_table(Vpn(700)), None);
    let locked = tables.lock(Vpn(700)).unwrap();
    assert_eq!((locked.level(), locked.live()), (2, 2));
    drop(locked);
    let mut made = 0;
    let locked = tables.lock_or_make(Vpn(701), &mut made).unwrap();
    assert_eq!(
        (locked.level(), made),
        (2, 0),
        "the larger leaf is handed out"
    );
    drop(locked);
    let spans: Vec<(u32, u64, usize)> = tables
        .spans(PageRange::new(Vpn(0), 1 << 19))
        .map(|span| {
            (
                span.table.level(),
                span.table.page(span.first).0,
                span.count,
            )
        })
        .collect();
    assert_eq!(spans, [(1, 0, 512), (2, 512, 1), (3, 1 << 18, 1)]);
    let mut gather = gather(&memory, &pin);
    clear(&tables, PageRange::new(Vpn(0), 1 << 19), &mut gather);
    drop(gather);
    assert_eq!(used(&memory), 1);
}

#[test]
fn splitting_a_leaf_keeps_frames_rights_and_marks() {
    let memory = memory();
    let pin = memory.pin();
    let tables = tables(&memory, &pin);
    fill_large(&tables, 1 << 18, 3, 0x40000);
    assert_eq!(tables.split(Vpn(500)), Ok(false), "there is no leaf");
    let page = Vpn((1 << 18) + 5 * 512 + 77);
    assert_eq!(tables.split(page), Ok(true));
    assert_eq!(tables.peek(page).1, 2);
    memory.inject(Some(FailAt {
        site: Site::TablePage,
        after: 0,
    }));
    assert!(tables.split(page).is_err());
    memory.inject(None);
    assert_eq!(tables.peek(page).1, 2, "as it was");
    assert_eq!(tables.split(page), Ok(true));
    let (entry, level) = tables.peek(page);
    assert_eq!(level, 1);
    assert_eq!(X86_64::frame(entry, 1), Pfn(0x40000 + 5 * 512 + 77));
    assert_eq!(X86_64::prot(entry, 1), Prot::READ_EXECUTE);
    assert_eq!(X86_64::marks(entry), Marks::ACCESSED);
    let (entry, level) = tables.peek(Vpn((1 << 18) + 4 * 512));
    assert_eq!(
        (level, X86_64::frame(entry, 2)),
        (2, Pfn(0x40000 + 4 * 512))
    );
    assert_eq!(tables.lock(page).unwrap().live(), 512);
    assert_eq!(
        tables.split(page),
        Ok(false),
        "single pages cannot be split"
    );
    let mut gather = gather(&memory, &pin);
    clear(&tables, PageRange::new(Vpn(1 << 18), 1 << 18), &mut gather);
    drop(gather);
    assert_eq!(used(&memory), 1);
}

#[test]
fn a_failed_walk_links_and_keeps_nothing() {
    let memory = memory();
    let pin = memory.pin();
    let tables = tables(&memory, &pin);
    for after in 0..3 {
        memory.inject(Some(FailAt {
            site: Site::TablePage,
            after,
        }));
        let mut made = 0;
        assert!(tables.lock_or_make(Vpn(500), &mut made).is_err());
        assert_eq!(made, 0);
        assert_eq!(used(&memory), 1);
        assert_eq!(tables.descend_level(Vpn(500)), 4);
    }
    memory.inject(None);
    assert_eq!(fill(&tables, 500, 1), 3);
}

#[test]
fn random_edits_match_a_map() {
    let memory = memory();
    let pin = memory.pin();
    let tables = tables(&memory, &pin);
    let mut rng = Rng::new(3);
    let mut model: BTreeMap<u64, u32> = BTreeMap::new();
    let bases = [0, 500, (1 << 18) - 20, (1 << 27) - 20, (1 << 35) - 600];
    for step in 0..4000 {
        let page = bases[rng.below(5)] + rng.below(560) as u64;
        if rng.below(3) > 0 {
            if let std::collections::btree_map::Entry::Vacant(entry) = model.entry(page) {
                fill(&tables, page, step + 1);
                entry.insert(step + 1);
            }
        } else {
            let pages = 1 + rng.below(200) as u64;
            let mut gather = gather(&memory, &pin);
            clear(&tables, PageRange::new(Vpn(page), pages), &mut gather);
            model.retain(|other, _| !(page..page + pages).contains(other));
        }
        let probe = bases[rng.below(5)] + rng.below(560) as u64;
        let wanted = model.get(&probe).map_or(0, |&frame| leaf(frame));
        assert_eq!(tables.peek(Vpn(probe)).0, wanted);
        let mut needed = std::collections::BTreeSet::from([(4, 0)]);
        for page in model.keys() {
            needed.extend([(1, page >> 9), (2, page >> 18), (3, page >> 27)]);
        }
        assert_eq!(used(&memory), needed.len() as u64, "step {step}");
    }
    let mut found = BTreeMap::new();
    for span in tables.spans(PageRange::new(Vpn(0), 1 << 35)) {
        for index in span.first..span.first + span.count {
            let entry = span.table.load(index);
            if entry != 0 {
                found.insert(span.table.page(index).0, X86_64::frame(entry, 1).0);
            }
        }
    }
    assert_eq!(found, model);
}
