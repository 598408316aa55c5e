//! Verified replays of the shipped traces with less memory than they use, under every design of
//! reverse mapping and every aging, and with groups of spaces whose limits change.

mod groups;

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use vellum_engine::{Arena, Config, Engine, build};
use vellum_lab::replay::{Options, Workload, prepare_events, run as replay};
use vellum_lab::verify::{verify, verify_in};
use vellum_trace::TraceReader;

use groups::Changes;

/// The traces, if none is named.
const TRACES: [&str; 3] = ["kernel-build", "sdet-like", "snapshot-server"];

/// Memory in percent of what the design has at its peak.
const PARTS: [u64; 3] = [75, 50, 25];

/// Slices of a replay with groups, between which they change.
const SLICES: usize = 256;

/// Seed of these changes.
const SEED: u64 = 20;

/// Memory is a multiple of so many bytes.
const UNIT: u64 = 64 << 10;

/// Which replays.
#[derive(clap::Args)]
pub struct Args {
    /// Replay only so many events of each trace, from the beginning
    #[arg(
        long,
        value_name = "N",
        default_value_t = 30_000,
        conflicts_with = "whole"
    )]
    events: u64,
    /// Replay whole traces, which takes hours
    #[arg(long)]
    whole: bool,
    /// Put the processes into groups that may have so much together, with all of the peak for the
    /// machine; limits change, processes move, groups end and others begin
    #[arg(long)]
    groups: bool,
    /// Only designs whose text holds this, as `rmap=pv` or `generations` (may be repeated)
    #[arg(long, value_name = "TEXT")]
    only: Vec<String>,
    /// Replays at a time [default: CPUs of this machine]
    #[arg(short, long, value_name = "N")]
    jobs: Option<usize>,
    /// Traces instead of the shipped kernel build, script and server
    #[arg(value_name = "TRACE")]
    traces: Vec<PathBuf>,
}

/// One design on one trace.
struct Case<'w> {
    trace: &'w str,
    workload: &'w Workload,
    design: String,
    has_groups: bool,
}

