//! Machine descriptions: what a simulated machine consists of and what everything on
//! it costs, each figure with its source.
//!
//! A description is a TOML file. `docs/many-cpus.md` says what each key means and how to
//! write one; `vellum calibrate` measures one of the machine that it runs on.
//!
//! ```
//! let machine = vellum_description::Description::named("epyc-milan-2s")?;
//! assert_eq!(machine.cpus(), 192);
//! println!("{machine}");
//! # Ok::<(), vellum_description::DescriptionError>(())
//! ```
#![deny(missing_docs)]

mod check;
mod figure;
mod shipped;
mod translation;
mod write;

use std::path::{Path, PathBuf};

use serde::Deserialize;

pub use self::check::Flaw;
pub use self::figure::{Basis, Count, Figure, Rate, Share, Time};
pub use self::shipped::{SHIPPED, Shipped};
pub use self::translation::{Cache, Holds, Nested, PageSize, Tlb, Translation, WalkCache};

/// Most CPUs that a description may have.
pub const MOST_CPUS: usize = 1024;

/// A machine.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Description {
    /// What it is, in a line.
    pub title: String,
    /// What is to be known about the figures as a whole.
    pub notes: String,
    /// Cores, and what they have in common.
    pub topology: Topology,
    /// Cache lines that a core has or gets from another.
    pub lines: Lines,
    /// Cache lines that no core has.
    pub memory: Memory,
    /// Bytes in bulk.
    pub bandwidth: Bandwidth,
    /// What else the processors do.
    pub processor: Processor,
    /// Shootdowns.
    pub flush: FlushPrices,
    /// What an operating system adds.
    pub system: SystemPrices,
    /// A reported access to a line that the core has, by what it is at, as far as that has
    /// been calibrated.
    #[serde(default)]
    pub work: Work,
    /// TLBs and page walks, if they have been described.
    pub translation: Option<Translation>,
}

/// Cores from the inside out. Each level has the same number of parts everywhere.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Topology {
    /// Hardware threads of a core, 1 or 2. Each is a CPU.
    pub threads_per_core: usize,
    /// Cores that share their last cache.
    pub cores_per_cluster: usize,
    /// Clusters of a socket.
    pub clusters_per_socket: usize,
    /// Sockets that are joined directly.
    pub sockets_per_board: usize,
    /// Boards, joined by something slower.
    pub boards: usize,
    /// Nodes that the memory of a socket is divided into; each has as many clusters.
    pub nodes_per_socket: usize,
    /// Where this is from.
    pub source: String,
}

/// Times of cache lines that some core has. A level that the topology does not have
/// has no figure.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lines {
    /// An access to a line that the core has.
    pub hit: Time,
    /// An atomic update of a line that the core owns.
    pub update: Time,
    /// A line that the core has lost for want of room ([`Processor::own_cache`]), from the last
    /// cache of its cluster.
    pub cached: Option<Time>,
    /// A line that the other thread of the core wrote last.
    pub sibling: Option<Time>,
    /// From another core of the cluster.
    pub cluster: Option<Time>,
    /// From another cluster of the socket.
    pub socket: Option<Time>,
    /// From another socket of the board.
    pub board: Option<Time>,
    /// From another board.
    pub system: Option<Time>,
    /// How long a line that several cores read is busy with one of them.
    pub slot: Time,
}

/// Times of cache lines that only memory has.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Memory {
    /// Memory of the core's node.
    pub own: Time,
    /// Memory of another node of the socket.
    pub socket: Option<Time>,
    /// Memory of another socket of the board.
    pub board: Option<Time>,
    /// Memory of another board.
    pub system: Option<Time>,
}

/// Rates of bytes in bulk.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bandwidth {
    /// One core zeroes pages.
    pub zero: Rate,
    /// One core copies pages, counting each byte once.
    pub copy: Rate,
    /// What a node's memory delivers to all cores together.
    pub node: Rate,
    /// One core zeroes pages that its caches hold ([`Processor::cache`]).
    pub zero_cached: Option<Rate>,
    /// One core copies pages that its caches hold.
    pub copy_cached: Option<Rate>,
}

