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

/// Clears `page` through the cursor, and frees what that leaves empty.
fn unmap(
    cursor: &mut Cursor<'_, '_, TestMachine, X86_64>,
    page: u64,
    gather: &mut Gather<'_, TestMachine>,
) {
    let table = cursor.find(Vpn(page)).expect("mapped");
    table.clear(X86_64::index(Vpn(page), 1), Users::None);
    table.count_cleared(1);
    cursor.unlink_if_empty(gather);
}

#[test]
fn tables_that_a_cursor_empties_one_after_the_other_are_all_freed() {
    let memory = memory();
    let pin = memory.pin();
    let tables = tables(&memory, &pin);
    let root = used(&memory);
    let mut gather = gather(&memory, &pin);
    let mut cursor = Cursor::new(&tables);
    let mut rng = Rng::new(5);
    for shuffled in [false, true] {
        // One page to a table below three tables of level 2, and two of one table.
        let mut pages: Vec<u64> = (0..120).map(|table| (400 + 4 * table) << 9).collect();
        pages.push(pages[60] + 7);
        for &page in &pages {
            assert_eq!(cursor.map(Vpn(page), leaf(9)), Ok(true));
        }
        cursor.leave();
        assert_eq!(used(&memory), root + 120 + 1 + 2);
        if shuffled {
            for last in (1..pages.len()).rev() {
                pages.swap(last, rng.below(last + 1));
            }
        }
        while let Some(page) = pages.pop() {
            unmap(&mut cursor, page, &mut gather);
            assert_eq!(tables.peek(Vpn(page)).0, 0);
            for &page in &pages {
                assert_eq!(tables.peek(Vpn(page)), (leaf(9), 1));
            }
        }
        cursor.leave();
        gather.flush();
        assert_eq!(
            used(&memory),
            root,
            "every table that became empty is freed"
        );
    }
}

#[test]
fn a_cursor_keeps_the_table_above_only_while_it_empties_tables() {
    let memory = memory();
    let pin = memory.pin();
    let tables = tables(&memory, &pin);
    let mut gather = gather(&memory, &pin);
    let mut cursor = Cursor::new(&tables);
    for page in [0, 512, 1024, 1025] {
        fill(&tables, page, 1);
    }
    let above = tables.lock_or_make_at(Vpn(0), 2, &mut 0).unwrap();
    let above_pfn = above.table();
    drop(above);
    let is_free = || LockedTable::<X86_64>::try_lock(&memory, &pin, above_pfn, None).is_ok();
    unmap(&mut cursor, 0, &mut gather);
    assert!(!is_free(), "kept for the next table");
    unmap(&mut cursor, 512, &mut gather);
    assert!(!is_free());
    unmap(&mut cursor, 1024, &mut gather);
    assert!(is_free(), "the last table has a page left");
    unmap(&mut cursor, 1025, &mut gather);
    cursor.leave();
    assert_eq!(tables.peek(Vpn(0)).1, 4, "nothing is left below the root");
}

#[test]
fn a_cursor_leaves_an_empty_table_linked_that_is_kept() {
    let memory = memory();
    let pin = memory.pin();
    let tables = tables(&memory, &pin);
    let mut gather = gather(&memory, &pin);
    let mut cursor = Cursor::new(&tables);
    for page in [0, 512, 1024] {
        fill(&tables, page, 1);
    }
    tables.lock(Vpn(512)).unwrap().keep();
    unmap(&mut cursor, 0, &mut gather);
    unmap(&mut cursor, 512, &mut gather);
    cursor.leave();
    assert_eq!(tables.peek(Vpn(0)), (0, 2), "freed");
    let kept = tables.lock(Vpn(512)).expect("still linked");
    kept.release();
    tables.unlink_if_empty(kept, &mut gather);
    assert_eq!(tables.peek(Vpn(512)), (0, 2));
}

#[test]
fn a_table_below_one_that_is_held_is_not_waited_for() {
    let memory = memory();
    let pin = memory.pin();
    let tables = tables(&memory, &pin);
    fill(&tables, 0, 1);
    fill(&tables, 512, 1);
    fill_large(&tables, 1024, 2, 512);
    let above = tables.lock_or_make_at(Vpn(0), 2, &mut 0).unwrap();
    assert!(tables.try_lock_below(&above, Vpn(0)).is_some());
    let below = tables.leaf_table(Vpn(0)).unwrap();
    let below = LockedTable::<X86_64>::lock(&memory, &pin, below, None);
    assert!(
        tables.try_lock_below(&above, Vpn(0)).is_none(),
        "somebody has it"
    );
    drop(below);
    assert!(tables.try_lock_below(&above, Vpn(1024)).is_none(), "a leaf");
    assert!(
        tables.try_lock_below(&above, Vpn(1536)).is_none(),
        "no table"
    );
}

#[test]
fn two_cursors_in_one_space_neither_wait_for_ever_nor_lose_a_table() {
    // Enough for all tables that are made here: one thread may be kept from its
    // CPU while it is pinned, and then none is used twice.
    run_on(0);
    let memory: Memory = PhysicalMemory::new(TestMachine::simple(2, 1 << 14)).unwrap();
    let root = SpaceTables::make_root(&memory, &Fresh, &memory.pin(), 7).unwrap();
    let seed = 23;
    let work = |cpu: u16| {
        run_on(cpu);
        let mut rng = Rng::new(seed + u64::from(cpu));
        for _ in 0..300 {
            let pin = memory.pin();
            // SAFETY: the root was made for the test, of this memory.
            let tables = unsafe { SpaceTables::new(&memory, &Fresh, &pin, root, 7) };
            let mut gather = gather(&memory, &pin);
            let mut cursor = Cursor::new(&tables);
            // Each has pages of its own in tables that both use.
            let pages: Vec<u64> = (0..24)
                .filter(|_| rng.below(3) > 0)
                .map(|table| (table << 9) + u64::from(cpu))
                .collect();
            for &page in &pages {
                assert_eq!(cursor.map(Vpn(page), leaf(3)), Ok(true), "seed {seed}");
            }
            for &page in &pages {
                unmap(&mut cursor, page, &mut gather);
            }
            cursor.leave();
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| work(0));
        scope.spawn(|| work(1));
    });
    run_on(0);
    for _ in 0..3 {
        memory.drain(&memory.pin());
    }
    assert_eq!(used(&memory), 1, "only the root is left");
}

/// The table above that a cursor has kept leads to tables of its own pages only.
#[test]
fn a_cursor_steps_down_only_below_the_table_that_covers_the_page() {
    let memory = memory();
    let pin = memory.pin();
    let tables = tables(&memory, &pin);
    let far = 1 << 18;
    for (frame, page) in (1..).zip([0, 512, far, far + 512]) {
        fill(&tables, page, frame);
    }
    let mut gather = gather(&memory, &pin);
    let mut cursor = Cursor::new(&tables);
    let table = cursor.find(Vpn(0)).unwrap();
    table.clear(0, Users::None);
    table.count_cleared(1);
    cursor.unlink_if_empty(&mut gather);
    let table = cursor.find(Vpn(far + 512)).unwrap();
    assert_eq!((table.page(0), table.load(0)), (Vpn(far + 512), leaf(4)));
}
