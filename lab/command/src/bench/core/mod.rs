//! Benchmarks on the core.

mod buildkernel;
mod descent;
mod families;
mod files;
pub mod forkfault;
mod frames;
mod io;
pub mod lat_mmap;
mod loopdd;
mod pft;
mod primitives;
pub mod run;
pub mod script;
pub mod traces;
mod used;

pub use files::rmap_test;

use super::findings::Findings;
use super::request::Request;
use crate::failure::Failure;
use vellum_terminal::progress::Interrupt;

/// Runs the benchmark that `request` asks for.
///
/// # Errors
/// A design or a trace is refused, the simulated machine has no memory, an
/// operation did not do what it should, or the user stopped it before there was
/// anything to report.
pub fn run(request: &Request, interrupt: &Interrupt) -> Result<Findings, Failure> {
    match request.benchmark.name {
        "kernbench" => traces::kernbench(request, interrupt),
        "buildkernel" => buildkernel::run(request, interrupt),
        "sdet" => traces::sdet(request, interrupt),
        "shared-file" => files::shared_file(request, interrupt),
        "fork-family" => families::fork_family(request, interrupt),
        "mremap-after-fork" => families::mremap_after_fork(request, interrupt),
        "late-mappers" => descent::late_mappers(request, interrupt),
        "generations" => descent::generations(request, interrupt),
        "rmap-primitives" => primitives::run(request, interrupt),
        "forkfault" => forkfault::run(request, interrupt),
        "loopdd" => loopdd::run(request, interrupt),
        "lat_mmap" => lat_mmap::run(request, interrupt),
        "pagealloc" => frames::run(request, interrupt),
        "pft" => pft::run(request, interrupt),
        "write" => io::write(request, interrupt),
        "read" => io::read(request, interrupt),
        "readonce" => io::readonce(request, interrupt),
        other => Err(Failure::usage(format!("{other} does not run on the core"))),
    }
}
