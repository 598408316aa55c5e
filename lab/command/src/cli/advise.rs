//! `vellum advise`: what could be changed for a workload, and what it would come to.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use clap::builder::ValueHint;

use super::outputs::OutputPath;
use super::results::{OutputArgs, Results};
use super::{Failure, OrFail, record};
use crate::advise::check::{self, Request};
use crate::advise::knobs::KNOBS;
use crate::advise::on_core::{self, OnCore};
use crate::advise::on_host::{self, OnHostFound};
use crate::advise::prices::Prices;
use crate::advise::rows::{self, Measured};
use crate::advise::settings::Switched;
use crate::advise::survey::{Patterns, Survey};
use crate::advise::{counted, text};
use crate::designs::load;
use crate::excerpt;
use crate::host::forkfault::Helper;
use crate::host::scratch::Scratch;
use crate::linux::LinuxError;
use crate::plan::memory;
use crate::replay::{Options, Streams, ram};
use vellum_results::Whole;
use vellum_results::advise::{Advice, Asked, Host, Part, Row};
use vellum_terminal::progress::{Interrupt, Progress, Style, say};
use vellum_trace::cut::Selection;
use vellum_trace::{DEFAULT_LEVEL, TraceReader, TraceWriter};

/// Time that everything but the command's own runs takes, about, unless it is said.
const SECONDS: u64 = 120;

/// Events that are replayed for each second: a replay of one takes 4 us on the host's kernel and
/// 1 us in the core, and there are some twenty of the one and a hundred of the other.
const EVENTS_PER_SECOND: u64 = 4000;

/// Parts of the memory at the peak that are tried.
const PARTS: [f64; 2] = [0.75, 0.5];

const EXAMPLES: &str = "\
One page: what the workload asks of memory management, and a row for each thing that could be
changed: transparent huge pages (THP), sizes of large folios (mTHP), less memory (a cgroup's
limit, zswap), malloc that gives memory up and touches it again, fork before execve, memory that
could be made in one call, and what a builder of kernels can choose. Each row has its effect on
the CPU time of the workload with an interval, or says that it makes no difference, with the
bound. docs/advise.md says what each follows from, and how good the advice has been.

--check runs the command again and again under the settings that rows are about, with THP and
mTHP switched for the whole system, and sets what it measures beside each row. Settings are
restored at the end, after Ctrl-C, and if the program is killed.

Examples:
  vellum advise traces/sdet-like.vellum
  vellum advise build.vellum --html advice.html --json advice.json
  vellum advise -- python3 -c 'print(sum(range(10**7)))'            record it first (needs root)
  vellum advise --check -- sort -S 1G words.txt                     and try the advice (needs root)
  vellum advise --check --prepare 'make clean' -- make -j4

Exit codes: 0 advised, 1 failed, 2 unusable arguments or trace, 3 the replay diverged from the
recording, 130 interrupted (settings are restored).";

/// Say what could be changed for a workload (THP, mTHP, less memory, malloc, …), and its effect
#[derive(Args, Debug)]
#[command(
    override_usage = "vellum advise [OPTIONS] <TRACE>\n       vellum advise [OPTIONS] -- <COMMAND>...",
    after_help = EXAMPLES
)]
pub struct AdviseArgs {
    /// The recording of a workload
    #[arg(value_hint = ValueHint::FilePath, required_unless_present = "command",
          conflicts_with = "command")]
    trace: Option<PathBuf>,
    /// A command to record first, and its arguments
    #[arg(last = true, value_name = "COMMAND", value_hint = ValueHint::CommandWithArguments)]
    command: Vec<OsString>,
    /// Keep the trace of the command
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "command")]
    trace_out: Option<OutputPath>,
    /// Run the command itself under the settings that rows are about, and restore them (root)
    #[arg(long, requires = "command")]
    check: bool,
    /// With --check: time for the runs; at least five of each setting are made
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 120,
        requires = "check"
    )]
    check_seconds: u64,
    /// With --check: shell command before each run
    #[arg(long, value_name = "SHELL-COMMAND", requires = "check")]
    prepare: Option<String>,
    /// Time for everything but the command's own runs, about: a long trace is replayed in part
    #[arg(long, value_name = "SECONDS", default_value_t = SECONDS,
          value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: u64,
    /// Seed of the order of execution and of the intervals
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    output: OutputArgs,
    /// No progress
    #[arg(long, short)]
    quiet: bool,
}

/// What every step knows.
struct Session<'s> {
    args: &'s AdviseArgs,
    style: Style,
    interrupt: &'s Interrupt,
}

