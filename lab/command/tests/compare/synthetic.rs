//! A workload, engines and a clock without any real time in them.
//!
//! Every operation has a cost in nanoseconds. An engine advances a shared
//! virtual clock by the cost of what it executes, made slower or noisier as its
//! design says, and the comparison reads that clock. So every figure follows
//! from a seed.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::engines::has_no_pages;
use vellum_engine::{Access, Divergence, Engine, EngineError, Op, Outcome, SpaceSlot};
use vellum_lab::compare::{
    Analysis, Builder, Clock, CompareError, Load, Measurement, Settings, measure,
};
use vellum_lab::replay::{Class, Expectation, Slice, Wait};
use vellum_terminal::progress::{Interrupt, Style};

/// A generator whose sequence this file fixes (xorshift64*, seeded by splitmix64).
pub struct Noise(u64);

impl Noise {
    pub fn new(seed: u64) -> Self {
        let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        Self((z ^ (z >> 31)) | 1)
    }

    fn bits(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// In `(0, 1)`.
    pub fn uniform(&mut self) -> f64 {
        ((self.bits() >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }

    /// Mean 0, standard deviation 1.
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * self.uniform().ln()).sqrt();
        radius * (std::f64::consts::TAU * self.uniform()).cos()
    }

    /// Positive, with a tail so heavy that it has no mean.
    pub fn half_cauchy(&mut self) -> f64 {
        (std::f64::consts::FRAC_PI_2 * self.uniform()).tan()
    }
}

/// How measured times differ from true costs.
#[derive(Clone, Copy, Default)]
pub struct Disturbance {
    /// Standard deviation of a factor on each slice.
    pub jitter: f64,
    /// Scale of a heavy-tailed addition to each slice, as a share of it.
    pub tail: f64,
    /// Standard deviation of a factor on a whole engine's life: luck with the
    /// placement of its memory.
    pub luck: f64,
    /// Amplitude of a slow change of the machine's speed, common to all.
    pub drift: f64,
}

/// Virtual time. The drift depends on how much was executed before.
pub struct VirtualClock {
    now_ns: AtomicU64,
}

impl Clock for VirtualClock {
    fn cpu_ns(&self) -> u64 {
        self.now_ns.load(Ordering::SeqCst)
    }

    fn wall_ns(&self) -> u64 {
        self.cpu_ns()
    }
}

/// Operations of one simulated CPU, or of several without waits.
pub struct FlatLoad {
    ops: Vec<Op>,
    classes: Vec<Class>,
}

/// The space of operations that the slow design is slow at.
pub const AFFECTED: SpaceSlot = SpaceSlot(1);

/// Builds an operation of a known cost.
pub fn op(cost_ns: u64, affected: bool) -> Op {
    Op::Touch {
        space: if affected { AFFECTED } else { SpaceSlot(0) },
        page: cost_ns,
        access: Access::Write,
    }
}

fn cost_ns(op: &Op, slow: f64) -> f64 {
    match *op {
        Op::Touch { space, page, .. } if space == AFFECTED => page as f64 * slow,
        Op::Touch { page, .. } => page as f64,
        _ => 0.0,
    }
}

impl FlatLoad {
    pub fn new(ops: Vec<Op>, classes: Vec<Class>) -> Self {
        Self { ops, classes }
    }

    /// `slices` slices of 1 ms in operations of `1 ms / 320`, of which every
    /// 25th and the one after are affected (8 %). After every `heavy`th slice
    /// comes a single operation of 10 ms.
    pub fn with_affected_slices(slices: usize, heavy: Option<usize>) -> Self {
        let mut ops = Vec::new();
        for slice in 0..slices {
            let affected = slice % 25 < 2;
            ops.extend(std::iter::repeat_n(op(3125, affected), 320));
            if heavy.is_some_and(|every| slice % every == every - 1) {
                ops.push(op(10_000_000, affected));
            }
        }
        let classes = vec![Class::Fault; ops.len()];
        Self { ops, classes }
    }

