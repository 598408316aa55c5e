//! The tables of one space, in every format.

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::addr::{Access, Prot};

/// A test of each format for each of the checks.
macro_rules! tests_of {
    ($checks:tt $($(#[$about:meta])* $name:ident: $format:ident $value:literal;)*) => {
        $(tests_of!(@ $name, $format, $checks);)*
    };
    (@ $name:ident, $format:ident, [$($check:ident),*]) => {
        mod $name {
            use super::*;
            $(#[test] fn $check() { super::$check::<$format>(); })*
        }
    };
}

crate::every_format! { [tests_of] [
    tables_are_made_and_freed_from_the_leaf_to_the_root,
    a_root_goes_as_it_was_made_and_whole,
    random_edits_match_a_map,
    leaves_stand_at_every_level_that_allows_them_and_split,
    edits_of_a_leaf_touch_nothing_else,
    the_promises_of_the_trait_hold
] }

type Of<'a, F> = Tables<'a, TestMachine, F>;

fn machine<F: Format>() -> Memory {
    run_on(0);
    let frames = 64 << 20 >> F::FRAME_SHIFT;
    PhysicalMemory::new(TestMachine::with_frames(2, frames, F::FRAME_SHIFT)).unwrap()
}

fn tables_of<'a, F: Format>(memory: &'a Memory, pin: &'a Pin<'_>) -> Of<'a, F> {
    let root = Of::<F>::make_root(memory, &Fresh, pin, 7).unwrap();
    // SAFETY: the root was made for the test, of this memory.
    unsafe { Tables::new(memory, &Fresh, pin, root, 7) }
}

/// Tables that a root has from the beginning.
fn root_tables<F: Format>() -> u64 {
    u64::from(Of::<F>::ROOT_TABLES)
}

fn leaf_of<F: Format>(frame: u32) -> u64 {
    F::leaf(Pfn(frame), 1, Prot::READ_WRITE, Marks::default())
}

fn fill_of<F: Format>(tables: &Of<'_, F>, page: u64, frame: u32) -> u32 {
    let mut made = 0;
    let table = tables.lock_or_make(Vpn(page), &mut made).unwrap();
    table.fill(F::index(Vpn(page), 1), leaf_of::<F>(frame));
    table.count_made(1);
    made
}

fn clear_of<F: Format>(tables: &Of<'_, F>, memory: &Memory, pin: &Pin<'_>, range: PageRange) {
    let mut gather = gather(memory, pin);
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
        tables.unlink_if_empty(span.table, &mut gather);
    }
}

fn everything<F: Format>() -> PageRange {
    PageRange {
        start: Vpn(0),
        end: F::USER_END,
    }
}

fn tables_are_made_and_freed_from_the_leaf_to_the_root<F: Format>() {
    let memory = machine::<F>();
    let pin = memory.pin();
    let tables = tables_of::<F>(&memory, &pin);
    let last = F::USER_END.0 - 1;
    let entries = F::ENTRIES as u64;
    let lower = Of::<F>::KEPT_FROM - 1;
    assert_eq!(fill_of(&tables, 5, 1), lower);
    assert_eq!(fill_of(&tables, entries - 1, 2), 0, "the same table");
    assert_eq!(fill_of(&tables, entries, 3), 1, "the next one");
    assert_eq!(fill_of(&tables, last, 4), lower, "the last page there is");
    for (page, frame) in [(5, 1), (entries - 1, 2), (entries, 3), (last, 4)] {
        assert_eq!(tables.peek(Vpn(page)), (leaf_of::<F>(frame), 1));
    }
    assert_eq!(tables.peek(Vpn(6)).0, 0);
    let table = tables.lock(Vpn(last)).unwrap();
    assert_eq!((table.level(), table.live()), (1, 1));
    assert_eq!(table.page(F::index(Vpn(last), 1)), Vpn(last));
    drop(table);
    assert_eq!(used(&memory), root_tables::<F>() + u64::from(2 * lower + 1));
    clear_of(&tables, &memory, &pin, everything::<F>());
    assert_eq!(used(&memory), root_tables::<F>(), "the root stays");
}

