//! Memory that is short, above a device that fails and loses power. Private pages go to swap and
//! come back while files are written back, each block of the device fails in turn, and the power
//! goes at each write. Contents are compared with a model.

use std::sync::Arc;

use vellum::addr::{Access, Prot, Vpn};
use vellum::platform::CpuId;
use vellum::space::{Advice, FaultError, FileError, MapRequest, Placement, SpaceId};
use vellum::swap::{SwapArea, SwapStats};
use vellum_machine::BackingStore;
use vellum_machine::mmu::AccessError;
use vellum_machine::store::{
    BlockDevice, CompressedArea, CompressedStore, Contents, DeviceStore, Transfer,
};

use crate::power::{self, Model, PAGE, PAGES, World};
use crate::support::{self, Rng};

const CPU: CpuId = CpuId(0);
/// Private pages, and frames: fewer than there are pages of the file and private ones.
const PRIVATE: u64 = 64;
const FRAMES: u64 = 72;
const START: u64 = 5000;
const SWAP: u64 = 9;
const SLOTS: u64 = 80;
const BLOCKS: u64 = 2 * SLOTS;
const STEPS: usize = 70;
/// Words of a page that are looked at.
const WORDS: [u64; 2] = [0, 511];

/// A manager on the device, and what its private pages hold.
struct Life {
    world: World,
    private: Vec<[u64; WORDS.len()]>,
}

/// How the workload went.
#[derive(Default)]
struct Went {
    /// Errors of private pages, and of the file.
    private: u64,
    file: u64,
}

fn address(page: u64, word: usize) -> u64 {
    (START + page) * PAGE + WORDS[word] * 8
}

impl Life {
    fn new(store: Arc<dyn BackingStore>, size: u64) -> Life {
        let area = SwapArea::new(SWAP, SLOTS);
        let world = power::world_with(store, size, FRAMES * PAGE, "reclaim=on", Some(area));
        world.on(|| {
            let request = MapRequest::anonymous(PRIVATE, Prot::READ_WRITE);
            let request = request.at(Placement::Fixed(Vpn(START)));
            world.vm.space(world.space).map(&request).unwrap();
        });
        Life {
            world,
            private: vec![[0; WORDS.len()]; PRIVATE as usize],
        }
    }

    fn access(
        &self,
        space: SpaceId,
        address: u64,
        access: Access,
        value: u64,
    ) -> Result<u64, FaultError> {
        let vm = &self.world.vm;
        // A page may leave again before the access that it was brought in for.
        for _ in 0..64 {
            let done = self
                .world
                .on(|| support::access(vm, CPU, space, address, access, value));
            match done {
                Ok(word) => return Ok(word),
                Err(AccessError::Refused(error)) => return Err(error),
                Err(AccessError::Unresolved { .. }) => {}
                Err(AccessError::Conflict(fault)) => panic!("{fault}"),
            }
        }
        panic!("address {address:#x} never stays");
    }

    fn store(&mut self, page: u64, value: u64) -> Result<(), FaultError> {
        for word in 0..WORDS.len() {
            let value = value ^ word as u64;
            self.access(self.world.space, address(page, word), Access::Write, value)?;
            self.private[page as usize][word] = value;
        }
        Ok(())
    }

    fn look(&self, space: SpaceId, page: u64) -> Result<(), FaultError> {
        for word in 0..WORDS.len() {
            let found = self.access(space, address(page, word), Access::Read, 0)?;
            let expected = self.private[page as usize][word];
            assert_eq!(found, expected, "private page {page}, word {word}");
        }
        Ok(())
    }

    /// A child looks at what its parent has, and stores to some of it.
    fn fork(&self, first: u64, pages: u64) -> Result<(), FaultError> {
        let vm = &self.world.vm;
        let child = self
            .world
            .on(|| vm.space(self.world.space).fork().unwrap().id());
        let looked = (first..first + pages).try_for_each(|page| {
            self.look(child, page)?;
            self.access(child, address(page, 0), Access::Write, u64::MAX)
                .map(|_| ())
        });
        self.world
            .on(|| while vm.space(child).exit() == Ok(false) {});
        looked
    }

    /// One operation on private pages.
    fn private_step(&mut self, rng: &mut Rng) -> Result<(), FaultError> {
        let first = rng.below(PRIVATE - 16);
        let mut pages = first..first + 1 + rng.below(16);
        match rng.below(7) {
            0..=2 => pages.try_for_each(|page| self.store(page, rng.next())),
            3 | 4 => pages.try_for_each(|page| self.look(self.world.space, page)),
            5 => self.fork(first, pages.end - first),
            _ => {
                let (vm, space) = (&self.world.vm, self.world.space);
                let count = pages.end - first;
                let advice = || {
                    vm.space(space)
                        .advise(Vpn(START + first), count, Advice::PageOut)
                };
                self.world.on(advice).unwrap();
                Ok(())
            }
        }
    }

    /// Runs the workload, to its end or the first error.
    fn run(&mut self, seed: u64, model: &mut Model, stops: bool) -> Went {
        let (mut rng, mut went) = (Rng(seed), Went::default());
        for step in 0..STEPS {
            if stops && went.private + went.file > 0 {
                break;
            }
            if step % 3 == 0 {
                if let Err(error) = self.world.step(&mut rng, model) {
                    // Without power nothing can leave.
                    let is_full = stops && error == FileError::OutOfMemory;
                    assert!(is_full || error == FileError::Io, "{error}");
                    went.file += 1;
                }
            } else if let Err(error) = self.private_step(&mut rng) {
                let is_full = stops && error == FaultError::OutOfMemory;
                assert!(is_full || error == FaultError::Io, "{error}");
                went.private += 1;
            }
        }
        self.world.on(|| self.world.vm.audit()).unwrap();
        went
    }

