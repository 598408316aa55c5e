//! Whatever the text is, it is a profile or an error; a profile can be compared with itself, which
//! shows no change, folded, and drawn. The first byte says which format is asked for.
//!
//! ```text
//! mkdir -p test/fuzz/corpus/profile
//! cargo +nightly fuzz run --fuzz-dir test/fuzz profile test/fuzz/corpus/profile test/fuzz/seeds/profile -- -rss_limit_mb=1024 -max_len=65536
//! ```
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use vellum_profile::diffprofile::{Options as DiffOptions, diffprofile, text as text_of};
use vellum_profile::read::{self, Format, Options};
use vellum_profile::{flame, folded_pair};

fuzz_target!(|bytes: &[u8]| {
    let Some((choice, text)) = bytes.split_first() else {
        return;
    };
    let formats = [
        None,
        Some(Format::Folded),
        Some(Format::Perf),
        Some(Format::Oprofile),
        Some(Format::Readprofile),
    ];
    let options = Options {
        format: formats[usize::from(choice & 0xf) % formats.len()],
        periods: choice & 0x10 != 0,
    };
    match read::text(text, Path::new("fuzz"), options) {
        Ok(profile) => {
            assert!(!profile.is_empty());
            let options = DiffOptions::new("fuzz");
            let _ = text_of(&diffprofile(&profile, &profile, &options), &options);
            assert!(!folded_pair(&profile, &profile).is_empty());
            assert!(flame::svg(&profile, &profile, "fuzz").ends_with("</svg>\n"));
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});
