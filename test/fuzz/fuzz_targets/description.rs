//! Whatever the text is, it is a description of a machine or an error; a description prints as
//! text that is read back as the same.
//!
//! ```text
//! mkdir -p test/fuzz/corpus/description
//! cargo +nightly fuzz run --fuzz-dir test/fuzz description test/fuzz/corpus/description test/fuzz/seeds/description sim/machines -- -rss_limit_mb=512 -max_len=16384
//! ```
#![no_main]

use libfuzzer_sys::fuzz_target;
use vellum_description::Description;

fuzz_target!(|bytes: &[u8]| {
    let text = String::from_utf8_lossy(bytes);
    match Description::parse(&text, "fuzz") {
        Ok(description) => {
            assert!(description.cores() <= description.cpus());
            assert!(description.nodes() <= description.cpus());
            let _ = (description.figures().len(), description.bases());
            let printed = description.to_string();
            let again = Description::parse(&printed, "printed");
            assert_eq!(again.ok().as_ref(), Some(&description), "{printed}");
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});
