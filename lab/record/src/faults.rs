//! Page faults, gathered in the kernel.
//!
//! Faults are most of what is recorded, and an event of each costs more than the rest of the
//! recording. Where the kernel takes a program (BPF), one runs at each fault instead: it notes
//! the time, the task, the address and the error code in a buffer of its CPU, and gives the
//! buffer to the CPU's ring when it is full, as one record. What is left in the buffers is
//! fetched at the end. Faults therefore come later in a ring than what happened after them, and
//! are read back apart, in order of their own times.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use crate::bpf::assembler::{Assembler, DOUBLE, FRAME, HALF, Instruction, WORD, helper};
use crate::bpf::load;
use crate::error::RecordError;
use crate::raw::{self, Body, Record};
use crate::sample::Sample;

/// What a record of faults begins with; no tracepoint has this number.
pub const MARK: u16 = u16::MAX - 1;
/// Faults in a buffer.
const MOST: usize = 128;
/// Bytes of a fault: time, task, and address with error code.
const FAULT: usize = 24;
/// A buffer begins with the mark and, at [`COUNT`], how many faults are in it.
const HEAD: usize = 8;
const COUNT: usize = 4;
const BUFFER: usize = HEAD + MOST * FAULT;
/// Bits of an error code that are kept; addresses are of pages.
const CODE: i32 = 0xff;
/// The number of the first namespace of process ids. A program sees no others.
const FIRST_NAMESPACE: &str = "pid:[4026531836]";

/// `MEMBARRIER_CMD_GLOBAL`
const MEMBARRIER_GLOBAL: libc::c_int = 1;

/// The two tracepoints, of faults from user mode and on user addresses from kernel mode.
const POINTS: [(&str, bool); 2] = [("page_fault_user", false), ("page_fault_kernel", true)];

/// The programs in the kernel, one for each tracepoint, with what they write to.
pub struct Batches {
    points: Vec<Point>,
    output: OwnedFd,
    cpus: usize,
}

struct Point {
    name: &'static str,
    kernel: bool,
    program: OwnedFd,
    buffers: OwnedFd,
    /// While it is open, the program runs.
    link: Option<OwnedFd>,
}

impl Batches {
    /// Loads the programs. The text says why not.
    pub fn load(cpus: &[u32]) -> Result<Self, String> {
        let namespace = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
        if namespace.to_str() != Some(FIRST_NAMESPACE) {
            return Err("process ids count in a namespace of their own here".to_owned());
        }
        let refused = |error: io::Error| error.to_string();
        let entries = cpus.iter().max().map_or(1, |most| most + 1);
        let output = load::output_map(entries).map_err(refused)?;
        let mut points = Vec::new();
        for (name, kernel) in POINTS {
            let buffers = load::buffer_of_each_cpu(BUFFER as u32).map_err(refused)?;
            let code = assemble(kernel, buffers.as_raw_fd(), output.as_raw_fd());
            points.push(Point {
                name,
                kernel,
                program: load::program_at_raw_tracepoint(&code).map_err(refused)?,
                buffers,
                link: None,
            });
        }
        Ok(Self {
            points,
            output,
            cpus: load::possible_cpus().map_err(refused)?,
        })
    }

    /// Has full buffers of `cpu` go to `event`.
    pub fn send(&self, cpu: u32, event: &OwnedFd) -> io::Result<()> {
        load::set_output(&self.output, cpu, event)
    }

    /// Has the programs run, on every CPU.
    pub fn start(&mut self) -> io::Result<()> {
        for point in &mut self.points {
            point.link = Some(load::attach_to_raw_tracepoint(point.name, &point.program)?);
        }
        Ok(())
    }

    /// Ends the programs. When this returns, none runs any more.
    pub fn stop(&mut self) {
        self.points.iter_mut().for_each(|point| point.link = None);
        // One may run on another CPU until the kernel's readers have all moved on.
        // SAFETY: takes integers; it waits for that, and changes nothing.
        unsafe { libc::syscall(libc::SYS_membarrier, MEMBARRIER_GLOBAL, 0, 0) };
    }

    /// What is left in the buffers of each CPU, as records of a ring; to be asked when the
    /// programs have ended.
    pub fn left(&self) -> io::Result<Vec<(u32, Vec<u8>)>> {
        let mut left = Vec::new();
        for point in &self.points {
            let all = load::look_up_each_cpu(&point.buffers, BUFFER, self.cpus)?;
            for (cpu, buffer) in (0..).zip(all.chunks_exact(BUFFER)) {
                if count(buffer) > 0 {
                    left.push((cpu, record(buffer, point.kernel)));
                }
            }
        }
        Ok(left)
    }

    /// Faults at which a program did not run, because one ran on that CPU already.
    pub fn missed(&self) -> u64 {
        let missed = self.points.iter().map(|point| load::missed(&point.program));
        missed.map(|missed| missed.unwrap_or(0)).sum()
    }
}

