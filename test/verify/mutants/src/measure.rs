//! The round without mutants, and each mutant against the tests that reach it.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::list::Mutant;
use crate::programs::{End, Limit, Program};
use crate::tree::{Place, Places};

/// A test as it is without mutants.
pub struct Test<'a> {
    program: &'a Program,
    name: &'a str,
    /// Of processors.
    pub time: Duration,
    /// Mutants whose places it reaches, by name.
    reaches: BTreeSet<String>,
}

/// What the round without mutants is remembered as.
#[derive(Default, Serialize, Deserialize)]
struct Noted {
    /// What it was measured with: the program's time of change and size.
    of: (u64, u64),
    micros: u64,
    reaches: BTreeSet<String>,
}

fn identity(program: &Program) -> (u64, u64) {
    let Ok(data) = fs::metadata(&program.path) else {
        return (0, 0);
    };
    let changed = data
        .modified()
        .ok()
        .and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    (changed.map_or(0, |time| time.as_nanos() as u64), data.len())
}

/// Calls `work` for each item, `jobs` at a time.
fn in_parallel<T: Sync>(items: &[T], jobs: usize, work: impl Fn(&T) + Sync) {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            scope.spawn(|| {
                while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
                    work(item);
                }
            });
        }
    });
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// What a test may take that took nothing yet: it is not to hang for good.
const FIRST: Limit = Limit {
    cpu: Duration::from_secs(900),
    wall: Duration::from_secs(3600),
};

/// Runs every wanted test without a mutant. What was measured with the same program
/// before is not measured again, and with `trust` what was measured with an older one.
///
/// # Errors
/// Tests that fail, by name.
pub fn baseline<'a>(
    place: &Place,
    programs: &'a [Program],
    places: &Places,
    is_wanted: &dyn Fn(&str) -> bool,
    trust: bool,
    jobs: usize,
) -> Result<Vec<Test<'a>>, String> {
    let notes = place.notes.join("baseline.json");
    let old: BTreeMap<String, Noted> = read_json(&notes);
    let all: Vec<(&Program, &str)> = programs
        .iter()
        .flat_map(|program| {
            program
                .tests
                .iter()
                .map(move |test| (program, test.as_str()))
        })
        .filter(|(program, test)| is_wanted(&format!("{} {test}", program.name)))
        .collect();
    let tests: Mutex<Vec<Test<'a>>> = Mutex::default();
    let (failed, noted) = (Mutex::new(Vec::new()), Mutex::new(old));
    eprintln!("{} tests without a mutant", all.len());
    in_parallel(&all, jobs, |&(program, name)| {
        let key = format!("{} {name}", program.name);
        let of = identity(program);
        let known = lock(&noted)
            .remove(&key)
            .filter(|known| trust || known.of == of);
        let known = match known {
            Some(known) => known,
            None => match measure_one(place, program, places, name) {
                Ok((micros, reaches)) => Noted {
                    of,
                    micros,
                    reaches,
                },
                Err(error) => {
                    lock(&failed).push(format!("{key}: {error}"));
                    return;
                }
            },
        };
        lock(&tests).push(Test {
            program,
            name,
            time: Duration::from_micros(known.micros),
            reaches: known.reaches.clone(),
        });
        let mut noted = lock(&noted);
        noted.insert(key, known);
        write_json(&notes, &*noted);
    });
    let failed = failed.into_inner().unwrap_or_default();
    if !failed.is_empty() {
        return Err(format!(
            "these fail without any mutant:\n{}",
            failed.join("\n")
        ));
    }
    let mut tests = tests.into_inner().unwrap_or_default();
    tests.sort_by_key(|test| (test.time, test.name));
    let total: Duration = tests.iter().map(|test| test.time).sum();
    eprintln!("they take {total:.1?} of processors' time");
    Ok(tests)
}

fn measure_one(
    place: &Place,
    program: &Program,
    places: &Places,
    name: &str,
) -> Result<(u64, BTreeSet<String>), String> {
    let safe: String = name
        .chars()
        .map(|c| if c.is_alphanumeric() { c } else { '_' })
        .collect();
    let owner: String = program
        .name
        .chars()
        .filter(|c| c.is_alphanumeric())
        .collect();
    let trace = place.notes.join(format!("reached-{owner}-{safe}"));
    let _ = fs::remove_file(&trace);
    let path = trace.to_string_lossy();
    let run = program.run(name, FIRST, ("VELLUM_MUTANTS_REACHED", &path));
    let (end, time) = run.map_err(|error| error.to_string())?;
    if end != End::Passed {
        return Err(format!("{end:?}"));
    }
    let text = fs::read_to_string(&trace).unwrap_or_default();
    let _ = fs::remove_file(&trace);
    let reached: HashSet<usize> = text.lines().filter_map(|line| line.parse().ok()).collect();
    let reaches = places
        .iter()
        .filter(|(_, number)| reached.contains(number))
        .map(|(name, _)| name.clone());
    Ok((time.as_micros() as u64, reaches.collect()))
}

/// What became of a mutant.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Outcome {
    /// [`Mutant::fingerprint`].
    of: u64,
    /// The test that found it.
    pub found_by: Option<String>,
    /// Whether it did so by not coming to an end.
    pub hung: bool,
    /// The tests that reach it and passed with it.
    pub passed: BTreeSet<String>,
}

/// What became of mutants in this run and earlier ones.
pub struct Known {
    path: PathBuf,
    outcomes: BTreeMap<String, Outcome>,
    /// Which test found a mutant some time: where to begin.
    finders: BTreeMap<String, String>,
}

