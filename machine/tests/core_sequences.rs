//! Sequences of operations on the core and on an independent model of it:
//! random ones, and ones in which each allocation is made to fail.

mod core_support;
