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

use std::path::{Path, PathBuf};

use crate::bench::host::scratch::Scratch;
use crate::excerpt;
use crate::failure::{Failure, OrFail};
use bench::Setting;
use model::{Reproduction, SCHEMA, Section};
use vellum_terminal::progress::{Interrupt, Style};
use vellum_trace::cut::Selection;
use vellum_trace::{TraceReader, TraceWriter};
use zero::Task;

/// Part of the kernel build that a quick reproduction replays: a second.
const QUICK_BUILD: Selection = Selection {
    root: None,
    from_us: 40_000_000,
    to_us: 41_000_000,
};

/// Part of the snapshot server that it replays: half a second.
const QUICK_SERVER: Selection = Selection {
    root: None,
    from_us: 2_000_000,
    to_us: 2_500_000,
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
    let traces = Traces::of(setting, interrupt)?;
    let task = Task {
        setting,
        interrupt,
        build: &traces.build,
        server: &traces.server,
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

/// The long traces, or short parts of them in a directory of its own.
struct Traces {
    build: PathBuf,
    server: PathBuf,
    /// Removed when this goes.
    _scratch: Option<Scratch>,
}

impl Traces {
    fn of(setting: &Setting, interrupt: &Interrupt) -> Result<Self, Failure> {
        let build = setting.trace("kernel-build.vellum")?;
        let server = setting.trace("snapshot-server.vellum")?;
        if !setting.quick {
            return Ok(Self {
                build,
                server,
                _scratch: None,
            });
        }
        let parent = std::env::temp_dir();
        let scratch = Scratch::new(&parent, "reproduce");
        let scratch = scratch.doing(|| format!("making a directory in {}", parent.display()))?;
        let part = |name: &str, whole: &Path, window: Selection| {
            let path = scratch.path().join(name);
            let trace = TraceReader::open(whole).blame_input()?;
            // Read a few times and thrown away.
            let writer = TraceWriter::create(&path, 1)?;
            excerpt::write(&trace, window, writer, Style::Quiet, interrupt)?;
            Ok::<_, Failure>(path)
        };
        Ok(Self {
            build: part("kernel-build.vellum", &build, QUICK_BUILD)?,
            server: part("snapshot-server.vellum", &server, QUICK_SERVER)?,
            _scratch: Some(scratch),
        })
    }
}
