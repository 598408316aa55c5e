//! `--on linux`, `--a linux`: replays on the host's own kernel, for the commands
//! `replay` and `compare`.

use std::path::{Path, PathBuf};

use vellum_engine::Engine;

use super::outputs::OutputPath;
use super::results::{OutputArgs, Results};
use super::{Failure, OrFail};
use crate::clock::empty_interval_ns;
use crate::compare::crew::{Arm, CLASSES, Crew, Grain};
use crate::compare::{Arenas, Builder, ClassTime, HostClock, Method};
use crate::designs::fault_around;
use crate::host::forkfault::Helper;
use crate::linux::environment;
use crate::linux::kinds::{both_rows, host_rows};
use crate::linux::report::{comparison, comparison_text, replay_text, saved_text};
use crate::linux::saved::{self, trace_id};
use crate::linux::series::{self, Series};
use crate::linux::summary::{against, apart, host_times};
use crate::linux::{LinuxError, Plan, Settings, plan, supported};
use crate::replay::{self, Options, Workload, prepare_events, ram};
use vellum_results::linux::{Saved, SavedComparison, TraceId};
use vellum_terminal::progress::{Interrupt, Style};
use vellum_trace::TraceReader;

/// What to compare with what.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Side {
    /// The host's kernel, now.
    Host,
    /// A result of a host, saved.
    Saved(PathBuf),
    /// A design of the core.
    Design,
}

impl Side {
    /// What an argument of `--a` or `--b` means.
    pub fn of(argument: &str) -> Side {
        match argument.strip_prefix("linux") {
            Some("") => Side::Host,
            Some(rest) if rest.starts_with(':') => Side::Saved(rest[1..].into()),
            _ => Side::Design,
        }
    }
}

/// What both commands can be told.
#[derive(Clone, Debug)]
pub struct Request {
    /// The trace.
    pub trace: PathBuf,
    /// Passes.
    pub passes: usize,
    /// Where scratch files go.
    pub scratch: Option<PathBuf>,
    /// Where the result goes.
    pub output: OutputArgs,
    /// Seed.
    pub seed: u64,
    /// No progress.
    pub quiet: bool,
}

/// A trace, ready for the host.
struct Prepared {
    id: TraceId,
    workload: Workload,
    plan: Plan,
}

fn load(path: &Path, fault_around: u64, style: Style) -> Result<Prepared, Failure> {
    supported().map_err(LinuxError::into_failure)?;
    let trace = TraceReader::open(path).blame_input()?;
    if style != Style::Quiet {
        eprintln!("preparing {}", path.display());
    }
    let options = Options {
        fault_around,
        ..Options::default()
    };
    // What is sampled of later uses of pages cannot be had of the host at the same times.
    let workload = prepare_events(trace.header(), || trace.events(), &options).blame_input()?;
    if workload.ops() == 0 {
        return Err(Failure::usage(format!(
            "{}: the workload has no operations",
            path.display()
        )));
    }
    let plan = plan(&trace, &workload).map_err(LinuxError::into_failure)?;
    let id = trace_id(&trace).map_err(LinuxError::into_failure)?;
    Ok(Prepared { id, workload, plan })
}

fn settings(request: &Request, control: bool) -> Result<Settings, Failure> {
    Ok(Settings {
        passes: request.passes,
        control,
        seed: request.seed,
        scratch: request.scratch.clone(),
        style: Style::detect(request.quiet),
        helper: Helper::this().map_err(|error| error.into_failure())?,
    })
}

/// The host's side of a series.
fn result(prepared: &Prepared, series: &Series) -> Saved {
    let plan = &prepared.plan;
    let clock_ns = empty_interval_ns(&HostClock::new());
    Saved {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        trace: prepared.id.clone(),
        ops: plan.ops,
        environment: environment::here(),
        cpu: series.cpu,
        entry: series.entry.clone(),
        times: host_times(series, plan),
        kinds: host_rows(
            &series.kinds,
            &plan.ops_by_class,
            &plan.entries,
            &series.entry,
            clock_ns,
        ),
    }
}

