//! Groups that are charged for frames, each up to a limit.
//!
//! A byte beside each frame says which group is charged for it. It is not in the frame's record,
//! whose words change by plain stores until others can find the page: a charge that moves when its
//! group ends must move in one step.
//!
//! **Charging writes no shared line.** A CPU takes a batch of pages from a group at once and keeps
//! those that it has not used, its stock, in a word of its own, which it changes by plain stores.
//! So a group is charged for what its frames are and what lies in stocks; the limit holds for both.
//! A batch is a 16th of what the limit has for each CPU, at most 32, so that stocks are an eighth
//! of the limit at most.
//!
//! **Whoever needs stocks back** (because the limit is reached, is to change, or because the group
//! ends) says that the group has no batches any more and waits until every pin that was there has
//! ended. From then on CPUs charge and uncharge it by atomic steps, and its stocks and charges can
//! be taken from elsewhere.
//!
//! **Groups lie within groups** (`tree.rs`). What a group is charged for, all those around it
//! are charged for, too, and the limit of each holds. A batch, a stock and a frame's byte are those
//! of the innermost group; what lies in stocks is charged to all.

mod charge;
mod kernel;
mod life;
mod tree;
mod usage;

use alloc::boxed::Box;

use self::kernel::Kernel;
pub(crate) use self::tree::Places;
use crate::addr::Pfn;
use crate::platform::GroupId;
use crate::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use crate::sync::report::name;
use crate::sync::{CachePadded, PerCpu};

/// Groups that there are at most, the root among them.
const GROUPS: usize = GroupId::MOST;
/// Most pages that a CPU takes from a group at once.
const BATCH: u64 = 32;
/// One in so many pages of a CPU's share of the limit may be in its batch.
const BATCH_SHARE: u64 = 16;
/// A group that has less than one in so many pages of its limit left is short of memory.
const SPARE_SHARE: u64 = 64;
/// Instead of members: there is no such group.
const VACANT: u32 = u32::MAX;
/// Instead of members: it begins or ends, and none can join.
const CLOSED: u32 = u32::MAX - 1;
/// Shift of a group's place in a word of a stock; below it are the pages.
const PLACE_SHIFT: u32 = 32;

/// What a group may have and keep, in pages, with those within it; as in Linux's memory control
/// groups of version 2.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GroupLimits {
    /// More than this it never has: calls have pages of it leave, or fail (`memory.max`).
    pub max: u64,
    /// Above this, calls have pages of it leave first, but do not fail (`memory.high`).
    pub high: u64,
    /// Up to this, its pages leave for the shortage of others only if nothing else can
    /// (`memory.low`).
    pub low: u64,
    /// Up to this, they never do (`memory.min`).
    pub min: u64,
}

impl GroupLimits {
    /// No limit and no protection.
    pub const NONE: GroupLimits = GroupLimits {
        max: u64::MAX,
        high: u64::MAX,
        low: 0,
        min: 0,
    };
}

impl Default for GroupLimits {
    fn default() -> Self {
        GroupLimits::NONE
    }
}

/// What a group is charged for.
#[derive(Default)]
struct Charged {
    /// Pages, those in stocks among them.
    usage: AtomicU64,
    peak: AtomicU64,
    /// Pages above `high` that may be charged, since others have left for them.
    allowance: AtomicU64,
}

/// One group. What charging reads lies apart from what it sometimes writes.
pub(in crate::frame) struct Group {
    name: AtomicU32,
    /// Pages that a CPU takes at once; 0 if there are no stocks.
    batch: AtomicU32,
    limit: AtomicU64,
    /// Above this, a call that charges it has pages of it leave first.
    pub(in crate::frame) high: AtomicU64,
    /// Up to this, its pages do not leave for others; see `tree.rs`.
    pub(in crate::frame) min: AtomicU64,
    /// The same as long as others have pages that can leave.
    pub(in crate::frame) low: AtomicU64,
    /// The place of the group that it is in, 0 for the root.
    pub(in crate::frame) parent: AtomicU32,
    /// Spaces, or one of the values above.
    members: AtomicU32,
    charged: CachePadded<Charged>,
}

/// Pages of one group that are charged and not used yet: its place, and how many.
#[derive(Default)]
struct Stock(AtomicU64);

const fn stock_of(place: usize, pages: u64) -> u64 {
    (place as u64) << PLACE_SHIFT | pages
}

