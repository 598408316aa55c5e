//! x86-64 entries as numbers, written out from the AMD64 Architecture
//! Programmer's Manual, volume 2, section 5.4: P is bit 0, R/W 1, U/S 2,
//! PWT 3, PCD 4, A 5, D 6, PS 7, the frame bits 12 to 51, NX 63. Bit 9 is one
//! of those left to software.

use super::super::*;
use super::Geometry;
use crate::addr::{MemoryType, Pfn, Prot, Vpn};

const NX: u64 = 0x8000_0000_0000_0000;

#[test]
fn a_table_entry_is_present_writable_user_and_accessed() {
    assert_eq!(X86_64::table_entry(Pfn(0x12345), 2), 0x1234_5227);
    assert_eq!(X86_64::table_entry(Pfn(0xffff_fffe), 4), 0xfff_ffff_e227);
    assert!(X86_64::is_mapped(0x227) && !X86_64::is_leaf(0x227, 2));
    assert_eq!(X86_64::frame(0x1234_5227, 2), Pfn(0x12345));
}

#[test]
fn rights_of_a_leaf_are_the_manuals_bits() {
    let leaf = |prot| X86_64::leaf(Pfn(0x12345), 1, prot, Marks::default());
    let rwx = Prot::READ_WRITE.union(Prot::EXECUTE);
    assert_eq!(leaf(Prot::READ), NX | 0x1234_5205);
    assert_eq!(leaf(Prot::READ_WRITE), NX | 0x1234_5207);
    assert_eq!(leaf(Prot::READ_EXECUTE), 0x1234_5205);
    assert_eq!(leaf(rwx), 0x1234_5207);
    assert_eq!(leaf(Prot::NONE) & 1, 0, "hardware finds nothing");
    assert!(X86_64::is_mapped(leaf(Prot::NONE)));
    assert_eq!(X86_64::frame(leaf(Prot::NONE), 1), Pfn(0x12345));
    for prot in [
        Prot::NONE,
        Prot::READ,
        Prot::READ_WRITE,
        Prot::READ_EXECUTE,
        rwx,
    ] {
        assert_eq!(X86_64::prot(leaf(prot), 1), prot);
        assert_eq!(X86_64::is_writable(leaf(prot)), prot.can_write());
    }
}

#[test]
fn marks_are_bits_5_and_6() {
    let leaf = |marks| X86_64::leaf(Pfn(1), 1, Prot::READ, marks);
    assert_eq!(leaf(Marks::ACCESSED), NX | 0x1225);
    assert_eq!(leaf(Marks::DIRTY), NX | 0x1265);
    assert_eq!(
        X86_64::marks(0x1245),
        Marks {
            accessed: false,
            dirty: true
        }
    );
    assert_eq!(
        X86_64::with_marks(NX | 0x1265, Marks::default()),
        NX | 0x1205
    );
    assert_eq!(X86_64::with_marks(NX | 0x1205, Marks::DIRTY), NX | 0x1265);
}

#[test]
fn larger_leaves_have_bit_7() {
    let leaf = |level| X86_64::leaf(Pfn(0x40000), level, Prot::READ_WRITE, Marks::default());
    assert_eq!(leaf(1), NX | 0x4000_0207);
    assert_eq!(leaf(2), NX | 0x4000_0287);
    assert_eq!(leaf(3), NX | 0x4000_0287);
    assert!(
        X86_64::is_leaf(leaf(2), 2) && X86_64::is_leaf(leaf(3), 3) && X86_64::is_leaf(leaf(1), 1)
    );
    assert_eq!(X86_64::frame(leaf(3), 3), Pfn(0x40000));
}

#[test]
fn memory_types_select_pat_entries_by_pcd_and_pwt() {
    let leaf = |memory| {
        X86_64::leaf(
            Pfn(1),
            1,
            Prot::READ_EXECUTE.with_type(memory),
            Marks::default(),
        )
    };
    assert_eq!(leaf(MemoryType::WriteBack), 0x1205);
    assert_eq!(leaf(MemoryType::WriteCombining), 0x120d);
    assert_eq!(leaf(MemoryType::Uncached), 0x121d);
    for memory in [
        MemoryType::WriteBack,
        MemoryType::WriteCombining,
        MemoryType::Uncached,
    ] {
        assert_eq!(X86_64::prot(leaf(memory), 1).memory_type(), memory);
    }
}

