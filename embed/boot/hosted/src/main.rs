//! `vellum-boot-hosted KIND FAULTS`: that many faults of a kind on the hosted machine,
//! after others that nobody counts.

#[path = "../../src/check/path.rs"]
mod path;

use std::error::Error;

use vellum::platform::CpuId;
use vellum::rmap::Family;
use vellum::table::X86_64;
use vellum::{Design, Vm};
use vellum_machine::{Arena, Machine, MachineConfig};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut number = || arguments.next().and_then(|text| text.parse::<u64>().ok());
    let (Some(kind), Some(faults)) = (number(), number()) else {
        return Err("usage: vellum-boot-hosted KIND FAULTS".into());
    };
    let config = MachineConfig::new(128 << 20);
    let arena = Arena::new(config.arena_bytes()?)?;
    let machine = Machine::new(config, arena)?;
    let vm: Vm<Machine, X86_64, Family> = Vm::new(machine, Design::default())?;
    let _cpu = vm.platform().enter(CpuId(0));
    let kind = kind as usize;
    let (space, _) = path::prepare(&vm, kind).ok_or("out of memory")?;
    let done = path::faults(&vm, space, kind, 0, path::WARM)
        && path::faults(&vm, space, kind, path::WARM, path::WARM + faults);
    if done {
        Ok(())
    } else {
        Err("a fault was refused".into())
    }
}
