//! Files and first stores on the host's kernel, in the calls that the core makes, and
//! `tmpfs` and `tmpfs-calls`, which hold files in memory on both against each other in one
//! run.

mod measure;
mod memory;
pub mod on_linux;
mod plan;
mod reach;
mod sides;

use super::findings::{Findings, Run, arms_of};
use super::host::tmpfs::{mount_tmpfs, with_own_mounts};
use super::lat_mmap::sizes;
use super::request::Request;
use crate::compare::{Arenas, Builder};
use crate::failure::Failure;
use crate::host::forkfault::{Helper, TrapCost};
use crate::host::{HostError, cpus, kernel_release};
use measure::Times;
use plan::{BLOCKS, Place, Step};
use sides::{Copying, Core, Side, Tmpfs};
use vellum_terminal::progress::Interrupt;
use vellum_terminal::text::plural;

const MIB: u64 = 1 << 20;

/// What is not in files, on either side.
const SPARE: u64 = 128 * MIB;

/// CPUs that work at once at the most.
const CPUS: usize = 2;

/// Writes and reads of files in memory: a design, the host's tmpfs, and `memcpy`.
///
/// # Errors
/// The design is refused, the host lets this user mount nothing or has no memory, or the
/// user stopped it before a pass was complete.
pub fn files(request: &Request, interrupt: &Interrupt) -> Result<Findings, Failure> {
    let bytes = request.sizes.get("mebibytes") * MIB;
    let at_once = cpus().min(CPUS);
    let mut steps: Vec<Step> = BLOCKS
        .iter()
        .flat_map(|block| plan::alone(bytes, *block))
        .collect();
    let timed_alone = steps.iter().filter(|step| step.units > 0.0).count();
    if at_once == CPUS {
        for block in BLOCKS {
            for place in [Place::One, Place::Files, Place::Halves] {
                steps.extend(plan::together(bytes / 2, block, place));
            }
        }
    }
    let memcpy = |cpus| -> Box<dyn Side> { Box::new(Copying::new(bytes, cpus)) };
    let beside = Beside {
        bytes,
        sizes: &[],
        cpus: at_once,
        third: Some(("memcpy", &memcpy)),
    };
    let mut findings = beside.measure(steps, request, interrupt)?;
    let run = &mut findings.runs[0];
    run.title = format!("files of {} MiB", bytes / MIB);
    run.facts.push(
        "Data comes from one block and goes to one. memcpy goes to and from memory as large as \
         the file, which is resident: new pages are held against the same as the others."
            .to_owned(),
    );
    if at_once < CPUS {
        run.facts
            .push("This host has one CPU: what a second one gains is left out.".to_owned());
    }
    let (alone, together) = run.figures.split_at(timed_alone);
    let gains = reach::gains(together, request);
    findings.blocks = [reach::rates(alone), gains]
        .into_iter()
        .filter(|block| !block.is_empty())
        .collect();
    Ok(findings)
}

/// Calls that move no bytes: mappings as `lat_mmap` makes them, and truncation.
///
/// # Errors
/// As [`files`].
pub fn calls(request: &Request, interrupt: &Interrupt) -> Result<Findings, Failure> {
    let mebibytes = request.sizes.get("mebibytes");
    let (bytes, sizes) = (mebibytes * MIB, sizes(mebibytes));
    let samples = request.sizes.get("samples");
    let steps = plan::calls(bytes, &sizes, samples);
    let beside = Beside {
        bytes,
        sizes: &sizes,
        cpus: 1,
        third: None,
    };
    let mut findings = beside.measure(steps, request, interrupt)?;
    let run = &mut findings.runs[0];
    run.title = format!("a file of {mebibytes} MiB");
    run.facts.push(format!(
        "{} of each size: map that much of the file shared, store a byte every 16 KiB in its \
         first tenth, unmap it. Then the file is truncated to nothing.",
        plural(samples as usize, "iteration", "iterations")
    ));
    Ok(findings)
}

/// What makes a side for a number of CPUs.
type Maker<'m> = &'m (dyn Fn(usize) -> Box<dyn Side> + Sync);

/// The sides of a run: a design, the host's tmpfs, perhaps a third, the design again.
struct Beside<'b> {
    /// Size of the file.
    bytes: u64,
    /// Sizes of mappings.
    sizes: &'b [super::lat_mmap::Size],
    /// CPUs that work at once.
    cpus: usize,
    /// What else there is, and what it is called.
    third: Option<(&'static str, Maker<'b>)>,
}

impl Beside<'_> {
    fn measure(
        &self,
        steps: Vec<Step>,
        request: &Request,
        interrupt: &Interrupt,
    ) -> Result<Findings, Failure> {
        let [design] = &request.designs[..] else {
            return Err(Failure::usage(format!(
                "{} holds one design against the host's kernel: give one, as in --a rmap=family",
                request.benchmark.name
            )));
        };
        let needed = (self.bytes / 4 * 5 + SPARE).next_multiple_of(64 * MIB);
        let ram = request.ram_bytes.unwrap_or(needed);
        let arenas = Arenas::new(2, self.cpus, ram).prefaulted();
        let core = |arena: usize| {
            let engine = arenas
                .build(design, arena)
                .map_err(|error| Failure::usage(error.to_string()))?;
            Core::new(engine, self.sizes)
        };
        let (ours, again) = (core(0)?, core(1)?);
        let kernel = format!("tmpfs of Linux {}", kernel_release());
        let mut given = vec![design.clone(), kernel];
        given.extend(self.third.iter().map(|(name, _)| (*name).to_owned()));
        let trap = Helper::this()
            .and_then(|helper| helper.trap_cost(interrupt))
            .map_err(HostError::into_failure)?;
        let measured = with_own_mounts(|directory| {
            let place = mount_tmpfs(directory, self.bytes + SPARE)?;
            let tmpfs = Tmpfs::new(directory, 0..plan::FILES, trap, self.cpus)?;
            let third = self.third.map(|(_, make)| make(self.cpus));
            let mut sides: Vec<&dyn Side> = vec![&ours, &tmpfs];
            sides.extend(third.as_deref());
            sides.push(&again);
            // What fails in here has its exit code already.
            Ok((place, Times::take(steps, &sides, request, interrupt)))
        });
        let (place, times) = measured.map_err(HostError::into_failure)?;
        let times = times?;
        Ok(Findings {
            arms: arms_of(&given, &[]),
            runs: vec![Run {
                facts: vec![format!("The host's files are on {place}."), entries(&trap)],
                passes: times.passes,
                ram_bytes: Some(ram),
                figures: times.figures(request),
                ..Run::default()
            }],
            interrupted: times.interrupted,
            ..Findings::default()
        })
    }
}

/// What is taken off the kernel's times.
fn entries(trap: &TrapCost) -> String {
    let fault = match trap.fault_ns {
        Some(fault) => format!(", and {fault:.0} ns at each page fault"),
        None => "; what it takes at a page fault cannot be measured on this machine, and is in \
                 the times"
            .to_owned(),
    };
    format!(
        "Taken off the kernel's times: {:.0} ns for entering it and returning at each system \
         call{fault}.",
        trap.syscall_ns
    )
}
