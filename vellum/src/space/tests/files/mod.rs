//! Objects by bytes beside a vector of bytes: what is read is what was written, holes
//! take no memory, limits are kept to the page, and a call that fails changed nothing.

mod cuts;
mod edges;
mod limits;

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
use crate::space::{FaultError, FileError, FileRequest, MapRequest, Placement, SpaceId, Vm};
use crate::table::{Aarch64_16K, Format, X86_64};
use crate::testing::{ByRegions, built_in};
use crate::testing::{Rng, TestMachine, run_on};
use crate::{Design, ObjectId};

/// Longest object of the random tests, in pages.
const PAGES: u64 = 150;
/// Where it is mapped.
const PLACE: u64 = 1000;
const STORE: u64 = 7;
const MAX_SIZE: u64 = Vm::<TestMachine, X86_64, ByRegions>::MAX_SIZE;

/// How files are read and written: in runs, and page by page as two kernels of 2014 did;
/// and whether zones limit their dirty pages.
const WAYS: [&str; 4] = [
    "fileio=runs",
    "framelists=linked",
    "fileio=pages",
    "fileio=pages,framelists=linked,pagelock=hashed,accessed=atomic,flags=atomic",
];

thread_local! {
    static WAY: Cell<&'static str> = const { Cell::new(WAYS[0]) };
}

fn in_each_way(test: impl Fn()) {
    for way in built_in(WAYS) {
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
    vm: Vm<TestMachine, F, ByRegions>,
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
    let vm: Vm<_, F, ByRegions> = Vm::new(machine, design()).unwrap();
    let mount = vm.page_cache().begin_mount(limit).unwrap();
    let id = match is_file {
        true => vm
            .page_cache()
            .begin_file(&FileRequest::stored(STORE, 0))
            .unwrap(),
        false => vm
            .page_cache()
            .begin_file(&FileRequest::in_mount(mount))
            .unwrap(),
    };
    let space = vm.begin_space().unwrap();
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
                true => self.vm.page_cache().append(self.id, &parts).unwrap(),
                false => (
                    place,
                    self.vm
                        .page_cache()
                        .write_at(self.id, place, &parts)
                        .unwrap(),
                ),
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
        let read = self
            .vm
            .page_cache()
            .read_at(self.id, place, &mut [head, &mut [], tail]);
        let wanted = self.bytes.get(place as usize..).unwrap_or(&[]);
        let wanted = &wanted[..length.min(wanted.len())];
        assert_eq!(read, Ok(wanted.len()), "{length} bytes at {place}");
        assert!(data[..wanted.len()] == *wanted, "{length} bytes at {place}");
        assert!(data[wanted.len()..].iter().all(|byte| *byte == 0x5a));
        format!("read {length} at {place}")
    }

    fn resize(&mut self, rng: &mut Rng) -> String {
        let size = self.place(rng);
        self.vm.page_cache().set_size(self.id, size).unwrap();
        self.bytes.resize(size as usize, 0);
        let end = size.div_ceil(self.frame());
        self.pages.retain(|page| *page < end);
        format!("size {size}")
    }

    fn punch(&mut self, rng: &mut Rng) -> String {
        let place = self.place(rng);
        let length = self.length(rng, place) as u64;
        self.vm
            .page_cache()
            .punch_hole(self.id, place, length)
            .unwrap();
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
        assert_eq!(
            self.vm.page_cache().seek_data(self.id, place).ok(),
            wanted,
            "at {place}"
        );
        let wanted = Some(find(false)).filter(|_| !past);
        assert_eq!(
            self.vm.page_cache().seek_hole(self.id, place).ok(),
            wanted,
            "at {place}"
        );
        format!("seek from {place}")
    }

    /// What of a file is in memory shows reading ahead, which the model does not know:
    /// between data there are zeroes, and between holes something is stored or was.
    fn seek_in_file(&self, place: u64) {
        let (data, hole) = (
            self.vm.page_cache().seek_data(self.id, place),
            self.vm.page_cache().seek_hole(self.id, place),
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
            let ends = self
                .vm
                .page_cache()
                .seek_data(self.id, hole)
                .unwrap_or(self.size());
            assert!(ends > hole && zero(hole, ends), "{place}: {hole}, {ends}");
        }
    }

    /// Everything that can be seen.
    fn check(&self) {
        let mut all = vec![1; self.bytes.len() + 9];
        let read = self.vm.page_cache().read_at(self.id, 0, &mut [&mut all]);
        assert_eq!(read, Ok(self.bytes.len()));
        all.truncate(self.bytes.len());
        let differs = all.iter().zip(&self.bytes).position(|(a, b)| a != b);
        assert_eq!(differs, None, "of {} bytes", all.len());
        let stats = self.vm.page_cache().object_stats(self.id).unwrap();
        assert_eq!(stats.size, self.size());
        if !self.is_file {
            assert_eq!(stats.cached, self.pages.len() as u64);
            let mount = self.vm.page_cache().mount_stats(self.mount).unwrap();
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
                self.vm.file(self.id).sync().unwrap();
                assert_eq!(self.vm.page_cache().object_stats(self.id).unwrap().dirty, 0);
                String::from("sync")
            }
            _ => self.seek(rng),
        }
    }

    fn finish(self) {
        self.vm.exit(self.space).unwrap();
        self.vm.page_cache().release_object(self.id).unwrap();
        let mount = self.vm.page_cache().mount_stats(self.mount).unwrap();
        assert_eq!((mount.used, mount.objects), (0, 0));
        self.vm.page_cache().release_mount(self.mount).unwrap();
        assert_eq!(self.vm.page_cache().mount_stats(self.mount), None);
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

#[cfg(feature = "published")]
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
        world.vm.page_cache().release_object(world.id).unwrap();
        let again = world
            .vm
            .page_cache()
            .begin_file(&FileRequest::stored(STORE, world.size()))
            .unwrap();
        let mut all = vec![1; world.bytes.len()];
        let read = world.vm.page_cache().read_at(again, 0, &mut [&mut all]);
        assert_eq!(read, Ok(all.len()));
        assert!(all == world.bytes);
    });
}
