//! Files in memory that grow by writes: runs of frames set aside for the range at their end,
//! and the superpages that these become.

use super::*;
use crate::frame::{FailAt, Site};
use crate::rmap::Family;
use crate::space::{FileError, FileRequest};

const BASE: u64 = 0x10000;
const PAGES: u64 = 512;
const PAGE: u64 = 4096;

fn vm_of(design: &str) -> TestVm<Family> {
    vm_with::<Family>(design, 8192)
}

/// What a page is filled with.
fn byte_of(page: u64) -> u8 {
    (page % 251) as u8 + 1
}

fn append(vm: &TestVm<Family>, file: ObjectId, page: u64) {
    let bytes = [byte_of(page); PAGE as usize];
    assert_eq!(
        vm.page_cache().append(file, &[&bytes]),
        Ok((page * PAGE, PAGE as usize))
    );
}

fn byte(vm: &TestVm<Family>, file: ObjectId, page: u64) -> u8 {
    let mut byte = [0];
    assert_eq!(
        vm.page_cache()
            .read_at(file, page * PAGE + 9, &mut [&mut byte]),
        Ok(1)
    );
    byte[0]
}

/// Superpages that a mapping of the first two ranges of a file has once it is used.
fn superpages(vm: &TestVm<Family>, file: ObjectId) -> u64 {
    let before = vm.stats().events.superpage_maps;
    let space = vm.begin_space().unwrap();
    let request = MapRequest::object(file, 0, 2 * PAGES, RW).shared();
    map(vm, space, BASE, request);
    for page in [5, PAGES + 7] {
        // Past the end of a shorter file there is none.
        let _ = vm.fault(space, (BASE + page) << 12, Access::Read);
    }
    vm.audit().unwrap();
    vm.exit(space).unwrap();
    vm.stats().events.superpage_maps - before
}

fn unused(vm: &TestVm<Family>) -> u64 {
    vm.stats().frames.reservations.unused
}

#[test]
fn a_file_that_grows_page_by_page_has_superpages() {
    for (design, expected, runs) in [
        ("huge=always", 2, 3),
        ("huge=within_size", 0, 0),
        ("huge=advise", 0, 0),
        ("huge=never", 0, 0),
    ] {
        let vm = vm_of(design);
        let mount = vm.page_cache().begin_mount(u64::MAX).unwrap();
        let file = vm
            .page_cache()
            .begin_file(&FileRequest::in_mount(mount))
            .unwrap();
        for page in 0..2 * PAGES + 9 {
            append(&vm, file, page);
            if page % 300 == 0 {
                vm.audit().unwrap();
            }
            // What is set aside counts against no limit.
            assert_eq!(vm.page_cache().mount_stats(mount).unwrap().used, page + 1);
        }
        assert_eq!(vm.stats().events.reservations, runs, "{design}");
        assert_eq!(superpages(&vm, file), expected, "{design}");
        for page in 0..2 * PAGES + 9 {
            assert_eq!(byte(&vm, file, page), byte_of(page));
        }
        assert_eq!(unused(&vm) > 0, runs > 0);
        vm.page_cache().release_object(file).unwrap();
        assert_eq!(unused(&vm), 0, "{design}");
        vm.audit().unwrap();
    }
}

#[test]
fn a_length_that_was_given_first_is_enough_within_the_size() {
    let vm = vm_of("huge=within_size");
    let file = vm.memory_pages(2 * PAGES).unwrap();
    for page in [3, PAGES + 3] {
        let bytes = [7; 10];
        assert_eq!(
            vm.page_cache().write_at(file, page * PAGE, &[&bytes]),
            Ok(10)
        );
    }
    assert_eq!(superpages(&vm, file), 2);
    assert_eq!(vm.stats().events.reservations, 0);
}

#[test]
fn objects_say_whether_they_have_superpages_as_they_grow() {
    for (design, told, expected) in [
        ("huge=advise", Some(true), 1),
        ("huge=within_size", Some(true), 1),
        ("huge=within_size", Some(false), 0),
        ("huge=always", Some(false), 0),
    ] {
        let vm = vm_of(design);
        let file = vm.memory_pages(0).unwrap();
        vm.page_cache().set_huge(file, told).unwrap();
        (0..PAGES).for_each(|page| append(&vm, file, page));
        assert_eq!(superpages(&vm, file), expected, "{design}, told {told:?}");
    }
}

