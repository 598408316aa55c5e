//! Source 4: locks of pv lists, 2020. Two machines are simulated, as the published builds
//! ran on two; who is asked for one machine gets all of it on that one.

use std::path::PathBuf;

use super::bench::{Simulated, available};
use super::four_scaled;
use super::judge::{Change, Evidence, Factor};
use super::model::{self, Comparison, Section};
use super::published::{
    self, BUILD_FARM, BUILD_FARM_UNBATCHED, BUILDKERNEL_16_CORES, BUILDKERNEL_PIG1, Kernel, Waiting,
};
use super::simulated::{Compared, change, difference, method};
use super::task::{Entry, Task};
use crate::bench::buildkernel::jobs;
use crate::failure::Failure;
use crate::report::buildkernel::{Builds, block};
use crate::scale::text::percent;
use crate::simulate::{ratio_of, to_base};
use crate::stats::median;
use vellum_description::Description;
use vellum_results::scale::Lock;
use vellum_results::sim::{Account, Findings, Side};
use vellum_tables::ministat::{Difference, Options};
use vellum_terminal::table::{Table, grouped};
use vellum_terminal::text::plural;
use vellum_trace::TaskId;
use vellum_trace::cut::Selection;

/// The first machine: 16 cores, 32 threads.
pub const FIRST_MACHINE: &str = "xeon-e5-2690";
/// The second, which is larger and has nodes.
const SECOND_MACHINE: &str = "xeon-104";
/// The machine of the curves.
pub(super) const LARGE_MACHINE: &str = "generated-512";

/// The recorded build.
const BUILD: &str = "kernel-build-tmpfs.vellum";
/// Part of it that is replayed: a job, which is a shell with all that it starts, the compiler
/// and the assembler among it.
const PART: Selection = Selection {
    root: Some(TaskId(5176)),
    from_us: 0,
    to_us: u64::MAX,
};
/// Part of it that a quick reproduction replays.
const QUICK_PART: Selection = Selection {
    root: None,
    from_us: 0,
    to_us: 30_000,
};

/// Kernels and schemes that are not in the published comparison, of the first machine.
const OTHERS: [(&str, &str); 4] = [
    ("a lock for each 2 MiB", "as=freebsd-13-superpage"),
    ("chains", "as=freebsd-13-hashed,rmap=chains"),
    ("anon_vma_chain", "as=freebsd-13-hashed,rmap=anon_vma_chain"),
    ("family", "as=freebsd-13-hashed,rmap=family"),
];

/// Schemes that are not in the published comparison, of the second machine.
const OTHERS_WITH_NODES: [(&str, &str); 4] = [
    ("hashed", "as=freebsd-13-hashed"),
    ("chains", "as=freebsd-13-superpage,rmap=chains"),
    (
        "anon_vma_chain",
        "as=freebsd-13-superpage,rmap=anon_vma_chain",
    ),
    ("family", "as=freebsd-13-superpage,rmap=family"),
];

/// What superpages are switched on and off under: names, design.
const WITH_AND_WITHOUT: [([&str; 2], &str); 6] = [
    (["hashed", "hashed, on"], "as=freebsd-13-hashed"),
    (["2 MiB", "2 MiB, on"], "as=freebsd-13-superpage"),
    (["byte", "byte, on"], "as=freebsd-13-obm"),
    (["chains", "chains, on"], "as=freebsd-13-hashed,rmap=chains"),
    (
        ["anon_vma_chain", "anon_vma_chain, on"],
        "as=freebsd-13-hashed,rmap=anon_vma_chain",
    ),
    (["family", "family, on"], "as=freebsd-13-hashed,rmap=family"),
];
/// Superpages switched on as FreeBSD has them.
const SUPERPAGES: [&str; 1] = ["reserve"];

/// Samples of seeds that intervals are from.
const RESAMPLES: usize = 2000;

/// Locks that are printed of each design.
const PRINTED_LOCKS: usize = 4;

/// The sections in order.
pub const SECTIONS: &[Entry] = &[
    (
        "buildkernel, 16 cores",
        &[published::MARCH_2020],
        first_machine,
    ),
    (
        "buildkernel, second machine",
        &[published::MARCH_2020, published::OCTOBER_2019],
        second_machine,
    ),
    (
        "superpages, first machine",
        &[published::MARCH_2020],
        |task, section| superpages(task, section, FIRST_MACHINE),
    ),
    (
        "superpages, larger machine",
        &[published::MARCH_2020],
        |task, section| superpages(task, section, SECOND_MACHINE),
    ),
    (
        "up to 512 CPUs",
        &[published::MARCH_2020],
        four_scaled::curves,
    ),
    (
        "family against pv",
        &[published::MARCH_2020],
        four_scaled::against_pv,
    ),
];

