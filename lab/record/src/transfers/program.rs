//! A program that the kernel runs at the beginning of each system call: it tells which
//! file on a tmpfs a call reads or writes, and where.
//!
//! No event of the kernel tells this. The program follows the descriptor that the call
//! names, as the kernel itself does: task, table of descriptors, file, inode. Its
//! instructions are made here, because the places of the members are known only when the
//! kernel's type information has been read.

use crate::bpf::assembler::{Assembler, DOUBLE, FRAME, HALF, Instruction, WORD, helper};
use crate::bpf::btf::Btf;
use crate::syscalls::number;
use crate::tracepoint::{ENTER, EXIT, EXIT_OF_TRANSFERS, Layout};

/// What a record of the program begins with; no tracepoint has this number.
pub const MARK: u16 = u16::MAX;

/// Bytes of a record.
pub const RECORD: i32 = 64;

/// `s_magic` of a tmpfs.
const TMPFS_MAGIC: i32 = 0x0102_1994;

/// Places of the members that the program reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Places {
    task_files: u16,
    files_fdt: u16,
    fdt_max: u16,
    fdt_fd: u16,
    file_position: u16,
    file_flags: u16,
    file_inode: u16,
    inode_number: u16,
    inode_size: u16,
    inode_mode: u16,
    inode_sb: u16,
    sb_magic: u16,
    sb_device: u16,
}

impl Places {
    /// Those of the kernel that `btf` is of.
    pub fn of(btf: &Btf<'_>) -> Option<Self> {
        Some(Self {
            task_files: btf.offset("task_struct", "files")?,
            files_fdt: btf.offset("files_struct", "fdt")?,
            fdt_max: btf.offset("fdtable", "max_fds")?,
            fdt_fd: btf.offset("fdtable", "fd")?,
            file_position: btf.offset("file", "f_pos")?,
            file_flags: btf.offset("file", "f_flags")?,
            file_inode: btf.offset("file", "f_inode")?,
            inode_number: btf.offset("inode", "i_ino")?,
            inode_size: btf.offset("inode", "i_size")?,
            inode_mode: btf.offset("inode", "i_mode")?,
            inode_sb: btf.offset("inode", "i_sb")?,
            sb_magic: btf.offset("super_block", "s_magic")?,
            sb_device: btf.offset("super_block", "s_dev")?,
        })
    }
}

/// Places in the frame: the record, and eight bytes below it.
const AT: i16 = -(RECORD as i16);
const SCRATCH: i16 = AT - 8;

/// Places in a record.
pub mod record {
    /// 1 for the second descriptor of a call: a half word.
    pub const SECOND: usize = 2;
    /// A word.
    pub const DEVICE: usize = 4;
    /// Those that follow are double words.
    pub const INODE: usize = 8;
    /// Where the descriptor stands.
    pub const POSITION: usize = 16;
    /// Bytes of the file.
    pub const SIZE: usize = 24;
    /// `f_flags` in the lower word, `i_mode` in the half word after it.
    pub const FLAGS: usize = 32;
    pub const MODE: usize = 36;
    /// The place that an argument points to, or all ones.
    pub const POINTED: usize = 40;
    /// The call's number.
    pub const NUMBER: usize = 48;
    /// The call's fourth argument.
    pub const FOURTH: usize = 56;
}

/// Offset in the frame of what lies at `place` of the record.
const fn at(place: usize) -> i16 {
    AT + place as i16
}

/// The program for a kernel with `places`, whose event at the beginning of a system call is
/// laid out as `enter` and whose records go to the map `output`. The map `passed` counts the
/// calls that it passes over.
pub fn at_enter(
    places: &Places,
    enter: &Layout,
    output: i32,
    passed: i32,
) -> Option<Vec<Instruction>> {
    let field = |index| i16::try_from(enter.offset(index)).ok();
    let (number, arguments) = (field(0)?, field(1)?);
    let mut code = Assembler::default();
    dispatch(&mut code, number, arguments, passed);
    look(&mut code, places, (number, arguments), output);
    Some(code.finish())
}

/// The program at the end of a call, laid out as `exit`: it passes over those of no interest.
pub fn at_exit(exit: &Layout) -> Option<Vec<Instruction>> {
    let number = i16::try_from(exit.offset(0)).ok()?;
    let mut code = Assembler::default();
    code.load(DOUBLE, 1, 1, number);
    for needed in EXIT.iter().chain(EXIT_OF_TRANSFERS) {
        code.jump_if_equal(1, *needed as i32, "needed");
    }
    code.set(0, 0);
    code.end();
    code.label("needed");
    code.set(0, 1);
    code.end();
    Some(code.finish())
}