    /// The true ratio of a design that is `slow` times slower where affected.
    pub fn truth(&self, slow: f64) -> f64 {
        let sum = |slow| -> f64 { self.ops.iter().map(|op| cost_ns(op, slow)).sum() };
        sum(slow) / sum(1.0)
    }
}

impl Load for FlatLoad {
    fn cpus(&self) -> usize {
        1
    }

    fn ops(&self, _cpu: usize) -> &[Op] {
        &self.ops
    }

    fn classes(&self, _cpu: usize) -> &[Class] {
        &self.classes
    }

    fn expectation(&self, _cpu: usize, index: usize) -> Expectation {
        match index % 2 {
            0 => Expectation::AsRecorded,
            _ => Expectation::Repeated,
        }
    }

    fn slices(&self, target: usize) -> Vec<Slice> {
        let end = self.ops.len();
        let slice = |start: usize| {
            let ops = start..end.min(start + target);
            Slice {
                ops: Vec::from([ops]),
            }
        };
        (0..end).step_by(target).map(slice).collect()
    }

    fn segments_in(&self, _cpu: usize, _ops: &Range<usize>) -> Range<usize> {
        unreachable!("one CPU has no segments to wait for")
    }

    fn segment(&self, _cpu: usize, _index: usize) -> (Range<usize>, &[Wait]) {
        unreachable!("one CPU has no segments to wait for")
    }
}

/// What happens to an engine besides executing operations.
#[derive(Clone, Default)]
pub struct Events {
    /// Ask for an interruption after this many batches over all engines.
    pub interrupt_after: Option<usize>,
    /// Let every operation that costs this much diverge in this way.
    pub diverge: Option<(u64, Divergence)>,
    /// There are engines that count atomic operations: as many loads for each
    /// operation as four times the design's factor.
    pub count_atomics: bool,
}

/// Everything that engines of one test share.
pub struct Bench {
    pub clock: Arc<VirtualClock>,
    pub interrupt: Interrupt,
    pub disturbance: Disturbance,
    pub events: Events,
    pub seed: u64,
    /// Arena of every engine built, in order.
    pub built: Mutex<Vec<(String, usize)>>,
    /// Design of every counting engine built, in order.
    pub counting: Mutex<Vec<String>>,
    batches: Arc<AtomicUsize>,
}

impl Bench {
    pub fn new(seed: u64, disturbance: Disturbance) -> Self {
        Self {
            clock: Arc::new(VirtualClock {
                now_ns: AtomicU64::new(0),
            }),
            interrupt: Interrupt::manual(),
            disturbance,
            events: Events::default(),
            seed,
            built: Mutex::default(),
            counting: Mutex::default(),
            batches: Arc::default(),
        }
    }

    /// Measures designs `a` and `b`, each a slow-down factor such as `"1.25"`.
    pub fn measure(
        &self,
        load: &dyn Load,
        a: &str,
        b: &str,
        passes: usize,
    ) -> Result<Measurement, CompareError> {
        let settings = Settings {
            designs: vec![a.to_owned(), b.to_owned()],
            passes,
            slice_us: 1000,
            seed: self.seed,
            style: Style::Quiet,
            divergence_limit: 0.01,
            by_class: true,
            only_needed: false,
            entries: false,
        };
        measure(load, self, &*self.clock, &settings, &self.interrupt)
    }

    pub fn analyse(&self, load: &dyn Load, a: &str, b: &str, passes: usize) -> Analysis {
        let measured = self.measure(load, a, b, passes);
        let measured = measured.unwrap_or_else(|error| panic!("seed {}: {error}", self.seed));
        Analysis::new(&measured, 0.95, 600, self.seed)
    }