#[test]
fn pages_take_their_places_in_any_order_and_whoever_makes_them() {
    let vm = vm_of("huge=always");
    let file = vm.memory_pages(0).unwrap();
    // The end is in the middle of the range, with holes below it.
    for page in [300, 20, 299, 301] {
        let written =
            vm.page_cache()
                .write_at(file, page * PAGE, &[&[byte_of(page); PAGE as usize]]);
        assert_eq!(written, Ok(PAGE as usize));
    }
    let space = vm.begin_space().unwrap();
    let request = MapRequest::object(file, 0, 302, RW).shared();
    map(&vm, space, BASE, request);
    for page in 0..200 {
        touch(&vm, space, BASE + page, Access::Write);
    }
    vm.exit(space).unwrap();
    vm.audit().unwrap();
    vm.page_cache().set_size(file, PAGES * PAGE).unwrap();
    for page in (200..299).chain(302..PAGES) {
        let written = vm.page_cache().write_at(file, page * PAGE, &[&[1]]);
        assert_eq!(written, Ok(1));
    }
    assert_eq!(unused(&vm), 0, "all frames are taken");
    assert_eq!(superpages(&vm, file), 1);
    assert_eq!(vm.stats().events.reservations, 1);
    let bytes = [20, 21, 300, 400].map(|page| byte(&vm, file, page));
    assert_eq!(bytes, [byte_of(20), 0, byte_of(300), 0]);
}

#[test]
fn what_a_writer_did_not_fill_goes_back_to_the_run() {
    let vm = vm_of("huge=always");
    let file = vm.memory_pages(0).unwrap();
    let (mut offset, end) = (0, PAGES * PAGE);
    while offset < end {
        // Room for up to 64 pages is offered, and one is filled.
        let written =
            vm.page_cache()
                .write_with(file, offset, (end - offset) as usize, |at, page| {
                    if at == 0 {
                        page.put(&[byte_of(offset / PAGE); PAGE as usize]);
                    }
                });
        assert_eq!(written, Ok(PAGE as usize));
        offset += PAGE;
    }
    assert_eq!(vm.stats().events.reservations, 1);
    assert_eq!(superpages(&vm, file), 1);
    assert_eq!(byte(&vm, file, 77), byte_of(77));
}

#[test]
fn files_that_grow_by_turns_keep_their_runs() {
    let vm = vm_of("huge=always");
    let files = [(); 3].map(|()| vm.memory_pages(0).unwrap());
    for page in 0..PAGES {
        files.iter().for_each(|&file| append(&vm, file, page));
    }
    assert_eq!(vm.stats().events.reservations, 3);
    assert_eq!(files.map(|file| superpages(&vm, file)), [1; 3]);
}

#[test]
fn a_run_goes_back_when_its_pages_are_cut_and_another_comes() {
    let vm = vm_of("huge=always");
    let file = vm.memory_pages(0).unwrap();
    let grow = |from, pages| (from..from + pages).for_each(|page| append(&vm, file, page));
    grow(0, PAGES + 10);
    assert!(unused(&vm) > 0);
    // A hole elsewhere is no matter.
    vm.page_cache()
        .punch_hole(file, 3 * PAGE, 2 * PAGE)
        .unwrap();
    assert!(unused(&vm) > 0);
    vm.page_cache()
        .punch_hole(file, (PAGES + 3) * PAGE, PAGE)
        .unwrap();
    assert_eq!(unused(&vm), 0);
    vm.audit().unwrap();
    grow(PAGES + 10, 5);
    assert_eq!(unused(&vm), 0, "the range has pages already");
    // As a file that is written anew.
    vm.page_cache().set_size(file, 0).unwrap();
    grow(0, 10);
    assert!(unused(&vm) > 0);
    vm.page_cache().set_size(file, 4 * PAGE).unwrap();
    assert_eq!(unused(&vm), 0);
    vm.page_cache().set_size(file, 0).unwrap();
    grow(0, 2 * PAGES);
    assert_eq!(superpages(&vm, file), 2);
    assert_eq!(byte(&vm, file, 4), byte_of(4));
    vm.audit().unwrap();
}

#[test]
fn runs_are_broken_before_memory_runs_out() {
    let vm = vm_of("huge=always");
    let files = [(); 20].map(|()| vm.memory_pages(0).unwrap());
    // Of 8,192 frames there are fewer than 16 runs; each file has one or does without.
    files.iter().for_each(|&file| append(&vm, file, 0));
    let failures = vm.stats().events.superpage_failures;
    assert!(failures > 0, "there was a run for each");
    let mut page = 1;
    let full = loop {
        let bytes = [byte_of(page); PAGE as usize];
        match vm.page_cache().append(files[19], &[&bytes]) {
            Ok(_) => page += 1,
            Err(error) => break error,
        }
        if page % 1000 == 0 {
            vm.audit().unwrap();
        }
    };
    assert_eq!(full, FileError::OutOfMemory);
    let stats = vm.stats().frames.reservations;
    assert_eq!(stats.broken, vm.stats().events.reservations);
    assert_eq!(stats.unused, 0);
    assert!(page > 7800, "memory ran out with {page} pages");
    vm.audit().unwrap();
    for at in (0..page).step_by(97) {
        assert_eq!(byte(&vm, files[19], at), byte_of(at));
    }
    for file in files {
        assert_eq!(byte(&vm, file, 0), byte_of(0));
        vm.page_cache().release_object(file).unwrap();
    }
    vm.audit().unwrap();
}

