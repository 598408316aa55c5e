//! The laboratory around the `vellum` memory manager.

pub mod trace;
pub mod cli;
pub mod progress;
pub mod stats;
pub mod replay;
