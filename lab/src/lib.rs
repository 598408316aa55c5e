//! The laboratory around the `vellum` memory manager.

pub mod bench;
pub mod cli;
pub mod compare;
pub mod export;
pub mod import;
pub mod linux;
pub mod profile;
pub mod record;
pub mod replay;
pub mod report;
pub mod reproduce;
pub mod stats;
pub mod verify;
