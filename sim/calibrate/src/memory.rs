//! Memory of the host: mapped for measuring, and how long a line of it takes.

use std::hint::black_box;
use std::io;
use std::ptr::NonNull;
use std::slice;

use vellum_description::{Count, Time};

use crate::Effort;
use crate::host::{Host, HostCpu, pin};
use crate::rounds::{Rounds, nanoseconds};

/// Which pages the kernel is asked to map memory by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Backing {
    /// Of 4 KiB.
    Small,
    /// Of 2 MiB, if there are any.
    Large,
}

/// Private memory of a size, all of it there.
pub struct Mapping {
    start: NonNull<u64>,
    bytes: usize,
    /// Bytes in front of it that were mapped so that it is aligned.
    before: usize,
}

/// What memory that is mapped by large pages has to be aligned to.
const LARGE: usize = 2 << 20;

// SAFETY: it owns the memory, and gives it out by `&mut self` only.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Memory of the node of the calling thread, which touches it first; of large pages
    /// if the kernel gives any. `bytes` is not 0.
    ///
    /// # Errors
    /// There is none.
    pub fn touched(bytes: usize) -> io::Result<Mapping> {
        Mapping::touched_by(bytes, Backing::Large)
    }

    /// The same, of pages as asked for.
    ///
    /// # Errors
    /// There is no memory.
    pub fn touched_by(bytes: usize, backing: Backing) -> io::Result<Mapping> {
        let (prot, flags) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
        );
        let all = bytes.checked_add(LARGE).ok_or(io::ErrorKind::OutOfMemory)?;
        // SAFETY: new memory at a place that the kernel chooses.
        let mapped = unsafe { libc::mmap(std::ptr::null_mut(), all, prot, flags, -1, 0) };
        if mapped == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let before = mapped.cast::<u8>().align_offset(LARGE);
        // SAFETY: less than `LARGE` bytes lie before what is aligned, and `all` has that many more.
        let start = unsafe { mapped.byte_add(before) };
        let start: NonNull<u64> = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        let advice = match backing {
            Backing::Small => libc::MADV_NOHUGEPAGE,
            Backing::Large => libc::MADV_HUGEPAGE,
        };
        // SAFETY: the range was mapped above. Without large pages it works, too.
        unsafe { libc::madvise(start.as_ptr().cast(), bytes, advice) };
        let mut mapping = Mapping {
            start,
            bytes,
            before,
        };
        mapping.words().fill(1);
        Ok(mapping)
    }

    /// Whether the kernel maps it by pages of 2 MiB as far as whole ones fit, as it says.
    pub fn is_large(&self) -> bool {
        let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap_or_default();
        let start = self.start.as_ptr() as usize;
        let mut of_this = false;
        for line in smaps.lines() {
            let first = line.split_whitespace().next().unwrap_or("");
            let number = |text: &str| usize::from_str_radix(text, 16);
            if let Some((Ok(from), Ok(to))) = first
                .split_once('-')
                .map(|(from, to)| (number(from), number(to)))
            {
                of_this = (from..to).contains(&start);
            } else if let Some(size) = line.strip_prefix("AnonHugePages:").filter(|_| of_this) {
                let kib = size
                    .split_whitespace()
                    .next()
                    .and_then(|kib| kib.parse().ok());
                let whole = self.bytes - self.bytes % LARGE;
                return kib.is_some_and(|kib: usize| kib << 10 >= whole);
            }
        }
        false
    }

    /// All of it.
    pub fn words(&mut self) -> &mut [u64] {
        // SAFETY: mapped, aligned to a page, initialized by the kernel to zero, ours
        // alone as long as `self` is borrowed, and unmapped only by `drop`.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.bytes / 8) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `before` bytes in front of `start` were mapped with it, `LARGE` more than `bytes` in
        // all; they are ours, and nothing borrows from them any more.
        unsafe {
            let mapped = self.start.as_ptr().byte_sub(self.before);
            libc::munmap(mapped.cast(), self.bytes + LARGE)
        };
    }
}

/// Bytes that no cache holds.
pub(crate) fn beyond_caches(host: &Host, effort: Effort) -> usize {
    match effort {
        Effort::Full => (8 * host.last_cache_bytes()).clamp(128 << 20, 1 << 30),
        Effort::Quick => 8 << 20,
    }
}

/// Memory by distance; a distance that there is not has no figure.
pub(crate) struct Distances {
    pub own: Time,
    pub socket: Option<Time>,
    pub board: Option<Time>,
}

pub(crate) fn distances(host: &Host, effort: Effort) -> io::Result<Distances> {
    let bytes = beyond_caches(host, effort);
    let at = |holds: fn(HostCpu, HostCpu) -> bool| -> io::Result<Option<Time>> {
        match host.pairs(1, holds).first() {
            Some(&(reader, home)) => latency(bytes, effort, reader, home).map(Some),
            None => Ok(None),
        }
    };
    let first = host.first();
    Ok(Distances {
        own: latency(bytes, effort, first, first)?,
        socket: match host
            .topology()
            .is_ok_and(|topology| topology.nodes_per_socket > 1)
        {
            true => at(|a, b| a.node != b.node && a.socket == b.socket)?,
            false => None,
        },
        board: at(|a, b| a.socket != b.socket)?,
    })
}

/// Lines that a core has lost for want of room, and how many KiB of them it has. `None` if sizes
/// of caches are not known, or one is not well beyond the other.
pub(crate) fn lost(host: &Host, effort: Effort) -> io::Result<Option<(Time, Count)>> {
    let (own, last) = (host.own_cache_bytes(), host.last_cache_bytes());
    if own == 0 || last < 8 * own {
        return Ok(None);
    }
    let first = host.first();
    let time = latency(4 * own, effort, first, first)?;
    let kib = Count::new(
        (own >> 10) as f64,
        "stated: the kernel, size of the largest cache before the last",
    );
    Ok(Some((time, kib)))
}

/// Loads by `reader` of lines of so many bytes of `home`'s node, each of which tells where the
/// next is.
fn latency(bytes: usize, effort: Effort, reader: HostCpu, home: HostCpu) -> io::Result<Time> {
    const LOADS: u32 = 100_000;
    const LINE: usize = 8;
    pin(home.cpu)?;
    let mut mapping = Mapping::touched(bytes)?;
    let words = mapping.words();
    let lines = words.len() / LINE;
    // A circle through all lines in random order (Sattolo).
    let mut random = fastrand::Rng::with_seed(1);
    for line in 0..lines {
        words[line * LINE] = (line * LINE) as u64;
    }
    for line in (1..lines).rev() {
        words.swap(line * LINE, random.usize(..line) * LINE);
    }
    pin(reader.cpu)?;
    let mut place = 0;
    let rounds = Rounds::take(effort, 15, || {
        let all = nanoseconds(|| {
            for _ in 0..LOADS {
                place = words[black_box(place)] as usize;
            }
        });
        all / f64::from(LOADS)
    });
    black_box(place);
    Ok(rounds.time(&format!(
        "loads that depend on one another, in random order in {} KiB of node {}, by CPU {}",
        mapping.bytes >> 10,
        home.node,
        reader.cpu
    )))
}