/// What the trace holds.
struct Surveyed {
    asked: Asked,
    patterns: Patterns,
    command: Vec<String>,
    cpu_ns: Option<u64>,
    part: Part,
    /// Where the part ends, if it is not all.
    end_us: u64,
}

/// Records if it has to, measures, prints.
pub fn run(args: AdviseArgs) -> Result<(), Failure> {
    if args.command.is_empty() && (args.check || args.trace_out.is_some()) {
        return Err(Failure::usage(
            "--check runs the command itself, and --trace-out keeps its recording: give the \
             command after `--`, not a trace",
        ));
    }
    let mut results = Results::open(&args.output)?;
    // What an earlier run may have left is found before anything is measured.
    let mut switched = args.check.then(switch).transpose()?;
    let interrupt = Interrupt::on_ctrl_c().doing(|| "catching Ctrl-C")?;
    let style = Style::detect(args.quiet);
    let session = Session {
        args: &args,
        style,
        interrupt: &interrupt,
    };
    let scratch = Scratch::new(&std::env::temp_dir(), "advise").doing(|| "a place for traces")?;
    let trace = session.trace(scratch.path())?;
    results.read_from(std::slice::from_ref(&trace))?;
    let advice = session.advise(&trace, scratch.path(), switched.as_mut())?;
    drop(switched);
    results.print(|detail| text::render(&advice, detail), &advice)?;
    match advice.interrupted {
        true => Err(Failure::interrupted("interrupted: fewer passes were made")),
        false => Ok(()),
    }
}

/// The settings of this machine, to be changed.
fn switch() -> Result<Switched, Failure> {
    let begun = Switched::begin(&check::paths()).map_err(|error| {
        Failure::failed(format!(
            "--check switches THP and mTHP, which takes root and a kernel that has them: {error}"
        ))
    })?;
    for path in &begun.mended {
        say(&format!(
            "vellum: an earlier run was killed; {} is restored",
            path.display()
        ));
    }
    Ok(begun.switched)
}

