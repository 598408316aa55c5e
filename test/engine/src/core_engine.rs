//! A core of one design on a hosted machine, as an [`Engine`].

use std::sync::atomic::AtomicU64;

use vellum::addr::Vpn;
use vellum::design::GroupMode;
use vellum::platform::CpuId;
use vellum::rmap::ReverseMap;
use vellum::space::{File, Group, GroupError, Loaded, ReadRequest, Space};
use vellum::swap::SwapArea;
use vellum::table::Format;
use vellum::{Design, ObjectId, Vm};
use vellum_machine::Machine;
use vellum_machine::mmu::{AccessError, Mmu, MmuFault};

use crate::executor::{Executor, file_error, map_error};
use crate::meter::Meter;
use crate::op::{
    Access, Engine, EngineError, FileSlot, Groups, Leaf, Op, OpError, Outcome, Pages, SpaceSlot,
};
use crate::slots::Names;

/// Times that an access is tried anew, with the host's other threads run in
/// between, before it counts as one that faults for ever.
const PATIENCE: usize = 64;

/// The engine for page-table format `F` and reverse-mapping design `R`.
pub struct CoreEngine<F: Format, R: ReverseMap> {
    pub(crate) vm: Vm<Machine, F, R>,
    pub(crate) names: Names,
    pub(crate) peaks: Peaks,
    meter: Meter,
}

/// Highest values seen at the end of a batch.
#[derive(Default)]
pub(crate) struct Peaks {
    pub(crate) frames: AtomicU64,
    pub(crate) tables: AtomicU64,
}

/// The backing store of swap. Files have those from 0 on.
pub(crate) const SWAP_STORE: u64 = u32::MAX as u64 + 1;
/// Swap slots for each frame of memory, with `reclaim=on`.
pub(crate) const SWAP_PER_FRAME: u64 = 8;

impl<F: Format, R: ReverseMap> CoreEngine<F, R> {
    /// An engine on a machine of its own.
    ///
    /// # Errors
    /// [`EngineError::Machine`] if the core cannot run on it.
    pub fn new(machine: Machine, design: Design) -> Result<Self, EngineError> {
        let machine_error = |error: &dyn std::fmt::Display| EngineError::Machine(error.to_string());
        let vm = Vm::new(machine, design).map_err(|error| machine_error(&error))?;
        if design.reclaim {
            let area = SwapArea::new(
                SWAP_STORE,
                vm.memory().frame_count() as u64 * SWAP_PER_FRAME,
            );
            vm.swap_on(area).map_err(|error| machine_error(&error))?;
        }
        Ok(CoreEngine {
            vm,
            names: Names::new(),
            peaks: Peaks::default(),
            meter: Meter::new(),
        })
    }

    /// The same, with every space in one group that may have so many pages.
    ///
    /// # Errors
    /// [`EngineError::Design`] if the design has no groups.
    pub fn in_group(mut self, pages: u64) -> Result<Self, EngineError> {
        let made = self.on(0, || self.vm.create_group(pages).map(Group::id));
        let refused = |error: GroupError| EngineError::Design(error.to_string());
        self.names.group = made.map_err(refused)?;
        Ok(self)
    }

    /// The manager.
    pub fn vm(&self) -> &Vm<Machine, F, R> {
        &self.vm
    }

    /// The machine.
    pub fn machine(&self) -> &Machine {
        self.vm.platform()
    }

    pub(crate) fn on<T>(&self, cpu: usize, work: impl FnOnce() -> T) -> T {
        self.machine().run_on(CpuId(cpu as u16), work)
    }

    #[inline]
    pub(crate) fn executor(&self) -> Executor<'_, Machine, F, R> {
        Executor {
            vm: &self.vm,
            names: &self.names,
        }
    }

    pub(crate) fn space(&self, slot: SpaceSlot) -> Result<Space<'_, Machine, F, R>, OpError> {
        self.executor().space(slot)
    }

    pub(crate) fn file(&self, slot: FileSlot) -> Result<File<'_, Machine, F, R>, OpError> {
        self.executor().file(slot)
    }

    fn mmu(&self, cpu: usize) -> Mmu<'_> {
        // SAFETY: the roots it is used with are those that `Vm::load` names on
        // the CPU the caller has entered, for a space that the caller keeps.
        unsafe { self.machine().mmu(CpuId(cpu as u16)) }
    }

    /// Carries out one access as a simulated program would.
    fn access(
        &self,
        cpu: usize,
        space: SpaceSlot,
        address: u64,
        access: Access,
        value: u64,
    ) -> Result<u64, OpError> {
        let space = self.space(space)?;
        self.on(cpu, || {
            self.accesses(space, std::iter::once((address, value)), access)
        })
    }

    /// Carries out accesses to addresses, with what is stored there, by a program of the space
    /// on the CPU that the caller is on. Returns the last word.
    pub(crate) fn accesses(
        &self,
        space: Space<'_, Machine, F, R>,
        places: impl Iterator<Item = (u64, u64)>,
        access: Access,
    ) -> Result<u64, OpError> {
        let loaded = space.load().map_err(map_error)?;
        let cpu = self.machine().current_cpu().ok_or(OpError::Invalid)?;
        let mmu = self.mmu(usize::from(cpu.0));
        let access = crate::executor::access(access);
        let mut word = 0;
        for (address, value) in places {
            word = self.access_one(&mmu, space, loaded, address, access, value)?;
        }
        Ok(word)
    }

    fn access_one(
        &self,
        mmu: &Mmu<'_>,
        space: Space<'_, Machine, F, R>,
        loaded: Loaded,
        address: u64,
        access: vellum::addr::Access,
        value: u64,
    ) -> Result<u64, OpError> {
        let mut handle = |fault: MmuFault| space.fault(fault.address, fault.access).map(|_| ());
        // Between the unlinking of a table and its flush a CPU that has the
        // table cached goes on faulting, for as long as the host keeps the
        // thread that flushes from running.
        let (tag, root) = (loaded.tag, loaded.root);
        for _ in 0..PATIENCE {
            match mmu.access(tag, root, address, access, value, &mut handle) {
                Ok(word) => return Ok(word),
                Err(AccessError::Refused(error)) => {
                    return Err(crate::executor::fault_error(error));
                }
                Err(AccessError::Unresolved { .. }) => std::thread::yield_now(),
                Err(AccessError::Conflict(_)) => break,
            }
        }
        Err(OpError::Invalid)
    }
}

