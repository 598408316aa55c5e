//! Whatever the text is, importing it as strace text ends in a trace that keeps the
//! rules of traces, or in an error.
//!
//! ```text
//! mkdir -p test/fuzz/corpus/import_strace
//! cp lab/import/tests/fixtures/strace*.txt test/fuzz/corpus/import_strace/
//! cargo +nightly fuzz run --fuzz-dir test/fuzz import_strace test/fuzz/corpus/import_strace test/fuzz/seeds/import_strace -- -rss_limit_mb=1024 -max_len=65536
//! ```
#![no_main]

use libfuzzer_sys::fuzz_target;
use vellum_import::{Format, Options, import_text};

fuzz_target!(|text: &[u8]| {
    let options = Options {
        format: Some(Format::Strace),
        // First touches are made up, a fault a page: with the limit that users
        // get, one line makes a thousand events, and they are most of the time.
        touch_limit: 8,
        ..Options::default()
    };
    if let Ok((_, imported, report)) = import_text(text, &options) {
        assert!(!imported.events().is_empty());
        assert!(report.skips() <= report.lines * 4);
    }
});