/// What a processor does beside moving lines.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Processor {
    /// The instructions before each reported access.
    pub work: Time,
    /// Stores that wait for their lines while the core goes on.
    pub store_buffer: Count,
    /// KiB of pages that the caches of a cluster hold: of those that were zeroed or copied
    /// there last. Without it none do.
    pub cache: Option<Count>,
    /// KiB that the caches of a core hold. Without it a core loses no line for want of room.
    pub own_cache: Option<Count>,
    /// Share of the time that a line takes which the core has lost for want of room, for which
    /// the core waits: it has several under way at once, and asks for some before they are needed.
    /// 1 without it.
    pub exposed: Option<Share>,
    /// Speed of a thread while its sibling is busy, as a share of its speed alone.
    pub shared_speed: Option<Share>,
}

/// Times of shootdowns.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlushPrices {
    /// The sender, for each CPU that it interrupts.
    pub send: Time,
    /// From sending to the first instruction of the handler.
    pub arrive: Time,
    /// The handler beside the invalidations, which ends with its answer.
    pub handle: Time,
    /// To forget one page.
    pub page: Time,
    /// To forget all pages of a space, and to fetch again what is needed.
    pub full: Time,
    /// Pages from which on everything is forgotten instead.
    pub full_from: Count,
}

/// Times of an operating system.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SystemPrices {
    /// A page-fault trap: entry and return.
    pub trap: Time,
    /// A system call: entry and return.
    pub syscall: Time,
    /// To go to sleep: the switch to another task or to idling.
    pub sleep: Time,
    /// To wake somebody, for who wakes.
    pub wake: Time,
    /// From being woken to running.
    pub wake_latency: Time,
}

/// A reported access to a line that the core has, with the instructions before it, by kind
/// of operation: in place of [`Processor::work`] and [`Lines::hit`]. It may be less than a hit
/// alone, since a processor does other things while it waits for a hit.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Work {
    /// Page faults.
    pub fault: Option<Time>,
    /// Calls that change mappings.
    pub map: Option<Time>,
    /// Making spaces, by fork or from nothing.
    pub fork: Option<Time>,
    /// Leaving spaces, at the end of a task or for another program.
    pub exit: Option<Time>,
    /// Reading, writing and cutting files.
    pub file: Option<Time>,
}

/// Kinds of operation that [`Work`] tells apart.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum WorkKind {
    /// Page faults.
    Fault,
    /// Calls that change mappings.
    Map,
    /// Making spaces.
    Fork,
    /// Leaving spaces.
    Exit,
    /// Files by pages and bytes.
    File,
}

impl WorkKind {
    /// All, in the order of their numbers and of the keys in a file.
    pub const ALL: [WorkKind; 5] = [
        WorkKind::Fault,
        WorkKind::Map,
        WorkKind::Fork,
        WorkKind::Exit,
        WorkKind::File,
    ];

    /// Its key in the table `work`.
    pub const fn key(self) -> &'static str {
        match self {
            WorkKind::Fault => "fault",
            WorkKind::Map => "map",
            WorkKind::Fork => "fork",
            WorkKind::Exit => "exit",
            WorkKind::File => "file",
        }
    }
}

impl Work {
    /// The figure of a kind, if there is one.
    pub fn of(&self, kind: WorkKind) -> Option<&Time> {
        let figure = match kind {
            WorkKind::Fault => &self.fault,
            WorkKind::Map => &self.map,
            WorkKind::Fork => &self.fork,
            WorkKind::Exit => &self.exit,
            WorkKind::File => &self.file,
        };
        figure.as_ref()
    }

    /// Sets the figure of a kind.
    pub fn set(&mut self, kind: WorkKind, time: Time) {
        let figure = match kind {
            WorkKind::Fault => &mut self.fault,
            WorkKind::Map => &mut self.map,
            WorkKind::Fork => &mut self.fork,
            WorkKind::Exit => &mut self.exit,
            WorkKind::File => &mut self.file,
        };
        *figure = Some(time);
    }
}

