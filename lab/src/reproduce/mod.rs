//! The published measurements, made again: `vellum reproduce`.
//!
//! For each source a list of sections, one for each published table. A section
//! puts the table, in its own format, beside ours, and judges figure by figure
//! ([`judge`]): another sign, or more than a factor of two, is said. What is
//! published stands in [`published`]; what is ours comes from `vellum bench`
//! ([`mod@bench`]). A section that cannot be measured says why, and the others
//! follow.

pub mod bench;
pub mod formats;
pub mod judge;
pub mod model;
mod one;
mod profiles;
pub mod published;
mod zero;

use std::path::PathBuf;

use crate::bench::host::scratch::Scratch;
use crate::excerpt;
use crate::failure::{Failure, OrFail};
use bench::Setting;
use model::{Reproduction, SCHEMA, Section};
use vellum_terminal::progress::{Interrupt, Style};
use vellum_trace::cut::Selection;
use vellum_trace::{TraceReader, TraceWriter};
use zero::Task;

/// Part of the kernel build that a quick reproduction replays: two seconds.
const QUICK_WINDOW: Selection = Selection {
    root: None,
    from_us: 40_000_000,
    to_us: 42_000_000,
};

/// Sources that can be reproduced.
pub const SOURCES: std::ops::RangeInclusive<u8> = 0..=1;

/// Reproduces source `source`. An interruption keeps the sections that are
/// complete. Sections that fail are kept with the reason.
///
/// # Errors
/// There is no such source, or a trace is missing, or the user interrupted
/// before a section was complete.
pub fn run(source: u8, setting: &Setting, interrupt: &Interrupt) -> Result<Reproduction, Failure> {
    let sections = match source {
        0 => zero::SECTIONS,
        1 => one::SECTIONS,
        other => {
            return Err(Failure::usage(format!(
                "source {other} cannot be reproduced; those from {} to {} can",
                SOURCES.start(),
                SOURCES.end()
            )));
        }
    };
    let part = QuickPart::of(setting, interrupt)?;
    let task = Task {
        setting,
        interrupt,
        build: &part.build,
    };
    let mut result = Reproduction {
        schema: SCHEMA,
        version: env!("CARGO_PKG_VERSION"),
        source,
        quick: setting.quick,
        passes: setting.passes,
        seed: setting.seed,
        host: format!(
            "Linux {}, {} CPUs",
            crate::bench::host::kernel_release(),
            crate::bench::host::cpus()
        ),
        sections: Vec::new(),
        notes: notes(source),
        interrupted: false,
    };
    for (title, sources, make) in sections {
        let mut section = Section::new(title, sources);
        match make(&task, &mut section) {
            Ok(()) => {}
            Err(failure) if failure.code() == Failure::INTERRUPTED => {
                if result.sections.is_empty() {
                    return Err(failure);
                }
                result.interrupted = true;
                return Ok(result);
            }
            Err(failure) => section.failed = Some(failure.message().to_owned()),
        }
        result.sections.push(section);
    }
    Ok(result)
}

fn notes(source: u8) -> Vec<String> {
    let mut notes = vec![
        "Ours are times of the core of this project on a machine of its own, without traps, \
         without user code, and without the caches of sixteen CPUs. docs/reproductions.md says \
         what that does to each table."
            .to_owned(),
    ];
    if cfg!(debug_assertions) {
        notes.push(
            "This program was built with debug assertions, which check table pages and lists at \
             every step: none of its times mean anything. Build it with --release."
                .to_owned(),
        );
    }
    if source == 0 {
        notes.push(crate::bench::host::sdet::DISCLAIMER.replace('\n', " "));
    }
    notes
}

/// The kernel build's trace, or a short part of it in a directory of its own.
struct QuickPart {
    build: PathBuf,
    /// Removed when this goes.
    _scratch: Option<Scratch>,
}

impl QuickPart {
    fn of(setting: &Setting, interrupt: &Interrupt) -> Result<Self, Failure> {
        let whole = setting.trace("kernel-build.vellum")?;
        if !setting.quick {
            return Ok(Self {
                build: whole,
                _scratch: None,
            });
        }
        let parent = std::env::temp_dir();
        let scratch = Scratch::new(&parent, "reproduce");
        let scratch = scratch.doing(|| format!("making a directory in {}", parent.display()))?;
        let build = scratch.path().join("kernel-build.vellum");
        let trace = TraceReader::open(&whole).blame_input()?;
        // Read once and thrown away.
        let writer = TraceWriter::create(&build, 1)?;
        excerpt::write(&trace, QUICK_WINDOW, writer, Style::Quiet, interrupt)?;
        Ok(Self {
            build,
            _scratch: Some(scratch),
        })
    }
}
