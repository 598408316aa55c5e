//! What the tests of the command share: running it, and whether there can be
//! recordings.
#![allow(dead_code, reason = "each test uses its own part of this")]

use std::path::Path;
use std::process::{Command, Output};

pub use vellum_testing::Scratch;
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
    vellum_testing::recording_permitted(vellum_record::check_permission())
}
