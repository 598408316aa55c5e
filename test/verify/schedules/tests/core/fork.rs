//! Forks, copies on write and exits beside each other (invariant 8).

use std::sync::atomic::{AtomicU64, Ordering};

use crate::world::{RW, World, at};
use vellum::addr::{Access, Pfn, Prot, Vpn};
use vellum::platform::CpuId;
use vellum::rmap::ReverseMap;
use vellum::space::{FaultError, Space, SpaceId};

const ZERO: CpuId = CpuId(0);

explored! {
    a_child_keeps_what_it_was_forked_with: 48 => snapshot;
    a_store_through_a_cpu_that_comes_late_stays_out_of_the_child: 100 => late_cpu;
    parent_and_child_copy_the_same_page: 48 => both_copy;
    children_end_while_the_parent_copies: 32 => children_end;
    a_copied_page_is_seen_by_all_threads_at_once: 100 => copies_are_coherent;
    private_pages_of_merged_regions_are_forked: 100 => fork_after_merge;
    the_last_of_two_exits_ends_the_space: 48 => last_exits;
    a_space_is_shared_or_ends_and_its_successor_is_not: 100 => share_beside_exit;
    an_exit_leaves_the_names_of_other_spaces_alone: 32 => names;
    pages_pinned_beside_forks_stay_the_parents: 48 => pinned;
    several_cpus_fork_one_space: 32 => many_forks;
    forks_without_memory_leave_the_parent_as_it_was: 16 => fork_without_memory;
}

/// A thread goes on storing while another forks: the child shows for each page
/// one value, for good, and the parent loses none of its stores.
fn snapshot<R: ReverseMap>() {
    let world = World::<R>::new(2, 256, "");
    let space = world.alone(|| world.space());
    world.alone(|| world.anonymous(space, 0x1000, 2));
    let fork = |cpu: CpuId| {
        for _ in 0..2 {
            let child = world.vm.space(space).fork().unwrap().id();
            let seen = [0x1000, 0x1001].map(|page| world.load(cpu, child, at(page, 0)).unwrap());
            world.store(cpu, child, at(0x1001, 1), 99).unwrap();
            let again = [0x1000, 0x1001].map(|page| world.load(cpu, child, at(page, 0)).unwrap());
            assert_eq!(seen, again, "the parent stores to the child's pages");
            world.vm.space(child).exit().unwrap();
        }
    };
    let store = |cpu: CpuId| {
        for round in 1..10 {
            for page in [0x1000, 0x1001] {
                world.store(cpu, space, at(page, 0), round).unwrap();
                assert_eq!(world.load(cpu, space, at(page, 0)), Ok(round));
                assert_eq!(world.load(cpu, space, at(page, 1)), Ok(0));
            }
        }
    };
    world.run(&[&fork, &store]);
    world.finish(&[space], &[]);
}

/// The same where the storing CPU loads the space in the middle of the fork.
fn late_cpu<R: ReverseMap>() {
    let world = World::<R>::new(2, 256, "");
    let space = world.alone(|| world.space());
    world.alone(|| {
        world.vm.space(space).share().unwrap();
        world.anonymous(space, 0x1000, 1);
        world.store(ZERO, space, at(0x1000, 0), 1).unwrap();
    });
    let fork = |cpu: CpuId| {
        let child = world.vm.space(space).fork().unwrap().id();
        let seen = world.load(cpu, child, at(0x1000, 0)).unwrap();
        for _ in 0..4 {
            assert_eq!(world.load(cpu, child, at(0x1000, 0)), Ok(seen));
        }
        world.vm.space(child).exit().unwrap();
    };
    let store = |cpu: CpuId| {
        for round in 2..6 {
            world.store(cpu, space, at(0x1000, 0), round).unwrap();
            assert_eq!(world.load(cpu, space, at(0x1000, 0)), Ok(round));
        }
    };
    world.run(&[&fork, &store]);
    world.finish(&[space], &[]);
}

