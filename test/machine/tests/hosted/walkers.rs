//! The walkers of the formats beside x86-64, against descriptors written out
//! by hand from the manuals.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::common::{self, SPACE, mmu};
use vellum::addr::{Access, Pfn};
use vellum::platform::Machine as _;
use vellum_machine::mmu::{
    AARCH64_4K, AARCH64_16K, AARCH64_64K, Entry, FaultReason, Rights, SV39, SV48, Walker, X86_64,
    X86_64_LA57, X86_PAE,
};
use vellum_machine::{Arena, Machine, MachineConfig};

fn leaf(entry: Entry) -> (u32, Rights, bool) {
    match entry {
        Entry::Leaf {
            frame,
            rights,
            dirty,
        } => (frame.0, rights, dirty),
        other => panic!("{other:?} is not a leaf"),
    }
}

/// Read, write, execute.
fn rights(entry: Entry) -> [bool; 3] {
    let (_, rights, _) = leaf(entry);
    [Access::Read, Access::Write, Access::Execute].map(|access| rights.refuse(access).is_none())
}

/// Arm ARM D8.3: a page descriptor with AF (bit 10), SH = 3, attribute 0.
const PAGE: u64 = 0x703;
const AP1: u64 = 0x40;
const AP2: u64 = 0x80;
const DBM: u64 = 1 << 51;
const UXN: u64 = 1 << 54;

#[test]
fn aarch64_pages_and_blocks_stand_where_the_manual_allows_them() {
    let entry = 0x0000_0123_4567_0000;
    for (walker, granule) in [(AARCH64_4K, 12), (AARCH64_16K, 14), (AARCH64_64K, 16)] {
        let (frame, _, _) = leaf(walker.decode(entry & !0xffff | PAGE, 1));
        assert_eq!(u64::from(frame), 0x0123_4567_0000 >> granule);
        let invalid = [
            (0, 1),
            (0xffff_ffff_ffff_fffe, 1),
            (entry | 1, 1),
            (entry | 1, 4),
        ];
        for (bits, level) in invalid {
            assert_eq!(walker.decode(bits, level), Entry::Absent, "{bits:#x}");
        }
    }
    let block = |walker: &dyn Walker, level| matches!(walker.decode(1, level), Entry::Leaf { .. });
    let allowed = |walker: &dyn Walker| [2, 3, 4].map(|level| block(walker, level));
    assert_eq!(allowed(&AARCH64_4K), [true, true, false], "2 MiB and 1 GiB");
    assert_eq!(allowed(&AARCH64_16K), [true, false, false], "32 MiB");
    assert_eq!(allowed(&AARCH64_64K), [true, false, false], "512 MiB");
    let (frame, _, _) = leaf(AARCH64_16K.decode(0x600_0000 | PAGE & !2, 2));
    assert_eq!(frame, 0x600_0000 >> 14);
    // 1 MiB into a block of 2 MiB: those bits are not part of its address.
    let (frame, _, _) = leaf(AARCH64_4K.decode(0x4010_0000 | PAGE & !2, 2));
    assert_eq!(frame, 0x40000);
}

#[test]
fn aarch64_permissions_are_ap_dbm_and_uxn() {
    let of = |bits| rights(AARCH64_4K.decode(PAGE | bits, 1));
    assert_eq!(
        of(0),
        [false, false, true],
        "AP = 00: nothing but execution at EL0"
    );
    assert_eq!(of(UXN), [false, false, false]);
    assert_eq!(of(AP1), [true, true, true], "AP = 01");
    assert_eq!(of(AP2 | UXN), [false, false, false], "AP = 10");
    assert_eq!(of(AP1 | AP2), [true, false, true], "AP = 11");
    assert_eq!(
        of(AP1 | AP2 | DBM),
        [true, true, true],
        "AP = 11, DBM: writable, clean"
    );
    assert_eq!(of(AP2 | DBM | UXN), [false, false, false]);
    let dirty = |bits| leaf(AARCH64_4K.decode(PAGE | bits, 1)).2;
    assert!(dirty(AP1 | DBM) && !dirty(AP1 | AP2 | DBM));
}

