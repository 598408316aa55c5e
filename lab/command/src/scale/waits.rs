//! What simulated CPUs waited for: locks by class, and all waiting as call stacks.

use vellum_profile::Profile;
use vellum_results::scale::{Lock, Ticks};
use vellum_scale::{CpuTotals, LineClass, LockClass};
use vellum_terminal::table::{Table, grouped};

use super::text::percent;

/// Classes of locks that are printed.
const PRINTED: usize = 20;

/// All classes of a simulation.
pub fn locks(classes: Vec<LockClass>) -> Vec<Lock> {
    let lock = |class: LockClass| Lock {
        name: class.name,
        acquired: class.costs.acquired,
        contended: class.costs.contended,
        waited_ns: class.costs.waited / 1000,
        held_ns: class.costs.held / 1000,
    };
    classes.into_iter().map(lock).collect()
}

/// The locks waited for longest, with shares of `time_ns`.
pub fn locks_table(locks: &[Lock], time_ns: f64) -> String {
    let mut table = Table::new(&[
        "lock",
        "acquired",
        "contended",
        "waited %",
        "held %",
        "us waited each",
    ]);
    for lock in locks.iter().take(PRINTED) {
        let each = lock.waited_ns as f64 / 1e3 / lock.contended.max(1) as f64;
        table.row(vec![
            lock.name.clone(),
            grouped(lock.acquired),
            grouped(lock.contended),
            percent(lock.waited_ns as f64 / time_ns),
            percent(lock.held_ns as f64 / time_ns),
            format!("{each:.3}"),
        ]);
    }
    table.render(2)
}

/// Where CPUs waited, and the rest of `time_ns`.
pub fn waits(time_ns: u64, lines: &[LineClass], cpus: &[CpuTotals]) -> Vec<Ticks> {
    let mut ticks = Vec::new();
    let mut add = |stack: [&str; 2], ps: u64| {
        if ps >= 1000 {
            ticks.push(Ticks {
                stack: stack.map(str::to_owned).to_vec(),
                ns: ps / 1000,
            });
        }
    };
    for LineClass { name, costs } in lines {
        add(["moving lines", name], costs.lost);
        add(["spinning", name], costs.spun);
    }
    let sum = |value: fn(&CpuTotals) -> u64| cpus.iter().map(value).sum();
    add(["shootdowns", "sent"], sum(|cpu| cpu.flushing));
    add(["shootdowns", "received"], sum(|cpu| cpu.interrupted));
    let waited: u64 = ticks.iter().map(|ticks| ticks.ns).sum();
    ticks.push(Ticks {
        stack: vec!["work".to_owned()],
        ns: time_ns.saturating_sub(waited),
    });
    ticks
}

/// Of waits, as other profiles are: a tick is a nanosecond.
pub fn profile(name: &str, waits: &[Ticks]) -> Profile {
    let mut profile = Profile::new(name);
    for ticks in waits {
        let stack = ticks.stack.iter().map(|frame| frame.as_str().into());
        profile.add(stack.collect(), ticks.ns);
    }
    profile
}

/// Of locks, likewise: those that are waited for.
pub fn lock_profile(name: &str, locks: &[Lock]) -> Profile {
    let mut profile = Profile::new(name);
    for lock in locks.iter().filter(|lock| lock.waited_ns > 0) {
        let stack = vec!["waiting for a lock".into(), lock.name.as_str().into()];
        profile.add(stack, lock.waited_ns);
    }
    profile
}

#[cfg(test)]
mod tests {
    use super::*;
    use vellum_scale::{LineCosts, LockCosts};

    #[test]
    fn all_time_is_in_the_stacks_once() {
        let line = |name: &str, lost, spun| LineClass {
            name: name.to_owned(),
            costs: LineCosts {
                lost,
                spun,
                ..LineCosts::default()
            },
        };
        let cpu = CpuTotals {
            flushing: 3_000,
            interrupted: 4_000,
            ..CpuTotals::default()
        };
        let lines = [line("Zone.lists", 20_000, 5_000), line("quiet", 10, 0)];
        let ticks = waits(100, &lines, &[cpu, cpu]);
        let folded = profile("some", &ticks).folded();
        let expected = "moving lines;Zone.lists 20\nshootdowns;received 8\nshootdowns;sent 6\n\
                        spinning;Zone.lists 5\nwork 61\n";
        assert_eq!(folded, expected);
    }

    #[test]
    fn locks_are_told_with_shares_and_as_stacks() {
        let classes = vec![LockClass {
            name: "Space.lock".to_owned(),
            costs: LockCosts {
                acquired: 1200,
                contended: 4,
                waited: 50_000_000,
                held: 20_000_000,
            },
        }];
        let locks = self::locks(classes);
        let table = locks_table(&locks, 100_000.0);
        for part in ["Space.lock", "1,200", "50.00", "20.00", "12.500"] {
            assert!(table.contains(part), "{part} in\n{table}");
        }
        let folded = lock_profile("some", &locks).folded();
        assert_eq!(folded, "waiting for a lock;Space.lock 50000\n");
    }
}
