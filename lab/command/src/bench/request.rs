//! What a benchmark is asked to do.

use std::path::PathBuf;
use std::sync::Arc;

use super::{Benchmark, Size, Variant};
use crate::compare::Method;
use crate::on::On;
use vellum_profile::sample::Profiler;
use vellum_terminal::progress::Style;

/// Passes if no number is given.
pub const PASSES: u16 = 6;

/// Confidence of all intervals.
pub const CONFIDENCE: f64 = 0.95;

/// Bootstrap resamples.
const RESAMPLES: usize = 2000;

/// Microseconds of a slice.
const SLICE_US: u64 = 1000;

/// What a benchmark is asked to do.
#[derive(Clone, Debug)]
pub struct Request {
    /// Which benchmark.
    pub benchmark: &'static Benchmark,
    /// Where.
    pub on: On,
    /// Designs in option syntax, the base first. At least one.
    pub designs: Vec<String>,
    /// Passes over the workload.
    pub passes: usize,
    /// Simulated CPUs, where the workload can use several.
    pub cpus: usize,
    /// Memory of each simulated machine, in bytes; none: what the workload needs.
    pub ram_bytes: Option<u64>,
    /// How much of it is low memory, if not all that a format can have.
    pub low_bytes: Option<u64>,
    /// The device that pages leave for and come from, where the benchmark has one; none for
    /// its own choice.
    pub device: Option<String>,
    /// Length of a slice, in microseconds of CPU time.
    pub slice_us: u64,
    /// How intervals are drawn; its seed decides orders and shuffles, too.
    pub method: Method,
    /// The benchmark's numbers.
    pub sizes: Sizes,
    /// The variants wanted; empty for a benchmark without variants.
    pub variants: Vec<&'static Variant>,
    /// Traces, for the benchmarks that replay some.
    pub traces: Vec<PathBuf>,
    /// A source tree to build, for kernbench on the host.
    pub tree: Option<PathBuf>,
    /// How it is configured, where the benchmark does that: a target of make, or a file.
    pub configuration: Option<String>,
    /// What is made of it; none for the benchmark's own choice.
    pub target: Option<String>,
    /// How to show progress.
    pub style: Style,
    /// What samples the designs on the core, if they are profiled.
    pub profiler: Option<Arc<Profiler>>,
}

impl Request {
    /// The benchmark called `name` with its own designs and variants, and with `sizes` as
    /// [`Sizes::new`] takes them.
    ///
    /// # Errors
    /// There is no such benchmark, or it has no such size.
    pub fn new(name: &str, on: On, (scale, sizes): (f64, &[String])) -> Result<Self, String> {
        let benchmark = super::find(name)?;
        let designs = benchmark.designs.iter();
        Ok(Self {
            benchmark,
            on,
            designs: designs.map(|&design| design.to_owned()).collect(),
            passes: usize::from(PASSES),
            cpus: 1,
            ram_bytes: None,
            low_bytes: None,
            device: None,
            slice_us: SLICE_US,
            method: Method {
                confidence: CONFIDENCE,
                resamples: RESAMPLES,
                seed: 1,
            },
            sizes: Sizes::new(benchmark, scale, sizes)?,
            variants: variants(benchmark, &[])?,
            traces: Vec::new(),
            tree: None,
            configuration: None,
            target: None,
            style: Style::Quiet,
            profiler: None,
        })
    }
}

/// A benchmark's numbers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sizes(Vec<(&'static str, u64)>);

impl Sizes {
    /// The sizes of `benchmark`, multiplied by `scale` where they scale (and at
    /// least 1), but as in `given` (`name=value`) where that names them.
    ///
    /// # Errors
    /// `given` names no size of the benchmark, or gives no number; the text says
    /// what there is.
    pub fn new(benchmark: &Benchmark, scale: f64, given: &[String]) -> Result<Self, String> {
        let scaled = |size: &Size| match size.scales {
            true => ((size.default as f64 * scale).round() as u64).max(1),
            false => size.default,
        };
        let rows = benchmark.sizes.iter();
        let mut sizes: Vec<_> = rows.map(|size| (size.name, scaled(size))).collect();
        for assignment in given {
            let (name, value) = assignment.split_once('=').ok_or_else(|| {
                format!("`{assignment}` is no size; write NAME=NUMBER, as in tasks=10")
            })?;
            let mut rows = sizes.iter_mut().zip(benchmark.sizes);
            let (row, size) = rows.find(|(row, _)| row.0 == name).ok_or_else(|| {
                let names: Vec<&str> = benchmark.sizes.iter().map(|size| size.name).collect();
                format!(
                    "{} has no size `{name}`; it has {}",
                    benchmark.name,
                    names.join(", ")
                )
            })?;
            row.1 = value
                .parse()
                .ok()
                .filter(|value| *value <= 1 << 40)
                .ok_or_else(|| format!("`{value}` is no number for the size {name}"))?;
            if row.1 < size.least {
                return Err(format!(
                    "{name}={value} is too small: at least {}",
                    size.least
                ));
            }
        }
        Ok(Self(sizes))
    }

