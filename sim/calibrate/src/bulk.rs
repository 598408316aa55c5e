//! Zeroing and copying pages.

use std::io;
use std::sync::Barrier;
use std::thread;
use std::time::Instant;

use vellum_description::{Count, Rate};

use crate::Effort;
use crate::host::{Host, pin};
use crate::memory::{Mapping, beyond_caches};
use crate::rounds::{Rounds, nanoseconds};

/// Words of a page, which is what one call zeroes or copies.
const PAGE: usize = 512;

/// Zeroes as the core does on this architecture.
fn zero_page(page: &mut [u64]) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: stores zeroes to the words of the slice and nowhere else. The direction
    // flag is clear, as the calling convention has it.
    unsafe {
        std::arch::asm!(
            "rep stosq",
            inout("rdi") page.as_mut_ptr() => _,
            inout("rcx") page.len() => _,
            in("rax") 0u64,
            options(nostack, preserves_flags)
        );
    }
    #[cfg(not(target_arch = "x86_64"))]
    page.fill(0);
}

/// Copies as the core does on this architecture. Both have the same length.
fn copy_page(from: &[u64], to: &mut [u64]) {
    debug_assert_eq!(from.len(), to.len());
    #[cfg(target_arch = "x86_64")]
    // SAFETY: loads the words of one slice and stores them to the other, which is at
    // least as long. The direction flag is clear, as the calling convention has it.
    unsafe {
        std::arch::asm!(
            "rep movsq",
            inout("rsi") from.as_ptr() => _,
            inout("rdi") to.as_mut_ptr() => _,
            inout("rcx") from.len().min(to.len()) => _,
            options(nostack, preserves_flags)
        );
    }
    #[cfg(not(target_arch = "x86_64"))]
    to.copy_from_slice(from);
}

fn zero_all(words: &mut [u64]) {
    words.chunks_exact_mut(PAGE).for_each(zero_page);
}

fn copy_half(words: &mut [u64]) {
    let (from, to) = words.split_at_mut(words.len() / 2);
    let pages = from.chunks_exact(PAGE).zip(to.chunks_exact_mut(PAGE));
    pages.for_each(|(from, to)| copy_page(from, to));
}

pub(crate) fn zero(host: &Host, effort: Effort) -> io::Result<Rate> {
    pin(host.first().cpu)?;
    let bytes = beyond_caches(host, effort);
    let mut mapping = Mapping::touched(bytes)?;
    let rounds = Rounds::take(effort, 9, || {
        bytes as f64 / nanoseconds(|| zero_all(mapping.words()))
    });
    Ok(rounds.rate(&format!("one core zeroes {} MiB page by page", bytes >> 20)))
}

pub(crate) fn copy(host: &Host, effort: Effort) -> io::Result<Rate> {
    pin(host.first().cpu)?;
    let bytes = beyond_caches(host, effort);
    let mut mapping = Mapping::touched(bytes)?;
    let rounds = Rounds::take(effort, 9, || {
        bytes as f64 / 2.0 / nanoseconds(|| copy_half(mapping.words()))
    });
    Ok(rounds.rate(&format!("one core copies {} MiB page by page", bytes >> 21)))
}

/// Pages that caches hold.
pub(crate) struct Cached {
    pub(crate) zero: Rate,
    pub(crate) copy: Rate,
    /// How many KiB of them there may be.
    pub(crate) cache: Count,
}

/// Quarters of the last cache that are tried, from what certainly fits.
const QUARTERS: [usize; 6] = [1, 2, 3, 4, 6, 8];

