//! The events of all copies of a process family in one order.
//!
//! Copy `n` runs some time after copy 0, so that they do not do the same thing
//! at the same moment. The shifts come from the seed alone.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use vellum_trace::{Event, EventKind, TraceError};

/// An event of one copy.
#[derive(Clone, Copy, Debug)]
pub(super) struct Next {
    pub(super) event: Event,
    pub(super) copy: u32,
    /// Number of the event in the trace, from 0.
    pub(super) index: u32,
    /// When it happens among the events of all copies, in microseconds.
    pub(super) time_us: u64,
}

/// Merges copies by shifted time.
pub(super) struct Merge<I> {
    copies: Vec<Copy<I>>,
    /// Copies with an event at hand: shifted time, copy.
    order: BinaryHeap<Reverse<(u64, u32)>>,
}

struct Copy<I> {
    events: I,
    shift_us: u64,
    at_hand: Option<Event>,
    index: u32,
}

impl<I: Iterator<Item = Result<Event, TraceError>>> Merge<I> {
    pub(super) fn new(copies: Vec<I>, duration_us: u64, seed: u64) -> Result<Self, TraceError> {
        let copies = copies
            .into_iter()
            .enumerate()
            .map(|(number, events)| Copy {
                events,
                shift_us: shift(number as u64, duration_us, seed),
                at_hand: None,
                index: 0,
            })
            .collect();
        let mut merge = Self {
            copies,
            order: BinaryHeap::new(),
        };
        for number in 0..merge.copies.len() as u32 {
            merge.advance(number)?;
        }
        Ok(merge)
    }

    /// The next event of any copy.
    pub(super) fn next(&mut self) -> Result<Option<Next>, TraceError> {
        let Some(Reverse((time_us, number))) = self.order.pop() else {
            return Ok(None);
        };
        let copy = &mut self.copies[number as usize];
        let next = copy.at_hand.take().map(|event| Next {
            event,
            copy: number,
            // A sample of accessed marks counts as part of the event before it.
            index: copy.index.saturating_sub(1),
            time_us,
        });
        self.advance(number)?;
        Ok(next)
    }

    fn advance(&mut self, number: u32) -> Result<(), TraceError> {
        let copy = &mut self.copies[number as usize];
        if let Some(event) = copy.events.next().transpose()? {
            self.order
                .push(Reverse((event.time_us + copy.shift_us, number)));
            copy.at_hand = Some(event);
            let is_event = !matches!(event.kind, EventKind::Accessed { .. });
            copy.index = copy.index.saturating_add(u32::from(is_event));
        }
        Ok(())
    }
}

/// How much later copy `number` runs: up to an eighth of the recording.
fn shift(number: u64, duration_us: u64, seed: u64) -> u64 {
    if number == 0 {
        return 0;
    }
    // One step of the SplitMix64 generator.
    let mut z = seed.wrapping_add(number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (z ^ (z >> 31)) % (duration_us / 8 + 1)
}
