//! What recording costs, from what one event of each kind costs.
//!
//! The price of an event is the difference of what it takes this process to bring one about with
//! the events of a recording enabled and without. It is measured at the beginning of each
//! recording, in some hundredths of a second; what this process does is not recorded.

use std::hint::black_box;
use std::io;
use std::time::Instant;

use crate::page_map::PAGE;
use crate::raw::{Body, Record};
use crate::sample::Sample;
use crate::tracepoint::{Layout, Tracepoint};

/// Rounds in which each kind is measured.
const ROUNDS: usize = 16;
/// Events of a kind in a round.
const EVENTS: usize = 256;

/// Which of the rounds counts. So that a difference is rather too large than too small, the lower
/// quartile does without events, the upper one with them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Counts {
    LowerQuartile,
    UpperQuartile,
}

/// Seconds that one of each takes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Prices {
    /// A fault.
    pub fault: f64,
    /// A system call that is recorded.
    pub call: f64,
    /// Another system call.
    pub passed_call: f64,
}

impl Prices {
    /// Calls of no interest that a measurement makes.
    pub const PASSED_CALLS: u64 = (ROUNDS * EVENTS) as u64;

    /// Measures on this CPU, as things are.
    ///
    /// # Errors
    /// There is no memory for it.
    pub(crate) fn measure(counts: Counts) -> io::Result<Prices> {
        let memory = Memory::new()?;
        Ok(Prices {
            fault: one(counts, || memory.touch()),
            call: one(counts, || memory.protect()),
            passed_call: one(counts, || {
                for _ in 0..EVENTS {
                    // SAFETY: takes nothing and cannot fail.
                    black_box(unsafe { libc::syscall(libc::SYS_getppid) });
                }
            }),
        })
    }

    /// By how much they exceed others.
    pub fn above(&self, others: &Prices) -> Prices {
        Prices {
            fault: (self.fault - others.fault).max(0.0),
            call: (self.call - others.call).max(0.0),
            passed_call: (self.passed_call - others.passed_call).max(0.0),
        }
    }
}

/// Seconds of one event, where `round` brings [`EVENTS`] about.
fn one(counts: Counts, mut round: impl FnMut()) -> f64 {
    let mut seconds: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let began = Instant::now();
            round();
            began.elapsed().as_secs_f64() / EVENTS as f64
        })
        .collect();
    seconds.sort_by(f64::total_cmp);
    match counts {
        Counts::LowerQuartile => seconds[ROUNDS / 4],
        Counts::UpperQuartile => seconds[ROUNDS * 3 / 4],
    }
}

/// Pages of this process.
struct Memory(*mut u8);

const LENGTH: usize = EVENTS * PAGE as usize;
const RIGHTS: libc::c_int = libc::PROT_READ | libc::PROT_WRITE;

impl Memory {
    fn new() -> io::Result<Memory> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a fresh mapping at an address that the kernel chooses.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), LENGTH, RIGHTS, flags, -1, 0) };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the range was mapped above; each page is to fault.
        unsafe { libc::madvise(at, LENGTH, libc::MADV_NOHUGEPAGE) };
        Ok(Memory(at.cast()))
    }

    /// A fault on each page; taking them away is little beside that.
    fn touch(&self) {
        for page in 0..EVENTS {
            // SAFETY: inside the mapping, which is this value's alone.
            unsafe { self.0.add(page * PAGE as usize).write_volatile(1) };
        }
        // SAFETY: exactly the mapping.
        unsafe { libc::madvise(self.0.cast(), LENGTH, libc::MADV_DONTNEED) };
    }

    /// Calls that change nothing.
    fn protect(&self) {
        for _ in 0..EVENTS {
            // SAFETY: inside the mapping, which keeps its rights.
            unsafe { libc::mprotect(self.0.cast(), PAGE as usize, RIGHTS) };
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: exactly what was mapped; nothing refers to it.
        unsafe { libc::munmap(self.0.cast(), LENGTH) };
    }
}

