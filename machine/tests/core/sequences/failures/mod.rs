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
use superpages::{FIRST_USE, superpage_scenarios};
use vellum::addr::Pfn;
use vellum::design::{TableFormat, variants};
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
    let mut vm = Vm::new(machine, design).unwrap();
    let area = SwapArea {
        store: 1 << 30,
        slots: 200,
        priority: 0,
    };
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
    // Single pages do instead of a superpage, and reclaim may have something to take.
    let may_pass = [FIRST_USE, FIRST_OF_FOLIO].contains(name)
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

#[test]
fn every_allocation_may_fail() {
    let (plain, shared) = (arena(), arena_for(&X86_PAE));
    let mut reached = BTreeSet::new();
    let mut wrong = Vec::new();
    // Every design, with the other options' other values in turn; and every source.
    let mut designs = Vec::new();
    for (number, rmap) in variants("rmap").into_iter().enumerate() {
        designs.push(format!("{rmap},{}", other_options(number)));
    }
    for source in variants("ptepage") {
        designs.push(format!("rmap=partial,{source}"));
    }
    designs.extend(variants_on_pae());
    let plain_designs = designs.len();
    // Each reverse mapping once.
    for rmap in variants("rmap").iter().filter(|rmap| !rmap.contains(',')) {
        designs.push(format!("{rmap},superpage=eager"));
    }
    // Those that keep something for each entry, and that keep nothing.
    for rmap in ["chains", "family", "pv"] {
        designs.push(format!("rmap={rmap},superpage=reserve"));
    }
    designs.push("format=x86-pae,superpage=eager".into());
    designs.push("format=x86-pae,superpage=reserve".into());
    let before_folios = designs.len();
    for rmap in variants("rmap").iter().filter(|rmap| !rmap.contains(',')) {
        designs.push(format!("{rmap},folio=64k"));
    }
    designs.push("format=x86-pae,folio=64k".into());
    for (number, text) in designs.iter().enumerate() {
        let design = Design::parse(text).unwrap();
        let (arena, far) = match design.format {
            TableFormat::X86Pae => (&shared, 2 << 18),
            _ => (&plain, 1 << 27),
        };
        let scenarios = match number < plain_designs {
            true => scenarios(far),
            false if number < before_folios => superpage_scenarios(design.superpages),
            false => folio_scenarios(),
        };
        for scenario in &scenarios {
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
    // No operation of a scenario makes mounts; the core's own tests do.
    let missed = Site::ALL
        .iter()
        .filter(|&&site| site != Site::Mount && !reached.contains(&(site as u16)));
    assert_eq!(
        missed.collect::<Vec<_>>(),
        [] as [&Site; 0],
        "sites that no scenario reaches"
    );
}
