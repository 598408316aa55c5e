//! What `buildkernel` is on the core and on simulated machines: a recorded build on tmpfs, of
//! which copies stand in for jobs.

use std::path::{Path, PathBuf};

use crate::excerpt;
use crate::failure::{Failure, OrFail};
use crate::host::scratch::Scratch;
use crate::shipped::shipped_trace;
use vellum_terminal::progress::{Interrupt, Style};
use vellum_terminal::text::plural;
use vellum_trace::cut::Selection;
use vellum_trace::{TraceReader, TraceWriter};

/// The build on tmpfs that comes with the program.
const SHIPPED: &str = "kernel-build-tmpfs.vellum";

/// Five jobs for every four CPUs, as in the published builds: 40 on 32.
const JOBS_OF_CPUS: (usize, usize) = (5, 4);

/// The N of `make -j N`: as asked for, or what the CPUs are given.
pub fn jobs(asked: u64, cpus: usize) -> u64 {
    let (jobs, of_cpus) = JOBS_OF_CPUS;
    match asked {
        0 => (cpus * jobs).div_ceil(of_cpus) as u64,
        asked => asked,
    }
}

/// A recorded build, or its beginning.
#[derive(Debug)]
pub struct Part {
    /// The trace that it is of.
    whole: PathBuf,
    /// The beginning, if that is all that is wanted, in a directory that goes with this.
    beginning: Option<(PathBuf, u64)>,
    _scratch: Option<Scratch>,
    /// CPUs of the machine on which it was recorded.
    recorded_on: u32,
}

impl Part {
    /// The trace that is given, or else the shipped one; of it so many milliseconds, or all
    /// for 0.
    ///
    /// # Errors
    /// There are several, or none, or it cannot be read, or the part not be written.
    pub fn of(
        given: &[PathBuf],
        milliseconds: u64,
        style: Style,
        interrupt: &Interrupt,
    ) -> Result<Self, Failure> {
        let whole = match given {
            [] => shipped_trace(SHIPPED)?,
            [one] => one.clone(),
            several => {
                return Err(Failure::usage(format!(
                    "buildkernel replays one trace; {} were named",
                    several.len()
                )));
            }
        };
        let trace = TraceReader::open(&whole).blame_input()?;
        let recorded_on = trace.header().environment.cpus.max(1);
        let mut part = Part {
            whole,
            beginning: None,
            _scratch: None,
            recorded_on,
        };
        if milliseconds > 0 {
            let parent = std::env::temp_dir();
            let scratch = Scratch::new(&parent, "buildkernel");
            let scratch =
                scratch.doing(|| format!("making a directory in {}", parent.display()))?;
            let path = scratch.path().join("part.vellum");
            let selection = Selection {
                root: None,
                from_us: 0,
                to_us: milliseconds.saturating_mul(1000),
            };
            // Read a few times and thrown away.
            let writer = TraceWriter::create(&path, 1)?;
            excerpt::write(&trace, selection, writer, style, interrupt)?;
            part.beginning = Some((path, milliseconds));
            part._scratch = Some(scratch);
        }
        Ok(part)
    }

    /// The trace to replay.
    pub fn path(&self) -> &PathBuf {
        self.beginning.as_ref().map_or(&self.whole, |part| &part.0)
    }

    /// The trace that it is of.
    pub fn whole(&self) -> &Path {
        &self.whole
    }

    /// How many copies stand for so many jobs: each for as many as the machine had CPUs on
    /// which it was recorded.
    pub fn copies(&self, jobs: u64) -> u32 {
        let copies = jobs.div_ceil(u64::from(self.recorded_on));
        copies.clamp(1, u64::from(u32::MAX)) as u32
    }

    /// What is replayed, in words.
    pub fn describe(&self, copies: u32) -> String {
        let copies = plural(copies as usize, "copy", "copies");
        let of = match self.beginning {
            Some((_, milliseconds)) => format!("the first {milliseconds} ms of "),
            None => String::new(),
        };
        format!(
            "{copies} of {of}{}, each for as many jobs as the machine had CPUs on which it was \
             recorded: {}.",
            self.whole.display(),
            self.recorded_on
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_follow_from_the_cpus_unless_they_are_given() {
        assert_eq!([1, 2, 32, 104].map(|cpus| jobs(0, cpus)), [2, 3, 40, 130]);
        assert_eq!(jobs(7, 32), 7);
    }

    #[test]
    fn copies_stand_for_as_many_jobs_as_the_recorded_machine_had_cpus() {
        let part = Part {
            whole: PathBuf::from("build.vellum"),
            beginning: Some((PathBuf::from("part.vellum"), 250)),
            _scratch: None,
            recorded_on: 2,
        };
        assert_eq!([1, 2, 3, 40].map(|jobs| part.copies(jobs)), [1, 1, 2, 20]);
        let text = part.describe(20);
        assert!(
            text.starts_with("20 copies of the first 250 ms of build.vellum"),
            "{text}"
        );
        assert_eq!(part.path(), Path::new("part.vellum"));
    }

    #[test]
    fn several_traces_are_refused() {
        let two = ["a", "b"].map(PathBuf::from);
        let refused = Part::of(&two, 0, Style::Quiet, &Interrupt::manual());
        let message = refused.expect_err("refused").message().to_owned();
        assert!(message.contains("2 were named"), "{message}");
    }
}
