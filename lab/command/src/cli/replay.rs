//! `vellum replay`: a trace on one design.

#[cfg(feature = "simulation")]
mod on_sim;
#[cfg(feature = "simulation")]
mod verified;

use std::cell::RefCell;
use std::path::PathBuf;

use clap::Args;
use clap::builder::{PossibleValuesParser, ValueHint};
use vellum_engine::{DeviceModel, Engine, EngineError, has_groups, reclaims};

#[cfg(not(feature = "simulation"))]
use super::absent::on_sim;
use super::outputs::OutputPath;
use super::refuse;
use super::results::{OutputArgs, Results};
use super::simulated::{On, SimArgs};
use super::{Failure, OrFail, host, size};
use crate::compare::{Arenas, Builder};
use crate::designs::{common_pages, fault_around};
use crate::replay::ram::{Memory, Shortage};
use crate::replay::{
    self, MAX_COPIES, Options, Replayed, Streams, Workload, prepare_events, ram, tmpfs_device,
};
use crate::report::{device, replay as report};
use crate::verify::{self, Verification};
use vellum_results::compare::Device;
use vellum_results::replay::Replay;
use vellum_terminal::progress::{Interrupt, Progress, Style};
use vellum_trace::{Event, EventKind, Header, TraceReader};

/// Share of the operations that may diverge without explanation.
const UNEXPLAINED_LIMIT: f64 = 0.01;

const EXAMPLES: &str = "\
Time is CPU time inside the memory manager; trap entry and real interrupts between CPUs are not
part of it. docs/replay.md says what is replayed, in which order, and how it is verified.

Examples:
  vellum replay traces/kernel-build.vellum
  vellum replay traces/kernel-build.vellum --design rmap=partial,faultaround=64
  vellum replay traces/kernel-build.vellum --verify          check every page against a model
  vellum replay traces/kernel-build.vellum --cpus 4 --copies 8
  vellum replay traces/kernel-build.vellum --design reclaim=on --ram 64M --device ssd
  vellum replay traces/snapshot-server.vellum --design ptepage=zeroaware --idle 1000
  vellum replay traces/snapshot-server.vellum --ram 64M --design reclaim=on --compressed 20
  vellum replay traces/kernel-build-tmpfs.vellum --tmpfs /tmp/obj --design huge=always
  vellum replay build.vellum --json - | jq .divergences
  vellum replay build.vellum --on linux                      real processes on this machine's kernel
  vellum replay build.vellum --on linux -n 6 --save 6.18.json
  vellum replay traces/sdet-like.vellum --on sim --cpus 8    elapsed, user and system time of 8 CPUs
  vellum replay build.vellum --on sim --machine xeon-104 --cpus 52 --copies 8 --profile
  vellum replay traces/sdet-like-1.vellum --on sim --cpus 64 --copies 8 --verify

Exit codes: 0 replayed, 1 failed, 2 unusable arguments or trace, 3 the replay diverged from the
recording, or its verification or audit failed, 130 interrupted.";

