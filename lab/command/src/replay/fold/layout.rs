//! Folding 4 KiB pages onto larger ones.

use vellum_engine::{Access, FileSlot, Prot};

use super::trace_prot;
use crate::replay::regions::{Region, Regions, Source};
use vellum_trace::{EventKind, FileId, MapOrigin};

const PAGE_SHIFT: u32 = 12;
/// Pages of the recorded address space.
const RECORDED_PAGES: u64 = super::RECORDED.user_end;

/// `MADV_*` numbers that fault pages in; every other one is about pages that
/// are there.
const MADV_POPULATE_READ: u32 = 22;
const MADV_POPULATE_WRITE: u32 = 23;

/// What a space maps, in 4 KiB pages.
#[derive(Clone, Debug, Default)]
pub(super) struct Layout {
    regions: Regions,
    heap: Option<Heap>,
}

/// The heap as `brk` has it.
#[derive(Clone, Copy, Debug)]
struct Heap {
    /// In 4 KiB pages.
    start: u64,
    end: u64,
    /// First large page.
    first: u64,
}

/// A large page at the edge of a range: it has 4 KiB pages outside of it.
#[derive(Clone, Copy, Debug)]
struct Edge {
    page: u64,
    /// What it allowed before the change; `None` if it was not mapped.
    before: Option<Prot>,
}

/// The folding of one event.
pub(super) struct Folding<'a> {
    pub(super) layout: &'a mut Layout,
    /// Log2 of the 4 KiB pages in a large one.
    pub(super) shift: u32,
    pub(super) out: &'a mut Vec<EventKind>,
}

/// Pages `start..end` of a byte range of a program's addresses.
fn pages(address: u64, length: u64) -> Option<(u64, u64)> {
    let end = address.checked_add(length)?.div_ceil(1 << PAGE_SHIFT);
    (length > 0 && end <= RECORDED_PAGES).then_some((address >> PAGE_SHIFT, end))
}

fn union(one: Prot, other: Prot) -> Prot {
    Prot {
        read: one.read | other.read,
        write: one.write | other.write,
        execute: one.execute | other.execute,
    }
}

/// The rights as x86 enforces them.
fn enforced(prot: vellum_trace::Prot) -> Prot {
    Prot {
        read: prot.0 & 7 != 0,
        write: prot.0 & 2 != 0,
        execute: prot.0 & 4 != 0,
    }
}

