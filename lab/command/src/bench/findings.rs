//! What a benchmark found, in the form in which programs read it.
//!
//! Field names and units are the JSON schema documented in `docs/workloads.md`.

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use super::request::{On, Request};
use crate::compare::{Contrast, Method, Resolution, Verdict};
use crate::report::published::Block;
use crate::report::{kernbench, model};
use crate::stats::{Samples, quantile};

/// Name and version of the JSON schema.
pub const SCHEMA: &str = "vellum-bench/1";

/// One of what was compared.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Arm {
    /// `A`, `B`, … and `A'` for the control.
    pub label: String,
    /// As it was asked for; the kernel's release on the host.
    pub given: String,
    /// The complete design as its engine states it; the same as `given` on the host.
    pub full: String,
}

impl Arm {
    /// The arms for things called `given`, of which the first is the base, with
    /// the control at the end. `full` are their complete descriptions, in the
    /// same order, the control's included or not.
    pub fn list(given: &[String], full: &[String]) -> Vec<Arm> {
        let arm = |index: usize, label: String, of: usize| Arm {
            label,
            given: given[of].clone(),
            full: full.get(index).unwrap_or(&given[of]).clone(),
        };
        let mut arms: Vec<Arm> = (0..given.len())
            .map(|index| arm(index, letter(index), index))
            .collect();
        arms.push(arm(0, "A'".to_owned(), 0));
        arms
    }
}

/// `A`, `B`, … `Z`, `A2`, …
fn letter(index: usize) -> String {
    let letter = char::from(b'A' + (index % 26) as u8);
    match index / 26 {
        0 => letter.to_string(),
        round => format!("{letter}{}", round + 1),
    }
}

/// Everything that a benchmark found.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// What was compared; the control last.
    pub arms: Vec<Arm>,
    /// One for each load, shape or variant.
    pub runs: Vec<Run>,
    /// Tables in historic formats, each a text of whole lines.
    pub blocks: Vec<String>,
    /// What a reader must know to read the figures rightly, one sentence each.
    pub notes: Vec<String>,
    /// Whether the user ended it early.
    pub interrupted: bool,
}

/// One load, shape or variant of a benchmark.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Run {
    /// Which.
    pub title: String,
    /// What it consisted of, one sentence each.
    pub facts: Vec<String>,
    /// Complete passes.
    pub passes: usize,
    /// Memory of each simulated machine, in bytes; null on the host.
    pub ram_bytes: Option<u64>,
    /// The figures.
    pub figures: Vec<Figure>,
    /// Event counts of one pass, medians over the passes.
    pub counters: Vec<Row>,
    /// Bytes held at the peak, medians over the passes.
    pub memory: Vec<Row>,
    /// Events for each lookup through reverse mapping, by arm; empty where nothing
    /// is looked up.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub per_lookup: Vec<Share>,
    /// What too little memory cost, by arm, where there is too little.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reclaim: Vec<Share>,
    /// Samples in the shape of tables that were published, where there are some.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub blocks: Vec<Block>,
    /// Rows of the kernbench block, where there is one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub kernbench: Vec<kernbench::Row>,
}

/// A named number for each arm, in their order.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Row {
    /// What was counted.
    pub name: String,
    /// By arm. Null where an arm does not count it.
    pub values: Vec<Option<u64>>,
}

/// A named share or figure for each arm, in their order.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Share {
    /// What it is.
    pub name: &'static str,
    /// By arm.
    pub values: Vec<f64>,
}

/// Raw times of one quantity.
#[derive(Clone, Debug)]
pub struct Input<'i> {
    /// What was timed.
    pub name: &'i str,
    /// What one unit of it is: "fault", "page", "build".
    pub per: &'i str,
    /// Units in one pass.
    pub units: f64,
    /// What it was timed with: "thread CPU time", "monotonic clock".
    pub clock: &'static str,
    /// Nanoseconds by arm (the control last), pass and part. Every pass of
    /// every arm has the same parts.
    pub times: Vec<Vec<Vec<u64>>>,
    /// Units in one part, if the parts are alike and their distribution says
    /// something.
    pub spread_units: Option<f64>,
}

