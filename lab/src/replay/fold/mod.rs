//! Recorded events on the pages of another machine: larger pages, or a smaller
//! address space.
//!
//! A trace speaks of 4 KiB pages and of addresses of 47 bits. [`Fold`] sits in
//! front of the translation and says the same of the engine's pages: it hands
//! on events whose addresses and lengths count engine pages, each written as if
//! it had 4 KiB. `docs/replay.md` states the rules; they follow from one: **a
//! large page is what its mapped 4 KiB pages have in common, and more where they
//! differ.**
//!
//! * It is mapped as long as one of them is. Whoever mapped it while it was
//!   empty gives it its backing; a mapping of a part of it changes only rights.
//! * It allows what any of them allows.
//! * It is dropped, unmapped or moved with the last of them.
//!
//! So nothing that was allowed is refused, and no page appears or disappears
//! under a program's feet. First comes `relocate`: where the recorded layout
//! is too wide, its parts are moved closer together.

mod layout;
mod relocate;
#[cfg(test)]
mod tests;

use vellum_engine::Pages;

use layout::Layout;
use relocate::Relocation;
use vellum_trace::{EventKind, Prot, TaskId};

pub use relocate::DoesNotFit;

/// `CLONE_VM`: the child runs in its parent's space.
const CLONE_VM: u64 = 0x100;

/// Pages of the recorded address space, and their size.
const RECORDED: Pages = Pages::X86_64;

/// One space of the recording.
#[derive(Clone, Debug)]
struct Space {
    layout: Layout,
    relocation: Option<Relocation>,
    users: u32,
}

/// The fold of one copy of a trace.
#[derive(Debug)]
pub struct Fold {
    /// Log2 of the 4 KiB pages in one of the engine's.
    shift: u32,
    /// 4 KiB pages of an engine's space, where that is fewer than were recorded.
    room: Option<u64>,
    /// Space of each task.
    tasks: Vec<Option<usize>>,
    spaces: Vec<Space>,
    /// Places in `spaces` that are free.
    free: Vec<usize>,
}

impl Fold {
    /// A fold onto `pages` for a trace with `tasks` tasks; `None` if the engine
    /// has the pages of the recorded machine, and room for all of them.
    pub fn new(pages: Pages, tasks: usize) -> Option<Fold> {
        let shift = pages.shift.saturating_sub(RECORDED.shift);
        let room = pages.user_end << shift;
        let is_narrow = room < RECORDED.user_end;
        (shift > 0 || is_narrow).then(|| Fold {
            shift,
            room: is_narrow.then_some(room),
            tasks: vec![None; tasks],
            spaces: Vec::new(),
            free: Vec::new(),
        })
    }

    /// Log2 of the 4 KiB pages in one of the engine's.
    pub fn shift(&self) -> u32 {
        self.shift
    }

    /// A file's length in engine pages.
    pub fn file_pages(&self, recorded: u64) -> u64 {
        recorded.div_ceil(1 << self.shift)
    }

    /// Appends to `out` what becomes of an event of `task`.
    ///
    /// # Errors
    /// The space's layout cannot be moved into the engine's.
    pub fn event(
        &mut self,
        task: TaskId,
        kind: EventKind,
        out: &mut Vec<EventKind>,
    ) -> Result<(), DoesNotFit> {
        let space = self.space_of(task);
        match kind {
            EventKind::Create { child, clone_flags } => {
                if let Some(None) = self.tasks.get(child.0 as usize) {
                    let place = self.create(space, clone_flags);
                    self.tasks[child.0 as usize] = Some(place);
                }
                out.push(kind);
            }
            EventKind::Exec { .. } => {
                self.leave(space);
                let new = self.add(Space::new(self.room));
                self.set(task, Some(new));
                out.push(kind);
            }
            EventKind::Exit => {
                self.leave(space);
                self.set(task, None);
                out.push(kind);
            }
            _ if self.room.is_some() => {
                let mut moved = Vec::new();
                let space = &mut self.spaces[space];
                match &mut space.relocation {
                    Some(relocation) => relocation.event(kind, &mut moved)?,
                    None => moved.push(kind),
                }
                for kind in moved {
                    fold(&mut space.layout, self.shift, kind, out);
                }
            }
            _ => fold(&mut self.spaces[space].layout, self.shift, kind, out),
        }
        Ok(())
    }

    fn space_of(&mut self, task: TaskId) -> usize {
        let known = self.tasks.get(task.0 as usize).copied().flatten();
        known.unwrap_or_else(|| {
            let place = self.add(Space::new(self.room));
            self.set(task, Some(place));
            place
        })
    }

    fn set(&mut self, task: TaskId, space: Option<usize>) {
        if let Some(entry) = self.tasks.get_mut(task.0 as usize) {
            *entry = space;
        }
    }

    fn create(&mut self, parent: usize, clone_flags: u64) -> usize {
        if clone_flags & CLONE_VM != 0 {
            self.spaces[parent].users += 1;
            return parent;
        }
        let copy = Space {
            users: 1,
            ..self.spaces[parent].clone()
        };
        self.add(copy)
    }

    fn add(&mut self, space: Space) -> usize {
        match self.free.pop() {
            Some(place) => {
                self.spaces[place] = space;
                place
            }
            None => {
                self.spaces.push(space);
                self.spaces.len() - 1
            }
        }
    }

    fn leave(&mut self, place: usize) {
        let space = &mut self.spaces[place];
        space.users -= 1;
        if space.users == 0 {
            *space = Space::new(None);
            self.free.push(place);
        }
    }
}

impl Space {
    fn new(room: Option<u64>) -> Space {
        Space {
            layout: Layout::default(),
            relocation: room.map(Relocation::new),
            users: 1,
        }
    }
}

/// Folds an event that is about addresses or files.
fn fold(layout: &mut Layout, shift: u32, kind: EventKind, out: &mut Vec<EventKind>) {
    if shift == 0 {
        out.push(kind);
        return;
    }
    let mut folding = layout::Folding { layout, shift, out };
    folding.event(kind);
}

/// The bits of a set of rights, as the trace has them.
fn trace_prot(prot: vellum_engine::Prot) -> Prot {
    Prot(u8::from(prot.read) | u8::from(prot.write) << 1 | u8::from(prot.execute) << 2)
}
