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

    /// How long `left` will take if `jobs` of those that are not timed run at once.
    pub fn left<'c>(&self, left: impl Iterator<Item = &'c Cell>, jobs: usize) -> Option<Duration> {
        let mut seconds = 0.0;
        for cell in left {
            let parts = match cell.timed {
                true => 1.0,
                false => jobs.max(1) as f64,
            };
            seconds += self.of(cell)? / parts;
        }
        Duration::try_from_secs_f64(seconds).ok()
    }
}
