//! Benchmarks that replay traces, on a whole simulated machine: `kernbench` and `sdet`
//! under several loads, and `buildkernel` under one.

use std::path::{Path, PathBuf};

use crate::report::names::letter;
use vellum_results::sim::{Bench, Findings, Loaded};

use super::{Purpose, Wanted, load, measure, to_base};
use crate::bench::Replayed;
use crate::bench::buildkernel::Part;
use crate::failure::Failure;
use crate::report::buildkernel::{self, Builds};
use crate::report::{kernbench, sdet};
use vellum_description::Description;
use vellum_terminal::progress::{Interrupt, Style};
use vellum_terminal::text::plural;

/// What is measured under one load.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Load {
    /// What it stands for.
    pub title: String,
    /// The traces that run at once.
    pub traces: Vec<PathBuf>,
    /// How often each does.
    pub copies: u32,
}

/// Where and how.
#[derive(Debug)]
pub struct Setting {
    /// Name of the benchmark.
    pub benchmark: &'static str,
    /// What it replays.
    pub replayed: Replayed,
    /// What the user called the machine.
    pub machine_name: String,
    /// The machine.
    pub machine: Description,
    /// How many of its CPUs.
    pub cpus: usize,
    /// Its memory in bytes; what each load needs if none is given.
    pub ram: Option<u64>,
    /// The designs, of which the first is the base.
    pub designs: Vec<String>,
    /// How many seeds.
    pub seeds: u16,
    /// The first seed.
    pub seed: u64,
    /// Samples of seeds that intervals are from.
    pub resamples: usize,
    /// Simulations at a time.
    pub jobs: usize,
    /// How to show progress.
    pub style: Style,
}

/// Refuses what is wrong, or about another workload than was recorded.
///
/// # Errors
/// As [`trusted`](super::trusted), of any load.
pub fn trusted(bench: &Bench) -> Result<(), Failure> {
    let mut loads = bench.loads.iter();
    loads.try_for_each(|load| super::trusted(&load.findings))
}

/// The loads of `kernbench`: copies of one trace in place of jobs, none where there are 0.
pub fn kernbench_loads(trace: &Path, loads: &[(&str, u32)]) -> Vec<Load> {
    let loads = loads.iter().filter(|(_, copies)| *copies > 0);
    let loads = loads.map(|(title, copies)| Load {
        title: format!(
            "{title} (simulated, {})",
            plural(*copies as usize, "copy", "copies")
        ),
        traces: vec![trace.to_owned()],
        copies: *copies,
    });
    loads.collect()
}

/// The load of `buildkernel`: copies of a recorded build in place of so many jobs.
pub fn buildkernel_load(part: &Part, jobs: u64) -> Load {
    let copies = part.copies(jobs);
    Load {
        title: format!("make -s -j {jobs}: {}", part.describe(copies)),
        traces: vec![part.path().clone()],
        copies,
    }
}

/// The loads of `sdet`: 1, 2, 4 … scripts at once, up to `most`; as many different ones as
/// there are traces, each of which holds `in_each`, and then more of each.
pub fn sdet_loads(traces: &[PathBuf], in_each: u64, most: u64) -> Vec<Load> {
    let at_once = std::iter::successors(Some(1u64), |n| n.checked_mul(2));
    let loads = at_once.take_while(|n| *n <= most).map(|scripts| {
        let wanted = scripts.div_ceil(in_each);
        let different = wanted.min(traces.len() as u64);
        let copies = wanted.div_ceil(different.max(1));
        Load {
            title: format!(
                "SDET-like {}  (see disclaimer)",
                different * copies * in_each
            ),
            traces: traces[..different as usize].to_vec(),
            copies: copies as u32,
        }
    });
    loads.collect()
}

/// Simulates all loads, one after the other. `in_each` is how many units a copy of a trace
/// stands for.
///
/// # Errors
/// A design is refused, a trace cannot be read, a simulation failed, or the user stopped
/// it before there was anything to tell.
pub fn bench(
    setting: &Setting,
    loads: Vec<Load>,
    in_each: u64,
    interrupt: &Interrupt,
) -> Result<Bench, Failure> {
    let mut found = Bench {
        benchmark: setting.benchmark.to_owned(),
        loads: Vec::new(),
        interrupted: false,
    };
    for next in loads {
        match one(setting, &next, in_each, interrupt) {
            Ok(loaded) => found.loads.push(loaded),
            Err(failure) if failure.code() == Failure::INTERRUPTED && !found.loads.is_empty() => {
                found.interrupted = true;
                break;
            }
            Err(failure) => return Err(failure),
        }
        found.interrupted = found.loads.iter().any(|load| load.findings.interrupted);
        if found.interrupted {
            break;
        }
    }
    Ok(found)
}

