//! Of which page-table formats and reverse mappings there are engines.

use vellum::Design;
use vellum::design::{Rmap, TableFormat};

/// Whether the engines of all designs are built in. Otherwise there are those of x86-64 with the
/// default reverse mapping, that of Linux since 2010, and the two of the first comparison that the
/// laboratory makes.
pub const ALL: bool = cfg!(feature = "designs");

/// Whether the feature that brings the engines of all designs is not needed for `design`.
pub(crate) fn is_built_in(design: &Design) -> bool {
    let few = [
        Rmap::Chains,
        Rmap::Partial,
        Rmap::AnonVmaChain,
        Rmap::Family,
    ];
    ALL || design.format == TableFormat::X86_64 && few.contains(&design.rmap)
}

/// Evaluates an expression with `$F` and `$R` as the page-table format and the reverse mapping
/// that a design names, if there are engines of the two; otherwise another one with `$format` as
/// the name of the format. The crate that uses it depends on `vellum`.
///
/// ```
/// use vellum::Design;
/// use vellum::rmap::ReverseMap;
///
/// let name = |options| {
///     let design = Design::parse(options).unwrap();
///     vellum_engine::with_instance!(design, F, R => Some(R::NAME), _other => None)
/// };
/// assert_eq!(name("rmap=chains"), Some("chains"));
/// assert_eq!(name("rmap=chains,format=sv39"), None);
/// ```
#[cfg(feature = "designs")]
#[macro_export]
macro_rules! with_instance {
    ($design:expr, $F:ident, $R:ident => $body:expr, $format:ident => $none:expr) => {{
        use ::vellum::design::{Rmap, TableFormat};
        match ($design.format, $design.rmap) {
            (TableFormat::X86_64, rmap) => {
                type $F = ::vellum::table::X86_64;
                ::vellum::with_rmap!(rmap, $R => $body)
            }
            (format, Rmap::Family) => {
                type $R = ::vellum::rmap::Family;
                ::vellum::with_format!(format, $F => $body)
            }
            // What the published ia64 kernels had, with pages of their size.
            (TableFormat::Aarch64_16K, Rmap::AnonVma) => {
                type $F = ::vellum::table::Aarch64_16K;
                type $R = ::vellum::rmap::AnonVma;
                $body
            }
            // The kernels that asked where page tables should live.
            (TableFormat::X86Pae, Rmap::Chains) => {
                type $F = ::vellum::table::X86Pae;
                type $R = ::vellum::rmap::Chains;
                $body
            }
            ($format, _) => $none,
        }
    }};
}

/// As with the feature `designs`, for the few that are there without it.
#[cfg(not(feature = "designs"))]
#[macro_export]
macro_rules! with_instance {
    ($design:expr, $F:ident, $R:ident => $body:expr, $format:ident => $none:expr) => {{
        use ::vellum::design::{Rmap, TableFormat};
        type $F = ::vellum::table::X86_64;
        match ($design.format, $design.rmap) {
            (TableFormat::X86_64, Rmap::Chains) => {
                type $R = ::vellum::rmap::Chains;
                $body
            }
            (TableFormat::X86_64, Rmap::Partial) => {
                type $R = ::vellum::rmap::Partial;
                $body
            }
            (TableFormat::X86_64, Rmap::AnonVmaChain) => {
                type $R = ::vellum::rmap::AnonVmaChain;
                $body
            }
            (TableFormat::X86_64, Rmap::Family) => {
                type $R = ::vellum::rmap::Family;
                $body
            }
            ($format, _) => $none,
        }
    }};
}
