//! Con Kolivas's kernbench (0.42): what GNU time says of builds of a kernel under
//! several loads, as a mean and a standard deviation for each.
//!
//! Numbers are printed as awk prints them: whole ones in full, others with six
//! significant digits. A load of one run has no deviation, and one without runs has
//! `No data`.
//!
//! With `compat` the figures are the script's, mistakes included:
//!
//! * Only the elapsed time begins anew with each load. All other lines of a load
//!   are about **its runs and those of all loads before it**.
//! * The deviation comes from sums of squares with six decimals, and is the root
//!   of a variance that has been rounded to six digits. Of equal runs it can come
//!   out as `-nan`, the root of a number a little below 0.
//! * A load of one run is shown as a sum with six decimals.

use std::fmt::{self, Write};
use std::str::FromStr;

use crate::number::awk;
use crate::summary;

/// How many jobs `make` runs at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Load {
    /// `make`
    Single,
    /// `make -j N`, half as many as there are CPUs
    Half(u32),
    /// `make -j N`, four times as many as there are CPUs
    Optimal(u32),
    /// `make -j N`, as many as the user wants (0.50)
    Custom(u32),
    /// `make -j`
    Maximal,
}

/// As the block calls it.
impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Load::Single => write!(f, "Single threaded"),
            Load::Half(jobs) => write!(f, "Half load -j {jobs}"),
            Load::Optimal(jobs) => write!(f, "Optimal load -j {jobs}"),
            Load::Custom(jobs) => write!(f, "Custom load -j {jobs}"),
            Load::Maximal => write!(f, "Maximal load -j"),
        }
    }
}

impl Load {
    /// What [`FromStr`] reads: `single`, `half-2`, `optimal-16`, `custom-8`, `maximal`.
    pub fn name(self) -> String {
        match self {
            Load::Single => "single".to_owned(),
            Load::Half(jobs) => format!("half-{jobs}"),
            Load::Optimal(jobs) => format!("optimal-{jobs}"),
            Load::Custom(jobs) => format!("custom-{jobs}"),
            Load::Maximal => "maximal".to_owned(),
        }
    }
}

/// A text names no load.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("`{0}` is no load; write single, half-N, optimal-N, custom-N or maximal, with N the jobs")]
pub struct NoSuchLoad(
    /// The text.
    pub String,
);

/// From `single`, `half-2`, `optimal-16`, `custom-8` or `maximal`.
impl FromStr for Load {
    type Err = NoSuchLoad;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (name, jobs) = match text.split_once('-') {
            Some((name, jobs)) => (name, jobs.parse().ok().filter(|jobs| *jobs > 0)),
            None => (text, None),
        };
        match (name, jobs) {
            ("single", None) if !text.contains('-') => Ok(Load::Single),
            ("maximal", None) if !text.contains('-') => Ok(Load::Maximal),
            ("half", Some(jobs)) => Ok(Load::Half(jobs)),
            ("optimal", Some(jobs)) => Ok(Load::Optimal(jobs)),
            ("custom", Some(jobs)) => Ok(Load::Custom(jobs)),
            _ => Err(NoSuchLoad(text.to_owned())),
        }
    }
}

/// The lines of a block, which are also the columns of [`Run`].
pub const LINES: [&str; 6] = [
    "Elapsed Time",
    "User Time",
    "System Time",
    "Percent CPU",
    "Context Switches",
    "Sleeps",
];

/// What GNU time (`-f "%e %U %S %P %c %w"`) says of one build, in the order of
/// [`LINES`]: elapsed, user and system seconds, percent of a CPU, involuntary and
/// voluntary context switches.
pub type Run = [f64; 6];

/// `run` to the precision of GNU time, which cuts digits off: seconds to hundredths,
/// and percent, which it has from milliseconds, to whole ones.
pub fn cut_as_time(run: &Run) -> Run {
    let [elapsed, user, system, _, switches, sleeps] = *run;
    let hundredths = |seconds| (microseconds(seconds) / 10_000) as f64 / 100.0;
    let milliseconds = |seconds| microseconds(seconds) / 1000;
    let busy = milliseconds(user) + milliseconds(system);
    // Of no time it prints a question mark, which awk takes for 0.
    let percent = (busy * 100).checked_div(milliseconds(elapsed)).unwrap_or(0);
    [
        hundredths(elapsed),
        hundredths(user),
        hundredths(system),
        percent as f64,
        switches,
        sleeps,
    ]
}