impl Task<'_> {
    /// The machine of that name, unless the user has asked for another.
    pub(super) fn machine(&self, name: &str) -> Result<Simulated, Failure> {
        let on = self.simulated()?;
        let machine = match on.machine_name == FIRST_MACHINE {
            true => Description::named(name),
            false => return Ok(on.clone()),
        };
        let machine = machine.map_err(|error| Failure::failed(error.to_string()))?;
        // Fewer CPUs than the first machine has were asked for.
        let is_cut = on.cpus < on.machine.cpus();
        Ok(Simulated {
            cpus: match is_cut {
                true => on.cpus,
                false => machine.cpus(),
            },
            machine_name: name.to_owned(),
            machine,
            jobs: on.jobs,
        })
    }

    fn build_on_tmpfs(&self, part: Selection) -> Result<PathBuf, Failure> {
        let part = match self.setting.quick {
            true => QUICK_PART,
            false => part,
        };
        self.traces.get(BUILD, part)
    }
}

/// A build under several designs, the base first.
pub(super) struct Built {
    names: Vec<&'static str>,
    pub findings: Findings,
    copies: u32,
    jobs: u64,
}

impl Built {
    /// Replays the part of the build, copies in place of so many jobs as the machine gets.
    pub fn on(
        task: &Task<'_>,
        machine: &Simulated,
        designs: &[(&'static str, &str)],
    ) -> Result<Self, Failure> {
        Built::of(task, machine, designs, PART)
    }

    /// The same of another part of the build.
    pub fn of(
        task: &Task<'_>,
        machine: &Simulated,
        designs: &[(&'static str, &str)],
        part: Selection,
    ) -> Result<Self, Failure> {
        let trace = task.build_on_tmpfs(part)?;
        let jobs = jobs(0, machine.cpus);
        let copies = match task.setting.quick {
            true => 1,
            // A copy of the part is a job.
            false => jobs as u32,
        };
        let compared = Compared {
            task,
            names: designs.iter().map(|design| design.0).collect(),
            designs: designs.iter().map(|design| design.1.to_owned()).collect(),
        };
        Ok(Built {
            findings: compared.on(machine, &[trace], copies)?,
            names: compared.names,
            copies,
            jobs,
        })
    }

    /// The lines of `time`, and what ministat says of them.
    pub fn block(&self) -> String {
        let sides = self.findings.sides.iter().zip(&self.names);
        let builds = sides.map(|(side, name)| Builds {
            name: (*name).to_owned(),
            runs: side.runs.iter().map(run).collect(),
        });
        let copies = plural(self.copies as usize, "copy", "copies");
        let title = format!("make -s -j {} ({copies})", self.jobs);
        block(&title, &builds.collect::<Vec<_>>())
    }

    /// What the system time of the second is to that of the first: of their medians, without
    /// an interval.
    fn between(&self, pair: [usize; 2]) -> Change {
        let [base, other] = pair.map(|number| self.findings.sides[number].median("system_s"));
        Change::of_ratio(other / base, None)
    }

    /// What a figure of a design is to that of the first.
    pub fn change(&self, number: usize, figure: &str) -> Change {
        match to_base(&self.findings, number, RESAMPLES) {
            Some(comparison) => match comparison.ratio(figure) {
                Some(ratio) => change(ratio, false),
                None => Change::of_ratio(f64::NAN, None),
            },
            None => {
                let [base, side] = [0, number].map(|side| self.findings.sides[side].median(figure));
                Change::of_ratio(side / base, None)
            }
        }
    }
}

fn run(account: &Account) -> [f64; 3] {
    [account.elapsed_ns, account.user_ns, account.system_ns].map(|ns| ns as f64 / 1e9)
}

/// A column of what `time` prints: its name, that of our figure, and its place.
const COLUMNS: [(&str, &str, usize); 3] = [
    ("sys", "system_s", 2),
    ("real", "elapsed_s", 0),
    ("user", "user_s", 1),
];

/// The published change of a column, with the interval of Student's t.
fn published_change(base: &Kernel, other: &Kernel, column: usize) -> Change {
    let [base, other] = [base, other].map(|kernel| {
        let runs = kernel.runs.iter();
        runs.map(|run| run[column]).collect::<Vec<f64>>()
    });
    let difference = Difference::of(&other, &base, &Options::default());
    match difference {
        Some(found) => Change {
            percent: found.percent,
            bounds: Some((
                found.percent - found.percent_error,
                found.percent + found.percent_error,
            )),
            evidence: match found.is_proven() {
                true => Evidence::Proven,
                false => Evidence::NotProven,
            },
            resolution: found.percent_error,
        },
        None => Change::of_ratio(f64::NAN, None),
    }
}

/// The published lines in their format, and every published figure with ours.
fn published_kernels(section: &mut Section, kernels: &[Kernel], built: &Built) {
    let builds = kernels.iter().map(|kernel| Builds {
        name: kernel.name.to_owned(),
        runs: kernel.runs.to_vec(),
    });
    section.tables.push((
        "published".to_owned(),
        block("make -s -j N", &builds.collect::<Vec<_>>()),
    ));
    section.tables.push(("ours".to_owned(), built.block()));
    for (number, kernel) in kernels.iter().enumerate().skip(1) {
        for (column, figure, place) in COLUMNS {
            let what = format!("{column}, {} against {}", kernel.name, kernels[0].name);
            let published = published_change(&kernels[0], kernel, place);
            let ours = built.change(number, figure);
            section.comparisons.push(match figure {
                "user_s" => model::beside(
                    what,
                    published.to_string(),
                    ours.to_string(),
                    "recorded, and the same for all designs: not judged",
                ),
                _ => model::of_changes(what, published, ours),
            });
        }
    }
}

/// The system time of the second of two designs against the first, which nobody has published.
fn unpublished(built: &Built, [base, other]: [usize; 2], ours: String) -> Comparison {
    let what = format!("sys, {} against {}", built.names[other], built.names[base]);
    model::beside(what, "-".to_owned(), ours, "not published")
}

/// The locks that CPUs waited for longest under each design, in the middle simulation.
fn locks(section: &mut Section, built: &Built) {
    let mut table = Table::new(&["", "acquired", "contended", "waited %"]);
    for (side, name) in built.findings.sides.iter().zip(&built.names) {
        let Some(run) = side.middle() else { continue };
        table.row(vec![(*name).to_owned()]);
        for lock in run.locks.iter().take(PRINTED_LOCKS) {
            table.row(vec![
                format!("  {}", lock.name),
                grouped(lock.acquired),
                grouped(lock.contended),
                percent(lock.waited_ns as f64 / run.system_ns.max(1) as f64),
            ]);
        }
    }
    let heading = "ours: locks that CPUs waited for longest, in % of the system time";
    section.tables.push((heading.to_owned(), table.render(0)));
}

fn first_machine(task: &Task<'_>, section: &mut Section) -> Result<(), Failure> {
    let machine = task.machine(FIRST_MACHINE)?;
    let published = BUILDKERNEL_16_CORES.iter();
    let published = published.map(|kernel| (kernel.name, kernel.design));
    let designs: Vec<(&str, &str)> = published.chain(OTHERS).collect();
    let built = Built::on(task, &machine, &designs)?;
    method(section, &built.findings, &of(&built));
    published_kernels(section, &BUILDKERNEL_16_CORES, &built);
    for number in BUILDKERNEL_16_CORES.len()..designs.len() {
        let ours = built.change(number, "system_s").to_string();
        section
            .comparisons
            .push(unpublished(&built, [0, number], ours));
    }
    locks(section, &built);
    difference(section, &built.names, &built.findings, "buildkernel");
    Ok(())
}

/// What stands for the build.
fn of(built: &Built) -> String {
    format!(
        "{} of one job of the recorded build on tmpfs at once stand for make -s -j {}",
        plural(built.copies as usize, "copy", "copies"),
        built.jobs
    )
}

fn second_machine(task: &Task<'_>, section: &mut Section) -> Result<(), Failure> {
    let machine = task.machine(SECOND_MACHINE)?;
    let published = BUILDKERNEL_PIG1.iter();
    let published = published.map(|kernel| (kernel.name, kernel.design));
    let designs: Vec<(&str, &str)> = published.chain(OTHERS_WITH_NODES).collect();
    let built = Built::on(task, &machine, &designs)?;
    method(section, &built.findings, &of(&built));
    published_kernels(section, &BUILDKERNEL_PIG1, &built);
    let base = BUILDKERNEL_PIG1.len();
    for waiting in BUILD_FARM {
        let what = format!(
            "waiting for {}, a lock for each 2 MiB to hashed",
            waiting.what
        );
        let published = waiting.units[1] / waiting.units[0];
        let found = [base, 0].map(|number| waited(&built.findings.sides[number], &waiting));
        section
            .comparisons
            .push(match factor(&found, built.findings.seeds[0]) {
                Some(ours) => model::of_times(what, published, ours),
                None => model::missing(what, format!("{published:.3} x"), "nobody waited here"),
            });
    }
    section.comparisons.push(model::missing(
        "waiting for locks of pv lists, the same before batching",
        format!("{:.3} x", BUILD_FARM_UNBATCHED / BUILD_FARM[0].units[0]),
        "every design here keeps a lock that pages share from one page to the next",
    ));
    for number in base..designs.len() {
        let ours = built.change(number, "system_s").to_string();
        section
            .comparisons
            .push(unpublished(&built, [0, number], ours));
    }
    for number in 1..base {
        let ours = built.between([base, number]).to_string();
        section
            .comparisons
            .push(unpublished(&built, [base, number], ours));
    }
    locks(section, &built);
    difference(section, &built.names, &built.findings, "buildkernel");
    Ok(())
}

/// Nanoseconds waited for a class of locks, by seed.
fn waited(side: &Side, waiting: &Waiting) -> Vec<f64> {
    let is_of = |lock: &&Lock| {
        let name = &lock.name;
        waiting.locks.iter().any(|class| name.starts_with(class))
    };
    let of_run = |run: &Account| {
        let locks = run.locks.iter().filter(is_of);
        locks.map(|lock| lock.waited_ns as f64).sum()
    };
    side.runs.iter().map(of_run).collect()
}

/// How many times as long the second waited as the first, seed by seed; none if the first
/// did not wait.
fn factor(waited: &[Vec<f64>; 2], seed: u64) -> Option<Factor> {
    let pairs = waited[1].iter().zip(&waited[0]);
    let each: Vec<f64> = pairs.map(|(new, old)| new / old).collect();
    if !each.iter().all(|ratio| ratio.is_finite()) {
        return None;
    }
    Some(match ratio_of("waited", &each, RESAMPLES, seed) {
        Some(ratio) => Factor::of(&ratio),
        None => Factor {
            value: median(&each)?,
            bounds: None,
            evidence: Evidence::TooFewPasses,
            resolution: 0.0,
        },
    })
}

fn superpages(task: &Task<'_>, section: &mut Section, machine: &str) -> Result<(), Failure> {
    let machine = task.machine(machine)?;
    let (there, _) = available("superpage", &SUPERPAGES);
    let mut designs: Vec<(&'static str, String)> = Vec::new();
    let all = WITH_AND_WITHOUT.len();
    let first = if task.setting.quick { all - 2 } else { 0 };
    for (name, design) in &WITH_AND_WITHOUT[first..] {
        designs.push((name[0], format!("{design},superpage=off")));
        for value in &there {
            designs.push((name[1], format!("{design},superpage={value}")));
        }
    }
    let names: Vec<(&str, &str)> = designs.iter().map(|one| (one.0, one.1.as_str())).collect();
    let built = Built::on(task, &machine, &names)?;
    method(section, &built.findings, &of(&built));
    section.method.push(format!(
        "on: superpage={}; the published kernels had superpages, which are mapped by \
         reservations",
        there.join(",")
    ));
    section.tables.push(("ours".to_owned(), built.block()));
    for number in 1..names.len() {
        let ours = built.change(number, "system_s").to_string();
        section
            .comparisons
            .push(unpublished(&built, [0, number], ours));
    }
    // What superpages change under each design: a median by the other.
    for on in (1..names.len()).step_by(2).filter(|_| there.len() == 1) {
        let ours = built.between([on - 1, on]).to_string();
        let row = unpublished(&built, [on - 1, on], ours);
        section.comparisons.extend((on > 1).then_some(row));
    }
    locks(section, &built);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_changes_are_those_of_the_text() {
        let of = |kernels: &[Kernel], number: usize, column| {
            published_change(&kernels[0], &kernels[number], column)
        };
        let sys = of(&BUILDKERNEL_16_CORES, 1, 2);
        assert_eq!(sys.to_string(), "-46.3 % (-46.8 to -45.8)");
        assert_eq!(sys.evidence, Evidence::Proven);
        assert_eq!(
            of(&BUILDKERNEL_16_CORES, 1, 0).to_string(),
            "-4.4 % (-5.0 to -3.9)"
        );
        let rounded = |change: Change| (change.percent * 10.0).round() / 10.0;
        assert_eq!(rounded(of(&BUILDKERNEL_PIG1, 1, 2)), -2.5);
        assert_eq!(rounded(of(&BUILDKERNEL_PIG1, 2, 2)), -3.7);
        assert_eq!(of(&BUILDKERNEL_PIG1, 2, 0).evidence, Evidence::NotProven);
    }

    #[test]
    fn waiting_is_summed_over_the_locks_of_a_class_and_held_against_the_base() {
        let found = factor(&[vec![100.0, 200.0], vec![10.0, 20.0]], 1).expect("both waited");
        assert_eq!((found.value, found.evidence), (0.1, Evidence::TooFewPasses));
        let many = [vec![100.0; 6], vec![10.0; 6]];
        let found = factor(&many, 1).expect("both waited");
        assert_eq!((found.value, found.evidence), (0.1, Evidence::Proven));
        assert!(factor(&[vec![0.0], vec![1.0]], 1).is_none());
    }
}
