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
mod four;
mod four_scaled;
pub mod judge;
pub mod model;
mod one;
mod one_simulated;
mod profiles;
pub mod published;
mod rmap_test;
mod schemes;
mod shares;
mod simulated;
mod task;
mod three;
mod two;
pub mod window;
mod zero;

use std::path::PathBuf;
use std::sync::Mutex;

use crate::excerpt;
use crate::failure::{Failure, OrFail};
use crate::host::scratch::Scratch;
use crate::scale::Kept;
use bench::Setting;
use model::Reproduction;
use task::{Entry, Task};
use vellum_terminal::progress::{Interrupt, Style};
use vellum_trace::cut::Selection;
use vellum_trace::{TaskId, TraceReader, TraceWriter};

/// The traces of which quick reproductions replay parts.
const BUILD: &str = "kernel-build.vellum";
const SERVER: &str = "snapshot-server.vellum";

/// Part of the kernel build that a quick reproduction replays: its first tenth of a second,
/// which needs nothing set up before it, as a part of the middle does.
const QUICK_BUILD: Selection = Selection {
    root: None,
    from_us: 0,
    to_us: 100_000,
};

/// Part of the kernel build that is replayed on simulated machines: its first second.
const SIMULATED_BUILD: Selection = Selection {
    root: None,
    from_us: 0,
    to_us: 1_000_000,
};

/// Part of it that a quick reproduction replays there: 50 ms.
const QUICK_SIMULATED_BUILD: Selection = Selection {
    root: None,
    from_us: 0,
    to_us: 50_000,
};

/// Part of the snapshot server that it replays: half a second.
const QUICK_SERVER: Selection = Selection {
    root: None,
    from_us: 2_000_000,
    to_us: 2_500_000,
};

/// Sources that can be reproduced.
pub const SOURCES: std::ops::RangeInclusive<u8> = 0..=4;

/// Those that are made on simulated machines only, and the machine of each.
pub const ALWAYS_SIMULATED: [(u8, &str); 1] = [(4, four::FIRST_MACHINE)];

/// Reproduces source `source`. An interruption keeps the sections that are
/// complete. Sections that fail are kept with the reason.
///
/// # Errors
/// There is no such source, or it has not a section that is asked for, or the user
/// interrupted before a section was complete.
pub fn run(source: u8, setting: &Setting, interrupt: &Interrupt) -> Result<Reproduction, Failure> {
    let sections = match (source, &setting.simulated) {
        (0, Some(_)) => simulated::SECTIONS,
        (1, Some(_)) => one_simulated::SECTIONS,
        (4, Some(_)) => four::SECTIONS,
        (2..=3, Some(_)) => {
            return Err(Failure::usage(
                "--on sim: only the sources 0, 1 and 4 can be reproduced on a simulated machine",
            ));
        }
        (4, None) => {
            return Err(Failure::usage(
                "--on core: source 4 is made on simulated machines only, as it is about locks \
                 that many CPUs wait for; leave it out",
            ));
        }
        (0, None) => zero::SECTIONS,
        (1, None) => one::SECTIONS,
        (2, None) => two::SECTIONS,
        (3, None) => three::SECTIONS,
        (other, _) => {
            return Err(Failure::usage(format!(
                "source {other} cannot be reproduced; those from {} to {} can",
                SOURCES.start(),
                SOURCES.end()
            )));
        }
    };
    run_sections(source, sections, setting, interrupt)
}

fn run_sections(
    source: u8,
    sections: &[Entry],
    setting: &Setting,
    interrupt: &Interrupt,
) -> Result<Reproduction, Failure> {
    let (sections, left_out) = chosen(sections, &setting.only)?;
    let traces = Traces::new(setting, interrupt)?;
    let kept = Mutex::new(Kept::open_if(setting.resume.as_deref())?);
    let task = Task {
        setting,
        interrupt,
        all_kept: &kept,
        traces: &traces,
    };
    let mut result = Reproduction {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        source,
        quick: setting.quick,
        passes: setting.passes,
        seed: setting.seed,
        host: format!(
            "Linux {}, {} CPUs",
            crate::host::kernel_release(),
            crate::host::cpus()
        ),
        sections: Vec::new(),
        left_out,
        notes: notes(source, setting),
        interrupted: false,
    };
    for (title, sources, make) in sections {
        let mut section = model::section(title, sources);
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

/// The sections whose titles have one of the texts in `only`, or all if there are none,
/// and the titles of the others.
fn chosen<'s>(
    sections: &'s [Entry],
    only: &[String],
) -> Result<(Vec<&'s Entry>, Vec<String>), Failure> {
    let has = |title: &str, text: &str| title.to_lowercase().contains(&text.to_lowercase());
    for text in only {
        if !sections.iter().any(|(title, ..)| has(title, text)) {
            let titles: Vec<String> = sections
                .iter()
                .map(|(title, ..)| format!("\"{title}\""))
                .collect();
            return Err(Failure::usage(format!(
                "no section is called `{text}`; there are {}",
                titles.join(", ")
            )));
        }
    }
    let wanted = |(title, ..): &&Entry| only.is_empty() || only.iter().any(|text| has(title, text));
    let (chosen, others): (Vec<_>, Vec<_>) = sections.iter().partition(wanted);
    Ok((
        chosen,
        others
            .iter()
            .map(|(title, ..)| (*title).to_owned())
            .collect(),
    ))
}

fn notes(source: u8, setting: &Setting) -> Vec<String> {
    let ours = match &setting.simulated {
        None => {
            "Ours are times of the core of this project on a machine of its own, without traps, \
             without user code, and without the caches of sixteen CPUs. docs/reproductions.md \
             says what that does to each table."
        }
        Some(_) => {
            "Ours are virtual times of the core of this project on a simulated machine, the same \
             on every host. docs/many-cpus.md says what is simulated and what is not."
        }
    };
    let mut notes = vec![ours.to_owned()];
    if cfg!(debug_assertions) {
        notes.push(
            "This program was built with debug assertions, which check table pages and lists at \
             every step, in virtual time, too: none of its times mean anything. Build it with \
             --release."
                .to_owned(),
        );
    }
    if source == 0 {
        notes.push(crate::bench::host::sdet::DISCLAIMER.replace('\n', " "));
    }
    notes
}

/// The long traces, or short parts of them in a directory of its own.
struct Traces<'t> {
    setting: &'t Setting,
    interrupt: &'t Interrupt,
    /// For the parts. Removed when this goes.
    scratch: Option<Scratch>,
}

