//! What is asked of a row, and why it may be that ours is not first in one.

/// Rows with a bar: ours takes at most so many nanoseconds.
const BARS: &[(&str, f64)] = &[
    ("frame: free one of half of all, allocate one", 80.0),
    ("block of 512 frames: allocate and free", 20.0),
    ("unmap the only page of a table", 30.0),
    ("map and unmap a region among 32", 200.0),
    ("find a page's region among 1000", 27.0),
    ("find one of 65536 cached pages", 10.0),
];

/// What a user of the core gets for the time. Shown where ours is not first.
const WORTH: &[(&str, &str)] = &[
    (
        "frame: allocate and free",
        "A stack of numbers prepares no frame record, keeps no larger blocks, and has one lock for all CPUs.",
    ),
    (
        "frame: 8192 allocated, then freed",
        "Frames that do not fit into the CPU's list go through the buddy lists. Each frame's record is written when the frame joins \
         a block and when it leaves one. References, owners, reverse mapping and the audit need that record; the others leave them \
         to their caller.",
    ),
    (
        "frame: free one of half of all, allocate one",
        "The record of a frame that is freed at random comes from memory. Others keep a number, a bit or a smaller record. In a \
         kernel the record is in the cache already, because dropping the last reference has just used it.",
    ),
    (
        "block of 512 frames: allocate and free",
        "buddy-slab-allocator has its memory to itself: it takes no lock, chooses among no zones and leaves no reserve.",
    ),
    (
        "two threads: allocate and free a frame",
        "If other work on the machine seldom lets the two threads run at the same time, nobody waits for a lock.",
    ),
    (
        "two threads: 8192 frames each",
        "If other work on the machine seldom lets the two threads run at the same time, nobody waits for a lock. For the rest see \
         the same row with one thread.",
    ),
    (
        "map 16384 pages, one by one",
        "The table is locked and its live entries are counted, and the cursor checks that the page still lies in the table that it \
         holds. A bare walk does none of this, and finds the table anew for each page.",
    ),
    (
        "map them as a range",
        "Entries are counted, and stored one by one as atomics, because other CPUs may read the table at the same time. A bare walk \
         lets the compiler store several at a time.",
    ),
    ("translate them in order", WALK),
    ("translate them in random order", WALK),
    (
        "change their rights, one by one",
        "The table is locked, and its record names its level, so that other CPUs can use the same tables. The others assume that \
         one caller owns all tables.",
    ),
    (
        "unmap them, one by one",
        "Entries are counted, and a table is freed with its last entry. A bare walk leaves the table.",
    ),
    (
        "unmap them as a range",
        "Entries are cleared one by one, so that the caller gets the frame and the accessed and dirty marks of each, and the table \
         is zero for its next use. aarch64-paging drops whole tables unread, and a bare walk clears without looking.",
    ),
    (
        "unmap the only page of a table",
        "The table is unlinked under its own lock and its parent's, and freed. The faster crates leave it linked: \
         page_table_multiarch until all tables are dropped, x86_64 and aarch64-paging until they are asked to search all of them. \
         page-table-generic frees it too, and reads its 512 entries each time.",
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
        "Nodes are frames, the tree is as high as the file's length requires, and it can be read while others change it. The bare \
         radix tree is an array that nobody may change while it is read.",
    ),
];

const WALK: &str = "Each entry is an atomic load, ordered after the one above it, because other CPUs may change or free the tables at \
                    the same time. The others assume that one caller owns all tables.";
const FIND: &str = "The search needs no lock beside changes: the CPU is pinned, and what was found is validated. A fault searches \
                    only when it leaves the region of the CPU's last fault.";
const CHANGE: &str = "memory_set puts the region into a B-tree. `Vm::map` also keeps gaps searchable, merges with neighbours and checks \
                      limits. `Vm::unmap` stops faults on other CPUs and clears the tables. Its time grows with the logarithm of the \
                      number of regions, memory_set's with the number.";

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
