//! The command itself, under the settings of this machine that rows are about.
//!
//! All settings take turns within a round, in an order that changes from round to round; what
//! they are held against runs twice, as the control. CPU time is that of the whole process tree,
//! in programs and in the kernel, so that what fewer TLB misses save is in it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::counted::{KEEPING, TRIMMING};
use super::knobs::{Knob, OnHost, thp_directory};
use super::on_host::samples;
use super::settings::Switched;
use crate::compare::order::orders;
use crate::compare::{Contrast, Method};
use crate::failure::{Failure, OrFail};
use crate::stats::bootstrap::LEAST_PASSES;
use crate::stats::{Samples, median};
use vellum_results::Figure;
use vellum_results::advise::{Checked, Measured, Row};
use vellum_terminal::job::{self, Job, Stopped, Usage};
use vellum_terminal::progress::{Interrupt, Progress, Style};

/// Rounds at most.
const ROUNDS: usize = 30;

/// What is to be run, and how.
#[derive(Clone, Debug)]
pub struct Request {
    /// The command and its arguments.
    pub command: Vec<OsString>,
    /// A shell command before each run.
    pub prepare: Option<String>,
    /// Time after which no round begins that is not needed for an interval.
    pub budget: Duration,
    /// Seed of the order.
    pub seed: u64,
    /// How to show progress.
    pub style: Style,
}

/// One way to run the command.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Way {
    /// The row that it is about; none for the first.
    what: Option<String>,
    set: Vec<(PathBuf, String)>,
    environment: Option<(String, String)>,
}

/// Settings that `check` and replays change: those of THP, and of each size of mTHP.
pub fn paths() -> Vec<PathBuf> {
    paths_in(Path::new(thp_directory()))
}

fn paths_in(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries
        .filter(|entry| {
            entry
                .file_name()
                .to_string_lossy()
                .starts_with("hugepages-")
        })
        .map(|entry| entry.path().join("enabled"))
        .filter(|path| path.is_file())
        .collect();
    paths.sort();
    paths.insert(0, directory.join("enabled"));
    paths
}

/// The ways for `rows`: without any huge pages, and one for each row that can be tried so.
fn ways(directory: &Path, knobs: &[Knob], rows: &[Row]) -> Vec<Way> {
    let paths = paths_in(directory);
    let size = |kib: u32| directory.join(format!("hugepages-{kib}kB/enabled"));
    // `never` for all sizes, each by itself.
    let with = |other: Option<(PathBuf, &str)>| -> Vec<(PathBuf, String)> {
        let value = |path: &PathBuf| match &other {
            Some((of, value)) if of == path => (*value).to_owned(),
            _ => "never".to_owned(),
        };
        paths
            .iter()
            .map(|path| (path.clone(), value(path)))
            .collect()
    };
    let mut ways = vec![Way {
        what: None,
        set: with(None),
        environment: None,
    }];
    for knob in knobs {
        let kib = match knob.on_host {
            Some(OnHost::Thp) => 2048,
            Some(OnHost::Mthp(kib)) => kib,
            None => continue,
        };
        if size(kib).is_file() {
            ways.push(Way {
                what: Some(knob.what.to_owned()),
                set: with(Some((size(kib), "always"))),
                environment: None,
            });
        }
    }
    if rows.iter().any(|row| row.what == TRIMMING)
        && let Some((name, value)) = KEEPING.split_once('=')
    {
        ways.push(Way {
            what: Some(TRIMMING.to_owned()),
            set: with(None),
            environment: Some((name.to_owned(), value.to_owned())),
        });
    }
    ways
}

