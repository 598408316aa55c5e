//! What `vellum replay` says at its end: a table for people and the same data
//! for programs.

use std::fmt::Write;

use serde::Serialize;
use vellum_engine::{Divergence, Engine};

use super::device::{Device, WithDevice};
use crate::replay::run::ERRORS;
use crate::replay::{Class, Divergences, Expectation, Replayed, Workload};
use crate::verify::Verified;
use vellum_terminal::table::{Table, grouped};

/// A figure with its name.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    /// What is counted.
    pub name: String,
    /// How many.
    pub count: u64,
    /// What it means; left out where the name says it.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub meaning: &'static str,
}

/// Memory by what it holds.
#[derive(Clone, Debug, Serialize)]
pub struct Memory {
    /// What it holds.
    pub name: &'static str,
    /// Bytes at the end of the replay.
    pub bytes: u64,
    /// The most bytes at any time.
    pub peak_bytes: u64,
}

/// The result of one replay.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Path of the trace.
    pub trace: String,
    /// The design, complete.
    pub design: String,
    /// Simulated CPUs.
    pub cpus: usize,
    /// Copies of the process family.
    pub copies: u32,
    /// Memory of the simulated machine in bytes.
    pub ram_bytes: u64,
    /// Recorded events replayed, all copies together.
    pub events: u64,
    /// Operations they came to.
    pub ops: u64,
    /// Operations by class.
    pub ops_by_class: Vec<Figure>,
    /// CPU time in the core, all CPUs together, in nanoseconds.
    pub core_ns: u64,
    /// The same by CPU.
    pub core_ns_by_cpu: Vec<u64>,
    /// Elapsed time of the replay in nanoseconds.
    pub wall_ns: u64,
    /// What a device takes beside that, if one is modelled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<WithDevice>,
    /// Events per second of core CPU time.
    pub events_per_core_second: u64,
    /// Divergences by kind.
    pub divergences: Vec<Figure>,
    /// Divergences that nothing explains.
    pub unexplained: u64,
    /// Where the trace knew too little.
    pub repairs: Vec<Figure>,
    /// Events that the core counted.
    pub counters: Vec<Figure>,
    /// Memory of the core.
    pub memory: Vec<Memory>,
    /// Private frames by number of mappings (1, 2, …; the last collects the
    /// rest), summed over samples taken in the course of the replay.
    pub mapping_histogram: Vec<u64>,
    /// The audit was carried out and held.
    pub audited: bool,
    /// What the verification did, if there was one and it held.
    pub verified: Option<Verified>,
    /// What was refuted, if anything was.
    pub refuted: Option<String>,
}

