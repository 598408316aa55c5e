//! A file that appears only when it is complete.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// Bytes on their way to a file or to standard output. Dropped before
/// [`finish`](Output::finish), a file leaves nothing behind.
pub struct Output {
    out: BufWriter<Box<dyn Target>>,
    names: Option<(PathBuf, PathBuf)>,
    bytes: u64,
}

trait Target: Write + Send {
    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

impl Target for File {
    fn sync(&self) -> io::Result<()> {
        self.sync_all()
    }
}

impl Target for io::Stdout {}

impl Output {
    /// Starts a file at `path`; `-` is standard output.
    ///
    /// # Errors
    /// No file can be made beside `path`.
    pub fn create(path: &Path) -> io::Result<Self> {
        if path.as_os_str() == "-" {
            return Ok(Output {
                out: BufWriter::new(Box::new(io::stdout())),
                names: None,
                bytes: 0,
            });
        }
        let mut name = path.file_name().unwrap_or_default().to_os_string();
        name.push(format!(".{}.partial", std::process::id()));
        let temporary = path.with_file_name(name);
        let file = File::create(&temporary)?;
        Ok(Output {
            out: BufWriter::with_capacity(1 << 16, Box::new(file)),
            names: Some((temporary, path.to_path_buf())),
            bytes: 0,
        })
    }

    /// Completes the file and gives it its name. Returns its length in bytes.
    ///
    /// # Errors
    /// The bytes cannot be written or the file cannot be named.
    pub fn finish(mut self) -> io::Result<u64> {
        self.out.flush()?;
        self.out.get_ref().sync()?;
        if let Some((temporary, path)) = &self.names {
            fs::rename(temporary, path)?;
        }
        self.names = None;
        Ok(self.bytes)
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        if let Some((temporary, _)) = &self.names {
            // Nothing can be done about a file that cannot be removed.
            let _ = fs::remove_file(temporary);
        }
    }
}
