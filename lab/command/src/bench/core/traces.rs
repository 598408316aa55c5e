//! Benchmarks that replay traces under several loads: `kernbench` and `sdet`.

use std::path::PathBuf;

use super::run::{self, Machine, Ram};
use crate::bench::findings::{Arm, Figure, Findings, Input, arms_of, figure_of};
use crate::bench::host::sdet::SHIPPED;
use crate::bench::request::Request;
use crate::compare::Measurement;
use crate::designs;
use crate::failure::Failure;
use crate::replay::ram::Starved;
use crate::replay::{Options, Streams, Together, Workload};
use crate::report::{kernbench as kernbench_block, sdet as sdet_block};
use crate::shipped::shipped_trace;
use vellum_terminal::progress::Interrupt;
use vellum_trace::TraceReader;

/// A machine that a trace is replayed on.
const REPLAYED: Machine = Machine {
    divergence_limit: 0.01,
    only_needed: true,
    ..Machine::PLAIN
};

/// What is printed beside every figure called after SDET.
pub const DISCLAIMER: &str = "Disclaimer: this is not SDET. SPEC and SDET are trademarks of the \
     Standard Performance Evaluation Corporation, whose benchmark is another program. The \
     workload here is like it in shape only; its figures are for research, do not comply with \
     any rule of that benchmark, and must not be compared with published results of it.";

/// The loads of kernbench: the size that says how many copies there are, and the title of
/// the published block.
pub const KERNBENCH: [(&str, &str); 3] = [
    ("light", "make -j N vmlinux, where N = 2 x num_cpus"),
    ("heavy", "make -j N vmlinux, where N = 16 x num_cpus"),
    ("unlimited", "make -j vmlinux, maximal tasks"),
];

/// The trace of kernbench: the one that is given, or the shipped one.
///
/// # Errors
/// Several are given, or the shipped one is missing.
pub fn build(given: &[PathBuf]) -> Result<PathBuf, Failure> {
    match given {
        [] => shipped_trace("kernel-build.vellum"),
        [one] => Ok(one.clone()),
        several => Err(Failure::usage(format!(
            "kernbench replays one trace; {} were named",
            several.len()
        ))),
    }
}

/// The traces of sdet: those that are given, or the shipped ones.
///
/// # Errors
/// A shipped one is missing.
pub fn scripts(given: &[PathBuf]) -> Result<Vec<PathBuf>, Failure> {
    match given {
        [] => SHIPPED.iter().map(|name| shipped_trace(name)).collect(),
        some => Ok(some.to_vec()),
    }
}

/// Three loads of a kernel build, with copies of its trace in place of jobs.
pub fn kernbench(request: &Request, interrupt: &Interrupt) -> Result<Findings, Failure> {
    let path = build(&request.traces)?;
    let mut findings = Findings::default();
    for (size, title) in KERNBENCH {
        let copies = request.sizes.get(size) as u32;
        if copies == 0 {
            continue;
        }
        let load = Load::of(std::slice::from_ref(&path), copies, request)?;
        let Some((measured, ram)) = load.take(&mut findings, request, interrupt)? else {
            break;
        };
        let title = format!("{title} (replay, {})", copies_of(copies));
        let facts = vec![format!("{} of {}.", copies_of(copies), path.display())];
        let mut run = run::describe(&title, facts, &measured);
        let cpu = figure(
            "build",
            "copy",
            f64::from(copies),
            request,
            &measured,
            |pass| &pass.cpu_ns,
        );
        let wall = figure(
            "wall",
            "copy",
            f64::from(copies),
            request,
            &measured,
            |pass| &pass.wall_ns,
        );
        run.ram_bytes = Some(ram.bytes);
        run.kernbench = kernbench_rows(&findings.arms, &cpu, &wall);
        run.figures = vec![cpu];
        findings
            .blocks
            .push(kernbench_block::block(&title, &run.kernbench));
        findings.runs.push(run);
        if measured.interrupted {
            findings.interrupted = true;
            break;
        }
    }
    if findings.runs.is_empty() && !findings.interrupted {
        return Err(Failure::usage(
            "every load was left out; give one of the sizes light, heavy and unlimited",
        ));
    }
    findings.notes = vec![
        "Elapsed: seconds of wall clock in which the slices ran, all copies together. System: \
         seconds of CPU time in the core. User: 0, because no user code is replayed. A trace has \
         the parallelism of the build that was recorded; further copies of it stand in for more \
         jobs at once."
            .to_owned(),
        run::NOT_MODELLED.to_owned(),
    ];
    Ok(findings)
}

/// Rows of the block, seconds for all copies together; without the control.
fn kernbench_rows(arms: &[Arm], cpu: &Figure, wall: &Figure) -> Vec<kernbench_block::Row> {
    let (control, units) = (arms.len() - 1, cpu.units);
    let times = cpu.arms.iter().zip(&wall.arms);
    let rows = arms[..control].iter().zip(times).map(|(arm, (cpu, wall))| {
        let (elapsed_s, system_s) = (wall.value * units / 1e9, cpu.value * units / 1e9);
        kernbench_block::Row {
            label: label(arm),
            elapsed_s,
            system_s,
            user_s: Some(0.0),
            cpu_percent: Some(match elapsed_s > 0.0 {
                true => 100.0 * system_s / elapsed_s,
                false => 0.0,
            }),
        }
    });
    rows.collect()
}

