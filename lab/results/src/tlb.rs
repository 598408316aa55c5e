//! Results of `vellum plan tlb`.

use serde::{Deserialize, Serialize};

use crate::{Kind, Whole};

/// What larger pages would save in TLB misses and page walks.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct TlbPlan {
    /// What the user called the machine.
    pub machine: String,
    /// What it is.
    pub title: String,
    /// Pages by which the host maps the machine's memory, as `4K` or `2M`, if the machine is a guest:
    /// no entry of a TLB maps more.
    pub host_pages: Option<String>,
    /// Path of the trace, if there is one.
    pub trace: Option<String>,
    /// The accesses that were simulated; null if there were none, and there is only a bound.
    pub stream: Option<Stream>,
    /// What was simulated: first pages of one size, then the mappings of designs.
    pub rows: Vec<Row>,
    /// What can be said without a stream of accesses.
    pub bound: Option<Bound>,
    /// The whole workload; null if there is no trace, or the recording has no CPU times.
    pub whole: Option<Whole>,
}

impl Kind for TlbPlan {
    const SCHEMA: &'static str = "vellum-plan-tlb/1";
}

/// Accesses, one by one.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Stream {
    /// The files, or `standard input`.
    pub files: Vec<String>,
    /// The tool that told them.
    pub tool: String,
    /// Loads and stores.
    pub data: u64,
    /// Instruction fetches.
    pub fetches: u64,
    /// Whether fetches were simulated: the description may lack their TLBs.
    pub fetches_simulated: bool,
    /// Processes.
    pub processes: u64,
    /// Threads, each on a CPU of its own.
    pub threads: u64,
    /// Lines or records that could not be used.
    pub skipped: u64,
}

/// One way of mapping what the stream uses.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Row {
    /// What everything is mapped by, as `4K`, `16K`, `64K` or `2M`: with 16 and 64 KiB by aligned and
    /// contiguous runs of pages of 4 KiB. Null of a design.
    pub pages: Option<String>,
    /// The design in option syntax, whose mappings are those that it had made when a process
    /// ended. Null of pages of one size.
    pub design: Option<String>,
    /// Accesses to memory that was translated; one across two pages counts twice.
    pub accesses: u64,
    /// Those of them in 4, 16 and 64 KiB and 2 MiB that are mapped as one.
    pub by_size: [u64; 4],
    /// Those of them in pages that the design has not mapped; they count as mapped by 4 KiB.
    pub unmapped: u64,
    /// Accesses that a TLB of each level did not have, the first level first.
    pub misses: [u64; 3],
    /// Page walks.
    pub walks: u64,
    /// Entries of page tables that walks read.
    pub steps: u64,
    /// Time of hits in TLBs after the first level, in nanoseconds.
    pub hits_ns: f64,
    /// Time of walks, in nanoseconds. A program waits for all of it only if nothing else is under
    /// way meanwhile.
    pub walks_ns: f64,
}

impl Row {
    /// Time of translation beyond hits in the first level, in nanoseconds.
    pub fn ns(&self) -> f64 {
        self.hits_ns + self.walks_ns
    }

    /// What it is called.
    pub fn name(&self) -> String {
        match (&self.pages, &self.design) {
            (Some(pages), _) => match pages.as_str() {
                "4K" => "pages of 4 KiB".to_owned(),
                "16K" => "blocks of 16 KiB".to_owned(),
                "64K" => "blocks of 64 KiB".to_owned(),
                _ => "pages of 2 MiB".to_owned(),
            },
            (None, Some(design)) if design.is_empty() => "the default design".to_owned(),
            (None, design) => design.clone().unwrap_or_default(),
        }
    }
}

/// What is known of misses without a stream of accesses.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Bound {
    /// Samples of used pages.
    pub samples: u64,
    /// Microseconds from one to the next.
    pub interval_us: u64,
    /// Whether only the number of pages that were used is known of each region.
    pub of_regions: bool,
    /// The least number of walks by pages of one size: what was used in an interval and does not fit
    /// into the TLB was missed.
    pub least: Vec<Least>,
    /// Walks that hardware counted, if the user said how many.
    pub walks: Option<u64>,
    /// The longest that those can have taken, in nanoseconds: no pages save more.
    pub most_ns: Option<f64>,
}

