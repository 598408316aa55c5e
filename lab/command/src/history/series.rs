//! What a result measured by pass, whatever command made it.

use vellum_results::run::TraceFile;
use vellum_results::{Content, Loaded, bench, linux, sim};

use super::METHOD;
use crate::compare::{Apart, Estimate, Values};

/// A quantity under one design, by pass.
#[derive(Clone, PartialEq, Debug)]
pub struct Series {
    /// What was measured, with its unit.
    pub name: String,
    /// Under what circumstances: series of others are of something else.
    pub setting: String,
    /// The design as it was asked for.
    pub design: String,
    /// The complete design.
    pub full: String,
    /// Nanoseconds by pass.
    pub values: Vec<f64>,
    /// The same of the run's first arm.
    pub base: Vec<f64>,
    /// And of its control; empty where there was none.
    pub control: Vec<f64>,
}

impl Series {
    /// Whether the other is the same quantity under the same design. `full` designs may
    /// differ: a later version of the program has more options.
    pub fn is_same(&self, other: &Series) -> bool {
        let key = |of: &Series| (of.name.clone(), of.setting.clone(), options(&of.design));
        key(self) == key(other)
    }

    /// Whether the design has all `options`, as in `rmap=chains,direct=on`.
    pub fn has(&self, wanted: &str) -> bool {
        let (full, given) = (options(&self.full), options(&self.design));
        let mut wanted = options(wanted).into_iter();
        wanted.all(|option| full.contains(&option) || given.contains(&option))
    }

    /// By pass, for a comparison with another run.
    fn values(&self) -> Values<'_> {
        Values {
            of: &self.values,
            base: &self.base,
            control: &self.control,
        }
    }

    /// This series against an older one of another run. `None` if one has no control.
    pub fn against(&self, older: &Series, repeats: &[Estimate]) -> Option<Apart> {
        Apart::new(older.values(), self.values(), repeats, &METHOD)
    }

    /// The median over the passes.
    pub fn value(&self) -> f64 {
        crate::stats::median(&self.values).unwrap_or(f64::NAN)
    }
}

/// The options of a design, in alphabetical order.
pub(super) fn options(design: &str) -> Vec<String> {
    let separators = |letter: char| letter == ',' || letter.is_whitespace();
    let parts = design.split(separators).filter(|part| !part.is_empty());
    let mut options: Vec<String> = parts.map(str::to_owned).collect();
    options.sort_unstable();
    options
}

/// All series of a result; none where it has nothing by pass.
pub fn of(loaded: &Loaded) -> Vec<Series> {
    let traces = loaded.run.traces.iter().map(identity);
    let trace = traces.collect::<Vec<_>>().join(" ");
    match &loaded.content {
        Content::Compare(compare) => {
            let (times, about) = (&compare.pass_cpu_ns, &compare.about);
            let series = |given: &str, full: &str, values: &[u64]| Series {
                name: "CPU time in the core".to_owned(),
                setting: format!("{trace}; {} copies, {} CPUs", about.copies, compare.cpus),
                design: given.to_owned(),
                full: full.to_owned(),
                values: floats(values),
                base: floats(&times.a),
                control: floats(&times.control),
            };
            let designs = &compare.designs;
            let a = series(&about.a, &designs.a, &times.a);
            match about.a == about.b {
                true => vec![a],
                false => vec![a, series(&about.b, &designs.b, &times.b)],
            }
        }
        Content::Bench(bench) => of_bench(bench, &trace),
        Content::Host(saved) => vec![of_host(saved)],
        Content::HostCompare(comparison) => vec![of_host(&comparison.host)],
        Content::Sim(findings) => of_simulation(findings, &trace),
        Content::SimSweep(sweep) => {
            let points = sweep.points.iter();
            points
                .flat_map(|point| of_simulation(point, &trace))
                .collect()
        }
        Content::SimBench(bench) => {
            let loads = bench.loads.iter();
            loads
                .flat_map(|load| {
                    let mut series = of_simulation(&load.findings, &trace);
                    for one in &mut series {
                        one.setting = format!("{}; {}", load.load, one.setting);
                    }
                    series
                })
                .collect()
        }
        Content::Replay(replay) => vec![Series {
            name: "CPU time in the core, replayed once".to_owned(),
            setting: format!("{trace}; {} copies, {} CPUs", replay.copies, replay.cpus),
            design: replay.design.clone(),
            full: replay.design.clone(),
            values: vec![replay.core_ns as f64],
            base: Vec::new(),
            control: Vec::new(),
        }],
        _ => Vec::new(),
    }
}

