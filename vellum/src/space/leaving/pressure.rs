//! What a call does that has run out of memory: it is over, lets go of everything, has room
//! made, and begins anew.
//!
//! Nothing that allocates makes room itself: it is pinned, and may hold locks. If frames wait for
//! their epoch, of this CPU or of others, that is waited for first (`frame/waiting.rs`): they are
//! free as soon as whoever is pinned gets on, and nothing has to leave for it. So are frames that
//! arenas took for nodes that are gone (`slab/home.rs`). Then there are three ways to make room, tried in this order: entries of reverse mapping are cleared whose
//! nodes are needed for others (`room.rs`), page tables move out of low memory (`lift.rs`), and
//! pages leave memory (`evict.rs`). If none helps any more, the platform is asked, and told
//! whose end would free most (`victim.rs`).

use crate::frame::{NodeSet, Relief};
use crate::platform::{GroupId, NodeId, Platform};
use crate::reclaim::{ReclaimStats, Scope};
use crate::rmap::ReverseMap;
use crate::slab::AtHand;
use crate::space::state::common::PageCache;
use crate::space::state::manager::Vm;
use crate::space::state::shortage::{Lack, Lends, MakesRoom};
use crate::sync::{Pin, Unpinned};
use crate::table::Format;

/// Times that room is made in one way for one call at most; each time twice as much as the time
/// before, as far as that can be said.
pub(in crate::space) const MOST_TRIES: u32 = 16;
/// Pages that leave the first time that a call needs some.
const FIRST_PAGES: u64 = 32;
/// One in so many pages of a group leave at once, at most.
const GROUP_SHARE: u64 = 16;
/// Pages that leave at once at most for one call of a group above its `high`.
const MOST_ABOVE: u64 = 512;
/// Pages that a node's task has leave between two looks at the watermarks.
const TASK_PAGES: u64 = 128;

/// How often room was made for a call, in each way.
#[derive(Default)]
struct Effort {
    epochs: u32,
    /// The same of items of which there are as many as there may be.
    items: u32,
    nodes: u32,
    tables: u32,
    pages: u32,
    /// The same of pages of a group that had as many as it may.
    group: u32,
    /// Whether the call was made again since there was no way left, as others may have made room.
    was_repeated: bool,
    /// Whether arenas were asked for the frames of nodes that are gone.
    were_arenas_asked: bool,
    /// How often the platform was asked for memory.
    rescues: u32,
}

impl<P: Platform, F: Format, R: ReverseMap> MakesRoom for Vm<P, F, R> {
    fn make_room_for(
        &self,
        unpinned: Unpinned<'_>,
        lack: Option<Lack>,
        held: Option<&dyn Lends>,
        call: &mut dyn FnMut(Unpinned<'_>) -> Option<Lack>,
    ) {
        self.page_cache().make_room_for(unpinned, lack, held, call);
    }
}

impl<P: Platform> PageCache<'_, P> {
    /// [`MakesRoom::make_room_for`].
    fn make_room_for(
        &self,
        mut unpinned: Unpinned<'_>,
        mut lack: Option<Lack>,
        held: Option<&dyn Lends>,
        call: &mut dyn FnMut(Unpinned<'_>) -> Option<Lack>,
    ) {
        let mut effort = Effort::default();
        while let Some(lacking) = lack.map(|lack| self.refined(lack)) {
            let mut make_room = |mut unpinned: Unpinned<'_>| {
                if self.pin_by(&unpinned).is_nested() {
                    return false;
                }
                let waits = unpinned.reborrow();
                let has_room = match lacking {
                    Lack::Memory => match self.relief() {
                        Relief::Memory => self.make_room(waits, &mut effort),
                        relief => return self.make_room_for_items(waits, relief, &mut effort),
                    },
                    Lack::OfGroup(group) => self.make_room_in(waits, group, &mut effort),
                    Lack::OnNodes(nodes) => {
                        P::PARTS.nodes && self.make_room_on(waits, nodes, &mut effort)
                    }
                };
                if has_room {
                    effort.was_repeated = false;
                    return true;
                }
                if !effort.was_repeated && self.may_have_room_by_now(lacking) {
                    effort.was_repeated = true;
                    return true;
                }
                effort.rescues += 1;
                effort.rescues <= MOST_TRIES && self.mappings.is_rescued(unpinned, lacking)
            };
            let has_room = match held {
                Some(held) => held.lend(unpinned.reborrow(), &mut make_room),
                None => make_room(unpinned.reborrow()),
            };
            if !has_room {
                self.count_failure(lacking);
                break;
            }
            lack = call(unpinned.reborrow());
        }
    }

