//! `forkfault`: fork, strided faults in the child, exit.
//!
//! The program is Robin Holt's of August 2004 (linux-kernel, "per-cpu quicklists
//! of page-table pages"): a parent maps private anonymous memory for reading
//! and forks 128 children; each reads one byte in each of 32 places so far apart
//! that every one needs a page table of its own. What the fault maps is the
//! shared zero page, so the time is that of the fault and of one page table.
//! The variants ask what the published figure leaves open.

use vellum_engine::{Access, Op, SpaceSlot, pages_of};

use super::ops::{populate, private};
use super::run::{self, Machine, Part};
use super::script::{Phase, SETUP, Script, Slots, Timing, Writer};
use crate::bench::Variant;
use crate::bench::findings::Findings;
use crate::bench::request::Request;
use crate::failure::Failure;
use vellum_terminal::progress::Interrupt;

/// First page of the mapping, aligned to the widest table there is.
const START: u64 = 1 << 24;

/// Runs every variant wanted.
pub fn run(request: &Request, interrupt: &Interrupt) -> Result<Findings, Failure> {
    let stride = stride(request)?;
    let mut findings = Findings::default();
    for variant in &request.variants {
        let (cpus, nodes) = match variant.name {
            "cross" => (2, 1),
            "migrate" | "moved" | "after" => (2, 2),
            _ => (1, 1),
        };
        let sizes = &request.sizes;
        let program = Program {
            forks: sizes.get("forks"),
            faults: sizes.get("faults"),
            resident: sizes.get("resident"),
            stride,
        };
        let script = program.script(variant.name, cpus);
        let machine = Machine {
            nodes,
            ..Machine::PLAIN
        };
        let facts = facts(variant, request, stride);
        let ends = run::add(
            &mut findings,
            Part::new(
                &format!("{}: {}", variant.name, variant.summary),
                facts,
                &script,
            )
            .on(machine),
            request,
            interrupt,
        )?;
        if ends {
            break;
        }
    }
    findings.notes = vec![
        "Fork, faults and exit are timed apart, by notes of the time within the run; the cost of a \
         note is taken off. What stands in a mean but not in the median, preemption above all, \
         shows in the spread."
            .to_owned(),
        run::NOT_MODELLED.to_owned(),
    ];
    Ok(findings)
}

fn facts(variant: &Variant, request: &Request, stride: u64) -> Vec<String> {
    let (forks, faults) = (request.sizes.get("forks"), request.sizes.get("faults"));
    match variant.name {
        "fork-exit" | "fork-exec" => vec![format!(
            "{forks} children of a parent with {} pages of its own.",
            request.sizes.get("resident")
        )],
        _ => vec![format!(
            "{forks} children, {faults} faults each, {stride} pages from one to the next."
        )],
    }
}

/// Pages from one fault to the next: as many as one table covers, in the widest
/// of the formats compared, so that every fault needs a table in all of them.
fn stride(request: &Request) -> Result<u64, Failure> {
    let mut widest = 0;
    let mut user_end = u64::MAX;
    for design in &request.designs {
        let pages = pages_of(design).map_err(|error| Failure::usage(error.to_string()))?;
        widest = widest.max(entries(pages.shift));
        user_end = user_end.min(pages.user_end);
    }
    let faults = request.sizes.get("faults");
    let stride = match request.sizes.get("stride") {
        0 => widest,
        given => given,
    };
    let end = stride
        .checked_mul(faults)
        .map(|pages| START.saturating_add(pages));
    match end {
        Some(end) if faults > 0 && end <= user_end => Ok(stride),
        _ => Err(Failure::usage(format!(
            "{faults} faults at a stride of {stride} pages do not fit into the address space; \
             choose other numbers for --size faults and --size stride"
        ))),
    }
}

/// Entries of a table, which is a page of 8-byte entries.
fn entries(page_shift: u32) -> u64 {
    1 << (page_shift - 3)
}

/// The program with its numbers.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// Children, one after the other.
    pub forks: u64,
    /// Faults of each.
    pub faults: u64,
    /// Pages of the parent in `fork-exit` and `fork-exec`.
    pub resident: u64,
    /// Pages from one fault to the next.
    pub stride: u64,
}

