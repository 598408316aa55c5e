//! What single things cost that a program can do otherwise: the touch of a page or its making
//! beforehand, fork or vfork, a mapping more.
//!
//! Each round measures all of them, one after the other, on the CPU clock of this process and of
//! its children, so that a disturbance of a round is in all of its figures.

use std::fmt;
use std::io::{self, Write};
use std::ptr;
use std::str::FromStr;

use super::sys;

/// Rounds.
const ROUNDS: usize = 25;
/// Pages of the memory that is touched.
const PAGES: usize = 4096;
/// Children in a round, with memory and without.
const CHILDREN: usize = 4;
/// Mappings in a round.
const MAPPINGS: usize = 512;
/// Bytes of the stack of a child that shares memory.
const STACK: usize = 64 << 10;

/// One round, in nanoseconds of CPU time.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Round {
    /// The first touch of a page of private memory.
    pub touch: f64,
    /// The making of such a page by `MADV_POPULATE_WRITE`; negative where there is none.
    pub populate: f64,
    /// The return of a touched page by `munmap`.
    pub free: f64,
    /// What each private page of a process adds to a fork and the end of the child.
    pub fork_page: f64,
    /// A store after that, to a page that fork has left for reading.
    pub copy: f64,
    /// `fork` and the end of the child, without what the pages of the process add.
    pub fork: f64,
    /// `vfork` likewise, whose child shares the memory.
    pub vfork: f64,
    /// A `mmap` with its `munmap`, of memory that is not touched.
    pub mapping: f64,
}

impl Round {
    fn figures(&self) -> [f64; 8] {
        [
            self.touch,
            self.populate,
            self.free,
            self.fork_page,
            self.copy,
            self.fork,
            self.vfork,
            self.mapping,
        ]
    }
}

impl fmt::Display for Round {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = self.figures().map(|figure| format!("{figure:.2}"));
        f.write_str(&words.join(" "))
    }
}

impl FromStr for Round {
    type Err = ();

    fn from_str(line: &str) -> Result<Self, ()> {
        let mut figures = line.split(' ').map(|figure| figure.parse().map_err(drop));
        let mut next = || figures.next().ok_or(())?;
        Ok(Round {
            touch: next()?,
            populate: next()?,
            free: next()?,
            fork_page: next()?,
            copy: next()?,
            fork: next()?,
            vfork: next()?,
            mapping: next()?,
        })
    }
}

/// Measures in this process, which has one thread, and writes a line for each round.
///
/// # Errors
/// A system call failed.
pub fn run(out: &mut impl Write) -> io::Result<()> {
    // The first warms up.
    let rounds: io::Result<Vec<Round>> = (0..=ROUNDS).map(|_| round(own_pages())).collect();
    for round in &rounds?[1..] {
        writeln!(out, "{round}")?;
    }
    out.flush()
}

/// Private pages that this process has, beside those that it maps for a round.
fn own_pages() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mut lines = status
        .lines()
        .filter_map(|line| line.strip_prefix("RssAnon:"));
    let kib = lines
        .next()
        .and_then(|line| line.trim().strip_suffix(" kB"));
    let kib: Option<usize> = kib.and_then(|kib| kib.trim().parse().ok());
    kib.map_or(0.0, |kib| ((kib << 10) / sys::page_bytes()) as f64)
}

fn round(own_pages: f64) -> io::Result<Round> {
    let each = |ns: u64, count: usize| ns as f64 / count as f64;
    let small = children(fork_and_exit)?;
    let memory = Pages::map(PAGES)?;
    let touch = timed(|| memory.touch());
    let large = children(fork_and_exit)?;
    let copy = timed(|| memory.touch());
    let free = timed(|| drop(memory));
    let memory = Pages::map(PAGES)?;
    let mut is_populated = false;
    let populate = timed(|| is_populated = memory.populate());
    drop(memory);
    let mut stack = vec![0u8; STACK];
    let vfork = children(|| vfork_and_exit(&mut stack))?;
    let mut mapped = Ok(());
    let mapping = timed(|| {
        mapped = (0..MAPPINGS).try_for_each(|_| Pages::map(16).map(drop));
    });
    mapped?;
    let fork_page = (each(large, CHILDREN) - each(small, CHILDREN)) / PAGES as f64;
    Ok(Round {
        touch: each(touch, PAGES),
        populate: match is_populated {
            true => each(populate, PAGES),
            false => -1.0,
        },
        free: each(free, PAGES),
        fork_page,
        copy: each(copy, PAGES),
        fork: each(small, CHILDREN) - own_pages * fork_page,
        vfork: each(vfork, CHILDREN),
        mapping: each(mapping, MAPPINGS),
    })
}

