//! Every workload on simulated CPUs: it does something, leaves nothing behind, and comes
//! out the same for the same seed.

use vellum_scale::{Ceiling, Limit, Measured, PlacedHeap, Request, ScaleError, WORKLOADS, run};
use vellum_scale::{WARM_UP_NS, Workload, workload};

#[global_allocator]
static HEAP: PlacedHeap = PlacedHeap;

fn machine(name: &str) -> vellum_description::Description {
    vellum_description::Description::named(name).unwrap_or_else(|error| panic!("{error}"))
}

fn measured(workload: &'static Workload, cpus: usize, design: &str, seed: u64) -> Measured {
    measured_for(60_000, workload, cpus, design, seed)
}

fn measured_for(
    window_ns: u64,
    workload: &'static Workload,
    cpus: usize,
    design: &str,
    seed: u64,
) -> Measured {
    measured_after(WARM_UP_NS, window_ns, workload, cpus, design, seed)
}

fn measured_after(
    warm_up_ns: u64,
    window_ns: u64,
    workload: &'static Workload,
    cpus: usize,
    design: &str,
    seed: u64,
) -> Measured {
    let machine = machine("epyc-milan-1s");
    let request = Request {
        machine: &machine,
        cpus,
        design,
        workload,
        seed,
        warm_up_ns,
        window_ns,
    };
    run(&request).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn every_workload_does_something_on_every_cpu_and_is_repeatable() {
    for workload in &WORKLOADS {
        let first = measured(workload, 3, "rmap=family", 5);
        assert!(
            first.by_cpu.iter().all(|&count| count > 0),
            "{}: {:?}",
            workload.name,
            first.by_cpu
        );
        let again = measured(workload, 3, "rmap=family", 5);
        assert_eq!(first.by_cpu, again.by_cpu, "{}", workload.name);
        assert_eq!(first.profile, again.profile, "{}", workload.name);
    }
}

#[test]
fn every_design_runs_and_seeds_differ() {
    let workload = workload("fork-exit").expect("it exists");
    for design in vellum::design::variants("rmap") {
        // The slowest take 80 us for a fork and an exit.
        let one = measured_for(200_000, workload, 2, &design, 1);
        let other = measured_for(200_000, workload, 2, &design, 2);
        assert!(one.count > 0, "{design}");
        assert_ne!(one.cpus, other.cpus, "{design}");
    }
}

/// CPUs that have nothing in common do as much as each does alone; CPUs that interrupt one
/// another do not.
#[test]
fn what_has_nothing_in_common_scales_and_shootdowns_do_not() {
    let machine = machine("epyc-milan-1s");
    let share = |name: &str| {
        let workload = workload(name).expect("it exists");
        let alone = measured(workload, 1, "rmap=family", 1);
        let many = measured(workload, 8, "rmap=family", 1);
        let ceiling = Ceiling::new(&machine, 8, alone.rate(), &many.needs());
        (many.rate() / alone.rate() / 8.0, ceiling.by)
    };
    let (apart, limit) = share("fork-exit");
    assert!(apart > 0.9 && limit == Limit::Cores, "{apart} {limit:?}");
    let (together, limit) = share("map-unmap-one-space");
    assert!(
        together < 0.8 && limit == Limit::Shootdowns,
        "{together} {limit:?}"
    );
}

/// Visits of one page are beside each other if its lock has a shared mode; those of many
/// pages are, if each page has a lock.
#[test]
fn visits_are_beside_each_other_if_their_locks_let_them() {
    let gain = |name: &str, lock: &str| {
        let workload = workload(name).expect("it exists");
        let design = format!("rmap=pv,pvlock={lock}");
        let rate = |cpus| measured(workload, cpus, &design, 1).rate();
        rate(4) / rate(1)
    };
    for (name, lock, many) in [
        ("look-up-one-page", "byte", false),
        ("look-up-one-page", "byte-shared", true),
        ("look-up-one-file", "hashed", false),
        ("look-up-one-file", "byte", true),
        ("look-up-one-file", "byte-shared", true),
    ] {
        let gain = gain(name, lock);
        let is_as_expected = if many { gain > 2.5 } else { gain < 1.5 };
        assert!(is_as_expected, "{name}, {lock}: {gain}");
    }
}

#[test]
fn lines_are_known_by_what_the_core_has_there() {
    for (name, wanted) in [
        ("write-one-file", "Object[0].writers"),
        ("faults", "Zone.lists"),
        ("cached-faults", "records of pages of files"),
    ] {
        // From the beginning: later CPUs have frames enough of their own.
        let workload = workload(name).expect("it exists");
        let found = measured_after(0, 160_000, workload, 4, "rmap=family", 1);
        let lines = found.profile.lines.iter();
        let names: Vec<String> = lines.map(|line| found.name_of(line)).collect();
        assert!(
            names.iter().any(|name| name == wanted),
            "{name}: {:?}",
            &names[..20.min(names.len())]
        );
    }
}

/// One lock around all faults of a space is what stops them, and the profile of locks
/// says so.
#[test]
fn a_lock_around_faults_is_waited_for_by_name_and_lets_one_in_at_a_time() {
    let faults = workload("faults-one-space").expect("it exists");
    let lock = |design: &str, cpus| {
        let found = measured(faults, cpus, design, 1);
        let mut classes = found.lock_classes().into_iter();
        let lock = classes.find(|class| class.name == "Space.fault lock");
        (found.count, lock.map(|class| class.costs))
    };
    let (alone, costs) = lock("faultlock=space", 1);
    let costs = costs.expect("it is taken");
    assert!(
        costs.acquired >= alone && costs.contended == 0 && costs.waited == 0,
        "{costs:?}"
    );
    let (together, costs) = lock("faultlock=space", 16);
    let costs = costs.expect("it is taken");
    assert!(together < 2 * alone, "{together} against {alone}");
    assert!(costs.contended >= 15, "each CPU but one waits: {costs:?}");
    assert!(costs.waited > 8 * costs.held, "{costs:?}");
    let (free, costs) = lock("faultlock=none", 16);
    assert!(
        free > 8 * alone && costs.is_none(),
        "{free} against {alone}"
    );
}

#[test]
fn what_cannot_be_run_is_refused() {
    let machine = machine("epyc-milan-1s");
    let request = |design, cpus| Request {
        machine: &machine,
        cpus,
        design,
        workload: &WORKLOADS[0],
        seed: 1,
        warm_up_ns: WARM_UP_NS,
        window_ns: 10_000,
    };
    let error = run(&request("format=sv39", 2)).expect_err("there is no such instance");
    assert!(matches!(error, ScaleError::Design(_)), "{error}");
    let error = run(&request("rmap=nothing", 2)).expect_err("there is no such design");
    assert!(matches!(error, ScaleError::Design(_)), "{error}");
    let error = run(&request("rmap=family", 97)).expect_err("it has 96");
    assert!(error.to_string().contains("96"), "{error}");
}
