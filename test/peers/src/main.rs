//! Vellum's parts beside the crates an embedder would otherwise use, and
//! beside the host's kernel: the same operations, interleaved, in one table.

mod board;
mod cache;
mod frames;
mod host;
mod host_process;
mod measure;
mod memory;
mod ours;
mod random;
mod regions;
mod report;
mod rows;
mod tables;
mod worth;

use std::fmt;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};
use vellum_lab::report::json::render;
use vellum_output::PartialFile;
use vellum_terminal::progress::{Interrupt, Style};

use measure::Plan;
use report::{Environment, Report};
use rows::Rows;

#[global_allocator]
static MEMORY: memory::LargePages = memory::LargePages;

/// The crates compared with, as their registry names them.
const PEERS: &[&str] = &[
    "aarch64-paging",
    "bitmap-allocator",
    "buddy-slab-allocator",
    "buddy_system_allocator",
    "memory_set",
    "page-table-generic",
    "page_table_multiarch",
    "x86_64",
];
const PASSES: usize = 101;
const QUICK_PASSES: usize = 21;

/// Measures Vellum beside its peers
#[derive(Parser)]
#[command(
    name = "peers",
    bin_name = "cargo xtask peers",
    after_help = "Examples:\n  \
        cargo xtask peers                            everything, about two minutes after the build\n  \
        cargo xtask peers --quick --only tables      page tables, fewer passes\n  \
        cargo xtask peers --json peers.json          and the figures in a file\n\n\
        What is compared, and what is in the figures: docs/benchmarks.md"
)]
struct Cli {
    /// Fewer passes: wider intervals
    #[arg(long)]
    quick: bool,
    /// Only this group; may be given again for more
    #[arg(long, value_enum, value_name = "GROUP")]
    only: Vec<Group>,
    /// Also write the figures to this file, as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Seed of orders and of the intervals
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(subcommand)]
    hidden: Option<Hidden>,
}

#[derive(Subcommand)]
enum Hidden {
    /// Answer what the group `host` asks of the kernel
    #[command(name = host_process::COMMAND, hide = true)]
    HostProcess,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Group {
    /// Frame allocators
    Frames,
    /// Page tables
    Tables,
    /// Regions of an address space
    Regions,
    /// The page cache
    Cache,
    /// The host's kernel
    Host,
}

impl Group {
    const ALL: [Group; 5] = [
        Group::Frames,
        Group::Tables,
        Group::Regions,
        Group::Cache,
        Group::Host,
    ];

    /// How many rows it has.
    fn rows(self) -> usize {
        match self {
            Group::Frames => 6,
            Group::Tables => 11,
            Group::Regions | Group::Host => 4,
            Group::Cache => 1,
        }
    }
}

/// What ended the run.
#[derive(Debug)]
pub struct Failure(String);

impl Failure {
    /// Makes a failure of an error while `doing` something.
    fn because<E: fmt::Display>(doing: &str) -> impl Fn(E) -> Failure + use<'_, E> {
        move |error| Failure(format!("{doing}: {error}"))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let done = match cli.hidden {
        Some(Hidden::HostProcess) => host_process::run(),
        None => run(&cli),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("peers: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn run(cli: &Cli) -> Result<(), Failure> {
    let interrupt = Interrupt::on_ctrl_c().map_err(Failure::because("catching Ctrl-C"))?;
    let pending = cli.json.as_deref().map(|path| {
        let failed = format!("creating {}", path.display());
        PartialFile::create(path).map_err(|error| Failure(format!("{failed}: {error}")))
    });
    let pending = pending.transpose()?;
    let plan = Plan {
        passes: if cli.quick { QUICK_PASSES } else { PASSES },
        seed: cli.seed,
    };
    let mut report = Report::new(Environment::here(PEERS), plan);
    let wanted = |group: &Group| cli.only.is_empty() || cli.only.contains(group);
    let groups: Vec<Group> = Group::ALL.into_iter().filter(wanted).collect();
    let count = groups.iter().map(|group| group.rows()).sum();
    let mut rows = Rows::new(plan, Style::detect(false), count, &interrupt);
    for group in groups {
        match group {
            Group::Frames => frames::run(rows.group("Frames"))?,
            Group::Tables => tables::run(rows.group("Page tables"))?,
            Group::Regions => regions::run(rows.group("Regions"))?,
            Group::Cache => cache::run(rows.group("Page cache"))?,
            Group::Host => report.trap = host::run(rows.group("The host's kernel"))?,
        }
    }
    report.rows = rows.finish();
    report.interrupted = interrupt.requested();
    print!("{}", report.text());
    if let Some(pending) = pending {
        let text = render(&report).map_err(Failure::because("writing JSON"))?;
        pending
            .commit(&text)
            .map_err(Failure::because("writing the file for --json"))?;
    }
    if report.interrupted {
        return Err(Failure("interrupted".into()));
    }
    Ok(())
}
