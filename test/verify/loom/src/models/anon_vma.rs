//! Anon_vmas: faults that race to give a region one, a neighbour's that ends
//! meanwhile, and lookups of one that ends and is used anew.

use std::sync::atomic::{AtomicU32 as Tally, Ordering::SeqCst};

use loom::sync::Arc;
use loom::thread;

use super::{check, pin};
use crate::relatives::{Relation, Relations, Relatives};
use crate::sync::atomic::{AtomicU32, Ordering};
use crate::sync::{EpochStamp, Epochs, Pin};

const REGION: u32 = 1;
const NEIGHBOUR: u32 = 2;
const LATER: u32 = 3;

/// Three regions, three anon_vmas, and the record of one page.
struct Model {
    epochs: Epochs,
    relations: Vec<Relation>,
    anon_vmas: Vec<Relatives>,
    /// Anon_vmas whose last region has left.
    ended: Vec<Tally>,
    /// What the page's record says.
    owner: AtomicU32,
}

impl Relations for Model {
    fn relation(&self, region: u32) -> &Relation {
        &self.relations[region as usize]
    }
}

impl Model {
    fn new() -> Arc<Model> {
        Arc::new(Model {
            epochs: Epochs::new(3),
            relations: (0..4).map(|_| Relation::default()).collect(),
            anon_vmas: (0..4).map(|_| Relatives::new()).collect(),
            ended: (0..4).map(|_| Tally::new(0)).collect(),
            owner: AtomicU32::new(0),
        })
    }

    fn anon_vma(&self, handle: u32) -> &Relatives {
        &self.anon_vmas[handle as usize]
    }

    fn join(&self, pin: &Pin<'_>, anon_vma: u32, region: u32) -> bool {
        self.anon_vma(anon_vma)
            .lock(pin)
            .join(self, anon_vma, region, 0)
    }

    /// A region ends.
    fn end(&self, pin: &Pin<'_>, region: u32) {
        let anon_vma = self.relation(region).anon_vma();
        if self.anon_vma(anon_vma).lock(pin).leave(self, region) {
            self.ended[anon_vma as usize].fetch_add(1, SeqCst);
        }
    }

    /// The regions that a lookup goes through.
    fn look(&self, pin: &Pin<'_>, anon_vma: u32) -> Vec<u32> {
        let list = self.anon_vma(anon_vma).lock(pin);
        let mut found = Vec::new();
        let mut region = list.first();
        while region != 0 {
            found.push(region);
            region = list.next(self, region);
        }
        found
    }
}

#[test]
fn of_two_faults_one_gives_the_region_its_anon_vma() {
    check(|| {
        let model = Model::new();
        let fault = |model: &Model, cpu: u16| {
            let pin = pin(&model.epochs, cpu);
            let new = u32::from(cpu) + 1;
            if model.relation(REGION).anon_vma() == 0 && !model.join(&pin, new, REGION) {
                assert!(
                    model.anon_vma(new).is_unused(),
                    "what is given back is used"
                );
            }
            let named = model.relation(REGION).anon_vma();
            assert_eq!(model.look(&pin, named), [REGION]);
            named
        };
        let other = {
            let model = model.clone();
            thread::spawn(move || fault(&model, 1))
        };
        let first = fault(&model, 0);
        assert_eq!(
            first,
            other.join().unwrap(),
            "two pages name different ones"
        );
        let used = (1..3).filter(|&handle| !model.anon_vma(handle).is_unused());
        assert_eq!(used.collect::<Vec<_>>(), [first]);
        assert_eq!(model.anon_vma(first).regions(), 1);
    });
}

