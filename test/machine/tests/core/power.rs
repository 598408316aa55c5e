//! Files on a block device that fails, is slow and loses power, under writing back.
//!
//! The model knows of each page every content that it had since it was synced last. After
//! a loss of power the page is one of them, and what was synced and not changed since is
//! there.

use std::collections::BTreeMap;
use std::sync::Arc;

use vellum::addr::{Access, Prot, Vpn};
use vellum::platform::CpuId;
use vellum::rmap::Family;
use vellum::space::{
    FileError, FileRequest, MapRequest, OpenFile, Placement, ReadRequest, WriteRequest,
};
use vellum::swap::SwapArea;
use vellum::table::X86_64;
use vellum::{Design, ObjectId, SpaceId, Vm};
use vellum_machine::store::{BlockDevice, DeviceStore};
use vellum_machine::{Arena, BackingStore, Machine, MachineConfig};

use crate::support::{self, Rng};

pub const PAGE: u64 = 4096;
pub const PAGES: u64 = 24;
const STORE: u64 = 5;
const START: Vpn = Vpn(1000);
const OPERATIONS: usize = 60;

type Page = Vec<u8>;

pub struct World {
    pub vm: Vm<Machine, X86_64, Family>,
    id: ObjectId,
    pub file: OpenFile,
    pub space: SpaceId,
}

/// A manager that finds a file of `size` bytes on the device.
fn world(store: &Arc<DeviceStore>, size: u64) -> World {
    let store = Arc::clone(store) as Arc<dyn BackingStore>;
    world_with(store, size, 4 << 20, "", None)
}

/// The same with other memory, another design, and a swap area.
pub fn world_with(
    store: Arc<dyn BackingStore>,
    size: u64,
    ram_bytes: u64,
    design: &str,
    area: Option<SwapArea>,
) -> World {
    let mut config = MachineConfig::new(ram_bytes);
    config.store = store;
    let arena = Arena::new(config.arena_bytes().unwrap()).unwrap();
    let machine = Machine::new(config, arena).unwrap();
    let vm = Vm::new(machine, Design::parse(design).unwrap()).unwrap();
    if let Some(area) = area {
        vm.swap_on(area).unwrap();
    }
    let (id, file, space) = vm.platform().run_on(CpuId(0), || {
        let id = vm
            .create_file(FileRequest::stored(STORE, size))
            .unwrap()
            .id();
        let space = vm.create_space().unwrap().id();
        let request = MapRequest::object(id, 0, PAGES, Prot::READ_WRITE).shared();
        vm.space(space)
            .map(&request.at(Placement::Fixed(START)))
            .unwrap();
        (id, vm.file(id).open().unwrap(), space)
    });
    World {
        vm,
        id,
        file,
        space,
    }
}

/// What the file is, and what each page may be on the device.
#[derive(Default)]
pub struct Model {
    pub bytes: Vec<u8>,
    may_be: BTreeMap<u64, Vec<Page>>,
}

impl Model {
    fn page(&self, index: u64) -> Page {
        let start = self.bytes.len().min((index * PAGE) as usize);
        let end = self.bytes.len().min(start + PAGE as usize);
        let mut page = self.bytes[start..end].to_vec();
        page.resize(PAGE as usize, 0);
        page
    }

    /// Bytes were written, stored or zeroed.
    fn changed(&mut self, place: u64, len: u64) {
        for index in place / PAGE..(place + len).div_ceil(PAGE) {
            let page = self.page(index);
            self.may_be
                .entry(index)
                .or_insert_with(|| vec![vec![0; PAGE as usize]]);
            self.may_be
                .entry(index)
                .and_modify(|pages| pages.push(page));
        }
    }

    fn wrote(&mut self, place: u64, data: &[u8]) {
        let end = place as usize + data.len();
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        self.bytes[place as usize..end].copy_from_slice(data);
        self.changed(place, data.len() as u64);
    }

    fn resized(&mut self, size: u64) {
        let old = self.bytes.len() as u64;
        self.bytes.resize(size as usize, 0);
        self.may_be.retain(|index, _| *index < size.div_ceil(PAGE));
        self.changed(old.min(size), 1);
    }

    pub fn synced(&mut self, pages: std::ops::Range<u64>) {
        for index in pages {
            let page = self.page(index);
            if let Some(may_be) = self.may_be.get_mut(&index) {
                *may_be = vec![page];
            }
        }
    }
}

impl World {
    pub fn on<T>(&self, work: impl FnOnce() -> T) -> T {
        self.vm.platform().run_on(CpuId(0), work)
    }