    /// Every private page has what was stored, now that nothing fails.
    fn all_is_right(&self) {
        for page in 0..PRIVATE {
            self.look(self.world.space, page).unwrap();
        }
    }

    /// Makes the file safe. One sync may say that a write had failed.
    fn sync(&self, model: &mut Model) {
        let sync = || self.world.on(|| self.world.file.on(&self.world.vm).sync());
        if let Err(error) = sync() {
            assert_eq!(error, FileError::Io);
            sync().unwrap();
        }
        model.synced(0..PAGES);
    }
}

fn device() -> (Arc<BlockDevice>, Arc<DeviceStore>) {
    let device = Arc::new(BlockDevice::memory(PAGE as usize, BLOCKS));
    let store = DeviceStore::new(Arc::clone(&device), |_, _| 0);
    (device, Arc::new(store))
}

/// The device as it is, or with a compressed store in front of swap that soon writes back.
fn front(store: &Arc<DeviceStore>, is_compressed: bool) -> Arc<dyn BackingStore> {
    let store = Arc::clone(store) as Arc<dyn BackingStore>;
    let about = CompressedArea {
        area: SWAP,
        slots: SLOTS,
        bytes: 5 << 10,
        writes_back: true,
    };
    match is_compressed {
        true => {
            let compressed = CompressedStore::new(store, about).unwrap();
            Arc::new(compressed.with_contents(Contents::new(PAGE as usize)))
        }
        false => store,
    }
}

fn seed() -> u64 {
    let seed = support::number("VELLUM_SEED").unwrap_or(41);
    println!("seed {seed} (VELLUM_SEED={seed} repeats it)");
    seed
}

/// Runs the workload once for each block and direction, in which transfers of that block fail,
/// and returns what swap counted in all, and the errors.
fn with_each_block_failing(is_compressed: bool) -> (SwapStats, Went) {
    let seed = seed();
    let (mut all, mut errors) = (SwapStats::default(), Went::default());
    for direction in [Transfer::Write, Transfer::Read] {
        for block in 0.. {
            let (device, store) = device();
            let mut life = Life::new(front(&store, is_compressed), 0);
            let mut model = Model::default();
            device.faults().fail_range(direction, block..block + 1);
            let went = life.run(seed, &mut model, false);
            let is_reached = device.faults().failures() > 0;
            device.faults().heal();
            life.all_is_right();
            life.sync(&mut model);
            let what = format!("{direction:?} of block {block} failed");
            power::check(&store, &model, &what);
            life.world.on(|| life.world.vm.audit()).unwrap();
            if direction == Transfer::Write {
                assert_eq!(went.private, 0, "{what}: a page that could not go was lost");
            }
            let stats = life.world.vm.swap_stats();
            all.outs += stats.outs;
            all.ins += stats.ins;
            all.write_errors += stats.write_errors;
            all.read_errors += stats.read_errors;
            errors.private += went.private;
            errors.file += went.file;
            if !is_reached && !device.is_written(block) {
                break;
            }
        }
    }
    (all, errors)
}

#[test]
fn a_block_that_fails_loses_no_page_and_its_error_reaches_who_asked() {
    let (swap, errors) = with_each_block_failing(false);
    let said = (errors.private, errors.file);
    assert!(
        swap.write_errors > 10 && swap.read_errors > 10,
        "{swap:?}, {said:?}"
    );
    assert!(said.0 > 10 && said.1 > 10, "{swap:?}, {said:?}");
}

/// Writing back fails here, and reading what was written back.
#[test]
fn a_block_that_fails_behind_a_compressed_store_loses_no_page() {
    let (swap, errors) = with_each_block_failing(true);
    let said = (errors.private, errors.file);
    assert!(swap.read_errors > 5, "{swap:?}, {said:?}");
    assert!(said.0 > 5 && said.1 > 10, "{swap:?}, {said:?}");
}

/// After the power was gone, what was synced is in the file; and swap may hold anything.
fn with_power_cut_at_each_write(is_compressed: bool) {
    let seed = seed();
    let mut cuts = 0;
    for writes in 0.. {
        let (device, store) = device();
        device.cut_power_after(writes);
        let (mut life, mut model) = (Life::new(front(&store, is_compressed), 0), Model::default());
        let went = life.run(seed, &mut model, true);
        drop(life);
        // Devices write back in any order.
        device.lose_power_except(|block| (block ^ writes).is_multiple_of(3));
        power::check(&store, &model, &format!("cut after {writes} blocks"));
        for slot in 0..SLOTS {
            let garbage = vec![slot as u8 | 0x80; PAGE as usize];
            store.write_page(SWAP, slot, &garbage).unwrap();
        }
        let size = model.bytes.len() as u64;
        let mut life = Life::new(front(&store, is_compressed), size);
        life.all_is_right();
        let mut rng = Rng(seed ^ writes);
        for _ in 0..12 {
            life.private_step(&mut rng).unwrap();
        }
        life.all_is_right();
        power::check(&store, &model, "the life after the cut");
        if went.private + went.file == 0 {
            break;
        }
        cuts += 1;
    }
    assert!(cuts > 60, "only {cuts} blocks were written");
}

#[test]
fn after_a_power_cut_at_each_write_files_are_as_synced_and_swap_is_not_trusted() {
    with_power_cut_at_each_write(false);
}

#[test]
fn the_same_with_a_compressed_store_in_front_of_swap() {
    with_power_cut_at_each_write(true);
}
