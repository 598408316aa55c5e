//! Private memory that is stored to for the first time, by threads or by processes.

use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr;
use std::sync::{Mutex, PoisonError};

use super::plan::{What, Work};
use super::sides::{Side, Span};
use crate::compare::{Clock, HostClock};
use crate::failure::Failure;
use crate::host::HostError;
use crate::host::forkfault::TrapCost;

const PAGE: usize = 4096;

/// A private mapping for one CPU, without large pages.
struct Memory {
    start: *mut u8,
    bytes: usize,
}

// SAFETY: the mapping belongs to the value; one CPU at a time stores to it.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    fn new(bytes: usize) -> io::Result<Self> {
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping at a place that the kernel chooses.
        let start = unsafe { libc::mmap(ptr::null_mut(), bytes, rights, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // A kernel without large pages refuses, which is as well.
        // SAFETY: advice on the mapping made above, which changes no byte.
        unsafe { libc::madvise(start, bytes, libc::MADV_NOHUGEPAGE) };
        let start = start.cast();
        Ok(Self { start, bytes })
    }

    fn carry_out(&self, work: &Work) -> io::Result<()> {
        let (at, bytes) = (work.at as usize, work.bytes as usize);
        assert!(at + bytes <= self.bytes, "the work lies in the mapping");
        // SAFETY: the range lies in the mapping.
        let start = unsafe { self.start.add(at) };
        match work.what {
            What::Touch => {
                for page in (0..bytes).step_by(PAGE) {
                    // SAFETY: as above; nobody else looks at the byte.
                    unsafe { start.add(page).write_volatile(1) };
                }
                Ok(())
            }
            What::Discard => {
                // SAFETY: the pages hold nothing that is needed.
                match unsafe { libc::madvise(start.cast(), bytes, libc::MADV_DONTNEED) } {
                    0 => Ok(()),
                    _ => Err(io::Error::last_os_error()),
                }
            }
            _ => Ok(()),
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: exactly what was mapped; nothing refers to it.
        unsafe { libc::munmap(self.start.cast(), self.bytes) };
    }
}

/// What entering the kernel costs in `work`.
fn entry_ns(trap: &TrapCost, work: &Work) -> f64 {
    match work.what {
        What::Touch => work.bytes as f64 / PAGE as f64 * trap.fault_ns.unwrap_or(0.0),
        What::Discard => trap.syscall_ns,
        _ => 0.0,
    }
}

fn refused(work: &Work) -> impl FnOnce(io::Error) -> Failure {
    let doing = HostError::io(work.what.name());
    |error| doing(error).into_failure()
}

/// Threads of this process.
pub struct Threads {
    memory: Vec<Memory>,
    trap: TrapCost,
}

impl Threads {
    /// `bytes` for each of `cpus`.
    pub fn new(cpus: usize, bytes: u64, trap: TrapCost) -> Result<Self, HostError> {
        let memory = (0..cpus).map(|_| Memory::new(bytes as usize));
        let memory = memory.collect::<io::Result<_>>();
        Ok(Self {
            memory: memory.map_err(HostError::io("mapping memory"))?,
            trap,
        })
    }
}

impl Side for Threads {
    fn work(&self, cpu: usize, work: &Work) -> Result<(), Failure> {
        self.memory[cpu].carry_out(work).map_err(refused(work))
    }

    fn entry_ns(&self, work: &Work) -> f64 {
        entry_ns(&self.trap, work)
    }
}

/// A process for each CPU, which waits for work.
pub struct Processes {
    workers: Vec<Mutex<Worker>>,
    trap: TrapCost,
}

struct Worker {
    pid: libc::pid_t,
    orders: std::fs::File,
    answers: std::fs::File,
}

/// Bytes of an order (what, at, bytes) and of an answer (CPU time, begun, ended).
const MESSAGE: usize = 24;

impl Processes {
    /// As [`Threads::new`]. Times are told by `clock`, which the processes share.
    pub fn new(
        cpus: usize,
        bytes: u64,
        trap: TrapCost,
        clock: &HostClock,
    ) -> Result<Self, HostError> {
        let workers = (0..cpus).map(|_| Worker::start(bytes as usize, clock).map(Mutex::new));
        let workers = workers.collect::<io::Result<_>>();
        Ok(Self {
            workers: workers.map_err(HostError::io("starting a process"))?,
            trap,
        })
    }
}

impl Side for Processes {
    fn work(&self, cpu: usize, work: &Work) -> Result<(), Failure> {
        self.timed(cpu, work, &HostClock::new()).map(|_| ())
    }

    fn timed(&self, cpu: usize, work: &Work, _clock: &HostClock) -> Result<Span, Failure> {
        let worker = &self.workers[cpu];
        let mut worker = worker.lock().unwrap_or_else(PoisonError::into_inner);
        worker.ask(work).map_err(refused(work))
    }

    fn entry_ns(&self, work: &Work) -> f64 {
        entry_ns(&self.trap, work)
    }
}

fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut ends = [0; 2];
    // SAFETY: an array of two descriptors.
    if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call returned descriptors that nobody else owns.
    Ok(unsafe { (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])) })
}

