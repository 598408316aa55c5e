//! The number that a result comes to.

use vellum_page::headline;
use vellum_results::linux::middle;
use vellum_results::{Content, Figure, Loaded, replay};

/// What a cell measured.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Measured {
    /// What it is called, its unit, and it.
    pub value: Option<(&'static str, String, f64)>,
    /// The second design by the first, in kinds that compare.
    pub ratio: Option<Figure>,
    /// Whether a difference is told.
    pub told: Option<bool>,
    /// In a sentence.
    pub answer: String,
}

const S: &str = "s";

/// What a result says.
pub fn measured(result: &Loaded) -> Measured {
    let answer = headline(result);
    Measured {
        value: value(&result.content),
        ratio: answer.ratio,
        told: answer.ratio.and(answer.told),
        answer: match answer.warning {
            Some(warning) => format!("{} {warning}", answer.sentence),
            None => answer.sentence,
        },
    }
}

fn value(content: &Content) -> Option<(&'static str, String, f64)> {
    let seconds = |what: &'static str, ns: f64| Some((what, S.to_owned(), ns / 1e9));
    match content {
        Content::Replay(replay::Replay { core_ns, .. }) => {
            seconds("CPU time in the core", *core_ns as f64)
        }
        Content::Host(saved) => {
            seconds("CPU time of the events", middle(&saved.times.host.net_ns)?)
        }
        Content::Sim(findings) => {
            let elapsed = findings.sides.first()?.figure("elapsed_s")?;
            Some(("elapsed", S.to_owned(), elapsed.median))
        }
        Content::Scale(scale) => {
            let point = scale.curves.first()?.points.last()?;
            Some(("throughput", format!("{}/s", scale.unit), point.rate.median))
        }
        _ => None,
    }
}
