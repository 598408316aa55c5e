//! Replays on the host's own kernel: the plan, and the commands as a user meets them.
#![cfg(all(target_arch = "x86_64", target_os = "linux"))]

mod cli;
#[path = "../command/mod.rs"]
mod command;
mod plan;