impl Folding<'_> {
    pub(super) fn event(&mut self, kind: EventKind) {
        match kind {
            EventKind::Map {
                address, length, ..
            } => match pages(address, length) {
                Some((start, end)) => self.map(kind, start, end),
                None => self.out.push(kind),
            },
            EventKind::Unmap { address, length } => match pages(address, length) {
                Some((start, end)) => self.unmap(start, end),
                None => self.out.push(kind),
            },
            EventKind::Protect {
                address,
                length,
                prot,
            } => match pages(address, length) {
                Some((start, end)) => self.protect(start, end, enforced(prot)),
                None => self.out.push(kind),
            },
            EventKind::Remap {
                address,
                length,
                new_address,
                new_length,
            } => match (pages(address, length), pages(new_address, new_length)) {
                (Some(old), Some(new)) => self.remap(old, new),
                _ => self.out.push(kind),
            },
            EventKind::Brk { end } => self.brk(end),
            EventKind::Advise {
                address,
                length,
                advice,
            } => match pages(address, length) {
                Some((start, end)) => self.advise(start, end, advice),
                None => self.out.push(kind),
            },
            EventKind::Fault {
                address,
                access,
                kernel,
                present,
            } => self.fault(address, access, kernel, present),
            EventKind::Accessed { address, length } => {
                if let Some((start, end)) =
                    pages(address, length).filter(|(start, end)| start < end)
                {
                    let (start, end) = (self.large(start), self.large_end(end));
                    self.out.push(EventKind::Accessed {
                        address: start << PAGE_SHIFT,
                        length: (end - start) << PAGE_SHIFT,
                    });
                }
            }
            EventKind::MapAround { file, first, last } => self.out.push(EventKind::MapAround {
                file,
                first: first >> self.shift,
                last: last >> self.shift,
            }),
            EventKind::FileRead {
                file,
                offset,
                length,
            } => {
                let (offset, length) = self.transfer(offset, length);
                self.out.push(EventKind::FileRead {
                    file,
                    offset,
                    length,
                });
            }
            EventKind::FileWrite {
                file,
                offset,
                length,
            } => {
                let (offset, length) = self.transfer(offset, length);
                self.out.push(EventKind::FileWrite {
                    file,
                    offset,
                    length,
                });
            }
            EventKind::Truncate { file, size } => {
                let pages = size.div_ceil(1 << (PAGE_SHIFT + self.shift));
                let size = pages << PAGE_SHIFT;
                self.out.push(EventKind::Truncate { file, size });
            }
            other => self.out.push(other),
        }
    }

    /// The large page of a page.
    fn large(&self, page: u64) -> u64 {
        page >> self.shift
    }

    /// One past the large page of the last page before `end`.
    fn large_end(&self, end: u64) -> u64 {
        end.div_ceil(1 << self.shift)
    }

    /// Pages of a large page.
    fn parts(&self, page: u64) -> Vec<Region> {
        let start = page << self.shift;
        self.layout.regions.parts(start, start + (1 << self.shift))
    }

    /// What a large page allows: what any page in it does. `None` if none is mapped.
    fn rights(&self, page: u64) -> Option<Prot> {
        self.parts(page).iter().map(|part| part.prot).reduce(union)
    }

    /// Whether a large page has mapped pages outside of `start..end`.
    fn is_shared(&self, page: u64, start: u64, end: u64) -> bool {
        let outside = |part: &Region| part.start < start || part.end > end;
        self.parts(page).iter().any(outside)
    }

    /// The large pages of which `start..end` is only a part.
    fn edges(&self, start: u64, end: u64) -> Vec<Edge> {
        let mut pages = vec![self.large(start), self.large(end - 1)];
        pages.dedup();
        pages.retain(|page| {
            let first = page << self.shift;
            first < start || end < first + (1 << self.shift)
        });
        let edge = |page| Edge {
            page,
            before: self.rights(page),
        };
        pages.into_iter().map(edge).collect()
    }

    /// The large pages of `start..end` without those that have mapped pages
    /// outside of it.
    fn own(&self, start: u64, end: u64) -> (u64, u64) {
        let (mut first, mut last) = (self.large(start), self.large_end(end));
        if self.is_shared(first, start, end) {
            first += 1;
        }
        if last > first && self.is_shared(last - 1, start, end) {
            last -= 1;
        }
        (first, last)
    }

    /// Hands on the new rights of edges that were mapped and still are.
    fn settle(&mut self, edges: &[Edge]) {
        for edge in edges {
            if let (Some(before), Some(now)) = (edge.before, self.rights(edge.page))
                && before != now
            {
                self.put_protect(edge.page, edge.page + 1, now);
            }
        }
    }

    fn put_protect(&mut self, first: u64, end: u64, prot: Prot) {
        if first < end {
            self.out.push(EventKind::Protect {
                address: first << PAGE_SHIFT,
                length: (end - first) << PAGE_SHIFT,
                prot: trace_prot(prot),
            });
        }
    }

    fn put_unmap(&mut self, first: u64, end: u64) {
        if first < end {
            self.out.push(EventKind::Unmap {
                address: first << PAGE_SHIFT,
                length: (end - first) << PAGE_SHIFT,
            });
        }
    }

    /// Hands on a mapping of the large pages `first..end` with what `region` has.
    fn put_map(&mut self, first: u64, end: u64, region: &Region, origin: MapOrigin) {
        if first >= end {
            return;
        }
        let skipped = (first << self.shift).saturating_sub(region.start);
        let (file, page) = match region.source.skip(skipped) {
            Source::File { file, page } => (Some(FileId(file.0)), page >> self.shift),
            _ => (None, 0),
        };
        self.out.push(EventKind::Map {
            address: first << PAGE_SHIFT,
            length: (end - first) << PAGE_SHIFT,
            prot: trace_prot(region.prot),
            shared: region.shared,
            grows_down: region.grows_down,
            file,
            offset: page << PAGE_SHIFT,
            origin,
        });
    }

    fn map(&mut self, kind: EventKind, start: u64, end: u64) {
        let EventKind::Map {
            prot,
            shared,
            grows_down,
            file,
            offset,
            origin,
            ..
        } = kind
        else {
            return;
        };
        let source = match file {
            Some(file) => Source::File {
                file: FileSlot(file.0),
                page: offset >> PAGE_SHIFT,
            },
            None => Source::Anonymous,
        };
        let region = Region {
            start,
            end,
            prot: enforced(prot),
            shared,
            grows_down,
            source,
        };
        self.put(region, origin);
    }

    /// Maps `region` where nobody else has a part of the large page.
    fn put(&mut self, region: Region, origin: MapOrigin) {
        let (start, end) = (region.start, region.end);
        let edges = self.edges(start, end);
        let (first, last) = self.own(start, end);
        self.layout.regions.insert(region);
        self.put_map(first, last, &region, origin);
        let outside = |edge: &Edge| edge.page < first || edge.page >= last;
        let edges: Vec<Edge> = edges.into_iter().filter(outside).collect();
        self.settle(&edges);
    }

    fn unmap(&mut self, start: u64, end: u64) {
        let edges = self.edges(start, end);
        let (first, last) = self.own(start, end);
        if self.layout.regions.remove(start, end).is_empty() {
            return;
        }
        self.put_unmap(first, last);
        self.settle(&edges);
    }

    fn protect(&mut self, start: u64, end: u64, prot: Prot) {
        let edges = self.edges(start, end);
        self.layout.regions.protect(start, end, prot);
        // Edges that come to the same rights go with what is between them.
        let (mut first, mut last) = (self.large_end(start), self.large(end));
        let mut others = Vec::new();
        for edge in edges {
            let same = edge.before.is_some() && self.rights(edge.page) == Some(prot);
            if same && edge.page + 1 == first {
                first -= 1;
                last = last.max(first + 1);
            } else if same && edge.page == last {
                last += 1;
            } else {
                others.push(edge);
            }
        }
        self.put_protect(first, last, prot);
        self.settle(&others);
    }

    fn remap(&mut self, old: (u64, u64), new: (u64, u64)) {
        let parts = self.layout.regions.parts(old.0, old.1);
        let known: u64 = parts.iter().map(|part| part.end - part.start).sum();
        let Some(last) = parts.last().copied().filter(|_| known == old.1 - old.0) else {
            return self.remap_unknown(old, new);
        };
        if old.0 != new.0 {
            return self.relocate(old, new, &parts);
        }
        if new.1 < old.1 {
            return self.unmap(new.1, old.1);
        }
        if new.1 > old.1 {
            self.grow(old.1, new.1, &last);
        }
    }

    /// `last`, which ends at `from`, grows to `to`.
    fn grow(&mut self, from: u64, to: u64, last: &Region) {
        let edges = self.edges(from, to);
        let mapped = self.large_end(from);
        let (_, end) = self.own(from, to);
        self.layout.regions.insert(Region {
            start: from,
            end: to,
            source: last.behind(from),
            ..*last
        });
        if mapped < end {
            let address = (mapped - 1) << PAGE_SHIFT;
            self.out.push(EventKind::Remap {
                address,
                length: 1 << PAGE_SHIFT,
                new_address: address,
                new_length: (end - mapped + 1) << PAGE_SHIFT,
            });
        }
        self.settle(&edges);
    }

    /// Something unknown moved: the translation maps its new place anonymously,
    /// and so does this.
    fn remap_unknown(&mut self, old: (u64, u64), new: (u64, u64)) {
        self.unmap(old.0, old.1);
        let region = Region::anonymous(new.0, new.1);
        self.put(region, MapOrigin::Mmap);
    }

    /// Large pages that the range leaves empty move to those that it finds so.
    fn relocate(&mut self, old: (u64, u64), new: (u64, u64), parts: &[Region]) {
        let mut edges = self.edges(old.0, old.1);
        let source = self.own(old.0, old.1);
        self.layout.regions.remove(old.0, old.1);
        edges.extend(self.edges(new.0, new.1));
        let target = self.own(new.0, new.1);
        self.layout.regions.remove(new.0, new.1);
        for (number, part) in parts.iter().enumerate() {
            let mut moved = part.moved_to(new.0 + (part.start - old.0));
            moved.end = match number + 1 == parts.len() {
                true => new.1,
                false => moved.end.min(new.1),
            };
            if moved.start < moved.end {
                self.layout.regions.insert(moved);
            }
        }
        let overlap = source.0 < target.1 && target.0 < source.1;
        let (moves, lands) = (source.0 < source.1, target.0 < target.1);
        if moves && lands && !overlap {
            self.out.push(EventKind::Remap {
                address: source.0 << PAGE_SHIFT,
                length: (source.1 - source.0) << PAGE_SHIFT,
                new_address: target.0 << PAGE_SHIFT,
                new_length: (target.1 - target.0) << PAGE_SHIFT,
            });
        } else {
            self.put_unmap(source.0, source.1);
            let first = parts[0].moved_to(new.0);
            self.put_map(target.0, target.1, &first, MapOrigin::Mmap);
        }
        let touched = |edge: &Edge| {
            let within = |range: (u64, u64)| (range.0..range.1).contains(&edge.page);
            within(source) || within(target)
        };
        edges.retain(|edge| !touched(edge));
        self.settle(&edges);
    }

    fn brk(&mut self, end: u64) {
        let end = end.div_ceil(1 << PAGE_SHIFT);
        let Some(heap) = self.layout.heap else {
            let page = self.large(end);
            let inside = page << self.shift != end && self.rights(page).is_some();
            let heap = Heap {
                start: end,
                end,
                first: page + u64::from(inside),
            };
            self.layout.heap = Some(heap);
            return self.put_brk(heap.first);
        };
        if end < heap.start || end > RECORDED_PAGES {
            return;
        }
        self.layout.heap = Some(Heap { end, ..heap });
        if end < heap.end {
            self.layout.regions.remove(end, heap.end);
        } else if end > heap.end {
            let edges = self.edges(heap.end, end);
            self.layout.regions.insert(Region::anonymous(heap.end, end));
            self.settle(&edges);
        }
        let mut last = match end == heap.start {
            true => heap.first,
            false => self.large_end(end),
        };
        if last > heap.first && self.is_shared(last - 1, heap.start, end) {
            last -= 1;
        }
        self.put_brk(last.max(heap.first));
    }

    fn put_brk(&mut self, end: u64) {
        self.out.push(EventKind::Brk {
            end: end << PAGE_SHIFT,
        });
    }

    fn advise(&mut self, start: u64, end: u64, advice: u32) {
        let (first, last) = match advice {
            MADV_POPULATE_READ | MADV_POPULATE_WRITE => (self.large(start), self.large_end(end)),
            _ => self.own(start, end),
        };
        if first < last {
            self.out.push(EventKind::Advise {
                address: first << PAGE_SHIFT,
                length: (last - first) << PAGE_SHIFT,
                advice,
            });
        }
    }

    fn fault(&mut self, address: u64, access: vellum_trace::Access, kernel: bool, present: bool) {
        let page = address >> PAGE_SHIFT;
        if page < RECORDED_PAGES {
            if self.layout.regions.at(page).is_none() {
                self.layout.regions.grow_stack(page);
            }
            let wanted = match access {
                vellum_trace::Access::Read => Access::Read,
                vellum_trace::Access::Write => Access::Write,
                vellum_trace::Access::Execute => Access::Execute,
            };
            let is_refused = self
                .layout
                .regions
                .at(page)
                .is_some_and(|region| !region.allows(wanted));
            let large = self.large(page);
            // What the page's neighbours allow cannot be refused to it.
            if is_refused && self.parts(large).iter().any(|part| part.allows(wanted)) {
                return;
            }
            let address = large << PAGE_SHIFT;
            return self.out.push(EventKind::Fault {
                address,
                access,
                kernel,
                present,
            });
        }
        self.out.push(EventKind::Fault {
            address,
            access,
            kernel,
            present,
        });
    }

    /// Byte range of a read or write, as large pages.
    fn transfer(&self, offset: u64, length: u64) -> (u64, u64) {
        let bits = PAGE_SHIFT + self.shift;
        match offset.checked_add(length).filter(|_| length > 0) {
            Some(end) => {
                let (first, last) = (offset >> bits, end.div_ceil(1 << bits));
                (first << PAGE_SHIFT, (last - first) << PAGE_SHIFT)
            }
            None => (offset, length),
        }
    }
}
