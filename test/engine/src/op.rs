//! Operations, their outcomes, and the trait that executes them.

use std::fmt;
use std::time::Instant;

/// An address space, by the number its creator chose for it.
///
/// Slots are dense and may be used again after the space in them has ended.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct SpaceSlot(pub u32);

/// A file, by the number its creator chose for it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct FileSlot(pub u32);

/// What an access wants to do.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Access {
    /// Load.
    Read,
    /// Store.
    Write,
    /// Instruction fetch.
    Execute,
}

/// Rights of a mapping. All false is a mapping that cannot be touched.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Prot {
    /// Loads allowed.
    pub read: bool,
    /// Stores allowed.
    pub write: bool,
    /// Instruction fetches allowed.
    pub execute: bool,
}

/// Whether writes are seen by others.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Sharing {
    /// Copy on write.
    Private,
    /// Writes go to the object.
    Shared,
}

/// What backs a mapping.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Backing {
    /// Zeroes. With [`Sharing::Shared`], a shared-memory object of its own.
    Anonymous,
    /// A file from the given page on.
    File {
        /// Which file.
        file: FileSlot,
        /// First page of the file that is mapped.
        page: u64,
    },
}

/// `madvise` advice that changes what is resident.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Advice {
    /// Drop the pages now; anonymous ones read as zero afterwards.
    DontNeed,
    /// The pages may be dropped at any time until they are written again.
    Free,
    /// The pages are not needed soon.
    Cold,
    /// Write the pages to swap now, as far as they can be.
    PageOut,
    /// The largest folio that a store maps in the range from now on: log2 of its pages, or
    /// what the design says.
    Folio(Option<u32>),
}

/// One request of a workload. Addresses are page numbers: byte addresses divided
/// by the size of the engine's pages ([`Engine::pages`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Op {
    /// An empty space with one user.
    Create { space: SpaceSlot },
    /// `child` becomes a copy-on-write copy of `parent`, with one user.
    Fork { parent: SpaceSlot, child: SpaceSlot },
    /// One more task uses `space` (thread, vfork).
    Share { space: SpaceSlot },
    /// A task leaves `old` for the empty space `new`.
    Exec { old: SpaceSlot, new: SpaceSlot },
    /// A task leaves `space`; the last one takes the space with it.
    Exit { space: SpaceSlot },
    /// `mmap` at a known address, replacing what was there.
    Map {
        space: SpaceSlot,
        page: u64,
        pages: u64,
        prot: Prot,
        sharing: Sharing,
        backing: Backing,
        /// Stack: a touch below the mapping extends it.
        grows_down: bool,
    },
    /// `munmap`.
    Unmap {
        space: SpaceSlot,
        page: u64,
        pages: u64,
    },
    /// `mprotect`.
    Protect {
        space: SpaceSlot,
        page: u64,
        pages: u64,
        prot: Prot,
    },
    /// `mremap` with a known result. `new_page == page` resizes in place.
    Remap {
        space: SpaceSlot,
        page: u64,
        pages: u64,
        new_page: u64,
        new_pages: u64,
    },
    /// Heap end: the heap is `start..end` afterwards.
    Brk {
        space: SpaceSlot,
        start: u64,
        end: u64,
    },
    /// `madvise`.
    Advise {
        space: SpaceSlot,
        page: u64,
        pages: u64,
        advice: Advice,
    },
    /// An access that faulted when it was recorded.
    Touch {
        space: SpaceSlot,
        page: u64,
        access: Access,
    },
    /// Make a file of `pages` pages known. Repeating it is harmless.
    FileOpen { file: FileSlot, pages: u64 },
    /// The same of a file on a tmpfs: its pages are in memory alone, and zero until they are
    /// written.
    TmpfsOpen { file: FileSlot, pages: u64 },
    /// `read` through the page cache.
    FileRead {
        file: FileSlot,
        page: u64,
        pages: u64,
    },
    /// `write` of whole pages through the page cache; extends the file. Every
    /// 8-byte word of page `n` becomes [`written_word`]`(file, n)`.
    FileWrite {
        file: FileSlot,
        page: u64,
        pages: u64,
    },
    /// Set the file's length.
    Truncate { file: FileSlot, pages: u64 },
    /// Look up, through reverse mapping, who maps each resident page of the
    /// range, and take the accessed marks: what page aging does.
    ScanSpace {
        space: SpaceSlot,
        page: u64,
        pages: u64,
    },
    /// The same for the cached pages of a file.
    ScanFile {
        file: FileSlot,
        page: u64,
        pages: u64,
    },
    /// Read memory of the host that is larger than its caches, so that nothing
    /// of the simulated machine is in them.
    EmptyCaches,
    /// The idle loop of the CPU: kept table pages are trimmed and free frames
    /// zeroed, `frames` of them at the most, and as many rounds of trimming.
    Idle { frames: u32 },
    /// What no trace asks for.
    Call(Call),
    /// Note the time in [`Outcome::laps`]. What passed since the note before it
    /// in the same batch belongs to `phase`, a number of the caller's own.
    Lap { phase: u16 },
}

