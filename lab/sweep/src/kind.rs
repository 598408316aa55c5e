//! What a cell can do: the values of `run` in a grid.

/// A command of `vellum`, as cells run it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// `vellum replay --verify --audit`.
    Verify,
    /// `vellum replay`.
    Replay,
    /// `vellum compare`.
    Compare,
    /// `vellum replay --on sim`.
    Simulate,
    /// `vellum scale WORKLOAD`.
    Scale,
    /// `vellum bench`.
    Bench,
    /// `vellum replay --on linux`.
    Linux,
}

/// Keys that every grid may have.
pub const ALWAYS: [&str; 4] = ["run", "options", "memory", "time"];

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 7] = [
        Kind::Verify,
        Kind::Replay,
        Kind::Compare,
        Kind::Simulate,
        Kind::Scale,
        Kind::Bench,
        Kind::Linux,
    ];

    /// Its name in a grid.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Verify => "verify",
            Kind::Replay => "replay",
            Kind::Compare => "compare",
            Kind::Simulate => "simulate",
            Kind::Scale => "scale",
            Kind::Bench => "bench",
            Kind::Linux => "linux",
        }
    }

    /// The one with that name.
    pub fn named(name: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Whether its result depends on the host and on what else runs there.
    pub fn is_timed(self) -> bool {
        match self {
            Kind::Replay | Kind::Compare | Kind::Bench | Kind::Linux => true,
            Kind::Verify | Kind::Simulate | Kind::Scale => false,
        }
    }

    /// The keys that its grids must have, the first of which is what it is done with, and
    /// those that they may have.
    pub fn keys(self) -> (&'static [&'static str], &'static [&'static str]) {
        match self {
            Kind::Verify | Kind::Replay => {
                (&["traces"], &["designs", "cpus", "copies", "ram", "seeds"])
            }
            Kind::Compare => (
                &["traces", "designs"],
                &["cpus", "copies", "ram", "seeds", "passes"],
            ),
            Kind::Simulate => (
                &["traces", "machines"],
                &["designs", "cpus", "copies", "ram", "seeds"],
            ),
            Kind::Scale => (
                &["workloads", "machines"],
                &["designs", "cpus", "seeds", "window"],
            ),
            Kind::Bench => (
                &["benchmarks", "designs"],
                &["scales", "cpus", "ram", "seeds", "passes"],
            ),
            Kind::Linux => (&["traces"], &["seeds", "passes"]),
        }
    }

    /// Whether each of its cells holds a design against the first one.
    pub fn compares(self) -> bool {
        matches!(self, Kind::Compare | Kind::Bench)
    }
}
