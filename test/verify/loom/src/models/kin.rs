//! Trees of relatives (`rmap=family`): lookups beside ending spaces, and the
//! counts that keep a node for as long as a page names it.

use std::sync::atomic::{AtomicU32 as Tally, Ordering::SeqCst};

use loom::sync::Arc;
use loom::thread;

use super::{check, pin};
use crate::kin::{Families, Kin, NOBODY, Nodes, found};
use crate::sync::Epochs;

const PARENT: u32 = 1;
const CHILD: u32 = 2;
const GRANDCHILD: u32 = 3;

struct Slots([Kin; 4]);

impl Nodes for Slots {
    fn node(&self, handle: u32) -> &Kin {
        &self.0[handle as usize]
    }
}

/// A parent with a child. Spaces have the numbers of their nodes times ten.
struct Model {
    epochs: Epochs,
    families: Families,
    slots: Slots,
    freed: [Tally; 4],
}

impl Model {
    fn new() -> Model {
        let model = Model {
            epochs: Epochs::new(2),
            families: Families::new(1),
            slots: Slots(std::array::from_fn(|_| Kin::vacant())),
            freed: Default::default(),
        };
        found(model.slots.node(PARENT), PARENT, PARENT * 10);
        model.fork(0, PARENT, CHILD);
        model
    }

    fn fork(&self, cpu: u16, parent: u32, child: u32) {
        let pin = pin(&self.epochs, cpu);
        let family = self.families.lock(&self.slots, parent, &pin).unwrap();
        family.fork(parent, child, child * 10, 0);
    }

    fn end(&self, cpu: u16, node: u32) {
        let pin = pin(&self.epochs, cpu);
        let family = self.families.lock(&self.slots, node, &pin);
        family
            .expect("a living space has a node")
            .end(node, || (), |node| self.free(node));
    }

    fn free(&self, node: u32) {
        assert_eq!(self.slots.node(node).family(), NOBODY);
        self.freed[node as usize].fetch_add(1, SeqCst);
    }

    /// A page that names a node loses its last mapping, or is made.
    fn count(&self, node: u32, change: u64) {
        let pages = &self.slots.node(node).pages;
        pages.hold();
        assert_eq!(
            self.freed[node as usize].load(SeqCst),
            0,
            "counted for a node that is free"
        );
        if pages.settle(change) {
            self.free(node);
        }
    }

    /// The spaces that a lookup of the owner's pages searches.
    fn search(&self, cpu: u16, owner: u32) -> Option<Vec<u32>> {
        let pin = pin(&self.epochs, cpu);
        let family = self.families.lock(&self.slots, owner, &pin)?;
        let mut spaces = Vec::new();
        family.spaces(owner, 0, |space| {
            spaces.push(space);
            true
        });
        Some(spaces)
    }

    fn all_freed(&self, nodes: usize) {
        let freed: Vec<u32> = self.freed.iter().map(|count| count.load(SeqCst)).collect();
        let expected: Vec<u32> = (0..4)
            .map(|node| u32::from((1..=nodes).contains(&node)))
            .collect();
        assert_eq!(freed, expected, "each node is freed once");
    }
}

fn both(model: &Arc<Model>, other: fn(&Model), this: impl FnOnce(&Model)) {
    let thread = {
        let model = model.clone();
        thread::spawn(move || other(&model))
    };
    this(model);
    thread.join().unwrap();
}

/// The page is the child's too: whenever it is looked for, it is found there.
#[test]
fn a_lookup_beside_the_end_of_the_owner_finds_its_heir() {
    check(|| {
        let model = Arc::new(Model::new());
        model.count(PARENT, 1);
        both(
            &model,
            |model| model.end(1, PARENT),
            |model| {
                let spaces = model.search(0, PARENT).expect("the page is mapped");
                assert!(spaces == [10, 20] || spaces == [20], "{spaces:?}");
            },
        );
        assert_eq!(model.search(0, PARENT), Some(vec![20]));
        model.count(PARENT, u64::MAX);
        model.end(0, CHILD);
        model.all_freed(2);
    });
}

/// A node that ends while its family's lock is waited for is not taken for one
/// that is in use.
#[test]
fn the_family_of_a_node_that_has_gone_is_not_locked() {
    check(|| {
        let model = Arc::new(Model::new());
        both(
            &model,
            |model| model.end(1, CHILD),
            |model| {
                let pin = pin(&model.epochs, 0);
                if let Some(_family) = model.families.lock(&model.slots, CHILD, &pin) {
                    assert_ne!(model.slots.node(CHILD).family(), NOBODY);
                }
            },
        );
    });
}

#[test]
fn a_lookup_beside_a_fork_finds_the_parent() {
    check(|| {
        let model = Arc::new(Model::new());
        both(
            &model,
            |model| model.fork(1, CHILD, GRANDCHILD),
            |model| {
                let spaces = model.search(0, CHILD).unwrap();
                assert!(spaces == [20] || spaces == [20, 30], "{spaces:?}");
            },
        );
    });
}

#[test]
fn the_last_two_of_a_family_end_together() {
    check(|| {
        let model = Arc::new(Model::new());
        both(
            &model,
            |model| model.end(1, PARENT),
            |model| model.end(0, CHILD),
        );
        model.all_freed(2);
        assert_eq!(model.search(0, PARENT), None);
    });
}

/// The parent has ended and left a page to the child, which passes it on to
/// the grandchild while the page loses its last mapping.
fn legacy_ends(pages: u64) {
    check(move || {
        let model = Arc::new(Model::new());
        model.fork(0, CHILD, GRANDCHILD);
        // Held while the parent ends, so that it becomes a legacy in any case.
        model.slots.node(PARENT).pages.hold();
        model.end(0, PARENT);
        assert!(!model.slots.node(PARENT).pages.settle(pages));
        both(
            &model,
            |model| model.count(PARENT, u64::MAX),
            |model| model.end(0, CHILD),
        );
        model.end(0, GRANDCHILD);
        model.all_freed(3);
    });
}

#[test]
fn a_node_stays_for_its_last_page() {
    legacy_ends(1);
}

#[test]
#[should_panic(expected = "counted for a node that is free")]
fn a_page_that_was_not_counted_is_noticed() {
    legacy_ends(0);
}

/// The space ends while a CPU still counts for it: whoever is later frees it.
#[test]
fn the_end_of_a_space_and_the_last_count_free_its_node_once() {
    check(|| {
        let model = Arc::new(Model::new());
        model.slots.node(CHILD).pages.hold();
        both(
            &model,
            |model| {
                if model.slots.node(CHILD).pages.settle(0) {
                    model.free(CHILD);
                }
            },
            |model| model.end(0, CHILD),
        );
        model.end(0, PARENT);
        model.all_freed(2);
    });
}
