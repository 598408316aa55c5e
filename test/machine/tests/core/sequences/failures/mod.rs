//! Every allocation the core makes is made to fail once, in scenarios that
//! reach all of its sites. The operation must answer that memory ran out and
//! leave everything as it was, each region and each entry (invariant 12);
//! repeated, it must succeed.

mod directory;
mod folios;
mod scenarios;
mod superpages;

use std::collections::BTreeSet;
use std::sync::Arc;

use super::drive::Driver;
use super::model::pristine;
use super::ops::{Op, What};
use super::run::{PLATFORMS, arena, arena_for, catch};
use folios::{FIRST_OF_FOLIO, folio_scenarios};
use scenarios::{Scenario, scenarios};
use superpages::{FIRST_USE, huge_file_scenarios, huge_scenarios, superpage_scenarios};
use vellum::addr::Pfn;
use vellum::design::{RegionIndex, TableFormat, variants};
use vellum::frame::{FailAt, Site};
use vellum::rmap::ReverseMap;
use vellum::swap::SwapArea;
use vellum::table::Format;
use vellum::{Design, Vm};
use vellum_machine::mmu::{X86_PAE, walker};
use vellum_machine::{Arena, Machine, PatternStore};

use crate::support::{other_options, variants_on_pae, with_instance};

fn driver<F: Format, R: ReverseMap>(design: Design, arena: &Arc<Arena>) -> Driver<F, R> {
    let store = Arc::new(PatternStore::new(4096, pristine));
    let mut config = PLATFORMS[0].config(walker(F::NAME).unwrap(), store);
    if config.biting_windows {
        config.high_from = Some(Pfn(0x600));
    }
    let machine = Machine::new(config, Arc::clone(arena)).unwrap();
    let vm = Vm::new(machine, design).unwrap();
    let area = SwapArea::new(1 << 30, 200);
    vm.swap_on(area).unwrap();
    let mut driver = Driver::new(vm, 3, true);
    driver.most = 12;
    driver
}

/// Has an allocation of the last operation fail, or none. Returns how many
/// allocations there were at each site until then.
fn fail_one<F: Format, R: ReverseMap>(
    design: Design,
    arena: &Arc<Arena>,
    (name, before, last): &Scenario,
    failure: Option<FailAt>,
) -> Result<Vec<u64>, String> {
    let mut driver = driver::<F, R>(design, arena);
    driver.watches = false;
    let on = |cpu, what: &What| Op { cpu, what: *what };
    for (number, what) in before.iter().enumerate() {
        driver.apply(&on(number as u8 / 3, what))?;
    }
    let vm = Arc::clone(&driver.vm);
    driver.watches = true;
    let only_counts = FailAt {
        site: Site::TablePage,
        after: u32::MAX,
    };
    vm.memory().inject(Some(failure.unwrap_or(only_counts)));
    driver.apply(&on(1, last))?;
    vm.memory().inject(None);
    driver.watches = false;
    let counts = Site::ALL.iter().map(|&site| vm.memory().reached(site));
    let counts: Vec<u64> = counts.collect();
    // A frame that is missing within a run of pages only makes the run shorter.
    let shortens = |plan: FailAt| plan.site == Site::CachePage && plan.after > 0;
    // Neighbours of a page in swap need not come with it.
    let is_ahead = |plan: FailAt| plan.site == Site::SwapIn && plan.after > 0;
    // Regions of an object that cannot be spread over several sets stay in one.
    let of_sets = [Site::RegionSets, Site::SlabFrame, Site::SlabDirectory];
    let is_of_sets = |plan: FailAt| of_sets.contains(&plan.site);
    // Single pages do instead of a superpage, and reclaim may have something to take.
    let may_pass = [FIRST_USE, FIRST_OF_FOLIO].contains(name)
        || design.region_index == RegionIndex::Spread && failure.is_some_and(is_of_sets)
        || design.reclaim && failure.is_some_and(is_ahead)
        || design.reclaim && driver.vm.stats().reclaim.reclaimed > 0
        || matches!(last, What::Write { .. }) && failure.is_some_and(shortens);
    let failures = if may_pass {
        driver.shortages.min(1)
    } else {
        u32::from(failure.is_some())
    };
    if driver.shortages != failures {
        return Err(format!("{} operations failed", driver.shortages));
    }
    driver
        .apply(&on(0, &What::Audit))
        .map_err(|error| format!("after the failure: {error}"))?;
    driver
        .apply(&on(2, last))
        .map_err(|error| format!("repeated: {error}"))?;
    if driver.shortages != failures {
        return Err("the operation failed once more without reason".into());
    }
    driver
        .finish()
        .map_err(|error| format!("in the end: {error}"))?;
    Ok(counts)
}

