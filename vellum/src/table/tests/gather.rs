//! What a gather does with the frames that it took over.

use super::*;
use crate::frame::{PageFlags, Request};
use crate::sync::Turn;

/// Frames in a row, each with a reference more than the gather gets.
fn row(memory: &Memory, frames: u32) -> Pfn {
    let pin = memory.pin();
    let order = frames.next_power_of_two().ilog2();
    let request = Request {
        order,
        ..Request::page(Site::AnonymousPage)
    };
    let first = memory.alloc(&pin, request).unwrap();
    memory.split(first, order);
    for frame in 0..frames {
        let frame = first.offset(frame);
        assert!(memory.frame(frame).try_get(Turn::at(&pin, frame.0)));
    }
    first
}

/// Which of the frames from `first` on are marked dirty.
fn dirty(memory: &Memory, first: Pfn) -> [bool; 4] {
    [0, 1, 2, 3].map(|frame| {
        memory
            .frame(first.offset(frame))
            .page()
            .has(PageFlags::DIRTY)
    })
}

/// A CPU may store to such a page until it has been flushed, and only to such a one.
#[test]
fn pages_whose_entries_were_dirty_are_marked_after_the_flush_and_no_others() {
    let memory = memory();
    let pin = memory.pin();
    for marks in [
        [true; 4],
        [false, true, true, false],
        [true, false, true, false],
    ] {
        let first = row(&memory, 4);
        let mut gather = gather(&memory, &pin);
        for (frame, is_dirty) in (0..).zip(marks) {
            let page = first.offset(frame);
            gather.stale(Vpn(u64::from(frame)));
            if is_dirty {
                gather.dirty_frame(page);
            } else {
                gather.frame(page);
            }
        }
        assert_eq!(dirty(&memory, first), [false; 4], "before the flush");
        gather.flush();
        assert_eq!(dirty(&memory, first), marks);
    }
}

/// As many frames as there is room for can be put in, wherever they lie.
#[test]
fn a_gather_has_the_room_that_it_says() {
    let memory = memory();
    let pin = memory.pin();
    let first = row(&memory, 1024);
    let mut gather = gather(&memory, &pin);
    let room = gather.room() as u32;
    assert!(room > 16, "{room}");
    gather.stale(Vpn(0));
    for frame in 0..room {
        assert_eq!(gather.room() as u32, room - frame);
        gather.frame(first.offset(2 * frame));
    }
    assert_eq!(gather.room(), 0);
    gather.flush();
    assert_eq!(gather.room() as u32, room);
    for frame in 0..2 * room {
        let refs = memory.frame(first.offset(frame)).counts().refs();
        assert_eq!(refs, 1 + frame % 2, "frame {frame}");
    }
}
