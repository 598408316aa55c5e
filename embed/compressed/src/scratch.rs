//! What a transfer needs beside the store.

use alloc::boxed::Box;
use alloc::vec;

use lz4_flex::block::{
    CompressTable, compress_into_with_table, decompress_into, get_maximum_output_size,
};

use crate::pool::Kept;

/// The buffers of one CPU or thread: the table that LZ4 looks up matches in, and room for pages.
/// With pages of 4 KiB it takes some 20 KiB.
pub struct Scratch {
    table: CompressTable,
    /// A page that was compressed. Longer than a page, because some grow.
    packed: Box<[u8]>,
    /// Bytes from the store.
    held: Box<[u8]>,
    page: Box<[u8]>,
}

impl Scratch {
    /// Buffers for pages of so many bytes.
    pub fn new(page_bytes: usize) -> Scratch {
        // Places in a page are numbers of 16 bits in the small table.
        let table = match page_bytes < usize::from(u16::MAX) {
            true => CompressTable::small(),
            false => CompressTable::large(),
        };
        Scratch {
            table,
            packed: vec![0; get_maximum_output_size(page_bytes)].into(),
            held: vec![0; page_bytes].into(),
            page: vec![0; page_bytes].into(),
        }
    }

    /// Bytes of the pages that it is for.
    pub fn page_bytes(&self) -> usize {
        self.page.len()
    }

    /// Compresses a page. Returns its bytes, which [`Scratch::packed`] has, too; `None` if it
    /// could not be.
    pub fn compress(&mut self, page: &[u8]) -> Option<usize> {
        compress_into_with_table(page, &mut self.packed, &mut self.table).ok()
    }

    /// What [`Scratch::compress`] made of a page, of `len` bytes.
    pub fn packed(&self, len: usize) -> &[u8] {
        &self.packed[..len]
    }

    /// Room for what is kept of a page.
    pub(crate) fn held(&mut self) -> &mut [u8] {
        &mut self.held
    }

    /// The page that is kept so, with the bytes in [`Scratch::held`]. `None` if they are no
    /// page.
    pub(crate) fn unpack(&mut self, kept: Kept) -> Option<&[u8]> {
        match kept {
            Kept::Plain => return Some(&self.held),
            Kept::Compressed(len) => {
                let written = decompress_into(&self.held[..len], &mut self.page).ok()?;
                if written != self.page.len() {
                    return None;
                }
            }
            Kept::Same(word) => {
                for bytes in self.page.chunks_exact_mut(size_of::<u64>()) {
                    bytes.copy_from_slice(&word.to_le_bytes());
                }
            }
        }
        Some(&self.page)
    }
}
