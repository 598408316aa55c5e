//! How a comparison goes about its work: arenas, interruptions, refusals, CPUs.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use crate::engines::{counts_nothing, has_no_pages};
use crate::synthetic::{Bench, Disturbance, Events, FlatLoad, op};
use vellum_engine::{Access, Divergence, Engine, EngineError, Op, OpError, Outcome, SpaceSlot};
use vellum_lab::compare::{
    A, Analysis, B, CONTROL, Clock, CompareError, HostClock, Load, Settings, Verdict, measure,
};
use vellum_lab::replay::{Class, Expectation, Slice, Wait};
use vellum_terminal::progress::{Interrupt, Style};

const STILL: Disturbance = Disturbance {
    jitter: 0.0,
    tail: 0.0,
    luck: 0.0,
    drift: 0.0,
};

#[test]
fn every_arm_lives_in_every_arena() {
    let bench = Bench::new(1, STILL);
    let load = FlatLoad::with_affected_slices(10, None);
    let measured = bench.measure(&load, "1.0", "1.25", 6).expect("measured");
    assert_eq!(measured.passes.len(), 6);
    let built = bench.built.lock().expect("held by nobody");
    // One to see whether B can be built, one to calibrate, two to warm up, three
    // for the pass by class, three for each pass.
    assert_eq!(built.len(), 4 + 3 + 6 * 3);
    // A and its control are both of this design.
    for (design, arms) in [("1.0", [A, CONTROL].as_slice()), ("1.25", &[B])] {
        for (pass, engines) in built[4 + 3..].chunks(3).enumerate() {
            let mine = engines.iter().filter(|engine| engine.0 == design);
            let mut arenas: Vec<usize> = mine.map(|engine| engine.1).collect();
            arenas.sort_unstable();
            let mut expected: Vec<usize> = arms.iter().map(|arm| (arm + pass) % 3).collect();
            expected.sort_unstable();
            assert_eq!(arenas, expected, "pass {pass}");
        }
    }
    let orders: HashSet<Vec<usize>> = (built[4 + 3..].chunks(3).enumerate())
        .map(|(pass, engines)| engines.iter().map(|e| (e.1 + 3 - pass % 3) % 3).collect())
        .collect();
    assert!(orders.len() > 1, "engines are not made in one order only");
    let warmed: Vec<usize> = built[1..4].iter().map(|engine| engine.1).collect();
    assert_eq!(
        warmed,
        [0, 1, 2],
        "every arena is used before timing begins"
    );
    for engines in built[4..].chunks(3) {
        let arenas: HashSet<usize> = engines.iter().map(|engine| engine.1).collect();
        assert_eq!(arenas.len(), 3, "engines alive together share no arena");
    }
}

#[test]
fn slices_have_the_wanted_length_and_hold_every_operation_in_order() {
    let bench = Bench::new(1, STILL);
    let load = FlatLoad::with_affected_slices(40, None);
    let measured = bench.measure(&load, "1.0", "1.0", 1).expect("measured");
    // 40 ms in pieces of 32 operations of 3.125 us.
    assert_eq!(measured.slices, 40);
    let pass = &measured.passes[0];
    assert!(pass.cpu_ns[A].iter().all(|&ns| ns == 1_000_000));
    assert_eq!(pass.counters[A], [("operations", load.len() as u64)]);
    assert_eq!(measured.ops, load.len());
}

#[test]
fn without_disturbance_the_truth_is_exact() {
    let bench = Bench::new(1, STILL);
    let load = FlatLoad::with_affected_slices(250, None);
    let found = bench.analyse(&load, "1.0", "1.25", 6);
    assert_eq!(found.ratio.value, load.truth(1.25));
    assert_eq!(found.control.value, 1.0);
    assert_eq!(found.cpu_ns[A].value, 250e6);
    assert_eq!(found.judged.verdict, Verdict::More);
}

