//! The core on the hosted machine.
//!
//! One program: what is compiled for each design is compiled once.

mod conformance;
mod flush;
mod ptepage;
mod sequences;
mod store;
mod stress;
mod support;
