//! What commands that measure designs share to profile them in the same run.
//!
//! A command has [`ProfileArgs`] among its arguments. It calls
//! [`ProfileArgs::start`], measures with the builder that
//! [`attached`](crate::compare::attached) makes of its own, and calls
//! [`Profiling::finish`].

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use clap::builder::ValueHint;

use super::{Failure, OrFail};
use crate::sampled;
use vellum_profile::diffprofile::{self, Options, diffprofile};
use vellum_profile::files::PendingDirectory;
use vellum_profile::sample::{DEFAULT_RATE_HZ, Profiler, Samples};
use vellum_profile::{Profile as Ticks, flame};
use vellum_results::profile::{Profile, Stacks};
use vellum_terminal::table::{Table, grouped};

/// Group whose change the control is summed up by.
const RMAP: &str = "rmap";

/// The profile of a run, if the user asked for one, or why it failed: that must
/// not keep from printing what was measured.
pub type Outcome = Option<Result<Profile, Failure>>;

/// Heading of the options.
const HEADING: &str = "Profiles";

/// Options of a command that can profile what it measures
#[derive(Args, Clone, Debug)]
pub struct ProfileArgs {
    /// Sample where the designs spend their time, and print the difference by function; on a
    /// simulated machine, print the cache lines and the locks that cost most
    #[arg(long, help_heading = HEADING)]
    profile: bool,

    /// Write a.folded, b.folded, diff.svg and diffprofile.txt to DIR; implies --profile. On a
    /// simulated machine the stacks say where CPUs waited, and there are a-locks.folded and
    /// b-locks.folded
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath,
          help_heading = HEADING, hide_short_help = true)]
    profile_out: Option<PathBuf>,

    /// Samples a second on each thread; each costs some microseconds of measured time
    #[arg(long, value_name = "HZ", default_value_t = DEFAULT_RATE_HZ,
          value_parser = clap::value_parser!(u32).range(1..=20_000),
          help_heading = HEADING, hide_short_help = true)]
    profile_rate: u32,
}

impl ProfileArgs {
    /// Whether the user asked for a profile.
    pub fn wanted(&self) -> bool {
        self.profile || self.profile_out.is_some()
    }

    /// Where the user asked for files of it.
    pub fn output(&self) -> Option<&PathBuf> {
        self.profile_out.as_ref()
    }

    /// Gets ready to profile, if the user asked for it.
    ///
    /// # Errors
    /// The output directory cannot be written, or sampling is refused.
    pub fn start(&self) -> Result<Profiling, Failure> {
        if !self.wanted() {
            return Ok(Profiling::default());
        }
        let output = self.profile_out.as_ref().map(|path| {
            let directory = PendingDirectory::create(path);
            let directory = directory.doing(|| format!("writing {}", path.display()))?;
            Ok::<_, Failure>((path.clone(), directory))
        });
        Ok(Profiling {
            output: output.transpose()?,
            profiler: Some(Arc::new(sampled::profiler(self.profile_rate)?)),
        })
    }
}

/// Profiling of one command, or none.
#[derive(Debug, Default)]
pub struct Profiling {
    profiler: Option<Arc<Profiler>>,
    output: Option<(PathBuf, PendingDirectory)>,
}

impl Profiling {
    /// What samples engines, for [`attached`](crate::compare::attached).
    pub fn profiler(&self) -> Option<Arc<Profiler>> {
        self.profiler.clone()
    }

    /// Ends sampling, compares the designs' profiles, and writes files if the user
    /// asked for them. `designs` are those of the arms; one more arm is the
    /// control. `work` names the workload in headings.
    pub fn finish(self, designs: &[String], work: &str) -> Outcome {
        let profiler = self.profiler?;
        let letters = (b'A'..=b'Z').map(char::from);
        let mut names: Vec<String> = letters
            .zip(designs)
            .map(|(letter, design)| format!("{letter} {design}"))
            .collect();
        names.push("A again, the control".to_owned());
        let report = |samples: Samples| {
            let profile = compared(&samples, work);
            if let Some((path, directory)) = self.output {
                let written = directory.commit(&files(&samples, &profile, work));
                written.doing(|| format!("writing {}", path.display()))?;
            }
            Ok(profile)
        };
        let samples = profiler.finish(&names).map_err(Failure::from);
        Some(samples.and_then(report))
    }
}

