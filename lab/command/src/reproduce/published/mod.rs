//! The published figures, each with where it was published.
//!
//! `lab/command/tests/cli/reproduce.rs` spot-checks them against one another: group sums of
//! the profiles, percentages of the tables.

mod high_memory;
mod pv_locks;

pub use high_memory::{KERNBENCH_2010, Kolivas, POOLED_RUNS_2010, TITLE_2010};
pub use pv_locks::{
    BUILD_FARM, BUILD_FARM_UNBATCHED, BUILDKERNEL_16_CORES, BUILDKERNEL_PIG1, Kernel, Waiting,
};

/// Where a figure was published.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Source {
    /// Author, title or list, date.
    pub text: &'static str,
    /// The machine it was measured on.
    pub machine: &'static str,
}

/// "2.5.65-mm2 vs 2.5.65-mm3 (full objrmap)".
pub const MARCH_2003: Source = Source {
    text: "M. J. Bligh, 2.5.65-mm2 vs 2.5.65-mm3 (full objrmap), linux-kernel, 22 March 2003",
    machine: "16-way NUMA-Q",
};

/// The comparison of the schemes that were candidates for 2.6.
pub const MARCH_2004: Source = Source {
    text: "M. J. Bligh, comparison of reverse mapping schemes on 2.6.5-rc1, linux-kernel, March 2004",
    machine: "16-way NUMA-Q",
};

/// The worst case of lists of regions.
pub const RMAP_TEST_2003: Source = Source {
    text: "A. Morton, rmap-test on 2.5.66-mm4, linux-kernel, April 2003",
    machine: "256 MB of memory",
};

/// The same with a priority search tree.
pub const RMAP_TEST_2004: Source = Source {
    text: "prio_tree against rmap-test on 2.6.5-rc2, linux-kernel, March 2004",
    machine: "Pentium II 200 MHz, 256 MB of memory",
};

/// The claim that page-table quicklists were missed.
pub const AUGUST_2004: Source = Source {
    text: "R. Holt, What are the chances I can re-introduce quicklists for PTEs?, linux-ia64, 5 August 2004",
    machine: "SGI Altix (ia64, pages of 16 KiB)",
};

/// The generic quicklists.
pub const QUICKLISTS_2007: Source = Source {
    text: "C. Lameter, Quicklists for page table pages, linux-kernel, 2007 (merged as 6225e93735ac)",
    machine: "x86-64",
};

/// The patches to tmpfs, the page cache and the page allocator of 2014.
pub const MAY_2014: Source = Source {
    text: "M. Gorman, Misc page alloc, shmem, mark_page_accessed and page_waitqueue optimisations (v2), linux-mm, 1 May 2014",
    machine: "one socket; a tenth of its memory is about 2 GB",
};

/// The patch that lets page tables stay out of high memory.
pub const FEBRUARY_2010: Source = Source {
    text: "I. Campbell, x86, mm: Allow highmem user page tables to be disabled at boot time, linux-kernel, 17 February 2010 (merged as 14315592009c)",
    machine: "4 GB of memory, make -j 4",
};

/// The build farm whose lock profiles led to a lock for each 2 MiB.
pub const OCTOBER_2019: Source = Source {
    text: "FreeBSD review D21833, amd64 pmap: pv list locks by superpage, October 2019",
    machine: "poudriere -j 104 for 90 minutes",
};

/// The patch that gives each page a mutex of one byte, and takes the list of chunks away.
pub const MARCH_2020: Source = Source {
    text: "K. Belousov, amd64 pmap: fine-grained pv list locking, FreeBSD review D24217, 29 March 2020",
    machine: "16 cores with 32 threads, and pig1, which is larger and has nodes; make -s -j 40 buildkernel, objects on tmpfs",
};

/// The share of something in a profile of dd to a tmpfs, before and after the patch that
/// made it cheaper.
#[derive(Debug)]
pub struct Share {
    /// The kernel's function, or what it does.
    pub name: &'static str,
    /// The option that the patch sets.
    pub option: &'static str,
    /// Percent of all samples, before and after.
    pub percent: [f64; 2],
    /// Ends of the names of what does the same here.
    pub functions: &'static [&'static str],
}

