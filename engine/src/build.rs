//! The instances there are.

use std::sync::Arc;

use vellum::Design;
use vellum::design::Rmap;
use vellum::rmap::{Chains, Partial};
use vellum::table::X86_64;
use vellum_machine::{Arena, Machine, MachineConfig, PatternStore};

use crate::core_engine::CoreEngine;
use crate::op::{Engine, EngineError, pristine_word};

/// What to build.
#[derive(Clone, Debug)]
pub struct Config {
    /// The design in option syntax.
    pub design: String,
    /// Simulated CPUs.
    pub cpus: usize,
    /// Simulated NUMA nodes.
    pub nodes: usize,
    /// RAM of the simulated machine in bytes.
    pub ram_bytes: u64,
}

/// The hosted machine that engines run on: its files read as
/// [`pristine_word`] says until they are written.
///
/// # Errors
/// [`EngineError::Machine`] says what about the configuration does not fit.
pub fn machine(config: &Config, arena: Arc<Arena>) -> Result<Machine, EngineError> {
    let mut machine = MachineConfig::new(config.ram_bytes);
    machine.cpus = config.cpus;
    machine.nodes = config.nodes;
    machine.store = Arc::new(PatternStore::new(4096, pristine_word));
    Machine::new(machine, arena).map_err(|error| EngineError::Machine(error.to_string()))
}

/// Builds an engine in `arena`, which no other engine uses at the time.
///
/// # Errors
/// [`EngineError`] names what was refused, and what would be accepted.
pub fn build(config: &Config, arena: Arc<Arena>) -> Result<Box<dyn Engine>, EngineError> {
    let design =
        Design::parse(&config.design).map_err(|error| EngineError::Design(error.to_string()))?;
    let machine = machine(config, arena)?;
    Ok(match design.rmap {
        Rmap::Chains => Box::new(CoreEngine::<X86_64, Chains>::new(machine, design)?),
        Rmap::Partial => Box::new(CoreEngine::<X86_64, Partial>::new(machine, design)?),
    })
}
