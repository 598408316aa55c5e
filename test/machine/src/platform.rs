//! The machine as the core's platform.

use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

use vellum::addr::Pfn;
use vellum::platform::{
    CpuId, CpuSet, Flush, HookAnswer, HookedFault, IoError, MemoryRange, NodeId, Policy, Rescue,
    Sleep, SlotError, Store, TaskToken, Victim, WindowSlot,
};
use vellum::sync::bytes::FrameBytes;

use crate::flush::FlushRecord;
use crate::machine::Machine;
use crate::task;

/// Spins of one wait before a waiting host thread lets others run.
const SPINS_BEFORE_YIELD: u32 = 100;
/// Spins before it sleeps each time.
const SPINS_BEFORE_SLEEP: u32 = 600;
/// For so long.
const MOMENT: Duration = Duration::from_micros(20);

// SAFETY: the conditions of `Machine`, by number:
//
// 1. The ranges come from `Layout::new`, which cuts ascending, disjoint runs
//    of frame numbers, and lie in an arena that `ArenaClaim` keeps mapped and
//    from other machines. What writes to it is `read_page`, into the frame
//    its caller names, and `Machine::mmu`, whose callers promise that roots
//    are the memory manager's.
// 2. Frame `base + n` is `n` frames into an arena aligned to 2 MiB, so frames
//    are aligned, disjoint, and readable and writable as a whole. A window is
//    the frame's own address.
// 3. `pin` names a CPU whose `taken` lock the caller holds through a
//    `CpuGuard`. The guard stays with its thread or task, does not let go
//    while pins are counted, and another CPU is not entered meanwhile; `park`
//    gives the CPU up only when it is not pinned.
// 4. `CpuMmu::flush` drops the covered entries under the lock that every
//    access holds from lookup to the end of its load or store, or finds that
//    nothing was cached before the call; see `mmu`. (Seeded defects break
//    this; switching them on is unsafe.)
// 5. The MMU loads and stores atomic words, backing stores are given
//    `FrameBytes`, and nothing else here touches frames.
unsafe impl vellum::platform::Machine for Machine {
    fn cpus(&self) -> usize {
        self.cpus.len()
    }

    fn nodes(&self) -> usize {
        self.nodes
    }

    fn node_of(&self, cpu: CpuId) -> NodeId {
        let cpus = self.cpus.len();
        let cpu = usize::from(cpu.0);
        if self.nodes <= cpus {
            NodeId((cpu * self.nodes / cpus) as u16)
        } else {
            NodeId(cpu as u16)
        }
    }

    fn frame_shift(&self) -> u32 {
        self.frame_shift
    }

    fn memory_map(&self) -> &[MemoryRange] {
        self.ram.ranges()
    }

    #[inline]
    fn pin(&self) -> CpuId {
        self.cpus.pin()
    }

    #[inline]
    fn unpin(&self, cpu: CpuId) {
        self.cpus.unpin(cpu);
    }

    #[inline]
    fn frame(&self, frame: Pfn) -> NonNull<u8> {
        debug_assert!(self.ram.contains(frame), "{frame:?} does not exist");
        debug_assert!(
            !self.ram.is_high(frame),
            "{frame:?} is high memory and reached through windows only"
        );
        self.ram.address(frame)
    }

    #[inline]
    fn window(&self, cpu: CpuId, slot: WindowSlot, frame: Pfn) -> NonNull<u8> {
        self.cpus.open_window(cpu, slot, frame, &self.ram);
        match &self.windows {
            Some(windows) => windows.open(cpu, slot, self.ram.offset(frame)),
            None => self.ram.address(frame),
        }
    }

    #[inline]
    fn close_window(&self, cpu: CpuId, slot: WindowSlot) {
        self.cpus.close_window(cpu, slot);
        if let Some(windows) = &self.windows {
            windows.close(cpu, slot);
        }
    }

    fn flush(&self, from: CpuId, cpus: CpuSet<'_>, request: &Flush) {
        let counters = &self.cpus.get(from).counters;
        counters.flush_requests.bump();
        counters.flush_tables.add(u64::from(request.tables));
        match request.range {
            Some(range) => counters.flush_pages.add(range.pages()),
            None => counters.flush_full.bump(),
        }
        let dropped = self.defects.drops_this_flush();
        self.flush_log.push(|| FlushRecord {
            from,
            cpus: cpus.iter(self.cpus.len()).collect(),
            request: *request,
            dropped,
        });
        if dropped {
            counters.flush_dropped.bump();
            return;
        }
        let request = self.defects.apply(request);
        // The caller's changes of the tables come before the check for entries.
        fence(Ordering::SeqCst);
        let mut remote = 0;
        for cpu in cpus.iter(self.cpus.len()) {
            if let Some(scheduler) = self.scheduler {
                (scheduler.step)();
            }
            if cpu == from {
                counters.flush_local.bump();
            } else {
                remote += 1;
            }
            self.cpu_mmu(cpu)
                .flush(&request, self.walker, self.scheduler);
        }
        counters.flush_remote.add(remote);
    }

