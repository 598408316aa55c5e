//! One operation after another, and those that only an engine has.

use std::sync::OnceLock;
use std::time::Instant;

use vellum::rmap::ReverseMap;
use vellum::table::Format;

use crate::core_engine::CoreEngine;
use crate::executor::DONE;
use crate::op::{Divergence, Op, Outcome};

/// Bytes read to empty the host's caches: more than the last level of most.
const CACHES_BYTES: usize = 128 << 20;

/// Reads a line of every 64 bytes of [`CACHES_BYTES`], which are made at the first call.
fn empty_caches() {
    static MEMORY: OnceLock<Vec<u64>> = OnceLock::new();
    // Not zeroes: those could all be one page of the host.
    let memory = MEMORY.get_or_init(|| (0..CACHES_BYTES as u64 / 8).collect());
    let sum = memory.iter().step_by(8).fold(0u64, |sum, word| sum ^ word);
    std::hint::black_box(sum);
}

impl<F: Format, R: ReverseMap> CoreEngine<F, R> {
    pub(crate) fn execute_all(&self, ops: &[Op], outcome: &mut Outcome) {
        for (index, op) in ops.iter().enumerate() {
            let executed = match op {
                Op::Lap { phase } => {
                    outcome.laps.push((*phase, Instant::now()));
                    continue;
                }
                Op::Call(call) => self.call(call),
                Op::EmptyCaches => {
                    empty_caches();
                    DONE
                }
                _ => self.executor().execute(op),
            };
            let divergence = match executed {
                Ok(None) => continue,
                Ok(Some(divergence)) => divergence,
                Err(error) => Divergence::Failed(error),
            };
            outcome.divergences.push((index as u32, divergence));
        }
    }
}
