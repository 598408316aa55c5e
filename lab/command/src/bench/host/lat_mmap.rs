//! `lat_mmap` on the host's kernel: on an ext4 of its own, or where that cannot be
//! mounted on what there is.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::ptr;

use super::tmpfs::on_ext4;
use super::{Host, Interleaved};
use crate::bench::lat_mmap::{Size, block_of, sizes};
use crate::bench::{Figure, Run};
use crate::clock::{Clock, HostClock};
use crate::host::HostError;
use crate::host::forkfault::{Helper, TrapCost};
use vellum_terminal::progress::Interrupt;

/// The iterations of one size.
struct Sampled {
    /// CPU time of each, in nanoseconds.
    ns: Vec<u64>,
    /// Page faults of all.
    faults: u64,
}

/// Maps, touches and unmaps. An interruption keeps complete passes.
///
/// # Errors
/// There is no room for the file, or the kernel refused, or the user interrupted before
/// the first pass.
pub fn measure(host: &mut Host<'_>) -> Result<(), HostError> {
    let (request, interrupt) = (host.request, host.interrupt);
    let sizes = sizes(request.sizes.get("mebibytes"));
    let samples = request.sizes.get("samples");
    let trap = Helper::this()?.trap_cost(interrupt)?;
    let most = sizes.last().map_or(0, |size| size.bytes);
    // Journal and tables take their part.
    let room = most / 8 * 9 + (128 << 20);
    on_ext4("lat_mmap", room, |directory, place| {
        let file = write_file(&directory.join("file"), most, interrupt)?;
        let steps = 2 * request.passes * sizes.len();
        let mut progress = host.progress("lat_mmap", steps, "sizes");
        let runs = host.collect(|| {
            let sampled = sizes.iter().map(|size| {
                progress.advance(1);
                sample(&file, *size, samples, interrupt)
            });
            sampled.collect::<Result<Vec<Sampled>, HostError>>()
        })?;
        keep(host, (&sizes, samples), &trap, place, &runs)
    })?
}

/// Keeps the passes, the cost of entering the kernel taken off.
fn keep(
    host: &mut Host<'_>,
    (sizes, samples): (&[Size], u64),
    trap: &TrapCost,
    place: &str,
    runs: &Interleaved<Vec<Sampled>>,
) -> Result<(), HostError> {
    // A fault that is answered at once is the trap; without one it stays in the time.
    let fault_ns = trap.fault_ns.unwrap_or(0.0);
    let of = |(number, size): (usize, &Size)| {
        let of = (&*size.label(), "iteration", samples as f64);
        host.figure_of(of, "thread CPU time", runs, Some(1.0), |pass| {
            let sampled = &pass[number];
            let faults = sampled.faults as f64 / samples as f64;
            let entries = faults * fault_ns + 2.0 * trap.syscall_ns;
            let iterations = sampled.ns.iter();
            iterations
                .map(|ns| (*ns as f64 - entries).max(1.0) as u64)
                .collect()
        })
    };
    let figures: Vec<Figure> = sizes.iter().enumerate().map(of).collect();
    let middle = |figure: &Figure, arm: usize| {
        let arm = &figure.arms[arm];
        arm.spread.map_or(arm.value, |spread| spread.median) / 1e3
    };
    let arms = 0..runs.arms.len();
    let arms = arms.map(|arm| figures.iter().map(|figure| middle(figure, arm)).collect());
    let arms: Vec<Vec<f64>> = arms.collect();
    let run = Run {
        title: "twenty sizes".to_owned(),
        facts: vec![
            format!(
                "{samples} times each after one that is not timed: map the file shared, store a \
                 byte every 16 KiB in its first tenth, unmap the whole. The file is on {place}."
            ),
            entry(trap.fault_ns, trap.syscall_ns),
        ],
        blocks: vec![block_of(sizes, &arms)],
        figures,
        ..Run::default()
    };
    host.keep(runs, run)
}

/// What was taken off.
fn entry(fault_ns: Option<f64>, syscall_ns: f64) -> String {
    match fault_ns {
        Some(fault) => format!(
            "Taken off: {fault:.0} ns for entering the kernel and returning at each page fault \
             (as a fault takes that is answered at once), {syscall_ns:.0} ns at each of the two \
             system calls (as getppid takes)."
        ),
        None => format!(
            "Taken off: {syscall_ns:.0} ns for entering the kernel and returning at each of the \
             two system calls (as getppid takes). What it takes at a fault cannot be measured on \
             this machine, and is in the times."
        ),
    }
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
