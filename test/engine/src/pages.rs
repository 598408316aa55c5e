//! What callers ask of a design before an engine of it is built.

use vellum::design::GroupMode;
use vellum::table::Format;
use vellum::{Design, with_format};

use crate::instances;
use crate::op::{EngineError, Pages};

/// The pages that engines of `design` have ([`crate::Engine::pages`]).
///
/// # Errors
/// [`EngineError::Design`] if it is not a design.
pub fn pages_of(design: &str) -> Result<Pages, EngineError> {
    Ok(with_format!(parse(design)?.format, F => of::<F>()))
}

/// Whether the feature that brings the engines of all designs is not needed for `design`.
///
/// # Errors
/// [`EngineError::Design`] if it is not a design.
pub fn is_built_in(design: &str) -> Result<bool, EngineError> {
    Ok(instances::is_built_in(&parse(design)?))
}

/// The fault-around window of `design`: the pages of a file that one read fault
/// may map.
///
/// # Errors
/// [`EngineError::Design`] if it is not a design.
pub fn fault_around_of(design: &str) -> Result<u64, EngineError> {
    Ok(u64::from(parse(design)?.fault_around))
}

/// Whether pages may leave under `design` when memory runs out.
///
/// # Errors
/// [`EngineError::Design`] if it is not a design.
pub fn reclaims(design: &str) -> Result<bool, EngineError> {
    Ok(parse(design)?.reclaim)
}

/// Whether spaces can be in groups under `design`.
///
/// # Errors
/// [`EngineError::Design`] if it is not a design.
pub fn has_groups(design: &str) -> Result<bool, EngineError> {
    let design = parse(design)?;
    Ok(design.reclaim && design.groups != GroupMode::Off)
}

/// Whether `design` itself says what the option `name` is, or names a kernel if `name` is `as`.
pub fn gives(design: &str, name: &str) -> bool {
    Design::gives(design, name)
}

fn parse(design: &str) -> Result<Design, EngineError> {
    Design::parse(design).map_err(|error| EngineError::Design(error.to_string()))
}

const fn of<F: Format>() -> Pages {
    Pages {
        shift: F::FRAME_SHIFT,
        user_end: F::USER_END.0,
    }
}
