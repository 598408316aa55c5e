//! What the tests of the command share: running it, and files of a test's own.
#![allow(dead_code, reason = "each test uses its own part of this")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use vellum_lab::trace::TraceReader;

/// Runs `vellum` to its end.
pub fn vellum(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vellum"));
    let output = command.args(arguments).output();
    output.expect("the program was built and can be started")
}

/// Seconds from the beginning of a trace at which parts of it, in percent, have
/// passed: for cuts that do not depend on how long a recording took.
pub fn moments<const N: usize>(trace: &Path, percent: [u32; N]) -> [String; N] {
    let trace = TraceReader::open(trace).expect("a trace");
    let seconds = trace.header().duration_us as f64 / 1e6;
    percent.map(|part| format!("{:.6}", seconds * f64::from(part) / 100.0))
}

/// What a command printed.
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A directory of the test's own, removed with everything in it at the end.
pub struct Scratch(PathBuf);

impl Scratch {
    /// The directory of the test named `test`; the name is unique in its file.
    pub fn new(test: &str) -> Self {
        let name = format!("vellum-{test}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).expect("a fresh directory");
        Self(path)
    }

    /// A path in it.
    pub fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }

    /// A file in it.
    pub fn write(&self, name: &str, content: &str) -> String {
        let path = self.path(name);
        std::fs::write(&path, content).expect("a file in a fresh directory");
        path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Nothing depends on it being gone.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
