//! Contiguous runs: which entries have the hint, and that none keeps it that says something
//! else than the rest.

use super::*;
use crate::platform::Flush;
use crate::rmap::Family;
use crate::swap::SwapArea;
use crate::sync::Unpinned;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::table::{Aarch64_4K, Format, Sv39, Sv48};

/// First page of a range that is aligned to every folio.
const BASE: u64 = 0x10000;
const RUN: u64 = 16;

type World<F> = Vm<TestMachine, F, Family>;

fn world<F: Format>(design: &str, frames: u32) -> (World<F>, SpaceId) {
    run_on(0);
    let design = Design::parse(design).unwrap();
    let vm = Vm::new(TestMachine::simple(2, frames), design).unwrap();
    let area = SwapArea::new(7, 100);
    vm.swap_on(area).unwrap();
    let space = vm.begin_space().unwrap();
    let request = MapRequest::anonymous(8192, RW).at(Placement::Fixed(Vpn(BASE)));
    vm.map(space, &request).unwrap();
    (vm, space)
}

fn store<F: Format>(vm: &World<F>, space: SpaceId, page: u64) {
    vm.fault(space, (BASE + page) << 12, Access::Write).unwrap();
}

/// The pages before `end` whose entries have the hint.
fn hinted<F: Format>(vm: &World<F>, space: SpaceId, end: u64) -> Vec<u64> {
    let pin = vm.pin();
    let tables = vm.tables(&pin, vm.find_space(space).unwrap());
    let has_hint = |page: &u64| {
        let (entry, level) = tables.peek(Vpn(BASE + page));
        level == 1 && F::is_mapped(entry) && F::is_contiguous(entry)
    };
    (0..end).filter(has_hint).collect()
}

fn frames<F: Format>(vm: &World<F>, space: SpaceId, end: u64) -> Vec<Option<Pfn>> {
    let frame = |page| {
        vm.translate(space, Vpn(BASE + page))
            .map(|(frame, _)| frame)
    };
    (0..end).map(frame).collect()
}

fn end<F: Format>(vm: &World<F>, space: SpaceId) {
    vm.audit().unwrap();
    assert_eq!(vm.exit(space), Ok(true));
    assert_eq!(vm.audit().unwrap().frames.of(Kind::Anonymous), 0);
}

/// The words of a table as they are in memory.
fn words<F: Format>(vm: &World<F>, table: Pfn) -> Vec<u64> {
    let bytes = vm.platform().peek(table).chunks_exact(8);
    let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap());
    bytes.map(word).collect()
}

fn table_of<F: Format>(vm: &World<F>, space: SpaceId, page: u64) -> Pfn {
    let pin = vm.pin();
    let tables = vm.tables(&pin, vm.find_space(space).unwrap());
    tables.leaf_table(Vpn(BASE + page)).unwrap()
}

#[test]
fn folios_of_a_run_or_more_have_the_hint_if_design_and_format_say_so() {
    fn of<F: Format>(design: &str) -> Vec<u64> {
        let (vm, space) = world::<F>(design, 2048);
        store(&vm, space, 37);
        let found = hinted(&vm, space, 512);
        let runs = vm.stats().events.contiguous_runs;
        assert_eq!(runs, found.len() as u64 / RUN, "{design}");
        end(&vm, space);
        found
    }
    let run: Vec<u64> = (32..48).collect();
    let runs: Vec<u64> = (32..64).collect();
    for (design, wanted) in [
        ("folio=64k,contiguous=on", &run[..]),
        ("folio=128k,contiguous=on", &runs[..]),
        ("folio=64k", &[][..]),
        ("folio=32k,contiguous=on", &[][..]),
        ("contiguous=on", &[][..]),
    ] {
        assert_eq!(of::<Aarch64_4K>(design), wanted, "{design}");
        assert_eq!(of::<Sv39>(design), wanted, "{design}");
        assert_eq!(of::<Sv48>(design), wanted, "{design}");
        assert_eq!(of::<X86_64>(design), [0; 0], "{design}");
    }
}

#[test]
fn a_run_that_the_kernel_reads_and_writes_stays_one() {
    fn of<F: Format>() {
        let (vm, space) = world::<F>("folio=64k,contiguous=on", 2048);
        store(&vm, space, 37);
        let address = (BASE + 40) << 12;
        assert_eq!(vm.space(space).write(address + 8, &[7; 8192]), Ok(8192));
        let mut read = [0; 16];
        assert_eq!(vm.space(space).read(address, &mut read), Ok(16));
        assert_eq!(read, [[0; 8], [7; 8]].concat()[..]);
        assert_eq!(hinted(&vm, space, 512), (32..48).collect::<Vec<u64>>());
        end(&vm, space);
    }
    of::<Aarch64_4K>();
    of::<Sv39>();
    of::<Sv48>();
}