/// One quantity under every arm.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    /// What was timed.
    pub name: String,
    /// What one unit of it is.
    pub per: String,
    /// Units in one pass.
    pub units: f64,
    /// What it was timed with.
    pub clock: &'static str,
    /// By arm, the control last.
    pub arms: Vec<ArmFigure>,
}

/// One quantity under one arm. Times are nanoseconds per unit.
#[derive(Clone, Debug, Serialize)]
pub struct ArmFigure {
    /// Time of one unit.
    pub value: f64,
    /// Bounds of its interval; null with too few passes.
    pub low: Option<f64>,
    /// Upper bound.
    pub high: Option<f64>,
    /// `value` divided by that of the first arm.
    pub ratio: f64,
    /// Bounds of the ratio.
    pub ratio_low: Option<f64>,
    /// Upper bound.
    pub ratio_high: Option<f64>,
    /// The largest relative difference to the first arm that is not told.
    #[serde(serialize_with = "model::total")]
    pub resolution: Option<Resolution>,
    /// What is said of it.
    #[serde(flatten)]
    pub standing: Standing,
    /// How the single parts are distributed, all passes together.
    pub spread: Option<Spread>,
    /// The sum of the parts in each pass, for statistics of one's own.
    pub passes: Vec<f64>,
}

/// What is said of an arm.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// It is what the others are held against.
    Base,
    /// It is the base once more.
    Control,
    /// A design and the verdict on it.
    Judged(Verdict),
}

/// As the fields `verdict` (`base`, `control`, `less`, `more` or `not-proven`) and
/// `reasons`, which `not-proven` has.
impl Serialize for Standing {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (name, reason) = match self {
            Standing::Base => ("base", None),
            Standing::Control => ("control", None),
            Standing::Judged(Verdict::Less) => ("less", None),
            Standing::Judged(Verdict::More) => ("more", None),
            Standing::Judged(Verdict::NotProven(reason)) => {
                ("not-proven", Some(model::reason_name(*reason)))
            }
        };
        let mut map = serializer.serialize_map(Some(2))?;
        map.serialize_entry("verdict", name)?;
        map.serialize_entry("reasons", reason.as_slice())?;
        map.end()
    }
}

/// A distribution of times per unit, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Spread {
    /// Parts that it is made of.
    pub parts: usize,
    /// The least.
    pub least: f64,
    /// 5th percentile.
    pub p5: f64,
    /// Median.
    pub median: f64,
    /// 95th percentile.
    pub p95: f64,
    /// 99th percentile.
    pub p99: f64,
    /// The most.
    pub most: f64,
}

impl Figure {
    /// Makes a figure of raw times: medians of each part over the passes, added
    /// up, against the first arm, with the control as the measure of chance, as
    /// `docs/measuring.md` describes.
    ///
    /// # Panics
    /// There are no arms, no passes, or passes with different parts.
    pub fn of(input: &Input<'_>, method: &Method) -> Self {
        let samples: Vec<Samples> = input
            .times
            .iter()
            .map(|passes| {
                let passes: Vec<&[u64]> = passes.iter().map(Vec::as_slice).collect();
                Samples::from_passes(&passes)
            })
            .collect();
        let contrast = Contrast::new(&samples, method);
        let arms = input.times.iter().enumerate().map(|(arm, passes)| {
            let (total, ratio) = (contrast.totals[arm], contrast.ratios[arm]);
            let each = |ns: f64| ns / input.units;
            let judged = match arm {
                0 => None,
                arm => contrast.judged.get(arm - 1),
            };
            let standing = match judged {
                Some(judged) => Standing::Judged(judged.verdict),
                None if arm == 0 => Standing::Base,
                None => Standing::Control,
            };
            ArmFigure {
                value: each(total.value),
                low: total.interval.map(|interval| each(interval.low)),
                high: total.interval.map(|interval| each(interval.high)),
                ratio: ratio.value,
                ratio_low: ratio.interval.map(|interval| interval.low),
                ratio_high: ratio.interval.map(|interval| interval.high),
                resolution: judged.and_then(|judged| judged.resolution),
                standing,
                spread: input.spread_units.and_then(|units| spread(passes, units)),
                passes: passes
                    .iter()
                    .map(|parts| parts.iter().sum::<u64>() as f64 / input.units)
                    .collect(),
            }
        });
        Self {
            arms: arms.collect(),
            name: input.name.to_owned(),
            per: input.per.to_owned(),
            units: input.units,
            clock: input.clock,
        }
    }
}

