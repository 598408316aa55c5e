//! The kernel's trace events: which ones are recorded, their numbers and where
//! their fields lie.
//!
//! Numbers and offsets differ from kernel to kernel. They are read from
//! tracefs, never assumed.

use std::io;
use std::path::Path;

use crate::error::RecordError;
use crate::syscalls::number;
use crate::tracefs::Tracefs;

/// The events that are recorded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tracepoint {
    /// A fault from user mode.
    FaultUser,
    /// A fault on a user address from kernel mode.
    FaultKernel,
    /// A system call begins: arguments.
    SysEnter,
    /// A system call ends: result.
    SysExit,
    /// A task was created: clone flags.
    NewTask,
    /// Fault-around offered pages.
    MapPages,
    /// `read` looked pages up in the page cache.
    GetPages,
    /// A large folio entered the page cache.
    AddToCache,
    /// A folio left the page cache.
    DeleteFromCache,
    /// A folio became dirty.
    DirtyFolio,
}

impl Tracepoint {
    /// Whether it is one of the two of faults.
    pub fn is_fault(self) -> bool {
        matches!(self, Tracepoint::FaultUser | Tracepoint::FaultKernel)
    }
}

/// What is asked of the kernel for one [`Tracepoint`].
pub struct Wanted {
    pub point: Tracepoint,
    /// Group and name as in tracefs.
    group: &'static str,
    name: &'static str,
    /// Fields, in the order in which [`Layout::field`] numbers them.
    fields: &'static [&'static str],
    /// Condition that the kernel checks.
    filter: Option<&'static str>,
    /// The event's usual notation.
    pub label: &'static str,
}

/// System calls whose arguments are needed.
pub const ENTER: &[u64] = &[
    number::WRITE,
    number::MMAP,
    number::MPROTECT,
    number::MUNMAP,
    number::PWRITE64,
    number::WRITEV,
    number::MREMAP,
    number::MADVISE,
    number::SHMAT,
    number::SENDFILE,
    number::SHMDT,
    number::TRUNCATE,
    number::FTRUNCATE,
    number::MLOCK,
    number::MLOCKALL,
    number::SPLICE,
    number::FALLOCATE,
    number::PWRITEV,
    number::MLOCK2,
    number::COPY_FILE_RANGE,
    number::PWRITEV2,
    number::PKEY_MPROTECT,
];
/// System calls whose results are needed.
pub const EXIT: &[u64] = &[
    number::MMAP,
    number::MPROTECT,
    number::MUNMAP,
    number::BRK,
    number::MREMAP,
    number::MADVISE,
    number::SHMAT,
    number::EXECVE,
    number::WAIT4,
    number::SHMDT,
    number::TRUNCATE,
    number::FTRUNCATE,
    number::EXECVEAT,
    number::PKEY_MPROTECT,
];
/// Those that read: where they read something.
const EXIT_OF_READS: &[u64] = &[
    number::READ,
    number::PREAD64,
    number::READV,
    number::SENDFILE,
    number::SPLICE,
    number::PREADV,
    number::COPY_FILE_RANGE,
    number::PREADV2,
];
/// Where reads and writes on tmpfs show at their beginning: each of these calls that was not at
/// an end, failed ones included.
pub const EXIT_OF_TRANSFERS: &[u64] = &[
    number::READ,
    number::WRITE,
    number::PREAD64,
    number::PWRITE64,
    number::READV,
    number::WRITEV,
    number::SENDFILE,
    number::SPLICE,
    number::PREADV,
    number::PWRITEV,
    number::COPY_FILE_RANGE,
    number::PREADV2,
    number::PWRITEV2,
];

/// The condition that a call is one of these.
fn one_of(calls: &[u64]) -> String {
    let each: Vec<String> = calls.iter().map(|call| format!("id=={call}")).collect();
    each.join("||")
}