#[test]
fn a_scan_for_marks_ends_runs_wherever_they_lie() {
    let (vm, space) = world::<Aarch64_4K>("folio=64k,contiguous=on", 2048);
    for page in [37, 500] {
        store(&vm, space, page);
    }
    let pages = PageRange::new(Vpn(BASE), 512);
    let scanned = vm.scan_space(space, pages).unwrap();
    assert_eq!((scanned.pages, hinted(&vm, space, 512)), (32, Vec::new()));
    end(&vm, space);
}

#[test]
fn a_run_is_written_as_the_manuals_say() {
    let (vm, space) = world::<Aarch64_4K>("folio=64k,contiguous=on", 2048);
    store(&vm, space, 3);
    let first = frames(&vm, space, 1)[0].unwrap();
    assert_eq!(first.0 % 16, 0);
    let arm = words(&vm, table_of(&vm, space, 0));
    for (step, word) in (0..16).zip(arm) {
        assert_eq!(word >> 52 & 1, 1, "contiguous");
        assert_eq!(word >> 12 & 0xf_ffff, u64::from(first.0) + step);
    }
    end(&vm, space);
    let (vm, space) = world::<Sv39>("folio=64k,contiguous=on", 2048);
    store(&vm, space, 3);
    let seen = frames(&vm, space, 16);
    let first = seen[0].unwrap();
    let riscv = words(&vm, table_of(&vm, space, 0));
    for (step, word) in (0..16).zip(riscv) {
        assert_eq!(seen[step as usize], Some(first.offset(step)));
        assert_eq!(word >> 63, 1, "N");
        // All are the same: the page gives the low bits of the frame.
        assert_eq!(word >> 10 & 0xf_ffff, u64::from(first.0) | 8);
    }
    end(&vm, space);
}

/// A call about the first run of three.
type Call<F> = fn(&World<F>, SpaceId);

#[test]
fn a_run_of_which_something_changes_ends_and_its_pages_stay() {
    fn on<F: Format>() {
        let calls: [(&str, Call<F>); 11] = [
            ("unmapping", |vm, space| {
                vm.unmap(space, Vpn(BASE + 3), 2).unwrap();
            }),
            ("dropping", |vm, space| {
                let dropped = vm.advise(space, Vpn(BASE), 15, Advice::DontNeed);
                dropped.unwrap();
            }),
            ("protecting a part", |vm, space| {
                vm.protect(space, Vpn(BASE + 15), 1, Prot::READ).unwrap();
            }),
            ("protecting all", |vm, space| {
                vm.protect(space, Vpn(BASE), 16, Prot::NONE).unwrap();
            }),
            ("moving", |vm, space| {
                let to = RemapPlacement::Fixed(Vpn(BASE + 0x10000));
                vm.remap(space, Vpn(BASE + 15), 1, 1, to).unwrap();
            }),
            ("freeing", |vm, space| {
                vm.advise(space, Vpn(BASE + 7), 1, Advice::Free).unwrap();
            }),
            ("swapping out", |vm, space| {
                vm.advise(space, Vpn(BASE + 7), 1, Advice::PageOut).unwrap();
                assert_eq!(vm.space_stats(space).unwrap().swapped, 1);
            }),
            ("reclaiming", |vm, space| {
                let (page, _) = vm.translate(space, Vpn(BASE + 7)).unwrap();
                vm.memory.frame(page).get();
                vm.page_cache()
                    .swap_out_page(Unpinned::at_door(), page)
                    .unwrap();
                vm.memory.put(&vm.pin(), page);
                assert_eq!(vm.space_stats(space).unwrap().swapped, 1);
            }),
            ("scanning", |vm, space| {
                let pages = PageRange::new(Vpn(BASE + 2), 3);
                let report = vm.scan_space(space, pages).unwrap();
                assert_eq!((report.pages, report.accessed), (3, 3));
            }),
            ("forking", |vm, space| {
                let child = vm.fork(space).unwrap();
                assert_eq!(hinted(vm, child, 512), [0; 0]);
                vm.audit().unwrap();
                assert_eq!(vm.exit(child), Ok(true));
            }),
            ("judging", |vm, space| {
                let (page, _) = vm.translate(space, Vpn(BASE + 1)).unwrap();
                vm.page_cache().mappings.take_marks(&vm.pin(), page);
            }),
        ];
        for (name, call) in calls {
            let (vm, space) = world::<F>("folio=64k,contiguous=on", 2048);
            for page in [3, 20, 40] {
                store(&vm, space, page);
            }
            assert_eq!(hinted(&vm, space, 512).len(), 48);
            let before = frames(&vm, space, 48);
            call(&vm, space);
            vm.audit().unwrap();
            let kept = hinted(&vm, space, 512);
            let left = if name == "forking" { 48 } else { 16 };
            assert_eq!(kept, Vec::from_iter(left..48), "{}: {name}", F::NAME);
            let ends = vm.stats().events.contiguous_ends;
            assert_eq!(ends, left / 16, "{}: {name}", F::NAME);
            for (page, (then, now)) in before.into_iter().zip(frames(&vm, space, 48)).enumerate() {
                assert!(now.is_none() || now == then, "{}: {name}: {page}", F::NAME);
            }
            end(&vm, space);
        }
    }
    on::<Aarch64_4K>();
    on::<Sv39>();
}

