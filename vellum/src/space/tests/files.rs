//! Objects by bytes beside a vector of bytes: what is read is what was written, holes
//! take no memory, limits are kept to the page, and a call that fails changed nothing.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::format;
use std::string::String;
use std::thread_local;
use std::vec;
use std::vec::Vec;

use crate::addr::{Access, Prot, Vpn};
use crate::frame::{FailAt, Site};
use crate::object::MountId;
use crate::rmap::Partial;
use crate::space::{FaultError, FileError, MapRequest, Placement, SpaceId, Vm};
use crate::table::{Aarch64_16K, Format, X86_64};
use crate::testing::{Rng, TestMachine, run_on};
use crate::{Design, ObjectId};

/// Longest object of the random tests, in pages.
const PAGES: u64 = 150;
/// Where it is mapped.
const PLACE: u64 = 1000;
const STORE: u64 = 7;
const MAX_SIZE: u64 = Vm::<TestMachine, X86_64, Partial>::MAX_SIZE;

/// How files are read and written: in runs, and page by page as two kernels of 2014 did.
const WAYS: [&str; 3] = [
    "fileio=runs",
    "fileio=pages",
    "fileio=pages,pagelock=hashed,accessed=atomic,flags=atomic",
];

thread_local! {
    static WAY: Cell<&'static str> = const { Cell::new(WAYS[0]) };
}

fn in_each_way(test: impl Fn()) {
    for way in WAYS {
        std::println!("{way}");
        WAY.set(way);
        test();
    }
}

fn design() -> Design {
    Design::parse(WAY.get()).unwrap()
}

/// An object beside its model.
struct World<F: Format> {
    vm: Vm<TestMachine, F, Partial>,
    mount: MountId,
    id: ObjectId,
    space: SpaceId,
    bytes: Vec<u8>,
    /// Pages that take memory. Of a file any page may.
    pages: BTreeSet<u64>,
    is_file: bool,
}

fn world<F: Format>(is_file: bool, limit: u64) -> World<F> {
    run_on(0);
    let machine = TestMachine::with_frames(2, 1200, F::FRAME_SHIFT);
    let vm: Vm<_, F, Partial> = Vm::new(machine, design()).unwrap();
    let mount = vm.create_mount(limit).unwrap();
    let id = match is_file {
        true => vm.create_file_of(STORE, 0).unwrap(),
        false => vm.create_in(mount).unwrap(),
    };
    let space = vm.create_space().unwrap();
    let request = MapRequest::object(id, 0, PAGES, Prot::READ_WRITE);
    let request = request.shared().at(Placement::Fixed(Vpn(PLACE)));
    vm.map(space, &request).unwrap();
    World {
        vm,
        mount,
        id,
        space,
        bytes: Vec::new(),
        pages: BTreeSet::new(),
        is_file,
    }
}

