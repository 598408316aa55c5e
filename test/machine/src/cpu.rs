//! Simulated CPUs: who is on which, exclusively.
//!
//! A caller enters a CPU and is on it until its guard is dropped; a second
//! caller waits. Pinning only names the CPU and is counted, so that a CPU is
//! not left in the middle of a pinned section. Which CPU a host thread is on
//! is kept per thread; where a [`Scheduler`] runs several tasks on one host
//! thread, it is kept per task.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use vellum::addr::Pfn;
use vellum::platform::{CpuId, WindowSlot};
use vellum::sync::CachePadded;

use crate::lock::RawLock;
use crate::machine::Machine;
use crate::ram::Ram;
use crate::stats::CpuCounters;
use crate::task::Scheduler;

/// That somebody is on a CPU of a machine.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Binding {
    /// 0: none.
    machine: u64,
    cpu: CpuId,
}

const UNBOUND: Binding = Binding {
    machine: 0,
    cpu: CpuId(0),
};

thread_local! {
    /// The CPU this host thread entered last.
    static TOP: Cell<Binding> = const { Cell::new(UNBOUND) };
    /// Those it entered before and is still on.
    static BELOW: RefCell<Vec<Binding>> = const { RefCell::new(Vec::new()) };
}

/// One simulated CPU.
#[derive(Default)]
pub(crate) struct Cpu {
    taken: RawLock,
    /// Depth of pins; written by whoever is on the CPU.
    pins: AtomicU32,
    /// The frame behind each open window plus one, 0 for a closed one.
    windows: [AtomicU32; WindowSlot::COUNT],
    pub(crate) counters: CpuCounters,
}

impl Cpu {
    fn windows_closed(&self) -> bool {
        self.windows
            .iter()
            .all(|window| window.load(Ordering::Relaxed) == 0)
    }
}

#[cold]
fn unpinned_too_often(cpu: CpuId) -> ! {
    panic!("CPU {} was unpinned more often than pinned", cpu.0);
}

/// The CPUs of one machine.
pub(crate) struct Cpus {
    /// Unique in the process, never 0, never used again.
    machine: u64,
    scheduler: Option<&'static Scheduler>,
    cpus: Box<[CachePadded<Cpu>]>,
    /// With a scheduler: the CPUs each task is on, the last entered last.
    tasks: Mutex<HashMap<u64, Vec<CpuId>>>,
}

impl Cpus {
    pub(crate) fn new(machine: u64, count: usize, scheduler: Option<&'static Scheduler>) -> Cpus {
        Cpus {
            machine,
            scheduler,
            cpus: (0..count).map(|_| CachePadded::default()).collect(),
            tasks: Mutex::default(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.cpus.len()
    }

    #[inline]
    pub(crate) fn get(&self, cpu: CpuId) -> &Cpu {
        &self.cpus[usize::from(cpu.0)].0
    }

    /// The CPU of this machine that the caller entered last.
    #[inline]
    pub(crate) fn current(&self) -> Option<CpuId> {
        let top = TOP.get();
        if top.machine == self.machine {
            return Some(top.cpu);
        }
        self.current_elsewhere()
    }

    /// The same for a task of a scheduler, of which no thread says where it is,
    /// and for a thread that entered another machine since.
    #[cold]
    fn current_elsewhere(&self) -> Option<CpuId> {
        if let Some(scheduler) = self.scheduler {
            let tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
            return tasks.get(&(scheduler.current_task)())?.last().copied();
        }
        let is_ours = |binding: &&Binding| binding.machine == self.machine;
        BELOW.with_borrow(|below| below.iter().rev().find(is_ours).map(|binding| binding.cpu))
    }

    fn is_on(&self, cpu: CpuId) -> bool {
        if let Some(scheduler) = self.scheduler {
            let tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
            return tasks
                .get(&(scheduler.current_task)())
                .is_some_and(|entered| entered.contains(&cpu));
        }
        let wanted = Binding {
            machine: self.machine,
            cpu,
        };
        let top = TOP.get();
        top == wanted || top != UNBOUND && BELOW.with_borrow(|below| below.contains(&wanted))
    }

    fn bind(&self, cpu: CpuId) {
        if let Some(scheduler) = self.scheduler {
            let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
            tasks
                .entry((scheduler.current_task)())
                .or_default()
                .push(cpu);
            return;
        }
        let below = TOP.replace(Binding {
            machine: self.machine,
            cpu,
        });
        if below != UNBOUND {
            BELOW.with_borrow_mut(|stack| stack.push(below));
        }
    }

    fn unbind(&self, cpu: CpuId) {
        if let Some(scheduler) = self.scheduler {
            let task = (scheduler.current_task)();
            let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(entered) = tasks.get_mut(&task) {
                entered.retain(|&other| other != cpu);
                if entered.is_empty() {
                    tasks.remove(&task);
                }
            }
            return;
        }
        let leaving = Binding {
            machine: self.machine,
            cpu,
        };
        if TOP.get() == leaving {
            TOP.set(BELOW.with_borrow_mut(Vec::pop).unwrap_or(UNBOUND));
        } else {
            BELOW.with_borrow_mut(|stack| stack.retain(|&binding| binding != leaving));
        }
    }

    #[inline]
    pub(crate) fn enter<'m>(&self, machine: &'m Machine, cpu: CpuId) -> CpuGuard<'m> {
        assert!(
            usize::from(cpu.0) < self.cpus.len(),
            "there is no CPU {}: the machine has CPUs 0 to {}",
            cpu.0,
            self.cpus.len() - 1
        );
        assert!(
            !self.is_on(cpu),
            "the caller is on CPU {} already and would wait for itself",
            cpu.0
        );
        assert!(
            !self.is_pinned(),
            "CPU {} was entered while pinned to another",
            cpu.0
        );
        self.get(cpu).taken.lock(self.scheduler);
        self.bind(cpu);
        CpuGuard {
            machine,
            cpu,
            not_send: PhantomData,
        }
    }