/// Replay a trace on one design, and check that it goes as it was recorded
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct ReplayArgs {
    /// The trace
    #[arg(value_hint = ValueHint::FilePath)]
    trace: PathBuf,
    /// Where it runs: on the core, on this machine's own kernel (docs/host-kernel.md), or on a
    /// simulated machine (docs/many-cpus.md)
    #[arg(long, value_enum, default_value_t = On::Core)]
    on: On,
    /// With `--on linux`: passes
    #[arg(short = 'n', long, value_name = "PASSES", default_value_t = 1,
          value_parser = clap::value_parser!(u16).range(1..=1000))]
    passes: u16,
    /// With `--on linux`: directory for scratch files [default: /dev/shm]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    scratch: Option<PathBuf>,
    /// With `--on linux`: save the result for `vellum compare --a linux:FILE`
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    save: Option<OutputPath>,
    /// The design (`vellum designs` lists the options)
    #[arg(long, value_name = "DESIGN", default_value = "")]
    design: String,
    /// Simulated CPUs, each a host thread; with `--on sim`, as many as the machine has at most
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u16).range(1..))]
    cpus: u16,
    /// Copies of the recorded process family that run at once
    #[arg(long, value_name = "K", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_COPIES)))]
    copies: u32,
    /// Memory of the simulated machine [default: what the trace and its copies need, as far
    /// as the host has it]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    ram: Option<u64>,
    /// How much of that memory is low memory, which can be addressed directly; the rest is
    /// reached through windows [default: all of it, up to what the format can have]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    lowmem: Option<u64>,
    /// Set so much of that memory aside for a compressed store in front of swap, in percent
    /// (docs/swap.md). What pages hold is assumed, as the trace does not have it
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(1..=90))]
    compressed: Option<u8>,
    /// Put all processes into one group that may have so much memory, of what the machine has
    /// (docs/reclaim.md); needs a design with `reclaim=on,groups=on`
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    group_limit: Option<u64>,
    /// The device that files and swap are on, whose time is modelled and told beside CPU time:
    /// `nvme` (80 us for a read, 20 us for a write, 3 GB/s), `ssd` (120 us, 60 us, 500 MB/s) or
    /// `disk` (12 ms, 12 ms, 150 MB/s)
    #[arg(long, value_name = "DEVICE", value_parser = PossibleValuesParser::new(DeviceModel::NAMES))]
    device: Option<String>,
    /// Keep the files of the tmpfs that DIR was on in memory, as shared memory is
    /// (docs/superpages.md); a trace does not say which file systems were one
    #[arg(long, value_name = "DIR")]
    tmpfs: Option<String>,
    /// Run the idle loop of a simulated CPU where nothing happened on it for this long in the
    /// recording
    #[arg(long, value_name = "MICROSECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    idle: Option<u64>,
    /// Replay once more with the MMU on and check every page against a model; with `--on sim`,
    /// do that on simulated CPUs instead of timing the replay
    #[arg(long)]
    verify: bool,
    /// Check every invariant of the memory manager at the end; with `--on sim` that is always done
    #[arg(long)]
    audit: bool,
    #[command(flatten)]
    output: OutputArgs,
    /// Seed of the shifts between copies; with `--on sim`, the first of the seeds
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// No progress
    #[arg(long, short)]
    quiet: bool,
    #[command(flatten)]
    sim: SimArgs,
    /// Print the cache lines and the locks that cost most
    #[arg(long, help_heading = "With --on sim")]
    profile: bool,
    /// Write folded stacks of where CPUs waited to DIR: a.folded, and a-locks.folded
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath,
          help_heading = "With --on sim")]
    profile_out: Option<PathBuf>,
}

/// Prepares the trace, replays it, verifies it if asked, prints.
pub fn run(args: ReplayArgs) -> Result<(), Failure> {
    match args.on {
        On::Sim => return on_sim::run(args),
        On::Linux | On::Core => args.sim.refuse(&[
            (args.profile, "--profile"),
            (args.profile_out.is_some(), "--profile-out"),
        ])?,
    }
    if args.on == On::Linux {
        return on_linux(args);
    }
    if args.save.is_some() || args.scratch.is_some() || args.passes > 1 {
        let text = "--save, --scratch and --passes belong to --on linux (`vellum compare` makes \
                    several passes on the core)";
        return Err(Failure::usage(text));
    }
    let mut results = Results::open(&args.output)?;
    results.read_from(std::slice::from_ref(&args.trace))?;
    let interrupt = Interrupt::on_ctrl_c().doing(|| "catching Ctrl-C")?;
    let trace = TraceReader::open(&args.trace).blame_input()?;
    let style = Style::detect(args.quiet);
    let workload = load(&args, &trace, style)?;
    let ram = ram::choose(args.ram, workload.ram_bytes(), 1);
    let device = args.device.as_deref().and_then(device::named);
    let session = Session {
        arenas: Arenas::new(1, usize::from(args.cpus), ram)
            .with_low(args.lowmem)
            .with_compressed(args.compressed)
            .with_group(args.group_limit)
            .with_device(device.as_ref().map(device::model))
            .prefaulted(),
        device,
        ram,
        style,
        interrupt,
        trace,
        args,
    };
    let replayed = session.replay(&workload)?;
    results.print(|detail| report::text(&replayed, detail), &replayed)?;
    session.verdict(&replayed)
}

