//! The files of a replay: their slots and, at each moment, their length.

use vellum_engine::FileSlot;

use super::Options;
use super::survey::Survey;
use crate::replay::workload::FileOrigin;
use vellum_trace::{FileId, Header};

/// Slots and lengths of files.
pub(super) struct Files {
    /// Slot by file and copy; slots are given at first use.
    slots: Vec<Option<FileSlot>>,
    /// Whether copies have their own; empty if there is one copy.
    written: Vec<bool>,
    origins: Vec<FileOrigin>,
    /// Length by slot, in pages.
    lengths: Vec<u64>,
    copies: usize,
}

impl Files {
    pub(super) fn new(header: &Header, options: &Options, survey: &Survey) -> Self {
        let copies = options.copies as usize;
        Self {
            slots: vec![None; header.files.len() * copies],
            written: match copies {
                1 => Vec::new(),
                _ => survey.written.clone(),
            },
            origins: Vec::new(),
            lengths: Vec::new(),
            copies,
        }
    }

    /// The slot of `file` for `copy`, and whether this is its first use; then
    /// it starts with `pages` pages.
    pub(super) fn slot(&mut self, file: FileId, copy: u32, pages: u64) -> (FileSlot, bool) {
        let own = self.written.get(file.0 as usize).copied().unwrap_or(false);
        let owner = if own { copy } else { 0 };
        let entry = &mut self.slots[file.0 as usize * self.copies + owner as usize];
        if let Some(slot) = *entry {
            return (slot, false);
        }
        let slot = FileSlot(self.origins.len() as u32);
        *entry = Some(slot);
        self.origins.push(FileOrigin {
            file,
            copy: own.then_some(copy),
        });
        self.lengths.push(pages);
        (slot, true)
    }

    /// Length in pages.
    pub(super) fn pages(&self, slot: FileSlot) -> u64 {
        self.lengths[slot.0 as usize]
    }

    /// Sets the length in pages.
    pub(super) fn set_pages(&mut self, slot: FileSlot, pages: u64) {
        self.lengths[slot.0 as usize] = pages;
    }

    pub(super) fn into_origins(self) -> Vec<FileOrigin> {
        self.origins
    }
}
