//! What one simulation of a whole machine found, and which figures of it are shown.

use serde::{Deserialize, Serialize};
use vellum_engine::Divergence;
use vellum_scale::replay::Replayed;

use super::program::About;
use crate::scale::waits::waits;
use crate::scale::{LINES, Line, Lock, Ticks};

/// One simulation.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Account {
    /// The seed.
    pub seed: u64,
    /// Virtual time from the beginning to the end of the last task, in nanoseconds.
    pub elapsed_ns: u64,
    /// Time of all CPUs that tasks computed.
    pub user_ns: u64,
    /// Time of all CPUs that the core, the scheduler and interrupts took.
    pub system_ns: u64,
    /// Time of all CPUs in which there was nothing to do, or a task slept for a lock.
    pub idle_ns: u64,
    /// How often a CPU took up another task.
    pub context_switches: u64,
    /// How often a task went on on another CPU.
    pub migrations: u64,
    /// How often a task gave way to another at the end of its slice.
    pub preemptions: u64,
    /// How often a task gave its CPU up because it had to wait for others.
    pub sleeps: u64,
    /// Operations that were executed.
    pub ops: u64,
    /// Operations that went otherwise than recorded, by what happened.
    pub divergences: Vec<Diverged>,
    /// Divergences that nothing in the trace explains, at the least.
    pub unexplained: u64,
    /// Share of the system time that went to moving cache lines.
    pub moving: f64,
    /// Share that went to spinning.
    pub spinning: f64,
    /// Share that went to shootdowns, sent and received.
    pub flushing: f64,
    /// The lines that cost most, as shares of the system time.
    pub lines: Vec<Line>,
    /// The locks by class, those waited for longest first.
    pub locks: Vec<Lock>,
    /// Where the system time went.
    pub waits: Vec<Ticks>,
}

/// Operations that went otherwise than recorded in one way.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Diverged {
    /// What happened.
    pub how: String,
    /// How often.
    pub count: u64,
}

impl Account {
    /// Of a simulation with this seed.
    pub fn new(seed: u64, replayed: &Replayed, about: &About) -> Account {
        let system_ps = (replayed.system_ns as f64 * 1e3).max(1.0);
        let total = replayed.profile.total();
        let flushing = replayed
            .cpus
            .iter()
            .map(|cpu| cpu.flushing + cpu.interrupted);
        let count = |is: fn(&Divergence) -> bool| {
            let these = replayed.divergences.iter().filter(|(how, _)| is(how));
            these.map(|(_, count)| count).sum::<u64>()
        };
        let mapped = count(|how| *how == Divergence::AlreadyMapped);
        let failed = count(|how| matches!(how, Divergence::Failed(_)));
        let lines = replayed.profile.lines.iter().take(LINES);
        Account {
            seed,
            elapsed_ns: replayed.elapsed_ns,
            user_ns: replayed.user_ns,
            system_ns: replayed.system_ns,
            idle_ns: replayed.idle_ns,
            context_switches: replayed.context_switches,
            migrations: replayed.migrations,
            preemptions: replayed.preemptions,
            sleeps: replayed.sleeps,
            ops: replayed.ops,
            divergences: replayed.divergences.iter().map(Diverged::of).collect(),
            unexplained: mapped.saturating_sub(about.may_be_mapped)
                + failed.saturating_sub(about.may_fail),
            moving: total.lost as f64 / system_ps,
            spinning: total.spun as f64 / system_ps,
            flushing: flushing.sum::<u64>() as f64 / system_ps,
            lines: lines
                .map(|line| Line::new(replayed.name_of(line), &line.costs, system_ps))
                .collect(),
            locks: Lock::all(replayed.lock_classes()),
            waits: waits(replayed.system_ns, &replayed.line_classes(), &replayed.cpus),
        }
    }

    /// User and system time in percent of the elapsed time: 100 for each busy CPU.
    pub fn percent_cpu(&self) -> f64 {
        let busy = self.user_ns as f64 + self.system_ns as f64;
        100.0 * busy / self.elapsed_ns.max(1) as f64
    }
}

impl Diverged {
    fn of((how, count): &(Divergence, u64)) -> Diverged {
        let how = match how {
            Divergence::AlreadyMapped => "the page was mapped already".to_owned(),
            Divergence::MappedLarge => "a superpage had mapped the page".to_owned(),
            Divergence::MappedFolio => "a folio had mapped the page".to_owned(),
            Divergence::Failed(error) => error.to_string(),
        };
        Diverged { how, count: *count }
    }
}

/// A figure of an account that is shown.
#[derive(Clone, Copy, Debug)]
pub struct Figure {
    /// Its name in JSON.
    pub name: &'static str,
    /// Its name in tables, with the unit.
    pub title: &'static str,
    /// Digits after the point.
    pub digits: usize,
    /// What it is.
    pub of: fn(&Account) -> f64,
}

/// The figures, of which the first decides which of two designs is better.
pub const FIGURES: [Figure; 7] = [
    Figure {
        name: "elapsed_s",
        title: "elapsed s",
        digits: 6,
        of: |account| account.elapsed_ns as f64 / 1e9,
    },
    Figure {
        name: "user_s",
        title: "user s",
        digits: 6,
        of: |account| account.user_ns as f64 / 1e9,
    },
    Figure {
        name: "system_s",
        title: "system s",
        digits: 6,
        of: |account| account.system_ns as f64 / 1e9,
    },
    Figure {
        name: "idle_s",
        title: "idle s",
        digits: 6,
        of: |account| account.idle_ns as f64 / 1e9,
    },
    Figure {
        name: "percent_cpu",
        title: "CPU %",
        digits: 1,
        of: Account::percent_cpu,
    },
    Figure {
        name: "context_switches",
        title: "context switches",
        digits: 0,
        of: |account| account.context_switches as f64,
    },
    Figure {
        name: "migrations",
        title: "migrations",
        digits: 0,
        of: |account| account.migrations as f64,
    },
];
