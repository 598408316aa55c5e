//! Writes a trace file.
//!
//! Events go in one by one in time order; tables may grow until the end. The
//! file gets its name when the trace is complete ([`PartialFile`]): there is never
//! half a trace.

use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::accesses;
use crate::block;
use crate::error::TraceError;
use crate::event::{Event, EventKind};
use crate::file::{ACCESSES, END_MAGIC, EVENTS, HEADER, INDEX, MAGIC, Section, VERSION};
use crate::header::Header;
use crate::rules::{self, Rules};
use crate::tables;
use vellum_output::PartialFile;

/// Compression level that a writer uses unless told otherwise (zstd's scale).
/// Of a recorded kernel build, level 19 takes three times as long as level 9 and
/// makes 6 % less of it.
pub const DEFAULT_LEVEL: i32 = 9;

/// Writes one trace.
pub struct TraceWriter {
    path: PathBuf,
    out: BufWriter<PartialFile>,
    level: i32,
    offset: u64,
    sections: Vec<Section>,
    pending: Vec<Event>,
    rules: Rules,
    header: Header,
    events: u64,
    last_us: u64,
    /// Samples of accessed marks that are not in a section yet.
    accesses: Vec<Event>,
    /// Time of the last one that is.
    last_access_us: u64,
}

impl TraceWriter {
    /// Starts a trace at `path`. `level` is zstd's compression level.
    pub fn create(path: impl AsRef<Path>, level: i32) -> Result<Self, TraceError> {
        let path = path.as_ref().to_path_buf();
        let file = PartialFile::create(&path).map_err(|source| TraceError::Io {
            path: path.clone(),
            action: "cannot create",
            source,
        })?;
        let mut writer = TraceWriter {
            path,
            out: BufWriter::new(file),
            level,
            offset: 0,
            sections: Vec::new(),
            pending: Vec::new(),
            rules: Rules::default(),
            header: Header::default(),
            events: 0,
            last_us: 0,
            accesses: Vec::new(),
            last_access_us: 0,
        };
        let mut prefix = MAGIC.to_vec();
        prefix.extend_from_slice(&VERSION.to_le_bytes());
        prefix.extend_from_slice(&crc32fast::hash(&prefix).to_le_bytes());
        writer.put(&prefix)?;
        Ok(writer)
    }

    /// The header, to be filled. The tables may grow at any time before
    /// [`finish`](Self::finish), as long as an event's tasks, files and strings
    /// are there before the event. [`Header::events`] and
    /// [`Header::duration_us`] belong to the writer.
    pub fn header_mut(&mut self) -> &mut Header {
        &mut self.header
    }

    /// Adds an event. Its time may be raised by a few microseconds where that
    /// is needed to keep the order of events that carry the same time. A sample of accessed
    /// marks ([`EventKind::Accessed`]) keeps its time.
    pub fn push(&mut self, event: &Event) -> Result<(), TraceError> {
        if let EventKind::Accessed { .. } = event.kind {
            return self.push_access(event);
        }
        let checked = self.rules.check(&self.header, event);
        checked.map_err(|reason| self.bad_event(reason))?;
        self.events += 1;
        self.pending.push(*event);
        if self.pending.len() == block::MAX_EVENTS {
            self.flush_block()?;
        }
        Ok(())
    }

    fn push_access(&mut self, event: &Event) -> Result<(), TraceError> {
        let last_us = self
            .accesses
            .last()
            .map_or(self.last_access_us, |last| last.time_us);
        let checked = rules::check_access(&self.header, event, last_us);
        checked.map_err(|reason| self.bad_event(reason))?;
        self.accesses.push(*event);
        if self.accesses.len() == accesses::MAX_RANGES {
            self.flush_accesses()?;
        }
        Ok(())
    }

    /// Completes the trace and gives it its name. Returns the
    /// number of events and the length in bytes.
    pub fn finish(mut self) -> Result<(u64, u64), TraceError> {
        self.flush_block()?;
        self.flush_accesses()?;
        rules::check_header(&self.header).map_err(|reason| self.bad_event(reason))?;
        self.header.events = self.events;
        self.header.duration_us = self.last_us;
        let payload = tables::encode(&self.header, self.level);
        let payload = payload.map_err(|source| self.io("cannot compress", source))?;
        self.put_section(HEADER, true, &payload)?;
        let index_offset = self.offset;
        let mut index = Vec::new();
        for section in &self.sections {
            section.put(&mut index);
        }
        self.put_section(INDEX, true, &index)?;
        let mut end = index_offset.to_le_bytes().to_vec();
        end.extend_from_slice(&(self.offset + 24).to_le_bytes());
        end.extend_from_slice(&crc32fast::hash(&end).to_le_bytes());
        end.extend_from_slice(&END_MAGIC);
        self.put(&end)?;
        let (path, totals) = (self.path, (self.events, self.offset));
        let file = self.out.into_inner().map_err(|error| error.into_error());
        match file.and_then(PartialFile::finish) {
            Ok(()) => Ok(totals),
            Err(source) => Err(TraceError::Io {
                path,
                action: "cannot write",
                source,
            }),
        }
    }

    fn flush_block(&mut self) -> Result<(), TraceError> {
        if self.pending.is_empty() {
            return Ok(());
        }
        self.last_us = block::settle_times(&mut self.pending, self.last_us);
        let payload = block::encode(&self.pending, self.level);
        let payload = payload.map_err(|source| self.io("cannot compress", source))?;
        self.pending.clear();
        self.put_section(EVENTS, true, &payload)
    }

    fn flush_accesses(&mut self) -> Result<(), TraceError> {
        let Some(last) = self.accesses.last() else {
            return Ok(());
        };
        self.last_access_us = last.time_us;
        let payload = accesses::encode(&self.accesses, self.level);
        let payload = payload.map_err(|source| self.io("cannot compress", source))?;
        self.accesses.clear();
        self.put_section(ACCESSES, false, &payload)
    }

    fn put_section(
        &mut self,
        kind: [u8; 4],
        required: bool,
        payload: &[u8],
    ) -> Result<(), TraceError> {
        let section = Section {
            kind,
            required,
            offset: self.offset,
            length: payload.len() as u64,
        };
        let head = section.head(crc32fast::hash(payload));
        self.put(&head)?;
        self.put(payload)?;
        self.sections.push(section);
        Ok(())
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), TraceError> {
        let result = self.out.write_all(bytes);
        result.map_err(|source| self.io("cannot write", source))?;
        self.offset += bytes.len() as u64;
        Ok(())
    }

    fn bad_event(&self, reason: String) -> TraceError {
        TraceError::BadEvent {
            path: self.path.clone(),
            index: self.events,
            reason,
        }
    }

    fn io(&self, action: &'static str, source: std::io::Error) -> TraceError {
        TraceError::Io {
            path: self.path.clone(),
            action,
            source,
        }
    }
}