    fn engine(
        &self,
        design: &str,
        number: usize,
        counts_atomics: bool,
    ) -> Result<Box<dyn Engine>, EngineError> {
        let slow: f64 = design.parse().map_err(|_| {
            EngineError::Design(format!("`{design}` is no factor; write one such as 1.25"))
        })?;
        let mut noise = Noise::new(self.seed.wrapping_mul(10_007) + number as u64);
        let luck = (self.disturbance.luck * noise.normal()).exp();
        Ok(Box::new(SyntheticEngine {
            counts_atomics,
            design: design.to_owned(),
            slow,
            luck,
            noise: Mutex::new(noise),
            clock: Arc::clone(&self.clock),
            disturbance: self.disturbance,
            events: self.events.clone(),
            interrupt: self.interrupt.clone(),
            batches: Arc::clone(&self.batches),
            executed: AtomicU64::new(0),
        }))
    }
}

impl Builder for Bench {
    fn build(&self, design: &str, arena: usize) -> Result<Box<dyn Engine>, EngineError> {
        let mut built = self.built.lock().expect("no test panics with it held");
        let engine = self.engine(design, built.len() + 1, false)?;
        built.push((design.to_owned(), arena));
        Ok(engine)
    }

    fn build_counting(&self, design: &str) -> Result<Option<Box<dyn Engine>>, EngineError> {
        if !self.events.count_atomics {
            return Ok(None);
        }
        let mut counting = self.counting.lock().expect("no test panics with it held");
        counting.push(design.to_owned());
        self.engine(design, 0, true).map(Some)
    }
}

struct SyntheticEngine {
    counts_atomics: bool,
    design: String,
    slow: f64,
    luck: f64,
    noise: Mutex<Noise>,
    clock: Arc<VirtualClock>,
    disturbance: Disturbance,
    events: Events,
    interrupt: Interrupt,
    batches: Arc<AtomicUsize>,
    executed: AtomicU64,
}

impl Engine for SyntheticEngine {
    fn design(&self) -> String {
        format!("slow={}", self.design)
    }

    fn cpus(&self) -> usize {
        1
    }

    fn run(&self, _cpu: usize, ops: &[Op], outcome: &mut Outcome) {
        let batch = self.batches.fetch_add(1, Ordering::SeqCst) + 1;
        if self
            .events
            .interrupt_after
            .is_some_and(|after| batch >= after)
        {
            self.interrupt.request();
        }
        if let Some((cost, what)) = self.events.diverge {
            let odd = |(_, op): &(u32, &Op)| cost_ns(op, 1.0) == cost as f64;
            let found = (0u32..).zip(ops).filter(odd);
            outcome
                .divergences
                .extend(found.map(|(index, _)| (index, what)));
        }
        self.executed.fetch_add(ops.len() as u64, Ordering::SeqCst);
        let cost: f64 = ops.iter().map(|op| cost_ns(op, self.slow)).sum();
        let mut noise = self.noise.lock().expect("no test panics with it held");
        let disturbance = &self.disturbance;
        let now = self.clock.now_ns.load(Ordering::SeqCst) as f64;
        // A full swing every 400 ms of virtual time: over a hundred slices, and
        // twice in a pass of 250 slices under three arms.
        let drift = 1.0 + disturbance.drift * (now / 400e6 * std::f64::consts::TAU).sin();
        let jitter = (disturbance.jitter * noise.normal()).exp();
        let tail = match disturbance.tail {
            0.0 => 0.0,
            scale => scale * noise.half_cauchy(),
        };
        let measured = cost * self.luck * drift * (jitter + tail);
        self.clock
            .now_ns
            .fetch_add(measured.round() as u64, Ordering::SeqCst);
    }

    has_no_pages!();

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let executed = self.executed.load(Ordering::SeqCst);
        let mut counters = vec![("operations", executed)];
        if self.counts_atomics {
            let loads = executed as f64 * 4.0 * self.slow;
            counters.push(("atomic loads", loads as u64));
        }
        counters
    }

    fn memory(&self) -> Vec<(&'static str, u64, u64)> {
        vec![("nothing", 0, 4096)]
    }
}