#[test]
fn time_is_told_by_class() {
    let ops = vec![
        op(1000, false),
        op(1000, true),
        op(5000, false),
        op(7000, true),
    ];
    let classes = vec![Class::Fault, Class::Fault, Class::Exit, Class::Fork];
    let load = FlatLoad::new(ops, classes);
    let bench = Bench::new(1, STILL);
    let measured = bench.measure(&load, "1.0", "2.0", 1).expect("measured");
    let time = |arm: usize, class: Class| measured.classes[arm][class as usize];
    assert_eq!(time(A, Class::Fault).cpu_ns, 2000);
    assert_eq!(time(B, Class::Fault).cpu_ns, 3000);
    assert_eq!(time(A, Class::Fault).intervals, 1);
    assert_eq!(time(A, Class::Fault).ops, 2);
    assert_eq!(time(B, Class::Exit).cpu_ns, 5000);
    assert_eq!(time(B, Class::Fork).cpu_ns, 14_000);
    assert_eq!(time(CONTROL, Class::Fork).cpu_ns, 7000);
}

#[test]
fn atomic_operations_are_counted_once_and_disturb_no_time() {
    let mut bench = Bench::new(1, STILL);
    bench.events.count_atomics = true;
    let load = FlatLoad::with_affected_slices(250, None);
    let measured = bench.measure(&load, "1.0", "1.25", 6).expect("measured");
    let ops = load.len() as u64;
    let expected = |loads| vec![("operations", ops), ("atomic loads", loads)];
    let counted = measured.atomics.as_ref().expect("counted");
    assert_eq!(*counted, [expected(4 * ops), expected(5 * ops)]);
    let built = bench.counting.lock().expect("held by nobody");
    assert_eq!(*built, ["1.0", "1.25"], "each design once");
    for pass in &measured.passes {
        assert_eq!(pass.counters[A], [("operations", ops)]);
    }
    let found = Analysis::new(&measured, 0.95, 600, 1);
    assert_eq!(found.ratio.value, load.truth(1.25));
    assert_eq!(found.control.value, 1.0);
}

#[test]
fn without_engines_that_count_atomic_operations_there_are_no_counts() {
    let bench = Bench::new(1, STILL);
    let load = FlatLoad::with_affected_slices(10, None);
    let measured = bench.measure(&load, "1.0", "1.25", 1).expect("measured");
    assert_eq!(measured.atomics, None);
}

#[test]
fn a_pass_that_counts_atomic_operations_can_be_interrupted() {
    let load = FlatLoad::with_affected_slices(10, None);
    for after in [100 + 5, 100 + 10 + 5] {
        let mut bench = Bench::new(1, STILL);
        bench.events.count_atomics = true;
        bench.events.interrupt_after = Some(after);
        let result = bench.measure(&load, "1.0", "1.25", 12);
        assert!(
            matches!(result, Err(CompareError::Interrupted)),
            "interrupted after {after} batches: {result:?}"
        );
        assert_eq!(bench.built.lock().expect("held by nobody").len(), 2);
    }
}

#[test]
fn an_interruption_keeps_the_complete_passes() {
    let mut bench = Bench::new(1, STILL);
    let load = FlatLoad::with_affected_slices(10, None);
    // 100 pieces to calibrate, 20 batches to warm up, 30 by class, 30 in each
    // pass: in the third.
    bench.events.interrupt_after = Some(100 + 20 + 30 + 2 * 30 + 10);
    let measured = bench.measure(&load, "1.0", "1.25", 12).expect("two passes");
    assert!(measured.interrupted);
    assert_eq!(measured.passes.len(), 2);
    assert!(
        measured
            .passes
            .iter()
            .all(|pass| pass.cpu_ns[B].len() == 10)
    );
}

#[test]
fn an_interruption_before_the_first_complete_pass_is_an_error() {
    let load = FlatLoad::with_affected_slices(10, None);
    for after in [1, 100 + 5, 100 + 20 + 5, 100 + 20 + 30 + 5] {
        let mut bench = Bench::new(1, STILL);
        bench.events.interrupt_after = Some(after);
        let result = bench.measure(&load, "1.0", "1.25", 12);
        assert!(
            matches!(result, Err(CompareError::Interrupted)),
            "interrupted after {after} batches: {result:?}"
        );
    }
}

