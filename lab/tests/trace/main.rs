//! Traces: the format, the shipped ones, cutting and importing.

mod cut;
mod format;
mod import;
mod shipped;
