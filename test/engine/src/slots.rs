//! From the workload's numbers to the core's names.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use vellum::platform::GroupId;

const CHUNK_BITS: u32 = 12;
const CHUNK: usize = 1 << CHUNK_BITS;
const CHUNKS: usize = 1 << 12;

/// The core's names for the spaces and files of a workload, by their slots.
pub struct Names {
    pub spaces: Slots,
    pub files: Slots,
    /// The group that new spaces come to.
    pub group: GroupId,
}

impl Names {
    /// No names.
    pub fn new() -> Names {
        Names {
            spaces: Slots::new(),
            files: Slots::new(),
            group: GroupId::ROOT,
        }
    }
}

/// A growing array of names (0: none) that many threads read and write.
pub struct Slots {
    chunks: Box<[OnceLock<Box<[AtomicU64]>>]>,
}

impl Slots {
    /// No names.
    pub fn new() -> Slots {
        Slots {
            chunks: (0..CHUNKS).map(|_| OnceLock::new()).collect(),
        }
    }

    /// The word for slot `index`; `None` beyond 16 million.
    pub fn word(&self, index: u32) -> Option<&AtomicU64> {
        let chunk = self.chunks.get(index as usize >> CHUNK_BITS)?;
        let words = chunk.get_or_init(|| (0..CHUNK).map(|_| AtomicU64::new(0)).collect());
        words.get(index as usize & (CHUNK - 1))
    }

    /// The name in slot `index`, or 0.
    pub fn get(&self, index: u32) -> u64 {
        self.word(index)
            .map_or(0, |word| word.load(Ordering::Acquire))
    }

    /// Every slot with a name.
    pub fn each(&self) -> impl Iterator<Item = (u32, u64)> {
        self.chunks.iter().enumerate().flat_map(|(number, chunk)| {
            let words = chunk.get().map_or(&[][..], |words| words);
            words.iter().enumerate().filter_map(move |(index, word)| {
                let name = word.load(Ordering::Acquire);
                (name != 0).then_some(((number << CHUNK_BITS | index) as u32, name))
            })
        })
    }
}
