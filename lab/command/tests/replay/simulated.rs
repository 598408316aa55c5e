//! Verified replay on simulated CPUs: the core holds, a seed decides the order, and defects are
//! found as on host threads.

use crate::support::reference::Reference;
use crate::verify::{ON_SEVERAL_CPUS, prepared};
use vellum_description::Description;
use vellum_engine::{Backing, Config, Op, Outcome, Prot, Sharing, SpaceSlot};
use vellum_lab::replay::Workload;
use vellum_lab::verify::simulated::verify;
use vellum_results::replay::VerifiedInTime;
use vellum_scale::Verifiable;
use vellum_testing::generate;

fn random(seed: u64, events: usize, cpus: usize) -> Workload {
    prepared(&generate::workload(seed, events), cpus, 1)
}

fn simulated(cpus: usize, design: &str, ram_bytes: u64) -> Verifiable {
    let machine = Description::named("epyc-milan-2s").expect("it comes with the program");
    let config = Config {
        nodes: vellum_scale::hosted::nodes_of(&machine, cpus).expect("it has so many"),
        ..Config::new(design, cpus, ram_bytes)
    };
    Verifiable::new(&machine, &config).expect("built")
}

fn verified(workload: &Workload, design: &str, ram_bytes: u64, seed: u64) -> VerifiedInTime {
    let simulated = simulated(workload.cpus(), design, ram_bytes);
    match verify(workload, simulated.engine(), &simulated, seed, |_| true) {
        Ok(verified) => verified.expect("not interrupted"),
        Err(refutation) => panic!("{design}, seed {seed}: {refutation}"),
    }
}

#[test]
fn the_core_holds_on_64_cpus_in_another_order_for_each_seed() {
    let workload = random(1, 1200, 64);
    let runs = [1, 2, 1].map(|seed| verified(&workload, "", 64 << 20, seed));
    assert_eq!(runs[0], runs[2], "the same seed");
    assert_ne!(runs[0].virtual_ns, runs[1].virtual_ns, "another seed");
    for run in runs {
        assert_eq!(run.verified.ops, workload.ops());
        assert!(run.verified.written > 0, "{run:?}");
    }
}

#[test]
fn designs_hold_on_simulated_cpus_with_little_memory() {
    let workload = random(2, 1200, 16);
    for design in ["rmap=pv", "rmap=anon_vma_chain", "rmap=chains"] {
        let design = format!("{design},reclaim=on");
        let run = verified(&workload, &design, 3 << 20, 1);
        assert!(run.verified.written > 0, "{design}: {run:?}");
    }
}

#[test]
fn each_defect_is_found_on_simulated_cpus() {
    let simulated = simulated(3, "", 64 << 20);
    for defect in ON_SEVERAL_CPUS {
        let found = (0..6).any(|seed| {
            let workload = random(seed, 1500, 3);
            let engine = Reference::new(3, Some(defect));
            verify(&workload, &engine, &simulated, seed, |_| true).is_err()
        });
        assert!(found, "{defect:?} was not found");
    }
}

/// Has each CPU use memory for a while, the second one until it panics.
fn use_memory(simulated: &Verifiable, cpu: usize) {
    let engine = simulated.engine();
    let space = SpaceSlot(cpu as u32);
    let mut outcome = Outcome::default();
    engine.run(cpu, &[Op::Create { space }], &mut outcome);
    for round in 0..50 {
        assert!(cpu != 1 || round < 20, "in the middle of a run");
        let map = Op::Map {
            space,
            page: 0x100,
            pages: 8,
            prot: Prot {
                read: true,
                write: true,
                ..Prot::default()
            },
            sharing: Sharing::Private,
            backing: Backing::Anonymous,
            grows_down: false,
        };
        let unmap = Op::Unmap {
            space,
            page: 0x100,
            pages: 8,
        };
        engine.run(cpu, &[map], &mut outcome);
        engine.store(cpu, space, 0x100 << 12, 1).expect("mapped");
        engine.run(cpu, &[unmap], &mut outcome);
    }
}

#[test]
#[should_panic(expected = "in the middle of a run")]
fn a_panic_of_one_cpu_ends_the_run_whatever_others_are_at() {
    let simulated = simulated(4, "", 64 << 20);
    let _ = simulated.run(1, |cpu| use_memory(&simulated, usize::from(cpu.id().0)));
}

#[test]
fn cpus_that_sleep_for_good_end_the_run() {
    let simulated = simulated(2, "", 64 << 20);
    let ended = simulated.run(1, |cpu| match cpu.id().0 {
        0 => cpu.sleep(),
        _ => cpu.compute_ns(100),
    });
    let text = ended.expect_err("nobody wakes the first").to_string();
    assert!(text.contains("CPUs 0 sleep"), "{text}");
}
