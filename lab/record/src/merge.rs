//! Records of all CPUs in one order of time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::error::RecordError;
use crate::faults::{self, Fault};
use crate::raw::{self, Body, Record};
use crate::spool::Spool;

/// One CPU's records, from the first on.
struct Records<'a> {
    chunks: Box<dyn Iterator<Item = std::io::Result<Vec<u8>>> + 'a>,
    chunk: Vec<u8>,
    at: usize,
    length: usize,
}

impl<'a> Records<'a> {
    fn of(spool: &'a Spool, cpu: usize) -> Self {
        Records {
            chunks: Box::new(spool.replay(cpu)),
            chunk: Vec::new(),
            at: 0,
            length: 0,
        }
    }

    /// Moves to the next record. False at the end.
    fn advance(&mut self) -> Result<bool, RecordError> {
        self.at += self.length;
        self.length = 0;
        while self.at == self.chunk.len() {
            let Some(chunk) = self.chunks.next() else {
                return Ok(false);
            };
            self.chunk = chunk.map_err(RecordError::io("cannot read the recorded events back"))?;
            self.at = 0;
        }
        self.length = raw::length(&self.chunk[self.at..])?;
        Ok(true)
    }

    fn current(&self) -> Result<Record<'_>, RecordError> {
        raw::parse(&self.chunk[self.at..self.at + self.length])
    }
}

/// What of a CPU's records is in order of time by itself.
#[derive(Clone)]
enum Lane {
    /// All but faults that were gathered.
    Records,
    /// Those from kernel mode, or the others, each of which has its own buffer; and which of them
    /// is next.
    Faults {
        kernel: bool,
        gathered: Vec<Fault>,
        next: usize,
    },
}

impl Lane {
    fn faults(kernel: bool) -> Lane {
        Lane::Faults {
            kernel,
            gathered: Vec::new(),
            next: 0,
        }
    }
}

/// A CPU's records, as far as they are of one lane.
struct Stream<'a> {
    records: Records<'a>,
    lane: Lane,
    /// Time of the last record that had one.
    time_ns: u64,
}

/// Whether a record is one of faults that were gathered, and what it carries.
fn gathered<'r>(record: &Record<'r>) -> Option<&'r [u8]> {
    match record.body {
        Body::Sample {
            id: faults::MARK,
            raw,
        } => Some(raw),
        _ => None,
    }
}

impl Stream<'_> {
    /// Moves to the next record. `None` at the end, otherwise its time.
    fn advance(&mut self) -> Result<Option<u64>, RecordError> {
        if let Lane::Faults { gathered, next, .. } = &mut self.lane
            && *next + 1 < gathered.len()
        {
            *next += 1;
            self.time_ns = self.time_ns.max(gathered[*next].time_ns());
            return Ok(Some(self.time_ns));
        }
        while self.records.advance()? {
            let record = self.records.current()?;
            let time_ns = match (&mut self.lane, gathered(&record)) {
                (Lane::Records, None) => record.time_ns,
                (
                    Lane::Faults {
                        kernel,
                        gathered,
                        next,
                    },
                    Some(raw),
                ) if faults::is_of_kernel(raw) == *kernel => {
                    gathered.clear();
                    faults::decode(raw, gathered)?;
                    *next = 0;
                    match gathered.first() {
                        Some(first) => first.time_ns(),
                        None => continue,
                    }
                }
                _ => continue,
            };
            // Interrupted writers can leave records a moment out of order.
            self.time_ns = self.time_ns.max(time_ns);
            return Ok(Some(self.time_ns));
        }
        Ok(None)
    }

    /// The current record, and bytes of it.
    fn current(&self) -> Result<(Record<'_>, usize), RecordError> {
        match &self.lane {
            Lane::Records => Ok((self.records.current()?, self.records.length)),
            Lane::Faults { gathered, next, .. } => Ok((
                gathered[*next].record(),
                self.records.length / gathered.len().max(1),
            )),
        }
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
    let stream = |cpu, lane| Stream {
        records: Records::of(spool, cpu),
        lane,
        time_ns: 0,
    };
    let lanes = [Lane::Records, Lane::faults(false), Lane::faults(true)];
    let streams = lanes.into_iter().flat_map(|lane| {
        let each = (0..cpus).map(move |cpu| (cpu, lane.clone()));
        each.map(|(cpu, lane)| stream(cpu, lane))
    });
    let mut streams: Vec<Stream<'_>> = streams.collect();
    let mut heads = BinaryHeap::new();
    for (at, stream) in streams.iter_mut().enumerate() {
        if let Some(time) = stream.advance()? {
            heads.push(Reverse((time, at)));
        }
    }
    let until = spool.until_ns();
    while let Some(Reverse((mut time, at))) = heads.pop() {
        let limit = heads.peek().map(|Reverse(head)| *head);
        let stream = &mut streams[at];
        let mut ended = false;
        while limit.is_none_or(|limit| (time, at) <= limit) {
            if time > until {
                return Ok(());
            }
            let (record, bytes) = stream.current()?;
            take(&record, bytes)?;
            match stream.advance()? {
                Some(next) => time = next,
                None => {
                    ended = true;
                    break;
                }
            }
        }
        if !ended {
            heads.push(Reverse((time, at)));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A sample of tracepoint 7 at a time.
    fn sample(time_ns: u64) -> Vec<u8> {
        let mut record = raw::sample(&[7, 0, 0, 0]);
        record[16..24].copy_from_slice(&time_ns.to_le_bytes());
        record
    }

    fn batch(kernel: u8, times: &[u64]) -> Vec<u8> {
        let mut raw = faults::MARK.to_le_bytes().to_vec();
        raw.extend([kernel, 0]);
        raw.extend((times.len() as u32).to_le_bytes());
        for &time_ns in times {
            for double in [time_ns, 40 << 32 | 41, time_ns << 12] {
                raw.extend(double.to_le_bytes());
            }
        }
        raw::sample(&raw)
    }

    #[test]
    fn faults_that_come_late_in_a_ring_are_in_their_place() {
        let mut spool = Spool::create(&std::env::temp_dir()).unwrap();
        let ring = [sample(10), sample(30), batch(0, &[5, 20, 40]), sample(50)].concat();
        spool.append(0, &ring);
        spool.append(1, &[sample(15), sample(45)].concat());
        spool.append(0, &batch(0, &[55]));
        // The other buffer lay there from the beginning.
        spool.append(0, &batch(1, &[7, 52]));
        let mut seen = Vec::new();
        merge(&spool, 2, |record, _| {
            seen.push((record.time_ns, matches!(record.body, Body::Event(_))));
            Ok(())
        })
        .unwrap();
        let expected = [
            (5, true),
            (7, true),
            (10, false),
            (15, false),
            (20, true),
            (30, false),
            (40, true),
            (45, false),
            (50, false),
            (52, true),
            (55, true),
        ];
        assert_eq!(seen, expected);
    }
}
