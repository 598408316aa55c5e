//! Sequences of operations on the core and on an independent model of it: random
//! ones, and ones in which each allocation is made to fail.

mod check;
mod drive;
mod drive_space;
mod failed;
mod failures;
mod groups;
mod hooks;
mod many;
mod model;
mod ops;
mod random;
mod run;
mod shape;
mod space;
