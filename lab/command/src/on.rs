//! Where a workload runs.

/// Where a benchmark or a trace runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum On {
    /// On the core, with threads of this host as CPUs
    Core,
    /// On the kernel of this machine
    Linux,
    /// On a whole simulated machine, in virtual time
    #[cfg_attr(
        not(feature = "simulation"),
        value(help = "On a whole simulated machine: not built in")
    )]
    Sim,
}

impl On {
    /// All places.
    pub const ALL: [On; 3] = [On::Core, On::Linux, On::Sim];

    /// What it is called on the command line, and in results.
    pub fn name(self) -> &'static str {
        match self {
            On::Core => "core",
            On::Linux => "linux",
            On::Sim => "sim",
        }
    }

    /// Where that is, in words.
    pub fn place(self) -> &'static str {
        match self {
            On::Core => "on the core",
            On::Linux => "on the host's kernel",
            On::Sim => "on a simulated machine",
        }
    }
}
