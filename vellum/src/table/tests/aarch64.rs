//! AArch64 entries as numbers, written out from the Arm Architecture Reference
//! Manual for A-profile, section D8.3, VMSAv8-64 stage 1: valid is bit 0, table
//! or page 1, AttrIndx 4:2, AP\[1\] 6, AP\[2\] 7, SH 9:8, AF 10, nG 11, DBM 51,
//! PXN 53, UXN 54, software 58:55, PXNTable 59; the address is 47:12, 47:14
//! or 47:16.

use super::super::*;
use super::Geometry;
use crate::addr::{MemoryType, Pfn, Prot, Vpn};

const RWX: Prot = Prot::READ_WRITE.union(Prot::EXECUTE);

/// Bits 0, 1, SH = inner shareable (9:8 = 3), nG (11), PXN (53), and the
/// software bit 56 that marks what is mapped.
const PAGE: u64 = 0x0120_0000_0000_0b03;
const UXN: u64 = 1 << 54;
const DBM: u64 = 1 << 51;
const USER: u64 = 0x40;
const READ_ONLY: u64 = 0x80;
const AF: u64 = 0x400;

fn leaf(prot: Prot, marks: Marks) -> u64 {
    Aarch64_4K::leaf(Pfn(0x12345), 1, prot, marks)
}

#[test]
fn a_table_entry_is_valid_and_never_executable_for_the_kernel() {
    let bits = 1 << 59 | 1 << 56 | 3;
    assert_eq!(Aarch64_4K::table_entry(Pfn(0x12345), 2), bits | 0x1234_5000);
    assert_eq!(
        Aarch64_16K::table_entry(Pfn(0x12345), 2),
        bits | 0x48d1_4000
    );
    assert_eq!(
        Aarch64_64K::table_entry(Pfn(0x12345), 2),
        bits | 0x1_2345_0000
    );
    let last = Pfn(0xffff_fffe);
    assert_eq!(
        Aarch64_64K::table_entry(last, 2),
        bits | 0xffff_fffe_0000,
        "the highest frame fits below bit 48"
    );
    assert_eq!(
        Aarch64_64K::frame(Aarch64_64K::table_entry(last, 2), 2),
        last
    );
    assert!(!Aarch64_4K::is_leaf(Aarch64_4K::table_entry(last, 2), 2));
    assert!(Aarch64_4K::is_mapped(Aarch64_4K::table_entry(Pfn(0), 2)));
}

#[test]
fn rights_of_a_leaf_are_the_manuals_bits() {
    let clean = |prot| leaf(prot, Marks::default());
    let frame = 0x1234_5000;
    assert_eq!(clean(Prot::READ), PAGE | frame | UXN | USER | READ_ONLY);
    assert_eq!(clean(Prot::READ_EXECUTE), PAGE | frame | USER | READ_ONLY);
    assert_eq!(
        clean(Prot::EXECUTE),
        PAGE | frame | READ_ONLY,
        "no data for programs"
    );
    let writable = PAGE | frame | USER | READ_ONLY | DBM;
    assert_eq!(
        clean(Prot::READ_WRITE),
        writable | UXN,
        "clean: AP[2] is set"
    );
    assert_eq!(clean(Prot::WRITE), writable | UXN, "stores imply loads");
    assert_eq!(clean(RWX), writable);
    let none = clean(Prot::NONE);
    assert_eq!(none & 1, 0, "hardware finds nothing");
    assert!(Aarch64_4K::is_mapped(none) && !Aarch64_4K::is_writable(none));
    assert_eq!(Aarch64_4K::frame(none, 1), Pfn(0x12345));
    for prot in [
        Prot::NONE,
        Prot::READ,
        Prot::READ_WRITE,
        Prot::EXECUTE,
        Prot::READ_EXECUTE,
        RWX,
    ] {
        for marks in [Marks::default(), Marks::ACCESSED, Marks::DIRTY] {
            let entry = leaf(prot, marks);
            assert_eq!(Aarch64_4K::prot(entry, 1), prot);
            assert_eq!(Aarch64_4K::is_writable(entry), prot.can_write());
            assert_eq!(Aarch64_4K::marks(entry), marks, "{prot:?}");
        }
    }
}