impl Worker {
    fn start(bytes: usize, clock: &HostClock) -> io::Result<Self> {
        let memory = Memory::new(bytes)?;
        let ((orders, give), (answers, tell)) = (pipe()?, pipe()?);
        // SAFETY: the child only reads, writes, stores to its memory and leaves by `_exit`;
        // it takes no lock that another thread may have held, and allocates nothing.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                // Otherwise it would keep its own orders open when the parent has gone.
                drop(give);
                serve(&memory, &orders, &tell, clock);
                // SAFETY: ends the process.
                unsafe { libc::_exit(0) }
            }
            pid => Ok(Self {
                pid,
                orders: give.into(),
                answers: answers.into(),
            }),
        }
    }

    fn ask(&mut self, work: &Work) -> io::Result<Span> {
        let what = u64::from(work.what == What::Discard);
        let mut order = [0; MESSAGE];
        for (place, word) in order.chunks_mut(8).zip([what, work.at, work.bytes]) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        self.orders.write_all(&order)?;
        let mut answer = [0; MESSAGE];
        self.answers.read_exact(&mut answer)?;
        let [cpu_ns, begun, ended] = words(&answer);
        Ok(Span {
            cpu_ns,
            begun,
            ended,
        })
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // SAFETY: a child of this process that was not waited for.
        unsafe {
            libc::kill(self.pid, libc::SIGKILL);
            libc::waitpid(self.pid, ptr::null_mut(), 0);
        }
    }
}

fn words(message: &[u8; MESSAGE]) -> [u64; 3] {
    let mut words = [0; 3];
    for (word, bytes) in words.iter_mut().zip(message.chunks_exact(8)) {
        *word = bytes
            .iter()
            .rev()
            .fold(0, |sum, byte| sum << 8 | u64::from(*byte));
    }
    words
}

/// Does what comes through `orders`, until nobody can order any more.
fn serve(memory: &Memory, orders: &OwnedFd, tell: &OwnedFd, clock: &HostClock) {
    let mut order = [0_u8; MESSAGE];
    loop {
        // SAFETY: the buffer is as long as stated. Messages are shorter than what a pipe
        // takes at once.
        let read = unsafe { libc::read(orders.as_raw_fd(), order.as_mut_ptr().cast(), MESSAGE) };
        if read != MESSAGE as isize {
            return;
        }
        let [what, at, bytes] = words(&order);
        let work = Work {
            what: if what == 1 {
                What::Discard
            } else {
                What::Touch
            },
            file: 0,
            at,
            bytes,
            block: PAGE as u64,
        };
        let (begun, cpu_begun) = (clock.wall_ns(), clock.cpu_ns());
        if memory.carry_out(&work).is_err() {
            return;
        }
        let answer = [clock.cpu_ns() - cpu_begun, begun, clock.wall_ns()];
        let mut message = [0_u8; MESSAGE];
        for (place, word) in message.chunks_mut(8).zip(answer) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        // SAFETY: the message is as long as stated.
        unsafe { libc::write(tell.as_raw_fd(), message.as_ptr().cast(), MESSAGE) };
    }
}
