//! What a command that works for a while shows on a terminal.
//!
//! [`progress`] is a bar or lines on standard error, and Ctrl-C as a request to
//! stop; [`table`] lays out figures under each other, [`text`] sentences; [`jobs`] does independent work on
//! several threads until it is to stop.

pub mod jobs;
pub mod progress;
pub mod table;
pub mod text;
