//! Engines whose timed passes are sampled.

use std::sync::Arc;

use vellum_engine::{Engine, EngineError};
use vellum_profile::sample::Profiler;

use super::Builder;
use crate::sampled;

/// A builder of what `builder` builds, under sampling in the passes if there is a
/// profiler.
pub fn attached<'p>(builder: &'p dyn Builder, profiler: Option<&'p Profiler>) -> impl Builder + 'p {
    Profiled { builder, profiler }
}

struct Profiled<'p> {
    builder: &'p dyn Builder,
    profiler: Option<&'p Profiler>,
}

impl Builder for Profiled<'_> {
    fn build(&self, design: &str, arena: usize) -> Result<Box<dyn Engine>, EngineError> {
        self.builder.build(design, arena)
    }

    fn build_counting(&self, design: &str) -> Result<Option<Box<dyn Engine>>, EngineError> {
        self.builder.build_counting(design)
    }

    fn observe(&self, arm: usize, engine: Arc<dyn Engine>) -> Arc<dyn Engine> {
        let engine = self.builder.observe(arm, engine);
        match self.profiler {
            Some(profiler) => sampled::attach(profiler, arm, engine),
            None => engine,
        }
    }
}
