//! Programs of many tasks that do everything: fork, share spaces, exec, map, fault, use files
//! and wait for each other.

use vellum_engine::op::{Access, Backing, FileSlot, Op, Prot, Sharing, SpaceSlot};
use vellum_scale::replay::{Program, Request, Step, TaskStream, Wait, replay};
use vellum_sim::Random;

use crate::{PAGE, check, create, exit, machine, map_pages, request, touch};

const PAGES: u64 = 64;
const FILE: FileSlot = FileSlot(1);

/// What is known of a program while it is made: what each task has to wait for.
struct Maker {
    random: Random,
    program: Program,
}

impl Maker {
    /// Ends a step, which began with `waits` and the task's own computing.
    fn step(&mut self, task: usize, waits: &[Wait], ops: &[Op]) -> Wait {
        let user_ns = self.random.below(40_000);
        let stream = &mut self.program.tasks[task];
        let first_wait = stream.waits.len() as u32;
        stream.waits.extend(waits);
        stream.ops.extend(ops);
        let end = stream.ops.len() as u32;
        stream.steps.push(Step {
            end,
            first_wait,
            user_ns,
        });
        let task = task as u32;
        Wait { task, ops: end }
    }

    fn task(&mut self) -> usize {
        self.program.tasks.push(TaskStream::default());
        self.program.tasks.len() - 1
    }

    fn faults(&mut self, space: u32, count: u64) -> Vec<Op> {
        let draw = |_| touch(space, self.random.below(PAGES));
        (0..count).map(draw).collect()
    }

    /// A task that works in a space, which is there when `born` holds. Returns when it has
    /// left the space.
    fn worker(&mut self, space: u32, born: Wait, is_thread: bool) -> Wait {
        let task = self.task();
        let faults = self.faults(space, 12);
        self.step(task, &[born], &faults);
        let file = map_file(space, 1 + task as u64);
        let read = Op::FileRead {
            file: FILE,
            page: 0,
            pages: 4,
        };
        self.step(task, &[], &[file, read]);
        let space = match is_thread {
            true => space,
            false => {
                let new = space + 1000;
                let (old, new_slot) = (SpaceSlot(space), SpaceSlot(new));
                let exec = Op::Exec { old, new: new_slot };
                self.step(task, &[], &[exec, map_pages(new, PAGES)]);
                let faults = self.faults(new, 12);
                self.step(task, &[], &faults);
                new
            }
        };
        self.step(task, &[], &[exit(space)])
    }
}

fn map_file(space: u32, part: u64) -> Op {
    Op::Map {
        space: SpaceSlot(space),
        page: PAGE + part * 2 * PAGES,
        pages: 16,
        prot: Prot {
            read: true,
            write: false,
            execute: true,
        },
        sharing: Sharing::Private,
        backing: Backing::File {
            file: FILE,
            page: 0,
        },
        grows_down: false,
    }
}

/// Parents that each fork children and start threads, and end when these have.
fn program(seed: u64, parents: u32, children: u32) -> Program {
    let mut maker = Maker {
        random: Random::new(seed),
        program: Program::default(),
    };
    let first = maker.task();
    let open = Op::FileOpen {
        file: FILE,
        pages: 16,
    };
    let opened = maker.step(first, &[], &[open]);
    for parent in 0..parents {
        let task = maker.task();
        let space = parent * 100;
        let begin = [create(space), map_pages(space, PAGES)];
        maker.step(task, &[opened], &begin);
        let mut ended = Vec::new();
        for child in 1..=children {
            let faults = maker.faults(space, 6);
            maker.step(task, &[], &faults);
            let is_thread = child % 3 == 0;
            let (parent, slot) = (SpaceSlot(space), SpaceSlot(space + child));
            let (op, used) = match is_thread {
                true => (Op::Share { space: parent }, space),
                false => (
                    Op::Fork {
                        parent,
                        child: slot,
                    },
                    space + child,
                ),
            };
            let born = maker.step(task, &[], &[op]);
            ended.push(maker.worker(used, born, is_thread));
        }
        let read = Op::Touch {
            space: SpaceSlot(space),
            page: PAGE,
            access: Access::Read,
        };
        maker.step(task, &ended, &[read, exit(space)]);
    }
    maker.program
}

#[test]
fn every_design_carries_out_a_mixed_program_on_any_number_of_cpus() {
    let machine = machine();
    let program = program(3, 6, 6);
    for design in vellum::design::variants("rmap") {
        for cpus in [1, 3, 48] {
            let request = Request {
                design: &design,
                ..request(&machine, &program, cpus)
            };
            let replayed = replay(&request).unwrap_or_else(|error| panic!("{design}: {error}"));
            check(&replayed, &program);
            for (how, count) in &replayed.divergences {
                let expected = vellum_engine::op::Divergence::AlreadyMapped;
                assert_eq!(*how, expected, "{design} on {cpus}: {count}");
            }
        }
    }
}

/// Without threads on a core user time is what the program says, and the replay takes no
/// less than the CPUs need for the work, and no less than any task.
#[test]
fn more_cpus_take_less_time_and_the_same_user_time() {
    let program = program(5, 8, 8);
    let steps = program.tasks.iter().flat_map(|task| &task.steps);
    let user_ns: u64 = steps.map(|step| step.user_ns).sum();
    let mut before = u64::MAX;
    for cpus in [1, 2, 4, 8] {
        let replayed = crate::replayed(&program, cpus);
        check(&replayed, &program);
        // Rounded down for each CPU.
        assert!(user_ns - replayed.user_ns < 8, "{}", replayed.user_ns);
        let least = (replayed.user_ns + replayed.system_ns) / cpus as u64;
        assert!(replayed.elapsed_ns >= least);
        let elapsed = replayed.elapsed_ns;
        assert!(
            elapsed < before / 10 * 7,
            "{cpus} CPUs: {elapsed} after {before}"
        );
        before = elapsed;
    }
}
