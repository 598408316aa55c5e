//! Known defects of the core, one at a time, and the test that finds each.
//!
//! A **mutant** is the core with one small piece of its source replaced by a
//! wrong one. The list ([`list`]) says for each what the piece is, what takes
//! its place, and why that is a defect. All are compiled in together: a copy of
//! the tree ([`tree`]) has `if mutants::is(17) { wrong } else { right }` at each
//! place, and the environment says which one a process runs with. So the test
//! programs ([`programs`]) are built once.
//!
//! Each test runs as a process of its own. A first round without a mutant
//! records how long each takes and which places it reaches; a mutant then meets
//! only tests that reach it, first the one that found it the last time
//! ([`finders`]), then the shortest first, until one fails ([`measure`]).
//! A test that takes many times as long as before has found it too.

pub mod finders;
pub mod list;
pub mod measure;
pub mod programs;
pub mod report;
pub mod tree;

use std::path::{Path, PathBuf};

use list::Mutant;

/// The share of those not judged equivalent that tests have to find, in percent.
pub const NEEDED: usize = 98;

/// Tests that read the sources, in which all mutants stand here at once.
const OF_SOURCES: &str = "space::tests::rooms::";

/// What to do.
#[derive(clap::Args)]
pub struct Args {
    /// Only mutants whose file or name contains this
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Only mutants of which no measurement has noted what finds them
    #[arg(long)]
    unfound: bool,
    /// Print the list, and run nothing
    #[arg(long)]
    list: bool,
    /// Check that each mutant's original text is where the list says and that the core
    /// compiles with all of them, and run nothing
    #[arg(long)]
    check: bool,
    /// Forget what earlier runs found, but for which test to begin with
    #[arg(long)]
    fresh: bool,
    /// Run mutants that no test found with all tests again, not only with new ones
    #[arg(long)]
    again: bool,
    /// Only tests whose package and name contain this
    #[arg(long, value_name = "TEXT")]
    tests: Option<String>,
    /// Run those judged equivalent too, which no test should find
    #[arg(long)]
    equivalent: bool,
    /// Only the tests of these packages, of those that are built by default
    #[arg(long, value_name = "PACKAGE", value_delimiter = ',')]
    packages: Vec<String>,
    /// Do not run tests again without a mutant because their program has changed, to
    /// try a new test quickly
    #[arg(long)]
    trust: bool,
    /// Only tests that take no more than this of a processor's time without a mutant
    #[arg(long, value_name = "SECONDS")]
    within: Option<f64>,
    /// Write down which test found each mutant, for later measurements to begin with
    #[arg(long)]
    note: bool,
    /// Tests at a time
    #[arg(long, default_value_t = 2, value_name = "N")]
    jobs: usize,
}

/// The top of the working tree.
pub fn root() -> PathBuf {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    top.canonicalize().unwrap_or(top)
}

/// Runs the command.
///
/// # Errors
/// A list that does not fit the sources, a build or a test that fails without
/// any mutant, or fewer mutants found than [`NEEDED`].
pub fn run(args: &Args) -> Result<(), String> {
    let root = root();
    let mutants = list::read(&root)?;
    tree::check(&root, &mutants)?;
    let noted = finders::read(&root);
    let is_chosen = |mutant: &Mutant| {
        let is_named = args.only.as_ref().is_none_or(|text| {
            mutant.name.contains(text.as_str()) || mutant.file.contains(text.as_str())
        });
        is_named && !(args.unfound && noted.contains_key(&mutant.name))
    };
    if args.list {
        for mutant in mutants.iter().filter(|mutant| is_chosen(mutant)) {
            println!("{mutant}");
        }
        return Ok(());
    }
    let target = match std::env::var_os("CARGO_TARGET_DIR") {
        Some(target) => PathBuf::from(target),
        None => root.join("target"),
    };
    let place = tree::Place::new(&root, &target.join("mutants"));
    let places = tree::write(&place, &mutants)?;
    if args.check {
        programs::check(&place)?;
        println!("{} mutants fit the sources and compile", mutants.len());
        return Ok(());
    }
    let programs = programs::build(&place, &args.packages)?;
    let is_wanted = |title: &str| {
        !title.contains(OF_SOURCES) && args.tests.as_ref().is_none_or(|text| title.contains(text))
    };
    let mut baseline = measure::baseline(
        &place, &programs, &places, &is_wanted, args.trust, args.jobs,
    )?;
    if let Some(seconds) = args.within {
        baseline.retain(|test| test.time.as_secs_f64() <= seconds);
    }
    let chosen: Vec<&Mutant> = mutants
        .iter()
        .filter(|mutant| is_chosen(mutant) && (args.equivalent || mutant.equivalent.is_none()))
        .collect();
    let mut known = measure::Known::load(&place, args.fresh, noted.clone());
    measure::run(
        &chosen, &places, &programs, &baseline, &mut known, args.again, args.jobs,
    )?;
    if args.note {
        let found = |mutant: &Mutant| known.of(mutant)?.found_by.clone();
        let noted = finders::noted(&mutants, found, noted.clone());
        finders::write(&root, &noted)?;
    }
    let shown: Vec<&Mutant> = mutants.iter().filter(|mutant| is_chosen(mutant)).collect();
    report::print(&shown, &known)
}

#[cfg(test)]
mod tests;
