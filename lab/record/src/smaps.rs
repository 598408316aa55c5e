//! A mapping as `/proc/PID/smaps` shows it, and the events by which a process gets it.
//!
//! ```text
//! 7f54028bf000-7f54028c1000 rw-p 00031000 fe:00 325835   /usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2
//! Rss:                   8 kB
//! Anonymous:             4 kB
//! ```

use vellum_trace::{Access, EventKind, FileId, MapOrigin, Prot};

const PAGE: u64 = 4096;
/// Offsets in files end here.
const OFFSET_END: u64 = 1 << 61;
const READ: u8 = 1;
const WRITE: u8 = 2;
const EXECUTE: u8 = 4;

/// A mapping, and sizes of what is there of it, in bytes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Mapping {
    /// First byte.
    pub start: u64,
    /// The byte after the last.
    pub end: u64,
    /// Rights, as [`Prot`] has them.
    pub prot: u8,
    /// Writes go to the file or the shared memory.
    pub shared: bool,
    /// Byte offset in the file.
    pub offset: u64,
    /// The file's device, as the kernel packs its numbers.
    pub device: u32,
    /// The file's inode; 0 without one.
    pub inode: u64,
    /// Path, or a name in brackets, or nothing.
    pub name: String,
    /// In memory, hugetlb left out.
    pub resident: u64,
    /// Of it, private memory.
    pub anonymous: u64,
    /// Of it, written.
    pub dirty: u64,
    /// Of it, in huge pages.
    pub huge: u64,
    /// In pages of hugetlb.
    pub hugetlb: u64,
    /// In swap.
    pub swapped: u64,
}

/// Pages of a mapping that were touched in one way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Touched {
    /// The first, as the number of its address.
    pub first: u64,
    /// How many.
    pub pages: u64,
    /// They were stored to.
    pub written: bool,
}

impl Mapping {
    /// The first line of one.
    pub fn parse(line: &str) -> Option<Mapping> {
        let (range, rest) = line.split_once(' ')?;
        let (start, end) = range.split_once('-')?;
        let number = |text| u64::from_str_radix(text, 16).ok();
        let (start, end) = (number(start)?, number(end)?);
        let mut words = rest.splitn(5, ' ');
        let rights = words.next()?.as_bytes();
        let right = |at: usize, letter, bit| match rights.get(at) {
            Some(found) if *found == letter => Some(bit),
            Some(b'-') => Some(0),
            _ => None,
        };
        let prot = right(0, b'r', READ)? | right(1, b'w', WRITE)? | right(2, b'x', EXECUTE)?;
        let shared = match rights.get(3..) {
            Some(b"s") => true,
            Some(b"p") => false,
            _ => return None,
        };
        let offset = number(words.next()?).filter(|offset| *offset < OFFSET_END)?;
        let (major, minor) = words.next()?.split_once(':')?;
        let (major, minor) = (number(major)?, number(minor)?);
        let inode = words.next()?.parse().ok()?;
        let name = words.next().unwrap_or("").trim().to_owned();
        let is_whole = start < end && (start | end | offset) % PAGE == 0;
        let is_device = major < 1 << 12 && minor < 1 << 20;
        (is_whole && is_device).then(|| Mapping {
            start,
            end,
            prot,
            shared,
            offset,
            device: (major << 20 | minor) as u32,
            inode,
            name,
            ..Mapping::default()
        })
    }

    /// A line about it. False: it is none.
    pub fn take(&mut self, line: &str) -> bool {
        let Some((key, value)) = size(line) else {
            return false;
        };
        let part = match key {
            "Rss" => &mut self.resident,
            "Anonymous" => &mut self.anonymous,
            "Shared_Dirty" | "Private_Dirty" => &mut self.dirty,
            "AnonHugePages" | "ShmemPmdMapped" | "FilePmdMapped" => &mut self.huge,
            "Shared_Hugetlb" | "Private_Hugetlb" => &mut self.hugetlb,
            "Swap" => &mut self.swapped,
            _ => return true,
        };
        *part = part.saturating_add(value);
        true
    }

    /// Its length in pages.
    pub fn pages(&self) -> u64 {
        (self.end - self.start) / PAGE
    }

    /// How many pages were written, and how many only read.
    pub fn touched(&self) -> (u64, u64) {
        let written = match self.shared {
            true => self.dirty,
            false => self.anonymous,
        };
        let written = (written.saturating_add(self.hugetlb) / PAGE).min(self.pages());
        let there = (self.resident.saturating_add(self.hugetlb) / PAGE).min(self.pages());
        (written, there.saturating_sub(written))
    }

    /// The same as pages: which they are does not show. They are taken to be the first of the
    /// mapping, or the last of a stack.
    pub fn made_up(&self) -> [Touched; 2] {
        let (written, read) = self.touched();
        let first = self.start / PAGE;
        let first = match self.is_stack() {
            true => first + self.pages() - (written + read),
            false => first,
        };
        [(first, written, true), (first + written, read, false)].map(|(first, pages, written)| {
            Touched {
                first,
                pages,
                written,
            }
        })
    }

