//! Members of a bundle and when they go: exits, pages let go, and visits.

use std::sync::atomic::{AtomicU32 as Tally, Ordering::SeqCst};

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

use super::{check, pin};
use crate::bundle::{self, Bundle, Gone, Member, Members};
use crate::sync::atomic::{AtomicU32, Ordering, fence};
use crate::sync::{Epochs, Pin, SpinLock};

const HEAD: u32 = 1;
const CHILD: u32 = 2;

/// Two members, the tables of the child's space, and one page.
struct Model {
    epochs: Epochs,
    members: Vec<Member>,
    freed: Vec<Tally>,
    /// What a space has while it lives.
    tables: UnsafeCell<u32>,
    /// The page's member, and the entry that maps it in the child.
    owner: AtomicU32,
    maps: AtomicU32,
    entry: SpinLock<bool>,
    /// Visits that took the page over.
    renamed: Tally,
}

impl Members for Model {
    fn member(&self, handle: u32) -> &Member {
        &self.members[handle as usize]
    }
}

impl Model {
    /// A space and its child; the page names the space, and both map it.
    fn family() -> Arc<Model> {
        let model = Model {
            epochs: Epochs::new(3),
            members: (0..3).map(|_| Member::default()).collect(),
            freed: (0..3).map(|_| Tally::new(0)).collect(),
            tables: UnsafeCell::new(0),
            owner: AtomicU32::new(HEAD),
            maps: AtomicU32::new(1),
            entry: SpinLock::new(true),
            renamed: Tally::new(0),
        };
        bundle::found(&model, HEAD, 11);
        bundle::join(&model, &pin(&model.epochs, 0), HEAD, CHILD, 12);
        model.member(HEAD).hold(1);
        Arc::new(model)
    }

    fn free(&self, handle: u32) {
        let before = self.freed[handle as usize].fetch_add(1, SeqCst);
        assert_eq!(before, 0, "a member is freed twice");
    }

    fn give_back(&self, gone: Gone) {
        for handle in [gone.member, gone.head].into_iter().flatten() {
            self.free(handle);
        }
    }

    fn leave(&self, pin: &Pin<'_>, handle: u32) {
        self.give_back(bundle::leave(self, pin, handle));
    }

    fn drop_page(&self, pin: &Pin<'_>, handle: u32) {
        self.give_back(bundle::drop_page(self, pin, handle));
    }

    fn check_all_freed(&self) {
        let freed = [HEAD, CHILD].map(|handle| self.freed[handle as usize].load(SeqCst));
        assert_eq!(freed, [1, 1], "a member leaks");
    }
}

/// Runs two programs, each on a CPU of its own.
fn beside(model: &Arc<Model>, here: fn(&Model, &Pin<'_>), there: fn(&Model, &Pin<'_>)) {
    let other = {
        let model = model.clone();
        thread::spawn(move || there(&model, &pin(&model.epochs, 1)))
    };
    here(model, &pin(&model.epochs, 0));
    other.join().unwrap();
}

#[test]
fn two_last_exits_free_each_member_once() {
    check(|| {
        let model = Model::family();
        model.drop_page(&pin(&model.epochs, 0), HEAD);
        beside(
            &model,
            |model, pin| model.leave(pin, HEAD),
            |model, pin| model.leave(pin, CHILD),
        );
        model.check_all_freed();
    });
}

/// The exit as it was first merged: it looked at the head's count after it had
/// let go of the lock.
fn leave_and_look(model: &Model, pin: &Pin<'_>, handle: u32) {
    let mut bundle = Bundle::lock(model, pin, HEAD);
    let gone = bundle.release(handle);
    drop(bundle);
    if let Some(member) = gone {
        model.free(member);
    }
    if model.member(HEAD).count() == 1 {
        model.free(HEAD);
    }
}

#[test]
#[should_panic(expected = "a member is freed twice")]
fn a_count_read_outside_of_the_lock_is_noticed() {
    check(|| {
        let model = Model::family();
        model.drop_page(&pin(&model.epochs, 0), HEAD);
        beside(
            &model,
            |model, pin| leave_and_look(model, pin, HEAD),
            |model, pin| leave_and_look(model, pin, CHILD),
        );
    });
}

