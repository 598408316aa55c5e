//! Programs that are run on memory and, access by access, on simulated TLBs.

use super::{Noted, Plain};

/// Memory by words of 8 bytes.
pub trait Words {
    fn load(&mut self, at: usize) -> u64;
    fn store(&mut self, at: usize, value: u64);
}

type OnPlain = fn(&mut Plain<'_>) -> u64;
type OnNoted = fn(&mut Noted<'_>) -> u64;

/// A program.
#[derive(Clone, Copy)]
pub struct Program {
    pub name: &'static str,
    /// Whether it is judged: the description is calibrated by a pointer chase.
    pub counts: bool,
    /// Its memory.
    pub words: usize,
    /// What the memory holds before it is timed.
    pub prepare: Option<fn(&mut [u64])>,
    pub run: Option<(OnPlain, OnNoted)>,
}

impl Program {
    pub fn prepared(&self, words: &mut [u64]) {
        if let Some(prepare) = self.prepare {
            prepare(words);
        }
    }

    pub fn plain(&self, words: &mut Plain<'_>) -> u64 {
        self.run.map_or(0, |(run, _)| run(words))
    }

    pub fn noted(&self, words: &mut Noted<'_>) -> u64 {
        self.run.map_or(0, |(_, run)| run(words))
    }
}

pub const PROGRAMS: [Program; 3] = [
    Program {
        name: "pointer chase, 128 MiB",
        counts: false,
        words: CHASED * LINE,
        prepare: Some(circle),
        run: Some((|words| chase(words), |words| chase(words))),
    },
    Program {
        name: "stencil, three dimensions, 128 MiB",
        counts: true,
        words: 2 * SIDE * SIDE * SIDE,
        prepare: None,
        run: Some((|words| stencil(words), |words| stencil(words))),
    },
    Program {
        name: "hash join, 128 MiB",
        counts: true,
        words: 2 * BUCKETS,
        prepare: None,
        run: Some((|words| join(words), |words| join(words))),
    },
];

/// Words of a cache line.
const LINE: usize = 8;
/// Lines that are chased.
const CHASED: usize = 1 << 21;
/// Points of a side of the stencil's grid.
const SIDE: usize = 200;
/// Buckets of the hash table, each a key and a value.
const BUCKETS: usize = 1 << 23;

/// A circle through all lines in random order (Sattolo).
fn circle(words: &mut [u64]) {
    for line in 0..CHASED {
        words[line * LINE] = (line * LINE) as u64;
    }
    let mut random = 1;
    for line in (1..CHASED).rev() {
        let other = (step(&mut random) % line as u64) as usize;
        words.swap(line * LINE, other * LINE);
    }
}

fn chase<W: Words>(words: &mut W) -> u64 {
    let mut at = 0;
    for _ in 0..CHASED {
        at = words.load(at) as usize;
    }
    at as u64
}

/// Each point becomes the sum of its six neighbours and itself.
fn stencil<W: Words>(words: &mut W) -> u64 {
    let (row, plane) = (SIDE, SIDE * SIDE);
    let other = SIDE * plane;
    for x in 1..SIDE - 1 {
        for y in 1..SIDE - 1 {
            for z in 1..SIDE - 1 {
                let at = x * plane + y * row + z;
                let neighbours = [
                    at - plane,
                    at - row,
                    at - 1,
                    at,
                    at + 1,
                    at + row,
                    at + plane,
                ];
                let sum = neighbours.map(|at| words.load(at)).into_iter();
                words.store(other + at, sum.fold(0, u64::wrapping_add));
            }
        }
    }
    words.load(other + plane + row + 1)
}

/// Puts keys into a table, and looks up others, of which half are there.
fn join<W: Words>(words: &mut W) -> u64 {
    let mut random = 7;
    let bucket = |key: u64| (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 41) as usize % BUCKETS;
    for number in 0..BUCKETS as u64 / 4 {
        let key = step(&mut random) | 1;
        words.store(2 * bucket(key), key);
        words.store(2 * bucket(key) + 1, number);
    }
    let (mut same, mut found) = (7, 0);
    for number in 0..BUCKETS as u64 / 2 {
        let key = step(&mut same) | (number & 1);
        if words.load(2 * bucket(key)) == key {
            found += words.load(2 * bucket(key) + 1);
        }
    }
    found
}

/// The next number of a generator (splitmix64).
fn step(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
