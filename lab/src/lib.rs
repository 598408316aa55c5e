//! The laboratory around the `vellum` memory manager.

pub mod bench;
pub mod cli;
pub mod clock;
pub mod compare;
pub mod linux;
pub mod replay;
pub mod report;
pub mod reproduce;
pub mod sampled;
pub mod stats;
pub mod verify;