impl Program {
    /// The variant of that name for so many CPUs. Where there are two sides, one is the first
    /// CPU and the other the last.
    pub fn script(&self, variant: &str, cpus: usize) -> Script {
        let mut writer = Writer::new(cpus);
        let fork = writer.phase("fork", "fork", Timing::Laps);
        match variant {
            "fork-exit" => self.processes(&mut writer, fork, false),
            "fork-exec" => self.processes(&mut writer, fork, true),
            name => self.faults(&mut writer, fork, name, cpus - 1),
        }
        writer.finish()
    }

    /// The published program, or a variant of it with `other` as its second CPU.
    fn faults(&self, writer: &mut Writer, fork: Phase, variant: &str, other: usize) {
        let Self { forks, faults, .. } = *self;
        let writes = variant == "write";
        let access = if writes { Access::Write } else { Access::Read };
        let fault = writer.phase("fault", "fault", Timing::Laps);
        let exit = writer.phase("exit", "exit", Timing::Laps);
        // Who forks the child, who runs it, and who ends it.
        let (forks_it, runs, ends) = match variant {
            "cross" => (0, other, 0),
            "migrate" => (0, 0, other),
            "moved" => (0, other, other),
            "after" => (other, other, other),
            _ => (0, 0, 0),
        };
        let (parent, child) = (SpaceSlot(0), SpaceSlot(1));
        writer.op(Op::Create { space: parent });
        let mut memory = private(parent, START, self.stride * faults);
        if let Op::Map { prot, .. } = &mut memory {
            prot.write = writes;
        }
        writer.op(memory);
        writer.cut(SETUP);
        for _ in 0..forks {
            if variant == "cold" {
                writer.op(Op::EmptyCaches);
            }
            if variant == "after" {
                // One that leaves its tables there, and is not timed.
                writer.op(Op::Fork { parent, child });
                self.touch(writer, child, access);
                writer.on(other);
                writer.op(Op::Exit { space: child });
            }
            writer.on(forks_it);
            writer.lap();
            writer.op(Op::Fork { parent, child });
            writer.lapped(fork, 1);
            if runs != forks_it {
                writer.on(runs);
                writer.lap();
            }
            self.touch(writer, child, access);
            writer.lapped(fault, faults);
            if ends != runs {
                writer.on(ends);
                writer.lap();
            }
            writer.op(Op::Exit { space: child });
            writer.lapped(exit, 1);
            writer.cut(SETUP);
        }
    }

    fn touch(&self, writer: &mut Writer, space: SpaceSlot, access: Access) {
        for place in 0..self.faults {
            writer.op(Op::Touch {
                space,
                page: START + place * self.stride,
                access,
            });
        }
    }

    /// Processes that begin and end, with or without a program of their own.
    fn processes(&self, writer: &mut Writer, fork: Phase, executes: bool) {
        let resident = self.resident;
        let exec = writer.phase("exec", "exec", Timing::Laps);
        let exit = writer.phase("exit", "exit", Timing::Laps);
        let mut slots = Slots::default();
        let (parent, child, program) = (slots.fresh(), slots.fresh(), slots.fresh());
        writer.op(Op::Create { space: parent });
        if resident > 0 {
            populate(writer, parent, START, resident);
        }
        writer.cut(SETUP);
        for _ in 0..self.forks {
            writer.lap();
            writer.op(Op::Fork { parent, child });
            writer.lapped(fork, 1);
            let last = match executes {
                false => child,
                true => {
                    writer.op(Op::Exec {
                        old: child,
                        new: program,
                    });
                    // Text, data, heap and stack of a small static program.
                    for (part, pages) in [16, 4, 8, 8].into_iter().enumerate() {
                        let start = START + (part as u64) * 4096;
                        populate(writer, program, start, pages);
                    }
                    writer.lapped(exec, 1);
                    program
                }
            };
            writer.op(Op::Exit { space: last });
            writer.lapped(exit, 1);
            writer.cut(SETUP);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_as_many_entries_as_fit_into_a_page() {
        assert_eq!([12, 14, 16].map(entries), [512, 2048, 8192]);
    }
}
