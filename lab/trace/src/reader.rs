//! Reads a trace file.
//!
//! Opening checks the frame, the index and the header; events are read a block
//! at a time. Whatever the bytes are, reading ends in values or in a
//! [`TraceError`] that names the place: no panic, and no allocation that the
//! length of the file does not justify. Opening a trace and walking its events
//! takes at most 192 MiB, which is a header and a block at their limits, and
//! 256 bytes for each byte of the file. Loading all events
//! ([`TraceReader::streams`]) takes what it says there.

use std::cell::RefCell;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use crate::accesses;
use crate::block;
use crate::column::ColumnError;
use crate::error::TraceError;
use crate::event::Event;
use crate::file::{
    ACCESSES, END_BYTES, END_MAGIC, EVENTS, HEAD_BYTES, HEADER, INDEX, INDEX_ENTRY_BYTES, MAGIC,
    PREFIX_BYTES, Section, VERSION,
};
use crate::header::Header;
use crate::rules::{self, Rules};
use crate::streams::Streams;
use crate::tables;
use crate::varint::Cursor;

/// What a trace can be read from.
trait Source: Read + Seek {}
impl<T: Read + Seek> Source for T {}

/// An open trace.
pub struct TraceReader {
    path: PathBuf,
    source: RefCell<Box<dyn Source + Send>>,
    length: u64,
    header: Header,
    blocks: Vec<Section>,
    accesses: Vec<Section>,
}