/// CPU time of this process that `work` takes.
fn timed(work: impl FnOnce()) -> u64 {
    let begun = own_ns();
    work();
    own_ns().saturating_sub(begun)
}

fn own_ns() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the struct outlives the call, which cannot fail for this clock.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// CPU time of the children that were waited for, in nanoseconds.
fn childrens_ns() -> u64 {
    // SAFETY: an all-zero `rusage` is a valid value of plain integers.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the struct outlives the call, which cannot fail for this.
    unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, &mut usage) };
    let us = |time: libc::timeval| time.tv_sec as u64 * 1_000_000 + time.tv_usec as u64;
    (us(usage.ru_utime) + us(usage.ru_stime)) * 1000
}

/// CPU time of this process and of the children that `start` makes.
fn children(mut start: impl FnMut() -> io::Result<()>) -> io::Result<u64> {
    let begun = own_ns() + childrens_ns();
    for _ in 0..CHILDREN {
        start()?;
    }
    Ok((own_ns() + childrens_ns()).saturating_sub(begun))
}

fn fork_and_exit() -> io::Result<()> {
    // SAFETY: this process has one thread; the child ends at once.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        // SAFETY: ends the process without running anything of the parent's.
        unsafe { libc::_exit(0) };
    }
    await_end(pid)
}

fn vfork_and_exit(stack: &mut [u8]) -> io::Result<()> {
    extern "C" fn end(_: *mut libc::c_void) -> libc::c_int {
        // SAFETY: ends the child without running anything of the parent's.
        unsafe { libc::_exit(0) }
    }
    let top = stack.as_mut_ptr().addr() + stack.len();
    let top = stack.as_mut_ptr().with_addr(top & !15);
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    // SAFETY: the child runs on a stack of its own, which outlives it, since the parent goes on
    // when it has ended; it writes nothing else.
    let pid = unsafe { libc::clone(end, top.cast(), flags, ptr::null_mut()) };
    await_end(pid)
}

fn await_end(pid: libc::pid_t) -> io::Result<()> {
    if pid < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: our own child; a null status is allowed.
    while unsafe { libc::waitpid(pid, ptr::null_mut(), 0) } < 0 {
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    Ok(())
}

/// Private memory.
struct Pages {
    start: *mut u8,
    pages: usize,
}

impl Pages {
    fn map(pages: usize) -> io::Result<Pages> {
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let bytes = pages * sys::page_bytes();
        // SAFETY: a new mapping at an address that the kernel chooses.
        let start = unsafe { libc::mmap(ptr::null_mut(), bytes, rights, flags, -1, 0) };
        match start == libc::MAP_FAILED {
            true => Err(io::Error::last_os_error()),
            false => Ok(Pages {
                start: start.cast(),
                pages,
            }),
        }
    }

    /// Stores to each page.
    fn touch(&self) {
        let bytes = sys::page_bytes();
        for page in 0..self.pages {
            // SAFETY: inside the mapping, to which nobody has a reference.
            unsafe { self.start.add(page * bytes).write_volatile(1) };
        }
    }

    /// Has the kernel make all pages; whether it could.
    fn populate(&self) -> bool {
        const MADV_POPULATE_WRITE: libc::c_int = 23;
        let bytes = self.pages * sys::page_bytes();
        // SAFETY: the range is mapped; the call makes its pages.
        unsafe { libc::madvise(self.start.cast(), bytes, MADV_POPULATE_WRITE) == 0 }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: exactly what `map` mapped.
        unsafe { libc::munmap(self.start.cast(), self.pages * sys::page_bytes()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_is_read_as_it_was_written() {
        let round = Round {
            touch: 250.5,
            populate: -1.0,
            fork: 60_000.25,
            ..Round::default()
        };
        assert_eq!(round.to_string().parse(), Ok(round));
        assert!("1 2 3".parse::<Round>().is_err());
    }
}
