//! Whatever the bytes are, reading a trace ends in events or in an error, and takes no more memory
//! than it promises: a constant, and so much for each byte of the file.
//!
//! ```text
//! mkdir -p test/fuzz/corpus/trace_reader
//! cargo +nightly fuzz run --fuzz-dir test/fuzz trace_reader test/fuzz/corpus/trace_reader test/fuzz/seeds/trace_reader -- -rss_limit_mb=1024 -max_len=65536
//! ```
//!
//! The checksums of the frame are made right first, so that mutations reach the
//! code behind them.
#![no_main]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use libfuzzer_sys::fuzz_target;
use vellum_trace::TraceReader;

/// What the reader promises (`lab/trace/src/reader.rs`).
const MOST_BYTES: usize = 192 << 20;
const MOST_FOR_A_BYTE: usize = 256;

/// The system's allocator, counting.
struct Counting;

static NOW: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// SAFETY: every call goes to the system's allocator as it is; the counters allocate nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = NOW.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(now, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: `memory` came from `alloc` above, hence from the system's allocator.
        unsafe { System.dealloc(memory, layout) }
    }
}

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
    let before = NOW.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    if let Ok(trace) = TraceReader::from_bytes("fuzz", bytes) {
        for event in trace.events_and_accesses() {
            if event.is_err() {
                break;
            }
        }
    }
    let taken = PEAK.load(Ordering::Relaxed).saturating_sub(before);
    let most = MOST_BYTES + MOST_FOR_A_BYTE * data.len();
    assert!(taken <= most, "{taken} bytes for a file of {}", data.len());
});
