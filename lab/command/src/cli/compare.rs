//! `vellum compare`: which of two designs suits a workload.

#[cfg(feature = "simulation")]
mod on_sim;

use std::path::{Path, PathBuf};

use clap::Args;
use clap::builder::{PossibleValuesParser, ValueHint};

#[cfg(not(feature = "simulation"))]
use super::absent::on_sim;
use super::host::{self, Side};
use super::profiling::{self, ProfileArgs};
use super::results::{OutputArgs, Results};
use super::simulated::{On, SimArgs};
use super::{Failure, OrFail, size};

use crate::built_in::ATOMICS;
use crate::compare::{
    ARMS, Analysis, Arenas, CompareError, HostClock, Measurement, Method, Settings, WithEntries,
    attached, measure,
};
use crate::designs::load;
use crate::history::gate::Expected;
use crate::replay::ram::{self, Starved};
use crate::replay::{Options, Service, Streams, Workload};
use crate::report::published::Format;
use crate::report::{device, model, text};
use crate::shipped::shipped_trace;
use vellum_engine::DeviceModel;
use vellum_profile::sample::Profiler;
use vellum_results::Whole;
use vellum_results::compare::About;
use vellum_results::profile::Profile;
use vellum_terminal::progress::{Interrupt, Style, say};
use vellum_trace::TraceReader;

/// The shipped trace compared on if none is named.
const DEFAULT_TRACE: &str = "kernel-build.vellum";

/// Passes unless it is said how many.
const PASSES: u16 = 6;

/// Length of a slice unless it is said how long, in microseconds.
const SLICE_US: u64 = 1000;

/// Confidence of all intervals.
const CONFIDENCE: f64 = 0.95;

/// Share of unexplained divergences above which a comparison is refused.
const DIVERGENCE_LIMIT: f64 = 0.01;

const EXAMPLES: &str = "\
Both designs and a control (A once more) run side by side; the workload is cut into slices of
about a millisecond, and each slice is executed by all three before the next. `difference` is
said only if the 95 % interval of B / A excludes 1 and lies outside that of the control.
docs/measuring.md describes the method, the tables and the JSON.

Examples:
  vellum compare                                    64 KiB folios (mTHP) against single pages
  vellum compare traces/kernel-build.vellum --a superpage=off --b superpage=eager   THP at first use
  vellum compare traces/kernel-build.vellum --a rmap=chains --b rmap=partial
  vellum compare traces/kernel-build.vellum --a rmap=chains,direct=on --b rmap=chains,direct=off -n 24
  vellum compare traces/kernel-build.vellum --copies 4 --json report.json
  vellum compare --a reclaim=on,aging=lru --b reclaim=on,aging=generations --ram 64M --device nvme
  vellum compare traces/kernel-build.vellum --profile-out where-it-goes
  vellum compare traces/kernel-build.vellum -n 12 --format ministat
  vellum compare traces/sdet-like.vellum --on sim --cpus 8   elapsed time of a whole machine
  vellum compare traces/kernel-build.vellum --a rmap=chains --b rmap=chains   (no difference proven)
  vellum compare traces/kernel-build.vellum --a linux --b rmap=chains         this machine's kernel
  vellum compare traces/kernel-build.vellum -n 12 --against main.json --limit 2   a gate for CI
  vellum compare --a linux:6.12.json --b linux:6.18.json     results saved by `replay --on linux`

Exit codes: 0 compared (whatever the verdict), 1 failed, 2 unusable arguments or trace,
3 the replay diverged from the recording, 4 slower than --against allows, 130 interrupted (what is finished is printed).";

