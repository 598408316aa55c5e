//! Source 4 beyond what was published: curves up to 512 CPUs, and `family` beside every
//! variant of pv entries.

use super::bench::Simulated;
use super::four::{Built, LARGE_MACHINE};
use super::judge::Change;
use vellum_results::scale::{Cell, Curve, Point, Scale};

use super::model::{self, Comparison, Section};
use super::task::Task;
use crate::failure::Failure;
use crate::scale;
use crate::scale::text::percent;
use vellum_terminal::table::Table;
use vellum_terminal::text::plural;
use vellum_trace::TaskId;
use vellum_trace::cut::Selection;

/// What each CPU does for a curve, on how many CPUs: mapping pages of a file that all map, as
/// processes of a build do with the compiler, and making and ending processes.
const WORKLOADS: [(&str, &[usize]); 2] = [
    ("cached-faults", &[1, 8, 32, 128, 512]),
    ("fork-exit", &[1, 8, 32, 128, 512]),
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

/// What `family` is held against: every lock with every way to take chunks back and with none,
/// and with every delayed invalidation.
const VARIANTS: [(&str, &str); 18] = [
    ("hashed, global", "as=freebsd-13-hashed"),
    ("hashed, domain", "as=freebsd-13-hashed,pvlru=domain"),
    ("hashed, pmap", "as=freebsd-13-hashed,pvlru=pmap"),
    ("hashed, slab", "as=freebsd-13-hashed,pvalloc=slab"),
    ("hashed, di=locked", "as=freebsd-13-hashed,di=locked"),
    ("hashed, di=epoch", "as=freebsd-13-hashed,di=epoch"),
    ("2 MiB, global", "as=freebsd-13-superpage,pvlru=global"),
    ("2 MiB, domain", "as=freebsd-13-superpage"),
    ("2 MiB, pmap", "as=freebsd-13-superpage,pvlru=pmap"),
    ("2 MiB, slab", "as=freebsd-13-superpage,pvalloc=slab"),
    ("2 MiB, di=locked", "as=freebsd-13-superpage,di=locked"),
    ("2 MiB, di=epoch", "as=freebsd-13-superpage,di=epoch"),
    ("byte, global", "as=freebsd-13-obm,pvlru=global"),
    ("byte, domain", "as=freebsd-13-obm,pvlru=domain"),
    ("byte, pmap", "as=freebsd-13-obm"),
    ("byte, slab", "as=freebsd-13-obm,pvalloc=slab"),
    ("byte, di=locked", "as=freebsd-13-obm,di=locked"),
    ("byte, di=epoch", "as=freebsd-13-obm,di=epoch"),
];
/// The first of every comparison.
const FAMILY: (&str, &str) = ("family", "as=freebsd-13-hashed,rmap=family");
/// Numbers of CPUs of that.
const MANY_CPUS: [usize; 3] = [32, 128, 512];
/// Of these, the kinds of locks, each with a list of chunks and without, under the build.
const OF_THE_BUILD: [usize; 6] = [0, 2, 7, 8, 13, 14];
/// The part of the build for that: the first 20 ms of the job, in which the shell starts the
/// compiler, which maps what all jobs map.
const BEGINNING: Selection = Selection {
    root: Some(TaskId(5176)),
    from_us: 0,
    to_us: 50_836_000,
};

/// What the designs make of mapping a common file and of forking on more and more CPUs, and
/// where locks are saturated.
pub(super) fn curves(task: &Task<'_>, section: &mut Section) -> Result<(), Failure> {
    let machine = task.machine(LARGE_MACHINE)?;
    for (workload, cpus) in WORKLOADS {
        let found = scaled(task, &machine, workload, cpus, &CURVES)?;
        section.method.push(found_by(&found));
        let heading =
            format!("ours: {workload}, CPU time of each in us, and its range, by number of CPUs");
        section.tables.push((heading, by_cpus(&found, cpu_time)));
        let heading = format!("ours: {workload}, % of the CPUs' time waited for the worst lock");
        section.tables.push((heading, by_cpus(&found, worst_lock)));
        for (curve, (name, _)) in found.curves.iter().zip(CURVES) {
            section.comparisons.push(model::beside(
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
    designs: &[(&str, &str)],
) -> Result<Scale, Failure> {
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
        designs: designs.iter().map(|design| design.1.to_owned()).collect(),
        seeds: seeds.collect(),
        warm_up_ns: vellum_scale::WARM_UP_NS,
        window_ns,
        jobs: machine.jobs,
    };
    let mut kept = task.kept();
    let found = scale::measure(&plan, &mut kept, setting.style, task.interrupt)?;
    match found.interrupted {
        true => Err(Failure::interrupted("interrupted")),
        false => Ok(found),
    }
}

/// A row for each number of CPUs, with what `of` says of each design there.
fn by_cpus(found: &Scale, of: fn(&Point) -> String) -> String {
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

fn cpu_time(point: &Point) -> String {
    let us = |rate| each_us(point, rate);
    let rate = &point.rate;
    format!(
        "{:.1} ({:.1} .. {:.1})",
        us(rate.median),
        us(rate.most),
        us(rate.least)
    )
}

fn worst_lock(point: &Point) -> String {
    match worst(&point.cell) {
        Some((name, share)) => format!("{} {name}", percent(share)),
        None => "-".to_owned(),
    }
}

/// The first lock that CPUs wait for during more than a tenth of their time, and how many
/// CPUs that takes.
fn saturated(curve: &Curve) -> Option<String> {
    curve.points.iter().find_map(|point| {
        let (lock, share) = worst(&point.cell)?;
        (share > SATURATED).then(|| format!("{lock}, with {} CPUs", point.cpus))
    })
}

/// The lock for which the CPUs waited longest, and which share of their time.
fn worst(cell: &Cell) -> Option<(&str, f64)> {
    let lock = cell.locks.first().filter(|lock| lock.waited_ns > 0)?;
    Some((
        &lock.name,
        lock.waited_ns as f64 / cell.time_ns.max(1) as f64,
    ))
}

/// `family` beside every variant of pv entries: the curves' workloads under all of them, and
/// the build under some.
pub(super) fn against_pv(task: &Task<'_>, section: &mut Section) -> Result<(), Failure> {
    let machine = task.machine(LARGE_MACHINE)?;
    let variants = if task.setting.quick {
        3
    } else {
        VARIANTS.len()
    };
    let variants = VARIANTS[..variants].iter().copied();
    let designs: Vec<(&'static str, &'static str)> = [FAMILY].into_iter().chain(variants).collect();
    for (workload, _) in WORKLOADS {
        let found = scaled(task, &machine, workload, &MANY_CPUS, &designs)?;
        section.method.push(found_by(&found));
        let heading = format!("ours: {workload}, CPU time of each in us, by number of CPUs");
        section.tables.push((heading, by_design(&found, &designs)));
        let points = found.curves[0].points.len();
        for place in 0..points {
            section
                .comparisons
                .extend(nearest(&found, &designs, workload, place));
        }
    }
    let kinds = if task.setting.quick {
        1
    } else {
        OF_THE_BUILD.len()
    };
    let of_build = OF_THE_BUILD[..kinds].iter().map(|&number| VARIANTS[number]);
    let designs: Vec<(&'static str, &'static str)> = [FAMILY].into_iter().chain(of_build).collect();
    let counts = match task.setting.quick {
        true => &QUICK_CPUS[1..],
        false => &MANY_CPUS[..],
    };
    for &cpus in counts.iter().filter(|&&cpus| cpus <= machine.cpus) {
        let machine = Simulated {
            cpus,
            ..machine.clone()
        };
        let built = Built::of(task, &machine, &designs, BEGINNING)?;
        let heading = format!("ours: a part of the build on {cpus} CPUs");
        section.tables.push((heading, built.block()));
        for (number, (name, _)) in designs.iter().enumerate().skip(1) {
            section.comparisons.push(model::beside(
                format!("build, {cpus} CPUs: sys, {name} against family"),
                "-".to_owned(),
                built.change(number, "system_s").to_string(),
                "not published",
            ));
        }
    }
    Ok(())
}

/// CPU time of each thing done, in microseconds.
fn each_us(point: &Point, rate: f64) -> f64 {
    point.cpus as f64 * 1e6 / rate
}

/// A row for each design, with its CPU time on each number of CPUs.
fn by_design(found: &Scale, designs: &[(&str, &str)]) -> String {
    let points = &found.curves[0].points;
    let counts: Vec<String> = points.iter().map(|point| point.cpus.to_string()).collect();
    let mut header = vec![""];
    header.extend(counts.iter().map(String::as_str));
    let mut table = Table::new(&header);
    for (curve, (name, _)) in found.curves.iter().zip(designs) {
        let mut row = vec![(*name).to_owned()];
        row.extend(curve.points.iter().map(cpu_time));
        table.row(row);
    }
    table.render(0)
}

/// The variant that needs least CPU time beside `family`, which comes first.
fn nearest(
    found: &Scale,
    designs: &[(&str, &str)],
    workload: &str,
    place: usize,
) -> Option<Comparison> {
    let others = found.curves.iter().zip(designs).skip(1);
    let points = others.map(|(curve, (name, _))| (&curve.points[place], *name));
    let by_rate = |(one, _): &(&Point, &str), (other, _): &(&Point, &str)| {
        one.to_base.median.total_cmp(&other.to_base.median)
    };
    let (point, name) = points.max_by(by_rate)?;
    // Rates by those of `family`: CPU time is the inverse.
    let of = &point.to_base;
    let ours = Change::of_ratio(1.0 / of.median, Some((1.0 / of.most, 1.0 / of.least)));
    Some(model::beside(
        format!(
            "{workload}, {} CPUs: CPU time, {name} (the least of pv) against family",
            point.cpus
        ),
        "-".to_owned(),
        format!("{ours}, the range of seeds"),
        "not published",
    ))
}

/// How it was found.
fn found_by(found: &Scale) -> String {
    let seeds = plural(found.seeds.len(), "seed", "seeds");
    format!(
        "{}, on {} ({}), in virtual time, with {seeds}; nothing of the kind was published",
        found.summary, found.machine, found.title,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::buildkernel::jobs;
    use crate::replay::MAX_COPIES;

    #[test]
    fn a_copy_can_stand_for_each_job_of_the_largest_machine() {
        for cpus in MANY_CPUS {
            assert!(jobs(0, cpus) <= u64::from(MAX_COPIES), "{cpus} CPUs");
        }
    }
}
