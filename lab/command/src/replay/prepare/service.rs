//! What the recorded kernel's own work took of the CPU times in a trace.
//!
//! The CPU time before an event has all that the task did on its CPU: it computed, and the
//! kernel served its faults and calls, and recorded them. On a simulated machine faults and
//! calls cost what they cost there, so what they cost at the recording has to go. The trace
//! does not tell the two apart, but it has places where a task computed next to nothing:
//! between faults in a row, and between calls in a row. What the shortest tenth of those
//! took is the price of service. It is the trace's own, on the machine that it was made on
//! and beside its recording, and rather too low than too high.

use crate::replay::service::Prices;
use vellum_results::sim::Served;
use vellum_trace::{EventKind, MapOrigin};

/// Faults in a row whose CPU time counts as one sample: the trace's times are whole
/// microseconds, of which a fault takes one or two.
const ROW: u32 = 4;
/// Samples without which there is no price.
const LEAST_SAMPLES: usize = 20;
/// One in so many samples is at most the price.
const QUANTILE: usize = 10;

/// The call that ends with an event, if it is one of these.
fn call(kind: EventKind) -> Option<Served> {
    Some(match kind {
        EventKind::Create { .. } => Served::Create,
        EventKind::Map {
            origin: MapOrigin::Mmap,
            ..
        } => Served::Map,
        EventKind::Unmap { .. } => Served::Unmap,
        EventKind::Protect { .. } => Served::Protect,
        EventKind::Remap { .. } => Served::Remap,
        EventKind::Brk { .. } => Served::Brk,
        EventKind::Advise { .. } => Served::Advise,
        EventKind::FileRead { .. } => Served::FileRead,
        EventKind::FileWrite { .. } => Served::FileWrite,
        EventKind::Truncate { .. } => Served::Truncate,
        EventKind::Exec { .. }
        | EventKind::Exit
        | EventKind::Wait { .. }
        | EventKind::Map { .. }
        | EventKind::Fault { .. }
        | EventKind::MapAround { .. }
        | EventKind::Accessed { .. } => return None,
    })
}

/// What a task did before the event at hand, with the CPU time since then.
#[derive(Clone, Copy, Default)]
enum Before {
    /// Something that no sample begins with, or CPU times are unknown since.
    #[default]
    Other,
    /// A call ended.
    Call,
    /// A fault began.
    Fault { around: bool, ran_us: u64 },
}

/// Faults in a row that are not a sample yet.
#[derive(Clone, Copy, Default)]
struct Row {
    faults: u32,
    ran_us: u64,
}

#[derive(Clone, Copy, Default)]
struct Watched {
    before: Before,
    /// Of single faults, and of those with others around them.
    rows: [Row; 2],
}

/// Learns the prices from the events of a trace.
pub(super) struct Samples {
    tasks: Vec<Watched>,
    /// In nanoseconds.
    samples: [Vec<u64>; Served::ALL.len()],
}

impl Samples {
    pub(super) fn new(tasks: usize) -> Self {
        Samples {
            tasks: vec![Watched::default(); tasks],
            samples: Default::default(),
        }
    }

    /// Takes the next event of a task.
    pub(super) fn take(&mut self, task: usize, kind: EventKind, ran_us: Option<u64>) {
        let Some(watched) = self.tasks.get_mut(task) else {
            return;
        };
        let is_fault = matches!(kind, EventKind::Fault { .. });
        let Some(ran_us) = ran_us else {
            watched.before = match is_fault {
                true => Before::fault(),
                false => Before::Other,
            };
            return;
        };
        match (kind, &mut watched.before) {
            (
                EventKind::MapAround { .. },
                Before::Fault {
                    around,
                    ran_us: sum,
                },
            ) => {
                *around = true;
                *sum += ran_us;
                return;
            }
            (
                EventKind::Fault { .. },
                Before::Fault {
                    around,
                    ran_us: sum,
                },
            ) => {
                let row = &mut watched.rows[usize::from(*around)];
                row.faults += 1;
                row.ran_us += *sum + ran_us;
                if row.faults == ROW {
                    let served = match *around {
                        true => Served::FaultAround,
                        false => Served::Fault,
                    };
                    let ns = row.ran_us * 1000 / u64::from(ROW);
                    self.samples[served as usize].push(ns);
                    *row = Row::default();
                }
            }
            (_, Before::Call) => {
                if let Some(call) = call(kind) {
                    self.samples[call as usize].push(ran_us * 1000);
                }
            }
            _ => {}
        }
        watched.before = match kind {
            EventKind::Fault { .. } => Before::fault(),
            EventKind::MapAround { .. } | EventKind::Exec { .. } => Before::Other,
            _ => Before::Call,
        };
        if !is_fault {
            watched.rows = Default::default();
        }
    }

    /// The prices, when all events have been taken.
    pub(super) fn prices(mut self) -> Prices {
        let price = |samples: &mut Vec<u64>| {
            if samples.len() < LEAST_SAMPLES {
                return 0;
            }
            let place = samples.len() / QUANTILE;
            *samples.select_nth_unstable(place).1
        };
        Prices::of_each(std::array::from_fn(|served| {
            price(&mut self.samples[served])
        }))
    }
}

