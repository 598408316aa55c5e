//! Source 4: locks of pv lists, 2020. Two machines are simulated, as the published builds
//! ran on two; who is asked for one machine gets all of it on that one.

use std::path::PathBuf;

use super::bench::{Simulated, available};
use super::judge::{Change, Evidence, Factor};
use super::model::{Comparison, Section};
use super::published::{
    self, BUILD_FARM, BUILD_FARM_UNBATCHED, BUILDKERNEL_16_CORES, BUILDKERNEL_PIG1, Kernel, Waiting,
};
use super::simulated::{Compared, change, difference, method};
use super::zero::{Entry, Task};
use crate::bench::buildkernel::jobs;
use crate::failure::Failure;
use crate::report::buildkernel::{Builds, block};
use crate::report::text::plural;
use crate::scale::text::percent;
use crate::scale::{self, Kept, Lock};
use crate::simulate::{Account, Findings, Ratio, Side};
use crate::stats::median;
use vellum_description::Description;
use vellum_tables::ministat::{Difference, Options};
use vellum_terminal::table::{Table, grouped};
use vellum_trace::TaskId;
use vellum_trace::cut::Selection;

/// The first machine: 16 cores, 32 threads.
pub const FIRST_MACHINE: &str = "xeon-e5-2690";
/// The second, which is larger and has nodes.
const SECOND_MACHINE: &str = "xeon-104";
/// The machine of the curves.
const LARGE_MACHINE: &str = "generated-512";

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

/// What locks of pv lists superpages are switched on and off under: names, design.
const LOCKS: [([&str; 2], &str); 3] = [
    (["hashed", "hashed, on"], "as=freebsd-13-hashed"),
    (["2 MiB", "2 MiB, on"], "as=freebsd-13-superpage"),
    (["byte", "byte, on"], "as=freebsd-13-obm"),
];
/// Superpages switched on as FreeBSD has them.
const SUPERPAGES: [&str; 1] = ["reserve"];

/// Samples of seeds that intervals are from.
const RESAMPLES: usize = 2000;

/// Locks that are printed of each design.
const PRINTED_LOCKS: usize = 4;

/// What each CPU does for a curve, on how many CPUs: mapping pages of a file that all map, as
/// processes of a build do with the compiler, and making and ending processes.
const WORKLOADS: [(&str, &[usize]); 2] = [
    ("cached-faults", &[1, 8, 32, 128, 512]),
    ("fork-exit", &[1, 8, 32, 128]),
];
const QUICK_CPUS: [usize; 2] = [1, 2];
/// Virtual nanoseconds in which that counts.
const WINDOW_NS: u64 = 400_000;
const QUICK_WINDOW_NS: u64 = 100_000;
/// Seeds of the curves at the most: they are not judged.
const CURVE_SEEDS: usize = 3;
/// A lock is saturated if CPUs wait for it for more than this share of their time.
const SATURATED: f64 = 0.1;
/// Designs of the curves.
const CURVES: [(&str, &str); 6] = [
    ("hashed", "as=freebsd-13-hashed"),
    ("2 MiB", "as=freebsd-13-superpage"),
    ("byte", "as=freebsd-13-obm"),
    ("chains", "as=freebsd-13-hashed,rmap=chains"),
    ("anon_vma_chain", "as=freebsd-13-hashed,rmap=anon_vma_chain"),
    ("family", "as=freebsd-13-hashed,rmap=family"),
];

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
    ("superpages", &[published::MARCH_2020], superpages),
    ("up to 512 CPUs", &[published::MARCH_2020], curves),
];

impl Task<'_> {
    fn on(&self) -> Result<&Simulated, Failure> {
        let on = self.setting.simulated.as_ref();
        on.ok_or_else(|| Failure::failed("no machine is to be simulated"))
    }

    /// The machine of that name, unless the user has asked for another.
    fn machine(&self, name: &str) -> Result<Simulated, Failure> {
        let on = self.on()?;
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

    fn build_on_tmpfs(&self) -> Result<PathBuf, Failure> {
        let part = match self.setting.quick {
            true => QUICK_PART,
            false => PART,
        };
        self.traces.get(BUILD, part)
    }
}

/// A build under several designs, the base first.
struct Built {
    names: Vec<&'static str>,
    findings: Findings,
    copies: u32,
    jobs: u64,
}

