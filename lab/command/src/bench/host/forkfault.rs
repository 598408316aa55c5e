//! The program as a benchmark: its variants, and what they take.

use super::{Host, Interleaved, WALL};
use crate::bench::{Figure, Request, Run, Variant};
use crate::host::forkfault::{Helper, Iteration, Kind, Placement, Program, TrapCost, table_span};
use crate::host::{HostError, cpus};

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

/// Runs the program in every variant asked for. An interruption keeps complete passes.
///
/// # Errors
/// A variant does not exist on a host, the program failed, or the user interrupted.
pub fn measure(host: &mut Host<'_>) -> Result<(), HostError> {
    let (request, interrupt) = (host.request, host.interrupt);
    host.findings.notes.push(
        "Times contain the trap into the kernel and back, which the core's do not: take the cost \
         of a fault that is answered at once off before setting them side by side."
            .to_owned(),
    );
    let helper = Helper::this()?;
    let programs = request.variants.iter();
    let programs: Vec<_> = programs
        .map(|variant| Ok((*variant, program(variant.name, request)?)))
        .collect::<Result<_, HostError>>()?;
    let trap = helper.trap_cost(interrupt)?;
    let steps = programs.len() * 2 * request.passes;
    let mut progress = host.progress("forkfault", steps, "runs");
    for (variant, program) in programs {
        if program.placement == Placement::Cross && cpus() < 2 {
            let note = format!(
                "{} is left out: it needs two CPUs, and there is one.",
                variant.name
            );
            host.findings.notes.push(note);
            continue;
        }
        let runs = host.collect(|| {
            let run = helper.run(&program, interrupt)?;
            progress.advance(1);
            Ok(run)
        })?;
        let run = of_program(host, variant, &program, &trap, &runs);
        host.keep(&runs, run)?;
    }
    progress.finish();
    Ok(())
}

/// One quantity of the program: name, what one unit is, units of each child.
type Quantity = (&'static str, &'static str, f64, fn(&Iteration) -> u64);

fn of_program(
    host: &Host<'_>,
    variant: &Variant,
    program: &Program,
    trap: &TrapCost,
    runs: &Interleaved<Vec<Iteration>>,
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
        let name = match cold {
            true => format!("{name}, first child of a pass"),
            false => name.to_owned(),
        };
        let of = (&*name, per, units * children.len() as f64);
        host.figure_of(of, WALL, runs, Some(units), |run| {
            run[children.clone()].iter().map(value).collect()
        })
    };
    let mut figures: Vec<Figure> = quantities.iter().map(|one| of(*one, false)).collect();
    figures.push(of(quantities[0], true));
    Run {
        title: format!("{}: {}", variant.name, variant.summary),
        facts: facts(program, trap),
        figures,
        ..Run::default()
    }
}

fn facts(program: &Program, trap: &TrapCost) -> Vec<String> {
    let span = table_span() >> 20;
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