    /// What is lacking, by who refused it: a call that was refused a page table for its group lacks
    /// that.
    fn refined(&self, lack: Lack) -> Lack {
        match lack {
            Lack::Memory => {
                let refused_by = self.memory.take_group_refusal(&self.pin());
                let lack = refused_by.map_or(Lack::Memory, Lack::OfGroup);
                match P::PARTS.nodes {
                    true => (self.memory.take_lacking(&self.pin())).map_or(lack, Lack::OnNodes),
                    false => lack,
                }
            }
            Lack::OfGroup(_) | Lack::OnNodes(_) => lack,
        }
    }

    /// What helps a call on this CPU that found none of something.
    fn relief(&self) -> Relief {
        self.memory.take_refusal(&self.pin())
    }

    /// Makes room for items of which there are as many as there may be. False if there is none:
    /// then nobody's end is asked for, and no private page leaves, which would not help.
    fn make_room_for_items(
        &self,
        unpinned: Unpinned<'_>,
        relief: Relief,
        effort: &mut Effort,
    ) -> bool {
        effort.items += 1;
        if effort.items == 1 {
            // What this CPU gave back may only wait for its epoch.
            self.memory.wait_for_epochs(unpinned);
            return true;
        }
        let want = FIRST_PAGES << effort.items.min(MOST_TRIES);
        relief == Relief::Files
            && effort.items <= MOST_TRIES
            && self.reclaim_in(unpinned, Scope::Files, want).is_some()
    }

    /// Has pages of a group leave that has as many as it may. False if none can, or if that was
    /// tried too often.
    fn make_room_in(
        &self,
        mut unpinned: Unpinned<'_>,
        group: GroupId,
        effort: &mut Effort,
    ) -> bool {
        if self.make_room_at_high(unpinned.reborrow(), group) {
            return true;
        }
        if effort.group >= MOST_TRIES {
            return false;
        }
        let stats = (self.memory.groups()).and_then(|groups| groups.usage(group));
        let share = stats.map_or(0, |usage| usage.limits.max / GROUP_SHARE);
        let want = FIRST_PAGES.min(share.max(1)) << effort.group;
        effort.group += 1;
        if let Some(reclaim) = self.reclaim() {
            reclaim.group_counts(group.place()).limit_hits.add(1);
        }
        let freed = self.reclaim_group(unpinned.reborrow(), group, want);
        if freed.is_some() {
            return true;
        }
        // The last that there is may lie in stocks of CPUs.
        let stocked = (self.memory.groups()).and_then(|groups| groups.usage(group));
        stocked.is_some_and(|usage| usage.stocked > 0) && self.memory.take_stocks(unpinned, group)
    }

    /// Has pages of a group leave that has reached its `high`, and lets it have as many more whether
    /// any did. False if that is not what its charge was refused for.
    fn make_room_at_high(&self, mut unpinned: Unpinned<'_>, id: GroupId) -> bool {
        let Some(groups) = self.memory.groups() else {
            return false;
        };
        if !groups.is_held_at_high(id) {
            return false;
        }
        let above = groups.above_high(id);
        if let Some(reclaim) = self.reclaim() {
            reclaim.group_counts(id.place()).high_events.add(1);
        }
        self.reclaim_group(
            unpinned.reborrow(),
            id,
            FIRST_PAGES.max(above.min(MOST_ABOVE)),
        );
        let above = groups.above_high(id);
        if above > 0
            && let Ok(platform) = self.memory.unpinned_platform(unpinned)
        {
            platform.group_above_high(id, above);
        }
        groups.allow_above_high(id, FIRST_PAGES);
        true
    }

