//! A workload without what a design does not meet.

use super::workload::{Segment, Stream, Wait, Workload};

impl Workload {
    /// The same without the operations at the positions `left_out`, ascending, of each stream.
    /// What waited for one of them waits for what comes before it.
    pub fn without(&self, left_out: &[Vec<u32>]) -> Workload {
        let left = |stream: usize, end: u32| match left_out.get(stream) {
            Some(out) => end - out.partition_point(|at| *at < end) as u32,
            None => end,
        };
        let streams = self.streams.iter().enumerate().map(|(number, stream)| {
            let out = left_out.get(number).map_or(&[][..], Vec::as_slice);
            stream.without(out, |end| left(number, end), left)
        });
        let cuts = self.cuts.iter().enumerate();
        let beginning = self.beginning.iter().enumerate();
        Workload {
            streams: streams.collect(),
            cuts: cuts
                .map(|(place, end)| left(place % self.streams.len(), *end))
                .collect(),
            beginning: beginning.map(|(number, end)| left(number, *end)).collect(),
            files: self.files.clone(),
            ..*self
        }
    }
}

impl Stream {
    /// The same without the operations at `left_out`; `mine` and `any` tell how many operations
    /// before a position stay, of this stream and of any.
    fn without(
        &self,
        left_out: &[u32],
        mine: impl Fn(u32) -> u32,
        any: impl Fn(usize, u32) -> u32,
    ) -> Stream {
        let segments = self.segments.iter().map(|segment| Segment {
            start: mine(segment.start),
            end: mine(segment.end),
            ..*segment
        });
        let waits = self.waits.iter().map(|wait| Wait {
            ops: any(wait.stream as usize, wait.ops),
            ..*wait
        });
        Stream {
            ops: kept(&self.ops, left_out),
            classes: kept(&self.classes, left_out),
            expectations: kept(&self.expectations, left_out),
            origins: kept(&self.origins, left_out),
            segments: segments.collect(),
            waits: waits.collect(),
            user_ns: self.user_ns.clone(),
        }
    }
}

/// All but those at `left_out`.
fn kept<T: Copy>(all: &[T], left_out: &[u32]) -> Vec<T> {
    let mut kept = Vec::with_capacity(all.len() - left_out.len());
    let mut from = 0;
    for at in left_out.iter().map(|at| *at as usize) {
        kept.extend_from_slice(&all[from..at]);
        from = at + 1;
    }
    kept.extend_from_slice(&all[from..]);
    kept
}
