//! An engine whose CPUs are simulated in virtual time and whose pages can be verified: it has
//! the bytes of pages, an MMU with a TLB for each CPU, and a backing store, as the engines on a
//! hosted machine have.

use std::cell::Cell;

use vellum::platform::{CpuId, NodeId};
use vellum_description::Description;
use vellum_engine::{Config, Engine, EngineError};
use vellum_engine_counted::{Scheduled, Scheduler, build_scheduled};
use vellum_sim::{Cpu, Filled, Homes, PlacedHeap, Simulation, with_cpu};

use crate::run::{HEAP_BYTES, START_WITHIN_NS, ScaleError};

/// How long a CPU looks away that waits for a lock of the hosted machine.
const MOMENT_NS: u64 = 100;
/// Who runs while no CPU does.
const NOBODY: u64 = u64::MAX;

/// The simulated CPUs as tasks of the machine.
static SCHEDULER: Scheduler = Scheduler {
    yield_now: pass_a_moment,
    step: pass_a_moment,
    current_task: || with_cpu(|cpu| u64::from(cpu.id().0)).unwrap_or(NOBODY),
    park: || with_cpu(|cpu| cpu.sleep()).unwrap_or(()),
    unpark: |task| {
        if let Ok(cpu) = u16::try_from(task) {
            with_cpu(|other| other.wake(CpuId(cpu)));
        }
    },
};

fn pass_a_moment() {
    with_cpu(|cpu| cpu.compute_ns(MOMENT_NS));
}

/// An engine on simulated CPUs. It is used by the thread that made it.
pub struct Verifiable {
    machine: Description,
    cpus: usize,
    /// There until this is dropped.
    scheduled: Option<Scheduled>,
    heap: Filled,
    /// A run has failed, in the middle of whatever.
    has_failed: Cell<bool>,
}

impl Verifiable {
    /// An engine on the first CPUs of a machine.
    ///
    /// # Errors
    /// [`ScaleError`]: there is no such design, or no memory for it.
    pub fn new(machine: &Description, config: &Config) -> Result<Verifiable, ScaleError> {
        Simulation::new(machine, config.cpus)?;
        let build = || build_scheduled(config, &SCHEDULER);
        let (built, heap) = PlacedHeap::fill(HEAP_BYTES, build)?;
        let scheduled = built.map_err(|error| match error {
            EngineError::Design(why) => ScaleError::Design(why),
            EngineError::Machine(why) => ScaleError::Manager {
                cpus: config.cpus,
                why,
            },
        })?;
        Ok(Verifiable {
            machine: machine.clone(),
            cpus: config.cpus,
            scheduled: Some(scheduled),
            heap,
            has_failed: Cell::new(false),
        })
    }

    /// The engine. Outside of [`Verifiable::run`] it is used as by CPU 0, in no time.
    pub fn engine(&self) -> &dyn Engine {
        match &self.scheduled {
            Some(scheduled) => &*scheduled.engine,
            None => unreachable!("it is there until the end"),
        }
    }

    /// Does `work` on each CPU, from caches that are empty. Returns how long that takes, in
    /// picoseconds. What is done with the bytes of pages takes no time.
    ///
    /// # Errors
    /// [`ScaleError::Run`]: CPUs wait for each other for good. Then the engine cannot be used any
    /// more.
    pub fn run(&self, seed: u64, work: impl Fn(&Cpu<'_>)) -> Result<u64, ScaleError> {
        let simulation = Simulation::new(&self.machine, self.cpus)?;
        let mut simulation = simulation.seed(seed, START_WITHIN_NS).hosted();
        if let Some(Scheduled { ram, nodes, .. }) = &self.scheduled {
            let each = ram.len() / nodes;
            let homes = (0..*nodes).map(|node| (node * each, NodeId(node as u16)));
            let homes = Homes::Ranges(homes.collect());
            simulation.place("ram", ram.cast::<u8>(), ram.len(), homes)?;
        }
        let heap = self.heap;
        simulation.place("heap", heap.start, heap.bytes, Homes::Node(NodeId(0)))?;
        self.has_failed.set(true);
        let elapsed = simulation.run(work)?.elapsed;
        self.has_failed.set(false);
        Ok(elapsed)
    }
}

impl Drop for Verifiable {
    fn drop(&mut self) {
        if self.has_failed.get() {
            // Somebody who will not go on is in the middle of it.
            std::mem::forget(self.scheduled.take());
            return;
        }
        self.scheduled = None;
        // SAFETY: the engine, which is all that was allocated there, has been dropped.
        unsafe { self.heap.discard() };
    }
}
