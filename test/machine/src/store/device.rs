//! Block devices with a volatile write cache, and a store on one of them.
//!
//! A write lands in the cache and reaches the medium at the next flush. Losing
//! power empties the cache, or all of it but the blocks that a test says had
//! reached the medium by then, for devices write back in any order.

use std::collections::{HashMap, HashSet};
use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use vellum::platform::IoError;
use vellum::sync::bytes::FrameBytes;

use super::BackingStore;
use super::fault::{FaultPlan, Transfer};
use super::holes::Holes;
use super::pattern::{Pattern, word_at};

/// What keeps its contents without power.
enum Medium {
    Memory(HashMap<u64, Box<[u8]>>),
    /// A host file and the blocks of it that were written.
    File(File, HashSet<u64>),
}

impl Medium {
    fn holds(&self, block: u64) -> bool {
        match self {
            Medium::Memory(blocks) => blocks.contains_key(&block),
            Medium::File(_, written) => written.contains(&block),
        }
    }

    fn read(&self, block: u64, bytes: &mut [u8]) -> io::Result<()> {
        match self {
            Medium::Memory(blocks) => match blocks.get(&block) {
                Some(contents) => bytes.copy_from_slice(contents),
                None => bytes.fill(0),
            },
            Medium::File(file, written) if written.contains(&block) => {
                file.read_exact_at(bytes, block * bytes.len() as u64)?;
            }
            Medium::File(..) => bytes.fill(0),
        }
        Ok(())
    }

    fn write(&mut self, block: u64, bytes: &[u8]) -> io::Result<()> {
        match self {
            Medium::Memory(blocks) => {
                blocks.insert(block, bytes.into());
            }
            Medium::File(file, written) => {
                file.write_all_at(bytes, block * bytes.len() as u64)?;
                written.insert(block);
            }
        }
        Ok(())
    }

    fn trim(&mut self, block: u64) {
        match self {
            Medium::Memory(blocks) => {
                blocks.remove(&block);
            }
            Medium::File(_, written) => {
                written.remove(&block);
            }
        }
    }
}

struct State {
    medium: Medium,
    /// Blocks written since the last flush.
    cache: HashMap<u64, Box<[u8]>>,
}

/// A disk: `blocks` blocks of `block_bytes` bytes, zero until written.
pub struct BlockDevice {
    block_bytes: usize,
    blocks: u64,
    state: Mutex<State>,
    faults: FaultPlan,
    /// Writes that are left until the power goes.
    writes_left: AtomicU64,
}

impl BlockDevice {
    /// A device in the host's memory.
    pub fn memory(block_bytes: usize, blocks: u64) -> BlockDevice {
        BlockDevice::new(block_bytes, blocks, Medium::Memory(HashMap::new()))
    }

