//! What is done, in which order, and what of it is timed.

use crate::bench::lat_mmap::Size;
use crate::bench::sweep::size_name;

const MIB: u64 = 1 << 20;

/// Files of each side.
pub const FILES: usize = 2;

/// Bytes that one side moves before another has its turn.
const PIECE: u64 = 32 * MIB;

/// Blocks of the calls.
pub const BLOCKS: [u64; 2] = [4 << 10, MIB];

/// What a CPU does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum What {
    /// `pwrite`.
    Write,
    /// `pread`.
    Read,
    /// `ftruncate` to nothing.
    Cut,
    /// `mmap`, stores, `munmap`.
    Map,
    /// Have the kernel forget the pages of a file that are in memory.
    Forget,
    /// First stores to private memory, one a page.
    Touch,
    /// `madvise` that gives that memory back.
    Discard,
}

impl What {
    /// In words, for errors.
    pub fn name(self) -> &'static str {
        match self {
            What::Write => "writing",
            What::Read => "reading",
            What::Cut => "truncating a file",
            What::Map => "mapping a file",
            What::Forget => "dropping a file from the page cache",
            What::Touch => "storing to memory",
            What::Discard => "giving memory back",
        }
    }
}

/// What one CPU does in one piece.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    /// What.
    pub what: What,
    /// Number of the file.
    pub file: usize,
    /// First byte.
    pub at: u64,
    /// Bytes.
    pub bytes: u64,
    /// Bytes of each call.
    pub block: u64,
}

impl Work {
    /// Place and bytes of each call.
    pub fn blocks(&self) -> impl Iterator<Item = (u64, usize)> + use<> {
        let Work {
            at, bytes, block, ..
        } = *self;
        let end = at + bytes;
        (at..end)
            .step_by(block as usize)
            .map(move |from| (from, block.min(end - from) as usize))
    }
}

/// With what a step is timed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Timed {
    /// CPU time of those that work.
    Cpu,
    /// Time from the first CPU's beginning to the last one's end.
    Elapsed,
    /// Both, in figures of their own.
    Both,
    /// It is not.
    Not,
}

/// Something that all sides do.
#[derive(Clone, Debug)]
pub struct Step {
    /// What the figure is called.
    pub name: String,
    /// What one unit of it is.
    pub per: &'static str,
    /// Units.
    pub units: f64,
    /// How it is timed.
    pub timed: Timed,
    /// Work of each CPU, in pieces that the sides do in turn.
    pub pieces: Vec<Vec<Work>>,
}

/// Who writes what.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// One CPU one file.
    One,
    /// Two CPUs a file each.
    Files,
    /// Two CPUs the halves of one file.
    Halves,
}

impl Place {
    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Place::One => "one CPU",
            Place::Files => "two CPUs, two files",
            Place::Halves => "two CPUs, halves of one file",
        }
    }
}

/// Writes, writes again and reads by one CPU, each by its CPU time.
pub fn alone(bytes: u64, block: u64) -> Vec<Step> {
    let of = |what: What, name: &str| Step {
        name: format!("{name}, {}", size_name(block)),
        per: "MiB",
        units: bytes as f64 / MIB as f64,
        timed: Timed::Cpu,
        pieces: (0..bytes)
            .step_by(PIECE as usize)
            .map(|at| {
                vec![Work {
                    what,
                    file: 0,
                    at,
                    bytes: PIECE.min(bytes - at),
                    block,
                }]
            })
            .collect(),
    };
    vec![
        of(What::Write, "new pages"),
        of(What::Write, "overwrite"),
        of(What::Read, "read"),
        cut(0),
    ]
}

/// Writes and writes again of `bytes` for each CPU at once, by elapsed time.
pub fn together(bytes: u64, block: u64, place: Place) -> Vec<Step> {
    let cpus = if place == Place::One { 1 } else { 2 };
    let work = |cpu: usize| {
        let (file, at) = match place {
            Place::Halves => (0, cpu as u64 * bytes),
            _ => (cpu, 0),
        };
        Work {
            what: What::Write,
            file,
            at,
            bytes,
            block,
        }
    };
    let of = |name: &str| Step {
        name: together_name(name, block, place),
        per: "MiB",
        units: (bytes / MIB * cpus as u64) as f64,
        timed: Timed::Elapsed,
        pieces: vec![(0..cpus).map(work).collect()],
    };
    let mut steps: Vec<Step> = AGAIN.map(of).into();
    steps.extend((0..FILES).map(cut));
    steps
}

/// First and second writes.
pub const AGAIN: [&str; 2] = ["new pages", "overwrite"];

/// What a figure of [`together`] is called.
pub fn together_name(what: &str, block: u64, place: Place) -> String {
    format!("{what}, {}, {}", size_name(block), place.name())
}

/// Truncates a file, not timed.
pub fn cut(file: usize) -> Step {
    Step {
        name: String::new(),
        per: "",
        units: 0.0,
        timed: Timed::Not,
        pieces: vec![vec![Work {
            what: What::Cut,
            file,
            at: 0,
            bytes: 0,
            block: MIB,
        }]],
    }
}

/// Mappings of every size, and truncation of the whole file, which is written for each.
pub fn calls(bytes: u64, sizes: &[Size], samples: u64) -> Vec<Step> {
    let work = |what: What, bytes: u64| Work {
        what,
        file: 0,
        at: 0,
        bytes,
        block: MIB,
    };
    let fill = Step {
        pieces: vec![vec![work(What::Write, bytes)]],
        ..cut(0)
    };
    let map = |size: &Size| Step {
        name: format!("map {}", size.label()),
        per: "iteration",
        units: samples as f64,
        timed: Timed::Cpu,
        pieces: vec![vec![work(What::Map, size.bytes)]; samples as usize],
    };
    let cut = Step {
        name: format!("truncate {}", size_name(bytes)),
        per: "MiB",
        units: bytes as f64 / MIB as f64,
        timed: Timed::Cpu,
        ..cut(0)
    };
    let mut steps = vec![fill];
    steps.extend(sizes.iter().map(map));
    steps.push(cut);
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_byte_is_written_by_one_cpu_in_one_call() {
        for place in [Place::One, Place::Files, Place::Halves] {
            for block in BLOCKS {
                let steps = together(3 * MIB + 4096, block, place);
                let mut covered: Vec<(usize, u64, u64)> = steps[0].pieces[0]
                    .iter()
                    .flat_map(|work| {
                        work.blocks()
                            .map(|(at, bytes)| (work.file, at, at + bytes as u64))
                    })
                    .collect();
                covered.sort_unstable();
                let whole = covered.windows(2).all(|pair| {
                    let same = pair[0].0 == pair[1].0;
                    if same {
                        pair[0].2 == pair[1].1
                    } else {
                        pair[1].1 == 0
                    }
                });
                assert!(whole, "{place:?}: {covered:?}");
                let bytes: u64 = covered.iter().map(|(_, from, to)| to - from).sum();
                let cpus = steps[0].pieces[0].len() as u64;
                assert_eq!(bytes, cpus * (3 * MIB + 4096));
            }
        }
        let pieces = &alone(70 * MIB, MIB)[0].pieces;
        let sizes: Vec<u64> = pieces.iter().map(|piece| piece[0].bytes / MIB).collect();
        assert_eq!(sizes, [32, 32, 6]);
    }
}
