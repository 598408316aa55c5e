//! Whether runs of `vellum compare` agree: each comparison is made many times, by a program that is
//! started anew, and the intervals are held against each other.
//!
//! Every result is a file in the directory of `--state`, so a run that was stopped goes on where it
//! was. All comparisons are made once before any is made again: what changes on the machine in the
//! course of hours is in all of them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use vellum_results::Spread;
use vellum_terminal::table::Table;

use crate::command::{cargo, succeed, target};

/// What is compared: a name, and the two designs.
const KINDS: [(&str, &str, &str); 6] = [
    ("a-a", "rmap=chains", "rmap=chains"),
    ("chains-family", "rmap=chains", "rmap=family"),
    ("superpage-eager", "superpage=off", "superpage=eager"),
    ("superpage-reserve", "superpage=off", "superpage=reserve"),
    ("folio", "folio=off", "folio=64k"),
    (
        "reclaim",
        "reclaim=on,aging=lru",
        "reclaim=on,aging=generations",
    ),
];
/// What it is compared on: a shipped trace, and how many of its seconds from the beginning.
const TRACES: [(&str, Option<u32>); 3] = [
    ("sdet-like", None),
    ("snapshot-server", Some(4)),
    ("kernel-build", Some(20)),
];
/// Intervals of 20 that must hold the median of all.
const LEAST_OF_20: f64 = 17.0;
/// Share of all intervals that must.
const LEAST_OF_ALL: f64 = 0.93;
/// How wide intervals may be, by the spread of the ratios: the median interval of a comparison, on
/// average over the comparisons. More cannot be asked for. Exact 95 % intervals of six normal passes
/// (Student's t) are [`EXACT`] times as wide as the spread of 20 runs. Of one comparison the median
/// interval is wider than 1.5 times in 26 of 100 cases, and the widest of 20 in 96 of 100, since a
/// width that is estimated from six passes varies, and so does the spread of 20 runs.
const WIDE: f64 = 1.5;
const EXACT: f64 = 1.33;

#[derive(clap::Args)]
pub struct Args {
    /// Runs of each comparison
    #[arg(short = 'n', long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..1000))]
    runs: u32,
    /// Passes of each run
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u32).range(5..1000))]
    passes: u32,
    /// Where results are kept, and found again by the next run [default: target/repeat]
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// Only comparisons whose name holds this, as `superpage` or `a-a`; can be given several times
    #[arg(long, value_name = "TEXT")]
    only: Vec<String>,
    /// Only this trace; can be given several times
    #[arg(long, value_parser = clap::builder::PossibleValuesParser::new(TRACES.map(|(name, _)| name)))]
    trace: Vec<String>,
    /// Only print the table of what is there
    #[arg(long)]
    table: bool,
}

/// One comparison on one trace.
struct Case {
    kind: (&'static str, &'static str, &'static str),
    trace: (&'static str, Option<u32>),
}

/// What one run said.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Said {
    ratio: f64,
    /// CPU time of A in the core, in nanoseconds; no number in a result that has none.
    base_ns: f64,
    low: f64,
    high: f64,
}

/// Makes the runs that are missing and prints the table.
pub fn run(args: &Args) -> Result<(), String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let target = target(&root);
    let state = args.state.clone().unwrap_or_else(|| target.join("repeat"));
    let cases = cases(args);
    if !args.table {
        fs::create_dir_all(&state).map_err(|error| format!("{}: {error}", state.display()))?;
        let mut build = cargo();
        build.current_dir(&root);
        build.args(["build", "--release", "--quiet", "-p", "vellum-lab"]);
        succeed(&mut build)?;
        let vellum = target.join("release/vellum");
        for case in &cases {
            case.prepare(&vellum, &root, &state)?;
        }
        for number in 1..=args.runs {
            for case in &cases {
                case.run(&vellum, &root, &state, (number, args.passes))?;
            }
        }
    }
    let mut found = Vec::new();
    for case in &cases {
        found.push((case, case.results(&state, args.runs)?));
    }
    print!("{}", report(&found));
    Ok(())
}

fn cases(args: &Args) -> Vec<Case> {
    let is_kind = |name: &str| {
        args.only.is_empty() || args.only.iter().any(|text| name.contains(text.as_str()))
    };
    let is_trace = |name: &str| args.trace.is_empty() || args.trace.iter().any(|own| own == name);
    let traces = TRACES.into_iter().filter(|trace| is_trace(trace.0));
    traces
        .flat_map(|trace| {
            let kinds = KINDS.into_iter().filter(|kind| is_kind(kind.0));
            kinds.map(move |kind| Case { kind, trace })
        })
        .collect()
}

impl Case {
    fn shipped(&self, root: &Path) -> PathBuf {
        root.join("traces")
            .join(self.trace.0)
            .with_extension("vellum")
    }