/// The stacks of all profiles.
fn stacks(profiles: &[Ticks]) -> Stacks {
    let mut numbers: BTreeMap<&str, usize> = BTreeMap::new();
    let mut names = Vec::new();
    let mut stacks: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for (place, profile) in profiles.iter().enumerate() {
        for (stack, ticks) in profile.stacks() {
            let frames = stack.iter().map(|name| {
                let number = numbers.entry(name).or_insert_with(|| {
                    names.push(name.to_string());
                    names.len() - 1
                });
                number.to_string()
            });
            let key = frames.collect::<Vec<String>>().join(";");
            stacks.entry(key).or_insert_with(|| vec![0; profiles.len()])[place] = ticks;
        }
    }
    Stacks {
        profiles: profiles
            .iter()
            .map(|profile| profile.name.clone())
            .collect(),
        names,
        stacks: stacks.into_iter().collect(),
    }
}

/// How differences are compared and printed. `new` is what the heading calls the new profile.
fn options(new: &str, work: &str) -> Options {
    Options {
        errors: true,
        title: work.to_owned(),
        ..Options::new(new)
    }
}

fn compared(samples: &Samples, work: &str) -> Profile {
    let profiles = &samples.profiles;
    let against_a = |new: &Ticks, name: &str| diffprofile(&profiles[0], new, &options(name, work));
    let last = profiles.len() - 1;
    let designs = profiles[1..last].iter();
    Profile {
        rate_hz: samples.rate_hz,
        lost: samples.lost,
        differences: designs
            .map(|new| against_a(new, new.name.split(' ').next().unwrap_or_default()))
            .collect(),
        control: against_a(&profiles[last], "the control"),
        stacks: Some(stacks(profiles)),
    }
}

/// For a terminal.
pub fn text(profile: &Profile) -> String {
    let mut text = String::new();
    for difference in &profile.differences {
        text.push_str(&diffprofile::text(difference, &options("", "")));
        text.push('\n');
    }
    text.push_str(&control_text(profile));
    text
}

/// How sure all this is.
fn control_text(profile: &Profile) -> String {
    let control = &profile.control;
    let mut table = Table::new(&[
        "control (A against itself)",
        "old",
        "new",
        "change",
        "\u{b1}",
    ]);
    for change in control.group(RMAP).into_iter().chain([&control.total]) {
        table.row(vec![
            change.name.clone(),
            grouped(change.old),
            grouped(change.new),
            format!("{:+}", change.delta),
            format!("{:.0}", change.error),
        ]);
    }
    let mut text = table.render(0);
    text.push_str(&format!(
        "A tick is a sample; {} a second on each thread were taken at random moments. \u{b1} is \
         one standard error;\n`*` marks changes of more than two. docs/report.md says what \
         that can and cannot tell.\n",
        grouped(profile.rate_hz.into())
    ));
    if profile.lost > 0 {
        text.push_str(&format!(
            "{} samples were lost: lower --profile-rate.\n",
            grouped(profile.lost)
        ));
    }
    text
}

/// The files of a profile: stacks of each design, and the differences.
fn files(samples: &Samples, profile: &Profile, work: &str) -> Vec<(String, String)> {
    let profiles = &samples.profiles;
    let designs = &profiles[..profiles.len() - 1];
    let letters: Vec<char> = ('a'..='z').take(designs.len()).collect();
    let mut files = vec![("diffprofile.txt".to_owned(), text(profile))];
    for (letter, profile) in letters.iter().zip(designs) {
        files.push((format!("{letter}.folded"), profile.folded()));
    }
    for (letter, new) in letters.iter().zip(designs).skip(1) {
        let name = match designs.len() {
            2 => "diff.svg".to_owned(),
            _ => format!("diff-{letter}.svg"),
        };
        files.push((name, flame::svg(&profiles[0], new, work)));
    }
    files
}
