//! Results that commands wrote, one of each kind, with the numbers rounded.
#![allow(dead_code, reason = "each test uses its own part of this")]

use serde_json::Value;
use vellum_results::Loaded;

/// All of them.
pub const ALL: [&str; 15] = [
    "advise",
    "compare",
    "bench",
    "reproduce",
    "scale",
    "simulated",
    "sweep",
    "grid",
    "plan",
    "memory",
    "linux",
    "saved",
    "against-core",
    "saved-against-saved",
    "replay",
];

/// One of them as JSON.
pub fn value(name: &str) -> Value {
    let path = format!("{}/tests/results/{name}.json", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// One of them.
pub fn read(name: &str) -> Loaded {
    Loaded::of_value(format!("{name}.json"), value(name)).expect("a result")
}
