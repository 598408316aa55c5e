//! `vellum diffprofile`: where two profiles differ.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use clap::builder::ValueHint;

use super::outputs::{OutputFile, OutputPath};
use super::{Failure, OrFail};
use crate::report::json;
use vellum_profile::diffprofile::{self, Options, Shown, diffprofile};
use vellum_profile::groups::Groups;
use vellum_profile::read::{self, Format};
use vellum_profile::{Profile, flame, folded_pair, without_clone_suffix};

const EXAMPLES: &str = "\
Each line is the change in ticks, the change in percent of OLD, and the function. Positive is more
in NEW, that is, worse. A function that OLD lacks shows 0.0%, one that NEW lacks -100.0%: a pair
of these with the same number of ticks is most likely one function under two names. The group
sums do not fall for that. docs/report.md says how to read them, and what they cannot tell.

Folded stacks (a;b;c 12), `perf script`, opreport and readprofile are read; `-` is standard input.

Examples:
  vellum diffprofile mm2.readprofile mm3.readprofile --title kernbench --new-name=-mm3
  perf script -i new.data | vellum diffprofile old.folded - -n 20 --svg diff.svg
  vellum diffprofile old.txt new.txt --threshold 30 --group 'dirty=set_page_dirty'
  vellum diffprofile old.txt new.txt --json | jq '.groups[] | select(.name == \"rmap\")'";

/// Say where two profiles differ, function by function and group by group
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct DiffprofileArgs {
    /// The profile that is the basis of percentages
    #[arg(value_hint = ValueHint::FilePath)]
    old: PathBuf,

    /// The profile held against it
    #[arg(value_hint = ValueHint::FilePath)]
    new: PathBuf,

    /// Format of both files [default: each is recognised by its first line]
    #[arg(long, value_enum, value_name = "FORMAT")]
    format: Option<Format>,

    /// Lines to print from each end of the list
    #[arg(short = 'n', long, value_name = "LINES", default_value_t = 10)]
    ends: usize,

    /// Print every line that changed by at least so many ticks instead
    #[arg(long, value_name = "TICKS", conflicts_with = "ends")]
    threshold: Option<u64>,

    /// Percentages by integer division, rounding down, as autotest's diffprofile has them
    #[arg(long)]
    compat: bool,

    /// Print ticks and the statistical error behind each line
    #[arg(long)]
    errors: bool,

    /// Add up functions whose names match; may be repeated, tried before the built-in groups
    #[arg(long, value_name = "NAME=REGEX")]
    group: Vec<String>,

    /// Only the groups given with --group
    #[arg(long)]
    no_built_in_groups: bool,

    /// Take clones that a compiler made (f.isra.0, f.constprop.0, f.cold) for the function
    #[arg(long)]
    merge_clones: bool,

    /// Count the periods of perf's samples instead of the samples
    #[arg(long)]
    periods: bool,

    /// What was run, for the heading
    #[arg(long, value_name = "TEXT", default_value = "")]
    title: String,

    /// What the heading calls NEW [default: the name of its file]
    #[arg(long, value_name = "NAME", allow_hyphen_values = true)]
    new_name: Option<String>,

    /// Print JSON
    #[arg(long)]
    json: bool,

    /// Write a differential flame graph; needs call stacks
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    svg: Option<OutputPath>,

    /// Write folded stacks with the ticks of OLD and NEW
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    folded: Option<OutputPath>,
}

/// Reads both profiles, prints and writes what was asked for.
pub fn run(args: DiffprofileArgs) -> Result<(), Failure> {
    let stdin = Path::new("-");
    if args.old == stdin && args.new == stdin {
        return Err(Failure::usage(
            "only one of OLD and NEW can be standard input",
        ));
    }
    let groups = match args.no_built_in_groups {
        true => Groups::none(),
        false => Groups::built_in(),
    };
    let groups = groups.preceded_by(&args.group).blame_input()?;
    let reading = read::Options {
        format: args.format,
        periods: args.periods,
    };
    let load = |path: &Path| -> Result<Profile, Failure> {
        let profile = read::file(path, reading).blame_input()?;
        Ok(match args.merge_clones {
            true => profile.renamed(|name| without_clone_suffix(name).to_owned()),
            false => profile,
        })
    };
    let (old, new) = (load(&args.old)?, load(&args.new)?);
    let files = write(&args, &old, &new)?;
    let options = Options {
        shown: match args.threshold {
            Some(ticks) => Shown::AtLeast(ticks),
            None => Shown::Ends(args.ends),
        },
        compat: args.compat,
        errors: args.errors,
        groups,
        title: args.title.clone(),
        new_name: args
            .new_name
            .clone()
            .unwrap_or_else(|| base_name(&args.new)),
    };
    let diff = diffprofile(&old, &new, &options);
    let printed = match args.json {
        true => json::render(&diff)?,
        false => diffprofile::text(&diff, &options),
    };
    for (file, content) in files {
        file.commit(&content)?;
    }
    io::stdout().lock().write_all(printed.as_bytes())?;
    Ok(())
}

/// Files that are complete but for their names.
type Pending = Vec<(OutputFile, String)>;

fn write(args: &DiffprofileArgs, old: &Profile, new: &Profile) -> Result<Pending, Failure> {
    let mut files = Vec::new();
    if let Some(path) = &args.svg {
        for profile in [old, new] {
            if !profile.has_callers() {
                return Err(Failure::usage(format!(
                    "{}: a flame graph needs call stacks, and this profile has none (perf: record \
                     with -g)",
                    profile.name
                )));
            }
        }
        let title = match args.title.as_str() {
            "" => "Differential flame graph",
            title => title,
        };
        files.push((path.create()?, flame::svg(old, new, title)));
    }
    if let Some(path) = &args.folded {
        files.push((path.create()?, folded_pair(old, new)));
    }
    Ok(files)
}

fn base_name(path: &Path) -> String {
    match path.file_name() {
        Some(name) if path != Path::new("-") => name.to_string_lossy().into_owned(),
        _ => "the new profile".to_owned(),
    }
}
