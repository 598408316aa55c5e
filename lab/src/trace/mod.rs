//! Traces: what one real run asked of memory management.

pub mod event;