#[test]
fn a_writable_leaf_is_dirty_when_ap2_is_clear() {
    let dirty = PAGE | 0x1234_5000 | UXN | USER | DBM | AF;
    assert_eq!(leaf(Prot::READ_WRITE, Marks::DIRTY), dirty);
    let clean = leaf(Prot::READ_WRITE, Marks::ACCESSED);
    assert_eq!(clean, dirty | READ_ONLY);
    // What hardware does on a store, with TCR_EL1.HD set.
    assert!(Aarch64_4K::marks(clean & !READ_ONLY).dirty);
    assert!(
        Aarch64_4K::is_writable(clean),
        "clean, and hardware lets stores through"
    );
    assert_eq!(
        Aarch64_4K::with_marks(dirty, Marks::default()),
        dirty & !AF | READ_ONLY
    );
}

#[test]
fn taking_the_right_to_store_keeps_the_dirty_mark_in_bit_55() {
    let dirty = leaf(Prot::READ_WRITE, Marks::DIRTY);
    let protected = Aarch64_4K::write_protect(dirty);
    assert_eq!(protected, dirty & !DBM | READ_ONLY | 1 << 55);
    assert_eq!(Aarch64_4K::prot(protected, 1), Prot::READ);
    assert_eq!(Aarch64_4K::marks(protected), Marks::DIRTY);
    assert_eq!(Aarch64_4K::write_protect(protected), protected);
    assert_eq!(
        Aarch64_4K::with_prot(protected, 1, Prot::READ_WRITE),
        dirty,
        "and it comes back as the hardware's"
    );
    assert!(!Aarch64_4K::marks(Aarch64_4K::with_marks(protected, Marks::ACCESSED)).dirty);
    let clean = Aarch64_4K::write_protect(leaf(Prot::READ_WRITE, Marks::ACCESSED));
    assert_eq!(clean & (1 << 55), 0);
    assert_eq!(Aarch64_4K::marks(clean), Marks::ACCESSED);
}

#[test]
fn a_leaf_without_rights_keeps_frame_and_marks() {
    for level in [1, 2] {
        let entry = Aarch64_16K::leaf(Pfn(0x800), level, Prot::READ_WRITE, Marks::DIRTY);
        let none = Aarch64_16K::with_prot(entry, level, Prot::NONE);
        assert_eq!(none & 1, 0);
        assert!(Aarch64_16K::is_mapped(none) && Aarch64_16K::is_leaf(none, level));
        assert_eq!(Aarch64_16K::prot(none, level), Prot::NONE);
        assert_eq!(Aarch64_16K::frame(none, level), Pfn(0x800));
        assert_eq!(Aarch64_16K::marks(none), Marks::DIRTY);
        assert_eq!(Aarch64_16K::with_prot(none, level, Prot::READ_WRITE), entry);
    }
}

#[test]
fn blocks_have_bit_1_clear() {
    let block = Aarch64_4K::leaf(Pfn(0x40000), 2, Prot::READ, Marks::ACCESSED);
    assert_eq!(block, PAGE & !2 | 0x4000_0000 | UXN | USER | READ_ONLY | AF);
    assert!(Aarch64_4K::is_leaf(block, 2) && Aarch64_4K::is_leaf(block, 3));
    let block = Aarch64_16K::leaf(Pfn(0x800), 2, Prot::READ, Marks::ACCESSED);
    assert_eq!(block & 0xffff_ffff_c000, 0x200_0000, "32 MiB");
    let block = Aarch64_64K::leaf(Pfn(0x2000), 2, Prot::READ, Marks::ACCESSED);
    assert_eq!(block & 0xffff_ffff_0000, 0x2000_0000, "512 MiB");
}

