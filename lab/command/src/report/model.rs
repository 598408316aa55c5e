//! Everything a comparison found, in the form in which programs read it.
//!
//! Field names and units are the JSON schema documented in `docs/measuring.md`;
//! a change that removes or redefines one needs another [`SCHEMA`].

use serde::{Serialize, Serializer};

use super::along::Along;
use super::device::{ArmsWithDevice, Device};
use super::kernbench::{self, Row};
use super::names::Names;
use crate::compare::{A, ARMS, Analysis, B, CONTROL, ClassTime, Estimate, Measurement, Pass};
use crate::compare::{Counters, Reason, Resolution, Verdict};
use crate::replay::Class;

/// Name and version of the JSON schema.
pub const SCHEMA: &str = "vellum-compare/1";

/// What no figure of a comparison contains.
pub const NOT_MODELLED: &str = "trap and system call entry and exit, real inter-processor \
     interrupts, cache and TLB misses of user code, devices";

/// How the comparison was asked for.
#[derive(Clone, Debug, Serialize)]
pub struct About {
    /// The trace's path as given.
    pub trace: String,
    /// Design A as given.
    pub a: String,
    /// Design B as given.
    pub b: String,
    /// Passes wanted.
    pub passes: usize,
    /// Copies of the recorded process family that run at once.
    pub copies: u32,
    /// Memory of each simulated machine, in bytes.
    pub ram_bytes: u64,
    /// The device that files and swap are on, if its time is modelled.
    #[serde(skip)]
    pub device: Option<Device>,
    /// Slice length aimed at, in microseconds.
    pub slice_us: u64,
    /// Confidence of the intervals, as a share.
    pub confidence: f64,
    /// Bootstrap resamples.
    pub resamples: usize,
    /// Seed of the resampling.
    pub seed: u64,
}

/// One value for each arm.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Arms<T> {
    /// Design A.
    pub a: T,
    /// Design B.
    pub b: T,
    /// Design A in an engine of its own.
    pub control: T,
}

impl<T> Arms<T> {
    pub(super) fn of(value: impl FnMut(usize) -> T) -> Self {
        let [a, b, control] = [A, B, CONTROL].map(value);
        Self { a, b, control }
    }
}

/// A value with its interval, absent with too few passes.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Figure {
    /// The value.
    pub value: f64,
    /// Lower bound of the interval.
    pub low: Option<f64>,
    /// Upper bound.
    pub high: Option<f64>,
}

impl From<Estimate> for Figure {
    fn from(estimate: Estimate) -> Self {
        Self {
            value: estimate.value,
            low: estimate.interval.map(|interval| interval.low),
            high: estimate.interval.map(|interval| interval.high),
        }
    }
}

/// A verdict on B against A, as programs read it.
#[derive(Serialize)]
struct Answer {
    /// `difference` or `not-proven`.
    outcome: &'static str,
    /// With a difference, the design that needs less CPU time: `a` or `b`.
    less: Option<&'static str>,
    /// Without: as [`reason_name`] has them.
    reasons: Vec<&'static str>,
}

/// CPU time of one class of operation, from a pass of its own.
#[derive(Clone, Debug, Serialize)]
pub struct ClassRow {
    /// The class.
    pub class: &'static str,
    /// Operations of the class in the workload.
    pub ops: u64,
    /// Intervals timed, each a run of operations of the class.
    pub intervals: u64,
    /// CPU time without the clock's own cost, in nanoseconds.
    pub cpu_ns: Arms<u64>,
}

/// A count over the passes. They differ only where CPUs race.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Count {
    /// Median.
    pub median: u64,
    /// Smallest.
    pub low: u64,
    /// Largest.
    pub high: u64,
}

/// How often something happened in one pass.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Counted {
    /// Under design A.
    pub a: Count,
    /// Under design B.
    pub b: Count,
    /// Under the control, which has no part in the pass that counts atomics.
    pub control: Option<Count>,
}

/// In which passes something was counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CountedIn {
    /// In every timed pass.
    Timed,
    /// In the one pass over the instrumented build.
    Atomics,
}

/// A named event count.
#[derive(Clone, Debug, Serialize)]
pub struct CounterRow {
    /// What was counted.
    pub name: &'static str,
    /// Where.
    pub pass: CountedIn,
    /// How often in one pass.
    pub count: Counted,
}

/// Memory held for one purpose.
#[derive(Clone, Debug, Serialize)]
pub struct MemoryRow {
    /// What it holds.
    pub name: &'static str,
    /// Bytes at the end of the workload.
    pub end_bytes: Arms<Count>,
    /// Bytes at the peak.
    pub peak_bytes: Arms<Count>,
}

/// Operations of one pass that went otherwise than recorded.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Divergences {
    /// Those that the recording explains.
    pub explained: u64,
    /// Those that nothing explains.
    pub unexplained: u64,
}