#[test]
fn the_last_page_and_the_last_exit_free_each_member_once() {
    check(|| {
        let model = Model::family();
        model.leave(&pin(&model.epochs, 0), HEAD);
        beside(
            &model,
            |model, pin| model.drop_page(pin, HEAD),
            |model, pin| model.leave(pin, CHILD),
        );
        model.check_all_freed();
    });
}

#[test]
fn a_members_last_pages_free_it_once() {
    check(|| {
        let model = Model::family();
        let here = pin(&model.epochs, 0);
        model.member(CHILD).hold(2);
        model.leave(&here, CHILD);
        beside(
            &model,
            |model, pin| model.drop_page(pin, CHILD),
            |model, pin| model.drop_page(pin, CHILD),
        );
        model.drop_page(&here, HEAD);
        model.leave(&here, HEAD);
        model.check_all_freed();
    });
}

/// Whoever frees a member may use its memory anew: what others did while pages of
/// theirs held it is done.
#[test]
fn who_frees_a_member_knows_that_others_are_done_with_it() {
    fn use_and_let_go(model: &Model, pin: &Pin<'_>) {
        model.tables.with(|_| ());
        let gone = bundle::drop_page(model, pin, CHILD);
        if gone.member.is_some() {
            model.tables.with_mut(|_| ());
        }
        model.give_back(gone);
    }
    check(|| {
        let model = Model::family();
        let here = pin(&model.epochs, 0);
        model.member(CHILD).hold(2);
        model.leave(&here, CHILD);
        drop(here);
        beside(&model, use_and_let_go, use_and_let_go);
        assert_eq!(model.freed[CHILD as usize].load(SeqCst), 1);
    });
}

/// Unmaps the page from the child, which had the last mapping, and ends the
/// child.
fn unmap_and_leave(model: &Model, pin: &Pin<'_>) {
    {
        let mut entry = model.entry.lock(pin);
        *entry = false;
        model.maps.fetch_sub(1, Ordering::Release);
    }
    fence(Ordering::Acquire);
    let owner = model.owner.load(Ordering::Relaxed);
    model.owner.store(0, Ordering::Relaxed);
    model.drop_page(pin, owner);
    model.leave(pin, CHILD);
    model.tables.with_mut(|tables| {
        // SAFETY: the model checker verifies that no visit is in them.
        unsafe { *tables += 1 }
    });
}

/// Looks for the page's entry in the child, and takes the page over to it.
fn visit(model: &Model, pin: &Pin<'_>) {
    let mut bundle = Bundle::lock(model, pin, HEAD);
    if !bundle.lists(CHILD) || bundle.space(CHILD) == 0 {
        return;
    }
    model.tables.with(|tables| {
        // SAFETY: as above.
        unsafe { *tables }
    });
    let Some(entry) = model.entry.try_lock(pin) else {
        return;
    };
    if *entry && bundle.space(HEAD) == 0 {
        model.owner.store(CHILD, Ordering::Relaxed);
        assert_eq!(bundle.rename(HEAD, CHILD), None, "the head stays for now");
        model.renamed.fetch_add(1, SeqCst);
    }
}

#[test]
fn a_page_goes_to_the_child_or_is_let_go() {
    let moved = std::sync::Arc::new(Tally::new(0));
    let sum = moved.clone();
    check(move || {
        let model = Model::family();
        model.leave(&pin(&model.epochs, 0), HEAD);
        beside(&model, visit, unmap_and_leave);
        model.check_all_freed();
        sum.fetch_add(model.renamed.load(SeqCst), SeqCst);
    });
    assert!(moved.load(SeqCst) > 0, "no visit took the page over");
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_visit_without_the_heads_lock_is_noticed() {
    check(|| {
        let model = Model::family();
        model.leave(&pin(&model.epochs, 0), HEAD);
        beside(
            &model,
            |model, _| {
                if model.member(CHILD).space() != 0 {
                    model.tables.with(|tables| {
                        // SAFETY: it is not: that is what must be noticed.
                        unsafe { *tables }
                    });
                }
            },
            unmap_and_leave,
        );
    });
}
