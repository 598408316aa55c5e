//! Frames that are taken out of use, beside who uses what they hold.

use std::sync::Mutex;

use super::moved::{frame, two_nodes};
use super::*;
use vellum::addr::{Access, Pfn};
use vellum::space::FrameHealth::{Failed, Failing, Good};
use vellum::space::{FrameHealth, WithdrawError, Withdrawn};

swept! {
    a_store_beside_a_failing_frame_is_not_lost => stored;
    a_page_in_a_failing_frame_may_be_shared_by_a_fork => forked;
    a_page_in_a_failing_frame_may_go_to_swap => swapped;
    a_page_in_a_failing_frame_may_be_pinned => pinned;
    a_page_in_a_failing_frame_may_be_cut_off => cut;
    a_page_in_a_failed_frame_is_what_it_was_or_lost => lost;
    a_page_in_a_failed_frame_is_lost_for_a_fork_too => lost_for_both;
    two_who_withdraw_a_frame_agree => twice;
    a_frame_that_is_withdrawn_is_not_handed_out => handed_out;
    two_who_bring_a_frame_back_agree => readmitted;
}

type Done = Result<Withdrawn, WithdrawError>;

/// Takes a frame out of use that holds a page with 5 in its first word, and says what became of it.
fn withdraw<R: ReverseMap>(world: &World<R>, frame: Pfn, health: FrameHealth) -> Done {
    let done = world.vm.set_frame_health(frame, health);
    let is_lost = done == Ok(Withdrawn::Lost);
    assert!(!is_lost || health == Failed, "{done:?}");
    assert_ne!(done, Err(WithdrawError::OutOfMemory));
    done
}

/// Neither page is in a frame that is out of use, and as many are as the calls said.
fn check<R: ReverseMap>(world: &World<R>, space: SpaceId, old: Pfn, done: &[Done]) {
    let out = done.iter().filter(|done| done.is_ok()).count();
    world.alone(|| {
        assert_eq!(world.vm.stats().frames.withdrawn, out as u64, "{done:?}");
        for page in [PRIVATE, FIRST] {
            let is_there = frame(world, space, page) == Some(old);
            assert!(out == 0 || !is_there, "{done:?}");
        }
    });
}

/// Runs a task beside one that takes the frame of a page out of use, for a private page and for one of
/// an object. Returns what the second said.
fn beside<R: ReverseMap>(
    preemption: &Preemption,
    health: FrameHealth,
    other: impl Fn(&World<R>, CpuId, (SpaceId, ObjectId, u64)) + Sync,
    then: impl Fn(&World<R>, (SpaceId, u64), Done),
) {
    for page in [PRIVATE, FIRST] {
        let (world, space, object) = two_nodes::<R>();
        let old = world.alone(|| frame(&world, space, page).unwrap());
        let done = Mutex::new(None);
        let go = |_| *done.lock().unwrap() = Some(withdraw(&world, old, health));
        let beside = |cpu| other(&world, cpu, (space, object, page));
        world.run_preempted(preemption, [&go, &beside]);
        let done = done.into_inner().unwrap().unwrap();
        check(&world, space, old, &[done]);
        then(&world, (space, page), done);
        world.finish_swap(&[space], &[object]);
    }
}

fn stored<R: ReverseMap>(preemption: &Preemption) {
    let store = |world: &World<R>, cpu, (space, _, page)| {
        world.store(cpu, space, at(page, 1), 7).unwrap();
    };
    beside(preemption, Failing, store, |world, (space, page), _| {
        let words = [0, 1].map(|word| world.alone(|| world.load(ZERO, space, at(page, word))));
        assert_eq!(words, [Ok(5), Ok(7)]);
    });
}

fn forked<R: ReverseMap>(preemption: &Preemption) {
    let child = Mutex::new(None);
    let fork = |world: &World<R>, _, (space, _, _)| {
        *child.lock().unwrap() = Some(world.vm.space(space).fork().unwrap().id());
    };
    beside(preemption, Failing, fork, |world, (space, page), _| {
        let child = child.lock().unwrap().take().unwrap();
        assert_eq!(load(world, child, page), Ok(5));
        world.alone(|| world.store(ZERO, child, at(PRIVATE, 0), 6).unwrap());
        assert_eq!(load(world, space, PRIVATE), Ok(5));
        world.alone(|| while world.vm.space(child).exit() == Ok(false) {});
    });
}

fn swapped<R: ReverseMap>(preemption: &Preemption) {
    let out = |world: &World<R>, _, (space, _, page)| world.page_out(space, page, 1);
    beside(preemption, Failing, out, |world, (space, page), _| {
        assert_eq!(load(world, space, page), Ok(5));
    });
}

