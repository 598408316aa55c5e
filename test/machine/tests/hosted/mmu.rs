//! The MMU: translation, marking, faults, and what stale entries do.

use std::sync::atomic::Ordering;

use crate::common::*;
use vellum::addr::{Access, Pfn};
use vellum::platform::{CpuId, SpaceTag};
use vellum_machine::mmu::{AccessError, FaultReason, MmuFault, TlbGeometry};
use vellum_machine::{Machine, MachineConfig};

const MIB: u64 = 1 << 20;
const ADDRESS: u64 = 0x7f12_3456_7000;
const FIRST: Pfn = Pfn(0x100);
const PAGE_A: Pfn = Pfn(0x400);
const PAGE_B: Pfn = Pfn(0x401);

/// Two data pages that hold 0xaa and 0xbb in their first words.
fn with_pages(cpus: usize) -> Machine {
    let machine = machine(cpus, 8 * MIB);
    word(&machine, PAGE_A, 0).store(0xaa, Ordering::Relaxed);
    word(&machine, PAGE_B, 0).store(0xbb, Ordering::Relaxed);
    machine
}

fn reason<T: std::fmt::Debug>(result: Result<T, MmuFault>) -> FaultReason {
    result.unwrap_err().reason
}

#[test]
fn a_stale_translation_is_used_until_it_is_flushed() {
    let machine = with_pages(1);
    let mut tables = Tables::new(&machine, FIRST);
    let entry = tables.map(ADDRESS, PAGE_A, ALL);
    let mmu = mmu(&machine, 0);
    assert_eq!(mmu.load(SPACE, tables.root, ADDRESS), Ok(0xaa));
    entry.store(u64::from(PAGE_B.0) << 12 | ALL, Ordering::Relaxed);
    assert_eq!(mmu.load(SPACE, tables.root, ADDRESS), Ok(0xaa));
    assert_eq!(mmu.peek(SPACE, tables.root, ADDRESS), Some(0xaa));
    // Flushes of another page or another space do not help.
    flush(&machine, 1, page(ADDRESS + 4096), true);
    flush(&machine, 1, page(ADDRESS - 4096), true);
    assert_eq!(mmu.load(SPACE, tables.root, ADDRESS), Ok(0xaa));
    flush(&machine, 1, page(ADDRESS), false);
    assert_eq!(mmu.load(SPACE, tables.root, ADDRESS), Ok(0xbb));
    // Dropping one entry leaves the others to be flushed.
    let other = tables.map(ADDRESS + 4096, PAGE_A, ALL);
    mmu.load(SPACE, tables.root, ADDRESS + 4096).unwrap();
    flush(&machine, 1, page(ADDRESS), true);
    other.store(0, Ordering::Relaxed);
    entry.store(0, Ordering::Relaxed);
    flush(&machine, 1, None, false);
    for address in [ADDRESS, ADDRESS + 4096] {
        assert_eq!(
            reason(mmu.load(SPACE, tables.root, address)),
            FaultReason::NotPresent { level: 1 }
        );
    }
}

#[test]
fn a_flush_reaches_the_named_cpus_and_no_others() {
    let machine = with_pages(3);
    let mut tables = Tables::new(&machine, FIRST);
    let entry = tables.map(ADDRESS, PAGE_A, ALL);
    for cpu in 0..3 {
        assert_eq!(
            mmu(&machine, cpu).load(SPACE, tables.root, ADDRESS),
            Ok(0xaa)
        );
    }
    entry.store(u64::from(PAGE_B.0) << 12 | ALL, Ordering::Relaxed);
    flush(&machine, 0b011, page(ADDRESS), false);
    let seen = [0, 1, 2].map(|cpu| mmu(&machine, cpu).load(SPACE, tables.root, ADDRESS));
    assert_eq!(seen, [Ok(0xbb), Ok(0xbb), Ok(0xaa)]);
    let stats = machine.stats();
    assert_eq!(
        (stats.flush_requests, stats.flush_local, stats.flush_remote),
        (1, 1, 1)
    );
    assert_eq!(stats.flush_pages, 1);
}

#[test]
fn translations_of_one_space_do_not_serve_another() {
    let machine = with_pages(1);
    let mut one = Tables::new(&machine, FIRST);
    one.map(ADDRESS, PAGE_A, ALL);
    let mut two = Tables::new(&machine, Pfn(0x200));
    two.map(ADDRESS, PAGE_B, ALL);
    let mmu = mmu(&machine, 0);
    for _ in 0..2 {
        assert_eq!(mmu.load(SpaceTag(1), one.root, ADDRESS), Ok(0xaa));
        assert_eq!(mmu.load(SpaceTag(2), two.root, ADDRESS), Ok(0xbb));
    }
    assert_eq!(machine.stats().tlb_hits, 2);
}

