//! Everything a comparison found, in the form in which programs read it.

use vellum_results::compare as results;
use vellum_results::compare::{
    About, ClassRow, Compare, Count, Counted, CountedIn, CounterRow, Device, Divergences,
    KernbenchRow, MemoryRow,
};
use vellum_results::{Arms, Figure};

use super::along::along;
use super::names::Names;
use super::{device, kernbench};
use crate::compare::{
    A, ARMS, Analysis, B, CONTROL, ClassTime, Counters, Estimate, Measurement, Pass, WithEntries,
};
use crate::replay::Class;

/// What no figure of a comparison contains.
pub const NOT_MODELLED: &str = "trap and system call entry and exit, real inter-processor \
     interrupts, cache and TLB misses of user code, devices";

/// The same of one with entries.
const NOT_WITH_ENTRIES: &str = "real inter-processor interrupts, cache and TLB misses of user \
     code (time that larger pages save there is not in this), devices";

impl From<Estimate> for Figure {
    fn from(estimate: Estimate) -> Self {
        Self {
            value: estimate.value,
            low: estimate.interval.map(|interval| interval.low),
            high: estimate.interval.map(|interval| interval.high),
        }
    }
}

/// Puts together what was measured, with a device if its time is modelled, and what it says.
pub fn comparison(
    about: About,
    device: Option<Device>,
    measured: &Measurement,
    analysis: &Analysis,
) -> Compare {
    let passes = &measured.passes;
    Compare {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        designs: Arms::of(|arm| measured.designs[arm].clone()),
        ops: measured.ops,
        cpus: measured.cpus,
        slices: measured.slices,
        passes: passes.len(),
        interrupted: measured.interrupted,
        cpu_ns: Arms::of(|arm| analysis.cpu_ns[arm].into()),
        wall_ns: Arms::of(|arm| analysis.wall_ns[arm].into()),
        device: device.map(|device| {
            let cpu_ns = [A, B, CONTROL].map(|arm| analysis.cpu_ns[arm].value);
            device::of_arms(device, passes, cpu_ns, measured.cpus)
        }),
        ratio: analysis.ratio.into(),
        control_ratio: analysis.control.into(),
        resolution: analysis.judged.resolution.map(|parts| parts.total()),
        verdict: analysis.judged.verdict,
        entries: None,
        whole: None,
        clock_ns: measured.clock_ns,
        classes: class_rows(measured),
        counters: counter_rows(passes, measured.atomics.as_deref()),
        memory: memory_rows(passes),
        divergences: Arms::of(|arm| {
            let (left_out, rest) = (&measured.left_out[arm], &passes[0].tallies[arm]);
            Divergences {
                needless: left_out.explained + left_out.unexplained,
                explained: left_out.explained + rest.explained,
                unexplained: left_out.unexplained + rest.unexplained,
            }
        }),
        kernbench: kernbench_rows(&about, measured, analysis),
        pass_cpu_ns: Arms::of(|arm| {
            let sums = passes.iter().map(|pass| pass.cpu_ns[arm].iter().sum());
            sums.collect()
        }),
        along: Some(along(measured)),
        not_modelled: NOT_MODELLED.to_owned(),
        profile: None,
        about,
    }
}

/// Adds what the measurement says if entries count.
pub fn count_entries(report: &mut Compare, with: &WithEntries) {
    let figure = |arm: usize| with.cpu_ns[arm].into();
    report.entries = Some(results::WithEntries {
        price: with.price.clone(),
        traps: Arms::of(|arm| with.traps[arm]),
        calls: Arms::of(|arm| with.calls[arm]),
        cpu_ns: Arms::of(figure),
        ratio: with.ratio.into(),
        control_ratio: with.control.into(),
        resolution: with.judged.resolution.map(|parts| parts.total()),
        verdict: with.judged.verdict,
    });
    report.not_modelled = NOT_WITH_ENTRIES.to_owned();
}

fn class_rows(measured: &Measurement) -> Vec<ClassRow> {
    let net = |time: &ClassTime| {
        time.cpu_ns
            .saturating_sub(time.intervals * measured.clock_ns)
    };
    let row = |class: &Class| {
        let time = |arm: usize| &measured.classes[arm][*class as usize];
        ClassRow {
            class: class.name().to_owned(),
            ops: time(A).ops,
            intervals: time(A).intervals,
            cpu_ns: Arms::of(|arm| net(time(arm))),
        }
    };
    let rows = Class::ALL.iter().map(row);
    rows.filter(|row| row.ops > 0).collect()
}

