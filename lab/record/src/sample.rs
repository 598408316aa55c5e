//! What a tracepoint tells, whatever told it: the kernel's raw record, or text
//! that another tool printed.

use crate::error::RecordError;
use crate::syscalls::number;
use crate::tracepoint::{Layout, Tracepoint};

/// Which file: the kernel's device number and the inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Identity {
    /// The device, as the kernel packs its numbers.
    pub device: u32,
    /// The inode.
    pub inode: u64,
}

/// A call is about to read or write a file on a tmpfs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// Which file.
    pub file: Identity,
    /// The call.
    pub number: u64,
    /// It is the second file of a call that has two: the one that is written.
    pub second: bool,
    /// It is a regular file.
    pub regular: bool,
    /// Its length in bytes.
    pub size: u64,
    /// Where the call begins, in bytes.
    pub position: u64,
}

impl Transfer {
    /// Whether the call writes this file.
    pub fn writes(&self) -> bool {
        self.second
            || matches!(
                self.number,
                number::WRITE
                    | number::PWRITE64
                    | number::WRITEV
                    | number::PWRITEV
                    | number::PWRITEV2
            )
    }
}

/// One event. Pages are numbers of 4 KiB pages in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sample<'a> {
    /// A page fault with its error code.
    Fault {
        address: u64,
        code: u64,
        kernel: bool,
    },
    /// A system call begins.
    Enter { number: u64, args: [u64; 6] },
    /// A system call ends.
    Exit { number: u64, result: u64 },
    /// The task that this one just created got these flags.
    NewTask { clone_flags: u64 },
    /// Fault-around offered pages `first..=last`.
    MapPages {
        file: Identity,
        first: u64,
        last: u64,
    },
    /// Pages `first..=last` were looked up for a read.
    GetPages {
        file: Identity,
        first: u64,
        last: u64,
    },
    /// A folio of `1 << order` pages entered the page cache.
    AddToCache {
        file: Identity,
        page: u64,
        order: u8,
    },
    /// The folio that begins at `page` left the page cache.
    Drop { file: Identity, page: u64 },
    /// The folio that begins at `page` became dirty. `disk` is the name that
    /// writeback uses, `major:minor`, and may be followed by zeroes.
    Dirty {
        disk: &'a [u8],
        inode: u64,
        page: u64,
    },
    /// A call reads or writes a file on a tmpfs; this comes before [`Sample::Enter`].
    Transfer(Transfer),
}

impl<'a> Sample<'a> {
    /// Reads the kernel's record `raw` of an event that lies as `layout` says.
    pub fn decode(layout: &Layout, raw: &'a [u8]) -> Result<Self, RecordError> {
        let short = || RecordError::BadRecord(format!("a short {:?}", layout.point));
        let field = |index| layout.field(raw, index).ok_or_else(short);
        let file = || -> Result<Identity, RecordError> {
            Ok(Identity {
                device: field(0)? as u32,
                inode: field(1)?,
            })
        };
        Ok(match layout.point {
            Tracepoint::FaultUser | Tracepoint::FaultKernel => Sample::Fault {
                address: field(0)?,
                code: field(1)?,
                kernel: layout.point == Tracepoint::FaultKernel,
            },
            Tracepoint::SysEnter => {
                let mut args = [0; 6];
                for (index, arg) in args.iter_mut().enumerate() {
                    *arg = layout.word(raw, 1, index).unwrap_or(0);
                }
                Sample::Enter {
                    number: field(0)?,
                    args,
                }
            }
            Tracepoint::SysExit => Sample::Exit {
                number: field(0)?,
                result: field(1)?,
            },
            Tracepoint::NewTask => Sample::NewTask {
                clone_flags: field(0)?,
            },
            Tracepoint::MapPages => Sample::MapPages {
                file: file()?,
                first: field(2)?,
                last: field(3)?,
            },
            Tracepoint::GetPages => Sample::GetPages {
                file: file()?,
                first: field(2)?,
                last: field(3)?,
            },
            Tracepoint::AddToCache => Sample::AddToCache {
                file: file()?,
                page: field(2)?,
                order: field(3)? as u8,
            },
            Tracepoint::DeleteFromCache => Sample::Drop {
                file: file()?,
                page: field(2)?,
            },
            Tracepoint::DirtyFolio => Sample::Dirty {
                disk: layout.bytes(raw, 0).ok_or_else(short)?,
                inode: field(1)?,
                page: field(2)?,
            },
        })
    }
}