#[test]
fn aarch64_tables_limit_what_is_below() {
    let of = |bits: u64| match AARCH64_16K.decode(0x8_0003 | bits, 3) {
        Entry::Table { table, rights } => {
            assert_eq!(table, Pfn(0x8_0000 >> 14));
            [rights.read, rights.write, rights.execute]
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(of(0), [true, true, true]);
    assert_eq!(
        of(1 << 59),
        [true, true, true],
        "PXNTable is not about programs"
    );
    assert_eq!(of(1 << 60), [true, true, false], "UXNTable");
    assert_eq!(of(1 << 61), [false, false, true], "APTable = 01");
    assert_eq!(of(1 << 62), [true, false, true], "APTable = 10");
}

#[test]
fn aarch64_marks_leaves_and_no_tables() {
    let clean = (PAGE & !0x400) | AP1 | AP2 | DBM;
    assert_eq!(AARCH64_4K.mark(clean, 1, false), Ok(clean | 0x400));
    assert_eq!(AARCH64_4K.mark(clean, 1, true), Ok((clean | 0x400) & !AP2));
    let plain = PAGE | AP1;
    assert_eq!(
        AARCH64_4K.mark(plain, 1, true),
        Ok(plain),
        "no DBM, no dirty state"
    );
    assert_eq!(AARCH64_4K.mark(0x1003, 2, false), Ok(0x1003), "a table");
    assert_eq!(AARCH64_4K.mark(0x1001, 2, false), Ok(0x1401), "a block");
}

#[test]
fn aarch64_outputs_beyond_the_physical_address_size_fault() {
    let beyond = 1u64 << 44;
    for level in [1, 2] {
        let found = AARCH64_4K.decode(beyond | PAGE, level);
        assert_eq!(found, Entry::Reserved(beyond));
    }
}

#[test]
fn address_sizes_are_those_of_the_architectures() {
    let halves: [(&dyn Walker, u32); 4] =
        [(&X86_64, 47), (&X86_64_LA57, 56), (&SV39, 38), (&SV48, 47)];
    for (walker, bits) in halves {
        let end = 1u64 << bits;
        assert!(walker.is_canonical(end - 1) && !walker.is_canonical(end));
        assert!(walker.is_canonical(end.wrapping_neg()), "the upper half");
        assert!(!walker.is_canonical(end.wrapping_neg() - 1));
    }
    for walker in [&AARCH64_4K, &AARCH64_16K, &AARCH64_64K] {
        assert!(walker.is_canonical((1 << 48) - 1) && !walker.is_canonical(1 << 48));
        assert!(!walker.is_canonical(u64::MAX), "TTBR1 is not for programs");
    }
    assert!(X86_PAE.is_canonical((1 << 32) - 1) && !X86_PAE.is_canonical(1 << 32));
    let root = |walker: &dyn Walker, address| walker.index(address, walker.root_level());
    assert_eq!(root(&AARCH64_4K, 0xff80_0000_0000), 511);
    assert_eq!(root(&AARCH64_16K, 0x8000_0000_0000), 1, "two entries");
    assert_eq!(root(&AARCH64_64K, 0xffff_ffff_ffff), 63, "64 entries");
    assert_eq!(root(&SV39, 0x3f_ffff_ffff), 255);
    assert_eq!(root(&X86_64_LA57, 0x00ff_ffff_ffff_ffff), 255);
    assert_eq!(root(&X86_PAE, 0xffff_ffff), 3);
    assert_eq!(AARCH64_16K.coverage_shift(2), 25, "32 MiB a table");
    assert_eq!(AARCH64_64K.coverage_shift(2), 29, "512 MiB a table");
}

#[test]
fn x86_64_with_five_levels_reserves_ps_at_the_top() {
    for level in [4, 5] {
        assert_eq!(X86_64_LA57.decode(0x87, level), Entry::Reserved(0x80));
        assert!(matches!(X86_64_LA57.decode(7, level), Entry::Table { .. }));
    }
    assert!(matches!(X86_64_LA57.decode(0x87, 3), Entry::Leaf { .. }));
}

/// Intel's manual, volume 3A, table 4-8.
#[test]
fn x86_pae_has_nothing_in_the_root_but_frames() {
    let found = X86_PAE.decode(0x1234_5001, 3);
    let (table, rights) = (Pfn(0x12345), Rights::ALL);
    assert_eq!(found, Entry::Table { table, rights });
    assert_eq!(X86_PAE.decode(0x1234_5f18 | 1, 3), Entry::Reserved(0x100));
    let ignored = 0xe18;
    assert_eq!(
        X86_PAE.decode(0x1234_5001 | ignored, 3),
        found,
        "PWT, PCD, AVL"
    );
    for bit in [1, 2, 5, 6, 7, 8, 44, 52, 62, 63] {
        let entry = 0x1234_5001 | 1 << bit;
        assert_eq!(X86_PAE.decode(entry, 3), Entry::Reserved(1 << bit), "{bit}");
        assert_eq!(X86_PAE.decode(entry & !1, 3), Entry::Absent);
    }
    assert_eq!(X86_PAE.mark(0x1234_5001, 3, false), Ok(0x1234_5001));
}

/// Tables 4-9 to 4-11: R/W, U/S and XD below the root, leaves of 2 MiB at level 2.
#[test]
fn x86_pae_has_rights_and_marks_below_the_root() {
    let bits = |rights: Rights| [rights.user, rights.read, rights.write, rights.execute];
    let of = |entry: u64| match X86_PAE.decode(entry, 2) {
        Entry::Table { rights, .. } => bits(rights),
        other => panic!("{other:?}"),
    };
    assert_eq!(of(1), [false, true, false, true]);
    assert_eq!(of(7), [true, true, true, true]);
    assert_eq!(of(5 | 1 << 63), [true, true, false, false]);
    let (frame, rights, dirty) = leaf(X86_PAE.decode(0x4060_0085 | 1 << 63, 2));
    assert_eq!(
        (frame, bits(rights), dirty),
        (0x40600, [true, true, false, false], false)
    );
    assert_eq!(
        leaf(X86_PAE.decode(0x4060_10c7, 2)).0,
        0x40600,
        "bit 12 is PAT"
    );
    assert_eq!(
        X86_PAE.decode(0x4070_0087, 2),
        Entry::Reserved(1 << 20),
        "1 MiB"
    );
    assert_eq!(
        leaf(X86_PAE.decode(0x4070_0087, 1)).0,
        0x40700,
        "PAT, not PS"
    );
    for bit in [44, 51, 52, 62] {
        for level in [1, 2] {
            assert_eq!(
                X86_PAE.decode(7 | 1 << bit, level),
                Entry::Reserved(1 << bit)
            );
        }
    }
    assert_eq!(X86_PAE.mark(7, 2, false), Ok(0x27));
    assert_eq!(X86_PAE.mark(7, 1, true), Ok(0x67));
}

/// A walk takes the entries that were read when the root was loaded. Loading another
/// root, and flushing the whole space, which is done by loading it again, read anew.
#[test]
fn an_entry_of_a_pae_root_is_read_only_when_the_root_is_loaded() {
    let machine = machine(&X86_PAE);
    let frames = [0x110, 0x111, 0x112, 0x113, 0x114, 0x115].map(Pfn);
    for frame in frames {
        for offset in (0..4096).step_by(8) {
            common::word(&machine, frame, offset).store(0, Ordering::Relaxed);
        }
    }
    let [root, first, second, table, page, other] = frames;
    let set = |frame, index: usize, entry: u64| {
        common::word(&machine, frame, index * 8).store(entry, Ordering::Relaxed);
    };
    let at = |frame: Pfn, bits: u64| u64::from(frame.0) << 12 | bits;
    let address = 0x8060_7000;
    set(root, 2, at(first, 1));
    for directory in [first, second] {
        set(directory, 3, at(table, 7));
    }
    set(table, 7, at(page, 7));
    let cpu = mmu(&machine, 0);
    cpu.store(SPACE, root, address, 5).unwrap();
    assert_eq!(machine.ram_word(page, 0), Some(5));
    let load = || {
        cpu.load(SPACE, root, address + 4096)
            .map_err(|fault| fault.reason)
    };
    let missing = |level| Err(FaultReason::NotPresent { level });
    set(root, 2, 0);
    set(table, 8, at(page, 7));
    assert_eq!(load(), Ok(5), "the register leads to the directory");
    set(table, 8, 0);
    common::flush(&machine, 1, common::page(address + 4096), true);
    assert_eq!(load(), missing(1), "flushes of pages leave the registers");
    common::flush(&machine, 1, None, true);
    assert_eq!(load(), missing(3));
    set(root, 2, at(second, 1));
    assert_eq!(load(), missing(3), "the empty entry is in a register");
    assert_eq!(
        cpu.load(SPACE, other, address)
            .map_err(|fault| fault.reason),
        missing(3)
    );
    assert_eq!(load(), missing(1), "the root was loaded again");
    set(other, 3, at(first, 3));
    let reserved = FaultReason::Reserved { level: 3, bits: 2 };
    let refused = |root| cpu.load(SPACE, root, address).unwrap_err().reason;
    assert_eq!(
        refused(other),
        reserved,
        "an entry that the access does not use"
    );
    let frame = Pfn(0x10_0000);
    assert_eq!(
        refused(frame),
        FaultReason::BadRoot { frame },
        "beyond 4 GiB"
    );
}

#[test]
fn riscv_permissions_are_bits_1_to_4() {
    let of = |bits: u64| {
        let (_, rights, _) = leaf(SV39.decode(bits, 1));
        (rights.user, [rights.read, rights.write, rights.execute])
    };
    assert_eq!(of(0x13), (true, [true, false, false]));
    assert_eq!(of(0x17), (true, [true, true, false]));
    assert_eq!(of(0x19), (true, [false, false, true]));
    assert_eq!(of(0x1b), (true, [true, false, true]));
    assert_eq!(of(0x1f), (true, [true, true, true]));
    assert_eq!(of(0x0f), (false, [true, true, true]), "U clear");
    for reserved in [0x15, 0x1d] {
        assert_eq!(SV39.decode(reserved, 1), Entry::Reserved(4), "W without R");
    }
    assert_eq!(SV39.decode(0xffff_ffff_ffff_fffe, 1), Entry::Absent);
    assert_eq!(
        SV39.decode(1, 1),
        Entry::Absent,
        "a table below the last level"
    );
    let (frame, _, dirty) = leaf(SV48.decode(0x48d_1400 | 0x80 | 0x17, 1));
    assert_eq!((frame, dirty), (0x12345, true));
}

#[test]
fn riscv_reserved_bits_fault() {
    let leaf_bits = 0x17;
    for bits in [1 << 54, 1 << 60, 1 << 63, 3 << 61, 1 << 42] {
        assert_eq!(
            SV48.decode(leaf_bits | bits, 1),
            Entry::Reserved(bits),
            "{bits:#x}"
        );
    }
    for memory in [0, 1 << 61, 2 << 61] {
        assert!(matches!(
            SV48.decode(leaf_bits | memory, 1),
            Entry::Leaf { .. }
        ));
    }
    for bits in [1 << 4, 1 << 6, 1 << 7, 1 << 61] {
        assert_eq!(
            SV48.decode(1 | bits, 2),
            Entry::Reserved(bits),
            "in a table entry"
        );
    }
    // 2 MiB leaves have 9 zero bits of frame number, 512 GiB leaves 27.
    assert_eq!(
        SV48.decode(leaf_bits | 1 << 10, 2),
        Entry::Reserved(1 << 10)
    );
    assert_eq!(
        SV48.decode(leaf_bits | 1 << 36, 4),
        Entry::Reserved(1 << 36)
    );
    assert!(matches!(
        SV48.decode(leaf_bits | 1 << 37, 4),
        Entry::Leaf { .. }
    ));
    assert!(matches!(
        SV39.decode(leaf_bits | 1 << 19, 2),
        Entry::Leaf { .. }
    ));
}

#[test]
fn riscv_marks_leaves_and_no_tables() {
    assert_eq!(SV39.mark(0x17, 1, false), Ok(0x57));
    assert_eq!(SV39.mark(0x17, 1, true), Ok(0xd7));
    assert_eq!(SV39.mark(0x19, 3, false), Ok(0x59));
    assert_eq!(SV39.mark(0x01, 2, false), Ok(0x01));
}

fn machine(walker: &'static dyn Walker) -> Machine {
    let config = MachineConfig::new(4 << 20).with_walker(walker);
    let arena = Arena::new(config.arena_bytes().unwrap()).unwrap();
    Machine::new(config, arena).unwrap()
}

/// Tables by hand for a page of 16 KiB.
#[test]
fn a_store_on_aarch64_clears_ap2_in_memory() {
    let machine = machine(&AARCH64_16K);
    let frames = [0x101, 0x102, 0x103, 0x104, 0x105].map(Pfn);
    for frame in frames {
        for offset in (0..16384).step_by(8) {
            machine_word(&machine, frame, offset).store(0, Ordering::Relaxed);
        }
    }
    let [root, upper, middle, lower, page] = frames;
    let address = 0x8123_4567_8000u64;
    // Index bits: 47, 46:36, 35:25, 24:14.
    let slots = [
        (root, address >> 47),
        (upper, address >> 36 & 0x7ff),
        (middle, address >> 25 & 0x7ff),
        (lower, address >> 14 & 0x7ff),
    ];
    let entries = slots.map(|(table, index)| machine_word(&machine, table, index as usize * 8));
    for (entry, next) in entries.iter().zip([upper, middle, lower]) {
        entry.store(u64::from(next.0) << 14 | 3, Ordering::Relaxed);
    }
    let clean = u64::from(page.0) << 14 | 0x303 | AP1 | AP2 | DBM | UXN;
    entries[3].store(clean, Ordering::Relaxed);
    let cpu = mmu(&machine, 0);
    assert_eq!(cpu.load(SPACE, root, address + 8), Ok(0));
    assert_eq!(entries[3].load(Ordering::Relaxed), clean | 0x400, "AF");
    let reason = cpu.fetch(SPACE, root, address).unwrap_err().reason;
    assert_eq!(reason, FaultReason::NoExecute);
    cpu.store(SPACE, root, address + 16376, 77).unwrap();
    assert_eq!(entries[3].load(Ordering::Relaxed), (clean | 0x400) & !AP2);
    assert_eq!(machine.ram_word(page, 16376), Some(77));
    for entry in &entries[..3] {
        assert_eq!(
            entry.load(Ordering::Relaxed) & 0x4c0,
            0,
            "tables are not marked"
        );
    }
    let reason = cpu.load(SPACE, root, 1 << 48).unwrap_err().reason;
    assert_eq!(reason, FaultReason::NonCanonical);
}

/// A word of low memory, in frames of 16 KiB.
fn machine_word(machine: &Machine, frame: Pfn, offset: usize) -> &AtomicU64 {
    assert!(offset < 16384 && offset.is_multiple_of(8));
    // SAFETY: `frame` returns the address of a whole frame of 16 KiB, and this
    // test accesses frames as atomic words only.
    unsafe {
        &*machine
            .frame(frame)
            .as_ptr()
            .add(offset)
            .cast::<AtomicU64>()
    }
}
