use super::*;
use vellum_engine::op::SpaceSlot;

const OP: Op = Op::Create {
    space: SpaceSlot(0),
};

fn step(end: u32, first_wait: u32) -> Step {
    Step {
        end,
        first_wait,
        user_ns: 0,
    }
}

fn program(ops: usize, steps: &[Step], waits: &[Wait]) -> Program {
    let task = TaskStream {
        ops: vec![OP; ops],
        steps: steps.to_vec(),
        waits: waits.to_vec(),
        ..TaskStream::default()
    };
    let other = TaskStream {
        ops: vec![OP; 2],
        steps: vec![step(2, 0)],
        waits: Vec::new(),
        ..TaskStream::default()
    };
    Program {
        tasks: vec![task, other],
    }
}

#[test]
fn steps_have_their_waits_and_may_be_empty() {
    let waits = [
        Wait { task: 1, ops: 1 },
        Wait { task: 1, ops: 2 },
        Wait { task: 1, ops: 2 },
    ];
    let program = program(3, &[step(0, 0), step(2, 1), step(3, 1)], &waits);
    assert_eq!(program.check(), Ok(()));
    assert_eq!(program.ops(), 5);
    let lengths = [0, 1, 2].map(|step| program.tasks[0].waits_of(step).len());
    assert_eq!(lengths, [1, 0, 2]);
    assert_eq!(Program::default().check(), Ok(()));
}

#[test]
fn steps_that_do_not_cover_the_operations_are_refused() {
    for steps in [
        &[][..],
        &[step(2, 0)],
        &[step(2, 0), step(1, 0), step(3, 0)],
        &[step(4, 0)],
    ] {
        let flaw = program(3, steps, &[]).check().expect_err("not covered");
        assert!(matches!(flaw, Flaw::Steps { task: 0, .. }), "{flaw}");
    }
}

#[test]
fn waits_that_belong_to_no_step_are_refused() {
    let waits = [Wait { task: 1, ops: 1 }; 2];
    for steps in [
        &[step(3, 1)][..],
        &[step(1, 0), step(2, 2), step(3, 1)],
        &[step(1, 0), step(3, 3)],
    ] {
        let flaw = program(3, steps, &waits).check().expect_err("misplaced");
        assert!(matches!(flaw, Flaw::Waits { task: 0, .. }), "{flaw}");
    }
}

#[test]
fn waits_that_can_never_hold_are_refused() {
    for (wait, has) in [
        (Wait { task: 1, ops: 3 }, "which has 2"),
        (Wait { task: 2, ops: 0 }, "which does not exist"),
    ] {
        let flaw = program(3, &[step(3, 0)], &[wait]).check();
        let text = flaw.expect_err("it never holds").to_string();
        assert!(
            text.starts_with("task 0, wait 0") && text.ends_with(has),
            "{text}"
        );
    }
}

#[test]
fn waits_of_the_beginning_for_what_comes_after_it_are_refused() {
    let mut program = program(3, &[step(1, 0), step(3, 1)], &[Wait { task: 1, ops: 2 }]);
    program.tasks[0].beginning = 1;
    let flaw = program.check().expect_err("nobody would begin");
    assert!(matches!(flaw, Flaw::Beginning { most: 0, .. }), "{flaw}");
    program.tasks[1].beginning = 1;
    assert_eq!(program.check(), Ok(()));
}

#[test]
fn operations_of_hosted_machines_are_refused() {
    let mut program = program(3, &[step(3, 0)], &[]);
    program.tasks[0].ops[1] = Op::EmptyCaches;
    let flaw = program.check().expect_err("no simulated CPU can");
    assert!(
        flaw.to_string().contains("operation 1: EmptyCaches"),
        "{flaw}"
    );
}