/// A comparison.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// Version of the program.
    pub version: &'static str,
    /// How the comparison was asked for.
    pub about: About,
    /// Each arm's design, complete, as its engine states it.
    pub designs: Arms<String>,
    /// Operations of the workload.
    pub ops: usize,
    /// Simulated CPUs.
    pub cpus: usize,
    /// Slices of the workload.
    pub slices: usize,
    /// Complete passes.
    pub passes: usize,
    /// Whether the user stopped the run early.
    pub interrupted: bool,
    /// CPU time in the core, in nanoseconds.
    pub cpu_ns: Arms<Figure>,
    /// Wall-clock time of the slices, in nanoseconds.
    pub wall_ns: Arms<Figure>,
    /// What a device takes beside CPU time, if one is modelled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<ArmsWithDevice>,
    /// CPU time of B divided by that of A.
    pub ratio: Figure,
    /// CPU time of the control divided by that of A.
    pub control_ratio: Figure,
    /// Largest relative difference that is not told, as a share.
    #[serde(serialize_with = "total")]
    pub resolution: Option<Resolution>,
    /// The answer: how B stands against A.
    #[serde(serialize_with = "answer")]
    pub verdict: Verdict,
    /// Cost of the clock taken off each interval timed by class, in nanoseconds.
    pub clock_ns: u64,
    /// Time by class of operation.
    pub classes: Vec<ClassRow>,
    /// Event counts.
    pub counters: Vec<CounterRow>,
    /// Memory.
    pub memory: Vec<MemoryRow>,
    /// Divergences of the first pass.
    pub divergences: Arms<Divergences>,
    /// Rows of the kernbench block.
    pub kernbench: Vec<Row>,
    /// Sum of the slices' CPU times in each pass, in nanoseconds.
    pub pass_cpu_ns: Arms<Vec<u64>>,
    /// Time and memory along the workload.
    pub along: Along,
    /// What no figure contains.
    pub not_modelled: &'static str,
}

impl Report {
    /// Puts together what was measured and what it says.
    pub fn new(about: About, measured: &Measurement, analysis: &Analysis) -> Self {
        let passes = &measured.passes;
        Self {
            schema: SCHEMA,
            version: env!("CARGO_PKG_VERSION"),
            designs: Arms::of(|arm| measured.designs[arm].clone()),
            ops: measured.ops,
            cpus: measured.cpus,
            slices: measured.slices,
            passes: passes.len(),
            interrupted: measured.interrupted,
            cpu_ns: Arms::of(|arm| analysis.cpu_ns[arm].into()),
            wall_ns: Arms::of(|arm| analysis.wall_ns[arm].into()),
            device: about.device.clone().map(|device| {
                let cpu_ns = [A, B, CONTROL].map(|arm| analysis.cpu_ns[arm].value);
                ArmsWithDevice::new(device, passes, cpu_ns, measured.cpus)
            }),
            ratio: analysis.ratio.into(),
            control_ratio: analysis.control.into(),
            resolution: analysis.judged.resolution,
            verdict: analysis.judged.verdict,
            clock_ns: measured.clock_ns,
            classes: class_rows(measured),
            counters: counter_rows(passes, measured.atomics.as_deref()),
            memory: memory_rows(passes),
            divergences: Arms::of(|arm| Divergences {
                explained: passes[0].tallies[arm].explained,
                unexplained: passes[0].tallies[arm].unexplained,
            }),
            kernbench: kernbench_rows(&about, measured, analysis),
            pass_cpu_ns: Arms::of(|arm| {
                let sums = passes.iter().map(|pass| pass.cpu_ns[arm].iter().sum());
                sums.collect()
            }),
            along: Along::of(measured),
            not_modelled: NOT_MODELLED,
            about,
        }
    }
}

/// Writes a verdict on B against A as an [`Answer`].
pub(crate) fn answer<S: Serializer>(verdict: &Verdict, serializer: S) -> Result<S::Ok, S::Error> {
    let difference = |less| Answer {
        outcome: "difference",
        less: Some(less),
        reasons: Vec::new(),
    };
    let answer = match verdict {
        Verdict::Less => difference("b"),
        Verdict::More => difference("a"),
        Verdict::NotProven(reason) => Answer {
            outcome: "not-proven",
            less: None,
            reasons: vec![reason_name(*reason)],
        },
    };
    answer.serialize(serializer)
}

/// Writes a resolution as one number.
pub(crate) fn total<S: Serializer>(
    resolution: &Option<Resolution>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    resolution.map(|parts| parts.total()).serialize(serializer)
}

/// What programs read as the reason for no verdict.
pub(crate) fn reason_name(reason: Reason) -> &'static str {
    match reason {
        Reason::WithinChance => "within-chance",
        Reason::WithinStray => "within-control",
        Reason::TooFewPasses => "too-few-passes",
    }
}