/// Accesses of programs, calls on bytes of files, and on frames: what benchmarks measure and traces
/// do not hold, but for accesses where accessed marks were sampled. Data comes from a buffer of the
/// executing thread, and goes there. A range of `bytes` is read or written in one call after the
/// other of `block` bytes each, the last of which may be shorter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Call {
    /// Access the first word of each of `pages` pages, in order, as a program does: through the
    /// MMU, which marks entries, and with a fault only where a page is not there. What is
    /// stored is the number of the page.
    Access {
        space: SpaceSlot,
        page: u64,
        pages: u64,
        access: Access,
    },
    /// Make an empty file in memory, in a slot that has none.
    NewFile { file: FileSlot },
    /// Release a file; its slot is empty then.
    Close { file: FileSlot },
    /// `ftruncate`, to a length in bytes.
    SetSize { file: FileSlot, bytes: u64 },
    /// `pwrite`.
    Write {
        file: FileSlot,
        at: u64,
        block: u64,
        bytes: u64,
    },
    /// The same, with the buffer zeroed before each call: `dd` from `/dev/zero`.
    WriteZeroes {
        file: FileSlot,
        at: u64,
        block: u64,
        bytes: u64,
    },
    /// `pread`. The range must lie within the file.
    Read {
        file: FileSlot,
        at: u64,
        block: u64,
        bytes: u64,
    },
    /// Open the file, read it from its beginning to its end, and close it: a reader
    /// that the core reads ahead of.
    ReadThrough { file: FileSlot, block: u64 },
    /// `fsync`.
    Sync { file: FileSlot },
    /// Allocate `blocks` blocks of `1 << order` frames, not zeroed, and free them in
    /// the same order; and all that `rounds` times.
    Frames {
        order: u32,
        blocks: u32,
        rounds: u32,
    },
}

/// Why an operation could not be executed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum OpError {
    /// No mapping at the address.
    NoRegion,
    /// The mapping does not allow the access.
    Protection,
    /// The access lies past the end of the mapped file.
    PastEnd,
    /// The simulated machine has no memory left.
    OutOfMemory,
    /// The group of the space has as many pages as it may have, and none could leave.
    GroupLimit,
    /// The slot holds no space, or holds one already.
    BadSpace,
    /// The slot holds no file.
    BadFile,
    /// The request itself is malformed (empty range, address out of bounds).
    Invalid,
    /// The backing store failed.
    Io,
}

impl fmt::Display for OpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            OpError::NoRegion => "no region at the address",
            OpError::Protection => "the region does not allow the access",
            OpError::PastEnd => "access past the end of the file",
            OpError::OutOfMemory => "the simulated machine is out of memory",
            OpError::GroupLimit => "the group has as many pages as it may have",
            OpError::BadSpace => "the slot holds no address space",
            OpError::BadFile => "the slot holds no file",
            OpError::Invalid => "malformed request",
            OpError::Io => "the backing store failed",
        })
    }
}