impl Known {
    /// What earlier runs found, unless it is to be forgotten, and which tests are
    /// likely to find a mutant.
    pub fn load(place: &Place, forget: bool, mut finders: BTreeMap<String, String>) -> Known {
        let path = place.notes.join("outcomes.json");
        let mut outcomes: BTreeMap<String, Outcome> = read_json(&path);
        let found = outcomes.iter().filter_map(|(name, outcome)| {
            let finder = outcome.found_by.clone()?;
            Some((name.clone(), finder))
        });
        finders.extend(found);
        if forget {
            outcomes.clear();
        }
        Known {
            path,
            outcomes,
            finders,
        }
    }

    /// What became of a mutant, if that is known.
    pub fn of(&self, mutant: &Mutant) -> Option<&Outcome> {
        let outcome = self.outcomes.get(&mutant.name)?;
        (outcome.of == mutant.fingerprint()).then_some(outcome)
    }
}

/// A mutant that is to be run.
struct Job<'a> {
    mutant: &'a Mutant,
    number: usize,
    /// What is known of it.
    outcome: Outcome,
    /// The tests to run, those likely to find it first.
    tests: Vec<&'a Test<'a>>,
}

/// Runs those mutants that no test is known to find, with the tests that they have
/// not been run with. A test that found one is taken at its word as long as it
/// exists, and so are tests that did not, unless `again` says to run all tests.
///
/// # Errors
/// A test that could not be run.
pub fn run(
    mutants: &[&Mutant],
    places: &Places,
    programs: &[Program],
    tests: &[Test<'_>],
    known: &mut Known,
    again: bool,
    jobs: usize,
) -> Result<(), String> {
    // A test of a package that is left out this time is taken to be there.
    let exists = |found: &String| {
        let (package, name) = found.split_once(' ').unwrap_or_default();
        let program = programs.iter().find(|program| program.name == package);
        program.is_none_or(|program| program.tests.iter().any(|test| test == name))
    };
    let mut left = Vec::new();
    for &mutant in mutants {
        let Some(&number) = places.get(&mutant.name) else {
            continue;
        };
        let mut outcome = known.of(mutant).cloned().unwrap_or_default();
        outcome.of = mutant.fingerprint();
        if outcome.found_by.as_ref().is_some_and(exists) {
            continue;
        }
        outcome.found_by = None;
        if again {
            outcome.passed.clear();
        }
        let finder = known.finders.get(&mutant.name);
        let mut reaching: Vec<&Test<'_>> = tests
            .iter()
            .filter(|test| test.reaches.contains(&mutant.name))
            .filter(|test| !outcome.passed.contains(&title(test)))
            .collect();
        // Stable: all others stay in the order of their times.
        reaching.sort_by_key(|test| finder != Some(&title(test)));
        left.push(Job {
            mutant,
            number,
            outcome,
            tests: reaching,
        });
    }
    eprintln!(
        "{} mutants to run, {} known to be found",
        left.len(),
        mutants.len() - left.len()
    );
    // Those for which no test is likely take long: they come first, so that no
    // processor waits for the last of them.
    left.sort_by_key(|job| known.finders.contains_key(&job.mutant.name));
    let known = Mutex::new(known);
    let error = Mutex::new(None);
    let done = AtomicUsize::new(0);
    in_parallel(&left, jobs, |job| match try_one(job) {
        Ok(outcome) => {
            let nth = done.fetch_add(1, Ordering::Relaxed) + 1;
            let (file, name) = (&job.mutant.file, &job.mutant.name);
            let found = outcome.found_by.as_deref().unwrap_or("NOT FOUND");
            eprintln!("{nth}/{}: {file} {name}: {found}", left.len());
            let mut known = lock(&known);
            known.outcomes.insert(name.clone(), outcome);
            write_json(&known.path, &known.outcomes);
        }
        Err(failure) => *lock(&error) = Some(failure),
    });
    match error.into_inner().unwrap_or_default() {
        Some(error) => Err(error),
        None => Ok(()),
    }
}

fn title(test: &Test<'_>) -> String {
    format!("{} {}", test.program.name, test.name)
}

fn try_one(job: &Job<'_>) -> Result<Outcome, String> {
    let mut outcome = job.outcome.clone();
    for test in &job.tests {
        let limit = Limit {
            cpu: test.time * 8 + Duration::from_secs(3),
            wall: test.time * 60 + Duration::from_secs(60),
        };
        let chosen = ("VELLUM_MUTANT", job.number.to_string());
        let run = test.program.run(test.name, limit, (chosen.0, &chosen.1));
        let (end, _) = run.map_err(|error| format!("{}: {error}", title(test)))?;
        if end != End::Passed {
            outcome.found_by = Some(title(test));
            outcome.hung = end == End::Hung;
            break;
        }
        outcome.passed.insert(title(test));
    }
    Ok(outcome)
}

fn read_json<T: Default + for<'de> Deserialize<'de>>(path: &std::path::Path) -> T {
    let text = fs::read_to_string(path).unwrap_or_default();
    serde_json::from_str(&text).unwrap_or_default()
}

fn write_json(path: &std::path::Path, value: &impl Serialize) {
    let new = path.with_extension("new");
    let written = serde_json::to_string(value)
        .map_err(std::io::Error::other)
        .and_then(|text| fs::write(&new, text))
        .and_then(|()| fs::rename(&new, path));
    if let Err(error) = written {
        eprintln!("{}: {error}", path.display());
    }
}
