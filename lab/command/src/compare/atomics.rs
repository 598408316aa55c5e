//! The pass in which atomic operations are counted.
//!
//! It runs on engines over an instrumented build of the core, which nothing is
//! timed on. Each design executes the whole workload once, one after the other
//! in memory of their own, which the host has back before the arms warm up.

use std::sync::Arc;

use vellum_engine::Engine;

use super::crew::{Arm, Crew, Grain, Tally};
use super::error::CompareError;
use super::measure::Run;
use crate::replay::Slice;
use vellum_terminal::progress::Progress;

/// Event counts by name.
pub type Counters = Vec<(&'static str, u64)>;

impl Run<'_> {
    /// The event counts of each design with those of atomic operations among
    /// them, or `None` if there are no engines that count them.
    pub(super) fn count_atomics(
        &self,
        crew: &mut Crew<'_>,
        slices: &[Slice],
    ) -> Result<Option<Vec<Counters>>, CompareError> {
        let designs = self.settings.designs.len();
        let mut progress = None;
        let mut counts = Vec::with_capacity(designs);
        for arm in 0..designs {
            let Some(engine) = self.build_counting(arm)? else {
                return Ok(None);
            };
            let steps = (designs * slices.len()) as u64;
            let start = || Progress::new(self.settings.style, "counting atomics", steps, "slices");
            let progress = progress.get_or_insert_with(start);
            counts.push(self.counted(crew, slices, arm, engine, progress)?);
        }
        if let Some(progress) = progress {
            progress.finish();
        }
        Ok(Some(counts))
    }

    fn build_counting(&self, arm: usize) -> Result<Option<Arc<dyn Engine>>, CompareError> {
        let design = self.settings.design(arm);
        let built = self.builder.build_counting(design);
        let engine = built.map_err(|source| CompareError::Engine {
            design: design.to_owned(),
            source,
        })?;
        Ok(engine.map(Arc::from))
    }

    /// Executes everything on `engine`, which is dropped, and returns its counts.
    fn counted(
        &self,
        crew: &mut Crew<'_>,
        slices: &[Slice],
        arm: usize,
        engine: Arc<dyn Engine>,
        progress: &mut Progress,
    ) -> Result<Counters, CompareError> {
        let counting = Arm {
            engine,
            needed: self.needed(arm),
        };
        let mut tally = Tally::default();
        for slice in slices {
            if self.interrupt.requested() {
                return Err(CompareError::Interrupted);
            }
            tally.add(&crew.execute(&counting, slice, Grain::Whole).tally);
            if tally.starved.is_some() {
                break;
            }
            progress.advance(1);
        }
        self.accept(self.settings.design(arm), &tally)?;
        Ok(counting.engine.counters())
    }
}