    #[inline]
    fn relax(&self, spins: u32) {
        if let Some(scheduler) = self.scheduler {
            (scheduler.yield_now)();
        } else if spins < SPINS_BEFORE_YIELD {
            std::hint::spin_loop();
        } else if spins < SPINS_BEFORE_SLEEP {
            std::thread::yield_now();
        } else {
            // Whom it waits for may stand in the queue of another CPU of the host.
            std::thread::sleep(MOMENT);
        }
    }

    fn wake_reclaim(&self, node: NodeId) {
        // What wakes a host thread would block that of a scheduler.
        if self.scheduler.is_none() {
            self.shortage.note(node);
        }
    }
}

impl Sleep for Machine {
    fn current_task(&self) -> TaskToken {
        TaskToken(match self.scheduler {
            Some(scheduler) => (scheduler.current_task)(),
            None => task::current(),
        })
    }

    fn park(&self) {
        self.cpus.off_cpu(|| match self.scheduler {
            Some(scheduler) => (scheduler.park)(),
            None => task::park(),
        });
    }

    fn unpark(&self, task: TaskToken) {
        match self.scheduler {
            Some(scheduler) => (scheduler.unpark)(task.0),
            None => task::unpark(task.0),
        }
    }
}

impl Store for Machine {
    unsafe fn read_page(&self, store: u64, index: u64, frame: Pfn) -> Result<(), IoError> {
        let bytes = self.bytes_to_transfer(frame);
        self.count_io(false, self.store.read_page(store, index, bytes))
    }

    fn write_page(&self, store: u64, index: u64, frame: Pfn) -> Result<(), IoError> {
        let page = self.bytes_to_transfer(frame);
        // Tasks may store to the page meanwhile, so the store gets a copy.
        let mut bytes = vec![0; page.size()];
        page.read(0, &mut bytes);
        self.count_io(true, self.store.write_page(store, index, &bytes))
    }

    fn write_slot(&self, store: u64, slot: u64, frame: Pfn) -> Result<(), SlotError> {
        let page = self.bytes_to_transfer(frame);
        let mut bytes = vec![0; page.size()];
        page.read(0, &mut bytes);
        let written = self.store.write_slot(store, slot, &bytes);
        if written != Err(SlotError::NoRoom) {
            let counted = written.map_err(|_| IoError);
            let _ = self.count_io(true, counted);
        }
        written
    }

    fn write_speed(&self, store: u64) -> Option<u64> {
        self.store.write_speed(store)
    }

    fn has_swap_room(&self, store: u64) -> bool {
        self.store.has_swap_room(store)
    }

    fn slot_freed(&self, store: u64, slot: u64) {
        self.store.slot_freed(store, slot);
    }

    fn flush_store(&self, _store: u64) -> Result<(), IoError> {
        self.store.flush()
    }

    fn discard_pages(&self, store: u64, pages: Range<u64>) -> Result<(), IoError> {
        self.store.discard_pages(store, pages)
    }

    fn find_page(&self, store: u64, index: u64, stored: bool) -> Option<u64> {
        self.store.find_page(store, index, stored)
    }
}

impl Policy for Machine {
    fn out_of_memory(&self, victim: Option<Victim>) -> Rescue {
        self.shortage.choose(victim);
        Rescue::Fail
    }

    /// Where tasks are scheduled, another one supplies the pages. A thread of the host that supplies
    /// them itself hears that they are missing.
    fn fault_hook(&self, _: &HookedFault) -> HookAnswer {
        match self.scheduler {
            Some(_) => HookAnswer::Wait,
            None => HookAnswer::Fail,
        }
    }
}

impl Machine {
    /// The bytes of `frame`, for a transfer. Checks what the core promises about it.
    fn bytes_to_transfer(&self, frame: Pfn) -> FrameBytes<'_> {
        debug_assert!(
            !self.cpus.is_pinned(),
            "a transfer was asked for while pinned"
        );
        match self.ram.bytes(frame) {
            Some(bytes) => bytes,
            None => panic!("a transfer was asked for {frame:?}, which does not exist"),
        }
    }

    /// Counts an operation of the backing store on the caller's CPU, if it is on one.
    fn count_io(&self, written: bool, result: Result<(), IoError>) -> Result<(), IoError> {
        if let Some(cpu) = self.cpus.current() {
            let counters = &self.cpus.get(cpu).counters;
            match result {
                Ok(()) if written => counters.pages_written.bump(),
                Ok(()) => counters.pages_read.bump(),
                Err(IoError) => counters.io_errors.bump(),
            }
        }
        result
    }
}
