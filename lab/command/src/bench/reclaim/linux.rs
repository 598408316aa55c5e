//! The programs on the host's kernel, in a memory control group.

use std::ffi::CString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::group::{Group, Places};
use super::processes::{Crew, Took};
use super::programs::{Memory, Program, program};
use crate::bench::core::script::{NOTE, SETUP};
use crate::bench::findings::{self, Findings, Input, Run, Share, figure_of};
use crate::bench::host;
use crate::bench::host::interleave::Interleaved;
use crate::bench::host::tmpfs::file_system;
use crate::bench::{Figure, Request, Variant};
use crate::compare::Load;
use crate::failure::Failure;
use crate::host::HostError;
use crate::host::scratch::Scratch;
use crate::stats::median;
use vellum_terminal::progress::{Interrupt, Progress};
use vellum_terminal::table::grouped;

/// Bytes of a page of the host that is recorded and replayed everywhere here.
const PAGE: u64 = 4096;

/// Bytes of files that are written at once.
const CHUNK: usize = 1 << 20;

/// Room beside the files.
const SPARE: u64 = 64 << 20;

const TIMES: &str = "CPU time is that of the program's processes, traps and system calls included; \
     a process that has no memory reclaims for itself. Elapsed time has the device's, too. Exit is \
     the unmapping of what a process has mapped. A fork copies also what this program has mapped, \
     which is little beside the memory of the processes.";

/// What one pass of a program found.
struct Pass {
    /// Of each slice.
    took: Vec<Took>,
    counts: Vec<(&'static str, u64)>,
}

/// Runs the programs wanted on the host's kernel.
///
/// # Errors
/// The kernel lets this user make no memory control group, a size is refused, something failed,
/// or the user stopped before there was anything to report.
pub fn on_linux(request: &Request, interrupt: &Interrupt) -> Result<Findings, Failure> {
    measure(request, interrupt).map_err(|error| match error {
        Stop::Host(error) => error.into_failure(),
        Stop::Refused(failure) => failure,
    })
}

/// Why there are no findings.
enum Stop {
    Host(HostError),
    Refused(Failure),
}

impl From<HostError> for Stop {
    fn from(error: HostError) -> Stop {
        Stop::Host(error)
    }
}

fn measure(request: &Request, interrupt: &Interrupt) -> Result<Findings, Stop> {
    let places = Places::find().map_err(HostError::Unsupported)?;
    let bytes = request.ram_bytes.unwrap_or(request.benchmark.ram_bytes);
    let memory = Memory {
        pages: bytes / PAGE,
        shift: PAGE.trailing_zeros(),
    };
    let swap = match places.forbid_swap() {
        true => 0,
        false => free_swap(),
    };
    let mut findings = host::of_this_kernel();
    findings.notes.push(TIMES.to_owned());
    for variant in &request.variants {
        let program = program(variant.name, &request.sizes, memory, request.method.seed);
        let program = program.map_err(Stop::Refused)?;
        let needs = program.swap_pages * PAGE;
        if needs > swap {
            findings.notes.push(format!(
                "Skipped: {} may need {} MiB of swap, and {}.",
                variant.name,
                grouped(needs >> 20),
                match swap {
                    0 => "there is none for a group of this host: its private pages could not \
                          leave memory, and the kernel would kill it"
                        .to_owned(),
                    swap => format!("{} MiB are free", grouped(swap >> 20)),
                }
            ));
            continue;
        }
        let one = One {
            request,
            interrupt,
            places: &places,
            memory: bytes,
            program: &program,
        };
        match one.run(variant) {
            Ok((run, interrupted)) => {
                findings.runs.push(run);
                findings.interrupted |= interrupted;
            }
            Err(HostError::Interrupted) if !findings.runs.is_empty() => {
                findings.interrupted = true;
            }
            Err(error) => return Err(error.into()),
        }
        if findings.interrupted {
            return Ok(findings);
        }
    }
    match findings.runs.is_empty() {
        true => Err(HostError::Unsupported(findings.notes.split_off(2).join(" ")).into()),
        false => Ok(findings),
    }
}

/// A program that is run.
struct One<'o> {
    request: &'o Request,
    interrupt: &'o Interrupt,
    places: &'o Places,
    /// Bytes of the group.
    memory: u64,
    program: &'o Program,
}

