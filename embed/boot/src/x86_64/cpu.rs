//! Per-CPU data, and the tables that the processor reads.

use core::arch::asm;
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use super::flush::Mailbox;
use super::{KERNEL_BASE, trap};
use crate::check::report::CpuCounts;
use crate::heap;
use crate::task::Task;

/// CPUs there can be.
pub const MOST: usize = 8;

/// Selectors of the descriptor table.
pub const KERNEL_CODE: u64 = 8;
pub const KERNEL_DATA: u64 = 16;
pub const USER_DATA: u64 = 24 | 3;
pub const USER_CODE: u64 = 32 | 3;
const TASK_STATE: u16 = 40;

#[repr(C, packed(4))]
struct TaskState {
    reserved: u32,
    /// Stack for traps from user mode.
    rsp0: u64,
    rsp: [u64; 2],
    reserved2: u64,
    /// Stacks for traps whatever the mode: the first for double faults and the like.
    ist: [u64; 7],
    reserved3: [u16; 5],
    io_map: u16,
}

/// What a CPU has for itself. `gs:0` holds its address.
#[repr(C, align(64))]
pub struct Cpu {
    this: AtomicPtr<Cpu>,
    /// Its number, from 0 on.
    pub number: AtomicU32,
    /// Number of its interrupt controller.
    pub apic: AtomicU32,
    /// The task that runs, or null: then the CPU looks for one.
    pub current: AtomicPtr<Task>,
    /// Stack pointer of the loop that looks for one.
    pub idle_stack: UnsafeCell<u64>,
    /// Tag of the space that is loaded, or `flush::NO_SPACE`.
    pub loaded: AtomicU64,
    pub mailbox: Mailbox,
    pub counts: CpuCounts,
    descriptors: UnsafeCell<[u64; 7]>,
    task_state: UnsafeCell<TaskState>,
}

// SAFETY: the cells are the CPU's alone; the rest are atomics.
unsafe impl Sync for Cpu {}

/// All of them; those of CPUs that are not there stay as they are.
pub static CPUS: [Cpu; MOST] = [const { Cpu::new() }; MOST];

/// CPUs that were started.
pub static STARTED: AtomicU32 = AtomicU32::new(0);

/// The same as a number.
pub fn running() -> usize {
    STARTED.load(Ordering::Relaxed) as usize
}

/// Where the CPU that starts next has its stack.
#[unsafe(no_mangle)]
static AP_STACK: AtomicU64 = AtomicU64::new(0);

impl Cpu {
    const fn new() -> Cpu {
        Cpu {
            this: AtomicPtr::new(core::ptr::null_mut()),
            number: AtomicU32::new(0),
            apic: AtomicU32::new(0),
            current: AtomicPtr::new(core::ptr::null_mut()),
            idle_stack: UnsafeCell::new(0),
            loaded: AtomicU64::new(super::flush::NO_SPACE),
            mailbox: Mailbox::new(),
            counts: CpuCounts::new(),
            descriptors: UnsafeCell::new([
                0,
                0x00af_9b00_0000_ffff,
                0x00cf_9300_0000_ffff,
                0x00cf_f300_0000_ffff,
                0x00af_fb00_0000_ffff,
                0,
                0,
            ]),
            // SAFETY: zero is a value of every field.
            task_state: UnsafeCell::new(unsafe { core::mem::zeroed() }),
        }
    }

    /// The CPU that this runs on. Interrupts are off in the kernel, so it stays that.
    #[inline]
    pub fn this() -> &'static Cpu {
        let this: *const Cpu;
        // SAFETY: `install` set GS before anything else ran here, and traps from user mode
        // put it back.
        unsafe {
            asm!("mov {}, gs:[0]", out(reg) this, options(nostack, readonly, preserves_flags));
            &*this
        }
    }

    /// Its number as an index.
    #[inline]
    pub fn index(&self) -> usize {
        self.number.load(Ordering::Relaxed) as usize
    }

    /// Traps from user mode use the stack that ends here.
    pub fn set_trap_stack(&self, end: u64) {
        // SAFETY: the CPU's own, and the processor reads it when it traps.
        unsafe { (*self.task_state.get()).rsp0 = end }
    }

    /// [`Cpu::install`] for the first CPU, which fills the table of vectors before.
    pub fn install_first(&'static self) {
        trap::init_vectors();
        self.install(0);
    }

    /// Makes this the data of the CPU that runs, and loads its tables.
    pub fn install(&'static self, number: usize) {
        self.this
            .store((&raw const *self).cast_mut(), Ordering::Relaxed);
        self.number.store(number as u32, Ordering::Relaxed);
        let double_fault_stack = heap::stack(8192);
        let state = self.task_state.get();
        let base = state as u64;
        let limit = size_of::<TaskState>() as u64 - 1;
        // SAFETY: nobody else uses this CPU's data yet; the tables have the form that the
        // processor wants and stay where they are.
        unsafe {
            (*state).ist[0] = double_fault_stack;
            (*state).io_map = size_of::<TaskState>() as u16;
            let descriptors = &mut *self.descriptors.get();
            descriptors[5] =
                limit | (base & 0xff_ffff) << 16 | 0x89 << 40 | (base >> 24 & 0xff) << 56;
            descriptors[6] = base >> 32;
            load_table(Table::Descriptors, descriptors.as_ptr() as u64, 55);
            asm!(
                "push {code}", "lea {scratch}, [rip + 2f]", "push {scratch}", "retfq", "2:",
                "mov ss, {data:e}", "mov ds, {zero:e}", "mov es, {zero:e}", "mov fs, {zero:e}", "mov gs, {zero:e}",
                "ltr {state:x}",
                code = in(reg) KERNEL_CODE, data = in(reg) KERNEL_DATA, zero = in(reg) 0,
                state = in(reg) TASK_STATE, scratch = out(reg) _,
            );
        }
        trap::load_vectors();
        const GS_BASE: u32 = 0xc000_0101;
        write_msr(GS_BASE, &raw const *self as u64);
        write_msr(PAT.0, PAT.1);
    }
}

