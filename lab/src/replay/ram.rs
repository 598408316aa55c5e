//! How much memory a simulated machine gets, and what is said if it was too
//! little.

use std::fmt::Write;
use std::fs;

use vellum_engine::{Op, SpaceSlot};
use vellum_terminal::table::grouped;
use vellum_trace::{Event, EventKind, TraceError};

use super::workload::{Class, Workload};

const MIB: u64 = 1 << 20;

/// Sizes that are chosen are multiples of this.
const STEP: u64 = 64 * MIB;

/// The memory of each of `machines` simulated machines that live at one time:
/// what was `given`, or else what is `needed`. Unasked they never get more than
/// three quarters of what the host has left.
pub fn choose(given: Option<u64>, needed: u64, machines: usize) -> u64 {
    given.unwrap_or_else(|| match host_has_left() {
        Some(left) => needed.min(share_of(left, machines)),
        None => needed,
    })
}

fn share_of(left: u64, machines: usize) -> u64 {
    let share = left / 4 * 3 / machines.max(1) as u64;
    (share / STEP).max(1) * STEP
}

/// Bytes that the host can give to programs without taking them from others.
pub fn host_has_left() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|l| l.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    Some(kib << 10)
}

/// The operation for which there was no memory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Starved {
    /// Number of the event that it came from, from 0.
    pub event: u32,
    /// What it was part of.
    pub class: Class,
}

impl Starved {
    /// The operation at `position` of `cpu`.
    pub fn at(workload: &Workload, cpu: usize, position: usize) -> Self {
        let stream = &workload.streams()[cpu];
        Self {
            event: stream.origins()[position],
            class: stream.classes()[position],
        }
    }

    /// Where in the recording it is. `events` are those of the trace, from which the
    /// time is taken.
    pub fn place(
        self,
        workload: &Workload,
        mut events: impl Iterator<Item = Result<Event, TraceError>>,
    ) -> String {
        let mut place = format!("event {}", grouped(u64::from(self.event)));
        let _ = write!(place, " ({}", self.class.name());
        if let Some(Ok(event)) = events.nth(self.event as usize) {
            let seconds = event.time_us as f64 / 1e6;
            let _ = write!(place, ", {seconds:.6} s after the beginning");
        }
        place += ")";
        if workload.copies() > 1 {
            let _ = write!(place, " in one of {} copies", workload.copies());
        }
        place
    }

    /// What the user is told if it was in a replay of `workload` on a machine of
    /// `ram` bytes, `events` being those of the trace; `more` is said of the place.
    pub fn message(
        self,
        workload: &Workload,
        ram: u64,
        events: impl Iterator<Item = Result<Event, TraceError>>,
        more: &str,
    ) -> String {
        let place = self.place(workload, events) + more;
        too_small(&place, ram, workload.ram_bytes())
    }

    /// Says whose end would have freed most, of a space and its pages, when this happened in a
    /// replay of `workload`; `events` are those of the trace.
    pub fn victim_text(
        self,
        workload: &Workload,
        (space, pages): (SpaceSlot, u64),
        mut events: impl Iterator<Item = Result<Event, TraceError>>,
    ) -> String {
        // The space may have been others' before.
        let begins = |op: &Op| match *op {
            Op::Create { space: new } | Op::Fork { child: new, .. } | Op::Exec { new, .. } => {
                new == space
            }
            _ => false,
        };
        let begun = workload.streams().iter().flat_map(|stream| {
            let made = stream.ops().iter().zip(stream.origins());
            made.filter(|(op, _)| begins(op)).map(|(_, &event)| event)
        });
        let begun = begun.filter(|&event| event <= self.event).max();
        let event = begun.and_then(|event| events.nth(event as usize)?.ok());
        let task = event.map(|event| match event.kind {
            EventKind::Create { child, .. } => child,
            _ => event.task,
        });
        let whose = match task {
            Some(task) => format!("the process of task {}", task.0),
            None => format!("space {}", space.0),
        };
        format!(
            ", where to end {whose} would free most, {} private pages and page tables",
            grouped(pages)
        )
    }
}

/// Says that a machine of `ram` bytes had no memory left at `place`, of a
/// workload that is thought to need `needed` bytes.
pub fn too_small(place: &str, ram: u64, needed: u64) -> String {
    let try_this = needed.max(ram.saturating_mul(2));
    format!(
        "the simulated machine ran out of memory at {place}: it has {} MiB. Results would mean \
         nothing; give it more, as in --ram {}",
        grouped(ram / MIB),
        size_text(try_this)
    )
}

/// A size as `--ram` takes it, rounded up.
fn size_text(bytes: u64) -> String {
    match bytes {
        ..=0xffff_ffff => format!("{}M", bytes.div_ceil(MIB)),
        _ => format!("{}G", bytes.div_ceil(1 << 30)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_is_kept_and_what_is_chosen_leaves_the_host_a_quarter() {
        assert_eq!(choose(Some(5), 1 << 40, 3), 5);
        assert_eq!(share_of(16 << 30, 3), 4 << 30);
        assert_eq!(share_of(0, 3), STEP, "never nothing");
        let left = host_has_left().expect("Linux says so");
        assert!(left > MIB && choose(None, u64::MAX, 1) < left);
    }

    #[test]
    fn the_advice_is_what_is_needed_and_at_least_twice_as_much() {
        let said = too_small("event 7 (fault)", 256 << 20, 300 << 20);
        assert!(said.contains("event 7 (fault): it has 256 MiB"), "{said}");
        assert!(said.ends_with("--ram 512M"), "{said}");
        assert!(too_small("x", 1 << 20, 5 << 30).ends_with("--ram 5G"));
    }
}
