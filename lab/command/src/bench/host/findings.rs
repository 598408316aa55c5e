//! What the workloads of the host hand to `vellum bench`.

use super::forkfault::{Helper, Iteration, Kind, Placement, Program, TrapCost};
use super::interleave::Interleaved;
use super::tree;
use super::{
    HostError, ONE_KERNEL, buildkernel, cpus, files, forkfault, kernbench, kernel_release, sdet,
};
use crate::bench::buildkernel::jobs;
use crate::bench::findings::{arms_of, figure_of};
use crate::bench::{Arm, Figure, Findings, Input, Request, Run, Variant};
use crate::failure::Failure;
use crate::report::{self, buildkernel::Builds};
use vellum_terminal::progress::{Interrupt, Progress};

/// Clock of everything that is timed from outside.
const WALL: &str = "monotonic clock";

/// How the kernel accounts for processes.
const RUSAGE: &str = "CPU time of all processes (wait4)";

/// Runs the benchmark of `request` on the host's kernel. An interruption keeps
/// what is complete.
///
/// # Errors
/// The benchmark does not exist on a host, its arguments or programs are
/// missing, it failed, or it was interrupted before anything was complete.
pub fn run(request: &Request, interrupt: &Interrupt) -> Result<Findings, Failure> {
    let kernel = kernel_release();
    let mut findings = Findings {
        arms: arms_of(std::slice::from_ref(&kernel), &[]),
        ..Findings::default()
    };
    findings.notes.push(ONE_KERNEL.to_owned());
    let done = match request.benchmark.name {
        "kernbench" => kernbench(request, interrupt, &mut findings),
        "buildkernel" => buildkernel(request, interrupt, &mut findings),
        "sdet" => sdet(request, interrupt, &mut findings),
        "forkfault" => forkfault(request, interrupt, &mut findings),
        "loopdd" => files::of_loopdd(request, interrupt, &mut findings),
        "lat_mmap" => files::of_lat_mmap(request, interrupt, &mut findings),
        name => Err(HostError::Unsupported(format!(
            "{name} exists on the core only; leave out --on linux"
        ))),
    };
    match done {
        Ok(()) => Ok(findings),
        Err(HostError::Interrupted) if !findings.runs.is_empty() => {
            findings.interrupted = true;
            Ok(findings)
        }
        Err(error) => Err(error.into_failure()),
    }
}

/// A figure of one value for each arm and pass.
fn figure<T>(
    (name, per, units): (&str, &str, f64),
    clock: &'static str,
    runs: &Interleaved<T>,
    seconds: impl Fn(&T) -> f64,
    request: &Request,
) -> Figure {
    let input = Input {
        name,
        per,
        units,
        clock,
        times: runs.nanoseconds(seconds),
        spread_units: None,
    };
    figure_of(&input, &request.method)
}

fn kernbench(
    request: &Request,
    interrupt: &Interrupt,
    findings: &mut Findings,
) -> Result<(), HostError> {
    let tree = request.tree.clone().ok_or_else(|| {
        HostError::Unsupported(
            "kernbench on linux builds a kernel: give a configured tree with --tree PATH"
                .to_owned(),
        )
    })?;
    let names = ["light", "heavy", "unlimited"];
    let wanted = names.iter().zip(kernbench::Load::PUBLISHED);
    let loads = wanted.filter(|(name, _)| request.sizes.get(name) > 0);
    let options = kernbench::Options {
        tree,
        target: request
            .target
            .clone()
            .unwrap_or_else(|| "vmlinux".to_owned()),
        loads: loads.map(|(_, load)| load).collect(),
        passes: request.passes,
        seed: request.method.seed,
        style: request.style,
    };
    let result = kernbench::run(&options, interrupt)?;
    for built in &result.loads {
        let title = built.load.title(&options.target);
        let rows: Vec<_> = (findings.arms.iter().enumerate())
            .map(|(arm, named)| built.row(&row_label(named), arm))
            .collect();
        findings
            .blocks
            .push(report::kernbench::block(&title, &rows));
        let of = |name, clock, seconds: fn(&tree::Build) -> f64| {
            figure((name, "build", 1.0), clock, &built.builds, seconds, request)
        };
        findings.runs.push(Run {
            title,
            passes: built.builds.passes(),
            facts: vec![format!(
                "each build follows `make clean`; {} CPUs; averages over the passes below",
                cpus()
            )],
            figures: vec![
                of("elapsed", WALL, |build| build.elapsed_s),
                of("system", RUSAGE, |build| build.usage.system_s),
                of("user", RUSAGE, |build| build.usage.user_s),
            ],
            kernbench: rows,
            ..Run::default()
        });
    }
    findings.interrupted = result.interrupted;
    Ok(())
}

