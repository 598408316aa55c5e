//! The memory that the driver shares with every stub: slots and ring.

use std::fs::File;

use super::LinuxError;
use super::protocol::{HEADER_OFFSET, RING_WORDS, SLOT_BYTES, SLOTS_MOST, Slot, TIMES};
use super::sys::{Mapping, memory_file};
use std::sync::atomic::Ordering::Relaxed;

/// Slots and ring, with the files behind them.
pub struct Shared {
    slots: Mapping,
    ring: Mapping,
    slots_file: File,
    ring_file: File,
    free: Vec<u32>,
    unused: u32,
    most: u32,
}

impl Shared {
    /// Memory for `most` tasks at once.
    ///
    /// # Errors
    /// There is no memory, or no room for so many.
    pub fn new(most: usize) -> Result<Shared, LinuxError> {
        if most as u64 > SLOTS_MOST {
            return Err(LinuxError::Unsupported(format!(
                "{most} tasks of the trace live at once; the host's kernel replays {SLOTS_MOST} at \
                 most (`vellum cut` makes shorter traces)"
            )));
        }
        let make = |name, bytes: usize| {
            let file = memory_file(name, false)?;
            file.set_len(bytes as u64)?;
            let mapping = Mapping::of(&file, bytes)?;
            std::io::Result::Ok((file, mapping))
        };
        let doing = || LinuxError::io("making memory to share with the replayed processes");
        let bytes = most * SLOT_BYTES as usize;
        let (slots_file, slots) = make(c"vellum-slots", bytes).map_err(doing())?;
        let (ring_file, ring) = make(c"vellum-ring", RING_WORDS * 8).map_err(doing())?;
        Ok(Shared {
            slots,
            ring,
            slots_file,
            ring_file,
            free: Vec::new(),
            unused: 0,
            most: most as u32,
        })
    }

    /// The files of slots and ring.
    pub fn files(&self) -> [&File; 2] {
        [&self.slots_file, &self.ring_file]
    }

    /// A slot that nobody has, with an empty header.
    ///
    /// # Errors
    /// More tasks live than were announced.
    pub fn take(&mut self) -> Result<u32, LinuxError> {
        let number = match self.free.pop() {
            Some(number) => number,
            None if self.unused < self.most => {
                self.unused += 1;
                self.unused - 1
            }
            None => return Err(LinuxError::Unsupported("more tasks than planned".into())),
        };
        let slot = self.slot(number);
        for word in [&slot.turn, &slot.done, &slot.tid, &slot.words, &slot.fatal] {
            word.store(0, Relaxed);
        }
        slot.failed.store(0, Relaxed);
        slot.failed_error.store(0, Relaxed);
        slot.clock.store(0, Relaxed);
        for time in &slot.times {
            for word in [&time.ns, &time.intervals, &time.ops] {
                word.store(0, Relaxed);
            }
        }
        Ok(number)
    }

    /// Nobody has the slot any more.
    pub fn give_back(&mut self, number: u32) {
        self.free.push(number);
    }

    /// The header of a slot.
    pub fn slot(&self, number: u32) -> &Slot {
        let offset = u64::from(number) * SLOT_BYTES + HEADER_OFFSET;
        let header: *const Slot = self.slots.at(offset as usize).cast();
        // SAFETY: the header lies whole within the mapping, is aligned (the offset
        // is a multiple of its alignment, the mapping of a page's), consists of
        // atomics, for which every bit pattern is valid, and lives as long as
        // `self`. Other processes access it by atomics, too.
        unsafe { &*header }
    }

    /// Copies `words` to the ring, which no task reads at the moment.
    pub fn fill_ring(&mut self, words: &[u64]) {
        assert!(words.len() <= RING_WORDS, "a step fits into the ring");
        let ring: *mut u64 = self.ring.at(0).cast();
        // SAFETY: the ring has room for the words, and no task works while the
        // driver has not handed it a batch, which it does after this.
        unsafe { ring.copy_from_nonoverlapping(words.as_ptr(), words.len()) };
    }
}

const _: () = assert!(TIMES == super::plan::CLASSES + 1);
