//! Which program this is.

use std::io;

/// A checksum of the program's file. Results of different programs may differ for no
/// other reason.
///
/// # Errors
/// The file cannot be read.
pub fn checksum() -> io::Result<u32> {
    let path = std::env::current_exe()?;
    std::fs::read(path).map(|bytes| crc32fast::hash(&bytes))
}