/// What the texts of single patches say, May 2014.
pub const SHARES_2014: &[Share] = &[
    Share {
        name: "page_waitqueue",
        option: "pagelock=waiters",
        percent: [1.48, 0.0002],
        functions: &[
            "object::page_lock::may_be_awaited",
            "object::page_lock::queue",
        ],
    },
    Share {
        name: "mark_page_accessed",
        option: "accessed=init",
        percent: [3.03, 0.06],
        functions: &["object::two_lists::touched", "note_touched"],
    },
    Share {
        name: "page-block flags",
        option: "blockflags=word",
        percent: [1.27, 0.5],
        functions: &[
            "frame::blocks::get",
            "frame::blocks::get_by_bits",
            "frame::blocks::set",
        ],
    },
];

/// One row of a kernbench block: elapsed, system, user (seconds), CPU (percent).
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Kernbench {
    /// The kernel.
    pub label: &'static str,
    /// Elapsed, system, user seconds, and percent of a CPU. What a later post
    /// does not give is absent.
    pub elapsed_s: f64,
    /// Seconds of system time.
    pub system_s: f64,
    /// Seconds of user time and percent of CPU.
    pub user_and_cpu: Option<(f64, f64)>,
}

/// Titles of the three loads, in the order of all tables here.
pub const LOADS: [&str; 3] = [
    "make -j N vmlinux, where N = 2 x num_cpus",
    "make -j N vmlinux, where N = 16 x num_cpus",
    "make -j vmlinux, maximal tasks",
];

const fn kernbench(label: &'static str, row: [f64; 4]) -> Kernbench {
    Kernbench {
        label,
        elapsed_s: row[0],
        system_s: row[1],
        user_and_cpu: Some((row[2], row[3])),
    }
}

/// [`MARCH_2003`]: partial against full object-based reverse mapping.
pub const KERNBENCH_2003: [[Kernbench; 2]; 3] = [
    [
        kernbench("2.5.65-mm2", [44.04, 80.63, 566.83, 1469.25]),
        kernbench("2.5.65-mm3", [44.21, 80.57, 567.61, 1466.00]),
    ],
    [
        kernbench("2.5.65-mm2", [44.27, 88.56, 574.21, 1496.75]),
        kernbench("2.5.65-mm3", [44.10, 89.24, 574.70, 1503.75]),
    ],
    [
        kernbench("2.5.65-mm2", [44.30, 86.09, 572.75, 1488.25]),
        kernbench("2.5.65-mm3", [44.36, 86.86, 573.28, 1486.25]),
    ],
];

/// A published comparison: each of its kernels by the scheme it stands for
/// (`rmap=`) and as `as=` calls it, the base first.
pub type Kernels = [(&'static str, &'static str)];

/// The kernels of [`KERNBENCH_2003`], in its order.
pub const KERNELS_2003: &Kernels = &[
    ("partial", "linux-2.5.65-mm2"),
    ("anonmm2003", "linux-2.5.65-mm3"),
];

const fn brief(label: &'static str, elapsed_s: f64, system_s: f64) -> Kernbench {
    Kernbench {
        label,
        elapsed_s,
        system_s,
        user_and_cpu: None,
    }
}

/// [`MARCH_2004`]: four schemes.
pub const KERNBENCH_2004: [[Kernbench; 4]; 3] = [
    [
        brief("virgin", 45.75, 102.49),
        brief("partial", 44.84, 85.75),
        brief("hugh", 44.79, 83.85),
        brief("anon_vma", 44.66, 83.69),
    ],
    [
        brief("virgin", 46.99, 121.95),
        brief("partial", 45.09, 97.16),
        brief("hugh", 45.00, 95.45),
        brief("anon_vma", 44.90, 96.17),
    ],
    [
        brief("virgin", 46.96, 122.43),
        brief("partial", 45.18, 93.60),
        brief("hugh", 44.89, 91.04),
        brief("anon_vma", 44.92, 91.96),
    ],
];

/// The kernels of [`KERNBENCH_2004`], in its order.
pub const KERNELS_2004: &Kernels = &[
    ("chains", "linux-2.6.5-rc1"),
    ("partial", "linux-2.6.5-rc1-partial"),
    ("anonmm", "linux-2.6.5-rc1-anonmm"),
    ("anon_vma", "linux-2.6.5-rc1-anon_vma"),
];