    fn is_stack(&self) -> bool {
        self.name == "[stack]"
    }

    /// It shows a file. A segment of System V shared memory has its number as inode, from 0 on.
    pub fn is_of_file(&self) -> bool {
        self.inode != 0 || self.name.starts_with("/SYSV")
    }

    /// A program can be executed from it.
    pub fn is_text(&self) -> bool {
        self.is_of_file() && self.prot & EXECUTE != 0
    }

    /// Gives the events by which a process gets the mapping, `file` its file in the trace, with
    /// the pages that were touched. Rights can have been taken away since: it first gets those
    /// that the touches need.
    ///
    /// # Errors
    /// Those of `put`.
    pub fn tell<E>(
        &self,
        file: Option<FileId>,
        touched: &[Touched],
        put: &mut dyn FnMut(EventKind) -> Result<(), E>,
    ) -> Result<(), E> {
        let given = self.prot | needed(touched);
        put(EventKind::Map {
            address: self.start,
            length: self.end - self.start,
            prot: Prot(given),
            shared: self.shared,
            grows_down: self.is_stack(),
            file,
            offset: if file.is_some() { self.offset } else { 0 },
            origin: MapOrigin::Exec,
        })?;
        self.tell_touches(given, touched, put)
    }

    /// The same of a mapping that is there already, with the rights `given`.
    ///
    /// # Errors
    /// Those of `put`.
    pub fn tell_touches<E>(
        &self,
        given: u8,
        touched: &[Touched],
        put: &mut dyn FnMut(EventKind) -> Result<(), E>,
    ) -> Result<(), E> {
        for run in touched {
            for page in run.first..run.first + run.pages {
                put(EventKind::Fault {
                    address: page * PAGE,
                    access: if run.written {
                        Access::Write
                    } else {
                        Access::Read
                    },
                    kernel: false,
                    present: false,
                })?;
            }
        }
        if given == self.prot {
            return Ok(());
        }
        put(EventKind::Protect {
            address: self.start,
            length: self.end - self.start,
            prot: Prot(self.prot),
        })
    }
}

/// The rights that touches need.
fn needed(touched: &[Touched]) -> u8 {
    let there = touched.iter().filter(|run| run.pages > 0);
    let rights = there.map(|run| if run.written { WRITE } else { READ });
    rights.fold(0, |all, right| all | right)
}

/// `Rss:   8 kB`, in bytes. Lines without a unit count as nothing.
pub fn size(line: &str) -> Option<(&str, u64)> {
    let (key, value) = line.split_once(':')?;
    let is_key = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    if key.is_empty() || !key.chars().all(is_key) {
        return None;
    }
    match value.trim().strip_suffix(" kB") {
        Some(kib) => Some((key, kib.trim().parse::<u64>().ok()?.saturating_mul(1024))),
        None => matches!(key, "VmFlags" | "THPeligible" | "ProtectionKey").then_some((key, 0)),
    }
}

/// Whether a line is one of smaps.
pub fn looks_like(line: &str) -> bool {
    Mapping::parse(line).is_some() || size(line).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_apart() {
        let line = "7f00a000-7f00c000 r-xp 00002000 fe:01 247278                     /usr/bin/a b";
        let mut mapping = Mapping::parse(line).unwrap();
        assert_eq!((mapping.start, mapping.end), (0x7f00_a000, 0x7f00_c000));
        assert_eq!((mapping.prot, mapping.shared), (READ | EXECUTE, false));
        assert_eq!((mapping.offset, mapping.device), (0x2000, 0xfe << 20 | 1));
        assert_eq!(
            (mapping.inode, mapping.name.as_str()),
            (247_278, "/usr/bin/a b")
        );
        for line in [
            "Rss:      8 kB",
            "Anonymous:   4 kB",
            "VmFlags: rd ex",
            "THPeligible:    0",
        ] {
            assert!(looks_like(line) && mapping.take(line), "{line}");
        }
        assert_eq!(mapping.touched(), (1, 1));
        let anonymous = Mapping::parse("1000-3000 ---s 00000000 00:00 0").unwrap();
        assert_eq!(
            (anonymous.prot, anonymous.shared, anonymous.name.as_str()),
            (0, true, "")
        );
    }

    #[test]
    fn other_lines_do_not() {
        for line in [
            "",
            "1000-3000",
            "3000-1000 rw-p 00000000 00:00 0",
            "1000-3001 rw-p 00000000 00:00 0",
            "1000-3000 rwp 00000000 00:00 0",
            "1000-3000 rw-q 00000000 00:00 0",
            "1000-3000 rw-p 00000000 0000 0",
            "563ebaa00000-563ebc99e000(  31.617 MiB): 1",
            "monitoring_start: 0 ns",
            "Rss: many kB",
        ] {
            assert!(!looks_like(line), "{line}");
        }
    }
}