/// A place where the replay did not go as the recording did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Divergence {
    /// A recorded fault found its page mapped with sufficient rights.
    AlreadyMapped,
    /// The same, and it was a superpage that had mapped the page, because another page of
    /// it was touched before.
    MappedLarge,
    /// The same, and the page was mapped because another page of its folio was stored to.
    MappedFolio,
    /// The operation failed.
    Failed(OpError),
}

impl Divergence {
    /// Whether no program would meet the recorded fault that went so.
    pub fn is_needless(self) -> bool {
        !matches!(self, Divergence::Failed(_))
    }
}

/// What a batch did. The caller owns it and reuses it, so that a timed batch
/// allocates nothing.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Operations that went otherwise than recorded: index in the batch and how.
    pub divergences: Vec<(u32, Divergence)>,
    /// Notes of the time: the phase that each [`Op::Lap`] names, and when.
    pub laps: Vec<(u16, Instant)>,
}

impl Outcome {
    /// Empties it, keeping its memory.
    pub fn clear(&mut self) {
        self.divergences.clear();
        self.laps.clear();
    }
}

/// The pages of an engine, in bytes, and how many of them a space can have.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Pages {
    /// Log2 of the bytes in a page.
    pub shift: u32,
    /// Pages that programs can map: the first that they cannot.
    pub user_end: u64,
}

impl Pages {
    /// Those of x86-64, and of the machines that are recorded.
    pub const X86_64: Pages = Pages {
        shift: 12,
        // The last page below the hole in the addresses is nobody's.
        user_end: (1 << 35) - 1,
    };
}

/// What an entry of page tables maps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Leaf {
    /// The first page.
    pub page: u64,
    /// How many.
    pub pages: u64,
    /// The first frame; those of the other pages come after it.
    pub frame: u64,
    /// Rights.
    pub prot: Prot,
}

/// An engine's name for a group of spaces.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct GroupName(pub u32);

/// What a group has, may have, and gave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GroupUse {
    /// Pages that it is charged for.
    pub pages: u64,
    /// Pages that it may be charged for.
    pub limit: u64,
    /// Pages of it that left because memory was short.
    pub reclaimed: u64,
    /// Times that it had as many as it may.
    pub limit_hits: u64,
}

/// Groups of spaces, each with a limit in pages. The text of an error says what was refused.
/// Nothing runs meanwhile.
pub trait Groups {
    /// Makes a group.
    fn begin(&self, limit: u64) -> Result<GroupName, String>;

    /// Ends a group; false if there are spaces in it.
    fn end(&self, group: GroupName) -> Result<bool, String>;

    /// Gives a group another limit. Returns the pages above it that could not leave.
    fn set_limit(&self, group: GroupName, limit: u64) -> Result<u64, String>;

    /// Moves a space to a group, or to none; false if the slot has no space.
    fn enter(&self, space: SpaceSlot, group: Option<GroupName>) -> Result<bool, String>;

    /// The group of a space, if the slot has one that is in a group.
    fn group_of(&self, space: SpaceSlot) -> Option<GroupName>;

    /// What there is of a group.
    fn usage(&self, group: GroupName) -> Option<GroupUse>;
}

/// A memory manager of one design on one simulated machine.
///
/// Every method may be called from any host thread. `cpu` is the simulated
/// CPU the call runs on; two calls with the same `cpu` must not overlap
/// (implementations block the second).
pub trait Engine: Send + Sync {
    /// The design in option syntax, complete (`rmap=chains,direct=on,…`).
    fn design(&self) -> String;

    /// Number of simulated CPUs.
    fn cpus(&self) -> usize;

    /// The pages that operations count.
    fn pages(&self) -> Pages {
        Pages::X86_64
    }

    /// The space whose end would have freed most when an operation ran out of memory last, and
    /// how many pages, by the rules of the engine.
    fn victim(&self) -> Option<(SpaceSlot, u64)> {
        None
    }

