//! Replay: a recorded workload on a memory manager.
//!
//! [`prepare()`] turns a trace into a [`Workload`] once; [`run()`] executes
//! it on an [`Engine`](vellum_engine::Engine), slice by slice if wanted, and
//! counts and explains where the replay went otherwise than the recording.

pub mod explain;
pub mod fold;
pub mod lanes;
mod needed;
pub mod prepare;
pub mod ram;
pub mod regions;
pub mod repairs;
pub mod run;
mod service;
pub mod workload;

pub use explain::Expectation;
pub use prepare::{
    MAX_COPIES, MAX_CPUS, Options, PrepareError, Streams, Together, prepare, prepare_events,
    tmpfs_device,
};
pub use repairs::Repairs;
pub use run::{Divergences, Replayed, Sample, run, run_slice};
pub use service::{Prices, Service};
pub use workload::{Class, FileOrigin, Segment, Slice, Stream, Wait, Workload};
