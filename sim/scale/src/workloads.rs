//! The workloads by name.

/// What every CPU does, over and over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Workload {
    /// What it is called.
    pub name: &'static str,
    /// What a CPU does.
    pub summary: &'static str,
    /// What is counted, in the plural.
    pub unit: &'static str,
    pub(crate) kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Faults(Spaces),
    CachedFaults(Spaces),
    MapUnmap(Spaces),
    ForkExit,
    Read,
    Write(Files),
    LookUp(Pages),
    Shootdowns,
}

/// Whether CPUs have a space each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Spaces {
    Own,
    Shared,
}

/// Whether CPUs have a file each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Files {
    Own,
    Shared,
}

/// Which pages of a file CPUs ask about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pages {
    One,
    Any,
}

/// All of them.
pub const WORKLOADS: [Workload; 13] = [
    Workload {
        name: "faults",
        summary: "stores to fresh pages of memory in a space of its own",
        unit: "faults",
        kind: Kind::Faults(Spaces::Own),
    },
    Workload {
        name: "faults-one-space",
        summary: "stores to fresh pages of memory of its own in a space that all share",
        unit: "faults",
        kind: Kind::Faults(Spaces::Shared),
    },
    Workload {
        name: "cached-faults",
        summary: "loads from pages of one cached file that a space of its own maps",
        unit: "faults",
        kind: Kind::CachedFaults(Spaces::Own),
    },
    Workload {
        name: "cached-faults-one-space",
        summary: "loads from pages of one cached file through a mapping of its own in a space that all share",
        unit: "faults",
        kind: Kind::CachedFaults(Spaces::Shared),
    },
    Workload {
        name: "map-unmap",
        summary: "maps a page, stores to it and unmaps it, in a space of its own",
        unit: "rounds",
        kind: Kind::MapUnmap(Spaces::Own),
    },
    Workload {
        name: "map-unmap-one-space",
        summary: "maps a page, stores to it and unmaps it, far from the others in a space that all share",
        unit: "rounds",
        kind: Kind::MapUnmap(Spaces::Shared),
    },
    Workload {
        name: "fork-exit",
        summary: "forks a space of 64 pages, of which the child stores to 8, and ends the child",
        unit: "forks",
        kind: Kind::ForkExit,
    },
    Workload {
        name: "read-one-file",
        summary: "reads 4 KiB at a random page of one cached file",
        unit: "reads",
        kind: Kind::Read,
    },
    Workload {
        name: "write-one-file",
        summary: "writes 4 KiB to each page in turn of its own part of one file in memory",
        unit: "writes",
        kind: Kind::Write(Files::Shared),
    },
    Workload {
        name: "write-own-file",
        summary: "writes 4 KiB to each page in turn of a file in memory of its own",
        unit: "writes",
        kind: Kind::Write(Files::Own),
    },
    Workload {
        name: "look-up-one-page",
        summary: "visits the entries that map one page of a file that 16 spaces map",
        unit: "visits",
        kind: Kind::LookUp(Pages::One),
    },
    Workload {
        name: "look-up-one-file",
        summary: "visits the entries that map a random page of a file that 16 spaces map",
        unit: "visits",
        kind: Kind::LookUp(Pages::Any),
    },
    Workload {
        name: "shootdowns",
        summary: "has a page forgotten by all CPUs, without the core",
        unit: "shootdowns",
        kind: Kind::Shootdowns,
    },
];

/// The workload of that name.
pub fn workload(name: &str) -> Option<&'static Workload> {
    WORKLOADS.iter().find(|workload| workload.name == name)
}
