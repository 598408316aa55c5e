//! What the kernel, the programs and the host's side agree on: where things lie, what a
//! program can ask for, and the words that the replayer executes. All three compile this
//! very file.

#![allow(dead_code, reason = "each side uses its part")]

/// Log2 of the bytes of a page of the machine that this is compiled for.
pub const PAGE_SHIFT: u32 = if cfg!(feature = "pages16k") { 14 } else { 12 };
/// Files of the RAM disk begin at multiples of this: pages of any machine.
pub const DISK_ALIGN: usize = 1 << 14;
/// First address of what belongs to the programs themselves, the same in every space;
/// recorded workloads have nothing here.
pub const AREA: u64 = 0x1000_0000_0000;
/// Where stacks begin: task `n` has the [`STACK_PAGES`] pages from `n * STACK_PAGES` on.
pub const STACKS: u64 = AREA + (1 << 32);
/// Pages of a task's stack, and of the gap below it.
pub const STACK_PAGES: u64 = 8;
/// Where the replayer maps the slice.
pub const SLICE: u64 = AREA + (1 << 36);
/// Tests map what they use from here on.
pub const GROUND: u64 = 0x2000_0000_0000;

/// First word of the RAM disk: then the number of its files, and offset and length in
/// bytes of each.
pub const DISK_MAGIC: u64 = 0x004b_5349_444d_4c56;
/// Number of the disk's file that holds the programs.
pub const DISK_PROGRAMS: u64 = 0;
/// Number of the disk's file that holds the slice.
pub const DISK_SLICE: u64 = 1;
/// Stores from this number on are the replayed files: file `n` is store `n` further on.
/// Each page of theirs holds [`pristine`] until it is written.
pub const STORES: u64 = 16;

/// Programs by number.
pub mod program {
    /// Ends with the exit code that is its argument.
    pub const LEAVE: u64 = 0;
    /// Executes the words of one task of the slice; the argument is the task's number.
    pub const REPLAY: u64 = 1;
    /// The tests, by name. Number `FIRST_TEST + n`.
    pub const TESTS: [&str; 10] = [
        "touch", "fork", "vfork", "files", "protect", "remap", "stack", "threads", "device",
        "random",
    ];
    /// Number of the first test.
    pub const FIRST_TEST: u64 = 2;
}

/// What [`call::ADVISE`] says of pages.
pub mod advice {
    /// They are dropped now.
    pub const DONT_NEED: u64 = 0;
    /// They may be dropped.
    pub const FREE: u64 = 1;
    /// They are not needed soon.
    pub const COLD: u64 = 2;
    /// They go to swap now.
    pub const PAGE_OUT: u64 = 3;
}

/// What a program can ask for: number in rax, arguments in rdi, rsi, rdx, rcx, r8, r9,
/// the answer in rax. [`REFUSED`] says that the memory manager refused.
pub mod call {
    /// (code, page of the stack or 0, operations done): the task ends.
    pub const EXIT: u64 = 0;
    /// (code, three words): something is wrong; the kernel prints it and the task ends.
    pub const FAIL: u64 = 1;
    /// (page, pages, rights and flags, file + 1 or 0, page of the file)
    pub const MAP: u64 = 2;
    /// (page, pages)
    pub const UNMAP: u64 = 3;
    /// (page, pages, rights)
    pub const PROTECT: u64 = 4;
    /// (page, pages, new page, new pages)
    pub const REMAP: u64 = 5;
    /// (first page, end)
    pub const BRK: u64 = 6;
    /// (page, pages, one of [`advice`](super::advice))
    pub const ADVISE: u64 = 7;
    /// (number of the child): the child's number here, 0 there.
    pub const FORK: u64 = 8;
    /// (where to begin, end of its stack, argument): a task in the same space.
    pub const THREAD: u64 = 9;
    /// (program, argument, number of the stack, page of the old one or 0): in a new space.
    pub const EXEC: u64 = 10;
    /// (task's number): sleeps until it has ended; its exit code.
    pub const WAIT: u64 = 11;
    /// (): lets others run.
    pub const YIELD: u64 = 12;
    /// (file, pages)
    pub const FILE_OPEN: u64 = 13;
    /// (file, page, pages)
    pub const FILE_READ: u64 = 14;
    /// (file, page, pages): every word becomes [`super::written`].
    pub const FILE_WRITE: u64 = 15;
    /// (file, pages)
    pub const TRUNCATE: u64 = 16;
    /// (task of the slice, operations): it has done so many.
    pub const PROGRESS: u64 = 17;
    /// (task of the slice, operations): sleeps until it has done so many.
    pub const AWAIT: u64 = 18;
    /// (address): where to go on after a probe that was refused.
    pub const RECOVER: u64 = 19;
    /// (page): what the tables say: 0, or frame << 4 | rights | 8.
    pub const TRANSLATE: u64 = 20;
    /// (): number of CPUs.
    pub const CPUS: u64 = 21;
    /// (which, number): adds to a count of the report.
    pub const COUNT: u64 = 22;
    /// (place, pokes seen): halts until somebody pokes the place again, or for a moment; the
    /// pokes so far. The space stays loaded, and with it what the TLB holds.
    pub const NAP: u64 = 23;
    /// (place): ends a nap there.
    pub const POKE: u64 = 24;
    /// (page, pages, rights and flags, one of [`device`](super::device), its first page): maps a
    /// device, at once with [`FLAG_SHARED`](super::FLAG_SHARED), and else by faults; of no pages:
    /// how many it has.
    pub const DEVICE: u64 = 25;
}

