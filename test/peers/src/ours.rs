//! Vellum as the rows drive it: frames and tables on a board, spaces on a
//! hosted machine.

use std::sync::Arc;

use vellum::addr::{PageRange, Prot, Vpn};
use vellum::design::Design;
use vellum::frame::PhysicalMemory;
use vellum::platform::CpuId;
use vellum::rmap::Family;
use vellum::space::{MapRequest, Placement, Space};
use vellum::table::X86_64;
use vellum::{SpaceId, Vm};
use vellum_machine::{Arena, ArenaOptions, Machine, MachineConfig};

use crate::Failure;
use crate::board::Board;

/// Arm 0 and the control.
pub const NAMES: [&str; 2] = ["Vellum", "Vellum again"];

/// All of a board's frames.
pub type Memory = PhysicalMemory<Board>;
/// The manager with the default design.
pub type Manager = Vm<Arc<Machine>, X86_64, Family>;

/// A machine with two CPUs. With `prefault` the host supplies its memory now.
fn machine(ram: u64, prefault: bool) -> Result<Arc<Machine>, Failure> {
    let mut config = MachineConfig::new(ram);
    config.cpus = 2;
    let options = ArenaOptions {
        huge_pages: true,
        prefault,
    };
    let bytes = config
        .arena_bytes()
        .map_err(Failure::because("the machine"))?;
    let arena =
        Arena::with_options(bytes, options).map_err(Failure::because("the machine's memory"))?;
    let machine = Machine::new(config, arena).map_err(Failure::because("the machine"))?;
    Ok(Arc::new(machine))
}

/// All frames of a board of its own.
pub fn memory(ram: u64) -> Result<Memory, Failure> {
    PhysicalMemory::new(Board::new(ram)?).map_err(Failure::because("physical memory"))
}

/// A manager with one space.
pub struct Spaces {
    pub vm: Manager,
    pub space: SpaceId,
}

impl Spaces {
    pub fn new(ram: u64, prefault: bool) -> Result<Spaces, Failure> {
        let vm: Manager = Vm::new(machine(ram, prefault)?, Design::default())
            .map_err(Failure::because("a manager"))?;
        let space = vm
            .platform()
            .run_on(CpuId(0), || vm.create_space().map(Space::id))
            .map_err(Failure::because("a space"))?;
        Ok(Spaces { vm, space })
    }

    /// Calls `work` on the machine's first CPU.
    pub fn run<T>(&self, work: impl FnOnce(&Manager, SpaceId) -> T) -> T {
        let machine = Arc::clone(self.vm.platform());
        machine.run_on(CpuId(0), || work(&self.vm, self.space))
    }
}

/// A request for private memory at `range`.
pub fn private(range: PageRange, prot: Prot) -> MapRequest {
    let placement = Placement::FixedFree(Vpn(range.start.0));
    MapRequest::anonymous(range.pages(), prot).at(placement)
}