    /// Whether others may have made room or freed pages, after a call found none and nothing
    /// can leave. (If memory was never short, a planned failure is the reason.)
    fn may_have_room_by_now(&self, lack: Lack) -> bool {
        match lack {
            Lack::Memory | Lack::OnNodes(_) => self.reclaim().is_some() && self.memory.was_short(),
            Lack::OfGroup(group) => {
                let usage = (self.memory.groups()).and_then(|groups| groups.usage(group));
                usage.is_some_and(|usage| usage.used + usage.stocked < usage.limits.max)
            }
        }
    }

    /// Has pages leave of the nodes that a call may use. False if none can, or if that was tried too
    /// often.
    #[cold]
    fn make_room_on(
        &self,
        mut unpinned: Unpinned<'_>,
        nodes: NodeSet,
        effort: &mut Effort,
    ) -> bool {
        if self.collect_frames(unpinned.reborrow(), effort) {
            return true;
        }
        let Some(reclaim) = self.reclaim().filter(|_| effort.pages < MOST_TRIES) else {
            return false;
        };
        let want = FIRST_PAGES << effort.pages;
        effort.pages += 1;
        let freed = nodes.iter().map(|node| {
            let node = usize::from(node.0);
            reclaim.shrink_node(unpinned.reborrow(), self, node, want)
        });
        let freed: u64 = freed.sum();
        reclaim.counts.direct.add(1);
        reclaim.counts.direct_reclaimed.add(freed);
        freed > 0
    }

    fn count_failure(&self, lack: Lack) {
        if let Some(reclaim) = self.reclaim() {
            reclaim.counts.failures.add(1);
            if let Lack::OfGroup(group) = lack {
                reclaim.group_counts(group.place()).failures.add(1);
            }
        }
    }

    /// Waits for frames that wait for their epoch, and has arenas give back theirs, unless that was
    /// done too often; whether there are some now.
    fn collect_frames(&self, mut unpinned: Unpinned<'_>, effort: &mut Effort) -> bool {
        // (If memory was never short, a planned failure is the reason.)
        if effort.epochs < MOST_TRIES && self.memory.was_short() {
            effort.epochs += 1;
            if self.memory.wait_for_frames(unpinned.reborrow()) > 0 {
                return true;
            }
            effort.epochs = MOST_TRIES;
        }
        if !effort.were_arenas_asked && self.memory.was_short() {
            effort.were_arenas_asked = true;
            if self.mappings.give_back_frames(&self.pin_by(&unpinned)) > 0 {
                self.memory.wait_for_frames(unpinned);
                return true;
            }
        }
        false
    }

    /// Makes room in some way that has not been tried too often; false if there is none.
    fn make_room(&self, mut unpinned: Unpinned<'_>, effort: &mut Effort) -> bool {
        if self.collect_frames(unpinned.reborrow(), effort) {
            return true;
        }
        if effort.nodes < MOST_TRIES {
            effort.nodes += 1;
            if self.mappings.make_room_for_nodes() {
                return true;
            }
            effort.nodes = MOST_TRIES;
        }
        if effort.tables < MOST_TRIES
            && let Some(has_room) = self
                .mappings
                .make_low_room(unpinned.reborrow(), effort.tables)
        {
            effort.tables += 1;
            if has_room {
                return true;
            }
            effort.tables = MOST_TRIES;
        }
        if self.reclaim().is_some() && effort.pages < MOST_TRIES {
            let want = FIRST_PAGES << effort.pages;
            effort.pages += 1;
            return self.reclaim_in(unpinned, Scope::All, want).is_some();
        }
        false
    }

    /// Has up to about `want` pages of a scope leave memory, those of the CPU's node first, and
    /// waits until their frames are free. Returns how many have left, none if others have made room
    /// meanwhile; None if no page can leave.
    fn reclaim_in(&self, unpinned: Unpinned<'_>, scope: Scope, want: u64) -> Option<u64> {
        let reclaim = self.reclaim()?;
        let home = self.memory.home(&self.pin_by(&unpinned));
        let freed = reclaim.shrink_all(unpinned, self, scope, usize::from(home.0), want);
        reclaim.counts.direct.add(1);
        reclaim.counts.direct_reclaimed.add(freed.unwrap_or(0));
        freed
    }

