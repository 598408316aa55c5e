//! What the frames were whose records are in a profile.

use std::collections::BTreeMap;

use vellum::frame::{Frame, Kind};
use vellum::platform::Machine;
use vellum::rmap::ReverseMap;
use vellum_sim::{LineCosts, LineProfile, LockCosts, LockProfile, ProfiledLine, What};

use crate::work::Manager;

/// What the core calls records of frames.
const FRAME: &str = "Frame";
const TABLES: &str = "page tables";

/// What frames were at the end of a run, by their place in the table of frames, as far as
/// their records are in its profile.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct FrameKinds(BTreeMap<usize, &'static str>);

impl FrameKinds {
    pub(crate) fn new<R: ReverseMap>(
        vm: &Manager<R>,
        lines: &LineProfile,
        locks: &LockProfile,
    ) -> FrameKinds {
        let first = vm.platform().memory_map()[0].start;
        let lines = lines.lines.iter().filter_map(|line| line.what);
        let locks = locks.locks.iter().filter_map(|lock| lock.what);
        let frames = lines.chain(locks);
        let frames = frames.filter(|what| what.value == FRAME);
        let kinds = frames.map(|what| {
            let frame = vm.memory().frame(first.offset(what.index as u32));
            let kind = match frame.kind() {
                Kind::Anonymous => "private pages",
                Kind::Object => "pages of files",
                Kind::Table => TABLES,
                Kind::Slab => "the manager's own frames",
                Kind::Free | Kind::Cached => "free frames",
                Kind::Reserved | Kind::Allocated => "other frames",
            };
            (what.index, kind)
        });
        FrameKinds(kinds.collect())
    }

    /// What a line of the profile is: for records of frames, of which frames.
    pub(crate) fn name_of(&self, line: &ProfiledLine) -> String {
        self.record(line.what).unwrap_or_else(|| line.to_string())
    }

    /// Of which frames a record is, if it is one.
    fn record(&self, what: Option<What>) -> Option<String> {
        let frame = what.filter(|what| what.value == FRAME)?;
        let kind = self.0.get(&frame.index)?;
        Some(format!("records of {kind}"))
    }

    /// Of which pages a lock is the page lock, if it is one.
    fn page_lock(&self, what: Option<What>) -> Option<String> {
        let frame =
            what.filter(|what| what.value == FRAME && what.offset == Frame::PAGE_LOCK_AT)?;
        // Page tables have a spin lock there.
        let kind = self.0.get(&frame.index).filter(|&&kind| kind != TABLES)?;
        Some(format!("page locks of {kind}"))
    }

    /// The lines by class: those of records of one kind of frames, or at one place of all
    /// values of a type.
    pub(crate) fn line_classes(&self, lines: &LineProfile) -> Vec<LineClass> {
        let mut classes: BTreeMap<String, LineCosts> = BTreeMap::new();
        for line in &lines.lines {
            let class = || line.what.map(|what| what.class());
            let name = self.record(line.what).or_else(class);
            let name = name.unwrap_or_else(|| line.place.clone());
            classes.entry(name).or_default().add(&line.costs);
        }
        let classes = classes.into_iter();
        classes
            .map(|(name, costs)| LineClass { name, costs })
            .collect()
    }

    /// The locks by class, those waited for longest first. A class has the locks at one
    /// place of all values of a type, and of records of frames those of one kind of frames.
    pub(crate) fn classes(&self, locks: &LockProfile) -> Vec<LockClass> {
        let mut classes: BTreeMap<String, LockCosts> = BTreeMap::new();
        for lock in &locks.locks {
            let class = || lock.what.map(|what| what.class());
            let record = || self.record(lock.what);
            let name = self.page_lock(lock.what).or_else(record).or_else(class);
            let name = name.unwrap_or_else(|| format!("{}+{:#x}", lock.place, lock.offset));
            classes.entry(name).or_default().add(&lock.costs);
        }
        let classes = classes.into_iter();
        let mut classes: Vec<LockClass> = classes
            .map(|(name, costs)| LockClass { name, costs })
            .collect();
        classes.sort_by_key(|class| {
            let LockCosts {
                waited,
                held,
                acquired,
                ..
            } = class.costs;
            std::cmp::Reverse((waited, held, acquired))
        });
        classes
    }
}

/// The lines of one kind.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LineClass {
    /// What they are in.
    pub name: String,
    /// What they cost together.
    pub costs: LineCosts,
}

/// The locks of one kind.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LockClass {
    /// What they are in.
    pub name: String,
    /// What they cost together.
    pub costs: LockCosts,
}
