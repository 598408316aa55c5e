//! The MMU of a CPU: accesses of simulated programs through TLB and tables.
//!
//! An access (lookup, walk, marking, load or store) holds its CPU's TLB lock
//! from start to end, and a flush takes the same lock. So when a flush
//! returns, no access that used a flushed translation is in progress. The lock
//! is not held while a fault is being handled, so a handler may flush any CPU,
//! its own too.
//!
//! Whether a CPU has anything cached is announced before the first walk and
//! checked by flushes without the lock, with full fences on both sides: a
//! flush that finds nothing announced comes before the walk, which then reads
//! the tables as the flusher left them.

mod aarch64;
mod riscv;
mod tlb;
mod walk;
mod walker;
mod x86_64;
mod x86_pae;

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering, fence};

use vellum::addr::{Access, Pfn};
use vellum::platform::{CpuId, Flush, SpaceTag};

pub use aarch64::{AARCH64_4K, AARCH64_16K, AARCH64_64K, Aarch64};
pub use riscv::{RiscV, SV39, SV48};
pub use tlb::TlbGeometry;
pub use walker::{Entry, FaultReason, Rights, Walker};
pub use x86_64::{X86, X86_64, X86_64_LA57};
pub use x86_pae::{X86_PAE, X86Pae};

use crate::lock::HostLock;
use crate::machine::Machine;
use crate::stats::CpuStats;
use crate::task::Scheduler;
use tlb::{Leaf, Tlb};
use walk::Request;

/// Every format that the MMU can walk.
pub static WALKERS: [&dyn Walker; 8] = [
    &X86_64,
    &X86_64_LA57,
    &X86_PAE,
    &AARCH64_4K,
    &AARCH64_16K,
    &AARCH64_64K,
    &SV39,
    &SV48,
];

/// The format with this name, as [`Walker::name`] and the memory manager's
/// `Format::NAME` have it.
pub fn walker(name: &str) -> Option<&'static dyn Walker> {
    WALKERS.into_iter().find(|walker| walker.name() == name)
}

/// Attempts of one access before it is given up. Other CPUs may take a page
/// away again between its fault and the retry, but not this often.
const MAX_ATTEMPTS: u32 = 1000;

/// An access that was not carried out.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct MmuFault {
    /// Byte address.
    pub address: u64,
    /// What was attempted.
    pub access: Access,
    /// Why it failed.
    pub reason: FaultReason,
}

impl fmt::Display for MmuFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.access {
            Access::Read => "load from",
            Access::Write => "store to",
            Access::Execute => "instruction fetch from",
        };
        write!(f, "{what} {:#x}: ", self.address)?;
        match self.reason {
            FaultReason::NotPresent { level } => write!(f, "no entry at level {level}"),
            FaultReason::NoRead => f.write_str("the page is not readable"),
            FaultReason::ReadOnly => f.write_str("the page is read-only"),
            FaultReason::NoExecute => f.write_str("the page is not executable"),
            FaultReason::Supervisor => f.write_str("the page is not for programs"),
            FaultReason::Reserved { level, bits } => {
                write!(
                    f,
                    "reserved bits {bits:#x} set in the entry at level {level}"
                )
            }
            FaultReason::Unmarked { level } => {
                write!(
                    f,
                    "accessed or dirty bit not set in the entry at level {level}"
                )
            }
            FaultReason::BadRoot { frame } => {
                write!(f, "a root in frame {:#x} cannot be loaded", frame.0)
            }
            FaultReason::NonCanonical => f.write_str("not an address of the format"),
            FaultReason::Conflict => f.write_str("two translations of different sizes are cached"),
            FaultReason::Misaligned => f.write_str("not a multiple of 8"),
            FaultReason::NoMemory { frame } => write!(f, "frame {:#x} does not exist", frame.0),
        }
    }
}

impl std::error::Error for MmuFault {}

/// Why [`Mmu::access`] gave up.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AccessError<E> {
    /// The fault handler refused.
    #[error("{0}")]
    Refused(E),
    /// The handler kept reporting success, but the access kept faulting.
    #[error("the access still faults after {attempts} handled faults: {fault}")]
    Unresolved {
        /// The last fault.
        fault: MmuFault,
        /// How often it was attempted.
        attempts: u32,
    },
    /// The processor has two translations of the address: somebody changed the size of a mapping
    /// while it was cached.
    #[error("{0}")]
    Conflict(MmuFault),
}

/// The translation caches of one CPU and their lock.
#[derive(Default)]
pub(crate) struct CpuMmu {
    tlb: HostLock<Tlb>,
    /// Set before anything is cached; cleared when nothing is.
    used: AtomicBool,
}

impl CpuMmu {
    /// Forgets what `request` names and waits for the access in progress.
    #[inline]
    pub(crate) fn flush(
        &self,
        request: &Flush,
        walker: &dyn Walker,
        scheduler: Option<&Scheduler>,
    ) {
        if !self.used.load(Ordering::SeqCst) {
            return;
        }
        let mut tlb = self.tlb.lock(scheduler);
        if tlb.flush(request, walker) {
            self.used.store(false, Ordering::SeqCst);
        }
    }

    /// The counts kept with the TLB.
    pub(crate) fn stats(&self, scheduler: Option<&Scheduler>) -> CpuStats {
        self.tlb.lock(scheduler).stats
    }
}

/// The MMU of one CPU, as simulated programs use it.
///
/// Addresses are byte addresses of 8-byte words, values are such words. Any
/// thread may use it, whether or not it is on the CPU; accesses of one CPU
/// come one after the other.
#[derive(Clone, Copy)]
pub struct Mmu<'m> {
    machine: &'m Machine,
    cpu: CpuId,
}

