//! Superpages of files of a store: ranges that are read whole and mapped so by several spaces,
//! beside stores, which clear a leaf, cuts, and pages that leave.

use crate::world::{World, at};
use vellum::addr::{Prot, Vpn};
use vellum::platform::CpuId;
use vellum::rmap::ReverseMap;
use vellum::space::{Advice, FileRequest, MapRequest, Placement, ReadRequest, WriteRequest};
use vellum::{ObjectId, SpaceId};

const ZERO: CpuId = CpuId(0);
const STORE: u64 = 3;
const PAGE: u64 = 4096;
/// First page of a superpage, and how many it has.
const BASE: u64 = 0x1000;
const PAGES: u64 = 512;
/// Pages that begin with their number.
const NUMBERED: u64 = 8;

explored! {
    a_file_is_read_whole_beside_stores_and_cuts: 20 => read;
    pages_of_a_superpage_of_a_file_leave_beside_loads_and_stores: 20 => leave;
}

struct Mapped<R: ReverseMap> {
    world: World<R>,
    file: ObjectId,
    /// Maps the file privately, for loads.
    reader: SpaceId,
    /// Shares it.
    writer: SpaceId,
}

fn mapped<R: ReverseMap>(design: &str) -> Mapped<R> {
    let design = format!("filehuge=always,{design}");
    let world = World::<R>::new(3, 4 * PAGES, &design);
    let (file, reader, writer) = world.alone(|| {
        let vm = &world.vm;
        let file = vm
            .create_file(FileRequest::stored(STORE, PAGES << 12))
            .unwrap()
            .id();
        for page in 0..NUMBERED {
            let bytes = page.to_le_bytes();
            assert_eq!(
                vm.file(file)
                    .write(WriteRequest::bytes(page * PAGE, &[&bytes])),
                Ok(8)
            );
        }
        vm.file(file).sync().unwrap();
        vm.file(file).release().unwrap();
        // Nothing of it is in memory any more.
        let file = vm
            .create_file(FileRequest::stored(STORE, PAGES << 12))
            .unwrap()
            .id();
        let reader = vm.create_space().unwrap().id();
        let request = MapRequest::object(file, 0, PAGES, Prot::READ);
        vm.space(reader)
            .map(&request.at(Placement::Fixed(Vpn(BASE))))
            .unwrap();
        let writer = vm.create_space().unwrap().id();
        world.object(writer, file, 0, BASE, PAGES, true);
        (file, reader, writer)
    });
    Mapped {
        world,
        file,
        reader,
        writer,
    }
}

impl<R: ReverseMap> Mapped<R> {
    /// Loads numbers, those of `cut` pages perhaps as zero.
    fn load(&self, cpu: CpuId, space: SpaceId, cut: &[u64]) {
        for page in 0..NUMBERED {
            let seen = self.world.load(cpu, space, at(BASE + page, 0));
            let is_cut = cut.contains(&page) && seen == Ok(0);
            assert!(seen == Ok(page) || is_cut, "page {page}: {seen:?}");
        }
    }

    /// Stores to pages and loads what it stored.
    fn store(&self, cpu: CpuId, pages: impl Iterator<Item = u64>) {
        for page in pages {
            let place = at(BASE + page, 1);
            self.world
                .store(cpu, self.writer, place, page + 70)
                .unwrap();
            assert_eq!(self.world.load(cpu, self.writer, place), Ok(page + 70));
        }
    }

    fn check(&self, pages: impl Iterator<Item = u64>) {
        self.world.alone(|| {
            for page in pages {
                for space in [self.reader, self.writer] {
                    let seen = self.world.load(ZERO, space, at(BASE + page, 1));
                    assert_eq!(seen, Ok(page + 70), "page {page}");
                }
            }
        });
    }

    fn finish(&self) {
        self.world.finish(&[self.reader, self.writer], &[self.file]);
    }
}

fn read<R: ReverseMap>() {
    let mapped = mapped::<R>("");
    let (world, file) = (&mapped.world, mapped.file);
    let load = |cpu| mapped.load(cpu, mapped.reader, &[6]);
    let store = |cpu| {
        mapped.load(cpu, mapped.writer, &[6]);
        mapped.store(cpu, 0..4);
    };
    let cut = |_| {
        let mut word = [0; 8];
        let read = world
            .vm
            .file(file)
            .read(ReadRequest::bytes(5 * PAGE, &mut [&mut word]));
        assert_eq!((read, word), (Ok(8), 5_u64.to_le_bytes()));
        world.vm.file(file).punch_hole(6 * PAGE, PAGE).unwrap();
        world.vm.file(file).set_size(100 * PAGE).unwrap();
        world.vm.file(file).set_size(PAGES * PAGE).unwrap();
    };
    world.run(&[&load, &store, &cut]);
    mapped.check(0..4);
    mapped.finish();
}

fn leave<R: ReverseMap>() {
    let mapped = mapped::<R>("reclaim=on");
    let world = &mapped.world;
    let load = |cpu| {
        mapped.load(cpu, mapped.reader, &[]);
        let advised = (world.vm)
            .space(mapped.reader)
            .advise(Vpn(BASE + 2), 3, Advice::PageOut);
        assert_eq!(advised, Ok(()));
        mapped.load(cpu, mapped.reader, &[]);
    };
    let store = |cpu| {
        mapped.load(cpu, mapped.writer, &[]);
        mapped.store(cpu, 0..4);
        world.vm.file(mapped.file).sync().unwrap();
    };
    let reclaim = |_| {
        for _ in 0..3 {
            world.vm.reclaim_pages(PAGES);
        }
    };
    world.run(&[&load, &store, &reclaim]);
    mapped.check(0..4);
    mapped.finish();
}
