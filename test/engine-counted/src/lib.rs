//! The engines of `vellum-engine`, counting the core's atomic operations.
//!
//! Source and instances are those of `vellum-engine`: its files are compiled
//! once more, over the build of the core whose atomics report every access
//! before it happens (`test/verify/instrumented`). The counters of an engine from
//! here are those of the plain one, followed by `atomic loads`, `atomic stores`,
//! `atomic read-modify-writes` and `full fences`.
//!
//! They count what [`Engine::run`] makes the core do. The machine's own
//! bookkeeping and this crate's are no part of it. Reporting costs time: these
//! engines are for counting, not for timing.

#[path = "../../engine/src/build.rs"]
#[expect(dead_code, reason = "the plain crate checks designs")]
mod build;
#[path = "../../engine/src/calls.rs"]
mod calls;
#[path = "../../engine/src/core_counters.rs"]
mod core_counters;
#[path = "../../engine/src/core_engine.rs"]
mod core_engine;
#[path = "../../engine/src/counters.rs"]
mod counters;
#[path = "../../engine/src/execute.rs"]
mod execute;
#[path = "../../engine/src/executor.rs"]
mod executor;
#[path = "../../engine/src/groups.rs"]
mod groups;
mod meter;
#[path = "../../engine/src/slots.rs"]
mod slots;

use std::sync::Arc;

use vellum_engine::{ALL, op, with_instance};
use vellum_engine::{Config, Engine, EngineError};
use vellum_machine::Arena;

pub use vellum_machine::Scheduler;

/// Builds an engine that counts, in host memory of its own. The host provides
/// a page of it when the engine first uses it, and has it back when the engine
/// is dropped.
///
/// # Errors
/// As [`vellum_engine::build`], and if the host has no room for the memory.
pub fn build_counting(config: &Config) -> Result<Box<dyn Engine>, EngineError> {
    build_in(config, arena(config)?)
}

/// An engine whose CPUs are tasks of a scheduler.
pub struct Scheduled {
    /// The engine.
    pub engine: Box<dyn Engine>,
    /// The host memory that is its RAM: an equal part for each node, one after the other.
    pub ram: *const [u8],
    /// Its nodes.
    pub nodes: usize,
}

/// Builds an engine whose CPUs `scheduler` runs, as tasks of one host thread.
///
/// # Errors
/// As [`build_counting`].
pub fn build_scheduled(
    config: &Config,
    scheduler: &'static Scheduler,
) -> Result<Scheduled, EngineError> {
    let arena = arena(config)?;
    let ram = std::ptr::slice_from_raw_parts(arena.start().as_ptr().cast_const(), arena.bytes());
    let host = build::Host {
        arena,
        scheduler: Some(scheduler),
    };
    Ok(Scheduled {
        engine: build_in(config, host)?,
        ram,
        nodes: config.nodes,
    })
}

/// Host memory for an engine.
fn arena(config: &Config) -> Result<Arc<Arena>, EngineError> {
    let bytes = config.ram_bytes;
    let refused = |why: String| {
        EngineError::Machine(format!("no memory for a machine of {bytes} bytes: {why}"))
    };
    let arena_bytes = usize::try_from(bytes).map_err(|error| refused(error.to_string()))?;
    Arena::new(arena_bytes).map_err(|error| refused(error.to_string()))
}

fn build_in(config: &Config, host: impl Into<build::Host>) -> Result<Box<dyn Engine>, EngineError> {
    let config = build::Config {
        design: config.design.clone(),
        cpus: config.cpus,
        nodes: config.nodes,
        ram_bytes: config.ram_bytes,
        low_bytes: config.low_bytes,
        device: None,
        compressed: config.compressed,
        group_bytes: config.group_bytes,
    };
    build::build(&config, host)
}
