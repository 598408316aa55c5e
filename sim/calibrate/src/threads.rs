//! How fast a thread of a core is while its sibling is busy.

use std::hint::black_box;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::Effort;
use crate::host::{Host, pin};
use crate::rounds::Rounds;

/// Work as memory management does it: arithmetic and loads that hit.
fn work(table: &[u64; 512], state: &mut u64) {
    for _ in 0..256 {
        let entry = table[(*state >> 20) as usize % 512];
        *state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(entry);
    }
}

/// Rounds of [`work`] in `time`.
fn count(time: Duration) -> f64 {
    let table = black_box([0x9e37_79b9_7f4a_7c15; 512]);
    let mut state = black_box(1);
    let mut done = 0u64;
    let begun = Instant::now();
    while begun.elapsed() < time {
        work(&table, &mut state);
        done += 1;
    }
    black_box(state);
    done as f64
}

/// The share, with its source; none if cores have one thread.
pub(crate) fn shared_speed(host: &Host, effort: Effort) -> io::Result<Option<(f64, String)>> {
    let pairs = host.pairs(1, |a, b| a.core == b.core);
    let Some(&(one, other)) = pairs.first() else {
        return Ok(None);
    };
    let (rounds, time) = match effort {
        Effort::Full => (11, Duration::from_millis(50)),
        Effort::Quick => (3, Duration::from_millis(2)),
    };
    pin(one.cpu)?;
    let mut shares = Vec::new();
    for _ in 0..rounds {
        let alone = count(time);
        let stop = AtomicBool::new(false);
        let beside = thread::scope(|scope| {
            let busy = scope.spawn(|| {
                let pinned = pin(other.cpu);
                while !stop.load(Ordering::Relaxed) {
                    count(Duration::from_micros(100));
                }
                pinned
            });
            let beside = count(time);
            stop.store(true, Ordering::Relaxed);
            busy.join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            io::Result::Ok(beside)
        })?;
        // Two threads are not faster than one each.
        shares.push((beside / alone).clamp(0.05, 1.0));
    }
    let how = "arithmetic and loads that hit, beside a sibling that does the same";
    Ok(Some(Rounds::of(shares).share(how)))
}
