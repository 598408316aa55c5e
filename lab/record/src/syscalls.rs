//! System calls on x86-64: what was asked and what came of it.
//!
//! A call's arguments arrive when it begins, its result when it ends. Between
//! the two the kernel may report the mapping it made, which tells the file.

use vellum_trace::{EventKind, FileId, MapOrigin, Prot};

use crate::raw::Mmap;

/// System call numbers.
pub mod number {
    pub const READ: u64 = 0;
    pub const WRITE: u64 = 1;
    pub const MMAP: u64 = 9;
    pub const MPROTECT: u64 = 10;
    pub const MUNMAP: u64 = 11;
    pub const BRK: u64 = 12;
    pub const PREAD64: u64 = 17;
    pub const PWRITE64: u64 = 18;
    pub const READV: u64 = 19;
    pub const WRITEV: u64 = 20;
    pub const MREMAP: u64 = 25;
    pub const MADVISE: u64 = 28;
    pub const SHMAT: u64 = 30;
    pub const SENDFILE: u64 = 40;
    pub const EXECVE: u64 = 59;
    pub const WAIT4: u64 = 61;
    pub const SHMDT: u64 = 67;
    pub const TRUNCATE: u64 = 76;
    pub const FTRUNCATE: u64 = 77;
    pub const MLOCK: u64 = 149;
    pub const MLOCKALL: u64 = 151;
    pub const SPLICE: u64 = 275;
    pub const FALLOCATE: u64 = 285;
    pub const PREADV: u64 = 295;
    pub const PWRITEV: u64 = 296;
    pub const EXECVEAT: u64 = 322;
    pub const MLOCK2: u64 = 325;
    pub const COPY_FILE_RANGE: u64 = 326;
    pub const PKEY_MPROTECT: u64 = 329;
    pub const PREADV2: u64 = 327;
    pub const PWRITEV2: u64 = 328;
}

const PAGE: u64 = 4096;
const MAP_TYPE: u64 = 0xf;
const MAP_SHARED: u64 = 1;
const MAP_SHARED_VALIDATE: u64 = 3;
const MAP_ANONYMOUS: u64 = 0x20;
const MAP_GROWSDOWN: u64 = 0x100;
const MAP_LOCKED: u64 = 0x2000;
const MAP_POPULATE: u64 = 0x8000;
const MAP_HUGETLB: u64 = 0x4_0000;
const MREMAP_DONTUNMAP: u64 = 4;
/// Results from here on are error numbers.
const FIRST_ERROR: u64 = -4095i64 as u64;

/// Whether a call's result is an error.
pub fn failed(result: u64) -> bool {
    result >= FIRST_ERROR
}

/// Whether a call's result counts bytes that were read from a file.
pub fn reads(number: u64) -> bool {
    matches!(
        number,
        number::READ
            | number::PREAD64
            | number::READV
            | number::SENDFILE
            | number::SPLICE
            | number::PREADV
            | number::COPY_FILE_RANGE
            | number::PREADV2
    )
}

/// What a task is in the middle of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Call {
    /// User code, or a call of no interest.
    #[default]
    None,
    /// `execve`, after the old program is gone.
    Exec,
    /// `mmap`; the file comes from the kernel's report.
    Map {
        args: [u64; 6],
        file: Option<FileId>,
    },
    /// `shmat`, likewise.
    Attach { segment: Option<Segment> },
    /// A call that puts bytes into files.
    Write,
    /// `truncate`, `ftruncate`.
    Truncate { size: u64 },
    /// Another call on addresses.
    Range { args: [u64; 6] },
}

/// A shared-memory segment as it was attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    pub length: u64,
    pub prot: Prot,
    pub file: FileId,
}

/// Things that were asked for and whose page use does not show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unseen {
    /// Mappings made with `MAP_POPULATE` or `MAP_LOCKED`.
    pub populated: u64,
    /// `mlock`, `mlock2`, `mlockall`.
    pub locked: u64,
    /// Mappings of huge pages.
    pub huge: u64,
    /// Mappings whose file the kernel did not report.
    pub nameless: u64,
    /// Programs of 32 bits, whose system calls have other numbers.
    pub narrow: u64,
}