impl Report {
    /// The report on a replay of `workload` on `engine`.
    pub fn new(
        trace: String,
        workload: &Workload,
        engine: &dyn Engine,
        ram_bytes: u64,
        replayed: &Replayed,
    ) -> Self {
        let memory = engine.memory().into_iter();
        Self {
            trace,
            design: engine.design(),
            cpus: workload.cpus(),
            copies: workload.copies(),
            ram_bytes,
            events: workload.events(),
            ops: replayed.ops,
            ops_by_class: ops_by_class(workload),
            core_ns: replayed.core_ns,
            core_ns_by_cpu: replayed.core_ns_by_cpu.clone(),
            wall_ns: replayed.wall_ns,
            device: None,
            events_per_core_second: events_per_second(workload, replayed),
            divergences: divergences(&replayed.divergences),
            unexplained: replayed.divergences.unexplained(),
            repairs: repairs(workload),
            counters: engine
                .counters()
                .into_iter()
                .map(|(name, count)| figure(name, count, ""))
                .collect(),
            memory: memory
                .map(|(name, bytes, peak_bytes)| Memory {
                    name,
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
    pub fn measure_device(&mut self, device: Device) {
        let counters = self.counters.iter();
        let counters = counters.map(|figure| (figure.name.as_str(), figure.count));
        let with = WithDevice::new(device, counters, self.core_ns, self.cpus);
        self.device = Some(with);
    }

    /// Share of the operations that diverged without explanation.
    pub fn unexplained_share(&self) -> f64 {
        match self.ops {
            0 => 0.0,
            ops => self.unexplained as f64 / ops as f64,
        }
    }

    /// The report as tables.
    pub fn text(&self) -> String {
        let mut text = self.summary();
        section(&mut text, "operations", &self.ops_by_class);
        if !self.divergences.is_empty() {
            let title = format!(
                "divergences ({} unexplained, {:.3} % of operations)",
                grouped(self.unexplained),
                self.unexplained_share() * 100.0
            );
            section(&mut text, &title, &self.divergences);
        }
        section(&mut text, "repairs of the trace", &self.repairs);
        section(&mut text, "counters", &self.counters);
        text += &self.memory_table();
        text += &self.sharing_line();
        text += &self.verified_lines();
        text
    }

    fn summary(&self) -> String {
        let copies = match self.copies {
            1 => String::new(),
            copies => format!(", {copies} copies"),
        };
        let mut rows = vec![
            ("trace", format!("{}{copies}", self.trace)),
            ("design", self.design.clone()),
            (
                "machine",
                format!("{} CPUs, {} MiB", self.cpus, self.ram_bytes >> 20),
            ),
            ("events", grouped(self.events)),
            (
                "time in the core",
                format!("{:.3} s", seconds(self.core_ns)),
            ),
            ("elapsed", format!("{:.3} s", seconds(self.wall_ns))),
            (
                "speed",
                format!("{} events/s", grouped(self.events_per_core_second)),
            ),
        ];
        if let Some(with) = &self.device {
            let time = format!("{:.3} s ({})", seconds(with.device_ns), with.device.name);
            rows.push(("time of the device", time));
            if let Some(ns) = with.elapsed_ns {
                let time = format!("{:.3} s, one after the other", seconds(ns));
                rows.push(("core and device", time));
            }
        }
        Table::lines(
            rows.into_iter()
                .map(|(name, value)| vec![name.to_owned(), value]),
        )
    }

    fn memory_table(&self) -> String {
        if self.memory.is_empty() {
            return String::new();
        }
        let mut table = Table::new(&["", "now KiB", "peak KiB"]);
        for memory in &self.memory {
            table.row(vec![
                memory.name.to_owned(),
                grouped(memory.bytes >> 10),
                grouped(memory.peak_bytes >> 10),
            ]);
        }
        format!("\nmemory\n{}", table.render(2))
    }

    /// How many private frames had one mapping, two, and more.
    fn sharing_line(&self) -> String {
        let all: u64 = self.mapping_histogram.iter().sum();
        if all == 0 {
            return String::new();
        }
        let share = |count: u64| count as f64 * 100.0 / all as f64;
        let with = |mappings: usize| {
            self.mapping_histogram
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

    fn verified_lines(&self) -> String {
        let mut text = String::new();
        if self.audited {
            text += "\naudit: every invariant holds\n";
        }
        if let Some(verified) = &self.verified {
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
}

fn figure(name: impl Into<String>, count: u64, meaning: &'static str) -> Figure {
    Figure {
        name: name.into(),
        count,
        meaning,
    }
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

fn events_per_second(workload: &Workload, replayed: &Replayed) -> u64 {
    let done = match workload.ops() {
        0 => 0.0,
        ops => replayed.ops as f64 / ops as f64,
    };
    match replayed.core_ns {
        0 => 0,
        ns => (workload.events() as f64 * done / seconds(ns)) as u64,
    }
}

fn ops_by_class(workload: &Workload) -> Vec<Figure> {
    Class::ALL
        .iter()
        .zip(workload.ops_by_class())
        .filter(|(_, count)| *count > 0)
        .map(|(class, count)| figure(class.name(), count, ""))
        .collect()
}

fn divergences(divergences: &Divergences) -> Vec<Figure> {
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

fn repairs(workload: &Workload) -> Vec<Figure> {
    workload
        .repairs()
        .list()
        .into_iter()
        .filter(|(_, count, _)| *count > 0)
        .map(|(name, count, meaning)| figure(name, count, meaning))
        .collect()
}

/// A titled list of figures, the meaning behind each.
fn section(text: &mut String, title: &str, figures: &[Figure]) {
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
