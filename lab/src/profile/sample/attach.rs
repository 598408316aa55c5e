//! The engine that marks when a thread is inside another one.

use std::sync::Arc;

use vellum_engine::{Access, Engine, FileSlot, Op, OpError, Outcome, Pages, SpaceSlot};

use super::{Shared, lock};

/// An engine under sampling.
pub(super) struct Attached {
    shared: Arc<Shared>,
    /// The arm, counted from 1.
    tag: u32,
    engine: Arc<dyn Engine>,
}

impl Attached {
    pub(super) fn new(shared: Arc<Shared>, arm: usize, engine: Arc<dyn Engine>) -> Self {
        Self {
            shared,
            tag: arm as u32 + 1,
            engine,
        }
    }
}

impl Engine for Attached {
    fn run(&self, cpu: usize, ops: &[Op], outcome: &mut Outcome) {
        let Some(sampled) = self.shared.sampled_if_possible() else {
            return self.engine.run(cpu, ops, outcome);
        };
        sampled.inside(self.tag, || self.engine.run(cpu, ops, outcome));
        if sampled.is_half_full() {
            sampled.drain(&mut lock(&self.shared.counts));
        }
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

    fn resident(&self, space: SpaceSlot, page: &mut dyn FnMut(u64)) {
        self.engine.resident(space, page);
    }

    fn sync(&self, cpu: usize) -> Result<(), OpError> {
        self.engine.sync(cpu)
    }

    fn stored_word(&self, file: FileSlot, offset: u64) -> Option<u64> {
        self.engine.stored_word(file, offset)
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
