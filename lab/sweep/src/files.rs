//! Files that determine results: which they are, whatever they are called.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::error::SweepError;

/// A file with its content.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FileId {
    /// Where it lies, absolute.
    pub path: PathBuf,
    /// SHA-256 of what is in it, in hexadecimal digits.
    pub sha256: String,
}

impl FileId {
    /// The file at `path`.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn of(path: &Path) -> io::Result<FileId> {
        let path = std::path::absolute(path)?;
        let sha256 = copy(&path, &mut io::sink())?;
        Ok(FileId { path, sha256 })
    }
}

/// Copies a file; returns its SHA-256.
///
/// # Errors
/// It cannot be read, or `to` not written.
pub fn copy(path: &Path, to: &mut impl Write) -> io::Result<String> {
    let mut file = File::open(path)?;
    let mut hash = Sha256::new();
    let mut block = vec![0; 1 << 16];
    loop {
        match file.read(&mut block)? {
            0 => break,
            count => {
                hash.update(&block[..count]);
                to.write_all(&block[..count])?;
            }
        }
    }
    Ok(digits(hash))
}

/// SHA-256 of bytes.
pub fn hash(bytes: &[u8]) -> String {
    let mut hash = Sha256::new();
    hash.update(bytes);
    digits(hash)
}

fn digits(hash: Sha256) -> String {
    let bytes = hash.finalize();
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A directory that is there afterwards.
///
/// # Errors
/// It can neither be found nor made.
pub fn directory(path: PathBuf) -> Result<PathBuf, SweepError> {
    std::fs::create_dir_all(&path).map_err(SweepError::at(&path))?;
    Ok(path)
}
