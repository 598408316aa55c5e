//! What a program can do on the CPU that it runs on, and what it can ask of it.

use std::cell::Cell;

use vellum::platform::{CpuId, NodeId};

use super::{ACTIVE, Run};
use crate::random::Random;
use crate::state::CpuTotals;
use vellum_description::WorkKind;

/// The CPU that a program runs on.
#[derive(Clone, Copy)]
pub struct Cpu<'r> {
    pub(super) run: &'r Run,
    pub(super) id: CpuId,
}

impl Cpu<'_> {
    /// Its number.
    pub fn id(&self) -> CpuId {
        self.id
    }

    /// Its node.
    pub fn node(&self) -> NodeId {
        let state = self.run.state.borrow();
        let topology = &state.directory.topology;
        topology.node_of(topology.core_of(u32::from(self.id.0)))
    }

    /// What its clock shows, in picoseconds.
    pub fn now(&self) -> u64 {
        self.run.state.borrow_mut().me().clock
    }

    /// What it did so far. All times are part of what its clock shows; that of its end is
    /// not known yet.
    pub fn totals(&self) -> CpuTotals {
        self.run.state.borrow_mut().me().totals
    }

    /// Has what CPUs do, and where they lose time, counted from here on
    /// ([`super::Simulation::count_from_ns`]).
    pub fn count_from_now(&self) {
        self.run.wait_for_turn();
        self.run.state.borrow_mut().begin_counting();
    }

    /// Computes for a time without touching memory that is shared.
    pub fn compute_ns(&self, ns: u64) {
        self.run.state.borrow_mut().compute(ns * 1000);
        self.run.wait_for_turn();
    }

    /// The same in picoseconds.
    pub fn compute_ps(&self, ps: u64) {
        self.run.state.borrow_mut().compute(ps);
        self.run.wait_for_turn();
    }

    /// What the CPU is at from now on. An access to a line that the core has, with the
    /// instructions before it, costs what the description says for that kind of operation,
    /// or else for all.
    pub fn begin(&self, kind: Option<WorkKind>) {
        self.run.state.borrow_mut().begin(kind);
    }

    /// Enters the kernel for a page fault and returns from it.
    pub fn trap(&self) {
        let mut state = self.run.state.borrow_mut();
        let price = state.prices.trap;
        state.compute(price);
    }

    /// Enters the kernel for a system call and returns from it.
    pub fn syscall(&self) {
        let mut state = self.run.state.borrow_mut();
        let price = state.prices.syscall;
        state.compute(price);
    }

    /// One round of waiting for another CPU: until another has written the line that was
    /// loaded last, or for a time that doubles with the rounds before, which are `spins`:
    /// from 200 ns to 12.8 us.
    pub fn relax(&self, spins: u32) {
        self.run.wait_for_turn();
        self.run.state.borrow_mut().spin(spins);
        self.run.wait_for_turn();
    }

    /// Sleeps until another CPU wakes this one. A waking that came first is not lost.
    pub fn sleep(&self) {
        self.run.wait_for_turn();
        self.run.state.borrow_mut().sleep();
        self.run.wait_for_turn();
    }

    /// Wakes another CPU.
    pub fn wake(&self, cpu: CpuId) {
        self.run.wait_for_turn();
        self.run.state.borrow_mut().wake(u32::from(cpu.0));
    }

    /// Has `targets` forget the translations of some pages, or of all, and waits until
    /// they have. The CPU itself may be among them.
    pub fn flush(&self, targets: impl IntoIterator<Item = CpuId>, pages: Option<u64>) {
        self.run.wait_for_turn();
        let targets: Vec<u32> = targets.into_iter().map(|cpu| u32::from(cpu.0)).collect();
        self.run
            .state
            .borrow_mut()
            .flush(targets.into_iter(), pages);
    }

    /// Looks at a word of each of `others` CPUs after a full fence, and finds nothing.
    pub(crate) fn look_at(&self, others: u64) {
        self.run.wait_for_turn();
        self.run.state.borrow_mut().look_at(others);
    }

    /// Does `work`, whose accesses cost nothing and are no part of the simulation. It
    /// must not wait for another CPU.
    pub fn unreported<T>(&self, work: impl FnOnce() -> T) -> T {
        struct Muted<'r>(&'r Cell<u32>);
        impl Drop for Muted<'_> {
            fn drop(&mut self) {
                self.0.set(self.0.get() - 1);
            }
        }
        self.run.muted.set(self.run.muted.get() + 1);
        let _muted = Muted(&self.run.muted);
        work()
    }

    /// Random numbers of this CPU, the same for the same seed.
    pub fn random(&self) -> Random {
        Random::new(self.run.seed ^ (u64::from(self.id.0) + 1) << 32)
    }
}

/// Does `work` with the simulated CPU that the calling code runs on, if it runs on one.
pub fn with_cpu<T>(work: impl FnOnce(&Cpu<'_>) -> T) -> Option<T> {
    let run = ACTIVE.get();
    if run.is_null() {
        return None;
    }
    // SAFETY: as in `on_access`.
    let run = unsafe { &*run };
    let id = CpuId(run.state.borrow().current as u16);
    Some(work(&Cpu { run, id }))
}
