//! A program that the kernel runs at the beginning of each system call: it tells which
//! file on a tmpfs a call reads or writes, and where.
//!
//! No event of the kernel tells this. The program follows the descriptor that the call
//! names, as the kernel itself does: task, table of descriptors, file, inode. Its
//! instructions are made here, because the places of the members are known only when the
//! kernel's type information has been read.
//!
//! The program is our own. The kernel lets only programs under a licence that goes with
//! the GPL read its memory; this one may be used under the MIT licence or the GPL.

use super::btf::Btf;
use crate::syscalls::number;
use crate::tracepoint::Layout;

/// Terms of the program, in the kernel's words.
pub const LICENSE: &[u8] = b"Dual MIT/GPL\0";

/// What a record of the program begins with; no tracepoint has this number.
pub const MARK: u16 = u16::MAX;

/// Bytes of a record.
pub const RECORD: i32 = 64;

/// `s_magic` of a tmpfs.
const TMPFS_MAGIC: i32 = 0x0102_1994;

/// Helpers that the kernel offers, by number.
const PERF_EVENT_OUTPUT: i32 = 25;
const GET_CURRENT_TASK: i32 = 35;
const PROBE_READ_USER: i32 = 112;
const PROBE_READ_KERNEL: i32 = 113;

/// One instruction: opcode, destination and source register, offset, immediate.
pub type Instruction = [u8; 8];

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

/// A place in the program that jumps go to.
type Label = &'static str;

/// Makes instructions.
#[derive(Default)]
struct Assembler {
    code: Vec<Instruction>,
    labels: Vec<(Label, usize)>,
    /// Instructions whose offset, or immediate if it is a call, is to lead to a label.
    jumps: Vec<(usize, Label)>,
}

/// Sizes of loads and stores, as bits of an opcode.
const WORD: u8 = 0x00;
const HALF: u8 = 0x08;
const DOUBLE: u8 = 0x18;

impl Assembler {
    fn put(&mut self, opcode: u8, registers: (u8, u8), offset: i16, immediate: i32) {
        let (to, from) = registers;
        let [o0, o1] = offset.to_le_bytes();
        let [i0, i1, i2, i3] = immediate.to_le_bytes();
        let instruction = [opcode, from << 4 | to, o0, o1, i0, i1, i2, i3];
        self.code.push(instruction);
    }

    fn label(&mut self, label: Label) {
        self.labels.push((label, self.code.len()));
    }

    /// `to = value`
    fn set(&mut self, to: u8, value: i32) {
        self.put(0xb7, (to, 0), 0, value);
    }

    /// `to = from`
    fn copy(&mut self, to: u8, from: u8) {
        self.put(0xbf, (to, from), 0, 0);
    }

    /// `to += value`
    fn add(&mut self, to: u8, value: i32) {
        self.put(0x07, (to, 0), 0, value);
    }

    /// `to = *(from + offset)`
    fn load(&mut self, size: u8, to: u8, from: u8, offset: i16) {
        self.put(0x61 | size, (to, from), offset, 0);
    }

    /// `*(to + offset) = from`
    fn store(&mut self, size: u8, to: u8, offset: i16, from: u8) {
        self.put(0x63 | size, (to, from), offset, 0);
    }

    /// `*(frame + offset) = value`, a double word
    fn fill(&mut self, offset: i16, value: i32) {
        self.put(0x7a, (FRAME, 0), offset, value);
    }

    fn jump(&mut self, label: Label) {
        self.jumps.push((self.code.len(), label));
        self.put(0x05, (0, 0), 0, 0);
    }

    fn jump_if_equal(&mut self, register: u8, value: i32, label: Label) {
        self.jumps.push((self.code.len(), label));
        self.put(0x15, (register, 0), 0, value);
    }

    fn jump_unless_equal(&mut self, register: u8, value: i32, label: Label) {
        self.jumps.push((self.code.len(), label));
        self.put(0x55, (register, 0), 0, value);
    }

    /// Jumps if `register >= other`.
    fn jump_if_not_below(&mut self, register: u8, other: u8, label: Label) {
        self.jumps.push((self.code.len(), label));
        self.put(0x3d, (register, other), 0, 0);
    }

    fn helper(&mut self, number: i32) {
        self.put(CALL, (0, 0), 0, number);
    }

    fn function(&mut self, label: Label) {
        self.jumps.push((self.code.len(), label));
        // The source register says that it is a function of the program.
        self.put(CALL, (0, 1), 0, 0);
    }

