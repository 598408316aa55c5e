//! Contiguous runs: what a processor caches of sixteen entries that say that they lie in a row,
//! and what comes of it if one of them is changed. Tables written from the manuals.

use std::sync::atomic::Ordering;

use crate::common::*;
use vellum::addr::{Access, Pfn};
use vellum_machine::mmu::{AARCH64_4K, AccessError, Entry, FaultReason, SV39, SV48, Walker};
use vellum_machine::{Machine, MachineConfig};

/// An aligned run of pages in the lower half.
const ADDRESS: u64 = 0x12_3456_0000;
const ROOT: Pfn = Pfn(0x100);
/// First frame of the run that is mapped.
const RUN: Pfn = Pfn(0x200);
/// Another page.
const OTHER: Pfn = Pfn(0x300);

/// How a format writes entries.
#[derive(Clone, Copy)]
struct Bits {
    walker: &'static dyn Walker,
    table: fn(Pfn) -> u64,
    /// A page to store to that nobody has stored to.
    page: fn(Pfn) -> u64,
    /// The same as one of a run.
    one_of_run: fn(Pfn) -> u64,
}

/// Valid, page, AP1, AP2, AF, nG, DBM; bit 52 is the hint.
const ARM: Bits = Bits {
    walker: &AARCH64_4K,
    table: |frame| u64::from(frame.0) << 12 | 3,
    page: |frame| u64::from(frame.0) << 12 | 3 | 1 << 6 | 1 << 7 | 1 << 10 | 1 << 11 | 1 << 51,
    one_of_run: |frame| (ARM.page)(frame) | 1 << 52,
};

/// V, R, W, U, A; N, and 1000 in the low bits of the frame.
const RISCV: Bits = Bits {
    walker: &SV39,
    table: |frame| u64::from(frame.0) << 10 | 1,
    page: |frame| u64::from(frame.0) << 10 | 0x57,
    one_of_run: |frame| (RISCV.page)(Pfn(frame.0 & !15 | 8)) | 1 << 63,
};

/// A machine with the run mapped; its page `n` begins with the word 100 + `n`.
fn world(bits: Bits) -> Machine {
    let machine = build(MachineConfig::new(8 << 20).with_walker(bits.walker));
    let mut table = ROOT;
    for level in (2..=bits.walker.root_level()).rev() {
        let next = Pfn(table.0 + 1);
        let index = bits.walker.index(ADDRESS, level);
        word(&machine, table, index * 8).store((bits.table)(next), Ordering::Relaxed);
        table = next;
    }
    for step in 0..16 {
        let frame = RUN.offset(step);
        word(&machine, frame, 0).store(100 + u64::from(step), Ordering::Relaxed);
        write(&machine, bits, step, (bits.one_of_run)(frame));
    }
    word(&machine, OTHER, 0).store(1, Ordering::Relaxed);
    machine
}

/// Writes the entry of page `step` of the run.
fn write(machine: &Machine, bits: Bits, step: u32, entry: u64) {
    let table = Pfn(ROOT.0 + u32::from(bits.walker.root_level()) - 1);
    let index = bits.walker.index(at(step), 1);
    word(machine, table, index * 8).store(entry, Ordering::Relaxed);
}

fn at(step: u32) -> u64 {
    ADDRESS + u64::from(step) * 4096
}

#[test]
fn one_translation_is_cached_for_a_run() {
    for bits in [ARM, RISCV] {
        let machine = world(bits);
        let mmu = mmu(&machine, 0);
        for step in (0..16).rev() {
            assert_eq!(mmu.load(SPACE, ROOT, at(step)), Ok(100 + u64::from(step)));
        }
        let stats = machine.stats();
        assert_eq!(
            (stats.tlb_misses, stats.walks),
            (1, 1),
            "{}",
            bits.walker.name()
        );
    }
}

