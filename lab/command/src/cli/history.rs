//! `vellum history`: results that are kept.

use std::io::{self, Write};
use std::path::PathBuf;
use std::time::SystemTime;

use chrono::{DateTime, TimeDelta, Utc};
use clap::builder::ValueHint;
use clap::{Args, Subcommand};
use serde::{Deserialize, Serialize};
use vellum_history::{Added, Entry, Store};

use super::kept::{DbArgs, document, kept_in};
use super::outputs::{OutputOrStdout, OutputPath};
use super::{Failure, OrFail};
use crate::history::difference::difference;
use crate::history::{Kept, host_words, stored, text, trend};
use crate::report::json;
use vellum_page::headline;

const EXAMPLES: &str = "\
A result is what `compare`, `bench`, `reproduce`, `replay`, `scale` and `plan` write with --json.
They keep it themselves with --keep. It is kept whole: neither the trace nor the program that made
it is needed later. docs/report.md says what is told of results that were made apart, and how to
hold a change against a saved result in CI.

Examples:
  vellum compare traces/kernel-build.vellum -n 12 --keep --note 'before the new lists'
  vellum history add monday.json tuesday.json
  vellum history list --subject kernel-build
  vellum history show 12
  vellum history compare 12 15
  vellum history trend kernel-build.vellum rmap=partial --since 2026-03-01
  vellum history export 12 | vellum report - -o page.html
  vellum history export -o all.jsonl && vellum history add all.jsonl --db other.db
  vellum history prune --older-than 365

Exit codes: 0 done, 1 failed (nothing was changed), 2 unusable arguments, results or database.";

/// Keep results in a database, list them, and say what changed over time
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct HistoryArgs {
    #[command(subcommand)]
    what: What,
    #[command(flatten)]
    db: DbArgs,
}

#[derive(Subcommand, Debug)]
enum What {
    /// Keep results from files, or what `export` wrote
    Add {
        /// Files; `-` is standard input
        #[arg(required = true, value_name = "FILE", value_hint = ValueHint::FilePath)]
        files: Vec<PathBuf>,
        /// A remark to keep with them
        #[arg(
            long,
            value_name = "TEXT",
            default_value = "",
            hide_default_value = true
        )]
        note: String,
    },
    /// List what is kept, the oldest first
    List {
        #[command(flatten)]
        filter: Filter,
        /// Print JSON: an array of objects
        #[arg(long)]
        json: bool,
    },
    /// Show a result: how it was made, what it says, what it measured
    Show {
        /// Its number
        id: i64,
    },
    /// Hold a later result against an earlier one
    Compare {
        /// The earlier: a number, or a file
        old: String,
        /// The later
        new: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Whether a design got slower over time, on each machine by itself
    Trend {
        /// The trace or benchmark, or a part of its name
        subject: String,
        /// The design, or some of its options; `linux` for the hosts' own kernels
        #[arg(default_value = "", hide_default_value = true)]
        design: String,
        /// Only results begun at this time or later, as in 2026-03-01
        #[arg(
            long,
            value_name = "DATE",
            default_value = "",
            hide_default_value = true
        )]
        since: String,
        /// Only machines whose name has this in it
        #[arg(
            long,
            value_name = "TEXT",
            default_value = "",
            hide_default_value = true
        )]
        host: String,
        /// Print JSON: an array of objects
        #[arg(long)]
        json: bool,
    },
    /// Write a result as it was; or several, or all, one on a line, for `add`
    Export {
        /// Their numbers [default: all]
        ids: Vec<i64>,
        /// Where to; `-` is standard output, as it is without this
        #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
        output: Option<OutputOrStdout>,
    },
    /// Remove results
    Prune {
        /// Their numbers
        #[arg(required_unless_present = "older_than")]
        ids: Vec<i64>,
        /// Those begun more than so many days ago
        #[arg(long, value_name = "DAYS", conflicts_with = "ids")]
        older_than: Option<u32>,
        /// Only say which
        #[arg(long)]
        dry_run: bool,
    },
}

#[derive(Args, Debug)]
struct Filter {
    /// Only of traces or benchmarks whose name has this in it
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "",
        hide_default_value = true
    )]
    subject: String,
    /// Only with a design that has this in it
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "",
        hide_default_value = true
    )]
    design: String,
    /// Only of machines whose name has this in it
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "",
        hide_default_value = true
    )]
    host: String,
    /// Only begun at this time or later, as in 2026-03-01
    #[arg(
        long,
        value_name = "DATE",
        default_value = "",
        hide_default_value = true
    )]
    since: String,
}

