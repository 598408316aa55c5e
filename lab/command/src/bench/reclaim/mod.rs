//! `reclaim`: programs with more than memory, on machines from which pages leave for a device
//! of a stated speed, and on the host's kernel.

mod group;
mod linux;
mod measures;
mod process;
mod processes;
mod programs;
mod rmap_test;
mod zipf;

use vellum_engine::{DeviceModel, EngineError, has_groups, reclaims};

use super::core::run::{self, Machine, Part};
use super::findings::Findings;
use super::request::Request;
use crate::designs::{common_pages, with_reclaim};
use crate::failure::Failure;
use crate::replay::ram;
use crate::report::device::sentence_of;
pub use linux::on_linux;
use programs::{Memory, Program, program};
pub use rmap_test::under_pressure;
use vellum_terminal::progress::Interrupt;
use vellum_terminal::table::grouped;

/// Times the memory of a group that the machine has around it.
const AROUND: u64 = 2;

/// The device if none is named.
pub const DEVICE: &str = "nvme";

const TIMES: &str = "CPU time has what reclaim and the store do: pages are copied to and from \
     memory of the host. The time of the device is counted for the whole run, its beginning \
     included, and not part of the figures of the phases. Nobody else reclaims: whoever has no \
     memory does it itself.";

const NOT_MODELLED: &str = "Not in these times: trap and system call entry and exit, real \
     inter-processor interrupts, cache misses of user code. Accesses go through a simulated MMU \
     with a TLB, which takes time of its own.";

/// Runs the programs wanted on the core.
///
/// # Errors
/// A design or a size is refused, memory ran out, or the user stopped before there was anything
/// to report.
pub fn on_core(request: &Request, interrupt: &Interrupt) -> Result<Findings, Failure> {
    let (request, name, device) = settled(request)?;
    let request = &request;
    let has_groups = request.designs.iter().any(|design| {
        // Refused before, if it is none.
        has_groups(design).unwrap_or(false)
    });
    let machines = (request.designs.len() + 1) * if has_groups { AROUND as usize } else { 1 };
    let bytes = ram::choose(request.ram_bytes, request.benchmark.ram_bytes, machines);
    let around_group = has_groups.then_some(bytes.saturating_mul(AROUND));
    let shift = common_pages(&request.designs)?.shift;
    let memory = Memory {
        pages: bytes >> shift,
        shift,
    };
    let mut findings = Findings::default();
    for variant in &request.variants {
        let Program {
            script, mut facts, ..
        } = program(variant.name, &request.sizes, memory, request.method.seed)?;
        facts.push(sentence_of(&name, &device));
        if let Some(around) = around_group {
            facts.push(format!(
                "Under designs with groups=on the processes are in a group that may have {} KiB, on a \
                 machine of {}: page tables and the manager's own memory are charged to nobody. The \
                 other machines have {} KiB for everything.",
                grouped(bytes >> 10),
                grouped(around >> 10),
                grouped(bytes >> 10),
            ));
        }
        let title = format!("{}: {}", variant.name, variant.summary);
        let part = Part::new(&title, facts, &script)
            .on(Machine {
                device: Some(device),
                around_group,
                ..Machine::PREFAULTED
            })
            .needing(bytes);
        let done = run::add_part(&mut findings, part, request, interrupt, |run, measured| {
            run.reclaim = measures::of(run, measured);
        })?;
        if done {
            break;
        }
    }
    findings.notes = vec![TIMES.to_owned(), NOT_MODELLED.to_owned()];
    Ok(findings)
}

/// The request with designs under which pages may leave, and the device for which they do.
fn settled(request: &Request) -> Result<(Request, String, DeviceModel), Failure> {
    let mut request = request.clone();
    for design in &mut request.designs {
        *design = with_reclaim(design);
        let refused = |error: EngineError| Failure::usage(error.to_string());
        if !reclaims(design).map_err(refused)? {
            return Err(Failure::usage(format!(
                "design `{design}`: with reclaim=off these programs run out of memory; leave it out"
            )));
        }
    }
    let name = request.device.as_deref().unwrap_or(DEVICE).to_owned();
    let device = DeviceModel::named(&name)
        .ok_or_else(|| Failure::usage(format!("{name}: no such device")))?;
    Ok((request, name, device))
}
