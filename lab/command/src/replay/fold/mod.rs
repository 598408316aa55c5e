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
//! is too wide, its parts are moved closer together, if need be by a `plan`.

mod layout;
mod plan;
mod relocate;
mod spaces;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use vellum_engine::Pages;

use layout::Layout;
use relocate::Relocation;
use spaces::{Begun, Spaces};
use vellum_trace::{EventKind, Prot, TaskId};

pub use plan::{Plan, Planner};
pub use relocate::DoesNotFit;

/// In a space of fewer 4 KiB pages than this (64 GiB), parts are placed by a plan.
const PLANNED: u64 = 1 << 24;

/// Pages of the recorded address space, and their size.
const RECORDED: Pages = Pages::X86_64;

/// One space of the recording.
#[derive(Clone, Debug)]
struct Space {
    layout: Layout,
    relocation: Option<Relocation>,
}

/// The fold of one copy of a trace.
#[derive(Debug)]
pub struct Fold {
    /// Log2 of the 4 KiB pages in one of the engine's.
    shift: u32,
    room: Room,
    spaces: Spaces<Space>,
}

/// What an engine's space has room for.
#[derive(Clone, Debug)]
enum Room {
    /// All that a recorded one has.
    Enough,
    /// So many 4 KiB pages.
    Pages(u64),
    /// What there is a plan for.
    Planned(Arc<Plan>),
}

/// 4 KiB pages of a space of `pages`, if these are fewer than were recorded.
fn narrow(pages: Pages) -> Option<u64> {
    let room = pages.user_end << pages.shift.saturating_sub(RECORDED.shift);
    (room < RECORDED.user_end).then_some(room)
}

/// What has to read all events of a trace with `tasks` tasks before it is folded onto
/// `pages`; `None` if there is room enough without a plan.
pub fn planner(pages: Pages, tasks: usize) -> Option<Planner> {
    let room = narrow(pages).filter(|&room| room < PLANNED)?;
    Some(Planner::new(room, tasks))
}

impl Fold {
    /// A fold onto `pages` for a trace with `tasks` tasks, by what [`planner`] found if
    /// it was needed; `None` if the engine has the pages of the recorded machine, and
    /// room for all of them.
    pub fn new(pages: Pages, tasks: usize, plan: Option<&Arc<Plan>>) -> Option<Fold> {
        let shift = pages.shift.saturating_sub(RECORDED.shift);
        let room = match (narrow(pages), plan) {
            (None, _) => Room::Enough,
            (Some(_), Some(plan)) => Room::Planned(Arc::clone(plan)),
            (Some(room), None) => Room::Pages(room),
        };
        let is_narrow = !matches!(room, Room::Enough);
        (shift > 0 || is_narrow).then(|| Fold {
            shift,
            room,
            spaces: Spaces::new(tasks),
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
        let room = &self.room;
        let begin = |begun| Space::new(room, begun);
        if self.spaces.follow(task, kind, begin) {
            out.push(kind);
            return Ok(());
        }
        let space = self.spaces.of(task, begin);
        let Some(relocation) = &mut space.relocation else {
            fold(&mut space.layout, self.shift, kind, out);
            return Ok(());
        };
        let mut moved = Vec::new();
        relocation.event(kind, &mut moved)?;
        for kind in moved {
            fold(&mut space.layout, self.shift, kind, out);
        }
        Ok(())
    }
}

impl Space {
    fn new(room: &Room, begun: Begun) -> Space {
        Space {
            layout: Layout::default(),
            relocation: match room {
                Room::Enough => None,
                Room::Pages(pages) => Some(Relocation::new(*pages)),
                Room::Planned(plan) => Some(plan.relocation(begun)),
            },
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
