//! A prepared workload as a program for simulated CPUs.

use vellum_engine::{Divergence, OpError};
use vellum_results::sim::{About, ServicePrice, TakenService};
use vellum_scale::PlacedHeap;
use vellum_scale::replay::{Program, Step, TaskStream, Wait};

use crate::replay::{Service, Stream, Workload};

fn taken(service: &Service) -> TakenService {
    let prices = service.prices.known();
    TakenService {
        seconds: service.taken_ns as f64 / 1e9,
        prices: prices.map(|(of, ns)| ServicePrice { of, ns }).collect(),
    }
}

/// What is said of a workload after its operations have gone into the program.
fn about(workload: &Workload) -> About {
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
        service: workload.service().map(taken),
        may_be_mapped: explained(Divergence::AlreadyMapped),
        may_fail: explained(Divergence::Failed(OpError::Protection)),
    }
}

/// The program of a workload whose streams are by task.
pub fn program(workload: Workload) -> (Program, About) {
    let about = about(&workload);
    let beginning = workload.beginning().to_vec();
    let streams = workload.into_streams().into_iter().zip(beginning);
    let tasks: Vec<TaskStream> = streams.map(task).collect();
    PlacedHeap::trim();
    (Program { tasks }, about)
}

/// A stream, whose first operations make what was there when the recording began.
fn task((stream, beginning): (Stream, u32)) -> TaskStream {
    let mut steps: Vec<Step> = Vec::with_capacity(stream.segments().len() + 1);
    for (index, segment) in stream.segments().iter().enumerate() {
        let step = Step {
            end: segment.end,
            first_wait: segment.first_wait,
            user_ns: stream.user_ns(index),
        };
        let begun = steps.last().map_or(0, |before| before.end);
        if (begun + 1..segment.end).contains(&beginning) {
            steps.push(Step {
                end: beginning,
                user_ns: 0,
                ..step
            });
            let waits = stream.waits(index).len() as u32;
            steps.push(Step {
                first_wait: segment.first_wait + waits,
                ..step
            });
        } else {
            steps.push(step);
        }
    }
    let last = steps.iter().position(|step| step.end >= beginning);
    let of_beginning = match beginning {
        0 => 0,
        _ => last.map_or(steps.len(), |last| last + 1),
    };
    let waits = (0..stream.segments().len()).flat_map(|index| stream.waits(index));
    let waits = waits.map(|wait| Wait {
        task: wait.stream,
        ops: wait.ops,
    });
    let waits = waits.collect();
    // There are many, and they stay for as long as the simulations take.
    let mut ops = stream.into_ops();
    ops.shrink_to_fit();
    TaskStream {
        steps,
        waits,
        ops,
        beginning: of_beginning,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::{Options, Streams, prepare_events};
    use vellum_testing::by_hand::{PAGE, map, write};
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

    #[test]
    fn steps_end_where_the_beginning_of_the_recording_does() {
        let events = [
            map(0x10_0000, 4),
            write(0x10_0000, false),
            write(0x10_0000 + PAGE, false),
            write(0x10_0000 + 2 * PAGE, false),
        ];
        let events = events.map(|kind| (0, kind));
        let program = |beginning: u64| {
            let mut recording = generate::Recording::of(&[None], &[], &events);
            recording.header.beginning = beginning;
            let options = Options {
                streams: Streams::ByTask,
                ..Options::default()
            };
            let workload =
                prepare_events(&recording.header, || recording.events(), &options).expect("valid");
            let (program, _) = program(workload);
            program.check().expect("no flaw");
            program
        };
        let whole = program(0);
        for beginning in 0..=4 {
            let begun = program(beginning);
            assert_eq!(begun.tasks[0].ops, whole.tasks[0].ops);
            let [task] = &begun.tasks[..] else {
                panic!("one task")
            };
            let ends = task.steps[..task.beginning]
                .last()
                .map_or(0, |step| step.end);
            let after = task.ops.len() as u32 - ends;
            // The first event has two operations, since it is the first of its space.
            let left = [5, 3, 2, 1, 0];
            assert_eq!(after, left[beginning as usize], "{beginning}: {task:?}");
        }
    }
}