/// The program for a tracepoint whose arguments are the address, registers and the error code.
fn assemble(kernel: bool, buffers: i32, output: i32) -> Vec<Instruction> {
    let (event, word, slot, buffer) = (6, 7, 8, 9);
    let mut code = Assembler::default();
    code.copy(event, 1);
    code.load(DOUBLE, word, event, 0);
    if kernel {
        // Addresses of the kernel are passed over.
        code.copy(1, word);
        code.shift_right(1, 47);
        code.jump_unless_equal(1, 0, "out");
    }
    code.load(DOUBLE, slot, event, 16);
    code.mask(slot, CODE);
    code.mask(word, -4096);
    code.or(word, slot);
    code.fill(-8, 0);
    code.map(1, buffers);
    code.copy(2, FRAME);
    code.add(2, -8);
    code.helper(helper::MAP_LOOKUP);
    code.jump_if_equal(0, 0, "out");
    code.copy(buffer, 0);
    code.load(WORD, slot, buffer, COUNT as i16);
    code.jump_if_at_least(slot, MOST as i32, "out");
    code.multiply(slot, FAULT as i32);
    code.add_register(slot, buffer);
    code.helper(helper::TIME_NS);
    code.store(DOUBLE, slot, HEAD as i16, 0);
    code.helper(helper::PROCESS_AND_THREAD);
    code.store(DOUBLE, slot, HEAD as i16 + 8, 0);
    code.store(DOUBLE, slot, HEAD as i16 + 16, word);
    code.load(WORD, 1, buffer, COUNT as i16);
    code.add(1, 1);
    code.store(WORD, buffer, COUNT as i16, 1);
    code.jump_unless_equal(1, MOST as i32, "out");
    code.set(1, i32::from(MARK));
    code.store(HALF, buffer, 0, 1);
    code.set(1, i32::from(kernel));
    code.store(HALF, buffer, 2, 1);
    code.copy(1, event);
    code.map(2, output);
    code.this_cpu(3);
    code.copy(4, buffer);
    code.set(5, BUFFER as i32);
    code.helper(helper::PERF_EVENT_OUTPUT);
    code.set(1, 0);
    code.store(WORD, buffer, COUNT as i16, 1);
    code.label("out");
    code.set(0, 0);
    code.end();
    code.finish()
}

fn count(buffer: &[u8]) -> usize {
    let bytes = buffer[COUNT..HEAD].try_into().expect("four bytes");
    u32::from_ne_bytes(bytes) as usize
}

/// A buffer as the kernel would have written it to a ring.
fn record(buffer: &[u8], kernel: bool) -> Vec<u8> {
    let mut raw = buffer[..HEAD + count(buffer).min(MOST) * FAULT].to_vec();
    raw[..2].copy_from_slice(&MARK.to_le_bytes());
    raw[2..4].copy_from_slice(&u16::from(kernel).to_le_bytes());
    raw::sample(&raw)
}

/// A fault of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fault {
    time_ns: u64,
    task: u64,
    word: u64,
    kernel: bool,
}

impl Fault {
    /// Nanoseconds of the monotonic clock.
    pub fn time_ns(&self) -> u64 {
        self.time_ns
    }

    /// As a record.
    pub fn record(&self) -> Record<'static> {
        Record {
            time_ns: self.time_ns,
            pid: (self.task >> 32) as u32,
            tid: self.task as u32,
            body: Body::Event(Sample::Fault {
                address: self.word & !0xfff,
                code: self.word & CODE as u64,
                kernel: self.kernel,
            }),
        }
    }
}

/// Whether the faults of a record were from kernel mode.
pub fn is_of_kernel(raw: &[u8]) -> bool {
    raw.get(2).is_some_and(|kernel| *kernel != 0)
}

/// The faults of a record that begins with the [`MARK`].
///
/// # Errors
/// It is too short.
pub fn decode(raw: &[u8], into: &mut Vec<Fault>) -> Result<(), RecordError> {
    let short = || RecordError::BadRecord("a short record of faults".to_owned());
    let head = raw.get(..HEAD).ok_or_else(short)?;
    let kernel = is_of_kernel(head);
    let faults = raw.get(HEAD..HEAD + count(head).min(MOST) * FAULT);
    for fault in faults.ok_or_else(short)?.chunks_exact(FAULT) {
        let double = |at: usize| {
            let bytes = fault[at..at + 8].try_into().expect("eight bytes");
            u64::from_le_bytes(bytes)
        };
        into.push(Fault {
            time_ns: double(0),
            task: double(8),
            word: double(16),
            kernel,
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buffer(faults: &[[u64; 3]]) -> Vec<u8> {
        let mut buffer = vec![0; BUFFER];
        buffer[COUNT..HEAD].copy_from_slice(&(faults.len() as u32).to_le_bytes());
        for (at, word) in (HEAD..).step_by(8).zip(faults.iter().flatten()) {
            buffer[at..at + 8].copy_from_slice(&word.to_le_bytes());
        }
        buffer
    }

    #[test]
    fn what_is_left_in_a_buffer_reads_as_the_records_that_it_would_have_become() {
        let bytes = record(&buffer(&[[5, 40 << 32 | 41, 0x7f00_0000_1007]]), true);
        assert_eq!(raw::length(&bytes).unwrap(), bytes.len());
        let parsed = raw::parse(&bytes).unwrap();
        let Body::Sample { id: MARK, raw } = parsed.body else {
            panic!("{parsed:?}");
        };
        let mut faults = Vec::new();
        decode(raw, &mut faults).unwrap();
        let expected = Record {
            time_ns: 5,
            pid: 40,
            tid: 41,
            body: Body::Event(Sample::Fault {
                address: 0x7f00_0000_1000,
                code: 7,
                kernel: true,
            }),
        };
        assert_eq!(faults.len(), 1);
        assert_eq!(faults[0].record(), expected);
    }

    #[test]
    fn a_full_buffer_is_not_taken_for_more_than_it_holds() {
        let mut full = buffer(&vec![[1, 2, 3]; MOST]);
        full[COUNT..HEAD].copy_from_slice(&u32::MAX.to_le_bytes());
        let mut faults = Vec::new();
        decode(&full, &mut faults).unwrap();
        assert_eq!(faults.len(), MOST);
    }

    #[test]
    fn a_record_that_ends_early_is_refused() {
        let full = buffer(&[[1, 2, 3], [4, 5, 6]]);
        for length in 0..HEAD + 2 * FAULT {
            let mut faults = Vec::new();
            assert!(
                decode(&full[..length], &mut faults).is_err(),
                "{length} bytes"
            );
        }
    }
}