#[test]
fn memory_types_select_attributes_of_mair() {
    let leaf = |memory| leaf(Prot::READ.with_type(memory), Marks::default());
    for (memory, index, attribute) in [
        (MemoryType::WriteBack, 0, 0xff),
        (MemoryType::WriteCombining, 1, 0x44),
        (MemoryType::Uncached, 2, 0x00),
    ] {
        let entry = leaf(memory);
        assert_eq!(entry >> 2 & 7, index);
        assert_eq!(MAIR >> (8 * index) & 0xff, attribute);
        assert_eq!(Aarch64_4K::prot(entry, 1).memory_type(), memory);
    }
}

/// The ranges of address bits that the manual's tables of the translation
/// stages give for each granule.
#[test]
fn each_granule_has_its_geometry() {
    // Address bits 47:39, 38:30, 29:21, 20:12.
    let page = Vpn(0xffff_dead_b000 >> 12);
    let index = [4, 3, 2, 1].map(|level| Aarch64_4K::index(page, level));
    assert_eq!(index, [0x1ff, 0x1ff, 0xf5, 0xdb]);
    assert_eq!((Aarch64_4K::LEVELS, Aarch64_4K::ENTRIES), (4, 512));
    assert_eq!(Aarch64_4K::MAX_LEAF_LEVEL, 3);
    // Bit 47, then 46:36, 35:25, 24:14.
    let page = Vpn(0xffff_dead_8000 >> 14);
    let index = [4, 3, 2, 1].map(|level| Aarch64_16K::index(page, level));
    assert_eq!(index, [1, 0x7ff, 0x7ef, 0x2b6]);
    assert_eq!((Aarch64_16K::LEVELS, Aarch64_16K::ENTRIES), (4, 2048));
    assert_eq!(Aarch64_16K::pages_at(2) << 14, 32 << 20);
    assert_eq!(Aarch64_16K::MAX_LEAF_LEVEL, 2);
    assert_eq!(Aarch64_16K::index(Vpn(Aarch64_16K::USER_END.0 - 1), 4), 1);
    // Bits 47:42, 41:29, 28:16.
    let page = Vpn(0xffff_dead_0000 >> 16);
    let index = [3, 2, 1].map(|level| Aarch64_64K::index(page, level));
    assert_eq!(index, [0x3f, 0x1ffe, 0x1ead]);
    assert_eq!((Aarch64_64K::LEVELS, Aarch64_64K::ENTRIES), (3, 8192));
    assert_eq!(Aarch64_64K::pages_at(2) << 16, 512 << 20);
    assert_eq!(Aarch64_64K::index(Vpn(Aarch64_64K::USER_END.0 - 1), 3), 63);
    for end in [
        Aarch64_4K::USER_END.0 << 12,
        Aarch64_16K::USER_END.0 << 14,
        Aarch64_64K::USER_END.0 << 16,
    ] {
        assert_eq!(end, 1 << 48);
    }
}

/// With bit 0 clear all other bits are software's.
#[test]
fn a_page_in_swap_has_no_valid_bit() {
    let page = |slot, exclusive| Swapped {
        slot,
        exclusive,
        clean: false,
    };
    assert_eq!(Aarch64_4K::swap(page(0, false)), 1 << 57);
    assert_eq!(Aarch64_16K::swap(page(0x12345, true)), 0x600_0000_1234_5000);
    assert_eq!(
        Aarch64_64K::swap(page(Swapped::MAX_SLOT, false)),
        0x20f_ffff_ffff_f000
    );
    assert_eq!(
        Aarch64_64K::swapped(0x600_0000_1234_5000),
        page(0x12345, true)
    );
    assert_eq!(Aarch64_4K::decode(1 << 57, 1), Entry::Swap(page(0, false)));
}