    /// `to = ` the map behind a descriptor
    fn map(&mut self, to: u8, descriptor: i32) {
        self.put(0x18, (to, 1), 0, descriptor);
        self.put(0, (0, 0), 0, 0);
    }

    fn end(&mut self) {
        self.put(0x95, (0, 0), 0, 0);
    }

    /// Copies `bytes` at `*(base + place)` to the frame at `offset`; to `out` if the
    /// kernel finds nothing there.
    fn probe(&mut self, offset: i16, bytes: i32, base: u8, place: u16) {
        self.copy(3, base);
        self.add(3, i32::from(place));
        self.copy(1, FRAME);
        self.add(1, i32::from(offset));
        self.set(2, bytes);
        self.helper(PROBE_READ_KERNEL);
        self.jump_unless_equal(0, 0, "out of look");
    }

    /// `base = *(base + place)`, a pointer
    fn follow(&mut self, base: u8, place: u16) {
        self.probe(SCRATCH, 8, base, place);
        self.load(DOUBLE, base, FRAME, SCRATCH);
        self.jump_if_equal(base, 0, "out of look");
    }

    fn finish(mut self) -> Vec<Instruction> {
        for (at, label) in self.jumps {
            let target = self.labels.iter().find(|(name, _)| *name == label);
            let (_, target) = target.expect("a jump leads to a label of the same program");
            let distance = *target as i32 - at as i32 - 1;
            let instruction = &mut self.code[at];
            match instruction[0] {
                CALL => instruction[4..8].copy_from_slice(&distance.to_le_bytes()),
                _ => instruction[2..4].copy_from_slice(&(distance as i16).to_le_bytes()),
            }
        }
        self.code
    }
}

const CALL: u8 = 0x85;
/// The register that holds the end of the stack frame.
const FRAME: u8 = 10;
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
/// laid out as `enter` and whose records go to the map `output`.
pub fn assemble(places: &Places, enter: &Layout, output: i32) -> Option<Vec<Instruction>> {
    let field = |index| i16::try_from(enter.offset(index)).ok();
    let (number, arguments) = (field(0)?, field(1)?);
    let mut code = Assembler::default();
    dispatch(&mut code, number, arguments);
    look(&mut code, places, (number, arguments), output);
    Some(code.finish())
}

/// Looks at the descriptors that the call has.
fn dispatch(code: &mut Assembler, number: i16, arguments: i16) {
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
    code.jump("out");
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
    code.helper(GET_CURRENT_TASK);
    code.copy(base, 0);
    code.follow(base, places.task_files);
    code.follow(base, places.files_fdt);
    code.fill(SCRATCH, 0);
    code.probe(SCRATCH, 4, base, places.fdt_max);
    code.load(WORD, 1, FRAME, SCRATCH);
    code.jump_if_not_below(fd, 1, "out of look");
    code.follow(base, places.fdt_fd);
    code.put(0x67, (fd, 0), 0, 3);
    code.put(0x0f, (base, fd), 0, 0);
    code.follow(base, 0);
    code.probe(at(record::POSITION), 8, base, places.file_position);
    code.probe(at(record::FLAGS), 4, base, places.file_flags);
    code.follow(base, places.file_inode);
    code.probe(at(record::INODE), 8, base, places.inode_number);
    code.probe(at(record::SIZE), 8, base, places.inode_size);
    code.probe(at(record::MODE), 2, base, places.inode_mode);
    code.follow(base, places.inode_sb);
    code.probe(SCRATCH, 8, base, places.sb_magic);
    code.load(DOUBLE, 1, FRAME, SCRATCH);
    code.jump_unless_equal(1, TMPFS_MAGIC, "out of look");
    code.probe(at(record::DEVICE), 4, base, places.sb_device);
    code.load(DOUBLE, 1, event, number);
    code.store(DOUBLE, FRAME, at(record::NUMBER), 1);
    code.load(DOUBLE, 1, event, arguments + 24);
    code.store(DOUBLE, FRAME, at(record::FOURTH), 1);
    code.jump_if_equal(pointer, 0, "send");
    code.copy(1, FRAME);
    code.add(1, i32::from(at(record::POINTED)));
    code.set(2, 8);
    code.copy(3, pointer);
    code.helper(PROBE_READ_USER);
    code.label("send");
    code.copy(1, event);
    code.map(2, output);
    // The ring of the CPU that runs it: all ones in 32 bits.
    code.put(0xb4, (3, 0), 0, -1);
    code.copy(4, FRAME);
    code.add(4, i32::from(AT));
    code.set(5, RECORD);
    code.helper(PERF_EVENT_OUTPUT);
    code.label("out of look");
    code.set(0, 0);
    code.end();
}
