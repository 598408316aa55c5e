//! Results of the `vellum` command in a database (SQLite) that many can use at once.
//!
//! A result is kept whole, as the JSON text that the command wrote, beside the few facts
//! by which it is looked for ([`Facts`]). It needs nothing else afterwards: neither the
//! trace nor the program. This crate does not look into the text.
//!
//! Every change is one transaction. It waits for others that write (up to [`PATIENCE`]),
//! is on the disk when it is done, and leaves nothing of itself if it fails or if the
//! process dies in the middle. The rollback journal is used and not a write-ahead log,
//! because that would not work on a file system of the network.

mod error;
mod schema;
mod store;

pub use error::HistoryError;
pub use schema::VERSION;
pub use store::{Added, Entry, Facts, Store, digest};

/// How long a change waits for others, in seconds.
pub const PATIENCE: u64 = 30;