impl<F: Format> World<F> {
    fn size(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn frame(&self) -> u64 {
        F::FRAME_SIZE as u64
    }

    /// A place that is mostly near the object's bytes, and often at an edge.
    fn place(&self, rng: &mut Rng) -> u64 {
        let frame = F::FRAME_SIZE;
        let place = match rng.below(4) {
            0 => (rng.below(PAGES as usize) * frame) as u64,
            1 => self.size().saturating_sub(rng.below(9) as u64),
            2 => (rng.below(PAGES as usize - 1) * frame + rng.below(17)) as u64,
            _ => rng.below(PAGES as usize * frame) as u64,
        };
        place.min(PAGES * self.frame() - 1)
    }

    fn length(&self, rng: &mut Rng, place: u64) -> usize {
        let frame = F::FRAME_SIZE;
        let length = match rng.below(5) {
            0 => rng.below(20),
            1 => frame,
            2 => frame * rng.below(100),
            _ => rng.below(4 * frame),
        };
        length.min((PAGES as usize * frame) - place as usize)
    }

    /// The model of a write that went so far.
    fn wrote(&mut self, place: u64, data: &[u8]) {
        if data.is_empty() {
            return;
        }
        let end = place as usize + data.len();
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        self.bytes[place as usize..end].copy_from_slice(data);
        self.pages
            .extend(place / self.frame()..(end as u64).div_ceil(self.frame()));
    }

    fn write(&mut self, rng: &mut Rng) -> String {
        let place = self.place(rng);
        let length = self.length(rng, place);
        let data = random(rng, length);
        let appends = rng.below(4) == 0 && self.bytes.len() + data.len() < self.most();
        let (place, written) = {
            let parts = split(rng, &data);
            match appends {
                true => self.vm.append(self.id, &parts).unwrap(),
                false => (place, self.vm.write_at(self.id, place, &parts).unwrap()),
            }
        };
        if appends {
            assert_eq!(place, self.size());
        }
        assert_eq!(written, data.len());
        self.wrote(place, &data);
        format!("write {} at {place}, appends: {appends}", data.len())
    }

    fn most(&self) -> usize {
        PAGES as usize * F::FRAME_SIZE
    }

    fn read(&self, rng: &mut Rng) -> String {
        let place = self.place(rng);
        let length = self.length(rng, place);
        let mut data = vec![0x5a; length];
        let cut = rng.below(length + 1);
        let (head, tail) = data.split_at_mut(cut);
        let read = self.vm.read_at(self.id, place, &mut [head, &mut [], tail]);
        let wanted = self.bytes.get(place as usize..).unwrap_or(&[]);
        let wanted = &wanted[..length.min(wanted.len())];
        assert_eq!(read, Ok(wanted.len()), "{length} bytes at {place}");
        assert!(data[..wanted.len()] == *wanted, "{length} bytes at {place}");
        assert!(data[wanted.len()..].iter().all(|byte| *byte == 0x5a));
        format!("read {length} at {place}")
    }

    fn resize(&mut self, rng: &mut Rng) -> String {
        let size = self.place(rng);
        self.vm.set_size(self.id, size).unwrap();
        self.bytes.resize(size as usize, 0);
        let end = size.div_ceil(self.frame());
        self.pages.retain(|page| *page < end);
        format!("size {size}")
    }

    fn punch(&mut self, rng: &mut Rng) -> String {
        let place = self.place(rng);
        let length = self.length(rng, place) as u64;
        self.vm.punch_hole(self.id, place, length).unwrap();
        let end = place + length;
        let known = self.size().min(place) as usize..self.size().min(end) as usize;
        self.bytes[known].fill(0);
        let whole = place.div_ceil(self.frame())..end / self.frame();
        self.pages.retain(|page| !whole.contains(page));
        format!("punch {length} at {place}")
    }

    /// A program stores to the mapping, past the end of the file in its last page too.
    fn store(&mut self, rng: &mut Rng) -> String {
        let place = self.place(rng);
        let page = place / self.frame();
        let address = (PLACE << F::FRAME_SHIFT) + place;
        let answer = self.vm.fault(self.space, address, Access::Write);
        if page * self.frame() >= self.size() {
            assert_eq!(answer.err(), Some(FaultError::PastEnd));
            return format!("store past the end at {place}");
        }
        answer.unwrap();
        let (frame, _) = self.vm.translate(self.space, Vpn(PLACE + page)).unwrap();
        let byte = 1 + rng.below(250) as u8;
        self.vm.platform().scribble(frame, byte);
        let start = (page * self.frame()) as usize;
        let end = self.bytes.len().min(start + F::FRAME_SIZE);
        self.bytes[start..end].fill(byte);
        self.pages.insert(page);
        format!("store {byte} to page {page}")
    }

    fn seek(&self, rng: &mut Rng) -> String {
        let place = self.place(rng);
        if self.is_file {
            self.seek_in_file(place);
            return format!("seek from {place}");
        }
        let frame = self.frame();
        let data = |place: u64| self.pages.contains(&(place / frame));
        let find = |wanted: bool| {
            let mut at = place;
            while at < self.size() && data(at) != wanted {
                at = (at / frame + 1) * frame;
            }
            at.min(self.size())
        };
        let past = place >= self.size();
        let wanted = Some(find(true)).filter(|at| !past && *at < self.size());
        assert_eq!(self.vm.seek_data(self.id, place).ok(), wanted, "at {place}");
        let wanted = Some(find(false)).filter(|_| !past);
        assert_eq!(self.vm.seek_hole(self.id, place).ok(), wanted, "at {place}");
        format!("seek from {place}")
    }

    /// What of a file is in memory shows reading ahead, which the model does not know:
    /// between data there are zeroes, and between holes something is stored or was.
    fn seek_in_file(&self, place: u64) {
        let (data, hole) = (
            self.vm.seek_data(self.id, place),
            self.vm.seek_hole(self.id, place),
        );
        if place >= self.size() {
            assert_eq!((data.ok(), hole.ok()), (None, None));
            return;
        }
        let zero = |from: u64, to: u64| {
            let bytes = &self.bytes[from as usize..to as usize];
            bytes.iter().all(|byte| *byte == 0)
        };
        let begins = data.unwrap_or(self.size());
        assert!(begins >= place && zero(place, begins), "{place}: {data:?}");
        let hole = hole.expect("the end is one");
        assert!(hole == place || begins == place, "{place}: one of them");
        if hole < self.size() {
            let ends = self.vm.seek_data(self.id, hole).unwrap_or(self.size());
            assert!(ends > hole && zero(hole, ends), "{place}: {hole}, {ends}");
        }
    }

    /// Everything that can be seen.
    fn check(&self) {
        let mut all = vec![1; self.bytes.len() + 9];
        let read = self.vm.read_at(self.id, 0, &mut [&mut all]);
        assert_eq!(read, Ok(self.bytes.len()));
        all.truncate(self.bytes.len());
        let differs = all.iter().zip(&self.bytes).position(|(a, b)| a != b);
        assert_eq!(differs, None, "of {} bytes", all.len());
        let stats = self.vm.object_stats(self.id).unwrap();
        assert_eq!(stats.size, self.size());
        if !self.is_file {
            assert_eq!(stats.cached, self.pages.len() as u64);
            let mount = self.vm.mount_stats(self.mount).unwrap();
            assert_eq!((mount.used, mount.objects), (stats.cached, 1));
        }
        self.vm.audit().unwrap();
    }

    fn step(&mut self, rng: &mut Rng) -> String {
        match rng.below(12) {
            0..=3 => self.write(rng),
            4..=5 => self.read(rng),
            6 => self.resize(rng),
            7 => self.punch(rng),
            8 => self.store(rng),
            9 if self.is_file => {
                self.vm.sync(self.id).unwrap();
                assert_eq!(self.vm.object_stats(self.id).unwrap().dirty, 0);
                String::from("sync")
            }
            _ => self.seek(rng),
        }
    }

    fn finish(self) {
        self.vm.exit(self.space).unwrap();
        self.vm.release_object(self.id).unwrap();
        let mount = self.vm.mount_stats(self.mount).unwrap();
        assert_eq!((mount.used, mount.objects), (0, 0));
        self.vm.release_mount(self.mount).unwrap();
        assert_eq!(self.vm.mount_stats(self.mount), None);
        assert_eq!(self.vm.audit().unwrap().objects, 0);
    }
}

fn random(rng: &mut Rng, length: usize) -> Vec<u8> {
    let word = rng.next() | 1;
    (0..length)
        .map(|at| (word.rotate_left(at as u32 % 61) as u8) ^ (at / 64) as u8)
        .collect()
}

/// The data in a few buffers, some of them empty.
fn split<'a>(rng: &mut Rng, data: &'a [u8]) -> Vec<&'a [u8]> {
    let (head, rest) = data.split_at(rng.below(data.len() + 1));
    let (middle, tail) = rest.split_at(rng.below(rest.len() + 1));
    vec![head, &[], middle, tail]
}

