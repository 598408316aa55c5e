//! The instances there are.

use std::fmt::Display;
use std::sync::Arc;

use vellum::Design;
use vellum::design::TableFormat;
use vellum::rmap::ReverseMap;
use vellum::table::Format;
use vellum_machine::mmu::walker;
use vellum_machine::store::{CompressedArea, CompressedStore, Contents, DeviceModel, TimedStore};
use vellum_machine::{Arena, BackingStore, Machine, MachineConfig, PatternStore, Scheduler};

use crate::core_engine::{CoreEngine, SWAP_PER_FRAME, SWAP_STORE};
use crate::op::{Engine, EngineError, pristine_word};
use crate::{ALL, with_instance};

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
    /// How much of it is low memory; the rest is reached through windows. All that
    /// the format can have, if it is not said.
    pub low_bytes: Option<u64>,
    /// The device that files and swap are on, if its time is to be counted
    /// ([`Engine::counters`]).
    pub device: Option<DeviceModel>,
    /// How much of the RAM is set aside for a compressed store in front of swap, in percent, if
    /// there is to be one.
    pub compressed: Option<u8>,
    /// What the group of all spaces may have, in bytes, if they are to be in one.
    pub group_bytes: Option<u64>,
}

impl Config {
    /// A machine of one node, with as much low memory as the format can have, whose device takes
    /// no time.
    pub fn new(design: &str, cpus: usize, ram_bytes: u64) -> Config {
        Config {
            design: design.to_owned(),
            cpus,
            nodes: 1,
            ram_bytes,
            low_bytes: None,
            device: None,
            compressed: None,
            group_bytes: None,
        }
    }
}

/// Where an engine runs.
pub struct Host {
    /// The memory that is its RAM, which no other engine uses at the time.
    pub arena: Arc<Arena>,
    /// Who runs its CPUs, if they are not host threads.
    pub scheduler: Option<&'static Scheduler>,
}

impl From<Arc<Arena>> for Host {
    fn from(arena: Arc<Arena>) -> Host {
        Host {
            arena,
            scheduler: None,
        }
    }
}

/// The hosted machine that engines run on, with the pages and the MMU of the
/// design's format: its files read as [`pristine_word`] says until they are
/// written.
///
/// # Errors
/// [`EngineError::Design`] if the design is not one;
/// [`EngineError::Machine`] says what about the configuration does not fit.
pub fn machine(config: &Config, host: impl Into<Host>) -> Result<Machine, EngineError> {
    let Host { arena, scheduler } = host.into();
    let format = parse(config)?.format.name();
    let walker = walker(format).ok_or_else(|| {
        EngineError::Machine(format!("the simulated MMU cannot walk {format} tables"))
    })?;
    let refused = |error: &dyn Display| EngineError::Machine(error.to_string());
    let frame_mask = (1 << walker.frame_shift()) - 1;
    let percent = u64::from(config.compressed.unwrap_or(0));
    // Memory that the store has, the manager has not.
    let set_aside = (config.ram_bytes / 100 * percent) & !frame_mask;
    let ram_bytes = config.ram_bytes.saturating_sub(set_aside);
    let mut machine = MachineConfig::new(ram_bytes).with_walker(walker);
    if let Some(low) = config.low_bytes {
        let low = machine.low_memory(low);
        machine.high_from = Some(machine.high_from.map_or(low, |most| most.min(low)));
    }
    machine.scheduler = scheduler;
    machine.cpus = config.cpus;
    machine.nodes = config.nodes;
    let store: Arc<dyn BackingStore> =
        Arc::new(PatternStore::new(1 << walker.frame_shift(), pristine_word));
    machine.store = match config.device {
        Some(model) => Arc::new(TimedStore::new(store, model).throttling()),
        None => store,
    };
    if config.compressed.is_some() {
        let about = CompressedArea {
            area: SWAP_STORE,
            slots: (ram_bytes >> walker.frame_shift()) * SWAP_PER_FRAME,
            bytes: usize::try_from(set_aside).map_err(|error| refused(&error))?,
            writes_back: true,
        };
        let store = CompressedStore::new(Arc::clone(&machine.store), about);
        let contents = Contents::new(1 << walker.frame_shift());
        let store = store.map_err(|error| refused(&error))?;
        machine.store = Arc::new(store.with_contents(contents));
    }
    Machine::new(machine, arena).map_err(|error| refused(&error))
}

fn parse(config: &Config) -> Result<Design, EngineError> {
    Design::parse(&config.design).map_err(|error| EngineError::Design(error.to_string()))
}

/// Builds an engine in an arena, which no other engine uses at the time.
///
/// # Errors
/// [`EngineError`] names what was refused, and what would be accepted.
pub fn build(config: &Config, host: impl Into<Host>) -> Result<Box<dyn Engine>, EngineError> {
    let (design, instance) = chosen(config)?;
    instance(machine(config, host)?, design, config.group_bytes)
}

/// Whether there is such an engine, before memory is taken for it.
///
/// # Errors
/// As [`build`], if it is for the design.
pub fn check(config: &Config) -> Result<(), EngineError> {
    chosen(config).map(|_| ())
}

/// Makes an engine of one instance, with a limit in bytes if its processes are in a group.
type Instance = fn(Machine, Design, Option<u64>) -> Result<Box<dyn Engine>, EngineError>;

fn chosen(config: &Config) -> Result<(Design, Instance), EngineError> {
    let design = parse(config)?;
    let instance: Instance = with_instance!(
        design, F, R => new::<F, R>,
        _format => return Err(no_instance(&design))
    );
    Ok((design, instance))
}

/// Makes one of the instances.
fn new<F: Format, R: ReverseMap>(
    machine: Machine,
    design: Design,
    group_bytes: Option<u64>,
) -> Result<Box<dyn Engine>, EngineError> {
    let engine = CoreEngine::<F, R>::new(machine, design)?;
    Ok(Box::new(match group_bytes {
        Some(bytes) => engine.in_group(bytes >> F::FRAME_SHIFT)?,
        None => engine,
    }))
}

fn no_instance(design: &Design) -> EngineError {
    let (format, rmap) = (design.format, design.rmap);
    if !ALL {
        return EngineError::Design(format!(
            "format={},rmap={} is not built in: it comes with the feature `designs`",
            format.name(),
            rmap.name()
        ));
    }
    let others = match format {
        TableFormat::Aarch64_16K => "rmap=family and rmap=anon_vma",
        TableFormat::X86Pae => "rmap=family and rmap=chains",
        _ => "rmap=family",
    };
    EngineError::Design(format!(
        "format={} exists with {others} only: leave rmap= out, or use format=x86-64, \
         which exists with every rmap=",
        format.name()
    ))
}
