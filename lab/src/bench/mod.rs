//! Synthetic workloads with a name, on the core and on the host's kernel.
//!
//! [`BENCHMARKS`] lists them. A benchmark on the core is a [`Load`](crate::compare::Load)
//! like a trace: operations, cut into slices that all designs execute in turn
//! ([`core`]). On the host's kernel it is a real program ([`host`]). Both hand raw
//! times to [`findings`], which makes figures with intervals, a control and a
//! verdict of them; [`text`] and JSON print those.

pub mod core;
pub mod findings;
pub mod host;
pub mod request;
pub mod text;

pub use findings::{Arm, Figure, Findings, Input, Run};
pub use request::{On, Request, Sizes};

/// A benchmark that `vellum bench` knows.
#[derive(Debug)]
pub struct Benchmark {
    /// Name on the command line.
    pub name: &'static str,
    /// What it does, in one line.
    pub summary: &'static str,
    /// Whether it runs on the core.
    pub core: bool,
    /// Whether it runs on the host's kernel.
    pub linux: bool,
    /// Designs that it compares if none are named.
    pub designs: &'static [&'static str],
    /// Memory of each simulated machine if none is named, in bytes. A workload that
    /// is thought to need more gets more; replays of traces get what they need.
    pub ram_bytes: u64,
    /// Numbers that make it smaller or larger.
    pub sizes: &'static [Size],
    /// Variants, of which the first runs if none is named.
    pub variants: &'static [Variant],
}

/// A number that makes a benchmark smaller or larger.
#[derive(Debug)]
pub struct Size {
    /// Name on the command line.
    pub name: &'static str,
    /// Value if none is given.
    pub default: u64,
    /// Smallest value that has a meaning.
    pub least: u64,
    /// Whether `--scale` changes it.
    pub scales: bool,
    /// What it counts.
    pub summary: &'static str,
}

/// A way of running a benchmark.
#[derive(Debug)]
pub struct Variant {
    /// Name on the command line.
    pub name: &'static str,
    /// What is different.
    pub summary: &'static str,
}

const fn size(name: &'static str, default: u64, summary: &'static str) -> Size {
    Size {
        name,
        default,
        least: 1,
        scales: true,
        summary,
    }
}

const fn fixed(name: &'static str, default: u64, summary: &'static str) -> Size {
    Size {
        name,
        default,
        least: 1,
        scales: false,
        summary,
    }
}

/// A number that may be 0.
const fn or_none(name: &'static str, default: u64, summary: &'static str) -> Size {
    Size {
        least: 0,
        ..fixed(name, default, summary)
    }
}

const fn variant(name: &'static str, summary: &'static str) -> Variant {
    Variant { name, summary }
}

const RMAP: &[&str] = &["rmap=chains", "rmap=partial"];
/// What keeps an entry for each mapping, and what searches relatives.
const RELATIVES: &[&str] = &[
    "rmap=chains",
    "rmap=anonmm",
    "rmap=anon_vma",
    "rmap=anon_vma_chain",
    "rmap=family",
];
const GIB: u64 = 1 << 30;