/// Times come from the kernel in microseconds; as seconds they are a little off.
fn microseconds(seconds: f64) -> u64 {
    (seconds * 1e6).round() as u64
}

/// The builds under one load.
#[derive(Clone, PartialEq, Debug)]
pub struct Group {
    /// The load.
    pub load: Load,
    /// The builds.
    pub runs: Vec<Run>,
}

/// A row for each run, as [`Columns::kernbench`](crate::read::Columns::kernbench)
/// reads it: the load, then what GNU time prints, with all digits that there are.
pub fn rows(groups: &[Group]) -> String {
    let mut text = String::new();
    for group in groups {
        let load = group.load.name();
        for [elapsed, user, system, percent, switches, sleeps] in &group.runs {
            let _ = writeln!(
                text,
                "{load} {elapsed} {user} {system} {percent}% {switches} {sleeps}"
            );
        }
    }
    text
}

/// A block for each load, each with an empty line after it.
pub fn blocks(groups: &[Group], compat: bool) -> String {
    let mut text = String::new();
    let mut pooled: [Sums; 6] = Default::default();
    for group in groups {
        pooled[0] = Sums::default();
        for run in &group.runs {
            for (sums, value) in pooled.iter_mut().zip(run) {
                sums.add(*value);
            }
        }
        let _ = writeln!(text, "Average {} Run (std deviation):", group.load);
        for (index, line) in LINES.iter().enumerate() {
            let figures = match compat {
                true => pooled[index].figures(),
                false => {
                    let values: Vec<f64> = group.runs.iter().map(|run| run[index]).collect();
                    figures(&values)
                }
            };
            let _ = writeln!(text, "{line} {figures}");
        }
        text.push('\n');
    }
    text
}

/// What stands in a line about no runs.
const NO_DATA: &str = "No data";

fn figures(values: &[f64]) -> String {
    match (summary::mean(values), summary::deviation(values)) {
        (None, _) => NO_DATA.to_owned(),
        (Some(mean), None) => awk(mean),
        (Some(mean), Some(deviation)) => format!("{} ({})", awk(mean), awk(deviation)),
    }
}

/// What the script accumulates.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    sum: f64,
    squares: f64,
    count: u32,
}

impl Sums {
    fn add(&mut self, value: f64) {
        self.sum = as_printed(value + self.sum, 6);
        self.squares = as_printed(value * value + self.squares, 6);
        self.count += 1;
    }

    fn figures(&self) -> String {
        let count = f64::from(self.count);
        match self.count {
            0 => return NO_DATA.to_owned(),
            1 => return format!("{:.6}", self.sum),
            _ => {}
        }
        let mean = awk(self.sum / count);
        let variance = (self.squares - self.sum * self.sum / count) / (count - 1.0);
        let variance: f64 = awk(variance).parse().unwrap_or(f64::NAN);
        match variance < 0.0 {
            true => format!("{mean} (-nan)"),
            false => format!("{mean} ({})", awk(variance.sqrt())),
        }
    }
}

