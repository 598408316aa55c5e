//! What keeps a trace from becoming faster with more CPUs.

use vellum_results::sim::Sweep;
use vellum_terminal::text::{plural, wrapped};

/// Elapsed time within which a number of CPUs is as good as the best.
const AS_GOOD: f64 = 1.05;

/// Growth of the CPU time from which on the work is said to cost more.
const DEARER: f64 = 1.25;

/// CPUs busy on average, below which a workload is serial.
const SERIAL: f64 = 1.2;

/// A trace on so many CPUs.
#[derive(Clone, Copy, Debug)]
struct Point {
    cpus: usize,
    elapsed_s: f64,
    /// User and system time of all CPUs.
    cpu_s: f64,
}

impl Point {
    /// CPUs that are busy on average.
    fn busy(&self) -> f64 {
        self.cpu_s / self.elapsed_s.max(f64::MIN_POSITIVE)
    }
}

/// What limits the design of that number, in sentences; nothing of one number of CPUs.
pub fn sentence(sweep: &Sweep, number: usize) -> String {
    let points = sweep.points.iter().map(|findings| {
        let side = &findings.sides[number];
        Point {
            cpus: findings.cpus,
            elapsed_s: side.median("elapsed_s"),
            cpu_s: side.median("user_s") + side.median("system_s"),
        }
    });
    let text = said(&points.collect::<Vec<_>>());
    match text.is_empty() {
        true => text,
        false => wrapped(&text),
    }
}

fn said(points: &[Point]) -> String {
    let [first, .., last] = points else {
        return String::new();
    };
    let best = points.iter().map(|point| point.elapsed_s);
    let best = best.fold(f64::INFINITY, f64::min);
    let mut good = points.iter();
    let useful = good.find(|point| point.elapsed_s <= best * AS_GOOD);
    let useful = useful.map_or(last.cpus, |point| point.cpus);
    let growth = last.cpu_s / first.cpu_s.max(f64::MIN_POSITIVE);
    let most_busy = points.iter().map(Point::busy).fold(0.0, f64::max);
    if most_busy < SERIAL {
        return format!(
            "WARNING: nothing runs in parallel here. With {} only {most_busy:.2} are busy on \
             average, so more CPUs cannot help. --copies runs several copies at once.",
            plural(last.cpus, "CPU", "CPUs")
        );
    }
    if useful == last.cpus {
        return format!(
            "It becomes faster up to {}: {:.2} times as fast as with {}.",
            plural(last.cpus, "CPU", "CPUs"),
            first.elapsed_s / last.elapsed_s,
            first.cpus
        );
    }
    let why = match growth > DEARER {
        true => format!(
            "The same work takes {growth:.2} times the CPU time that it takes with {}; --profile \
             names the lines and locks that cost it.",
            first.cpus
        ),
        false => format!(
            "What limits it is the number of tasks that can run: {:.2} CPUs are busy on average. \
             --copies runs more at once.",
            last.busy()
        ),
    };
    format!(
        "It becomes no faster with more than {}. {why}",
        plural(useful, "CPU", "CPUs")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(points: &[(usize, f64, f64)]) -> String {
        let points = points.iter().map(|&(cpus, elapsed_s, cpu_s)| Point {
            cpus,
            elapsed_s,
            cpu_s,
        });
        said(&points.collect::<Vec<_>>())
    }

    #[test]
    fn a_serial_workload_is_warned_of() {
        let text = of(&[(1, 1.0, 1.0), (4, 0.99, 1.0)]);
        assert!(
            text.starts_with("WARNING: nothing runs in parallel"),
            "{text}"
        );
        assert!(text.contains("--copies"), "{text}");
    }

    #[test]
    fn what_becomes_faster_to_the_end_has_no_limit() {
        let text = of(&[(1, 4.0, 4.0), (2, 2.0, 4.0), (4, 1.0, 4.0)]);
        let said = "It becomes faster up to 4 CPUs: 4.00 times as fast as with 1.";
        assert_eq!(text, said);
    }

    #[test]
    fn too_few_tasks_and_dearer_work_are_told_apart() {
        let text = of(&[(1, 4.0, 4.0), (2, 2.0, 4.0), (4, 1.95, 4.1)]);
        assert!(text.contains("no faster with more than 2 CPUs"), "{text}");
        assert!(text.contains("number of tasks"), "{text}");
        let text = of(&[(1, 4.0, 4.0), (2, 2.0, 4.0), (4, 2.1, 8.0)]);
        assert!(text.contains("2.00 times the CPU time"), "{text}");
    }

    #[test]
    fn of_one_number_of_cpus_nothing_is_said() {
        assert_eq!(of(&[(1, 4.0, 4.0)]), "");
    }
}
