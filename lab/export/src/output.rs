//! Where a table goes: a file, which appears only when it is complete, or standard
//! output.

use std::io::{self, BufWriter, Stdout, Write};
use std::path::Path;

use vellum_output::PartialFile;

/// Bytes on their way to a file or to standard output. Dropped before
/// [`finish`](Output::finish), a file leaves nothing behind.
pub struct Output {
    out: Target,
    bytes: u64,
}

enum Target {
    File(BufWriter<PartialFile>),
    Stdout(BufWriter<Stdout>),
}

impl Output {
    /// Starts a file at `path`.
    ///
    /// # Errors
    /// No file can be made beside `path`.
    pub fn create(path: &Path) -> io::Result<Self> {
        let file = BufWriter::with_capacity(1 << 16, PartialFile::create(path)?);
        Ok(Output {
            out: Target::File(file),
            bytes: 0,
        })
    }

    /// Writes to standard output.
    pub fn stdout() -> Self {
        Output {
            out: Target::Stdout(BufWriter::new(io::stdout())),
            bytes: 0,
        }
    }

    /// Completes the file and gives it its name. Returns its length in bytes.
    ///
    /// # Errors
    /// The bytes cannot be written or the file cannot be named.
    pub fn finish(self) -> io::Result<u64> {
        match self.out {
            Target::File(out) => {
                let file = out.into_inner().map_err(|error| error.into_error())?;
                file.finish()?;
            }
            Target::Stdout(mut out) => out.flush()?,
        }
        Ok(self.bytes)
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = match &mut self.out {
            Target::File(out) => out.write(bytes)?,
            Target::Stdout(out) => out.write(bytes)?,
        };
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.out {
            Target::File(out) => out.flush(),
            Target::Stdout(out) => out.flush(),
        }
    }
}
