//! A later result against an earlier one, series by series.

use vellum_results::history::{Change, Difference};

use super::{Kept, Series, host_words, is_same_host};
use crate::compare::{Apart, Estimate};

/// Of a series and the same of an earlier run.
pub fn change(new: &Series, apart: &Apart) -> Change {
    Change {
        name: new.name.clone(),
        design: new.design.clone(),
        old_ns: apart.a.into(),
        new_ns: apart.b.into(),
        ratio: apart.ratio.into(),
        resolution: apart.judged.resolution.map(|parts| parts.total()),
        verdict: apart.judged.verdict,
    }
}

/// Why the times of two results cannot be held against each other.
pub fn incomparable(old: &Kept, new: &Kept) -> Option<String> {
    let (Some(of_old), Some(of_new)) = (old.host(), new.host()) else {
        return Some("one of them does not say on which machine it was measured".to_owned());
    };
    if is_deterministic(old) && is_deterministic(new) || is_same_host(of_old, of_new) {
        return None;
    }
    Some(format!(
        "they are of different machines: {} is of {}, {} of {}",
        old.name,
        host_words(of_old),
        new.name,
        host_words(of_new)
    ))
}

/// Whether a result is the same on every machine.
fn is_deterministic(kept: &Kept) -> bool {
    kept.loaded.schema.starts_with("vellum-sim")
}

/// Compares the series that both results have. `repeats` are ratios of runs that are
/// alike, by series.
pub fn difference(
    old: &Kept,
    new: &Kept,
    repeats: impl Fn(&Series) -> Vec<Estimate>,
) -> Difference {
    let refused = incomparable(old, new);
    let mut changes = Vec::new();
    let mut unmatched = Vec::new();
    let describe = |series: &Series| format!("{}: {}", series.design, series.name);
    for series in &new.series {
        let earlier = old.series.iter().find(|earlier| earlier.is_same(series));
        match earlier {
            None => unmatched.push(describe(series)),
            Some(_) if refused.is_some() => {}
            Some(earlier) => match series.against(earlier, &repeats(series)) {
                Some(apart) => changes.push(change(series, &apart)),
                None => unmatched.push(format!("{} (without a control)", describe(series))),
            },
        }
    }
    let is_gone = |series: &&Series| !new.series.iter().any(|later| later.is_same(series));
    unmatched.extend(old.series.iter().filter(is_gone).map(describe));
    Difference {
        old: old.name.clone(),
        new: new.name.clone(),
        refused,
        changes,
        unmatched,
    }
}