/// Has each allocation fail that the scenarios of each design reach. Returns the sites of
/// those.
fn fail_each(designs: &[(String, Vec<Scenario>)]) -> BTreeSet<u16> {
    let (plain, shared) = (arena(), arena_for(&X86_PAE));
    let mut reached = BTreeSet::new();
    let mut wrong = Vec::new();
    for (text, scenarios) in designs {
        let design = Design::parse(text).unwrap();
        let arena = match design.format {
            TableFormat::X86Pae => &shared,
            _ => &plain,
        };
        for scenario in scenarios {
            let run = |failure| {
                let run = || with_instance!(design, F, R => fail_one::<F, R>(design, arena, scenario, failure));
                catch(run).map_err(|error| format!("{text}: {}: {failure:?}: {error}", scenario.0))
            };
            // Nothing fails at first: what the operation reaches can fail.
            let counts = match run(None) {
                Ok(counts) => counts,
                Err(error) => {
                    wrong.push(error);
                    continue;
                }
            };
            for (&site, count) in Site::ALL.iter().zip(counts) {
                // Sources of tables change nothing about other sites.
                let is_table = matches!(site, Site::TablePage | Site::RootTable);
                if text.contains("ptepage") && !is_table {
                    continue;
                }
                for after in 0..count as u32 {
                    reached.insert(site as u16);
                    if let Err(error) = run(Some(FailAt { site, after })) {
                        wrong.push(error);
                        break;
                    }
                }
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{} failures:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    reached
}

/// Reverse mappings without what changes how they work.
fn rmaps() -> impl Iterator<Item = String> {
    let rmaps = variants("rmap").into_iter();
    rmaps.filter(|rmap| !rmap.contains(','))
}

/// Far enough for tables of their own at all levels but the root, in pages.
const FAR: u64 = 1 << 27;
const FAR_ON_PAE: u64 = 2 << 18;

/// Sites that only these options have.
const OF_SUPERPAGES: [Site; 2] = [Site::Superpage, Site::Reservation];
const OF_FOLIOS: [Site; 1] = [Site::Folio];

fn assert_reached<'s>(reached: &BTreeSet<u16>, sites: impl IntoIterator<Item = &'s Site>) {
    let missed = sites
        .into_iter()
        .filter(|&&site| !reached.contains(&(site as u16)));
    let missed: Vec<&Site> = missed.collect();
    assert!(
        missed.is_empty(),
        "sites that no scenario reaches: {missed:?}"
    );
}

#[test]
fn every_allocation_may_fail() {
    // Every design, with the other options' other values in turn; and every source.
    let rmaps = variants("rmap").into_iter().enumerate();
    let rmaps = rmaps.map(|(number, rmap)| format!("{rmap},{}", other_options(number)));
    let sources = variants("ptepage").into_iter();
    let sources = sources.map(|source| format!("rmap=partial,{source}"));
    let designs = rmaps.chain(sources);
    let designs: Vec<_> = designs.map(|design| (design, scenarios(FAR))).collect();
    // No operation of a scenario makes mounts or tracts; the core's own tests do. There, pages move,
    // too: one for which there is no frame stays, and the call does not fail. The options of the tests
    // below have sites of their own.
    let others = [Site::Mount, Site::Tract, Site::MovedPage];
    let elsewhere = [&others[..], &OF_SUPERPAGES, &OF_FOLIOS].concat();
    let sites = Site::ALL.iter().filter(|site| !elsewhere.contains(site));
    assert_reached(&fail_each(&designs), sites);
}

#[test]
fn every_allocation_may_fail_where_tables_are_reached_through_windows() {
    let designs = variants_on_pae();
    let designs: Vec<_> = designs
        .map(|design| (design, scenarios(FAR_ON_PAE)))
        .collect();
    fail_each(&designs);
}

#[test]
fn every_allocation_may_fail_with_superpages() {
    // Each reverse mapping once; and those that keep something for each entry, and that keep
    // nothing.
    let designs = rmaps().map(|rmap| format!("{rmap},superpage=eager"));
    let reserving = ["rmap=chains", "rmap=family", "rmap=pv"];
    let designs = designs.chain(reserving.map(|rmap| format!("{rmap},superpage=reserve")));
    let on_pae = ["eager", "reserve"].map(|how| format!("format=x86-pae,superpage={how}"));
    let designs = designs.chain(on_pae).map(|design| {
        let how = Design::parse(&design).unwrap().superpages;
        (design, superpage_scenarios(how))
    });
    let reached = fail_each(&designs.collect::<Vec<_>>());
    assert_reached(&reached, &OF_SUPERPAGES);
}

/// Runs scenarios with an option under every reverse mapping, and on `x86-pae`.
fn fail_each_with(option: &str, scenarios: fn() -> Vec<Scenario>, sites: &[Site]) {
    let designs = rmaps().map(|rmap| format!("{rmap},{option}"));
    let designs = designs.chain([format!("format=x86-pae,{option}")]);
    let designs = designs.map(|design| (design, scenarios()));
    let reached = fail_each(&designs.collect::<Vec<_>>());
    assert_reached(&reached, sites);
}

#[test]
fn every_allocation_may_fail_with_superpages_of_shared_memory() {
    fail_each_with("huge=always", huge_scenarios, &[Site::Superpage]);
}

#[test]
fn every_allocation_may_fail_with_superpages_of_files() {
    fail_each_with("filehuge=always", huge_file_scenarios, &[Site::Superpage]);
}

#[test]
fn every_allocation_may_fail_with_folios() {
    fail_each_with("folio=64k", folio_scenarios, &OF_FOLIOS);
}
