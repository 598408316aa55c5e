//! A set of columns: named byte strings, each compressed on its own.
//!
//! The payload of every section is one such set. A directory of fixed-size
//! entries comes first, so that a reader can skip a column it does not know,
//! if that column is optional.
//!
//! Decoding a set allocates no more than the caller's limit for all of its
//! columns, at most `MAX_EXPANSION` bytes for a stored one, and never more
//! than [`MAX_COLUMN`] for one column, whatever the bytes say.

use crate::varint::Cursor;

/// Longest column, in bytes, before compression.
pub const MAX_COLUMN: usize = 64 << 20;
/// Most bytes that one stored byte may stand for.
pub const MAX_EXPANSION: usize = 1024;
const ENTRY_BYTES: usize = 12;
const REQUIRED: u8 = 1;
const STORED: u8 = 0;
const ZSTD: u8 = 1;

/// What is wrong with a set of columns.
#[derive(Debug, PartialEq, Eq)]
pub enum ColumnError {
    /// The bytes contradict themselves.
    Damaged(String),
    /// Something required that this version does not know.
    Unknown(String),
}

/// Whether columns are compressed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Packing {
    /// Where that makes them smaller.
    #[default]
    Compress,
    /// Never.
    Store,
}

/// Builds a set.
#[derive(Default)]
pub struct ColumnWriter {
    packing: Packing,
    directory: Vec<u8>,
    data: Vec<u8>,
    count: u16,
}

impl ColumnWriter {
    /// An empty set whose columns are packed in this way.
    pub fn new(packing: Packing) -> Self {
        ColumnWriter {
            packing,
            ..ColumnWriter::default()
        }
    }

    /// Adds a column, compressed at zstd `level` if that makes it smaller.
    /// Empty columns are left out: a missing column reads as empty.
    pub fn add(
        &mut self,
        id: u16,
        required: bool,
        bytes: &[u8],
        level: i32,
    ) -> std::io::Result<()> {
        if bytes.len() > MAX_COLUMN {
            let text = format!("column {id} would have more than {MAX_COLUMN} bytes");
            return Err(std::io::Error::other(text));
        }
        if bytes.is_empty() {
            return Ok(());
        }
        let packed = match self.packing {
            Packing::Compress => zstd::bulk::compress(bytes, level)?,
            Packing::Store => Vec::new(),
        };
        let worth_it = packed.len() < bytes.len() && bytes.len() <= packed.len() * MAX_EXPANSION;
        let (codec, stored) = if worth_it {
            (ZSTD, packed.as_slice())
        } else {
            (STORED, bytes)
        };
        self.directory.extend_from_slice(&id.to_le_bytes());
        self.directory.push(if required { REQUIRED } else { 0 });
        self.directory.push(codec);
        self.directory
            .extend_from_slice(&(bytes.len() as u32).to_le_bytes());
        self.directory
            .extend_from_slice(&(stored.len() as u32).to_le_bytes());
        self.data.extend_from_slice(stored);
        self.count += 1;
        Ok(())
    }

    /// The bytes of the set, appended to `out`.
    pub fn finish(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.count.to_le_bytes());
        out.extend_from_slice(&self.directory);
        out.extend_from_slice(&self.data);
    }
}

/// A decoded set.
#[derive(Debug)]
pub struct Columns {
    columns: Vec<(u16, Vec<u8>)>,
}

impl Columns {
    /// Decodes a set whose columns together have at most `most` bytes. Columns
    /// whose id is not in `known` are skipped if they are optional and refused
    /// if they are required.
    pub fn decode(bytes: &[u8], known: &[u16], most: usize) -> Result<Self, ColumnError> {
        let mut left = most;
        let short = || ColumnError::Damaged("the column directory is cut short".into());
        let mut cursor = Cursor::new(bytes);
        let count = usize::from(cursor.u16().ok_or_else(short)?);
        let mut directory = Cursor::new(cursor.take(count * ENTRY_BYTES).ok_or_else(short)?);
        let mut columns = Vec::new();
        while !directory.is_empty() {
            let id = directory.u16().ok_or_else(short)?;
            let flags = directory.byte().ok_or_else(short)?;
            let codec = directory.byte().ok_or_else(short)?;
            let length = directory.u32().ok_or_else(short)? as usize;
            let stored_length = directory.u32().ok_or_else(short)? as usize;
            let stored = cursor.take(stored_length).ok_or_else(|| {
                ColumnError::Damaged(format!("column {id} ends after the section"))
            })?;
            if !known.contains(&id) {
                if flags & REQUIRED != 0 {
                    return Err(ColumnError::Unknown(format!("required column {id}")));
                }
                continue;
            }
            if columns.iter().any(|(seen, _)| *seen == id) {
                return Err(ColumnError::Damaged(format!("column {id} appears twice")));
            }
            left = left.checked_sub(length).ok_or_else(|| {
                ColumnError::Damaged(format!(
                    "its columns claim more than {most} bytes, which is the most they can have"
                ))
            })?;
            columns.push((id, unpack(id, codec, stored, length)?));
        }
        if !cursor.is_empty() {
            return Err(ColumnError::Damaged("bytes follow the last column".into()));
        }
        Ok(Columns { columns })
    }