#[test]
fn a_changed_entry_is_not_seen_before_a_flush_of_any_page_of_the_run() {
    for bits in [ARM, RISCV] {
        let machine = world(bits);
        let mmu = mmu(&machine, 0);
        assert_eq!(mmu.load(SPACE, ROOT, at(2)), Ok(102));
        write(&machine, bits, 5, (bits.page)(OTHER));
        assert_eq!(mmu.load(SPACE, ROOT, at(5)), Ok(105), "by that of page 2");
        flush(&machine, 1, page(at(16)), false);
        assert_eq!(mmu.load(SPACE, ROOT, at(5)), Ok(105));
        flush(&machine, 1, page(at(9)), false);
        assert_eq!(mmu.load(SPACE, ROOT, at(5)), Ok(1));
        // The others still say that the run is one: the entry is overruled again, or it and
        // the run are both there.
        assert_eq!(mmu.load(SPACE, ROOT, at(6)), Ok(106));
        let found = mmu.load(SPACE, ROOT, at(5));
        match bits.walker.has_conflicts() {
            true => assert_eq!(found.unwrap_err().reason, FaultReason::Conflict),
            false => assert_eq!(found, Ok(1)),
        }
    }
}

#[test]
fn a_run_that_is_made_of_single_pages_while_it_is_cached_is_a_conflict_on_arm() {
    for bits in [ARM, RISCV] {
        let machine = world(bits);
        let mmu = mmu(&machine, 0);
        assert_eq!(mmu.load(SPACE, ROOT, at(2)), Ok(102));
        for step in 0..16 {
            write(&machine, bits, step, (bits.page)(RUN.offset(step)));
        }
        assert_eq!(mmu.load(SPACE, ROOT, at(3)), Ok(103));
        // The page is clean, so that the store looks at its entry.
        let mut handler = |fault| Err::<(), _>(fault);
        let stored = mmu.access(SPACE, ROOT, at(3), Access::Write, 7, &mut handler);
        match bits.walker.has_conflicts() {
            true => {
                let Err(AccessError::Conflict(fault)) = stored else {
                    panic!("{stored:?}");
                };
                assert_eq!(fault.address, at(3));
                assert!(fault.to_string().contains("two translations"), "{fault}");
            }
            false => {
                assert_eq!(stored.unwrap(), 7);
                assert_eq!(mmu.load(SPACE, ROOT, at(3)), Ok(7));
            }
        }
    }
}

#[test]
fn a_run_that_is_flushed_before_it_is_made_anew_is_none() {
    let machine = world(ARM);
    let mmu = mmu(&machine, 0);
    assert_eq!(mmu.load(SPACE, ROOT, at(2)), Ok(102));
    (0..16).for_each(|step| write(&machine, ARM, step, 0));
    flush(&machine, 1, page(at(0)), false);
    for step in 0..16 {
        write(&machine, ARM, step, (ARM.page)(RUN.offset(step)));
    }
    for step in 0..16 {
        mmu.store(SPACE, ROOT, at(step), 7).unwrap();
        assert_eq!(mmu.load(SPACE, ROOT, at(step)), Ok(7));
    }
}

/// Of a run, the entry by which the processor came is marked, and no other.
#[test]
fn a_store_marks_one_entry_of_a_run() {
    let machine = world(RISCV);
    let mmu = mmu(&machine, 0);
    mmu.store(SPACE, ROOT, at(4), 7).unwrap();
    mmu.store(SPACE, ROOT, at(11), 8).unwrap();
    let table = Pfn(ROOT.0 + 2);
    let dirty = (0..16).filter(|&step| {
        let index = SV39.index(at(step), 1);
        word(&machine, table, index * 8).load(Ordering::Relaxed) & 0x80 != 0
    });
    assert_eq!(Vec::from_iter(dirty), [4]);
}

#[test]
fn napot_entries_of_other_sizes_and_levels_are_reserved() {
    let entry = |low: u64| 1 << 63 | 0x48d_1400 & !(0xf << 10) | low << 10 | 0x57;
    for low in (0..16).filter(|&low| low != 8) {
        assert_eq!(
            SV48.decode(entry(low), 1),
            Entry::Reserved(1 << 63),
            "{low}"
        );
    }
    assert!(matches!(SV48.decode(entry(8), 1), Entry::Leaf { .. }));
    assert_eq!(
        (SV48.run_order(entry(8), 1), SV48.run_order(0x57, 1)),
        (Some(4), None)
    );
    let large = 1 << 63 | 1 << 19 | 0x57;
    assert_eq!(SV48.decode(large, 2), Entry::Reserved(1 << 63));
    assert_eq!(SV48.decode(1 << 63 | 1, 2), Entry::Reserved(1 << 63));
}
