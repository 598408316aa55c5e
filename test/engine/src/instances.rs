//! Of which page-table formats and reverse mappings there are engines.

/// Whether the formats other than x86-64 are built in.
pub const FORMATS: bool = cfg!(feature = "formats");

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
/// assert_eq!(name("rmap=pv"), Some("pv"));
/// assert_eq!(name("rmap=pv,format=sv39"), None);
/// ```
#[cfg(feature = "formats")]
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

/// As with the feature `formats`, for x86-64 alone.
#[cfg(not(feature = "formats"))]
#[macro_export]
macro_rules! with_instance {
    ($design:expr, $F:ident, $R:ident => $body:expr, $format:ident => $none:expr) => {{
        use ::vellum::design::TableFormat;
        match ($design.format, $design.rmap) {
            (TableFormat::X86_64, rmap) => {
                type $F = ::vellum::table::X86_64;
                ::vellum::with_rmap!(rmap, $R => $body)
            }
            ($format, _) => $none,
        }
    }};
}
