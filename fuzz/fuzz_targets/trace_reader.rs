//! Whatever the bytes are, reading a trace ends in events or in an error.
//!
//! Run with a limit on memory, which the reader has to keep as well:
//!
//! ```text
//! cargo install cargo-fuzz
//! cargo +nightly fuzz run trace_reader -- -rss_limit_mb=512 -max_len=65536
//! ```
//!
//! The checksums of the frame are made right first, so that mutations reach the
//! code behind them.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vellum_trace::TraceReader;

const PREFIX: usize = 16;
const HEAD: usize = 24;
const END: usize = 24;

fn put(bytes: &mut [u8], at: usize, checksum: u32) {
    bytes[at..at + 4].copy_from_slice(&checksum.to_le_bytes());
}

/// Makes the checksums of prefix, sections and end right.
fn repair(bytes: &mut [u8]) {
    if bytes.len() < PREFIX + HEAD + END {
        return;
    }
    let checksum = crc32fast::hash(&bytes[..12]);
    put(bytes, 12, checksum);
    let end = bytes.len() - END;
    let mut at = PREFIX;
    while at + HEAD <= end {
        let mut word = [0; 8];
        word.copy_from_slice(&bytes[at + 8..at + 16]);
        let length = usize::try_from(u64::from_le_bytes(word)).unwrap_or(usize::MAX);
        let payload_end = (at + HEAD).saturating_add(length).min(end);
        let checksum = crc32fast::hash(&bytes[at + HEAD..payload_end]);
        put(bytes, at + 16, checksum);
        let checksum = crc32fast::hash(&bytes[at..at + 20]);
        put(bytes, at + 20, checksum);
        at = payload_end;
    }
    let checksum = crc32fast::hash(&bytes[end..end + 16]);
    put(bytes, end + 16, checksum);
}

fuzz_target!(|data: &[u8]| {
    let mut bytes = data.to_vec();
    repair(&mut bytes);
    if let Ok(trace) = TraceReader::from_bytes("fuzz", bytes) {
        for event in trace.events_and_accesses() {
            if event.is_err() {
                break;
            }
        }
    }
});
