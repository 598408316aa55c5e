//! Checks, while nothing else runs.

use super::entry::{Chunk, EntryName};
use super::locks::PageHead;
use super::{Entries, Pv};
use crate::addr::Pfn;
use crate::frame::AuditError;
use crate::platform::Platform;
use crate::rmap::Env;

impl Pv {
    /// Checks the list of a frame with `maps` mappings.
    pub(super) fn check_list<P: Platform>(
        &self,
        env: &Env<'_, P>,
        frame: Pfn,
        maps: u32,
    ) -> Result<(), &'static str> {
        if self.locks.is_held(frame) {
            return Err("the lock of the list of pv entries is held");
        }
        let own = self.check_entries(env, self.locks.head(frame))?;
        let large = self.check_entries(env, self.locks.large_head(frame))?;
        if own + large == maps {
            Ok(())
        } else {
            Err("there are not as many pv entries as map the frame")
        }
    }

    /// Counts the entries of a list, whose form is checked.
    fn check_entries<P: Platform>(
        &self,
        env: &Env<'_, P>,
        head: &PageHead,
    ) -> Result<u32, &'static str> {
        let mut count = 0;
        let mut before = EntryName::NONE;
        let mut name = head.first();
        while !name.is_none() {
            let entry = self.entry(env, name);
            if entry.previous() != before {
                return Err("a pv entry does not lead back to the one before it");
            }
            if let Entries::Chunks(_) = self.entries {
                let chunk = Chunk::at(env.memory, name.chunk());
                if !chunk.has(name) {
                    return Err("a pv entry is listed that its chunk has free");
                }
            }
            if self.space(self.owner(env, name)).handle() == 0 {
                return Err("a pv entry is that of a space that has ended");
            }
            if self.space(self.owner(env, name)).tables.is_held() {
                return Err("the lock of a space's tables is held");
            }
            count += 1;
            before = name;
            name = entry.next();
        }
        Ok(count)
    }

    /// Frames that the design has, its arenas checked.
    pub(super) fn count_frames(&self) -> Result<u64, AuditError> {
        let spaces = self.spaces.audit()?;
        let entries = match &self.entries {
            Entries::Chunks(_) => self.live_chunks(),
            Entries::Slab(arena) => {
                let census = arena.audit()?;
                census.chunks + census.directory
            }
        };
        Ok(spaces.chunks + spaces.directory + entries)
    }
}