#[test]
fn loads_mark_accessed_and_stores_mark_dirty_even_after_a_tlb_hit() {
    let machine = with_pages(1);
    let mut tables = Tables::new(&machine, FIRST);
    let entry = tables.map(ADDRESS, PAGE_A, ALL);
    let mmu = mmu(&machine, 0);
    mmu.load(SPACE, tables.root, ADDRESS).unwrap();
    assert_eq!(entry.load(Ordering::Relaxed) & (A | D), A);
    for level in 2..=4 {
        assert_eq!(
            tables.entry(ADDRESS, level, ALL).load(Ordering::Relaxed) & (A | D),
            A
        );
    }
    mmu.store(SPACE, tables.root, ADDRESS + 8, 5).unwrap();
    assert_eq!(entry.load(Ordering::Relaxed) & (A | D), A | D);
    assert_eq!(word(&machine, PAGE_A, 8).load(Ordering::Relaxed), 5);
    // The TLB knows that it is dirty: the bit stays clear if somebody clears
    // it without a flush, as on hardware.
    entry.fetch_and(!D, Ordering::Relaxed);
    mmu.store(SPACE, tables.root, ADDRESS, 6).unwrap();
    assert_eq!(entry.load(Ordering::Relaxed) & D, 0);
    flush(&machine, 1, page(ADDRESS), false);
    mmu.store(SPACE, tables.root, ADDRESS, 7).unwrap();
    assert_eq!(entry.load(Ordering::Relaxed) & D, D);
    let stats = machine.stats();
    assert_eq!(
        (stats.accessed_set, stats.dirty_set, stats.walks),
        (4, 2, 3)
    );
}

#[test]
fn a_peek_marks_and_caches_nothing() {
    let machine = with_pages(1);
    let mut tables = Tables::new(&machine, FIRST);
    let entry = tables.map(ADDRESS, PAGE_A, ALL);
    let mmu = mmu(&machine, 0);
    assert_eq!(mmu.peek(SPACE, tables.root, ADDRESS), Some(0xaa));
    assert_eq!(entry.load(Ordering::Relaxed) & (A | D), 0);
    entry.store(u64::from(PAGE_B.0) << 12 | ALL, Ordering::Relaxed);
    assert_eq!(mmu.peek(SPACE, tables.root, ADDRESS), Some(0xbb));
    assert_eq!(mmu.peek(SPACE, tables.root, ADDRESS + 4096), None);
    assert_eq!(machine.stats(), Default::default());
}

#[test]
fn forbidden_accesses_fault_with_the_reason() {
    let machine = with_pages(1);
    let mut tables = Tables::new(&machine, FIRST);
    tables.map(ADDRESS, PAGE_A, P | US | NX);
    tables.map(ADDRESS + 4096, PAGE_A, P | RW);
    let root = tables.root;
    let mmu = mmu(&machine, 0);
    assert_eq!(mmu.load(SPACE, root, ADDRESS), Ok(0xaa));
    let fault = mmu.store(SPACE, root, ADDRESS, 1).unwrap_err();
    assert_eq!(fault.reason, FaultReason::ReadOnly);
    assert_eq!((fault.address, fault.access), (ADDRESS, Access::Write));
    assert_eq!(
        reason(mmu.fetch(SPACE, root, ADDRESS)),
        FaultReason::NoExecute
    );
    assert_eq!(
        reason(mmu.load(SPACE, root, ADDRESS + 4096)),
        FaultReason::Supervisor
    );
    assert_eq!(
        reason(mmu.load(SPACE, root, 1 << 47)),
        FaultReason::NonCanonical
    );
    assert_eq!(
        reason(mmu.load(SPACE, root, ADDRESS + 4)),
        FaultReason::Misaligned
    );
    assert_eq!(
        reason(mmu.load(SPACE, root, ADDRESS ^ 1 << 40)),
        FaultReason::NotPresent { level: 4 }
    );
    // A refused store leaves neither the word nor the dirty bit changed.
    assert_eq!(word(&machine, PAGE_A, 0).load(Ordering::Relaxed), 0xaa);
    assert_eq!(tables.entry(ADDRESS, 1, ALL).load(Ordering::Relaxed) & D, 0);
    assert_eq!(machine.stats().faults, 6);
}

