//! Traces as tables for other tools.
//!
//! [`rows`] says what the columns hold; [`csv`] and [`parquet`] write them,
//! [`cachesim`] writes the requests that reach the page cache; [`perf_script`] is the
//! text that `vellum import` reads back. [`Output`] gives
//! a file its name only when it is complete.

pub mod cachesim;
pub mod csv;
mod output;
pub mod parquet;
pub mod perf_script;
pub mod rows;

pub use output::Output;