impl Call {
    /// A call begins.
    pub fn begin(number: u64, args: [u64; 6], unseen: &mut Unseen) -> Call {
        match number {
            number::MMAP => {
                unseen.populated += u64::from(args[3] & (MAP_POPULATE | MAP_LOCKED) != 0);
                unseen.huge += u64::from(args[3] & MAP_HUGETLB != 0);
                Call::Map { args, file: None }
            }
            number::SHMAT => Call::Attach { segment: None },
            number::WRITE
            | number::PWRITE64
            | number::WRITEV
            | number::SENDFILE
            | number::SPLICE
            | number::FALLOCATE
            | number::PWRITEV
            | number::COPY_FILE_RANGE
            | number::PWRITEV2 => Call::Write,
            number::TRUNCATE | number::FTRUNCATE => Call::Truncate { size: args[1] },
            number::MPROTECT
            | number::PKEY_MPROTECT
            | number::MUNMAP
            | number::MREMAP
            | number::MADVISE
            | number::SHMDT => Call::Range { args },
            // Recordings have its beginning only where another tool made them.
            number::EXECVE | number::EXECVEAT => Call::Exec,
            number::MLOCK | number::MLOCKALL | number::MLOCK2 => {
                unseen.locked += 1;
                Call::None
            }
            _ => Call::None,
        }
    }

    /// The call ended well; what it did to the address space. `Wait`, `shmdt`
    /// and the end of `execve` are the translator's business.
    pub fn outcome(self, number: u64, result: u64, unseen: &mut Unseen) -> Option<EventKind> {
        match (self, number) {
            (Call::Map { args, file }, number::MMAP) => map_event(args, file, result, unseen),
            (
                Call::Attach {
                    segment: Some(segment),
                },
                number::SHMAT,
            ) => Some(EventKind::Map {
                address: result,
                length: segment.length,
                prot: segment.prot,
                shared: true,
                grows_down: false,
                file: Some(segment.file),
                offset: 0,
                origin: MapOrigin::Mmap,
            }),
            (Call::Range { args }, _) => range_event(number, args, result),
            (_, number::BRK) => Some(EventKind::Brk { end: result }),
            _ => None,
        }
    }
}

fn map_event(
    args: [u64; 6],
    file: Option<FileId>,
    address: u64,
    unseen: &mut Unseen,
) -> Option<EventKind> {
    let [_, length, prot, flags, _, offset] = args;
    let anonymous = flags & MAP_ANONYMOUS != 0;
    unseen.nameless += u64::from(!anonymous && file.is_none());
    let file = if anonymous { None } else { file };
    Some(EventKind::Map {
        address,
        length: length.checked_next_multiple_of(PAGE)?,
        prot: Prot(prot as u8 & 7),
        shared: matches!(flags & MAP_TYPE, MAP_SHARED | MAP_SHARED_VALIDATE),
        grows_down: flags & MAP_GROWSDOWN != 0,
        file,
        offset: if file.is_some() { offset } else { 0 },
        origin: MapOrigin::Mmap,
    })
}

fn range_event(number: u64, args: [u64; 6], result: u64) -> Option<EventKind> {
    let address = args[0];
    let length = args[1].checked_next_multiple_of(PAGE)?;
    match number {
        number::MPROTECT | number::PKEY_MPROTECT if length > 0 => Some(EventKind::Protect {
            address,
            length,
            prot: Prot(args[2] as u8 & 7),
        }),
        number::MUNMAP => Some(EventKind::Unmap { address, length }),
        // DONTUNMAP moves the pages but keeps the old range mapped; an old
        // length of 0 maps the pages twice. Neither is a move.
        number::MREMAP if args[3] & MREMAP_DONTUNMAP == 0 && length > 0 => Some(EventKind::Remap {
            address,
            length,
            new_address: result,
            new_length: args[2].checked_next_multiple_of(PAGE)?,
        }),
        number::MADVISE if length > 0 => Some(EventKind::Advise {
            address,
            length,
            advice: args[2] as u32,
        }),
        _ => None,
    }
}

/// Device number of a mapping's file as the kernel keeps it.
pub fn device(mmap: &Mmap<'_>) -> u32 {
    mmap.major << 20 | mmap.minor & 0xf_ffff
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_whole_pages_as_the_kernel_makes_them() {
        let mut unseen = Unseen::default();
        let args = [0, 5000, 3, 0x22, u64::MAX, 0];
        let call = Call::begin(number::MMAP, args, &mut unseen);
        let Some(EventKind::Map {
            length,
            shared,
            file,
            ..
        }) = call.outcome(number::MMAP, 0x7000_0000, &mut unseen)
        else {
            panic!("no mapping");
        };
        assert_eq!((length, shared, file), (8192, false, None));
        assert_eq!(unseen, Unseen::default());
    }

    #[test]
    fn error_results_are_told_from_addresses() {
        assert!(failed(-12i64 as u64));
        assert!(!failed(0x7fff_ffff_f000));
        assert!(!failed(0));
    }
}