fn class_rows(measured: &Measurement) -> Vec<ClassRow> {
    let net = |time: &ClassTime| {
        time.cpu_ns
            .saturating_sub(time.intervals * measured.clock_ns)
    };
    let row = |class: &Class| {
        let time = |arm: usize| &measured.classes[arm][*class as usize];
        ClassRow {
            class: class.name(),
            ops: time(A).ops,
            intervals: time(A).intervals,
            cpu_ns: Arms::of(|arm| net(time(arm))),
        }
    };
    let rows = Class::ALL.iter().map(row);
    rows.filter(|row| row.ops > 0).collect()
}

/// What the passes that have the value counted.
fn count(values: impl Iterator<Item = u64>) -> Count {
    let mut values: Vec<u64> = values.collect();
    values.sort_unstable();
    match values.as_slice() {
        [] => Count {
            median: 0,
            low: 0,
            high: 0,
        },
        [low, .., high] => Count {
            median: values[values.len() / 2],
            low: *low,
            high: *high,
        },
        [only] => Count {
            median: *only,
            low: *only,
            high: *only,
        },
    }
}

/// Names in the order of the first arm that has them: designs count different
/// things, and a name that one lacks counts 0 there.
fn names<'p>(lists: impl Iterator<Item = &'p [&'static str]>) -> Vec<&'static str> {
    let mut names: Vec<&'static str> = Vec::new();
    for name in lists.flatten() {
        if !names.contains(name) {
            names.push(name);
        }
    }
    names
}

/// What the timed passes counted, and then what only the pass that counts
/// atomic operations did.
fn counter_rows(passes: &[Pass], atomics: Option<&[Counters]>) -> Vec<CounterRow> {
    let find = |counters: &Counters, name| {
        let found = counters.iter().find(|row| row.0 == name);
        found.map(|row| row.1)
    };
    let names_of = |lists: &[Counters]| {
        let lists: Vec<Vec<&'static str>> = lists
            .iter()
            .map(|counters| counters.iter().map(|row| row.0).collect())
            .collect();
        names(lists.iter().map(Vec::as_slice))
    };
    let timed = names_of(&passes[0].counters);
    let row = |&name: &&'static str| {
        let over_passes = |arm: usize| {
            let values = passes.iter().map(|pass| &pass.counters[arm]);
            count(values.filter_map(|counters| find(counters, name)))
        };
        CounterRow {
            name,
            pass: CountedIn::Timed,
            count: Counted {
                a: over_passes(A),
                b: over_passes(B),
                control: Some(over_passes(CONTROL)),
            },
        }
    };
    let mut rows: Vec<CounterRow> = timed.iter().map(row).collect();
    let Some(counters) = atomics else {
        return rows;
    };
    let counted_once = names_of(counters);
    let added = counted_once.iter().filter(|name| !timed.contains(name));
    rows.extend(added.map(|&name| {
        let once = |arm: usize| count(find(&counters[arm], name).into_iter());
        CounterRow {
            name,
            pass: CountedIn::Atomics,
            count: Counted {
                a: once(A),
                b: once(B),
                control: None,
            },
        }
    }));
    rows
}

fn memory_rows(passes: &[Pass]) -> Vec<MemoryRow> {
    let lists: Vec<Vec<&'static str>> = (0..ARMS)
        .map(|arm| passes[0].memory[arm].iter().map(|row| row.0).collect())
        .collect();
    let row = |name| {
        let bytes = |arm: usize, value: fn(&(&str, u64, u64)) -> u64| {
            count(passes.iter().filter_map(|pass| {
                let found = pass.memory[arm].iter().find(|row| row.0 == name);
                found.map(value)
            }))
        };
        MemoryRow {
            name,
            end_bytes: Arms::of(|arm| bytes(arm, |row| row.1)),
            peak_bytes: Arms::of(|arm| bytes(arm, |row| row.2)),
        }
    };
    let names = names(lists.iter().map(Vec::as_slice));
    names.into_iter().map(row).collect()
}

fn kernbench_rows(about: &About, measured: &Measurement, analysis: &Analysis) -> Vec<Row> {
    let names = Names::of([A, B].map(|arm| measured.designs[arm].as_str()));
    [(A, "A", &about.a), (B, "B", &about.b)]
        .map(|(arm, name, design)| {
            let short = names.named(arm, name);
            let full = match short == name {
                true => format!("{name} {design}"),
                false => short,
            };
            let elapsed_s = analysis.wall_ns[arm].value / 1e9;
            let system_s = analysis.cpu_ns[arm].value / 1e9;
            Row {
                label: match full.chars().count() {
                    0..=kernbench::LABEL => full,
                    _ => name.to_owned(),
                },
                elapsed_s,
                system_s,
                user_s: Some(0.0),
                cpu_percent: Some(match elapsed_s > 0.0 {
                    true => 100.0 * system_s / elapsed_s,
                    false => 0.0,
                }),
            }
        })
        .to_vec()
}