fn both_copy<R: ReverseMap>() {
    let world = World::<R>::new(3, 256, "");
    let spaces = world.alone(|| {
        let parent = world.space();
        world.anonymous(parent, 0x1000, 3);
        for page in 0x1000..0x1003 {
            world.store(ZERO, parent, at(page, 7), page).unwrap();
        }
        let child = world.vm.space(parent).fork().unwrap().id();
        [parent, child, world.vm.space(child).fork().unwrap().id()]
    });
    let work = |cpu: CpuId| {
        let (own, id) = (u64::from(cpu.0), spaces[usize::from(cpu.0)]);
        for page in 0x1000..0x1003 {
            assert_eq!(world.load(cpu, id, at(page, 7)), Ok(page));
            world.store(cpu, id, at(page, 0), own).unwrap();
            assert_eq!(world.load(cpu, id, at(page, 7)), Ok(page));
        }
        for page in 0x1000..0x1003 {
            assert_eq!(world.load(cpu, id, at(page, 0)), Ok(own));
        }
    };
    world.run(&[&work, &work, &work]);
    world.finish(&spaces, &[]);
}

fn children_end<R: ReverseMap>() {
    let world = World::<R>::new(3, 256, "");
    let (parent, children) = world.alone(|| {
        let parent = world.space();
        world.anonymous(parent, 0x1000, 4);
        for page in 0x1000..0x1004 {
            world.store(ZERO, parent, at(page, 0), page).unwrap();
        }
        (
            parent,
            [(); 2].map(|()| world.vm.space(parent).fork().unwrap().id()),
        )
    });
    let work = |cpu: CpuId| {
        for page in 0x1000..0x1004 {
            world.store(cpu, parent, at(page, 1), 5).unwrap();
            assert_eq!(world.load(cpu, parent, at(page, 0)), Ok(page));
        }
    };
    let end = |cpu: CpuId| {
        let child = children[usize::from(cpu.0) - 1];
        world.store(cpu, child, at(0x1001, 1), 6).unwrap();
        assert_eq!(world.load(cpu, child, at(0x1002, 1)), Ok(0));
        assert_eq!(world.load(cpu, child, at(0x1001, 0)), Ok(0x1001));
        assert_eq!(world.vm.space(child).exit(), Ok(true));
        world.drain();
        let next = world.space();
        world.anonymous(next, 0x1000, 2);
        assert_eq!(world.load(cpu, next, at(0x1000, 0)), Ok(0));
        world.store(cpu, next, at(0x1001, 0), 9).unwrap();
        assert_eq!(world.vm.space(next).exit(), Ok(true));
    };
    world.run(&[&work, &end, &end]);
    world.finish(&[parent], &[]);
}

/// One thread stores to a page and then says so; another, which has the old
/// page in its TLB, must not go on reading it.
fn copies_are_coherent<R: ReverseMap>() {
    let world = World::<R>::new(3, 256, "");
    let (space, child) = world.alone(|| {
        let space = world.space();
        world.anonymous(space, 0x1000, 2);
        world.store(ZERO, space, at(0x1000, 0), 1).unwrap();
        (space, world.vm.space(space).fork().unwrap().id())
    });
    let stored = AtomicU64::new(0);
    let copy = |cpu: CpuId| {
        world.store(cpu, space, at(0x1000, 1), 4).unwrap();
        world.store(cpu, space, at(0x1001, 1), 4).unwrap();
    };
    let store = |cpu: CpuId| {
        let _ = world.load(cpu, space, at(0x1001, 0));
        for round in 2..5 {
            world.store(cpu, space, at(0x1000, 0), round).unwrap();
            world.store(cpu, space, at(0x1001, 0), round).unwrap();
            stored.store(round, Ordering::SeqCst);
        }
    };
    let look = |cpu: CpuId| {
        for _ in 0..8 {
            let least = stored.load(Ordering::SeqCst);
            let pages = [0x1000, 0x1001].map(|page| world.load(cpu, space, at(page, 0)).unwrap());
            assert!(
                pages[0] >= least && pages[1] >= least,
                "stale: {pages:?} after {least}"
            );
        }
    };
    world.run(&[&copy, &store, &look]);
    world.finish(&[space, child], &[]);
}

