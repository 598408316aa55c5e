//! Random operation sequences over many spaces and CPUs, driven from one
//! thread: after each, what the core shows is compared with a model that
//! shares nothing with it. CPUs change from operation to operation, so a
//! forgotten flush leaves a translation behind that a later access uses.
//!
//! `VELLUM_CASES` sets the number of cases, `VELLUM_SEED` the only case to
//! run, `VELLUM_LENGTH` the operations of a case.

use vellum::table::{Aarch64_4K, Aarch64_16K, Aarch64_64K, Format, Sv39, Sv48, X86_64La57};

use super::run::{run_cases, run_cases_of};
use crate::support::number;

#[test]
fn random_sequences_match_the_model() {
    let length = number("VELLUM_LENGTH").unwrap_or(150) as usize;
    if let Some(seed) = number("VELLUM_SEED") {
        run_cases(std::iter::once(seed), length);
        return;
    }
    let cases = number("VELLUM_CASES").unwrap_or(180);
    let shortages = run_cases(0..cases, length);
    assert!(
        cases < 180 || shortages > 0,
        "memory never ran out: the small machines are too large"
    );
}

/// Fewer than on x86-64: what the formats share is tested there.
fn random_sequences_of<F: Format>(cases: u64) {
    let length = number("VELLUM_LENGTH").unwrap_or(120) as usize;
    if let Some(seed) = number("VELLUM_SEED") {
        run_cases_of::<F>(std::iter::once(seed), length);
        return;
    }
    run_cases_of::<F>(0..number("VELLUM_CASES").unwrap_or(cases), length);
}

macro_rules! on_every_format {
    ($($name:ident: $format:ty, $cases:expr;)*) => {
        $(#[test] fn $name() { random_sequences_of::<$format>($cases); })*
    };
}

on_every_format! {
    random_sequences_match_the_model_on_x86_64_with_five_levels: X86_64La57, 20;
    random_sequences_match_the_model_on_aarch64_with_4_kib: Aarch64_4K, 20;
    random_sequences_match_the_model_on_aarch64_with_16_kib: Aarch64_16K, 20;
    random_sequences_match_the_model_on_aarch64_with_64_kib: Aarch64_64K, 20;
    random_sequences_match_the_model_on_sv39: Sv39, 20;
    random_sequences_match_the_model_on_sv48: Sv48, 20;
}
