//! The core on the hosted machine.
//!
//! One program: what is compiled for each design is compiled once. What the engines
//! are made of is not compiled here at all: the compiler takes it from their crate,
//! to which the program is linked for that alone.

use vellum_engine as _;

mod conformance;
mod devices;
mod flush;
mod generations;
mod high;
mod power;
mod ptepage;
mod reclaim;
mod sequences;
mod store;
mod stress;
mod support;