fn matches_its_model<F: Format>(seed: u64, is_file: bool) {
    let mut rng = Rng::new(seed);
    for round in 0..6 {
        let mut world = world::<F>(is_file, u64::MAX);
        for step in 0..120 {
            let what = world.step(&mut rng);
            std::println!("round {round}, step {step}: {what}");
            world.check();
        }
        world.finish();
    }
}

#[test]
fn a_file_in_memory_matches_a_vector_of_bytes() {
    matches_its_model::<X86_64>(171, false);
    matches_its_model::<Aarch64_16K>(172, false);
}

#[test]
fn files_that_are_written_page_by_page_match_a_vector_of_bytes() {
    for (seed, way) in (180..).zip(&WAYS[1..]) {
        WAY.set(way);
        matches_its_model::<X86_64>(seed, false);
        matches_its_model::<X86_64>(seed, true);
    }
}

#[test]
fn a_file_of_a_store_matches_a_vector_of_bytes() {
    matches_its_model::<X86_64>(173, true);
    matches_its_model::<Aarch64_16K>(174, true);
}

/// What a file holds is what a manager finds that comes after.
#[test]
fn a_file_is_found_in_its_store_when_it_has_ended() {
    in_each_way(|| {
        let mut rng = Rng::new(175);
        let mut world = world::<X86_64>(true, u64::MAX);
        for _ in 0..60 {
            world.step(&mut rng);
        }
        world.vm.exit(world.space).unwrap();
        world.vm.release_object(world.id).unwrap();
        let again = world.vm.create_file_of(STORE, world.size()).unwrap();
        let mut all = vec![1; world.bytes.len()];
        let read = world.vm.read_at(again, 0, &mut [&mut all]);
        assert_eq!(read, Ok(all.len()));
        assert!(all == world.bytes);
    });
}

