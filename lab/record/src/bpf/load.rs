//! Hands the program to the kernel. All unsafe code that concerns BPF is here.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use super::assembler::{Instruction, LICENSE};

const MAP_CREATE: libc::c_int = 0;
const MAP_LOOKUP: libc::c_int = 1;
const MAP_UPDATE: libc::c_int = 2;
const PROGRAM_LOAD: libc::c_int = 5;
const INFORMATION: libc::c_int = 15;
const RAW_TRACEPOINT_OPEN: libc::c_int = 17;
const PERF_EVENT_ARRAY: u32 = 4;
const ARRAY_OF_EACH_CPU: u32 = 6;
const TRACEPOINT: u32 = 5;
const RAW_TRACEPOINT: u32 = 17;
/// Where `struct bpf_prog_info` has `recursion_misses`.
const MISSES: usize = 208;
const IOC_SET_BPF: u64 = 0x4004_2408;

/// `union bpf_attr` for a map.
#[repr(C)]
struct MapAttr {
    kind: u32,
    key_bytes: u32,
    value_bytes: u32,
    entries: u32,
}

/// The same for an element.
#[repr(C)]
struct ElementAttr {
    map: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

/// The same for a program.
#[repr(C)]
struct ProgramAttr {
    kind: u32,
    instructions: u32,
    code: u64,
    license: u64,
    log_level: u32,
    log_bytes: u32,
    log: u64,
}

/// The same for a raw tracepoint.
#[repr(C)]
struct RawTracepointAttr {
    name: u64,
    program: u32,
    padding: u32,
}

/// The same for what the kernel tells of a program.
#[repr(C)]
struct InformationAttr {
    of: u32,
    bytes: u32,
    information: u64,
}

/// # Safety
/// `attr` is what `command` takes, and its pointers lead to memory that is as large as
/// the attribute says.
unsafe fn bpf<T>(command: libc::c_int, attr: &mut T) -> io::Result<RawFd> {
    let attr: *mut T = attr;
    // SAFETY: the attribute outlives the call, which is told its size; the rest is the
    // caller's promise.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, attr, size_of::<T>()) };
    match result {
        0.. => Ok(result as RawFd),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A map that gives each CPU the event to which its records go.
pub fn output_map(cpus: u32) -> io::Result<OwnedFd> {
    map(PERF_EVENT_ARRAY, 4, cpus)
}

/// A map that has one buffer of so many bytes for each CPU.
pub fn buffer_of_each_cpu(bytes: u32) -> io::Result<OwnedFd> {
    map(ARRAY_OF_EACH_CPU, bytes, 1)
}

fn map(kind: u32, value_bytes: u32, entries: u32) -> io::Result<OwnedFd> {
    let mut attr = MapAttr {
        kind,
        key_bytes: 4,
        value_bytes,
        entries,
    };
    // SAFETY: the attribute of this command has no pointers.
    let fd = unsafe { bpf(MAP_CREATE, &mut attr)? };
    // SAFETY: the call returned a descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// CPUs that the kernel is prepared for: so many buffers has a map of each CPU.
pub fn possible_cpus() -> io::Result<usize> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/possible")?;
    let last = text.trim().rsplit([',', '-']).next();
    let last = last.and_then(|last| last.parse::<usize>().ok());
    let last = last.filter(|last| *last < 1 << 16);
    last.map(|last| last + 1)
        .ok_or_else(|| io::Error::other(format!("unexpected list of CPUs: {}", text.trim())))
}

/// The buffers of a map made by [`buffer_of_each_cpu`] with `bytes`, a multiple of 8, one after
/// the other.
pub fn look_up_each_cpu(map: &OwnedFd, bytes: usize, possible: usize) -> io::Result<Vec<u8>> {
    assert!(bytes.is_multiple_of(8));
    let (key, mut values) = (0_u32, vec![0_u8; bytes * possible]);
    let mut attr = ElementAttr {
        map: map.as_raw_fd() as u32,
        padding: 0,
        key: (&raw const key) as u64,
        value: values.as_mut_ptr() as u64,
        flags: 0,
    };
    // SAFETY: a key of four bytes, and room for a value of each CPU that the kernel is prepared
    // for, each with the length of the map's values; both outlive the call.
    unsafe { bpf(MAP_LOOKUP, &mut attr) }?;
    Ok(values)
}

/// Has records of `cpu` go to `event`.
pub fn set_output(map: &OwnedFd, cpu: u32, event: &OwnedFd) -> io::Result<()> {
    let value = event.as_raw_fd();
    let mut attr = ElementAttr {
        map: map.as_raw_fd() as u32,
        padding: 0,
        key: (&raw const cpu) as u64,
        value: (&raw const value) as u64,
        flags: 0,
    };
    // SAFETY: key and value lie in four bytes each, as the map was made for, and outlive
    // the call.
    unsafe { bpf(MAP_UPDATE, &mut attr) }.map(drop)
}

/// Loads a program for a tracepoint's event.
pub fn program(code: &[Instruction]) -> io::Result<OwnedFd> {
    load(TRACEPOINT, code)
}

/// Loads a program for a tracepoint itself, whose arguments it gets as double words.
pub fn program_at_raw_tracepoint(code: &[Instruction]) -> io::Result<OwnedFd> {
    load(RAW_TRACEPOINT, code)
}

fn load(kind: u32, code: &[Instruction]) -> io::Result<OwnedFd> {
    let mut log = vec![0_u8; 1 << 20];
    let mut attr = ProgramAttr {
        kind,
        instructions: code.len() as u32,
        code: code.as_ptr() as u64,
        license: LICENSE.as_ptr() as u64,
        log_level: 0,
        log_bytes: 0,
        log: 0,
    };
    // SAFETY: as many instructions as stated, and a text that ends in a zero byte; both
    // outlive the call.
    let loaded = unsafe { bpf(PROGRAM_LOAD, &mut attr) };
    let fd = match loaded {
        Ok(fd) => fd,
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => return Err(error),
        Err(error) => {
            attr.log_level = 1;
            attr.log_bytes = log.len() as u32;
            attr.log = log.as_mut_ptr() as u64;
            // SAFETY: as above; the log is as large as stated and ours alone.
            let _ = unsafe { bpf(PROGRAM_LOAD, &mut attr) };
            return Err(io::Error::new(
                error.kind(),
                format!("{error}: {}", last_line(&log)),
            ));
        }
    };
    // SAFETY: the call returned a descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// What the kernel's check of a program ended with.
fn last_line(log: &[u8]) -> String {
    let text = String::from_utf8_lossy(log);
    let text = text.trim_end_matches('\0').trim_end();
    // The last line counts instructions.
    let mut lines = text
        .lines()
        .rev()
        .filter(|line| !line.starts_with("processed "));
    lines.next().unwrap_or_default().to_owned()
}

/// Has the kernel run `program` whenever the tracepoint of `event` is passed, on any CPU.
pub fn attach(event: &OwnedFd, program: &OwnedFd) -> io::Result<()> {
    // SAFETY: both descriptors are open; the request takes an integer.
    let result = unsafe { libc::ioctl(event.as_raw_fd(), IOC_SET_BPF as _, program.as_raw_fd()) };
    match result {
        0.. => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Has the kernel run `program` whenever the tracepoint is passed, on any CPU, as long as the
/// result is open.
pub fn attach_to_raw_tracepoint(name: &str, program: &OwnedFd) -> io::Result<OwnedFd> {
    let name = std::ffi::CString::new(name)?;
    let mut attr = RawTracepointAttr {
        name: name.as_ptr() as u64,
        program: program.as_raw_fd() as u32,
        padding: 0,
    };
    // SAFETY: a text that ends in a zero byte and outlives the call.
    let fd = unsafe { bpf(RAW_TRACEPOINT_OPEN, &mut attr)? };
    // SAFETY: the call returned a descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// How often a program was not run because one ran on the same CPU already.
pub fn missed(program: &OwnedFd) -> io::Result<u64> {
    let mut information = [0_u64; MISSES / 8 + 1];
    let mut attr = InformationAttr {
        of: program.as_raw_fd() as u32,
        bytes: size_of_val(&information) as u32,
        information: information.as_mut_ptr() as u64,
    };
    // SAFETY: the information has as many bytes as stated, all zero, so that the kernel follows
    // no pointer in it; it outlives the call.
    unsafe { bpf(INFORMATION, &mut attr) }?;
    Ok(information[MISSES / 8])
}
