//! Source 3: page tables in high memory, and none there.

/// A block of Con Kolivas's kernbench: averages with their deviations.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Kolivas {
    /// What `userpte=` the kernel stands for.
    pub userpte: &'static str,
    /// The lines below the first, in order: name, average, deviation.
    pub lines: [(&'static str, f64, f64); 6],
    /// The system time among them, and its deviation.
    pub system_s: (f64, f64),
}

/// Title of both blocks of [`KERNBENCH_2010`].
pub const TITLE_2010: &str = "Average Optimal load -j 4 Run (std deviation):";

/// Runs that are averaged in the lines of a block but for the elapsed time: kernbench
/// pools them with those of the load before, five each.
pub const POOLED_RUNS_2010: f64 = 10.0;

const fn kolivas(userpte: &'static str, values: [(f64, f64); 6]) -> Kolivas {
    let [elapsed, user, system, cpu, switches, sleeps] = values;
    Kolivas {
        userpte,
        lines: [
            ("Elapsed Time", elapsed.0, elapsed.1),
            ("User Time", user.0, user.1),
            ("System Time", system.0, system.1),
            ("Percent CPU", cpu.0, cpu.1),
            ("Context Switches", switches.0, switches.1),
            ("Sleeps", sleeps.0, sleeps.1),
        ],
        system_s: system,
    }
}

/// [`FEBRUARY_2010`](super::FEBRUARY_2010): page tables in high memory, and none there.
pub const KERNBENCH_2010: [Kolivas; 2] = [
    kolivas(
        "high",
        [
            (175.396, 0.238914),
            (515.983, 5.85019),
            (59.737, 1.26727),
            (263.8, 71.6796),
            (39989.7, 4672.64),
            (42617.7, 246.307),
        ],
    ),
    kolivas(
        "nohigh",
        [
            (174.278, 0.831968),
            (515.659, 6.07012),
            (55.9, 1.07799),
            (263.8, 71.266),
            (39929.6, 4485.13),
            (42583.7, 373.039),
        ],
    ),
];
