//! Whatever the text or the records are, importing them as those of drmemtrace ends in a trace that
//! keeps the rules of traces, or in an error.
//!
//! ```text
//! mkdir -p test/fuzz/corpus/import_drmemtrace
//! cargo +nightly fuzz run --fuzz-dir test/fuzz import_drmemtrace test/fuzz/corpus/import_drmemtrace test/fuzz/seeds/import_drmemtrace -- -rss_limit_mb=1024 -max_len=65536
//! ```
#![no_main]

use libfuzzer_sys::fuzz_target;
use vellum_import::{Format, Options, import_text};

fuzz_target!(|text: &[u8]| {
    let options = Options {
        format: Some(Format::Drmemtrace),
        ..Options::default()
    };
    if let Ok((_, imported, report)) = import_text(text, &options) {
        assert!(!imported.events().is_empty());
        assert!(report.skips() <= report.lines * 4);
    }
});
