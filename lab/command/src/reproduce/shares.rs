//! Which share of a dd three things take that the patches of 2014 made cheaper.

use std::sync::Arc;

use super::bench::Job;
use super::judge::{Change, Evidence};
use super::model::{self, Comparison, Section};
use super::published::{SHARES_2014, Share};
use super::task::Task;
use crate::failure::Failure;
use crate::on::On;
use crate::sampled;
use crate::stats::bootstrap::LEAST_PASSES;
use vellum_profile::Profile;
use vellum_profile::sample::DEFAULT_RATE_HZ;
use vellum_terminal::table::Table;

/// Standard errors from which on a difference of counts is one.
const ERRORS: f64 = 1.96;

/// Ticks of functions, and of all.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Ticks {
    some: u64,
    all: u64,
}

impl Ticks {
    /// Those of stacks that have one of `functions`, whoever it was inlined into.
    fn of(profile: &Profile, functions: &[&str]) -> Ticks {
        let has = |name: &str| functions.iter().any(|function| name.ends_with(function));
        let within = profile
            .stacks()
            .filter(|(stack, _)| stack.iter().any(|name| has(name)));
        Ticks {
            some: within.map(|(_, ticks)| ticks).sum(),
            all: profile.total(),
        }
    }

    fn percent(self) -> f64 {
        100.0 * self.some as f64 / self.all.max(1) as f64
    }

    /// The standard error of the share, in percent of all: ticks fall at random.
    fn error(self) -> f64 {
        100.0 * (self.some.max(1) as f64).sqrt() / self.all.max(1) as f64
    }

    fn text(self) -> String {
        format!("{:.2} % (+/- {:.2})", self.percent(), self.error())
    }
}

/// From the share under the old kernel, which was sampled twice, to another. What the two
/// samplings of the old one differ by is an error, too.
fn change([old, again]: [Ticks; 2], new: Ticks, passes: usize) -> Change {
    let both = Ticks {
        some: old.some + again.some,
        all: old.all + again.all,
    };
    let strays = (old.percent() - again.percent()).abs() / std::f64::consts::SQRT_2;
    let base = both.percent().max(both.error());
    let error = ERRORS * both.error().max(strays).hypot(new.error().max(strays));
    let change = Change::between(base, new.percent(), 100.0 * error / base);
    match passes < LEAST_PASSES {
        true => change.judged(Evidence::TooFewPasses, 0.0),
        false => change,
    }
}

/// Profiles loopdd under the kernel without the patches, with each of those that the
/// shares are of, and with all.
///
/// # Errors
/// Sampling is refused, or the benchmark failed.
pub fn take(
    task: &Task<'_>,
    section: &mut Section,
    mut job: Job<'static>,
    (without, with): (&str, &str),
) -> Result<(), Failure> {
    section.method.push(format!(
        "samples of loopdd on the core, {DEFAULT_RATE_HZ} a second of CPU time: the share of those \
         in the functions that do what the kernel's did, inlined or not. The published shares are \
         of all of a dd, its system calls and zeroing included; ours leave entries out"
    ));
    let alone = SHARES_2014
        .iter()
        .map(|share| format!("{without},{}", share.option));
    job.designs = [without.to_owned()].into_iter().chain(alone).collect();
    job.designs.push(with.to_owned());
    let profiler = Arc::new(sampled::profiler(DEFAULT_RATE_HZ)?);
    let findings = task
        .setting
        .profiled(&job, On::Core, Some(&profiler), task.interrupt)?;
    if findings.interrupted {
        return Err(Failure::interrupted("interrupted"));
    }
    let mut names = job.designs.clone();
    names.push("control".to_owned());
    let samples = profiler.finish(&names)?;
    let profiles = &samples.profiles;
    let (last, control) = (profiles.len() - 2, profiles.len() - 1);
    let mut table = Table::new(&["share of samples", "vanilla", "again", "that patch", "all"]);
    for (number, share) in SHARES_2014.iter().enumerate() {
        let ticks = |arm: usize| Ticks::of(&profiles[arm], share.functions);
        let (old, again, alone) = (ticks(0), ticks(control), ticks(number + 1));
        table.row(vec![
            share.name.to_owned(),
            old.text(),
            again.text(),
            alone.text(),
            ticks(last).text(),
        ]);
        section
            .comparisons
            .push(compared(share, [old, again], alone, task.setting.passes));
    }
    let all: Vec<u64> = profiles.iter().map(Profile::total).collect();
    section.method.push(format!(
        "{} samples of the kernel without the patches",
        vellum_terminal::table::grouped(all[0])
    ));
    section.tables.push(("ours".to_owned(), table.render(0)));
    Ok(())
}

fn compared(share: &Share, old: [Ticks; 2], new: Ticks, passes: usize) -> Comparison {
    let [before, after] = share.percent;
    let mut row = model::of_changes(
        format!("{}, {}", share.name, share.option),
        Change::between(before, after, 0.0),
        change(old, new, passes),
    );
    row.published = format!("{before} to {after} %");
    row.ours = Some(format!("{:.2} to {:.2} %", old[0].percent(), new.percent()));
    row
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_count_stacks_with_a_function_at_any_depth() {
        let mut profile = Profile::new("p");
        let mut add = |stack: &[&str], ticks| {
            profile.add(stack.iter().map(|name| (*name).into()).collect(), ticks);
        };
        add(&["a::write", "b::page_lock::queue"], 30);
        add(&["b::page_lock::queue", "core::load"], 10);
        add(&["a::write", "b::other_queue"], 60);
        let ticks = Ticks::of(&profile, &["page_lock::queue"]);
        assert_eq!(ticks, Ticks { some: 40, all: 100 });
    }

    #[test]
    fn a_share_that_goes_away_is_told_from_one_that_strays() {
        let of = |some| Ticks { some, all: 10_000 };
        let gone = change([of(150), of(150)], of(0), 6);
        assert_eq!(gone.evidence, Evidence::Proven);
        assert!((gone.percent + 100.0).abs() < 1e-9);
        let strays = change([of(150), of(150)], of(160), 6);
        assert_eq!(strays.evidence, Evidence::NotProven);
        // The same fall, between samplings of one kernel that are as far apart.
        let falls = |again| change([of(150), of(again)], of(80), 6).evidence;
        assert_eq!(
            (falls(150), falls(80)),
            (Evidence::Proven, Evidence::NotProven)
        );
        let few = change([of(150), of(150)], of(0), 1);
        assert_eq!(few.evidence, Evidence::TooFewPasses);
    }
}
