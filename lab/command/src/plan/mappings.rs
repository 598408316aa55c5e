//! The mappings that a design has made by the time each process of a trace ends.

use vellum_description::PageSize;
use vellum_engine::{Engine, Leaf, Op, Prot, SpaceSlot};
use vellum_terminal::progress::{Interrupt, Progress, Style};

use crate::compare::{Arenas, Builder};
use crate::failure::Failure;
use crate::replay::{Replayed, Slice, Workload, run_slice};

/// Pages of 4 KiB in one of 2 MiB.
const LARGE: u64 = 512;
/// Operations between two looks at whether the user wants to stop.
const BATCH: usize = 1 << 14;

/// Pages that are neighbours in memory, too, and allow the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Run {
    page: u64,
    pages: u64,
    frame: u64,
    large: bool,
    prot: Prot,
}

/// What one space has mapped, by pages of 4 KiB.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Mappings {
    runs: Vec<Run>,
    /// The run that was asked for last.
    last: usize,
}

impl Mappings {
    /// Adds a leaf after those before it.
    fn add(&mut self, leaf: Leaf) {
        let large = leaf.pages >= LARGE;
        match self.runs.last_mut() {
            Some(run)
                if run.page + run.pages == leaf.page
                    && run.frame + run.pages == leaf.frame
                    && run.large == large
                    && run.prot == leaf.prot =>
            {
                run.pages += leaf.pages;
            }
            _ => self.runs.push(Run {
                page: leaf.page,
                pages: leaf.pages,
                frame: leaf.frame,
                large,
                prot: leaf.prot,
            }),
        }
    }

    /// The largest aligned and contiguous block that `page` is mapped in; `None` if it is not
    /// mapped.
    pub fn block(&mut self, page: u64) -> Option<PageSize> {
        let holds = |run: &Run| (run.page..run.page + run.pages).contains(&page);
        if !self.runs.get(self.last).is_some_and(holds) {
            let after = self.runs.partition_point(|run| run.page <= page);
            self.last = after.checked_sub(1)?;
        }
        let run = self.runs.get(self.last).filter(|run| holds(run))?;
        if run.large {
            return Some(PageSize::M2);
        }
        let fits = |size: &PageSize| {
            let pages = 1 << (size.shift() - PageSize::K4.shift());
            let first = page & !(pages - 1);
            let frame = run.frame.wrapping_add(first.wrapping_sub(run.page));
            first >= run.page && first + pages <= run.page + run.pages && frame % pages == 0
        };
        let runs = [PageSize::K64, PageSize::K16];
        Some(runs.into_iter().find(fits).unwrap_or(PageSize::K4))
    }
}

/// What `design` has mapped in each space of a workload when it ends, or another program takes its
/// place, in this order; spaces without mappings are left out.
///
/// # Errors
/// The design is refused or runs out of memory, or the user interrupted.
pub fn made_by(
    design: &str,
    workload: &Workload,
    ram_bytes: u64,
    (style, interrupt): (Style, &Interrupt),
) -> Result<Vec<Mappings>, Failure> {
    let arenas = Arenas::new(1, workload.cpus(), ram_bytes);
    let engine = arenas.build(design, 0).map_err(Failure::of_engine)?;
    let mut progress = Progress::new(style, design, workload.ops(), "operations");
    let [stream] = workload.streams() else {
        return Err(Failure::failed("mappings are asked of one CPU only"));
    };
    let mut made = Vec::new();
    let mut replayed = Replayed::default();
    let mut done = 0;
    let mut run_to = |end: usize| {
        let slice = Slice {
            ops: std::iter::once(done..end).collect(),
        };
        run_slice(workload, engine.as_ref(), &slice, &mut replayed);
        progress.advance(slice.len() as u64);
        done = end;
        if interrupt.requested() {
            return Err(Failure::interrupted("interrupted"));
        }
        match replayed.divergences.starved {
            Some(_) => Err(Failure::failed(format!(
                "{design}: the replay runs out of memory; give it more with --ram"
            ))),
            None => Ok(()),
        }
    };
    let mut users = vec![0u32; workload.spaces() as usize];
    for (index, op) in stream.ops().iter().enumerate() {
        let leaves = left_last(op, &mut users);
        if leaves.is_some() || index % BATCH == 0 {
            run_to(index)?;
        }
        made.extend(leaves.map(|space| mappings(engine.as_ref(), space)));
    }
    run_to(stream.ops().len())?;
    let left = (0..workload.spaces()).map(SpaceSlot);
    made.extend(left.map(|space| mappings(engine.as_ref(), space)));
    progress.finish();
    made.retain(|made| !made.runs.is_empty());
    Ok(made)
}

/// The space that `op` leaves without a user. How many users spaces have is kept up to date.
fn left_last(op: &Op, users: &mut [u32]) -> Option<SpaceSlot> {
    let (left, entered) = match *op {
        Op::Create { space } | Op::Share { space } => (None, Some(space)),
        Op::Fork { child, .. } => (None, Some(child)),
        Op::Exec { old, new } => (Some(old), Some(new)),
        Op::Exit { space } => (Some(space), None),
        _ => return None,
    };
    if let Some(of) = entered.and_then(|space| users.get_mut(space.0 as usize)) {
        *of += 1;
    }
    let of = users.get_mut(left?.0 as usize)?;
    *of = of.saturating_sub(1);
    left.filter(|_| *of == 0)
}

fn mappings(engine: &dyn Engine, space: SpaceSlot) -> Mappings {
    let mut made = Mappings::default();
    engine.leaves(space, &mut |leaf| made.add(leaf));
    made
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapped(leaves: &[(u64, u64, u64, bool)]) -> Mappings {
        let mut made = Mappings::default();
        for &(page, frame, pages, write) in leaves {
            let prot = Prot {
                read: true,
                write,
                ..Prot::default()
            };
            made.add(Leaf {
                page,
                frame,
                pages,
                prot,
            });
        }
        made
    }

    #[test]
    fn blocks_are_aligned_and_contiguous_and_allow_the_same() {
        let runs = |count: u64, page: u64, frame: u64| -> Vec<(u64, u64, u64, bool)> {
            (0..count)
                .map(|at| (page + at, frame + at, 1, true))
                .collect()
        };
        let size = |leaves: &[(u64, u64, u64, bool)], page| mapped(leaves).block(page);
        assert_eq!(size(&runs(16, 32, 64), 40), Some(PageSize::K64));
        assert_eq!(
            size(&runs(16, 32, 68), 40),
            Some(PageSize::K16),
            "frames of another 64 KiB"
        );
        assert_eq!(
            size(&runs(16, 32, 65), 40),
            Some(PageSize::K4),
            "frames not aligned"
        );
        assert_eq!(
            size(&runs(16, 36, 68), 40),
            Some(PageSize::K16),
            "not a whole 64 KiB"
        );
        assert_eq!(
            size(&runs(15, 32, 64), 46),
            Some(PageSize::K4),
            "not a whole 16 KiB"
        );
        assert_eq!(size(&runs(16, 32, 64), 48), None);
        assert_eq!(size(&runs(16, 32, 64), 31), None);
        let mut other = runs(16, 32, 64);
        other[5].3 = false;
        assert_eq!(size(&other, 37), Some(PageSize::K4), "other rights");
        assert_eq!(size(&other, 41), Some(PageSize::K16));
        let large = [(512, 512, 512, true), (1024, 1024, 1, true)];
        assert_eq!(size(&large, 700), Some(PageSize::M2));
        assert_eq!(size(&large, 1024), Some(PageSize::K4));
    }
}