fn buildkernel(
    request: &Request,
    interrupt: &Interrupt,
    findings: &mut Findings,
) -> Result<(), HostError> {
    let tree = request.tree.clone().ok_or_else(|| {
        HostError::Unsupported(
            "buildkernel on linux builds a kernel: give a tree with --tree PATH".to_owned(),
        )
    })?;
    let configuration = request.configuration.as_deref().unwrap_or("defconfig");
    let options = buildkernel::Options {
        tree,
        configuration: tree::Configuration::named(configuration)?,
        target: request.target.clone(),
        jobs: jobs(request.sizes.get("jobs"), cpus()),
        passes: request.passes,
        seed: request.method.seed,
        style: request.style,
    };
    let outcome = buildkernel::run(&options, interrupt)?;
    let target = options.target.iter().map(|target| format!(" {target}"));
    let title = format!("make -s -j {}{}", options.jobs, target.collect::<String>());
    let builds = findings.arms.iter().zip(&outcome.builds.arms);
    let builds = builds.map(|(arm, builds)| Builds {
        name: row_label(arm),
        runs: builds
            .iter()
            .map(|build| [build.elapsed_s, build.usage.user_s, build.usage.system_s])
            .collect(),
    });
    let builds: Vec<Builds> = builds.collect();
    findings
        .blocks
        .push(report::buildkernel::block(&title, &builds));
    let of = |name, clock, seconds: fn(&tree::Build) -> f64| {
        figure(
            (name, "build", 1.0),
            clock,
            &outcome.builds,
            seconds,
            request,
        )
    };
    findings.runs.push(Run {
        title,
        passes: outcome.builds.passes(),
        facts: vec![format!(
            "configured by {configuration}; objects on {}; each build follows `make clean`; {} \
             CPUs",
            outcome.place,
            cpus()
        )],
        figures: vec![
            of("real", WALL, |build| build.elapsed_s),
            of("user", RUSAGE, |build| build.usage.user_s),
            of("sys", RUSAGE, |build| build.usage.system_s),
        ],
        ..Run::default()
    });
    findings.interrupted = outcome.builds.interrupted;
    Ok(())
}

/// The label of an arm in a historic table: the kernel, marked if it is the
/// control.
fn row_label(arm: &Arm) -> String {
    match arm.label.ends_with('\'') {
        true => format!("{} again", arm.given),
        false => arm.given.clone(),
    }
}

fn sdet(
    request: &Request,
    interrupt: &Interrupt,
    findings: &mut Findings,
) -> Result<(), HostError> {
    let most = request.sizes.get("most") as usize;
    let options = sdet::Options {
        scripts: std::iter::successors(Some(1), |n| Some(2 * n))
            .take_while(|n| *n <= most)
            .collect(),
        passes: request.passes,
        seed: request.method.seed,
        directory: std::env::temp_dir(),
        style: request.style,
    };
    let result = sdet::run(&options, interrupt)?;
    for load in &result.loads {
        let n = load.scripts;
        let throughputs: Vec<(String, Vec<f64>)> = (findings.arms.iter().zip(&load.runs.arms))
            .map(|(arm, runs)| {
                let throughputs = runs.iter().map(|run| run.throughput(n));
                (row_label(arm), throughputs.collect())
            })
            .collect();
        let title = format!("SDET-like {n}  (see disclaimer)");
        let rows = report::sdet::rows(&throughputs);
        findings.blocks.push(report::sdet::block(&title, &rows));
        let mean = throughputs[0].1.iter().sum::<f64>() / throughputs[0].1.len().max(1) as f64;
        let of = |name, clock, seconds: fn(&sdet::Run) -> f64| {
            figure(
                (name, "script", n as f64),
                clock,
                &load.runs,
                seconds,
                request,
            )
        };
        findings.runs.push(Run {
            title: match n {
                1 => "1 script".to_owned(),
                n => format!("{n} scripts at once"),
            },
            passes: load.runs.passes(),
            facts: vec![format!("{mean:.0} scripts an hour")],
            figures: vec![
                of("elapsed", WALL, |run| run.elapsed_s),
                of("system", RUSAGE, |run| run.usage.system_s),
                of("user", RUSAGE, |run| run.usage.user_s),
            ],
            ..Run::default()
        });
    }
    findings.notes.push(sdet::DISCLAIMER.replace('\n', " "));
    findings.interrupted = result.interrupted;
    Ok(())
}

/// The program that a variant of the benchmark stands for.
fn program(variant: &str, request: &Request) -> Result<Program, HostError> {
    let (kind, placement) = match variant {
        "read" => (Kind::Read, Placement::Same),
        "write" => (Kind::Write, Placement::Same),
        "cross" => (Kind::Read, Placement::Cross),
        "fork-exit" => (Kind::Exit, Placement::Same),
        "fork-exec" => (Kind::Exec, Placement::Same),
        other => {
            return Err(HostError::Unsupported(format!(
                "the variant {other} exists on the core only: a host's caches cannot be emptied \
                 and its nodes are what they are; there are read, write, cross, fork-exit, fork-exec"
            )));
        }
    };
    let size = |name: &str, least: u64| request.sizes.get(name).clamp(least, 1 << 20) as u32;
    Ok(Program {
        kind,
        placement,
        // One child is cold; figures are of the others.
        loops: size("forks", 2),
        faults: size("faults", 1).min(4096),
    })
}

