//! What one simulation of a whole machine found, and which figures of it are shown.

use vellum_engine::Divergence;
use vellum_results::sim::{About, Account, Diverged};
use vellum_scale::replay::Replayed;

use crate::scale::waits::{locks, waits};
use crate::scale::{LINES, line};

/// Of a simulation with this seed.
pub fn account(seed: u64, replayed: &Replayed, about: &About) -> Account {
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
        divergences: replayed.divergences.iter().map(diverged).collect(),
        unexplained: mapped.saturating_sub(about.may_be_mapped)
            + failed.saturating_sub(about.may_fail),
        moving: total.lost as f64 / system_ps,
        spinning: total.spun as f64 / system_ps,
        flushing: flushing.sum::<u64>() as f64 / system_ps,
        lines: lines
            .map(|costly| line(replayed.name_of(costly), &costly.costs, system_ps))
            .collect(),
        locks: locks(replayed.lock_classes()),
        waits: waits(replayed.system_ns, &replayed.line_classes(), &replayed.cpus),
    }
}

fn diverged((how, count): &(Divergence, u64)) -> Diverged {
    let how = match how {
        Divergence::AlreadyMapped => "the page was mapped already".to_owned(),
        Divergence::MappedLarge => "a superpage had mapped the page".to_owned(),
        Divergence::MappedFolio => "a folio had mapped the page".to_owned(),
        Divergence::Failed(error) => error.to_string(),
    };
    Diverged { how, count: *count }
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
