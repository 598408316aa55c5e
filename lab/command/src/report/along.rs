//! Where along the workload a comparison's time went, and what memory it held there.

use serde::Serialize;

use super::model::Arms;
use crate::compare::{A, B, Measurement, Place};
use crate::stats::median;

/// Stretches at the most.
const STRETCHES: usize = 2000;

/// Places in a workload, from its beginning to its end.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Places {
    /// Operations of all CPUs before each place.
    pub ops: Vec<u64>,
    /// The number of the trace's event, from 0, that the last of these operations came
    /// from; empty where the workload is not one copy of one trace.
    pub events: Vec<u64>,
}

impl Places {
    fn of(places: &[Place]) -> Self {
        let events = places.iter().filter_map(|place| place.event);
        let events: Vec<u64> = events.collect();
        Self {
            ops: places.iter().map(|place| place.ops).collect(),
            events: match events.len() == places.len() {
                true => events,
                false => Vec::new(),
            },
        }
    }
}

/// Time along the workload, in stretches of neighbouring slices.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Along {
    /// The end of each stretch.
    #[serde(flatten)]
    pub places: Places,
    /// CPU time of each stretch in nanoseconds: medians of its slices over the passes,
    /// added up, as in the totals.
    pub cpu_ns: Arms<Vec<u64>>,
    /// Memory in the course of the pass that times classes of operations.
    pub memory: MemoryAlong,
}

/// Memory along the workload.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct MemoryAlong {
    /// Where it was looked at.
    #[serde(flatten)]
    pub places: Places,
    /// By what it holds.
    pub kinds: Vec<Held>,
}

/// Bytes held for one purpose at each place.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Held {
    /// What they hold.
    pub name: &'static str,
    /// Under A.
    pub a: Vec<u64>,
    /// Under B.
    pub b: Vec<u64>,
}

impl Along {
    /// Of a measurement with one pass at least.
    pub fn of(measured: &Measurement) -> Self {
        let size = measured.ends.len().div_ceil(STRETCHES).max(1);
        let ends = measured
            .ends
            .chunks(size)
            .filter_map(|slices| slices.last());
        Self {
            places: Places::of(&ends.copied().collect::<Vec<Place>>()),
            cpu_ns: Arms::of(|arm| {
                let slices: Vec<f64> = (0..measured.slices)
                    .map(|slice| {
                        let passes = measured.passes.iter();
                        let times = passes.filter_map(|pass| pass.cpu_ns[arm].get(slice));
                        let times: Vec<f64> = times.map(|ns| *ns as f64).collect();
                        median(&times).unwrap_or(0.0)
                    })
                    .collect();
                let stretches = slices.chunks(size);
                stretches
                    .map(|slices| slices.iter().sum::<f64>() as u64)
                    .collect()
            }),
            memory: memory(measured),
        }
    }
}

fn memory(measured: &Measurement) -> MemoryAlong {
    let looks = &measured.memory_along;
    let places: Vec<Place> = looks.iter().map(|look| look.place).collect();
    let mut names: Vec<&'static str> = Vec::new();
    for (name, ..) in looks.iter().flat_map(|look| look.held.iter().flatten()) {
        if !names.contains(name) {
            names.push(name);
        }
    }
    let bytes = |name: &str, arm: usize| -> Vec<u64> {
        let of = |look: &crate::compare::MemoryAt| {
            let mut found = look.held[arm].iter().filter(|held| held.0 == name);
            found.next().map_or(0, |held| held.1)
        };
        looks.iter().map(of).collect()
    };
    MemoryAlong {
        places: Places::of(&places),
        kinds: names
            .into_iter()
            .map(|name| Held {
                name,
                a: bytes(name, A),
                b: bytes(name, B),
            })
            .collect(),
    }
}
