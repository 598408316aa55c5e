//! What `vellum replay` says at its end: a table for people and the same data
//! for programs.

use std::fmt::Write;

use vellum_engine::{Divergence, Engine};

use super::names::differences;
use super::{Detail, device};
use crate::replay::run::ERRORS;
use crate::replay::{Class, Divergences, Expectation, Replayed, Service, Workload};
use vellum_results::compare::Device;
use vellum_results::replay::{Count, Memory, Replay};
use vellum_results::whole::of_one;
use vellum_terminal::table::{Table, grouped};
use vellum_terminal::text::{facts, mib, plural};

/// The name of all memory in use, in the list that an engine gives.
pub const FRAMES: &str = "all frames";

/// That of page tables.
pub const TABLES: &str = "page tables";

/// The result of a replay of `workload` on `engine`.
pub fn result(
    trace: String,
    workload: &Workload,
    engine: &dyn Engine,
    ram_bytes: u64,
    replayed: &Replayed,
) -> Replay {
    let memory = engine.memory().into_iter();
    let counters = engine.counters().into_iter();
    let design = engine.design();
    Replay {
        trace,
        differences: Some(differences(&design).join(",")),
        design,
        cpus: workload.cpus(),
        copies: workload.copies(),
        ram_bytes,
        events: workload.events(),
        ops: replayed.ops,
        needless: 0,
        ops_by_class: ops_by_class(workload),
        core_ns: replayed.core_ns,
        core_ns_by_cpu: replayed.core_ns_by_cpu.clone(),
        wall_ns: replayed.wall_ns,
        whole: workload.service().and_then(Service::whole),
        device: None,
        events_per_core_second: events_per_second(workload, replayed),
        divergences: divergences(&replayed.divergences),
        unexplained: replayed.divergences.unexplained(),
        repairs: repairs(workload),
        counters: counters
            .map(|(name, count)| figure(name, count, ""))
            .collect(),
        memory: memory
            .map(|(name, bytes, peak_bytes)| Memory {
                name: name.to_owned(),
                bytes,
                peak_bytes,
            })
            .collect(),
        mapping_histogram: replayed.mapping_histogram.clone(),
        audited: false,
        verified: None,
        refuted: None,
    }
}

/// Adds what `device` took, on which files and swap were.
pub fn measure_device(replay: &mut Replay, device: Device) {
    let counters = replay.counters.iter();
    let counters = counters.map(|count| (count.name.as_str(), count.count));
    let with = device::of_replay(device, counters, replay.core_ns, replay.cpus);
    replay.device = Some(with);
}

/// The result for a terminal.
pub fn text(replay: &Replay, detail: Detail) -> String {
    match detail {
        Detail::Summary => summary(replay),
        Detail::Full => tables(replay),
    }
}

/// Counters of faults by what they found, and what a summary calls them.
const FAULT_KINDS: [(&str, &str); 9] = [
    ("zero fills", "filled with zeroes"),
    ("zero-page maps", "of the zero page"),
    ("file maps", "of pages of files"),
    ("copies on write", "copied on write"),
    ("exclusive reuses", "made writable"),
    ("superpages mapped", "superpages"),
    ("folios mapped", "folios"),
    ("spurious faults", "spurious"),
    ("fault retries", "retried"),
];

/// What most readers want to know, in one screen.
fn summary(replay: &Replay) -> String {
    let copies = plural(replay.copies as usize, "copy", "copies");
    let cpus = plural(replay.cpus, "CPU", "CPUs");
    let mut rows = vec![
        ("trace", format!("{}, {copies}", replay.trace)),
        ("design", Detail::Summary.design(&replay.design)),
        ("machine", format!("{cpus}, {}", mib(replay.ram_bytes))),
        (
            "replayed",
            format!(
                "{} events, which are {} operations{}",
                grouped(replay.events),
                grouped(replay.ops),
                left_out(replay)
            ),
        ),
        (
            "CPU time",
            format!(
                "{:.3} s in the core, {} events/s; elapsed {:.3} s. This is one pass and has no \
                 interval: `vellum compare` makes several",
                seconds(replay.core_ns),
                grouped(replay.events_per_core_second),
                seconds(replay.wall_ns)
            ),
        ),
    ];
    let share = of_one(replay.whole.as_ref(), replay.core_ns as f64);
    rows.push(("of the whole", share));
    rows.extend(device_rows(replay));
    rows.push(("faults", faults(replay)));
    rows.extend(peak(replay).map(|peak| ("memory", peak)));
    rows.push(("divergences", divergences_in_words(replay)));
    rows.push(("verified", verified_in_words(replay)));
    facts(&rows)
        + "--details prints every count, memory by what it holds, and the complete design.\n"
}