    /// A device in the host file at `path`, which is made, or emptied if it exists.
    ///
    /// # Errors
    /// The file cannot be made or given its size.
    pub fn file(path: &Path, block_bytes: usize, blocks: u64) -> io::Result<BlockDevice> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(path)?;
        let bytes = blocks.checked_mul(block_bytes as u64).ok_or_else(|| {
            let text = format!("a device of {blocks} blocks of {block_bytes} bytes is too large");
            io::Error::new(io::ErrorKind::InvalidInput, text)
        })?;
        file.set_len(bytes)?;
        let medium = Medium::File(file, HashSet::new());
        Ok(BlockDevice::new(block_bytes, blocks, medium))
    }

    fn new(block_bytes: usize, blocks: u64, medium: Medium) -> BlockDevice {
        BlockDevice {
            block_bytes,
            blocks,
            state: Mutex::new(State {
                medium,
                cache: HashMap::new(),
            }),
            faults: FaultPlan::default(),
            writes_left: AtomicU64::new(u64::MAX),
        }
    }

    /// Has the power go after `writes` more blocks have been written: from then on every
    /// transfer and flush fails, until [`BlockDevice::lose_power`] ends it.
    pub fn cut_power_after(&self, writes: u64) {
        self.writes_left.store(writes, Ordering::SeqCst);
    }

    /// Whether the power is there for another transfer; `writes` is how many blocks it
    /// writes.
    fn draw(&self, writes: u64) -> Result<(), IoError> {
        let next = |left: u64| match left {
            u64::MAX => Some(u64::MAX),
            _ => left.checked_sub(writes),
        };
        let left = self
            .writes_left
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, next);
        match left {
            Ok(left) if left > 0 => Ok(()),
            _ => Err(IoError),
        }
    }

    /// Bytes in a block.
    pub fn block_bytes(&self) -> usize {
        self.block_bytes
    }

    /// Number of blocks.
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// What is to go wrong. Failing ranges are of blocks.
    pub fn faults(&self) -> &FaultPlan {
        &self.faults
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads a block.
    ///
    /// # Errors
    /// [`IoError`] as the fault plan says, if there is no such block, or if the
    /// host file cannot be read.
    pub fn read(&self, block: u64, bytes: &mut [u8]) -> Result<(), IoError> {
        self.draw(0)?;
        self.faults.transfer(Transfer::Read, block)?;
        self.read_unplanned(block, bytes)
    }

    fn read_unplanned(&self, block: u64, bytes: &mut [u8]) -> Result<(), IoError> {
        self.check(block, bytes.len())?;
        let state = self.state();
        if let Some(cached) = state.cache.get(&block) {
            bytes.copy_from_slice(cached);
            return Ok(());
        }
        state.medium.read(block, bytes).map_err(|_| IoError)
    }

    /// Writes a block to the device's cache.
    ///
    /// # Errors
    /// [`IoError`] as the fault plan says, or if there is no such block.
    pub fn write(&self, block: u64, bytes: &[u8]) -> Result<(), IoError> {
        self.faults.transfer(Transfer::Write, block)?;
        self.check(block, bytes.len())?;
        self.draw(1)?;
        self.state().cache.insert(block, bytes.into());
        Ok(())
    }

    fn check(&self, block: u64, bytes: usize) -> Result<(), IoError> {
        let valid = block < self.blocks && bytes == self.block_bytes;
        valid.then_some(()).ok_or(IoError)
    }

    /// Moves the cache to the medium.
    ///
    /// # Errors
    /// [`IoError`] if the power is gone, or if the host file did not take everything; what
    /// it did not take stays in the cache.
    pub fn flush(&self) -> Result<(), IoError> {
        self.draw(0)?;
        let mut state = self.state();
        let State { medium, cache } = &mut *state;
        let mut result = Ok(());
        cache.retain(|&block, bytes| {
            let failed = medium.write(block, bytes).is_err();
            if failed {
                result = Err(IoError);
            }
            failed
        });
        if let Medium::File(file, _) = medium {
            file.sync_data().map_err(|_| IoError)?;
        }
        result
    }

    /// Loses power, and has it again: every write since the last flush is gone.
    pub fn lose_power(&self) {
        self.lose_power_except(|_| false);
    }

    /// Loses power, and has it again, at a moment when, of the writes since the last flush, those
    /// to the blocks that `survives` names had reached the medium.
    pub fn lose_power_except(&self, survives: impl Fn(u64) -> bool) {
        let mut state = self.state();
        self.writes_left.store(u64::MAX, Ordering::SeqCst);
        let State { medium, cache } = &mut *state;
        for (block, bytes) in cache.drain() {
            if survives(block) {
                // A host file that refuses the write loses the block, as a device may.
                let _ = medium.write(block, &bytes);
            }
        }
    }

    /// Forgets a block: it reads as never written. Takes effect at once, and
    /// survives a loss of power.
    pub fn trim(&self, block: u64) {
        let mut state = self.state();
        state.cache.remove(&block);
        state.medium.trim(block);
    }

    /// Whether the block was written since it was trimmed last, in a write
    /// that is not lost.
    pub fn is_written(&self, block: u64) -> bool {
        let state = self.state();
        state.cache.contains_key(&block) || state.medium.holds(block)
    }
}

#[derive(Default)]
struct Directory {
    /// Which block holds which page of which store.
    block_of: HashMap<(u64, u64), u64>,
    /// Blocks of discarded stores.
    free: Vec<u64>,
    /// First block that was never used.
    next: u64,
    /// Pages that read as zeroes.
    holes: Holes,
}

