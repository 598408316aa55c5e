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

/// List the options that a design is made of and the published kernels, one per line
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct DesignsArgs {
    /// Print JSON: `options`, an array of objects with name, values, default, summary and
    /// source; `presets`, one with name, settings, meaning and source
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

fn table(options: &[OptionInfo]) -> String {
    let lines = options.iter().map(|option| {
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
        let assignment = format!("{}={values}", option.name);
        (assignment, option.summary, option.source)
    });
    Table::lines(
        lines
            .map(|(assignment, summary, source)| vec![assignment, format!("{summary} ({source})")]),
    )
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