/// Compare two designs on a trace: which needs less CPU time, by how much, how surely
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct CompareArgs {
    /// Trace to replay [default: traces/kernel-build.vellum of the source tree]
    #[arg(value_hint = ValueHint::FilePath)]
    trace: Option<PathBuf>,
    /// Where designs run: on the core, or on a simulated machine (docs/many-cpus.md); this
    /// machine's kernel is named as a design
    #[arg(long, value_enum, default_value_t = On::Core)]
    on: On,
    /// Design A (`vellum designs` lists the options); `linux` is this machine's own kernel,
    /// `linux:FILE` a saved result of one (docs/host-kernel.md)
    #[arg(long, value_name = "DESIGN", default_value = "folio=off")]
    a: String,
    /// Design B, or `linux:FILE`
    #[arg(long, value_name = "DESIGN", default_value = "folio=64k")]
    b: String,
    /// With `--a linux`: directory for scratch files [default: /dev/shm]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    scratch: Option<PathBuf>,
    /// Passes over the workload; multiples of 6 balance the order of execution
    #[arg(short = 'n', long, value_name = "PASSES", default_value_t = PASSES,
          value_parser = clap::value_parser!(u16).range(1..=1000))]
    passes: u16,
    /// Copies of the recorded process family that run at once
    #[arg(long, value_name = "K", default_value_t = 1)]
    copies: u32,
    /// Simulated CPUs, each a host thread; with `--on sim`, as many as the machine has at most
    #[arg(long, value_name = "N", default_value_t = 1)]
    cpus: usize,
    /// Memory of each of the three simulated machines [default: what the trace and its copies
    /// need, as far as the host has it]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    ram: Option<u64>,
    /// The device that files and swap are on, whose time is modelled and told beside CPU time:
    /// `nvme` (80 us for a read, 20 us for a write, 3 GB/s), `ssd` (120 us, 60 us, 500 MB/s) or
    /// `disk` (12 ms, 12 ms, 150 MB/s)
    #[arg(long, value_name = "DEVICE", value_parser = PossibleValuesParser::new(DeviceModel::NAMES))]
    device: Option<String>,
    /// Keep the files of the tmpfs that DIR was on in memory, as shared memory is
    /// (docs/superpages.md); a trace does not say which file systems were one
    #[arg(long, value_name = "DIR", conflicts_with = "against")]
    tmpfs: Option<String>,
    /// Run the idle loop of a simulated CPU where nothing happened on it for this long in the
    /// recording
    #[arg(long, value_name = "MICROSECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    idle: Option<u64>,
    /// Length of a slice in microseconds of CPU time
    #[arg(long, value_name = "MICROSECONDS", default_value_t = SLICE_US,
          value_parser = clap::value_parser!(u64).range(10..=10_000_000))]
    slice: u64,
    /// Leave out the pass that counts atomic operations
    #[arg(long)]
    no_atomics: bool,
    #[command(flatten)]
    output: OutputArgs,
    /// Fail if it is slower than a saved result: a file of --json, or the number of a kept one;
    /// more than one of the same program say what runs differ by
    #[arg(long, value_name = "SAVED", value_hint = ValueHint::FilePath)]
    against: Vec<String>,
    /// With --against: by how many percent it may be slower
    #[arg(long, value_name = "PERCENT", default_value_t = 1.0, requires = "against",
          value_parser = percent)]
    limit: f64,
    /// Print the CPU times of the passes in this format instead of our tables
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// No progress
    #[arg(long, short)]
    quiet: bool,
    /// Seed of the order of execution, the bootstrap and the shifts between copies; with
    /// `--on sim`, the first of the seeds
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// Bootstrap resamples
    #[arg(long, value_name = "R", default_value_t = 2000,
          value_parser = clap::value_parser!(u32).range(100..=1_000_000))]
    resamples: u32,
    #[command(flatten)]
    profiling: ProfileArgs,
    #[command(flatten)]
    sim: SimArgs,
}