/// Replays everything that was asked for, and says which pages were wrong, if any.
pub fn run(args: &Args) -> Result<(), String> {
    let limit = if args.whole { u64::MAX } else { args.events };
    let traces = match args.traces.as_slice() {
        [] => TRACES.map(shipped).to_vec(),
        named => named.to_vec(),
    };
    let workloads: Vec<(String, Workload)> = traces
        .iter()
        .map(|path| prepared(path, limit))
        .collect::<Result<_, String>>()?;
    let designs: Vec<String> = designs()
        .into_iter()
        .filter(|design| args.only.is_empty() || args.only.iter().any(|text| design.contains(text)))
        .collect();
    if designs.is_empty() {
        return Err("no design holds any text of --only; `vellum designs` lists them".into());
    }
    let cases: Vec<Case<'_>> = workloads
        .iter()
        .flat_map(|(trace, workload)| {
            designs.iter().map(move |design| Case {
                trace,
                workload,
                design: design.clone(),
                has_groups: args.groups,
            })
        })
        .collect();
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let failures = Mutex::new(Vec::new());
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..args.jobs.unwrap_or(cpus).clamp(1, cases.len()) {
            scope.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let (text, failed) = hold(case);
                    // What cannot be shown is in the result all the same.
                    let _ = io::stdout().lock().write_all(text.as_bytes());
                    if let Ok(mut failures) = failures.lock() {
                        failures.extend(failed);
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().map_err(|error| error.to_string())?;
    match failures.len() {
        0 => Ok(()),
        count => Err(format!("{count} replays failed:\n{}", failures.join("\n"))),
    }
}

/// Every reverse mapping with every aging.
fn designs() -> Vec<String> {
    let values = |name: &str| {
        let mut options = vellum_engine::options().iter();
        let option = options.find(|option| option.name == name);
        option.map_or(&[][..], |option| option.values)
    };
    let mut designs = Vec::new();
    for rmap in values("rmap") {
        for aging in values("aging") {
            designs.push(format!("rmap={rmap},aging={aging}"));
        }
    }
    designs
}

fn shipped(name: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    root.join("traces").join(format!("{name}.vellum"))
}

/// The first `limit` events of a trace as a workload of one CPU.
fn prepared(path: &Path, limit: u64) -> Result<(String, Workload), String> {
    let trace = TraceReader::open(path).map_err(|error| error.to_string())?;
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let events = || trace.events().take(limit);
    let workload = prepare_events(trace.header(), events, &Options::default());
    let workload = workload.map_err(|error| format!("{}: {error}", path.display()))?;
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    Ok((name.into_owned(), workload))
}

fn engine(design: &str, ram_bytes: u64) -> Result<Box<dyn Engine>, String> {
    let config = Config::new(design, 1, ram_bytes);
    let arena = Arena::new(ram_bytes as usize).map_err(|error| error.to_string())?;
    build(&config, arena).map_err(|error| error.to_string())
}

/// What the design has in use at its peak where there is more than enough, in bytes.
fn peak(case: &Case<'_>) -> Result<u64, String> {
    let engine = engine(&case.design, case.workload.ram_bytes())?;
    let replayed = replay(case.workload, engine.as_ref(), |_| true);
    if replayed.divergences.starved.is_some() {
        return Err("memory that should be enough was not".into());
    }
    let rows = engine.memory();
    let frames = rows.iter().find(|(name, _, _)| *name == "all frames");
    let peak = frames.map(|(_, _, peak)| *peak);
    peak.filter(|peak| *peak > 0)
        .ok_or_else(|| "the engine does not say what is in use".into())
}

/// Replays a case with each part of its peak. Returns the lines to print, and those that failed.
fn hold(case: &Case<'_>) -> (String, Vec<String>) {
    let (mut text, mut failed) = (String::new(), Vec::new());
    let name = format!("{:<16} {:<40}", case.trace, case.design);
    let peak = match peak(case) {
        Ok(peak) => peak,
        Err(why) => {
            let line = format!("{name} FAILED: {why}");
            let _ = writeln!(text, "{line}");
            return (text, vec![line]);
        }
    };
    for part in PARTS {
        let ram_bytes = (peak * part / 100).next_multiple_of(UNIT);
        let began = Instant::now();
        let name = format!("{name} {part} % = {:>7} KiB", ram_bytes >> 10);
        let held = match case.has_groups {
            true => in_groups(case, peak, ram_bytes),
            false => with_memory(case, ram_bytes),
        };
        let line = match held {
            Ok(done) => format!("{name}  {done}, {:.1} s", began.elapsed().as_secs_f64()),
            Err(why) => {
                let line = format!("{name}  FAILED: {why}");
                failed.push(line.clone());
                line
            }
        };
        let _ = writeln!(text, "{line}");
    }
    (text, failed)
}

/// One verified replay. A replay under which nothing leaves shows nothing, and has failed.
fn with_memory(case: &Case<'_>, ram_bytes: u64) -> Result<String, String> {
    let engine = engine(&format!("{},reclaim=on", case.design), ram_bytes)?;
    let verified = verify(case.workload, engine.as_ref(), |_| true);
    let verified = verified
        .map_err(|refutation| refutation.to_string())?
        .ok_or("it was not finished")?
        .verified;
    let counters = engine.counters();
    let count = |wanted: &str| {
        let mut found = counters.iter().filter(|(name, _)| *name == wanted);
        found.next().map_or(0, |(_, count)| *count)
    };
    let reclaimed = count("reclaim: pages reclaimed");
    match reclaimed {
        0 => Err("no page left: there was memory enough".into()),
        _ => Ok(format!(
            "{} operations, {} pages checked, {reclaimed} left, {} of them for swap",
            verified.ops,
            verified.after_access + verified.read_back,
            count("reclaim: pages swapped"),
        )),
    }
}

/// One verified replay on a machine with memory for the peak, where groups may have `bytes`
/// together.
fn in_groups(case: &Case<'_>, peak: u64, bytes: u64) -> Result<String, String> {
    let design = format!("{},reclaim=on,groups=on", case.design);
    let engine = engine(&design, peak.next_multiple_of(UNIT))?;
    let engine = engine.as_ref();
    let groups = engine.groups().ok_or("the engine has no groups")?;
    let pages = bytes >> engine.pages().shift;
    let mut changes = Changes::new(groups, pages, case.workload.spaces(), SEED)?;
    let mut changed = Ok(());
    let verified = verify_in(case.workload, engine, SLICES, |_| {
        changed = changes.step();
        changed.is_ok()
    });
    changed?;
    let verified = verified
        .map_err(|refutation| refutation.to_string())?
        .ok_or("it was not finished")?
        .verified;
    let given = changes.finish();
    match given.reclaimed {
        0 => Err("no page left: limits were wide enough".into()),
        reclaimed => Ok(format!(
            "{} operations, {} pages checked, {reclaimed} left {} groups, {} times at a limit",
            verified.ops,
            verified.after_access + verified.read_back,
            given.groups,
            given.limit_hits,
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So many that every group has more than the fewest pages it may be limited to.
    const EVENTS: u64 = 16_000;

    #[test]
    fn each_reverse_mapping_is_replayed_with_each_aging() {
        let designs = designs();
        for design in ["rmap=pv,aging=lru", "rmap=chains,aging=generations"] {
            assert!(designs.iter().any(|other| other == design), "{designs:?}");
        }
        let mut once = designs.clone();
        once.sort_unstable();
        once.dedup();
        assert_eq!(once.len(), designs.len());
    }

    #[test]
    fn a_case_with_too_little_memory_holds_and_one_with_enough_says_so() {
        let (name, workload) = prepared(&shipped("sdet-like"), EVENTS).expect("it is shipped");
        let case = Case {
            trace: &name,
            workload: &workload,
            design: "rmap=family,aging=lru".into(),
            has_groups: false,
        };
        let peak = peak(&case).expect("it is known");
        let held = with_memory(&case, (peak / 2).next_multiple_of(UNIT)).expect("it holds");
        assert!(held.contains("pages checked"), "{held}");
        let refused = with_memory(&case, 4 * peak).expect_err("nothing left");
        assert!(refused.contains("memory enough"), "{refused}");
    }

    #[test]
    fn a_case_in_groups_that_are_too_small_holds_and_one_in_wide_ones_says_so() {
        let (name, workload) = prepared(&shipped("sdet-like"), EVENTS).expect("it is shipped");
        let case = Case {
            trace: &name,
            workload: &workload,
            design: "rmap=family,aging=lru".into(),
            has_groups: true,
        };
        let peak = peak(&case).expect("it is known");
        let held = in_groups(&case, peak, peak / 4).expect("it holds");
        assert!(held.contains("pages checked"), "{held}");
        let refused = in_groups(&case, 4 * peak, 100 * peak).expect_err("nothing left");
        assert!(refused.contains("wide enough"), "{refused}");
    }
}
