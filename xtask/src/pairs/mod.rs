//! Runs the benchmarks of the core as they are in another commit and as they are here, in turn,
//! and says which figures have changed.
//!
//! The other commit is built in a clone below `target/pairs`. A pass runs each benchmark of each
//! build once, and that of the other commit a second time, as the control; every other pass goes
//! the other way round. A figure counts as changed if the interval of its ratio neither holds 1
//! nor has anything in common with that of the control.

mod output;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use vellum_lab::stats::bootstrap::LEAST_PASSES;
use vellum_lab::stats::paired::{Paired, against_first};
use vellum_lab::stats::{Interval, median};
use vellum_terminal::table::Table;

use crate::command::{cargo, succeed, target};
use output::{Figures, Name};

/// The benchmarks, and the packages that they are in.
const BENCHMARKS: [(&str, &str); 4] = [
    ("vellum-machine", "rmap"),
    ("vellum", "frame"),
    ("vellum-machine", "ptepage"),
    ("vellum-machine", "paths"),
];
/// The other commit, this one, and the other once more.
const ARMS: usize = 3;
const NEW: usize = 1;
const CONTROL: usize = 2;

#[derive(clap::Args)]
pub struct Args {
    /// What to compare this tree with: a commit, branch or tag
    commit: String,
    /// Passes; an interval needs at least 5
    #[arg(short = 'n', long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(LEAST_PASSES as i64..1000))]
    passes: u32,
    /// Only this benchmark (rmap, frame, ptepage, paths); can be given several times
    #[arg(long, value_parser = clap::builder::PossibleValuesParser::new(BENCHMARKS.map(|(_, name)| name)))]
    bench: Vec<String>,
    /// Print every figure, not only those that have changed
    #[arg(long)]
    all: bool,
    /// What the benchmarks are given, such as the name of a row of `frame`
    #[arg(last = true)]
    options: Vec<String>,
}

/// The times of one figure: for each arm, one a pass.
type Times = [Vec<f64>; ARMS];

/// Builds both, lets them take turns, and prints the figures.
pub fn run(args: &Args) -> Result<(), String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let target = target(&root);
    let wanted = |name: &str| args.bench.is_empty() || args.bench.iter().any(|own| own == name);
    let other = target.join("pairs").join("source");
    let commit = check_out(&root, &other, &args.commit)?;
    eprintln!("building the benchmarks of {commit} and of this tree");
    let mut programs = Vec::new();
    for (package, name) in BENCHMARKS.into_iter().filter(|(_, name)| wanted(name)) {
        let old = build(&other, &target.join("pairs").join("build"), package, name)?;
        let new = build(&root, &target, package, name)?;
        programs.push((name, [old.clone(), new, old]));
    }
    for (name, arms) in &programs {
        let (order, times) = take_turns(name, arms, args)?;
        print(name, &order, &times, args.all);
    }
    println!("Time with this tree against that with {commit}; control: {commit} against itself.");
    Ok(())
}

/// A clone of the repository at a commit, whose short name is returned.
fn check_out(root: &Path, clone: &Path, commit: &str) -> Result<String, String> {
    let named = git(root)
        .args(["rev-parse", "--verify", "--quiet", "--end-of-options"])
        .arg(format!("{commit}^{{commit}}"))
        .output()
        .map_err(|error| format!("running git: {error}"))?;
    if !named.status.success() {
        return Err(format!(
            "{commit}: no such commit; `git log --oneline` lists them"
        ));
    }
    let full = String::from_utf8_lossy(&named.stdout).trim().to_owned();
    if !clone.join(".git").exists() {
        let mut made = Command::new("git");
        made.args(["clone", "--quiet", "--shared", "--no-checkout"]);
        succeed(made.arg(root).arg(clone))?;
    }
    // It shares the repository's objects, later ones too.
    succeed(git(clone).args(["checkout", "--quiet", "--force", &full]))?;
    Ok(full.chars().take(10).collect())
}

fn git(directory: &Path) -> Command {
    let mut git = Command::new("git");
    git.arg("-C").arg(directory);
    git
}

/// Builds a benchmark; returns the program.
fn build(source: &Path, target: &Path, package: &str, name: &str) -> Result<PathBuf, String> {
    let mut cargo = cargo();
    cargo
        .current_dir(source)
        .args(["bench", "--no-run", "--locked", "--quiet"])
        .args(["--package", package, "--bench", name])
        .args(["--message-format", "json-render-diagnostics"])
        .arg("--target-dir")
        .arg(target)
        // An incremental build does not inline small functions of other crates.
        .env("CARGO_INCREMENTAL", "0")
        .stderr(Stdio::inherit());
    let output = cargo
        .output()
        .map_err(|error| format!("running {cargo:?}: {error}"))?;
    let printed = String::from_utf8_lossy(&output.stdout);
    let program = printed.lines().find_map(|line| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        let program = message["executable"].as_str()?;
        (message["target"]["name"] == name).then(|| PathBuf::from(program))
    });
    match program {
        Some(program) if output.status.success() => Ok(program),
        _ => Err(format!(
            "{}: building the benchmark `{name}` of {package}: {}",
            source.display(),
            output.status
        )),
    }
}