const fn place_in(stock: u64) -> usize {
    (stock >> PLACE_SHIFT) as usize
}

const fn pages_in(stock: u64) -> u64 {
    stock & ((1 << PLACE_SHIFT) - 1)
}

/// All groups of a memory.
pub(crate) struct Groups {
    first: u32,
    /// Beside each frame: the place of the group that is charged for it, 0 for none.
    of_frames: Box<[AtomicU8]>,
    pub(in crate::frame) groups: Box<[CachePadded<Group>]>,
    stocks: PerCpu<Stock>,
    cpus: u64,
    /// What the kernel has of each, if it is charged.
    kernel: Option<Kernel>,
    /// 1 as soon as there has been a group beside the root.
    in_use: AtomicU32,
    /// 1 as soon as a group has been protected.
    pub(in crate::frame) are_protected: AtomicU32,
    /// 1 while a group begins, ends or has its stocks taken.
    changing: CachePadded<AtomicU32>,
}

impl Groups {
    /// Only the root, for the frames from `first` to before `end`.
    pub(in crate::frame) fn new(
        (first, end): (Pfn, Pfn),
        cpus: usize,
        with_kernel: bool,
    ) -> Groups {
        let of_frames: Box<[AtomicU8]> = (first.0..end.0).map(|_| AtomicU8::new(0)).collect();
        let groups: Box<[CachePadded<Group>]> = (0..GROUPS)
            .map(|_| {
                CachePadded(Group {
                    name: AtomicU32::new(0),
                    batch: AtomicU32::new(0),
                    limit: AtomicU64::new(0),
                    high: AtomicU64::new(u64::MAX),
                    min: AtomicU64::new(0),
                    low: AtomicU64::new(0),
                    parent: AtomicU32::new(0),
                    members: AtomicU32::new(VACANT),
                    charged: CachePadded::default(),
                })
            })
            .collect();
        name("groups of frames", &[], of_frames.as_ptr(), of_frames.len());
        name("groups", &[], groups.as_ptr(), groups.len());
        Groups {
            first: first.0,
            of_frames,
            groups,
            stocks: PerCpu::new(cpus, |_| Stock::default()),
            cpus: cpus as u64,
            kernel: with_kernel.then(|| Kernel::new(cpus)),
            in_use: AtomicU32::new(0),
            are_protected: AtomicU32::new(0),
            changing: CachePadded::default(),
        }
    }

    fn byte(&self, frame: Pfn) -> &AtomicU8 {
        &self.of_frames[frame.0.wrapping_sub(self.first) as usize]
    }

    /// The place of the group that is charged for a frame, by the frame's number from the first
    /// on.
    #[inline]
    pub(crate) fn of_frame(&self, number: u32) -> usize {
        let byte = self.of_frames.get(number as usize);
        byte.map_or(0, |byte| usize::from(byte.load(Ordering::Relaxed)))
    }

    /// The group that is charged for a frame.
    pub(crate) fn group_of(&self, frame: Pfn) -> GroupId {
        let place = self.of_frame(frame.0.wrapping_sub(self.first));
        self.at(place).unwrap_or(GroupId::ROOT)
    }

    /// Whether there has been a group beside the root.
    #[inline]
    pub(crate) fn are_in_use(&self) -> bool {
        self.in_use.load(Ordering::Relaxed) != 0
    }

    /// The name of the group in a place, if there is one.
    pub(crate) fn at(&self, place: usize) -> Option<GroupId> {
        let group = self.groups.get(place)?;
        let is_there = group.members.load(Ordering::Acquire) < CLOSED;
        is_there.then(|| GroupId::from_bits(group.name.load(Ordering::Relaxed)))
    }

    fn find(&self, id: GroupId) -> Option<&Group> {
        (id != GroupId::ROOT && self.at(id.place()) == Some(id)).then(|| &self.groups[id.place()].0)
    }

    /// Pages that a CPU may take at once: a small part of each limit on the way up.
    fn batch_for(&self, place: usize) -> u32 {
        let least = |group: &Group| {
            let limit = group.limit.load(Ordering::Relaxed);
            limit.min(group.high.load(Ordering::Relaxed))
        };
        let limits = self.way_up(place).map(|place| least(&self.groups[place]));
        let limit = limits.min().unwrap_or(0);
        (limit / (BATCH_SHARE * self.cpus)).min(BATCH) as u32
    }
}
