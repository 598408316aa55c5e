//! The process that asks the host's kernel: one line says what to do how often,
//! one line answers with nanoseconds and operations. It ends with its input.

use std::io::{self, BufRead, Write};
use std::ptr::NonNull;

use vellum_lab::host::forkfault::trap;

use crate::Failure;
use crate::measure::{Timed, cpu_time};

/// The hidden command that runs it.
pub const COMMAND: &str = "host-process";
/// Pages in a batch.
pub const PAGES: u64 = 128;
/// Pages of the process that forks.
pub const FORK_PAGES: u64 = 16_384;
const PAGE: usize = 4096;

/// What is asked of a kernel.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    Fault,
    Copy,
    Fork,
    Cycle,
}

impl Operation {
    const ALL: [Operation; 4] = [
        Operation::Fault,
        Operation::Copy,
        Operation::Fork,
        Operation::Cycle,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Operation::Fault => "fault",
            Operation::Copy => "copy",
            Operation::Fork => "fork",
            Operation::Cycle => "cycle",
        }
    }
}

/// Private memory, of which nothing is touched at first.
struct Mapping {
    start: NonNull<u8>,
    pages: u64,
}

impl Mapping {
    fn new(pages: u64) -> io::Result<Mapping> {
        // SAFETY: a new mapping at an address of the host's choice.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                pages as usize * PAGE,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast::<u8>())
            .ok_or_else(|| io::Error::other("a mapping at address 0"))?;
        Ok(Mapping { start, pages })
    }

    fn touch(&self) {
        for page in 0..self.pages as usize {
            // SAFETY: inside of the mapping, which nobody else uses.
            unsafe { self.start.add(page * PAGE).write_volatile(1) };
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: what `new` mapped.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.pages as usize * PAGE) };
    }
}

/// A child that does nothing until it is dropped.
struct Sleeper {
    child: libc::pid_t,
    pipe: libc::c_int,
}

impl Sleeper {
    /// Forks; returns the time of the call.
    fn fork() -> io::Result<(Sleeper, u64)> {
        let mut ends = [0; 2];
        // SAFETY: two descriptors are written to an array of two.
        if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let mut child = -1;
        // SAFETY: this process has one thread; the child calls only what may
        // be called after a fork.
        let ns = cpu_time(|| child = unsafe { libc::fork() });
        let [reads, writes] = ends;
        match child {
            0 => {
                // SAFETY: descriptors of its own and a byte of its own; it ends
                // when the parent closes the pipe or does.
                unsafe {
                    libc::close(writes);
                    let mut byte = 0u8;
                    libc::read(reads, (&raw mut byte).cast(), 1);
                    libc::_exit(0)
                }
            }
            _ => {
                let error = io::Error::last_os_error();
                // SAFETY: a descriptor made above.
                unsafe { libc::close(reads) };
                let sleeper = Sleeper {
                    child,
                    pipe: writes,
                };
                match child {
                    -1 => Err(error),
                    _ => Ok((sleeper, ns)),
                }
            }
        }
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        // SAFETY: a descriptor of ours, and a child of ours that now ends.
        unsafe {
            libc::close(self.pipe);
            if self.child > 0 {
                libc::waitpid(self.child, std::ptr::null_mut(), 0);
            }
        }
    }
}

/// One batch.
fn one(operation: Operation, forks: &mut Option<Mapping>) -> io::Result<Timed> {
    let timed = |ns, count| Timed { ns, count };
    match operation {
        Operation::Fault => {
            let mapping = Mapping::new(PAGES)?;
            Ok(timed(cpu_time(|| mapping.touch()), PAGES))
        }
        Operation::Copy => {
            let mapping = Mapping::new(PAGES)?;
            mapping.touch();
            let (_sleeper, _) = Sleeper::fork()?;
            Ok(timed(cpu_time(|| mapping.touch()), PAGES))
        }
        Operation::Fork => {
            if forks.is_none() {
                let mapping = Mapping::new(FORK_PAGES)?;
                mapping.touch();
                *forks = Some(mapping);
            }
            let (_sleeper, ns) = Sleeper::fork()?;
            Ok(timed(ns * crate::host::GIB, 1))
        }
        Operation::Cycle => {
            let mut made = Ok(());
            let ns = cpu_time(|| made = Mapping::new(PAGES).map(|mapping| mapping.touch()));
            made.map(|()| timed(ns, PAGES))
        }
    }
}

fn answer(question: &str, forks: &mut Option<Mapping>) -> io::Result<String> {
    let (name, count) = question.split_once(' ').unwrap_or((question, ""));
    let count: u64 = count.parse().map_err(io::Error::other)?;
    if name == "trap" {
        let mut line = Vec::new();
        trap::run(&mut line)?;
        return Ok(String::from_utf8_lossy(&line).trim_end().to_owned());
    }
    let operation = Operation::ALL
        .into_iter()
        .find(|operation| operation.name() == name)
        .ok_or_else(|| io::Error::other(format!("no operation is called `{name}`")))?;
    if operation != Operation::Fork {
        // A large process would make the other forks dear.
        *forks = None;
    }
    let mut sum = Timed::default();
    for _ in 0..count {
        sum += one(operation, forks)?;
    }
    Ok(format!("{} {}", sum.ns, sum.count))
}

/// Answers until the input ends.
pub fn run() -> Result<(), Failure> {
    // Ctrl-C is for the process that asks, which then closes our input.
    // SAFETY: no handler is installed, only the default taken away; the other
    // call takes numbers.
    let off = unsafe {
        libc::signal(libc::SIGINT, libc::SIG_IGN);
        libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0)
    };
    if off != 0 {
        let error = io::Error::last_os_error();
        return Err(Failure::because("switching huge pages off")(error));
    }
    let mut forks = None;
    let mut output = io::stdout().lock();
    for line in io::stdin().lock().lines() {
        let failed = Failure::because("reading what is asked");
        let answer = match answer(&line.map_err(&failed)?, &mut forks) {
            Ok(answer) => answer,
            Err(error) => format!("failed: {error}"),
        };
        writeln!(output, "{answer}")
            .and_then(|()| output.flush())
            .map_err(&failed)?;
    }
    Ok(())
}
