//! First touches, which strace does not see.
//!
//! The model: **a page is touched once, when it first becomes accessible** in
//! its mapping: when it is mapped with rights, when `mprotect` gives it some,
//! when the heap or a mapping grows. It is written if it may be written, else
//! executed if it may be executed, else read. Of one such range at most
//! `limit` pages are touched, from its beginning, of a thread's stack
//! (`MAP_STACK`, `MAP_GROWSDOWN`) from its end. Nothing is touched again: not
//! after `fork` (no copy on write), not after `MADV_DONTNEED`.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use super::space::{Fresh, Space};
use vellum_record::Sink;
use vellum_trace::{Access, Event, EventKind, Header, TaskId, TraceError};

const PAGE: u64 = 4096;
const CLONE_VM: u64 = 0x100;
const WRITE: u8 = 2;
const EXECUTE: u8 = 4;

/// A sink that adds first touches to the events that go through it.
pub struct Touching<'a> {
    sink: &'a mut dyn Sink,
    limit: u64,
    /// The address space of each task; it goes with the last one.
    spaces: HashMap<TaskId, Rc<RefCell<Space>>>,
    /// The next mapping is touched from its end.
    from_end: Rc<Cell<bool>>,
    touched: u64,
    left_out: u64,
}

impl<'a> Touching<'a> {
    /// Touches at most `limit` pages of a range.
    pub fn new(sink: &'a mut dyn Sink, limit: u64) -> Self {
        Touching {
            sink,
            limit,
            spaces: HashMap::new(),
            from_end: Rc::default(),
            touched: 0,
            left_out: 0,
        }
    }

    /// Set while the next mapping is one that is used from its end.
    pub fn end_first(&self) -> Rc<Cell<bool>> {
        Rc::clone(&self.from_end)
    }

    /// Follows an event; returns the ranges that became accessible with it.
    fn follow(&mut self, event: &Event) -> Vec<Fresh> {
        let space = Rc::clone(self.spaces.entry(event.task).or_default());
        let mut own = space.borrow_mut();
        match event.kind {
            EventKind::Create { child, clone_flags } => {
                let of_child = if clone_flags & CLONE_VM != 0 {
                    Rc::clone(&space)
                } else {
                    Rc::new(RefCell::new(own.clone()))
                };
                self.spaces.insert(child, of_child);
                Vec::new()
            }
            EventKind::Exec { .. } => {
                self.spaces.insert(event.task, Rc::default());
                Vec::new()
            }
            EventKind::Exit => {
                self.spaces.remove(&event.task);
                Vec::new()
            }
            EventKind::Map {
                address,
                length,
                prot,
                ..
            } => own.map(pages(address, length), prot),
            EventKind::Unmap { address, length } => {
                own.unmap(pages(address, length));
                Vec::new()
            }
            EventKind::Protect {
                address,
                length,
                prot,
            } => own.protect(pages(address, length), prot),
            EventKind::Remap {
                address,
                length,
                new_address,
                new_length,
            } => own.remap(pages(address, length), pages(new_address, new_length)),
            EventKind::Brk { end } => own.set_heap_end(end.div_ceil(PAGE)),
            _ => Vec::new(),
        }
    }

    fn touch(&mut self, event: &Event, (first, end, prot): Fresh) -> Result<(), TraceError> {
        let count = (end - first).min(self.limit);
        let begin = if self.from_end.get() {
            end - count
        } else {
            first
        };
        self.touched += count;
        self.left_out += end - first - count;
        let access = match prot.0 {
            rights if rights & WRITE != 0 => Access::Write,
            rights if rights & EXECUTE != 0 => Access::Execute,
            _ => Access::Read,
        };
        for page in begin..begin + count {
            self.sink.push(&Event {
                kind: EventKind::Fault {
                    address: page * PAGE,
                    access,
                    kernel: false,
                    present: false,
                },
                ..*event
            })?;
        }
        Ok(())
    }

    /// Sentences about what was made up.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = vec![format!(
            "strace sees no faults: {} first touches of pages were made up, each when the page first \
             became accessible, of one range at most {} pages.",
            self.touched, self.limit
        )];
        if self.left_out > 0 {
            notes.push(format!(
                "{} pages beyond that limit were not touched (--touch-limit).",
                self.left_out
            ));
        }
        notes
    }
}

fn pages(address: u64, length: u64) -> (u64, u64) {
    (address / PAGE, (address + length).div_ceil(PAGE))
}

impl Sink for Touching<'_> {
    fn header_mut(&mut self) -> &mut Header {
        self.sink.header_mut()
    }

    fn push(&mut self, event: &Event) -> Result<(), TraceError> {
        self.sink.push(event)?;
        let fresh = self.follow(event);
        fresh
            .into_iter()
            .try_for_each(|range| self.touch(event, range))
    }
}
