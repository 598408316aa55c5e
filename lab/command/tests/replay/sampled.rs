//! Sampling profiles of the core.

use std::sync::Arc;

use vellum_engine::{
    Access, Arena, Backing, Config, Engine, Op, Outcome, Prot, Sharing, SpaceSlot,
};
use vellum_lab::sampled;
use vellum_profile::Profile;
use vellum_profile::diffprofile::{Options, diffprofile, text};

/// Ticks of stacks in which a function's name contains `name`.
fn ticks_in(profile: &Profile, name: &str) -> u64 {
    let stacks = profile.stacks();
    let stacks = stacks.filter(|(stack, _)| stack.iter().any(|frame| frame.contains(name)));
    stacks.map(|(_, ticks)| ticks).sum()
}

/// A space of 64 written pages is forked; the child writes half of them; both
/// end.
fn fork_and_write() -> Vec<Op> {
    const PAGES: u64 = 64;
    let (parent, child) = (SpaceSlot(0), SpaceSlot(1));
    let touch = |space, page| Op::Touch {
        space,
        page: 0x1000 + page,
        access: Access::Write,
    };
    let mut ops = vec![
        Op::Create { space: parent },
        Op::Map {
            space: parent,
            page: 0x1000,
            pages: PAGES,
            prot: Prot {
                read: true,
                write: true,
                execute: false,
            },
            sharing: Sharing::Private,
            backing: Backing::Anonymous,
            grows_down: false,
        },
    ];
    ops.extend((0..PAGES).map(|page| touch(parent, page)));
    ops.push(Op::Fork { parent, child });
    ops.extend((0..PAGES / 2).map(|page| touch(child, page)));
    ops.extend([Op::Exit { space: child }, Op::Exit { space: parent }]);
    ops
}

#[test]
fn a_profile_of_the_core_names_its_functions() {
    let designs = ["rmap=chains", "rmap=partial"];
    let profiler = sampled::profiler(5000).expect("timers need no permission");
    let engine = |(arm, design): (usize, &str)| {
        let config = Config::new(design, 1, 64 << 20);
        let arena = Arena::new(64 << 20).expect("memory");
        let engine = vellum_engine::build(&config, arena).expect("a design");
        sampled::attach(&profiler, arm, Arc::from(engine))
    };
    let engines: Vec<Arc<dyn Engine>> = designs.into_iter().enumerate().map(engine).collect();
    let ops = fork_and_write();
    let mut outcome = Outcome::default();
    for _ in 0..1_000_000 {
        if profiler.taken() >= 1000 {
            break;
        }
        for engine in &engines {
            engine.run(0, &ops, &mut outcome);
            assert!(outcome.divergences.is_empty(), "{:?}", outcome.divergences);
        }
    }
    assert!(profiler.taken() >= 1000, "a million rounds were too few");
    let names = designs.map(str::to_owned);
    let samples = profiler.finish(&names).expect("both have samples");
    for profile in &samples.profiles {
        for function in [
            "vellum::space::life::fork::",
            "vellum::space::path::fault::",
            "rmap::",
        ] {
            assert!(
                ticks_in(profile, function) > 0,
                "{function} in {}",
                profile.folded()
            );
        }
        let outermost = ticks_in(profile, "vellum_engine::");
        assert!(outermost * 10 > profile.total() * 9, "{}", profile.folded());
    }
    let [chains, partial] = [&samples.profiles[0], &samples.profiles[1]];
    assert!(ticks_in(chains, "rmap::chains") > 0, "{}", chains.folded());
    let options = Options::new("partial");
    let diff = diffprofile(chains, partial, &options);
    for group in ["rmap", "fork", "fault", "zeroing and copying"] {
        assert!(
            diff.group(group).is_some(),
            "{group} in\n{}",
            text(&diff, &options)
        );
    }
}
