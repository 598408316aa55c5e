//! `vellum replay --on sim --verify`: the core verified on many simulated CPUs.

use std::fmt::Write;
use std::sync::{Mutex, PoisonError};

use vellum_description::Description;
use vellum_engine::Config;
use vellum_scale::{ScaleError, Verifiable};
use vellum_terminal::jobs::run_all;
use vellum_terminal::progress::{Interrupt, Progress, Style};
use vellum_terminal::table::{Table, grouped};
use vellum_terminal::text::plural;
use vellum_trace::TraceReader;

use super::super::refuse;
use super::super::results::Results;
use super::super::simulated::machine_with;
use super::super::{Failure, OrFail};
use super::{ReplayArgs, load};
use crate::replay::{Workload, ram};
use crate::verify::simulated::verify;
use vellum_results::replay::{Refuted, Verification, VerifiedInTime};

/// Memory of a node is a multiple of this.
const RAM_UNIT: u64 = 1 << 20;

/// What the runs have in common.
struct Session<'s> {
    workload: &'s Workload,
    machine: &'s Description,
    config: Config,
    interrupt: &'s Interrupt,
    progress: Mutex<Progress>,
}

/// Verifies the trace with each seed, and prints.
pub(super) fn run(mut args: ReplayArgs) -> Result<(), Failure> {
    let others = [
        (args.profile, "--profile"),
        (args.profile_out.is_some(), "--profile-out"),
        (args.device.is_some(), "--device"),
    ];
    refuse(
        &others,
        "is about time, of which a verification knows nothing: leave it out with --verify",
    )?;
    args.output
        .refuse_all_but_json("shows figures, of which a verification has none: use --json")?;
    let cpus = usize::from(args.cpus);
    let jobs = args.sim.jobs();
    let (name, seeds, _) = std::mem::take(&mut args.sim).values();
    let machine = machine_with(&name, &[cpus])?;
    let nodes = vellum_scale::hosted::nodes_of(&machine, cpus)
        .map_err(|error| Failure::usage(error.to_string()))?;
    let interrupt = Interrupt::on_ctrl_c().doing(|| "catching Ctrl-C")?;
    let mut results = Results::open(&args.output)?;
    results.read_from(std::slice::from_ref(&args.trace))?;
    let trace = TraceReader::open(&args.trace).blame_input()?;
    let style = Style::detect(args.quiet);
    let workload = load(&args, &trace, style)?;
    let ram = ram::choose(args.ram, workload.ram_bytes(), jobs);
    let config = Config {
        design: args.design.clone(),
        cpus,
        nodes,
        ram_bytes: ram.next_multiple_of(RAM_UNIT * nodes as u64),
        low_bytes: args.lowmem,
        device: None,
        compressed: args.compressed,
        group_bytes: args.group_limit,
    };
    let total = workload.ops().saturating_mul(u64::from(seeds));
    let session = Session {
        workload: &workload,
        machine: &machine,
        config,
        interrupt: &interrupt,
        progress: Mutex::new(Progress::new(style, "verifying", total, "operations")),
    };
    let seeds: Vec<u64> = (0..u64::from(seeds)).map(|n| args.seed + n).collect();
    let count = seeds.len();
    let mut runs = Vec::new();
    let ended = run_all(
        seeds,
        jobs,
        &interrupt,
        |&seed| session.run(seed),
        |_, run| {
            runs.extend(run);
            Ok(())
        },
    );
    let refuted = match ended {
        Ok(()) => None,
        Err(Stop::Refuted(refuted)) => Some(refuted),
        Err(Stop::Failed(failure)) => return Err(failure),
    };
    runs.sort_by_key(|run| run.seed);
    let report = Verification {
        trace: args.trace.display().to_string(),
        design: args.design.clone(),
        machine: name,
        title: machine.title.clone(),
        cpus,
        nodes,
        copies: args.copies,
        ram_bytes: session.config.ram_bytes,
        runs,
        refuted,
        interrupted: interrupt.requested(),
    };
    results.print(|_| text(&report), &report)?;
    if let Some(Refuted { seed, what }) = report.refuted {
        return Err(Failure::refuted(format!("seed {seed}: {what}")));
    }
    match report.interrupted {
        true => Err(Failure::interrupted(format!(
            "interrupted after {} of {count} seeds",
            report.runs.len(),
        ))),
        false => Ok(()),
    }
}

/// Why nothing more is verified.
enum Stop {
    Refuted(Refuted),
    Failed(Failure),
}

impl Session<'_> {
    /// Verifies with a seed; nothing comes of it if the user interrupts.
    fn run(&self, seed: u64) -> Result<Option<VerifiedInTime>, Stop> {
        let simulated = Verifiable::new(self.machine, &self.config).map_err(|error| {
            Stop::Failed(match error {
                ScaleError::Design(text) => Failure::usage(text),
                error => Failure::failed(error.to_string()),
            })
        })?;
        let engine = simulated.engine();
        let verified = verify(self.workload, engine, &simulated, seed, |done| {
            let progress = self.progress.lock();
            progress
                .unwrap_or_else(PoisonError::into_inner)
                .advance(done);
            !self.interrupt.requested()
        });
        verified.map_err(|refutation| {
            Stop::Refuted(Refuted {
                seed,
                what: refutation.to_string(),
            })
        })
    }
}

/// For a terminal.
fn text(found: &Verification) -> String {
    let mut text = format!(
        "{} verified on {} of {}: {}\n",
        found.trace,
        plural(found.cpus, "CPU", "CPUs"),
        found.machine,
        found.title,
    );
    if !found.design.is_empty() {
        let _ = writeln!(text, "design {}", found.design);
    }
    if found.copies > 1 {
        let _ = writeln!(text, "{} copies", found.copies);
    }
    if found.runs.is_empty() {
        return text;
    }
    let mut table = Table::new(&[
        "seed",
        "operations",
        "pages written",
        "read back",
        "after an access",
        "in the store",
        "refused",
        "raced",
        "virtual ms",
    ]);
    for run in &found.runs {
        let verified = &run.verified;
        table.row(vec![
            run.seed.to_string(),
            grouped(verified.ops),
            grouped(verified.written),
            grouped(verified.read_back),
            grouped(verified.after_access),
            grouped(verified.stored),
            grouped(verified.refused),
            grouped(verified.raced),
            format!("{:.3}", run.virtual_ns as f64 / 1e6),
        ]);
    }
    let _ = write!(text, "\n{}", table.render(0));
    if found.refuted.is_none() && !found.interrupted {
        text += "every page held what it must, and every invariant of the core holds\n";
    }
    text
}