/// Numbers of scripts at once in both SDET tables.
pub const SDET_SCRIPTS: [u32; 8] = [1, 2, 4, 8, 16, 32, 64, 128];

/// [`MARCH_2003`]: throughput and its standard deviation of both kernels, in
/// percent.
pub const SDET_2003: [[(f64, f64); 2]; 8] = [
    [(100.0, 2.2), (98.9, 2.0)],
    [(100.0, 2.7), (97.1, 2.3)],
    [(100.0, 1.3), (103.5, 1.3)],
    [(100.0, 1.0), (98.0, 1.0)],
    [(100.0, 0.6), (99.4, 1.0)],
    [(100.0, 0.2), (101.7, 0.5)],
    [(100.0, 0.1), (101.0, 0.4)],
    [(100.0, 0.5), (100.8, 0.6)],
];

/// [`MARCH_2004`]: throughput of the four schemes in percent of the first.
pub const SDET_2004: [[f64; 4]; 8] = [
    [100.0, 101.4, 100.0, 101.4],
    [100.0, 107.7, 108.7, 109.5],
    [100.0, 110.5, 114.6, 113.3],
    [100.0, 119.4, 120.2, 119.6],
    [100.0, 118.1, 119.8, 119.9],
    [100.0, 119.2, 120.4, 121.8],
    [100.0, 122.1, 123.5, 123.3],
    [100.0, 123.1, 124.7, 123.9],
];

