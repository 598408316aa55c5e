//! The two lists of aging: what is used again becomes active, and nothing is lost.

use std::vec::Vec;

use super::{ListLengths, TwoLists};
use crate::addr::Pfn;
use crate::design::FlagUpdates;
use crate::frame::{Kind, PageFlags, PhysicalMemory, Request, Site};
use crate::object::{AgedPage, Aging, Inserted};
use crate::testing::{Rng, TestMachine, run_on};

const UPDATES: [FlagUpdates; 2] = [FlagUpdates::Plain, FlagUpdates::Atomic];

/// Lists over a memory of one zone.
struct World {
    memory: PhysicalMemory<TestMachine>,
    lists: TwoLists,
}

fn world(updates: FlagUpdates) -> World {
    run_on(0);
    let memory = PhysicalMemory::new(TestMachine::simple(1, 600)).unwrap();
    let lists = TwoLists::new(memory.view(), updates);
    World { memory, lists }
}

impl World {
    fn page(&self, frame: Pfn) -> AgedPage<'_> {
        AgedPage::new(frame, self.memory.frame(frame))
    }

    fn insert(&self) -> Pfn {
        let pin = self.memory.pin();
        let frame = self.memory.alloc(&pin, Request::page(Site::CachePage));
        let frame = frame.unwrap();
        self.memory.frame(frame).set_kind(Kind::Object);
        self.lists.inserted(&pin, self.page(frame), Inserted::Cache);
        frame
    }

    fn touch(&self, frame: Pfn) {
        self.lists.touched(&self.memory.pin(), self.page(frame));
    }

    fn remove(&self, frames: &[Pfn]) {
        let pin = self.memory.pin();
        let mut pages = frames.iter().map(|&frame| self.page(frame));
        self.lists.removed_all(&pin, &mut pages);
        for &frame in frames {
            self.memory.put(&pin, frame);
        }
    }

    fn lengths(&self) -> (u64, u64) {
        let pin = self.memory.pin();
        self.lists.settle(&pin);
        let ListLengths { inactive, active } = self.lists.lengths(&pin, 0);
        (inactive, active)
    }

    fn oldest(&self, active: bool) -> Option<Pfn> {
        self.lists.oldest(&self.memory.pin(), 0, active)
    }
}

#[test]
fn the_second_touch_makes_a_page_active() {
    for updates in UPDATES {
        let world = world(updates);
        let frames: Vec<Pfn> = (0..40).map(|_| world.insert()).collect();
        assert_eq!(world.lengths(), (40, 0));
        for _ in 0..2 {
            world.touch(frames[7]);
        }
        world.touch(frames[8]);
        assert_eq!(world.lengths(), (39, 1));
        assert_eq!(world.oldest(true), Some(frames[7]));
        assert_eq!(world.oldest(false), Some(frames[0]), "the first to come");
        let page = world.page(frames[7]);
        assert!(page.has(PageFlags::ACTIVE) && !page.has(PageFlags::REFERENCED));
        // One that is used for ever stays where it is.
        for _ in 0..3 {
            world.touch(frames[7]);
        }
        assert_eq!(world.lengths(), (39, 1));
        world.remove(&frames);
        assert_eq!(world.lengths(), (0, 0));
        assert_eq!((world.oldest(false), world.oldest(true)), (None, None));
    }
}

/// A page may be used again, or go, before its CPU has listed it.
#[test]
fn pages_that_wait_to_be_listed_are_promoted_and_removed_too() {
    for updates in UPDATES {
        let world = world(updates);
        let frames: Vec<Pfn> = (0..5).map(|_| world.insert()).collect();
        for frame in [0, 0, 1, 1, 2] {
            world.touch(frames[frame]);
        }
        world.remove(&frames[1..2]);
        assert_eq!(world.lengths(), (3, 1));
        assert_eq!(world.oldest(true), Some(frames[0]));
    }
}

/// A frame that comes again begins inactive, whatever it was.
#[test]
fn what_a_frame_was_before_does_not_make_its_next_page_active() {
    for updates in UPDATES {
        let world = world(updates);
        for _ in 0..600 {
            let frame = world.insert();
            assert!(!world.page(frame).has(PageFlags::ACTIVE), "{frame:?}");
            world.touch(frame);
            world.touch(frame);
            assert_eq!(world.lengths(), (0, 1));
            world.remove(&[frame]);
            assert_eq!(world.lengths(), (0, 0));
        }
    }
}

#[test]
fn random_uses_leave_the_lists_as_a_model_has_them() {
    for (seed, updates) in (11..).zip(UPDATES) {
        let world = world(updates);
        let mut rng = Rng::new(seed);
        // Frame, touched once, active.
        let mut pages: Vec<(Pfn, bool, bool)> = Vec::new();
        for _ in 0..4000 {
            match rng.below(5) {
                0 | 1 if pages.len() < 100 => pages.push((world.insert(), false, false)),
                2 | 3 if !pages.is_empty() => {
                    let used = rng.below(pages.len());
                    let (frame, touched, active) = &mut pages[used];
                    world.touch(*frame);
                    if *touched && !*active {
                        (*touched, *active) = (false, true);
                    } else {
                        *touched = true;
                    }
                }
                _ => {
                    let from = rng.below(pages.len() + 1);
                    let gone = pages.drain(from..(from + 3).min(pages.len()));
                    let gone: Vec<Pfn> = gone.map(|page| page.0).collect();
                    world.remove(&gone);
                }
            }
            let active = pages.iter().filter(|page| page.2).count() as u64;
            assert_eq!(world.lengths(), (pages.len() as u64 - active, active));
        }
    }
}
