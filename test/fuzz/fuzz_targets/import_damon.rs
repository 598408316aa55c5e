//! Whatever the text is, importing it as what DAMON saw ends in a trace that keeps the
//! rules of traces, or in an error.
//!
//! ```text
//! mkdir -p test/fuzz/corpus/import_damon
//! cargo +nightly fuzz run --fuzz-dir test/fuzz import_damon test/fuzz/corpus/import_damon test/fuzz/seeds/import_damon -- -rss_limit_mb=4096 -max_len=65536
//! ```
#![no_main]

use libfuzzer_sys::fuzz_target;
use vellum_import::{Format, Options, import_text};

fuzz_target!(|text: &[u8]| {
    let options = Options {
        format: Some(Format::Damon),
        ..Options::default()
    };
    if let Ok((_, imported, report)) = import_text(text, &options) {
        assert!(!imported.events().is_empty());
        assert!(imported.header().accesses.is_some());
        assert!(report.skips() <= report.lines * 4);
    }
});