    /// The trace that is compared on.
    fn path(&self, root: &Path, state: &Path) -> PathBuf {
        match self.trace.1 {
            None => self.shipped(root),
            Some(seconds) => state.join(format!("{}-{seconds}s.vellum", self.trace.0)),
        }
    }

    /// Cuts the trace, if only a part of it is used.
    fn prepare(&self, vellum: &Path, root: &Path, state: &Path) -> Result<(), String> {
        let path = self.path(root, state);
        match self.trace.1 {
            Some(seconds) if !path.exists() => {
                let mut cut = Command::new(vellum);
                cut.arg("cut").arg(self.shipped(root)).arg("-o").arg(&path);
                cut.args(["--to", &seconds.to_string(), "--quiet"]);
                succeed(cut.stdout(Stdio::null()))
            }
            _ => Ok(()),
        }
    }

    fn result(&self, state: &Path, number: u32) -> PathBuf {
        state.join(format!("{}.{}.{number}.json", self.kind.0, self.trace.0))
    }

    /// Makes a run, unless there is its result.
    fn run(
        &self,
        vellum: &Path,
        root: &Path,
        state: &Path,
        (number, passes): (u32, u32),
    ) -> Result<(), String> {
        let result = self.result(state, number);
        if result.exists() {
            return Ok(());
        }
        eprintln!("{} on {}, run {number}", self.kind.0, self.trace.0);
        let mut compare = Command::new(vellum);
        compare.arg("compare").arg(self.path(root, state));
        compare.args([
            "--a",
            self.kind.1,
            "--b",
            self.kind.2,
            "--quiet",
            "--no-atomics",
        ]);
        // A run that was interrupted writes what it has, too.
        let part = result.with_extension("part");
        compare
            .args(["-n", &passes.to_string(), "--json"])
            .arg(&part);
        succeed(compare.stdout(Stdio::null()))?;
        fs::rename(&part, &result).map_err(|error| format!("{}: {error}", part.display()))
    }

    /// The results that there are.
    fn results(&self, state: &Path, runs: u32) -> Result<Vec<Said>, String> {
        let paths = (1..=runs).map(|number| self.result(state, number));
        let there = paths.filter(|path| path.exists());
        there.map(|path| said(&path)).collect()
    }
}

/// The ratio that the verdict of a result is on.
fn said(path: &Path) -> Result<Said, String> {
    let refused = |why: &str| format!("{}: {why}", path.display());
    let text = fs::read_to_string(path).map_err(|error| refused(&error.to_string()))?;
    let value: Value = serde_json::from_str(&text).map_err(|error| refused(&error.to_string()))?;
    let with = &value["entries"]["ratio"];
    let ratio = if with.is_null() {
        &value["ratio"]
    } else {
        with
    };
    let figure = |name: &str| {
        ratio[name]
            .as_f64()
            .ok_or_else(|| refused("no ratio with an interval"))
    };
    Ok(Said {
        ratio: figure("value")?,
        base_ns: value["cpu_ns"]["a"]["value"].as_f64().unwrap_or(f64::NAN),
        low: figure("low")?,
        high: figure("high")?,
    })
}

/// What runs of one comparison have in common.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Agreement {
    runs: usize,
    /// The median of the ratios.
    median: f64,
    /// From the least ratio to the largest.
    spread: f64,
    /// Intervals that hold the median.
    hold: usize,
    /// How wide the intervals are.
    widths: Spread,
    /// How ratios follow the time that A took, from -1 to 1: whether runs differ because the machine
    /// was slower in one than in another.
    with_speed: f64,
}

impl Agreement {
    fn of(runs: &[Said]) -> Option<Agreement> {
        let ratios = Spread::of(runs.iter().map(|said| said.ratio));
        let holds = |said: &&Said| (said.low..=said.high).contains(&ratios.median);
        (!runs.is_empty()).then(|| Agreement {
            runs: runs.len(),
            median: ratios.median,
            spread: ratios.most - ratios.least,
            hold: runs.iter().filter(holds).count(),
            widths: Spread::of(runs.iter().map(|said| said.high - said.low)),
            with_speed: correlation(runs.iter().map(|said| (said.base_ns, said.ratio))),
        })
    }

    fn holds(&self) -> bool {
        self.hold as f64 >= LEAST_OF_20 / 20.0 * self.runs as f64
    }

    /// The width of the median interval, by the spread.
    fn width(&self) -> f64 {
        self.widths.median / self.spread
    }
}

/// Pearson's correlation.
fn correlation(pairs: impl Iterator<Item = (f64, f64)> + Clone) -> f64 {
    let count = pairs.clone().count() as f64;
    let mean = |of: fn((f64, f64)) -> f64| pairs.clone().map(of).sum::<f64>() / count;
    let (x, y) = (mean(|pair| pair.0), mean(|pair| pair.1));
    let sum = |of: &dyn Fn(f64, f64) -> f64| -> f64 {
        pairs.clone().map(|pair| of(pair.0 - x, pair.1 - y)).sum()
    };
    sum(&|x, y| x * y) / (sum(&|x, _| x * x) * sum(&|_, y| y * y)).sqrt()
}

