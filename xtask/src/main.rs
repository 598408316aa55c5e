//! Project chores: `cargo xtask --help`.

mod advice;
mod boot;
mod c;
mod command;
mod deb;
mod invariants;
mod json;
mod man;
mod pairs;
mod peers;
mod repeat;
mod site;
mod slurm;
mod snapshot_server;
mod trace;
mod validate_sim;
mod validate_tlb;
mod verify_reclaim;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(
    about = "Project chores",
    subcommand_required = true,
    arg_required_else_help = true
)]
struct Cli {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// Record one of the traces that the project ships (needs root)
    #[command(subcommand)]
    Trace(trace::Recipe),
    /// Measure Vellum beside the crates an embedder would otherwise use, and
    /// beside the host's kernel
    Peers(peers::Args),
    /// Run the benchmarks of the core as they are in another commit and here, in turn, and say
    /// which figures have changed
    Pairs(pairs::Args),
    /// Put known defects into the core, one at a time, and say which test finds each
    Mutants(vellum_mutants::Args),
    /// Check that the invariants of ARCHITECTURE.md are cited where they are
    /// relied on or tested, and that no other number is
    Invariants,
    /// Boot the kernel of `embed/boot/` under QEMU: programs, random changes, and a replay, on a
    /// real MMU
    Boot(boot::Args),
    /// Check the interface for C: its header, and programs that use it
    C(c::Args),
    /// Write the manual pages in docs/man/ from the command's definitions
    Man(man::Args),
    /// Write docs/json.md from the types of results
    Json(json::Args),
    /// Build Debian packages: the command, and the traces apart
    Deb(deb::Args),
    /// Build the documentation site: docs/, the other documents and the API documentation,
    /// with every link checked
    Site(site::Args),
    /// Advise on real programs, run them under the settings that the advice is about, and write
    /// docs/results/advise.md (needs root; switches huge pages, and restores them)
    Advice(advice::Args),
    /// Make comparisons again and again, and say whether their intervals agree
    Repeat(repeat::Args),
    /// Test `vellum sweep --slurm` on a real cluster on this machine; installs Debian's
    /// packages of Slurm if they are missing (needs root)
    Slurm,
    /// Describe this machine and hold simulations on it against runs of the core
    ValidateSim(validate_sim::Args),
    /// Run programs by pages of 4 KiB and of 2 MiB, set beside it what simulated TLBs say, and write
    /// docs/results/tlb.md (needs valgrind, and THP set to madvise or always)
    ValidateTlb(validate_tlb::Args),
    /// Replay the shipped traces verified with 75, 50 and 25 % of the memory that they use, under
    /// every reverse mapping and aging
    VerifyReclaim(verify_reclaim::Args),
    /// Run one of the workloads that the project brings along
    #[command(subcommand)]
    Workload(Workload),
}

#[derive(Subcommand)]
enum Workload {
    /// A server that forks for each connection over shared memory, and a store
    /// that takes snapshots by fork while it is written to
    SnapshotServer(snapshot_server::Args),
}

fn main() -> ExitCode {
    let done = match Cli::parse().chore {
        Chore::Trace(recipe) => trace::run(&recipe),
        Chore::Peers(args) => peers::run(&args),
        Chore::Pairs(args) => pairs::run(&args),
        Chore::Mutants(args) => vellum_mutants::run(&args),
        Chore::Boot(args) => boot::run(&args),
        Chore::C(args) => c::run(&args),
        Chore::Invariants => invariants::run(),
        Chore::Man(args) => man::run(&args),
        Chore::Json(args) => json::run(&args),
        Chore::Deb(args) => deb::run(&args),
        Chore::Site(args) => site::run(&args),
        Chore::Advice(args) => advice::run(&args),
        Chore::Repeat(args) => repeat::run(&args),
        Chore::Slurm => slurm::run(),
        Chore::ValidateSim(args) => validate_sim::run(&args),
        Chore::ValidateTlb(args) => validate_tlb::run(&args),
        Chore::VerifyReclaim(args) => verify_reclaim::run(&args),
        Chore::Workload(Workload::SnapshotServer(args)) => snapshot_server::run(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("xtask: {message}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    fn has_tests(directory: &Path) -> bool {
        std::fs::read_dir(directory)
            .expect("the sources are there")
            .any(|entry| {
                let path = entry.expect("readable").path();
                match path.is_dir() {
                    true => has_tests(&path),
                    false => std::fs::read_to_string(&path)
                        .expect("text")
                        .contains("#[test]"),
                }
            })
    }

    /// Those of the engines would take minutes to compile once more. Tests in them would
    /// not run, and nothing would say so.
    #[test]
    fn libraries_that_are_not_compiled_as_tests_have_none() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        for name in [
            "sim/description",
            "sim/tlb",
            "test/engine",
            "test/engine-counted",
            "lab/history",
            "test/testing",
            "test/verify/schedules",
        ] {
            let package = root.join(name);
            let manifest = std::fs::read_to_string(package.join("Cargo.toml")).expect("there");
            assert!(manifest.contains("test = false"), "{name}: not listed here");
            assert!(
                !has_tests(&package.join("src")),
                "{name}: has unit tests now, so remove `test = false` from its manifest"
            );
        }
        assert!(has_tests(&root.join("vellum/src")), "tests are found");
    }
}
