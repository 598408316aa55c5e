//! Raw records on their way from the ring buffers to the trace.
//!
//! While the workload runs, the recorder only moves bytes: what a ring held is
//! compressed fast and appended to a file that has no name, so that nothing is
//! left behind however the recorder ends. Afterwards each CPU's bytes are read
//! back in order.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// What one drain of one ring yielded: whole records.
#[derive(Debug)]
struct Chunk {
    cpu: usize,
    place: Place,
    length: usize,
}

/// Where it is.
#[derive(Debug)]
enum Place {
    File { offset: u64, stored: usize },
    Memory(Vec<u8>),
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
    /// Events that were not recorded, beside those that records tell of.
    missed: u64,
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
            missed: 0,
            packer: zstd::bulk::Compressor::new(-2)?,
            packed: Vec::new(),
        })
    }

    /// Appends records that `cpu` made. Those that the file does not take stay in memory, and
    /// the spool is cut.
    pub fn append(&mut self, cpu: usize, records: &[u8]) {
        let place = match self.store(records) {
            Ok(place) => place,
            Err(why) => {
                self.cut_short(why);
                Place::Memory(records.to_vec())
            }
        };
        self.chunks.push(Chunk {
            cpu,
            place,
            length: records.len(),
        });
    }

    fn store(&mut self, records: &[u8]) -> io::Result<Place> {
        if self.is_cut() {
            return Ok(Place::Memory(records.to_vec()));
        }
        self.packed.clear();
        self.packed
            .reserve(zstd::zstd_safe::compress_bound(records.len()));
        let stored = self.packer.compress_to_buffer(records, &mut self.packed)?;
        self.file.write_all_at(&self.packed, self.end)?;
        let offset = self.end;
        self.end += stored as u64;
        Ok(Place::File { offset, stored })
    }

    /// All records of before `time_ns` have been appended.
    pub fn is_complete_until(&mut self, time_ns: u64) {
        self.complete_ns = time_ns;
    }

    /// The file takes nothing more. Records that came after the last time for which those
    /// of all CPUs are there are of no use.
    pub fn cut_short(&mut self, why: io::Error) {
        self.cut.get_or_insert(why);
    }

    /// Whether the records end early.
    pub fn is_cut(&self) -> bool {
        self.cut.is_some()
    }

    /// So many events more were not recorded.
    pub fn missed(&mut self, events: u64) {
        self.missed += events;
    }

    /// Events that were not recorded, beside those that records tell of.
    pub fn missed_events(&self) -> u64 {
        self.missed
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
        chunks.map(|chunk| match &chunk.place {
            Place::Memory(records) => Ok(records.clone()),
            Place::File { offset, stored } => {
                let mut bytes = vec![0; *stored];
                self.file.read_exact_at(&mut bytes, *offset)?;
                zstd::bulk::decompress(&bytes, chunk.length)
            }
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
            if round == 15 {
                spool.cut_short(io::Error::other("full"));
            }
            spool.append(usize::from(round % 3), &[round; 1000]);
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
