//! System calls as `perf script` names them.

use crate::feed::ABSURD;
use vellum_record::number;

/// What a task asks for when it makes another one.
pub mod creation {
    pub const CLONE: u64 = 56;
    pub const FORK: u64 = 57;
    pub const VFORK: u64 = 58;
    pub const CLONE3: u64 = 435;
}

/// Name, number, and how many arguments matter.
const CALLS: &[(&str, u64, usize)] = &[
    ("read", number::READ, 0),
    ("write", number::WRITE, 0),
    ("mmap", number::MMAP, 6),
    ("mprotect", number::MPROTECT, 3),
    ("munmap", number::MUNMAP, 2),
    ("brk", number::BRK, 0),
    ("pread64", number::PREAD64, 0),
    ("pwrite64", number::PWRITE64, 0),
    ("readv", number::READV, 0),
    ("writev", number::WRITEV, 0),
    ("mremap", number::MREMAP, 4),
    ("madvise", number::MADVISE, 3),
    ("shmat", number::SHMAT, 0),
    ("sendfile64", number::SENDFILE, 0),
    ("clone", creation::CLONE, 1),
    ("fork", creation::FORK, 0),
    ("vfork", creation::VFORK, 0),
    ("execve", number::EXECVE, 0),
    ("wait4", number::WAIT4, 0),
    ("shmdt", number::SHMDT, 1),
    ("truncate", number::TRUNCATE, 2),
    ("ftruncate", number::FTRUNCATE, 2),
    ("mlock", number::MLOCK, 0),
    ("mlockall", number::MLOCKALL, 0),
    ("splice", number::SPLICE, 0),
    ("fallocate", number::FALLOCATE, 0),
    ("preadv", number::PREADV, 0),
    ("pwritev", number::PWRITEV, 0),
    ("execveat", number::EXECVEAT, 0),
    ("mlock2", number::MLOCK2, 0),
    ("copy_file_range", number::COPY_FILE_RANGE, 0),
    ("preadv2", number::PREADV2, 0),
    ("pwritev2", number::PWRITEV2, 0),
    ("clone3", creation::CLONE3, 0),
];

/// The number of a call that matters for memory.
pub fn number_of(name: &str) -> Option<u64> {
    let found = CALLS.iter().find(|(known, ..)| *known == name);
    found.map(|(_, number, _)| *number)
}

/// The name of a call that matters for memory.
pub fn name_of(number: u64) -> Option<&'static str> {
    let found = CALLS.iter().find(|(_, known, _)| *known == number);
    found.map(|(name, ..)| *name)
}

/// Whether a call matters for memory.
pub fn matters(number: u64) -> bool {
    name_of(number).is_some()
}

/// Whether a call says what it does only if both its beginning and its end are
/// known: there are arguments that matter, or it moves the heap.
pub fn takes_both_ends(number: u64) -> bool {
    let needed = CALLS.iter().find(|(_, known, _)| *known == number);
    number == number::BRK || needed.is_some_and(|(_, _, needed)| *needed > 0)
}

/// Checks that what was read of the arguments is enough and makes sense.
pub fn check(number: u64, given: usize, args: &[u64; 6]) -> Result<(), &'static str> {
    let needed = CALLS.iter().find(|(_, known, _)| *known == number);
    if given < needed.map_or(0, |(_, _, needed)| *needed) {
        return Err("a system call without its arguments");
    }
    let truncates = matches!(number, number::TRUNCATE | number::FTRUNCATE);
    if truncates && args[1] >= ABSURD {
        return Err("a length that no file has");
    }
    Ok(())
}
