//! How much memory a simulated machine gets, and what is said if it was too
//! little.

use std::fmt::{self, Write};
use std::fs;

use vellum_engine::{Divergence, Op, OpError, SpaceSlot};
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

/// Whether the host can back all memory of `machines` machines of `ram` bytes at once, as it can
/// unless they were asked to be larger than [`choose`] would have them.
pub fn can_be_backed(ram: u64, machines: usize) -> bool {
    host_has_left().is_some_and(|left| is_within(ram, left, machines))
}

fn is_within(ram: u64, left: u64, machines: usize) -> bool {
    ram <= share_of(left, machines)
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

/// What a workload may have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Memory {
    /// Of the simulated machine, in bytes.
    pub ram: u64,
    /// Of the group that all processes are in, if they are in one.
    pub group_limit: Option<u64>,
}

impl From<u64> for Memory {
    fn from(ram: u64) -> Self {
        Self {
            ram,
            group_limit: None,
        }
    }
}

/// What had no memory left for an operation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Shortage {
    /// The simulated machine.
    Machine,
    /// The group that all processes are in: it had what it may have, and nothing could leave.
    Group,
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Shortage::Machine => "the simulated machine",
            Shortage::Group => "the group",
        })
    }
}

impl Shortage {
    /// What an operation lacked that went as `divergence` says, if that was memory.
    pub fn of(divergence: Divergence) -> Option<Self> {
        match divergence {
            Divergence::Failed(OpError::OutOfMemory) => Some(Shortage::Machine),
            Divergence::Failed(OpError::GroupLimit) => Some(Shortage::Group),
            _ => None,
        }
    }

    /// The option that gives it more.
    pub fn option(self) -> &'static str {
        match self {
            Shortage::Machine => "--ram",
            Shortage::Group => "--group-limit",
        }
    }

    /// Says that it had none left of `memory` at `place`, of a workload that is thought to need
    /// `needed` bytes.
    pub fn text(self, place: &str, memory: Memory, needed: u64) -> String {
        match (self, memory.group_limit) {
            (Shortage::Group, Some(limit)) => group_too_small(place, limit),
            _ => ran_out(self, place, memory.ram, needed),
        }
    }
}

/// The operation for which there was no memory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Starved {
    /// Number of the event that it came from, from 0.
    pub event: u32,
    /// What it was part of.
    pub class: Class,
    /// What had none.
    pub shortage: Shortage,
}

impl Starved {
    /// The operation at `position` of `cpu`.
    pub fn at(workload: &Workload, cpu: usize, position: usize, shortage: Shortage) -> Self {
        let stream = &workload.streams()[cpu];
        Self {
            event: stream.origins()[position],
            class: stream.classes()[position],
            shortage,
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

    /// What the user is told if it was in a replay of `workload` with `memory`, `events` being
    /// those of the trace; `more` is said of the place.
    pub fn message(
        self,
        workload: &Workload,
        memory: Memory,
        events: impl Iterator<Item = Result<Event, TraceError>>,
        more: &str,
    ) -> String {
        let place = self.place(workload, events) + more;
        self.shortage.text(&place, memory, workload.ram_bytes())
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
    ran_out(Shortage::Machine, place, ram, needed)
}

/// The same of what had as much as `--ram` says.
fn ran_out(shortage: Shortage, place: &str, ram: u64, needed: u64) -> String {
    let try_this = needed.max(ram.saturating_mul(2));
    format!(
        "{shortage} ran out of memory at {place}: it has {} MiB. Results would mean nothing; give \
         it more, as in --ram {}",
        grouped(ram / MIB),
        size_text(try_this)
    )
}

/// Pages that calls of a workload may want at once: two runs that are read ahead. The advice is
/// never less.
const LEAST_GROUP: u64 = 64 << 12;

/// Says that a group that may have `limit` bytes had them at `place`, and that nothing of it could
/// leave.
pub fn group_too_small(place: &str, limit: u64) -> String {
    let try_this = limit.saturating_mul(2).max(LEAST_GROUP);
    format!(
        "--group-limit: the group ran out of memory at {place}: it may have {} KiB, and nothing of \
         it could leave. Results would mean nothing; give it more, as in --group-limit {}",
        grouped(limit >> 10),
        size_text(try_this)
    )
}

/// A size as `--ram` takes it, rounded up.
fn size_text(bytes: u64) -> String {
    match bytes {
        ..MIB => format!("{}K", bytes.div_ceil(1 << 10)),
        MIB..=0xffff_ffff => format!("{}M", bytes.div_ceil(MIB)),
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
    fn machines_that_the_host_cannot_back_at_once_are_known() {
        assert!(is_within(4 << 30, 16 << 30, 3));
        assert!(!is_within((4 << 30) + STEP, 16 << 30, 3));
        assert!(can_be_backed(MIB, 1) && !can_be_backed(u64::MAX, 1));
    }

    #[test]
    fn the_advice_is_what_is_needed_and_at_least_twice_as_much() {
        let said = too_small("event 7 (fault)", 256 << 20, 300 << 20);
        assert!(said.contains("event 7 (fault): it has 256 MiB"), "{said}");
        assert!(said.ends_with("--ram 512M"), "{said}");
        assert!(too_small("x", 1 << 20, 5 << 30).ends_with("--ram 5G"));
        let said = group_too_small("event 7 (fault)", 640 << 10);
        assert!(said.starts_with("--group-limit: "), "{said}");
        assert!(
            said.contains("event 7 (fault): it may have 640 KiB"),
            "{said}"
        );
        assert!(said.ends_with("--group-limit 2M"), "{said}");
        assert!(group_too_small("x", 400 << 10).ends_with("--group-limit 800K"));
        assert!(group_too_small("x", 4096).ends_with("--group-limit 256K"));
    }
}