/// What the passes that have the value counted.
fn count(values: impl Iterator<Item = u64>) -> Count {
    let mut values: Vec<u64> = values.collect();
    values.sort_unstable();
    match values.as_slice() {
        [] => Count {
            median: 0,
            low: 0,
            high: 0,
        },
        [low, .., high] => Count {
            median: values[values.len() / 2],
            low: *low,
            high: *high,
        },
        [only] => Count {
            median: *only,
            low: *only,
            high: *only,
        },
    }
}

/// Names in the order of the first arm that has them: designs count different
/// things, and a name that one lacks counts 0 there.
fn names<'p>(lists: impl Iterator<Item = &'p [&'static str]>) -> Vec<&'static str> {
    let mut names: Vec<&'static str> = Vec::new();
    for name in lists.flatten() {
        if !names.contains(name) {
            names.push(name);
        }
    }
    names
}

/// What the timed passes counted, and then what only the pass that counts
/// atomic operations did.
fn counter_rows(passes: &[Pass], atomics: Option<&[Counters]>) -> Vec<CounterRow> {
    let find = |counters: &Counters, name| {
        let found = counters.iter().find(|row| row.0 == name);
        found.map(|row| row.1)
    };
    let names_of = |lists: &[Counters]| {
        let lists: Vec<Vec<&'static str>> = lists
            .iter()
            .map(|counters| counters.iter().map(|row| row.0).collect())
            .collect();
        names(lists.iter().map(Vec::as_slice))
    };
    let timed = names_of(&passes[0].counters);
    let row = |&name: &&'static str| {
        let over_passes = |arm: usize| {
            let values = passes.iter().map(|pass| &pass.counters[arm]);
            count(values.filter_map(|counters| find(counters, name)))
        };
        CounterRow {
            name: name.to_owned(),
            pass: CountedIn::Timed,
            count: Counted {
                a: over_passes(A),
                b: over_passes(B),
                control: Some(over_passes(CONTROL)),
            },
        }
    };
    let mut rows: Vec<CounterRow> = timed.iter().map(row).collect();
    let Some(counters) = atomics else {
        return rows;
    };
    let counted_once = names_of(counters);
    let added = counted_once.iter().filter(|name| !timed.contains(name));
    rows.extend(added.map(|&name| {
        let once = |arm: usize| count(find(&counters[arm], name).into_iter());
        CounterRow {
            name: name.to_owned(),
            pass: CountedIn::Atomics,
            count: Counted {
                a: once(A),
                b: once(B),
                control: None,
            },
        }
    }));
    rows
}

fn memory_rows(passes: &[Pass]) -> Vec<MemoryRow> {
    let lists: Vec<Vec<&'static str>> = (0..ARMS)
        .map(|arm| passes[0].memory[arm].iter().map(|row| row.0).collect())
        .collect();
    let row = |name: &str| {
        let bytes = |arm: usize, value: fn(&(&str, u64, u64)) -> u64| {
            count(passes.iter().filter_map(|pass| {
                let found = pass.memory[arm].iter().find(|row| row.0 == name);
                found.map(value)
            }))
        };
        MemoryRow {
            name: name.to_owned(),
            end_bytes: Arms::of(|arm| bytes(arm, |row| row.1)),
            peak_bytes: Arms::of(|arm| bytes(arm, |row| row.2)),
        }
    };
    let names = names(lists.iter().map(Vec::as_slice));
    names.into_iter().map(row).collect()
}

fn kernbench_rows(about: &About, measured: &Measurement, analysis: &Analysis) -> Vec<KernbenchRow> {
    let names = Names::of([A, B].map(|arm| measured.designs[arm].as_str()));
    [(A, "A", &about.a), (B, "B", &about.b)]
        .map(|(arm, name, design)| {
            let short = names.named(arm, name);
            let full = match short == name {
                true => format!("{name} {design}"),
                false => short,
            };
            let elapsed_s = analysis.wall_ns[arm].value / 1e9;
            let system_s = analysis.cpu_ns[arm].value / 1e9;
            KernbenchRow {
                label: match full.chars().count() {
                    0..=kernbench::LABEL => full,
                    _ => name.to_owned(),
                },
                elapsed_s,
                system_s,
                user_s: Some(0.0),
                cpu_percent: Some(match elapsed_s > 0.0 {
                    true => 100.0 * system_s / elapsed_s,
                    false => 0.0,
                }),
            }
        })
        .to_vec()
}
