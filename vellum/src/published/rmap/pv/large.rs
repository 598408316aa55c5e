//! Promotion and demotion: 512 entries of a space become one in the list of the superpage,
//! and the reverse.
//!
//! Both hold the locks of all pages and that of the superpage's list. Where each page has
//! its own, they are taken in ascending order, as are the pages; whoever waits for one of
//! them holds no other of a later page.

use super::lists::page_of;
use super::locks::LockName;
use super::{Pv, PvContext, PvOfSpace};
use crate::platform::Platform;
use crate::rmap::{Env, Place, Run};
use crate::sync::Pin;

impl Pv {
    /// The locks of the pages of a run, which are consecutive, and of their superpage, in
    /// the order in which they are taken.
    fn locks_of(&self, run: &Run) -> impl DoubleEndedIterator<Item = LockName> + use<> {
        let (first, large) = (self.locks.of(run.frame), self.locks.of_large(run.frame));
        let one_each = !self.locks.are_shared();
        let count = if one_each { run.count } else { 1 };
        let pages = (0..count).map(move |step| first.of_page_after(step));
        pages.chain(one_each.then_some(large))
    }

    fn lock_run(&self, pin: &Pin<'_>, ctx: &mut PvContext, run: &Run) {
        self.let_go(pin, ctx);
        for lock in self.locks_of(run) {
            self.lock(pin, lock);
        }
    }

    fn unlock_run(&self, pin: &Pin<'_>, run: &Run) {
        for lock in self.locks_of(run).rev() {
            self.locks.release(lock, pin);
        }
    }

    /// The entry of the first page passes to the superpage; the others are freed
    /// (FreeBSD: `pmap_pv_promote_pde`).
    pub(super) fn promote_run<P: Platform>(
        &self,
        env: &Env<'_, P>,
        ctx: &mut PvContext,
        run: &Run,
        place: Place<'_, (), PvOfSpace>,
    ) {
        self.lock_run(env.pin, ctx, run);
        let owner = place.space_state.handle();
        for step in 0..run.count {
            let list = self.listed(run.frame.offset(step));
            let found = self.find(env, &list, (owner, page_of(run, step)));
            debug_assert!(found.is_some(), "a page is promoted that is not listed");
            let Some(name) = found else { continue };
            self.unlink(env, &list, name);
            if step == 0 {
                self.insert(env, &self.listed_large(run.frame), name, run.page);
            } else {
                self.push(env, &mut ctx.freed, name);
            }
        }
        self.unlock_run(env.pin, run);
    }

    /// The entry of the superpage passes to the first page; the others get those that were
    /// set aside before the leaf changed (FreeBSD: `pmap_pv_demote_pde`).
    pub(super) fn demote_run<P: Platform>(
        &self,
        env: &Env<'_, P>,
        ctx: &mut PvContext,
        run: &Run,
        place: Place<'_, (), PvOfSpace>,
    ) {
        self.lock_run(env.pin, ctx, run);
        let owner = place.space_state.handle();
        let large = self.listed_large(run.frame);
        let found = self.find(env, &large, (owner, run.page));
        debug_assert!(found.is_some(), "a superpage is demoted that is not listed");
        for step in 0..run.count {
            let name = match found {
                Some(name) if step == 0 => {
                    self.unlink(env, &large, name);
                    Some(name)
                }
                _ => self.prepared(env, ctx, owner),
            };
            let Some(name) = name else { break };
            let list = self.listed(run.frame.offset(step));
            self.insert(env, &list, name, page_of(run, step));
        }
        self.unlock_run(env.pin, run);
    }
}