/// A line of a diffprofile: change in ticks, change in percent, function.
pub type ProfileLine = (i64, f64, &'static str);

/// [`MARCH_2003`]: kernbench, positive is worse in 2.5.65-mm3. What the post left
/// out lies between the positive and the negative lines.
pub const DIFFPROFILE_KERNBENCH: &[ProfileLine] = &[
    (353, 0.0, "set_page_dirty"),
    (284, 0.0, "try_to_unmap_one"),
    (224, 17.1, "page_add_rmap"),
    (193, 5.8, "find_get_page"),
    (142, 1.8, "d_lookup"),
    (113, 10.6, "link_path_walk"),
    (67, 0.0, "page_dup_rmap"),
    (56, 9.4, "__wake_up"),
    (53, 0.0, "rmap_get_cpu"),
    (46, 8.8, "find_vma"),
    (45, 8.6, "fd_install"),
    (44, 0.0, "page_turn_rmap"),
    (40, 14.6, "do_lookup"),
    (37, 9.9, ".text.lock.file_table"),
    (36, 2.1, "buffered_rmqueue"),
    (35, 5.5, "copy_process"),
    (34, 10.5, "pgd_ctor"),
    (33, 97.1, "exit_mmap"),
    (31, 4.9, "handle_mm_fault"),
    (-36, -80.0, "profile_exit_mmap"),
    (-51, -14.9, "pte_alloc_map"),
    (-53, -27.5, "install_page"),
    (-99, -100.0, "pte_chain_alloc"),
    (-127, -8.4, "free_hot_cold_page"),
    (-128, -0.9, "do_anonymous_page"),
    (-158, -100.0, "__pte_chain_free"),
    (-238, -16.4, "do_no_page"),
    (-293, -12.0, "page_remove_rmap"),
    (-330, -0.2, "total"),
    (-355, -100.0, "__set_page_dirty_buffers"),
    (-666, -1.4, "default_idle"),
];

/// [`MARCH_2003`]: SDET, positive is worse in 2.5.65-mm3.
pub const DIFFPROFILE_SDET: &[ProfileLine] = &[
    (2139, 0.0, "try_to_unmap_one"),
    (2032, 0.0, "page_dup_rmap"),
    (1508, 0.0, "set_page_dirty"),
    (1448, 0.0, "page_turn_rmap"),
    (223, 9.9, "link_path_walk"),
    (169, 2.8, ".text.lock.dcache"),
    (168, 3.0, ".text.lock.namei"),
    (158, 1.9, "find_get_page"),
    (139, 1.2, "d_lookup"),
    (104, 6.8, ".text.lock.attr"),
    (98, 32.9, "exit_mmap"),
    (97, 5.0, "d_alloc"),
    (93, 21.8, "generic_delete_inode"),
    (92, 89.3, "__blk_queue_bounce"),
    (90, 0.0, "rmap_get_cpu"),
    (83, 0.9, ".text.lock.dec_and_lock"),
    (70, 0.0, "dup_rmap"),
    (69, 0.6, "atomic_dec_and_lock"),
    (67, 24.6, "find_group_other"),
    (65, 8.2, "new_inode"),
    (59, 0.9, "path_lookup"),
    (50, 4.8, "prune_dcache"),
    (50, 2.9, ".text.lock.base"),
    (-51, -22.6, "ext2_new_block"),
    (-56, -6.1, "read_block_bitmap"),
    (-60, -3.6, "__read_lock_failed"),
    (-66, -3.7, "current_kernel_time"),
    (-67, -4.0, "__find_get_block"),
    (-78, -21.9, "group_reserve_blocks"),
    (-83, -2.5, "do_anonymous_page"),
    (-84, -22.3, "truncate_inode_pages"),
    (-85, -5.4, "real_lookup"),
    (-87, -27.6, "unlock_page"),
    (-106, -59.6, "profile_exit_mmap"),
    (-107, -100.0, "pte_chain_alloc"),
    (-134, -41.0, "install_page"),
    (-158, -100.0, "__pte_chain_free"),
    (-170, -6.4, "kmem_cache_free"),
    (-170, -9.9, "__wake_up"),
    (-202, -41.7, "grab_block"),
    (-253, -1.7, "copy_page_range"),
    (-266, -3.9, "__copy_to_user_ll"),
    (-328, -1.7, "zap_pte_range"),
    (-626, -6.9, "release_pages"),
    (-679, -19.0, "__down"),
    (-730, -23.9, "do_no_page"),
    (-1492, -100.0, "__set_page_dirty_buffers"),
    (-2051, -0.6, "default_idle"),
    (-3399, -22.3, "page_remove_rmap"),
    (-4052, -54.8, "page_add_rmap"),
    (-6486, -1.0, "total"),
];

/// Functions of the kernels of 2003 that are reverse mapping.
pub const RMAP_GROUP: &[&str] = &[
    "try_to_unmap_one",
    "page_add_rmap",
    "page_remove_rmap",
    "page_dup_rmap",
    "page_turn_rmap",
    "rmap_get_cpu",
    "dup_rmap",
    "pte_chain_alloc",
    "__pte_chain_free",
];

/// One function under two names: `set_page_dirty` took over.
pub const SET_PAGE_DIRTY_GROUP: &[&str] = &["set_page_dirty", "__set_page_dirty_buffers"];

/// Ticks that the functions of `group` gained or lost together.
pub fn group_sum(profile: &[ProfileLine], group: &[&str]) -> i64 {
    let lines = profile.iter().filter(|(_, _, name)| group.contains(name));
    lines.map(|(ticks, _, _)| ticks).sum()
}

/// Ticks of the whole old profile, as far as its rounded percentage tells.
pub fn total_ticks(profile: &[ProfileLine]) -> Option<f64> {
    let total = profile.iter().find(|(_, _, name)| *name == "total")?;
    Some(total.0 as f64 / (total.1 / 100.0))
}

/// [`MARCH_2003`]: share of anonymous mappings that were singletons.
pub const SINGLETON_SHARE: f64 = 0.90;

/// System seconds of the cases of rmap-test that take every page in turn.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RmapTest {
    /// Tasks, regions of each, pages of each region.
    pub shape: (u32, u32, u32),
    /// With chains of entries.
    pub chains_s: f64,
    /// With lists of regions, and whether that run was stopped before its end.
    pub list: (f64, bool),
    /// With a tree of regions.
    pub tree_s: Option<f64>,
}

/// The base kernel of [`RMAP_TEST_2003`]; other schemes are shown beside it with trees of
/// regions.
pub const KERNELS_RMAP_TEST: &Kernels = &[("chains", "linux-2.5.66-mm4")];

