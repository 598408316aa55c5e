//! Results of the host in files, to be compared with those of another kernel or
//! another boot.
//!
//! A file is one JSON object: the schema, a checksum of the result, the result. It
//! is refused if it is not such a file, if it was changed or cut off, or if it was
//! written under another schema; the message says which.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::LinuxError;
use super::entry::EntryCost;
use super::environment::Environment;
use super::kinds::HostKind;
use super::summary::HostTimes;
use vellum_trace::TraceReader;

/// Name and version of the schema.
pub const SCHEMA: &str = "vellum-linux/1";

/// The trace behind a result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceId {
    /// Its path as it was given.
    pub path: String,
    /// Length of the file.
    pub bytes: u64,
    /// Checksum of the file.
    pub crc32: String,
    /// Events in it.
    pub events: u64,
}

impl TraceId {
    /// Of an open trace.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn of(trace: &TraceReader) -> Result<TraceId, LinuxError> {
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

    /// Whether both are the same recording, wherever it lies.
    pub fn is_same(&self, other: &TraceId) -> bool {
        (self.bytes, &self.crc32, self.events) == (other.bytes, &other.crc32, other.events)
    }
}

/// A result of the host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Saved {
    /// Version of the program.
    pub version: String,
    /// What was replayed.
    pub trace: TraceId,
    /// Operations in one pass.
    pub ops: u64,
    /// Where.
    pub environment: Environment,
    /// The CPU that everything ran on.
    pub cpu: usize,
    /// What entering the kernel costs there.
    pub entry: EntryCost,
    /// Times by pass.
    pub times: HostTimes,
    /// Time by kind.
    pub kinds: Vec<HostKind>,
}

#[derive(Serialize, Deserialize)]
struct File {
    schema: String,
    crc32: String,
    result: Saved,
}

impl Saved {
    /// The text of a file.
    ///
    /// # Errors
    /// Never in practice: a result has no keys that are not strings.
    pub fn render(&self) -> serde_json::Result<String> {
        let file = File {
            schema: SCHEMA.to_owned(),
            crc32: self.checksum()?,
            result: self.clone(),
        };
        serde_json::to_string_pretty(&file).map(|text| text + "\n")
    }

    fn checksum(&self) -> serde_json::Result<String> {
        let text = serde_json::to_string(self)?;
        Ok(format!("{:08x}", crc32fast::hash(text.as_bytes())))
    }

    /// Reads a file.
    ///
    /// # Errors
    /// It cannot be read, or is not what [`Saved::render`] wrote.
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
            Some(SCHEMA) => {}
            Some(other) => {
                return Err(refused(format!(
                    "its schema is `{other}`, and this program reads `{SCHEMA}`; {how}"
                )));
            }
            None => return Err(refused(format!("JSON, but no saved result; {how}"))),
        }
        let file: File = serde_json::from_value(value)
            .map_err(|error| refused(format!("damaged: {error}; {how}")))?;
        let sum = file.result.checksum().unwrap_or_default();
        match sum == file.crc32 {
            true => Ok(file.result),
            false => Err(refused(format!(
                "damaged: its checksum is {}, that of its contents {sum}; {how}",
                file.crc32
            ))),
        }
    }
}