impl Filter {
    fn takes(&self, entry: &Entry) -> bool {
        let facts = &entry.facts;
        facts.subject.contains(&self.subject)
            && facts.designs.contains(&self.design)
            && facts.host.contains(&self.host)
            && facts.started >= self.since
    }
}

fn open(db: &DbArgs) -> Result<Store, Failure> {
    Store::open(&db.path()?).blame_input()
}

/// Does what is asked.
pub fn run(args: HistoryArgs) -> Result<(), Failure> {
    let db = &args.db;
    let printed = match args.what {
        What::Add { files, note } => return add(db, &files, &note),
        What::Prune {
            ids,
            older_than,
            dry_run,
        } => return prune(db, ids, older_than, dry_run),
        What::Export { ids, output } => {
            let file = output.as_ref().and_then(OutputOrStdout::file);
            return export(&open(db)?, ids, file);
        }
        What::List { filter, json } => list(&open(db)?, &filter, json)?,
        What::Show { id } => show(&open(db)?, id)?,
        What::Compare { old, new, json } => {
            let found = difference(&db.find(&old)?, &db.find(&new)?, |_| Vec::new());
            match json {
                true => json::render(&found)?,
                false => text::difference(&found),
            }
        }
        What::Trend {
            subject,
            design,
            since,
            host,
            json,
        } => {
            let filter = Filter {
                subject,
                design: String::new(),
                host,
                since,
            };
            trends(&open(db)?, &filter, &design, json)?
        }
    };
    Ok(io::stdout().lock().write_all(printed.as_bytes())?)
}

/// A line of what `export` writes.
#[derive(Serialize, Deserialize)]
struct Exported {
    schema: String,
    id: i64,
    note: String,
    /// The document's text, which is kept as it was to the byte.
    document: String,
}

/// The schema of those lines.
const EXPORTED: &str = "vellum-kept/1";

fn add(db: &DbArgs, files: &[PathBuf], note: &str) -> Result<(), Failure> {
    // All are read first: of files that cannot be used nothing is kept.
    let mut results = Vec::new();
    for path in files {
        let name = path.display().to_string();
        let text = match name.as_str() {
            "-" => io::read_to_string(io::stdin()),
            _ => std::fs::read_to_string(path),
        };
        let text = text.doing(|| format!("reading {name}")).blame_input()?;
        match lines(&name, &text)? {
            Some(exported) => results.extend(exported),
            None => results.push((name, note.to_owned(), text)),
        }
    }
    let mut read = Vec::with_capacity(results.len());
    for (name, note, text) in &results {
        read.push((Kept::parse(name, text).blame_input()?.facts(note), text));
    }
    let path = db.path()?;
    let mut store = Store::create(&path)?;
    for ((facts, text), (name, ..)) in read.iter().zip(&results) {
        match store.add(facts, text)? {
            Added::New(id) => eprintln!("vellum: {name} is kept as {id} in {}", path.display()),
            Added::Known(id) => eprintln!("vellum: {name} is there already, as {id}"),
        }
    }
    Ok(())
}

/// What `export` wrote of several results, as name, note and document; nothing if `text`
/// is something else.
#[expect(clippy::type_complexity, reason = "used once")]
fn lines(name: &str, text: &str) -> Result<Option<Vec<(String, String, String)>>, Failure> {
    let first = text.lines().next().unwrap_or("");
    if !serde_json::from_str::<Exported>(first).is_ok_and(|line| line.schema == EXPORTED) {
        return Ok(None);
    }
    let mut all = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line: Exported = serde_json::from_str(line).map_err(|error| {
            Failure::usage(format!(
                "{name}:{number}: not what `history export` wrote: {error}"
            ))
        })?;
        all.push((format!("{name}:{number}"), line.note, line.document));
    }
    Ok(Some(all))
}

fn list(store: &Store, filter: &Filter, as_json: bool) -> Result<String, Failure> {
    let mut entries = store.entries()?;
    entries.retain(|entry| filter.takes(entry));
    if !as_json {
        return Ok(match entries.is_empty() {
            true => "nothing is kept that fits\n".to_owned(),
            false => stored::list(&entries),
        });
    }
    let list: Vec<Listed> = entries.iter().map(Listed::of).collect();
    Ok(json::render(&list)?)
}

/// An entry as JSON.
#[derive(Serialize)]
struct Listed<'e> {
    id: i64,
    started: &'e str,
    schema: &'e str,
    subject: &'e str,
    designs: &'e str,
    host: &'e str,
    answer: &'e str,
    note: &'e str,
    bytes: u64,
}

