//! First touches, which strace does not see.
//!
//! The model: **a page is touched once, when it first becomes accessible** in
//! its mapping: when it is mapped with rights, when `mprotect` gives it some,
//! when the heap or a mapping grows. It is written if it may be written, else
//! executed if it may be executed, else read. Of one such range at most
//! `limit` pages are touched, from its beginning, of a thread's stack
//! (`MAP_STACK`, `MAP_GROWSDOWN`) from its end. Nothing is touched again: not
//! after `fork` (no copy on write), not after `MADV_DONTNEED`.

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use vellum_record::Sink;
use vellum_trace::model::{Region, Regions};
use vellum_trace::{Access, Event, EventKind, Header, MapOrigin, Prot, TaskId, TraceError};

const PAGE: u64 = 4096;
const CLONE_VM: u64 = 0x100;
const WRITE: u8 = 2;
const EXECUTE: u8 = 4;

/// What is known of an address space. Cloned when a process is, copied when
/// one of the two changes.
#[derive(Clone, Default)]
struct Space {
    regions: Regions,
    /// Ranges of pages that have been accessible: first page, page after.
    seen: BTreeMap<u64, u64>,
    heap: Option<u64>,
}

impl Space {
    /// The pages of the range were not accessible yet, whatever was there before.
    fn forget(&mut self, first: u64, end: u64) {
        let overlapping: Vec<(u64, u64)> = self
            .seen
            .range(..end)
            .rev()
            .take_while(|(_, seen_end)| **seen_end > first)
            .map(|(begin, end)| (*begin, *end))
            .collect();
        for (seen, seen_end) in overlapping {
            self.seen.remove(&seen);
            if seen < first {
                self.seen.insert(seen, first);
            }
            if seen_end > end {
                self.seen.insert(end, seen_end);
            }
        }
    }

    /// The pages of the range are accessible; returns those that were not.
    fn see(&mut self, first: u64, end: u64) -> Vec<(u64, u64)> {
        let mut fresh = Vec::new();
        let mut at = first;
        let before = self.seen.range(..first).next_back();
        if let Some((_, seen_end)) = before {
            at = at.max(*seen_end);
        }
        for (seen, seen_end) in self.seen.range(first..end) {
            if *seen > at {
                fresh.push((at, *seen));
            }
            at = at.max(*seen_end);
        }
        if at < end {
            fresh.push((at, end));
        }
        for (first, end) in &fresh {
            self.seen.insert(*first, *end);
        }
        fresh
    }
}

/// A sink that adds first touches to the events that go through it.
pub struct Touching<'a> {
    sink: &'a mut dyn Sink,
    limit: u64,
    /// Address spaces, and the one of each task.
    spaces: HashMap<usize, Rc<Space>>,
    of_task: HashMap<TaskId, usize>,
    next: usize,
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
            of_task: HashMap::new(),
            next: 0,
            from_end: Rc::default(),
            touched: 0,
            left_out: 0,
        }
    }

    /// Set while the next mapping is one that is used from its end.
    pub fn end_first(&self) -> Rc<Cell<bool>> {
        Rc::clone(&self.from_end)
    }

    fn fresh_space(&mut self, task: TaskId, space: Rc<Space>) -> usize {
        let id = self.next;
        self.next += 1;
        self.spaces.insert(id, space);
        self.of_task.insert(task, id);
        id
    }

    fn enter(&mut self, task: TaskId) -> usize {
        match self.of_task.get(&task) {
            Some(id) => *id,
            None => self.fresh_space(task, Rc::default()),
        }
    }

    /// Drops a space that no task uses any more.
    fn leave(&mut self, task: TaskId) {
        if let Some(id) = self.of_task.remove(&task)
            && !self.of_task.values().any(|other| *other == id)
        {
            self.spaces.remove(&id);
        }
    }

    /// Follows an event; returns the ranges that became accessible with it.
    fn follow(&mut self, event: &Event) -> Vec<(u64, u64, Prot)> {
        let id = self.enter(event.task);
        match event.kind {
            EventKind::Create { child, clone_flags } => {
                if clone_flags & CLONE_VM != 0 {
                    self.of_task.insert(child, id);
                } else {
                    let space = self.spaces.get(&id).cloned().unwrap_or_default();
                    self.fresh_space(child, space);
                }
                return Vec::new();
            }
            EventKind::Exec { .. } => {
                self.leave(event.task);
                self.enter(event.task);
                return Vec::new();
            }
            EventKind::Exit => {
                self.leave(event.task);
                return Vec::new();
            }
            _ => {}
        }
        let space = Rc::make_mut(self.spaces.entry(id).or_default());
        let mut fresh = Vec::new();
        let mut see = |space: &mut Space, first: u64, end: u64, prot: Prot| {
            if prot.0 != 0 && first < end {
                let ranges = space.see(first, end);
                fresh.extend(ranges.into_iter().map(|(first, end)| (first, end, prot)));
            }
        };
        match event.kind {
            EventKind::Map {
                address,
                length,
                prot,
                ..
            } => {
                let (first, end) = pages(address, length);
                space.forget(first, end);
                space.regions.insert(first, end, region(prot));
                see(space, first, end, prot);
            }
            EventKind::Unmap { address, length } => {
                let (first, end) = pages(address, length);
                space.forget(first, end);
                space.regions.remove(first, end);
            }
            EventKind::Protect {
                address,
                length,
                prot,
            } => {
                let (first, end) = pages(address, length);
                space.regions.protect(first, end, prot);
                for (first, end) in known(&space.regions, first, end) {
                    see(space, first, end, prot);
                }
            }
            EventKind::Remap {
                address,
                length,
                new_address,
                new_length,
            } => {
                let (from, to) = (pages(address, length), pages(new_address, new_length));
                let rights = space.regions.find(from.0).map(|(.., region)| region.prot);
                space.regions.relocate(from, to);
                space.forget(from.0, from.1);
                space.forget(to.0, to.1);
                let moved = (from.1 - from.0).min(to.1 - to.0);
                space.see(to.0, to.0 + moved);
                see(space, to.0 + moved, to.1, rights.unwrap_or(Prot(0)));
            }
            EventKind::Brk { end } => {
                let end = end.div_ceil(PAGE);
                let old = space.heap.replace(end).unwrap_or(end);
                if end < old {
                    space.forget(end, old);
                    space.regions.remove(end, old);
                } else if end > old {
                    space.regions.insert(old, end, region(Prot(3)));
                    see(space, old, end, Prot(3));
                }
            }
            _ => {}
        }
        fresh
    }

    fn touch(
        &mut self,
        event: &Event,
        (first, end, prot): (u64, u64, Prot),
    ) -> Result<(), TraceError> {
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

fn region(prot: Prot) -> Region {
    Region {
        prot,
        shared: false,
        grows_down: false,
        file: None,
        file_page: 0,
        origin: MapOrigin::Mmap,
        heap: false,
    }
}

/// The mapped parts of a range.
fn known(regions: &Regions, first: u64, end: u64) -> Vec<(u64, u64)> {
    let mut parts = Vec::new();
    let mut at = first;
    while at < end {
        let Some((begin, part_end)) = regions.next_from(at) else {
            break;
        };
        if begin >= end {
            break;
        }
        parts.push((begin.max(at), part_end.min(end)));
        at = part_end;
    }
    parts
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
