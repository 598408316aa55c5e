//! Pictures as SVG that takes the width it is given.
//!
//! A place along an axis is a share of its length, written as a percentage, so that a
//! picture needs no width: text and marks keep their size on a narrow screen, where the
//! pictures that plotting libraries write with fixed coordinates shrink until nobody can
//! read them. Colours are classes (`arm-0`, `arm-1`, …), to which the style sheet gives
//! a light and a dark value. Whatever colour tells, a shape of mark or a dash tells, too.

pub mod axis;
pub mod bars;
pub mod chart;
pub mod forest;
pub mod marks;
pub mod standalone;

pub use axis::Axis;

/// A share of an axis as a percentage, for an attribute.
pub(crate) fn percent(share: f64) -> String {
    // Beyond the picture is far enough; what is not defined is there, too.
    let share = if share.is_nan() { -1.0 } else { share };
    format!("{:.2}%", share.clamp(-1.0, 2.0) * 100.0)
}