fn spread(passes: &[Vec<u64>], units: f64) -> Option<Spread> {
    let parts = passes.iter().flatten();
    let mut all: Vec<f64> = parts.map(|ns| *ns as f64 / units).collect();
    all.sort_by(f64::total_cmp);
    Some(Spread {
        parts: all.len(),
        least: *all.first()?,
        p5: quantile(&all, 0.05),
        median: quantile(&all, 0.5),
        p95: quantile(&all, 0.95),
        p99: quantile(&all, 0.99),
        most: *all.last()?,
    })
}

/// Median values by name. `lists` has, for each arm, the named values of each
/// pass; names come in the order of the first arm that has them.
pub fn rows(lists: &[Vec<Vec<(&'static str, u64)>>]) -> Vec<Row> {
    let mut names: Vec<&'static str> = Vec::new();
    for (name, _) in lists.iter().flatten().flatten() {
        if !names.contains(name) {
            names.push(name);
        }
    }
    let median = |passes: &Vec<Vec<(&'static str, u64)>>, name: &str| {
        let find = |pass: &Vec<(&'static str, u64)>| {
            let found = pass.iter().find(|row| row.0 == name);
            found.map(|row| row.1)
        };
        let mut values: Vec<u64> = passes.iter().filter_map(find).collect();
        values.sort_unstable();
        values.get(values.len() / 2).copied()
    };
    let row = |name: &'static str| Row {
        name: name.to_owned(),
        values: lists.iter().map(|passes| median(passes, name)).collect(),
    };
    names.into_iter().map(row).collect()
}

/// Findings with how they were asked for: the JSON object.
#[derive(Clone, Debug, Serialize)]
pub struct Report<'f> {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// Version of the program.
    pub version: &'static str,
    /// Name of the benchmark.
    pub benchmark: &'static str,
    /// Where it ran.
    pub on: On,
    /// How it was asked for.
    pub about: About,
    /// What was compared; the control last.
    pub arms: &'f [Arm],
    /// One for each load, shape or variant.
    pub runs: &'f [Run],
    /// Tables in historic formats.
    pub blocks: &'f [String],
    /// What a reader must know.
    pub notes: &'f [String],
    /// Whether the user ended it early.
    pub interrupted: bool,
}

/// How a benchmark was asked for.
#[derive(Clone, Debug, Serialize)]
pub struct About {
    /// Passes wanted.
    pub passes: usize,
    /// Memory of each simulated machine as it was asked for, in bytes; null if it
    /// was not, and on the host.
    pub ram_bytes: Option<u64>,
    /// The device that pages leave for and come from, if it was named.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// Slice length aimed at, in microseconds.
    pub slice_us: u64,
    /// The benchmark's sizes.
    pub sizes: serde_json::Map<String, serde_json::Value>,
    /// Confidence of the intervals, as a share.
    pub confidence: f64,
    /// Bootstrap resamples.
    pub resamples: usize,
    /// Seed of everything drawn.
    pub seed: u64,
}

