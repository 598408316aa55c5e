//! Sampling profiles of code of this process.

use vellum_profile::sample::Profiler;
use vellum_profile::{Profile, flame};

/// Arithmetic that no optimiser removes.
fn arithmetic(seed: u64) -> u64 {
    let mut state = std::hint::black_box(seed | 1);
    for _ in 0..20_000 {
        state = std::hint::black_box(state.rotate_left(7).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    }
    state
}

#[inline(never)]
fn time_in_amber(seed: u64) -> u64 {
    std::hint::black_box(arithmetic(seed)) + 1
}

#[inline(never)]
fn time_in_indigo(seed: u64) -> u64 {
    std::hint::black_box(arithmetic(seed)) + 2
}

/// Runs `round` until the profiler has taken `wanted` samples.
fn until_sampled(profiler: &Profiler, wanted: u64, mut round: impl FnMut()) {
    for _ in 0..1_000_000 {
        if profiler.taken() >= wanted {
            return;
        }
        round();
    }
    panic!("a million rounds and only {} samples", profiler.taken());
}

/// Ticks of stacks in which a function's name contains `name`.
fn ticks_in(profile: &Profile, name: &str) -> u64 {
    let stacks = profile.stacks();
    let stacks = stacks.filter(|(stack, _)| stack.iter().any(|frame| frame.contains(name)));
    stacks.map(|(_, ticks)| ticks).sum()
}

#[test]
fn samples_count_for_the_arm_that_was_running() {
    let profiler =
        Profiler::start(5000, "the_arm_that_was_running").expect("timers need no permission");
    let arms = [profiler.arm(0), profiler.arm(1)];
    until_sampled(&profiler, 400, || {
        arms[0].run(|| {
            std::hint::black_box(time_in_amber(1));
        });
        arms[1].run(|| {
            std::hint::black_box(time_in_indigo(2));
        });
        // Time outside of every arm belongs to none.
        std::hint::black_box(arithmetic(3));
    });
    let names = ["A".to_owned(), "B".to_owned()];
    let samples = profiler.finish(&names).expect("both have samples");
    let [amber, indigo] = [&samples.profiles[0], &samples.profiles[1]];
    assert_eq!(ticks_in(amber, "time_in_indigo"), 0, "{}", amber.folded());
    assert_eq!(ticks_in(indigo, "time_in_amber"), 0, "{}", indigo.folded());
    // What is not in them is in the frames around them, a few instructions long.
    let work = amber.total() - ticks_in(amber, "(sampler)");
    assert!(
        ticks_in(amber, "time_in_amber") * 10 > work * 9,
        "{}",
        amber.folded()
    );
    assert!(
        ticks_in(indigo, "time_in_indigo") * 10
            > (indigo.total() - ticks_in(indigo, "(sampler)")) * 9,
        "{}",
        indigo.folded()
    );
    assert_eq!(ticks_in(amber, "callers unknown"), 0, "{}", amber.folded());
    let svg = flame::svg(amber, indigo, "amber against indigo");
    assert!(svg.contains("time_in_amber") && svg.contains("time_in_indigo"));
}

#[test]
fn an_arm_that_never_ran_is_reported() {
    let profiler = Profiler::start(1000, module_path!()).expect("timers need no permission");
    let error = profiler.finish(&["A".to_owned()]).expect_err("nothing ran");
    assert!(error.to_string().contains("--profile-rate"), "{error}");
}