#[test]
fn a_mount_has_no_page_more_than_its_limit() {
    in_each_way(|| {
        const LIMIT: u64 = 20;
        let mut world = world::<X86_64>(false, LIMIT);
        let page: &[u8] = &[7; 4096];
        let vm = &world.vm;
        // Twelve pages with a hole of three, and eight are left.
        assert_eq!(vm.write_at(world.id, 0, &[page; 12]), Ok(12 * 4096));
        vm.punch_hole(world.id, 4096, 3 * 4096).unwrap();
        vm.write_at(world.id, 4096, &[page; 3]).unwrap();
        let other = vm.create_in(world.mount).unwrap();
        assert_eq!(vm.write_at(other, 9, &[page; 10]), Ok(8 * 4096 - 9));
        assert_eq!(vm.append(other, &[b"one more"]), Err(FileError::Full));
        assert_eq!(vm.size(other), Some(8 * 4096));
        assert_eq!(vm.mount_stats(world.mount).unwrap().used, LIMIT);
        // Overwriting takes nothing, and reading a hole neither.
        assert_eq!(vm.write_at(world.id, 5, &[page; 11]), Ok(11 * 4096));
        vm.set_size(world.id, 30 * 4096).unwrap();
        assert_eq!(
            vm.read_at(world.id, 20 * 4096, &mut [&mut [1; 9000]]),
            Ok(9000)
        );
        let fault = vm.fault(world.space, (PLACE + 20) << 12, Access::Write);
        assert_eq!(fault.err(), Some(FaultError::Full));
        // What is let go of can be had by another, in whatever way it goes.
        vm.set_size(world.id, 10 * 4096 + 1).unwrap();
        assert_eq!(vm.mount_stats(world.mount).unwrap().used, LIMIT - 1);
        vm.set_mount_limit(world.mount, 3).unwrap();
        assert_eq!(vm.append(other, &[&[1]]), Err(FileError::Full));
        vm.release_object(other).unwrap();
        assert_eq!(vm.mount_stats(world.mount).unwrap().used, 11);
        vm.set_mount_limit(world.mount, 12).unwrap();
        vm.write_at(world.id, 15 * 4096, &[page]).unwrap();
        assert_eq!(
            vm.write_at(world.id, 16 * 4096, &[page]),
            Err(FileError::Full)
        );
        world.vm.exit(world.space).unwrap();
        // A mount lives as long as its files.
        world.vm.release_mount(world.mount).unwrap();
        assert_eq!(vm_answers(&world), [true; 4]);
        world.vm.release_object(world.id).unwrap();
        world.vm.audit().unwrap();
        world.mount = world.vm.create_mount(5).unwrap();
        assert_eq!(world.vm.mount_stats(world.mount).unwrap().used, 0);
    });
}

