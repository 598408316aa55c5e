//! The instances there are.

use std::sync::Arc;

use vellum::design::{Rmap, TableFormat};
use vellum::rmap::{Family, ReverseMap};
use vellum::table::{Format, X86_64};
use vellum::{Design, with_format, with_rmap};
use vellum_machine::mmu::walker;
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

/// The hosted machine that engines run on, with the pages and the MMU of the
/// design's format: its files read as [`pristine_word`] says until they are
/// written.
///
/// # Errors
/// [`EngineError::Design`] if the design is not one;
/// [`EngineError::Machine`] says what about the configuration does not fit.
pub fn machine(config: &Config, arena: Arc<Arena>) -> Result<Machine, EngineError> {
    let format = parse(config)?.format.name();
    let walker = walker(format).ok_or_else(|| {
        EngineError::Machine(format!("the simulated MMU cannot walk {format} tables"))
    })?;
    let mut machine = MachineConfig::new(config.ram_bytes).with_walker(walker);
    machine.cpus = config.cpus;
    machine.nodes = config.nodes;
    machine.store = Arc::new(PatternStore::new(1 << walker.frame_shift(), pristine_word));
    Machine::new(machine, arena).map_err(|error| EngineError::Machine(error.to_string()))
}

fn parse(config: &Config) -> Result<Design, EngineError> {
    Design::parse(&config.design).map_err(|error| EngineError::Design(error.to_string()))
}

/// Builds an engine in `arena`, which no other engine uses at the time.
///
/// # Errors
/// [`EngineError`] names what was refused, and what would be accepted.
pub fn build(config: &Config, arena: Arc<Arena>) -> Result<Box<dyn Engine>, EngineError> {
    let design = parse(config)?;
    let instance = match design.format {
        TableFormat::X86_64 => with_rmap!(design.rmap, R => new::<X86_64, R>),
        format if design.rmap != OTHERS => return Err(no_instance(format)),
        format => with_format!(format, F => new::<F, Family>),
    };
    instance(machine(config, arena)?, design)
}

/// The reverse-mapping design of the formats other than x86-64.
const OTHERS: Rmap = Rmap::Family;

/// Makes one of the instances.
fn new<F: Format, R: ReverseMap>(
    machine: Machine,
    design: Design,
) -> Result<Box<dyn Engine>, EngineError> {
    Ok(Box::new(CoreEngine::<F, R>::new(machine, design)?))
}

fn no_instance(format: TableFormat) -> EngineError {
    EngineError::Design(format!(
        "format={} exists with rmap=family only: leave rmap= out, or use format=x86-64, \
         which exists with every rmap=",
        format.name()
    ))
}