/// Throughput of scripts, 1, 2, 4 … at once: as many different ones as there are
/// traces, and then more of each.
pub fn sdet(request: &Request, interrupt: &Interrupt) -> Result<Findings, Failure> {
    let paths = scripts(&request.traces)?;
    let mut findings = Findings::default();
    let in_each = request.sizes.get("scripts");
    let most = request.sizes.get("most");
    let loads = std::iter::successors(Some(1u64), |n| Some(2 * n)).take_while(|n| *n <= most);
    for users in loads {
        let wanted = users.div_ceil(in_each);
        let traces = wanted.min(paths.len() as u64);
        let copies = wanted.div_ceil(traces);
        let load = Load::of(&paths[..traces as usize], copies as u32, request)?;
        let Some((measured, ram)) = load.take(&mut findings, request, interrupt)? else {
            break;
        };
        let at_once = traces * copies * in_each;
        let figure = figure(
            "script",
            "script",
            at_once as f64,
            request,
            &measured,
            |pass| &pass.cpu_ns,
        );
        let title = format!("SDET-like {at_once}");
        let facts = vec![match copies {
            1 => format!("{} at once.", different(traces)),
            _ => format!(
                "{} at once, each in {}.",
                different(traces),
                copies_of(copies as u32)
            ),
        }];
        let mut run = run::describe(&title, facts, &measured);
        run.ram_bytes = Some(ram.bytes);
        let throughput = throughput(&findings.arms, &figure, measured.cpus);
        let title_of_block = format!("{title}  (see disclaimer)");
        let rows = sdet_block::rows(&throughput);
        findings
            .blocks
            .push(sdet_block::block(&title_of_block, &rows));
        run.figures = vec![figure];
        findings.runs.push(run);
        if measured.interrupted {
            findings.interrupted = true;
            break;
        }
    }
    findings.notes = vec![
        DISCLAIMER.to_owned(),
        "Results are shown as percentages of the first design. Throughput is scripts an hour of \
         CPU time in the core; the standard deviation is that of the passes, as a percentage of \
         their mean."
            .to_owned(),
        run::NOT_MODELLED.to_owned(),
    ];
    Ok(findings)
}

/// Scripts an hour in each pass of each design, without the control.
fn throughput(arms: &[Arm], figure: &Figure, cpus: usize) -> Vec<(String, Vec<f64>)> {
    let control = arms.len() - 1;
    let throughput = |ns_each: f64| 3600e9 * cpus as f64 / ns_each;
    arms[..control]
        .iter()
        .zip(&figure.arms)
        .map(|(arm, figure)| {
            let runs = figure.passes.iter().map(|ns| throughput(*ns)).collect();
            (label(arm), runs)
        })
        .collect()
}

/// What fits into the 25 columns of a label.
fn label(arm: &Arm) -> String {
    let full = format!("{} {}", arm.label, arm.given);
    match full.chars().count() {
        0..=25 => full,
        _ => arm.label.clone(),
    }
}

fn different(traces: u64) -> String {
    vellum_terminal::text::plural(traces as usize, "trace", "different traces")
}

pub(super) fn copies_of(copies: u32) -> String {
    vellum_terminal::text::plural(copies as usize, "copy", "copies")
}

/// Traces that run at once, ready to be measured.
pub(super) struct Load {
    traces: Vec<TraceReader>,
    workload: Workload,
}

impl Load {
    pub(super) fn of(paths: &[PathBuf], copies: u32, request: &Request) -> Result<Self, Failure> {
        let options = Options {
            streams: Streams::ByCpu(request.cpus),
            copies,
            seed: request.method.seed,
            ..Options::default()
        };
        let (traces, workload) = designs::load(paths, &request.designs, options, request.style)?;
        Ok(Self { traces, workload })
    }

    /// Measures it; `None` if the user stopped it and there are results to print.
    pub(super) fn take(
        &self,
        findings: &mut Findings,
        request: &Request,
        interrupt: &Interrupt,
    ) -> Result<Option<(Measurement, Ram)>, Failure> {
        let workload = &self.workload;
        let ram = Ram::of(request, workload.ram_bytes());
        let place = |cpu, index, shortage| {
            let all: Vec<&TraceReader> = self.traces.iter().collect();
            let starved = Starved::at(workload, cpu, index, shortage);
            match Together::of(&all) {
                Ok(together) => starved.place(workload, together.events()),
                Err(_) => starved.place(workload, std::iter::empty()),
            }
        };
        match run::take(workload, REPLAYED, ram, request, interrupt, place) {
            Ok(measured) => {
                findings.arms = arms_of(&request.designs, &measured.designs);
                Ok(Some((measured, ram)))
            }
            Err(failure) if failure.code() == Failure::INTERRUPTED && !findings.runs.is_empty() => {
                findings.interrupted = true;
                Ok(None)
            }
            Err(failure) => Err(failure),
        }
    }
}

/// The figure of everything measured.
pub(super) fn figure(
    name: &str,
    per: &str,
    units: f64,
    request: &Request,
    measured: &Measurement,
    times: fn(&crate::compare::Pass) -> &Vec<Vec<u64>>,
) -> Figure {
    let passes = &measured.passes;
    let of_arm = |arm: usize| passes.iter().map(|pass| times(pass)[arm].clone()).collect();
    let input = Input {
        name,
        per,
        units,
        clock: "thread CPU time",
        times: (0..measured.designs.len()).map(of_arm).collect(),
        spread_units: None,
    };
    figure_of(&input, &request.method)
}
