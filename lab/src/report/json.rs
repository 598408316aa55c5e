//! Reports as JSON, on standard output or in a file.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// The report as one JSON object, indented, with a newline at the end.
///
/// # Errors
/// Never in practice: a report has no keys that are not strings.
pub fn render(report: &impl serde::Serialize) -> serde_json::Result<String> {
    serde_json::to_string_pretty(report).map(|text| text + "\n")
}

/// A file that will hold a report. It is opened before the work begins, so that
/// a path that cannot be written is refused at once, and it gets its name only
/// when the whole text is in it: a reader of the path sees the old file or the
/// new one.
#[derive(Debug)]
pub struct PendingFile {
    path: PathBuf,
    temporary: PathBuf,
    file: fs::File,
}

impl PendingFile {
    /// Creates a temporary file beside `path`.
    ///
    /// # Errors
    /// `path` names no file, or its directory cannot be written.
    pub fn create(path: &Path) -> io::Result<Self> {
        let mut name = path
            .file_name()
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "not the name of a file"))?
            .to_owned();
        name.push(format!(".{}.tmp", std::process::id()));
        let temporary = path.with_file_name(name);
        Ok(Self {
            path: path.to_owned(),
            file: fs::File::create(&temporary)?,
            temporary,
        })
    }

    /// Writes `text` and gives the file its name.
    ///
    /// # Errors
    /// The file cannot be written or renamed. Nothing is left behind then.
    pub fn commit(mut self, text: &str) -> io::Result<()> {
        self.file.write_all(text.as_bytes())?;
        self.file.sync_all()?;
        fs::rename(&self.temporary, &self.path)
    }
}

impl Drop for PendingFile {
    fn drop(&mut self) {
        // After a commit there is no such file any more.
        let _ = fs::remove_file(&self.temporary);
    }
}