    /// One operation; what it has changed is in the model even if it then fails.
    pub fn step(&self, rng: &mut Rng, model: &mut Model) -> Result<(), FileError> {
        let place = rng.below((PAGES - 4) * PAGE);
        match rng.below(12) {
            0..=4 => {
                let data: Vec<u8> = (0..1 + rng.below(3 * PAGE))
                    .map(|at| (at >> 3) as u8 ^ place as u8)
                    .collect();
                let written = self.on(|| {
                    self.vm
                        .file(self.id)
                        .write(WriteRequest::bytes(place, &[&data]))
                })?;
                model.wrote(place, &data[..written]);
            }
            5 if place < model.bytes.len() as u64 => {
                let (place, value) = (place & !7, rng.next());
                let address = START.0 * PAGE + place;
                self.on(|| {
                    support::access(
                        &self.vm,
                        CpuId(0),
                        self.space,
                        address,
                        Access::Write,
                        value,
                    )
                })
                .map_err(|_| FileError::Io)?;
                let end = model.bytes.len().min(place as usize + 8);
                let bytes = value.to_ne_bytes();
                let count = end - place as usize;
                model.wrote(place, &bytes[..count]);
            }
            6 => {
                let end = self.on(|| self.vm.file(self.id).set_size(place));
                end?;
                model.resized(place);
            }
            7..=9 => {
                let pages = 1 + rng.below(6);
                self.on(|| self.vm.file(self.id).write_back(pages))?;
            }
            10 => {
                let len = rng.below(8 * PAGE);
                self.on(|| self.file.on(&self.vm).sync_range(place, len))?;
                model.synced(place / PAGE..(place + len).div_ceil(PAGE));
            }
            _ => {
                self.on(|| self.file.on(&self.vm).sync())?;
                model.synced(0..PAGES);
            }
        }
        Ok(())
    }
}

/// Runs until something fails. Returns the model.
fn run(store: &Arc<DeviceStore>, seed: u64) -> (Model, bool) {
    let world = world(store, 0);
    let (mut rng, mut model) = (Rng(seed), Model::default());
    let failed = (0..OPERATIONS).any(|_| world.step(&mut rng, &mut model).is_err());
    world.on(|| world.vm.audit()).unwrap();
    (model, failed)
}

fn store() -> (Arc<BlockDevice>, Arc<DeviceStore>) {
    let device = Arc::new(BlockDevice::memory(PAGE as usize, 64));
    let store = DeviceStore::new(Arc::clone(&device), |_, _| 0);
    (device, Arc::new(store))
}

/// Reads the whole file by a manager that has just begun.
pub fn check(store: &Arc<DeviceStore>, model: &Model, what: &str) {
    let world = world(store, model.bytes.len() as u64);
    for (&index, may_be) in &model.may_be {
        let mut page = vec![1; PAGE as usize];
        let place = index * PAGE;
        let read = world.on(|| {
            world
                .vm
                .file(world.id)
                .read(ReadRequest::bytes(place, &mut [&mut page]))
        });
        let count = read.unwrap();
        let fits = may_be.iter().any(|known| known[..count] == page[..count]);
        let known = may_be.len();
        assert!(fits, "{what}: page {index} is none of {known} contents");
    }
}

#[test]
fn what_was_synced_is_there_after_a_power_cut_at_every_block_write() {
    let seed = support::number("VELLUM_SEED").unwrap_or(31);
    println!("seed {seed} (VELLUM_SEED={seed} repeats it)");
    let mut cuts = 0;
    for writes in 0.. {
        let (device, store) = store();
        device.cut_power_after(writes);
        let (model, failed) = run(&store, seed);
        // Devices write back in any order.
        device.lose_power_except(|block| (block ^ writes).is_multiple_of(3));
        check(&store, &model, &format!("cut after {writes} blocks"));
        if !failed {
            break;
        }
        cuts += 1;
    }
    assert!(cuts > 40, "only {cuts} blocks were written");
}

#[test]
fn a_device_that_fails_and_is_slow_loses_nothing_that_a_sync_took() {
    let (device, store) = store();
    let world = world(&store, 0);
    let (mut rng, mut model) = (Rng(32), Model::default());
    let mut told = 0;
    for round in 0..40 {
        device.faults().fail_every(3 + round % 4);
        device.faults().set_delay(1000);
        for _ in 0..10 {
            let _ = world.step(&mut rng, &mut model);
        }
        device.faults().heal();
        // What failed is still there to be written, and one sync says that it had failed.
        while let Err(error) = world.on(|| world.file.on(&world.vm).sync()) {
            assert_eq!(error, FileError::Io);
            told += 1;
        }
        model.synced(0..PAGES);
        assert_eq!(
            world.on(|| world.vm.file(world.id).stats()).unwrap().dirty,
            0
        );
        check(&store, &model, &format!("round {round}"));
    }
    assert!(told > 0 && told <= 40, "{told}");
    assert!(device.faults().delay_spent() > 0 && device.faults().failures() > 0);
}
