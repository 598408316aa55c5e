//! Makes programs that the kernel runs (BPF), an instruction at a time.
//!
//! The programs are our own. The kernel lets only programs under a licence that goes with
//! the GPL read its memory; these may be used under the MIT licence or the GPL.

/// Terms of the programs, in the kernel's words.
pub const LICENSE: &[u8] = b"Dual MIT/GPL\0";

/// One instruction: opcode, destination and source register, offset, immediate.
pub type Instruction = [u8; 8];

/// Functions that the kernel offers, by number.
pub mod helper {
    pub const MAP_LOOKUP: i32 = 1;
    pub const TIME_NS: i32 = 5;
    pub const PROCESS_AND_THREAD: i32 = 14;
    pub const PERF_EVENT_OUTPUT: i32 = 25;
    pub const GET_CURRENT_TASK: i32 = 35;
    pub const PROBE_READ_USER: i32 = 112;
    pub const PROBE_READ_KERNEL: i32 = 113;
}

const CALL: u8 = 0x85;
/// The register that holds the end of the stack frame.
pub const FRAME: u8 = 10;

/// A place in the program that jumps go to.
pub type Label = &'static str;

/// Makes instructions.
#[derive(Default)]
pub struct Assembler {
    code: Vec<Instruction>,
    labels: Vec<(Label, usize)>,
    /// Instructions whose offset, or immediate if it is a call, is to lead to a label.
    jumps: Vec<(usize, Label)>,
}

/// Sizes of loads and stores, as bits of an opcode.
pub const WORD: u8 = 0x00;
pub const HALF: u8 = 0x08;
pub const DOUBLE: u8 = 0x18;

impl Assembler {
    pub fn put(&mut self, opcode: u8, registers: (u8, u8), offset: i16, immediate: i32) {
        let (to, from) = registers;
        let [o0, o1] = offset.to_le_bytes();
        let [i0, i1, i2, i3] = immediate.to_le_bytes();
        let instruction = [opcode, from << 4 | to, o0, o1, i0, i1, i2, i3];
        self.code.push(instruction);
    }

    pub fn label(&mut self, label: Label) {
        self.labels.push((label, self.code.len()));
    }

    /// `to = value`
    pub fn set(&mut self, to: u8, value: i32) {
        self.put(0xb7, (to, 0), 0, value);
    }

    /// `to = from`
    pub fn copy(&mut self, to: u8, from: u8) {
        self.put(0xbf, (to, from), 0, 0);
    }

    /// `to += value`
    pub fn add(&mut self, to: u8, value: i32) {
        self.put(0x07, (to, 0), 0, value);
    }

    /// `to = *(from + offset)`
    pub fn load(&mut self, size: u8, to: u8, from: u8, offset: i16) {
        self.put(0x61 | size, (to, from), offset, 0);
    }

    /// `*(to + offset) = from`
    pub fn store(&mut self, size: u8, to: u8, offset: i16, from: u8) {
        self.put(0x63 | size, (to, from), offset, 0);
    }

    /// `*(frame + offset) = value`, a double word
    pub fn fill(&mut self, offset: i16, value: i32) {
        self.put(0x7a, (FRAME, 0), offset, value);
    }

    /// `to += from`
    pub fn add_register(&mut self, to: u8, from: u8) {
        self.put(0x0f, (to, from), 0, 0);
    }

    /// `to *= value`
    pub fn multiply(&mut self, to: u8, value: i32) {
        self.put(0x27, (to, 0), 0, value);
    }

    /// `to &= value`
    pub fn mask(&mut self, to: u8, value: i32) {
        self.put(0x57, (to, 0), 0, value);
    }

    /// `to |= from`
    pub fn or(&mut self, to: u8, from: u8) {
        self.put(0x4f, (to, from), 0, 0);
    }

    /// `to >>= bits`
    pub fn shift_right(&mut self, to: u8, bits: i32) {
        self.put(0x77, (to, 0), 0, bits);
    }

    /// `to =` what stands for the ring of the CPU that runs the program: all ones in 32 bits
    pub fn this_cpu(&mut self, to: u8) {
        self.put(0xb4, (to, 0), 0, -1);
    }

    pub fn jump(&mut self, label: Label) {
        self.jumps.push((self.code.len(), label));
        self.put(0x05, (0, 0), 0, 0);
    }

    pub fn jump_if_equal(&mut self, register: u8, value: i32, label: Label) {
        self.jumps.push((self.code.len(), label));
        self.put(0x15, (register, 0), 0, value);
    }

    pub fn jump_unless_equal(&mut self, register: u8, value: i32, label: Label) {
        self.jumps.push((self.code.len(), label));
        self.put(0x55, (register, 0), 0, value);
    }

    /// Jumps if `register >= value`.
    pub fn jump_if_at_least(&mut self, register: u8, value: i32, label: Label) {
        self.jumps.push((self.code.len(), label));
        self.put(0x35, (register, 0), 0, value);
    }

    /// Jumps if `register >= other`.
    pub fn jump_if_not_below(&mut self, register: u8, other: u8, label: Label) {
        self.jumps.push((self.code.len(), label));
        self.put(0x3d, (register, other), 0, 0);
    }

    pub fn helper(&mut self, number: i32) {
        self.put(CALL, (0, 0), 0, number);
    }

    pub fn function(&mut self, label: Label) {
        self.jumps.push((self.code.len(), label));
        // The source register says that it is a function of the program.
        self.put(CALL, (0, 1), 0, 0);
    }

    /// `to = ` the map behind a descriptor
    pub fn map(&mut self, to: u8, descriptor: i32) {
        self.put(0x18, (to, 1), 0, descriptor);
        self.put(0, (0, 0), 0, 0);
    }

    pub fn end(&mut self) {
        self.put(0x95, (0, 0), 0, 0);
    }

    pub fn finish(mut self) -> Vec<Instruction> {
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
