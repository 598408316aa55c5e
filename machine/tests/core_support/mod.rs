//! Random operation sequences on the core, checked against a model.

mod check;
mod drive;
mod drive_space;
mod failures;
mod model;
mod ops;
mod random;
mod run;
mod shape;
mod space;
