//! Verified replay: every page is checked against an independent model.
//!
//! Accesses go through the simulated MMU. Each write stamps its page with a word
//! that names the operation; pages are read back where they change hands: at
//! fork (both sides), remap, exec, exit, when a range is dropped, and after each
//! store (a copy-on-write break among them) here and in the spaces that shared
//! the frame. At the end every written page of every file must be in the backing
//! store. What a page must hold is the business of `model`; it shares no code
//! with the core.
//!
//! With one CPU the check is exact. With several, a word of shared memory may
//! hold any write that no other is certain to have overwritten, by vector clocks
//! over the CPUs' streams ([`clocks`]).

pub mod clocks;
pub mod refute;

mod check;
mod history;
mod model;
mod ops;
mod probe;
#[cfg(feature = "simulation")]
pub mod simulated;
mod touch;
mod word;

use std::hash::{DefaultHasher, Hash, Hasher};

use vellum_engine::{Engine, SpaceSlot};
use vellum_results::replay::Verified;

pub use refute::{Location, Refutation, Symptom};

use crate::replay::lanes::drive;
use crate::replay::{Slice, Workload};
use check::Verifier;

/// Operations between two barriers of a verified replay.
const SLICE_OPS: usize = 1 << 14;

/// A verification that held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Verification {
    /// What it did.
    pub verified: Verified,
    /// The resident pages of every space that was left, as [`end_state`] has it.
    pub end_state: u64,
}

/// Audits spread over a run, beside those at its end.
const AUDITS: usize = 16;
/// Slices of a workload at least: small ones are cut finer, so that they too are audited on the
/// way.
const SLICES: usize = 2 * AUDITS;

/// Replays `workload` verified on `engine`, which must be new. `after_slice`
/// gets the number of operations done each time and ends the run by `false`;
/// what was done until then has been verified, but the final checks are left
/// out and the result is `None`.
///
/// # Errors
/// The first thing that is wrong.
pub fn verify(
    workload: &Workload,
    engine: &dyn Engine,
    after_slice: impl FnMut(u64) -> bool,
) -> Result<Option<Verification>, Box<Refutation>> {
    verify_in(workload, engine, SLICES, after_slice)
}

/// [`verify`] in at least `slices` slices, as far as there are operations.
///
/// # Errors
/// As there.
pub fn verify_in(
    workload: &Workload,
    engine: &dyn Engine,
    slices: usize,
    after_slice: impl FnMut(u64) -> bool,
) -> Result<Option<Verification>, Box<Refutation>> {
    verify_on(
        workload,
        engine,
        slices,
        after_slice,
        |_, slice, verifier| {
            drive(workload, slice, verifier);
            Ok(())
        },
    )
}

/// [`verify`] with CPUs that `run` runs: the slice with a number, in the order that the
/// workload's waits demand.
fn verify_on(
    workload: &Workload,
    engine: &dyn Engine,
    slices: usize,
    mut after_slice: impl FnMut(u64) -> bool,
    mut run: impl FnMut(usize, &Slice, &Verifier<'_>) -> Result<(), Box<Refutation>>,
) -> Result<Option<Verification>, Box<Refutation>> {
    let slice_ops = (workload.ops() as usize / slices.max(1)).clamp(1, SLICE_OPS);
    let slices = workload.slices(slice_ops);
    let verifier = Verifier::new(workload, engine, &slices);
    verifier.create_helpers()?;
    let between_audits = slices.len() / AUDITS + 1;
    for (number, slice) in slices.iter().enumerate() {
        verifier.begin_slice(slice);
        run(number, slice, &verifier)?;
        verifier.verdict()?;
        if number % between_audits == between_audits / 2 {
            verifier.audit("every invariant holds in the midst of the workload")?;
        }
        if !after_slice(slice.len() as u64) {
            return Ok(None);
        }
    }
    verifier.finish().map(Some)
}

/// A digest of the pages that are resident in every space of `workload`. Timed
/// and verified replay on one CPU end in the same state.
pub fn end_state(workload: &Workload, engine: &dyn Engine) -> u64 {
    let mut digest = DefaultHasher::new();
    for slot in 0..workload.spaces() {
        slot.hash(&mut digest);
        engine.resident(SpaceSlot(slot), &mut |page| page.hash(&mut digest));
    }
    digest.finish()
}
