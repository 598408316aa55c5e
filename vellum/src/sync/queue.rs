//! Queues of tasks that wait for one lock, of which only the first looks at the lock.
//!
//! Each waiter looks at a cache line of its own, and whoever was before it writes that
//! line when its turn comes (the queue of J. Mellor-Crummey and M. Scott, 1991): a lock
//! that is let go of costs as many transfers of lines with a hundred waiters as with two.
//!
//! Those who wait for a sleeping lock sleep when they have looked for a while in vain;
//! those who wait for a spin lock are pinned, and do not.
//!
//! The nodes of queues belong to CPUs, since a task that waits is on some CPU when it
//! begins. A task that finds none there waits without one: the queue keeps others from
//! getting in each other's way, and is not what a lock relies on.

use alloc::boxed::Box;

use super::atomic::{AtomicU32, AtomicU64, Ordering, spin_hint};
use super::report::name;
use super::{CachePadded, Pin, SleepHost, Unpinned};
use crate::platform::{Platform, Sleep, TaskToken};

/// Nodes of each CPU. Tasks that sleep in queues keep theirs.
const NODES_PER_CPU: usize = 4;

/// Rounds of waiting before a sleep. (The model checker need not try each.)
pub const SPINS: u32 = if cfg!(vellum_loom) { 1 } else { 32 };

/// In no queue.
const VACANT: u32 = 0;
/// Waits for its turn, awake.
const WAITING: u32 = 1;
/// Waits for its turn, asleep or about to be.
const ASLEEP: u32 = 2;
/// Is the first.
const FIRST: u32 = 3;
/// Is the first as soon as whoever was before it has woken it, which it does pinned.
const WAKING: u32 = 4;

#[derive(Default)]
struct Node {
    state: AtomicU32,
    /// The one behind it, by [`QueueNode::to_word`]; 0 if there is none yet.
    next: AtomicU32,
    task: AtomicU64,
}

/// The nodes of all queues of a manager.
pub struct Queues {
    nodes: Box<[CachePadded<Node>]>,
}

/// The last of a queue, by [`QueueNode::to_word`]; 0 if nobody is in it.
#[derive(Debug, Default)]
pub struct Tail(AtomicU32);

/// The first of a queue, which has to leave it.
#[must_use = "those behind wait for it to leave"]
pub struct QueueNode(usize);

impl QueueNode {
    fn to_word(&self) -> u32 {
        self.0 as u32 + 1
    }
}

impl Queues {
    /// Nodes for `cpus` CPUs, by name; with none of them, everybody waits without.
    pub fn new(what: &'static str, cpus: usize) -> Queues {
        let nodes = (0..cpus * NODES_PER_CPU).map(|_| CachePadded::default());
        let nodes: Box<[CachePadded<Node>]> = nodes.collect();
        name(what, &[], nodes.as_ptr(), nodes.len());
        Queues { nodes }
    }

    fn node(&self, word: u32) -> Option<&Node> {
        let node = self.nodes.get((word as usize).checked_sub(1)?)?;
        Some(&node.0)
    }

    /// Enters a queue and waits until nobody is before the caller. Without a node there is no
    /// waiting.
    ///
    /// # Panics
    /// If whoever calls the manager is pinned.
    pub fn enter<H: SleepHost>(
        &self,
        unpinned: Unpinned<'_>,
        tail: &Tail,
        host: &H,
    ) -> Option<QueueNode> {
        let (id, is_first) = {
            let pin = host.pin_by(&unpinned);
            pin.assert_ends();
            self.append(tail, &pin, host.platform().current_task())?
        };
        if !is_first {
            self.sleep_until_first(unpinned, &id, host.platform());
        }
        Some(id)
    }

    /// The same for a caller who is pinned until it leaves, and so never sleeps.
    pub fn enter_pinned(&self, tail: &Tail, pin: &Pin<'_>) -> Option<QueueNode> {
        let (id, is_first) = self.append(tail, pin, TaskToken(0))?;
        if !is_first {
            let node = self.node(id.to_word())?;
            let mut spins = 0;
            while node.state.load(Ordering::Acquire) != FIRST {
                pin.relax(spins);
                spins += 1;
            }
        }
        Some(id)
    }

