//! Places: host memory by the name and the offset that it has on the simulated machine.
//!
//! Which line an access is to must not depend on where the host has put it, or two runs
//! would differ. So all memory that simulated CPUs share is placed before they run:
//! a named, line-aligned range of host memory whose lines are numbered from its start.

use std::ops::Range;

use vellum::platform::NodeId;

/// Bytes of a cache line.
pub(crate) const LINE: usize = 64;
/// Lines in a page of the directory.
pub(crate) const PAGE_LINES: usize = 64;
pub(crate) const PAGE: usize = LINE * PAGE_LINES;
/// Pages in a part of a place.
const PART_PAGES: usize = 512;

/// Where the lines of a range of host memory have their homes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Homes {
    /// All on one node.
    Node(NodeId),
    /// Pages of 4 KiB in turn on each of so many nodes.
    Interleaved(u16),
    /// Ranges of bytes from the start of the place, ascending, each with its node; what
    /// comes after the last has the node of the last.
    Ranges(Vec<(usize, NodeId)>),
}

impl Homes {
    fn of(&self, offset: usize) -> NodeId {
        match self {
            Homes::Node(node) => *node,
            Homes::Interleaved(nodes) => {
                NodeId((offset / PAGE % usize::from(*nodes).max(1)) as u16)
            }
            Homes::Ranges(ranges) => {
                let after = ranges.partition_point(|(start, _)| *start <= offset);
                ranges
                    .get(after.saturating_sub(1))
                    .map_or(NodeId(0), |(_, node)| *node)
            }
        }
    }
}

/// Why memory cannot be placed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PlaceError {
    /// Not at the start of a line, or empty.
    #[error("\"{name}\" is {bytes} bytes that do not begin at a line of {LINE} bytes, or none")]
    Unaligned {
        /// Name of the place.
        name: String,
        /// Its length.
        bytes: usize,
    },
    /// Memory that is placed already.
    #[error("\"{name}\" overlaps \"{other}\"")]
    Overlap {
        /// Name of the place.
        name: String,
        /// The one that is there.
        other: String,
    },
    /// More places than line numbers have room for.
    #[error("there is no room for another place")]
    TooMany,
}

#[derive(Debug)]
struct Place {
    name: String,
    /// Its memory, for who looks at it.
    memory: *const u8,
    bytes: usize,
    /// Host addresses, up to the end of the last line.
    range: Range<usize>,
    homes: Homes,
    /// Whether nobody looks at what is written to whole pages, but that what is zeroed is zero.
    is_spared: bool,
    /// For each part the pages of the directory that lines of it are on.
    parts: Vec<Option<Box<[Slot; PART_PAGES]>>>,
    /// The same for when pages were moved in bulk last.
    moved: Vec<Option<Box<[Moved; PART_PAGES]>>>,
}

/// When a page was zeroed or copied last.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Moved {
    /// The cluster in whose caches it is since then, plus one; 0 if it is in none.
    pub(crate) cluster: u32,
    /// Bytes that had been zeroed and copied there before.
    pub(crate) before: u64,
}

/// What is known of a page of a place.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Slot {
    /// Nobody has touched it.
    Untouched,
    /// A core has written all of it in bulk, and nobody has touched single lines.
    Filled(u16),
    /// The lines are on this page of the directory.
    Lines(u32),
}

/// A page by its place.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Spot {
    pub(crate) place: u16,
    /// Offset of the page in pages.
    pub(crate) page: u32,
}

/// What is known of a part of which nothing is. Out of the way of accesses, on whose stacks it would
/// take a page.
#[cold]
#[inline(never)]
fn part_of<T: Copy>(nothing: T) -> Box<[T; PART_PAGES]> {
    Box::new([nothing; PART_PAGES])
}

/// All places, by host address.
#[derive(Default, Debug)]
pub(crate) struct Places {
    all: Vec<Place>,
    /// Numbers of places by ascending address.
    order: Vec<u16>,
    /// The place of the last access.
    last: usize,
}

impl Places {
    pub(crate) fn add(
        &mut self,
        name: &str,
        memory: *const u8,
        bytes: usize,
        homes: Homes,
    ) -> Result<(), PlaceError> {
        let range = memory.addr()..memory.addr().saturating_add(bytes);
        if range.is_empty() || !range.start.is_multiple_of(LINE) {
            return Err(PlaceError::Unaligned {
                name: name.to_owned(),
                bytes: range.len(),
            });
        }
        // The last line is the place's as a whole.
        let range = range.start..range.end.next_multiple_of(LINE);
        let overlaps =
            |place: &&Place| place.range.start < range.end && range.start < place.range.end;
        if let Some(other) = self.all.iter().find(overlaps) {
            return Err(PlaceError::Overlap {
                name: name.to_owned(),
                other: other.name.clone(),
            });
        }
        let number = u16::try_from(self.all.len()).map_err(|_| PlaceError::TooMany)?;
        let parts = range.len().div_ceil(PAGE * PART_PAGES);
        self.all.push(Place {
            name: name.to_owned(),
            memory,
            bytes,
            range,
            homes,
            is_spared: false,
            parts: (0..parts).map(|_| None).collect(),
            moved: (0..parts).map(|_| None).collect(),
        });
        self.order.push(number);
        let all = &self.all;
        self.order
            .sort_by_key(|&number| all[usize::from(number)].range.start);
        Ok(())
    }

