//! `vellum designs`: the options a design is made of, and published kernels.

use std::io::{self, Write};

use clap::Args;
use vellum_engine::{OptionInfo, Preset};

use super::Failure;
use vellum_terminal::table::Table;

const EXAMPLES: &str = "\
A design is a list of options as in `rmap=chains,direct=off`; what it leaves out has its default.
Commas and blanks separate options alike. `as=` sets every option to what a published kernel did;
options after it change that.

Examples:
  vellum designs
  vellum designs --json | jq '.options[].name'
  vellum replay traces/kernel-build.vellum --design rmap=chains,direct=off
  vellum compare traces/kernel-build.vellum --a as=linux-2.5.65-mm2 --b as=linux-2.5.65-mm3";

/// What options are about, those that people of today ask for first, in the words that Linux
/// users say, too. An option that changes something only with another stands below that one.
const SUBJECTS: [(&str, &[&str]); 7] = [
    (
        "Huge pages (THP), folios (mTHP)",
        &["superpage", "folio", "huge", "filehuge"],
    ),
    (
        "Reclaim, swap (zswap), groups (cgroup), overcommit",
        &["reclaim", "commit"],
    ),
    ("Faults, fork", &["faultaround", "forkcopy", "faultlock"]),
    ("Reverse mapping", &["rmap", "regions"]),
    ("Page tables", &["ptepage", "format"]),
    ("Files, page cache", &["fileio"]),
    ("Page allocator", &["framelists"]),
];

/// List the options that a design is made of, by subject, and the published kernels
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct DesignsArgs {
    /// Print JSON: `options`, an array of objects with name, subject, values, default, summary
    /// and source; `presets`, one with name, settings, meaning and source
    #[arg(long)]
    json: bool,
}

#[derive(serde::Serialize)]
struct List<'o> {
    options: Vec<Entry<'o>>,
    presets: Vec<Kernel<'o>>,
}

#[derive(serde::Serialize)]
struct Kernel<'o> {
    name: &'o str,
    settings: &'o str,
    meaning: &'o str,
    source: &'o str,
}

#[derive(serde::Serialize)]
struct Entry<'o> {
    name: &'o str,
    subject: &'o str,
    values: &'o [&'o str],
    default: &'o str,
    summary: &'o str,
    source: &'o str,
}

/// Prints the tables.
pub fn run(args: DesignsArgs) -> Result<(), Failure> {
    let (options, presets) = (vellum_engine::options(), vellum_engine::presets());
    let text = match args.json {
        true => json(options, presets)?,
        false => format!("{}\n{}", table(options), kernels(presets)),
    };
    io::stdout().lock().write_all(text.as_bytes())?;
    Ok(())
}

/// The options of a subject, and how far each is indented: those that change something only with
/// another stand below that one.
fn of_subject<'o>(
    options: &'o [OptionInfo],
    names: &'static [&'static str],
) -> impl Iterator<Item = (&'o OptionInfo, &'static str)> {
    names.iter().flat_map(move |name| {
        let named = options.iter().filter(move |option| option.name == *name);
        let below = options
            .iter()
            .filter(move |option| option.only_with.is_some_and(|(of, _)| of == *name));
        named
            .map(|option| (option, "  "))
            .chain(below.map(|option| (option, "    ")))
    })
}

/// What an option is about.
fn subject(options: &[OptionInfo], option: &OptionInfo) -> &'static str {
    let found = SUBJECTS.iter().find(|(_, names)| {
        of_subject(options, names).any(|(listed, _)| listed.name == option.name)
    });
    found.map_or("Other", |(subject, _)| subject)
}

fn table(options: &[OptionInfo]) -> String {
    let mut rows = Vec::new();
    for (subject, names) in SUBJECTS {
        rows.push(vec![subject.to_owned(), String::new()]);
        rows.extend(of_subject(options, names).map(|(option, indent)| {
            let meaning = format!("{} ({})", option.summary, option.source);
            vec![indent.to_owned() + &assignment(option), meaning]
        }));
    }
    Table::lines(rows.into_iter())
}

/// An option and its values, the default in brackets.
fn assignment(option: &OptionInfo) -> String {
    let values = option
        .values
        .iter()
        .map(|value| match *value == option.default {
            true => format!("[{value}]"),
            false => (*value).to_owned(),
        });
    let mut values = values.collect::<Vec<_>>().join("|");
    if !option.values.contains(&option.default) {
        values += &format!(" [{}]", option.default);
    }
    format!("{}={values}", option.name)
}

fn kernels(presets: &[Preset]) -> String {
    Table::lines(presets.iter().map(|preset| {
        let meaning = format!(
            "{} ({}): {}",
            preset.meaning, preset.source, preset.settings
        );
        vec![format!("as={}", preset.name), meaning]
    }))
}

fn json(options: &[OptionInfo], presets: &[Preset]) -> serde_json::Result<String> {
    let options = options.iter().map(|option| Entry {
        name: option.name,
        subject: subject(options, option),
        values: option.values,
        default: option.default,
        summary: option.summary,
        source: option.source,
    });
    let presets = presets.iter().map(|preset| Kernel {
        name: preset.name,
        settings: preset.settings,
        meaning: preset.meaning,
        source: preset.source,
    });
    let list = List {
        options: options.collect(),
        presets: presets.collect(),
    };
    serde_json::to_string_pretty(&list).map(|text| text + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_option_is_listed_once_under_a_subject() {
        let options = vellum_engine::options();
        let mut listed: Vec<&str> = SUBJECTS
            .iter()
            .flat_map(|(_, names)| of_subject(options, names))
            .map(|(option, _)| option.name)
            .collect();
        listed.sort_unstable();
        let mut all: Vec<&str> = options.iter().map(|option| option.name).collect();
        all.sort_unstable();
        assert_eq!(listed, all);
    }
}