/// The trace, ready for the design.
fn load(args: &ReplayArgs, trace: &TraceReader, style: Style) -> Result<Workload, Failure> {
    // A design that does not exist is refused before any time is spent.
    let smallest = Arenas::new(1, 1, 64 << 20);
    if let Err(EngineError::Design(text)) = smallest.build(&args.design, 0) {
        return Err(Failure::usage(text));
    }
    compressed_needs_reclaim(args.compressed, &args.design)?;
    if args.group_limit.is_some()
        && !has_groups(&args.design).map_err(|error| Failure::usage(error.to_string()))?
    {
        return Err(Failure::usage(
            "--group-limit: the design has no groups; add --design reclaim=on,groups=on",
        ));
    }
    let options = Options {
        streams: Streams::ByCpu(usize::from(args.cpus)),
        copies: args.copies,
        seed: args.seed,
        fault_around: fault_around(&args.design)?,
        pages: common_pages(std::slice::from_ref(&args.design))?,
        idle_us: args.idle,
        tmpfs: tmpfs(args.tmpfs.as_deref(), trace.header())?,
    };
    let total = (trace.header().events).saturating_mul(options.readings());
    let progress = RefCell::new(Progress::new(style, "preparing", total, "events"));
    let is_event = |event: &Result<Event, _>| match event {
        Ok(event) => !matches!(event.kind, EventKind::Accessed { .. }),
        Err(_) => true,
    };
    let count = |event: &_| progress.borrow_mut().advance(u64::from(is_event(event)));
    let events = || trace.events_and_accesses().inspect(count);
    let workload = prepare_events(trace.header(), events, &options).blame_input()?;
    progress.into_inner().finish();
    Ok(workload)
}

/// The device whose files `--tmpfs` says are in memory.
pub(super) fn tmpfs(directory: Option<&str>, header: &Header) -> Result<Option<u32>, Failure> {
    let device = directory.map(|directory| tmpfs_device(header, directory));
    let refused = |error| Failure::usage(format!("--tmpfs: {error}"));
    device.transpose().map_err(refused)
}

/// Refuses a compressed store that nothing would go to.
pub(super) fn compressed_needs_reclaim(
    compressed: Option<u8>,
    design: &str,
) -> Result<(), Failure> {
    let reclaims = reclaims(design).map_err(|error| Failure::usage(error.to_string()))?;
    match compressed.is_some() && !reclaims {
        true => Err(Failure::usage(
            "--compressed: no page goes to swap with reclaim=off; add --design reclaim=on",
        )),
        false => Ok(()),
    }
}

/// Replays on the host's kernel.
fn on_linux(args: ReplayArgs) -> Result<(), Failure> {
    let core_only = [
        (!args.design.is_empty(), "--design"),
        (args.cpus > 1, "--cpus"),
        (args.copies > 1, "--copies"),
        (args.verify, "--verify"),
        (args.audit, "--audit"),
        (args.device.is_some(), "--device"),
        (args.ram.is_some(), "--ram"),
        (args.lowmem.is_some(), "--lowmem"),
        (args.compressed.is_some(), "--compressed"),
        (args.group_limit.is_some(), "--group-limit"),
        (args.idle.is_some(), "--idle"),
        (args.tmpfs.is_some(), "--tmpfs"),
    ];
    refuse(
        &core_only,
        "cannot be had on the host's kernel: leave it out with --on linux",
    )?;
    let request = host::Request {
        trace: args.trace,
        passes: usize::from(args.passes),
        scratch: args.scratch,
        output: args.output,
        seed: args.seed,
        quiet: args.quiet,
    };
    host::replay(&request, args.save.as_ref())
}

/// A run of the command.
struct Session {
    args: ReplayArgs,
    device: Option<Device>,
    trace: TraceReader,
    arenas: Arenas,
    ram: u64,
    style: Style,
    interrupt: Interrupt,
}

impl Session {
    fn engine(&self) -> Result<Box<dyn Engine>, Failure> {
        let engine = self.arenas.build(&self.args.design, 0);
        engine.map_err(Failure::of_engine)
    }