/// Simulates one load.
fn one(
    setting: &Setting,
    next: &Load,
    in_each: u64,
    interrupt: &Interrupt,
) -> Result<Loaded, Failure> {
    let wanted = Wanted {
        traces: next.traces.clone(),
        designs: setting.designs.clone(),
        machine_name: setting.machine_name.clone(),
        machine: setting.machine.clone(),
        cpus: setting.cpus,
        copies: next.copies,
        ram: setting.ram,
        seeds: setting.seeds,
        seed: setting.seed,
        purpose: Purpose::Sweep,
        jobs: setting.jobs,
    };
    let plan = load(wanted, setting.style)?;
    let findings = measure(&plan, setting.style, interrupt)?;
    let at_once = next.traces.len() as u64 * u64::from(next.copies) * in_each;
    let others = 1..findings.sides.len();
    let against_base = others.filter_map(|number| to_base(&findings, number, setting.resamples));
    Ok(Loaded {
        load: next.title.clone(),
        at_once,
        block: match setting.replayed {
            Replayed::Sdet => sdet_block(&next.title, at_once, &findings),
            Replayed::Buildkernel => buildkernel_block(&next.title, &findings),
            Replayed::Kernbench => kernbench_block(&next.title, &findings),
        },
        against_base: against_base.collect(),
        findings,
    })
}

/// Medians of the seeds, all copies together.
fn kernbench_block(title: &str, findings: &Findings) -> String {
    let rows = findings
        .sides
        .iter()
        .enumerate()
        .map(|(number, side)| kernbench::Row {
            label: label(number, &side.design, kernbench::LABEL),
            elapsed_s: side.median("elapsed_s"),
            system_s: side.median("system_s"),
            user_s: Some(side.median("user_s")),
            cpu_percent: Some(side.median("percent_cpu")),
        });
    kernbench::block(title, &rows.collect::<Vec<_>>())
}

/// The seeds as runs, all copies together.
fn buildkernel_block(title: &str, findings: &Findings) -> String {
    let builds = findings.sides.iter().enumerate().map(|(number, side)| {
        let seconds = |ns: u64| ns as f64 / 1e9;
        let runs = side.runs.iter();
        let runs = runs.map(|run| [run.elapsed_ns, run.user_ns, run.system_ns].map(seconds));
        Builds {
            name: format!("{} {}", letter(number), side.design),
            runs: runs.collect(),
        }
    });
    buildkernel::block(title, &builds.collect::<Vec<_>>())
}

/// Scripts an hour of elapsed time, as percentages of the first design's.
fn sdet_block(title: &str, at_once: u64, findings: &Findings) -> String {
    let throughput = findings.sides.iter().enumerate().map(|(number, side)| {
        let hours = side.runs.iter().map(|run| run.elapsed_ns as f64 / 3600e9);
        let runs = hours.map(|hours| at_once as f64 / hours.max(f64::MIN_POSITIVE));
        (
            label(number, &side.design, kernbench::LABEL),
            runs.collect(),
        )
    });
    sdet::block(title, &sdet::rows(&throughput.collect::<Vec<_>>()))
}

/// What fits into the columns of a label.
fn label(number: usize, design: &str, columns: usize) -> String {
    let letter = letter(number);
    let full = match design {
        "" => format!("{letter} default"),
        design => format!("{letter} {design}"),
    };
    match full.chars().count() <= columns {
        true => full,
        false => letter.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulate::findings::tests::{done, plan};

    #[test]
    fn loads_of_kernbench_are_copies_of_one_trace() {
        let trace = PathBuf::from("build.vellum");
        let loads = kernbench_loads(&trace, &[("light", 1), ("heavy", 0), ("unlimited", 4)]);
        let copies = loads.iter().map(|load| (load.traces.len(), load.copies));
        assert_eq!(copies.collect::<Vec<_>>(), [(1, 1), (1, 4)]);
        assert_eq!(loads[0].title, "light (simulated, 1 copy)");
        assert_eq!(loads[1].title, "unlimited (simulated, 4 copies)");
    }

    #[test]
    fn loads_of_sdet_double_with_different_scripts_first() {
        let traces: Vec<PathBuf> = ["a", "b", "c"].map(PathBuf::from).into();
        let loads = sdet_loads(&traces, 1, 8);
        let shapes = loads.iter().map(|load| (load.traces.len(), load.copies));
        assert_eq!(shapes.collect::<Vec<_>>(), [(1, 1), (2, 1), (3, 2), (3, 3)]);
        assert!(
            loads[3].title.starts_with("SDET-like 9 "),
            "{}",
            loads[3].title
        );
        assert_eq!(sdet_loads(&traces, 4, 4)[2].copies, 1);
    }

    #[test]
    fn blocks_are_of_the_medians_of_the_seeds() {
        let plan = plan(&["rmap=chains", ""], 6);
        let findings =
            super::super::findings::findings(&plan, &done(&plan, 0.5)).expect("all is done");
        let block = kernbench_block("light", &findings);
        assert!(block.starts_with("Kernbench: (light)\n"), "{block}");
        assert!(
            block.contains("A rmap=chains") && block.contains("B default"),
            "{block}"
        );
        let block = sdet_block("SDET-like 2", 2, &findings);
        assert!(block.contains("       100.0%"), "{block}");
        assert!(
            block.contains("       200.0%"),
            "twice the scripts in half the time: {block}"
        );
    }
}