fn floats(values: &[u64]) -> Vec<f64> {
    values.iter().map(|&value| value as f64).collect()
}

/// What identifies a trace, wherever it lies.
fn identity(trace: &TraceFile) -> String {
    let digits = trace.sha256.get(..16).unwrap_or(&trace.sha256);
    format!("trace {digits}")
}

fn of_bench(bench: &bench::Bench, trace: &str) -> Vec<Series> {
    let sizes: Vec<String> = bench
        .about
        .sizes
        .iter()
        .map(|(name, size)| format!("{name}={size}"))
        .collect();
    let setting = format!(
        "{} on {}; {} {trace}",
        bench.benchmark,
        bench.on,
        sizes.join(" ")
    );
    let mut all = Vec::new();
    for run in &bench.runs {
        for figure in &run.figures {
            // The control is the last.
            let [base, .., control] = figure.arms.as_slice() else {
                continue;
            };
            let designs = figure.arms.iter().zip(&bench.arms).rev().skip(1).rev();
            all.extend(designs.map(|(measured, arm)| Series {
                name: format!("{}: {}, per {}", run.title, figure.name, figure.per),
                setting: setting.clone(),
                design: arm.given.clone(),
                full: arm.full.clone(),
                values: measured.passes.clone(),
                base: base.passes.clone(),
                control: control.passes.clone(),
            }));
        }
    }
    all
}

fn of_host(saved: &linux::Saved) -> Series {
    let times = &saved.times;
    Series {
        name: "CPU time of the events".to_owned(),
        setting: format!("trace {} {}", saved.trace.bytes, saved.trace.crc32),
        // One series through all kernels: what they differ in is what is looked for.
        design: "linux".to_owned(),
        full: format!("linux {}", saved.environment.kernel),
        values: floats(&times.host.net_ns),
        base: floats(&times.host.net_ns),
        control: floats(&times.control.net_ns),
    }
}

fn of_simulation(findings: &sim::Findings, trace: &str) -> Vec<Series> {
    let sides = findings.sides.iter().map(|side| {
        let runs = side.runs.iter();
        let values: Vec<f64> = runs.map(|run| run.elapsed_ns as f64).collect();
        Series {
            name: format!("elapsed on {} CPUs of {}", findings.cpus, findings.machine),
            setting: format!("{trace}; {} copies", findings.about.copies),
            design: side.design.clone(),
            full: side.design.clone(),
            // The same seed gives the same result: it is its own control.
            base: values.clone(),
            control: values.clone(),
            values,
        }
    });
    sides.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(design: &str, full: &str) -> Series {
        Series {
            name: "time".to_owned(),
            setting: String::new(),
            design: design.to_owned(),
            full: full.to_owned(),
            values: vec![1.0],
            base: vec![1.0],
            control: vec![1.0],
        }
    }

    #[test]
    fn a_design_is_found_by_some_of_its_options_in_any_order() {
        let of = series("rmap=chains", "direct=on,rmap=chains,hint=off");
        assert!(of.has("rmap=chains direct=on") && of.has("") && !of.has("rmap=partial"));
        let later = series("rmap=chains,", "direct=on,rmap=chains,hint=off,new=1");
        assert!(of.is_same(&later));
        assert!(!of.is_same(&series("rmap=chains,direct=on", "")));
    }
}
