//! Replay: a recorded workload on a memory manager.

pub mod workload;

pub use workload::{
    Class, Expectation, FileOrigin, Repairs, Segment, Slice, Stream, Wait, Workload,
};