impl One<'_> {
    fn run(&self, variant: &Variant) -> Result<(Run, bool), HostError> {
        let files = Files::new(&self.program.files, self.interrupt)?;
        let slices = self.program.script.slices(1);
        let steps = (2 * self.request.passes * slices.len()) as u64;
        let mut progress = Progress::new(self.request.style, variant.name, steps, "slices");
        let seed = self.request.method.seed;
        let passes = Interleaved::collect(self.request.passes, seed, |_| {
            self.pass(&files, &mut progress)
        })?;
        progress.finish();
        let mut facts = self.program.facts.clone();
        facts.push(format!(
            "The processes are in a memory control group (version {}) with {} MiB.",
            self.places.version.number(),
            grouped(self.memory >> 20)
        ));
        if !self.program.files.is_empty() {
            facts.push(format!(
                "The files are on {}; the kernel drops their pages before each pass.",
                files.kind
            ));
        }
        let counters: Vec<Vec<_>> = passes
            .arms
            .iter()
            .map(|arm| arm.iter().map(|pass| pass.counts.clone()).collect())
            .collect();
        let mut run = Run {
            title: format!("{}: {}", variant.name, variant.summary),
            facts,
            passes: passes.passes(),
            figures: self.figures(&passes),
            counters: findings::rows(&counters),
            ..Run::default()
        };
        run.reclaim = self.costs(&run, &passes);
        Ok((run, passes.interrupted))
    }

    /// One pass in a group of its own.
    fn pass(&self, files: &Files, progress: &mut Progress) -> Result<Pass, HostError> {
        files.forget()?;
        let group = Group::new(self.places, self.memory).map_err(HostError::Unsupported)?;
        let script = &self.program.script;
        let mut crew = Crew::new(script.ops(0), &files.paths, PAGE as usize, &group)?;
        let mut took = Vec::new();
        for slice in script.slices(1) {
            if self.interrupt.requested() {
                return Err(HostError::Interrupted);
            }
            let ops = &slice.ops[0];
            took.push(crew.execute(ops.start, ops.end)?);
            progress.advance(1);
        }
        let counts = group.counts();
        // Its processes first: a group goes when it is empty.
        drop(crew);
        Ok(Pass { took, counts })
    }

    /// Figures of the phases, by CPU time and by elapsed time.
    fn figures(&self, passes: &Interleaved<Pass>) -> Vec<Figure> {
        let script = &self.program.script;
        let phases: Vec<u16> = script.slices(1).iter().map(|s| script.phase(s)).collect();
        let figure = |number: usize, name: String, clock, ns: fn(&Took) -> u64| {
            let of_pass = |pass: &Pass| -> Vec<u64> {
                let slices = pass.took.iter().zip(&phases);
                let mine = slices.filter(|(_, phase)| usize::from(**phase) == number);
                mine.map(|(took, _)| ns(took).max(1)).collect()
            };
            let arms = passes.arms.iter();
            let input = Input {
                name: &name,
                per: script.phases()[number].per,
                units: script.phases()[number].units as f64,
                clock,
                times: arms.map(|arm| arm.iter().map(of_pass).collect()).collect(),
                spread_units: None,
            };
            figure_of(&input, &self.request.method)
        };
        let timed = script.phases().iter().enumerate();
        let timed = timed
            .skip(usize::from(NOTE) + 1)
            .filter(|(_, phase)| phase.units > 0);
        timed
            .flat_map(|(number, phase)| {
                [
                    figure(
                        number,
                        phase.name.clone(),
                        "CPU time of the processes",
                        |took| took.cpu_ns,
                    ),
                    figure(
                        number,
                        format!("{}, elapsed", phase.name),
                        "monotonic clock",
                        |took| took.elapsed_ns,
                    ),
                ]
            })
            .collect()
    }

    /// The table of what too little memory cost, as far as a kernel says it.
    fn costs(&self, run: &Run, passes: &Interleaved<Pass>) -> Vec<Share> {
        let script = &self.program.script;
        let slices = script.slices(1);
        let total = |ns: fn(&Took) -> u64| -> Vec<f64> {
            let of_pass = |pass: &Pass| {
                let timed = pass.took.iter().zip(&slices);
                let timed = timed.filter(|(_, slice)| script.phase(slice) != SETUP.0);
                timed.map(|(took, _)| ns(took)).sum::<u64>() as f64 / 1e6
            };
            let of_arm = |arm: &Vec<Pass>| {
                let passes: Vec<f64> = arm.iter().map(of_pass).collect();
                median(&passes).unwrap_or(0.0)
            };
            passes.arms.iter().map(of_arm).collect()
        };
        let count = |name: &str| -> Option<Vec<f64>> {
            let row = run.counters.iter().find(|row| row.name == name)?;
            let values = row.values.iter();
            Some(values.map(|value| value.unwrap_or(0) as f64).collect())
        };
        let row = |name: &str, values| Share {
            name: name.to_owned(),
            values,
        };
        let mut rows = vec![
            row("CPU time, ms", total(|took| took.cpu_ns)),
            row("elapsed, ms", total(|took| took.elapsed_ns)),
        ];
        let reclaimed = count("reclaim: pages reclaimed");
        if let (Some(scanned), Some(reclaimed)) = (count("reclaim: pages scanned"), &reclaimed) {
            let each = scanned.iter().zip(reclaimed);
            let each = each.map(|(scanned, reclaimed)| scanned / reclaimed.max(1.0));
            rows.push(row("pages reclaimed", reclaimed.clone()));
            rows.push(row("pages scanned for each", each.collect()));
        }
        let more = [
            ("refaults", "reclaim: refaults"),
            ("faults that read a device", "faults that read a device"),
        ];
        let more = more
            .into_iter()
            .filter_map(|(name, from)| Some(row(name, count(from)?)));
        rows.extend(more);
        rows
    }
}

