//! Traces: what one real run asked of memory management.
//!
//! [`TraceReader::open`] checks a file and gives its [`Header`];
//! [`TraceReader::events`] walks all events in time order, a block at a time,
//! [`TraceReader::events_and_accesses`] with them which pages were used in between, if that was
//! sampled, and [`TraceReader::streams`] loads them task by task. [`TraceWriter`] makes
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
//! 5. A task's CPU times up to an event add up to no more than the event's
//!    time, and there are none unless [`Header::cpu_times`] says so.
//!
//! ```
//! use vellum_trace::{Access, Event, EventKind, MapOrigin, Prot, Task, TaskId};
//! use vellum_trace::{DEFAULT_LEVEL, TraceError, TraceReader, TraceWriter};
//!
//! # fn main() -> Result<(), TraceError> {
//! # let directory = std::env::temp_dir().join(format!("vellum-trace-doc-{}", std::process::id()));
//! # std::fs::create_dir_all(&directory).unwrap();
//! # let path = directory.join("small.vellum");
//! // A process maps two pages, stores to the first, and ends.
//! let mut writer = TraceWriter::create(&path, DEFAULT_LEVEL)?;
//! writer.header_mut().tasks.push(Task {
//!     pid: 4711,
//!     process: 4711,
//!     parent: None,
//! });
//! let address = 0x7f00_0000_0000;
//! let map = EventKind::Map {
//!     address,
//!     length: 2 * 4096,
//!     prot: Prot(3), // to be read and written
//!     shared: false,
//!     grows_down: false,
//!     file: None,
//!     offset: 0,
//!     origin: MapOrigin::Mmap,
//! };
//! let store = EventKind::Fault {
//!     address,
//!     access: Access::Write,
//!     kernel: false,
//!     present: false,
//! };
//! for (time_us, kind) in [(10, map), (12, store), (90, EventKind::Exit)] {
//!     let task = TaskId(0);
//!     let ran_us = None; // nobody measured how long the task ran
//!     writer.push(&Event { time_us, task, kind, ran_us })?;
//! }
//! writer.finish()?; // until here there is no file of this name
//!
//! let trace = TraceReader::open(&path)?;
//! assert_eq!(trace.header().tasks[0].pid, 4711);
//! for event in trace.events() {
//!     let event = event?;
//!     println!("{} us: {:?} {:?}", event.time_us, event.task, event.kind);
//! }
//! assert_eq!(trace.events().count(), 3);
//! # std::fs::remove_dir_all(directory).unwrap();
//! # Ok(())
//! # }
//! ```

pub mod cut;
pub mod event;
pub mod model;

mod accesses;
mod anchor;
mod block;
mod column;
mod error;
mod file;
mod header;
mod kind;
mod reader;
pub mod rules;
mod streams;
mod tables;
mod varint;
mod writer;

pub use error::TraceError;
pub use event::{Access, Event, EventKind, FileId, MapOrigin, Prot, TaskId};
pub use header::{AccessMarks, Accesses, Environment, File, Header, MemoryGroup, Task};
pub use reader::{Events, EventsAndAccesses, TraceReader};
pub use streams::Streams;
pub use writer::{DEFAULT_LEVEL, TraceWriter};