impl<'f> Report<'f> {
    /// The report of `findings` on `request`.
    pub fn new(request: &Request, findings: &'f Findings) -> Self {
        let sizes = request.sizes.iter();
        Self {
            schema: SCHEMA,
            version: env!("CARGO_PKG_VERSION"),
            benchmark: request.benchmark.name,
            on: request.on,
            about: About {
                passes: request.passes,
                ram_bytes: request.ram_bytes.filter(|_| request.on == On::Core),
                device: request.device.clone(),
                slice_us: request.slice_us,
                sizes: sizes.map(|(n, v)| (n.to_owned(), v.into())).collect(),
                confidence: request.method.confidence,
                resamples: request.method.resamples,
                seed: request.method.seed,
            },
            arms: &findings.arms,
            runs: &findings.runs,
            blocks: &findings.blocks,
            notes: &findings.notes,
            interrupted: findings.interrupted,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const METHOD: Method = Method {
        confidence: 0.95,
        resamples: 200,
        seed: 1,
    };

    #[test]
    fn a_figure_holds_each_arm_against_the_first_and_the_control() {
        let pass = |ns: u64| vec![vec![10 * ns, 30 * ns]; 6];
        let input = Input {
            name: "fault",
            per: "fault",
            units: 8.0,
            clock: "thread CPU time",
            times: vec![pass(100), pass(80), pass(125), pass(100)],
            spread_units: Some(4.0),
        };
        let figure = Figure::of(&input, &METHOD);
        let values: Vec<f64> = figure.arms.iter().map(|arm| arm.value).collect();
        assert_eq!(values, [500.0, 400.0, 625.0, 500.0]);
        let standings: Vec<Standing> = figure.arms.iter().map(|arm| arm.standing).collect();
        let judged = [Verdict::Less, Verdict::More].map(Standing::Judged);
        assert_eq!(
            standings,
            [Standing::Base, judged[0], judged[1], Standing::Control]
        );
        let json = serde_json::to_value(&figure).expect("serialised");
        let verdicts = ["base", "less", "more", "control"];
        for (arm, verdict) in verdicts.iter().enumerate() {
            assert_eq!(json["arms"][arm]["verdict"], *verdict);
        }
        assert_eq!(figure.arms[1].ratio, 0.8);
        let spread = figure.arms[0].spread.expect("parts are alike");
        assert_eq!(
            (spread.least, spread.most, spread.parts),
            (250.0, 750.0, 12)
        );
    }

    #[test]
    fn few_passes_prove_nothing_and_say_so() {
        let input = Input {
            name: "x",
            per: "page",
            units: 1.0,
            clock: "thread CPU time",
            times: vec![vec![vec![10]; 2], vec![vec![1]; 2], vec![vec![10]; 2]],
            spread_units: None,
        };
        let figure = Figure::of(&input, &METHOD);
        let json = serde_json::to_value(&figure).expect("serialised");
        assert_eq!(json["arms"][1]["verdict"], "not-proven");
        assert_eq!(json["arms"][1]["reasons"][0], "too-few-passes");
        assert_eq!(json["arms"][1]["resolution"], serde_json::Value::Null);
        assert_eq!(json["arms"][1]["ratio_low"], serde_json::Value::Null);
    }

    #[test]
    fn rows_are_medians_and_know_what_an_arm_does_not_count() {
        let lists = vec![
            vec![vec![("a", 1)], vec![("a", 3)], vec![("a", 2)]],
            vec![vec![("a", 7), ("b", 4)]],
        ];
        let rows = rows(&lists);
        assert_eq!(rows[0].values, [Some(2), Some(7)]);
        assert_eq!(
            (rows[1].name.as_str(), &rows[1].values),
            ("b", &vec![None, Some(4)])
        );
    }

    #[test]
    fn arms_have_letters_and_the_control_is_the_first_again() {
        let given = ["x".to_owned(), "y".to_owned()];
        let full = ["x,z".to_owned(), "y,z".to_owned(), "x,z".to_owned()];
        let arms = Arm::list(&given, &full);
        let labels: Vec<&str> = arms.iter().map(|arm| arm.label.as_str()).collect();
        assert_eq!(labels, ["A", "B", "A'"]);
        assert_eq!(
            (arms[2].given.as_str(), arms[2].full.as_str()),
            ("x", "x,z")
        );
    }
}