/// The recorded faults that were not executed, if there are any.
fn left_out(replay: &Replay) -> String {
    match replay.needless {
        0 => String::new(),
        count => format!(
            ", and {} faults that the design does not meet: it has mapped the pages",
            grouped(count)
        ),
    }
}

/// Faults by what they found.
fn faults(replay: &Replay) -> String {
    let count = |name: &str| {
        let mut counters = replay.counters.iter();
        let found = counters.find(|counter| counter.name == name);
        found.map_or(0, |counter| counter.count)
    };
    let kinds = FAULT_KINDS.map(|(name, words)| (count(name), words));
    let kinds = kinds.iter().filter(|kind| kind.0 > 0);
    let kinds: Vec<String> = kinds
        .map(|(count, words)| format!("{} {words}", grouped(*count)))
        .collect();
    let all = grouped(count("faults"));
    match kinds.as_slice() {
        [] => all,
        kinds => format!("{all}: {}", kinds.join(", ")),
    }
}

/// The most memory that was in use.
fn peak(replay: &Replay) -> Option<String> {
    let held = |name: &str| replay.memory.iter().find(|memory| memory.name == name);
    let frames = held(FRAMES)?;
    let tables = held(TABLES).map_or(0, |tables| tables.peak_bytes);
    Some(format!(
        "{} of frames in use at the peak: pages, page tables (at most {}) and records of the core. \
         `vellum info` estimates pages that the recorded kernel used",
        mib(frames.peak_bytes),
        mib(tables)
    ))
}

fn divergences_in_words(replay: &Replay) -> String {
    if replay.divergences.is_empty() {
        return "none: every operation went as it was recorded".to_owned();
    }
    let kinds = replay.divergences.iter();
    let kinds: Vec<String> = kinds
        .map(|kind| format!("{} {}", grouped(kind.count), kind.name))
        .collect();
    format!(
        "{}; unexplained: {}, {:.3} % of operations",
        kinds.join(", "),
        grouped(replay.unexplained),
        replay.unexplained_share() * 100.0
    )
}

fn verified_in_words(replay: &Replay) -> String {
    let pages = match (&replay.verified, &replay.refuted) {
        (_, Some(refuted)) => format!("REFUTED: {refuted}"),
        (Some(verified), None) => format!(
            "yes: {} pages written, {} read back where they changed hands, {} right after an \
             access",
            grouped(verified.written),
            grouped(verified.read_back),
            grouped(verified.after_access)
        ),
        (None, None) => "no (--verify checks every page against a model)".to_owned(),
    };
    let audit = match replay.audited {
        true => "every invariant holds",
        false => "invariants not checked (--audit)",
    };
    format!("{pages}; {audit}")
}

/// The whole result as tables.
fn tables(replay: &Replay) -> String {
    let mut text = heading(replay);
    section(&mut text, "operations", &replay.ops_by_class);
    let title = format!(
        "divergences ({} unexplained, {:.3} % of operations)",
        grouped(replay.unexplained),
        replay.unexplained_share() * 100.0
    );
    match replay.divergences.is_empty() {
        true => text += "\ndivergences: none\n",
        false => section(&mut text, &title, &replay.divergences),
    }
    section(&mut text, "repairs of the trace", &replay.repairs);
    section(&mut text, "counters", &replay.counters);
    text += &memory_table(replay);
    text += &sharing_line(replay);
    text += &verified_lines(replay);
    text
}

fn heading(replay: &Replay) -> String {
    let copies = match replay.copies {
        1 => String::new(),
        copies => format!(", {copies} copies"),
    };
    let mut rows = vec![
        ("trace", format!("{}{copies}", replay.trace)),
        ("design", replay.design.clone()),
        (
            "machine",
            format!("{} CPUs, {} MiB", replay.cpus, replay.ram_bytes >> 20),
        ),
        (
            "events",
            format!("{}{}", grouped(replay.events), left_out(replay)),
        ),
        (
            "time in the core",
            format!("{:.3} s", seconds(replay.core_ns)),
        ),
        ("elapsed", format!("{:.3} s", seconds(replay.wall_ns))),
        (
            "speed",
            format!("{} events/s", grouped(replay.events_per_core_second)),
        ),
    ];
    rows.extend(device_rows(replay));
    Table::lines(
        rows.into_iter()
            .map(|(name, value)| vec![name.to_owned(), value]),
    )
}

/// What the device took, if one was modelled.
fn device_rows(replay: &Replay) -> Vec<(&'static str, String)> {
    let Some(with) = &replay.device else {
        return Vec::new();
    };
    let time = format!("{:.3} s ({})", seconds(with.device_ns), with.device.name);
    let mut rows = vec![("time of the device", time)];
    rows.extend(with.elapsed_ns.map(|ns| {
        let time = format!("{:.3} s, one after the other", seconds(ns));
        ("core and device", time)
    }));
    rows
}

