//! What an imported trace says about itself.

use crate::Report;
use vellum_record::{Noticed, Sink};
use vellum_trace::Header;

/// Has the trace say what the report notes, and what the text did not tell.
pub fn tell(sink: &mut dyn Sink, source: &str, report: &Report) {
    let header = sink.header_mut();
    header.invisible.extend(report.notes.iter().cloned());
    fill_in(header, source, report);
}

/// Fills in what the text did not tell, and what is missing.
pub fn fill_in(header: &mut Header, source: &str, report: &Report) {
    let environment = &mut header.environment;
    if environment.kernel.is_empty() {
        environment.kernel = "unknown".to_owned();
    }
    if environment.architecture.is_empty() {
        environment.architecture = "x86_64".to_owned();
    }
    let mut first = format!("Imported from {source}.");
    if report.skips() > 0 {
        let skips = report.skips();
        let unit = report.unit();
        first.push_str(&format!(" {skips} {unit}s could not be used."));
    }
    if !header.invisible.contains(&first) {
        header.invisible.insert(0, first);
    }
}

/// Sentences about what the recorder's translation noticed.
pub fn of_noticed(noticed: &Noticed) -> Vec<String> {
    let unseen = &noticed.unseen;
    let counted = [
        (
            unseen.populated,
            "mappings were populated at once (MAP_POPULATE, MAP_LOCKED); the pages do not show.",
        ),
        (
            unseen.locked,
            "calls locked memory (mlock); the pages they populated do not show.",
        ),
        (
            unseen.huge,
            "mappings of explicit huge pages count as mappings of small ones.",
        ),
        (
            unseen.nameless,
            "mappings of files count as anonymous: the text does not tell the file.",
        ),
    ];
    let told = counted.iter().filter(|(count, _)| *count > 0);
    told.map(|(count, what)| format!("{count} {what}"))
        .collect()
}