#[test]
fn limits_of_upper_entries_apply_to_what_is_below() {
    for (bit, level) in [(RW, 4), (RW, 3), (RW, 2), (NX, 4), (NX, 3), (NX, 2)] {
        let machine = with_pages(1);
        let mut tables = Tables::new(&machine, FIRST);
        tables.map(ADDRESS, PAGE_A, ALL);
        tables
            .entry(ADDRESS, level, ALL)
            .fetch_xor(bit, Ordering::Relaxed);
        let mmu = mmu(&machine, 0);
        assert_eq!(mmu.load(SPACE, tables.root, ADDRESS), Ok(0xaa));
        let refused = if bit == RW {
            reason(mmu.store(SPACE, tables.root, ADDRESS, 1))
        } else {
            reason(mmu.fetch(SPACE, tables.root, ADDRESS))
        };
        let expected = if bit == RW {
            FaultReason::ReadOnly
        } else {
            FaultReason::NoExecute
        };
        assert_eq!(refused, expected, "bit {bit:#x} at level {level}");
    }
}

#[test]
fn reserved_bits_and_missing_memory_fault() {
    let machine = with_pages(1);
    let mut tables = Tables::new(&machine, FIRST);
    let entry = tables.map(ADDRESS, PAGE_A, ALL);
    entry.fetch_or(1 << 45, Ordering::Relaxed);
    let mmu = mmu(&machine, 0);
    assert_eq!(
        reason(mmu.load(SPACE, tables.root, ADDRESS)),
        FaultReason::Reserved {
            level: 1,
            bits: 1 << 45
        }
    );
    entry.store(0xf_0000 << 12 | ALL, Ordering::Relaxed);
    assert_eq!(
        reason(mmu.load(SPACE, tables.root, ADDRESS)),
        FaultReason::NoMemory {
            frame: Pfn(0xf_0000)
        }
    );
    tables
        .entry(ADDRESS, 4, ALL)
        .fetch_or(PS, Ordering::Relaxed);
    flush(&machine, 1, None, true);
    assert_eq!(
        reason(mmu.load(SPACE, tables.root, ADDRESS)),
        FaultReason::Reserved { level: 4, bits: PS }
    );
    let other = ADDRESS ^ 1 << 41;
    let large = tables.entry(other, 2, ALL);
    large.store(0x400 << 12 | 1 << 13 | ALL | PS, Ordering::Relaxed);
    assert_eq!(
        reason(mmu.load(SPACE, tables.root, other)),
        FaultReason::Reserved {
            level: 2,
            bits: 1 << 13
        }
    );
}

#[test]
fn large_leaves_translate_their_whole_extent_and_one_flush_drops_them() {
    let machine = machine(1, 16 * MIB);
    let mut tables = Tables::new(&machine, FIRST);
    let address = ADDRESS & !(2 * MIB - 1);
    let entry = tables.entry(address, 2, ALL);
    entry.store(0x400 << 12 | ALL | PS | 1 << 12, Ordering::Relaxed);
    let mmu = mmu(&machine, 0);
    for index in [0u32, 1, 17, 511] {
        word(&machine, Pfn(0x400 + index), 16).store(u64::from(index) + 9, Ordering::Relaxed);
        let at = address + u64::from(index) * 4096 + 16;
        assert_eq!(mmu.load(SPACE, tables.root, at), Ok(u64::from(index) + 9));
    }
    assert_eq!(machine.stats().walks, 1);
    mmu.store(SPACE, tables.root, address + 5 * 4096, 3)
        .unwrap();
    assert_eq!(entry.load(Ordering::Relaxed) & (A | D), A | D);
    entry.store(0, Ordering::Relaxed);
    assert!(mmu.load(SPACE, tables.root, address).is_ok());
    flush(&machine, 1, page(address + 300 * 4096), false);
    assert!(mmu.load(SPACE, tables.root, address).is_err());
}

#[test]
fn a_table_unlinked_without_a_table_flush_is_still_walked() {
    let machine = with_pages(1);
    let mut tables = Tables::new(&machine, FIRST);
    let old = tables.map(ADDRESS, PAGE_A, ALL);
    let mmu = mmu(&machine, 0);
    assert_eq!(mmu.load(SPACE, tables.root, ADDRESS), Ok(0xaa));
    // A new last-level table takes the place of the old one.
    let table = tables.fresh();
    let bits = u64::from(PAGE_B.0) << 12 | ALL;
    word(&machine, table, Tables::offset(ADDRESS, 1)).store(bits, Ordering::Relaxed);
    let upper = tables.entry(ADDRESS, 2, ALL);
    upper.store(u64::from(table.0) << 12 | ALL, Ordering::Relaxed);
    flush(&machine, 1, page(ADDRESS), false);
    assert_eq!(
        mmu.load(SPACE, tables.root, ADDRESS),
        Ok(0xaa),
        "through the old table"
    );
    // Even a fault does not make the machine look above the old table again.
    old.store(0, Ordering::Relaxed);
    flush(&machine, 1, page(ADDRESS), false);
    let result = mmu.access(SPACE, tables.root, ADDRESS, Access::Read, 0, &mut |_| {
        Ok::<_, ()>(())
    });
    assert!(
        matches!(result, Err(AccessError::Unresolved { .. })),
        "{result:?}"
    );
    // SAFETY: no memory manager lives in this machine.
    let defects = unsafe { machine.defects() };
    defects.keep_upper_entries(true);
    flush(&machine, 1, page(ADDRESS), true);
    assert!(mmu.load(SPACE, tables.root, ADDRESS).is_err());
    defects.keep_upper_entries(false);
    flush(&machine, 1, page(ADDRESS), true);
    assert_eq!(mmu.load(SPACE, tables.root, ADDRESS), Ok(0xbb));
}

