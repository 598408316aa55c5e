//! What a trace says: tasks, files and events.
//!
//! These are the decoded values. How they lie in a file is the business of
//! the reader and writer.

/// A task (process or thread) of the recording: an index into
/// [`Header::tasks`](crate::Header), never a pid, because pids are reused.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct TaskId(pub u32);

/// A file of the recording: an index into the trace's file table.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct FileId(pub u32);

/// How an access touched memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Access {
    /// Load.
    Read,
    /// Store.
    Write,
    /// Instruction fetch.
    Execute,
}

/// Rights of a mapping, as `PROT_*` bits: 1 read, 2 write, 4 execute.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Prot(pub u8);

/// What made a mapping.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum MapOrigin {
    /// The `mmap` system call.
    Mmap,
    /// The kernel, while it executed a program (text, data, bss, stack, vdso).
    Exec,
}

/// One event of one task.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Event {
    /// Microseconds since the recording began.
    pub time_us: u64,
    /// Who did it.
    pub task: TaskId,
    /// What it was.
    pub kind: EventKind,
    /// Microseconds for which the task was on a CPU since its event before, or
    /// since it began; user and kernel mode together. `None`: not known, as
    /// everywhere in a trace without [`Header::cpu_times`](crate::Header).
    pub ran_us: Option<u64>,
}

/// What a task did. Addresses and lengths are bytes, as the kernel saw them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EventKind {
    /// The task created `child`. `clone_flags` are the kernel's `CLONE_*` bits.
    Create { child: TaskId, clone_flags: u64 },
    /// The task replaced its program. The maps that the kernel made follow as
    /// [`EventKind::Map`] with [`MapOrigin::Exec`].
    Exec {
        /// Index of the command name in the trace's string table.
        name: u32,
    },
    /// The task ended.
    Exit,
    /// The task learned that `child` had ended (a positive `wait4` result).
    Wait { child: TaskId },
    /// A mapping, with the address it got.
    Map {
        address: u64,
        length: u64,
        prot: Prot,
        shared: bool,
        grows_down: bool,
        /// `None`: anonymous.
        file: Option<FileId>,
        /// Byte offset in the file.
        offset: u64,
        origin: MapOrigin,
    },
    /// A successful `munmap`.
    Unmap { address: u64, length: u64 },
    /// A successful `mprotect`.
    Protect {
        address: u64,
        length: u64,
        prot: Prot,
    },
    /// A successful `mremap`.
    Remap {
        address: u64,
        length: u64,
        new_address: u64,
        new_length: u64,
    },
    /// The result of `brk`: the heap's end afterwards. The first one after an
    /// exec is where the heap begins: programs ask for it before they move it.
    Brk { end: u64 },
    /// A successful `madvise`; `advice` is the kernel's `MADV_*` number.
    Advise {
        address: u64,
        length: u64,
        advice: u32,
    },
    /// A page fault at `address` (low 12 bits cleared).
    Fault {
        address: u64,
        access: Access,
        /// Taken in kernel mode (a system call touched user memory).
        kernel: bool,
        /// The page was present (protection fault).
        present: bool,
    },
    /// Fault-around offered pages `first..=last` of `file` to the mapping whose
    /// fault precedes this event in the task's stream. The kernel maps those of
    /// them that are in memory. For shared anonymous memory `file` is the
    /// kernel's nameless file behind it, although [`EventKind::Map`] has none.
    MapAround { file: FileId, first: u64, last: u64 },
    /// Bytes of a file were read through the page cache.
    FileRead {
        file: FileId,
        offset: u64,
        length: u64,
    },
    /// Bytes of a file were written through the page cache.
    FileWrite {
        file: FileId,
        offset: u64,
        length: u64,
    },
    /// The file's length was set.
    Truncate { file: FileId, size: u64 },
    /// The pages were used by the task's process since the sample of accessed marks before, or
    /// since they were mapped; by whom and how often does not show. Given only by
    /// [`TraceReader::events_and_accesses`](crate::TraceReader::events_and_accesses), not counted
    /// among the events, and may lie after the task's end.
    Accessed { address: u64, length: u64 },
}