impl Built {
    /// Replays the part of the build, copies in place of so many jobs as the machine gets.
    fn on(
        task: &Task<'_>,
        machine: &Simulated,
        designs: &[(&'static str, &str)],
    ) -> Result<Self, Failure> {
        let trace = task.build_on_tmpfs()?;
        let jobs = jobs(0, machine.cpus);
        let copies = match task.setting.quick {
            true => 2,
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
    fn block(&self) -> String {
        let sides = self.findings.sides.iter().zip(&self.names);
        let builds = sides.map(|(side, name)| Builds {
            name: (*name).to_owned(),
            runs: side.runs.iter().map(run).collect(),
        });
        let copies = plural(self.copies as usize, "copy", "copies");
        let title = format!("make -s -j {} ({copies})", self.jobs);
        block(&title, &builds.collect::<Vec<_>>())
    }

    /// What a figure of a design is to that of the first.
    fn change(&self, number: usize, figure: &str) -> Change {
        match self.findings.to_base(number, RESAMPLES) {
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
                "user_s" => Comparison::beside(
                    what,
                    published.to_string(),
                    ours.to_string(),
                    "recorded, and the same for all designs: not judged",
                ),
                _ => Comparison::of_changes(what, published, ours),
            });
        }
    }
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
        let what = format!("sys, {} against {}", designs[number].0, designs[0].0);
        let ours = built.change(number, "system_s").to_string();
        let row = Comparison::beside(what, "-".to_owned(), ours, "not published");
        section.comparisons.push(row);
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
    let hashed = ("hashed", BUILDKERNEL_16_CORES[0].design);
    let designs: Vec<(&str, &str)> = published.chain([hashed]).collect();
    let built = Built::on(task, &machine, &designs)?;
    method(section, &built.findings, &of(&built));
    published_kernels(section, &BUILDKERNEL_PIG1, &built);
    let base = designs.len() - 1;
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
                Some(ours) => Comparison::of_times(what, published, ours),
                None => {
                    Comparison::missing(what, format!("{published:.3} x"), "nobody waited here")
                }
            });
    }
    section.comparisons.push(Comparison::missing(
        "waiting for locks of pv lists, the same before batching",
        format!("{:.3} x", BUILD_FARM_UNBATCHED / BUILD_FARM[0].units[0]),
        "every design here keeps a lock that pages share from one page to the next",
    ));
    for number in 1..base {
        let what = format!("sys, {} against {}", designs[base].0, designs[number].0);
        let [hashed, other] = [base, number].map(|n| built.findings.sides[n].median("system_s"));
        let ours = Change::of_ratio(hashed / other, None).to_string();
        let row = Comparison::beside(what, "-".to_owned(), ours, "not published");
        section.comparisons.push(row);
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
    Some(match Ratio::of("waited", &each, RESAMPLES, seed) {
        Some(ratio) => Factor {
            value: ratio.ratio,
            bounds: Some((ratio.low, ratio.high)),
            evidence: match ratio.differs() {
                true => Evidence::Proven,
                false => Evidence::NotProven,
            },
            resolution: (ratio.high - ratio.low) / 2.0,
        },
        None => Factor {
            value: median(&each)?,
            bounds: None,
            evidence: Evidence::TooFewPasses,
            resolution: 0.0,
        },
    })
}