    /// Has up to about `want` pages leave that are charged to a group or to those within it; returns
    /// how many have, none if others have made room meanwhile. None if none can.
    pub(in crate::space) fn reclaim_group(
        &self,
        unpinned: Unpinned<'_>,
        id: GroupId,
        want: u64,
    ) -> Option<u64> {
        self.reclaim_in(unpinned, Scope::Group(id.place()), want)
    }

    /// [`Vm::reclaim_node`].
    fn shrink_node(&self, mut unpinned: Unpinned<'_>, node: NodeId) -> u64 {
        let Some(reclaim) = self.reclaim() else {
            return 0;
        };
        if usize::from(node.0) >= reclaim.lists.nodes() {
            return 0;
        }
        self.memory.reclaim_begins(node);
        if self.memory.lacking(node) > 0 {
            (self.mappings).give_back_frames(&self.pin_by(&unpinned));
            self.memory.wait_for_frames(unpinned.reborrow());
        }
        let mut freed = 0;
        let most = self.memory.frames_of(node);
        while freed < most {
            let lacking = self.memory.lacking(node);
            if lacking == 0 {
                break;
            }
            let want = lacking.min(TASK_PAGES);
            let lot = reclaim.shrink_node(unpinned.reborrow(), self, usize::from(node.0), want);
            if lot == 0 {
                break;
            }
            freed += lot;
        }
        reclaim.counts.background.add(1);
        reclaim.counts.background_reclaimed.add(freed);
        freed
    }
}

impl<P: Platform, F: Format, R: ReverseMap> Vm<P, F, R> {
    /// [`Mappings::give_back_frames`].
    pub(crate) fn give_back_frames(&self, pin: &Pin<'_>, at_hand: AtHand) -> u64 {
        // Whoever is pinned around this may have reserved nodes.
        if pin.is_nested() {
            return 0;
        }
        let memory = &self.memory;
        self.objects.nodes().give_back(pin, memory, at_hand)
            + self.region_nodes.give_back(pin, memory, at_hand)
            + self.rmap.give_back(&self.env(pin), at_hand)
    }

    /// Has pages leave memory until every zone of a node has as much free as its high watermark,
    /// or no more can leave: for the embedder's task of the node, which sleeps until
    /// [`Machine::wake_reclaim`](crate::platform::Machine::wake_reclaim). Returns how many have left; 0 with `reclaim=off`. The caller
    /// is not pinned. May sleep while a store is written to.
    pub fn reclaim_node(&self, node: NodeId) -> u64 {
        let unpinned = self.memory.unless_pinned();
        unpinned.map_or(0, |unpinned| self.page_cache().shrink_node(unpinned, node))
    }

    /// Has up to about `pages` pages leave memory, whether it is short or not, as calls do that
    /// run out of memory. Returns how many have left: 0 if none can, or with `reclaim=off`. The
    /// caller is not pinned. May sleep while a store is written to.
    pub fn reclaim_pages(&self, pages: u64) -> u64 {
        match (pages, self.memory.unless_pinned()) {
            (1.., Some(unpinned)) => {
                let freed = self.page_cache().reclaim_in(unpinned, Scope::All, pages);
                freed.unwrap_or(0)
            }
            _ => 0,
        }
    }

    /// Says how much of what leaves memory are private pages, in 200ths, as long as there are
    /// pages of files, too, and free swap slots (Linux's `vm.swappiness`). 60 at first; 0 leaves
    /// private pages alone. Does nothing with `reclaim=off`.
    pub fn set_swappiness(&self, share: u32) {
        if let Some(reclaim) = self.reclaim() {
            reclaim.set_swappiness(share);
        }
    }

    /// What reclaim has done.
    pub(crate) fn reclaim_stats(&self) -> ReclaimStats {
        let reclaim = self.reclaim();
        reclaim.map_or(ReclaimStats::default(), |reclaim| reclaim.counts.get())
    }
}

#[cfg(test)]
#[path = "pressure_tests.rs"]
mod tests;
