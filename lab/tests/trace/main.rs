//! Traces: the format, the shipped ones, cutting and importing.

mod import;
