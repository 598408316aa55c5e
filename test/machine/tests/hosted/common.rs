//! A small machine and a builder of x86-64 tables, written from the manual.

use std::sync::atomic::{AtomicU64, Ordering};

use vellum::addr::{PageRange, Pfn, Vpn};
use vellum::platform::{CpuId, CpuSet, Flush, Machine as _, SpaceTag};
use vellum_machine::mmu::Mmu;
use vellum_machine::{Arena, Machine, MachineConfig};

pub const P: u64 = 1;
pub const RW: u64 = 2;
pub const US: u64 = 4;
pub const A: u64 = 0x20;
pub const D: u64 = 0x40;
pub const PS: u64 = 0x80;
pub const NX: u64 = 1 << 63;
/// Present, for stores and for programs.
pub const ALL: u64 = P | RW | US;

pub const SPACE: SpaceTag = SpaceTag(7);

/// A machine of `ram_bytes` with `cpus` CPUs.
pub fn machine(cpus: usize, ram_bytes: u64) -> Machine {
    build(MachineConfig {
        cpus,
        ..MachineConfig::new(ram_bytes)
    })
}

pub fn build(config: MachineConfig) -> Machine {
    let arena = Arena::new(config.arena_bytes().unwrap()).unwrap();
    Machine::new(config, arena).unwrap()
}

pub fn mmu(machine: &Machine, cpu: u16) -> Mmu<'_> {
    // SAFETY: no memory manager lives in the machines of these tests.
    unsafe { machine.mmu(CpuId(cpu)) }
}

/// A word of low memory.
pub fn word(machine: &Machine, frame: Pfn, offset: usize) -> &AtomicU64 {
    assert!(offset < 4096 && offset.is_multiple_of(8));
    // SAFETY: `frame` returns the address of a whole frame of the machine, and
    // these tests access frames as atomic words only.
    unsafe {
        &*machine
            .frame(frame)
            .as_ptr()
            .add(offset)
            .cast::<AtomicU64>()
    }
}

/// One space's tables. Frames are taken one after the other.
pub struct Tables<'m> {
    pub machine: &'m Machine,
    pub root: Pfn,
    next: u32,
}

impl<'m> Tables<'m> {
    /// An empty root in `first`; tables are taken from the frames after it.
    pub fn new(machine: &'m Machine, first: Pfn) -> Self {
        let mut tables = Tables {
            machine,
            root: first,
            next: first.0,
        };
        tables.root = tables.fresh();
        tables
    }

    /// A zeroed frame.
    pub fn fresh(&mut self) -> Pfn {
        let frame = Pfn(self.next);
        self.next += 1;
        for offset in (0..4096).step_by(8) {
            word(self.machine, frame, offset).store(0, Ordering::Relaxed);
        }
        frame
    }

    /// Byte offset of the entry for `address` in a table at `level`.
    pub fn offset(address: u64, level: u32) -> usize {
        (address >> (12 + 9 * (level - 1))) as usize % 512 * 8
    }

    /// The entry for `address` at `level`; missing tables are made with `upper` bits.
    pub fn entry(&mut self, address: u64, level: u32, upper: u64) -> &'m AtomicU64 {
        let mut table = self.root;
        for above in (level + 1..=4).rev() {
            let slot = word(self.machine, table, Self::offset(address, above));
            if slot.load(Ordering::Relaxed) & P == 0 {
                let next = self.fresh();
                slot.store(u64::from(next.0) << 12 | upper, Ordering::Relaxed);
            }
            table = Pfn((slot.load(Ordering::Relaxed) >> 12) as u32);
        }
        word(self.machine, table, Self::offset(address, level))
    }

    /// Maps a single page.
    pub fn map(&mut self, address: u64, frame: Pfn, bits: u64) -> &'m AtomicU64 {
        let entry = self.entry(address, 1, ALL);
        entry.store(u64::from(frame.0) << 12 | bits, Ordering::Relaxed);
        entry
    }
}

/// Flushes from CPU 0.
pub fn flush(machine: &Machine, cpus: u64, range: Option<PageRange>, tables: bool) {
    machine.flush(
        CpuId(0),
        CpuSet::from_bits(cpus),
        &Flush {
            space: SPACE,
            range,
            tables,
        },
    );
}

pub fn page(address: u64) -> Option<PageRange> {
    Some(PageRange::new(Vpn(address >> 12), 1))
}
