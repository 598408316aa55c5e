//! Exec and exit.

use crate::platform::{CpuSet, Flush, GroupId, Platform};
use crate::rmap::ReverseMap;
use crate::space::leaves::zap::Zap;
use crate::space::locks::closed::ClosedRegions;
use crate::space::locks::lock::Beside;
use crate::space::regions::unmap::DeadObjects;
use crate::space::state::error::MapError;
use crate::space::state::locked::WholeSpace;
use crate::space::state::manager::Vm;
use crate::space::state::spaces::SpaceId;
use crate::sync::{CpuRoom, Pin, Unpinned};
use crate::table::{FlushTarget, Format, Users};

impl<P: Platform, F: Format, R: ReverseMap> Vm<P, F, R> {
    /// [`Space::exit`](crate::space::Space::exit).
    pub(crate) fn exit(&self, id: SpaceId) -> Result<bool, MapError> {
        self.leave_space(Unpinned::at_door(), id)
    }

    fn leave_space(&self, mut unpinned: Unpinned<'_>, id: SpaceId) -> Result<bool, MapError> {
        let space = self.find_space(id).ok_or(MapError::NoSpace)?;
        if !self.leave(space)? {
            return Ok(false);
        }
        let mut dead = DeadObjects::default();
        // Not under a pin of the caller's: that was asked when the last task left.
        let _ = self.with_space_locked(unpinned.reborrow(), space, Beside::Nobody, |pin, space| {
            self.events(pin).exits.bump();
            self.tear_down(pin, space, &mut dead);
        });
        let pin = self.pin_by(&unpinned);
        self.unmake_space(&pin, space);
        drop(pin);
        self.after_removal(unpinned, dead);
        Ok(true)
    }

    /// [`Space::exec`](crate::space::Space::exec).
    pub(crate) fn exec(&self, old: SpaceId) -> Result<SpaceId, MapError> {
        let mut unpinned = self.memory.unless_pinned().ok_or(MapError::Pinned)?;
        // As it was when the call began, whatever becomes of the space meanwhile.
        let (limits, rules, policy) = {
            let _pin = self.pin_by(&unpinned);
            let space = self.find_space(old).ok_or(MapError::NoSpace)?;
            (
                space.limits.get(),
                space.rules().inherited(),
                space.policy(),
            )
        };
        let new = self.with_room(unpinned.reborrow(), |_| self.create_space_once())?;
        // Nobody else can end it.
        let _ = self.limit_space(unpinned.reborrow(), new, limits);
        if let Some(space) = self.find_space(new) {
            space.begin_rules(rules);
            space.set_policy(policy);
        }
        let group = self.group_of(old).unwrap_or(GroupId::ROOT);
        if group != GroupId::ROOT {
            // The group ends only if somebody moves `old` away meanwhile.
            let _ = self.move_space(unpinned.reborrow(), new, group);
        }
        if let Err(error) = self.leave_space(unpinned.reborrow(), old) {
            self.leave_space(unpinned, new)?;
            return Err(error);
        }
        Ok(new)
    }

    /// Unmaps everything of a space that has no users, flushing once, before.
    pub(super) fn tear_down(
        &self,
        pin: &Pin<'_>,
        space: WholeSpace<'_, R>,
        dead: &mut DeadObjects,
    ) {
        let mut room = CpuRoom::new();
        let target = self.flush_target(**space, &mut room);
        let closed = self.close_regions(pin, *space, Self::all_pages());
        if !target.cpus.is_empty() {
            let request = Flush {
                space: target.tag,
                range: None,
                tables: true,
            };
            self.memory.flush(pin, target.cpus, &request);
        }
        let nobody = FlushTarget {
            cpus: CpuSet::EMPTY,
            ..target
        };
        let mut gather = self.gather_for(pin, nobody);
        closed.for_each(|region, view| {
            let zap = Zap {
                vm: self,
                pin,
                space: **space,
                region: &region,
                users: Users::None,
            };
            zap.range(view.range, &mut gather);
        });
        if space.keeps_tables() {
            let before = gather.tables_freed();
            self.tables(pin, **space).unlink_kept(&mut gather);
            let freed = gather.tables_freed() - before;
            self.count_tables(pin, **space, 0, freed);
        }
        drop(gather);
        self.retire_regions(pin, space, closed, dead);
        self.rmap.space_ended(&self.env(pin), &space.rmap);
    }

    /// Ends all regions of a space at once; they map nothing any more.
    fn retire_regions(
        &self,
        pin: &Pin<'_>,
        space: WholeSpace<'_, R>,
        closed: ClosedRegions<'_, P, F, R>,
        dead: &mut DeadObjects,
    ) {
        let write = space.seq.write(pin);
        closed.for_each(|region, _| {
            if let Some(object) = self.retire_region(pin, *space, region) {
                self.defer_destroy(dead, object);
            }
        });
        closed.left();
        self.tree(*space, **space).clear(pin);
        drop(write);
        if space.is_divided() {
            self.end_tracts(pin, space);
        }
    }
}