pub enum Table {
    Descriptors,
    Vectors,
}

/// Tells the processor where a table lies.
///
/// # Safety
/// It lies there for good and is right.
pub unsafe fn load_table(table: Table, address: u64, limit: u16) {
    let mut pointer = [0u8; 10];
    pointer[..2].copy_from_slice(&limit.to_le_bytes());
    pointer[2..].copy_from_slice(&address.to_le_bytes());
    // SAFETY: the caller's promise.
    unsafe {
        match table {
            Table::Descriptors => asm!("lgdt [{}]", in(reg) &pointer),
            Table::Vectors => asm!("lidt [{}]", in(reg) &pointer),
        }
    }
}

/// What entries of page tables mean that say how memory is cached: as after a reset, but for the
/// second, which is write-combining and not write-through (`vellum::table::X86_64`).
const PAT: (u32, u64) = (0x277, 0x0007_0406_0007_0106);

fn write_msr(register: u32, value: u64) {
    // SAFETY: the registers written here hold an address that is only used by `Cpu::this`, and
    // what types of memory are, of which the kernel uses the first.
    unsafe {
        asm!("wrmsr", in("ecx") register, in("eax") value as u32, in("edx") (value >> 32) as u32, options(nostack));
    }
}

/// Halts until an interrupt has been handled.
pub fn halt() {
    // SAFETY: handlers run on this stack; the compiler keeps nothing in the red zone of
    // assembly that may push.
    unsafe { asm!("sti", "hlt", "cli") }
}

/// Cycles since the processor started, as it counts them.
#[inline]
pub fn cycles() -> u64 {
    // SAFETY: reads a counter; the fence keeps it behind what came before.
    unsafe {
        core::arch::x86_64::_mm_lfence();
        core::arch::x86_64::_rdtsc()
    }
}

/// The first 12 bytes that name who emulates the machine, if somebody does.
pub fn hypervisor() -> Option<[u8; 12]> {
    use core::arch::x86_64::__cpuid;
    if __cpuid(1).ecx >> 31 == 0 {
        return None;
    }
    let leaf = __cpuid(0x4000_0000);
    let mut name = [0; 12];
    for (part, register) in name.chunks_mut(4).zip([leaf.ebx, leaf.ecx, leaf.edx]) {
        part.copy_from_slice(&register.to_le_bytes());
    }
    Some(name)
}

/// Copies the code of other CPUs' start to page 8, and starts those of `controllers`.
pub fn start_others(controllers: &[u32]) {
    unsafe extern "C" {
        static ap_begin: u8;
        static ap_end: u8;
    }
    const PAGE: u32 = 8;
    // SAFETY: page 8 is below the first MiB, which nothing else uses.
    unsafe {
        let (begin, end) = (&raw const ap_begin, &raw const ap_end);
        // Linked at its own address in low memory, which is mapped here.
        let bytes = end as usize - begin as usize;
        super::direct(u64::from(PAGE) << 12).copy_from(super::direct(begin as u64), bytes);
    }
    for (index, &controller) in controllers.iter().enumerate() {
        AP_STACK.store(heap::stack(65536), Ordering::SeqCst);
        super::apic::start(controller, PAGE);
        let mut waited = 0;
        while STARTED.load(Ordering::Acquire) != index as u32 + 2 {
            super::io::delay(10);
            waited += 1;
            assert!(waited < 1_000_000, "processor {controller} does not start");
        }
    }
}

/// Where another CPU begins, on a stack of its own.
#[unsafe(no_mangle)]
extern "C" fn ap_start() -> ! {
    let number = running();
    let cpu = &CPUS[number];
    cpu.install(number);
    super::flush::init();
    cpu.apic.store(super::apic::init(), Ordering::Relaxed);
    STARTED.store(number as u32 + 1, Ordering::Release);
    crate::task::run_cpu()
}

/// Ends the halt of a CPU.
pub fn wake(cpu: &Cpu) {
    super::apic::interrupt(cpu.apic.load(Ordering::Relaxed), super::apic::WAKE);
}

/// The kernel's own root table: the boot tables, with nothing in the half of programs.
pub fn kernel_root() -> u64 {
    unsafe extern "C" {
        static boot_root: u8;
    }
    let root = &raw const boot_root as u64;
    debug_assert!(root < KERNEL_BASE, "linked where it lies");
    root
}
