//! What the tests of the command share: running it, files of a test's own, and
//! whether there can be recordings.
#![allow(dead_code, reason = "each test uses its own part of this")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use vellum_trace::TraceReader;

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

/// All that a command printed, results first.
pub fn printed(output: &Output) -> String {
    text(&output.stdout) + &text(&output.stderr)
}

/// Whether recording is possible here. If not it says so, which is a failure with
/// `VELLUM_REQUIRE_PERF=1` in the environment.
pub fn recording_permitted() -> bool {
    match vellum_lab::record::check_permission() {
        Ok(()) => true,
        Err(reason) => {
            let required = std::env::var_os("VELLUM_REQUIRE_PERF").is_some_and(|v| v == "1");
            assert!(!required, "recording is required here: {reason}");
            eprintln!("SKIPPED: nothing was recorded: {reason}");
            false
        }
    }
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

    /// Its own path.
    pub fn directory(&self) -> &str {
        self.0.to_str().expect("the path is text")
    }

    /// A path in it.
    pub fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }

    /// The names of what lies in it, in order.
    pub fn files(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.0).expect("a directory that can be read");
        let name = |entry: std::io::Result<std::fs::DirEntry>| {
            let name = entry.expect("a directory that can be read").file_name();
            name.to_string_lossy().into_owned()
        };
        let mut names: Vec<String> = entries.map(name).collect();
        names.sort();
        names
    }

    /// A file in it.
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> String {
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