/// [`RMAP_TEST_2003`].
pub const RMAP_TEST: [RmapTest; 2] = [
    RmapTest {
        shape: (100, 100, 600),
        chains_s: 86.91,
        list: (1143.26, false),
        tree_s: None,
    },
    RmapTest {
        shape: (1, 10_000, 7),
        chains_s: 3.75,
        list: (146.45, false),
        tree_s: None,
    },
];

/// [`RMAP_TEST_2004`].
pub const RMAP_TEST_TREE: [RmapTest; 2] = [
    RmapTest {
        shape: (100, 100, 600),
        chains_s: 277.0,
        list: (19_834.0, true),
        tree_s: Some(204.0),
    },
    RmapTest {
        shape: (1, 10_000, 7),
        chains_s: 31.1,
        list: (1588.0, true),
        tree_s: Some(31.4),
    },
];

/// [`AUGUST_2004`]: how much slower the program became without quicklists.
pub const FORKFAULT_CLAIM: f64 = 9.0;

/// [`AUGUST_2004`]: table pages trapped on another node by a fork and a
/// migration, approximately.
pub const TRAPPED_PAGES: u32 = 40;

/// [`QUICKLISTS_2007`]: averages for a call, in microseconds, without and with
/// quicklists.
pub const PER_CALL_US: [(&str, f64, f64); 4] = [
    ("pte_alloc", 2.7, 1.3),
    ("pmd_alloc", 2.7, 0.889),
    ("pud_alloc", 2.8, 0.881),
    ("pgd_alloc", 4.0, 0.150),
];

/// The kernels of [`LOOPDD`] and [`LAT_MMAP`], with the presets that stand for them.
pub const KERNELS_2014: &Kernels = &[
    ("vanilla", "linux-3.15-rc3"),
    ("lockpage-v2r33", "linux-3.15-rc3-lockpage"),
];

/// One quantity of loopdd: statistics of thirty iterations on two kernels.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Loopdd {
    /// What the rows call it.
    pub operation: &'static str,
    /// What a row is of, and its value on each kernel.
    pub rows: [(&'static str, [f64; 2]); 5],
}

/// Throughput in MB/s and elapsed time in seconds. `TrimMean` is the mean of all
/// iterations but the first two.
pub const LOOPDD: [Loopdd; 2] = [
    Loopdd {
        operation: "",
        rows: [
            ("Min", [4096.0, 3891.2]),
            ("Mean", [4840.1067, 5154.1333]),
            ("TrimMean", [4867.6571, 5204.1143]),
            ("Stddev", [160.6807, 275.1917]),
            ("Max", [5017.6, 5324.8]),
        ],
    },
    Loopdd {
        operation: "elapsed",
        rows: [
            ("Min", [0.41, 0.39]),
            ("Mean", [0.4780, 0.4203]),
            ("TrimMean", [0.4796, 0.4179]),
            ("Stddev", [0.0353, 0.0379]),
            ("Max", [0.51, 0.48]),
        ],
    },
];

/// Iterations of [`LOOPDD`].
pub const LOOPDD_ITERATIONS: f64 = 30.0;

/// Megabytes of a mapping, and microseconds of lat_mmap on the two kernels.
pub const LAT_MMAP: [(u32, [f64; 2]); 20] = [
    (107, [557.0, 544.0]),
    (214, [1150.0, 1058.0]),
    (322, [1897.0, 1554.0]),
    (429, [2188.0, 2652.0]),
    (536, [2622.0, 2473.0]),
    (644, [3065.0, 2486.0]),
    (751, [3400.0, 3012.0]),
    (859, [3996.0, 3926.0]),
    (966, [4646.0, 3763.0]),
    (1073, [4981.0, 4154.0]),
    (1181, [5419.0, 5152.0]),
    (1288, [5553.0, 5538.0]),
    (1395, [5841.0, 5730.0]),
    (1503, [6225.0, 5981.0]),
    (1610, [6558.0, 6332.0]),
    (1717, [7130.0, 6741.0]),
    (1825, [9394.0, 8483.0]),
    (1932, [8056.0, 9427.0]),
    (2040, [8463.0, 9030.0]),
    (2147, [9014.0, 8608.0]),
];