/// A fault takes a neighbour's anon_vma while the neighbour, the last region
/// that has it, ends. Returns how often it was shared, and how often not.
fn share_while_it_ends(looks_again: bool) -> (u32, u32) {
    let tallies = std::sync::Arc::new((Tally::new(0), Tally::new(0)));
    let sums = tallies.clone();
    check(move || {
        let model = Model::new();
        model.join(&pin(&model.epochs, 0), 1, NEIGHBOUR);
        let other = {
            let model = model.clone();
            thread::spawn(move || model.end(&pin(&model.epochs, 1), NEIGHBOUR))
        };
        let pin = pin(&model.epochs, 0);
        let shared = model.relation(NEIGHBOUR).anon_vma();
        let mut joined = false;
        if shared != 0 {
            let list = model.anon_vma(shared).lock(&pin);
            if !looks_again || model.relation(NEIGHBOUR).anon_vma() == shared {
                joined = list.join(&*model, shared, REGION, 0);
            }
        }
        if !joined {
            assert!(model.join(&pin, 2, REGION));
        }
        other.join().unwrap();
        let named = model.relation(REGION).anon_vma();
        let ended = model.ended[named as usize].load(SeqCst);
        assert_eq!(ended, 0, "a region has an anon_vma that has ended");
        let tally = if named == 1 { &sums.0 } else { &sums.1 };
        tally.fetch_add(1, SeqCst);
    });
    (tallies.0.load(SeqCst), tallies.1.load(SeqCst))
}

#[test]
fn a_neighbours_anon_vma_is_shared_only_while_the_neighbour_has_it() {
    let (shared, new) = share_while_it_ends(true);
    assert!(shared > 0 && new > 0, "shared {shared}, new {new}");
}

#[test]
#[should_panic(expected = "a region has an anon_vma that has ended")]
fn a_neighbours_anon_vma_taken_without_a_second_look_may_have_ended() {
    share_while_it_ends(false);
}

/// A page is looked up while the only region that shows it ends; then its
/// anon_vma is used for another region if `may_reuse`. Returns how often it was.
fn look_while_it_ends(may_reuse: fn(&Epochs, EpochStamp) -> bool) -> u32 {
    let reuses = std::sync::Arc::new(Tally::new(0));
    let sum = reuses.clone();
    check(move || {
        let model = Model::new();
        model.join(&pin(&model.epochs, 0), 1, REGION);
        model.owner.store(1, Ordering::Relaxed);
        let other = {
            let model = model.clone();
            thread::spawn(move || {
                let pin = pin(&model.epochs, 1);
                let named = model.owner.load(Ordering::Relaxed);
                if named != 0 {
                    let found = model.look(&pin, named);
                    assert!(!found.contains(&LATER), "an anon_vma was used anew");
                }
            })
        };
        let stamp = {
            let pin = pin(&model.epochs, 0);
            // The page goes before its region does.
            model.owner.store(0, Ordering::Relaxed);
            model.end(&pin, REGION);
            model.epochs.stamp()
        };
        for _ in 0..2 {
            model.epochs.try_advance();
        }
        if may_reuse(&model.epochs, stamp) {
            sum.fetch_add(1, SeqCst);
            assert!(model.join(&pin(&model.epochs, 0), 1, LATER));
        }
        other.join().unwrap();
    });
    reuses.load(SeqCst)
}

#[test]
fn a_lookup_does_not_meet_the_next_user_of_an_anon_vma() {
    let reuses = look_while_it_ends(Epochs::passed);
    assert!(reuses > 0, "the anon_vma was never used anew");
}

#[test]
#[should_panic(expected = "an anon_vma was used anew")]
fn without_the_epoch_a_lookup_meets_the_next_user() {
    look_while_it_ends(|_, _| true);
}

/// Regions of two spaces join and leave one list beside each other.
#[test]
fn a_list_holds_who_has_joined_and_not_left() {
    check(|| {
        let model = Model::new();
        model.join(&pin(&model.epochs, 0), 1, REGION);
        let other = {
            let model = model.clone();
            thread::spawn(move || {
                let pin = pin(&model.epochs, 1);
                model.join(&pin, 1, NEIGHBOUR);
                model.end(&pin, NEIGHBOUR);
            })
        };
        let pin = pin(&model.epochs, 0);
        model.join(&pin, 1, LATER);
        model.end(&pin, REGION);
        other.join().unwrap();
        assert_eq!(model.look(&pin, 1), [LATER]);
        assert_eq!(model.anon_vma(1).regions(), 1);
        model.end(&pin, LATER);
        assert_eq!(model.ended[1].load(SeqCst), 1);
    });
}
