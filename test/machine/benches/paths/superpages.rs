//! Superpages of private memory: first use, fork, exit, promotion and splitting.

use super::*;

const START: u64 = 0x10_0000;
const ORDER: u32 = 9;
const RUNS: u64 = PAGES_PER_GIB >> ORDER;
/// Superpages that are used, or zeroed, before it is the other's turn.
const TURN: u64 = 16;

/// Gives one page of each superpage back. It splits those that are whole.
fn give_back_one_of_each<R: ReverseMap>(vm: &Manager<R>, space: SpaceId, of: u64) -> f64 {
    let time = timed(|| {
        for run in 0..RUNS {
            let page = Vpn(START + (run << ORDER) + of);
            vm.space(space)
                .advise(page, 1, Advice::DontNeed)
                .expect("advice");
        }
    });
    time / 1e3 / RUNS as f64
}

/// A child, with the microseconds that making it took, and then its end, with those.
fn fork_and_exit<R: ReverseMap>(vm: &Manager<R>, space: SpaceId) -> [f64; 2] {
    let mut child = None;
    let fork = timed(|| child = Some(vm.space(space).fork().expect("a child").id()));
    let child = child.expect("a child");
    let exit = timed(|| _ = vm.space(child).exit().expect("the child"));
    [fork / 1e3, exit / 1e3]
}