    /// Replays, and once more without the recorded faults that the design did not meet, if there
    /// were any: that replay is the one that is timed.
    fn replay(&self, workload: &Workload) -> Result<Replay, Failure> {
        let args = &self.args;
        let (mut engine, mut replayed) = self.pass(workload, "replaying")?;
        let needless: usize = replayed.needless.iter().map(Vec::len).sum();
        let needed = (needless > 0).then(|| workload.without(&replayed.needless));
        if let Some(needed) = needed.as_ref().filter(|_| !self.interrupt.requested()) {
            drop(engine);
            let found = replayed.divergences;
            (engine, replayed) = self.pass(needed, "replaying what the design needs")?;
            replayed.divergences = found;
        }
        let workload = needed.as_ref().unwrap_or(workload);
        let path = args.trace.display().to_string();
        let mut result = report::result(path, workload, engine.as_ref(), self.ram, &replayed);
        result.needless = needless as u64;
        if let Some(device) = &self.device {
            report::measure_device(&mut result, device.clone());
        }
        let end_state = verify::end_state(workload, engine.as_ref());
        // What is read back is used, so with reclaim other pages may have left at the end.
        let reclaims =
            reclaims(&result.design).map_err(|error| Failure::usage(error.to_string()))?;
        let same_end = workload.cpus() == 1 && !reclaims;
        if args.audit {
            match audit(engine.as_ref()) {
                Ok(()) => result.audited = true,
                Err(text) => result.refuted = Some(format!("audit: {text}")),
            }
        }
        drop(engine);
        if args.verify && result.refuted.is_none() && !self.interrupt.requested() {
            match self.verify(workload)? {
                Ok(None) => {}
                Ok(Some(found)) if same_end && found.end_state != end_state => {
                    let text = "timed and verified replay end with different pages resident";
                    result.refuted = Some(text.into());
                }
                Ok(Some(found)) => result.verified = Some(found.verified),
                Err(text) => result.refuted = Some(text),
            }
        }
        Ok(result)
    }

    /// Replays on a fresh engine.
    fn pass(
        &self,
        workload: &Workload,
        label: &str,
    ) -> Result<(Box<dyn Engine>, Replayed), Failure> {
        let args = &self.args;
        let engine = self.engine()?;
        let mut progress = Progress::new(self.style, label, workload.ops(), "operations");
        let replayed = replay::run(workload, engine.as_ref(), |done| {
            progress.advance(done);
            !self.interrupt.requested()
        });
        progress.finish();
        let Some(starved) = replayed.divergences.starved else {
            return Ok((engine, replayed));
        };
        let victim = engine.victim().map(|victim| {
            let events = self.trace.events();
            starved.victim_text(workload, victim, events)
        });
        let more = victim.unwrap_or_default();
        let events = self.trace.events();
        let memory = Memory {
            ram: self.ram,
            group_limit: args.group_limit,
        };
        let mut text = starved.message(workload, memory, events, &more);
        if let (Some(low), Shortage::Machine) = (args.lowmem, starved.shortage) {
            text += &format!(
                ", or more low memory: it has {} MiB (--lowmem)",
                low.min(self.ram) >> 20
            );
        }
        Err(Failure::failed(text))
    }

    /// Replays verified on a fresh engine; the inner error is what is wrong.
    fn verify(&self, workload: &Workload) -> Result<Result<Option<Verification>, String>, Failure> {
        let engine = self.engine()?;
        let mut progress = Progress::new(self.style, "verifying", workload.ops(), "operations");
        let verified = verify::verify(workload, engine.as_ref(), |done| {
            progress.advance(done);
            !self.interrupt.requested()
        });
        progress.finish();
        Ok(verified.map_err(|refutation| refutation.to_string()))
    }

    /// What the command comes to, after the report was printed.
    fn verdict(&self, report: &Replay) -> Result<(), Failure> {
        if self.interrupt.requested() {
            let text = format!("interrupted after {} operations", report.ops);
            return Err(Failure::interrupted(text));
        }
        if let Some(text) = &report.refuted {
            return Err(Failure::refuted(text.clone()));
        }
        if report.unexplained_share() > UNEXPLAINED_LIMIT {
            return Err(Failure::refuted(format!(
                "{} of {} operations ({:.2} %) went otherwise than recorded and nothing in the \
                 trace explains it; the limit is {} %. The table says which kinds",
                report.unexplained,
                report.ops,
                report.unexplained_share() * 100.0,
                UNEXPLAINED_LIMIT * 100.0,
            )));
        }
        Ok(())
    }
}

/// Checks the invariants with everything in place, and again after the end of
/// every space and file.
fn audit(engine: &dyn Engine) -> Result<(), String> {
    engine.audit()?;
    engine.clear(0);
    engine
        .audit()
        .map_err(|text| format!("after the end of all spaces: {text}"))
}
