//! The benchmarks that there are.

use super::core::{self, traces};
use super::host::{self, buildkernel, forkfault, kernbench, lat_mmap, loopdd, sdet};
use super::{Benchmark, PRESSURE, Replayed, Size, Variant, reclaim, rmap_test, tmpfs};

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
/// Linux before the patches of 2014 to tmpfs and the page cache, after them, and ours.
const TMPFS: &[&str] = &[
    "as=linux-3.15-rc3",
    "as=linux-3.15-rc3-lockpage",
    "rmap=family",
];
/// Both ways to choose the pages that leave.
const AGING: &[&str] = &["reclaim=on,aging=lru", "reclaim=on,aging=generations"];
/// FreeBSD with hashed locks of pv lists, and with one-byte mutexes.
const BUILDKERNEL: &[&str] = &["as=freebsd-13-hashed", "as=freebsd-13-obm"];
const GIB: u64 = 1 << 30;

/// Bytes in blocks of every size.
const SWEEP: &[Size] = &[
    fixed("mebibytes", 64, "bytes of each CPU"),
    fixed("least", 512, "bytes of the smallest block"),
    fixed("most", 4 << 20, "bytes of the largest block"),
];

/// What the CPUs of a sweep work on.
const FILES: &[Variant] = &[
    variant("private", "a file for each CPU"),
    variant(
        "shared",
        "one file, of which each CPU has a part of its own",
    ),
];

/// What most benchmarks have in common.
const BASE: Benchmark = Benchmark {
    name: "",
    summary: "",
    core: None,
    linux: None,
    sim: None,
    designs: RMAP,
    ram_bytes: GIB,
    sizes: &[],
    variants: &[],
};

