//! Recording: what a command and its descendants ask of memory management.
//!
//! [`record`] runs a command under perf events that it opens itself, or watches processes
//! that run already, and writes a trace. Meanwhile only bytes are moved; the trace is made
//! afterwards. `docs/recording.md` says which events are used and why.
//!
//! The translation stands on its own: a [`Translator`] makes events of a trace of
//! [`Record`]s, whether the kernel wrote them or another tool's text was parsed, and
//! gives them to a [`Sink`]. [`number`] has the system calls that it understands.

mod accesses;
mod beginning;
mod bpf;
mod child;
mod clock;
mod error;
mod faults;
mod files;
pub mod groups;
mod merge;
mod notes;
mod overhead;
mod page_map;
mod perf;
mod place;
mod price;
mod processes;
mod raw;
mod run;
mod sample;
mod session;
mod sink;
pub mod smaps;
mod spool;
mod syscalls;
mod target;
mod tracefs;
mod tracepoint;
mod transfers;
mod translate;
mod watch;
mod write;

pub use accesses::Marks;
pub use child::own_cpu_seconds;
pub use error::RecordError;
pub use overhead::{Overhead, measure_overhead};
pub use price::{Cost, Prices, Tally};
pub use raw::{Body, Mmap, Record};
pub use run::{GoingOn, Options, Recording, check_permission, record};
pub use sample::{Identity, Sample, Transfer};
pub use sink::Sink;
pub use syscalls::number;
pub use target::Target;
pub use translate::{Noticed, Translator};
pub use watch::Ended;
