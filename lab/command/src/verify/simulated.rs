//! Verified replay on simulated CPUs: in virtual time, so that orders come about that only a
//! machine of many CPUs has, and the same ones again with the same seed.

use vellum_engine::Engine;
use vellum_results::replay::VerifiedInTime;
use vellum_scale::{Cpu, ScaleError, Verifiable};

use super::check::Verifier;
use super::clocks::Place;
use super::refute::{Location, Refutation, Symptom};
use super::{SLICES, verify_on};
use crate::replay::lanes::{Progress, lane};
use crate::replay::{Slice, Wait, Workload};

/// How long a CPU that waits for another looks away at first, and at most, in nanoseconds.
const FIRST_LOOK: u64 = 50;
const LONGEST_LOOK: u64 = 10_000;

/// [`verify`](super::verify) with simulated CPUs, of which there are as many as the workload has.
/// The engine is that of `simulated`, or one of which an operation is a single step for them.
/// Each slice begins with empty caches.
///
/// # Errors
/// The first thing that is wrong.
pub fn verify(
    workload: &Workload,
    engine: &dyn Engine,
    simulated: &Verifiable,
    seed: u64,
    after_slice: impl FnMut(u64) -> bool,
) -> Result<Option<VerifiedInTime>, Box<Refutation>> {
    let mut elapsed = 0;
    let run = |number: usize, slice: &Slice, verifier: &Verifier<'_>| {
        let progress = Progress::new(slice);
        let of_slice = seed.wrapping_add((number as u64) << 32);
        let ran = simulated.run(of_slice, |cpu| {
            let wait = |waits: &[Wait]| wait(cpu, &progress, waits);
            let number = usize::from(cpu.id().0);
            lane((workload, slice), verifier, &progress, number, wait);
        });
        elapsed += ran.map_err(|error| stuck(verifier, &error))?;
        Ok(())
    };
    let verified = verify_on(workload, engine, SLICES, after_slice, run)?;
    Ok(verified.map(|found| VerifiedInTime {
        seed,
        virtual_ns: elapsed / 1000,
        verified: found.verified,
    }))
}

fn wait(cpu: &Cpu<'_>, progress: &Progress, waits: &[Wait]) {
    let mut look = FIRST_LOOK;
    while !progress.holds(waits) {
        cpu.compute_ns(look);
        look = (look * 2).min(LONGEST_LOOK);
    }
}

fn stuck(verifier: &Verifier<'_>, error: &ScaleError) -> Box<Refutation> {
    let expected = "every CPU ends what it has to do";
    verifier.refute(
        Symptom::Stuck,
        Location::Nowhere,
        expected,
        error.to_string(),
        Place::END,
    )
}
