//! Whatever the text is, importing it as perf script text ends in a trace that keeps the
//! rules of traces, or in an error.
//!
//! ```text
//! mkdir -p test/fuzz/corpus/import_perf_script
//! cp lab/import/tests/fixtures/perf-script*.txt lab/import/tests/fixtures/page-faults*.txt test/fuzz/corpus/import_perf_script/
//! cargo +nightly fuzz run --fuzz-dir test/fuzz import_perf_script test/fuzz/corpus/import_perf_script test/fuzz/seeds/import_perf_script -- -rss_limit_mb=1024 -max_len=65536
//! ```
#![no_main]

use libfuzzer_sys::fuzz_target;
use vellum_import::{Format, Options, import_text};

fuzz_target!(|text: &[u8]| {
    let options = Options {
        format: Some(Format::PerfScript),
        ..Options::default()
    };
    if let Ok((_, imported, report)) = import_text(text, &options) {
        assert!(!imported.events().is_empty());
        assert!(report.skips() <= report.lines * 4);
    }
});