/// Bytes of swap that are free.
fn free_swap() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("SwapFree:"));
    let kib = line.and_then(|rest| rest.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    kib.unwrap_or(0) << 10
}

/// Files of a program, on a device.
struct Files {
    paths: Vec<CString>,
    /// The file system that they are on.
    kind: String,
    _scratch: Option<Scratch>,
}

impl Files {
    /// Writes files of so many pages each.
    fn new(pages: &[u64], interrupt: &Interrupt) -> Result<Files, HostError> {
        if pages.is_empty() {
            return Ok(Files {
                paths: Vec::new(),
                kind: String::new(),
                _scratch: None,
            });
        }
        let parent = std::env::temp_dir();
        let kind = file_system(&parent);
        if kind == "tmpfs" || kind == "ramfs" {
            return Err(HostError::Unsupported(format!(
                "{} is a {kind}, whose pages are on no device: set TMPDIR to a directory on a disk",
                parent.display()
            )));
        }
        let bytes = pages.iter().sum::<u64>() * PAGE;
        let doing = || HostError::io(format!("writing files in {}", parent.display()));
        match free_bytes(&parent).map_err(doing())? {
            free if free < bytes + SPARE => {
                return Err(HostError::Unsupported(format!(
                    "the files have {} MiB, and {} has room for {}: set TMPDIR to a larger one, or \
                     make --ram or --size times= smaller",
                    grouped(bytes >> 20),
                    parent.display(),
                    grouped(free >> 20),
                )));
            }
            _ => {}
        }
        let scratch = Scratch::new(&parent, "reclaim").map_err(doing())?;
        let block = vec![7; CHUNK];
        let write = |(number, pages): (usize, &u64)| -> Result<CString, HostError> {
            if interrupt.requested() {
                return Err(HostError::Interrupted);
            }
            let path: PathBuf = scratch.path().join(number.to_string());
            let mut file = File::create_new(&path).map_err(doing())?;
            let mut left = (pages * PAGE) as usize;
            while left > 0 {
                let part = left.min(CHUNK);
                file.write_all(&block[..part]).map_err(doing())?;
                left -= part;
            }
            file.sync_all().map_err(doing())?;
            CString::new(path.as_os_str().as_bytes())
                .map_err(|error| doing()(io::Error::from(error)))
        };
        Ok(Files {
            paths: pages
                .iter()
                .enumerate()
                .map(write)
                .collect::<Result<_, _>>()?,
            kind,
            _scratch: Some(scratch),
        })
    }

    /// Has the kernel drop their pages from memory, after it wrote those that are newer.
    fn forget(&self) -> Result<(), HostError> {
        for path in &self.paths {
            let path = Path::new(std::ffi::OsStr::from_bytes(path.as_bytes()));
            let forgotten = File::open(path).and_then(|file| {
                file.sync_all()?;
                // SAFETY: takes integers.
                let result = unsafe {
                    libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED)
                };
                match result {
                    0 => Ok(()),
                    error => Err(io::Error::from_raw_os_error(error)),
                }
            });
            forgotten.map_err(HostError::io("dropping the files from memory"))?;
        }
        Ok(())
    }
}

/// Bytes that a file system has for this user.
fn free_bytes(path: &Path) -> io::Result<u64> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: an all-zero value of numbers.
    let mut found: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: the path ends in a zero byte; both outlive the call.
    match unsafe { libc::statvfs(path.as_ptr(), &mut found) } {
        0 => Ok(found.f_bavail * found.f_frsize),
        _ => Err(io::Error::last_os_error()),
    }
}