#[test]
fn a_run_that_is_unmapped_whole_is_not_taken_apart() {
    fn on<F: Format>() {
        let (vm, space) = world::<F>("folio=64k,contiguous=on", 2048);
        for page in [0, 16, 32, 48] {
            store(&vm, space, page);
        }
        vm.unmap(space, Vpn(BASE), 16).unwrap();
        vm.advise(space, Vpn(BASE + 16), 32, Advice::DontNeed)
            .unwrap();
        vm.audit().unwrap();
        assert_eq!(hinted(&vm, space, 512), Vec::from_iter(48..64));
        end(&vm, space);
        assert_eq!(vm.stats().events.contiguous_ends, 0);
    }
    on::<Aarch64_4K>();
    on::<Sv48>();
}

/// More runs than are gathered before a flush, none beside the next in memory.
#[test]
fn no_flush_comes_in_the_middle_of_a_run() {
    let (vm, space) = world::<Aarch64_4K>("folio=64k,contiguous=on", 16384);
    for run in (0..300).rev() {
        store(&vm, space, run * RUN);
    }
    vm.platform().take_flushes();
    vm.unmap(space, Vpn(BASE), 300 * RUN).unwrap();
    let flushes = vm.platform().take_flushes();
    assert!(flushes.len() > 1);
    for (_, Flush { range, .. }) in flushes {
        let range = range.unwrap();
        assert_eq!((range.start.0 % RUN, range.end.0 % RUN), (0, 0));
    }
    end(&vm, space);
}

/// The table as hardware sees it when CPUs forget a run.
#[test]
fn a_run_is_broken_before_it_is_made_anew() {
    fn on<F: Format + 'static>() {
        let (vm, space) = world::<F>("folio=64k,contiguous=on", 2048);
        let vm = Arc::new(vm);
        store(&vm, space, 3);
        store(&vm, space, 40);
        let table = table_of(&vm, space, 0);
        let flushes = Arc::new(AtomicU64::new(0));
        let valid = Arc::new(AtomicU64::new(0));
        let (weak, counts) = (Arc::downgrade(&vm), (flushes.clone(), valid.clone()));
        vm.platform().on_flush(move || {
            let vm = weak.upgrade().unwrap();
            // Bit 0 in both formats.
            let words = words(&vm, table);
            let now = words[..16].iter().filter(|word| *word & 1 != 0);
            if counts.0.fetch_add(1, Ordering::Relaxed) == 0 {
                counts.1.store(now.count() as u64, Ordering::Relaxed);
            }
        });
        vm.platform().take_flushes();
        vm.protect(space, Vpn(BASE + 5), 1, Prot::READ).unwrap();
        let ranges: Vec<_> = (vm.platform().take_flushes().iter())
            .map(|(_, flush)| flush.range.unwrap())
            .collect();
        let wanted = [(BASE, 16), (BASE + 5, 1)];
        assert_eq!(
            ranges,
            wanted.map(|(at, pages)| PageRange::new(Vpn(at), pages))
        );
        assert_eq!(valid.load(Ordering::Relaxed), 0, "{}", F::NAME);
        assert_eq!(flushes.load(Ordering::Relaxed), 2);
        let now = words(&vm, table);
        assert!(now[..16].iter().all(|word| word & 1 != 0));
        // The other run was left as it was.
        assert_eq!(hinted(&vm, space, 512), Vec::from_iter(32..48));
        vm.platform().on_flush(|| {});
        end(&vm, space);
    }
    on::<Aarch64_4K>();
    on::<Sv39>();
}

/// Several runs of a table lose the hint by one flush.
#[test]
fn a_call_about_many_runs_flushes_once_for_each_table() {
    let (vm, space) = world::<Sv48>("folio=1m,contiguous=on", 4096);
    for page in [0, 256, 512, 768] {
        store(&vm, space, page);
    }
    assert_eq!(hinted(&vm, space, 1024).len(), 1024);
    vm.platform().take_flushes();
    vm.advise(space, Vpn(BASE + 5), 1000, Advice::Free).unwrap();
    let flushes = vm.platform().take_flushes();
    // And one for the marks.
    assert_eq!(flushes.len(), 3);
    assert_eq!(vm.stats().events.contiguous_ends, 63);
    end(&vm, space);
}