fn a_root_goes_as_it_was_made_and_whole<F: Format>() {
    let memory = machine::<F>();
    let pin = memory.pin();
    let make = || Of::<F>::make_root(&memory, &Fresh, &pin, 7);
    for after in 0..Of::<F>::ROOT_TABLES {
        let site = Site::RootTable;
        memory.inject(Some(FailAt { site, after }));
        assert!(make().is_err());
        assert_eq!(used(&memory), 0, "the allocation after {after} failed");
    }
    memory.inject(None);
    let root = make().unwrap();
    assert_eq!(used(&memory), root_tables::<F>());
    assert_eq!(
        u64::from(memory.frame(root).table().live()) + 1,
        used(&memory)
    );
    // SAFETY: the root was made for the test, and nothing was mapped.
    unsafe { Of::<F>::retire_root(&memory, &Fresh, &pin, root) };
    assert_eq!(used(&memory), 0);
    let words = table_words::<F, TestMachine>(&memory, root);
    assert!(words.iter().all(|word| word.load(Ordering::Relaxed) == 0));
}

/// Places around the borders of tables at each level.
fn borders<F: Format>() -> Vec<u64> {
    let mut bases = std::vec![0, F::ENTRIES as u64 - 20, F::USER_END.0 - 600];
    bases.extend((2..F::LEVELS).map(|level| F::pages_at(level + 1) - 20));
    bases
}

fn random_edits_match_a_map<F: Format>() {
    let memory = machine::<F>();
    let pin = memory.pin();
    let tables = tables_of::<F>(&memory, &pin);
    let mut rng = Rng::new(5);
    let mut model: BTreeMap<u64, u32> = BTreeMap::new();
    let bases = borders::<F>();
    for step in 0..1000 {
        let page = bases[rng.below(bases.len())] + rng.below(560) as u64;
        if rng.below(3) > 0 {
            if let std::collections::btree_map::Entry::Vacant(entry) = model.entry(page) {
                fill_of(&tables, page, step + 1);
                entry.insert(step + 1);
            }
        } else {
            let range = PageRange::new(Vpn(page), 1 + rng.below(200) as u64);
            clear_of(
                &tables,
                &memory,
                &pin,
                range.intersection(everything::<F>()),
            );
            model.retain(|other, _| !range.contains(Vpn(*other)));
        }
        let probe = bases[rng.below(bases.len())] + rng.below(560) as u64;
        let wanted = model.get(&probe).map_or(0, |&frame| leaf_of::<F>(frame));
        assert_eq!(tables.peek(Vpn(probe)).0, wanted);
        let needed: BTreeSet<(u32, u64)> = (1..Of::<F>::KEPT_FROM)
            .flat_map(|level| {
                model
                    .keys()
                    .map(move |page| (level, page / F::pages_at(level + 1)))
            })
            .collect();
        let needed = root_tables::<F>() + needed.len() as u64;
        assert_eq!(used(&memory), needed, "step {step}");
    }
    let mut found = BTreeMap::new();
    for span in tables.spans(everything::<F>()) {
        for index in span.first..span.first + span.count {
            let entry = span.table.load(index);
            if entry != 0 {
                found.insert(span.table.page(index).0, F::frame(entry, 1).0);
            }
        }
    }
    assert_eq!(found, model);
}

fn leaves_stand_at_every_level_that_allows_them_and_split<F: Format>() {
    let memory = machine::<F>();
    let pin = memory.pin();
    let tables = tables_of::<F>(&memory, &pin);
    // Leaves of a size whose frames a frame number can count.
    let countable = |level: &u32| F::pages_at(*level) <= 1 << 26;
    for level in (2..=F::MAX_LEAF_LEVEL).filter(countable) {
        let pages = F::pages_at(level);
        let table = tables.lock_or_make_at(Vpn(pages), level, &mut 0).unwrap();
        let frame = Pfn(pages as u32);
        let entry = F::leaf(frame, level, Prot::READ_EXECUTE, Marks::ACCESSED);
        table.fill(F::index(Vpn(pages), level), entry);
        table.count_made(1);
        drop(table);
        assert_eq!(tables.peek(Vpn(2 * pages - 1)), (entry, level));
        let page = Vpn(pages + 77);
        for below in (1..level).rev() {
            assert_eq!(tables.split(page), Ok(true));
            let (entry, found) = tables.peek(page);
            assert_eq!(found, below);
            let size = F::pages_at(below);
            assert_eq!(u64::from(F::frame(entry, below).0), page.0 / size * size);
            assert_eq!(F::prot(entry, below), Prot::READ_EXECUTE);
            assert_eq!(F::marks(entry), Marks::ACCESSED);
        }
        clear_of(&tables, &memory, &pin, everything::<F>());
        assert_eq!(used(&memory), root_tables::<F>());
    }
}