/// Zeroing and copying what the last cache holds, and how much that is: as much as is still
/// zeroed at half of that speed. `None` if its size is not known.
pub(crate) fn cached(host: &Host, effort: Effort) -> io::Result<Option<Cached>> {
    let quarter = (host.last_cache_bytes() / 4) & !0xffff;
    if quarter == 0 {
        return Ok(None);
    }
    pin(host.first().cpu)?;
    let mut mapping = Mapping::touched(quarter * 8)?;
    let words = mapping.words();
    let of = |bytes: usize| bytes / size_of::<u64>();
    // Of a small part many rounds, so that the clock does not count.
    let times = 4;
    let mut zeroing = |bytes: usize| {
        let part = &mut words[..of(bytes)];
        Rounds::take(effort, 9, || {
            let all = || (0..times).for_each(|_| zero_all(part));
            (times * bytes) as f64 / nanoseconds(all)
        })
    };
    let zero = zeroing(quarter);
    let mut held = quarter;
    for quarters in QUARTERS {
        let bytes = quarters * quarter;
        if zeroing(bytes).median() < zero.median() / 2.0 {
            break;
        }
        held = bytes;
    }
    let copy = Rounds::take(effort, 9, || {
        let part = &mut words[..of(quarter)];
        let all = || (0..times).for_each(|_| copy_half(part));
        (times * quarter) as f64 / 2.0 / nanoseconds(all)
    });
    let kib = |bytes: usize| bytes >> 10;
    Ok(Some(Cached {
        zero: zero.rate(&format!("one core zeroes the same {} KiB", kib(quarter))),
        copy: copy.rate(&format!(
            "one core copies the same {} KiB",
            kib(quarter / 2)
        )),
        cache: Count::new(
            kib(held) as f64,
            format!(
                "measured: the most of {} and more KiB that one core zeroes at half of \
                 bandwidth.zero_cached",
                kib(quarter)
            ),
        ),
    }))
}

/// All cores of a node copy at once. A copied byte counts twice, since it is read and
/// written.
pub(crate) fn node(host: &Host, effort: Effort) -> io::Result<Rate> {
    let cores = host.cores_of_a_node();
    // Each core's part is beyond what its share of the caches holds.
    let bytes = (2 * beyond_caches(host, effort) / cores.len()).max(4 << 20) & !0xffff;
    let rounds = match effort {
        Effort::Full => 9,
        Effort::Quick => 3,
    };
    let barrier = Barrier::new(cores.len());
    let times = thread::scope(|scope| {
        let threads: Vec<_> = cores
            .iter()
            .map(|core| {
                let barrier = &barrier;
                scope.spawn(move || {
                    let ready = pin(core.cpu).and_then(|()| Mapping::touched(bytes));
                    // Whoever is not ready must still meet the others.
                    let (mut mapping, failed) = match ready {
                        Ok(mapping) => (Some(mapping), None),
                        Err(error) => (None, Some(error)),
                    };
                    let mut times = Vec::new();
                    for _ in 0..=rounds {
                        barrier.wait();
                        let begun = Instant::now();
                        if let Some(mapping) = &mut mapping {
                            copy_half(mapping.words());
                        }
                        barrier.wait();
                        times.push(begun.elapsed().as_nanos() as f64);
                    }
                    match failed {
                        None => Ok(times),
                        Some(error) => Err(error),
                    }
                })
            })
            .collect();
        let joined = threads.into_iter().map(|thread| {
            thread
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        joined.collect::<io::Result<Vec<Vec<f64>>>>()
    })?;
    let moved = (cores.len() * bytes) as f64;
    // The first round does not count.
    let rates = times[0].iter().skip(1).map(|time| moved / time);
    let s = if cores.len() == 1 { "" } else { "s" };
    Ok(Rounds::of(rates.collect()).rate(&format!(
        "{} core{s} of one node copy {} MiB each at once, reads and writes counted",
        cores.len(),
        bytes >> 21
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_really_zeroed_and_copied() {
        let mut words: Vec<u64> = (1..=4 * PAGE as u64).collect();
        let source = words[..2 * PAGE].to_vec();
        copy_half(&mut words);
        assert_eq!(words[2 * PAGE..], source);
        assert_eq!(words[..2 * PAGE], source);
        zero_all(&mut words);
        assert!(words.iter().all(|word| *word == 0));
    }
}
