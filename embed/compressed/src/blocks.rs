//! Memory in blocks of one size, which are chained where more is needed.
//!
//! Any free block serves anybody: memory is full only when no block is free, however long it
//! has been in use. What a chain costs is a link in each block, and on average half a block.

/// Bytes of a block.
pub(crate) const BLOCK: usize = 128;
/// Bytes of a link to another block, at the beginning of one.
const LINK: usize = size_of::<u32>();
/// Bytes that a block of a chain holds.
pub(crate) const PAYLOAD: usize = BLOCK - LINK;

/// No block.
pub(crate) const NONE: u32 = u32::MAX;

/// The blocks of some memory. The first of them are set apart in one piece.
pub(crate) struct Blocks<M> {
    memory: M,
    count: u32,
    /// The first of a chain of those that were used and are free.
    first_free: u32,
    /// The first of those that never were used.
    unused: u32,
    free: u32,
}

impl<M: AsRef<[u8]> + AsMut<[u8]>> Blocks<M> {
    /// Blocks in `memory`, whose first `apart` bytes are for other things. `None` if these do
    /// not fit, or if there are more blocks than can be numbered.
    pub(crate) fn new(memory: M, apart: u64) -> Option<Self> {
        let count = u32::try_from(memory.as_ref().len() / BLOCK).ok()?;
        let unused = u32::try_from(apart.div_ceil(BLOCK as u64)).ok()?;
        let free = count.checked_sub(unused)?;
        (count < NONE).then_some(Blocks {
            memory,
            count,
            first_free: NONE,
            unused,
            free,
        })
    }

    /// Blocks that are free.
    pub(crate) fn free(&self) -> u32 {
        self.free
    }

    /// All of them.
    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    /// The bytes that are set apart, and those of blocks behind them.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.memory.as_ref()
    }

    /// The same, to be changed.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        self.memory.as_mut()
    }

    /// A block.
    pub(crate) fn block(&self, number: u32) -> &[u8] {
        let start = number as usize * BLOCK;
        &self.memory.as_ref()[start..start + BLOCK]
    }

    /// The same, to be changed.
    pub(crate) fn block_mut(&mut self, number: u32) -> &mut [u8] {
        let start = number as usize * BLOCK;
        &mut self.memory.as_mut()[start..start + BLOCK]
    }

    /// The block after one of a chain.
    fn next(&self, number: u32) -> u32 {
        u32_at(self.block(number), 0)
    }

    fn set_next(&mut self, number: u32, next: u32) {
        set_u32_at(self.block_mut(number), 0, next);
    }

    /// A free block, with whatever it held.
    pub(crate) fn take(&mut self) -> Option<u32> {
        let number = match self.first_free {
            NONE if self.unused == self.count => return None,
            NONE => {
                self.unused += 1;
                self.unused - 1
            }
            number => {
                self.first_free = self.next(number);
                number
            }
        };
        self.free -= 1;
        Some(number)
    }

    /// Gives back a block.
    pub(crate) fn give(&mut self, number: u32) {
        self.set_next(number, self.first_free);
        self.first_free = number;
        self.free += 1;
    }

    /// A chain of blocks that holds `bytes`: its first. The caller knows that enough are free;
    /// otherwise there is none, and what was taken is given back.
    pub(crate) fn put(&mut self, bytes: &[u8]) -> Option<u32> {
        let mut first = NONE;
        // From the end, so that each can be linked to the one after it.
        for part in bytes.chunks(PAYLOAD).rev() {
            let Some(number) = self.take() else {
                self.give_chain(first);
                return None;
            };
            self.set_next(number, first);
            self.block_mut(number)[LINK..LINK + part.len()].copy_from_slice(part);
            first = number;
        }
        Some(first)
    }

    /// Copies what a chain holds.
    pub(crate) fn get(&self, first: u32, bytes: &mut [u8]) {
        let mut number = first;
        for part in bytes.chunks_mut(PAYLOAD) {
            part.copy_from_slice(&self.block(number)[LINK..LINK + part.len()]);
            number = self.next(number);
        }
    }

    /// Gives back all blocks of a chain.
    pub(crate) fn give_chain(&mut self, first: u32) {
        let mut number = first;
        while number != NONE {
            let next = self.next(number);
            self.give(number);
            number = next;
        }
    }

    /// Blocks of a chain, to be counted by tests.
    pub(crate) fn chain(&self, first: u32) -> impl Iterator<Item = u32> {
        let step = |number: u32| (number != NONE).then_some(number);
        core::iter::successors(step(first), move |&number| step(self.next(number)))
    }

    /// The blocks that were used and are free, to be counted by tests.
    pub(crate) fn free_chain(&self) -> (impl Iterator<Item = u32>, u32) {
        (self.chain(self.first_free), self.unused)
    }
}

/// The number at a place in a block or table.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(word)
}

pub(crate) fn set_u32_at(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

/// The word at a place in a block or page.
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

pub(crate) fn set_u64_at(bytes: &mut [u8], at: usize, value: u64) {
    bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
}