    /// Whether the caller is pinned to a CPU of this machine.
    #[inline]
    pub(crate) fn is_pinned(&self) -> bool {
        self.current()
            .is_some_and(|cpu| self.get(cpu).pins.load(Ordering::Relaxed) > 0)
    }

    #[inline]
    pub(crate) fn pin(&self) -> CpuId {
        let Some(cpu) = self.current() else {
            panic!(
                "the memory manager was called by a thread that is on no CPU of this machine; \
                 call it inside `Machine::run_on` or while holding a `CpuGuard`"
            );
        };
        let pins = &self.get(cpu).pins;
        pins.store(pins.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        cpu
    }

    #[inline]
    pub(crate) fn unpin(&self, cpu: CpuId) {
        debug_assert!(
            self.current() == Some(cpu),
            "CPU {} was unpinned by somebody who is not on it",
            cpu.0
        );
        let state = self.get(cpu);
        let depth = state.pins.load(Ordering::Relaxed);
        if depth == 0 {
            unpinned_too_often(cpu);
        }
        debug_assert!(
            depth > 1 || state.windows_closed(),
            "CPU {} was unpinned with a window open",
            cpu.0
        );
        state.pins.store(depth - 1, Ordering::Relaxed);
    }

    /// Opens window `slot` of `cpu` on `frame`.
    pub(crate) fn open_window(&self, cpu: CpuId, slot: WindowSlot, frame: Pfn, ram: &Ram) {
        let state = self.get(cpu);
        assert!(
            ram.contains(frame),
            "a window was asked for {frame:?}, which does not exist"
        );
        debug_assert!(
            state.pins.load(Ordering::Relaxed) > 0,
            "a window of CPU {} was opened without a pin",
            cpu.0
        );
        let of = |slot: WindowSlot| &state.windows[slot.index()];
        let before = of(slot).load(Ordering::Relaxed);
        assert!(
            before == 0,
            "{slot:?} of CPU {} was opened on {frame:?} while open on {:?}",
            cpu.0,
            Pfn(before.wrapping_sub(1))
        );
        of(slot).store(frame.0 + 1, Ordering::Relaxed);
        let counters = &state.counters;
        let (kind, opened, nested) = match slot.is_for_tables() {
            true => (
                WindowSlot::TABLES,
                &counters.table_windows,
                &counters.table_windows_nested,
            ),
            false => (
                WindowSlot::PAGES,
                &counters.windows_opened,
                &counters.windows_nested,
            ),
        };
        opened.bump();
        if kind
            .iter()
            .any(|&other| other != slot && of(other).load(Ordering::Relaxed) != 0)
        {
            nested.bump();
        }
    }

    /// Closes window `slot` of `cpu`.
    pub(crate) fn close_window(&self, cpu: CpuId, slot: WindowSlot) {
        let window = &self.get(cpu).windows[slot.index()];
        assert!(
            window.load(Ordering::Relaxed) != 0,
            "{slot:?} of CPU {} was closed while not open",
            cpu.0
        );
        window.store(0, Ordering::Relaxed);
    }

    /// Runs `sleep` with the caller's CPU free for others, and comes back to it.
    pub(crate) fn off_cpu(&self, sleep: impl FnOnce()) {
        let Some(cpu) = self.current() else {
            return sleep();
        };
        let state = self.get(cpu);
        assert!(
            state.pins.load(Ordering::Relaxed) == 0,
            "a task went to sleep while pinned to CPU {}",
            cpu.0
        );
        state.taken.unlock();
        sleep();
        state.taken.lock(self.scheduler);
    }
}

/// Being on a CPU; nobody else is on it until this is dropped.
///
/// Stays with the thread (or task) that entered.
#[must_use = "the CPU is left when the guard is dropped"]
pub struct CpuGuard<'m> {
    machine: &'m Machine,
    cpu: CpuId,
    not_send: PhantomData<*mut ()>,
}

impl CpuGuard<'_> {
    /// The CPU.
    pub fn cpu(&self) -> CpuId {
        self.cpu
    }
}

impl Drop for CpuGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        let cpus = &self.machine.cpus;
        let state = cpus.get(self.cpu);
        if state.pins.load(Ordering::Relaxed) != 0 {
            // Somebody believes to be pinned here: nobody else may enter, ever.
            assert!(
                std::thread::panicking(),
                "CPU {} was left while pinned",
                self.cpu.0
            );
            return;
        }
        cpus.unbind(self.cpu);
        state.taken.unlock();
    }
}
