//! Random operation sequences on the core, checked against a model.

pub mod check;
pub mod drive;
pub mod model;
pub mod ops;
pub mod run;
