//! What is compared: the core, the host's tmpfs, and copying alone.

use std::fs::{File, OpenOptions};
use std::hint::black_box;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use vellum_engine::{Call, Engine, FileSlot, Op, Outcome, SpaceSlot};

use super::plan::{FILES, What, Work};
use crate::bench::core::lat_mmap as on_core;
use crate::bench::host::lat_mmap as on_host;
use crate::bench::lat_mmap::Size;
use crate::compare::{Clock, HostClock};
use crate::failure::Failure;
use crate::host::HostError;
use crate::host::forkfault::TrapCost;

/// When something was done, by the clock of the run.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    /// CPU time that it took.
    pub cpu_ns: u64,
    /// When it began.
    pub begun: u64,
    /// When it ended.
    pub ended: u64,
}

/// One of what is compared, with files of its own.
pub trait Side: Sync {
    /// CPU `cpu` does `work`.
    ///
    /// # Errors
    /// It could not be done.
    fn work(&self, cpu: usize, work: &Work) -> Result<(), Failure>;

    /// The same, timed.
    ///
    /// # Errors
    /// It could not be done.
    fn timed(&self, cpu: usize, work: &Work, clock: &HostClock) -> Result<Span, Failure> {
        let (begun, cpu_begun) = (clock.wall_ns(), clock.cpu_ns());
        self.work(cpu, work)?;
        Ok(Span {
            cpu_ns: clock.cpu_ns() - cpu_begun,
            begun,
            ended: clock.wall_ns(),
        })
    }

    /// Nanoseconds of `work` that go into entering a kernel.
    fn entry_ns(&self, _work: &Work) -> f64 {
        0.0
    }
}

/// A buffer for each CPU: what data comes from and goes to.
struct Buffers(Vec<Mutex<Vec<u8>>>);

impl Buffers {
    fn new(cpus: usize) -> Self {
        Self((0..cpus).map(|_| Mutex::default()).collect())
    }

    /// The buffer of `cpu`, of at least `block` bytes.
    fn of(&self, cpu: usize, block: u64) -> MutexGuard<'_, Vec<u8>> {
        // A panic leaves bytes that nobody looks at.
        let mut buffer = self.0[cpu].lock().unwrap_or_else(PoisonError::into_inner);
        if buffer.len() < block as usize {
            buffer.resize(block as usize, 7);
        }
        buffer
    }
}

/// A design of the core.
pub struct Core {
    engine: Box<dyn Engine>,
    /// Operations of an iteration of `lat_mmap`, by size.
    maps: Vec<(Size, Vec<Op>)>,
}

impl Core {
    /// Makes the files, and a space for mappings of these `sizes`.
    pub fn new(engine: Box<dyn Engine>, sizes: &[Size]) -> Result<Self, Failure> {
        let shift = engine.pages().shift;
        let space = SpaceSlot(0);
        let maps = sizes.iter().map(|size| {
            let ops = on_core::iteration(space, FileSlot(0), *size, shift);
            (*size, ops)
        });
        let core = Self {
            maps: maps.collect(),
            engine,
        };
        let files = (0..FILES as u32).map(FileSlot);
        let mut ops: Vec<Op> = files.map(|file| Op::Call(Call::NewFile { file })).collect();
        ops.push(Op::Create { space });
        core.run(0, &ops)?;
        Ok(core)
    }

    fn run(&self, cpu: usize, ops: &[Op]) -> Result<(), Failure> {
        let mut outcome = Outcome::default();
        self.engine.run(cpu, ops, &mut outcome);
        match outcome.divergences.first() {
            None => Ok(()),
            Some((index, why)) => Err(Failure::failed(format!(
                "design `{}`: {:?} went otherwise than it should: {why:?}; with too little memory \
                 give --ram",
                self.engine.design(),
                ops[*index as usize]
            ))),
        }
    }
}

impl Side for Core {
    fn work(&self, cpu: usize, work: &Work) -> Result<(), Failure> {
        let (file, at) = (FileSlot(work.file as u32), work.at);
        let (block, bytes) = (work.block, work.bytes);
        let call = match work.what {
            What::Write => Call::Write {
                file,
                at,
                block,
                bytes,
            },
            What::Read => Call::Read {
                file,
                at,
                block,
                bytes,
            },
            What::Cut => Call::SetSize { file, bytes: 0 },
            What::Map => {
                let mut maps = self.maps.iter();
                let found = maps.find(|(size, _)| size.bytes == bytes);
                return found.map_or(Ok(()), |(_, ops)| self.run(cpu, ops));
            }
            What::Forget | What::Touch | What::Discard => return Ok(()),
        };
        self.run(cpu, &[Op::Call(call)])
    }
}

/// Files of the host's kernel, on a tmpfs or elsewhere.
pub struct Tmpfs {
    files: Vec<File>,
    buffers: Buffers,
    trap: TrapCost,
}

