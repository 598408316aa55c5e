//! What an event did, as columns.
//!
//! One byte of the kind column tells the kind; a fault's access and flags are
//! part of it. The other columns hold only what a kind needs, in event order.

use crate::anchor::{Anchors, Backing, Code, ESCAPE};
use crate::column::{ColumnWriter, Columns};
use crate::event::{Access, EventKind, FileId, MapOrigin, Prot, TaskId};
use crate::varint::{self, Cursor, MAX_VARINT_BYTES, unzigzag, zigzag};

/// Most bytes that an event takes from the columns here: a remap's kind, two
/// anchors, two distances and two lengths; or a map's kind, flags, anchor,
/// distance, length, file and offset.
pub const MAX_KIND_BYTES: usize = 3 + 4 * MAX_VARINT_BYTES;

const PAGE: u64 = 4096;
/// Pages of a naturally aligned fault-around window, as Linux uses it.
const WINDOW: u64 = 16;

macro_rules! columns {
    ($($(#[$doc:meta])* $name:ident = $id:literal, $column:ident;)*) => {
        /// The columns being filled.
        #[derive(Default)]
        pub struct KindColumns { $($(#[$doc])* $name: Vec<u8>,)* }

        impl KindColumns {
            /// Hands every column over.
            pub fn add_to(&self, set: &mut ColumnWriter, level: i32) -> std::io::Result<()> {
                $(set.add($id, true, &self.$name, level)?;)*
                Ok(())
            }
        }

        /// The columns being read.
        pub struct KindReader<'a> { $($name: Cursor<'a>,)* }

        impl<'a> KindReader<'a> {
            /// Ids of the columns that kinds are made of.
            pub const COLUMNS: &'static [u16] = &[$($id,)*];

            pub fn new(columns: &'a Columns) -> Self {
                KindReader { $($name: columns.get($id),)* }
            }

            /// Whether every column has been read to its end.
            pub fn is_empty(&self) -> bool {
                $(self.$name.is_empty())&&*
            }
        }
    };
}

columns! {
    /// Kind of each event.
    kind = 3, KIND;
    /// Anchor of each address.
    slot = 4, SLOT;
    /// Distance of each address from its anchor, in pages.
    distance = 5, DISTANCE;
    /// Lengths in bytes.
    length = 6, LENGTH;
    /// Flags of a mapping, rights of a protect.
    flags = 7, FLAGS;
    /// Child minus task.
    child = 8, CHILD;
    /// Clone flags.
    clone = 9, CLONE;
    /// Command names.
    name = 10, NAME;
    /// Low bits of an address that need not be page-aligned.
    low = 11, LOW;
    /// File minus the file used before.
    file = 12, FILE;
    /// Fault-around ranges against the expected ones.
    around = 13, AROUND;
    /// Offsets in files.
    offset = 14, OFFSET;
    /// `madvise` advice.
    advice = 15, ADVICE;
}

/// What the coding of one task's events in one block depends on.
#[derive(Clone, Debug, Default)]
pub struct TaskState {
    anchors: Anchors,
    /// File that the task's last event with a file named.
    file: u32,
    /// Where its last read or write in that file ended.
    file_end: u64,
}

const CREATE: u8 = 1;
const EXEC: u8 = 2;
const EXIT: u8 = 3;
const WAIT: u8 = 4;
const MAP: u8 = 5;
const UNMAP: u8 = 6;
const PROTECT: u8 = 7;
const REMAP: u8 = 8;
const BRK: u8 = 9;
const ADVISE: u8 = 10;
const MAP_AROUND: u8 = 11;
const FILE_READ: u8 = 12;
const FILE_WRITE: u8 = 13;
const TRUNCATE: u8 = 14;
/// Faults are `FAULT | present << 3 | kernel << 2 | access`.
const FAULT: u8 = 0x40;

/// Fault-around exactly as expected; in the expected file; in another file.
const AS_EXPECTED: u8 = 0;
const SAME_FILE: u8 = 1;
const OTHER_FILE: u8 = 2;

/// Flags of a mapping above its three bits of rights.
const SHARED: u8 = 8;
const GROWS_DOWN: u8 = 16;
const HAS_FILE: u8 = 32;
const BY_EXEC: u8 = 64;

fn access_code(access: Access) -> u8 {
    match access {
        Access::Read => 0,
        Access::Write => 1,
        Access::Execute => 2,
    }
}

/// First and last page that Linux would offer around the task's last address.
fn expected_window(state: &TaskState) -> Option<(FileId, u64, u64)> {
    let (page, backing) = state.anchors.current();
    let Backing { file, shift } = backing?;
    let first = (page & !(WINDOW - 1)).wrapping_add(shift);
    Some((file, first, first.wrapping_add(WINDOW - 1)))
}

fn backing_of_window(state: &TaskState, file: FileId, first: u64) -> Backing {
    let page = state.anchors.current().0;
    Backing {
        file,
        shift: first.wrapping_sub(page & !(WINDOW - 1)),
    }
}

impl KindColumns {
    /// Appends one event of `task`.
    pub fn push(&mut self, state: &mut TaskState, task: TaskId, kind: &EventKind) {
        match *kind {
            EventKind::Fault {
                address,
                access,
                kernel,
                present,
            } => {
                let flags = u8::from(present) << 3 | u8::from(kernel) << 2;
                self.kind.push(FAULT | flags | access_code(access));
                self.put_page(state, address);
            }
            EventKind::MapAround { file, first, last } => {
                self.kind.push(MAP_AROUND);
                self.put_around(state, file, first, last);
            }
            EventKind::Create { child, clone_flags } => {
                self.kind.push(CREATE);
                self.put_child(task, child);
                varint::put(&mut self.clone, clone_flags);
            }
            EventKind::Exec { name } => {
                self.kind.push(EXEC);
                varint::put(&mut self.name, u64::from(name));
                *state = TaskState::default();
            }
            EventKind::Exit => self.kind.push(EXIT),
            EventKind::Wait { child } => {
                self.kind.push(WAIT);
                self.put_child(task, child);
            }
            EventKind::FileRead {
                file,
                offset,
                length,
            } => self.put_transfer(FILE_READ, state, file, offset, length),
            EventKind::FileWrite {
                file,
                offset,
                length,
            } => self.put_transfer(FILE_WRITE, state, file, offset, length),
            EventKind::Truncate { file, size } => {
                self.kind.push(TRUNCATE);
                self.put_file(state, file);
                self.put_length(size);
            }
            _ => self.push_address_change(state, kind),
        }
    }

    fn push_address_change(&mut self, state: &mut TaskState, kind: &EventKind) {
        match *kind {
            EventKind::Map {
                address,
                length,
                prot,
                shared,
                grows_down,
                file,
                offset,
                origin,
            } => {
                self.kind.push(MAP);
                let mut flags = prot.0 & 7;
                for (bit, on) in [
                    (SHARED, shared),
                    (GROWS_DOWN, grows_down),
                    (HAS_FILE, file.is_some()),
                    (BY_EXEC, origin == MapOrigin::Exec),
                ] {
                    flags |= if on { bit } else { 0 };
                }
                self.flags.push(flags);
                self.put_page(state, address);
                self.put_length(length);
                if let Some(file) = file {
                    self.put_file(state, file);
                    varint::put(&mut self.offset, offset / PAGE);
                }
                state
                    .anchors
                    .set_backing(map_backing(file, offset, address));
            }
            EventKind::Unmap { address, length } => {
                self.kind.push(UNMAP);
                self.put_page(state, address);
                self.put_length(length);
            }
            EventKind::Protect {
                address,
                length,
                prot,
            } => {
                self.kind.push(PROTECT);
                self.flags.push(prot.0);
                self.put_page(state, address);
                self.put_length(length);
            }
            EventKind::Remap {
                address,
                length,
                new_address,
                new_length,
            } => {
                self.kind.push(REMAP);
                self.put_page(state, address);
                self.put_length(length);
                self.put_page(state, new_address);
                self.put_length(new_length);
            }
            EventKind::Brk { end } => {
                self.kind.push(BRK);
                self.put_page(state, end);
                varint::put(&mut self.low, end % PAGE);
            }
            EventKind::Advise {
                address,
                length,
                advice,
            } => {
                self.kind.push(ADVISE);
                self.put_page(state, address);
                self.put_length(length);
                varint::put(&mut self.advice, u64::from(advice));
            }
            _ => unreachable!("push() handles every other kind"),
        }
    }

    fn put_page(&mut self, state: &mut TaskState, address: u64) {
        let code = state.anchors.encode(address / PAGE);
        self.slot.push(code.slot);
        varint::put(&mut self.distance, zigzag(code.distance));
    }

    /// Whole pages as an even number, others as twice the bytes plus one.
    fn put_length(&mut self, length: u64) {
        let coded = if length.is_multiple_of(PAGE) {
            length / PAGE * 2
        } else {
            length << 1 | 1
        };
        varint::put(&mut self.length, coded);
    }

    fn put_child(&mut self, task: TaskId, child: TaskId) {
        let distance = i64::from(child.0) - i64::from(task.0);
        varint::put(&mut self.child, zigzag(distance));
    }

    fn put_file(&mut self, state: &mut TaskState, file: FileId) {
        let distance = i64::from(file.0) - i64::from(state.file);
        varint::put(&mut self.file, zigzag(distance));
        if distance != 0 {
            state.file_end = 0;
        }
        state.file = file.0;
    }

    fn put_transfer(
        &mut self,
        code: u8,
        state: &mut TaskState,
        file: FileId,
        offset: u64,
        length: u64,
    ) {
        self.kind.push(code);
        self.put_file(state, file);
        let step = offset.wrapping_sub(state.file_end) as i64;
        varint::put(&mut self.offset, zigzag(step));
        self.put_length(length);
        state.file_end = offset.wrapping_add(length);
    }

    fn put_around(&mut self, state: &mut TaskState, file: FileId, first: u64, last: u64) {
        match expected_window(state) {
            Some(expected) if expected == (file, first, last) => self.around.push(AS_EXPECTED),
            Some((expected_file, expected_first, _)) if expected_file == file => {
                self.around.push(SAME_FILE);
                let step = first.wrapping_sub(expected_first) as i64;
                varint::put(&mut self.around, zigzag(step));
                varint::put(&mut self.around, last - first);
            }
            _ => {
                self.around.push(OTHER_FILE);
                varint::put(&mut self.around, first);
                varint::put(&mut self.around, last - first);
                self.put_file(state, file);
                let backing = backing_of_window(state, file, first);
                state.anchors.set_backing(Some(backing));
            }
        }
    }
}

fn map_backing(file: Option<FileId>, offset: u64, address: u64) -> Option<Backing> {
    file.map(|file| Backing {
        file,
        shift: (offset / PAGE).wrapping_sub(address / PAGE),
    })
}

type Read<T> = Result<T, &'static str>;

impl KindReader<'_> {
    /// The next event of `task`.
    pub fn next(&mut self, state: &mut TaskState, task: TaskId) -> Read<EventKind> {
        let code = self.kind.byte().ok_or("the kind column is cut short")?;
        match code {
            CREATE => Ok(EventKind::Create {
                child: self.child(task)?,
                clone_flags: self.clone.varint().ok_or("bad clone flags")?,
            }),
            EXEC => {
                *state = TaskState::default();
                let name = self.name.varint().and_then(|n| u32::try_from(n).ok());
                let name = name.ok_or("bad command name")?;
                Ok(EventKind::Exec { name })
            }
            EXIT => Ok(EventKind::Exit),
            WAIT => Ok(EventKind::Wait {
                child: self.child(task)?,
            }),
            FILE_READ => {
                let (file, offset, length) = self.transfer(state)?;
                Ok(EventKind::FileRead {
                    file,
                    offset,
                    length,
                })
            }
            FILE_WRITE => {
                let (file, offset, length) = self.transfer(state)?;
                Ok(EventKind::FileWrite {
                    file,
                    offset,
                    length,
                })
            }
            TRUNCATE => Ok(EventKind::Truncate {
                file: self.file(state)?,
                size: self.length()?,
            }),
            MAP_AROUND => self.map_around(state),
            MAP..=ADVISE => self.address_change(code, state),
            _ if code & !0xf == FAULT => Ok(EventKind::Fault {
                access: match code & 3 {
                    0 => Access::Read,
                    1 => Access::Write,
                    2 => Access::Execute,
                    _ => return Err("unknown access"),
                },
                kernel: code & 4 != 0,
                present: code & 8 != 0,
                address: self.page(state)?,
            }),
            _ => Err("unknown kind of event"),
        }
    }

    fn address_change(&mut self, code: u8, state: &mut TaskState) -> Read<EventKind> {
        Ok(match code {
            MAP => self.map(state)?,
            UNMAP => EventKind::Unmap {
                address: self.page(state)?,
                length: self.length()?,
            },
            PROTECT => EventKind::Protect {
                prot: Prot(self.flags.byte().ok_or("the flags column is cut short")?),
                address: self.page(state)?,
                length: self.length()?,
            },
            REMAP => EventKind::Remap {
                address: self.page(state)?,
                length: self.length()?,
                new_address: self.page(state)?,
                new_length: self.length()?,
            },
            BRK => EventKind::Brk {
                end: self.page(state)? | self.low()?,
            },
            ADVISE => EventKind::Advise {
                address: self.page(state)?,
                length: self.length()?,
                advice: {
                    let advice = self.advice.varint();
                    let advice = advice.and_then(|advice| u32::try_from(advice).ok());
                    advice.ok_or("bad advice")?
                },
            },
            _ => return Err("unknown kind of event"),
        })
    }

    fn map(&mut self, state: &mut TaskState) -> Read<EventKind> {
        let flags = self.flags.byte().ok_or("the flags column is cut short")?;
        if flags & 0x80 != 0 {
            return Err("unknown flag of a mapping");
        }
        let address = self.page(state)?;
        let length = self.length()?;
        let (mut file, mut offset) = (None, 0);
        if flags & HAS_FILE != 0 {
            file = Some(self.file(state)?);
            let page = self.offset.varint().ok_or("bad offset")?;
            offset = page.checked_mul(PAGE).ok_or("an offset overflows")?;
        }
        state
            .anchors
            .set_backing(map_backing(file, offset, address));
        Ok(EventKind::Map {
            address,
            length,
            prot: Prot(flags & 7),
            shared: flags & SHARED != 0,
            grows_down: flags & GROWS_DOWN != 0,
            file,
            offset,
            origin: if flags & BY_EXEC != 0 {
                MapOrigin::Exec
            } else {
                MapOrigin::Mmap
            },
        })
    }

    fn map_around(&mut self, state: &mut TaskState) -> Read<EventKind> {
        let token = self.around.byte().ok_or("bad fault-around range")?;
        if token == AS_EXPECTED {
            let (file, first, last) = expected_window(state).ok_or("nothing is expected here")?;
            return Ok(EventKind::MapAround { file, first, last });
        }
        let first = self.around.varint().ok_or("bad fault-around range")?;
        let length = self.around.varint().ok_or("bad fault-around range")?;
        let (file, first) = match token {
            SAME_FILE => {
                let (file, expected, _) = expected_window(state).ok_or("no file is near")?;
                (file, expected.wrapping_add(unzigzag(first) as u64))
            }
            OTHER_FILE => {
                let file = self.file(state)?;
                let backing = backing_of_window(state, file, first);
                state.anchors.set_backing(Some(backing));
                (file, first)
            }
            _ => return Err("unknown fault-around token"),
        };
        let last = first.checked_add(length).ok_or("a page number overflows")?;
        Ok(EventKind::MapAround { file, first, last })
    }

    fn transfer(&mut self, state: &mut TaskState) -> Read<(FileId, u64, u64)> {
        let file = self.file(state)?;
        let step = self.offset.signed().ok_or("bad offset")?;
        let offset = state.file_end.wrapping_add(step as u64);
        let length = self.length()?;
        state.file_end = offset.wrapping_add(length);
        Ok((file, offset, length))
    }

    fn page(&mut self, state: &mut TaskState) -> Read<u64> {
        let slot = self.slot.byte().ok_or("the anchor column is cut short")?;
        if slot > ESCAPE {
            return Err("unknown anchor");
        }
        let distance = self.distance.signed().ok_or("bad distance")?;
        let page = state.anchors.decode(Code { slot, distance });
        Ok(page.ok_or("an address that nothing leads to")? * PAGE)
    }

    fn low(&mut self) -> Read<u64> {
        let low = self.low.varint().filter(|low| *low < PAGE);
        low.ok_or("bad low bits of an address")
    }

    fn length(&mut self) -> Read<u64> {
        let coded = self.length.varint().ok_or("bad length")?;
        if coded & 1 == 1 {
            return Ok(coded >> 1);
        }
        (coded / 2).checked_mul(PAGE).ok_or("a length overflows")
    }

    fn child(&mut self, task: TaskId) -> Read<TaskId> {
        let distance = self.child.signed().ok_or("bad child")?;
        let child = i64::from(task.0).checked_add(distance);
        let child = child.and_then(|child| u32::try_from(child).ok());
        child.map(TaskId).ok_or("a child out of range")
    }

    fn file(&mut self, state: &mut TaskState) -> Read<FileId> {
        let distance = self.file.signed().ok_or("bad file")?;
        let file = i64::from(state.file).checked_add(distance);
        let file = file.and_then(|file| u32::try_from(file).ok());
        let file = file.ok_or("a file out of range")?;
        if file != state.file {
            state.file_end = 0;
        }
        state.file = file;
        Ok(FileId(file))
    }
}
