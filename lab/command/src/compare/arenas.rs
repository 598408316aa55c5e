//! Engines of the real core, in memory that outlives them.
//!
//! An arena is the host memory behind one simulated machine. It is made once
//! and handed from engine to engine, so that every arm gets to live in every
//! piece of memory and none is favoured by where the host put it.

use std::cell::OnceCell;
use std::fmt::Display;
use std::sync::Arc;

use vellum_engine::{Arena, ArenaOptions, Config, DeviceModel, Engine, EngineError, has_groups};

use super::Builder;
use crate::built_in::has_engines;
#[cfg(feature = "atomics")]
use vellum_engine_counted::build_counting;

/// Builds engines in arenas of equal size, one for each arm.
pub struct Arenas {
    cpus: usize,
    nodes: usize,
    ram_bytes: u64,
    low_bytes: Option<u64>,
    device: Option<DeviceModel>,
    compressed: Option<u8>,
    group_bytes: Option<u64>,
    around_group: Option<u64>,
    count_atomics: bool,
    prefault: bool,
    arenas: Vec<OnceCell<Arc<Arena>>>,
}

impl Arenas {
    /// `arms` arenas of `ram_bytes` each, for machines with `cpus` CPUs on one
    /// node. Memory is taken from the host when it is first touched.
    pub fn new(arms: usize, cpus: usize, ram_bytes: u64) -> Self {
        Self {
            cpus,
            nodes: 1,
            ram_bytes,
            low_bytes: None,
            device: None,
            compressed: None,
            group_bytes: None,
            around_group: None,
            count_atomics: false,
            prefault: false,
            arenas: vec![OnceCell::new(); arms],
        }
    }

    /// The same with the CPUs and the memory spread over `nodes` nodes.
    pub fn on_nodes(self, nodes: usize) -> Self {
        Self { nodes, ..self }
    }

    /// The same with so much low memory, if it is said; the rest is high memory.
    pub fn with_low(self, low_bytes: Option<u64>) -> Self {
        Self { low_bytes, ..self }
    }

    /// The same with files and swap on a device whose time is counted, if one is named.
    pub fn with_device(self, device: Option<DeviceModel>) -> Self {
        Self { device, ..self }
    }

    /// The same with so many percent of the memory set aside for a compressed store in front of
    /// swap, if it is said.
    pub fn with_compressed(self, compressed: Option<u8>) -> Self {
        Self { compressed, ..self }
    }

    /// The same with every space in one group that may have so many bytes, if it is said.
    pub fn with_group(self, group_bytes: Option<u64>) -> Self {
        Self {
            group_bytes,
            ..self
        }
    }

    /// The same, if it is said, but for designs with groups: they have every space in one group
    /// that may have as much as the other machines, and their machines have so many bytes.
    pub fn with_memory_around_groups(self, around_group: Option<u64>) -> Self {
        Self {
            around_group,
            ..self
        }
    }

    /// Whether there are to be engines that count atomic operations, too.
    pub fn counting_atomics(self, count_atomics: bool) -> Self {
        Self {
            count_atomics,
            ..self
        }
    }

    /// Takes an arena's memory from the host all at once when it is made. What
    /// the host does at the first touch is not the core's time; a single pass
    /// has no other that would show it.
    pub fn prefaulted(self) -> Self {
        Self {
            prefault: true,
            ..self
        }
    }

    fn config(&self, design: &str) -> Result<Config, EngineError> {
        let (ram_bytes, group_bytes) = match self.around_group {
            Some(around) if has_groups(design)? => (around, Some(self.ram_bytes)),
            _ => (self.ram_bytes, self.group_bytes),
        };
        Ok(Config {
            design: design.to_owned(),
            cpus: self.cpus,
            nodes: self.nodes,
            ram_bytes,
            low_bytes: self.low_bytes,
            device: self.device,
            compressed: self.compressed,
            group_bytes,
        })
    }

    fn arena(&self, index: usize) -> Result<Arc<Arena>, EngineError> {
        if let Some(arena) = self.arenas[index].get() {
            return Ok(Arc::clone(arena));
        }
        // Every arena is every arm's now and then.
        let bytes = self.ram_bytes.max(self.around_group.unwrap_or(0));
        let refused = |why: &dyn Display| {
            let text = format!("no memory for a machine of {bytes} bytes: {why}");
            EngineError::Machine(text)
        };
        let bytes = usize::try_from(bytes).map_err(|error| refused(&error))?;
        let options = ArenaOptions {
            prefault: self.prefault,
            ..ArenaOptions::default()
        };
        let arena = Arena::with_options(bytes, options).map_err(|error| refused(&error))?;
        Ok(Arc::clone(self.arenas[index].get_or_init(|| arena)))
    }
}

impl Builder for Arenas {
    fn build(&self, design: &str, arena: usize) -> Result<Box<dyn Engine>, EngineError> {
        let config = self.config(design)?;
        // Before the host has to give memory for nothing.
        has_engines(design)?;
        vellum_engine::check(&config)?;
        vellum_engine::build(&config, self.arena(arena)?)
    }

    fn build_counting(&self, design: &str) -> Result<Option<Box<dyn Engine>>, EngineError> {
        let config = self.config(design)?;
        self.count_atomics
            .then(|| build_counting(&config))
            .transpose()
    }
}

/// No engine counts.
#[cfg(not(feature = "atomics"))]
fn build_counting(_: &Config) -> Result<Box<dyn Engine>, EngineError> {
    let missing = crate::built_in::ATOMICS.missing("counting atomic operations");
    Err(EngineError::Machine(missing))
}
