//! What could be changed for a workload, and what it would come to: `vellum advise`.
//!
//! Advice is planned over what is there. [`survey`] counts in the trace what the workload asks
//! of memory management. [`knobs`] is the table of what can be changed by a setting or by another
//! kernel, and which option of a design stands for it; [`on_core`] replays the workload under all of
//! these options in one interleaved run, and [`on_host`] on this machine's kernel as far as processes
//! can choose for themselves. [`counted`] prices patterns of calls and faults by what they cost on
//! this machine ([`prices`]). [`rows`] puts the answers in one order. [`check`] runs the command
//! itself under the settings of [`settings`].
//!
//! A row claims no more than what was measured or counted, and says which of the two.

pub mod check;
pub mod counted;
pub mod knobs;
pub mod on_core;
pub mod on_host;
pub mod prices;
pub mod rows;
pub mod settings;
mod spaces;
pub mod survey;
pub mod text;