/// How many events of each kind there were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Faults.
    pub faults: u64,
    /// System calls that were recorded.
    pub calls: u64,
    /// Others, by whatever task of the system; 0 where no program counts them.
    pub passed_calls: u64,
    /// Records of all other kinds: switches, creations, ends, mappings, pages of files.
    pub others: u64,
}

impl Tally {
    /// Counts a record.
    pub fn count(&mut self, record: &Record<'_>, layouts: &[Layout]) {
        let point = match record.body {
            Body::Event(Sample::Fault { .. }) => Some(Tracepoint::FaultUser),
            Body::Sample { id, .. } => {
                let layout = layouts.iter().find(|layout| layout.id == id);
                layout.map(|layout| layout.point)
            }
            Body::Other | Body::Lost { .. } => return,
            _ => None,
        };
        match point {
            Some(Tracepoint::FaultUser | Tracepoint::FaultKernel) => self.faults += 1,
            // Of some calls only the end is recorded, of others both: the price is of both.
            Some(Tracepoint::SysExit) => self.calls += 1,
            Some(Tracepoint::SysEnter) => {}
            _ => self.others += 1,
        }
    }
}

/// What a recording cost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// What one of each kind costs.
    pub prices: Prices,
    /// How many there were.
    pub tally: Tally,
    /// CPU time of the recorder itself meanwhile, in seconds.
    pub recorder: f64,
}

impl Cost {
    /// Seconds of all together.
    pub fn seconds(&self) -> f64 {
        self.of_events() + self.recorder
    }

    /// Without what the recorder took itself. Another record costs at most what a call does that
    /// has two.
    pub fn of_events(&self) -> f64 {
        let (prices, tally) = (&self.prices, &self.tally);
        tally.faults as f64 * prices.fault
            + (tally.calls + tally.others) as f64 * prices.call
            + tally.passed_calls as f64 * prices.passed_call
    }
}

impl std::fmt::Display for Cost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (prices, tally) = (&self.prices, &self.tally);
        let rows = [
            (tally.faults, "faults", prices.fault),
            (tally.calls, "system calls", prices.call),
            (tally.others, "other records", prices.call),
            (
                tally.passed_calls,
                "calls of no interest",
                prices.passed_call,
            ),
        ];
        for (count, what, price) in rows {
            write!(f, "{count} {what} at {:.2} us, ", price * 1e6)?;
        }
        write!(f, "and {:.2} s of the recorder's own", self.recorder)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cost_is_events_times_prices_and_what_the_recorder_took() {
        let cost = Cost {
            prices: Prices {
                fault: 1.0,
                call: 10.0,
                passed_call: 0.1,
            },
            tally: Tally {
                faults: 3,
                calls: 2,
                passed_calls: 10,
                others: 1,
            },
            recorder: 0.5,
        };
        assert!((cost.seconds() - 34.5).abs() < 1e-9);
        assert!(cost.to_string().starts_with("3 faults at 1000000.00 us"));
    }

    #[test]
    fn what_costs_less_while_it_is_recorded_costs_nothing() {
        let without = Prices::measure(Counts::LowerQuartile).unwrap();
        assert!(without.fault > 0.0 && without.call > 0.0 && without.passed_call > 0.0);
        assert_eq!(without.above(&without), Prices::default());
        assert_eq!(Prices::default().above(&without), Prices::default());
    }

    #[test]
    fn records_are_counted_by_kind() {
        let mut tally = Tally::default();
        let mut count = |body| {
            let record = Record {
                time_ns: 0,
                pid: 1,
                tid: 1,
                body,
            };
            tally.count(&record, &[]);
        };
        count(Body::Event(Sample::Fault {
            address: 0,
            code: 0,
            kernel: true,
        }));
        count(Body::SwitchIn);
        count(Body::Lost { count: 7 });
        let expected = Tally {
            faults: 1,
            others: 1,
            ..Tally::default()
        };
        assert_eq!(tally, expected);
    }
}