/// Each change of a leaf changes what it is to change, whatever else it says.
fn edits_of_a_leaf_touch_nothing_else<F: Format>() {
    let prots = (0..8).map(Prot::from_bits);
    let marks = [(false, false), (true, false), (false, true), (true, true)];
    let marks = marks.map(|(accessed, dirty)| Marks { accessed, dirty });
    let levels = 1..=F::MAX_LEAF_LEVEL.min(3);
    for level in levels {
        let frame = Pfn(F::pages_at(level) as u32);
        for prot in prots.clone() {
            for from in marks {
                let entry = F::leaf(frame, level, prot, from);
                assert!(F::is_mapped(entry) && F::is_leaf(entry, level));
                assert_eq!(F::frame(entry, level), frame);
                assert_eq!(F::marks(entry), from);
                let given = F::prot(entry, level);
                assert_eq!(given.can_write(), prot.can_write());
                assert_eq!(given.can_execute(), prot.can_execute());
                assert!(given.can_read() || !prot.can_read());
                assert_eq!(given.is_none(), prot.is_none());
                let protected = F::write_protect(entry);
                assert!(!F::is_writable(protected) && F::is_leaf(protected, level));
                assert_eq!(
                    (F::frame(protected, level), F::marks(protected)),
                    (frame, from)
                );
                for to in marks {
                    let changed = F::with_marks(entry, to);
                    assert_eq!(changed, F::leaf(frame, level, prot, to));
                }
                for to in prots.clone() {
                    let changed = F::with_prot(entry, level, to);
                    assert_eq!(
                        changed,
                        F::leaf(frame, level, to, from),
                        "{prot:?} to {to:?}"
                    );
                }
            }
        }
    }
    for level in 2..=F::LEVELS {
        let table = F::table_entry(Pfn(0xabcdef), level);
        assert!(F::is_mapped(table) && !F::is_leaf(table, level));
        assert_eq!(F::frame(table, level), Pfn(0xabcdef));
    }
}

/// What `Geometry` and `Format` promise, in the order of their conditions.
fn the_promises_of_the_trait_hold<F: Format>() {
    assert!((3..32).contains(&F::FRAME_SHIFT));
    assert_eq!(F::FRAME_SIZE, 1 << F::FRAME_SHIFT);
    assert_eq!(F::INDEX_BITS, F::FRAME_SHIFT - 3);
    assert_eq!(F::ENTRIES * 8, F::FRAME_SIZE);

    assert!(F::LEVELS >= 1 && F::MAX_LEAF_LEVEL <= F::LEVELS);
    let pages = (0..64).flat_map(|bit| [1 << bit, (1u64 << bit) - 1, u64::MAX - (1 << bit)]);
    for page in pages {
        let mut rebuilt = 0;
        for level in 1..=F::LEVELS {
            let index = F::index(Vpn(page), level);
            assert!(index < F::ENTRIES);
            rebuilt |= (index as u64) << ((level - 1) * F::INDEX_BITS);
        }
        assert!(page >= F::USER_END.0 || rebuilt == page, "{page:#x}");
    }

    assert!(!F::is_mapped(0));
    assert_eq!(F::decode(0, 1), Entry::Empty);
    let slots = (0..Swapped::SLOT_BITS).flat_map(|bit| [1 << bit, Swapped::MAX_SLOT - (1 << bit)]);
    for slot in slots.chain([0, Swapped::MAX_SLOT]) {
        for bits in 0..4 {
            let page = Swapped {
                slot,
                exclusive: bits & 1 != 0,
                clean: bits & 2 != 0,
            };
            let entry = F::swap(page);
            assert!(entry != 0 && !F::is_mapped(entry));
            let is_guard = page == Swapped::GUARD;
            let is_lost = page == Swapped::LOST;
            let decoded = match (is_guard, is_lost) {
                (true, _) => Entry::Guard,
                (_, true) => Entry::Lost,
                _ => Entry::Swap(page),
            };
            assert_eq!(F::decode(entry, 1), decoded);
            assert_eq!((F::is_guard(entry), F::is_lost(entry)), (is_guard, is_lost));
            assert_eq!(F::swapped(entry), page);
            assert!(
                F::prot(entry, 1).is_none() && !F::is_writable(entry),
                "{page:?}"
            );
        }
    }
    hints_change_nothing_else::<F>();
    the_soft_dirty_bit_stays_and_says_nothing_else::<F>();
    let frames = (0..32).flat_map(|bit| [1 << bit, (1u32 << bit) - 1, !(1 << bit)]);
    let rights = (0..=u8::MAX).map(Prot::from_bits);
    let rights: BTreeSet<u8> = rights.map(Prot::bits).collect();
    for frame in frames.map(Pfn) {
        for level in 2..=F::LEVELS {
            let entry = F::table_entry(frame, level);
            assert_ne!(entry, 0);
            assert!(F::is_mapped(entry) && !F::is_leaf(entry, level));
            assert_eq!(F::frame(entry, level), frame);
        }
        for level in 1..=F::MAX_LEAF_LEVEL {
            let frame = Pfn(frame.0 & !(F::pages_at(level) as u32).wrapping_sub(1));
            for prot in rights.iter().copied().map(Prot::from_bits) {
                let leaf = F::leaf(frame, level, prot, Marks::DIRTY);
                check_leaf::<F>(leaf, frame, level);
                check_leaf::<F>(F::write_protect(leaf), frame, level);
                assert!(!F::is_writable(F::write_protect(leaf)));
                check_leaf::<F>(F::with_marks(leaf, Marks::default()), frame, level);
                for other in [Prot::NONE, Prot::READ, Prot::READ_WRITE] {
                    check_leaf::<F>(F::with_prot(leaf, level, other), frame, level);
                }
                let allowed = F::prot(leaf, level);
                for access in [Access::Read, Access::Write, Access::Execute] {
                    let implied = access == Access::Read && !prot.is_none();
                    assert!(prot.allows(access) || implied || !allowed.allows(access));
                }
            }
        }
    }
}