/// Runs the command in all ways that `rows` have, and sets what it took beside them.
///
/// # Errors
/// The command does not end well, a setting cannot be written, or the user interrupts.
pub fn run(
    request: &Request,
    knobs: &[Knob],
    rows: &mut [Row],
    switched: &mut Switched,
    interrupt: &Interrupt,
) -> Result<Checked, Failure> {
    let ways = ways(Path::new(thp_directory()), knobs, rows);
    let arms = ways.len() + 1;
    let steps = (ROUNDS * arms) as u64;
    let mut progress = Progress::new(request.style, "running the command", steps, "runs");
    let mut used: Vec<Vec<Usage>> = vec![Vec::new(); arms];
    let begun = Instant::now();
    for round in 0..ROUNDS {
        if round >= LEAST_PASSES && begun.elapsed() > request.budget {
            break;
        }
        for arm in orders(1, arms, round, request.seed).remove(0) {
            let way = ways.get(arm).unwrap_or(&ways[0]);
            switched.to(&way.set).doing(|| "switching huge pages")?;
            used[arm].push(once(request, way, interrupt)?);
            progress.advance(1);
        }
    }
    progress.finish();
    switched
        .restore()
        .doing(|| "restoring the settings of this machine")?;
    Ok(judged(&ways, &used, rows, request.seed))
}

/// The command once.
fn once(request: &Request, way: &Way, interrupt: &Interrupt) -> Result<Usage, Failure> {
    if let Some(prepare) = &request.prepare {
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", prepare]);
        to_end(&mut shell, "the command of --prepare", interrupt)?;
    }
    let (program, arguments) = request
        .command
        .split_first()
        .ok_or_else(|| Failure::usage("there is no command to run"))?;
    let mut command = Command::new(program);
    command.args(arguments);
    command.envs(way.environment.clone());
    to_end(&mut command, &program.to_string_lossy(), interrupt)
}

fn to_end(command: &mut Command, name: &str, interrupt: &Interrupt) -> Result<Usage, Failure> {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut jobs = [Job::start(command).doing(|| format!("running {name}"))?];
    let ended = job::finish(&mut jobs, interrupt, |_, _| Ok::<(), Stopped>(()));
    if ended.is_err() {
        return Err(Failure::interrupted("interrupted; settings are restored"));
    }
    match jobs[0].ended() {
        Some(ended) if ended.status.success() => Ok(ended.usage),
        Some(ended) => Err(Failure::failed(format!(
            "{name}: {} when it was run again; --prepare names a command that puts things back \
             before each run",
            ended.status
        ))),
        None => Err(Failure::failed(format!("{name}: it did not end"))),
    }
}

fn judged(ways: &[Way], used: &[Vec<Usage>], rows: &mut [Row], seed: u64) -> Checked {
    let ns = |usage: &Usage| ((usage.user_s + usage.system_s) * 1e9).round() as u64;
    let all: Vec<Samples> = used
        .iter()
        .map(|arm| samples(&arm.iter().map(ns).collect::<Vec<u64>>()))
        .collect();
    let method = Method {
        confidence: 0.95,
        resamples: 1000,
        seed,
    };
    let contrast = Contrast::new(&all, &method);
    let change = |arm: usize| {
        let ratio = contrast.ratios[arm];
        Figure {
            value: ratio.value - 1.0,
            low: ratio.interval.map(|interval| interval.low - 1.0),
            high: ratio.interval.map(|interval| interval.high - 1.0),
        }
    };
    let middle = |arm: usize, of: fn(&Usage) -> f64| {
        let values: Vec<f64> = used[arm].iter().map(of).collect();
        median(&values).unwrap_or(0.0)
    };
    let against_first =
        |arm: usize, of: fn(&Usage) -> f64| middle(arm, of) / middle(0, of).max(1.0) - 1.0;
    for (arm, way) in ways.iter().enumerate().skip(1) {
        let mut of_way = rows
            .iter_mut()
            .filter(|row| way.what.as_ref() == Some(&row.what));
        if let Some(row) = of_way.next() {
            row.measured = Some(Measured {
                cpu: change(arm),
                told: is_told(&contrast, arm),
                resident: against_first(arm, |usage| usage.resident_bytes as f64),
                faults: against_first(arm, |usage| usage.faults as f64),
            });
        }
    }
    Checked {
        rounds: used[0].len() as u64,
        cpu_ns: contrast.totals[0].value,
        control: change(ways.len()),
        against: "no huge pages, and malloc as it is".to_owned(),
    }
}

