//! Why a comparison could not be made.

use vellum_engine::EngineError;

use crate::replay::ram::Shortage;

/// A comparison could not be made.
#[derive(Debug, thiserror::Error)]
pub enum CompareError {
    /// An engine could not be built.
    #[error("design `{design}`")]
    Engine {
        /// The design as given.
        design: String,
        /// Why.
        source: EngineError,
    },
    /// The simulated machine is too small, or the group.
    #[error(
        "design `{design}`: {shortage} ran out of memory at operation {index} of CPU {cpu}; give it \
         more with {}",
        shortage.option()
    )]
    OutOfMemory {
        /// The design.
        design: String,
        /// CPU of the operation that failed first.
        cpu: usize,
        /// Its place in that CPU's operations.
        index: usize,
        /// What had no memory.
        shortage: Shortage,
    },
    /// The replay is not the recording.
    #[error(
        "design `{design}`: {count} of {ops} operations went otherwise than recorded and nothing \
         explains it (first: operation {index} of CPU {cpu}, {what}); `vellum replay` shows them"
    )]
    Diverged {
        /// The design.
        design: String,
        /// Unexplained divergences.
        count: u64,
        /// Operations.
        ops: usize,
        /// CPU of the first.
        cpu: usize,
        /// Its place in that CPU's operations.
        index: usize,
        /// What happened there.
        what: String,
    },
    /// There is nothing to compare.
    #[error("the workload has no operations")]
    Empty,
    /// The user stopped the run before a pass was complete.
    #[error("interrupted before the first pass was complete; there is nothing to report")]
    Interrupted,
}
