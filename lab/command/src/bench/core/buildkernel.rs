//! `buildkernel`: a kernel build whose objects are on a tmpfs, recorded, with copies in place
//! of jobs, and its times as FreeBSD's `time` prints them.

use super::run as runner;
use super::traces::{self, Load};
use crate::bench::findings::Findings;
use crate::bench::request::Request;
use crate::bench::{Figure, buildkernel};
use crate::failure::Failure;
use crate::report::buildkernel::{Builds, block};
use vellum_terminal::progress::Interrupt;

/// Replays the build under every design.
pub fn run(request: &Request, interrupt: &Interrupt) -> Result<Findings, Failure> {
    let part = buildkernel::Part::of(
        &request.traces,
        request.sizes.get("milliseconds"),
        request.style,
        interrupt,
    )?;
    let jobs = buildkernel::jobs(request.sizes.get("jobs"), request.cpus);
    let copies = part.copies(jobs);
    let mut findings = Findings::default();
    let load = Load::of(std::slice::from_ref(part.path()), copies, request)?;
    let Some((measured, ram)) = load.take(&mut findings, request, interrupt)? else {
        return Ok(findings);
    };
    let title = format!("make -s -j {jobs} (replay, {})", traces::copies_of(copies));
    let facts = vec![part.describe(copies)];
    let mut described = runner::describe(&title, facts, &measured);
    described.ram_bytes = Some(ram.bytes);
    let figure = |name: &str, times: fn(&crate::compare::Pass) -> &Vec<Vec<u64>>| {
        let units = f64::from(copies);
        traces::figure(name, "copy", units, request, &measured, times)
    };
    let sys = figure("sys", |pass| &pass.cpu_ns);
    let real = figure("real", |pass| &pass.wall_ns);
    findings.interrupted = measured.interrupted;
    let designs = findings.arms.len() - 1;
    let builds = findings.arms[..designs]
        .iter()
        .enumerate()
        .map(|(arm, named)| {
            let seconds = |figure: &Figure| -> Vec<f64> {
                let passes = figure.arms[arm].passes.iter();
                passes.map(|ns| ns * figure.units / 1e9).collect()
            };
            let runs = seconds(&real).into_iter().zip(seconds(&sys));
            Builds {
                name: format!("{} {}", named.label, named.given),
                runs: runs.map(|(real, sys)| [real, 0.0, sys]).collect(),
            }
        });
    findings
        .blocks
        .push(block(&title, &builds.collect::<Vec<_>>()));
    described.figures = vec![sys, real];
    findings.runs.push(described);
    findings.notes = vec![
        "real: seconds of wall clock in which the slices ran, all copies together. sys: seconds of \
         CPU time in the core. user: 0, because no user code is replayed."
            .to_owned(),
        runner::NOT_MODELLED.to_owned(),
    ];
    Ok(findings)
}