fn superpages(task: &Task<'_>, section: &mut Section) -> Result<(), Failure> {
    let machine = task.machine(FIRST_MACHINE)?;
    let (there, _) = available("superpage", &SUPERPAGES);
    let mut designs: Vec<(&'static str, String)> = Vec::new();
    for (name, design) in LOCKS {
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
        let what = format!("sys, {} against {}", names[number].0, names[0].0);
        let ours = built.change(number, "system_s").to_string();
        let row = Comparison::beside(what, "-".to_owned(), ours, "not published");
        section.comparisons.push(row);
    }
    locks(section, &built);
    Ok(())
}

fn curves(task: &Task<'_>, section: &mut Section) -> Result<(), Failure> {
    let machine = task.machine(LARGE_MACHINE)?;
    for (workload, cpus) in WORKLOADS {
        let found = scaled(task, &machine, workload, cpus)?;
        let seeds = plural(found.seeds.len(), "seed", "seeds");
        section.method.push(format!(
            "{}, on {} ({}), in virtual time, with {seeds}; nothing of the kind was published",
            found.summary, found.machine, found.title,
        ));
        let heading =
            format!("ours: {workload}, CPU time of each in us, and its range, by number of CPUs");
        section.tables.push((heading, by_cpus(&found, cpu_time)));
        let heading = format!("ours: {workload}, % of the CPUs' time waited for the worst lock");
        section.tables.push((heading, by_cpus(&found, worst_lock)));
        for (curve, (name, _)) in found.curves.iter().zip(CURVES) {
            section.comparisons.push(Comparison::beside(
                format!("{workload}, {name}: first lock that is saturated"),
                "-".to_owned(),
                saturated(curve).unwrap_or_else(|| "none".to_owned()),
                "not published",
            ));
        }
    }
    Ok(())
}

/// What the designs make of a workload on more and more CPUs.
fn scaled(
    task: &Task<'_>,
    machine: &Simulated,
    workload: &str,
    cpus: &[usize],
) -> Result<scale::Findings, Failure> {
    let setting = task.setting;
    let (cpus, window_ns) = match setting.quick {
        true => (&QUICK_CPUS[..], QUICK_WINDOW_NS),
        false => (cpus, WINDOW_NS),
    };
    let cpus = cpus.iter().copied().filter(|&cpus| cpus <= machine.cpus);
    let found = vellum_scale::WORKLOADS.iter();
    let mut found = found.filter(|one| one.name == workload);
    let seeds = setting.passes.min(CURVE_SEEDS) as u64;
    let seeds = (0..seeds).map(|seed| setting.seed.wrapping_add(seed));
    let plan = scale::Plan {
        machine_name: machine.machine_name.clone(),
        machine: machine.machine.clone(),
        workload: found
            .next()
            .ok_or_else(|| Failure::failed(format!("there is no workload {workload}")))?,
        cpus: cpus.collect(),
        designs: CURVES.iter().map(|curve| curve.1.to_owned()).collect(),
        seeds: seeds.collect(),
        window_ns,
        jobs: machine.jobs,
    };
    let found = scale::measure(&plan, &mut Kept::default(), setting.style, task.interrupt)?;
    match found.interrupted {
        true => Err(Failure::interrupted("interrupted")),
        false => Ok(found),
    }
}

/// A row for each number of CPUs, with what `of` says of each design there.
fn by_cpus(found: &scale::Findings, of: fn(&scale::Point) -> String) -> String {
    let mut header = vec!["CPUs"];
    header.extend(CURVES.iter().map(|curve| curve.0));
    let mut table = Table::new(&header);
    let points = found.curves.first().map_or(0, |curve| curve.points.len());
    for place in 0..points {
        let points = found.curves.iter().map(|curve| &curve.points[place]);
        let mut row = vec![found.curves[0].points[place].cpus.to_string()];
        row.extend(points.map(of));
        table.row(row);
    }
    table.render(0)
}

fn cpu_time(point: &scale::Point) -> String {
    let us = |rate: f64| point.cpus as f64 * 1e6 / rate;
    let rate = &point.rate;
    format!(
        "{:.1} ({:.1} .. {:.1})",
        us(rate.median),
        us(rate.most),
        us(rate.least)
    )
}

fn worst_lock(point: &scale::Point) -> String {
    match worst(&point.cell) {
        Some((name, share)) => format!("{} {name}", percent(share)),
        None => "-".to_owned(),
    }
}

/// The first lock that CPUs wait for during more than a tenth of their time, and how many
/// CPUs that takes.
fn saturated(curve: &scale::Curve) -> Option<String> {
    curve.points.iter().find_map(|point| {
        let (lock, share) = worst(&point.cell)?;
        (share > SATURATED).then(|| format!("{lock}, with {} CPUs", point.cpus))
    })
}

/// The lock for which the CPUs waited longest, and which share of their time.
fn worst(cell: &scale::Cell) -> Option<(&str, f64)> {
    let lock = cell.locks.first().filter(|lock| lock.waited_ns > 0)?;
    Some((
        &lock.name,
        lock.waited_ns as f64 / cell.time_ns.max(1) as f64,
    ))
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
