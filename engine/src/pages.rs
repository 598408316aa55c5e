//! The pages of a design, before an engine of it is built.

use vellum::table::Format;
use vellum::{Design, with_format};

use crate::op::{EngineError, Pages};

/// The pages that engines of `design` have ([`crate::Engine::pages`]).
///
/// # Errors
/// [`EngineError::Design`] if it is not a design.
pub fn pages_of(design: &str) -> Result<Pages, EngineError> {
    let design = Design::parse(design).map_err(|error| EngineError::Design(error.to_string()))?;
    Ok(with_format!(design.format, F => of::<F>()))
}

const fn of<F: Format>() -> Pages {
    Pages {
        shift: F::FRAME_SHIFT,
        user_end: F::USER_END.0,
    }
}
