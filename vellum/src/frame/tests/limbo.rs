//! Retired frames and pins.

use super::*;

/// Pins and unpins every CPU and pushes the epoch on, `times` times.
fn pass_epochs(memory: &Memory, times: usize) {
    for _ in 0..times {
        assert!(memory.epochs().try_advance());
    }
}

#[test]
fn a_retired_frame_waits_for_everybody_who_is_pinned() {
    let memory = simple(2, 512);
    let pfn = memory.alloc(&memory.pin(), Request::page(SITE)).unwrap();
    run_on(1);
    let reader = memory.pin();
    run_on(0);
    memory.retire(&memory.pin(), pfn, false);
    let mut others: Vec<Pfn> = Vec::new();
    for round in 0..2 {
        for _ in 0..3 {
            memory.drain(&memory.pin());
        }
        while let Ok(other) = memory.alloc(&memory.pin(), Request::page(SITE)) {
            assert_ne!(other, pfn, "round {round}: reused while a reader is pinned");
            others.push(other);
        }
        assert_eq!(memory.stats().limbo, 1);
        assert_eq!(census(&memory).limbo, 1);
    }
    assert_eq!(
        memory.frame(pfn).kind(),
        Kind::Allocated,
        "a stale reader finds the record as it was"
    );
    drop(reader);
    pass_epochs(&memory, 1);
    // An allocation that would fail looks at what has passed.
    assert_eq!(memory.alloc(&memory.pin(), Request::page(SITE)), Ok(pfn));
    assert_eq!(memory.stats().limbo, 0);
}

/// Somebody who found the page in a cache tries to take a reference to it later.
#[test]
fn a_page_of_an_object_waits_for_those_who_may_have_found_it() {
    let memory = simple(1, 512);
    let finder = memory.pin();
    let page = memory.alloc(&finder, Request::page(SITE)).unwrap();
    memory.frame(page).set_kind(Kind::Object);
    memory.put(&finder, page);
    assert!(!memory.frame(page).try_get(Turn::at(&finder, page.0)));
    while let Ok(other) = memory.alloc(&finder, Request::page(SITE)) {
        assert_ne!(other, page, "in another life");
    }
    drop(finder);
    pass_epochs(&memory, 2);
    assert_eq!(memory.alloc(&memory.pin(), Request::page(SITE)), Ok(page));
}

#[test]
fn many_retirements_are_reused_without_a_shortage() {
    let memory = simple(1, 2048);
    for _ in 0..20_000 {
        let pin = memory.pin();
        let pfn = memory.alloc(&pin, Request::page(SITE)).unwrap();
        memory.retire(&pin, pfn, false);
        drop(pin);
    }
    let stats = memory.stats();
    assert_eq!(stats.failed, 0);
    assert!(stats.limbo < 200, "{} frames wait", stats.limbo);
    census(&memory);
    assert_whole(&memory, 1);
}

#[test]
fn a_frame_retired_as_zero_is_not_zeroed_again() {
    let memory = simple(1, 1024);
    let zeroed = Request::page(Site::TablePage).zeroed();
    let table = memory.alloc(&memory.pin(), zeroed).unwrap();
    memory.frame(table).init_table(1, 1, crate::addr::Vpn(0), 0);
    let before = memory.stats().bytes_zeroed;
    memory.retire(&memory.pin(), table, true);
    pass_epochs(&memory, 2);
    // Let the list that the frame waits in be looked at.
    let other = memory.alloc(&memory.pin(), Request::page(SITE)).unwrap();
    memory.retire(&memory.pin(), other, false);
    assert_eq!(memory.alloc(&memory.pin(), zeroed), Ok(table));
    assert_eq!(memory.stats().bytes_zeroed, before);
    assert_eq!(memory.frame(table).kind(), Kind::Allocated);
    assert_eq!(memory.platform().peek(table), [0; 4096]);
}

#[test]
fn a_retired_frame_keeps_its_flags_for_stale_readers() {
    let memory = simple(1, 1024);
    let pin = memory.pin();
    let table = memory.alloc(&pin, Request::page(Site::TablePage)).unwrap();
    let frame = memory
        .frame(table)
        .init_table(9, 2, crate::addr::Vpn(512), 0);
    frame.set(TableFlags::DEAD);
    memory.retire(&pin, table, false);
    assert!(frame.has(TableFlags::DEAD));
    assert_eq!(
        (frame.kind(), frame.owner(), frame.level()),
        (Kind::Table, 9, 2)
    );
    assert_eq!(frame.base(), crate::addr::Vpn(512));
}

#[test]
fn a_pin_holds_up_the_epoch_however_many_have_passed() {
    let memory = simple(2, 512);
    for round in 0..600 {
        run_on(1);
        let reader = memory.pin();
        run_on(0);
        assert!(memory.epochs().try_advance(), "round {round}");
        assert!(!memory.epochs().try_advance(), "round {round}");
        drop(reader);
        assert!(memory.epochs().try_advance(), "round {round}");
    }
}

#[test]
fn pins_may_be_nested_as_deeply_as_the_caller_likes() {
    let memory = simple(2, 512);
    let pfn = memory.alloc(&memory.pin(), Request::page(SITE)).unwrap();
    run_on(1);
    let mut pins: Vec<_> = (0..100_000).map(|_| memory.pin()).collect();
    run_on(0);
    memory.retire(&memory.pin(), pfn, false);
    while let Some(pin) = pins.pop() {
        assert_eq!(memory.stats().limbo, 1);
        if pins.len() % 1000 == 0 {
            memory.drain(&memory.pin());
        }
        drop(pin);
    }
    for _ in 0..2 {
        memory.drain(&memory.pin());
    }
    assert_eq!(memory.stats().limbo, 0);
}
