//! `lat_mmap` on the host's kernel: on an ext4 of its own, or where that cannot be
//! mounted on what there is.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::ptr;

use super::HostError;
use super::forkfault::{Helper, TrapCost};
use super::interleave::Interleaved;
use super::tmpfs::{file_system, mount_ext4, with_own_mounts};
use crate::bench::lat_mmap::Size;
use crate::clock::{Clock, HostClock};
use vellum_terminal::progress::{Interrupt, Progress, Style};

/// What to run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Sizes, ascending.
    pub sizes: Vec<Size>,
    /// Iterations of each, after one that is not timed.
    pub samples: u64,
    /// Passes.
    pub passes: usize,
    /// Seed of the order.
    pub seed: u64,
    /// How to show progress.
    pub style: Style,
}

/// The iterations of one size.
#[derive(Clone, Debug, Default)]
pub struct Sampled {
    /// CPU time of each, in nanoseconds.
    pub ns: Vec<u64>,
    /// Page faults of all.
    pub faults: u64,
}

/// What was measured.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// What the file was on, and why not on ext4.
    pub place: String,
    /// What entering the kernel costs.
    pub trap: TrapCost,
    /// By arm and pass, each size in turn.
    pub runs: Interleaved<Vec<Sampled>>,
}

/// Maps, touches and unmaps. An interruption keeps complete passes.
///
/// # Errors
/// There is no room for the file, or the kernel refused, or the user interrupted before
/// the first pass.
pub fn run(options: &Options, interrupt: &Interrupt) -> Result<Outcome, HostError> {
    let trap = Helper::this()?.trap_cost(interrupt)?;
    let most = options.sizes.last().map_or(0, |size| size.bytes);
    let measure = |directory: &Path, place: String| {
        let path = directory.join("file");
        let file = write_file(&path, most, interrupt)?;
        let steps = 2 * options.passes * options.sizes.len();
        let mut progress = Progress::new(options.style, "lat_mmap", steps as u64, "sizes");
        let runs = Interleaved::collect(options.passes, options.seed, |_| {
            let sizes = options.sizes.iter();
            let sampled = sizes.map(|size| {
                progress.advance(1);
                sample(&file, *size, options.samples, interrupt)
            });
            sampled.collect()
        })?;
        Ok(Outcome { place, trap, runs })
    };
    let own = with_own_mounts(|directory| {
        // Journal and tables take their part.
        match mount_ext4(directory, most / 8 * 9 + (128 << 20)) {
            Ok(ext4) => measure(
                &ext4,
                "ext4, mounted from a file for the purpose".to_owned(),
            ),
            Err(why) => {
                let kind = file_system(directory);
                let place = format!("{kind} ({}), as no ext4 can be mounted ({why})", parent());
                measure(directory, place)
            }
        }
    });
    match own {
        Err(HostError::Unsupported(_)) => {
            let parent = std::env::temp_dir();
            let doing = HostError::io(format!("making a directory in {}", parent.display()));
            let scratch = super::scratch::Scratch::new(&parent, "lat_mmap").map_err(doing)?;
            let kind = file_system(scratch.path());
            let place = format!(
                "{kind} ({}), as this user may mount nothing",
                parent.display()
            );
            measure(scratch.path(), place)
        }
        result => result,
    }
}

fn parent() -> String {
    std::env::temp_dir().display().to_string()
}

/// Writes a file of `bytes`, as `dd` with blocks of 1 MiB does.
fn write_file(path: &Path, bytes: u64, interrupt: &Interrupt) -> Result<File, HostError> {
    let doing = || HostError::io(format!("writing {} MiB to {}", bytes >> 20, path.display()));
    let mut options = OpenOptions::new();
    let options = options.read(true).write(true).create_new(true);
    let mut file = options.open(path).map_err(doing())?;
    let block = vec![0; 1 << 20];
    let mut left = bytes;
    while left > 0 {
        if interrupt.requested() {
            return Err(HostError::Interrupted);
        }
        let part = left.min(block.len() as u64);
        file.write_all(&block[..part as usize]).map_err(doing())?;
        left -= part;
    }
    // Writing back during the measurement would disturb it.
    file.sync_all().map_err(doing())?;
    debug_assert!(fs::metadata(path).is_ok_and(|meta| meta.len() == bytes));
    Ok(file)
}

fn sample(
    file: &File,
    size: Size,
    samples: u64,
    interrupt: &Interrupt,
) -> Result<Sampled, HostError> {
    let doing = || HostError::io("mapping the file");
    let clock = HostClock::new();
    iteration(file, size).map_err(doing())?;
    let before = faults();
    let mut ns = Vec::with_capacity(samples as usize);
    for _ in 0..samples {
        if interrupt.requested() {
            return Err(HostError::Interrupted);
        }
        let begun = clock.cpu_ns();
        iteration(file, size).map_err(doing())?;
        ns.push(clock.cpu_ns() - begun);
    }
    Ok(Sampled {
        ns,
        faults: faults() - before,
    })
}

/// Page faults of this thread that needed no input.
fn faults() -> u64 {
    // SAFETY: an all-zero `rusage` is a valid value of plain integers.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the struct outlives the call.
    unsafe { libc::getrusage(libc::RUSAGE_THREAD, &mut usage) };
    usage.ru_minflt.max(0) as u64
}

/// Maps `size` of the file, stores to its first tenth, and unmaps it.
///
/// # Errors
/// The kernel refused.
pub fn iteration(file: &File, size: Size) -> io::Result<()> {
    let bytes = size.bytes as usize;
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping of an open file, at a place that the kernel chooses.
    let start = unsafe {
        let flags = libc::MAP_SHARED;
        libc::mmap(ptr::null_mut(), bytes, rights, flags, file.as_raw_fd(), 0)
    };
    if start == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    for byte in size.touched() {
        // SAFETY: the byte lies in the mapping, which nobody else knows, and the file
        // is as long.
        unsafe { start.cast::<u8>().add(byte as usize).write_volatile(1) };
    }
    // SAFETY: the mapping was made above, and nothing refers to it.
    match unsafe { libc::munmap(start, bytes) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
