//! Nodes that are short of memory, and who waits to reclaim some there.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use vellum::platform::{NodeId, Victim};

use crate::machine::Machine;

#[derive(Default)]
struct Short {
    nodes: Vec<NodeId>,
    is_over: bool,
    victim: Option<Victim>,
}

/// The nodes that are short, and a bell.
#[derive(Default)]
pub(crate) struct Shortage {
    short: Mutex<Short>,
    changed: Condvar,
}

impl Shortage {
    fn lock(&self) -> MutexGuard<'_, Short> {
        self.short.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A node is short.
    pub(crate) fn note(&self, node: NodeId) {
        let mut short = self.lock();
        if !short.nodes.contains(&node) {
            short.nodes.push(node);
            self.changed.notify_one();
        }
    }
}

impl Shortage {
    /// Memory has run out, and `victim` is whose end would free most.
    pub(crate) fn choose(&self, victim: Option<Victim>) {
        self.lock().victim = victim;
    }
}

impl Machine {
    /// Whose end would have freed most when memory ran out last. The machine ends nobody: the
    /// call failed.
    pub fn last_victim(&self) -> Option<Victim> {
        self.shortage.lock().victim
    }

    /// Sleeps until a node is short of memory, and names it; `None` when
    /// [`Machine::end_shortages`] was called. For a host thread that reclaims:
    ///
    /// ```no_run
    /// # use vellum::{Vm, platform::CpuId, rmap::Family, table::X86_64};
    /// # use vellum_machine::Machine;
    /// # fn reclaims(vm: &Vm<Machine, X86_64, Family>) {
    /// let machine = vm.platform();
    /// while let Some(node) = machine.next_short_node() {
    ///     machine.run_on(CpuId(1), || vm.reclaim_node(node));
    /// }
    /// # }
    /// ```
    ///
    /// Nobody is told under a [`Scheduler`](crate::Scheduler).
    pub fn next_short_node(&self) -> Option<NodeId> {
        let mut short = self.shortage.lock();
        loop {
            if short.is_over {
                return None;
            }
            if let Some(node) = short.nodes.pop() {
                return Some(node);
            }
            let changed = &self.shortage.changed;
            short = changed.wait(short).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Ends the threads that wait in [`Machine::next_short_node`].
    pub fn end_shortages(&self) {
        self.shortage.lock().is_over = true;
        self.shortage.changed.notify_all();
    }
}
