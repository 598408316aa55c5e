//! `pft`: first stores to private memory, by threads of one process or by processes.
//!
//! After Christoph Lameter's page-fault test: every thread or process touches
//! memory of its own, all at once.

use vellum_engine::{Advice, Op, SpaceSlot};

use super::ops::{private, write};
use super::run::{self, Part};
use super::script::{SETUP, Script, Timing, Writer};
use crate::bench::findings::Findings;
use crate::bench::request::Request;
use crate::bench::sweep::cpu_counts;
use crate::failure::Failure;
use vellum_terminal::progress::Interrupt;
use vellum_terminal::text::plural;

/// First page of the first mapping.
const START: u64 = 1 << 20;

/// Pages from one mapping to the next: no two share a table.
const APART: u64 = 1 << 18;

/// Faults in a piece of one CPU.
const PIECE: u64 = 512;

/// Measures every variant wanted, on one CPU and more.
pub fn run(request: &Request, interrupt: &Interrupt) -> Result<Findings, Failure> {
    let (pages, rounds) = (request.sizes.get("pages"), request.sizes.get("rounds"));
    let mut findings = Findings::default();
    'all: for variant in &request.variants {
        for cpus in cpu_counts(request) {
            let threads = variant.name == "threads";
            let script = script(cpus, threads, pages, rounds);
            let title = match threads {
                true => plural(cpus, "thread", "threads"),
                false => plural(cpus, "process", "processes"),
            };
            let facts = vec![format!(
                "{pages} pages each, stored to for the first time, in {}.",
                plural(rounds as usize, "round", "rounds"),
            )];
            if run::add(
                &mut findings,
                Part::new(&title, facts, &script),
                request,
                interrupt,
            )? {
                break 'all;
            }
        }
    }
    findings.notes = vec![run::NOT_MODELLED.to_owned()];
    Ok(findings)
}

fn script(cpus: usize, threads: bool, pages: u64, rounds: u64) -> Script {
    let mut writer = Writer::new(cpus);
    writer.phases_apart();
    let fault = writer.phase("fault", "fault", Timing::Slices);
    let discard = writer.phase("discard", "page", Timing::Slices);
    let space = |cpu: usize| SpaceSlot(if threads { 0 } else { cpu as u32 });
    let start = |cpu: usize| START + cpu as u64 * pages.next_multiple_of(APART);
    for cpu in 0..cpus {
        if cpu == 0 || !threads {
            writer.op(Op::Create { space: space(cpu) });
        }
        writer.op(private(space(cpu), start(cpu), pages));
    }
    writer.cut(SETUP);
    let step = if cpus == 1 { PIECE.min(pages) } else { pages };
    for _ in 0..rounds {
        for first in (0..pages).step_by(step as usize) {
            let count = step.min(pages - first);
            for cpu in 0..cpus {
                writer.beside(cpu);
                for page in first..first + count {
                    writer.op(write(space(cpu), start(cpu) + page));
                }
            }
            writer.beside(0);
            writer.piece(fault, count * cpus as u64);
        }
        for cpu in 0..cpus {
            writer.op(Op::Advise {
                space: space(cpu),
                page: start(cpu),
                pages,
                advice: Advice::DontNeed,
            });
        }
        writer.piece(discard, pages * cpus as u64);
    }
    writer.finish()
}
