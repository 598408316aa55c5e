//! What published kernels had and the default has not, to be compared with it.
//!
//! Each module here stands beside the one of the same name outside: it uses what that one may
//! use, and that one itself, which reaches it in one place, where it is made.
//!
//! | module | what is in it |
//! |---|---|
//! | [`rmap`] | every reverse mapping but `family` |
//! | `frame` | free frames in linked lists (`framelists=linked`) |
//! | [`table`] | sources of page tables that keep some (`ptepage=quicklist`, `warm`, `depot`) |
//! | [`object`] | pages of files one at a time, and in two lists by age (`fileio=pages`; `space/files/pages.rs` writes and reads them so) |
//! | `sync` | locks that only these take |
//! | [`presets`] | whole kernels by one word (`as=`) |

pub(crate) mod frame;
pub mod object;
pub mod presets;
pub mod rmap;
mod sync;
pub mod table;