/// The least that pages of one size cost.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Least {
    /// The size, as `4K` or `2M`.
    pub pages: String,
    /// Walks.
    pub walks: u64,
}

impl TlbPlan {
    /// What was asked for, as one phrase.
    pub fn subject(&self) -> String {
        let traced = self.trace.iter().cloned();
        let streamed = self.stream.iter().flat_map(|stream| stream.files.clone());
        let all: Vec<String> = match self.stream {
            Some(_) => streamed.collect(),
            None => traced.collect(),
        };
        match all.is_empty() {
            true => "the counted walks".to_owned(),
            false => all.join(", "),
        }
    }

    /// The answer in sentences.
    pub fn answer(&self) -> String {
        match &self.bound {
            Some(bound) => bound.answer(),
            None => self.saved(),
        }
    }

    /// What pages of 2 MiB would save by those of 4 KiB.
    fn saved(&self) -> String {
        let by = |pages: &str| {
            let mut rows = self.rows.iter();
            rows.find(|row| row.pages.as_deref() == Some(pages))
        };
        let (Some(small), Some(large)) = (by("4K"), by("2M")) else {
            return "Nothing was simulated.".to_owned();
        };
        let saved = small.ns() - large.ns();
        let of_whole = self.whole.map_or_else(String::new, |whole| {
            format!(
                "; of the {:.3} s of CPU time of the recording that is {:.1} %, if the stream is of \
                 all of it",
                whole.cpu_ns as f64 / 1e9,
                100.0 * whole.share(saved)
            )
        });
        let fewer = match small.walks {
            0 => 0.0,
            walks => 100.0 * (1.0 - large.walks as f64 / walks as f64),
        };
        format!(
            "Mapped by 2 MiB instead of 4 KiB, {fewer:.1} % of the page walks go away, and translation \
             takes {:.3} ms less (of {:.3} ms){of_whole}.",
            saved / 1e6,
            small.ns() / 1e6,
        )
    }

    /// What is to be known of the figures, a sentence each.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.stream.is_some() {
            notes.push(
                "Times are what translation takes by the machine's description. A processor does \
                 other things meanwhile, so a program gains at most that."
                    .to_owned(),
            );
        }
        if self.host_pages.as_deref() == Some("4K") {
            notes.push(
                "The machine is a guest whose host maps its memory by 4 KiB: pages of 2 MiB do not \
                 reach its TLB, and larger pages only make walks shorter. Believe counts, not times."
                    .to_owned(),
            );
        }
        let Some(stream) = &self.stream else {
            return notes;
        };
        if !stream.fetches_simulated && stream.fetches > 0 {
            notes.push(
                "Instruction fetches are left out: the description has no TLBs for them."
                    .to_owned(),
            );
        }
        if stream.skipped > 0 {
            notes.push(format!(
                "{} lines of the stream could not be used.",
                stream.skipped
            ));
        }
        for row in self.rows.iter().filter(|row| row.unmapped > 0) {
            notes.push(format!(
                "{}: {:.1} % of accesses are to pages that are not mapped any more when the trace \
                 ends, and count as mapped by 4 KiB.",
                row.name(),
                100.0 * row.unmapped as f64 / row.accesses.max(1) as f64
            ));
        }
        notes
    }
}

impl Bound {
    fn answer(&self) -> String {
        let mut text = "A bound, no simulation: no stream of accesses was given.".to_owned();
        for least in &self.least {
            text += &format!(
                " Mapped by {}, at least {} page walks were made.",
                if least.pages == "4K" {
                    "4 KiB"
                } else {
                    "2 MiB"
                },
                least.walks
            );
        }
        if self.samples > 0 {
            text += &format!(
                " That is what {} samples of used pages, {} ms apart, have more than the TLBs hold; \
                 how often a page was used in between is not known, so there may have been any \
                 number more.",
                self.samples,
                self.interval_us as f64 / 1e3,
            );
        }
        text += &match (self.walks, self.most_ns) {
            (Some(walks), Some(ns)) => format!(
                " The {walks} walks that hardware counted took at most {:.3} s (every entry from \
                 memory): no pages save more than that.",
                ns / 1e9
            ),
            _ => " How much time larger pages would save is not known; hardware counters of walks \
                  (--walks) would bound it."
                .to_owned(),
        };
        text
    }
}
