//! Cases one after another.

use std::sync::Arc;

use vellum::design::{Rmap, TableFormat};
use vellum_machine::Arena;
use vellum_machine::mmu::walker;

use super::run::{Case, Happened, arena, arena_for};

/// Runs cases, and fails with the smallest form of the first that fails.
/// Returns how often memory ran out, how many pages were dropped that had been freed, and how often
/// spaces were divided.
pub fn run_cases(seeds: impl Iterator<Item = u64>, length: usize) -> (u32, u64, u32) {
    let happened = run_all(seeds.map(|seed| (seed, Case::nth(seed, length))), &arena());
    (happened.shortages, happened.dropped, happened.divisions)
}

/// Runs cases with superpages; returns how many were mapped, not to be had,
/// split, and made of single pages, how many runs were set aside, broken and promoted, and how
/// many pages were written to swap and read back.
pub fn run_superpage_cases(
    seeds: impl Iterator<Item = u64>,
    length: usize,
) -> ([u64; 7], [u64; 2]) {
    let case = |seed| (seed, Case::nth_with_superpages(seed, length));
    let happened = run_all(seeds.map(case), &arena());
    (happened.superpages, happened.swapped)
}

/// Runs cases with superpages of objects; returns how many superpages were mapped, not to
/// be had, and split.
pub fn run_huge_cases(seeds: impl Iterator<Item = u64>, length: usize) -> [u64; 3] {
    let case = |seed| (seed, Case::nth_with_huge(seed, length));
    let [mapped, lacking, split, ..] = run_all(seeds.map(case), &arena()).superpages;
    [mapped, lacking, split]
}

/// Runs cases with folios; returns how many were mapped, of how many pages, and how many were
/// not to be had.
pub fn run_folio_cases(seeds: impl Iterator<Item = u64>, length: usize) -> [u64; 3] {
    let case = |seed| (seed, Case::nth_with_folios(seed, length));
    run_all(seeds.map(case), &arena()).folios
}

/// Runs cases with contiguous runs; returns how many were made, and how many ended before they
/// were unmapped whole.
pub fn run_contiguous_cases(seeds: impl Iterator<Item = u64>, length: usize) -> [u64; 2] {
    let case = |seed| (seed, Case::nth_with_runs(seed, length));
    // All of these formats have pages of 4 KiB.
    run_all(seeds.map(case), &arena()).runs
}

/// Runs cases with swap areas; returns how many pages were written there, and read back.
pub fn run_swap_cases(seeds: impl Iterator<Item = u64>, length: usize) -> [u64; 2] {
    let case = |seed| (seed, Case::nth_with_swap(seed, length));
    run_all(seeds.map(case), &arena()).swapped
}

/// The same with a compressed store in front of an area; returns how many pages that took, how
/// many of them were one word, and written back.
pub fn run_compressed_cases(seeds: impl Iterator<Item = u64>, length: usize) -> [u64; 3] {
    let case = |seed| (seed, Case::nth_compressed(seed, length));
    run_all(seeds.map(case), &arena()).compressed
}

/// [`run_cases`] on a format, with one reverse-mapping design.
pub fn run_cases_of(
    format: TableFormat,
    design: (Rmap, bool),
    seeds: impl Iterator<Item = u64>,
    length: usize,
) -> u32 {
    let arena = arena_for(walker(format.name()).expect("a walker"));
    let case = |seed| (seed, Case::nth_of(format, design, seed, length));
    run_all(seeds.map(case), &arena).shortages
}

fn run_all(cases: impl Iterator<Item = (u64, Case)>, arena: &Arc<Arena>) -> Happened {
    let mut happened = Happened::default();
    for (seed, case) in cases {
        match case.run(arena) {
            Ok(more) => {
                happened.shortages += more.shortages;
                happened.dropped += more.dropped;
                happened.divisions += more.divisions;
                let Happened {
                    superpages,
                    folios,
                    runs,
                    swapped,
                    compressed,
                    ..
                } = &mut happened;
                let sums = superpages.iter_mut().chain(folios).chain(runs);
                let sums = sums.chain(swapped).chain(compressed);
                let all = more.superpages.into_iter().chain(more.folios);
                let all = all
                    .chain(more.runs)
                    .chain(more.swapped)
                    .chain(more.compressed);
                for (sum, more) in sums.zip(all) {
                    *sum += more;
                }
            }
            Err((at, error)) => {
                let small = case.clone().minimise(arena);
                let now = small.run(arena).err();
                let mut text = format!(
                    "{}, seed {seed} (VELLUM_SEED={seed} repeats it), {}, {}: operation {at}: {error}\n\
                     smallest sequence that fails: {now:?}\n",
                    case.format.name(),
                    case.design,
                    case.platform.name
                );
                for op in &small.ops {
                    text += &format!("    {op:?},\n");
                }
                panic!("{text}");
            }
        }
    }
    happened
}