fn pinned<R: ReverseMap>(preemption: &Preemption) {
    let pin = |world: &World<R>, _, (space, _, page)| {
        let mut frames = [Pfn(0)];
        let pins = world.vm.space(space);
        let pins = pins
            .pin_pages(Vpn(page), Access::Write, &mut frames)
            .unwrap();
        let now = frame(world, space, page);
        assert!(now.is_none_or(|now| now == pins[0]), "{now:?}");
        drop(pins);
    };
    beside(preemption, Failing, pin, |world, (space, page), _| {
        assert_eq!(load(world, space, page), Ok(5));
    });
}

fn cut<R: ReverseMap>(preemption: &Preemption) {
    let cut = |world: &World<R>, _, (_, object, _)| world.vm.file(object).set_size(0).unwrap();
    beside(preemption, Failing, cut, |world, (space, _), _| {
        assert_eq!(load(world, space, FIRST), Err(FaultError::PastEnd));
        assert_eq!(load(world, space, PRIVATE), Ok(5));
    });
}

fn lost<R: ReverseMap>(preemption: &Preemption) {
    let read = |world: &World<R>, cpu, (space, _, page)| {
        let word = world.load(cpu, space, at(page, 0));
        assert!([Ok(5), Err(FaultError::Lost)].contains(&word), "{word:?}");
    };
    beside(preemption, Failed, read, |world, (space, page), done| {
        let wanted = match done {
            Ok(_) => Err(FaultError::Lost),
            Err(_) => Ok(5),
        };
        assert_eq!(load(world, space, page), wanted, "{done:?}");
    });
}

fn lost_for_both<R: ReverseMap>(preemption: &Preemption) {
    let child = Mutex::new(None);
    let fork = |world: &World<R>, _, (space, _, _)| {
        *child.lock().unwrap() = Some(world.vm.space(space).fork().unwrap().id());
    };
    beside(preemption, Failed, fork, |world, (space, page), done| {
        let child = child.lock().unwrap().take().unwrap();
        let words = [space, child].map(|space| load(world, space, page));
        match done {
            Ok(_) => assert_eq!(words, [Err(FaultError::Lost); 2]),
            // One of them may have lost it by then.
            Err(_) => assert!(
                (words.iter()).all(|word| [Ok(5), Err(FaultError::Lost)].contains(word)),
                "{words:?}"
            ),
        }
        world.alone(|| while world.vm.space(child).exit() == Ok(false) {});
    });
}

fn twice<R: ReverseMap>(preemption: &Preemption) {
    for page in [PRIVATE, FIRST] {
        let (world, space, object) = two_nodes::<R>();
        let old = world.alone(|| frame(&world, space, page).unwrap());
        let done = Mutex::new(Vec::new());
        let go = |_| {
            let one = withdraw(&world, old, Failing);
            done.lock().unwrap().push(one);
        };
        world.run_preempted(preemption, [&go, &go]);
        let done = done.into_inner().unwrap();
        assert!(done.iter().filter(|done| done.is_ok()).count() <= 1);
        check(&world, space, old, &done);
        assert_eq!(load(&world, space, page), Ok(5));
        world.finish_swap(&[space], &[object]);
    }
}

/// A frame that was a page of a space until now, and may be in the list of its CPU.
fn free_frame<R: ReverseMap>(world: &World<R>, space: SpaceId) -> Pfn {
    world.alone(|| {
        let old = frame(world, space, PRIVATE).unwrap();
        let range = world.vm.space(space);
        range.advise(Vpn(PRIVATE), 1, Advice::DontNeed).unwrap();
        old
    })
}

fn handed_out<R: ReverseMap>(preemption: &Preemption) {
    let (world, space, object) = two_nodes::<R>();
    let old = free_frame(&world, space);
    let done = Mutex::new(None);
    let go = |_| *done.lock().unwrap() = Some(withdraw(&world, old, Failing));
    let store = |cpu| world.store(cpu, space, at(PRIVATE, 0), 5).unwrap();
    world.run_preempted(preemption, [&go, &store]);
    let done = done.into_inner().unwrap().unwrap();
    check(&world, space, old, &[done]);
    assert_eq!(load(&world, space, PRIVATE), Ok(5));
    world.finish_swap(&[space], &[object]);
}

fn readmitted<R: ReverseMap>(preemption: &Preemption) {
    let (world, space, object) = two_nodes::<R>();
    let old = world.alone(|| {
        let old = frame(&world, space, PRIVATE).unwrap();
        assert_eq!(withdraw(&world, old, Failing), Ok(Withdrawn::Moved));
        old
    });
    let done = Mutex::new(Vec::new());
    let back = |_| {
        let one = world.vm.set_frame_health(old, Good);
        done.lock().unwrap().push(one);
    };
    world.run_preempted(preemption, [&back, &back]);
    let mut done = done.into_inner().unwrap();
    done.sort_by_key(Result::is_err);
    assert_eq!(done, [Ok(Withdrawn::Readmitted), Err(WithdrawError::InUse)]);
    check(&world, space, old, &[]);
    world.finish_swap(&[space], &[object]);
}
