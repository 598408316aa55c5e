//! `vellum doctor`: what this machine can do for the laboratory.

use std::io::{self, Write};

use clap::Args;
use clap::builder::PossibleValuesParser;

use super::Failure;
use crate::doctor::{CAPABILITIES, Finding};
use crate::report::json;

const EXAMPLES: &str = "\
Each thing is tried on a small scale: events are opened, a process is started and traced, a small
machine is simulated. Nothing is changed. Names on the command line choose what is looked at.

Examples:
  vellum doctor
  vellum doctor record linux && sudo vellum record -o build.vellum -- make -j4
  vellum doctor --json | jq -r '.[] | select(.works | not).mend'

Exit codes: 0 what was named works, or nothing was named; 1 failed; 2 unusable arguments;
3 something that was named does not work.";

/// Try what this machine can do: record, compare, replay on its kernel, profile, simulate
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct DoctorArgs {
    /// What must work; everything is looked at if nothing is named
    #[arg(value_name = "WHAT", value_parser = names())]
    wanted: Vec<String>,
    /// Print JSON: an array of objects with name, enables, works, detail and mend
    #[arg(long)]
    json: bool,
}

fn names() -> PossibleValuesParser {
    PossibleValuesParser::new(CAPABILITIES.iter().map(|capability| capability.name))
}

/// Tries, and prints what was found.
pub fn run(args: DoctorArgs) -> Result<(), Failure> {
    let is_wanted = |name: &str| args.wanted.is_empty() || args.wanted.iter().any(|w| w == name);
    let examined = CAPABILITIES.iter().filter(|one| is_wanted(one.name));
    let findings: Vec<Finding> = examined.map(|one| one.examine()).collect();
    let printed = match args.json {
        true => json::render(&findings)?,
        false => findings.iter().map(lines).collect(),
    };
    io::stdout().lock().write_all(printed.as_bytes())?;
    let missing = findings.iter().filter(|finding| !finding.works).count();
    match missing > 0 && !args.wanted.is_empty() {
        true => Err(Failure::refuted(format!(
            "{missing} of {} do not work here",
            findings.len()
        ))),
        false => Ok(()),
    }
}

fn lines(finding: &Finding) -> String {
    let state = if finding.works { "works" } else { "MISSING" };
    let mut text = format!(
        "{:<9} {state:<8} {}\n{:19}for {}\n",
        finding.name, finding.detail, "", finding.enables
    );
    if !finding.mend.is_empty() {
        text += &format!("{:19}mend it: {}\n", "", finding.mend);
    }
    text
}