impl<'m> Mmu<'m> {
    pub(crate) fn new(machine: &'m Machine, cpu: CpuId) -> Mmu<'m> {
        Mmu { machine, cpu }
    }

    /// Loads a word.
    ///
    /// # Errors
    /// The fault, if the translation is missing or forbids it.
    pub fn load(&self, space: SpaceTag, root: Pfn, address: u64) -> Result<u64, MmuFault> {
        self.perform(&Request::new(space, root, address, Access::Read, 0))
    }

    /// Stores a word.
    ///
    /// # Errors
    /// The fault, if the translation is missing or forbids it.
    pub fn store(
        &self,
        space: SpaceTag,
        root: Pfn,
        address: u64,
        value: u64,
    ) -> Result<(), MmuFault> {
        self.perform(&Request::new(space, root, address, Access::Write, value))
            .map(|_| ())
    }

    /// Fetches a word as an instruction.
    ///
    /// # Errors
    /// The fault, if the translation is missing or forbids it.
    pub fn fetch(&self, space: SpaceTag, root: Pfn, address: u64) -> Result<u64, MmuFault> {
        self.perform(&Request::new(space, root, address, Access::Execute, 0))
    }

    /// Loads a word if that needs no fault. Looks in the TLB like a load, so
    /// that a stale entry shows, but marks nothing, caches nothing and is not
    /// counted.
    pub fn peek(&self, space: SpaceTag, root: Pfn, address: u64) -> Option<u64> {
        let request = Request::new(space, root, address, Access::Read, 0);
        self.machine.check_address(&request).ok()?;
        let mut tlb = self.enter_tlb();
        let leaf = match self.machine.cached(&tlb, &request).ok()? {
            Some(leaf) => leaf,
            None => self.machine.walk(&mut tlb, &request, false).ok()?,
        };
        if leaf.rights.refuse(Access::Read).is_some() {
            return None;
        }
        let word = self.machine.data_word(&leaf, address).ok()?;
        Some(word.load(vellum::sync::atomic::Ordering::Relaxed))
    }

    /// Carries out an access, delivering each fault to `handler` and trying
    /// again when it reports success. Returns the word loaded or stored.
    ///
    /// # Errors
    /// What the handler refused with, or that the access never succeeded.
    pub fn access<E>(
        &self,
        space: SpaceTag,
        root: Pfn,
        address: u64,
        access: Access,
        value: u64,
        handler: &mut dyn FnMut(MmuFault) -> Result<(), E>,
    ) -> Result<u64, AccessError<E>> {
        let request = Request::new(space, root, address, access, value);
        let mut attempts = 1;
        loop {
            match self.perform(&request) {
                Ok(word) => return Ok(word),
                Err(fault) if fault.reason == FaultReason::Conflict => {
                    return Err(AccessError::Conflict(fault));
                }
                Err(fault) if attempts == MAX_ATTEMPTS => {
                    return Err(AccessError::Unresolved { fault, attempts });
                }
                Err(fault) => handler(fault).map_err(AccessError::Refused)?,
            }
            attempts += 1;
        }
    }

    /// Takes the TLB for one access.
    fn enter_tlb(&self) -> crate::lock::HostGuard<'m, Tlb> {
        let machine = self.machine;
        let mmu = machine.cpu_mmu(self.cpu);
        let mut tlb = mmu.tlb.lock(machine.scheduler);
        tlb.ensure(machine.tlb_geometry, machine.walker.root_level());
        if !mmu.used.load(Ordering::Relaxed) {
            mmu.used.store(true, Ordering::SeqCst);
            fence(Ordering::SeqCst);
        }
        tlb
    }

    fn perform(&self, request: &Request) -> Result<u64, MmuFault> {
        let mut tlb = self.enter_tlb();
        let result = self.perform_locked(&mut tlb, request);
        result.map_err(|reason| {
            tlb.stats.faults += 1;
            // As processors do: what has faulted is looked up in the tables next time.
            tlb.drop_leaf(request.space, request.address);
            if self.machine.walker.forgets_tables_at_faults() {
                tlb.drop_tables(request.space, request.address, self.machine.walker);
            }
            MmuFault {
                address: request.address,
                access: request.access,
                reason,
            }
        })
    }

    fn perform_locked(&self, tlb: &mut Tlb, request: &Request) -> Result<u64, FaultReason> {
        use vellum::sync::atomic::Ordering;

        let machine = self.machine;
        machine.check_address(request)?;
        let leaf = self.translate(tlb, request)?;
        machine.call_access_hook(self.cpu, request.address);
        let word = machine.data_word(&leaf, request.address)?;
        if request.access == Access::Write {
            word.store(request.value, Ordering::Relaxed);
            return Ok(request.value);
        }
        Ok(word.load(Ordering::Relaxed))
    }

    fn translate(&self, tlb: &mut Tlb, request: &Request) -> Result<Leaf, FaultReason> {
        let machine = self.machine;
        if let Some(leaf) = machine.cached(tlb, request)? {
            tlb.stats.tlb_hits += 1;
            if let Some(reason) = leaf.rights.refuse(request.access) {
                return Err(reason);
            }
            if leaf.dirty || request.access != Access::Write {
                return Ok(leaf);
            }
        } else {
            tlb.stats.tlb_misses += 1;
        }
        tlb.stats.walks += 1;
        let leaf = machine.walk(tlb, request, true)?;
        tlb.insert(leaf);
        if machine.walker.has_conflicts() {
            machine.cached(tlb, request)?;
        }
        Ok(leaf)
    }
}