/// Every event that is recorded.
pub const WANTED: &[Wanted] = &[
    Wanted {
        point: Tracepoint::FaultUser,
        group: "exceptions",
        name: "page_fault_user",
        fields: &["address", "error_code"],
        filter: None,
        label: "exceptions:page_fault_user",
    },
    Wanted {
        point: Tracepoint::FaultKernel,
        group: "exceptions",
        name: "page_fault_kernel",
        fields: &["address", "error_code"],
        filter: Some("address < 0x800000000000"),
        label: "exceptions:page_fault_kernel",
    },
    Wanted {
        point: Tracepoint::SysEnter,
        group: "raw_syscalls",
        name: "sys_enter",
        fields: &["id", "args"],
        filter: None,
        label: "raw_syscalls:sys_enter",
    },
    Wanted {
        point: Tracepoint::SysExit,
        group: "raw_syscalls",
        name: "sys_exit",
        fields: &["id", "ret"],
        filter: None,
        label: "raw_syscalls:sys_exit",
    },
    Wanted {
        point: Tracepoint::NewTask,
        group: "task",
        name: "task_newtask",
        fields: &["clone_flags"],
        filter: None,
        label: "task:task_newtask",
    },
    Wanted {
        point: Tracepoint::MapPages,
        group: "filemap",
        name: "mm_filemap_map_pages",
        fields: &["s_dev", "i_ino", "index", "last_index"],
        filter: None,
        label: "filemap:mm_filemap_map_pages",
    },
    Wanted {
        point: Tracepoint::GetPages,
        group: "filemap",
        name: "mm_filemap_get_pages",
        fields: &["s_dev", "i_ino", "index", "last_index"],
        filter: None,
        label: "filemap:mm_filemap_get_pages",
    },
    Wanted {
        point: Tracepoint::AddToCache,
        group: "filemap",
        name: "mm_filemap_add_to_page_cache",
        fields: &["s_dev", "i_ino", "index", "order"],
        filter: Some("order > 0"),
        label: "filemap:mm_filemap_add_to_page_cache",
    },
    Wanted {
        point: Tracepoint::DeleteFromCache,
        group: "filemap",
        name: "mm_filemap_delete_from_page_cache",
        fields: &["s_dev", "i_ino", "index"],
        filter: None,
        label: "filemap:mm_filemap_delete_from_page_cache",
    },
    Wanted {
        point: Tracepoint::DirtyFolio,
        group: "writeback",
        name: "writeback_dirty_folio",
        fields: &["name", "ino", "index"],
        filter: None,
        label: "writeback:writeback_dirty_folio",
    },
];

impl Wanted {
    /// Condition that the kernel checks, where the beginnings of reads and writes on tmpfs are
    /// recorded (`transfers`) or not.
    pub fn condition(&self, transfers: bool) -> Option<String> {
        match self.point {
            Tracepoint::SysEnter => Some(one_of(ENTER)),
            Tracepoint::SysExit => {
                let (moving, moved) = match transfers {
                    true => (EXIT_OF_TRANSFERS, "ret!=0"),
                    false => (EXIT_OF_READS, "ret>0"),
                };
                let (always, moving) = (one_of(EXIT), one_of(moving));
                Some(format!("{always}||(({moving})&&{moved})"))
            }
            _ => self.filter.map(str::to_owned),
        }
    }
}

/// Where an event's fields lie in its raw record.
#[derive(Clone, Debug)]
pub struct Layout {
    pub point: Tracepoint,
    /// The kernel's number of the event.
    pub id: u16,
    /// Offset and size, in the order of [`Wanted::fields`].
    fields: Vec<(usize, usize)>,
}