    /// Nobody looks at what is written to whole pages of the place that was added last, but that
    /// what is zeroed is zero.
    ///
    /// # Safety
    /// The memory is a private mapping without a file, nobody holds a Rust reference to it but to
    /// atomic words, and the program runs on this thread.
    pub(crate) unsafe fn spare_last(&mut self) {
        if let Some(place) = self.all.last_mut() {
            place.is_spared = true;
        }
    }

    /// The place and offset of a host address.
    #[inline]
    pub(crate) fn find(&mut self, address: usize) -> Option<(u16, usize)> {
        if let Some(place) = self.all.get(self.last)
            && place.range.contains(&address)
        {
            return Some((self.last as u16, address - place.range.start));
        }
        let all = &self.all;
        let after = self
            .order
            .partition_point(|&number| all[usize::from(number)].range.start <= address);
        let number = *self.order.get(after.checked_sub(1)?)?;
        let place = &self.all[usize::from(number)];
        if !place.range.contains(&address) {
            return None;
        }
        self.last = usize::from(number);
        Some((number, address - place.range.start))
    }

    /// Bytes from `offset` to the end of the place.
    pub(crate) fn left(&self, place: u16, offset: usize) -> usize {
        self.all[usize::from(place)].range.len() - offset
    }

    /// Start and length of each place, by number.
    pub(crate) fn memory(&self) -> impl Iterator<Item = (*const u8, usize)> {
        self.all.iter().map(|place| (place.memory, place.bytes))
    }

    /// Where the host has an offset of a place.
    pub(crate) fn address(&self, place: u16, offset: usize) -> usize {
        self.all[usize::from(place)].range.start + offset
    }

    /// Name of a place, and where the host has it.
    pub(crate) fn named(&self, place: u16) -> (&str, usize) {
        let place = &self.all[usize::from(place)];
        (&place.name, place.range.start)
    }

    pub(crate) fn home(&self, place: u16, offset: usize) -> NodeId {
        self.all[usize::from(place)].homes.of(offset)
    }

    /// What is known of the page at `offset`.
    #[inline]
    pub(crate) fn slot(&mut self, place: u16, offset: usize) -> &mut Slot {
        let page = offset / PAGE;
        let part = &mut self.all[usize::from(place)].parts[page / PART_PAGES];
        &mut part.get_or_insert_with(|| part_of(Slot::Untouched))[page % PART_PAGES]
    }

    /// Whether some bytes need not be written in bulk: they are those of whole pages that
    /// nobody uses line by line, and nobody looks at them.
    pub(crate) fn is_spared(&mut self, address: usize, bytes: usize) -> bool {
        let Some((place, offset)) = self.find(address) else {
            return false;
        };
        let is_whole = offset.is_multiple_of(PAGE) && bytes.is_multiple_of(PAGE);
        is_whole
            && self.all[usize::from(place)].is_spared
            && (offset..offset + bytes)
                .step_by(PAGE)
                .all(|offset| !matches!(self.slot(place, offset), Slot::Lines(_)))
    }

    /// All of the page at `offset` is being written in bulk. If nobody looks at what is written, the
    /// host gets the page back, which is zero if anybody uses it again.
    pub(crate) fn discard(&mut self, place: u16, offset: usize) {
        let place = &self.all[usize::from(place)];
        if !place.is_spared {
            return;
        }
        let page: *mut u8 = place.memory.cast_mut().wrapping_add(offset);
        // SAFETY: the promise of `spare_last`: a whole page of such a mapping, which reads as zero
        // afterwards. It is about to be overwritten, so what it held is nobody's.
        let is_gone = unsafe { libc::madvise(page.cast(), PAGE, libc::MADV_DONTNEED) } == 0;
        if !is_gone {
            // Pages of the host are larger.
            // SAFETY: as above; the thread that would write is this one.
            unsafe { page.write_bytes(0, PAGE) };
        }
    }

    /// When the page at `offset` was moved last.
    pub(crate) fn moved(&mut self, place: u16, offset: usize) -> &mut Moved {
        let page = offset / PAGE;
        let part = &mut self.all[usize::from(place)].moved[page / PART_PAGES];
        &mut part.get_or_insert_with(|| part_of(Moved::default()))[page % PART_PAGES]
    }

    /// The page at `offset` and the line in it.
    #[inline]
    pub(crate) fn spot(place: u16, offset: usize) -> (Spot, usize) {
        let page = (offset / PAGE) as u32;
        (Spot { place, page }, offset % PAGE / LINE)
    }

    /// Offset of a page in its place.
    pub(crate) fn offset(spot: Spot) -> usize {
        spot.page as usize * PAGE
    }
}
