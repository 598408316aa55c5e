//! Results in the database: what they are looked for by, and how they are listed.

use vellum_history::{Entry, Facts};
use vellum_page::headline;
use vellum_results::{Content, Loaded};
use vellum_terminal::table::Table;

use super::Kept;
use super::text::one_line;

impl Kept {
    /// By what it is looked for.
    pub fn facts(&self, note: &str) -> Facts {
        Facts {
            started: self.loaded.run.started.clone(),
            schema: self.loaded.schema.clone(),
            subject: subject(&self.loaded),
            designs: self.designs(),
            host: self
                .host()
                .map_or_else(String::new, |host| host.name.clone()),
            answer: headline(&self.loaded).sentence,
            note: note.to_owned(),
        }
    }
}

/// What was measured, in a word or two.
pub fn subject(loaded: &Loaded) -> String {
    let named = match &loaded.content {
        Content::Bench(bench) => Some(bench.benchmark.clone()),
        Content::Kolivas(_) => Some("kernbench".to_owned()),
        Content::Reproduce(reproduction) => Some(format!("source {}", reproduction.source)),
        Content::Scale(scale) => Some(scale.workload.clone()),
        Content::Sweep(sweep) => Some(sweep.name.clone()),
        _ => None,
    };
    let trace = || {
        let path = loaded.run.traces.first().map(|trace| trace.path.as_str());
        path.or(trace_path(loaded)).map(file_name)
    };
    named.or_else(trace).unwrap_or_default()
}

fn file_name(path: &str) -> String {
    path.rsplit('/').next().unwrap_or(path).to_owned()
}

/// The results that are kept, a line each.
pub fn list(entries: &[Entry]) -> String {
    let header = ["id", "begun", "what", "of", "on", "note", "answer"];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    rows.extend(entries.iter().map(|entry| {
        let facts = &entry.facts;
        let schema = facts.schema.trim_start_matches("vellum-");
        let kind = schema.split('/').next().unwrap_or(schema);
        vec![
            entry.id.to_string(),
            facts
                .started
                .replace('T', " ")
                .trim_end_matches('Z')
                .to_owned(),
            kind.to_owned(),
            one_line(&facts.subject),
            one_line(&facts.host),
            one_line(&facts.note),
            one_line(&facts.answer),
        ]
    }));
    Table::lines(rows.into_iter())
}

/// The path of the trace that a result is about, where it says so itself.
fn trace_path(loaded: &Loaded) -> Option<&str> {
    match &loaded.content {
        Content::Compare(compare) => Some(&compare.about.trace),
        Content::Replay(replay) => Some(&replay.trace),
        Content::Host(saved) => Some(&saved.trace.path),
        Content::HostCompare(comparison) => Some(&comparison.host.trace.path),
        Content::Sim(findings) => Some(&findings.trace),
        _ => None,
    }
}
