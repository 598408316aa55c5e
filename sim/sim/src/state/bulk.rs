//! Bytes in bulk.

use vellum::sync::report::Kind;

use super::State;
use super::prices::bulk;
use crate::line::NOBODY;
use crate::places::PAGE;

impl State {
    /// Reads or writes bytes in bulk: as fast as the core can, from memory or from its
    /// caches, and its share of the node's memory allows.
    pub(super) fn stream(
        &mut self,
        place: u16,
        offset: usize,
        bytes: usize,
        [memory, cached]: [f64; 2],
        kind: Kind,
    ) {
        let core = self.me().core;
        let around = kind == Kind::BytesZeroedAround;
        let (mut near, mut far) = (0, 0);
        let mut at = offset;
        while at < offset + bytes {
            let next = (offset + bytes).min((at / PAGE + 1) * PAGE);
            let part = (next - at) as u64;
            match self.directory.is_cached((place, at), part, core, around) {
                true => near += part,
                false => far += part,
            }
            at = next;
        }
        let clock = self.me().clock;
        let node_done = match far {
            0 => clock,
            _ => {
                let busy = bulk(far, self.prices.node);
                self.directory.stream((place, offset), far, clock, busy)
            }
        };
        let time = bulk(far, memory) + bulk(near, cached);
        self.compute(time.max(self.prices.hit));
        let me = self.me();
        me.clock = me.clock.max(node_done);
        me.totals.bulk_bytes += far;
        let at = me.clock;
        if kind != Kind::BytesRead {
            let by = self.by(u8::MAX);
            let mut woken = Vec::new();
            self.directory
                .fill((place, offset), bytes, by, at, |directory, id| {
                    if directory.line(id).waiters != NOBODY {
                        woken.push(id);
                    }
                });
            for id in woken {
                self.wake_spinners(id, at);
            }
        }
    }
}