/// Cost of operations that go wrong.
const WRONG_NS: u64 = 3126;

/// A bench whose engines let operations of that cost go wrong, and 3200
/// operations of which those at `indices` do.
fn going_wrong(what: Divergence, indices: impl Iterator<Item = usize>) -> (Bench, FlatLoad) {
    let mut bench = Bench::new(1, STILL);
    bench.events = Events {
        diverge: Some((WRONG_NS, what)),
        ..Events::default()
    };
    let mut ops = vec![op(3125, false); 3200];
    for index in indices {
        ops[index] = op(WRONG_NS, false);
    }
    (bench, FlatLoad::new(ops, vec![Class::Fault; 3200]))
}

#[test]
fn a_machine_or_a_group_without_memory_is_an_error_that_names_the_option() {
    for (what, said) in [
        (
            OpError::OutOfMemory,
            "the simulated machine ran out of memory at operation 1000 of CPU 0; give it more with \
             --ram",
        ),
        (
            OpError::GroupLimit,
            "the group ran out of memory at operation 1000 of CPU 0; give it more with \
             --group-limit",
        ),
    ] {
        let (bench, load) = going_wrong(Divergence::Failed(what), std::iter::once(1000));
        let error = bench
            .measure(&load, "1.0", "1.25", 1)
            .expect_err("out of memory");
        assert!(error.to_string().ends_with(said), "{error}");
    }
}

#[test]
fn more_unexplained_divergences_than_the_limit_are_an_error() {
    let measure = |indices: &mut dyn Iterator<Item = usize>| {
        let (bench, load) = going_wrong(Divergence::AlreadyMapped, indices);
        bench.measure(&load, "1.0", "1.25", 1)
    };
    // The load explains operations with an odd number.
    let measured = measure(&mut (1..3200).step_by(2)).expect("all are explained");
    let tally = &measured.passes[0].tallies[B];
    assert_eq!((tally.explained, tally.unexplained), (1600, 0));
    let measured = measure(&mut (0..3200).step_by(100)).expect("1 % is the limit");
    let tally = &measured.passes[0].tallies[CONTROL];
    assert_eq!((tally.explained, tally.unexplained), (0, 32));
    let error = measure(&mut (46..3200).step_by(94)).expect_err("34 of 3200 is more");
    let text = error.to_string();
    assert!(text.contains("34 of 3200 operations"), "{text}");
    assert!(
        text.contains("operation 46 of CPU 0, page already mapped"),
        "{text}"
    );
}

#[test]
fn a_design_that_is_refused_is_named() {
    let bench = Bench::new(1, STILL);
    let load = FlatLoad::with_affected_slices(1, None);
    let error = bench
        .measure(&load, "1.0", "fast", 1)
        .expect_err("no such design");
    assert_eq!(error.to_string(), "design `fast`");
    let cause = std::error::Error::source(&error).map(ToString::to_string);
    let cause = cause.expect("has a cause");
    assert!(cause.contains("1.25"), "{cause}");
}

#[test]
fn an_empty_workload_is_refused() {
    let bench = Bench::new(1, STILL);
    let load = FlatLoad::new(Vec::new(), Vec::new());
    let result = bench.measure(&load, "1.0", "1.0", 1);
    assert!(matches!(result, Err(CompareError::Empty)));
}

/// Two CPUs that alternate: each segment of one waits for the previous one of
/// the other.
struct PingPong {
    ops: [Vec<Op>; 2],
    classes: Vec<Class>,
    waits: [Vec<Wait>; 2],
}

const SEGMENT: usize = 5;

