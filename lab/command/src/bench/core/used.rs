//! About how much memory the operations of a script need.

use std::collections::HashMap;

use vellum_engine::{Access, Call, FileSlot, Op, SpaceSlot};

/// Pages that spaces have made, and the most there were at a time.
#[derive(Debug, Default)]
pub struct Used {
    of_space: HashMap<SpaceSlot, u64>,
    of_file: HashMap<FileSlot, u64>,
    now: u64,
    peak: u64,
}

impl Used {
    /// Pages at the peak.
    pub fn peak(&self) -> u64 {
        self.peak
    }

    /// Counts what `op` makes and ends.
    pub fn take(&mut self, op: &Op) {
        match *op {
            Op::Touch {
                space,
                access: Access::Write,
                ..
            } => self.change(space, |pages| pages + 1),
            // Tables, and nodes for each entry in some designs.
            Op::Fork { parent, child } => {
                let copied = self.of_space.get(&parent).copied().unwrap_or(0);
                self.change(child, |_| 16 + copied / 32);
            }
            Op::Unmap { space, pages, .. } | Op::Advise { space, pages, .. } => {
                self.change(space, |had| had.saturating_sub(pages));
            }
            Op::Exit { space } => self.change(space, |_| 0),
            Op::FileOpen { pages, .. } => {
                self.now += pages;
                self.peak = self.peak.max(self.now);
            }
            Op::Call(call) => self.take_call(&call),
            _ => {}
        }
    }

    fn take_call(&mut self, call: &Call) {
        match *call {
            Call::Write {
                file, at, bytes, ..
            }
            | Call::WriteZeroes {
                file, at, bytes, ..
            } => {
                let end = (at + bytes).div_ceil(4096);
                self.resize(file, |had| had.max(end));
            }
            Call::SetSize { file, bytes } => {
                self.resize(file, |had| had.min(bytes.div_ceil(4096)));
            }
            Call::Close { file } => self.resize(file, |_| 0),
            Call::Frames { order, blocks, .. } => {
                let frames = u64::from(blocks) << order;
                self.peak = self.peak.max(self.now + frames);
            }
            _ => {}
        }
    }

    fn resize(&mut self, file: FileSlot, resize: impl FnOnce(u64) -> u64) {
        let pages = self.of_file.entry(file).or_default();
        self.now -= *pages;
        *pages = resize(*pages);
        self.now += *pages;
        self.peak = self.peak.max(self.now);
    }

    fn change(&mut self, space: SpaceSlot, change: impl FnOnce(u64) -> u64) {
        let pages = self.of_space.entry(space).or_default();
        self.now -= *pages;
        *pages = change(*pages);
        self.now += *pages;
        self.peak = self.peak.max(self.now);
    }
}