/// A store whose written pages live on a block device. Pages never written, or
/// whose only writes were lost, read as a pattern; pages that were discarded before, as
/// zeroes.
///
/// Which page is in which block is remembered outside of the device and
/// survives a loss of power: what is lost are page contents, as in a file
/// system that journals its metadata.
pub struct DeviceStore {
    device: Arc<BlockDevice>,
    pattern: Pattern,
    directory: Mutex<Directory>,
}

impl DeviceStore {
    /// An empty store on `device`, one page a block.
    pub fn new(device: Arc<BlockDevice>, pattern: Pattern) -> DeviceStore {
        DeviceStore {
            device,
            pattern,
            directory: Mutex::default(),
        }
    }

    /// The device.
    pub fn device(&self) -> &BlockDevice {
        &self.device
    }

    fn directory(&self) -> MutexGuard<'_, Directory> {
        self.directory
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// The block that holds the page, or the word that all of it is if its contents are
    /// not there.
    fn block(&self, store: u64, index: u64) -> Result<u64, u64> {
        let directory = self.directory();
        let block = directory.block_of.get(&(store, index)).copied();
        let written = block.filter(|&block| self.device.is_written(block));
        written.ok_or_else(|| match directory.holes.has(store, index) {
            true => 0,
            false => (self.pattern)(store, index),
        })
    }
}

impl DeviceStore {
    /// Gives back the blocks of pages of a store.
    fn forget(&self, store: u64, pages: &Range<u64>) {
        let mut directory = self.directory();
        let Directory { block_of, free, .. } = &mut *directory;
        block_of.retain(|&(owner, index), block| {
            let goes = owner == store && pages.contains(&index);
            if goes {
                self.device.trim(*block);
                free.push(*block);
            }
            !goes
        });
    }
}

impl BackingStore for DeviceStore {
    fn page_bytes(&self) -> usize {
        self.device.block_bytes()
    }

    fn read_page(&self, store: u64, index: u64, bytes: FrameBytes<'_>) -> Result<(), IoError> {
        let block = match self.block(store, index) {
            Ok(block) => block,
            Err(word) => {
                bytes.fill(word);
                return Ok(());
            }
        };
        let mut contents = vec![0; self.page_bytes()];
        self.device.read(block, &mut contents)?;
        bytes.write(0, &contents);
        Ok(())
    }

    fn write_page(&self, store: u64, index: u64, bytes: &[u8]) -> Result<(), IoError> {
        let block = {
            let mut directory = self.directory();
            match directory.block_of.get(&(store, index)) {
                Some(&block) => block,
                None => {
                    let block = directory.free.pop().unwrap_or(directory.next);
                    if block >= self.device.blocks() {
                        return Err(IoError);
                    }
                    directory.next = directory.next.max(block + 1);
                    directory.block_of.insert((store, index), block);
                    block
                }
            }
        };
        self.device.write(block, bytes)
    }

    fn discard_pages(&self, store: u64, pages: Range<u64>) -> Result<(), IoError> {
        self.forget(store, &pages);
        self.directory().holes.add(store, pages);
        Ok(())
    }

    fn find_page(&self, store: u64, index: u64, stored: bool) -> Option<u64> {
        let directory = self.directory();
        directory.holes.find(store, index, stored, |pages| {
            let blocks = directory.block_of.iter();
            let written = blocks
                .filter(|((owner, _), block)| *owner == store && self.device.is_written(**block));
            let written = written.map(|((_, index), _)| *index);
            written.filter(|index| pages.contains(index)).min()
        })
    }

    fn flush(&self) -> Result<(), IoError> {
        self.device.flush()
    }

    fn stored_word(&self, store: u64, offset: u64) -> Option<u64> {
        if !offset.is_multiple_of(8) {
            return None;
        }
        let page_bytes = self.page_bytes() as u64;
        let index = offset / page_bytes;
        let block = match self.block(store, index) {
            Ok(block) => block,
            Err(word) => return Some(word),
        };
        let mut bytes = vec![0; self.page_bytes()];
        self.device.read_unplanned(block, &mut bytes).ok()?;
        Some(word_at(&bytes, (offset % page_bytes) as usize))
    }

    fn discard(&self, store: u64) {
        self.forget(store, &(0..u64::MAX));
        self.directory().holes.forget(store);
    }
}