impl PingPong {
    fn new(segments: usize) -> Self {
        let touch = |page| Op::Touch {
            space: SpaceSlot(0),
            page,
            access: Access::Write,
        };
        let wait = |stream, segments: usize| Wait {
            stream,
            ops: (segments * SEGMENT) as u32,
        };
        let count = segments * SEGMENT;
        Self {
            ops: [
                (0..count as u64).map(touch).collect(),
                (0..count as u64)
                    .map(|page| touch(page + 1_000_000))
                    .collect(),
            ],
            classes: vec![Class::Fault; count],
            waits: [
                (0..segments).map(|segment| wait(1, segment)).collect(),
                (0..segments).map(|segment| wait(0, segment + 1)).collect(),
            ],
        }
    }
}

impl Load for PingPong {
    fn cpus(&self) -> usize {
        2
    }

    fn ops(&self, cpu: usize) -> &[Op] {
        &self.ops[cpu]
    }

    fn classes(&self, _cpu: usize) -> &[Class] {
        &self.classes
    }

    fn expectation(&self, _cpu: usize, _index: usize) -> Expectation {
        Expectation::AsRecorded
    }

    fn slices(&self, target: usize) -> Vec<Slice> {
        let step = target.next_multiple_of(SEGMENT);
        let end = self.classes.len();
        (0..end)
            .step_by(step)
            .map(|start| Slice {
                ops: vec![start..end.min(start + step); 2],
            })
            .collect()
    }

    fn segments_in(&self, _cpu: usize, ops: &Range<usize>) -> Range<usize> {
        ops.start / SEGMENT..ops.end.div_ceil(SEGMENT)
    }

    fn segment(&self, cpu: usize, index: usize) -> (Range<usize>, &[Wait]) {
        let wait = std::slice::from_ref(&self.waits[cpu][index]);
        (index * SEGMENT..(index + 1) * SEGMENT, wait)
    }
}

type Pages = Arc<Mutex<Vec<u64>>>;

/// Notes the order in which pages are touched.
struct Notebook {
    touched: Pages,
}

impl Engine for Notebook {
    fn design(&self) -> String {
        "notebook".to_owned()
    }

    fn cpus(&self) -> usize {
        2
    }

    fn run(&self, _cpu: usize, ops: &[Op], _outcome: &mut Outcome) {
        let mut touched = self.touched.lock().expect("no test panics with it held");
        touched.extend(ops.iter().filter_map(|op| match op {
            Op::Touch { page, .. } => Some(*page),
            _ => None,
        }));
    }

    has_no_pages!();
    counts_nothing!();
}

#[test]
fn two_cpus_wait_for_each_other_as_the_workload_says() {
    const SEGMENTS: usize = 60;
    let load = PingPong::new(SEGMENTS);
    let notebooks: Mutex<Vec<Pages>> = Mutex::default();
    let builder = |_: &str, _: usize| -> Result<Box<dyn Engine>, EngineError> {
        let touched = Pages::default();
        let mut notebooks = notebooks.lock().expect("no test panics with it held");
        notebooks.push(Arc::clone(&touched));
        Ok(Box::new(Notebook { touched }))
    };
    let settings = Settings {
        designs: vec![String::new(), String::new()],
        passes: 2,
        slice_us: 1,
        seed: 1,
        style: Style::Quiet,
        divergence_limit: 0.0,
        by_class: true,
        only_needed: false,
        entries: false,
    };
    let clock: &dyn Clock = &HostClock::new();
    let measured = measure(&load, &builder, clock, &settings, &Interrupt::manual());
    assert_eq!(measured.expect("measured").cpus, 2);
    let expected: Vec<u64> = (0..SEGMENTS as u64)
        .flat_map(|segment| {
            let pages = segment * SEGMENT as u64..(segment + 1) * SEGMENT as u64;
            pages.clone().chain(pages.map(|page| page + 1_000_000))
        })
        .collect();
    let notebooks = notebooks.lock().expect("no test panics with it held");
    assert_eq!(notebooks.len(), 4 + 3 + 2 * 3);
    // The first only showed that it can be built.
    for touched in notebooks.iter().skip(1) {
        assert_eq!(
            *touched.lock().expect("no test panics with it held"),
            expected
        );
    }
}
