//! RISC-V entries as numbers, written out from the RISC-V Instruction Set
//! Manual, volume II, sections "Sv39" and "Sv48": V is bit 0, R 1, W 2, X 3,
//! U 4, G 5, A 6, D 7, RSW 9:8, PPN 53:10, PBMT 62:61, N 63.

use super::super::*;
use super::Geometry;
use crate::addr::{MemoryType, Pfn, Prot, Vpn};

const RWX: Prot = Prot::READ_WRITE.union(Prot::EXECUTE);
/// Frame 0x12345 in bits 53:10.
const FRAME: u64 = 0x48d_1400;

#[test]
fn a_table_entry_is_valid_and_has_no_rights_or_marks() {
    assert_eq!(Sv39::table_entry(Pfn(0x12345), 2), FRAME | 0x101);
    assert_eq!(Sv48::table_entry(Pfn(0xffff_fffe), 2), 0x3ff_ffff_f901);
    assert_eq!(Sv48::frame(0x3ff_ffff_f901, 3), Pfn(0xffff_fffe));
    assert!(Sv39::is_mapped(FRAME | 0x101) && !Sv39::is_leaf(FRAME | 0x101, 3));
}

#[test]
fn rights_of_a_leaf_are_the_manuals_bits() {
    let leaf = |prot| Sv39::leaf(Pfn(0x12345), 1, prot, Marks::default());
    assert_eq!(leaf(Prot::READ), FRAME | 0x113);
    assert_eq!(leaf(Prot::READ_WRITE), FRAME | 0x117);
    assert_eq!(leaf(Prot::READ_EXECUTE), FRAME | 0x11b);
    assert_eq!(leaf(Prot::EXECUTE), FRAME | 0x119);
    assert_eq!(leaf(RWX), FRAME | 0x11f);
    let none = leaf(Prot::NONE);
    assert_eq!(none, FRAME | 0x110, "hardware finds nothing");
    assert!(Sv39::is_mapped(none) && Sv39::is_leaf(none, 3));
    assert_eq!(Sv39::frame(none, 1), Pfn(0x12345));
    for prot in [
        Prot::NONE,
        Prot::READ,
        Prot::READ_WRITE,
        Prot::EXECUTE,
        Prot::READ_EXECUTE,
        RWX,
    ] {
        assert_eq!(Sv39::prot(leaf(prot), 1), prot);
        assert_eq!(Sv39::is_writable(leaf(prot)), prot.can_write());
    }
}

#[test]
fn stores_without_loads_are_never_made() {
    let reserved = |entry: u64| entry & 1 != 0 && entry & 6 == 4;
    for bits in 0..8 {
        let prot = Prot::from_bits(bits);
        for level in 1..=4 {
            let entry = Sv48::leaf(Pfn(0), level, prot, Marks::DIRTY);
            assert!(!reserved(entry), "{prot:?}");
            for other in 0..8 {
                let changed = Sv48::with_prot(entry, level, Prot::from_bits(other));
                assert!(!reserved(changed), "{prot:?} to {other}");
                assert!(Sv48::is_leaf(changed, level));
            }
            assert!(!reserved(Sv48::write_protect(entry)));
            assert!(Sv48::is_leaf(Sv48::write_protect(entry), level));
        }
    }
    assert_eq!(
        Sv48::prot(Sv48::leaf(Pfn(0), 1, Prot::WRITE, Marks::default()), 1),
        Prot::READ_WRITE
    );
}

#[test]
fn marks_are_bits_6_and_7() {
    let leaf = |marks| Sv48::leaf(Pfn(1), 1, Prot::READ, marks);
    assert_eq!(leaf(Marks::ACCESSED), 0x553);
    assert_eq!(leaf(Marks::DIRTY), 0x5d3);
    assert_eq!(Sv48::with_marks(0x5d3, Marks::default()), 0x513);
    assert_eq!(Sv48::marks(Sv48::write_protect(0x5d7)), Marks::DIRTY);
    assert_eq!(Sv48::write_protect(0x5d7), 0x5d3);
}

#[test]
fn memory_types_are_bits_61_and_62() {
    let leaf = |memory| {
        let prot = Prot::READ_WRITE.with_type(memory);
        Sv39::leaf(Pfn(1), 1, prot, Marks::default())
    };
    assert_eq!(leaf(MemoryType::WriteBack), 0x517);
    assert_eq!(leaf(MemoryType::WriteCombining), 1 << 61 | 0x517, "NC");
    assert_eq!(leaf(MemoryType::Uncached), 2 << 61 | 0x517, "IO");
    for memory in [
        MemoryType::WriteBack,
        MemoryType::WriteCombining,
        MemoryType::Uncached,
    ] {
        assert_eq!(Sv39::prot(leaf(memory), 1).memory_type(), memory);
    }
}

#[test]
fn changing_rights_keeps_frame_and_marks() {
    let entry = Sv48::leaf(Pfn(0x40000), 4, Prot::READ_WRITE, Marks::DIRTY);
    let none = Sv48::with_prot(entry, 4, Prot::NONE);
    assert_eq!(none & 0xf, 0);
    assert_eq!(
        (Sv48::frame(none, 4), Sv48::marks(none)),
        (Pfn(0x40000), Marks::DIRTY)
    );
    assert_eq!(Sv48::with_prot(none, 4, Prot::READ_WRITE), entry);
}

#[test]
fn indices_are_nine_bits_of_the_page_number() {
    // Address 0x7fff_dead_b000 in Sv48; bits 38:0 of it in Sv39.
    let page = Vpn(0x7_fffd_eadb);
    let index = [4, 3, 2, 1].map(|level| Sv48::index(page, level));
    assert_eq!(index, [0xff, 0x1ff, 0xf5, 0xdb]);
    let index = [3, 2, 1].map(|level| Sv39::index(page, level));
    assert_eq!(index, [0x1ff, 0xf5, 0xdb]);
    assert_eq!((Sv39::LEVELS, Sv48::LEVELS), (3, 4));
    assert_eq!(Sv39::USER_END.0 << Sv39::FRAME_SHIFT, 1 << 38);
    assert_eq!(Sv48::USER_END.0 << Sv48::FRAME_SHIFT, 1 << 47);
}

/// With V clear all other bits are software's.
#[test]
fn a_page_in_swap_has_no_valid_bit() {
    let page = |slot, exclusive| Swapped {
        slot,
        exclusive,
        clean: false,
    };
    assert_eq!(Sv39::swap(page(0, false)), 0x200);
    assert_eq!(Sv39::swap(page(0x12345, true)), FRAME | 0x280);
    assert_eq!(
        Sv48::swap(page(Swapped::MAX_SLOT, false)),
        0x3_ffff_ffff_fe00
    );
    assert_eq!(Sv48::swapped(FRAME | 0x280), page(0x12345, true));
    assert_eq!(Sv39::decode(0x200, 1), Entry::Swap(page(0, false)));
}
