//! Contiguous runs of one table: what is known of all of a run when it ends.

use super::*;

/// First page, of the second table.
const BASE: u64 = 512;

/// Calls `test` with a table of which the first `runs` runs have the hint, from frame 0x400 on.
fn with_runs<F: Format>(runs: usize, test: impl FnOnce(&LockedTable<'_, F>)) {
    let memory = memory();
    let pin = memory.pin();
    let root = Tables::<TestMachine, F>::make_root(&memory, &Fresh, &pin, 7).unwrap();
    // SAFETY: the root was made for the test, of this memory.
    let tables: Tables<'_, TestMachine, F> = unsafe { Tables::new(&memory, &Fresh, &pin, root, 7) };
    let mut made = 0;
    let table = tables.lock_or_make(Vpn(BASE), &mut made).unwrap();
    for index in 0..runs * 16 {
        let frame = Pfn(0x400 + index as u32);
        let leaf = F::leaf(frame, 1, Prot::READ_WRITE, Marks::default());
        table.fill(index, F::contiguous(leaf));
    }
    table.count_made(runs as u32 * 16);
    test(&table);
}

/// What a processor does that has come to the entry.
fn mark<F: Format>(table: &LockedTable<'_, F>, index: usize, marks: Marks) {
    table.update_any(index, Users::Hardware, |entry| F::with_marks(entry, marks));
}

#[test]
fn marks_of_any_entry_are_those_of_all_when_a_run_ends() {
    fn on<F: Format>() {
        with_runs::<F>(3, |table| {
            mark(table, 21, Marks::ACCESSED);
            mark(table, 30, Marks::DIRTY);
            mark(table, 40, Marks::ACCESSED);
            let mut flushed = None;
            assert_eq!(table.end_runs(17..33, |pages| flushed = Some(pages)), 2);
            assert_eq!(flushed, Some(PageRange::new(Vpn(BASE + 16), 32)));
            for index in 0..48 {
                let entry = table.load(index);
                let marks = match index {
                    0..16 => Marks::default(),
                    16..32 => Marks::DIRTY,
                    _ => Marks::ACCESSED,
                };
                assert_eq!(F::marks(entry), marks, "{}: {index}", F::NAME);
                assert_eq!(F::is_contiguous(entry), index < 16);
                assert_eq!(F::frame(entry, 1), Pfn(0x400 + index as u32));
                assert_eq!(F::prot(entry, 1), Prot::READ_WRITE);
            }
        });
    }
    on::<Aarch64_4K>();
    on::<Sv39>();
}

/// While CPUs forget a run, a store by its old translation marks an entry no more, so what was
/// marked until the entries became invalid is all there is.
#[test]
fn entries_of_a_run_that_ends_map_their_frames_without_rights() {
    with_runs::<Aarch64_4K>(2, |table| {
        table.end_runs(3..4, |_| {
            for index in 0..32 {
                let entry = table.load(index);
                assert_eq!(Aarch64_4K::prot(entry, 1).is_none(), index < 16);
                assert!(Aarch64_4K::is_mapped(entry));
                assert_eq!(Aarch64_4K::frame(entry, 1), Pfn(0x400 + index as u32));
            }
        });
    });
}

#[test]
fn where_no_run_is_cut_nothing_is_flushed() {
    with_runs::<Sv39>(1, |table| {
        let never = |pages| panic!("flushes {pages:?}");
        assert_eq!(table.end_runs(16..512, never), 0);
        assert_eq!(table.end_runs(5..5, never), 0);
    });
    with_runs::<X86_64>(1, |table| {
        assert_eq!(table.end_runs(0..512, |_| unreachable!()), 0);
    });
}

#[test]
fn a_use_that_one_entry_shows_may_be_of_any_page_of_the_run() {
    with_runs::<Sv48>(5, |table| {
        mark(table, 20, Marks::DIRTY);
        // Among the next that are looked at together.
        mark(table, 79, Marks::ACCESSED);
        let mut used = Vec::new();
        assert_eq!(
            table.take_used_around(3, &mut |frame| used.push(frame.0)),
            16
        );
        assert_eq!(used, Vec::from_iter(0x410..0x420));
        // The run goes on, and is not used until somebody uses it.
        for index in 16..32 {
            let entry = table.load(index);
            assert!(Sv48::is_contiguous(entry) && !Sv48::marks(entry).accessed);
        }
        assert!(Sv48::marks(table.load(20)).dirty);
        assert_eq!(table.take_used_around(3, &mut |_| panic!("used again")), 0);
        assert_eq!(table.take_used_around(64, &mut |_| ()), 16);
    });
}

#[test]
#[should_panic(expected = "an entry of a run changed alone")]
fn debug_builds_refuse_to_change_one_entry_of_a_run() {
    with_runs::<Aarch64_4K>(1, |table| {
        table.update(4, Users::Hardware, Aarch64_4K::write_protect);
    });
}
