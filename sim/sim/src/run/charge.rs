//! What an access costs the CPU that makes it, and when it may make it.

use std::thread::panicking;

use vellum::platform::CpuId;
use vellum::sync::report::{Access, Kind};

use super::{Run, RunError};
use crate::net::Hole;
use crate::state::{Target, is_of_words};

impl Run {
    /// Lets other CPUs run until it is the running one's turn. Whoever unwinds is not left for
    /// another, who might panic too.
    #[inline]
    pub(super) fn wait_for_turn(&self) {
        if self.state.borrow().must_wait() && !panicking() {
            self.suspend();
        }
    }

    #[inline]
    pub(super) fn suspend(&self) {
        let cpu = self.state.borrow().current as usize;
        let yielder = self.yielders[cpu].get();
        // SAFETY: this runs on the coroutine of `cpu`, whose yielder lives as long as it
        // does.
        unsafe { &*yielder }.suspend(());
    }

    pub(super) fn on_access(&self, access: &Access) {
        if self.muted.get() == 0 {
            self.charge(access);
        }
        // The access is made next, before any other CPU runs.
        let net = self.net.as_ref();
        let hole = net.and_then(|net| net.borrow_mut().on_access(access));
        if let Some(hole) = hole {
            self.fail(self.unreported(hole));
        }
    }

    /// Whether bytes need not be written in bulk. The net would not know of it.
    pub(super) fn is_spared(&self, start: usize, bytes: usize) -> bool {
        let places = &mut self.state.borrow_mut().directory.places;
        self.net.is_none() && places.is_spared(start, bytes)
    }

    /// Charges the running CPU with an access, when it is its turn.
    #[inline]
    fn charge(&self, access: &Access) {
        if !is_of_words(access) {
            return self.charge_other(access);
        }
        let mut state = self.state.borrow_mut();
        let Some(line) = state.directory.recent.find(access.address) else {
            drop(state);
            return self.charge_other(access);
        };
        if state.use_had(access, line) {
            return;
        }
        state.prepare(access.kind);
        // As `wait_for_turn`; who need not wait keeps the state, without which loads on lines of a
        // CPU's own are a twelfth slower (`cargo bench -p vellum-sim --bench speed`).
        if !state.is_settled(line, access.kind) && state.must_wait() && !panicking() {
            drop(state);
            self.suspend();
            state = self.state.borrow_mut();
            // Meanwhile its page can have been written as a whole.
            if state.directory.recent.find(access.address) != Some(line) {
                let target = state.target(access.address);
                return state.carry_out(access, target);
            }
        }
        state.use_line(access, line);
    }

    /// The same of all that is not to words of a line that was used lately.
    #[inline(never)]
    fn charge_other(&self, access: &Access) {
        match access.kind {
            Kind::Bookkeeping => return,
            Kind::BytesRead
            | Kind::BytesWritten
            | Kind::BytesFilled
            | Kind::BytesZeroed
            | Kind::BytesZeroedAround
                if self.is_hosted =>
            {
                return;
            }
            Kind::LockAwaited | Kind::LockWaitEnded | Kind::LockTaken | Kind::LockReleased => {
                return self.state.borrow_mut().lock(access);
            }
            _ => {}
        }
        let mut state = self.state.borrow_mut();
        let target = match access.kind {
            Kind::Fence | Kind::FullFence => Target::Stack,
            _ => state.target(access.address),
        };
        // Asking for a line that is used next is part of using it.
        let is_part = access.kind == Kind::PrefetchToWrite;
        if !is_part && (target != Target::Nowhere || access.kind == Kind::Prefetch) {
            state.prepare(access.kind);
        }
        let may_go_on = match target {
            Target::Place(place, offset) => state.is_free(access, place, offset),
            Target::Stack | Target::Nowhere => true,
        };
        drop(state);
        if target == Target::Nowhere
            && !matches!(access.kind, Kind::Prefetch | Kind::PrefetchToWrite)
        {
            let Access { kind, bytes, .. } = *access;
            let cpu = self.current();
            return self.fail(RunError::Unplaced { cpu, kind, bytes });
        }
        if !may_go_on {
            self.wait_for_turn();
        }
        self.state.borrow_mut().carry_out(access, target);
    }

    pub(super) fn current(&self) -> CpuId {
        CpuId(self.state.borrow().current as u16)
    }

    pub(super) fn unreported(&self, hole: Hole) -> RunError {
        let places = &self.state.borrow().directory.places;
        RunError::Unreported {
            place: places.named(hole.place as u16).0.to_owned(),
            offset: hole.offset,
            cpu: self.current(),
        }
    }

    /// The run ends here.
    #[cold]
    pub(super) fn fail(&self, error: RunError) {
        self.failure.borrow_mut().get_or_insert(error);
        if !panicking() {
            self.suspend();
        }
    }
}
