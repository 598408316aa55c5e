//! The frame of a trace file: prefix, sections, index, end.

use crate::varint::Cursor;

/// First bytes of a trace. A transfer that changes line ends or clears the top
/// bit changes them.
pub const MAGIC: [u8; 8] = *b"\x89VLM\r\n\x1a\n";
/// Version of the frame. Columns and sections can be added without raising it.
pub const VERSION: u32 = 1;
/// Magic, version, checksum.
pub const PREFIX_BYTES: u64 = 16;
/// Kind, flags, length, checksum of the payload, checksum of the head.
pub const HEAD_BYTES: u64 = 24;
/// Offset of the index, length of the file, checksum, magic.
pub const END_BYTES: u64 = 24;
/// Last bytes of a trace.
pub const END_MAGIC: [u8; 4] = *b"VLME";

/// Section kinds.
pub const EVENTS: [u8; 4] = *b"EVNT";
/// Samples of accessed marks.
pub const ACCESSES: [u8; 4] = *b"ACCS";
/// Tables and environment.
pub const HEADER: [u8; 4] = *b"HEAD";
/// Where the other sections are.
pub const INDEX: [u8; 4] = *b"INDX";
const REQUIRED: u32 = 1;
/// Bytes of a section's entry in the index.
pub const INDEX_ENTRY_BYTES: usize = 4 + 4 + 8 + 8;

/// Where a section lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Section {
    pub kind: [u8; 4],
    /// A reader that does not know the kind must refuse the file.
    pub required: bool,
    /// Offset of the section's head in the file.
    pub offset: u64,
    /// Length of the payload.
    pub length: u64,
}

impl Section {
    /// Offset of the byte after the section.
    pub fn end(&self) -> Option<u64> {
        self.offset
            .checked_add(HEAD_BYTES)?
            .checked_add(self.length)
    }

    /// The head that stands before the payload.
    pub fn head(&self, payload_checksum: u32) -> Vec<u8> {
        let mut head = self.kind.to_vec();
        head.extend_from_slice(&self.flags().to_le_bytes());
        head.extend_from_slice(&self.length.to_le_bytes());
        head.extend_from_slice(&payload_checksum.to_le_bytes());
        head.extend_from_slice(&crc32fast::hash(&head).to_le_bytes());
        head
    }

    /// The section that a head at `offset` announces, and the checksum of its
    /// payload. `None` if the head is damaged.
    pub fn from_head(head: &[u8], offset: u64) -> Option<(Section, u32)> {
        let mut cursor = Cursor::new(head);
        let kind = cursor.take(4)?.try_into().ok()?;
        let flags = cursor.u32()?;
        let length = cursor.u64()?;
        let payload_checksum = cursor.u32()?;
        let checksum = cursor.u32()?;
        let section = Section {
            kind,
            required: flags & REQUIRED != 0,
            offset,
            length,
        };
        (crc32fast::hash(&head[..20]) == checksum).then_some((section, payload_checksum))
    }

    /// Appends the section's entry in the index.
    pub fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.kind);
        out.extend_from_slice(&self.flags().to_le_bytes());
        out.extend_from_slice(&self.offset.to_le_bytes());
        out.extend_from_slice(&self.length.to_le_bytes());
    }

    /// Reads an entry of the index.
    pub fn read(cursor: &mut Cursor<'_>) -> Option<Section> {
        Some(Section {
            kind: cursor.take(4)?.try_into().ok()?,
            required: cursor.u32()? & REQUIRED != 0,
            offset: cursor.u64()?,
            length: cursor.u64()?,
        })
    }

    fn flags(&self) -> u32 {
        if self.required { REQUIRED } else { 0 }
    }

    /// The kind as text.
    pub fn name(&self) -> String {
        self.kind.escape_ascii().to_string()
    }
}
