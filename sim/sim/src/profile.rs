//! Where time was lost, by cache line.

use std::fmt;

use crate::names::{What, what_is_at};

/// What one line cost all CPUs.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct LineCosts {
    /// Time that accesses to it took beyond a hit, and that stores to it kept CPUs
    /// waiting, in picoseconds.
    pub lost: u64,
    /// Time that CPUs spun on it, in picoseconds.
    pub spun: u64,
    /// Reads for which it had to be fetched.
    pub read_misses: u64,
    /// Writes for which it had to be fetched, or taken from others.
    pub write_misses: u64,
    /// Those of either for which another CPU had written only other words of it.
    pub false_misses: u64,
}

impl LineCosts {
    /// Adds those of another line.
    pub fn add(&mut self, other: &LineCosts) {
        self.lost += other.lost;
        self.spun += other.spun;
        self.read_misses += other.read_misses;
        self.write_misses += other.write_misses;
        self.false_misses += other.false_misses;
    }
}

/// A line that time was lost on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProfiledLine {
    /// The place it is in.
    pub place: String,
    /// Its offset there in bytes.
    pub offset: usize,
    /// What the core has there, if it has said so.
    pub what: Option<What>,
    /// What it cost.
    pub costs: LineCosts,
}

/// A line with its place and where the host has it.
pub(crate) struct PricedLine<'a> {
    pub(crate) place: &'a str,
    pub(crate) offset: usize,
    pub(crate) address: usize,
    pub(crate) costs: LineCosts,
}

impl fmt::Display for ProfiledLine {
    /// What it is: what the core has there, or else its place.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.what {
            Some(what) => what.fmt(f),
            None => write!(f, "{}+{:#x}", self.place, self.offset),
        }
    }
}

/// The lines of a run that cost time, the most expensive first.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct LineProfile {
    /// All of them.
    pub lines: Vec<ProfiledLine>,
}

impl LineProfile {
    pub(crate) fn new<'a>(costs: impl Iterator<Item = PricedLine<'a>>) -> LineProfile {
        let lines = costs.map(|line| ProfiledLine {
            place: line.place.to_owned(),
            offset: line.offset,
            what: what_is_at(line.address),
            costs: line.costs,
        });
        let mut lines: Vec<ProfiledLine> = lines.collect();
        let time = |line: &ProfiledLine| line.costs.lost + line.costs.spun;
        lines.sort_by(|one, other| {
            let by_time = time(other).cmp(&time(one));
            by_time
                .then_with(|| one.place.cmp(&other.place))
                .then(one.offset.cmp(&other.offset))
        });
        LineProfile { lines }
    }

    /// The costs of all lines together.
    pub fn total(&self) -> LineCosts {
        let mut total = LineCosts::default();
        self.lines.iter().for_each(|line| total.add(&line.costs));
        total
    }
}

impl fmt::Display for LineProfile {
    /// The twenty most expensive lines as a table, times in microseconds.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 20;
        writeln!(
            f,
            "{:>10} {:>10} {:>10} {:>10} {:>10}  line",
            "lost us", "spun us", "reads", "writes", "false"
        )?;
        let us = |ps: u64| ps as f64 / 1e6;
        for line in self.lines.iter().take(SHOWN) {
            let costs = &line.costs;
            writeln!(
                f,
                "{:>10.1} {:>10.1} {:>10} {:>10} {:>10}  {line}",
                us(costs.lost),
                us(costs.spun),
                costs.read_misses,
                costs.write_misses,
                costs.false_misses
            )?;
        }
        let rest = self.lines.len().saturating_sub(SHOWN);
        if rest > 0 {
            writeln!(f, "and {rest} more")?;
        }
        Ok(())
    }
}