/// Every benchmark, in the order of `vellum bench --list`.
pub const BENCHMARKS: &[Benchmark] = &[
    Benchmark {
        name: "kernbench",
        summary: "a kernel build under three loads; on the core copies of its trace",
        core: Some(traces::kernbench),
        linux: Some(|request, interrupt| host::run(kernbench::measure, request, interrupt)),
        sim: Some(Replayed::Kernbench),
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
        ..BASE
    },
    Benchmark {
        name: "buildkernel",
        summary: "make -s -j N of a kernel with its objects on tmpfs; copies of its trace for jobs",
        core: Some(core::buildkernel::run),
        linux: Some(|request, interrupt| host::run(buildkernel::measure, request, interrupt)),
        sim: Some(Replayed::Buildkernel),
        designs: BUILDKERNEL,
        ram_bytes: 4 * GIB,
        sizes: &[
            or_none(
                "jobs",
                0,
                "the N of make -j N; 0: five for every four CPUs, as 40 on 32",
            ),
            or_none(
                "milliseconds",
                0,
                "of the trace, from its beginning; 0: the whole",
            ),
        ],
        ..BASE
    },
    Benchmark {
        name: "sdet",
        summary: "sdet-like: many users' scripts at once; on the core traces of different ones",
        core: Some(traces::sdet),
        linux: Some(|request, interrupt| host::run(sdet::measure, request, interrupt)),
        sim: Some(Replayed::Sdet),
        ram_bytes: 2 * GIB,
        sizes: &[
            fixed(
                "most",
                16,
                "scripts at once at the most; 1, 2, 4 ... come before",
            ),
            fixed("scripts", 1, "scripts that each trace holds"),
        ],
        ..BASE
    },
    Benchmark {
        name: "rmap-test",
        summary: "tasks that map one file in many regions, and lookups of its pages",
        core: Some(rmap_test),
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
            fixed("visits", 1, "scanner: lookups of each page of the file"),
            fixed(
                "memory",
                50,
                "pressure: memory in percent of what the file and the page tables take",
            ),
            fixed(
                "sweeps",
                1,
                "pressure: times that each task touches the file",
            ),
        ],
        variants: &[
            variant(
                "scanner",
                "with enough memory; a scanner looks the pages up",
            ),
            variant(
                PRESSURE,
                "as published, with too little memory: reclaim looks the pages up",
            ),
        ],
        ..BASE
    },
    Benchmark {
        name: "fork-family",
        summary: "one parent and many children that copied its pages; lookups of both",
        core: Some(core::families::fork_family),
        ram_bytes: 2 * GIB,
        sizes: &[
            size("children", 1000, "children of the parent"),
            size("pages", 100, "pages that each child copies"),
            size("shared", 100, "pages that all go on sharing"),
            fixed("visits", 10, "lookups of each page of the parent"),
        ],
        ..BASE
    },
    Benchmark {
        name: "late-mappers",
        summary: "a parent's pages that few of many children still have; lookups of them",
        core: Some(core::descent::late_mappers),
        designs: RELATIVES,
        ram_bytes: GIB / 4,
        sizes: &[
            size("children", 1000, "children of the parent"),
            fixed("mappers", 2, "oldest children, which keep the pages"),
            fixed("pages", 64, "pages that the parent writes"),
            fixed("visits", 4, "lookups of each page"),
        ],
        ..BASE
    },
    Benchmark {
        name: "generations",
        summary: "a line of processes, each forked by the one before; the pages of all survive",
        core: Some(core::descent::generations),
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
        ..BASE
    },
    Benchmark {
        name: "mremap-after-fork",
        summary: "children move memory that they share with their parent",
        core: Some(core::families::mremap_after_fork),
        sizes: &[
            size("children", 100, "children of the parent"),
            size("pages", 1000, "pages that each child moves"),
        ],
        ..BASE
    },
    Benchmark {
        name: "shared-file",
        summary: "many regions of the same pages of one file, few of which map a given page",
        core: Some(core::files::shared_file),
        sizes: &[
            size("regions", 4000, "regions, each of the whole file"),
            fixed("pages", 512, "pages of the file"),
            fixed("touched", 1, "pages that are touched in each region"),
            fixed("visits", 4, "lookups of each page"),
        ],
        ..BASE
    },
    Benchmark {
        name: "rmap-primitives",
        summary: "first touch, fork, exit of private pages: where rmap adds, duplicates, removes",
        core: Some(core::primitives::run),
        ram_bytes: GIB / 2,
        sizes: &[
            fixed("pages", 8192, "pages that the parent touches"),
            size("rounds", 32, "times that it is all done"),
        ],
        ..BASE
    },
    Benchmark {
        name: "forkfault",
        summary: "fork, then strided faults in the child, each of which needs a page table",
        core: Some(core::forkfault::run),
        linux: Some(|request, interrupt| host::run(forkfault::measure, request, interrupt)),
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
            variant(
                "after",
                "a child runs on a node where one has ended that ran on another",
            ),
            variant("fork-exit", "a child that does nothing (as lat_proc)"),
            variant(
                "fork-exec",
                "a child that executes a small program (as lat_proc)",
            ),
        ],
        ..BASE
    },
    Benchmark {
        name: "loopdd",
        summary: "dd from /dev/zero to one file of a tenth of memory, truncated by reopening",
        core: Some(core::loopdd::run),
        linux: Some(|request, interrupt| host::run(loopdd::measure, request, interrupt)),
        designs: TMPFS,
        ram_bytes: 2 * GIB,
        sizes: &[
            fixed("iterations", 30, "times that the file is written"),
            or_none(
                "mebibytes",
                0,
                "size of the file; 0: a tenth of the memory of the machine",
            ),
        ],
        variants: &[
            variant("plain", "no sync"),
            variant("fsync", "dd with conv=fsync"),
            variant("sync", "sync after each iteration, not timed"),
        ],
        ..BASE
    },
    Benchmark {
        name: "lat_mmap",
        summary: "map a file, store a byte in every 16 KiB of its first tenth, unmap it",
        core: Some(core::lat_mmap::run),
        linux: Some(|request, interrupt| host::run(lat_mmap::measure, request, interrupt)),
        designs: TMPFS,
        ram_bytes: GIB / 2,
        sizes: &[
            Size {
                least: 2,
                ..fixed("mebibytes", 2048, "the largest of the twenty sizes")
            },
            fixed("samples", 60, "iterations of each size"),
        ],
        ..BASE
    },
    Benchmark {
        name: "pagealloc",
        summary: "blocks of frames of order 0 to 4, allocated and freed in batches",
        core: Some(core::frames::run),
        designs: TMPFS,
        ram_bytes: GIB / 2,
        sizes: &[
            fixed("mebibytes", 128, "memory of the largest batch"),
            size(
                "rounds",
                16,
                "times that 4096 blocks or one batch are taken",
            ),
        ],
        ..BASE
    },
    Benchmark {
        name: "pft",
        summary: "first stores to private memory, on 1 to --cpus CPUs",
        core: Some(core::pft::run),
        linux: Some(tmpfs::on_linux::pft),
        ram_bytes: GIB / 4,
        sizes: &[
            fixed("pages", 16_384, "pages of each thread or process"),
            size("rounds", 4, "times that they are touched"),
        ],
        variants: &[
            variant("threads", "threads of one process"),
            variant("processes", "processes of one thread each"),
        ],
        ..BASE
    },
    Benchmark {
        name: "write",
        summary: "writes to files in memory, by block size, on 1 to --cpus CPUs",
        core: Some(core::io::write),
        linux: Some(tmpfs::on_linux::write),
        designs: TMPFS,
        ram_bytes: GIB / 4,
        sizes: SWEEP,
        variants: FILES,
        ..BASE
    },
    Benchmark {
        name: "read",
        summary: "reads of files in memory, by block size, on 1 to --cpus CPUs",
        core: Some(core::io::read),
        linux: Some(tmpfs::on_linux::read),
        designs: TMPFS,
        ram_bytes: GIB / 4,
        sizes: SWEEP,
        variants: FILES,
        ..BASE
    },
    Benchmark {
        name: "readonce",
        summary: "files of a store, each read once from end to end, on 1 to --cpus CPUs",
        core: Some(core::io::readonce),
        linux: Some(tmpfs::on_linux::readonce),
        designs: TMPFS,
        ram_bytes: GIB / 4,
        sizes: &[
            fixed("mebibytes", 64, "size of the file of each CPU"),
            fixed("block", 4096, "bytes of a read"),
            size("rounds", 4, "files that each CPU reads"),
        ],
        ..BASE
    },
    Benchmark {
        name: "reclaim",
        summary: "programs with more than memory, whose pages leave for a device and come back",
        core: Some(reclaim::on_core),
        linux: Some(reclaim::on_linux),
        designs: AGING,
        ram_bytes: 64 << 20,
        sizes: &[
            fixed(
                "set",
                40,
                "readonce: percent of memory that are used all the time",
            ),
            fixed(
                "times",
                10,
                "readonce: times memory that files have which are read once",
            ),
            fixed("processes", 4, "usemem: processes"),
            fixed(
                "touched",
                200,
                "usemem: percent of memory that they store to together",
            ),
            fixed(
                "rounds",
                3,
                "usemem, fork-swapped, snapshots: times that it is done",
            ),
            fixed(
                "keys",
                200,
                "cache-server: percent of memory that its pages are",
            ),
            size("requests", 200_000, "cache-server: requests"),
            or_none(
                "skew",
                99,
                "cache-server, snapshots: hundredths of the exponent of Zipf's law",
            ),
            fixed(
                "process",
                75,
                "fork-swapped: percent of memory that the process has",
            ),
            fixed(
                "server",
                80,
                "snapshots: percent of memory that the server has",
            ),
        ],
        variants: &[
            variant(
                "readonce",
                "files read once beside a working set that should stay",
            ),
            variant(
                "usemem",
                "processes that store to more memory than there is",
            ),
            variant(
                "cache-server",
                "requests for few pages often and for most seldom",
            ),
            variant(
                "fork-swapped",
                "fork of a process that is swapped out, and touches after it",
            ),
            variant(
                "snapshots",
                "a server that forks children which save what it holds",
            ),
        ],
        ..BASE
    },
    Benchmark {
        name: "tmpfs",
        summary: "files in memory beside the host's tmpfs and memcpy, in one run",
        core: Some(tmpfs::files),
        designs: &["rmap=family"],
        ram_bytes: 0,
        sizes: &[Size {
            least: 2,
            ..fixed("mebibytes", 1024, "size of the file")
        }],
        ..BASE
    },
    Benchmark {
        name: "tmpfs-calls",
        summary: "mappings and truncations of a file in memory beside the host's tmpfs",
        core: Some(tmpfs::calls),
        designs: &["rmap=family"],
        ram_bytes: 0,
        sizes: &[
            Size {
                least: 2,
                ..fixed("mebibytes", 1024, "size of the file")
            },
            fixed("samples", 8, "iterations of each size of mapping"),
        ],
        ..BASE
    },
];
