//! Blocks as values, and the unsafe doors beside them.

use super::*;

/// Frames free or in lists, and frames in use.
fn split(memory: &Memory) -> (u64, u64) {
    let stats = memory.stats();
    (stats.free + stats.cached, stats.used())
}

#[test]
fn blocks_come_back_however_they_are_let_go() {
    let memory = simple(1, 1024);
    let before = split(&memory);
    for order in [0, 3] {
        let request = Request::page(SITE).order(order);
        let take = || memory.alloc_owned(&memory.pin(), request).unwrap();
        let taken = |frames: u64| (before.0 - frames, before.1 + frames);
        drop(take());
        assert_eq!(split(&memory), before);
        take().free(&memory.pin());
        assert_eq!(split(&memory), before);
        let first = take().into_raw();
        assert_eq!(split(&memory), taken(1 << order));
        // SAFETY: given up in the line before.
        let block = unsafe { OwnedBlock::from_raw(&memory, first, order) };
        assert_eq!((block.first(), block.order()), (first, order));
        assert_eq!(split(&memory), taken(1 << order));
        drop(block);
        assert_eq!(split(&memory), before);
        memory.audit_frames().unwrap();
    }
}

#[test]
fn the_frames_of_a_block_come_back_one_by_one() {
    let memory = simple(1, 1024);
    let before = split(&memory);
    for taken in 0..=8 {
        let request = Request::page(SITE).order(3);
        let block = memory.alloc_owned(&memory.pin(), request).unwrap();
        let first = block.first();
        let mut frames = block.into_frames();
        let kept: Vec<_> = frames.by_ref().take(taken).collect();
        let numbers: Vec<_> = kept.iter().map(|block| block.first()).collect();
        let expected: Vec<_> = (0..taken as u32).map(|step| first.offset(step)).collect();
        assert_eq!(numbers, expected);
        drop(frames);
        assert_eq!(
            split(&memory),
            (before.0 - taken as u64, before.1 + taken as u64)
        );
        // In another order than they stand in.
        kept.into_iter().rev().for_each(drop);
        assert_eq!(split(&memory), before);
        memory.audit_frames().unwrap();
    }
    let whole = Request::page(SITE).order(super::super::MAX_ORDER - 1);
    memory.drain(&memory.pin());
    assert!(
        memory.alloc_owned(&memory.pin(), whole).is_ok(),
        "they are one block again"
    );
}

#[test]
fn counted_references_keep_a_frame_until_the_last() {
    let memory = simple(1, 1024);
    let before = split(&memory);
    let pin = memory.pin();
    let frame = memory.alloc(&pin, Request::page(SITE)).unwrap();
    // SAFETY: the references that are dropped are the one handed out and this one.
    unsafe {
        assert!(memory.get_raw(&pin, frame));
        memory.put_raw(&pin, frame, 0);
        assert_eq!(memory.view().frame(frame).counts().refs(), 1);
        memory.put_raw(&pin, frame, 0);
        assert!(!memory.get_raw(&pin, frame));
    }
    assert_eq!(split(&memory), before);
}

#[test]
fn bytes_of_a_block_are_those_of_its_frames_in_a_row() {
    // High memory, so that every frame is reached through a window.
    let map = [
        range(0x100, 256, 0, Zone::Low),
        range(0x1000, 256, 0, Zone::High),
    ];
    run_on(0);
    let memory = PhysicalMemory::new(TestMachine::new(&[0], &map)).unwrap();
    let mut rng = Rng::new(73);
    let request = Request::page(SITE).order(2).zeroed();
    let block = memory.alloc_owned(&memory.pin(), request).unwrap();
    assert!(!memory.is_direct(block.first()));
    let other = memory.alloc_owned(&memory.pin(), request).unwrap();
    let size = block.size();
    let mut model = std::vec![0; size];
    let pin = memory.pin();
    for round in 0..500 {
        let offset = rng.below(size + 9);
        let data: Vec<u8> = (0..rng.below(2 * 4096)).map(|_| rng.next() as u8).collect();
        let fits = data.len().min(size.saturating_sub(offset));
        assert_eq!(block.write(&pin, offset, &data), fits, "round {round}");
        let offset = offset.min(size);
        model[offset..offset + fits].copy_from_slice(&data[..fits]);
        let (offset, count) = (rng.below(size + 9), rng.below(2 * 4096));
        let mut found = std::vec![7; count];
        let fits = count.min(size.saturating_sub(offset));
        assert_eq!(block.read(&pin, offset, &mut found), fits, "round {round}");
        let offset = offset.min(size);
        assert_eq!(found[..fits], model[offset..offset + fits], "round {round}");
        assert!(found[fits..].iter().all(|byte| *byte == 7));
    }
    let mut found = std::vec![7; size];
    other.read(&pin, 0, &mut found);
    assert!(found.iter().all(|byte| *byte == 0));
    assert_eq!(block.write(&pin, usize::MAX, &[1]), 0);
}
