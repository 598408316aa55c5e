//! What was there when the recording began is made, and takes no time that is counted.

use vellum_scale::replay::{Program, TaskStream, Wait};

use crate::{MS, check_times, create, exit, is_about, map, replayed, task, touch};

/// A task that makes eight pages, computes, makes eight more and ends.
fn one(space: u32, waits: &[Wait], user_ns: u64) -> TaskStream {
    let pages = |from: u64| (from..from + 8).map(move |page| touch(space, page));
    let mut before = vec![create(space), map(space)];
    before.extend(pages(0));
    let mut after: Vec<_> = pages(8).collect();
    after.push(exit(space));
    task(&[(&[], 0, &before), (waits, user_ns, &after)])
}

fn begun(mut stream: TaskStream, steps: usize) -> TaskStream {
    stream.beginning = steps;
    stream
}

#[test]
fn time_is_counted_from_when_all_tasks_have_made_their_beginning() {
    for cpus in [1, 2, 4] {
        let all = |steps: usize| Program {
            tasks: (0..3)
                .map(|space| begun(one(space, &[], 5 * MS), steps))
                .collect(),
        };
        let (whole, part) = (replayed(&all(0), cpus), replayed(&all(1), cpus));
        assert_eq!(whole.ops, part.ops);
        assert_eq!((whole.user_ns, part.user_ns), (15 * MS, 15 * MS));
        assert!(part.system_ns < whole.system_ns, "{cpus}: {part:?}");
        check_times(&part);
        let faults = |at: usize| (whole.counters[at], part.counters[at]);
        assert_eq!(faults(0), (("faults", 48), ("faults", 48)));
        assert!(part.profile.total().lost < whole.profile.total().lost);
    }
}

#[test]
fn who_has_no_beginning_waits_for_that_of_others_and_then_for_what_it_waits_for() {
    let wait = Wait { task: 0, ops: 19 };
    let mut long = one(0, &[], 3 * MS);
    long.steps[0].user_ns = 20 * MS;
    let program = Program {
        tasks: vec![begun(long, 1), one(1, &[wait], 4 * MS)],
    };
    let replayed = replayed(&program, 2);
    check_times(&replayed);
    assert_eq!(replayed.user_ns, 7 * MS, "of the beginning nothing counts");
    assert!(is_about(replayed.elapsed_ns, 7 * MS, 2), "{replayed:?}");
    assert!(is_about(replayed.ended_at_ns[0], 3 * MS, 2));
}

#[test]
fn a_recording_that_is_all_beginning_takes_no_time() {
    let program = Program {
        tasks: vec![begun(one(0, &[], MS), 2), begun(one(1, &[], MS), 2)],
    };
    let replayed = replayed(&program, 2);
    assert_eq!((replayed.user_ns, replayed.ops), (0, program.ops()));
    assert!(replayed.elapsed_ns < MS / 10, "{replayed:?}");
}
