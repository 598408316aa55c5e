//! Scratch files of the recorded sizes, in a directory that goes with the program.
//!
//! The files are sparse: they have a length and no contents.

use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use super::LinuxError;
use crate::host::scratch::Scratch;

/// Where scratch files go if nobody says otherwise: a file system in memory.
fn default_parent() -> PathBuf {
    let memory = Path::new("/dev/shm");
    match memory.is_dir() {
        true => memory.to_owned(),
        false => std::env::temp_dir(),
    }
}

/// The files of a workload.
#[derive(Debug)]
pub struct ScratchFiles {
    scratch: Scratch,
    directory: File,
    pages: Vec<u64>,
}

impl ScratchFiles {
    /// Makes files of `pages` pages each below `parent`.
    ///
    /// # Errors
    /// The directory or a file cannot be made.
    pub fn new(parent: Option<&Path>, pages: &[u64]) -> Result<ScratchFiles, LinuxError> {
        // Several replays may go on in one process.
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let parent = parent.map_or_else(default_parent, Path::to_owned);
        let doing = || format!("making scratch files in {}", parent.display());
        let scratch = Scratch::new(&parent, &format!("files{number}"));
        let scratch = scratch.map_err(LinuxError::io(doing()))?;
        let directory = File::open(scratch.path()).map_err(LinuxError::io(doing()))?;
        Ok(ScratchFiles {
            scratch,
            directory,
            pages: pages.to_vec(),
        })
    }

    /// The directory, for stubs to open files in.
    pub fn directory(&self) -> &File {
        &self.directory
    }

    /// Gives every file its first length and no contents.
    ///
    /// # Errors
    /// A file cannot be made.
    pub fn reset(&self) -> Result<(), LinuxError> {
        for (number, pages) in (0u64..).zip(&self.pages) {
            let path = self.scratch.path().join(name(number));
            let mut options = OpenOptions::new();
            let file = options.write(true).create(true).truncate(true).open(&path);
            let sized = file.and_then(|file| file.set_len(pages << 12));
            sized.map_err(LinuxError::io(format!("making {}", path.display())))?;
        }
        Ok(())
    }
}

/// The name of a file, as the stub writes it.
fn name(number: u64) -> String {
    let letter = |place: u32| (b'a' + (number >> (4 * place) & 15) as u8) as char;
    (0..8).rev().map(letter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_have_their_lengths_and_go_with_their_directory() {
        let files = ScratchFiles::new(None, &[0, 3, 1 << 20]).expect("made");
        files.reset().expect("made");
        let path = files.scratch.path().to_owned();
        for (name, pages) in [("aaaaaaaa", 0), ("aaaaaaab", 3), ("aaaaaaac", 1 << 20)] {
            let length = path.join(name).metadata().expect("there").len();
            assert_eq!(length, pages << 12, "{name}");
        }
        drop(files);
        assert!(!path.exists());
    }
}
