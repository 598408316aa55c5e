//! One design on one machine over time: whether it got slower, and whether that is proven.
//!
//! Results of the same program are *repeats*: they differ only in what runs differ by. How
//! far they do is part of the resolution of every comparison between programs.

use vellum_results::history::{Point, Trend};

use super::difference::change;
use super::{Kept, Series, host_words, is_same_host};
use crate::compare::Estimate;

/// Ratios of each run to the one before it, of those that the same program made.
pub fn repeats(runs: &[(&Kept, &Series)]) -> Vec<Estimate> {
    let mut ratios = Vec::new();
    for (index, (later, series)) in runs.iter().enumerate() {
        let program = &later.loaded.run.program;
        let is_same = |(kept, _): &&(&Kept, &Series)| kept.loaded.run.program == *program;
        let before = runs[..index].iter().rev().find(is_same);
        if let (false, Some((_, before))) = (program.is_empty(), before) {
            ratios.extend(series.against(before, &[]).map(|apart| apart.ratio));
        }
    }
    ratios
}

/// The trends of all series that `wanted` takes, of results in the order of time.
pub fn trends(results: &[Kept], wanted: impl Fn(&Kept, &Series) -> bool) -> Vec<Trend> {
    let mut groups: Vec<Vec<(&Kept, &Series)>> = Vec::new();
    for kept in results.iter().filter(|kept| kept.host().is_some()) {
        let host = &kept.loaded.run.host;
        for series in kept.series.iter().filter(|series| wanted(kept, series)) {
            let group = groups.iter_mut().find(|group| {
                let (first, of_first) = group[0];
                is_same_host(&first.loaded.run.host, host) && of_first.is_same(series)
            });
            match group {
                Some(group) => group.push((kept, series)),
                None => groups.push(vec![(kept, series)]),
            }
        }
    }
    groups.iter().map(|group| trend(group)).collect()
}

fn trend(group: &[(&Kept, &Series)]) -> Trend {
    let (first, of_first) = group[0];
    let repeats = repeats(group);
    let points = group.iter().map(|(kept, series)| Point {
        name: kept.name.clone(),
        started: kept.loaded.run.started.clone(),
        program: kept.loaded.run.program.clone(),
        kernel: kept.loaded.run.host.kernel.clone(),
        value_ns: series.value(),
        ratio: series.value() / of_first.value(),
    });
    let change = match group {
        [(_, first), .., (_, last)] => {
            let apart = last.against(first, &repeats);
            apart.map(|apart| change(last, &apart))
        }
        _ => None,
    };
    Trend {
        name: of_first.name.clone(),
        setting: of_first.setting.clone(),
        design: of_first.design.clone(),
        host: host_words(&first.loaded.run.host),
        points: points.collect(),
        repeats: repeats.len(),
        change,
    }
}