fn check_leaf<F: Format>(leaf: u64, frame: Pfn, level: u32) {
    assert_ne!(leaf, 0);
    assert!(F::is_mapped(leaf) && F::is_leaf(leaf, level));
    assert_eq!(F::frame(leaf, level), frame);
    assert_eq!(F::is_writable(leaf), F::prot(leaf, level).can_write());
}

fn the_soft_dirty_bit_stays_and_says_nothing_else<F: Format>() {
    for prot in (0..8).map(Prot::from_bits) {
        let leaf = F::leaf(Pfn(5), 1, prot, Marks::DIRTY);
        let soft = leaf | F::SOFT_DIRTY;
        assert_eq!(leaf & F::SOFT_DIRTY, 0);
        check_leaf::<F>(soft, Pfn(5), 1);
        assert!(!F::is_guard(soft) && !F::is_watched(soft));
        assert_eq!(F::prot(soft, 1), F::prot(leaf, 1));
        assert_eq!(F::marks(soft), Marks::DIRTY);
        let edits: [fn(u64) -> u64; 4] = [
            F::write_protect,
            |entry| F::with_marks(entry, Marks::default()),
            |entry| F::with_prot(entry, 1, Prot::READ),
            |entry| F::with_watch(entry, true),
        ];
        for edit in edits {
            assert_eq!(edit(soft), edit(leaf) | F::SOFT_DIRTY, "{prot:?}");
        }
    }
}

/// What has no hint is kept as it is, and what has one is the same leaf but for it.
fn hints_change_nothing_else<F: Format>() {
    let run = 1 << F::CONTIGUOUS_ORDER;
    let marks = [Marks::default(), Marks::ACCESSED, Marks::DIRTY];
    let rights = (0..=u8::MAX).map(Prot::from_bits);
    for (prot, index) in rights.zip((0..F::ENTRIES).cycle()) {
        // Lies in its run as the entry does.
        let frame = Pfn((0x1234_5678 & !(run - 1)) | index as u32 & (run - 1));
        for marks in marks {
            let leaf = F::leaf(frame, 1, prot, marks);
            assert!(!F::is_contiguous(leaf));
            let hinted = F::contiguous(leaf);
            assert_eq!(F::is_contiguous(hinted), F::CONTIGUOUS_ORDER > 0);
            assert_eq!(F::frame(hinted, 1), frame);
            assert_eq!(F::prot(hinted, 1), F::prot(leaf, 1));
            assert_eq!(F::marks(hinted), marks);
            let changed = F::with_marks(hinted, Marks::DIRTY);
            for entry in [leaf, hinted, changed] {
                assert_eq!(F::seen(F::stored(entry), index), entry, "{prot:?}");
                assert_eq!(
                    F::is_contiguous(entry),
                    entry != leaf && F::CONTIGUOUS_ORDER > 0
                );
            }
        }
    }
    for slot in [0, 1, Swapped::MAX_SLOT] {
        let entry = F::swap(Swapped {
            slot,
            exclusive: true,
            clean: false,
        });
        assert!(!F::is_contiguous(entry));
        assert_eq!(F::seen(F::stored(entry), 5), entry);
    }
}