#[test]
fn seeded_defects_lose_flushes() {
    let machine = with_pages(1);
    let mut tables = Tables::new(&machine, FIRST);
    let entry = tables.map(ADDRESS, PAGE_A, ALL);
    let mmu = mmu(&machine, 0);
    mmu.load(SPACE, tables.root, ADDRESS).unwrap();
    entry.store(u64::from(PAGE_B.0) << 12 | ALL, Ordering::Relaxed);
    machine.record_flushes(true);
    // SAFETY: no memory manager lives in this machine.
    unsafe { machine.defects() }.drop_flush_every(2);
    flush(&machine, 1, page(ADDRESS + 4096), false);
    flush(&machine, 1, page(ADDRESS), false);
    assert_eq!(mmu.load(SPACE, tables.root, ADDRESS), Ok(0xaa));
    flush(&machine, 1, page(ADDRESS), false);
    assert_eq!(mmu.load(SPACE, tables.root, ADDRESS), Ok(0xbb));
    let log = machine.take_flushes();
    assert_eq!(
        log.iter().map(|flush| flush.dropped).collect::<Vec<_>>(),
        [false, true, false]
    );
    assert_eq!(log[1].request.range, page(ADDRESS));
    assert_eq!(machine.stats().flush_dropped, 1);
}

#[test]
fn faults_are_handled_and_the_access_is_repeated() {
    let machine = with_pages(1);
    let mut tables = Tables::new(&machine, FIRST);
    let root = tables.root;
    let mmu = mmu(&machine, 0);
    let mut reasons = Vec::new();
    let result = mmu.access(SPACE, root, ADDRESS, Access::Write, 0x77, &mut |fault| {
        // The handler may flush its own CPU.
        flush(&machine, 1, None, true);
        let bits = if reasons.is_empty() { P | US } else { ALL };
        tables.map(fault.address, PAGE_A, bits);
        reasons.push(fault.reason);
        Ok::<_, ()>(())
    });
    assert_eq!(result, Ok(0x77));
    assert_eq!(
        reasons,
        [FaultReason::NotPresent { level: 4 }, FaultReason::ReadOnly]
    );
    assert_eq!(word(&machine, PAGE_A, 0).load(Ordering::Relaxed), 0x77);
    let refused = mmu.access(SPACE, root, 0, Access::Read, 0, &mut |fault| {
        Err(fault.reason)
    });
    assert_eq!(
        refused,
        Err(AccessError::Refused(FaultReason::NotPresent { level: 4 }))
    );
}

#[test]
fn a_relaxed_permission_needs_no_flush() {
    let machine = with_pages(1);
    let mut tables = Tables::new(&machine, FIRST);
    let entry = tables.map(ADDRESS, PAGE_A, P | US);
    let mmu = mmu(&machine, 0);
    mmu.load(SPACE, tables.root, ADDRESS).unwrap();
    entry.fetch_or(RW, Ordering::Relaxed);
    // The stale entry causes one fault and is gone.
    assert_eq!(
        reason(mmu.store(SPACE, tables.root, ADDRESS, 1)),
        FaultReason::ReadOnly
    );
    assert_eq!(mmu.store(SPACE, tables.root, ADDRESS, 1), Ok(()));
}

#[test]
fn a_full_tlb_evicts_and_walks_again() {
    let machine = build(MachineConfig {
        tlb: TlbGeometry {
            sets: 2,
            ways: 2,
            upper_entries: 1,
        },
        ..MachineConfig::new(8 * MIB)
    });
    let mut tables = Tables::new(&machine, FIRST);
    for index in 0..32u32 {
        let frame = Pfn(0x400 + index);
        word(&machine, frame, 0).store(u64::from(index), Ordering::Relaxed);
        tables.map(ADDRESS + u64::from(index) * 4096, frame, ALL);
    }
    let mmu = mmu(&machine, 0);
    for _ in 0..2 {
        for index in 0..32 {
            let at = ADDRESS + index * 4096;
            assert_eq!(mmu.load(SPACE, tables.root, at), Ok(index));
        }
    }
    let stats = machine.cpu_stats(CpuId(0));
    assert_eq!(
        (stats.tlb_hits, stats.tlb_misses, stats.evictions),
        (0, 64, 60)
    );
}
