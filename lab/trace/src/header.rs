//! What a trace says about itself: where it was made, its tasks and files.

use crate::event::TaskId;

/// Everything in a trace that is not an event.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Header {
    /// The machine and the command that was recorded.
    pub environment: Environment,
    /// All tasks, in the order in which they were created: a task comes after
    /// its parent. [`TaskId`] is an index into this table.
    pub tasks: Vec<Task>,
    /// All files, in the order in which they were first seen.
    /// [`FileId`](crate::FileId) is an index into this table.
    pub files: Vec<File>,
    /// Command names; [`EventKind::Exec`](crate::EventKind::Exec) points here.
    pub strings: Vec<String>,
    /// Events that the kernel dropped because the recorder's buffer was full.
    pub lost: u64,
    /// What the recorder could not see, one sentence each.
    pub invisible: Vec<String>,
    /// Events say how long their task ran before them
    /// ([`Event::ran_us`](crate::Event)).
    pub cpu_times: bool,
    /// Accessed marks were sampled, and how
    /// ([`EventKind::Accessed`](crate::EventKind::Accessed)).
    pub accesses: Option<Accesses>,
    /// How many of the first events make the state with which the trace begins: nobody did
    /// these while it was recorded. 0 where it begins with an empty one.
    pub beginning: u64,
    /// Memory groups (memory cgroups) of the recorded processes, as far as they have limits.
    pub groups: Vec<MemoryGroup>,
    /// Number of events in the trace. Set by the writer.
    pub events: u64,
    /// Time of the last event in microseconds. Set by the writer.
    pub duration_us: u64,
}

/// A memory group of recorded processes, as it was when the recording began.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemoryGroup {
    /// Its directory in the hierarchy of groups.
    pub path: String,
    /// The least limit in bytes, of its own and of the groups above it.
    pub limit: u64,
    /// Bytes that were charged to it.
    pub used: u64,
}

/// How accessed marks were sampled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Accesses {
    /// Microseconds from one sample to the next.
    pub interval_us: u64,
    /// What a mark was told of.
    pub marks: AccessMarks,
}

/// What an accessed mark was told of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AccessMarks {
    /// Each page.
    Pages,
    /// How many pages of each region. Of those that were resident as many are taken for used,
    /// from the lowest address on.
    Regions,
}

/// Where and how a trace was made.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Environment {
    /// Kernel release, as `uname -r` prints it.
    pub kernel: String,
    /// Machine architecture, as `uname -m` prints it.
    pub architecture: String,
    /// CPUs that were online.
    pub cpus: u32,
    /// Memory of the machine in bytes.
    pub memory: u64,
    /// The recorded command and its arguments.
    pub command: Vec<String>,
    /// Transparent huge pages were switched off for the recorded tree.
    pub thp_off: bool,
    /// What `vellum cut` did to the recording, one entry for each cut.
    pub cuts: Vec<String>,
}

/// A task (process or thread).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Task {
    /// Its id when it was recorded. Ids are reused: only for people to read.
    pub pid: u32,
    /// The id of its process (thread group) when it was recorded.
    pub process: u32,
    /// Who created it. `None`: it was there when the trace begins, with an
    /// empty address space of its own that its first events fill. The recording
    /// of a command has one such task; a cut, or a recording of running processes, can
    /// have several.
    pub parent: Option<TaskId>,
}

/// A file that was mapped, read or written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct File {
    /// Path, where a mapping showed it; empty otherwise.
    pub name: String,
    /// Device: major number << 20 | minor number, as the kernel has it.
    pub device: u32,
    /// Inode number.
    pub inode: u64,
    /// Length in bytes when the file was first seen; 0 for a file that the
    /// workload created. Where the length was invisible, the smallest length
    /// that makes every event on the file possible.
    pub size: u64,
}

impl File {
    /// Length in 4 KiB pages when the file was first seen, rounded up.
    pub fn pages(&self) -> u64 {
        self.size.div_ceil(4096)
    }
}