impl Session<'_> {
    /// The trace that is named, or that of the command.
    fn trace(&self, scratch: &Path) -> Result<PathBuf, Failure> {
        if let Some(trace) = &self.args.trace {
            return Ok(trace.clone());
        }
        let output = match &self.args.trace_out {
            Some(path) => path.to_path_buf(),
            None => scratch.join("recorded.vellum"),
        };
        record::for_another(&self.args.command, &output, self.style, self.interrupt)?;
        Ok(output)
    }

    fn advise(
        &self,
        path: &Path,
        scratch: &Path,
        mut switched: Option<&mut Switched>,
    ) -> Result<Advice, Failure> {
        let surveyed = self.survey(path)?;
        let helper = Helper::this().map_err(|error| error.into_failure())?;
        let rounds = helper.prices(self.interrupt);
        let prices = Prices::new(rounds.map_err(|error| error.into_failure())?);
        let replayed = self.part(path, scratch, &surveyed)?;
        let host = on_host::here();
        let on_host = self.on_host(&replayed, &host, switched.as_deref_mut())?;
        let third = self.args.seconds / 3;
        let settings = (third, self.args.seed);
        let on_core = on_core::run(&replayed, &KNOBS, settings, self.style, self.interrupt)?;
        let rows = self.rows(&surveyed, &prices, (&on_core, &on_host), &replayed)?;
        let mut advice = Advice {
            trace: match self.args.trace {
                Some(_) => path.display().to_string(),
                None => "recorded now".to_owned(),
            },
            command: surveyed.command,
            part: surveyed.part,
            whole: surveyed.cpu_ns.map(|cpu_ns| Whole {
                cpu_ns,
                memory_ns: None,
            }),
            whole_of_part: on_core.whole,
            host,
            asked: Asked {
                tables_bytes: Some(on_core.tables_bytes),
                frames_bytes: Some(on_core.frames_bytes),
                ..surveyed.asked
            },
            prices: prices.list(),
            rows: rows::ranked(rows),
            checked: None,
            unseen: rows::unseen(on_core.whole, switched.is_some()),
            interrupted: on_core.interrupted
                || on_host.as_ref().is_ok_and(|found| found.interrupted),
        };
        if let Some(switched) = switched.filter(|_| !advice.interrupted) {
            let request = Request {
                command: self.args.command.clone(),
                prepare: self.args.prepare.clone(),
                budget: Duration::from_secs(self.args.check_seconds),
                seed: self.args.seed,
                style: self.style,
            };
            let rows = &mut advice.rows;
            let checked = check::run(&request, &KNOBS, rows, switched, self.interrupt)?;
            advice.checked = Some(checked);
        }
        Ok(advice)
    }

    /// Counts what the trace holds.
    fn survey(&self, path: &Path) -> Result<Surveyed, Failure> {
        let trace = TraceReader::open(path).blame_input()?;
        let header = trace.header();
        if header.events == 0 {
            return Err(Failure::usage(format!(
                "{}: the trace is empty; there is nothing to advise on",
                path.display()
            )));
        }
        let mut progress = Progress::new(self.style, "reading", header.events, "events");
        let mut survey = Survey::new(header);
        let events = (self.args.seconds * EVENTS_PER_SECOND).min(header.events);
        let (mut taken, mut ran_us, mut end_us) = (0, 0, u64::MAX);
        for event in trace.events() {
            if self.interrupt.requested() {
                return Err(Failure::interrupted("interrupted"));
            }
            let event = event.blame_input()?;
            survey.take(&event);
            ran_us += event.ran_us.unwrap_or(0);
            taken += 1;
            if taken == events && events < header.events {
                end_us = event.time_us + 1;
            }
            progress.advance(1);
        }
        progress.finish();
        let (asked, patterns) = survey.finish();
        Ok(Surveyed {
            asked,
            patterns,
            command: header.environment.command.clone(),
            cpu_ns: header.cpu_times.then_some(ran_us * 1000),
            part: Part {
                events,
                of_events: header.events,
            },
            end_us,
        })
    }

    /// What of the trace is replayed, as a trace.
    fn part(&self, path: &Path, scratch: &Path, surveyed: &Surveyed) -> Result<PathBuf, Failure> {
        if surveyed.part.is_all() {
            return Ok(path.to_path_buf());
        }
        let trace = TraceReader::open(path).blame_input()?;
        let part = scratch.join("part.vellum");
        let selection = Selection {
            root: None,
            from_us: 0,
            to_us: surveyed.end_us,
        };
        let writer = TraceWriter::create(&part, DEFAULT_LEVEL)?;
        excerpt::write(&trace, selection, writer, self.style, self.interrupt)?;
        Ok(part)
    }

    /// Replays on this machine's kernel, or why there are none.
    fn on_host(
        &self,
        path: &Path,
        host: &Host,
        switched: Option<&mut Switched>,
    ) -> Result<Result<OnHostFound, String>, Failure> {
        if let Some(why) = on_host::refused(host) {
            return Ok(Err(why));
        }
        let settings = (self.args.seconds / 3, self.args.seed);
        let found = on_host::run(path, &KNOBS, switched, settings, self.style, self.interrupt);
        match found {
            Ok(found) => Ok(Ok(found)),
            // Some workloads cannot be replayed there; the rest of the advice stands.
            Err(
                error @ (LinuxError::Unsupported(_)
                | LinuxError::Collision { .. }
                | LinuxError::Refused { .. }),
            ) => Ok(Err(error.to_string())),
            Err(error) => Err(error.into_failure()),
        }
    }

    fn rows(
        &self,
        surveyed: &Surveyed,
        prices: &Prices,
        (on_core, on_host): (&OnCore, &Result<OnHostFound, String>),
        replayed: &Path,
    ) -> Result<Vec<Row>, Failure> {
        let measured = Measured {
            on_core,
            on_host: on_host.as_ref().map_err(String::as_str),
            prices,
        };
        let mut rows = rows::of_knobs(&KNOBS, &measured, &surveyed.asked);
        rows.extend(counted::rows(
            &surveyed.asked,
            &surveyed.patterns,
            prices,
            surveyed.cpu_ns,
        ));
        rows.extend(self.less_memory(replayed, &surveyed.asked)?);
        Ok(rows)
    }

    fn less_memory(&self, path: &Path, asked: &Asked) -> Result<Vec<Row>, Failure> {
        let options = Options {
            streams: Streams::ByCpu(1),
            seed: self.args.seed,
            ..Options::default()
        };
        let paths = [path.to_path_buf()];
        let (_, workload) = load(&paths, &[String::new()], options, self.style)?;
        let question = memory::Question {
            trace: path.display().to_string(),
            design: String::new(),
            parts: PARTS.to_vec(),
            device: "nvme".to_owned(),
            ram_bytes: ram::choose(None, workload.ram_bytes(), 1),
            compressed: None,
        };
        let plan = memory::plan(&question, &workload, self.style, self.interrupt)?;
        Ok(rows::of_memory(&plan, asked))
    }
}
