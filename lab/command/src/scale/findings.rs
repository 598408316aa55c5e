//! What the simulations of a plan say together.

use vellum_results::Spread;
use vellum_results::scale::{Cell, Curve, Knee, Point, Scale};
use vellum_scale::Ceiling;

use super::cell::needs;
use super::{Plan, Task};

/// A design that gains less than this part of what the machine would let it gain has
/// stopped scaling.
const GAINS: f64 = 0.5;

/// Of the simulations that are done. `None` if no number of CPUs is complete.
pub fn findings(plan: &Plan, done: &[(Task, Cell)]) -> Option<Scale> {
    let find = |task: Task| {
        let mut found = done.iter().filter(|(other, _)| *other == task);
        found.next().map(|(_, cell)| cell)
    };
    let of = |design, cpus, seed, is_control| {
        find(Task {
            design,
            cpus,
            seed,
            is_control,
        })
    };
    let seeds = &plan.seeds;
    let is_complete = |cpus: usize| {
        (0..plan.designs.len()).all(|design| {
            seeds
                .iter()
                .all(|&seed| of(design, cpus, seed, false).is_some())
        }) && of(0, cpus, seeds[0], true).is_some()
    };
    let complete: Vec<usize> = plan
        .cpus
        .iter()
        .copied()
        .filter(|&cpus| is_complete(cpus))
        .collect();
    let rate = |design, cpus, seed| {
        of(design, cpus, seed, false).map_or(f64::NAN, |cell: &Cell| cell.rate)
    };
    let mut control = 1.0;
    for &cpus in &complete {
        let again = of(0, cpus, seeds[0], true)?.rate / rate(0, cpus, seeds[0]);
        if (again - 1.0).abs() > f64::abs(control - 1.0) {
            control = again;
        }
    }
    let mut curves = Vec::new();
    for (number, design) in plan.designs.iter().enumerate() {
        let alone = complete
            .contains(&1)
            .then(|| Spread::of(seeds.iter().map(|&seed| rate(number, 1, seed))).median);
        let mut points = Vec::new();
        for &cpus in &complete {
            let rates = seeds.iter().map(|&seed| rate(number, cpus, seed));
            let ratios = seeds
                .iter()
                .map(|&seed| rate(number, cpus, seed) / rate(0, cpus, seed));
            let cell = median_cell(
                seeds
                    .iter()
                    .filter_map(|&seed| of(number, cpus, seed, false)),
            )?;
            let ceiling = alone.map(|alone| Ceiling::new(&plan.machine, cpus, alone, &needs(cell)));
            points.push(Point {
                cpus,
                rate: Spread::of(rates),
                to_base: Spread::of(ratios),
                ceiling: ceiling.map(|ceiling| ceiling.rate),
                limit: ceiling.map(|ceiling| ceiling.by.name().to_owned()),
                cell: cell.clone(),
            });
        }
        curves.push(Curve {
            design: design.clone(),
            knee: knee(&points),
            points,
        });
    }
    (!complete.is_empty()).then(|| Scale {
        workload: plan.workload.name.to_owned(),
        summary: plan.workload.summary.to_owned(),
        unit: plan.workload.unit.to_owned(),
        machine: plan.machine_name.clone(),
        title: plan.machine.title.clone(),
        seeds: seeds.clone(),
        warm_up_ns: plan.warm_up_ns,
        window_ns: plan.window_ns,
        interrupted: complete.len() < plan.cpus.len(),
        control,
        curves,
    })
}

/// The simulation in the middle, by its rate.
fn median_cell<'c>(cells: impl Iterator<Item = &'c Cell>) -> Option<&'c Cell> {
    let mut cells: Vec<&Cell> = cells.collect();
    cells.sort_by(|one, other| one.rate.total_cmp(&other.rate));
    cells.get(cells.len().saturating_sub(1) / 2).copied()
}

/// The first step from one number of CPUs to the next that gains too little of what the
/// machine allows; none if the ceiling is not known.
fn knee(points: &[Point]) -> Option<Knee> {
    points.windows(2).find_map(|pair| {
        let [before, after] = pair else { return None };
        let allowed = after.ceiling? - before.ceiling?;
        let gain = (after.rate.median - before.rate.median) / allowed;
        (allowed > 0.0 && gain < GAINS).then(|| Knee {
            from: before.cpus,
            to: after.cpus,
            gain,
            line: after.cell.lines.first().cloned(),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use vellum_results::scale::Line;

    fn point(cpus: usize, rate: f64, ceiling: f64) -> Point {
        let one = Spread::of([rate]);
        let line = Line {
            name: format!("line of {cpus}"),
            moving: 0.25,
            spinning: 0.5,
            reads: 1,
            writes: 1,
            false_sharing: 0,
        };
        Point {
            cpus,
            rate: one,
            to_base: one,
            ceiling: Some(ceiling),
            limit: Some("cores".to_owned()),
            cell: Cell {
                rate,
                bulk_bytes: 0.0,
                busiest_node: 1.0,
                shootdowns: 0.0,
                interrupts: 0.0,
                moving: 0.0,
                spinning: 0.0,
                sleeping: 0.0,
                flushing: 0.0,
                lines: vec![line],
                time_ns: 1000,
                locks: Vec::new(),
                waits: Vec::new(),
            },
        }
    }

    #[test]
    fn a_curve_stops_scaling_where_it_gains_less_than_half_of_what_the_machine_allows() {
        let points = [
            point(1, 1.0, 1.0),
            point(2, 1.9, 2.0),
            point(4, 2.5, 4.0),
            point(8, 2.4, 8.0),
        ];
        let found = knee(&points).expect("it stops");
        assert_eq!((found.from, found.to), (2, 4));
        assert!((found.gain - 0.3).abs() < 1e-9, "{}", found.gain);
        assert_eq!(found.line.expect("there is one").name, "line of 4");
        assert!(knee(&points[..2]).is_none());
    }

    /// Where the machine itself allows no more, nothing has stopped the design.
    #[test]
    fn a_ceiling_that_does_not_rise_is_no_end_of_scaling() {
        let points = [point(1, 1.0, 1.0), point(2, 2.0, 2.0), point(4, 2.0, 2.0)];
        assert!(knee(&points).is_none());
    }
}
