//! Mappings and calls on ranges of addresses.

use std::io::{self, Write};

use super::{
    DESCRIPTOR, MAP_ANONYMOUS, MAP_GROWSDOWN, MAP_PRIVATE, MAP_SHARED, MREMAP_MAYMOVE, PAGE, Shown,
    Writer, mappable,
};
use vellum_record::number;
use vellum_trace::{EventKind, MapOrigin, TaskId};

impl<W: Write> Writer<'_, W> {
    pub(super) fn map(&mut self, at: (u64, TaskId), kind: &EventKind) -> io::Result<()> {
        let EventKind::Map {
            address,
            length,
            prot,
            shared,
            grows_down,
            file,
            offset,
            origin,
        } = *kind
        else {
            return Ok(());
        };
        let by_exec = origin == MapOrigin::Exec;
        let odd = (file.is_none() && offset != 0) || (file.is_some() && by_exec && grows_down);
        if odd || (!by_exec && !length.is_multiple_of(PAGE)) {
            self.unspoken += 1;
        }
        let mmap2 = self.mapping(at.1, kind);
        if by_exec {
            return self.line(at.0, at.1, format_args!("{mmap2}"));
        }
        let mut flags = if shared { MAP_SHARED } else { MAP_PRIVATE };
        flags |= if file.is_none() { MAP_ANONYMOUS } else { 0 };
        flags |= if grows_down { MAP_GROWSDOWN } else { 0 };
        let descriptor = file.map_or(0xffff_ffff, |_| DESCRIPTOR);
        let args = [
            ("addr", 0),
            ("len", length),
            ("prot", u64::from(prot.0)),
            ("flags", flags),
            ("fd", descriptor),
            ("off", offset),
        ];
        self.enter(at, number::MMAP, &args)?;
        if file.is_some() {
            self.line(at.0, at.1, format_args!("{mmap2}"))?;
        }
        self.exit(at, number::MMAP, address)
    }

    /// The line in which the kernel reports a mapping.
    fn mapping(&mut self, task: TaskId, kind: &EventKind) -> String {
        let EventKind::Map {
            address,
            length,
            prot,
            shared,
            grows_down,
            file,
            offset,
            ..
        } = *kind
        else {
            return String::new();
        };
        let letter = |bit: u8, letter: char| if prot.0 & bit != 0 { letter } else { '-' };
        let rights: String = [
            letter(1, 'r'),
            letter(2, 'w'),
            letter(4, 'x'),
            if shared { 's' } else { 'p' },
        ]
        .iter()
        .collect();
        let (device, inode, name) = match file.map(|file| &self.header.files[file.0 as usize]) {
            Some(file) => {
                let name = if mappable(file) {
                    file.name.as_str()
                } else {
                    "/nameless"
                };
                (file.device, file.inode, name)
            }
            None if grows_down => (0, 0, "[stack]"),
            None => (0, 0, "//anon"),
        };
        if file.is_some() && inode == 0 {
            self.unspoken += 1;
        }
        let (major, minor) = (device >> 20, device & 0xf_ffff);
        let Shown { pid, tid, .. } = *self.shown(task);
        format!(
            "PERF_RECORD_MMAP2 {pid}/{tid}: [{address:#x}({length:#x}) @ {offset:#x} \
             {major:02x}:{minor:02x} {inode} 0]: {rights} {name}"
        )
    }

    /// Calls on address ranges.
    pub(super) fn range(&mut self, at: (u64, TaskId), kind: &EventKind) -> io::Result<()> {
        let (number, args, result): (u64, Vec<(&str, u64)>, u64) = match *kind {
            EventKind::Unmap { address, length } => {
                (number::MUNMAP, vec![("addr", address), ("len", length)], 0)
            }
            EventKind::Protect {
                address,
                length,
                prot,
            } => {
                let prot = u64::from(prot.0);
                (
                    number::MPROTECT,
                    vec![("start", address), ("len", length), ("prot", prot)],
                    0,
                )
            }
            EventKind::Remap {
                address,
                length,
                new_address,
                new_length,
            } => (
                number::MREMAP,
                vec![
                    ("addr", address),
                    ("old_len", length),
                    ("new_len", new_length),
                    ("flags", MREMAP_MAYMOVE),
                    ("new_addr", 0),
                ],
                new_address,
            ),
            EventKind::Brk { end } => (number::BRK, vec![("brk", end)], end),
            EventKind::Advise {
                address,
                length,
                advice,
            } => {
                let advice = u64::from(advice);
                let args = vec![("start", address), ("len_in", length), ("behavior", advice)];
                (number::MADVISE, args, 0)
            }
            _ => return Ok(()),
        };
        let sizes = args.iter().filter(|(name, _)| name.contains("len"));
        if sizes.clone().any(|(_, size)| !size.is_multiple_of(PAGE)) {
            self.unspoken += 1;
        }
        let needs_length = !matches!(number, number::MUNMAP | number::BRK);
        if needs_length && args.get(1).is_some_and(|(_, length)| *length == 0) {
            self.unspoken += 1;
            return Ok(());
        }
        self.enter(at, number, &args)?;
        self.exit(at, number, result)
    }
}
