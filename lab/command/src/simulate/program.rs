//! A prepared workload as a program for simulated CPUs.

use serde::Serialize;
use vellum_engine::{Divergence, OpError};
use vellum_scale::PlacedHeap;
use vellum_scale::replay::{Program, Step, TaskStream, Wait};

use crate::replay::{Served, Service, Stream, Workload};

/// What is said of a workload after its operations have gone into the program.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct About {
    /// Tasks of all copies that do anything.
    pub tasks: u64,
    /// Copies of the process family.
    pub copies: u32,
    /// Recorded events of all copies.
    pub events: u64,
    /// Operations of all tasks.
    pub ops: u64,
    /// What was taken out of the recorded CPU times, so that user time is left. `None` if
    /// the recording does not know how long tasks ran: then there is no user time.
    pub service: Option<TakenService>,
    /// Touches that the trace explains finding their page mapped.
    pub may_be_mapped: u64,
    /// Accesses that the recording refused, too.
    pub may_fail: u64,
}

/// Service of the recorded kernel that is not part of the user time.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct TakenService {
    /// How much of all copies' CPU times it was.
    pub seconds: f64,
    /// What each kind of it is taken to have cost at the recording.
    pub prices: Vec<ServicePrice>,
}

/// What the recorded kernel took for one service.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct ServicePrice {
    /// For what.
    pub of: Served,
    /// How long, in nanoseconds.
    pub ns: u64,
}

impl TakenService {
    fn of(service: &Service) -> TakenService {
        let prices = service.prices.known();
        TakenService {
            seconds: service.taken_ns as f64 / 1e9,
            prices: prices.map(|(of, ns)| ServicePrice { of, ns }).collect(),
        }
    }
}

impl About {
    fn of(workload: &Workload) -> About {
        let expectations = || workload.streams().iter().flat_map(Stream::expectations);
        let explained = |divergence: Divergence| {
            let explaining = expectations().filter(|why| why.explains(divergence));
            explaining.count() as u64
        };
        let busy = workload.streams().iter();
        let busy = busy.filter(|stream| !stream.segments().is_empty());
        About {
            tasks: busy.count() as u64,
            copies: workload.copies(),
            events: workload.events(),
            ops: workload.ops(),
            service: workload.service().map(TakenService::of),
            may_be_mapped: explained(Divergence::AlreadyMapped),
            may_fail: explained(Divergence::Failed(OpError::Protection)),
        }
    }
}

/// The program of a workload whose streams are by task.
pub fn program(workload: Workload) -> (Program, About) {
    let about = About::of(&workload);
    let tasks: Vec<TaskStream> = workload.into_streams().into_iter().map(task).collect();
    PlacedHeap::trim();
    (Program { tasks }, about)
}

fn task(stream: Stream) -> TaskStream {
    let segments = stream.segments().iter().enumerate();
    let steps = segments.map(|(index, segment)| Step {
        end: segment.end,
        first_wait: segment.first_wait,
        user_ns: stream.user_ns(index),
    });
    let steps = steps.collect();
    let waits = (0..stream.segments().len()).flat_map(|index| stream.waits(index));
    let waits = waits.map(|wait| Wait {
        task: wait.stream,
        ops: wait.ops,
    });
    let waits = waits.collect();
    // There are many, and they stay for as long as the simulations take.
    let mut ops = stream.into_ops();
    ops.shrink_to_fit();
    TaskStream { steps, waits, ops }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::{Options, Streams, prepare_events};
    use vellum_testing::generate;

    #[test]
    fn programs_of_traces_have_no_flaw_and_all_operations() {
        for seed in 0..5 {
            let mut recording = generate::workload(seed, 800);
            for event in &mut recording.events {
                event.ran_us = Some(event.time_us % 3);
            }
            let total: u64 = recording.events.iter().filter_map(|e| e.ran_us).sum();
            let options = Options {
                streams: Streams::ByTask,
                copies: 2,
                ..Options::default()
            };
            let workload =
                prepare_events(&recording.header, || recording.events(), &options).expect("valid");
            let ops = workload.ops();
            let (program, about) = program(workload);
            program.check().expect("no flaw");
            assert_eq!((program.ops(), about.ops), (ops, ops));
            let steps = program.tasks.iter().flat_map(|task| &task.steps);
            let computed: u64 = steps.map(|step| step.user_ns).sum();
            assert!(computed <= total * 2000 && computed > 0, "{computed}");
        }
    }
}