impl TraceReader {
    /// Opens the trace at `path`: checks its frame and reads its header.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, TraceError> {
        let path = path.as_ref();
        let io = |source| TraceError::Io {
            path: path.to_path_buf(),
            action: "cannot open",
            source,
        };
        let file = File::open(path).map_err(io)?;
        if !file.metadata().map_err(io)?.is_file() {
            return Err(TraceError::Foreign {
                path: path.to_path_buf(),
                reason: "it is not a regular file".into(),
            });
        }
        Self::from_source(path.to_path_buf(), Box::new(file))
    }

    /// Reads a trace that lies in memory. `name` stands for the path in errors.
    pub fn from_bytes(name: impl AsRef<Path>, bytes: Vec<u8>) -> Result<Self, TraceError> {
        let source = Box::new(std::io::Cursor::new(bytes));
        Self::from_source(name.as_ref().to_path_buf(), source)
    }

    fn from_source(path: PathBuf, mut source: Box<dyn Source + Send>) -> Result<Self, TraceError> {
        let length = source.seek(SeekFrom::End(0));
        let length = length.map_err(|source| TraceError::Io {
            path: path.clone(),
            action: "cannot read",
            source,
        })?;
        let mut reader = TraceReader {
            path,
            source: RefCell::new(source),
            length,
            header: Header::default(),
            blocks: Vec::new(),
            accesses: Vec::new(),
        };
        reader.check_prefix()?;
        let index_offset = reader.check_end()?;
        let sections = reader.read_index(index_offset)?;
        reader.read_header(&sections)?;
        Ok(reader)
    }

    /// Tables, environment, totals.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The trace's path, as it was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Length of the file in bytes.
    pub fn file_length(&self) -> u64 {
        self.length
    }

    /// All events in time order, decoded a block (at most 2^18 events) at a
    /// time. Ends after the first error.
    pub fn events(&self) -> Events<'_> {
        Events {
            reader: self,
            rules: Rules::default(),
            next_block: 0,
            block: Vec::new().into_iter(),
            seen: 0,
            failed: false,
        }
    }

    /// The same, and with them samples of accessed marks ([`crate::EventKind::Accessed`]), if the
    /// trace has any. At one time events come first.
    pub fn events_and_accesses(&self) -> EventsAndAccesses<'_> {
        EventsAndAccesses {
            events: self.events().peekable(),
            accesses: Samples {
                reader: self,
                next_section: 0,
                section: Vec::new().into_iter(),
                last_us: 0,
            },
            at_hand: None,
            failed: false,
        }
    }

    /// Loads every event, task by task. Takes 72 bytes of memory an event, and
    /// events can be small: a byte of the file can stand for 500 of them.
    /// Callers that cannot afford [`Header::events`] of them walk
    /// [`events`](Self::events); no more than those are loaded.
    pub fn streams(&self) -> Result<Streams, TraceError> {
        Streams::load(self)
    }

    fn damaged(&self, offset: u64, reason: impl Into<String>) -> TraceError {
        TraceError::Damaged {
            path: self.path.clone(),
            offset,
            reason: reason.into(),
        }
    }

    fn future(&self, offset: u64, what: impl Into<String>) -> TraceError {
        TraceError::Future {
            path: self.path.clone(),
            offset,
            what: what.into(),
        }
    }

    fn in_section(&self, section: &Section, error: ColumnError) -> TraceError {
        let text = |reason| format!("section {}: {reason}", section.name());
        match error {
            ColumnError::Damaged(reason) => self.damaged(section.offset, text(reason)),
            ColumnError::Unknown(what) => self.future(section.offset, text(what)),
        }
    }

    /// Exactly `length` bytes at `offset`, which the caller knows to lie in the
    /// file.
    fn read_at(&self, offset: u64, length: u64) -> Result<Vec<u8>, TraceError> {
        let inside = offset
            .checked_add(length)
            .is_some_and(|end| end <= self.length);
        if !inside {
            return Err(self.damaged(
                offset,
                format!("{length} bytes are expected, the file has {}", self.length),
            ));
        }
        let mut bytes = vec![0; length as usize];
        let mut source = self.source.borrow_mut();
        let result = source
            .seek(SeekFrom::Start(offset))
            .and_then(|_| source.read_exact(&mut bytes));
        result.map_err(|source| TraceError::Io {
            path: self.path.clone(),
            action: "cannot read",
            source,
        })?;
        Ok(bytes)
    }

    fn check_prefix(&self) -> Result<(), TraceError> {
        let foreign = |reason: &str| TraceError::Foreign {
            path: self.path.clone(),
            reason: reason.into(),
        };
        if self.length == 0 {
            return Err(foreign("the file is empty"));
        }
        let prefix = self.read_at(0, self.length.min(PREFIX_BYTES))?;
        if !prefix.starts_with(&MAGIC[..prefix.len().min(MAGIC.len())]) {
            return Err(foreign("it begins with other bytes than a trace"));
        }
        if prefix.len() < PREFIX_BYTES as usize {
            return Err(self.damaged(self.length, "the file ends inside its first 16 bytes"));
        }
        let mut cursor = Cursor::new(&prefix[8..]);
        let version = cursor.u32().unwrap_or(0);
        if cursor.u32() != Some(crc32fast::hash(&prefix[..12])) {
            return Err(self.damaged(8, "the checksum of the version does not fit"));
        }
        if version != VERSION {
            return Err(self.future(
                8,
                format!("format version {version}; this is vellum for version {VERSION}"),
            ));
        }
        Ok(())
    }

    /// Checks the last bytes and returns the offset of the index.
    fn check_end(&self) -> Result<u64, TraceError> {
        let start = self.length.saturating_sub(END_BYTES).max(PREFIX_BYTES);
        let end = self.read_at(start, self.length - start)?;
        if end.len() < END_BYTES as usize || !end.ends_with(&END_MAGIC) {
            return Err(self.damaged(
                self.length,
                "the end mark is missing: the file is cut short; copy it again",
            ));
        }
        let mut cursor = Cursor::new(&end);
        let index_offset = cursor.u64().unwrap_or(0);
        let length = cursor.u64().unwrap_or(0);
        if cursor.u32() != Some(crc32fast::hash(&end[..16])) {
            return Err(self.damaged(start, "the checksum of the end mark does not fit"));
        }
        if length != self.length {
            return Err(self.damaged(
                start,
                format!("the file has {} bytes, not {length}", self.length),
            ));
        }
        Ok(index_offset)
    }

    /// Reads the payload of a section, checking both checksums.
    fn read_section(&self, expected: &Section) -> Result<Vec<u8>, TraceError> {
        let offset = expected.offset;
        let head = self.read_at(offset, HEAD_BYTES)?;
        let (section, checksum) = Section::from_head(&head, offset)
            .ok_or_else(|| self.damaged(offset, "the checksum of a section head does not fit"))?;
        if section != *expected {
            return Err(self.damaged(offset, "a section differs from its entry in the index"));
        }
        let payload = self.read_at(offset + HEAD_BYTES, section.length)?;
        if crc32fast::hash(&payload) != checksum {
            return Err(self.damaged(
                offset,
                format!("the checksum of section {} does not fit", section.name()),
            ));
        }
        Ok(payload)
    }

    /// All sections but the index, which must fill the file without gaps.
    fn read_index(&self, offset: u64) -> Result<Vec<Section>, TraceError> {
        let end = self.length - END_BYTES;
        let head_end = offset.checked_add(HEAD_BYTES);
        let Some(head_end) = head_end.filter(|head_end| *head_end <= end) else {
            return Err(self.damaged(end, format!("the index cannot be at byte {offset}")));
        };
        let payload = self.read_section(&Section {
            kind: INDEX,
            required: true,
            offset,
            length: end - head_end,
        })?;
        if !payload.len().is_multiple_of(INDEX_ENTRY_BYTES) {
            return Err(self.damaged(offset, "the index ends inside an entry"));
        }
        let mut cursor = Cursor::new(&payload);
        let mut sections = Vec::new();
        let mut next = PREFIX_BYTES;
        while let Some(section) = Section::read(&mut cursor) {
            if section.offset != next {
                return Err(self.damaged(offset, format!("no section begins at byte {next}")));
            }
            next = section
                .end()
                .filter(|end| *end <= offset)
                .ok_or_else(|| self.damaged(offset, "a section reaches past the index"))?;
            sections.push(section);
        }
        if next != offset {
            return Err(self.damaged(next, "bytes that belong to no section"));
        }
        Ok(sections)
    }

    fn read_header(&mut self, sections: &[Section]) -> Result<(), TraceError> {
        let mut header = None;
        for section in sections {
            match section.kind {
                EVENTS => self.blocks.push(*section),
                ACCESSES => self.accesses.push(*section),
                HEADER if header.is_none() => {
                    let payload = self.read_section(section)?;
                    let decoded = tables::decode(&payload);
                    let decoded = decoded.map_err(|error| self.in_section(section, error))?;
                    rules::check_header(&decoded)
                        .map_err(|reason| self.damaged(section.offset, reason))?;
                    header = Some(decoded);
                }
                HEADER => return Err(self.damaged(section.offset, "a second header")),
                _ if section.required => {
                    let what = format!("required section {}", section.name());
                    return Err(self.future(section.offset, what));
                }
                _ => {}
            }
        }
        self.header = header.ok_or_else(|| self.damaged(PREFIX_BYTES, "there is no header"))?;
        Ok(())
    }
}