fn forkfault(
    request: &Request,
    interrupt: &Interrupt,
    findings: &mut Findings,
) -> Result<(), HostError> {
    let helper = Helper::this()?;
    let programs = request.variants.iter();
    let programs: Vec<_> = programs
        .map(|variant| Ok((*variant, program(variant.name, request)?)))
        .collect::<Result<_, HostError>>()?;
    let trap = helper.trap_cost(interrupt)?;
    let steps = programs.len() * 2 * request.passes;
    let mut progress = Progress::new(request.style, "forkfault", steps as u64, "runs");
    for (variant, program) in programs {
        if program.placement == Placement::Cross && cpus() < 2 {
            let note = format!(
                "{} is left out: it needs two CPUs, and there is one.",
                variant.name
            );
            findings.notes.push(note);
            continue;
        }
        let runs = Interleaved::collect(request.passes, request.method.seed, |_| {
            let run = helper.run(&program, interrupt)?;
            progress.advance(1);
            Ok(run)
        })?;
        let interrupted = runs.interrupted;
        findings
            .runs
            .push(of_program(variant, &program, &trap, &runs, request));
        if interrupted {
            return Err(HostError::Interrupted);
        }
    }
    progress.finish();
    findings.notes.push(
        "Times contain the trap into the kernel and back, which the core's do not: take the cost \
         of a fault that is answered at once off before setting them side by side."
            .to_owned(),
    );
    Ok(())
}

/// One quantity of the program: name, what one unit is, units of each child.
type Quantity = (&'static str, &'static str, f64, fn(&Iteration) -> u64);

fn of_program(
    variant: &Variant,
    program: &Program,
    trap: &TrapCost,
    runs: &Interleaved<Vec<Iteration>>,
    request: &Request,
) -> Run {
    let faults = f64::from(program.faults);
    let fork: Quantity = ("fork", "fork", 1.0, |child| child.fork);
    let quantities: Vec<Quantity> = match program.kind {
        Kind::Exit => vec![
            ("fork and exit", "process", 1.0, |child| child.whole),
            fork,
            ("exit", "exit", 1.0, |child| child.exit),
        ],
        Kind::Exec => vec![("fork and exec", "process", 1.0, |child| child.whole), fork],
        _ => vec![
            ("fault", "fault", faults, |child| child.faults),
            fork,
            ("exit", "exit", 1.0, |child| child.exit),
        ],
    };
    let of = |(name, per, units, value): Quantity, cold: bool| {
        let children = match cold {
            true => 0..1,
            false => 1..program.loops as usize,
        };
        let times = |arm: &Vec<Vec<Iteration>>| {
            let pass = |run: &Vec<Iteration>| run[children.clone()].iter().map(value).collect();
            arm.iter().map(pass).collect()
        };
        let name = match cold {
            true => format!("{name}, first child of a pass"),
            false => name.to_owned(),
        };
        let input = Input {
            name: &name,
            per,
            units: units * children.len() as f64,
            clock: WALL,
            times: runs.arms.iter().map(times).collect(),
            spread_units: Some(units),
        };
        figure_of(&input, &request.method)
    };
    let mut figures: Vec<Figure> = quantities.iter().map(|one| of(*one, false)).collect();
    figures.push(of(quantities[0], true));
    Run {
        title: format!("{}: {}", variant.name, variant.summary),
        passes: runs.passes(),
        facts: facts(program, trap),
        figures,
        ..Run::default()
    }
}

fn facts(program: &Program, trap: &TrapCost) -> Vec<String> {
    let span = forkfault::table_span() >> 20;
    let mut facts = Vec::new();
    if matches!(program.kind, Kind::Read | Kind::Write) {
        facts.push(format!(
            "{} children of {} faults each, {span} MiB apart: one page table for each fault; huge \
             pages are off; the first child is apart",
            program.loops, program.faults
        ));
    }
    facts.push(match trap.fault_ns {
        Some(fault) => format!(
            "entering the kernel and returning: {:.0} ns for getppid, {fault:.0} ns for a page \
             fault that is answered at once (a call into the vsyscall page)",
            trap.syscall_ns
        ),
        None => format!(
            "entering the kernel and returning: {:.0} ns for getppid",
            trap.syscall_ns
        ),
    });
    facts.push(format!(
        "a read fault of the same kind whose table is there: {:.0} ns",
        trap.table_there_ns
    ));
    facts
}
