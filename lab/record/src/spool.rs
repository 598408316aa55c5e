//! Raw records on their way from the ring buffers to the trace.
//!
//! While the workload runs, the recorder only moves bytes: what a ring held is
//! compressed fast and appended to a file that has no name, so that nothing is
//! left behind however the recorder ends. Afterwards each CPU's bytes are read
//! back in order.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// What one drain of one ring yielded: whole records.
#[derive(Clone, Copy, Debug)]
struct Chunk {
    cpu: usize,
    offset: u64,
    stored: usize,
    length: usize,
}

/// The file and what is where in it.
pub struct Spool {
    file: File,
    chunks: Vec<Chunk>,
    end: u64,
    /// Up to when, in nanoseconds, the records of all CPUs are there.
    complete_ns: u64,
    /// Why what came later could not be kept.
    cut: Option<io::Error>,
    packer: zstd::bulk::Compressor<'static>,
    packed: Vec<u8>,
}

impl Spool {
    /// An empty spool in `directory`.
    pub fn create(directory: &Path) -> io::Result<Spool> {
        let file = tempfile::tempfile_in(directory)?;
        Ok(Spool {
            file,
            chunks: Vec::new(),
            end: 0,
            complete_ns: 0,
            cut: None,
            packer: zstd::bulk::Compressor::new(-2)?,
            packed: Vec::new(),
        })
    }

    /// Appends records that `cpu` made.
    pub fn append(&mut self, cpu: usize, records: &[u8]) -> io::Result<()> {
        self.packed.clear();
        self.packed
            .reserve(zstd::zstd_safe::compress_bound(records.len()));
        let stored = self.packer.compress_to_buffer(records, &mut self.packed)?;
        self.file.write_all(&self.packed)?;
        self.chunks.push(Chunk {
            cpu,
            offset: self.end,
            stored,
            length: records.len(),
        });
        self.end += stored as u64;
        Ok(())
    }

    /// All records of before `time_ns` have been appended.
    pub fn is_complete_until(&mut self, time_ns: u64) {
        self.complete_ns = time_ns;
    }

    /// Nothing more can be appended. Records that came after the last time for which those
    /// of all CPUs are there are of no use.
    pub fn cut_short(&mut self, why: io::Error) {
        self.cut = Some(why);
    }

    /// Why the records end before the command did, if they do.
    pub fn why_cut(&self) -> Option<&io::Error> {
        self.cut.as_ref()
    }

    /// The same, for an error.
    pub fn take_cut(&mut self) -> Option<io::Error> {
        self.cut.take()
    }

    /// Up to when records are of use.
    pub fn until_ns(&self) -> u64 {
        match self.cut {
            Some(_) => self.complete_ns,
            None => u64::MAX,
        }
    }

    /// Bytes of records in the spool.
    pub fn record_bytes(&self) -> u64 {
        self.chunks.iter().map(|chunk| chunk.length as u64).sum()
    }

    /// The CPU's records from the first on, a chunk at a time.
    pub fn replay(&self, cpu: usize) -> impl Iterator<Item = io::Result<Vec<u8>>> + '_ {
        let chunks = self.chunks.iter().filter(move |chunk| chunk.cpu == cpu);
        chunks.map(|chunk| {
            let mut stored = vec![0; chunk.stored];
            self.file.read_exact_at(&mut stored, chunk.offset)?;
            zstd::bulk::decompress(&stored, chunk.length)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spools_of_one_process_lie_in_one_directory_and_leave_nothing_there() {
        let scratch = vellum_testing::Scratch::new("record-spools");
        let create = || Spool::create(Path::new(scratch.directory()));
        // At once, for whatever name a spool has for a moment.
        std::thread::scope(|threads| {
            let makers: Vec<_> = (0..4)
                .map(|_| threads.spawn(|| (0..50).map(|_| create().map(drop)).collect()))
                .collect();
            for maker in makers {
                let made: io::Result<Vec<()>> = maker.join().unwrap();
                made.unwrap();
            }
        });
        assert!(scratch.files().is_empty());
    }

    #[test]
    fn each_cpu_gets_its_own_bytes_back_in_order() {
        let mut spool = Spool::create(&std::env::temp_dir()).unwrap();
        for round in 0..20u8 {
            spool
                .append(usize::from(round % 3), &[round; 1000])
                .unwrap();
        }
        let second: Vec<u8> = spool.replay(1).flat_map(|chunk| chunk.unwrap()).collect();
        let expected: Vec<u8> = [1u8, 4, 7, 10, 13, 16, 19]
            .iter()
            .flat_map(|round| [*round; 1000])
            .collect();
        assert_eq!(second, expected);
        assert_eq!(spool.record_bytes(), 20_000);
    }
}