/// Runs the programs of a benchmark in turn; returns the figures that all have, in order, and
/// their times.
fn take_turns(
    name: &str,
    arms: &[PathBuf; ARMS],
    args: &Args,
) -> Result<(Vec<Name>, Vec<Times>), String> {
    let mut runs: [Vec<Figures>; ARMS] = Default::default();
    for pass in 0..args.passes {
        eprintln!("{name}: pass {} of {}", pass + 1, args.passes);
        for step in 0..ARMS {
            let arm = match pass % 2 {
                0 => step,
                _ => ARMS - 1 - step,
            };
            runs[arm].push(run_once(&arms[arm], &args.options)?);
        }
    }
    let mut order = runs[0][0].order.clone();
    order.retain(|name| (runs.iter().flatten()).all(|run| run.values.contains_key(name)));
    if order.is_empty() {
        return Err(format!("{name}: there is no row that both trees have"));
    }
    let times = order.iter().map(|name| {
        let of_arm = |arm: usize| runs[arm].iter().map(|run| run.values[name]).collect();
        std::array::from_fn(of_arm)
    });
    let times = times.collect();
    Ok((order, times))
}

fn run_once(program: &Path, options: &[String]) -> Result<Figures, String> {
    let output = Command::new(program)
        .args(options)
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("running {}: {error}", program.display()))?;
    if !output.status.success() {
        return Err(format!("{}: {}", program.display(), output.status));
    }
    Ok(Figures::read(&String::from_utf8_lossy(&output.stdout)))
}

/// What became of a figure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Change {
    Longer,
    Shorter,
    None,
}

fn judge(new: Paired, control: Paired) -> Change {
    match (new.interval, control.interval) {
        (Some(own), Some(control)) if !own.contains(1.0) && !own.overlaps(&control) => {
            match own.low > 1.0 {
                true => Change::Longer,
                false => Change::Shorter,
            }
        }
        _ => Change::None,
    }
}

fn print(name: &str, order: &[Name], times: &[Times], all: bool) {
    let mut table = Table::new(&["", "before", "now", "ratio", "control", ""]);
    let mut counts = [0; 2];
    for (figure, times) in order.iter().zip(times) {
        let paired = against_first(times, 1);
        let change = judge(paired[NEW], paired[CONTROL]);
        let told = match change {
            Change::Longer => "longer",
            Change::Shorter => "shorter",
            Change::None => "",
        };
        counts[0] += u32::from(change == Change::Longer);
        counts[1] += u32::from(change == Change::Shorter);
        if change == Change::None && !all {
            continue;
        }
        let column = match figure.column {
            0 => String::new(),
            column => format!(", column {}", column + 1),
        };
        let time = |arm: usize| median(&times[arm]).map_or(String::new(), |it| format!("{it:.2}"));
        table.row(vec![
            format!("{}{column}", figure.row),
            time(0),
            time(NEW),
            ratio(paired[NEW]),
            ratio(paired[CONTROL]),
            told.to_owned(),
        ]);
    }
    println!(
        "{name}: of {} figures {} longer, {} shorter",
        order.len(),
        counts[0],
        counts[1]
    );
    if all || counts != [0; 2] {
        println!("{}", table.render(2));
    }
}

fn ratio(paired: Paired) -> String {
    let interval = paired
        .interval
        .map_or(String::new(), |Interval { low, high }| {
            format!(" ({low:.3} .. {high:.3})")
        });
    format!("{:.3}{interval}", paired.ratio)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paired(ratio: f64, low: f64, high: f64) -> Paired {
        Paired {
            ratio,
            interval: Some(Interval { low, high }),
        }
    }

    #[test]
    fn a_figure_has_changed_if_its_interval_holds_neither_one_nor_what_the_control_has() {
        let control = paired(1.01, 0.98, 1.03);
        assert_eq!(judge(paired(1.1, 1.05, 1.2), control), Change::Longer);
        assert_eq!(judge(paired(0.9, 0.85, 0.95), control), Change::Shorter);
        assert_eq!(judge(paired(1.04, 1.02, 1.05), control), Change::None);
        assert_eq!(judge(paired(1.04, 0.9, 1.1), control), Change::None);
    }

    #[test]
    fn a_commit_that_there_is_not_is_refused() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let scratch = vellum_testing::Scratch::new("pairs");
        let clone = PathBuf::from(scratch.path("clone"));
        let refused = check_out(&root, &clone, "no-such-commit");
        assert!(refused.unwrap_err().contains("no such commit"));
        assert!(!clone.exists());
    }
}
