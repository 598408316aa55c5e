//! The rows of an advice, from all that was measured and counted, in one order.

use super::counted::{VISIBLE, said};
use super::knobs::{Knob, OnHost};
use super::on_core::{self, OnCore};
use super::on_host::{self, OnHostFound};
use super::prices::Prices;
use crate::compare::Judged;
use crate::host::forkfault::Round;
use crate::stats::Estimate;
use vellum_results::advise::{Asked, Audience, Basis, Row, Said};
use vellum_results::memory::MemoryPlan;
use vellum_results::{Figure, Whole};
use vellum_terminal::table::grouped;
use vellum_terminal::text::mib;

/// What was measured of all knobs.
pub struct Measured<'m> {
    /// On the memory manager.
    pub on_core: &'m OnCore,
    /// On this machine's kernel, or why not.
    pub on_host: Result<&'m OnHostFound, &'m str>,
    /// What single things cost here.
    pub prices: &'m Prices,
}

/// A change of CPU time as a share of the workload's, what is said of it, and the bound of what
/// was not told.
type Effect = (Option<Figure>, Said, Option<f64>);

/// A row for each of `knobs`.
pub fn of_knobs(knobs: &[Knob], measured: &Measured<'_>, asked: &Asked) -> Vec<Row> {
    let whole = measured.on_core.whole;
    let rows = knobs.iter().zip(&measured.on_core.arms).enumerate();
    let row = |(number, (knob, arm)): (usize, (&Knob, &on_core::Arm))| {
        let on_host = measured.on_host.ok();
        let here = on_host.and_then(|found| found.arms[number]);
        let (effect, basis, note) = effect(knob, arm, here, measured);
        let faults = here.map_or(arm.faults, |here| here.faults);
        Row {
            what: knob.what.to_owned(),
            audience: knob.audience,
            said: effect.1,
            basis,
            cpu: effect.0,
            bound: effect.2,
            peak: Some(arm.peak - 1.0),
            faults: Some(faults - 1.0),
            place: place(knob, asked),
            how: knob.how.iter().map(|how| (*how).to_owned()).collect(),
            note: match whole {
                Some(_) => note,
                None => "The recording has no CPU times, so that no share of the workload can be \
                         told."
                    .to_owned(),
            },
            measured: None,
        }
    };
    rows.map(row).collect()
}

fn effect(
    knob: &Knob,
    arm: &on_core::Arm,
    here: Option<on_host::Arm>,
    measured: &Measured<'_>,
) -> (Effect, Basis, String) {
    let whole = measured.on_core.whole;
    let tlb = "Time saved by fewer TLB misses is not in this, and comes on top.";
    if let Some(here) = here {
        let effect = of_ratio(here.ratio, here.judged, here.base_ns, whole);
        return (effect, Basis::HostReplay, tlb.to_owned());
    }
    if let Some(OnHost::Mthp(_)) = knob.on_host {
        let of_whole = |(ns, whole): (Figure, Whole)| ns.in_units_of(whole.cpu_ns.max(1) as f64);
        let cpu = of_folios(arm, measured.prices).zip(whole).map(of_whole);
        let (said, bound) = said(cpu);
        let note = format!(
            "{} faults would not be met, and {} pages made that nobody touches; the first save \
             what MADV_POPULATE_WRITE saves here, so that the effect is rather larger. {tlb}",
            grouped(arm.needless),
            grouped(arm.unused_pages),
        );
        return ((cpu, said, bound), Basis::Counted, note);
    }
    let note = match (knob.on_host, measured.on_host) {
        (Some(_), Err(why)) => format!("Not tried on this machine's kernel: {why}. {tlb}"),
        (Some(_), Ok(_)) => tlb.to_owned(),
        (None, _) => String::new(),
    };
    let effect = of_ratio(arm.ratio, arm.judged, arm.base_ns, whole);
    (effect, Basis::CoreReplay, note)
}

/// What large folios change, in nanoseconds. A fault that is not met saves at least what making its
/// page beforehand saves, which is the value, and at most all of a touch, which is the lower bound.
fn of_folios(arm: &on_core::Arm, prices: &Prices) -> Option<Figure> {
    let (needless, unused) = (arm.needless as f64, arm.unused_pages as f64);
    let least = |round: &Round| unused * round.populate - needless * (round.touch - round.populate);
    let most = |round: &Round| unused * round.populate - needless * round.touch;
    if !prices.can_populate() {
        return None;
    }
    let (least, most) = (prices.value(least)?, prices.value(most)?);
    Some(Figure {
        low: most.low,
        ..least
    })
}

