//! The lists of pages: under which locks, and what is done to them.

use super::entry::EntryName;
use super::locks::{LockName, NEIGHBOURS, PageHead};
use super::{Pv, PvContext, PvOfSpace};
use crate::addr::{Pfn, Vpn};
use crate::platform::Platform;
use crate::published::sync::Waited;
use crate::rmap::{Env, Place, Run};
use crate::sync::Pin;

/// A list, under its lock.
pub(super) struct Listed<'a> {
    pub head: &'a PageHead,
}

/// The page that an entry of a run maps.
#[inline]
pub(super) fn page_of(run: &Run, step: u32) -> Vpn {
    run.page.offset(u64::from(step) << run.order)
}

/// Whether a run's entries are in lists of superpages.
#[inline]
fn is_large(run: &Run) -> bool {
    run.order >= NEIGHBOURS
}

impl Pv {
    #[inline]
    pub(super) fn note(&self, pin: &Pin<'_>, waited: Waited) {
        let counts = self.cpus.get(pin);
        counts.locks.bump();
        if waited.contended {
            counts.contended.bump();
            counts.parked.add(u64::from(waited.parked));
            counts.woken_in_vain.add(u64::from(waited.in_vain));
        }
    }

    /// Takes a lock, and counts it.
    #[inline]
    pub(super) fn lock(&self, pin: &Pin<'_>, lock: LockName) {
        self.note(pin, self.locks.acquire(lock, pin));
    }

    /// Takes a lock to look at a list only, and counts it.
    #[inline]
    pub(super) fn lock_to_read(&self, pin: &Pin<'_>, lock: LockName) {
        self.note(pin, self.locks.acquire_to_read(lock, pin));
    }

    /// The list that an entry of a run is in, whose lock the operation holds from now on,
    /// in the place of another that it may hold (FreeBSD: `CHANGE_PV_LIST_LOCK_TO_PHYS`).
    #[inline]
    fn hold(&self, pin: &Pin<'_>, ctx: &mut PvContext, run: &Run, step: u32) -> Listed<'_> {
        let frame = run.frame.offset(step << run.order);
        let lock = match is_large(run) {
            false => self.locks.of(frame),
            true => self.locks.of_large(frame),
        };
        if ctx.held != Some(lock) {
            self.let_go(pin, ctx);
            self.lock(pin, lock);
            ctx.held = Some(lock);
        }
        match is_large(run) {
            false => self.listed(frame),
            true => self.listed_large(frame),
        }
    }

    /// The page is done. A lock that the next page may be under is kept.
    #[inline]
    pub(super) fn done(&self, pin: &Pin<'_>, ctx: &mut PvContext) {
        if !self.locks.are_shared() {
            self.let_go(pin, ctx);
        }
    }

    #[inline]
    pub(super) fn let_go(&self, pin: &Pin<'_>, ctx: &mut PvContext) {
        if let Some(lock) = ctx.held.take() {
            self.locks.release(lock, pin);
        }
    }

    #[inline]
    pub(super) fn listed(&self, frame: Pfn) -> Listed<'_> {
        Listed {
            head: self.locks.head(frame),
        }
    }

    #[inline]
    pub(super) fn listed_large(&self, frame: Pfn) -> Listed<'_> {
        Listed {
            head: self.locks.large_head(frame),
        }
    }

    /// Puts an entry in front of a page's list.
    #[inline]
    pub(super) fn insert<P: Platform>(
        &self,
        env: &Env<'_, P>,
        list: &Listed<'_>,
        name: EntryName,
        page: Vpn,
    ) {
        let entry = self.entry(env, name);
        let first = list.head.first();
        entry.set_page(page);
        entry.set_previous(EntryName::NONE);
        entry.set_next(first);
        if !first.is_none() {
            self.entry(env, first).set_previous(name);
        }
        list.head.set_first(name);
        list.head.advance();
    }

    /// Takes an entry out of a page's list.
    #[inline]
    pub(super) fn unlink<P: Platform>(&self, env: &Env<'_, P>, list: &Listed<'_>, name: EntryName) {
        let entry = self.entry(env, name);
        let (previous, next) = (entry.previous(), entry.next());
        if previous.is_none() {
            list.head.set_first(next);
        } else {
            self.entry(env, previous).set_next(next);
        }
        if !next.is_none() {
            self.entry(env, next).set_previous(previous);
        }
        list.head.advance();
    }

    /// The entry of a page's list that maps it at `page` of the space `owner`
    /// (FreeBSD: `pmap_pvh_remove`).
    #[inline]
    pub(super) fn find<P: Platform>(
        &self,
        env: &Env<'_, P>,
        list: &Listed<'_>,
        (owner, page): (u32, Vpn),
    ) -> Option<EntryName> {
        let searched = &self.cpus.get(env.pin).nodes_searched;
        let mut name = list.head.first();
        while !name.is_none() {
            searched.bump();
            let entry = self.entry(env, name);
            if entry.page() == page && self.owner(env, name) == owner {
                return Some(name);
            }
            name = entry.next();
        }
        None
    }

    /// Adds entries for a run.
    #[inline]
    pub(super) fn insert_run<P: Platform>(
        &self,
        env: &Env<'_, P>,
        ctx: &mut PvContext,
        run: &Run,
        place: Place<'_, (), PvOfSpace>,
    ) {
        for step in 0..run.count {
            let Some(name) = self.prepared(env, ctx, place.space_state.handle()) else {
                return;
            };
            let list = self.hold(env.pin, ctx, run, step);
            self.insert(env, &list, name, page_of(run, step));
            self.done(env.pin, ctx);
        }
    }

    /// Takes the entries of a run out.
    #[inline]
    pub(super) fn remove_run<P: Platform>(
        &self,
        env: &Env<'_, P>,
        ctx: &mut PvContext,
        run: &Run,
        place: Place<'_, (), PvOfSpace>,
    ) {
        for step in 0..run.count {
            let list = self.hold(env.pin, ctx, run, step);
            let at = (place.space_state.handle(), page_of(run, step));
            let found = self.find(env, &list, at);
            debug_assert!(found.is_some(), "entry removed that the list does not have");
            if let Some(name) = found {
                self.unlink(env, &list, name);
                self.stamp(env.pin, run.frame.offset(step << run.order));
            }
            self.done(env.pin, ctx);
            if let Some(name) = found {
                self.push(env, &mut ctx.freed, name);
            }
        }
    }

    /// Says where the entries of a run are now.
    pub(super) fn move_run<P: Platform>(
        &self,
        env: &Env<'_, P>,
        ctx: &mut PvContext,
        (from, to): (&Run, &Run),
        place: Place<'_, (), PvOfSpace>,
    ) {
        for step in 0..from.count {
            let list = self.hold(env.pin, ctx, from, step);
            let at = (place.space_state.handle(), page_of(from, step));
            let found = self.find(env, &list, at);
            debug_assert!(found.is_some(), "entry moved that the list does not have");
            if let Some(name) = found {
                self.entry(env, name).set_page(page_of(to, step));
                list.head.advance();
                self.stamp(env.pin, from.frame.offset(step << from.order));
            }
            self.done(env.pin, ctx);
        }
    }

    /// An entry of a page is cleared. Its CPUs are flushed later, if the caller has said
    /// so.
    #[inline]
    fn stamp(&self, pin: &Pin<'_>, frame: Pfn) {
        if let Some(delayed) = &self.delayed {
            match delayed.generation(pin.cpu()) {
                0 => {}
                generation => self.locks.stamp(frame, generation),
            }
        }
    }
}