/// Prepares the trace, measures, prints.
pub fn run(args: CompareArgs) -> Result<(), Failure> {
    if args.on == On::Sim {
        return on_sim::run(args);
    }
    args.sim.refuse(&[])?;
    if args.on == On::Linux {
        return Err(Failure::usage(
            "--on linux: name this machine's kernel as a design, as in `--a linux --b rmap=chains`",
        ));
    }
    if let Some(done) = with_host(&args) {
        return done;
    }
    let path = args.trace()?;
    let mut results = Results::open(&args.output)?;
    results.read_from(std::slice::from_ref(&path))?;
    if !args.against.is_empty() {
        let db = args.output.db();
        let saved = args.against.iter().map(|name| db.find(name));
        let expected = Expected {
            designs: [&args.a, &args.b],
            copies: args.copies,
            cpus: args.cpus,
        };
        let saved = saved.collect::<Result<_, Failure>>()?;
        let traces = std::slice::from_ref(&path);
        results.hold_against(saved, args.limit / 100.0, &expected, traces)?;
    }
    if let Some(format) = args.format {
        results.with(format, ARMS, usize::from(args.passes))?;
    }
    let interrupt = Interrupt::on_ctrl_c().doing(|| "catching Ctrl-C")?;
    let style = Style::detect(args.quiet);
    if style != Style::Quiet && !args.no_atomics && !args.counts() {
        say(&ATOMICS.missing("counting atomic operations"));
    }
    let options = Options {
        streams: Streams::ByCpu(args.cpus),
        copies: args.copies,
        seed: args.seed,
        idle_us: args.idle,
        tmpfs: args.tmpfs(&path)?,
        ..Options::default()
    };
    let designs = [args.a.clone(), args.b.clone()];
    let path_alone = std::slice::from_ref(&path);
    let (_, workload) = load(path_alone, &designs, options, style)?;
    let ram = ram::choose(args.ram, workload.ram_bytes(), ARMS);
    let profiling = args.profiling.start()?;
    let profiler = profiling.profiler();
    let measured = take(
        &workload,
        &args,
        ram,
        style,
        profiler.as_deref(),
        &interrupt,
    );
    let measured = measured.map_err(|error| refused(error, &path, &workload, ram))?;
    let (profile, failed) = match profiling.finish(&designs, "core").transpose() {
        Ok(profile) => (profile, None),
        Err(failure) => (None, Some(failure)),
    };
    let whole = workload.service().and_then(Service::whole);
    let printed = print(&path, &args, (ram, whole), &measured, profile, results);
    match printed {
        // What an interrupted run says of the saved one is not the last word.
        Err(failure) if measured.interrupted && failure.code() == Failure::SLOWER => {}
        printed => printed?,
    }
    if let Some(failure) = failed {
        return Err(failure);
    }
    match measured.interrupted {
        true => Err(Failure::interrupted(format!(
            "interrupted after {} of {} passes",
            measured.passes.len(),
            args.passes
        ))),
        false => Ok(()),
    }
}

/// Percent of a time.
fn percent(text: &str) -> Result<f64, String> {
    let number: Option<f64> = text.trim_end_matches('%').trim().parse().ok();
    let in_range = number.filter(|number| (0.0..=1000.0).contains(number));
    in_range.ok_or_else(|| "expected 0 to 1000 percent, as in 2.5".to_owned())
}

impl CompareArgs {
    /// The device of the trace at `path` whose files are in memory.
    fn tmpfs(&self, path: &Path) -> Result<Option<u32>, Failure> {
        if self.tmpfs.is_none() {
            return Ok(None);
        }
        let trace = TraceReader::open(path).blame_input()?;
        super::replay::tmpfs(self.tmpfs.as_deref(), trace.header())
    }

    /// Whether atomic operations are counted, too.
    fn counts(&self) -> bool {
        ATOMICS.built_in && !self.no_atomics
    }

    /// The trace that is named, or the shipped one.
    fn trace(&self) -> Result<PathBuf, Failure> {
        match &self.trace {
            Some(path) => Ok(path.clone()),
            None => shipped_trace(DEFAULT_TRACE),
        }
    }
}

/// How intervals are drawn.
fn method(args: &CompareArgs) -> Method {
    Method {
        confidence: CONFIDENCE,
        resamples: args.resamples as usize,
        seed: args.seed,
    }
}

/// Carries out a comparison in which a host's kernel takes part; `None` if none does.
fn with_host(args: &CompareArgs) -> Option<Result<(), Failure>> {
    let method = method(args);
    Some(match (Side::of(&args.a), Side::of(&args.b)) {
        (Side::Design, Side::Design) => return None,
        _ if !args.against.is_empty() => Err(Failure::usage(
            "--against is for designs of the core; results of hosts are compared as `--a \
             linux:FILE --b linux:FILE`",
        )),
        _ if args.device.is_some() => Err(Failure::usage(
            "--device models a device of the core; a host's kernel has its own: leave it out with \
             `linux`",
        )),
        _ if args.format.is_some() => Err(Failure::usage(
            "only designs of the core have samples for --format",
        )),
        (Side::Saved(a), Side::Saved(b)) => host::saved(&a, &b, &args.output, &method),
        (Side::Host, Side::Design) => against_core(args, method),
        _ => Err(Failure::usage(
            "the host's kernel is compared as `--a linux --b DESIGN`, and saved results with each \
             other as `--a linux:FILE --b linux:FILE`",
        )),
    })
}

