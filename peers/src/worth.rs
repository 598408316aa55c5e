//! What is asked of a row, and why it may be that ours is not first in one.

/// Rows with a bar: ours takes at most so many nanoseconds.
const BARS: &[(&str, f64)] = &[
    ("block of 512 frames: allocate and free", 56.0),
    ("find a page's region among 1000", 27.0),
    ("find one of 65536 cached pages", 10.0),
];

/// What a row's reader gets for the time, shown where ours is not first.
const WORTH: &[(&str, &str)] = &[
    (
        "frame: allocate and free",
        "A stack of numbers makes no record ready, has no blocks to give, and has one lock for all CPUs.",
    ),
    (
        "frame: 8192 allocated, then freed",
        "What does not fit into the CPU's list goes through the buddy lists, where a frame's record is written when it joins a \
         block and when it leaves one. References, owners, reverse mapping and the audit live in that record; the others leave \
         them to their caller.",
    ),
    (
        "frame: free one of half of all, allocate one",
        "The record of a frame freed at random has to be fetched from memory, where others keep a number, a bit or a smaller \
         record. Who frees a page has just had its record in hand for the reference count.",
    ),
    (
        "block of 512 frames: allocate and free",
        "buddy-slab-allocator is alone on its memory here: it takes no lock, has no zones to choose from and no reserve to leave. \
         Ours takes the zone's lock twice in this time.",
    ),
    (
        "two threads: allocate and free a frame",
        "Where the threads seldom run at the same time, because the machine has other work, nobody waits for a lock.",
    ),
    (
        "two threads: 8192 frames each",
        "Where the threads seldom run at the same time, because the machine has other work, nobody waits for a lock; for the rest \
         see the same row with one thread.",
    ),
    (
        "map them as a range",
        "Entries are stored one by one, as atomics, because other CPUs may read the table meanwhile, and are counted. A bare walk \
         lets the compiler store several at a time.",
    ),
    ("translate them in order", WALK),
    ("translate them in random order", WALK),
    (
        "change their rights, one by one",
        "The table is locked, and its record says which level it has, so that other CPUs may use the same tables; the others want \
         them for themselves.",
    ),
    (
        "unmap them, one by one",
        "Entries are counted, and a table is freed with its last one. A bare walk leaves it.",
    ),
    (
        "unmap them as a range",
        "Entries are cleared one by one, so that the caller can have the frame and the marks of each, and the table is zero for its \
         next use. aarch64-paging drops whole tables unread, and a bare walk clears without looking.",
    ),
    (
        "unmap the only page of a table",
        "The table is unlinked under its own lock and its parent's, and freed. Those before us leave it: page_table_multiarch until \
         the tables end, x86_64 and aarch64-paging until they are asked to look through all of them. page-table-generic, which \
         frees it as well, looks through its 512 entries each time.",
    ),
    (
        "map a page that needs a table",
        "Tables come zeroed from a stack, which has to be refilled now and then.",
    ),
    (
        "map 2 MiB as one leaf",
        "A bare walk takes no lock and counts no entry.",
    ),
    ("find a page's region among 32", FIND),
    ("find a page's region among 1000", FIND),
    ("map and unmap a region among 32", CHANGE),
    ("map and unmap a region among 1000", CHANGE),
    (
        "find one of 65536 cached pages",
        "Nodes lie in frames, the tree is as high as the file's length asks for, and it may be read while others change it. The \
         bare radix is an array that nobody may change meanwhile.",
    ),
];

const WALK: &str = "Each entry is read as an atomic, in order, because other CPUs may change or free the tables meanwhile; the \
                    others want them for themselves.";
const FIND: &str = "The search is safe beside changes without a lock: the CPU is pinned, and what was found is validated. Faults \
                    search only when they leave the region of the CPU's last fault.";
const CHANGE: &str = "memory_set puts the region into a B-tree. `Vm::map` also keeps gaps searchable, merges with neighbours and checks \
                      limits; `Vm::unmap` shuts faults on other CPUs out and goes through the tables. Its time grows with the \
                      logarithm of the number of regions, memory_set's with the number.";

/// The bar of a row, in nanoseconds.
pub fn bar(row: &str) -> Option<f64> {
    lookup(BARS, row).copied()
}

/// Why ours may take longer in this row.
pub fn reason(row: &str) -> Option<&'static str> {
    lookup(WORTH, row).copied()
}

fn lookup<'a, T>(table: &'a [(&str, T)], row: &str) -> Option<&'a T> {
    let found = table.iter().find(|(name, _)| *name == row)?;
    Some(&found.1)
}