fn report(found: &[(&Case, Vec<Said>)]) -> String {
    let mut table = Table::new(&[
        "comparison",
        "trace",
        "runs",
        "median B / A",
        "spread",
        "hold it",
        "width",
        "by the spread",
        "widest",
        "with speed",
        "",
    ]);
    let agreements = found.iter().map(|(case, runs)| (case, Agreement::of(runs)));
    let (mut all, mut hold, mut widths) = (0, 0, Vec::new());
    for (case, agreement) in agreements {
        let Some(agreement) = agreement else { continue };
        all += agreement.runs;
        hold += agreement.hold;
        widths.push(agreement.width());
        table.row(vec![
            case.kind.0.to_owned(),
            case.trace.0.to_owned(),
            agreement.runs.to_string(),
            format!("{:.4}", agreement.median),
            format!("{:.4}", agreement.spread),
            agreement.hold.to_string(),
            format!("{:.4}", agreement.widths.median),
            format!("{:.2}", agreement.width()),
            format!("{:.2}", agreement.widths.most / agreement.spread),
            format!("{:+.2}", agreement.with_speed),
            match agreement.holds() {
                true => "agree",
                false => "too few hold it",
            }
            .to_owned(),
        ]);
    }
    let wide = widths.iter().sum::<f64>() / widths.len().max(1) as f64;
    let share = 100.0 * f64::from(hold as u32) / f64::from(all.max(1) as u32);
    format!(
        "{}{hold} of {all} intervals hold the median of their comparison, {share:.1} % ({:.0} % are asked \
         for, and {LEAST_OF_20:.0} of 20 of each).\nOn average the median interval is {wide:.2} times as \
         wide as the spread of the ratios; with 20 runs\n{WIDE} is asked for, and exact intervals of six \
         passes would have {EXACT}. With speed: how the ratio follows the time that A took, from -1 to 1; \
         near\neither, runs differ because the machine was not equally fast in them.\n",
        table.render(2),
        100.0 * LEAST_OF_ALL
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(ratio: f64, reach: f64) -> Said {
        Said {
            ratio,
            base_ns: 1e9 * ratio,
            low: ratio - reach,
            high: ratio + reach,
        }
    }

    #[test]
    fn runs_agree_if_intervals_hold_the_median_and_are_no_wider_than_the_spread_explains() {
        let ratios = [0.98, 0.99, 1.0, 1.01, 1.02];
        let runs = |reach: f64| ratios.map(|ratio| said(ratio, reach));
        let of = |reach: f64| Agreement::of(&runs(reach)).expect("runs");
        let agree = of(0.021);
        assert!(
            (agree.median, agree.hold, agree.runs) == (1.0, 5, 5),
            "{agree:?}"
        );
        assert!(agree.holds() && agree.width() < WIDE, "{agree:?}");
        assert!((agree.with_speed - 1.0).abs() < 1e-9, "{agree:?}");
        let narrow = of(0.005);
        assert!(!narrow.holds() && narrow.width() < WIDE, "{narrow:?}");
        let wide = of(0.1);
        assert!(wide.holds() && wide.width() > WIDE, "{wide:?}");
        assert_eq!(Agreement::of(&[]), None);
    }

    #[test]
    fn results_that_are_there_are_in_the_table_and_need_no_run() {
        let state = vellum_testing::Scratch::new("xtask-repeat");
        let directory = PathBuf::from(state.path("."));
        let case = Case {
            kind: KINDS[0],
            trace: TRACES[0],
        };
        let text = |ratio: f64| {
            let figure = format!(r#"{{"value":{ratio},"low":0.9,"high":1.1}}"#);
            format!(r#"{{"ratio":{{"value":7}},"entries":{{"ratio":{figure}}}}}"#)
        };
        for (number, ratio) in [(1, 0.99), (3, 1.01)] {
            fs::write(case.result(&directory, number), text(ratio)).expect("written");
        }
        let nowhere = Path::new("/no/such/program");
        case.run(nowhere, nowhere, &directory, (3, 6))
            .expect("it is there");
        assert!(case.run(nowhere, nowhere, &directory, (2, 6)).is_err());
        let runs = case.results(&directory, 3).expect("results");
        assert_eq!(runs.len(), 2);
        let printed = report(&[(&case, runs)]);
        assert!(
            printed.contains("2 of 2 intervals hold the median"),
            "{printed}"
        );
        fs::write(case.result(&directory, 2), "{}").expect("written");
        assert!(case.results(&directory, 3).is_err());
    }
}
