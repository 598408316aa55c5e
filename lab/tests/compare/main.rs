//! Tests of `vellum compare` on synthetic designs whose true difference is known.

mod method;
mod report;
mod synthetic;
mod verdicts;