/// Regions with private pages are merged with ones without; fork copies them.
fn fork_after_merge<R: ReverseMap>() {
    let world = World::<R>::new(2, 256, "");
    let space = world.alone(|| world.space());
    let tails = [0x1002, 0x1012, 0x1022, 0x1032, 0x1042, 0x1052];
    world.alone(|| {
        for tail in tails {
            world.anonymous(space, tail - 2, 4);
            let prot = RW.union(Prot::EXECUTE);
            world.vm.space(space).protect(Vpn(tail), 2, prot).unwrap();
        }
    });
    let store = |cpu: CpuId| {
        for tail in tails {
            world.store(cpu, space, at(tail, 0), 8).unwrap();
        }
    };
    let merge = |_| {
        for tail in tails {
            world.vm.space(space).protect(Vpn(tail), 2, RW).unwrap();
        }
    };
    world.run(&[&merge, &store]);
    world.alone(|| {
        let child = world.vm.space(space).fork().unwrap().id();
        for tail in tails {
            let seen = world.load(ZERO, child, at(tail, 0));
            assert_eq!(seen, Ok(8), "the child lost a page");
        }
        world.vm.space(child).exit().unwrap();
    });
    world.finish(&[space], &[]);
}

fn last_exits<R: ReverseMap>() {
    let world = World::<R>::new(3, 256, "");
    let space = world.alone(|| {
        let space = world.space();
        world.vm.space(space).share().unwrap();
        world.vm.space(space).share().unwrap();
        world.anonymous(space, 0x1000, 2);
        space
    });
    let ended = AtomicU64::new(0);
    let work = |cpu: CpuId| {
        world.store(cpu, space, at(0x1000, 0), 3).unwrap();
        if world.vm.space(space).exit().unwrap() {
            ended.fetch_add(1, Ordering::SeqCst);
        }
    };
    world.run(&[&work, &work, &work]);
    assert_eq!(ended.load(Ordering::SeqCst), 1);
    assert_eq!(
        world.alone(|| world.vm.space(space).exit()),
        Err(vellum::space::MapError::NoSpace)
    );
    world.finish(&[], &[]);
}

/// A task is to join a space whose last one leaves: one of the two wins. The space
/// that then begins in the same place has nobody but its own task.
fn share_beside_exit<R: ReverseMap>() {
    let world = World::<R>::new(2, 256, "");
    let space = world.alone(|| world.space());
    let (shared, ended) = (AtomicU64::new(0), AtomicU64::new(0));
    let next = AtomicU64::new(0);
    let share = |_| {
        let joined = world.vm.space(space).share();
        shared.store(joined.is_ok().into(), Ordering::SeqCst);
    };
    let leave = |_| {
        let last = world.vm.space(space).exit().unwrap();
        ended.store(last.into(), Ordering::SeqCst);
        for _ in 0..3 {
            world.vm.idle();
        }
        let id = world.space();
        next.store(id.to_bits(), Ordering::SeqCst);
    };
    world.run(&[&share, &leave]);
    let next = SpaceId::from_bits(next.into_inner());
    let users = |id| world.vm.space(id).stats().map(|stats| stats.users).ok();
    world.alone(|| {
        let shared = shared.load(Ordering::SeqCst);
        assert_eq!(shared + ended.load(Ordering::SeqCst), 1, "both, or neither");
        assert_eq!(users(space), (shared == 1).then_some(1));
        assert_eq!(users(next), Some(1));
    });
    world.finish(&[space, next], &[]);
}

/// Spaces begin and end in the same places of the arena; an old name finds
/// nothing of a new space.
fn names<R: ReverseMap>() {
    let world = World::<R>::new(2, 256, "");
    let name = AtomicU64::new(0);
    let make = |cpu: CpuId| {
        for round in 1..6 {
            let id = world.space();
            world.anonymous(id, 0x1000, 1);
            world.store(cpu, id, at(0x1000, 0), round).unwrap();
            name.store(id.to_bits(), Ordering::SeqCst);
            assert_eq!(world.vm.space(id).exit(), Ok(true));
        }
    };
    let look = |_| {
        for _ in 0..12 {
            let bits = name.load(Ordering::SeqCst);
            if bits == 0 {
                continue;
            }
            let id = SpaceId::from_bits(bits);
            // Not one of its tasks: the calls may only say no.
            let _ = world.vm.space(id).stats();
            let refused = world.vm.space(id).fault(at(0x1000, 0), Access::Read);
            assert!(
                matches!(
                    refused,
                    Ok(_) | Err(FaultError::NoSpace | FaultError::NoRegion)
                ),
                "{refused:?}"
            );
            let _ = world.vm.space(id).unmap(Vpn(0x1000), 1);
        }
    };
    world.run(&[&make, &look]);
    world.finish(&[], &[]);
}