    /// Puts a node of the caller's CPU at the end of a queue; returns whether it is the
    /// first. The caller is pinned: whoever is before us and leaves waits for us to say
    /// where we are.
    fn append(&self, tail: &Tail, pin: &Pin<'_>, task: TaskToken) -> Option<(QueueNode, bool)> {
        let id = self.vacant(pin)?;
        let node = self.node(id.to_word())?;
        node.task.store(task.0, Ordering::Relaxed);
        node.next.store(0, Ordering::Relaxed);
        let before = tail.0.swap(id.to_word(), Ordering::AcqRel);
        if let Some(before) = self.node(before) {
            before.next.store(id.to_word(), Ordering::Release);
        }
        Some((id, before == 0))
    }

    /// Whether nobody is in a queue.
    #[cfg(all(test, not(vellum_loom)))]
    pub(super) fn is_free(&self, tail: &Tail) -> bool {
        tail.0.load(Ordering::Relaxed) == 0
    }

    fn sleep_until_first<P: Platform>(
        &self,
        mut unpinned: Unpinned<'_>,
        id: &QueueNode,
        platform: &P,
    ) {
        let Some(node) = self.node(id.to_word()) else {
            return;
        };
        for spins in 0..SPINS {
            if node.state.load(Ordering::Acquire) == FIRST {
                return;
            }
            spin_hint();
            platform.relax(spins);
        }
        let (sleeps, order) = (ASLEEP, Ordering::Acquire);
        let waits = (node.state).compare_exchange(WAITING, sleeps, order, order);
        if waits.is_err() {
            return;
        }
        let mut spins = 0;
        loop {
            match node.state.load(Ordering::Acquire) {
                FIRST => return,
                // Our token may be used until we are the first, and so we stay in here.
                WAKING => {
                    spin_hint();
                    platform.relax(spins);
                    spins += 1;
                }
                // A sleep may end early.
                _ => unpinned.reborrow().park(platform),
            }
        }
    }

    /// A node of this CPU that is in no queue, now the caller's.
    fn vacant(&self, pin: &Pin<'_>) -> Option<QueueNode> {
        let first = usize::from(pin.cpu().0) * NODES_PER_CPU;
        (first..first + NODES_PER_CPU).map(QueueNode).find(|id| {
            self.node(id.to_word()).is_some_and(|node| {
                node.state.load(Ordering::Relaxed) == VACANT
                    && (node.state)
                        .compare_exchange(VACANT, WAITING, Ordering::Acquire, Ordering::Relaxed)
                        .is_ok()
            })
        })
    }

    /// Leaves a queue as its first, and lets the next one be that.
    pub fn leave<P: Platform>(&self, tail: &Tail, id: QueueNode, platform: &P, pin: &Pin<'_>) {
        self.leave_with(tail, &id, pin, |task| platform.unpark(task));
    }

    /// The same for a caller who has been pinned since it entered.
    pub fn leave_pinned(&self, tail: &Tail, id: QueueNode, pin: &Pin<'_>) {
        // None of those behind sleeps.
        self.leave_with(tail, &id, pin, |_| ());
    }

    fn leave_with(
        &self,
        tail: &Tail,
        id: &QueueNode,
        pin: &Pin<'_>,
        unpark: impl FnOnce(TaskToken),
    ) {
        let Some(node) = self.node(id.to_word()) else {
            return;
        };
        let mut next = node.next.load(Ordering::Acquire);
        if next == 0 {
            let (own, order) = (id.to_word(), Ordering::Relaxed);
            let is_last = (tail.0).compare_exchange(own, 0, Ordering::Release, order);
            if is_last.is_ok() {
                node.state.store(VACANT, Ordering::Release);
                return;
            }
            // Somebody has taken our place at the end, and is about to say who.
            let mut spins = 0;
            while next == 0 {
                pin.relax(spins);
                spins += 1;
                next = node.next.load(Ordering::Acquire);
            }
        }
        if let Some(next) = self.node(next) {
            let order = Ordering::AcqRel;
            let awake = (next.state).compare_exchange(WAITING, FIRST, order, Ordering::Acquire);
            if awake.is_err() {
                // It sleeps, or is about to. At last it is the first: then node and task may be
                // gone.
                next.state.store(WAKING, Ordering::Relaxed);
                unpark(TaskToken(next.task.load(Ordering::Relaxed)));
                next.state.store(FIRST, Ordering::Release);
            }
        }
        node.state.store(VACANT, Ordering::Release);
    }
}
