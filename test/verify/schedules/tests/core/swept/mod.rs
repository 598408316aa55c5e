//! Pairs of operations, one of which is preempted at each of its accesses in turn while
//! the other does all it has to do.
//!
//! One preemption is enough for most races that need no third task. There are as many
//! runs as a pair makes accesses, and no luck is needed.

mod dirty;
mod faults;
mod freed;
mod hooks;
mod io;
mod lifts;
mod locked;
mod moved;
mod spaces;
mod swap;
mod tracts;
mod visits;
mod withdrawn;

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::world::{RW, World, at, pristine};
use vellum::ObjectId;
use vellum::addr::{Prot, Vpn};
use vellum::platform::CpuId;
use vellum::rmap::ReverseMap;
use vellum::space::{Advice, FaultError, MapError, MapRequest, Placement, SpaceId};
use vellum_machine::store::Transfer;
use vellum_schedules::{Preemption, Step};

const ZERO: CpuId = CpuId(0);
const SIZE: u64 = 4096;
/// Where an object is shared.
const FIRST: u64 = 0x1000;
/// Where it is shared a second time, without entries at first.
const SECOND: u64 = 0x1200;
/// Where it is private.
const PRIVATE: u64 = 0x1400;
/// How many pages it has.
const PAGES: u64 = 3;

struct Shared<R: ReverseMap> {
    world: World<R>,
    space: SpaceId,
    object: ObjectId,
}

impl<R: ReverseMap> Shared<R> {
    /// Two tasks in a space with an object of [`PAGES`] pages.
    fn new(is_file: bool, design: &str) -> Self {
        Self::on(2, is_file, design)
    }

    /// The same with so many CPUs.
    fn on(cpus: usize, is_file: bool, design: &str) -> Self {
        let world = World::<R>::new(cpus, 300, design);
        let (space, object) = world.alone(|| {
            let space = world.space();
            world.vm.space(space).share().unwrap();
            let object = match is_file {
                true => world.stored(3, PAGES),
                false => world.memory(PAGES),
            };
            for (place, shared) in [(FIRST, true), (SECOND, true), (PRIVATE, false)] {
                world.object(space, object, 0, place, PAGES, shared);
            }
            (space, object)
        });
        Shared {
            world,
            space,
            object,
        }
    }

    /// The same with 5 in the first word of the first two pages.
    fn stored(design: &str) -> Self {
        let shared = Self::new(false, design);
        for page in 0..2 {
            shared.store_alone(FIRST + page, 0, 5);
        }
        shared
    }

    fn store_alone(&self, page: u64, word: u64, value: u64) {
        let world = &self.world;
        world.alone(|| {
            world
                .store(ZERO, self.space, at(page, word), value)
                .unwrap()
        });
    }

    fn load_alone(&self, page: u64, word: u64) -> Result<u64, FaultError> {
        let world = &self.world;
        world.alone(|| world.load(ZERO, self.space, at(page, word)))
    }

    fn finish(&self) {
        self.world.finish(&[self.space], &[self.object]);
    }
}

/// Says that the task whose step it is has made `accesses` accesses since the step began.
fn after(accesses: usize) -> impl Fn() -> bool {
    let left = Cell::new(accesses + 1);
    move || {
        left.set(left.get().saturating_sub(1));
        left.get() == 0
    }
}

fn load<R: ReverseMap>(world: &World<R>, space: SpaceId, page: u64) -> Result<u64, FaultError> {
    world.alone(|| world.load(ZERO, space, at(page, 0)))
}
