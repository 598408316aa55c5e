//! The program itself, to be run in a process of its own that has one thread.
//!
//! Robin Holt's program of August 2004: a parent maps private anonymous memory,
//! forks children one after the other, and waits for each; a child touches 32
//! pages at a stride of one whole page table, so that every touch needs a table
//! that is not there. What is timed is the touching; fork and exit are timed
//! beside it. Figures are nanoseconds where the original had whole microseconds.
//!
//! Huge pages are switched off, because the kernel would answer each touch with
//! its huge zero page, and no table. The mapping is aligned to whole tables, so
//! that no touch finds a neighbour's.

use std::fmt;
use std::io::{self, Write};
use std::ptr;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};

use super::sys::{self, Mapping};

/// Touches of a child in the original.
pub const FAULTS: u32 = 32;

/// Children in the original.
pub const LOOPS: u32 = 128;

/// What children do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Kind {
    /// Read one byte at each place: the page is the kernel's zero page, and all
    /// the fault makes is the table.
    Read,
    /// Write one byte at each place: the page has to be made, too.
    Write,
    /// Exit at once (lat_proc's `fork`).
    Exit,
    /// Execute a program that does nothing (lat_proc's `exec`).
    Exec,
    /// No children: what entering the kernel costs.
    Trap,
    /// What single things cost that a program can do otherwise.
    Prices,
}

/// On which CPUs things happen.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Placement {
    /// Parent and child stay on one CPU.
    Same,
    /// A child moves to another CPU before it touches its pages, and back before
    /// it exits: its tables are freed on another CPU than they were made on.
    Cross,
}

/// How often, and what.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Program {
    /// What children do.
    pub kind: Kind,
    /// Where.
    pub placement: Placement,
    /// Children.
    pub loops: u32,
    /// Touches of each child.
    pub faults: u32,
}

/// What one child took, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Iteration {
    /// `fork`, as the parent sees it.
    pub fork: u64,
    /// All touches; for [`Kind::Exec`] nothing.
    pub faults: u64,
    /// From the child's call of `_exit` to the parent's return from `waitpid`;
    /// for [`Kind::Exec`], from fork's return, `exec` included.
    pub exit: u64,
    /// From before `fork` to the parent's return from `waitpid`.
    pub whole: u64,
}

impl fmt::Display for Iteration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Iteration {
            fork,
            faults,
            exit,
            whole,
        } = self;
        write!(f, "{fork} {faults} {exit} {whole}")
    }
}

impl FromStr for Iteration {
    type Err = ();

    fn from_str(line: &str) -> Result<Self, ()> {
        let mut figures = line.split(' ').map(|figure| figure.parse().map_err(drop));
        let mut next = || figures.next().ok_or(())?;
        Ok(Iteration {
            fork: next()?,
            faults: next()?,
            exit: next()?,
            whole: next()?,
        })
    }
}

/// Runs `program` and writes a line for each child. Must be called in a process
/// that has one thread.
///
/// # Errors
/// A system call failed.
pub fn run(program: &Program, out: &mut impl Write) -> io::Result<()> {
    sys::huge_pages_off()?;
    let cpus = sys::allowed_cpus()?;
    let home = *cpus.first().ok_or_else(no_cpu)?;
    let away = match program.placement {
        Placement::Same => home,
        Placement::Cross => *cpus.get(1).ok_or_else(no_cpu)?,
    };
    sys::pin(home)?;
    if program.kind == Kind::Trap {
        return super::trap::run(out);
    }
    if program.kind == Kind::Prices {
        return super::prices::run(out);
    }
    let stride = sys::table_span();
    let write = program.kind == Kind::Write;
    let mapping = Mapping::private(program.faults as usize * stride, stride, write)?;
    let shared = Shared::new()?;
    // Lines are kept until the end: writing them would disturb what comes next.
    let mut iterations = Vec::with_capacity(program.loops as usize);
    for _ in 0..program.loops {
        iterations.push(iteration(program, &mapping, &shared, [home, away])?);
    }
    for iteration in iterations {
        writeln!(out, "{iteration}")?;
    }
    out.flush()
}

fn no_cpu() -> io::Error {
    io::Error::other("this process may not use as many CPUs as the program needs")
}

/// What a child tells its parent.
struct Shared(Mapping);

impl Shared {
    fn new() -> io::Result<Self> {
        Mapping::shared(sys::page_bytes()).map(Shared)
    }

    fn word(&self, index: usize) -> &AtomicU64 {
        self.0.word(index)
    }
}

fn iteration(
    program: &Program,
    mapping: &Mapping,
    shared: &Shared,
    [home, away]: [usize; 2],
) -> io::Result<Iteration> {
    let begun = sys::now_ns();
    // SAFETY: this process has one thread, so that the child has everything that
    // the parent has; it ends in `_exit` or `exec`.
    let pid = unsafe { libc::fork() };
    match pid {
        ..0 => return Err(io::Error::last_os_error()),
        0 => child(program, mapping, shared, [home, away]),
        _ => {}
    }
    let forked = sys::now_ns();
    let mut status = 0;
    // SAFETY: our own child; the status outlives the call.
    while unsafe { libc::waitpid(pid, &mut status, 0) } < 0 {
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    let ended = sys::now_ns();
    if status != 0 {
        let text = format!("a child ended with wait status {status:#x}");
        return Err(io::Error::other(text));
    }
    let told = |index: usize| shared.word(index).load(Ordering::Relaxed);
    Ok(Iteration {
        fork: forked - begun,
        faults: match program.kind {
            Kind::Read | Kind::Write => told(1) - told(0),
            _ => 0,
        },
        exit: match program.kind {
            Kind::Exec => ended - forked,
            _ => ended.saturating_sub(told(2)),
        },
        whole: ended - begun,
    })
}

/// The child, from fork to its end.
fn child(program: &Program, mapping: &Mapping, shared: &Shared, [home, away]: [usize; 2]) -> ! {
    let tell = |index: usize, value: u64| shared.word(index).store(value, Ordering::Relaxed);
    let mut status = 0;
    let mut go = |cpu: usize| {
        if away != home && sys::pin(cpu).is_err() {
            status = 1;
        }
    };
    match program.kind {
        Kind::Read | Kind::Write => {
            go(away);
            // Stack, clock and the shared page have their entries before the
            // time begins.
            tell(0, sys::now_ns());
            let begun = sys::now_ns();
            for place in 0..program.faults as usize {
                mapping.touch(place * sys::table_span(), program.kind == Kind::Write);
            }
            let ended = sys::now_ns();
            go(home);
            tell(0, begun);
            tell(1, ended);
        }
        Kind::Exec => {
            let path = c"/bin/true".as_ptr();
            let arguments = [path, ptr::null()];
            // SAFETY: strings end in zero bytes, the array in a null pointer.
            unsafe { libc::execv(path, arguments.as_ptr()) };
            status = 127;
        }
        Kind::Exit | Kind::Trap | Kind::Prices => {}
    }
    tell(2, sys::now_ns());
    // SAFETY: ends the process without running anything of the parent's.
    unsafe { libc::_exit(status) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_as_it_was_written() {
        let iteration = Iteration {
            fork: 12,
            faults: 34567,
            exit: 0,
            whole: 40000,
        };
        assert_eq!(iteration.to_string().parse(), Ok(iteration));
        assert!("1 2 3".parse::<Iteration>().is_err());
        assert!("1 2 3 x".parse::<Iteration>().is_err());
    }
}
