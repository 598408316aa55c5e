//! What a benchmark found, in the form in which programs read it.
//!
//! The types are those of the JSON.

use vellum_results::bench::{About, Bench};

use super::request::Request;
use crate::compare::{Contrast, Method};
use crate::on::On;
use crate::report::names::letter;
use crate::stats::{Samples, quantile};

pub use vellum_results::Standing;
pub use vellum_results::bench::{Arm, ArmFigure, BenchRun as Run, Figure, Row, Share, Spread};

/// The arms for things called `given`, of which the first is the base, with
/// the control at the end. `full` are their complete descriptions, in the
/// same order, the control's included or not.
pub fn arms_of(given: &[String], full: &[String]) -> Vec<Arm> {
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

/// Makes a figure of raw times: medians of each part over the passes, added
/// up, against the first arm, with the control as the measure of chance, as
/// `docs/measuring.md` describes.
///
/// # Panics
/// There are no arms, no passes, or passes with different parts.
pub fn figure_of(input: &Input<'_>, method: &Method) -> Figure {
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
            resolution: judged
                .and_then(|judged| judged.resolution)
                .map(|parts| parts.total()),
            standing,
            spread: input.spread_units.and_then(|units| spread(passes, units)),
            passes: passes
                .iter()
                .map(|parts| parts.iter().sum::<u64>() as f64 / input.units)
                .collect(),
        }
    });
    Figure {
        arms: arms.collect(),
        name: input.name.to_owned(),
        per: input.per.to_owned(),
        units: input.units,
        clock: input.clock.to_owned(),
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

/// Findings with how they were asked for.
pub fn result(request: &Request, findings: &Findings) -> Bench {
    let sizes = request.sizes.iter();
    Bench {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        benchmark: request.benchmark.name.to_owned(),
        on: request.on.name().to_owned(),
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
        arms: findings.arms.clone(),
        runs: findings.runs.clone(),
        blocks: findings.blocks.clone(),
        notes: findings.notes.clone(),
        interrupted: findings.interrupted,
        profile: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::Verdict;

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
        let figure = figure_of(&input, &METHOD);
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
        let figure = figure_of(&input, &METHOD);
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
        let arms = arms_of(&given, &full);
        let labels: Vec<&str> = arms.iter().map(|arm| arm.label.as_str()).collect();
        assert_eq!(labels, ["A", "B", "A'"]);
        assert_eq!(
            (arms[2].given.as_str(), arms[2].full.as_str()),
            ("x", "x,z")
        );
    }
}