    /// Its groups of spaces, if the design has any.
    fn groups(&self) -> Option<&dyn Groups> {
        None
    }

    /// Executes `ops` in order. A failing operation is recorded in `outcome`
    /// and does not stop the batch. Allocates nothing unless there are more
    /// divergences or laps than `outcome` has room for.
    fn run(&self, cpu: usize, ops: &[Op], outcome: &mut Outcome);

    /// Stores `value` in the 8-byte word at byte `address` of `space` through
    /// the simulated MMU, handling faults as a kernel would.
    fn store(&self, cpu: usize, space: SpaceSlot, address: u64, value: u64) -> Result<(), OpError>;

    /// Loads the 8-byte word at byte `address` of `space` likewise. With
    /// [`Access::Execute`] it is fetched as an instruction.
    fn load(
        &self,
        cpu: usize,
        space: SpaceSlot,
        address: u64,
        access: Access,
    ) -> Result<u64, OpError>;

    /// Loads the word without causing a fault: `None` if the page tables hold
    /// no translation for it. Still through the TLB, so that a stale entry shows.
    fn peek(&self, cpu: usize, space: SpaceSlot, address: u64) -> Option<u64>;

    /// Calls `leaf` for every entry of the space's tables that maps something and allows some
    /// access, ascending.
    fn leaves(&self, space: SpaceSlot, leaf: &mut dyn FnMut(Leaf));

    /// Calls `page` for every page that the space's tables map, ascending.
    fn resident(&self, space: SpaceSlot, page: &mut dyn FnMut(u64)) {
        self.leaves(space, &mut |leaf| {
            (leaf.page..leaf.page + leaf.pages).for_each(&mut *page);
        });
    }

    /// Writes every dirty page of every file to the backing store.
    fn sync(&self, cpu: usize) -> Result<(), OpError>;

    /// The word at byte `offset` of `file` as the backing store holds it.
    fn stored_word(&self, file: FileSlot, offset: u64) -> Option<u64>;

    /// The word at byte `offset` of `file` as a read finds it. After [`Engine::sync`] that is what
    /// the store holds, if the file has one.
    fn file_word(&self, file: FileSlot, offset: u64) -> Option<u64> {
        self.stored_word(file, offset)
    }

    /// Ends every space and file that is left.
    fn clear(&self, cpu: usize);

    /// Checks every invariant of the core. The text says what is wrong.
    fn audit(&self) -> Result<(), String>;

    /// Event counts since the engine was built, by name, in a fixed order.
    fn counters(&self) -> Vec<(&'static str, u64)>;

    /// Bytes in use now and at the peak, by what they hold, in a fixed order:
    /// name, now, peak.
    fn memory(&self) -> Vec<(&'static str, u64, u64)>;

    /// Histogram of how many mappings the private frames have now: `[n]` is the
    /// number of frames with `n + 1` mappings; the last entry collects the rest.
    fn mapping_histogram(&self) -> Vec<u64>;
}

/// The word that every 8-byte word of page `page` of a file holds before
/// anything is written to it. `file_key` is the file's slot number.
pub fn pristine_word(file_key: u64, page: u64) -> u64 {
    let mut z = (file_key << 36) ^ page;
    z = z.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The word that [`Op::FileWrite`] puts in every 8-byte word of page `page` of a
/// file. `file_key` is the file's slot number. It differs from
/// [`pristine_word`] and is never zero, so that a lost write shows.
pub fn written_word(file_key: u64, page: u64) -> u64 {
    (pristine_word(file_key, page) ^ 0x5752_4954_5445_4e21) | 1 << 63
}

/// An engine could not be built.
#[derive(Debug)]
pub enum EngineError {
    /// The design string was refused; the text names the valid values.
    Design(String),
    /// The machine could not be set up.
    Machine(String),
}

impl fmt::Display for EngineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EngineError::Design(text) | EngineError::Machine(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for EngineError {}