impl Layout {
    /// The bytes of field `index`. `None` if the record is too short.
    pub fn bytes<'a>(&self, raw: &'a [u8], index: usize) -> Option<&'a [u8]> {
        let (offset, size) = self.fields[index];
        raw.get(offset..offset.checked_add(size)?)
    }

    /// Where field `index` begins.
    pub fn offset(&self, index: usize) -> usize {
        self.fields[index].0
    }

    /// Field `index` as an unsigned integer of its own size.
    pub fn field(&self, raw: &[u8], index: usize) -> Option<u64> {
        let bytes = self.bytes(raw, index)?;
        let mut word = [0; 8];
        word.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(u64::from_le_bytes(word))
    }

    /// Word `word` of the array in field `index`.
    pub fn word(&self, raw: &[u8], index: usize, word: usize) -> Option<u64> {
        let bytes = self.bytes(raw, index)?.get(word * 8..word * 8 + 8)?;
        Some(u64::from_le_bytes(bytes.try_into().ok()?))
    }
}

/// Reads the layouts of every wanted event from `tracefs`.
pub fn read_layouts(tracefs: &Tracefs) -> Result<Vec<Layout>, RecordError> {
    WANTED
        .iter()
        .map(|wanted| read_layout(tracefs, wanted))
        .collect()
}

fn read_layout(tracefs: &Tracefs, wanted: &Wanted) -> Result<Layout, RecordError> {
    let below = Path::new("events").join(wanted.group).join(wanted.name);
    let directory = tracefs.place().join(&below);
    let read = |name: &str| {
        tracefs.read(&below.join(name)).map_err(|error| {
            let path = directory.join(name);
            match error.kind() {
                io::ErrorKind::NotFound => RecordError::NoEvent {
                    event: wanted.label,
                    path,
                },
                _ => RecordError::TracefsUnreadable {
                    path,
                    mount: tracefs.place().to_path_buf(),
                },
            }
        })
    };
    let id = read("id")?;
    let format = read("format")?;
    let place = |field| {
        parse_field(&format, field).ok_or_else(|| RecordError::NoField {
            path: directory.join("format"),
            field,
        })
    };
    let fields = wanted.fields.iter().map(|field| place(field));
    Ok(Layout {
        point: wanted.point,
        id: id.trim().parse().map_err(|_| RecordError::NoField {
            path: directory.join("id"),
            field: "id",
        })?,
        fields: fields.collect::<Result<_, _>>()?,
    })
}

/// Offset and size of field `name` in a tracefs format description, whose lines
/// read `field:unsigned long args[6];\toffset:16;\tsize:48;\tsigned:0;`.
fn parse_field(format: &str, name: &str) -> Option<(usize, usize)> {
    for line in format.lines() {
        let Some(line) = line.trim().strip_prefix("field:") else {
            continue;
        };
        let mut parts = line.split(';').map(str::trim);
        let declaration = parts.next()?;
        let last = declaration.rsplit([' ', '*']).next()?;
        if last.split('[').next() != Some(name) {
            continue;
        }
        let offset = parts.next()?.strip_prefix("offset:")?.parse().ok()?;
        let size = parts.next()?.strip_prefix("size:")?.parse().ok()?;
        return Some((offset, size));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_whatever_their_type_looks_like() {
        let format = "name: x\nID: 4\nformat:\n\
            \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\n\
            \tfield:unsigned long args[6];\toffset:16;\tsize:48;\tsigned:0;\n\
            \tfield:char *name;\toffset:64;\tsize:8;\tsigned:0;\n";
        assert_eq!(parse_field(format, "args"), Some((16, 48)));
        assert_eq!(parse_field(format, "name"), Some((64, 8)));
        assert_eq!(parse_field(format, "common_type"), Some((0, 2)));
        assert_eq!(parse_field(format, "type"), None);
    }

    #[test]
    fn a_short_record_yields_no_field() {
        let layout = Layout {
            point: Tracepoint::SysEnter,
            id: 1,
            fields: vec![(8, 8), (16, 48)],
        };
        let raw = [1u8; 40];
        assert_eq!(layout.field(&raw, 0), Some(0x0101_0101_0101_0101));
        assert_eq!(layout.bytes(&raw, 1), None);
        assert_eq!(layout.word(&raw, 1, 0), None);
    }
}