fn pinned<R: ReverseMap>() {
    let world = World::<R>::new(2, 256, "");
    let space = world.alone(|| world.space());
    world.alone(|| {
        world.anonymous(space, 0x1000, 2);
        world.store(ZERO, space, at(0x1000, 0), 1).unwrap();
    });
    let fork = |cpu: CpuId| {
        for _ in 0..2 {
            let child = world.vm.space(space).fork().unwrap().id();
            assert_eq!(world.load(cpu, child, at(0x1000, 0)), Ok(1));
            let seen = world.load(cpu, child, at(0x1000, 1)).unwrap();
            world.store(cpu, child, at(0x1000, 2), 9).unwrap();
            assert_eq!(world.load(cpu, child, at(0x1000, 1)), Ok(seen));
            world.vm.space(child).exit().unwrap();
        }
    };
    let pin = |cpu: CpuId| {
        for round in 1..4 {
            let mut frames = [Pfn::NONE; 2];
            let pinned = (world.vm.space(space))
                .pin_pages(Vpn(0x1000), Access::Write, &mut frames)
                .unwrap();
            world.store(cpu, space, at(0x1000, 1), round).unwrap();
            let word = world.machine().ram_word(pinned[0], 8);
            assert_eq!(word, Some(round), "a pinned page was replaced");
        }
    };
    world.run(&[&fork, &pin]);
    world.finish(&[space], &[]);
}

fn many_forks<R: ReverseMap>() {
    let world = World::<R>::new(3, 300, "forkcopy=all");
    let space = world.alone(|| world.space());
    world.alone(|| {
        world.anonymous(space, 0x1000, 12);
        for page in 0x1000..0x100c {
            world.store(ZERO, space, at(page, 0), page).unwrap();
        }
    });
    let work = |cpu: CpuId| {
        for round in 0..2 {
            let own = u64::from(cpu.0);
            let child = world.vm.space(space).fork().unwrap().id();
            world
                .store(cpu, space, at(0x1001 + own, 1 + own), round)
                .unwrap();
            world.store(cpu, child, at(0x1002, 0), own).unwrap();
            for page in [0x1000, 0x1003, 0x1007, 0x100b] {
                assert_eq!(world.load(cpu, child, at(page, 0)), Ok(page));
            }
            let grandchild = world.vm.space(child).fork().unwrap().id();
            world.vm.space(child).exit().unwrap();
            assert_eq!(world.load(cpu, grandchild, at(0x1002, 0)), Ok(own));
            assert_eq!(world.load(cpu, space, at(0x1001 + own, 1 + own)), Ok(round));
            world.vm.space(grandchild).exit().unwrap();
        }
    };
    world.run(&[&work, &work, &work]);
    world.finish(&[space], &[]);
}

fn fork_without_memory<R: ReverseMap>() {
    let world = World::<R>::new(3, 80, "");
    let space = world.alone(|| world.space());
    world.alone(|| {
        world.anonymous(space, 0x1000, 6);
        for page in 0x1000..0x1006 {
            world.store(ZERO, space, at(page, 0), page).unwrap();
        }
    });
    let work = |cpu: CpuId| {
        let mut children = Vec::new();
        for _ in 0..6 {
            children.extend(world.vm.space(space).fork().map(Space::id));
            for page in 0x1000..0x1006 {
                assert_eq!(world.load(cpu, space, at(page, 0)), Ok(page));
                let _ = world.store(cpu, space, at(page, 1), 1);
            }
        }
        for child in children {
            assert_eq!(world.load(cpu, child, at(0x1005, 0)), Ok(0x1005));
            world.vm.space(child).exit().unwrap();
        }
    };
    world.run(&[&work, &work, &work]);
    world.finish(&[space], &[]);
}
