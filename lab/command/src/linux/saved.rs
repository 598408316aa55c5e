//! Results of the host in files, to be compared with those of another kernel or
//! another boot.
//!
//! A file is one JSON object: the schema, a checksum of the result, the result. It
//! is refused if it is not such a file, if it was changed or cut off, or if it was
//! written under another schema; the message says which.

use std::path::Path;

use vellum_results::linux::{Saved, SavedFile, TraceId};
use vellum_results::{Document, Kind};
use vellum_trace::TraceReader;

use super::LinuxError;
use crate::report::json;

/// What identifies an open trace.
///
/// # Errors
/// The file cannot be read.
pub fn trace_id(trace: &TraceReader) -> Result<TraceId, LinuxError> {
    let path = trace.path();
    let bytes = std::fs::read(path);
    let bytes = bytes.map_err(LinuxError::io(format!("reading {}", path.display())))?;
    Ok(TraceId {
        path: path.display().to_string(),
        bytes: bytes.len() as u64,
        crc32: format!("{:08x}", crc32fast::hash(&bytes)),
        events: trace.header().events,
    })
}

/// The text of the file of a result.
///
/// # Errors
/// Never in practice: a result has no keys that are not strings.
pub fn render(saved: &Saved) -> serde_json::Result<String> {
    let file = SavedFile {
        crc32: checksum(saved)?,
        result: saved.clone(),
    };
    json::render(&Document::new(&file))
}

fn checksum(saved: &Saved) -> serde_json::Result<String> {
    let text = serde_json::to_string(saved)?;
    Ok(format!("{:08x}", crc32fast::hash(text.as_bytes())))
}

/// Reads a file.
///
/// # Errors
/// It cannot be read, or is not what [`render`] wrote.
pub fn open(path: &Path) -> Result<Saved, LinuxError> {
    let bytes =
        std::fs::read(path).map_err(LinuxError::io(format!("reading {}", path.display())))?;
    let refused = |what: String| LinuxError::Saved {
        path: path.to_owned(),
        what,
    };
    let how = "write one with `vellum replay TRACE --on linux --save FILE`";
    let value: serde_json::Value = serde_json::from_slice(&bytes)
        .map_err(|error| refused(format!("not a saved result, or damaged ({error}); {how}")))?;
    match value.get("schema").and_then(serde_json::Value::as_str) {
        Some(SavedFile::SCHEMA) => {}
        Some(other) => {
            return Err(refused(format!(
                "its schema is `{other}`, and this program reads `{}`; {how}",
                SavedFile::SCHEMA
            )));
        }
        None => return Err(refused(format!("JSON, but no saved result; {how}"))),
    }
    let file: SavedFile = serde_json::from_value(value)
        .map_err(|error| refused(format!("damaged: {error}; {how}")))?;
    let sum = checksum(&file.result).unwrap_or_default();
    match sum == file.crc32 {
        true => Ok(file.result),
        false => Err(refused(format!(
            "damaged: its checksum is {}, that of its contents {sum}; {how}",
            file.crc32
        ))),
    }
}
