//! CPU times of events, from made-up records of context switches.

use vellum_record::{Body, Record, Sample, Sink, Translator};
use vellum_trace::{Event, Header, TraceError};

const COMMAND: u32 = 40;
const CHILD: u32 = 41;
const STRANGER: u32 = 7;
/// The recorder's clock when the command begins.
const BEGAN_NS: u64 = 5_000_000;

/// Keeps the events.
#[derive(Default)]
struct Kept {
    header: Header,
    events: Vec<Event>,
}

impl Sink for Kept {
    fn header_mut(&mut self) -> &mut Header {
        &mut self.header
    }

    fn push(&mut self, event: &Event) -> Result<(), TraceError> {
        self.events.push(*event);
        Ok(())
    }
}

const FAULT: Body<'static> = Body::Event(Sample::Fault {
    address: 0x1000,
    code: 0,
    kernel: false,
});
const NEW_TASK: Body<'static> = Body::Event(Sample::NewTask { clone_flags: 0 });

/// Task and CPU time of each event that comes of `records`, which are times in
/// microseconds, tasks and what they say, after the command's `exec`.
fn cpu_times(announced: bool, records: &[(u64, u32, Body<'_>)]) -> Vec<(u32, Option<u64>)> {
    let mut kept = Kept::default();
    kept.header.cpu_times = announced;
    let mut translator = Translator::new(&[], &mut kept, COMMAND);
    let exec = Body::Comm {
        name: b"command",
        exec: true,
    };
    let before = (0, COMMAND, Body::SwitchIn);
    let all = [before, (0, COMMAND, exec)];
    for (time_us, tid, body) in all.iter().chain(records) {
        let record = Record {
            time_ns: BEGAN_NS + time_us * 1000,
            pid: *tid,
            tid: *tid,
            body: body.clone(),
        };
        translator.take(&record).unwrap();
    }
    let times = kept.events.iter().map(|event| (event.task.0, event.ran_us));
    times.collect()
}

#[test]
fn the_command_and_its_child_have_times_of_their_own() {
    let fork = Body::Fork { ptid: COMMAND };
    let records = [
        (10, CHILD, fork),
        (12, COMMAND, NEW_TASK),
        (13, CHILD, Body::SwitchIn),
        (20, CHILD, FAULT),
        (20, COMMAND, Body::SwitchOut),
        (20, STRANGER, Body::SwitchIn),
        (30, CHILD, Body::Exit),
        (31, CHILD, Body::SwitchOut),
        (900, COMMAND, Body::SwitchIn),
        (905, COMMAND, FAULT),
        (906, COMMAND, Body::Exit),
    ];
    let expected = [
        (0, Some(0)),
        (0, Some(12)),
        (1, Some(7)),
        (1, Some(10)),
        (0, Some(8 + 5)),
        (0, Some(1)),
    ];
    assert_eq!(cpu_times(true, &records), expected);
    let unknown: Vec<_> = expected.iter().map(|(task, _)| (*task, None)).collect();
    assert_eq!(cpu_times(false, &records), unknown);
}

#[test]
fn a_task_that_comes_to_a_cpu_and_faults_at_once_has_run_for_nothing() {
    let records = [
        (50, COMMAND, Body::SwitchOut),
        (80, COMMAND, Body::SwitchIn),
        (80, COMMAND, FAULT),
        (80, COMMAND, FAULT),
    ];
    let expected = [(0, Some(0)), (0, Some(50)), (0, Some(0))];
    assert_eq!(cpu_times(true, &records), expected);
}

#[test]
fn after_a_loss_times_are_known_again_from_the_next_event_on() {
    let records = [
        (50, COMMAND, Body::SwitchOut),
        (60, STRANGER, Body::Lost { count: 9 }),
        (80, COMMAND, FAULT),
        (84, COMMAND, FAULT),
    ];
    let expected = [(0, Some(0)), (0, None), (0, Some(4))];
    assert_eq!(cpu_times(true, &records), expected);
}
