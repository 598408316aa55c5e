//! What the replay tests share: a memory manager that is obviously right, or wrong
//! in one known way.
#![allow(dead_code, reason = "each test uses its own part of this")]

pub mod reference;
pub mod reference_engine;
pub mod reference_faults;
pub mod reference_state;