/// The effect of what takes `ratio` times as long as `base_ns`.
fn of_ratio(ratio: Estimate, judged: Judged, base_ns: f64, whole: Option<Whole>) -> Effect {
    let Some(whole) = whole else {
        return (None, Said::Unknown, None);
    };
    let share = |ratio: f64| whole.share((ratio - 1.0) * base_ns);
    let cpu = Figure {
        value: share(ratio.value),
        low: ratio.interval.map(|interval| share(interval.low)),
        high: ratio.interval.map(|interval| share(interval.high)),
    };
    let Some(resolution) = judged.resolution else {
        return (Some(cpu), Said::Unknown, None);
    };
    let told = judged.verdict.is_difference();
    match cpu.value {
        value if told && value <= -VISIBLE => (Some(cpu), Said::Less, None),
        value if told && value >= VISIBLE => (Some(cpu), Said::More, None),
        value => {
            let bound = whole.share(resolution.total() * base_ns);
            (Some(cpu), Said::Nothing, Some(bound.max(value.abs())))
        }
    }
}

/// Where a knob shows in the program.
fn place(knob: &Knob, asked: &Asked) -> String {
    if knob.on_host.is_none() {
        return String::new();
    }
    let percent = |part: u64| 100.0 * part as f64 / asked.faults.all.max(1) as f64;
    let private = |mapping: &str| mapping.starts_with("private") || mapping.starts_with("heap");
    let mut places = asked.places.iter().filter(|place| private(&place.mapping));
    let most = places.next().map_or_else(String::new, |place| {
        format!(
            ", most in {} of {} ({:.0} % of all)",
            place.mapping,
            place.command,
            percent(place.faults)
        )
    });
    format!(
        "{:.0} % of faults are first touches of private memory{most}",
        percent(asked.faults.anonymous)
    )
}

/// Rows for less memory, from a plan.
pub fn of_memory(plan: &MemoryPlan, asked: &Asked) -> Vec<Row> {
    let less = plan.rows.iter().filter(|row| row.part < 1.0);
    let row = |row: &vellum_results::memory::Row| {
        let adds = plan.added(row).filter(|_| row.failed.is_none());
        let cpu = adds.map(|value| Figure {
            value,
            low: None,
            high: None,
        });
        let least = match (plan.first_touches_only, &row.failed) {
            (_, Some(place)) => format!("Memory runs out at {place}."),
            (true, None) => "At least: the recording has the first use of each page only; record \
                             with `record --accesses 100ms` for later uses."
                .to_owned(),
            (false, None) => String::new(),
        };
        let bytes = asked.peak_bytes as f64 * row.part;
        Row {
            what: format!(
                "{:.0} % of the memory that is in use at the peak",
                row.part * 100.0
            ),
            audience: Audience::User,
            said: match adds {
                None => Said::Unknown,
                Some(_) => Said::Modelled,
            },
            basis: Basis::Modelled,
            cpu,
            bound: None,
            peak: Some(row.part - 1.0),
            faults: None,
            place: format!(
                "of {} of frames at the peak, {} pages are read again and {} written",
                mib(plan.peak_bytes),
                grouped(row.pages_read),
                grouped(row.pages_written)
            ),
            how: vec![
                format!(
                    "systemd-run --scope -p MemoryMax={:.0}M COMMAND (a cgroup's memory.max)",
                    bytes / f64::from(1 << 20)
                ),
                "with zswap: vellum plan memory TRACE --compressed 20".to_owned(),
            ],
            note: format!(
                "Time of the memory manager and of waiting for the device ({}), set against the \
                 CPU time of the workload. {least}",
                plan.device.name
            ),
            measured: None,
        }
    };
    less.map(row).collect()
}

/// In the order in which they are told: what helps most first, then what harms, then what makes
/// no difference, then what is not known.
pub fn ranked(mut rows: Vec<Row>) -> Vec<Row> {
    let group = |row: &Row| match row.said {
        Said::Less => 0,
        Said::More => 1,
        Said::Nothing => 2,
        Said::Modelled => 3,
        Said::Unknown => 4,
    };
    let size = |row: &Row| row.cpu.map_or(0.0, |cpu| -cpu.value.abs());
    rows.sort_by(|one, other| {
        let by_group = group(one).cmp(&group(other));
        by_group.then(size(one).total_cmp(&size(other)))
    });
    rows
}

