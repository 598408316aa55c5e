//! How long the rest of a sweep will take.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::cell::Cell;

/// Times of finished cells, by what they did with what.
#[derive(Clone, Debug, Default)]
pub struct Estimate {
    by_subject: BTreeMap<(String, String), Mean>,
    by_kind: BTreeMap<String, Mean>,
    all: Mean,
}

#[derive(Clone, Copy, Debug, Default)]
struct Mean {
    sum: f64,
    count: u64,
}

impl Mean {
    fn add(&mut self, seconds: f64) {
        self.sum += seconds;
        self.count += 1;
    }

    fn value(self) -> Option<f64> {
        (self.count > 0).then(|| self.sum / self.count as f64)
    }
}

impl Estimate {
    /// A cell took so long.
    pub fn add(&mut self, cell: &Cell, seconds: f64) {
        let place = &cell.place;
        let (run, subject) = (place.run.clone(), place.subject.clone());
        self.by_subject
            .entry((run.clone(), subject))
            .or_default()
            .add(seconds);
        self.by_kind.entry(run).or_default().add(seconds);
        self.all.add(seconds);
    }

    /// How long a cell will take, if any has been finished.
    fn of(&self, cell: &Cell) -> Option<f64> {
        let place = &cell.place;
        let near = (place.run.clone(), place.subject.clone());
        let near = self.by_subject.get(&near).and_then(|mean| mean.value());
        let kind = || self.by_kind.get(&place.run).and_then(|mean| mean.value());
        near.or_else(kind).or_else(|| self.all.value())
    }

    /// How long `left` will take if `jobs` of those that are not timed run at once, and one
    /// of the timed ones on each of `hosts`.
    pub fn left<'c>(
        &self,
        left: impl Iterator<Item = &'c Cell>,
        jobs: usize,
        hosts: usize,
    ) -> Option<Duration> {
        let mut seconds = 0.0;
        for cell in left {
            let parts = match cell.timed {
                true => hosts,
                false => jobs,
            };
            seconds += self.of(cell)? / parts.max(1) as f64;
        }
        Duration::try_from_secs_f64(seconds).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::Resources;
    use vellum_results::sweep::Place;

    fn cell(run: &str, subject: &str, timed: bool) -> Cell {
        Cell {
            place: Place {
                run: run.to_owned(),
                subject: subject.to_owned(),
                ..Place::default()
            },
            seed: 1,
            timed,
            threads: 1,
            resources: Resources::default(),
            words: Vec::new(),
            program: String::new(),
            host: None,
        }
    }

    #[test]
    fn cells_take_as_long_as_the_nearest_that_are_finished() {
        let (small, large) = (
            cell("verify", "small", false),
            cell("verify", "large", false),
        );
        let timed = cell("compare", "large", true);
        let mut estimate = Estimate::default();
        let left = |estimate: &Estimate, cells: &[&Cell], jobs, hosts| {
            let left = estimate.left(cells.iter().copied(), jobs, hosts);
            left.map(|left| left.as_secs())
        };
        assert_eq!(left(&estimate, &[&small], 1, 1), None, "nothing is known");
        assert_eq!(left(&estimate, &[], 1, 1), Some(0));
        estimate.add(&small, 10.0);
        // Of the same kind, and then of any.
        assert_eq!(left(&estimate, &[&large], 1, 1), Some(10));
        assert_eq!(left(&estimate, &[&timed], 1, 1), Some(10));
        estimate.add(&large, 100.0);
        assert_eq!(left(&estimate, &[&small, &large, &large], 2, 1), Some(105));
        // Timed ones do not run side by side on a host.
        estimate.add(&timed, 50.0);
        assert_eq!(left(&estimate, &[&timed, &timed], 8, 1), Some(100));
        assert_eq!(left(&estimate, &[&timed, &timed], 8, 2), Some(50));
    }
}