impl Before {
    fn fault() -> Before {
        Before::Fault {
            around: false,
            ran_us: 0,
        }
    }
}

/// What one task owes: service that is in CPU times to come.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Owed {
    ns: u64,
}

/// What can be owed beyond the event that should have paid it: times are whole
/// microseconds, of which one event can have too little and the next too much.
const MOST_LEFT: u64 = 1000;

impl Owed {
    /// The CPU time of an event in nanoseconds without the service in it.
    pub(super) fn user_ns(&mut self, kind: EventKind, ran_us: u64, prices: &Prices) -> u64 {
        let ran = ran_us.saturating_mul(1000);
        if let EventKind::MapAround { .. } = kind {
            // In the middle of a fault: all of it is service.
            let (single, around) = (prices.of(Served::Fault), prices.of(Served::FaultAround));
            self.ns = (self.ns + around.saturating_sub(single)).saturating_sub(ran);
            return 0;
        }
        if let Some(call) = call(kind) {
            self.ns += prices.of(call);
        }
        let paid = ran.min(self.ns);
        self.ns = (self.ns - paid).min(MOST_LEFT);
        if let EventKind::Fault { .. } = kind {
            self.ns += prices.of(Served::Fault);
        }
        ran - paid
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vellum_trace::{Access, FileId};

    const FAULT: EventKind = EventKind::Fault {
        address: 0,
        access: Access::Write,
        kernel: false,
        present: false,
    };
    const AROUND: EventKind = EventKind::MapAround {
        file: FileId(0),
        first: 0,
        last: 15,
    };
    const UNMAP: EventKind = EventKind::Unmap {
        address: 0,
        length: 4096,
    };

    fn learn(events: &[(EventKind, u64)]) -> Prices {
        let mut samples = Samples::new(1);
        for &(kind, ran) in events {
            samples.take(0, kind, Some(ran));
        }
        samples.prices()
    }

    /// Without the service, in nanoseconds.
    fn user(events: &[(EventKind, u64)], prices: &Prices) -> Vec<u64> {
        let mut owed = Owed::default();
        let each = events.iter();
        each.map(|&(kind, ran)| owed.user_ns(kind, ran, prices))
            .collect()
    }

    #[test]
    fn faults_in_a_row_tell_their_price_below_a_microsecond() {
        // 1.5 us each, and now and then the task computes.
        let mut events = Vec::new();
        for round in 0..400 {
            let computed = if round % 3 == 0 { 40 } else { 0 };
            events.push((FAULT, 1 + round % 2 + computed));
        }
        assert_eq!(learn(&events).of(Served::Fault), 1500 + 10_000);
        let quick: Vec<_> = (0..400).map(|round| (FAULT, 1 + round % 2)).collect();
        let prices = learn(&[events, quick].concat());
        assert_eq!(prices.known().collect::<Vec<_>>(), [(Served::Fault, 1500)]);
    }

    #[test]
    fn a_fault_that_maps_others_has_a_price_of_its_own() {
        let events = [(FAULT, 2), (AROUND, 1)].repeat(100);
        let prices = learn(&events);
        assert_eq!(
            (prices.of(Served::FaultAround), prices.of(Served::Fault)),
            (3000, 0)
        );
        // Nothing but service, however it is split.
        assert_eq!(user(&events, &prices)[1..].iter().sum::<u64>(), 0);
    }

    #[test]
    fn calls_in_a_row_tell_their_price_and_others_do_not() {
        let alone = [(FAULT, 50), (UNMAP, 90)].repeat(100);
        assert_eq!(learn(&alone).known().count(), 0);
        let row = [(UNMAP, 4)].repeat(100);
        assert_eq!(learn(&row).of(Served::Unmap), 4000);
        assert_eq!(learn(&row[..LEAST_SAMPLES]).of(Served::Unmap), 0, "too few");
    }

    #[test]
    fn time_that_is_not_known_is_no_sample() {
        let mut samples = Samples::new(1);
        for _ in 0..400 {
            samples.take(0, FAULT, None);
            samples.take(0, UNMAP, Some(7));
        }
        assert_eq!(samples.prices(), Prices::default());
    }

    #[test]
    fn service_is_taken_out_where_it_lies_and_never_more_than_there_is() {
        let prices = Prices::of_each(Served::ALL.map(|served| match served {
            Served::Fault => 1500,
            Served::Unmap => 4000,
            _ => 0,
        }));
        // A fault is paid by the next event, a call by its own.
        let events = [(FAULT, 10), (FAULT, 7), (UNMAP, 20), (UNMAP, 3), (FAULT, 9)];
        // Of the last call 1 us is missing, which the clock may have rounded away.
        assert_eq!(user(&events, &prices), [10_000, 5500, 14_500, 0, 8000]);
        // A fault that took less than its price pays no later computing.
        let cheap = [(FAULT, 0), (FAULT, 0), (FAULT, 0), (FAULT, 100)];
        assert_eq!(user(&cheap, &prices), [0, 0, 0, 97_500]);
    }
}
