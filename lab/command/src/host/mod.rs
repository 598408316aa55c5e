//! This machine and its kernel: what it has, what programs are there, what single things cost on
//! it, and directories that are gone afterwards.

pub mod error;
pub mod forkfault;
pub mod scratch;
pub mod tools;

pub use error::HostError;

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
