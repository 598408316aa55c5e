//! Which files the workload used, and how long they were.
//!
//! Perf records show identity (device and inode), but no lengths. A length is
//! taken from the file itself if it is still there and was not changed since
//! the recording began; it is 0 if the workload created the file; otherwise it
//! is the smallest that makes the recorded events possible.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::time::SystemTime;

use vellum_trace::{File, FileId};

const PAGE: u64 = 4096;

/// What the events so far say about one file's length.
#[derive(Clone, Copy, Debug, Default)]
struct Life {
    /// Length that the events seen so far account for.
    have: u64,
    /// Length that the file must have had at first.
    need: u64,
    /// End of the furthest mapping.
    mapped: u64,
    /// Its length was set, so later needs say nothing about the first length.
    truncated: bool,
}

/// The file table being built.
#[derive(Default)]
pub struct Files {
    ids: HashMap<(u32, u64), FileId>,
    /// The file last seen with an inode number, whatever its device.
    by_inode: HashMap<u64, FileId>,
    lives: Vec<Life>,
    /// Pages of large folios: order by file and first page.
    orders: HashMap<(FileId, u64), u8>,
}

impl Files {
    /// The file with this identity; new ones are appended to `table`.
    pub fn identify(&mut self, table: &mut Vec<File>, device: u32, inode: u64) -> FileId {
        let id = *self.ids.entry((device, inode)).or_insert_with(|| {
            table.push(File {
                name: String::new(),
                device,
                inode,
                size: 0,
            });
            self.lives.push(Life::default());
            FileId(table.len() as u32 - 1)
        });
        self.by_inode.insert(inode, id);
        id
    }

    /// The file with this inode on a disk. Writeback names the disk, a mapping
    /// the partition, so another device's file is taken before a new one.
    pub fn identify_on_disk(&mut self, table: &mut Vec<File>, disk: u32, inode: u64) -> FileId {
        match self.by_inode.get(&inode) {
            Some(id) if !self.ids.contains_key(&(disk, inode)) => *id,
            _ => self.identify(table, disk, inode),
        }
    }

    /// Notes a large folio in the page cache.
    pub fn note_order(&mut self, file: FileId, page: u64, order: u8) {
        self.orders.insert((file, page), order);
    }

    /// Pages of the folio that begins at `page`.
    pub fn folio_pages(&self, file: FileId, page: u64) -> u64 {
        1 << self.orders.get(&(file, page)).copied().unwrap_or(0).min(31)
    }

    /// The file was mapped up to byte `end`.
    pub fn mapped(&mut self, file: FileId, end: u64) {
        let life = &mut self.lives[file.0 as usize];
        life.mapped = life.mapped.max(end);
    }

    /// Bytes up to `end` were there to be used.
    pub fn used(&mut self, file: FileId, end: u64) {
        let life = &mut self.lives[file.0 as usize];
        if end > life.have && !life.truncated {
            life.need = life.need.max(end);
        }
        life.have = life.have.max(end);
    }

    /// Bytes up to `end` were written.
    pub fn written(&mut self, file: FileId, end: u64) {
        let life = &mut self.lives[file.0 as usize];
        life.have = life.have.max(end);
    }

    /// The length was set.
    pub fn truncated(&mut self, file: FileId, size: u64) {
        let life = &mut self.lives[file.0 as usize];
        // Pages were dropped: they had been there without a recorded write.
        if !life.truncated && life.have == 0 {
            life.need = life.need.max(size + PAGE);
        }
        life.have = size;
        life.truncated = true;
        self.orders
            .retain(|(other, page), _| *other != file || page * PAGE < size);
    }

    /// Fills in every file's length at first sight. Without the time at which the
    /// recording `began` the files themselves are not looked at, and what was
    /// mapped is taken to have been there.
    pub fn settle(&self, table: &mut [File], began: Option<SystemTime>) {
        for (file, life) in table.iter_mut().zip(&self.lives) {
            let Some(began) = began else {
                let own = life.truncated || life.mapped <= life.have;
                file.size = life.need.max(if own { 0 } else { life.mapped });
                continue;
            };
            file.size = match stat_size(file, began) {
                Some(size) => size.max(life.need),
                // Shared memory and the like live on nameless devices; their
                // length is set by calls that do not show.
                None if file.device >> 20 == 0 && life.have == 0 => life.mapped,
                None => life.need,
            };
        }
    }
}

/// The length of a file that is still there, if it tells the length at first
/// sight: 0 for one that was created since `began`, its length for one that was
/// not changed since.
fn stat_size(file: &File, began: SystemTime) -> Option<u64> {
    if !file.name.starts_with('/') {
        return None;
    }
    let metadata = fs::symlink_metadata(&file.name).ok()?;
    if !metadata.is_file() || metadata.ino() != file.inode {
        return None;
    }
    if metadata.created().is_ok_and(|created| created >= began) {
        return Some(0);
    }
    let unchanged = metadata.modified().ok()? < began;
    unchanged.then_some(metadata.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_is_what_the_events_need_unless_they_wrote_it() {
        let mut table = Vec::new();
        let mut files = Files::default();
        let read = files.identify(&mut table, 7, 1);
        let written = files.identify(&mut table, 7, 2);
        let shared = files.identify(&mut table, 1, 3);
        assert_eq!(files.identify(&mut table, 7, 1), read);
        files.used(read, 3 * PAGE);
        files.written(written, 5 * PAGE);
        files.used(written, 5 * PAGE);
        files.truncated(read, 0);
        files.used(read, 9 * PAGE);
        files.mapped(shared, 2 * PAGE);
        files.settle(&mut table, Some(SystemTime::now()));
        let sizes: Vec<u64> = table.iter().map(|file| file.size / PAGE).collect();
        assert_eq!(sizes, [3, 0, 2]);
    }

    #[test]
    fn writeback_finds_the_file_of_a_partition_by_its_inode() {
        let mut table = Vec::new();
        let mut files = Files::default();
        let known = files.identify(&mut table, 0x80_0001, 42);
        assert_eq!(files.identify_on_disk(&mut table, 0x80_0000, 42), known);
        assert_ne!(files.identify_on_disk(&mut table, 0x80_0000, 43), known);
    }
}