/// Whether each call refuses the name of a mount that was released.
fn vm_answers<F: Format>(world: &World<F>) -> [bool; 4] {
    let vm = &world.vm;
    [
        vm.create_in(world.mount) == Err(FileError::NoMount),
        vm.set_mount_limit(world.mount, 1) == Err(FileError::NoMount),
        vm.mount_stats(world.mount).is_none(),
        vm.release_mount(world.mount) == Err(FileError::NoMount),
    ]
}

/// Each allocation of a write fails in turn: what was written before is there, and
/// the rest of the object, its length and its mount are as they were.
#[test]
fn a_write_that_runs_out_of_memory_wrote_what_it_says() {
    in_each_way(|| {
        for is_file in [false, true] {
            let mut failed = 0;
            for site in [Site::CachePage, Site::RadixNode, Site::SlabFrame] {
                for after in 0..40 {
                    failed += u64::from(write_fails_at(is_file, FailAt { site, after }));
                }
            }
            // A frame that is missing within a run only makes the run shorter.
            assert!(failed >= 3, "only {failed} writes failed");
        }
    });
}

#[test]
fn a_mount_that_cannot_be_made_is_an_error() {
    let world = world::<X86_64>(false, 10);
    let plan = |site| {
        let plan = FailAt { site, after: 0 };
        world.vm.memory().inject(Some(plan));
    };
    plan(Site::Mount);
    assert_eq!(world.vm.create_mount(3), Err(FileError::OutOfMemory));
    plan(Site::Object);
    let made = world.vm.create_in(world.mount);
    assert_eq!(made, Err(FileError::OutOfMemory));
    world.finish();
}

#[test]
fn a_write_takes_all_memory_there_is_and_gives_it_back() {
    in_each_way(|| {
        run_on(0);
        let machine = TestMachine::with_frames(2, 400, 12);
        let vm: Vm<_, X86_64, Partial> = Vm::new(machine, design()).unwrap();
        let data = random(&mut Rng::new(178), 500 * 4096);
        let mount = vm.create_mount(1000).unwrap();
        let used = || vm.mount_stats(mount).unwrap().used;
        for _ in 0..3 {
            let file = vm.create_in(mount).unwrap();
            let written = vm.write_at(file, 123, &[&data]).unwrap();
            assert_eq!(used(), (123 + written as u64).div_ceil(4096));
            assert!((300 * 4096..400 * 4096).contains(&written), "{written}");
            assert_eq!(vm.append(file, &[&data]), Err(FileError::OutOfMemory));
            assert_eq!(vm.size(file), Some(123 + written as u64));
            let mut back = vec![0; written];
            assert_eq!(vm.read_at(file, 123, &mut [&mut back]), Ok(written));
            assert!(back == data[..written]);
            vm.audit().unwrap();
            vm.release_object(file).unwrap();
            assert_eq!(used(), 0);
            // What left waits for its epoch.
            for _ in 0..3 {
                vm.relieve();
            }
        }
    });
}

fn write_fails_at(is_file: bool, plan: FailAt) -> bool {
    let mut rng = Rng::new(u64::from(plan.after));
    let mut world = world::<X86_64>(is_file, 60);
    for place in [3 * 4096 + 9, 40 * 4096] {
        let data = random(&mut rng, 5000);
        world.vm.write_at(world.id, place, &[&data]).unwrap();
        world.wrote(place, &data);
    }
    let data = random(&mut rng, 30 * 4096);
    let place = 37 * 4096 + 77;
    world.vm.memory().inject(Some(plan));
    let answer = world.vm.write_at(world.id, place, &[&data]);
    world.vm.memory().inject(None);
    match answer {
        Ok(written) => world.wrote(place, &data[..written]),
        Err(error) => assert_eq!(error, FileError::OutOfMemory),
    }
    world.check();
    let failed = answer != Ok(data.len());
    if let Ok(written) = answer
        && failed
    {
        let rest = &data[written..];
        let place = place + written as u64;
        assert_eq!(world.vm.write_at(world.id, place, &[rest]), Ok(rest.len()));
        world.wrote(place, rest);
        world.check();
    }
    world.finish();
    failed
}