impl<'e> Listed<'e> {
    fn of(entry: &'e Entry) -> Self {
        let facts = &entry.facts;
        Self {
            id: entry.id,
            started: &facts.started,
            schema: &facts.schema,
            subject: &facts.subject,
            designs: &facts.designs,
            host: &facts.host,
            answer: &facts.answer,
            note: &facts.note,
            bytes: entry.bytes,
        }
    }
}

fn show(store: &Store, id: i64) -> Result<String, Failure> {
    let (entry, document) = document(store, id)?;
    let kept = Kept::parse(id.to_string(), &document).blame_input()?;
    let run = &kept.loaded.run;
    let mut lines = vec![
        (
            "result".to_owned(),
            format!("{id}, {}, {} bytes", kept.loaded.schema, entry.bytes),
        ),
        ("begun".to_owned(), run.started.clone()),
        ("command".to_owned(), run.command_line()),
        (
            "program".to_owned(),
            format!("{} {}", run.version, run.program),
        ),
    ];
    if let Some(host) = kept.host() {
        lines.push((
            "machine".to_owned(),
            format!("{}, kernel {}", host_words(host), host.kernel),
        ));
    }
    for trace in &run.traces {
        let what = format!(
            "{}, {} events, sha256 {}",
            trace.path, trace.events, trace.sha256
        );
        lines.push(("trace".to_owned(), what));
    }
    if !entry.facts.note.is_empty() {
        lines.push(("note".to_owned(), entry.facts.note.clone()));
    }
    lines.push(("answer".to_owned(), headline(&kept.loaded).sentence));
    for series in &kept.series {
        let passes = series.values.len();
        let value = text::time(series.value());
        let what = format!(
            "{}: {value}, median of {passes} ({})",
            series.name, series.design
        );
        lines.push(("measured".to_owned(), what));
    }
    let lines = lines
        .into_iter()
        .map(|(name, value)| vec![name, text::one_line(&value)]);
    Ok(vellum_terminal::table::Table::lines(lines))
}

fn trends(store: &Store, filter: &Filter, design: &str, as_json: bool) -> Result<String, Failure> {
    let entries = store.entries()?;
    let mut results = Vec::new();
    for entry in entries.iter().filter(|entry| filter.takes(entry)) {
        results.push(kept_in(store, entry.id)?);
    }
    let found = trend::trends(&results, |_, series| series.has(design));
    if as_json {
        return Ok(json::render(&found)?);
    }
    match found.is_empty() {
        true => Err(Failure::usage(format!(
            "no result that is kept is of `{}` with `{design}` and says its machine; see `vellum \
             history list`",
            filter.subject
        ))),
        false => Ok(found.iter().map(text::trend).collect::<Vec<_>>().join("\n")),
    }
}

fn export(store: &Store, ids: Vec<i64>, output: Option<&OutputPath>) -> Result<(), Failure> {
    let text = match ids.as_slice() {
        [id] => document(store, *id)?.1,
        _ => {
            let ids = match ids.is_empty() {
                true => store.entries()?.iter().map(|entry| entry.id).collect(),
                false => ids,
            };
            let mut text = String::new();
            for id in ids {
                let (entry, document) = document(store, id)?;
                let line = Exported {
                    schema: EXPORTED.to_owned(),
                    id,
                    note: entry.facts.note,
                    document,
                };
                text += &serde_json::to_string(&line)?;
                text.push('\n');
            }
            text
        }
    };
    match output {
        Some(path) => path.create()?.commit(&text),
        None => Ok(io::stdout().lock().write_all(text.as_bytes())?),
    }
}

fn prune(
    db: &DbArgs,
    mut ids: Vec<i64>,
    older_than: Option<u32>,
    dry_run: bool,
) -> Result<(), Failure> {
    let mut store = open(db)?;
    if let Some(days) = older_than {
        let now = DateTime::<Utc>::from(SystemTime::now());
        let before = (now - TimeDelta::days(days.into()))
            .format("%Y-%m-%dT%H:%M:%SZ")
            .to_string();
        // A result that does not say when it was begun is not known to be old.
        let is_old =
            |entry: &&Entry| !entry.facts.started.is_empty() && entry.facts.started < before;
        ids = store
            .entries()?
            .iter()
            .filter(is_old)
            .map(|entry| entry.id)
            .collect();
    } else {
        for &id in &ids {
            document(&store, id)?;
        }
    }
    let removed = match dry_run {
        true => ids.len(),
        false => store.remove(&ids)?,
    };
    let list: Vec<String> = ids.iter().map(i64::to_string).collect();
    let what = if dry_run {
        "would be removed"
    } else {
        "removed"
    };
    let text = format!("{removed} {what}: {}\n", list.join(" "));
    Ok(io::stdout().lock().write_all(text.as_bytes())?)
}