#[test]
fn changing_rights_keeps_frame_marks_and_size() {
    let entry = X86_64::leaf(Pfn(0x40000), 2, Prot::READ_WRITE, Marks::DIRTY);
    assert_eq!(X86_64::write_protect(entry), NX | 0x4000_02e5);
    let none = X86_64::with_prot(entry, 2, Prot::NONE);
    assert_eq!(none & 1, 0);
    assert!(X86_64::is_mapped(none) && X86_64::is_leaf(none, 2));
    assert_eq!(
        (X86_64::frame(none, 2), X86_64::marks(none)),
        (Pfn(0x40000), Marks::DIRTY)
    );
    assert_eq!(X86_64::with_prot(none, 2, Prot::READ_WRITE), entry);
}

/// Processors with the flaw L1TF look up the address of such an entry in their first-level cache.
#[test]
fn an_entry_without_rights_holds_no_address_that_memory_has() {
    const UPPER_HALF: u64 = 1 << 51;
    for level in [1, 2, 3] {
        for frame in [Pfn(0), Pfn(0x40000), Pfn(0x8000_0000)] {
            let open = X86_64::leaf(frame, level, Prot::READ_WRITE, Marks::DIRTY);
            assert_eq!(open & UPPER_HALF, 0, "{open:#x}");
            let closed = [
                X86_64::leaf(frame, level, Prot::NONE, Marks::DIRTY),
                X86_64::with_prot(open, level, Prot::NONE),
                X86_64::write_protect(X86_64::with_prot(open, level, Prot::NONE)),
            ];
            for entry in closed {
                assert_ne!(entry & UPPER_HALF, 0, "{entry:#x}");
                assert_eq!(X86_64::frame(entry, level), frame);
                assert_eq!(X86_64::with_prot(entry, level, Prot::READ_WRITE), open);
            }
        }
    }
}

#[test]
fn indices_are_nine_bits_of_the_page_number() {
    // Address 0x7fff_dead_b000: indices 255, 511, 245, 219 from the root down.
    let page = Vpn(0x7_fffd_eadb);
    let index = [4, 3, 2, 1].map(|level| X86_64::index(page, level));
    assert_eq!(index, [0xff, 0x1ff, 0xf5, 0xdb]);
    assert_eq!([1, 2, 3].map(X86_64::pages_at), [1, 512, 262_144]);
    assert_eq!(X86_64::table_base(page, 1), Vpn(0x7_fffd_ea00));
    assert_eq!((X86_64::FRAME_SIZE, X86_64::ENTRIES), (4096, 512));
}

/// Intel's manual, volume 3A, section 4.5: with CR4.LA57 the fifth level is
/// selected by bits 56:48, and its entries have the bits of those below.
#[test]
fn five_levels_add_nine_bits_and_change_no_entry() {
    let page = Vpn(0xab_7fff_dead_b000 >> 12);
    let index = [5, 4, 3, 2, 1].map(|level| X86_64La57::index(page, level));
    assert_eq!(index, [0xab, 0xff, 0x1ff, 0xf5, 0xdb]);
    let end = |bits: u32| Vpn((1 << (bits - 12)) - 1);
    assert_eq!(X86_64La57::USER_END, end(56), "but for the last page");
    assert_eq!(X86_64::USER_END, end(47), "but for the last page");
    assert_eq!((X86_64La57::LEVELS, X86_64La57::MAX_LEAF_LEVEL), (5, 3));
    let leaf = X86_64La57::leaf(Pfn(0x12345), 1, Prot::READ_WRITE, Marks::DIRTY);
    assert_eq!(leaf, NX | 0x1234_5267);
    assert_eq!(X86_64La57::table_entry(Pfn(0x12345), 5), 0x1234_5227);
}

/// With P clear a processor ignores all other bits. Bits 9 to 11 are ours, and a frame is in
/// bits 12 to 51, where the slot stands inverted.
#[test]
fn a_page_in_swap_has_no_present_bit_and_a_slot_that_is_no_memory() {
    let page = |slot, exclusive| Swapped {
        slot,
        exclusive,
        clean: false,
    };
    assert_eq!(X86_64::swap(page(0, false)), 0xf_ffff_ffff_f400);
    assert_eq!(X86_64::swap(page(0x1234, true)), 0xf_ffff_fedc_bc00);
    assert_eq!(X86_64::swap(page(Swapped::MAX_SLOT, true)), 0xc00);
    assert_eq!(X86_64La57::swap(page(1, false)), 0xf_ffff_ffff_e400);
    assert_eq!(X86Pae::swap(page(1, true)), 0xf_ffff_ffff_ec00);
    assert_eq!(X86_64::swapped(0xf_ffff_fedc_bc00), page(0x1234, true));
    assert_eq!(
        X86_64::decode(0xf_ffff_ffff_e400, 1),
        Entry::Swap(page(1, false))
    );
}