/// A source that ends early, as a program's memory does that is not there.
#[test]
fn an_interrupted_write_leaves_old_bytes_or_new_ones() {
    in_each_way(|| {
        let mut rng = Rng::new(176);
        for is_file in [false, true] {
            let mut world = world::<X86_64>(is_file, u64::MAX);
            for _ in 0..150 {
                let place = world.place(&mut rng);
                let length = world.length(&mut rng, place);
                let data = random(&mut rng, length);
                let ends = rng.below(data.len() + 1);
                let answer = world
                    .vm
                    .write_with(world.id, place, data.len(), |at, part| {
                        let end = ends.min(at + part.room());
                        part.put(&data[at.min(end)..end]);
                    });
                assert_eq!(answer, Ok(ends.min(data.len())));
                world.wrote(place, &data[..ends]);
                if rng.below(6) == 0 {
                    world.punch(&mut rng);
                    world.resize(&mut rng);
                }
                world.check();
            }
            world.finish();
        }
    });
}

#[test]
fn a_reader_that_takes_less_is_not_given_more() {
    in_each_way(|| {
        let mut world = world::<X86_64>(false, u64::MAX);
        let data = random(&mut Rng::new(177), 3 * 4096);
        world.vm.write_at(world.id, 0, &[&data]).unwrap();
        world.wrote(0, &data);
        let mut seen = Vec::new();
        let read = world.vm.read_with(world.id, 100, 9000, |at, part| {
            assert_eq!(at, seen.len());
            let mut bytes = vec![0; part.len().min(5000 - at)];
            let count = part.read(0, &mut bytes);
            seen.extend_from_slice(&bytes);
            count
        });
        assert_eq!(read, Ok(5000));
        assert!(seen == data[100..5100]);
    });
}

#[test]
fn places_at_the_end_of_what_a_file_can_hold_are_refused_or_work() {
    in_each_way(|| {
        for is_file in [false, true] {
            let world = world::<X86_64>(is_file, u64::MAX);
            let (vm, id) = (&world.vm, world.id);
            for place in [MAX_SIZE, MAX_SIZE + 1, u64::MAX - 1, u64::MAX] {
                assert_eq!(vm.write_at(id, place, &[b"x"]), Err(FileError::TooLarge));
                assert_eq!(vm.write_at(id, place, &[]), Ok(0));
                assert_eq!(vm.read_at(id, place, &mut [&mut [0; 3]]), Ok(0));
                assert_eq!(vm.seek_data(id, place), Err(FileError::NoData));
                assert_eq!(vm.seek_hole(id, place), Err(FileError::NoData));
                vm.punch_hole(id, place, u64::MAX).unwrap();
            }
            for size in [MAX_SIZE + 1, u64::MAX] {
                assert_eq!(vm.set_size(id, size), Err(FileError::TooLarge));
            }
            assert_eq!(vm.object_stats(id).unwrap().cached, 0);
            // The last bytes that there can be.
            assert_eq!(vm.write_at(id, MAX_SIZE - 3, &[b"abcdef"]), Ok(3));
            assert_eq!(vm.append(id, &[b"g"]), Err(FileError::TooLarge));
            assert_eq!(vm.size(id), Some(MAX_SIZE));
            let mut end = [9; 8];
            assert_eq!(vm.read_at(id, MAX_SIZE - 4, &mut [&mut end]), Ok(4));
            assert_eq!(&end, b"\0abc\x09\x09\x09\x09");
            vm.punch_hole(id, MAX_SIZE - 2, u64::MAX).unwrap();
            vm.read_at(id, MAX_SIZE - 4, &mut [&mut end]).unwrap();
            assert_eq!(&end[..4], b"\0a\0\0");
            vm.punch_hole(id, 1, u64::MAX).unwrap();
            vm.set_size(id, 0).unwrap();
            vm.set_size(id, MAX_SIZE).unwrap();
            vm.audit().unwrap();
            world.finish();
        }
    });
}

