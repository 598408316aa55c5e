//! Reads and writes of files on a tmpfs, which no event of the kernel shows.
//!
//! [`program`] has the program that finds them. What the kernel then records is a
//! [`Sample::Transfer`](crate::Sample::Transfer) at the beginning of a call; how many bytes
//! were moved shows at its end.

mod program;

use std::fs;
use std::io;
use std::os::fd::OwnedFd;

use crate::bpf::assembler::Instruction;
use crate::bpf::btf::Btf;
use crate::bpf::load;
use crate::error::RecordError;
use crate::sample::{Identity, Sample, Transfer};
use crate::syscalls::number;
use crate::tracepoint::{Layout, Tracepoint};
pub use program::MARK;
use program::{Places, record};

/// Where the kernel's type information is.
const BTF: &str = "/sys/kernel/btf/vmlinux";

/// The programs in the kernel at the beginning and at the end of calls, with the map that leads
/// records to the rings. They run until the events that they were attached to are closed.
pub struct Watch {
    enter: OwnedFd,
    exit: OwnedFd,
    output: OwnedFd,
    /// Counts calls of no interest, on each CPU.
    passed: OwnedFd,
    possible_cpus: usize,
}

impl Watch {
    /// Loads the program. The text says why not.
    pub fn load(layouts: &[Layout], cpus: &[u32]) -> Result<Self, String> {
        let of = |point| layouts.iter().find(|layout| layout.point == point);
        let calls = of(Tracepoint::SysEnter).zip(of(Tracepoint::SysExit));
        let (enter, exit) = calls.ok_or("system calls are not recorded")?;
        let bytes = fs::read(BTF)
            .map_err(|error| format!("the kernel's types cannot be read from {BTF}: {error}"))?;
        let places = Btf::parse(&bytes).and_then(|btf| Places::of(&btf));
        let places =
            places.ok_or_else(|| format!("{BTF} has not the types that are looked for"))?;
        let entries = cpus.iter().max().map_or(1, |most| most + 1);
        let refused = |what: &'static str| {
            move |error: io::Error| match error.raw_os_error() {
                Some(libc::EPERM | libc::EACCES) => {
                    "this user may load no BPF program: run vellum as root, or grant it cap_bpf"
                        .to_owned()
                }
                _ => format!("{what}: {error}"),
            }
        };
        let output = load::output_map(entries).map_err(refused("the kernel makes no map"))?;
        let descriptor = std::os::fd::AsRawFd::as_raw_fd(&output);
        let passed = load::buffer_of_each_cpu(8).map_err(refused("the kernel makes no map"))?;
        let counter = std::os::fd::AsRawFd::as_raw_fd(&passed);
        let unknown = "the event of system calls is laid out in an unknown way";
        let load = |code: Option<Vec<Instruction>>| {
            let code = code.ok_or(unknown)?;
            load::program(&code).map_err(refused("the kernel refuses the program"))
        };
        Ok(Self {
            enter: load(program::at_enter(&places, enter, descriptor, counter))?,
            exit: load(program::at_exit(exit))?,
            output,
            passed,
            possible_cpus: load::possible_cpus().map_err(refused("CPUs"))?,
        })
    }

    /// Has what is found on `cpu` go to `event`.
    pub fn send(&self, cpu: u32, event: &OwnedFd) -> io::Result<()> {
        load::set_output(&self.output, cpu, event)
    }

    /// Calls of no interest that began so far, on all CPUs.
    pub fn passed_calls(&self) -> u64 {
        let counts = load::look_up_each_cpu(&self.passed, 8, self.possible_cpus);
        let counts = counts.unwrap_or_default();
        let words = counts.chunks_exact(8);
        words
            .map(|word| u64::from_ne_bytes(word.try_into().expect("eight bytes")))
            .sum()
    }

    /// Has the program of a tracepoint, if there is one, run wherever that of `event` is
    /// passed, on every CPU.
    pub fn attach(&self, point: Tracepoint, event: &OwnedFd) -> io::Result<()> {
        match point {
            Tracepoint::SysEnter => load::attach(event, &self.enter),
            Tracepoint::SysExit => load::attach(event, &self.exit),
            _ => Ok(()),
        }
    }
}

