//! Where along the workload a comparison's time went, and what memory it held there.

use vellum_results::Arms;
use vellum_results::compare::{Along, Held, MemoryAlong, Places};

use crate::compare::{A, B, Measurement, Place};
use crate::stats::median;

/// Stretches at the most.
const STRETCHES: usize = 2000;

fn places(places: &[Place]) -> Places {
    let events = places.iter().filter_map(|place| place.event);
    let events: Vec<u64> = events.collect();
    Places {
        ops: places.iter().map(|place| place.ops).collect(),
        events: match events.len() == places.len() {
            true => events,
            false => Vec::new(),
        },
    }
}

/// Of a measurement with one pass at least.
pub fn along(measured: &Measurement) -> Along {
    let size = measured.ends.len().div_ceil(STRETCHES).max(1);
    let ends = measured
        .ends
        .chunks(size)
        .filter_map(|slices| slices.last());
    Along {
        places: places(&ends.copied().collect::<Vec<Place>>()),
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
        places: self::places(&places),
        kinds: names
            .into_iter()
            .map(|name| Held {
                name: name.to_owned(),
                a: bytes(name, A),
                b: bytes(name, B),
            })
            .collect(),
    }
}