#[test]
fn files_grow_whatever_cannot_be_had() {
    for site in [
        Site::Reservation,
        Site::CachePage,
        Site::RadixNode,
        Site::Superpage,
    ] {
        for after in 0..5 {
            let vm = vm_of("huge=always");
            let file = vm.memory_pages(0).unwrap();
            vm.memory().inject(Some(FailAt { site, after }));
            let bytes = [3; PAGE as usize];
            let written = vm.page_cache().append(file, &[&bytes]);
            let more = vm.page_cache().append(file, &[&bytes]);
            vm.memory().inject(None);
            vm.audit().unwrap();
            for result in [written, more] {
                let is_fine = matches!(result, Ok((_, 4096)) | Err(FileError::OutOfMemory));
                assert!(is_fine, "{site:?} {after}: {result:?}");
            }
            let pages = vm.page_cache().size(file).unwrap() / PAGE;
            (pages..PAGES).for_each(|page| append(&vm, file, page));
            let is_whole = site != Site::Reservation || after > 0;
            assert_eq!(superpages(&vm, file) == 1, is_whole, "{site:?} {after}");
        }
    }
}

fn below(rng: &mut Rng, most: u64) -> u64 {
    rng.below(most as usize) as u64
}

/// Files as a model has them: a byte for each page.
struct Modelled {
    file: ObjectId,
    pages: Vec<u8>,
}

impl Modelled {
    /// One random change, which the model follows.
    fn change(&mut self, vm: &TestVm<Family>, rng: &mut Rng) {
        const MOST: u64 = 3 * PAGES;
        let (file, end) = (self.file, self.pages.len() as u64);
        match below(rng, 16) {
            0 => {
                let pages = below(rng, MOST);
                vm.page_cache().set_size(file, pages * PAGE).unwrap();
                self.pages.resize(pages as usize, 0);
            }
            1 => vm
                .page_cache()
                .set_size(file, 0)
                .map(|()| self.pages.clear())
                .unwrap(),
            2 => {
                let (at, count) = (below(rng, MOST), 1 + below(rng, 20));
                vm.page_cache()
                    .punch_hole(file, at * PAGE, count * PAGE)
                    .unwrap();
                let cut = at.min(end)..(at + count).min(end);
                self.pages[cut.start as usize..cut.end as usize].fill(0);
            }
            choice => {
                // At the end, or anywhere.
                let at = if choice < 6 { below(rng, MOST) } else { end };
                let (count, byte) = (1 + below(rng, 100), 1 + below(rng, 255) as u8);
                let bytes = [byte; PAGE as usize];
                let buffers = [&bytes[..]; 100];
                let written = vm
                    .page_cache()
                    .write_at(file, at * PAGE, &buffers[..count as usize]);
                assert_eq!(written, Ok((count * PAGE) as usize));
                let end = end.max(at + count);
                self.pages.resize(end as usize, 0);
                self.pages[at as usize..][..count as usize].fill(byte);
            }
        }
    }
}

#[test]
fn random_changes_of_growing_files_match_a_model() {
    for seed in 0..12 {
        let design = ["huge=always", "huge=within_size", "huge=always,reclaim=on"][seed % 3];
        let mut rng = Rng::new(seed as u64);
        // Not enough for a run of each.
        let vm = vm_with::<Family>(design, 8192);
        let mut files = [(); 3].map(|()| Modelled {
            file: vm.memory_pages(0).unwrap(),
            pages: Vec::new(),
        });
        let space = vm.begin_space().unwrap();
        for (at, model) in (0..).zip(&files) {
            let request = MapRequest::object(model.file, 0, 2 * PAGES, RW).shared();
            map(&vm, space, BASE + at * 4 * PAGES, request);
        }
        for step in 0..150 {
            let at = below(&mut rng, 3);
            let model = &mut files[at as usize];
            model.change(&vm, &mut rng);
            let page = below(&mut rng, 2 * PAGES);
            let place = BASE + at * 4 * PAGES + page;
            match vm.fault(space, place << 12, Access::Read) {
                Ok(_) => {
                    let (frame, _) = vm.translate(space, Vpn(place)).unwrap();
                    let seen = vm.platform().peek(frame)[9];
                    assert_eq!(seen, model.pages[page as usize], "seed {seed}, step {step}");
                }
                Err(error) => {
                    assert_eq!(error, FaultError::PastEnd);
                    assert!(page >= model.pages.len() as u64);
                }
            }
            if step % 50 == 0 {
                vm.audit().unwrap();
            }
        }
        for model in &files {
            for (page, expected) in (0..).zip(&model.pages) {
                assert_eq!(byte(&vm, model.file, page), *expected, "seed {seed}");
            }
            vm.page_cache().release_object(model.file).unwrap();
        }
        vm.exit(space).unwrap();
        vm.audit().unwrap();
        assert_eq!(unused(&vm), 0);
    }
}
