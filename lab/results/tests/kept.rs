//! Results that are kept for the tests of pages: what is read of them is written as it was.

use std::fs;
use std::path::Path;

use serde_json::Value;
use vellum_results::{Content, Document, Kind, Loaded};

fn written(content: &Content) -> Value {
    fn value(result: &impl Kind) -> Value {
        serde_json::to_value(Document::new(result)).expect("plain data")
    }
    match content {
        Content::Advice(result) => value(result),
        Content::Compare(result) => value(result),
        Content::Bench(result) => value(result),
        Content::Kolivas(result) => value(result),
        Content::Reproduce(result) => value(result),
        Content::Replay(result) => value(result),
        Content::Host(result) => value(result),
        Content::HostCompare(result) => value(result),
        Content::SavedCompare(result) => value(result),
        Content::Scale(result) => value(result),
        Content::Sim(result) => value(result),
        Content::SimSweep(result) => value(result),
        Content::SimBench(result) => value(result),
        Content::Memory(result) => value(result),
        Content::Plan(result) => value(result),
        Content::Sweep(result) => value(result),
        Content::Tlb(result) => value(result),
    }
}

/// Asserts that `new` has all that `old` has; fields that were added later may be in it.
fn assert_within(old: &Value, new: &Value, place: &str) {
    match (old, new) {
        (Value::Object(old), Value::Object(new)) => {
            for (name, value) in old {
                let place = format!("{place}.{name}");
                let other = new.get(name);
                assert_within(value, other.unwrap_or_else(|| panic!("{place}")), &place);
            }
        }
        (Value::Array(old), Value::Array(new)) => {
            assert_eq!(old.len(), new.len(), "{place}");
            for (old, new) in old.iter().zip(new) {
                assert_within(old, new, place);
            }
        }
        _ => assert_eq!(old, new, "{place}"),
    }
}

#[test]
fn a_result_that_is_read_and_written_keeps_every_field() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../page/tests/results");
    let mut kept = 0;
    for file in fs::read_dir(directory).expect("there") {
        let path = file.expect("readable").path();
        if path.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        let name = path.display().to_string();
        let text = fs::read_to_string(&path).expect("readable");
        let mut old: Value = serde_json::from_str(&text).expect("JSON");
        let loaded = Loaded::of_value(name.clone(), old.clone());
        let loaded = loaded.unwrap_or_else(|error| panic!("{error}"));
        let fields = old.as_object_mut().expect("an object");
        fields.remove("run");
        // A saved result of a host is the same result with a checksum.
        if let Some(result) = fields.remove("result") {
            old = result;
        }
        assert_within(&old, &written(&loaded.content), &name);
        kept += 1;
    }
    assert!(kept > 10, "{kept}");
}
