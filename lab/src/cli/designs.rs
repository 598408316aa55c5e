//! `vellum designs`: the options a design is made of.

use std::io::{self, Write};

use clap::Args;
use vellum_engine::OptionInfo;

use super::Failure;
use vellum_terminal::table::Table;

const EXAMPLES: &str = "\
A design is a list of options as in `rmap=chains,direct=off`; what it leaves out has its default.

Examples:
  vellum designs
  vellum designs --json | jq '.[].name'
  vellum replay traces/kernel-build.vellum --design rmap=chains,direct=off";

/// List the options that a design is made of, one per line
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct DesignsArgs {
    /// Print JSON: an array of objects with name, values, default, summary, source
    #[arg(long)]
    json: bool,
}

#[derive(serde::Serialize)]
struct Entry<'o> {
    name: &'o str,
    values: &'o [&'o str],
    default: &'o str,
    summary: &'o str,
    source: &'o str,
}

/// Prints the table of options.
pub fn run(args: DesignsArgs) -> Result<(), Failure> {
    let options = vellum_engine::options();
    let text = match args.json {
        true => json(options)?,
        false => table(options),
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

fn json(options: &[OptionInfo]) -> serde_json::Result<String> {
    let entries: Vec<Entry<'_>> = options
        .iter()
        .map(|option| Entry {
            name: option.name,
            values: option.values,
            default: option.default,
            summary: option.summary,
            source: option.source,
        })
        .collect();
    serde_json::to_string_pretty(&entries).map(|text| text + "\n")
}