/// Whether the interval of `arm` holds neither 1 nor a value of the interval of the control. The
/// resolution of `compare` is not used: with the few rounds that there is time for, and programs
/// that stray by percents, it would tell next to nothing.
fn is_told(contrast: &Contrast, arm: usize) -> bool {
    let control = contrast.ratios.last().and_then(|ratio| ratio.interval);
    let intervals = contrast.ratios[arm].interval.zip(control);
    intervals.is_some_and(|(own, control)| !own.contains(1.0) && !own.overlaps(&control))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advise::knobs::KNOBS;
    use crate::host::scratch::Scratch;
    use vellum_results::advise::{Audience, Basis, Said};

    fn row(what: &str) -> Row {
        Row {
            what: what.to_owned(),
            audience: Audience::User,
            said: Said::Unknown,
            basis: Basis::Counted,
            cpu: None,
            bound: None,
            peak: None,
            faults: None,
            place: String::new(),
            how: Vec::new(),
            note: String::new(),
            measured: None,
        }
    }

    #[test]
    fn each_way_sets_everything_and_differs_in_one_thing() {
        let scratch = Scratch::new(&std::env::temp_dir(), "check-ways").expect("made");
        let directory = scratch.path();
        for name in [
            "enabled",
            "hugepages-64kB/enabled",
            "hugepages-2048kB/enabled",
        ] {
            let path = directory.join(name);
            std::fs::create_dir_all(path.parent().expect("a directory")).expect("made");
            std::fs::write(path, "[never]").expect("written");
        }
        let ways = ways(directory, &KNOBS, &[row(TRIMMING)]);
        let words: Vec<Vec<&str>> = ways
            .iter()
            .map(|way| way.set.iter().map(|set| &*set.1).collect())
            .collect();
        // THP itself, 2 MiB, 64 KiB.
        let never = ["never"; 3];
        assert_eq!(words[0], never);
        assert_eq!(words[1], ["never", "always", "never"]);
        assert_eq!(words[2], ["never", "never", "always"]);
        assert_eq!((words[3].as_slice(), words.len()), (&never[..], 4));
        let variable = ways[3].environment.as_ref().expect("set");
        assert_eq!(variable.0, "GLIBC_TUNABLES");
    }

    #[test]
    fn what_was_measured_stands_beside_its_row() {
        let usage = |user_s, faults| Usage {
            user_s,
            faults,
            resident_bytes: 4096,
            ..Usage::default()
        };
        let way = |what: Option<&str>| Way {
            what: what.map(str::to_owned),
            set: Vec::new(),
            environment: None,
        };
        let used = [
            vec![usage(2.0, 100); 6],
            vec![usage(1.0, 10); 6],
            vec![usage(2.0, 100); 6],
        ];
        let mut rows = [row("other"), row("this")];
        let checked = judged(&[way(None), way(Some("this"))], &used, &mut rows, 1);
        assert_eq!((checked.rounds, checked.cpu_ns), (6, 2e9));
        assert_eq!(checked.control.value, 0.0);
        assert_eq!(rows[0].measured, None);
        let measured = rows[1].measured.expect("measured");
        assert_eq!((measured.cpu.value, measured.resident), (-0.5, 0.0));
        assert!(measured.told);
        assert!((measured.faults + 0.9).abs() < 1e-9);
    }

    #[test]
    fn a_command_that_fails_ends_the_check() {
        let request = Request {
            command: vec!["false".into()],
            prepare: None,
            budget: Duration::ZERO,
            seed: 1,
            style: Style::Quiet,
        };
        let way = &ways(Path::new("/nowhere"), &[], &[])[0];
        let failed = once(&request, way, &Interrupt::manual()).expect_err("it fails");
        assert!(
            failed.message().contains("when it was run again"),
            "{}",
            failed.message()
        );
        let nothing = Request {
            prepare: Some("exit 3".to_owned()),
            ..request
        };
        let failed = once(&nothing, way, &Interrupt::manual()).expect_err("it fails");
        assert!(
            failed.message().contains("--prepare"),
            "{}",
            failed.message()
        );
    }
}
