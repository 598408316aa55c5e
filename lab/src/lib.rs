//! The laboratory around the `vellum` memory manager.

pub mod bench;
pub mod cli;
pub mod compare;
pub mod export;
pub mod import;
pub mod linux;
pub mod output;
pub mod profile;
pub mod progress;
pub mod record;
pub mod replay;
pub mod report;
pub mod reproduce;
pub mod stats;
pub mod trace;
pub mod verify;