    /// The size called `name`.
    ///
    /// # Panics
    /// The benchmark has no such size.
    pub fn get(&self, name: &str) -> u64 {
        let found = self.0.iter().find(|row| row.0 == name);
        match found {
            Some(row) => row.1,
            None => panic!("no size is called {name}"),
        }
    }

    /// All of them, in the order of the benchmark.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        self.0.iter().copied()
    }
}

/// The variants of `benchmark` called `names`; all for `all`, and for none those that it runs
/// then.
///
/// # Errors
/// There is none of such a name; the text says which there are.
pub fn variants(
    benchmark: &'static Benchmark,
    names: &[String],
) -> Result<Vec<&'static Variant>, String> {
    if names.is_empty() {
        return Ok(benchmark.default_variants().iter().collect());
    }
    if names.iter().any(|name| name == "all") {
        return Ok(benchmark.variants.iter().collect());
    }
    let find = |name: &String| {
        let found = benchmark.variants.iter().find(|v| v.name == name);
        found.ok_or_else(|| match benchmark.variants {
            [] => format!("{} has no variants", benchmark.name),
            some => {
                let names: Vec<&str> = some.iter().map(|variant| variant.name).collect();
                format!(
                    "{} has no variant `{name}`; it has {} and all",
                    benchmark.name,
                    names.join(", ")
                )
            }
        })
    };
    names.iter().map(find).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::{BENCHMARKS, find};

    #[test]
    fn sizes_scale_unless_they_are_given() {
        let benchmark = find("rmap-test").expect("there is one");
        let given = ["regions=7".to_owned()];
        let sizes = Sizes::new(benchmark, 0.1, &given).expect("sizes");
        assert_eq!(sizes.get("tasks"), 10);
        assert_eq!(sizes.get("regions"), 7);
        assert_eq!(sizes.get("pages"), 600, "does not scale");
        let tiny = Sizes::new(benchmark, 1e-9, &[]).expect("sizes");
        assert_eq!(tiny.get("tasks"), 1);
    }

    #[test]
    fn what_a_benchmark_has_not_is_refused_naming_what_it_has() {
        let benchmark = find("rmap-test").expect("there is one");
        let refused = |given: &str| {
            let given = [given.to_owned()];
            Sizes::new(benchmark, 1.0, &given).expect_err("refused")
        };
        assert!(refused("forks=3").contains("tasks"), "names the sizes");
        assert!(refused("tasks").contains("NAME=NUMBER"));
        assert!(refused("tasks=many").contains("many"));
        assert!(refused("tasks=0").contains("at least 1"));
        let kernbench = find("kernbench").expect("there is one");
        assert!(Sizes::new(kernbench, 1.0, &["heavy=0".to_owned()]).is_ok());
        assert!(find("quake").expect_err("refused").contains("rmap-test"));
        let wanted = ["sideways".to_owned()];
        let forkfault = find("forkfault").expect("there is one");
        let refused = variants(forkfault, &wanted).expect_err("refused");
        assert!(refused.contains("migrate"), "{refused}");
        let without = find("fork-family").expect("there is one");
        let refused = variants(without, &wanted).expect_err("refused");
        assert!(refused.contains("no variants"), "{refused}");
    }

    #[test]
    fn every_benchmark_runs_somewhere_and_has_names_of_its_own() {
        for benchmark in BENCHMARKS {
            assert!(
                benchmark.core.or(benchmark.linux).is_some(),
                "{}",
                benchmark.name
            );
            assert!(!benchmark.designs.is_empty(), "{}", benchmark.name);
            let mut names: Vec<&str> = benchmark.sizes.iter().map(|size| size.name).collect();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), benchmark.sizes.len(), "{}", benchmark.name);
        }
    }
}
