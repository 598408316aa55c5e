//! The operations that led to a page: found afterwards in the workload, so that
//! a verification that succeeds pays nothing for them.

use vellum_engine::{FileSlot, Op, SpaceSlot};

use super::clocks::Place;
use super::refute::{Location, describe_op};
use crate::replay::Workload;

/// Operations that are listed.
const LENGTH: usize = 10;

/// Follows a page back through the operations of one stream.
struct Trail {
    space: Option<SpaceSlot>,
    page: u64,
    file: Option<FileSlot>,
}

impl Trail {
    /// Whether `op` concerns the page; moves on to where the page came from.
    fn concerns(&mut self, op: &Op) -> bool {
        match *op {
            Op::Fork { parent, child } if self.space == Some(child) => {
                self.space = Some(parent);
                true
            }
            Op::Fork { parent, .. } => self.space == Some(parent),
            Op::Exec { new: space, .. } | Op::Create { space } if self.space == Some(space) => {
                self.space = None;
                true
            }
            Op::Exec { old: space, .. } | Op::Exit { space } => self.space == Some(space),
            Op::Map {
                space, page, pages, ..
            }
            | Op::Unmap { space, page, pages }
            | Op::Protect {
                space, page, pages, ..
            }
            | Op::Advise {
                space, page, pages, ..
            } => self.space == Some(space) && (page..page + pages).contains(&self.page),
            Op::Remap {
                space,
                page,
                pages,
                new_page,
                new_pages,
            } => {
                let arrived = (new_page..new_page + new_pages).contains(&self.page);
                let left = (page..page + pages).contains(&self.page);
                if self.space != Some(space) || !(arrived || left) {
                    return false;
                }
                if arrived {
                    self.page = page + (self.page - new_page);
                }
                true
            }
            Op::Brk { space, start, .. } => self.space == Some(space) && self.page >= start,
            Op::Touch { space, page, .. } => self.space == Some(space) && self.page == page,
            Op::FileOpen { file, .. }
            | Op::TmpfsOpen { file, .. }
            | Op::FileRead { file, .. }
            | Op::FileWrite { file, .. }
            | Op::Truncate { file, .. } => self.file == Some(file),
            _ => false,
        }
    }
}

/// The last operations up to `at` that concern `location`, oldest first; `file`
/// is what backs it. With several CPUs, those of each CPU up to the same event.
pub fn history(
    workload: &Workload,
    location: Location,
    file: Option<FileSlot>,
    at: Place,
) -> Vec<String> {
    let (space, page) = match location {
        Location::Space(space, address) => (Some(space), address >> workload.pages().shift),
        Location::File(_, offset) => (None, offset >> workload.pages().shift),
        Location::Nowhere => return Vec::new(),
    };
    let file = match location {
        Location::File(file, _) => Some(file),
        _ => file,
    };
    let event = |place: Place| {
        let stream = &workload.streams()[place.cpu as usize];
        stream.origins().get(place.position as usize).copied()
    };
    let last = event(at).unwrap_or(u32::MAX);
    let mut found: Vec<Place> = Vec::new();
    for (cpu, stream) in workload.streams().iter().enumerate() {
        let mut trail = Trail { space, page, file };
        let concerned = (0..stream.ops().len())
            .rev()
            .filter(|position| match cpu as u32 == at.cpu {
                true => *position <= at.position as usize,
                false => stream.origins()[*position] <= last,
            })
            .filter(|position| trail.concerns(&stream.ops()[*position]))
            .take(LENGTH);
        found.extend(concerned.map(|position| Place {
            cpu: cpu as u32,
            position: position as u32,
        }));
    }
    found.sort_by_key(|place| (event(*place), *place));
    let skip = found.len().saturating_sub(LENGTH);
    found[skip..]
        .iter()
        .map(|place| describe_op(workload, *place))
        .collect()
}