impl<'t> Traces<'t> {
    fn new(setting: &'t Setting, interrupt: &'t Interrupt) -> Result<Self, Failure> {
        let mut scratch = None;
        if setting.quick || setting.simulated.is_some() {
            let parent = std::env::temp_dir();
            let made = Scratch::new(&parent, "reproduce");
            scratch = Some(made.doing(|| format!("making a directory in {}", parent.display()))?);
        }
        Ok(Self {
            setting,
            interrupt,
            scratch,
        })
    }

    /// A trace, or `window` of it if only parts are replayed. The part is cut when
    /// it is first asked for.
    fn get(&self, name: &str, window: Selection) -> Result<PathBuf, Failure> {
        let whole = self.setting.trace(name)?;
        let Some(scratch) = &self.scratch else {
            return Ok(whole);
        };
        let part = scratch.path().join(name_of_part(name, window));
        if !part.exists() {
            let trace = TraceReader::open(&whole).blame_input()?;
            // Read a few times and thrown away.
            let writer = TraceWriter::create(&part, 1)?;
            excerpt::write(&trace, window, writer, Style::Quiet, self.interrupt)?;
        }
        Ok(part)
    }
}

/// A file name for a part of a trace, to be read by those who see it at work.
fn name_of_part(trace: &str, window: Selection) -> String {
    let Selection {
        root,
        from_us,
        to_us,
    } = window;
    let root = root.map_or(String::new(), |TaskId(task)| format!("task-{task}-"));
    let from = match from_us {
        0 => String::new(),
        _ => format!("from-{from_us}us-"),
    };
    let to = match to_us {
        u64::MAX => String::new(),
        _ => format!("to-{to_us}us-"),
    };
    format!("{root}{from}{to}of-{trace}")
}

#[cfg(test)]
mod tests {
    use super::model::Section;
    use super::*;

    fn with_server(task: &Task<'_>, _: &mut Section) -> Result<(), Failure> {
        task.server().map(|_| ())
    }

    fn without(_: &Task<'_>, _: &mut Section) -> Result<(), Failure> {
        Ok(())
    }

    #[test]
    fn a_missing_trace_of_the_server_fails_the_sections_that_need_it() {
        let traces = std::env::temp_dir();
        let traces = Scratch::new(&traces, "reproduce-test").expect("a directory");
        let setting = Setting {
            passes: 1,
            quick: false,
            seed: 1,
            style: Style::Quiet,
            traces: traces.path().to_owned(),
            only: Vec::new(),
            scripts: Vec::new(),
            resume: None,
            simulated: None,
        };
        let sections: [Entry; 2] = [("with", &[], with_server), ("without", &[], without)];
        let result = run_sections(0, &sections, &setting, &Interrupt::manual());
        let result = result.expect("sections");
        let failed: Vec<Option<&str>> = (result.sections.iter())
            .map(|section| section.failed.as_deref())
            .collect();
        assert!(
            failed[0].is_some_and(|why| why.contains(SERVER)),
            "{failed:?}"
        );
        assert_eq!(failed[1], None);
    }

    #[test]
    fn sections_are_chosen_by_parts_of_their_titles_and_the_others_named() {
        let only = |texts: &[&str]| {
            let texts: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
            let (chosen, others) = chosen(zero::SECTIONS, &texts)?;
            let titles: Vec<&str> = chosen.iter().map(|entry| entry.0).collect();
            Ok::<_, Failure>((titles, others.len()))
        };
        let all = zero::SECTIONS.len();
        let found = only(&["sdet", "Singletons"]).expect("there are such");
        let sdet = ["SDET, March 2003", "SDET, March 2004", "singletons"];
        assert_eq!(found, (sdet.to_vec(), all - 3));
        assert_eq!(only(&[]).expect("all").0.len(), all);
        let refused = only(&["sdet", "lat_mmap"]).expect_err("that is of source 2");
        assert!(refused.message().contains("\"rmap-test\""), "{refused:?}");
    }
}
