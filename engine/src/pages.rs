//! The pages of a design, before an engine of it is built.

use vellum::Design;
use vellum::design::TableFormat;
use vellum::table::{Aarch64_4K, Aarch64_16K, Aarch64_64K, Format, Sv39, Sv48, X86_64, X86_64La57};

use crate::op::{EngineError, Pages};

/// The pages that engines of `design` have ([`crate::Engine::pages`]).
///
/// # Errors
/// [`EngineError::Design`] if it is not a design.
pub fn pages_of(design: &str) -> Result<Pages, EngineError> {
    let design = Design::parse(design).map_err(|error| EngineError::Design(error.to_string()))?;
    Ok(match design.format {
        TableFormat::X86_64 => of::<X86_64>(),
        TableFormat::X86_64La57 => of::<X86_64La57>(),
        TableFormat::Aarch64_4K => of::<Aarch64_4K>(),
        TableFormat::Aarch64_16K => of::<Aarch64_16K>(),
        TableFormat::Aarch64_64K => of::<Aarch64_64K>(),
        TableFormat::Sv39 => of::<Sv39>(),
        TableFormat::Sv48 => of::<Sv48>(),
    })
}

const fn of<F: Format>() -> Pages {
    Pages {
        shift: F::FRAME_SHIFT,
        user_end: F::USER_END.0,
    }
}