fn memory_table(replay: &Replay) -> String {
    if replay.memory.is_empty() {
        return String::new();
    }
    let mut table = Table::new(&["", "now KiB", "peak KiB"]);
    for memory in &replay.memory {
        table.row(vec![
            memory.name.to_owned(),
            grouped(memory.bytes >> 10),
            grouped(memory.peak_bytes >> 10),
        ]);
    }
    format!("\nmemory\n{}", table.render(2))
}

/// How many private frames had one mapping, two, and more.
fn sharing_line(replay: &Replay) -> String {
    let all: u64 = replay.mapping_histogram.iter().sum();
    if all == 0 {
        return String::new();
    }
    let share = |count: u64| count as f64 * 100.0 / all as f64;
    let with = |mappings: usize| {
        replay
            .mapping_histogram
            .get(mappings - 1)
            .copied()
            .unwrap_or(0)
    };
    let (one, two) = (with(1), with(2));
    format!(
        "\nprivate frames by mappings (samples in the course of the replay)\n  \
         one (singletons) {:.2} %, two {:.2} %, more {:.2} %\n",
        share(one),
        share(two),
        share(all - one - two)
    )
}

fn verified_lines(replay: &Replay) -> String {
    let mut text = String::new();
    if replay.audited {
        text += "\naudit: every invariant holds\n";
    }
    if let Some(verified) = &replay.verified {
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "\nverified: {} pages written, {} read back where they changed hands, {} right \
             after an access,\n          {} found in the backing store; {} accesses refused \
             as they must be; {} unreadable, {} left out",
            grouped(verified.written),
            grouped(verified.read_back),
            grouped(verified.after_access),
            grouped(verified.stored),
            grouped(verified.refused),
            grouped(verified.unreadable),
            grouped(verified.raced),
        );
    }
    text
}

fn figure(name: impl Into<String>, count: u64, meaning: &str) -> Count {
    Count {
        name: name.into(),
        count,
        meaning: meaning.to_owned(),
    }
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

fn events_per_second(workload: &Workload, replayed: &Replayed) -> u64 {
    let done = match workload.ops() {
        0 => 0.0,
        ops => (replayed.ops - replayed.untimed_ops) as f64 / ops as f64,
    };
    match replayed.core_ns {
        0 => 0,
        ns => (workload.events() as f64 * done / seconds(ns)) as u64,
    }
}

fn ops_by_class(workload: &Workload) -> Vec<Count> {
    Class::ALL
        .iter()
        .zip(workload.ops_by_class())
        .filter(|(_, count)| *count > 0)
        .map(|(class, count)| figure(class.name(), count, ""))
        .collect()
}

fn divergences(divergences: &Divergences) -> Vec<Count> {
    let mapped = Expectation::ALL
        .into_iter()
        .zip(divergences.already_mapped)
        .map(|(why, count)| {
            let why = match why.explains(Divergence::AlreadyMapped) {
                true => why,
                false => Expectation::AsRecorded,
            };
            figure(format!("mapped: {}", why.name()), count, why.sentence())
        });
    let large = figure(
        "mapped: superpage",
        divergences.mapped_large,
        "a superpage mapped it at the fault of another page",
    );
    let folio = figure(
        "mapped: folio",
        divergences.mapped_folio,
        "a folio mapped it at the store to another page",
    );
    let refused = Expectation::Refused;
    let refused = figure(refused.name(), divergences.refused, refused.sentence());
    let failed = ERRORS
        .into_iter()
        .zip(divergences.failed)
        .map(|(error, count)| {
            let meaning = "the operation failed, which it did not when it was recorded";
            figure(format!("failed: {error}"), count, meaning)
        });
    mapped
        .chain([large, folio, refused])
        .chain(failed)
        .filter(|figure| figure.count > 0)
        .collect()
}

fn repairs(workload: &Workload) -> Vec<Count> {
    workload
        .repairs()
        .list()
        .into_iter()
        .filter(|(_, count, _)| *count > 0)
        .map(|(name, count, meaning)| figure(name, count, meaning))
        .collect()
}

/// A titled list of figures, the meaning behind each.
fn section(text: &mut String, title: &str, figures: &[Count]) {
    if figures.is_empty() {
        return;
    }
    let name = figures.iter().map(|f| f.name.len()).max().unwrap_or(0);
    let counts: Vec<String> = figures.iter().map(|f| grouped(f.count)).collect();
    let width = counts.iter().map(String::len).max().unwrap_or(0);
    *text += &format!("\n{title}\n");
    for (figure, count) in figures.iter().zip(counts) {
        let line = format!(
            "  {:name$}  {count:>width$}  {}",
            figure.name, figure.meaning
        );
        *text += line.trim_end();
        *text += "\n";
    }
}
