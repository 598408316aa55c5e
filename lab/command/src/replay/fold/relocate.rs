//! Moving the parts of a recorded layout closer together, so that they fit a
//! smaller address space.
//!
//! The recorded space is seen in chunks of 1 GiB, or, if a plan was made for a very
//! small space (`plan`), of 2 MiB that all have a place from the beginning. A chunk of
//! 1 GiB gets its place when
//! something in it is first mapped or touched: at the same distance from a
//! neighbour that is near, else in the middle of the free places between the
//! chunks below and above it. So the order of addresses stays, what adjoined
//! adjoins, and stacks and heaps have room to grow. The same events always give
//! the same places. A forked space starts with its parent's places, a new
//! program with none.

use std::collections::BTreeMap;

use thiserror::Error;

use vellum_trace::EventKind;

/// Log2 of the 4 KiB pages of a chunk.
const CHUNK_SHIFT: u32 = 18;
/// Chunks at most this far apart keep their distance.
const NEAR: u64 = 32;
const PAGE_SHIFT: u32 = 12;
/// Pages of the recorded address space.
pub(super) const RECORDED_PAGES: u64 = super::RECORDED.user_end;

/// A recorded layout is too wide for the engine's address space.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum DoesNotFit {
    /// A range found no room among the others.
    #[error(
        "the trace maps {:#x}..{:#x} in a space that does not fit {places} GiB of addresses, \
         however its parts are moved together; replay it with format=sv48, x86-64 or \
         aarch64-4k, which have room for it",
        start << PAGE_SHIFT, end << PAGE_SHIFT
    )]
    Range {
        /// First 4 KiB page of the range.
        start: u64,
        /// One past its last page.
        end: u64,
        /// Chunks that the space has.
        places: u64,
    },
    /// A program uses more addresses than there are.
    #[error(
        "a program of the trace uses {megabytes} MiB of addresses in {parts} parts, which do \
         not fit a space of {room} MiB; replay it with format=sv48, x86-64 or aarch64-4k, \
         which have room for it"
    )]
    Program {
        /// What it uses, in steps of 2 MiB.
        megabytes: u64,
        /// Parts that do not adjoin one another.
        parts: usize,
        /// MiB of the space.
        room: u64,
    },
}

/// Where the chunks of one space are.
#[derive(Clone, Debug)]
pub(super) struct Relocation {
    /// Log2 of the 4 KiB pages of a chunk.
    shift: u32,
    places: u64,
    /// New chunk by recorded chunk. Ascending in both.
    chunks: BTreeMap<u64, u64>,
}

impl Relocation {
    /// For a space with room for `pages` 4 KiB pages.
    pub(super) fn new(pages: u64) -> Relocation {
        Relocation {
            shift: CHUNK_SHIFT,
            places: pages >> CHUNK_SHIFT,
            chunks: BTreeMap::new(),
        }
    }

    /// With `places` places for chunks of `1 << shift` pages, those in `chunks` taken.
    pub(super) fn planned(shift: u32, places: u64, chunks: Vec<(u64, u64)>) -> Relocation {
        Relocation {
            shift,
            places,
            chunks: BTreeMap::from_iter(chunks),
        }
    }

    /// Appends what becomes of an event.
    pub(super) fn event(
        &mut self,
        kind: EventKind,
        out: &mut Vec<EventKind>,
    ) -> Result<(), DoesNotFit> {
        let moved = match kind {
            EventKind::Map {
                address: from,
                length,
                prot,
                shared,
                grows_down,
                file,
                offset,
                origin,
            } => EventKind::Map {
                address: self.place(from, length)?,
                length,
                prot,
                shared,
                grows_down,
                file,
                offset,
                origin,
            },
            EventKind::Remap {
                address,
                length,
                new_address,
                new_length,
            } => EventKind::Remap {
                address: self.place(address, length.max(1))?,
                length,
                new_address: self.place(new_address, new_length.max(1))?,
                new_length,
            },
            EventKind::Brk { end } => EventKind::Brk {
                // The end may be the first byte of a chunk that the heap is not in.
                end: self.place(end.saturating_sub(1), 1)? + u64::from(end > 0),
            },
            EventKind::Fault {
                address,
                access,
                kernel,
                present,
            } => EventKind::Fault {
                address: self.place(address, 1)?,
                access,
                kernel,
                present,
            },
            EventKind::Unmap { address, length } => {
                for (address, length) in self.known(address, length) {
                    out.push(EventKind::Unmap { address, length });
                }
                return Ok(());
            }
            EventKind::Accessed { address, length } => {
                for (address, length) in self.known(address, length) {
                    out.push(EventKind::Accessed { address, length });
                }
                return Ok(());
            }
            EventKind::Protect {
                address,
                length,
                prot,
            } => {
                for (address, length) in self.known(address, length) {
                    out.push(EventKind::Protect {
                        address,
                        length,
                        prot,
                    });
                }
                return Ok(());
            }
            EventKind::Advise {
                address,
                length,
                advice,
            } => {
                for (address, length) in self.known(address, length) {
                    out.push(EventKind::Advise {
                        address,
                        length,
                        advice,
                    });
                }
                return Ok(());
            }
            other => other,
        };
        out.push(moved);
        Ok(())
    }

