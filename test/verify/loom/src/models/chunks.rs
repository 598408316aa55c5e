//! Pages of pv entries that are taken back (`rmap=pv`): who looks at one beside the space that
//! gives it up, and several takers in one list.

#[path = "../../../../../vellum/src/published/rmap/pv/order.rs"]
#[allow(dead_code, reason = "the models use a part of it")]
mod order;

use std::ptr::NonNull;

use loom::sync::Arc;
use loom::thread;

use self::entry::Chunk;
use self::order::Order;
use super::pin;
use crate::addr::Pfn;
use crate::design::PvLru;
use crate::frame::PhysicalMemory;
use crate::platform::{
    CpuId, CpuSet, Flush, Machine, MemoryRange, Policy, Sleep, Store, TaskToken,
};
use crate::sync::atomic::Ordering;
use crate::sync::{Epochs, SpinLock};

/// A chunk as far as the list of its node knows it.
mod entry {
    use loom::cell::UnsafeCell;

    use crate::addr::Pfn;
    use crate::frame::PhysicalMemory;
    use crate::platform::Platform;
    use crate::sync::atomic::{AtomicU32, Ordering};
    use crate::sync::list::Link;

    pub struct Chunk {
        pub owner: AtomicU32,
        of_node: Link,
        /// Its entries, or what the frame holds after them.
        pub content: UnsafeCell<u32>,
    }

    // SAFETY: the model checker verifies that nobody looks at the content while somebody
    // changes it; all else is atomic.
    unsafe impl Sync for Chunk {}

    impl Chunk {
        pub fn new(owner: u32) -> Chunk {
            Chunk {
                owner: AtomicU32::new(owner),
                of_node: Link::new(),
                content: UnsafeCell::new(0),
            }
        }

        pub fn at<P: Platform>(memory: &PhysicalMemory<P>, frame: Pfn) -> &Chunk {
            // SAFETY: the platform has a chunk for each frame, for as long as it lives.
            unsafe { memory.platform().frame(frame).cast().as_ref() }
        }

        pub fn owner(&self) -> u32 {
            self.owner.load(Ordering::Relaxed)
        }

        pub fn of_node(&self) -> &Link {
            &self.of_node
        }
    }
}

/// Nothing of spaces: their order is not asked for.
mod spaces {
    use crate::slab::Arena;
    use crate::sync::list::{Link, Links};

    pub struct PvSpace(Link);

    pub struct Turns<'a>(pub &'a Arena<PvSpace>);

    impl Links for Turns<'_> {
        fn link(&self, _: u32) -> &Link {
            &self.0.0.0
        }
    }
}

/// Frames that are chunks; nothing else of a platform.
struct Frames([Chunk; 2]);

// SAFETY: the only memory is the chunks, and there is no TLB.
unsafe impl Machine for Frames {
    fn cpus(&self) -> usize {
        2
    }
    fn memory_map(&self) -> &[MemoryRange] {
        &[]
    }
    fn pin(&self) -> CpuId {
        CpuId(0)
    }
    fn unpin(&self, _: CpuId) {}
    fn frame(&self, frame: Pfn) -> NonNull<u8> {
        NonNull::from(&self.0[frame.0 as usize]).cast()
    }
    fn flush(&self, _: CpuId, _: CpuSet<'_>, _: &Flush) {}
    fn relax(&self, _: u32) {}
}

impl Sleep for Frames {
    fn current_task(&self) -> TaskToken {
        TaskToken(0)
    }
    fn park(&self) {}
    fn unpark(&self, _: TaskToken) {}
}

impl Store for Frames {}

impl Policy for Frames {}

/// The only space.
const SPACE: u32 = 1;

/// What a taker looks at before it believes that a chunk is still the space's.
#[derive(Clone, Copy)]
enum Looks {
    /// As [`order::Taker::is_still`] does: its place in the list, and the owner.
    Again,
    /// The owner alone, where the frame has one.
    AtTheOwner,
    /// Nothing.
    Never,
}

struct World {
    epochs: Epochs,
    memory: PhysicalMemory<Frames>,
    order: Order,
    /// Guards the chunks of the space and what they hold.
    space: SpinLock<()>,
}

impl World {
    /// A space with these chunks of two.
    fn new(chunks: u32) -> World {
        let owner = |number: u32| if number < chunks { SPACE } else { 0 };
        let world = World {
            epochs: Epochs::new(2),
            memory: PhysicalMemory::new(Frames([0, 1].map(|number| Chunk::new(owner(number))))),
            order: Order::new(PvLru::Domain, 1),
            space: SpinLock::new(()),
        };
        let pin = pin(&world.epochs, 0);
        for number in 0..chunks {
            world.order.add(&world.memory, Pfn(number), &pin);
        }
        drop(pin);
        world
    }

