//! What is shown of each kind of result.
//!
//! A module takes one kind and gives its [`Shown`]: a title, the answer in a sentence,
//! and sections. What several kinds have is in [`arms`].

mod advise;
mod arms;
mod bench;
mod compare;
mod flame;
mod kolivas;
mod linux;
mod memory;
mod plan;
mod replay;
mod reproduce;
mod scale;
mod sim;
mod sweep;
mod tlb;

use maud::Markup;

use crate::draw::chart::Chart;
use crate::draw::marks::Arm;
use crate::draw::standalone::Picture;
use vellum_results::{Content, Figure, Loaded};

/// A result as it is shown.
#[derive(Clone, Debug)]
pub struct Shown {
    /// What was done, in a few words.
    pub title: String,
    /// The answer.
    pub answer: Answer,
    /// The sections, in order.
    pub sections: Vec<Section>,
    /// What is said of how it was made: name and value.
    pub facts: Vec<(String, String)>,
}

/// The answer of a result.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Answer {
    /// In one sentence or two.
    pub sentence: String,
    /// What the second design needs by what the first does, where there are two.
    pub ratio: Option<Figure>,
    /// What the first needs once more by what it does.
    pub control: Option<Figure>,
    /// The largest difference that is not told, as a share.
    pub resolution: Option<f64>,
    /// Whether a difference is told; absent where nothing is compared.
    pub told: Option<bool>,
    /// What a reader must know first: that it was interrupted, or is no result.
    pub warning: Option<String>,
}

/// A part of what is shown.
#[derive(Clone, Debug)]
pub struct Section {
    /// Its heading.
    pub heading: String,
    /// What is in it.
    pub body: Markup,
}

impl Section {
    fn new(heading: impl Into<String>, body: Markup) -> Self {
        Self {
            heading: heading.into(),
            body,
        }
    }
}

/// One of what is compared, as it is named.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Named {
    /// Its colour and shape.
    pub arm: Arm,
    /// `A`, `B`, …, `A'`.
    pub label: String,
    /// The design or kernel, in short.
    pub name: String,
}

impl Named {
    fn new(arm: Arm, label: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            arm,
            label: label.into(),
            name: name.into(),
        }
    }

    /// Label and name.
    pub fn whole(&self) -> String {
        format!("{} {}", self.label, self.name)
    }
}

/// A result as one picture; none of kinds that have none.
pub fn picture(result: &Loaded) -> Option<Picture> {
    let of_charts = |charts: Vec<Chart>| {
        let shown = show(result);
        Picture {
            title: shown.title,
            lines: Vec::new(),
            ratios: Vec::new(),
            resolution: None,
            charts,
        }
    };
    match &result.content {
        Content::Compare(compare) => Some(compare::picture(compare)),
        Content::Scale(scale) => Some(of_charts(scale::charts(scale).to_vec())),
        Content::SimSweep(sweep) => Some(of_charts(sim::charts(sweep).to_vec())),
        Content::Memory(plan) => Some(of_charts(memory::charts(plan).to_vec())),
        Content::Plan(plan) => Some(of_charts(plan::charts(plan))),
        _ => None,
    }
}

/// Shows a result.
pub fn show(result: &Loaded) -> Shown {
    match &result.content {
        Content::Advice(advice) => advise::show(advice),
        Content::Compare(compare) => compare::show(compare),
        Content::Bench(bench) => bench::show(bench),
        Content::Kolivas(kolivas) => kolivas::show(kolivas),
        Content::Replay(replay) => replay::show(replay),
        Content::Reproduce(reproduction) => reproduce::show(reproduction),
        Content::Host(saved) => linux::show_replay(saved),
        Content::HostCompare(comparison) => linux::show_against_core(comparison),
        Content::SavedCompare(comparison) => linux::show_saved(comparison),
        Content::Scale(scale) => scale::show(scale),
        Content::Sim(findings) => sim::show(findings),
        Content::SimSweep(sweep) => sim::show_sweep(sweep),
        Content::SimBench(bench) => sim::show_bench(bench),
        Content::Memory(plan) => memory::show(plan),
        Content::Tlb(plan) => tlb::show(plan),
        Content::Plan(plan) => plan::show(plan),
        Content::Sweep(sweep) => sweep::show(sweep),
    }
}