    /// The new address of `length` bytes at `address`, whose chunks get places
    /// if they have none. What is no address of a program stays as it is.
    pub(super) fn place(&mut self, address: u64, length: u64) -> Result<u64, DoesNotFit> {
        let end = address.saturating_add(length).div_ceil(1 << PAGE_SHIFT);
        if length == 0 || end > RECORDED_PAGES {
            return Ok(address);
        }
        let start = address >> PAGE_SHIFT;
        let refusal = DoesNotFit::Range {
            start,
            end,
            places: self.places,
        };
        let chunks = (start >> self.shift)..=((end - 1) >> self.shift);
        if chunks.end() - chunks.start() >= self.places {
            return Err(refusal);
        }
        let first = self.chunk(*chunks.start()).ok_or(refusal)?;
        for (expected, chunk) in (first..).zip(chunks) {
            if self.chunk(chunk) != Some(expected) {
                return Err(refusal);
            }
        }
        Ok(self.moved(address, first))
    }

    /// The place of a chunk, given now if it has none.
    fn chunk(&mut self, chunk: u64) -> Option<u64> {
        if let Some(place) = self.chunks.get(&chunk) {
            return Some(*place);
        }
        let below = self.chunks.range(..chunk).next_back();
        let above = self.chunks.range(chunk..).next();
        // The first and the last chunk stay empty.
        let lowest = below.map_or(1, |(_, place)| place + 1);
        let end = above.map_or(self.places - 1, |(_, place)| *place);
        let near_below = below.filter(|(old, _)| chunk - **old <= NEAR);
        let near_above = above.filter(|(old, _)| **old - chunk <= NEAR);
        let place = match (near_below, near_above) {
            (Some((old, place)), _) => place + (chunk - old),
            (None, Some((old, place))) => place.checked_sub(old - chunk)?,
            (None, None) => lowest.midpoint(end),
        };
        if !(lowest..end).contains(&place) {
            return None;
        }
        self.chunks.insert(chunk, place);
        Some(place)
    }

    /// The parts of a byte range that lie in chunks with places, as new
    /// addresses and lengths. Elsewhere nothing is mapped.
    fn known(&self, address: u64, length: u64) -> Vec<(u64, u64)> {
        let end = address.saturating_add(length);
        let chunk_bytes = 1u64 << (self.shift + PAGE_SHIFT);
        if length == 0 || end.div_ceil(1 << PAGE_SHIFT) > RECORDED_PAGES {
            return vec![(address, length)];
        }
        let mut parts: Vec<(u64, u64)> = Vec::new();
        for (chunk, place) in self
            .chunks
            .range(address / chunk_bytes..end.div_ceil(chunk_bytes))
        {
            let from = address.max(chunk * chunk_bytes);
            let to = end.min((chunk + 1) * chunk_bytes);
            let new = self.moved(from, *place);
            match parts.last_mut() {
                Some((start, length)) if *start + *length == new => *length += to - from,
                _ => parts.push((new, to - from)),
            }
        }
        parts
    }

    /// `address` in the chunk at `place`.
    fn moved(&self, address: u64, place: u64) -> u64 {
        let shift = self.shift + PAGE_SHIFT;
        place << shift | address & ((1 << shift) - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn sv39() -> Relocation {
        Relocation::new(1 << 26)
    }

    #[test]
    fn a_usual_layout_keeps_its_order_and_its_neighbourhoods() {
        let mut space = sv39();
        let parts = [
            (0x5555_5555_4000, 0x20_0000u64),
            (0x7fff_f7fc_0000, 0x3_0000),
            (0x7fff_fffd_e000, 0x2_1000),
            (0x7fff_f000_0000, 0x800_0000),
            (0x5555_8000_0000, 0x2_1000),
            (0x7fff_bff0_0000, 0x20_0000),
        ];
        let mut moved: Vec<(u64, u64)> = parts
            .map(|(address, length)| (address, space.place(address, length).unwrap()))
            .to_vec();
        moved.sort_unstable();
        assert!(moved.is_sorted_by_key(|(_, new)| *new), "{moved:x?}");
        for (old, new) in &moved {
            assert!(*new < 1 << 38 && new % GIB == old % GIB);
        }
        for pair in moved
            .windows(2)
            .filter(|pair| pair[1].0 - pair[0].0 < 8 * GIB)
        {
            assert_eq!(pair[1].0 - pair[0].0, pair[1].1 - pair[0].1, "{pair:x?}");
        }
    }

    #[test]
    fn the_same_address_always_moves_to_the_same_place() {
        let mut space = sv39();
        let first = space.place(0x7fff_0000_1234, 8).unwrap();
        space.place(0x40_0000, 8).unwrap();
        assert_eq!(space.place(0x7fff_0000_1234, 8), Ok(first));
        let mut child = space.clone();
        assert_eq!(child.place(0x7fff_0000_1234, 8), Ok(first));
    }

    #[test]
    fn ranges_grow_in_both_directions_without_a_break() {
        let mut space = sv39();
        let at = space.place(100 * GIB, GIB).unwrap();
        for step in 1..10 {
            assert_eq!(space.place((100 - step) * GIB, GIB), Ok(at - step * GIB));
            assert_eq!(space.place((100 + step) * GIB, GIB), Ok(at + step * GIB));
        }
        assert_eq!(space.place(95 * GIB + 5, 10 * GIB), Ok(at - 5 * GIB + 5));
        assert_eq!(space.known(90 * GIB, 100 * GIB), [(at - 9 * GIB, 19 * GIB)]);
        assert_eq!(space.known(200 * GIB, 100 * GIB), []);
    }

    #[test]
    fn a_reservation_beyond_the_space_is_refused_with_a_way_out() {
        let error = sv39().place(0x7000_0000_0000, 1 << 40).unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains("256 GiB") && text.contains("format=sv48"),
            "{text}"
        );
    }

    #[test]
    fn what_is_no_programs_address_stays() {
        assert_eq!(
            sv39().place(0xffff_ffff_ff60_0000, 8),
            Ok(0xffff_ffff_ff60_0000)
        );
    }
}
