//! `loopdd`: `dd` from `/dev/zero` to one file of a tenth of memory, over and over.
//!
//! mmtests' configuration `global-dhp__dd-tmpfs` of 2014. The file is not deleted
//! between iterations: opening it truncates it. So an iteration is a truncation of
//! what the one before wrote, which is before `dd` starts its clock, and writes in
//! blocks of 1 MiB, each of which is read from `/dev/zero` first.

use vellum_engine::{Call, FileSlot, Op};

use super::run::{self, Machine, Part, Ram};
use super::script::{Phase, SETUP, Script, Timing, Writer};
use crate::bench::Variant;
use crate::bench::findings::Findings;
use crate::bench::loopdd::{Iteration, blocks_of, middle};
use crate::bench::request::Request;
use crate::compare::Measurement;
use crate::failure::Failure;
use vellum_terminal::progress::Interrupt;

const MIB: u64 = 1 << 20;

const FILE: FileSlot = FileSlot(0);

/// The phases that are part of an iteration.
#[derive(Clone, Copy)]
struct Phases {
    truncate: Phase,
    dd: Phase,
}

/// Runs every variant wanted.
pub fn run(request: &Request, interrupt: &Interrupt) -> Result<Findings, Failure> {
    let ram = Ram::of(request, request.benchmark.ram_bytes);
    let mebibytes = match request.sizes.get("mebibytes") {
        0 => (ram.bytes / MIB / 10).max(1),
        given => given,
    };
    let iterations = request.sizes.get("iterations");
    let mut findings = Findings::default();
    for variant in &request.variants {
        let (script, phases) = script(variant, mebibytes, iterations);
        let title = format!("{}: {}", variant.name, variant.summary);
        let facts = vec![format!(
            "{iterations} iterations of {mebibytes} MiB in blocks of 1 MiB; the file is \
             truncated by opening it again."
        )];
        let part = Part::new(&title, facts, &script)
            .on(Machine::PREFAULTED)
            .needing(ram.bytes);
        let ends = run::add_part(&mut findings, part, request, interrupt, |run, measured| {
            let arms = (0..measured.designs.len()).map(|arm| each(measured, arm, phases));
            let arms: Vec<Vec<Iteration>> = arms.collect();
            run.blocks = blocks_of(&arms, mebibytes);
        })?;
        if ends {
            break;
        }
    }
    findings.notes = vec![
        "The rows of mmtests have one sample for each iteration, the median over the passes. \
         Elapsed time includes the truncation, and no start and end of a process. The first \
         iteration truncates nothing."
            .to_owned(),
        "A file in memory has nothing to be synced: the variants differ in a call that finds \
         that out."
            .to_owned(),
        run::NOT_MODELLED.to_owned(),
    ];
    Ok(findings)
}

fn script(variant: &Variant, mebibytes: u64, iterations: u64) -> (Script, Phases) {
    let mut writer = Writer::new(1);
    let truncate = writer.phase("truncate", "MiB", Timing::Slices);
    let dd = writer.phase("dd", "MiB", Timing::Slices);
    writer.op(Op::Call(Call::NewFile { file: FILE }));
    writer.cut(SETUP);
    for _ in 0..iterations {
        writer.op(Op::Call(Call::SetSize {
            file: FILE,
            bytes: 0,
        }));
        writer.piece(truncate, mebibytes);
        for block in 0..mebibytes {
            writer.op(Op::Call(Call::WriteZeroes {
                file: FILE,
                at: block * MIB,
                block: MIB,
                bytes: MIB,
            }));
            if block + 1 == mebibytes && variant.name == "fsync" {
                writer.op(Op::Call(Call::Sync { file: FILE }));
            }
            writer.piece(dd, 1);
        }
        if variant.name == "sync" {
            writer.op(Op::Call(Call::Sync { file: FILE }));
            writer.cut(SETUP);
        }
    }
    (writer.finish(), Phases { truncate, dd })
}

/// What each iteration took under one arm, the median over the passes.
fn each(measured: &Measurement, arm: usize, phases: Phases) -> Vec<Iteration> {
    let passes = measured.passes.iter().map(|pass| {
        let mut iterations: Vec<Iteration> = Vec::new();
        for (&ns, &phase) in pass.cpu_ns[arm].iter().zip(&measured.phases) {
            let seconds = ns.saturating_sub(measured.clock_ns) as f64 / 1e9;
            // A truncation begins an iteration. It is one operation, and one slice.
            if phase == phases.truncate.0 {
                iterations.push(Iteration::default());
            }
            if let Some(iteration) = iterations.last_mut() {
                if phase == phases.truncate.0 || phase == phases.dd.0 {
                    iteration.elapsed += seconds;
                }
                if phase == phases.dd.0 {
                    iteration.dd += seconds;
                }
            }
        }
        iterations
    });
    let passes: Vec<Vec<Iteration>> = passes.collect();
    middle(&passes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::{Load, Pass};

    #[test]
    fn iterations_are_put_together_from_their_slices() {
        let plain = Variant {
            name: "plain",
            summary: "",
        };
        let (script, phases) = script(&plain, 3, 2);
        let slices = script.slices(1);
        let numbers: Vec<u16> = slices.iter().map(|slice| script.phase(slice)).collect();
        let ns = |phase: &u16| match *phase {
            phase if phase == phases.dd.0 => 1_000_000_000,
            phase if phase == phases.truncate.0 => 500_000_000,
            _ => 77,
        };
        let pass = Pass {
            cpu_ns: vec![numbers.iter().map(ns).collect()],
            ..Pass::default()
        };
        let measured = Measurement {
            designs: vec!["x".to_owned()],
            phases: numbers,
            passes: vec![pass],
            ..Measurement::default()
        };
        let iteration = Iteration {
            dd: 3.0,
            elapsed: 3.5,
        };
        assert_eq!(each(&measured, 0, phases), [iteration; 2]);
    }
}
