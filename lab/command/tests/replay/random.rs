//! The core under random workloads, verified against the independent model and
//! audited, with every reverse-mapping scheme.

use vellum_engine::{Arena, Config, Engine, build};
use vellum_lab::replay::{Options, Streams, Workload, prepare_events, run};
use vellum_lab::verify::{end_state, verify};
use vellum_testing::generate::{self, seeds};

const RAM: u64 = 64 << 20;

fn core(design: &str, cpus: usize) -> Box<dyn Engine> {
    let config = Config::new(design, cpus, RAM);
    let arena = Arena::new(RAM as usize).expect("64 MiB can be had");
    build(&config, arena).expect("the design exists")
}

fn prepared(seed: u64, cpus: usize, copies: u32) -> Workload {
    let recording = generate::workload(seed, 1200);
    let options = Options {
        streams: Streams::ByCpu(cpus),
        copies,
        ..Options::default()
    };
    prepare_events(&recording.header, || recording.events(), &options).expect("a valid recording")
}

#[test]
fn every_scheme_keeps_every_page_right() {
    for seed in seeds(6) {
        for (cpus, copies) in [(1, 1), (3, 1), (1, 3), (3, 3)] {
            let workload = prepared(seed, cpus, copies);
            for design in ["rmap=chains", "rmap=chains,direct=off", "rmap=partial"] {
                let engine = core(design, cpus);
                if let Err(refutation) = verify(&workload, engine.as_ref(), |_| true) {
                    panic!("seed {seed}, {cpus} CPUs, {copies} copies, {design}: {refutation}");
                }
            }
        }
    }
}

#[test]
fn timed_replay_of_the_core_diverges_nowhere_and_ends_as_the_verified_one() {
    for seed in seeds(8) {
        let workload = prepared(seed, 1, 1);
        let engine = core("rmap=chains", 1);
        let replayed = run(&workload, engine.as_ref(), |_| true);
        let first = replayed.divergences.samples.first().map(|sample| {
            let op = workload.streams()[sample.cpu].ops()[sample.position];
            format!("{sample:?} {op:?}")
        });
        assert_eq!(
            replayed.divergences.unexplained(),
            0,
            "seed {seed}: {first:?}"
        );
        engine
            .audit()
            .unwrap_or_else(|text| panic!("seed {seed}: {text}"));
        let verified = verify(&workload, core("rmap=chains", 1).as_ref(), |_| true)
            .unwrap_or_else(|refutation| panic!("seed {seed}: {refutation}"))
            .expect("not interrupted");
        let left = end_state(&workload, engine.as_ref());
        assert_eq!(verified.end_state, left, "seed {seed}");
    }
}