/// Looks at the descriptors that the call has.
fn dispatch(code: &mut Assembler, number: i16, arguments: i16, passed: i32) {
    let argument = |index: i16| arguments + 8 * index;
    code.copy(6, 1);
    code.load(DOUBLE, 7, 6, number);
    for one in [
        number::READ,
        number::WRITE,
        number::PREAD64,
        number::PWRITE64,
        number::READV,
        number::WRITEV,
        number::PREADV,
        number::PWRITEV,
        number::PREADV2,
        number::PWRITEV2,
    ] {
        code.jump_if_equal(7, one as i32, "one");
    }
    code.jump_if_equal(7, number::SENDFILE as i32, "sendfile");
    code.jump_if_equal(7, number::SPLICE as i32, "copy");
    code.jump_if_equal(7, number::COPY_FILE_RANGE as i32, "copy");
    // The kernel's own filter takes longer to pass over the others.
    for needed in ENTER {
        code.jump_if_equal(7, *needed as i32, "out");
    }
    code.fill(SCRATCH, 0);
    code.map(1, passed);
    code.copy(2, FRAME);
    code.add(2, i32::from(SCRATCH));
    code.helper(helper::MAP_LOOKUP);
    code.jump_if_equal(0, 0, "passed");
    code.load(DOUBLE, 1, 0, 0);
    code.add(1, 1);
    code.store(DOUBLE, 0, 0, 1);
    code.label("passed");
    code.set(0, 0);
    code.end();
    let descriptor = |code: &mut Assembler, fd: i16, second: i32, pointer: Option<i16>| {
        code.copy(1, 6);
        code.load(DOUBLE, 2, 6, argument(fd));
        code.set(3, second);
        match pointer {
            Some(pointer) => code.load(DOUBLE, 4, 6, argument(pointer)),
            None => code.set(4, 0),
        }
        code.function("look");
    };
    code.label("one");
    descriptor(code, 0, 0, None);
    code.jump("out");
    code.label("sendfile");
    descriptor(code, 1, 0, Some(2));
    descriptor(code, 0, 1, None);
    code.jump("out");
    code.label("copy");
    descriptor(code, 0, 0, Some(1));
    descriptor(code, 2, 1, Some(3));
    code.label("out");
    // Anything but 0: the event is recorded as it would be without the program.
    code.set(0, 1);
    code.end();
}

/// Copies `bytes` at `*(base + place)` to the frame at `offset`; to `out` if the
/// kernel finds nothing there.
fn probe(code: &mut Assembler, offset: i16, bytes: i32, base: u8, place: u16) {
    code.copy(3, base);
    code.add(3, i32::from(place));
    code.copy(1, FRAME);
    code.add(1, i32::from(offset));
    code.set(2, bytes);
    code.helper(helper::PROBE_READ_KERNEL);
    code.jump_unless_equal(0, 0, "out of look");
}

/// `base = *(base + place)`, a pointer
fn follow(code: &mut Assembler, base: u8, place: u16) {
    probe(code, SCRATCH, 8, base, place);
    code.load(DOUBLE, base, FRAME, SCRATCH);
    code.jump_if_equal(base, 0, "out of look");
}

/// A function: follows a descriptor, and writes a record if it is of a file on a tmpfs.
/// It takes the event, the descriptor, whether it is the call's second, and a pointer to
/// the place in the file or 0.
fn look(code: &mut Assembler, places: &Places, (number, arguments): (i16, i16), output: i32) {
    let (event, base, pointer, fd) = (6, 7, 8, 9);
    code.label("look");
    code.copy(event, 1);
    code.copy(pointer, 4);
    // A descriptor is an `int`: its upper half says nothing.
    code.put(0xbc, (fd, 2), 0, 0);
    for double in 0..RECORD / 8 {
        code.fill(AT + 8 * double as i16, 0);
    }
    code.fill(SCRATCH, 0);
    code.set(1, i32::from(MARK));
    code.store(HALF, FRAME, AT, 1);
    code.store(HALF, FRAME, at(record::SECOND), 3);
    code.fill(at(record::POINTED), -1);
    code.helper(helper::GET_CURRENT_TASK);
    code.copy(base, 0);
    follow(code, base, places.task_files);
    follow(code, base, places.files_fdt);
    code.fill(SCRATCH, 0);
    probe(code, SCRATCH, 4, base, places.fdt_max);
    code.load(WORD, 1, FRAME, SCRATCH);
    code.jump_if_not_below(fd, 1, "out of look");
    follow(code, base, places.fdt_fd);
    code.put(0x67, (fd, 0), 0, 3);
    code.add_register(base, fd);
    follow(code, base, 0);
    probe(code, at(record::POSITION), 8, base, places.file_position);
    probe(code, at(record::FLAGS), 4, base, places.file_flags);
    follow(code, base, places.file_inode);
    probe(code, at(record::INODE), 8, base, places.inode_number);
    probe(code, at(record::SIZE), 8, base, places.inode_size);
    probe(code, at(record::MODE), 2, base, places.inode_mode);
    follow(code, base, places.inode_sb);
    probe(code, SCRATCH, 8, base, places.sb_magic);
    code.load(DOUBLE, 1, FRAME, SCRATCH);
    code.jump_unless_equal(1, TMPFS_MAGIC, "out of look");
    probe(code, at(record::DEVICE), 4, base, places.sb_device);
    code.load(DOUBLE, 1, event, number);
    code.store(DOUBLE, FRAME, at(record::NUMBER), 1);
    code.load(DOUBLE, 1, event, arguments + 24);
    code.store(DOUBLE, FRAME, at(record::FOURTH), 1);
    code.jump_if_equal(pointer, 0, "send");
    code.copy(1, FRAME);
    code.add(1, i32::from(at(record::POINTED)));
    code.set(2, 8);
    code.copy(3, pointer);
    code.helper(helper::PROBE_READ_USER);
    code.label("send");
    code.copy(1, event);
    code.map(2, output);
    code.this_cpu(3);
    code.copy(4, FRAME);
    code.add(4, i32::from(AT));
    code.set(5, RECORD);
    code.helper(helper::PERF_EVENT_OUTPUT);
    code.label("out of look");
    code.set(0, 0);
    code.end();
}
