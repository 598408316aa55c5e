//! Workloads on the host's own kernel: `vellum bench NAME --on linux`.
//!
//! Real processes doing real work: kernel builds ([`kernbench`], [`kolivas`], [`buildkernel`]),
//! scripts of small commands ([`sdet`]), the fork-and-fault program ([`forkfault`]), `dd` to a
//! tmpfs ([`loopdd`]), and mappings of a file ([`lat_mmap`]). Times are those of the whole kernel,
//! traps included, and therefore not those of the core; each result says so. A result has two arms,
//! the kernel and the same kernel once more ([`interleave`]).

pub mod buildkernel;
pub mod error;
mod files;
mod findings;
pub mod forkfault;
pub mod interleave;
pub mod kernbench;
pub mod kolivas;
pub mod lat_mmap;
pub mod loopdd;
pub mod scratch;
pub mod sdet;
pub mod tmpfs;
pub mod tools;
pub mod tree;

pub use error::HostError;
pub use findings::run;
pub use interleave::Interleaved;

/// What every result on a host says.
pub const ONE_KERNEL: &str = "On a host there is one kernel: A' is the same kernel again, in \
     alternating order. What it differs by is what another kernel's figure must differ by to mean \
     something.";

/// CPUs that this process may use.
pub fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// All memory of the host in MiB; none where the kernel does not say.
pub fn memory_mebibytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    Some(kib >> 10)
}

/// Release of the host's kernel, as `uname -r` prints it.
pub fn kernel_release() -> String {
    std::fs::read_to_string("/proc/sys/kernel/osrelease")
        .map_or_else(|_| "linux".to_owned(), |release| release.trim().to_owned())
}
