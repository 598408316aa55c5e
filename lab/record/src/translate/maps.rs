//! Mappings that the kernel reports.

use super::Translator;
use crate::error::RecordError;
use crate::raw::Mmap;
use crate::syscalls::{self, Call, Segment};
use vellum_trace::{EventKind, FileId, MapOrigin, Prot};

/// Programs of 32 bits have their stack below, others above.
const NARROW_END: u64 = 1 << 32;

impl Translator<'_> {
    /// The file of a reported mapping; `None` for memory without one.
    fn mapped_file(&mut self, mmap: &Mmap<'_>) -> Option<FileId> {
        if !mmap.is_of_file() {
            return None;
        }
        let name = String::from_utf8_lossy(mmap.name);
        Some(self.named_file(syscalls::device(mmap), mmap.inode, &name))
    }

    /// The file with this identity, which a mapping calls `name`.
    pub(super) fn named_file(&mut self, device: u32, inode: u64, name: &str) -> FileId {
        let table = &mut self.sink.header_mut().files;
        let file = self.files.identify(table, device, inode);
        let entry = &mut table[file.0 as usize];
        if entry.name.is_empty() {
            entry.name = name.to_owned();
        }
        file
    }

    pub(super) fn mmap(&mut self, tid: u32, mmap: &Mmap<'_>) -> Result<(), RecordError> {
        // Growing stacks and heaps and changes of rights are reported here too,
        // and known from elsewhere.
        let Some(call) = self.live.get(&tid).map(|live| live.call) else {
            return Ok(());
        };
        if !matches!(call, Call::Exec | Call::Map { .. } | Call::Attach { .. }) {
            return Ok(());
        }
        let file = self.mapped_file(mmap);
        if let Some(file) = file {
            self.files.mapped(file, mmap.offset + mmap.length);
        }
        let live = self.live.get_mut(&tid).expect("looked up above");
        match (&mut live.call, file) {
            (Call::Exec, _) => {
                let is_low = mmap.name == b"[stack]" && mmap.address < NARROW_END;
                if is_low && !live.narrow && !self.named_calls {
                    live.narrow = true;
                    self.unseen.narrow += 1;
                }
                let event = exec_map(mmap, file);
                return self.emit(tid, event);
            }
            (Call::Map { file: slot, .. }, _) => *slot = file,
            (Call::Attach { segment }, Some(file)) => {
                *segment = Some(Segment {
                    length: mmap.length,
                    prot: Prot(mmap.prot as u8 & 7),
                    file,
                });
            }
            _ => {}
        }
        Ok(())
    }
}

/// A mapping that the kernel made while it executed a program.
fn exec_map(mmap: &Mmap<'_>, file: Option<FileId>) -> EventKind {
    EventKind::Map {
        address: mmap.address,
        length: mmap.length,
        prot: Prot(mmap.prot as u8 & 7),
        shared: mmap.flags & libc::MAP_SHARED as u32 != 0,
        grows_down: mmap.flags & libc::MAP_GROWSDOWN as u32 != 0 || mmap.name == b"[stack]",
        file,
        offset: if file.is_some() { mmap.offset } else { 0 },
        origin: MapOrigin::Exec,
    }
}
