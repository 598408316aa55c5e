//! The laboratory around the `vellum` memory manager.

pub mod trace;