/// Why there is no description.
#[derive(Debug, thiserror::Error)]
pub enum DescriptionError {
    /// The file cannot be read.
    #[error("cannot read the machine description {}: {source}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The text is not TOML, or lacks a key, or has one that does not exist.
    #[error("{file}: {message}")]
    Syntax {
        /// Name of the file.
        file: String,
        /// What was found where, and what was expected.
        message: String,
    },
    /// The figures cannot be those of a machine.
    #[error("{}", list(.file, .flaws))]
    Flaws {
        /// Name of the file.
        file: String,
        /// All that is wrong with it.
        flaws: Vec<Flaw>,
    },
    /// No description has that name.
    #[error(
        "no machine is called \"{name}\"; there are {}; or name a file that ends in .toml",
        names()
    )]
    Unknown {
        /// The name.
        name: String,
    },
}

fn list(file: &str, flaws: &[Flaw]) -> String {
    let lines: Vec<String> = flaws.iter().map(|flaw| format!("{file}: {flaw}")).collect();
    lines.join("\n")
}

fn names() -> String {
    let names: Vec<&str> = SHIPPED.iter().map(|machine| machine.name).collect();
    names.join(", ")
}

impl Description {
    /// The description in `text`. Messages call it `file`.
    ///
    /// # Errors
    /// [`DescriptionError::Syntax`] or [`DescriptionError::Flaws`].
    pub fn parse(text: &str, file: &str) -> Result<Description, DescriptionError> {
        let description: Description =
            toml::from_str(text).map_err(|error| DescriptionError::Syntax {
                file: file.to_owned(),
                message: error.to_string().trim_end().to_owned(),
            })?;
        let flaws = check::flaws(&description);
        if flaws.is_empty() {
            Ok(description)
        } else {
            let file = file.to_owned();
            Err(DescriptionError::Flaws { file, flaws })
        }
    }

    /// The description in a file.
    ///
    /// # Errors
    /// Any [`DescriptionError`] but the last.
    pub fn read(path: &Path) -> Result<Description, DescriptionError> {
        let text = std::fs::read_to_string(path).map_err(|source| DescriptionError::Read {
            path: path.to_owned(),
            source,
        })?;
        Description::parse(&text, &path.display().to_string())
    }

    /// The shipped description of that name, or that in the file if `name` ends in
    /// `.toml`.
    ///
    /// # Errors
    /// Any [`DescriptionError`].
    pub fn named(name: &str) -> Result<Description, DescriptionError> {
        if name.ends_with(".toml") {
            return Description::read(Path::new(name));
        }
        let machine = SHIPPED.iter().find(|machine| machine.name == name);
        let machine = machine.ok_or_else(|| DescriptionError::Unknown {
            name: name.to_owned(),
        })?;
        Description::parse(machine.text, machine.file)
    }

    /// Number of cores.
    pub fn cores(&self) -> usize {
        let topology = &self.topology;
        topology.cores_per_cluster
            * topology.clusters_per_socket
            * topology.sockets_per_board
            * topology.boards
    }

    /// Number of CPUs: hardware threads.
    pub fn cpus(&self) -> usize {
        self.cores() * self.topology.threads_per_core
    }

    /// Number of memory nodes.
    pub fn nodes(&self) -> usize {
        let topology = &self.topology;
        topology.nodes_per_socket * topology.sockets_per_board * topology.boards
    }

    /// All figures that it has, with their keys (`lines.hit`), in the order of the tables.
    pub fn figures(&self) -> Vec<(String, &dyn Figure)> {
        let of_tables = check::figures(self).into_iter();
        let named = of_tables.map(|(key, figure)| (key.to_owned(), figure));
        let translation = self.translation.iter().flat_map(Translation::figures);
        named.chain(translation).collect()
    }

    /// Everything that is wrong with it, as [`Description::parse`] would find.
    pub fn flaws(&self) -> Vec<Flaw> {
        check::flaws(self)
    }

    /// The figures by what they rest on, in the order of [`Basis::ALL`].
    pub fn bases(&self) -> [usize; Basis::ALL.len()] {
        let mut counts = [0; Basis::ALL.len()];
        for (_, figure) in self.figures() {
            if let Some(basis) = Basis::of(figure.source()) {
                counts[basis as usize] += 1;
            }
        }
        counts
    }
}