/// The events of a trace in time order. See [`TraceReader::events`].
pub struct Events<'a> {
    reader: &'a TraceReader,
    rules: Rules,
    next_block: usize,
    block: std::vec::IntoIter<Event>,
    seen: u64,
    failed: bool,
}

impl Events<'_> {
    fn advance(&mut self) -> Result<Option<Event>, TraceError> {
        loop {
            if let Some(event) = self.block.next() {
                let checked = self.rules.check(&self.reader.header, &event);
                checked.map_err(|reason| {
                    let section = &self.reader.blocks[self.next_block - 1];
                    let reason = format!("event {}: {reason}", self.seen);
                    self.reader.damaged(section.offset, reason)
                })?;
                self.seen += 1;
                if self.seen > self.reader.header.events {
                    return self.check_total().map(|()| None);
                }
                return Ok(Some(event));
            }
            let Some(section) = self.reader.blocks.get(self.next_block) else {
                return self.check_total().map(|()| None);
            };
            let payload = self.reader.read_section(section)?;
            let block = block::decode(&payload);
            let block = block.map_err(|error| self.reader.in_section(section, error))?;
            self.block = block.into_iter();
            self.next_block += 1;
        }
    }

    fn check_total(&self) -> Result<(), TraceError> {
        let promised = self.reader.header.events;
        if self.seen == promised {
            return Ok(());
        }
        let more = if self.seen > promised { " or more" } else { "" };
        let reason = format!("{}{more} events, the header promises {promised}", self.seen);
        Err(self.reader.damaged(self.reader.length, reason))
    }
}

impl Iterator for Events<'_> {
    type Item = Result<Event, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let next = self.advance().transpose();
        self.failed = !matches!(next, Some(Ok(_)));
        next
    }
}

/// Samples of accessed marks, a section at a time.
struct Samples<'a> {
    reader: &'a TraceReader,
    next_section: usize,
    section: std::vec::IntoIter<Event>,
    last_us: u64,
}

impl Samples<'_> {
    fn advance(&mut self) -> Result<Option<Event>, TraceError> {
        loop {
            if let Some(event) = self.section.next() {
                let checked = rules::check_access(&self.reader.header, &event, self.last_us);
                checked.map_err(|reason| {
                    let section = &self.reader.accesses[self.next_section - 1];
                    self.reader.damaged(section.offset, reason)
                })?;
                self.last_us = event.time_us;
                return Ok(Some(event));
            }
            let Some(section) = self.reader.accesses.get(self.next_section) else {
                return Ok(None);
            };
            let payload = self.reader.read_section(section)?;
            let decoded = accesses::decode(&payload);
            let decoded = decoded.map_err(|error| self.reader.in_section(section, error))?;
            self.section = decoded.into_iter();
            self.next_section += 1;
        }
    }
}

/// The events of a trace and its samples of accessed marks in time order. See
/// [`TraceReader::events_and_accesses`].
pub struct EventsAndAccesses<'a> {
    events: std::iter::Peekable<Events<'a>>,
    accesses: Samples<'a>,
    /// The next sample.
    at_hand: Option<Event>,
    failed: bool,
}

impl EventsAndAccesses<'_> {
    fn advance(&mut self) -> Result<Option<Event>, TraceError> {
        if self.at_hand.is_none() {
            self.at_hand = self.accesses.advance()?;
        }
        match (&self.at_hand, self.events.peek()) {
            (Some(access), Some(Ok(event))) if access.time_us < event.time_us => {
                Ok(self.at_hand.take())
            }
            (Some(_), None) => Ok(self.at_hand.take()),
            _ => self.events.next().transpose(),
        }
    }
}

impl Iterator for EventsAndAccesses<'_> {
    type Item = Result<Event, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let next = self.advance().transpose();
        self.failed = !matches!(next, Some(Ok(_)));
        next
    }
}
