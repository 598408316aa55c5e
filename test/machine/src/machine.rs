//! The machine: RAM, CPUs, MMUs and store put together, and what its owner
//! does with it. What the core does with it is in `platform`.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use vellum::addr::Pfn;
use vellum::platform::CpuId;
use vellum::sync::CachePadded;

use crate::arena::Arena;
use crate::config::{MachineConfig, MachineError};
use crate::cpu::{CpuGuard, Cpus};
use crate::device::Device;
use crate::flush::{Defects, FlushLog, FlushRecord};
use crate::mmu::{CpuMmu, Mmu, TlbGeometry, Walker};
use crate::ram::Ram;
use crate::shortage::Shortage;
use crate::stats::{CpuStats, MachineStats};
use crate::store::BackingStore;
use crate::task::Scheduler;
use crate::window::BitingWindows;

/// Called in the middle of every access of the MMU, after translation and
/// before the load or store, with the CPU and the byte address. It must not
/// use the MMU of that CPU or flush that CPU.
pub type AccessHook = Arc<dyn Fn(CpuId, u64) + Send + Sync>;

static NEXT_MACHINE: AtomicU64 = AtomicU64::new(1);

/// A simulated machine for one memory manager.
///
/// Everything is shared: any number of host threads use one machine, each on a
/// CPU of its own ([`Machine::enter`]).
pub struct Machine {
    pub(crate) ram: Ram,
    /// If they bite.
    pub(crate) windows: Option<BitingWindows>,
    pub(crate) cpus: Cpus,
    pub(crate) walker: &'static dyn Walker,
    pub(crate) tlb_geometry: TlbGeometry,
    pub(crate) scheduler: Option<&'static Scheduler>,
    pub(crate) nodes: usize,
    pub(crate) frame_shift: u32,
    mmus: Box<[CachePadded<CpuMmu>]>,
    pub(crate) store: Arc<dyn BackingStore>,
    pub(crate) flush_log: FlushLog,
    pub(crate) defects: Defects,
    pub(crate) shortage: Shortage,
    pub(crate) device: OnceLock<Device>,
    has_access_hook: AtomicBool,
    access_hook: RwLock<Option<AccessHook>>,
}

impl Machine {
    /// Builds the machine in `arena`, which no other machine may use as long
    /// as this one lives. RAM holds what the arena held.
    ///
    /// # Errors
    /// What is wrong with the configuration, or with the arena for it.
    pub fn new(config: MachineConfig, arena: Arc<Arena>) -> Result<Machine, MachineError> {
        if !(1..=4096).contains(&config.cpus) {
            return Err(MachineError::Cpus(config.cpus));
        }
        config.tlb.check()?;
        let shared = config.biting_windows.then(|| Arc::clone(&arena));
        let ram = Ram::new(&config, arena)?;
        let frame_bytes = 1 << config.frame_shift;
        let windows = shared.map(|arena| BitingWindows::new(arena, config.cpus, frame_bytes));
        let windows = windows.transpose();
        let windows = windows.map_err(|error| MachineError::Windows(error.to_string()))?;
        if config.walker.frame_shift() != config.frame_shift {
            return Err(MachineError::WalkerFrames {
                walker: config.walker.name(),
                expected: config.walker.frame_shift(),
                found: config.frame_shift,
            });
        }
        if config.store.page_bytes() != frame_bytes {
            return Err(MachineError::StorePages {
                expected: frame_bytes,
                found: config.store.page_bytes(),
            });
        }
        let number = NEXT_MACHINE.fetch_add(1, Ordering::Relaxed);
        Ok(Machine {
            ram,
            windows,
            cpus: Cpus::new(number, config.cpus, config.scheduler),
            walker: config.walker,
            tlb_geometry: config.tlb,
            scheduler: config.scheduler,
            nodes: config.nodes,
            frame_shift: config.frame_shift,
            mmus: (0..config.cpus).map(|_| CachePadded::default()).collect(),
            store: config.store,
            flush_log: FlushLog::default(),
            defects: Defects::default(),
            shortage: Shortage::default(),
            device: OnceLock::new(),
            has_access_hook: AtomicBool::new(false),
            access_hook: RwLock::new(None),
        })
    }