/// Every benchmark, in the order of `vellum bench --list`.
pub const BENCHMARKS: &[Benchmark] = &[
    Benchmark {
        name: "kernbench",
        summary: "a kernel build under three loads; on the core copies of its trace",
        core: true,
        linux: true,
        designs: RMAP,
        ram_bytes: 4 * GIB,
        sizes: &[
            or_none(
                "light",
                1,
                "make -j 2 x CPUs: copies of the trace on the core; 0: not this load",
            ),
            or_none(
                "heavy",
                2,
                "make -j 16 x CPUs: copies of the trace on the core; 0: not this load",
            ),
            or_none(
                "unlimited",
                4,
                "make -j: copies of the trace on the core; 0: not this load",
            ),
        ],
        variants: &[],
    },
    Benchmark {
        name: "sdet",
        summary: "sdet-like: many users' scripts at once; on the core traces of different ones",
        core: true,
        linux: true,
        designs: RMAP,
        ram_bytes: 2 * GIB,
        sizes: &[
            fixed(
                "most",
                16,
                "scripts at once at the most; 1, 2, 4 ... come before",
            ),
            fixed("scripts", 1, "scripts that each trace holds"),
        ],
        variants: &[],
    },
    Benchmark {
        name: "rmap-test",
        summary: "tasks that map one file in many regions, and a scanner that looks its pages up",
        core: true,
        linux: false,
        designs: RMAP,
        ram_bytes: GIB,
        sizes: &[
            size("tasks", 100, "tasks that map the file"),
            size("regions", 100, "regions of each task"),
            fixed("pages", 600, "pages of each region"),
            size(
                "wide-regions",
                10_000,
                "regions of the one task of the second shape",
            ),
            fixed("wide-pages", 7, "pages of each of those"),
            fixed("visits", 1, "lookups of each page of the file"),
        ],
        variants: &[],
    },
    Benchmark {
        name: "fork-family",
        summary: "one parent and many children that copied its pages; lookups of both",
        core: true,
        linux: false,
        designs: RMAP,
        ram_bytes: 2 * GIB,
        sizes: &[
            size("children", 1000, "children of the parent"),
            size("pages", 100, "pages that each child copies"),
            size("shared", 100, "pages that all go on sharing"),
            fixed("visits", 10, "lookups of each page of the parent"),
        ],
        variants: &[],
    },
    Benchmark {
        name: "late-mappers",
        summary: "a parent's pages that few of many children still have; lookups of them",
        core: true,
        linux: false,
        designs: RELATIVES,
        ram_bytes: GIB / 4,
        sizes: &[
            size("children", 1000, "children of the parent"),
            fixed("mappers", 2, "oldest children, which keep the pages"),
            fixed("pages", 64, "pages that the parent writes"),
            fixed("visits", 4, "lookups of each page"),
        ],
        variants: &[],
    },
    Benchmark {
        name: "generations",
        summary: "a line of processes, each forked by the one before; the pages of all survive",
        core: true,
        linux: false,
        designs: RELATIVES,
        ram_bytes: GIB / 4,
        sizes: &[
            size("generations", 256, "processes in the line"),
            fixed("pages", 16, "pages that each one writes"),
            fixed("visits", 2, "lookups of each page"),
        ],
        variants: &[
            variant("line", "each one ends when it has forked the next"),
            variant("living", "all of them live on"),
        ],
    },
    Benchmark {
        name: "mremap-after-fork",
        summary: "children move memory that they share with their parent",
        core: true,
        linux: false,
        designs: RMAP,
        ram_bytes: GIB,
        sizes: &[
            size("children", 100, "children of the parent"),
            size("pages", 1000, "pages that each child moves"),
        ],
        variants: &[],
    },
    Benchmark {
        name: "shared-file",
        summary: "many regions of the same pages of one file, few of which map a given page",
        core: true,
        linux: false,
        designs: RMAP,
        ram_bytes: GIB,
        sizes: &[
            size("regions", 4000, "regions, each of the whole file"),
            fixed("pages", 512, "pages of the file"),
            fixed("touched", 1, "pages that are touched in each region"),
            fixed("visits", 4, "lookups of each page"),
        ],
        variants: &[],
    },
    Benchmark {
        name: "rmap-primitives",
        summary: "first touch, fork, exit of private pages: where rmap adds, duplicates, removes",
        core: true,
        linux: false,
        designs: RMAP,
        ram_bytes: GIB / 2,
        sizes: &[
            fixed("pages", 8192, "pages that the parent touches"),
            size("rounds", 32, "times that it is all done"),
        ],
        variants: &[],
    },
    Benchmark {
        name: "forkfault",
        summary: "fork, then strided faults in the child, each of which needs a page table",
        core: true,
        linux: true,
        designs: &["ptepage=fresh", "ptepage=quicklist"],
        ram_bytes: GIB / 4,
        sizes: &[
            size("forks", 128, "children, one after the other"),
            fixed("faults", 32, "faults of each child"),
            or_none(
                "stride",
                0,
                "pages from fault to fault; 0: as many as one table covers in the widest format",
            ),
            or_none(
                "resident",
                64,
                "pages of the parent in fork-exit and fork-exec",
            ),
        ],
        variants: &[
            variant(
                "read",
                "the published program: reads of untouched private memory",
            ),
            variant(
                "cold",
                "the same, with the CPU's caches emptied before each child",
            ),
            variant(
                "write",
                "writes instead of reads: a zeroed page as well as a table",
            ),
            variant(
                "cross",
                "the child runs on another CPU than the one that frees its tables",
            ),
            variant(
                "migrate",
                "the child is forked and faults on one node and ends on another",
            ),
            variant(
                "moved",
                "forked on one node, the child runs and ends on another",
            ),
            variant("fork-exit", "a child that does nothing (as lat_proc)"),
            variant(
                "fork-exec",
                "a child that executes a small program (as lat_proc)",
            ),
        ],
    },
];

/// The benchmark called `name`.
///
/// # Errors
/// There is none; the text names those that there are.
pub fn find(name: &str) -> Result<&'static Benchmark, String> {
    BENCHMARKS
        .iter()
        .find(|benchmark| benchmark.name == name)
        .ok_or_else(|| {
            let names: Vec<&str> = BENCHMARKS.iter().map(|b| b.name).collect();
            format!(
                "there is no benchmark `{name}`; there are {}",
                names.join(", ")
            )
        })
}