/// What no row has.
pub fn unseen(whole: Option<Whole>, switched: bool) -> Vec<String> {
    let mut unseen = vec![
        "Time saved by fewer TLB misses is not in this but in figures of --check: a trace of faults \
         has no accesses. `vellum plan tlb` simulates it from a stream of them."
            .to_owned(),
        "Devices, and time waited for anything: effects are on CPU time.".to_owned(),
        "Call stacks: the recording has none; places are commands and mappings.".to_owned(),
        "Whether files are better read or mapped: a trace of faults does not say which pages a \
         program would read."
            .to_owned(),
        "Other kernels and machines than this one; contention of many CPUs (vellum scale)."
            .to_owned(),
    ];
    if !switched {
        unseen.push(
            "Sizes of mTHP on this machine's kernel: they are settings of the whole system. \
             --check switches them while it runs, and restores them."
                .to_owned(),
        );
    }
    if whole.is_none() {
        unseen.push("CPU time of the workload: the recording has none.".to_owned());
    }
    unseen
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::{Reason, Resolution, Verdict};
    use crate::stats::Interval;

    const WHOLE: Option<Whole> = Some(Whole {
        cpu_ns: 10_000,
        memory_ns: None,
    });

    fn estimate(value: f64) -> Estimate {
        Estimate {
            value,
            interval: Some(Interval {
                low: value - 0.1,
                high: value + 0.1,
            }),
        }
    }

    fn judged(verdict: Verdict) -> Judged {
        Judged {
            verdict,
            resolution: Some(Resolution {
                chance: 0.1,
                stray: 0.1,
            }),
        }
    }

    #[test]
    fn an_effect_is_a_share_of_the_whole_workload() {
        let (cpu, said, bound) = of_ratio(estimate(0.5), judged(Verdict::Less), 2000.0, WHOLE);
        let cpu = cpu.expect("known");
        assert_eq!((cpu.value, said, bound), (-0.1, Said::Less, None));
        assert!((cpu.low.expect("an interval") - -0.12).abs() < 1e-9);
    }

    #[test]
    fn folios_are_said_to_cost_time_only_if_no_price_of_a_fault_makes_up_for_it() {
        let round = Round {
            touch: 300.0,
            populate: 100.0,
            ..Round::default()
        };
        let prices = Prices::new(vec![round; 5]);
        let arm = |needless, unused_pages| on_core::Arm {
            base_ns: 1000.0,
            ratio: estimate(1.0),
            judged: judged(Verdict::Less),
            peak: 1.0,
            faults: 1.0,
            needless,
            unused_pages,
        };
        let of = |needless, unused| {
            let ns = of_folios(&arm(needless, unused), &prices).expect("priced");
            (ns.low, ns.value, said(Some(ns.in_units_of(1e5))).0)
        };
        assert_eq!(of(10, 0), (Some(-3000.0), -2000.0, Said::Less));
        assert_eq!(of(10, 25), (Some(-500.0), 500.0, Said::Nothing));
        assert_eq!(of(10, 50), (Some(2000.0), 3000.0, Said::More));
        assert_eq!(of_folios(&arm(1, 1), &Prices::default()), None);
    }

    #[test]
    fn what_was_not_proven_has_the_bound_of_what_could_have_been() {
        let not = judged(Verdict::NotProven(Reason::WithinChance));
        let (_, said, bound) = of_ratio(estimate(0.95), not, 2000.0, WHOLE);
        assert_eq!(said, Said::Nothing);
        assert!((bound.expect("a bound") - 0.04).abs() < 1e-9);
        // Proven, but next to nothing of the whole.
        let (_, said, _) = of_ratio(estimate(0.5), judged(Verdict::Less), 10.0, WHOLE);
        assert_eq!(said, Said::Nothing);
        let (cpu, said, _) = of_ratio(estimate(0.5), judged(Verdict::Less), 10.0, None);
        assert_eq!((cpu, said), (None, Said::Unknown));
    }

    #[test]
    fn what_helps_most_comes_first_and_what_is_unknown_last() {
        let row = |said, value: Option<f64>| Row {
            what: format!("{value:?}"),
            audience: Audience::User,
            said,
            basis: Basis::Counted,
            cpu: value.map(|value| Figure {
                value,
                ..Figure::default()
            }),
            bound: None,
            peak: None,
            faults: None,
            place: String::new(),
            how: Vec::new(),
            note: String::new(),
            measured: None,
        };
        let rows = ranked(vec![
            row(Said::Unknown, None),
            row(Said::Nothing, Some(0.0)),
            row(Said::More, Some(0.3)),
            row(Said::Less, Some(-0.1)),
            row(Said::Less, Some(-0.2)),
        ]);
        let order: Vec<&str> = rows.iter().map(|row| &*row.what).collect();
        let expected = ["Some(-0.2)", "Some(-0.1)", "Some(0.3)", "Some(0.0)", "None"];
        assert_eq!(order, expected);
    }
}
