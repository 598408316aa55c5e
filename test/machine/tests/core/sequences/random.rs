//! Random operation sequences over many spaces and CPUs, driven from one
//! thread: after each, what the core shows is compared with a model that
//! shares nothing with it. CPUs change from operation to operation, so a
//! forgotten flush leaves a translation behind that a later access uses.
//!
//! `VELLUM_CASES` sets the number of cases, `VELLUM_SEED` the only case to
//! run, `VELLUM_LENGTH` the operations of a case.

use vellum::design::{Rmap, TableFormat};

use super::many::{
    run_cases, run_cases_of, run_compressed_cases, run_contiguous_cases, run_folio_cases,
    run_huge_cases, run_superpage_cases, run_swap_cases,
};
use crate::support::number;

#[test]
fn random_sequences_match_the_model() {
    let length = number("VELLUM_LENGTH").unwrap_or(150) as usize;
    if let Some(seed) = number("VELLUM_SEED") {
        run_cases(std::iter::once(seed), length);
        return;
    }
    let cases = number("VELLUM_CASES").unwrap_or(180);
    let (shortages, dropped, divisions) = run_cases(0..cases, length);
    assert!(
        cases < 180 || shortages > 0,
        "memory never ran out: the small machines are too large"
    );
    assert!(
        cases < 180 || dropped > 0,
        "no page was dropped that had been freed"
    );
    assert!(
        cases < 180 || divisions > 1000,
        "spaces were divided {divisions} times"
    );
}

/// With every reverse-mapping design, and mappings that are large enough.
#[test]
fn random_sequences_with_superpages_match_the_model() {
    let length = number("VELLUM_LENGTH").unwrap_or(150) as usize;
    let seeds = match number("VELLUM_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("VELLUM_CASES").unwrap_or(44),
    };
    let cases = seeds.end - seeds.start;
    let counts = run_superpage_cases(seeds, length);
    assert!(
        cases < 44 || counts.0.iter().chain(&counts.1).all(|&count| count > 0),
        "superpages mapped, not to be had, split, made of single pages; \
         runs set aside, broken, promoted; pages written to swap, read back: {counts:?}"
    );
}

/// With every reverse-mapping design, and shared memory and files that are large enough.
#[test]
fn random_sequences_with_superpages_of_objects_match_the_model() {
    let length = number("VELLUM_LENGTH").unwrap_or(150) as usize;
    let seeds = match number("VELLUM_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("VELLUM_CASES").unwrap_or(44),
    };
    let cases = seeds.end - seeds.start;
    let counts = run_huge_cases(seeds, length);
    assert!(
        cases < 44 || counts.iter().all(|&count| count > 0),
        "superpages mapped, not to be had, split: {counts:?}"
    );
}

/// With every reverse-mapping design, and folios of every size.
#[test]
fn random_sequences_with_folios_match_the_model() {
    // Long enough for memory to run short of runs.
    let length = number("VELLUM_LENGTH").unwrap_or(240) as usize;
    let seeds = match number("VELLUM_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("VELLUM_CASES").unwrap_or(88),
    };
    let cases = seeds.end - seeds.start;
    let counts = run_folio_cases(seeds, length);
    assert!(
        cases < 88 || counts.iter().all(|&count| count > 0),
        "folios mapped, their pages, and folios not to be had: {counts:?}"
    );
}

/// On the formats whose entries can say that they are contiguous, whose processors then cache
/// one translation of sixteen pages.
#[test]
fn random_sequences_with_contiguous_runs_match_the_model() {
    let length = number("VELLUM_LENGTH").unwrap_or(150) as usize;
    let seeds = match number("VELLUM_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("VELLUM_CASES").unwrap_or(36),
    };
    let cases = seeds.end - seeds.start;
    let counts = run_contiguous_cases(seeds, length);
    assert!(
        cases < 36 || counts.iter().all(|&count| count > 100),
        "contiguous runs made, and ended before they were unmapped whole: {counts:?}"
    );
}

/// With every reverse-mapping design, and private pages written to swap now and then.
#[test]
fn random_sequences_with_swap_match_the_model() {
    let length = number("VELLUM_LENGTH").unwrap_or(150) as usize;
    let seeds = match number("VELLUM_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("VELLUM_CASES").unwrap_or(150),
    };
    let cases = seeds.end - seeds.start;
    let counts = run_swap_cases(seeds, length);
    assert!(
        cases < 150 || counts.iter().all(|&count| count > 1000),
        "pages written to swap and read back: {counts:?}"
    );
}

/// The same with a compressed store in front of an area, which is soon full: every other one
/// writes pages back.
#[test]
fn random_sequences_with_a_compressed_store_match_the_model() {
    let length = number("VELLUM_LENGTH").unwrap_or(150) as usize;
    let seeds = match number("VELLUM_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("VELLUM_CASES").unwrap_or(66),
    };
    let cases = seeds.end - seeds.start;
    let counts = run_compressed_cases(seeds, length);
    assert!(
        cases < 66 || counts.iter().all(|&count| count > 150),
        "pages taken, of one word, written back: {counts:?}"
    );
}

/// Fewer than on x86-64 with every design: what the formats share is tested there.
fn random_sequences_of(format: TableFormat, rmap: Rmap) {
    let length = number("VELLUM_LENGTH").unwrap_or(120) as usize;
    if let Some(seed) = number("VELLUM_SEED") {
        for swaps in [false, true] {
            run_cases_of(format, (rmap, swaps), std::iter::once(seed), length);
        }
        return;
    }
    let cases = number("VELLUM_CASES").unwrap_or(20);
    run_cases_of(format, (rmap, false), 0..cases, length);
    run_cases_of(format, (rmap, true), 0..cases / 2, length);
}

macro_rules! one_test_each {
    ($($(#[$about:meta])* $name:ident: $format:ident $value:literal;)*) => {
        mod random_sequences_match_the_model_on {
            use super::{Rmap, TableFormat, random_sequences_of};
            $(#[test] fn $name() { random_sequences_of(TableFormat::$format, Rmap::Family); })*

            #[test]
            fn x86_pae_with_chains() {
                random_sequences_of(TableFormat::X86Pae, Rmap::Chains);
            }
        }
    };
}

vellum::every_format! { [one_test_each] }