/// What the store has, what is in memory only, and nothing else, is data.
#[test]
fn data_of_a_file_is_what_its_store_has_and_what_is_written_but_not_there_yet() {
    const PAGE: u64 = 4096;
    let world = world::<X86_64>(true, u64::MAX);
    let (vm, id) = (&world.vm, world.id);
    vm.set_size(id, 12 * PAGE).unwrap();
    for page in [3, 4, 9] {
        vm.write_at(id, page * PAGE, &[b"x"]).unwrap();
    }
    let expect = |from: u64, data: Option<u64>, hole: u64| {
        assert_eq!(vm.seek_data(id, from).ok(), data, "from {from}");
        assert_eq!(vm.seek_hole(id, from), Ok(hole), "from {from}");
    };
    for written_back in [false, true] {
        if written_back {
            vm.sync(id).unwrap();
        }
        expect(5, Some(3 * PAGE), 5);
        expect(3 * PAGE + 1, Some(3 * PAGE + 1), 5 * PAGE);
        expect(5 * PAGE, Some(9 * PAGE), 5 * PAGE);
        expect(9 * PAGE, Some(9 * PAGE), 10 * PAGE);
        expect(10 * PAGE, None, 10 * PAGE);
    }
    vm.write_at(id, 6 * PAGE, &[b"y"]).unwrap();
    vm.punch_hole(id, 3 * PAGE, PAGE).unwrap();
    expect(0, Some(4 * PAGE), 0);
    expect(5 * PAGE, Some(6 * PAGE), 5 * PAGE);
    vm.write_at(id, 11 * PAGE, &[b"z"]).unwrap();
    expect(11 * PAGE + 9, Some(11 * PAGE + 9), 12 * PAGE);
    world.finish();
}

#[test]
fn a_stale_name_is_refused_by_every_call() {
    let world = world::<X86_64>(false, u64::MAX);
    let gone = world.vm.create_in(world.mount).unwrap();
    world.vm.release_object(gone).unwrap();
    let made_up = ObjectId::from_bits(u64::MAX);
    for id in [gone, made_up] {
        let (vm, no) = (&world.vm, FileError::NoObject);
        assert_eq!(vm.read_at(id, 0, &mut [&mut [0; 3]]), Err(no));
        assert_eq!(vm.write_at(id, 0, &[b"x"]), Err(no));
        assert_eq!(vm.append(id, &[b"x"]), Err(no));
        assert_eq!(vm.set_size(id, 1), Err(no));
        assert_eq!(vm.punch_hole(id, 0, 1), Err(no));
        assert_eq!(vm.seek_data(id, 0), Err(no));
        assert_eq!(vm.seek_hole(id, 0), Err(no));
        assert_eq!((vm.size(id), vm.object_stats(id)), (None, None));
    }
}

/// The frames of the test machine are garbage at first, so a page that was neither
/// zeroed nor covered would show it; what a write covers whole is not zeroed.
#[test]
fn pages_that_a_write_covers_are_not_zeroed_first() {
    in_each_way(|| {
        let world = world::<X86_64>(false, u64::MAX);
        let zeroed = || world.vm.stats().frames.bytes_zeroed;
        let data = vec![3; 40 * 4096];
        for place in [0, 50 * 4096 + 9] {
            world.vm.write_at(world.id, place, &[&data]).unwrap();
            world.vm.set_size(world.id, 0).unwrap();
        }
        let before = zeroed();
        world.vm.write_at(world.id, 0, &[&data]).unwrap();
        assert_eq!(zeroed(), before);
        let edges = world.vm.write_at(world.id, 50 * 4096 + 9, &[&data]);
        assert_eq!(edges, Ok(data.len()));
        assert_eq!(zeroed(), before, "edges are filled by the write itself");
        let mut seen = vec![1; 42 * 4096];
        world
            .vm
            .read_at(world.id, 49 * 4096, &mut [&mut seen])
            .unwrap();
        assert!(seen[..4096 + 9].iter().all(|byte| *byte == 0));
        assert!(seen[4096 + 9..4096 + 9 + data.len()] == data);
    });
}