impl<F: Format, R: ReverseMap> Engine for CoreEngine<F, R> {
    fn design(&self) -> String {
        self.vm.design().to_string()
    }

    fn cpus(&self) -> usize {
        vellum::platform::Machine::cpus(self.machine())
    }

    fn pages(&self) -> Pages {
        Pages {
            shift: F::FRAME_SHIFT,
            user_end: F::USER_END.0,
        }
    }

    fn run(&self, cpu: usize, ops: &[Op], outcome: &mut Outcome) {
        self.on(cpu, || self.meter.during(|| self.execute_all(ops, outcome)));
        self.note_peaks();
    }

    fn store(&self, cpu: usize, space: SpaceSlot, address: u64, value: u64) -> Result<(), OpError> {
        self.access(cpu, space, address, Access::Write, value)
            .map(|_| ())
    }

    fn load(
        &self,
        cpu: usize,
        space: SpaceSlot,
        address: u64,
        access: Access,
    ) -> Result<u64, OpError> {
        self.access(cpu, space, address, access, 0)
    }

    fn peek(&self, cpu: usize, space: SpaceSlot, address: u64) -> Option<u64> {
        let space = self.space(space).ok()?;
        self.on(cpu, || {
            let loaded = space.load().ok()?;
            self.mmu(cpu).peek(loaded.tag, loaded.root, address)
        })
    }

    fn groups(&self) -> Option<&dyn Groups> {
        (self.vm.design().groups != GroupMode::Off).then_some(self)
    }

    fn victim(&self) -> Option<(SpaceSlot, u64)> {
        let victim = self.machine().last_victim()?;
        let mut spaces = self.names.spaces.each();
        let (slot, _) = spaces.find(|&(_, name)| name == victim.space)?;
        Some((SpaceSlot(slot), victim.pages))
    }

    fn leaves(&self, space: SpaceSlot, leaf: &mut dyn FnMut(Leaf)) {
        if let Ok(space) = self.space(space) {
            self.on(0, || {
                let _ = space.for_each_leaf(|first: Vpn, frame, pages, prot| {
                    // A page that allows nothing is not resident to a program.
                    if !prot.is_none() {
                        leaf(Leaf {
                            page: first.0,
                            pages,
                            frame: u64::from(frame.0),
                            prot: crate::op::Prot {
                                read: prot.can_read(),
                                write: prot.can_write(),
                                execute: prot.can_execute(),
                            },
                        });
                    }
                });
            });
        }
    }

    fn sync(&self, cpu: usize) -> Result<(), OpError> {
        self.on(cpu, || {
            for (_, bits) in self.names.files.each() {
                let synced = self.vm.file(ObjectId::from_bits(bits)).sync();
                synced.map_err(file_error)?;
            }
            Ok(())
        })
    }

    fn stored_word(&self, file: FileSlot, offset: u64) -> Option<u64> {
        self.machine()
            .store()
            .stored_word(u64::from(file.0), offset)
    }

    fn file_word(&self, file: FileSlot, offset: u64) -> Option<u64> {
        self.on(0, || {
            let mut word = [0; 8];
            let read = self
                .file(file)
                .ok()?
                .read(ReadRequest::bytes(offset, &mut [&mut word]));
            (read == Ok(word.len())).then(|| u64::from_ne_bytes(word))
        })
    }

    fn clear(&self, cpu: usize) {
        self.on(cpu, || self.executor().clear());
    }

    fn audit(&self) -> Result<(), String> {
        self.on(0, || match self.vm.audit() {
            Ok(_) => Ok(()),
            Err(failure) => Err(failure.to_string()),
        })
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let mut counters = self.list_counters();
        counters.extend(self.meter.counters());
        counters
    }

    fn memory(&self) -> Vec<(&'static str, u64, u64)> {
        self.list_memory()
    }

    fn mapping_histogram(&self) -> Vec<u64> {
        let sharing = self.on(0, || vellum::probe::sharing(&self.vm));
        sharing.anonymous.to_vec()
    }
}
