//! Traces: what one real run asked of memory management.
//!
//! [`TraceReader::open`] checks a file and gives its [`Header`];
//! [`TraceReader::events`] walks all events in time order, a block at a time,
//! and [`TraceReader::streams`] loads them task by task. [`TraceWriter`] makes
//! a file. `docs/trace-format.md` says how the bytes lie.
//!
//! What a reader may rely on, because the writer refuses anything else and the
//! reader checks it again:
//!
//! 1. Every [`TaskId`], [`FileId`] and string index is inside its table.
//! 2. Times never decrease along [`TraceReader::events`], and a task's events
//!    keep the order in which it made them. Order is also cause: a task's
//!    creation precedes its events, and its exit precedes the wait for it.
//! 3. A task is created at most once, by its `parent`, and does nothing after
//!    [`EventKind::Exit`]. A task without `parent` was there from the start,
//!    with an empty address space of its own.
//! 4. `address + length` does not overflow; fault addresses are page-aligned.
//!
//! ```no_run
//! # fn main() -> Result<(), vellum_lab::trace::TraceError> {
//! let trace = vellum_lab::trace::TraceReader::open("build.vellum")?;
//! println!("{} tasks", trace.header().tasks.len());
//! for event in trace.events() {
//!     let event = event?;
//!     println!("{} {:?} {:?}", event.time_us, event.task, event.kind);
//! }
//! # Ok(())
//! # }
//! ```

pub mod event;
pub mod model;

mod anchor;
mod block;
mod column;
mod error;
mod file;
mod header;
mod kind;
mod reader;
pub(crate) mod rules;
mod streams;
mod tables;
mod varint;
mod writer;

pub use error::TraceError;
pub use event::{Access, Event, EventKind, FileId, MapOrigin, Prot, TaskId};
pub use header::{Environment, File, Header, Task};
pub use reader::{Events, TraceReader};
pub use streams::Streams;
pub use writer::{DEFAULT_LEVEL, TraceWriter};
