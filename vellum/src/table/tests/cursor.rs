//! Tests of the cursor: it does what walks and locks of its own would do.

use super::*;

#[test]
fn a_cursor_maps_and_unmaps_as_single_walks_do() {
    let memory = memory();
    let pin = memory.pin();
    let (one, other) = (tables(&memory, &pin), tables(&memory, &pin));
    let roots = used(&memory);
    let mut rng = Rng::new(11);
    let mut cursor = Cursor::new(&one);
    let mut gather = gather(&memory, &pin);
    let mut model: BTreeMap<u64, u32> = BTreeMap::new();
    // Across the borders of tables of three levels.
    let bases = [500, (1 << 18) - 20, (1 << 27) - 20];
    for step in 0..4000 {
        let page = bases[rng.below(3)] + rng.below(40) as u64;
        let present = model.contains_key(&page);
        if rng.below(2) == 0 {
            let mapped = cursor.map(Vpn(page), leaf(step + 1)).unwrap();
            assert_eq!(mapped, !present, "step {step}");
            if mapped {
                fill(&other, page, step + 1);
                model.insert(page, step + 1);
            }
        } else if present {
            let table = cursor.find(Vpn(page)).unwrap();
            let old = table.clear(X86_64::index(Vpn(page), 1), Users::None);
            table.count_cleared(1);
            cursor.unlink_if_empty(&mut gather);
            assert_eq!(Some(old), model.remove(&page).map(leaf), "step {step}");
            clear(&other, PageRange::new(Vpn(page), 1), &mut gather);
        }
        for base in bases {
            for page in base..base + 40 {
                assert_eq!(one.peek(Vpn(page)), other.peek(Vpn(page)), "step {step}");
            }
        }
    }
    assert!(cursor.made() > 0);
    drop(cursor);
    for tables in [&one, &other] {
        for &page in model.keys() {
            clear(tables, PageRange::new(Vpn(page), 1), &mut gather);
        }
    }
    drop(gather);
    assert_eq!(
        used(&memory),
        roots,
        "every table that became empty is freed"
    );
}

#[test]
fn a_cursor_goes_between_levels() {
    let memory = memory();
    let pin = memory.pin();
    let tables = tables(&memory, &pin);
    let mut cursor = Cursor::new(&tables);
    let large = X86_64::leaf(Pfn(512), 2, Prot::READ, Marks::default());
    let table = cursor.find_or_make(Vpn(0), 2).unwrap();
    assert_eq!(table.level(), 2);
    table.fill(0, large);
    table.count_made(1);
    // A page beside the large leaf, in a table of its own.
    assert_eq!(cursor.map(Vpn(512), leaf(7)), Ok(true));
    assert_eq!(cursor.map(Vpn(513), leaf(8)), Ok(true));
    // Under the large leaf there is no room.
    assert_eq!(cursor.map(Vpn(5), leaf(9)), Ok(false));
    assert_eq!(cursor.find(Vpn(5)).unwrap().level(), 2);
    assert_eq!(cursor.find(Vpn(513)).unwrap().live(), 2);
    assert!(cursor.find(Vpn(1024)).is_none());
    assert_eq!(tables.peek(Vpn(5)), (large, 2));
}

#[test]
fn a_cursor_that_finds_no_memory_leaves_nothing_locked() {
    let memory = memory();
    let pin = memory.pin();
    let tables = tables(&memory, &pin);
    let mut cursor = Cursor::new(&tables);
    assert_eq!(cursor.map(Vpn(0), leaf(1)), Ok(true));
    memory.inject(Some(FailAt {
        site: Site::TablePage,
        after: 0,
    }));
    assert!(cursor.map(Vpn(512), leaf(2)).is_err());
    memory.inject(None);
    // Would wait for ever if the cursor still held the table.
    assert!(tables.lock(Vpn(0)).is_some());
    assert_eq!(tables.peek(Vpn(512)).0, 0);
}