/// What the plan left out or changed.
fn notes(plan: &Plan) -> Vec<String> {
    let note = |count: u64, what: &str| (count > 0).then(|| format!("{count} {what}"));
    [
        note(
            plan.refused,
            "accesses left out: the recording refused them",
        ),
        note(
            plan.waits_left_out,
            "waits left out: for processes of others, or for threads",
        ),
        note(
            plan.vforks_loosened,
            "vforks without waiting: the recorded parent went on",
        ),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// `vellum replay TRACE --on linux`.
///
/// # Errors
/// The trace cannot be used, or the replay failed.
pub fn replay(request: &Request, save: Option<&OutputPath>) -> Result<(), Failure> {
    let mut results = Results::open(&request.output)?;
    results.read_from(std::slice::from_ref(&request.trace))?;
    let pending = save.map(OutputPath::create).transpose()?;
    let interrupt = Interrupt::on_ctrl_c().doing(|| "catching Ctrl-C")?;
    let style = Style::detect(request.quiet);
    let prepared = load(&request.trace, Options::default().fault_around, style)?;
    let settings = settings(request, save.is_some())?;
    let series = series::measure(&prepared.plan, &settings, None, &interrupt)
        .map_err(LinuxError::into_failure)?;
    let saved = result(&prepared, &series);
    if let Some(file) = pending {
        file.commit(&saved::render(&saved)?)?;
    }
    let notes = notes(&prepared.plan);
    results.print(|detail| replay_text(&saved, &notes, detail), &saved)?;
    ended(series.interrupted, saved.times.own_ns.len(), request.passes)
}

fn ended(interrupted: bool, done: usize, wanted: usize) -> Result<(), Failure> {
    match interrupted {
        false => Ok(()),
        true => Err(Failure::interrupted(format!(
            "interrupted after {done} of {wanted} passes"
        ))),
    }
}

/// What a comparison with the core needs beside the request.
#[derive(Clone, Debug)]
pub struct Core {
    /// The design.
    pub design: String,
    /// Memory of the simulated machine; none: what the trace needs.
    pub ram: Option<u64>,
    /// How intervals are drawn.
    pub method: Method,
}

/// `vellum compare TRACE --a linux --b DESIGN`.
///
/// # Errors
/// As [`replay`], or the design is refused.
pub fn against_core(request: &Request, core: &Core) -> Result<(), Failure> {
    let mut results = Results::open(&request.output)?;
    results.read_from(std::slice::from_ref(&request.trace))?;
    let interrupt = Interrupt::on_ctrl_c().doing(|| "catching Ctrl-C")?;
    let style = Style::detect(request.quiet);
    let build = |arenas: &Arenas| {
        let engine = arenas.build(&core.design, 0);
        engine.map_err(Failure::of_engine)
    };
    // A design that does not exist is refused before any time is spent.
    let design = build(&Arenas::new(1, 1, 64 << 20))?.design();
    if vellum_engine::pages_of(&core.design).is_ok_and(|pages| pages.shift != 12) {
        let text = "the host's kernel has pages of 4 KiB: take a design with pages of that size";
        return Err(Failure::usage(text));
    }
    let prepared = load(&request.trace, fault_around(&core.design)?, style)?;
    let workload = &prepared.workload;
    let ram = ram::choose(core.ram, workload.ram_bytes(), 1);
    let arenas = Arenas::new(1, 1, ram).prefaulted();
    let replay = |workload: &Workload| {
        let engine =
            build(&arenas).map_err(|failure| LinuxError::Unsupported(failure.message().into()))?;
        let replayed = replay::run(workload, engine.as_ref(), |_| !interrupt.requested());
        if interrupt.requested() {
            return Err(LinuxError::Interrupted);
        }
        match replayed.divergences.starved {
            None => Ok(replayed),
            Some(starved) => Err(LinuxError::Core(
                TraceReader::open(&request.trace).map_or_else(
                    |error| error.to_string(),
                    |trace| starved.message(workload, ram.into(), trace.events(), ""),
                ),
            )),
        }
    };
    // Recorded faults that the design does not meet take no time on the host either.
    let all = replay(workload).map_err(LinuxError::into_failure)?;
    let unexplained = all.divergences.unexplained();
    if unexplained * 100 > all.ops {
        return Err(Failure::failed(format!(
            "the core: {unexplained} of {} operations went otherwise than recorded; `vellum \
             replay` shows them",
            all.ops
        )));
    }
    let workload = &workload.without(&all.needless);
    let core_classes = by_class(workload, build(&arenas)?);
    let mut pass = || Ok(replay(workload)?.core_ns);
    let settings = settings(request, true)?;
    let series = series::measure(&prepared.plan, &settings, Some(&mut pass), &interrupt)
        .map_err(LinuxError::into_failure)?;
    let host = result(&prepared, &series);
    let times = &host.times;
    let against =
        |host: &[u64], control: &[u64]| against(host, control, &series.core_ns, &core.method);
    let (before, judged) = against(&times.host.net_ns, &times.control.net_ns);
    let (after, _) = against(&times.host.after_ns, &times.control.after_ns);
    let clock_ns = empty_interval_ns(&HostClock::new());
    let kinds = both_rows(host.kinds.clone(), &core_classes, clock_ns);
    let found = comparison(
        host,
        design,
        series.core_ns.clone(),
        (before, after),
        kinds,
        (series.interrupted, request.seed),
        judged.verdict,
    );
    results.print(|detail| comparison_text(&found, &judged, detail), &found)?;
    ended(series.interrupted, series.core_ns.len(), request.passes)
}

/// The core's time by class, from a replay of its own.
fn by_class(workload: &Workload, engine: Box<dyn Engine>) -> [ClassTime; CLASSES] {
    let arm = Arm::of_everything(engine.into());
    let clock = HostClock::new();
    Crew::with(workload, &clock, |crew| {
        let mut classes = [ClassTime::default(); CLASSES];
        for slice in workload.slices(replay::run::SLICE_OPS) {
            let reading = crew.execute(&arm, &slice, Grain::ByClass);
            for (sum, part) in classes.iter_mut().zip(&reading.classes) {
                sum.cpu_ns += part.cpu_ns;
                sum.intervals += part.intervals;
                sum.ops += part.ops;
            }
        }
        classes
    })
}

/// `vellum compare --a linux:FILE --b linux:FILE`.
///
/// # Errors
/// A file is refused, or they are of different traces.
pub fn saved(a: &Path, b: &Path, output: &OutputArgs, method: &Method) -> Result<(), Failure> {
    let results = Results::open(output)?;
    let open = |path: &Path| saved::open(path).map_err(LinuxError::into_failure);
    let (of_a, of_b) = (open(a)?, open(b)?);
    if !of_a.trace.is_same(&of_b.trace) {
        return Err(Failure::usage(format!(
            "{} is of {} (crc32 {}), {} of {} (crc32 {}): results can be compared if they are of the \
             same trace",
            a.display(),
            of_a.trace.path,
            of_a.trace.crc32,
            b.display(),
            of_b.trace.path,
            of_b.trace.crc32,
        )));
    }
    let times = |of: &Saved| {
        (
            of.times.host.net_ns.clone(),
            of.times.control.net_ns.clone(),
        )
    };
    let ((a_host, a_control), (b_host, b_control)) = (times(&of_a), times(&of_b));
    let (apart, judged) = apart([&a_host, &a_control], [&b_host, &b_control], method)
        .map_err(LinuxError::into_failure)?;
    let found = SavedComparison {
        a: of_a,
        b: of_b,
        apart,
        verdict: judged.verdict,
    };
    results.print(|detail| saved_text(&found, &judged, detail), &found)
}
