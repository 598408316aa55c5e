//! Nodes at rest: a fault leaves the frame of its page where it is listed, beside one who takes
//! frames off the lists.

use loom::sync::{Arc, Mutex};
use loom::thread;

use super::{check, pin};
use crate::rest::Rests;
use crate::sync::atomic::{AtomicU32, Ordering};
use crate::sync::{Epochs, Unpinned};

const FRAME: u32 = 0;
const NODE: usize = 0;

/// A node at rest, and a frame that is listed where its page would come to.
struct World {
    epochs: Epochs,
    rests: Rests,
    /// Whether the frame is listed.
    list: Mutex<bool>,
    /// Whether the frame has a page.
    page: AtomicU32,
}

impl World {
    fn new() -> Arc<World> {
        let rests = Rests::new(1, 1);
        rests.set_home(FRAME, Some(NODE));
        rests.of(NODE).begin();
        Arc::new(World {
            epochs: Epochs::new(3),
            rests,
            list: Mutex::new(true),
            page: AtomicU32::new(0),
        })
    }

    fn set_listed(&self, is_listed: bool) {
        let mut list = self.list.lock().unwrap();
        *list = is_listed;
        self.rests.set_home(FRAME, is_listed.then_some(NODE));
    }

    /// A page comes to the frame.
    fn fault(&self, cpu: u16) {
        let _pin = pin(&self.epochs, cpu);
        self.page.store(1, Ordering::Relaxed);
        if !self.rests.hold(FRAME) {
            self.set_listed(true);
        }
    }

    /// Takes the frame off the list, and puts it back if it has a page.
    fn take(&self, wait_for_pins: impl FnOnce()) {
        let (_disturbed, _) = self.rests.of(NODE).disturb(wait_for_pins);
        self.set_listed(false);
        if self.page.load(Ordering::Relaxed) == 1 {
            self.set_listed(true);
        }
    }

    fn wait_for_pins(&self) {
        (self.epochs).wait_for_pins(Unpinned::at_door(), |_| thread::yield_now());
    }
}

/// A fault beside one who takes frames.
fn a_page_that_comes_is_listed(take: fn(&World)) {
    check(move || {
        let world = World::new();
        let fault = {
            let world = world.clone();
            thread::spawn(move || world.fault(1))
        };
        take(&world);
        fault.join().unwrap();
        assert!(*world.list.lock().unwrap(), "a page is on no list");
    });
}

#[test]
fn a_page_that_comes_while_its_node_s_rest_ends_is_listed() {
    a_page_that_comes_is_listed(|world| world.take(|| world.wait_for_pins()));
}

#[test]
#[should_panic(expected = "a page is on no list")]
fn who_ends_a_rest_waits_for_those_who_may_have_seen_it() {
    a_page_that_comes_is_listed(|world| world.take(|| ()));
}

/// The second finds the rest ended, and not all gone who saw it; the third comes when they are.
#[test]
fn all_who_end_a_rest_wait_for_those_who_may_have_seen_it() {
    check(|| {
        let world = World::new();
        let rest = world.rests.of(NODE);
        let mut waits = 0;
        let (first, was_at_rest) = rest.disturb(|| {
            let (second, was_at_rest) = rest.disturb(|| waits += 1);
            drop(second);
            assert!(!was_at_rest);
        });
        assert!(was_at_rest);
        assert_eq!(waits, 1, "the second did not wait");
        let (third, was_at_rest) = rest.disturb(|| waits += 1);
        assert_eq!((waits, was_at_rest), (1, false));
        rest.begin();
        assert!(!world.rests.hold(FRAME), "at rest beside reclaim");
        drop((first, third));
        rest.begin();
        assert!(world.rests.hold(FRAME));
    });
}