fn against_core(args: &CompareArgs, method: Method) -> Result<(), Failure> {
    let others = args.profiling.wanted() || args.tmpfs.is_some();
    if args.cpus > 1 || args.copies > 1 || others {
        let text = "the host's kernel replays one copy on one CPU, its files where --scratch says, \
                    and is not profiled: leave out --cpus, --copies, --tmpfs and --profile with \
                    --a linux";
        return Err(Failure::usage(text));
    }
    let request = host::Request {
        trace: args.trace()?,
        passes: usize::from(args.passes),
        scratch: args.scratch.clone(),
        output: args.output.clone(),
        seed: args.seed,
        quiet: args.quiet,
    };
    let core = host::Core {
        design: args.b.clone(),
        ram: args.ram,
        method,
    };
    host::against_core(&request, &core)
}

fn take(
    workload: &Workload,
    args: &CompareArgs,
    ram: u64,
    style: Style,
    profiler: Option<&Profiler>,
    interrupt: &Interrupt,
) -> Result<Measurement, CompareError> {
    let settings = Settings {
        designs: vec![args.a.clone(), args.b.clone()],
        passes: usize::from(args.passes),
        slice_us: args.slice,
        seed: args.seed,
        style,
        divergence_limit: DIVERGENCE_LIMIT,
        by_class: true,
        only_needed: true,
        entries: true,
    };
    let device = args.device.as_deref().and_then(DeviceModel::named);
    let arenas = Arenas::new(settings.arms(), args.cpus, ram).counting_atomics(args.counts());
    // Designs touch other frames. What the host does at the first touch of one would be in the
    // time of the design that first comes to an arena with it, in one pass or in the pass by class.
    let arenas = match ram::can_be_backed(ram, settings.arms()) {
        true => arenas.with_device(device).prefaulted(),
        false => arenas.with_device(device),
    };
    let clock = HostClock::new();
    let builder = attached(&arenas, profiler);
    measure(workload, &builder, &clock, &settings, interrupt)
}

fn refused(error: CompareError, trace: &Path, workload: &Workload, ram: u64) -> Failure {
    if let CompareError::OutOfMemory {
        design,
        cpu,
        index,
        shortage,
    } = &error
    {
        let starved = Starved::at(workload, *cpu, *index, *shortage);
        let context = format!("design `{design}`");
        return match TraceReader::open(trace) {
            Ok(trace) => Failure::failed(starved.message(workload, ram.into(), trace.events(), "")),
            Err(error) => Failure::from(error),
        }
        .context(context);
    }
    let code = match &error {
        CompareError::Empty
        | CompareError::Engine {
            source: vellum_engine::EngineError::Design(_),
            ..
        } => Failure::usage,
        CompareError::Diverged { .. } => Failure::refuted,
        CompareError::Interrupted => Failure::interrupted,
        _ => Failure::failed,
    };
    code(Failure::from(error).message().to_owned())
}

fn print(
    trace: &Path,
    args: &CompareArgs,
    (ram, whole): (u64, Option<Whole>),
    measured: &Measurement,
    profile: Option<Profile>,
    results: Results,
) -> Result<(), Failure> {
    let Method {
        confidence,
        resamples,
        seed,
    } = method(args);
    let analysis = Analysis::new(measured, confidence, resamples, seed);
    let about = About {
        trace: trace.display().to_string(),
        a: args.a.clone(),
        b: args.b.clone(),
        passes: usize::from(args.passes),
        copies: args.copies,
        ram_bytes: ram,
        slice_us: args.slice,
        confidence,
        resamples,
        seed,
    };
    let device = args.device.as_deref().and_then(device::named);
    let mut report = model::comparison(about, device, measured, &analysis);
    report.profile = profile;
    report.whole = whole;
    let with = WithEntries::new(measured, &method(args));
    model::count_entries(&mut report, &with);
    let tables = |detail| {
        let profile = report.profile.as_ref();
        let profile = profile.map(|profile| format!("\n{}", profiling::text(profile)));
        let tables = match args.format {
            Some(format) => text::render_as(format, &report, detail),
            None => text::render(&report, with.judged.resolution.as_ref(), detail),
        };
        tables + &profile.unwrap_or_default()
    };
    results.print(tables, &report)
}
