//! Records of all CPUs in one order of time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::error::RecordError;
use crate::raw::{self, Record};
use crate::spool::Spool;

/// One CPU's records.
struct Stream<'a> {
    chunks: Box<dyn Iterator<Item = std::io::Result<Vec<u8>>> + 'a>,
    chunk: Vec<u8>,
    at: usize,
    length: usize,
    /// Time of the last record that had one.
    time_ns: u64,
}

impl Stream<'_> {
    /// Moves to the next record. `None` at the end, otherwise its time.
    fn advance(&mut self) -> Result<Option<u64>, RecordError> {
        self.at += self.length;
        self.length = 0;
        while self.at == self.chunk.len() {
            let Some(chunk) = self.chunks.next() else {
                return Ok(None);
            };
            self.chunk = chunk.map_err(RecordError::io("cannot read the recorded events back"))?;
            self.at = 0;
        }
        self.length = raw::length(&self.chunk[self.at..])?;
        // Interrupted writers can leave records a moment out of order.
        self.time_ns = self.time_ns.max(self.current()?.time_ns);
        Ok(Some(self.time_ns))
    }

    fn current(&self) -> Result<Record<'_>, RecordError> {
        raw::parse(&self.chunk[self.at..self.at + self.length])
    }
}

/// Calls `take` for every record in the spool of `cpus` CPUs, in order of time,
/// with the record's length in bytes, up to when the spool has those of all CPUs.
/// Returns the first error, of the records or of `take`.
pub fn merge(
    spool: &Spool,
    cpus: usize,
    mut take: impl FnMut(&Record<'_>, usize) -> Result<(), RecordError>,
) -> Result<(), RecordError> {
    let mut streams: Vec<Stream<'_>> = (0..cpus)
        .map(|cpu| Stream {
            chunks: Box::new(spool.replay(cpu)),
            chunk: Vec::new(),
            at: 0,
            length: 0,
            time_ns: 0,
        })
        .collect();
    let mut heads = BinaryHeap::new();
    for (cpu, stream) in streams.iter_mut().enumerate() {
        if let Some(time) = stream.advance()? {
            heads.push(Reverse((time, cpu)));
        }
    }
    let until = spool.until_ns();
    while let Some(Reverse((mut time, cpu))) = heads.pop() {
        let limit = heads.peek().map(|Reverse(head)| *head);
        let stream = &mut streams[cpu];
        while limit.is_none_or(|limit| (time, cpu) <= limit) {
            if time > until {
                return Ok(());
            }
            take(&stream.current()?, stream.length)?;
            match stream.advance()? {
                Some(next) => time = next,
                None => break,
            }
        }
        if stream.length > 0 {
            heads.push(Reverse((time, cpu)));
        }
    }
    Ok(())
}