impl Tmpfs {
    /// Makes the files `numbers` in `directory`.
    pub fn new(
        directory: &Path,
        numbers: Range<usize>,
        trap: TrapCost,
        cpus: usize,
    ) -> Result<Self, HostError> {
        let make = |number: usize| {
            let mut options = OpenOptions::new();
            let options = options.read(true).write(true).create_new(true);
            let path = directory.join(number.to_string());
            let doing = HostError::io(format!("making {}", path.display()));
            options.open(&path).map_err(doing)
        };
        Ok(Self {
            files: numbers.map(make).collect::<Result<_, _>>()?,
            buffers: Buffers::new(cpus),
            trap,
        })
    }
}

impl Tmpfs {
    /// The first `files` of the files, and the others, for a CPU each.
    pub fn split(mut self, files: usize) -> (Self, Self) {
        let others = self.files.split_off(files);
        let with = |files: Vec<File>| Self {
            buffers: Buffers::new(files.len()),
            trap: self.trap,
            files,
        };
        (with(self.files), with(others))
    }
}

impl Side for Tmpfs {
    fn work(&self, cpu: usize, work: &Work) -> Result<(), Failure> {
        let file = &self.files[work.file];
        let mut buffer = self.buffers.of(cpu, work.block);
        let done = match work.what {
            What::Write => work
                .blocks()
                .try_for_each(|(at, bytes)| file.write_all_at(&buffer[..bytes], at)),
            What::Read => work
                .blocks()
                .try_for_each(|(at, bytes)| file.read_exact_at(&mut buffer[..bytes], at)),
            What::Cut => file.set_len(0),
            What::Map => on_host::iteration(file, Size { bytes: work.bytes }),
            What::Forget => forget(file),
            What::Touch | What::Discard => Ok(()),
        };
        let doing = HostError::io(format!("{} of the host", work.what.name()));
        done.map_err(|error| doing(error).into_failure())
    }

    fn entry_ns(&self, work: &Work) -> f64 {
        let calls = match work.what {
            What::Write | What::Read => work.blocks().count(),
            What::Cut => 1,
            What::Map => 2,
            What::Forget | What::Touch | What::Discard => 0,
        };
        // A fault that is answered at once is the trap; without one it stays in the time.
        let faults = match work.what {
            What::Map => Size { bytes: work.bytes }.touched().count(),
            _ => 0,
        };
        calls as f64 * self.trap.syscall_ns + faults as f64 * self.trap.fault_ns.unwrap_or(0.0)
    }
}

/// Writes a file back, so that its pages are clean, and drops them from memory.
fn forget(file: &File) -> std::io::Result<()> {
    file.sync_all()?;
    // SAFETY: takes integers.
    match unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) } {
        0 => Ok(()),
        error => Err(std::io::Error::from_raw_os_error(error)),
    }
}

/// `memcpy` between a block and memory that is as large as the files and resident.
pub struct Copying {
    memory: Vec<Mutex<Vec<u8>>>,
    buffers: Buffers,
}

impl Copying {
    /// Memory of `bytes` for CPU 0, and of half as much for each of the others.
    pub fn new(bytes: u64, cpus: usize) -> Self {
        let of = |cpu: usize| {
            let bytes = if cpu == 0 { bytes } else { bytes / 2 } as usize;
            let mut memory = Vec::with_capacity(bytes);
            large_pages(&mut memory);
            memory.resize(bytes, 1);
            Mutex::new(memory)
        };
        Self {
            memory: (0..cpus).map(of).collect(),
            buffers: Buffers::new(cpus),
        }
    }
}

/// Asks for large pages, as simulated machines do for their memory.
fn large_pages(memory: &mut Vec<u8>) {
    const LARGE: usize = 2 << 20;
    let start = memory.as_mut_ptr();
    let skip = start.align_offset(LARGE);
    if let Some(bytes) = memory.capacity().checked_sub(skip) {
        // SAFETY: the range lies in the vector's memory; the advice changes no byte of it. A
        // host without large pages refuses, which changes nothing.
        unsafe { libc::madvise(start.add(skip).cast(), bytes, libc::MADV_HUGEPAGE) };
    }
}

impl Side for Copying {
    fn work(&self, cpu: usize, work: &Work) -> Result<(), Failure> {
        let mut memory = self.memory[cpu]
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let mut buffer = self.buffers.of(cpu, work.block);
        let whole = memory.len();
        for (at, bytes) in work.blocks() {
            let at = at as usize % whole;
            let memory = &mut memory[at..at + bytes];
            match work.what {
                What::Write => memory.copy_from_slice(black_box(&buffer[..bytes])),
                What::Read => black_box(&mut buffer[..bytes]).copy_from_slice(memory),
                _ => {}
            }
        }
        black_box(&mut *memory);
        Ok(())
    }
}