/// Takes a record of the program apart.
///
/// # Errors
/// It is too short.
pub fn decode(raw: &[u8]) -> Result<Sample<'static>, RecordError> {
    let short = || RecordError::BadRecord("a short read or write of a tmpfs".to_owned());
    let word = |at: usize, bytes: usize| -> Result<u64, RecordError> {
        let bytes = raw.get(at..at + bytes).ok_or_else(short)?;
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        Ok(u64::from_le_bytes(word))
    };
    let transfer = Transfer {
        file: Identity {
            device: word(record::DEVICE, 4)? as u32,
            inode: word(record::INODE, 8)?,
        },
        number: word(record::NUMBER, 8)?,
        second: word(record::SECOND, 2)? != 0,
        regular: word(record::MODE, 2)? as u32 & libc::S_IFMT == libc::S_IFREG,
        size: word(record::SIZE, 8)?,
        position: 0,
    };
    let (position, pointed) = (word(record::POSITION, 8)?, word(record::POINTED, 8)?);
    let fourth = word(record::FOURTH, 8)?;
    let appends = word(record::FLAGS, 4)? as i32 & libc::O_APPEND != 0;
    let position = match transfer.number {
        _ if transfer.writes() && appends => transfer.size,
        number::PREAD64 | number::PWRITE64 | number::PREADV | number::PWRITEV => fourth,
        // With -1 the call goes on where the descriptor stands.
        number::PREADV2 | number::PWRITEV2 if fourth != u64::MAX => fourth,
        _ if pointed != u64::MAX => pointed,
        _ => position,
    };
    Ok(Sample::Transfer(Transfer {
        position,
        ..transfer
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(number: u64, flags: i32, pointed: u64, fourth: u64) -> Vec<u8> {
        let mut raw = vec![0; 64];
        raw[..2].copy_from_slice(&MARK.to_le_bytes());
        let mut put = |at: usize, word: u64| raw[at..at + 8].copy_from_slice(&word.to_le_bytes());
        put(record::INODE, 7);
        put(record::POSITION, 100);
        put(record::SIZE, 4000);
        put(record::FLAGS, flags as u64 | u64::from(libc::S_IFREG) << 32);
        put(record::POINTED, pointed);
        put(record::NUMBER, number);
        put(record::FOURTH, fourth);
        raw
    }

    #[test]
    fn a_call_is_at_the_place_that_its_kind_says() {
        let at = |number, flags, pointed, fourth| {
            let raw = raw(number, flags, pointed, fourth);
            let Ok(Sample::Transfer(transfer)) = decode(&raw) else {
                panic!("not understood");
            };
            assert!(transfer.regular);
            assert_eq!(transfer.file.inode, 7);
            transfer.position
        };
        let none = u64::MAX;
        assert_eq!(at(number::READ, 0, none, 9), 100);
        assert_eq!(at(number::WRITE, libc::O_APPEND, none, 9), 4000);
        assert_eq!(at(number::READ, libc::O_APPEND, none, 9), 100);
        assert_eq!(at(number::PREAD64, 0, none, 9), 9);
        assert_eq!(at(number::PWRITEV2, 0, none, none), 100);
        assert_eq!(at(number::PWRITEV2, 0, none, 9), 9);
        assert_eq!(at(number::SENDFILE, 0, 55, 9), 55);
        assert_eq!(at(number::COPY_FILE_RANGE, 0, none, 9), 100);
    }

    #[test]
    fn a_record_that_ends_early_is_refused() {
        let raw = raw(number::READ, 0, 0, 0);
        for length in 0..raw.len() {
            assert!(decode(&raw[..length]).is_err(), "{length} bytes");
        }
    }
}
