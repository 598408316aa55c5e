//! The workload on this machine's kernel, with and without what processes can choose for
//! themselves or the system can be set to.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::knobs::{Knob, OnHost, thp_directory};
use super::settings::Switched;
use crate::compare::{Contrast, Judged, Method};
use crate::linux::arms::{Measured, Settings, measure};
use crate::linux::tree::Mode;
use crate::linux::{LinuxError, plan, supported};
use crate::replay::{Options, prepare_events};
use crate::stats::{Estimate, Samples};
use vellum_results::advise::Host;
use vellum_terminal::progress::{Interrupt, Style};
use vellum_trace::TraceReader;

/// Passes at most.
const PASSES: usize = 12;

/// What one knob does here.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Arm {
    /// CPU time without it, in nanoseconds, that of the replay itself included.
    pub base_ns: f64,
    /// That with it, divided by that without it.
    pub ratio: Estimate,
    /// What is said of it.
    pub judged: Judged,
    /// Page faults, by those without it.
    pub faults: f64,
}

/// What was found.
#[derive(Clone, PartialEq, Debug)]
pub struct OnHostFound {
    /// By knob; none for those that could not be tried.
    pub arms: Vec<Option<Arm>>,
    /// Passes that were made.
    pub passes: usize,
    /// The user ended it early.
    pub interrupted: bool,
}

/// This machine's kernel and its settings.
pub fn here() -> Host {
    let directory = Path::new(thp_directory());
    let chosen = |path: PathBuf| {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        chosen(&text).unwrap_or_default().to_owned()
    };
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let mut sizes: Vec<(u64, String)> = entries
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let size = name.strip_prefix("hugepages-")?.to_owned();
            let kib = size.strip_suffix("kB")?.parse().ok()?;
            // Sizes that only shared memory has are set elsewhere.
            let set = chosen(entry.path().join("enabled"));
            (!set.is_empty()).then(|| (kib, format!("{size} {set}")))
        })
        .collect();
    sizes.sort();
    Host {
        kernel: crate::linux::environment::here().kernel,
        thp: chosen(directory.join("enabled")),
        mthp: sizes.into_iter().map(|(_, size)| size).collect(),
    }
}

/// The word in brackets: what of several a setting is.
pub fn chosen(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once('[')?;
    Some(rest.split_once(']')?.0)
}

/// Why this machine cannot show what huge pages do; none if it can.
pub fn refused(host: &Host) -> Option<String> {
    if let Err(error) = supported() {
        return Some(error.to_string());
    }
    match &*host.thp {
        "always" | "madvise" => None,
        "" => Some("this kernel has no transparent huge pages".to_owned()),
        set => Some(format!(
            "THP is set to `{set}` here, so that no process can have huge pages"
        )),
    }
}

/// The settings of a size of mTHP: memory that asks gets that size and no other.
fn of_size(kib: u32) -> Vec<(PathBuf, String)> {
    let size = |kib: u32| Path::new(thp_directory()).join(format!("hugepages-{kib}kB/enabled"));
    vec![
        (size(2048), "never".to_owned()),
        (size(kib), "madvise".to_owned()),
    ]
}

/// Replays the trace at `path` for as long as `seconds`, with each of `knobs` that can be tried.
/// Sizes of mTHP can if settings may be `switched`.
///
/// # Errors
/// The trace cannot be used, a replay failed, or the user interrupts before there is a pass.
pub fn run(
    path: &Path,
    knobs: &[Knob],
    mut switched: Option<&mut Switched>,
    (seconds, seed): (u64, u64),
    style: Style,
    interrupt: &Interrupt,
) -> Result<OnHostFound, LinuxError> {
    let trace = TraceReader::open(path)?;
    let options = Options::default();
    let workload = prepare_events(trace.header(), || trace.events(), &options)
        .map_err(|error| LinuxError::Unsupported(error.to_string()))?;
    let plan = plan(&trace, &workload)?;
    // The arm of each knob, and what is to be set for each arm.
    let mut modes = vec![Mode::Small];
    let mut to_set: Vec<Vec<(PathBuf, String)>> = vec![Vec::new()];
    let mut numbers = vec![None; knobs.len()];
    for (number, knob) in numbers.iter_mut().zip(knobs) {
        let set = match knob.on_host {
            Some(OnHost::Thp) => Vec::new(),
            Some(OnHost::Mthp(kib)) if switched.is_some() => of_size(kib),
            _ => continue,
        };
        if set.iter().all(|(path, _)| path.exists()) {
            *number = Some(modes.len());
            modes.push(Mode::Huge);
            to_set.push(set);
        }
    }
    let settings = Settings {
        arms: modes,
        passes: PASSES,
        budget: Duration::from_secs(seconds),
        seed,
        scratch: None,
        style,
    };
    let mut prepare = |arm: usize| match &mut switched {
        None => Ok(()),
        Some(switched) => switched
            .to(&to_set[arm])
            .map_err(LinuxError::io("switching sizes of mTHP")),
    };
    let measured = measure(&plan, &settings, &mut prepare, interrupt)?;
    if let Some(switched) = switched {
        switched
            .restore()
            .map_err(LinuxError::io("restoring the settings of this machine"))?;
    }
    Ok(found(&measured, &numbers, seed))
}

fn found(measured: &Measured, numbers: &[Option<usize>], seed: u64) -> OnHostFound {
    let samples: Vec<Samples> = measured.cpu_ns.iter().map(|times| samples(times)).collect();
    let method = Method {
        confidence: 0.95,
        resamples: 1000,
        seed,
    };
    let contrast = Contrast::new(&samples, &method);
    let arm = |number: usize| Arm {
        base_ns: contrast.totals[0].value,
        ratio: contrast.ratios[number],
        judged: contrast.judged[number - 1],
        faults: measured.faults[number] as f64 / measured.faults[0].max(1) as f64,
    };
    OnHostFound {
        arms: numbers.iter().map(|number| number.map(arm)).collect(),
        passes: measured.cpu_ns[0].len(),
        interrupted: measured.interrupted,
    }
}

/// Passes of one slice each.
pub(super) fn samples(times: &[u64]) -> Samples {
    let passes: Vec<&[u64]> = times.iter().map(std::slice::from_ref).collect();
    Samples::from_passes(&passes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_is_the_word_in_brackets() {
        assert_eq!(chosen("always [madvise] never\n"), Some("madvise"));
        assert_eq!(chosen("always"), None);
        assert_eq!(chosen("[odd"), None);
    }

    #[test]
    fn a_machine_without_huge_pages_says_so() {
        let with = |thp: &str| Host {
            thp: thp.to_owned(),
            ..Host::default()
        };
        if supported().is_ok() {
            assert_eq!(refused(&with("madvise")), None);
            assert!(refused(&with("never")).is_some_and(|why| why.contains("`never`")));
            assert!(refused(&with("")).is_some());
        }
    }

    #[test]
    fn arms_are_held_against_the_first_and_knobs_without_one_have_none() {
        let measured = Measured {
            cpu_ns: vec![vec![1000; 6], vec![800; 6], vec![1000; 6]],
            faults: vec![100, 10, 100],
            interrupted: false,
        };
        let found = found(&measured, &[None, Some(1)], 1);
        assert_eq!((found.arms[0], found.passes), (None, 6));
        let arm = found.arms[1].expect("it was tried");
        assert_eq!(
            (arm.base_ns, arm.ratio.value, arm.faults),
            (1000.0, 0.8, 0.1)
        );
        assert!(arm.judged.verdict.is_difference());
    }
}
