//! A spec as TOML has it, with the place of each value.

use serde::Deserialize;
use toml::Spanned;

/// Values with their places.
pub type List<T> = Option<Spanned<Vec<Spanned<T>>>>;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct File {
    pub name: Option<Spanned<String>>,
    pub results: Option<Spanned<String>>,
    pub jobs: Option<Spanned<i64>>,
    #[serde(default)]
    pub grid: Vec<Spanned<Grid>>,
    pub slurm: Option<Slurm>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Grid {
    pub run: Option<Spanned<String>>,
    pub traces: List<String>,
    pub workloads: List<String>,
    pub benchmarks: List<String>,
    pub machines: List<String>,
    pub designs: List<String>,
    pub cpus: List<i64>,
    pub copies: List<i64>,
    pub ram: List<String>,
    pub scales: List<f64>,
    pub seeds: List<i64>,
    pub passes: Option<Spanned<i64>>,
    pub window: Option<Spanned<i64>>,
    pub options: List<String>,
    pub memory: Option<Spanned<String>>,
    pub time: Option<Spanned<String>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Slurm {
    pub hosts: List<String>,
    pub partition: Option<Spanned<String>>,
    pub account: Option<Spanned<String>>,
    pub memory: Option<Spanned<String>>,
    pub time: Option<Spanned<String>>,
    pub at_once: Option<Spanned<i64>>,
    pub traces: Option<Spanned<String>>,
    pub attempts: Option<Spanned<i64>>,
    pub options: List<String>,
}

impl Grid {
    /// The keys that it has, with their places.
    pub fn given(&self) -> Vec<(&'static str, std::ops::Range<usize>)> {
        fn list<T>(list: &List<T>) -> Option<std::ops::Range<usize>> {
            list.as_ref().map(Spanned::span)
        }
        fn one<T>(one: &Option<Spanned<T>>) -> Option<std::ops::Range<usize>> {
            one.as_ref().map(Spanned::span)
        }
        let all = [
            ("run", one(&self.run)),
            ("traces", list(&self.traces)),
            ("workloads", list(&self.workloads)),
            ("benchmarks", list(&self.benchmarks)),
            ("machines", list(&self.machines)),
            ("designs", list(&self.designs)),
            ("cpus", list(&self.cpus)),
            ("copies", list(&self.copies)),
            ("ram", list(&self.ram)),
            ("scales", list(&self.scales)),
            ("seeds", list(&self.seeds)),
            ("passes", one(&self.passes)),
            ("window", one(&self.window)),
            ("options", list(&self.options)),
            ("memory", one(&self.memory)),
            ("time", one(&self.time)),
        ];
        let given = all
            .into_iter()
            .filter_map(|(name, span)| Some((name, span?)));
        given.collect()
    }
}