    fn chunk(&self, frame: Pfn) -> &Chunk {
        Chunk::at(&self.memory, frame)
    }

    /// The last entry of a chunk is freed, and then its frame is somebody else's, who writes
    /// there what looks like the owner.
    fn give_up(&self, cpu: u16, frame: Pfn) {
        let pin = pin(&self.epochs, cpu);
        let chunk = self.chunk(frame);
        let space = self.space.lock(&pin);
        chunk.owner.store(0, Ordering::Relaxed);
        drop(space);
        self.order.remove(&self.memory, [frame].into_iter(), &pin);
        chunk.content.with_mut(|content| {
            // SAFETY: the model checker verifies that nobody looks at it.
            unsafe { *content = 99 }
        });
        chunk.owner.store(SPACE, Ordering::Relaxed);
    }

    /// A frame becomes a chunk of the space.
    fn make(&self, cpu: u16, frame: Pfn) {
        let pin = pin(&self.epochs, cpu);
        let chunk = self.chunk(frame);
        let space = self.space.lock(&pin);
        chunk.content.with_mut(|content| {
            // SAFETY: the frame is the caller's.
            unsafe { *content = 1 }
        });
        chunk.owner.store(SPACE, Ordering::Relaxed);
        drop(space);
        self.order.add(&self.memory, frame, &pin);
    }

    /// Goes over the chunks; returns how many it looked into.
    fn take_back(&self, cpu: u16, looks: Looks) -> u32 {
        let pin = pin(&self.epochs, cpu);
        let mut seen = 0;
        let Some(mut taker) = self.order.taker(&self.memory, 0, &pin) else {
            return 0;
        };
        while let Some((frame, owner)) = taker.next() {
            assert_eq!(owner, SPACE);
            let chunk = self.chunk(frame);
            let space = self.space.lock(&pin);
            let is_still = match looks {
                Looks::Again => taker.is_still(frame, owner),
                Looks::AtTheOwner => chunk.owner() == owner,
                Looks::Never => true,
            };
            if is_still {
                chunk.content.with(|content| {
                    // SAFETY: the model checker verifies that nobody changes it.
                    let content = unsafe { *content };
                    assert!(content < 2, "what was a chunk is read as one");
                });
                seen += 1;
            }
            drop(space);
        }
        seen
    }
}

/// Runs `other` on CPU 1 beside `this` on CPU 0, and then looks how many chunks there are.
fn beside(chunks: u32, other: fn(&World), this: fn(&World), left: u32) {
    let mut builder = loom::model::Builder::new();
    // A step of a list is many accesses.
    builder.preemption_bound.get_or_insert(2);
    builder.check(move || {
        let world = Arc::new(World::new(chunks));
        let thread = {
            let world = world.clone();
            thread::spawn(move || other(&world))
        };
        this(&world);
        thread.join().unwrap();
        assert_eq!(world.take_back(0, Looks::Again), left, "chunks in the list");
    });
}

#[test]
fn a_chunk_that_its_space_gives_up_is_not_looked_into() {
    beside(
        1,
        |world| world.give_up(1, Pfn(0)),
        |world| {
            world.take_back(0, Looks::Again);
        },
        0,
    );
}

#[test]
fn a_frame_that_is_a_chunk_again_is_in_the_list_once() {
    beside(
        1,
        |world| {
            world.give_up(1, Pfn(0));
            world.make(1, Pfn(0));
        },
        |world| {
            world.take_back(0, Looks::Again);
        },
        1,
    );
}

#[test]
fn takers_and_a_chunk_that_goes_leave_the_others_in_the_list() {
    beside(
        2,
        |world| {
            world.give_up(1, Pfn(1));
            world.take_back(1, Looks::Again);
        },
        |world| {
            world.take_back(0, Looks::Again);
        },
        1,
    );
}

#[test]
fn a_chunk_that_comes_meanwhile_is_behind_the_marker_or_seen() {
    beside(
        1,
        |world| world.make(1, Pfn(1)),
        |world| {
            assert!(world.take_back(0, Looks::Again) >= 1);
        },
        2,
    );
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_taker_that_does_not_look_again_is_noticed() {
    beside(
        1,
        |world| world.give_up(1, Pfn(0)),
        |world| {
            world.take_back(0, Looks::Never);
        },
        0,
    );
}

/// What lies in a frame that is no chunk any more may look like an owner.
#[test]
#[should_panic(expected = "Causality violation")]
fn a_taker_that_looks_at_the_owner_alone_is_noticed() {
    beside(
        1,
        |world| world.give_up(1, Pfn(0)),
        |world| {
            world.take_back(0, Looks::AtTheOwner);
        },
        0,
    );
}
