//! The `vellum` command. Everything it does is in `vellum_lab::cli`.

use std::process::ExitCode;

#[cfg(feature = "simulation")]
/// So that simulated managers lie where the host cannot be told from another.
#[global_allocator]
static HEAP: vellum_scale::PlacedHeap = vellum_scale::PlacedHeap;

fn main() -> ExitCode {
    vellum_lab::cli::main()
}
