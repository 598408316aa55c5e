//! How spaces begin, whose they are, and what is left when they end.

use crate::addr::Pfn;
use crate::frame::OutOfMemory;
use crate::platform::{Platform, SpaceTag};
use crate::rmap::ReverseMap;
use crate::slab::Handle;
use crate::space::state::error::MapError;
use crate::space::state::layout::Layout;
use crate::space::state::locked::HoldsSpace;
use crate::space::state::manager::Vm;
use crate::space::state::spaces::{Live, Rules, SpaceId};
use crate::sync::atomic::Ordering;
use crate::sync::users::join;
use crate::sync::{Pin, Turn, Unpinned};
use crate::table::{Format, Tables};

/// A space that nobody can name yet, so that it is as good as locked.
pub(super) struct NewSpace<'a, R: ReverseMap>(Live<'a, R>);

impl<'a, R: ReverseMap> HoldsSpace<'a, R> for NewSpace<'a, R> {
    #[inline]
    fn live(&self) -> Live<'a, R> {
        self.0
    }
}

impl<P: Platform, F: Format, R: ReverseMap> Vm<P, F, R> {
    /// [`Vm::create_space`](crate::Vm::create_space).
    pub(crate) fn begin_space(&self) -> Result<SpaceId, MapError> {
        self.with_room(Unpinned::at_door(), |_| self.create_space_once())
    }

    pub(super) fn create_space_once(&self) -> Result<SpaceId, MapError> {
        let pin = self.pin();
        let space = self.make_space(&pin)?;
        let env = self.env(&pin);
        let NewSpace(new) = space;
        if let Err(error) = self.rmap.space_executed(&env, &new.rmap, new.handle()) {
            self.unmake_space(&pin, new);
            return Err(error.into());
        }
        Ok(self.publish(space).id())
    }

    /// A space that nobody can name until [`Vm::publish`].
    pub(super) fn make_space(&self, pin: &Pin<'_>) -> Result<NewSpace<'_, R>, OutOfMemory> {
        let handle = self.spaces.alloc(pin, &self.memory)?;
        let root = Tables::<P, F>::make_root(&self.memory, &*self.table_pages, pin, handle.raw())
            .inspect_err(|_| self.spaces.free(pin, handle))?;
        let space = self.spaces.get(handle);
        let generation = space.generation.load(Ordering::Relaxed).wrapping_add(1);
        space.handle.store(handle.raw(), Ordering::Relaxed);
        space.root.store(root.0, Ordering::Relaxed);
        space.tree.store(0, Ordering::Relaxed);
        space.tracts.store(0, Ordering::Relaxed);
        space.keeps_tables.store(0, Ordering::Relaxed);
        space.waits.reset();
        self.active_set(space).reset(self.memory.platform().cpus());
        space.heap_start.store(0, Ordering::Relaxed);
        space.heap_end.store(0, Ordering::Relaxed);
        space.begin_rules(Rules::NONE);
        space.has_stack.store(0, Ordering::Relaxed);
        space.policy.store(0, Ordering::Relaxed);
        space.has_promoted.store(0, Ordering::Relaxed);
        space.tracked.store(0, Ordering::Relaxed);
        space.limits.set(crate::space::Limits::default());
        space.layout.set(&Layout::fixed::<F>());
        space.account.reset(u64::from(Tables::<P, F>::ROOT_TABLES));
        space.generation.store(generation, Ordering::Release);
        Ok(NewSpace(self.live_at(handle.raw())))
    }

    /// From now on the space can be named.
    pub(super) fn publish<'a>(&self, NewSpace(space): NewSpace<'a, R>) -> Live<'a, R> {
        space.users.store(1, Ordering::Release);
        space
    }

    /// [`Space::share`](crate::space::Space::share).
    pub(crate) fn share_space(&self, id: SpaceId) -> Result<(), MapError> {
        // A space that was found under a pin does not become another before the pin
        // ends (invariant 7).
        let pin = self.pin();
        let space = self.find_space(id).ok_or(MapError::NoSpace)?;
        let joined = join(&space.users, Turn::at(&pin, id.handle));
        joined.then_some(()).ok_or(MapError::NoSpace)
    }

    /// One task less; true if it was the last, which takes the space with it.
    pub(in crate::space) fn leave(&self, space: Live<'_, R>) -> Result<bool, MapError> {
        let tag = SpaceTag(space.handle());
        let mut users = space.users.load(Ordering::Relaxed);
        loop {
            match users {
                0 => return Err(MapError::NoSpace),
                1 if self.pin().is_nested() => return Err(MapError::Pinned),
                1 if self.memory.platform().is_loaded(tag) => return Err(MapError::Loaded),
                _ => {}
            }
            let (order, relaxed) = (Ordering::AcqRel, Ordering::Relaxed);
            match (space.users).compare_exchange(users, users - 1, order, relaxed) {
                Ok(_) => return Ok(users == 1),
                Err(now) => users = now,
            }
        }
    }

    /// Takes away the root of a space without users and makes its memory
    /// reusable. Its tables and regions are gone already.
    pub(super) fn unmake_space(&self, pin: &Pin<'_>, space: Live<'_, R>) {
        self.settle_commit(space, None);
        self.settle_records(space, None);
        self.leave_group(space.get());
        let root = space.root();
        space.root.store(Pfn::NONE.0, Ordering::Relaxed);
        let generation = space.generation.load(Ordering::Relaxed).wrapping_add(1);
        space.generation.store(generation, Ordering::Release);
        // SAFETY: `make_space` made the root, whose space has no pages, cannot be found
        // any more, and is loaded nowhere.
        unsafe { Tables::<P, F>::retire_root(&self.memory, &*self.table_pages, pin, root) };
        self.spaces.retire(pin, Handle::from_raw(space.handle()));
    }
}
