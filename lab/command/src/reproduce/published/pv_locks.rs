//! Source 4: locks of pv lists, and the list of chunks.

/// A run of a build as `time` printed it: real, user and system seconds.
pub type Run = [f64; 3];

/// What was built with one kernel.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Kernel {
    /// What the text calls it.
    pub name: &'static str,
    /// Its design.
    pub design: &'static str,
    /// Its runs.
    pub runs: &'static [Run],
}

/// [`MARCH_2020`](super::MARCH_2020), 16 cores with 32 threads, `make -s -j 40`.
pub const BUILDKERNEL_16_CORES: [Kernel; 2] = [
    Kernel {
        name: "stock",
        design: "as=freebsd-13-hashed",
        runs: &[
            [237.53, 6782.41, 567.74],
            [238.08, 6769.18, 569.86],
            [237.39, 6783.97, 570.91],
        ],
    },
    Kernel {
        name: "patched",
        design: "as=freebsd-13-obm",
        runs: &[
            [227.86, 6730.43, 307.43],
            [226.40, 6737.99, 304.76],
            [227.33, 6733.44, 305.36],
        ],
    },
];

/// [`MARCH_2020`](super::MARCH_2020), the second, larger machine, which has nodes.
pub const BUILDKERNEL_PIG1: [Kernel; 3] = [
    Kernel {
        name: "stock",
        design: "as=freebsd-13-superpage",
        runs: &[
            [116.11, 7901.83, 446.20],
            [116.03, 7945.72, 447.52],
            [117.55, 7902.05, 450.55],
        ],
    },
    Kernel {
        name: "only obm",
        design: "as=freebsd-13-superpage,pvlock=byte",
        runs: &[[114.19, 7879.51, 438.05], [116.39, 7882.03, 436.02]],
    },
    Kernel {
        name: "obm + removal of pvc locks",
        design: "as=freebsd-13-obm",
        runs: &[
            [115.82, 7911.22, 429.60],
            [116.64, 7898.30, 433.64],
            [115.68, 7918.47, 430.82],
        ],
    },
];

/// A class of locks, and how long all CPUs waited for it while a build farm ran: with the
/// first design and with the second.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Waiting {
    /// What is waited for.
    pub what: &'static str,
    /// The two designs.
    pub designs: [&'static str; 2],
    /// Waiting, in units of the kernel's lock profile.
    pub units: [f64; 2],
    /// Beginnings of the names of the locks here.
    pub locks: &'static [&'static str],
}

/// [`OCTOBER_2019`](super::OCTOBER_2019). The second figure for locks of pv lists, 1.35e9, was
/// taken before locks were kept from one page to the next, which all our designs do; the
/// third, 0.93e9, with that.
pub const BUILD_FARM: [Waiting; 2] = [
    Waiting {
        what: "locks of pv lists",
        designs: ["as=freebsd-13-hashed", "as=freebsd-13-superpage"],
        units: [14.75e9, 0.93e9],
        locks: &["pv list locks", "pv locks of 2 MiB", "pv list heads"],
    },
    Waiting {
        what: "list of chunks",
        designs: ["as=freebsd-13-hashed", "as=freebsd-13-superpage"],
        units: [483e6, 182e6],
        locks: &["pv chunk lists"],
    },
];

/// Waiting for locks of pv lists with a lock for each 2 MiB, before batching.
pub const BUILD_FARM_UNBATCHED: f64 = 1.35e9;
