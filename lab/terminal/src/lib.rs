//! What a command that works for a while shows on a terminal.
//!
//! [`progress`] is a bar or lines on standard error, and Ctrl-C as a request to
//! stop; [`table`] lays out figures under each other, [`text`] sentences; [`jobs`] does independent work on
//! several threads until it is to stop, and [`job`] runs programs until they end or are to stop.

pub mod job;
pub mod jobs;
pub mod progress;
pub mod table;
pub mod text;