/// What a program can map of devices. Both are there on x86-64 under QEMU with a display; other
/// machines have registers.
pub mod device {
    /// Memory that is shown as pixels.
    pub const FRAME_BUFFER: u64 = 0;
    /// Registers of the display, or of the serial line.
    pub const REGISTERS: u64 = 1;
}

/// An answer that says no.
pub const REFUSED: u64 = u64::MAX;

/// In r10 during an access: a fault that is refused goes on where [`call::RECOVER`] said.
pub const PROBE: u64 = 0x0050_524f_4245;
/// In r10: every fault does, and nothing is done for it.
pub const BARE_PROBE: u64 = 0x4241_5245;

/// Counts that programs keep ([`call::COUNT`]).
pub mod count {
    /// Names in the report.
    pub const NAMES: [&str; 6] = ["ops", "stores", "loads", "checks", "refusals", "replayed"];
    /// Operations of the replay or of the random test.
    pub const OPS: u64 = 0;
    /// Stores through the MMU.
    pub const STORES: u64 = 1;
    /// Loads and fetches through the MMU.
    pub const LOADS: u64 = 2;
    /// Words that were compared with what they must hold.
    pub const CHECKS: u64 = 3;
    /// Accesses that had to be refused, and were.
    pub const REFUSALS: u64 = 4;
    /// Tasks of the slice that did all that it says.
    pub const REPLAYED: u64 = 5;
}

/// Rights and flags of [`call::MAP`] and [`op::MAP`]: those of `PROT_*`, and these.
pub const FLAG_SHARED: u64 = 8;
/// Touches below extend the mapping.
pub const FLAG_GROWS_DOWN: u64 = 16;

/// Words of the slice. The first says what, with flags and a page ([`word`]); the words
/// behind it are named in parentheses.
pub mod op {
    /// The stream ends.
    pub const END: u8 = 0;
    /// Load from the page.
    pub const LOAD: u8 = 1;
    /// Call the first instruction of the page, which is a return.
    pub const FETCH: u8 = 2;
    /// Store to watched word `flags` (number of its stamp).
    pub const STORE: u8 = 3;
    /// An access that must be refused; flags: 0 load, 1 store, 2 fetch.
    pub const REFUSED: u8 = 4;
    /// Watched word `flags` holds (number of a stamp, or 0 for zero).
    pub const CHECK: u8 = 5;
    /// Both watched words hold what a page of a file may (file, page of the file); flags:
    /// what it may be besides what it was first: 1 written, 2 stored to, 4 zero.
    pub const CHECK_FILE: u8 = 6;
    /// `mmap`; flags as for the call (pages, file + 1 or 0, page of the file).
    pub const MAP: u8 = 7;
    /// (pages)
    pub const UNMAP: u8 = 8;
    /// Flags: rights (pages).
    pub const PROTECT: u8 = 9;
    /// (pages, new page, new pages)
    pub const REMAP: u8 = 10;
    /// The page is where the heap begins (its end).
    pub const BRK: u8 = 11;
    /// Flags: one of [`advice`](super::advice) (pages).
    pub const ADVISE: u8 = 12;
    /// The page is the child's number.
    pub const FORK: u8 = 13;
    /// The same, in this space.
    pub const SHARE: u8 = 14;
    /// A new, empty space.
    pub const EXEC: u8 = 15;
    /// The task ends; the page is the number of its operations.
    pub const EXIT: u8 = 16;
    /// The page is a file (pages).
    pub const FILE_OPEN: u8 = 17;
    /// The same (page, pages).
    pub const FILE_READ: u8 = 18;
    /// The same (page, pages).
    pub const FILE_WRITE: u8 = 19;
    /// The same (pages).
    pub const TRUNCATE: u8 = 20;
    /// The page is the number of operations that are done.
    pub const PROGRESS: u8 = 21;
    /// The page is a task (operations).
    pub const AWAIT: u8 = 22;
    /// Store to watched word `flags`, of a file through a shared mapping (file, page of the
    /// file).
    pub const STORE_FILE: u8 = 23;
}

/// Offsets of the two watched words of a page: its first and its last.
pub const WATCHED: [u64; 2] = [0, (1 << PAGE_SHIFT) - 8];

/// The first word of an operation.
pub const fn word(op: u8, flags: u64, page: u64) -> u64 {
    op as u64 | flags << 8 | page << 16
}

/// First word of a slice. Then: tasks, files, first tasks; for each task the word at which
/// it begins; the numbers of the first tasks.
pub const SLICE_MAGIC: u64 = 0x0045_4349_4c53_4c56;
/// Words before those of the tasks.
pub const SLICE_HEAD: u64 = 4;

const fn mix(mut z: u64) -> u64 {
    z = z.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Every word that is put into a page begins with a return instruction, so that a page can
/// be called to fetch from it.
const fn callable(word: u64) -> u64 {
    if cfg!(target_arch = "aarch64") {
        word << 32 | 0xd65f_03c0
    } else {
        word << 8 | 0xc3
    }
}

/// What every word of a file's page holds at first.
pub const fn pristine(file: u64, page: u64) -> u64 {
    callable(mix(file << 36 ^ page))
}

/// What [`call::FILE_WRITE`] puts in every word of it.
pub const fn written(file: u64, page: u64) -> u64 {
    callable(mix(file << 36 ^ page) ^ 0x5752_4954)
}

/// What stores through shared mappings put in its watched words.
pub const fn stored(file: u64, page: u64) -> u64 {
    callable(mix(file << 36 ^ page) ^ 0x53_544f_5245)
}

/// What store number `number` to private memory puts in its word.
pub const fn stamp(number: u64) -> u64 {
    callable(mix(number))
}