    /// Bytes of all columns together.
    pub fn bytes(&self) -> usize {
        self.columns.iter().map(|(_, bytes)| bytes.len()).sum()
    }

    /// The column's bytes; empty if the set does not have it.
    pub fn get(&self, id: u16) -> Cursor<'_> {
        let found = self.columns.iter().find(|(column, _)| *column == id);
        Cursor::new(found.map_or(&[], |(_, bytes)| bytes))
    }
}

fn unpack(id: u16, codec: u8, stored: &[u8], length: usize) -> Result<Vec<u8>, ColumnError> {
    if length > MAX_COLUMN || length > stored.len().saturating_mul(MAX_EXPANSION) {
        return Err(ColumnError::Damaged(format!(
            "column {id} claims {length} bytes from {} stored ones",
            stored.len()
        )));
    }
    let bytes = match codec {
        STORED => stored.to_vec(),
        ZSTD => zstd::bulk::decompress(stored, length)
            .map_err(|error| ColumnError::Damaged(format!("column {id}: {error}")))?,
        other => {
            return Err(ColumnError::Unknown(format!(
                "codec {other} of column {id}"
            )));
        }
    };
    if bytes.len() != length {
        return Err(ColumnError::Damaged(format!(
            "column {id} holds {} bytes, not {length}",
            bytes.len()
        )));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(columns: &[(u16, bool, &[u8])]) -> Vec<u8> {
        let mut writer = ColumnWriter::default();
        for (id, required, bytes) in columns {
            writer.add(*id, *required, bytes, 3).unwrap();
        }
        let mut out = Vec::new();
        writer.finish(&mut out);
        out
    }

    #[test]
    fn an_unknown_optional_column_is_skipped_and_a_required_one_refused() {
        let optional = set(&[(1, true, b"one"), (9, false, b"later")]);
        let columns = Columns::decode(&optional, &[1], MAX_COLUMN).unwrap();
        assert_eq!(columns.get(1).take(3), Some(&b"one"[..]));
        let required = set(&[(1, true, b"one"), (9, true, b"later")]);
        assert_eq!(
            Columns::decode(&required, &[1], MAX_COLUMN).unwrap_err(),
            ColumnError::Unknown("required column 9".into())
        );
    }

    #[test]
    fn a_small_file_cannot_ask_for_much_memory() {
        let mut bytes = set(&[(1, true, &[7; 4096])]);
        bytes[2 + 4..2 + 8].copy_from_slice(&(60u32 << 20).to_le_bytes());
        assert!(matches!(
            Columns::decode(&bytes, &[1], MAX_COLUMN),
            Err(ColumnError::Damaged(reason)) if reason.contains("claims")
        ));
    }

    #[test]
    fn long_constant_columns_survive_the_expansion_limit() {
        let bytes = set(&[(1, true, &[0; 1 << 20])]);
        let columns = Columns::decode(&bytes, &[1], MAX_COLUMN).unwrap();
        assert_eq!(columns.get(1).take(1 << 20), Some(&[0; 1 << 20][..]));
    }

    #[test]
    fn columns_together_keep_to_the_callers_limit() {
        let bytes = set(&[(1, true, &[7; 4096]), (2, true, &[8; 4096])]);
        assert!(Columns::decode(&bytes, &[1, 2], 8192).is_ok());
        assert!(matches!(
            Columns::decode(&bytes, &[1, 2], 8191),
            Err(ColumnError::Damaged(reason)) if reason.contains("8191")
        ));
    }
}