    /// Puts the caller on `cpu` until the guard is dropped. Waits while
    /// somebody else is on it.
    ///
    /// # Panics
    /// If there is no such CPU, the caller is on it already, or is pinned to
    /// another CPU of this machine.
    #[inline]
    pub fn enter(&self, cpu: CpuId) -> CpuGuard<'_> {
        self.cpus.enter(self, cpu)
    }

    /// Runs `work` on `cpu`.
    ///
    /// # Panics
    /// As [`Machine::enter`].
    #[inline]
    pub fn run_on<R>(&self, cpu: CpuId, work: impl FnOnce() -> R) -> R {
        let _guard = self.enter(cpu);
        work()
    }

    /// The CPU of this machine that the caller is on.
    pub fn current_cpu(&self) -> Option<CpuId> {
        self.cpus.current()
    }

    /// The MMU of `cpu`.
    ///
    /// # Safety
    /// Simulated programs can load and store wherever the tables lead that
    /// they name as root. So every root passed to the MMU is the root table
    /// that the memory manager of this machine gave for the space passed with
    /// it, or one whose pages nobody else uses.
    pub unsafe fn mmu(&self, cpu: CpuId) -> Mmu<'_> {
        Mmu::new(self, cpu)
    }

    pub(crate) fn cpu_mmu(&self, cpu: CpuId) -> &CpuMmu {
        &self.mmus[usize::from(cpu.0)].0
    }

    /// The backing store.
    pub fn store(&self) -> &dyn BackingStore {
        &*self.store
    }

    /// Switches for defects of the machine.
    ///
    /// # Safety
    /// With a defect on, the machine breaks condition 4 of
    /// [`Platform`](vellum::platform::Platform). That is for tests which show that a missing flush
    /// is noticed: simulated programs may then overwrite any frame of this machine, so nothing but
    /// such a test's memory manager may live in it.
    pub unsafe fn defects(&self) -> &Defects {
        &self.defects
    }

    /// Starts or stops recording flush requests.
    pub fn record_flushes(&self, on: bool) {
        self.flush_log.record(on);
    }

    /// The flush requests recorded so far, oldest first; they are removed.
    pub fn take_flushes(&self) -> Vec<FlushRecord> {
        self.flush_log.take()
    }

    /// Has `hook` called in the middle of every access; `None` ends that.
    pub fn set_access_hook(&self, hook: Option<AccessHook>) {
        self.has_access_hook
            .store(hook.is_some(), Ordering::Release);
        *self
            .access_hook
            .write()
            .unwrap_or_else(PoisonError::into_inner) = hook;
    }

    pub(crate) fn call_access_hook(&self, cpu: CpuId, address: u64) {
        if self.has_access_hook.load(Ordering::Acquire) {
            let hook = {
                let hook = self
                    .access_hook
                    .read()
                    .unwrap_or_else(PoisonError::into_inner);
                hook.clone()
            };
            if let Some(hook) = hook {
                hook(cpu, address);
            }
        }
    }

    /// The word at byte `offset` of `frame` as it is in RAM, for checks by the
    /// host. `None` if there is no such word.
    pub fn ram_word(&self, frame: Pfn, offset: usize) -> Option<u64> {
        let word = self.ram.word(frame, offset)?;
        Some(word.load(vellum::sync::atomic::Ordering::Relaxed))
    }

    /// Plugs in a device whose memory programs see as `frames` frames from `first` on, none of which
    /// is RAM. There may be one; others are ignored.
    pub fn plug_device(&self, first: Pfn, frames: u32) {
        let device = Device::new(first, frames, self.frame_shift);
        let _ = self.device.set(device);
    }

    /// The word at byte `offset` of a frame of the device, if there is such a word. Before it is
    /// stored to it is what [`Machine::device_pristine`] says.
    pub fn device_word(&self, frame: Pfn, offset: usize) -> Option<u64> {
        let word = self.device.get()?.word(frame, offset)?;
        Some(word.load(vellum::sync::atomic::Ordering::Relaxed))
    }

    /// What every word of a frame of a device holds at first.
    pub fn device_pristine(frame: Pfn) -> u64 {
        Device::pristine(frame)
    }

    /// Counts of one CPU so far.
    pub fn cpu_stats(&self, cpu: CpuId) -> CpuStats {
        let mut stats = self.cpu_mmu(cpu).stats(self.scheduler);
        self.cpus.get(cpu).counters.read_into(&mut stats);
        stats
    }

    /// Counts of all CPUs so far.
    pub fn stats(&self) -> MachineStats {
        let mut stats = MachineStats::default();
        for cpu in 0..self.cpus.len() {
            stats += self.cpu_stats(CpuId(cpu as u16));
        }
        stats
    }
}
