//! Whatever the text is, its columns are samples or an error, and samples make a table in each
//! form. The first byte says how the text is divided and read.
//!
//! ```text
//! mkdir -p test/fuzz/corpus/stats
//! cargo +nightly fuzz run --fuzz-dir test/fuzz stats test/fuzz/corpus/stats test/fuzz/seeds/stats -- -rss_limit_mb=1024 -max_len=16384
//! ```
#![no_main]

use libfuzzer_sys::fuzz_target;
use vellum_tables::Series;
use vellum_tables::freebsd_time;
use vellum_tables::kolivas;
use vellum_tables::ministat;
use vellum_tables::mmtests::{self, Edition};
use vellum_tables::read::{Column, Columns, Values};

fn columns(choice: u8) -> Columns {
    let value = |column| Values {
        column,
        operation: None,
    };
    Columns {
        delimiters: ["", ",", ";\t"][usize::from(choice & 3) % 3].to_owned(),
        values: match choice >> 2 & 3 {
            0 => Vec::new(),
            1 => vec![value(Column::Number(2))],
            2 => vec![value(Column::Name("real_time".into()))],
            _ => vec![value(Column::Number(1)), value(Column::Number(3))],
        },
        operation: match choice >> 4 & 3 {
            0 | 1 => None,
            2 => Some(Column::Number(1)),
            _ => Some(Column::Name("operation".into())),
        },
    }
}

fuzz_target!(|bytes: &[u8]| {
    let Some((choice, text)) = bytes.split_first() else {
        return;
    };
    let text = String::from_utf8_lossy(text);
    let compat = choice & 0x40 != 0;
    let columns = columns(*choice);
    if let Ok(groups) = columns.kernbench("fuzz", &text, None) {
        let _ = (kolivas::rows(&groups), kolivas::blocks(&groups, compat));
    }
    let operations = match columns.parse("fuzz", &text) {
        Ok(operations) => operations,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return;
        }
    };
    let series = Series {
        name: "fuzz".into(),
        operations,
    };
    let sets = [series.clone(), series];
    let _ = freebsd_time::lines(&sets[0]);
    let options = ministat::Options {
        compat,
        ..ministat::Options::default()
    };
    let _ = ministat::block(&sets, &options);
    let table = sets.map(|series| mmtests::Column::new(series, compat));
    for edition in [Edition::Of2014, Edition::Of2025] {
        let options = mmtests::Options {
            edition,
            higher_is_better: choice & 0x80 != 0,
            compat,
            ..mmtests::Options::default()
        };
        let text = mmtests::table(&table, &options);
        // As mmtests prints it, mistakes included, is another matter; and so is a name.
        let is_named = bytes.windows(4).any(|part| part == b"NaN%");
        let prints_none = |text: String| is_named || !text.contains("NaN%");
        assert!(compat || text.map_or(true, prints_none));
    }
});
