//! Tests of `vellum compare` on synthetic designs whose true difference is known.

#[path = "../engines/mod.rs"]
mod engines;
mod level;
mod method;
mod needless;
mod report;
mod synthetic;
mod verdicts;
