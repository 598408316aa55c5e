//! `vellum report`: results as a page.

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use clap::builder::ValueHint;
use vellum_page::Overview;
use vellum_results::Loaded;

use super::outputs::{OutputOrStdout, OutputPath};
use super::{Failure, OrFail};

const EXAMPLES: &str = "\
A result is what `compare`, `bench`, `reproduce`, `replay`, `scale`, `plan` and `sweep` write with
--json, what `replay --on linux` writes with --save, or a finished cell of a sweep. The page is one
file that asks the network for nothing; pictures are in it, and it reads without scripts, too. These
commands write the same page with --html. docs/report.md says what is on it.

Examples:
  vellum compare traces/kernel-build.vellum --json chains-partial.json
  vellum report chains-partial.json -o chains-partial.html
  vellum report monday.json tuesday.json wednesday.json -o week.html --title 'This week'
  vellum report chains-partial.json --svg chains-partial.svg
  vellum bench fork-family --json - | vellum report - -o fork.html

Exit codes: 0 written, 1 failed, 2 unusable arguments or results.";

/// Draw results as one HTML page, to look at and to send to others
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct ReportArgs {
    /// Results as JSON; `-` reads one from standard input
    #[arg(required = true, value_name = "RESULT", value_hint = ValueHint::FilePath)]
    results: Vec<PathBuf>,
    /// The page; `-` prints it
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath,
          required_unless_present = "svg")]
    output: Option<OutputOrStdout>,
    /// One picture of one result as SVG, for a document; of `compare`, `scale` and `plan`
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    svg: Option<OutputPath>,
    /// Title of the page
    #[arg(long, value_name = "TEXT", default_value = "")]
    title: String,
}

/// Reads the results, writes the page.
pub fn run(args: ReportArgs) -> Result<(), Failure> {
    let page = args.output.as_ref().and_then(OutputOrStdout::file);
    let page = page.map(OutputPath::create).transpose()?;
    let picture_file = args.svg.as_ref().map(OutputPath::create).transpose()?;
    let results = args.results.iter().map(|path| load(path));
    let results = results.collect::<Result<Vec<Loaded>, Failure>>()?;
    if let Some(file) = picture_file {
        file.commit(&picture(&results)?)?;
    }
    if args.output.is_none() {
        return Ok(());
    }
    let overview = Overview {
        title: args.title,
        notes: Vec::new(),
    };
    let text = vellum_page::render(&results, &overview);
    match page {
        Some(file) => file.commit(&text),
        None => Ok(io::stdout().lock().write_all(text.as_bytes())?),
    }
}

/// The picture of the only result.
fn picture(results: &[Loaded]) -> Result<String, Failure> {
    let [result] = results else {
        return Err(Failure::usage("--svg draws one result: give one"));
    };
    vellum_page::picture(result).ok_or_else(|| {
        Failure::usage(format!(
            "{}: {} has no picture of its own; --output draws its page",
            result.name, result.schema
        ))
    })
}

fn is_dash(path: &Path) -> bool {
    path == Path::new("-")
}

fn load(path: &Path) -> Result<Loaded, Failure> {
    let (name, bytes) = match is_dash(path) {
        true => {
            let mut bytes = Vec::new();
            io::stdin().lock().read_to_end(&mut bytes)?;
            ("standard input".to_owned(), bytes)
        }
        false => {
            let bytes = std::fs::read(path);
            let name = path.display().to_string();
            (
                name,
                bytes
                    .doing(|| format!("reading {}", path.display()))
                    .blame_input()?,
            )
        }
    };
    let text = String::from_utf8(bytes).map_err(|error| {
        let place = error.utf8_error().valid_up_to();
        Failure::usage(format!(
            "{name}: no result: byte {place} is no text in UTF-8"
        ))
    })?;
    Loaded::parse(name, &text).map_err(|error| Failure::usage(error.to_string()))
}
