//! Engines whose runs are sampled.

use std::sync::Arc;

use vellum_engine::{Access, Engine, FileSlot, Leaf, Op, OpError, Outcome, Pages, SpaceSlot};
use vellum_profile::sample::{Arm, Profiler, SampleError};

/// A profiler that samples engines `rate_hz` times a second on each thread.
///
/// # Errors
/// As [`Profiler::start`].
pub fn profiler(rate_hz: u32) -> Result<Profiler, SampleError> {
    Profiler::start(rate_hz, module_path!())
}

/// An engine that does what `engine` does, under sampling: what [`Engine::run`]
/// does counts for `arm`. The profiler is one of [`profiler`].
pub fn attach(profiler: &Profiler, arm: usize, engine: Arc<dyn Engine>) -> Arc<dyn Engine> {
    let arm = profiler.arm(arm);
    Arc::new(Attached { arm, engine })
}

/// An engine under sampling.
struct Attached {
    arm: Arm,
    engine: Arc<dyn Engine>,
}

impl Engine for Attached {
    fn run(&self, cpu: usize, ops: &[Op], outcome: &mut Outcome) {
        self.arm.run(|| self.engine.run(cpu, ops, outcome));
    }

    fn design(&self) -> String {
        self.engine.design()
    }

    fn cpus(&self) -> usize {
        self.engine.cpus()
    }

    fn pages(&self) -> Pages {
        self.engine.pages()
    }

    fn store(&self, cpu: usize, space: SpaceSlot, address: u64, value: u64) -> Result<(), OpError> {
        self.engine.store(cpu, space, address, value)
    }

    fn load(
        &self,
        cpu: usize,
        space: SpaceSlot,
        address: u64,
        access: Access,
    ) -> Result<u64, OpError> {
        self.engine.load(cpu, space, address, access)
    }

    fn peek(&self, cpu: usize, space: SpaceSlot, address: u64) -> Option<u64> {
        self.engine.peek(cpu, space, address)
    }

    fn leaves(&self, space: SpaceSlot, leaf: &mut dyn FnMut(Leaf)) {
        self.engine.leaves(space, leaf);
    }

    fn sync(&self, cpu: usize) -> Result<(), OpError> {
        self.engine.sync(cpu)
    }

    fn stored_word(&self, file: FileSlot, offset: u64) -> Option<u64> {
        self.engine.stored_word(file, offset)
    }

    fn file_word(&self, file: FileSlot, offset: u64) -> Option<u64> {
        self.engine.file_word(file, offset)
    }

    fn clear(&self, cpu: usize) {
        self.engine.clear(cpu);
    }

    fn audit(&self) -> Result<(), String> {
        self.engine.audit()
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        self.engine.counters()
    }

    fn memory(&self) -> Vec<(&'static str, u64, u64)> {
        self.engine.memory()
    }

    fn mapping_histogram(&self) -> Vec<u64> {
        self.engine.mapping_histogram()
    }
}