/// A gigabyte of superpages made at the first use: beside zeroing as much, in turns, so that a
/// machine that wobbles does so for both; then fork, exit and splitting.
pub fn eager<R: ReverseMap>(arena: &Arc<Arena>) {
    const ROUNDS: usize = 15;
    let machine = machine(1, 3 * GIB, arena);
    machine.run_on(CpuId(0), || {
        let vm: Manager<R> = manager(&machine, &format!("rmap={},superpage=eager", R::NAME));
        let request = Request::page(Site::Superpage).order(ORDER).zeroed();
        let (mut zeroes, mut uses, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
        let (mut forks, mut child_exits, mut exits) = (Vec::new(), Vec::new(), Vec::new());
        let (mut splits, mut gifts) = (Vec::new(), Vec::new());
        for round in 0..=ROUNDS {
            let space = space_with(&vm, START, PAGES_PER_GIB);
            let mut blocks = Vec::with_capacity(RUNS as usize);
            let (mut zero, mut used) = (0.0, 0.0);
            for first in (0..RUNS).step_by(TURN as usize) {
                zero += timed(|| {
                    let pin = vm.pin();
                    let block = |_| vm.memory().alloc(&pin, request).expect("2 MiB");
                    blocks.extend((0..TURN).map(block));
                });
                used += timed(|| {
                    for run in first..first + TURN {
                        let page = START + (run << ORDER);
                        vm.space(space)
                            .fault(page << 12, Access::Write)
                            .expect("a page");
                    }
                });
            }
            drop(blocks);
            let [fork, child_exit] = fork_and_exit(&vm, space);
            let is_split = round % 2 == 1;
            let split = is_split.then(|| {
                let split = give_back_one_of_each(&vm, space, 7);
                let gift = give_back_one_of_each(&vm, space, 9);
                (split, gift)
            });
            let exit = timed(|| _ = vm.space(space).exit().expect("the space")) / 1e3;
            // The first round warms up.
            if round == 0 {
                continue;
            }
            zeroes.push(zero / 1e6);
            uses.push(used / 1e6);
            ratios.push(used / zero);
            forks.push(fork);
            child_exits.push(child_exit);
            match split {
                Some((split, gift)) => {
                    splits.push(split - gift);
                    gifts.push(gift);
                }
                None => exits.push(exit),
            }
        }
        let events = vm.stats().events;
        assert_eq!(events.superpage_failures, 0);
        assert_eq!(events.superpage_demotions, RUNS * splits.len() as u64);
        let print = |what: &str, figures, unit: &str, bar, note: &str| {
            let name = format!("superpage=eager, {}: {what}", R::NAME);
            Figure(figures).print(&name, unit, bar, note);
        };
        print("zeroing 1 GiB by 2 MiB", zeroes, "ms", None, "");
        print("first use of 1 GiB", uses, "ms", None, "");
        print("the same against zeroing", ratios, "x", Some(1.1), "");
        let note = "512 spare tables included";
        print("fork", forks, "us", Some(50.0), note);
        print("exit of the child", child_exits, "us", Some(100.0), "");
        print("exit, the last mapping", exits, "us", Some(100.0), "");
        print(
            "giving back a page",
            gifts,
            "us",
            None,
            "of one that is split",
        );
        let note = "beyond giving back a page";
        print("splitting", splits, "us", Some(2.0), note);
    });
}

/// One superpage that comes and goes, so that the records of its frames are in caches as far as
/// 2 MiB leave them there: what the fault that makes it takes beyond another one, if it is made of
/// pages, and what splitting it takes beyond giving a page back.
pub fn hot<R: ReverseMap>(arena: &Arc<Arena>, design: &str) {
    const ROUNDS: usize = 401;
    const PAGES: u64 = 1 << ORDER;
    let machine = machine(1, GIB, arena);
    for eager in [false, true] {
        let name = if eager { "eager" } else { "reserve" };
        machine.run_on(CpuId(0), || {
            let vm: Manager<R> = manager(&machine, &format!("{design},superpage={name}"));
            let (mut promotions, mut splits) = (Vec::new(), Vec::new());
            for _ in 0..ROUNDS {
                let space = space_with(&vm, START, PAGES);
                // A page by itself, which is given back before: that is in caches, too.
                let single = START + 2 * PAGES;
                let at = Placement::Fixed(Vpn(single));
                let request = MapRequest::anonymous(1, Prot::READ_WRITE).at(at);
                vm.space(space).map(&request).expect("a region");
                let touch = |of: u64| {
                    let fault = || _ = vm.space(space).fault((START + of) << 12, Access::Write);
                    timed(fault) / 1e3
                };
                let give_back = |of: u64| {
                    let page = Vpn(START + of);
                    timed(|| {
                        vm.space(space)
                            .advise(page, 1, Advice::DontNeed)
                            .expect("advice")
                    }) / 1e3
                };
                touch(single - START);
                if eager {
                    touch(0);
                } else {
                    (0..PAGES - 2).for_each(|of| _ = touch(of));
                    let other = touch(PAGES - 2);
                    promotions.push(touch(PAGES - 1) - other);
                }
                give_back(single - START);
                let split = give_back(7);
                splits.push(split - give_back(9));
                vm.space(space).exit().expect("the space");
            }
            let events = vm.stats().events;
            assert_eq!(events.superpage_demotions, ROUNDS as u64);
            let print = |what: &str, figures: Vec<f64>, note: &str| {
                let bar = (!lists_entries::<R>()).then_some(2.0);
                let name = format!("superpage={name}, {design}: {what}, hot");
                Figure(figures).print(&name, "us", bar, note);
            };
            if !eager {
                print(
                    "promotion",
                    promotions,
                    "beyond a fault that promotes nothing",
                );
            }
            print("splitting", splits, "beyond giving back a page");
        });
    }
}

/// Whether a design keeps something for each entry, and so goes over all of them.
fn lists_entries<R: ReverseMap>() -> bool {
    ["pv", "chains", "partial"].contains(&R::NAME)
}

/// A gigabyte filled page by page: the faults that make superpages, what splits them, and what
/// the first fork, and the exit without one, pay for records that are not one yet.
pub fn reserve<R: ReverseMap>(arena: &Arc<Arena>, design: &str) {
    const ROUNDS: usize = 6;
    let machine = machine(1, 3 * GIB, arena);
    machine.run_on(CpuId(0), || {
        let vm: Manager<R> = manager(&machine, &format!("{design},superpage=reserve"));
        let mut figures = [const { Vec::new() }; 8];
        for round in 0..=ROUNDS {
            let space = space_with(&vm, START, PAGES_PER_GIB);
            let each = |of: u64| {
                let time = timed(|| {
                    for run in 0..RUNS {
                        let page = START + (run << ORDER) + of;
                        vm.space(space)
                            .fault(page << 12, Access::Write)
                            .expect("a page");
                    }
                });
                time / 1e3 / RUNS as f64
            };
            (0..510).for_each(|of| _ = each(of));
            let other = each(510);
            let before = vm.stats().events.superpage_promotions;
            let last = each(511);
            assert_eq!(vm.stats().events.superpage_promotions - before, RUNS);
            let mut found: Vec<(usize, f64)> = vec![(0, other), (1, last - other)];
            match round % 3 {
                0 => {
                    let split = give_back_one_of_each(&vm, space, 7);
                    let gift = give_back_one_of_each(&vm, space, 9);
                    found.extend([(2, split - gift), (3, gift)]);
                }
                1 => {
                    let [first, _] = fork_and_exit(&vm, space);
                    let [again, exit] = fork_and_exit(&vm, space);
                    found.extend([(4, first), (5, again), (6, exit)]);
                }
                _ => {}
            }
            let exit = timed(|| _ = vm.space(space).exit().expect("the space")) / 1e3;
            if round % 3 == 2 {
                found.push((7, exit));
            }
            // The first round warms up.
            if round > 0 {
                for (figure, time) in found {
                    figures[figure].push(time);
                }
            }
        }
        let names = [
            ("a fault that promotes nothing", None, ""),
            ("promotion", None, "beyond that fault"),
            ("splitting", None, "beyond giving back a page"),
            ("giving back a page", None, "of one that is split"),
            ("the first fork of 1 GiB", None, "records become one"),
            ("another fork", None, ""),
            ("exit of the child", None, ""),
            ("exit of 1 GiB, not forked", None, "records become one"),
        ];
        for (figure, (what, bar, note)) in figures.into_iter().zip(names) {
            let name = format!("superpage=reserve, {design}: {what}");
            Figure(figure).print(&name, "us", bar, note);
        }
    });
}
