//! PAE entries as numbers, written out from Intel's manual, volume 3A, tables 4-8 to
//! 4-11: in an entry of the root P is bit 0, PWT 3, PCD 4, bits 11:9 are ignored, and
//! 2:1, 8:5 and 63:M reserved; below it R/W is 1, U/S 2, A 5, D 6, PS 7, XD 63.

use super::*;
use crate::addr::MemoryType;

type Pae<'a> = Tables<'a, TestMachine, X86Pae>;

const XD: u64 = 0x8000_0000_0000_0000;

#[test]
fn an_entry_of_the_root_is_present_and_nothing_else() {
    assert_eq!(X86Pae::table_entry(Pfn(0x12345), 3), 0x1234_5201);
    assert_eq!(
        X86Pae::table_entry(Pfn(0xff_ffff), 3),
        0xf_ffff_f201,
        "36 bits"
    );
    let reserved = 0b1_1110_0110 | XD;
    for bit in 0..32 {
        let entry = X86Pae::table_entry(Pfn(1 << bit), 3);
        assert_eq!(entry & reserved, 0);
        assert_eq!(X86Pae::frame(entry, 3), Pfn(1 << bit));
    }
    assert!(X86Pae::is_mapped(0x201) && !X86Pae::is_leaf(0x201, 3));
}

#[test]
fn an_entry_of_a_directory_is_present_writable_user_and_accessed() {
    assert_eq!(X86Pae::table_entry(Pfn(0x12345), 2), 0x1234_5227);
}

#[test]
fn leaves_are_the_manuals_bits() {
    let leaf = |level, prot| X86Pae::leaf(Pfn(0x12200), level, prot, Marks::default());
    let rwx = Prot::READ_WRITE.union(Prot::EXECUTE);
    assert_eq!(leaf(1, Prot::READ), XD | 0x1220_0205);
    assert_eq!(leaf(1, Prot::READ_WRITE), XD | 0x1220_0207);
    assert_eq!(leaf(1, Prot::READ_EXECUTE), 0x1220_0205);
    assert_eq!(leaf(1, rwx), 0x1220_0207);
    assert_eq!(leaf(2, rwx), 0x1220_0287, "2 MiB");
    assert_eq!(leaf(1, Prot::NONE) & 1, 0, "hardware finds nothing");
    let combining = Prot::READ_EXECUTE.with_type(MemoryType::WriteCombining);
    assert_eq!(leaf(1, combining), 0x1220_020d, "PWT");
    let uncached = Prot::READ_EXECUTE.with_type(MemoryType::Uncached);
    assert_eq!(leaf(1, uncached), 0x1220_021d, "PCD and PWT");
    let dirty = X86Pae::leaf(Pfn(0x12200), 2, rwx, Marks::DIRTY);
    assert_eq!(dirty, 0x1220_02e7);
    assert_eq!(X86Pae::write_protect(dirty), 0x1220_02e5);
}

#[test]
fn addresses_have_32_bits_of_which_programs_have_3_gib() {
    // Address 0xbf5e_ab00: indices 2, 506, 0x1ea from the root down.
    let page = Vpn(0xbf5e_ab00 >> 12);
    let index = [3, 2, 1].map(|level| X86Pae::index(page, level));
    assert_eq!(index, [2, 506, 0x1ea]);
    assert_eq!(X86Pae::USER_END, Vpn(0xc000_0000 >> 12));
    assert_eq!((X86Pae::LEVELS, X86Pae::MAX_LEAF_LEVEL), (3, 2));
    assert_eq!(
        [2, 3].map(X86Pae::pages_at),
        [512, 262_144],
        "2 MiB and 1 GiB"
    );
}

/// Processors have read the root's entries when it was loaded, and would not see others.
#[test]
fn a_root_has_its_directories_from_the_beginning_and_keeps_them() {
    let memory = memory();
    let pin = memory.pin();
    let root = Pae::make_root(&memory, &Fresh, &pin, 7).unwrap();
    let entries = || table_words::<X86Pae, TestMachine>(&memory, root);
    let read = || -> Vec<u64> {
        let words = entries().iter().map(|word| word.load(Ordering::Relaxed));
        words.collect()
    };
    let loaded = read();
    assert!(loaded[..3].iter().all(|&entry| X86Pae::is_mapped(entry)));
    assert!(
        loaded[3..].iter().all(|&entry| entry == 0),
        "the kernel's, and none"
    );
    // SAFETY: the root was made for the test, of this memory.
    let tables: Pae<'_> = unsafe { Tables::new(&memory, &Fresh, &pin, root, 7) };
    let pages = [0, 511, 512, 1 << 18, (2 << 18) + 77, X86Pae::USER_END.0 - 1];
    for (frame, page) in (0x100..).zip(pages) {
        let table = tables.lock_or_make(Vpn(page), &mut 0).unwrap();
        table.fill(
            X86Pae::index(Vpn(page), 1),
            X86Pae::leaf(Pfn(frame), 1, Prot::READ, Marks::default()),
        );
        table.count_made(1);
    }
    assert_eq!(read(), loaded);
    assert_eq!(used(&memory), 4 + 5);
    let mut gather = gather(&memory, &pin);
    for span in tables.spans(PageRange::new(Vpn(0), X86Pae::USER_END.0)) {
        for index in span.first..span.first + span.count {
            if span.table.load(index) != 0 {
                span.table.clear(index, Users::Hardware);
                span.table.count_cleared(1);
            }
        }
        tables.unlink_if_empty(span.table, &mut gather);
    }
    assert_eq!(gather.tables_freed(), 5);
    drop(gather);
    assert_eq!((used(&memory), read()), (4, loaded));
}

/// A cursor lets go of the tables below a directory one after the other, and of the
/// last one too, but not of the directory.
#[test]
fn a_cursor_leaves_an_empty_directory_linked() {
    let memory = memory();
    let pin = memory.pin();
    let root = Pae::make_root(&memory, &Fresh, &pin, 7).unwrap();
    // SAFETY: the root was made for the test, of this memory.
    let tables: Pae<'_> = unsafe { Tables::new(&memory, &Fresh, &pin, root, 7) };
    let mut cursor = Cursor::new(&tables);
    let pages = (0..4).map(|table| Vpn(table * 512 + 9));
    for page in pages.clone() {
        let leaf = X86Pae::leaf(Pfn(0x100), 1, Prot::READ, Marks::default());
        assert_eq!(cursor.map(page, leaf), Ok(true));
    }
    assert_eq!((cursor.made(), used(&memory)), (4, 8));
    cursor.leave();
    let mut gather = gather(&memory, &pin);
    for page in pages {
        let table = cursor.find(page).unwrap();
        assert_eq!(table.level(), 1);
        table.clear(9, Users::Hardware);
        table.count_cleared(1);
        cursor.unlink_if_empty(&mut gather);
    }
    cursor.leave();
    drop(gather);
    assert_eq!(used(&memory), 4);
    assert_eq!(tables.peek(Vpn(9)), (0, 2));
}
