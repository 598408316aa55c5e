//! What an access costs the CPU that makes it, and when it may make it.

use vellum::platform::CpuId;
use vellum::sync::report::{Access, Kind};

use super::{Run, RunError};
use crate::net::Hole;
use crate::state::Target;

impl Run {
    /// Lets other CPUs run until it is the running one's turn.
    pub(super) fn wait_for_turn(&self) {
        // Whoever unwinds must not be left for another, who might panic too.
        if self.state.borrow().must_wait() && !std::thread::panicking() {
            self.suspend();
        }
    }

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
    fn charge(&self, access: &Access) {
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
        let target = {
            let mut state = self.state.borrow_mut();
            if let Some(line) = state.recent_line(access) {
                if state.use_had(access, line) {
                    return;
                }
                state.prepare(access.kind);
                let may_go_on = state.is_settled(line, access.kind);
                drop(state);
                if !may_go_on {
                    self.wait_for_turn();
                }
                return self.state.borrow_mut().use_line(access, line);
            }
            let target = match access.kind {
                Kind::Fence | Kind::FullFence => Target::Stack,
                _ => state.target(access.address),
            };
            // Asking for a line that is used next is part of using it.
            let is_part = access.kind == Kind::PrefetchToWrite;
            if !is_part && (target != Target::Nowhere || access.kind == Kind::Prefetch) {
                state.prepare(access.kind);
            }
            target
        };
        match target {
            Target::Place(place, offset) => {
                let mut state = self.state.borrow_mut();
                let may_go_on = state.is_free(access, place, offset);
                drop(state);
                if !may_go_on {
                    self.wait_for_turn();
                }
            }
            Target::Nowhere if !matches!(access.kind, Kind::Prefetch | Kind::PrefetchToWrite) => {
                let Access { kind, bytes, .. } = *access;
                let cpu = self.current();
                return self.fail(RunError::Unplaced { cpu, kind, bytes });
            }
            Target::Stack | Target::Nowhere => {}
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
        if !std::thread::panicking() {
            self.suspend();
        }
    }
}
