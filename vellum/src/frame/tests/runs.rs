//! Runs that are whole or divided, and references to them that are taken by a frame's number.

use super::*;

const ORDER: u32 = 3;
const FRAMES: u32 = 1 << ORDER;

/// A memory, and in it a whole run of private pages that one entry maps.
fn whole() -> (Memory, Pfn) {
    let memory = simple(1, 1024);
    let pin = memory.pin();
    let first = memory
        .alloc(&pin, Request::page(SITE).order(ORDER))
        .unwrap();
    let head = memory.frame(first);
    head.set_kind(Kind::Anonymous);
    head.set_owner(7);
    head.set_index(40, ORDER);
    head.init_whole();
    drop(pin);
    (memory, first)
}

/// A reference to a private page that is mapped, as who knows only the frame takes it.
fn hold(memory: &Memory, frame: Pfn) -> Option<Counts> {
    let pin = memory.pin();
    memory.frame(frame).try_get_mapped(Turn::at(&pin, frame.0))
}

fn divide(memory: &Memory, first: Pfn) {
    let pin = memory.pin();
    let run = memory.lock_run(&pin, first, ORDER);
    let counts = memory.divide_records(&run, first);
    for step in 1..FRAMES {
        // Reverse mapping has not completed the record.
        assert!(hold(memory, first.offset(step)).is_none());
    }
    memory.set_divided(&run, first, counts);
}

fn unite(memory: &Memory, first: Pfn) -> bool {
    let pin = memory.pin();
    let run = memory.lock_run(&pin, first, ORDER);
    let all = memory.take_parts(&run, first).is_ok();
    if all {
        memory.unite_records(&run, first);
    }
    all
}

fn refs(memory: &Memory, first: Pfn) -> std::vec::Vec<u32> {
    let frames = (0..FRAMES).map(|step| memory.frame(first.offset(step)).counts());
    frames.map(|counts| counts.refs()).collect()
}

/// The entries' references go, and the frames.
fn unmap_parts(memory: &Memory, first: Pfn) {
    let pin = memory.pin();
    for step in 0..FRAMES {
        memory.frame(first.offset(step)).remove_mapping();
        memory.put(&pin, first.offset(step));
    }
}

#[test]
fn a_reference_to_a_whole_run_is_one_to_each_frame_once_it_is_divided() {
    let (memory, first) = whole();
    let before = hold(&memory, first).unwrap();
    assert!(before.is_whole() && (before.refs(), before.maps()) == (1, 1));
    divide(&memory, first);
    assert_eq!(refs(&memory, first), [2; FRAMES as usize]);
    assert!(!memory.frame(first).counts().is_whole());
    memory.put_run(&memory.pin(), first, ORDER);
    assert_eq!(refs(&memory, first), [1; FRAMES as usize]);
    unmap_parts(&memory, first);
    assert_whole(&memory, 0);
}

#[test]
fn a_reference_to_a_frame_of_a_divided_run_is_one_to_it_alone_and_keeps_the_run_divided() {
    let (memory, first) = whole();
    divide(&memory, first);
    for held in [0, 5].map(|step| first.offset(step)) {
        assert!(!hold(&memory, held).unwrap().is_whole());
        assert!(!unite(&memory, first), "{held:?}");
        assert!(!memory.frame(first).counts().is_whole());
        memory.put(&memory.pin(), held);
        assert_eq!(refs(&memory, first), [1; FRAMES as usize]);
    }
    assert!(unite(&memory, first));
    assert!(hold(&memory, first).unwrap().is_whole());
    memory.frame(first).remove_mapping();
    let pin = memory.pin();
    memory.put_run(&pin, first, ORDER);
    memory.put_run(&pin, first, ORDER);
    drop(pin);
    assert_whole(&memory, 0);
}

#[test]
fn a_reference_outlives_the_entry_of_a_whole_run() {
    let (memory, first) = whole();
    hold(&memory, first).unwrap();
    memory.frame(first).remove_mapping();
    memory.put_run(&memory.pin(), first, ORDER);
    // No entry maps it: nobody else finds it.
    assert!(hold(&memory, first).is_none());
    memory.put_run(&memory.pin(), first, ORDER);
    assert!(!memory.frame(first).counts().is_whole());
    assert_whole(&memory, 0);
}