/// `value` after it has been printed with `decimals` and read again.
fn as_printed(value: f64, decimals: usize) -> f64 {
    format!("{value:.decimals$}").parse().unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(load: Load, cpu_percent: [f64; 5]) -> Group {
        let run = |percent| [100.0, 200.0, 10.0, percent, 1000.0, 2000.0];
        Group {
            load,
            runs: cpu_percent.map(run).to_vec(),
        }
    }

    fn line<'t>(text: &'t str, load: &str, name: &str) -> &'t str {
        let lines = text.lines().skip_while(|line| !line.contains(load));
        let mut lines = lines.skip(1);
        lines.find(|line| line.starts_with(name)).expect("a line")
    }

    #[test]
    fn loads_are_kept_apart_unless_the_script_is_imitated() {
        let groups = [
            group(Load::Half(2), [196.0, 195.0, 196.0, 196.0, 196.0]),
            group(Load::Optimal(4), [332.0, 332.0, 331.0, 332.0, 332.0]),
        ];
        let (right, compat) = (blocks(&groups, false), blocks(&groups, true));
        let percent = |text| line(text, "Optimal load -j 4", "Percent CPU").to_owned();
        assert_eq!(percent(&right), "Percent CPU 331.8 (0.447214)");
        assert_eq!(percent(&compat), "Percent CPU 263.8 (71.6796)");
        let half = "Percent CPU 195.8 (0.447214)";
        for text in [&right, &compat] {
            assert_eq!(line(text, "Half load", "Percent CPU"), half);
            assert_eq!(line(text, "Optimal", "Elapsed"), "Elapsed Time 100 (0)");
        }
    }

    #[test]
    fn the_block_ends_with_an_empty_line() {
        let text = blocks(&[group(Load::Maximal, [400.0; 5])], false);
        let expected = "\
Average Maximal load -j Run (std deviation):
Elapsed Time 100 (0)
User Time 200 (0)
System Time 10 (0)
Percent CPU 400 (0)
Context Switches 1000 (0)
Sleeps 2000 (0)

";
        assert_eq!(text, expected);
    }

    /// Expected values: the script's own arithmetic, run by GNU awk 5.2.1.
    #[test]
    fn one_run_and_equal_runs_come_out_as_awk_has_them() {
        let one = Group {
            load: Load::Single,
            runs: vec![[175.39, 0.1, 0.1, 99.0, 7.0, 8.0]],
        };
        let text = blocks(std::slice::from_ref(&one), true);
        let elapsed = |text: &str| line(text, "Single", "Elapsed").to_owned();
        assert_eq!(elapsed(&text), "Elapsed Time 175.390000");
        assert_eq!(elapsed(&blocks(&[one], false)), "Elapsed Time 175.39");
        let equal = |times| Group {
            load: Load::Single,
            runs: vec![[175.39, 1.1, 0.1, 99.0, 7.0, 8.0]; times],
        };
        let text = blocks(&[equal(5)], true);
        assert_eq!(elapsed(&text), "Elapsed Time 175.39 (-nan)");
        let text = blocks(&[equal(3)], true);
        assert_eq!(elapsed(&text), "Elapsed Time 175.39 (3.8147e-06)");
        assert_eq!(line(&text, "Single", "User"), "User Time 1.1 (1.49012e-08)");
        let text = blocks(&[equal(5)], false);
        assert_eq!(elapsed(&text), "Elapsed Time 175.39 (0)");
    }

    #[test]
    fn a_load_without_runs_has_no_data() {
        let half = group(Load::Half(2), [196.0; 5]);
        let none = Group {
            load: Load::Maximal,
            runs: Vec::new(),
        };
        let right = blocks(&[half.clone(), none.clone()], false);
        for name in LINES {
            let expected = format!("{name} No data");
            assert_eq!(line(&right, "Maximal", name), expected);
        }
        // The script's other lines are about the load before.
        let compat = blocks(&[half, none], true);
        let of = |name| line(&compat, "Maximal", name).to_owned();
        assert_eq!(of("Elapsed"), "Elapsed Time No data");
        assert_eq!(of("User"), "User Time 200 (0)");
    }

    #[test]
    fn digits_that_time_does_not_print_are_cut_off() {
        let run = [1.239999, 2.999999, 0.29, 265.322, 7.0, 8.0];
        let expected = [1.23, 2.99, 0.29, 265.0, 7.0, 8.0];
        assert_eq!(cut_as_time(&run), expected);
        let too_short = [0.0004, 0.0001, 0.0, 25.0, 0.0, 0.0];
        assert_eq!(cut_as_time(&too_short), [0.0; 6]);
    }

    #[test]
    fn names_of_loads() {
        assert_eq!("half-2".parse(), Ok(Load::Half(2)));
        for load in [
            Load::Single,
            Load::Half(3),
            Load::Optimal(16),
            Load::Custom(8),
            Load::Maximal,
        ] {
            assert_eq!(load.name().parse(), Ok(load));
        }
        assert_eq!("maximal".parse(), Ok(Load::Maximal));
        for wrong in [
            "half", "half-0", "half-x", "single-1", "maximal-", "full-3", "",
        ] {
            let refused = wrong.parse::<Load>().expect_err(wrong).to_string();
            assert!(refused.contains("half-N"), "{refused}");
        }
    }
}
