//! Simulations of TLBs held against this machine: programs are run by pages of 4 KiB and of 2 MiB, and
//! the difference of their times is set beside that of simulated translation.
//!
//! Every result is a file in the directory of `--state`, so a run that was stopped goes on where it
//! was. The page is made of all results that are there.

mod page;
mod programs;

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};
use vellum_calibrate::{Backing, Effort, Mapping, calibrate, reach, reached};
use vellum_description::{Description, PageSize, Translation};
use vellum_import::{AccessKind, Format, Input, Streamed};
use vellum_lab::clock::{Clock, HostClock};
use vellum_terminal::progress::{Interrupt, Progress, Style};
use vellum_tlb::{Access, Counts, Simulator};

use crate::command::target;
use programs::{PROGRAMS, Program, Words};

/// Where the simulated memory of the programs here lies.
const BASE: u64 = 1 << 40;
/// The program of somebody else, as a shell runs it, and what it is run on.
const SORT: &str = "sort, 100,000 lines";
const SORT_RUN: &str = "LC_ALL=C exec sort --parallel=1 words";
const SORT_PREPARE: &str =
    "test -f words || seq 1 100000 | awk '{ print ($1 * 7919) % 1000003, $1 }' > words";
/// Runs of it that are timed together: one is too short for the kernel's clock.
const SORT_RUNS: u32 = 10;

#[derive(clap::Args)]
pub struct Args {
    /// Where results are kept, and found again by the next run [default: target/tlb]
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// Runs of each program by each size of page
    #[arg(short = 'n', long, default_value_t = 9, value_parser = clap::value_parser!(u32).range(3..1000))]
    rounds: u32,
    /// Make no runs, only the page of what is there
    #[arg(long)]
    table: bool,
}

/// Makes the runs that are missing and writes docs/results/tlb.md.
pub fn run(args: &Args) -> Result<(), String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let root = root.canonicalize().map_err(|error| error.to_string())?;
    let state = args
        .state
        .clone()
        .unwrap_or_else(|| target(&root).join("tlb"));
    if !args.table {
        fs::create_dir_all(&state).map_err(|error| format!("{}: {error}", state.display()))?;
        measure(&state, args.rounds)?;
    }
    let machine = keep(&state.join("machine.json"), || {
        Err("no result; make a run".to_owned())
    })?;
    let names = PROGRAMS.iter().map(|program| program.name).chain([SORT]);
    let kept = names
        .map(|name| result(&state, name))
        .filter(|path| path.exists());
    let kept: Result<Vec<Value>, String> = kept.map(|path| read(&path)).collect();
    let path = root.join("docs/results/tlb.md");
    fs::write(&path, page::render(&machine, &kept?))
        .map_err(|error| format!("{}: {error}", path.display()))
}

fn measure(state: &Path, rounds: u32) -> Result<(), String> {
    let described = state.join("this.toml");
    if !described.exists() {
        let mut go_on = |what: &'static str| {
            eprintln!("measuring {what}");
            true
        };
        let machine = calibrate(Effort::Full, &mut go_on).map_err(|error| error.to_string())?;
        write(&described, &machine.to_string())?;
    }
    let machine = Description::read(&described).map_err(|error| error.to_string())?;
    let translation = machine.translation.as_ref().ok_or("no TLBs in this.toml")?;
    keep(&state.join("machine.json"), || {
        let found = reach(Effort::Full).map_err(|error| error.to_string())?;
        Ok(json!({
            "date": date()?,
            "kernel": trimmed("/proc/sys/kernel/osrelease"),
            "title": machine.title,
            "cpus": std::thread::available_parallelism().map_or(1, usize::from),
            "reaches": found.map(|found| found.reaches()),
            "reached": reached(found.as_ref()),
        }))
    })?;
    for program in PROGRAMS {
        keep(&result(state, program.name), || {
            eprintln!("{}", program.name);
            let [small, large] = native(&program, rounds)?;
            Ok(found(
                &program,
                [small, large],
                simulated(&program, translation),
            ))
        })?;
    }
    keep(&result(state, SORT), || {
        eprintln!("{SORT}");
        let program = Program {
            name: SORT,
            counts: true,
            words: 0,
            prepare: None,
            run: None,
        };
        let times = sort_natively(state, rounds)?;
        Ok(found(&program, times, sort_simulated(state, translation)?))
    })?;
    Ok(())
}

/// A result that is there, or that `make` makes.
fn keep(path: &Path, make: impl FnOnce() -> Result<Value, String>) -> Result<Value, String> {
    if path.exists() {
        return read(path);
    }
    let made = make()?;
    write(path, &format!("{made:#}\n"))?;
    Ok(made)
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    let part = path.with_extension("part");
    let written = fs::write(&part, text).and_then(|()| fs::rename(&part, path));
    written.map_err(|error| format!("{}: {error}", path.display()))
}

fn read(path: &Path) -> Result<Value, String> {
    let refused = |why: &str| format!("{}: {why}", path.display());
    let text = fs::read_to_string(path).map_err(|error| refused(&error.to_string()))?;
    serde_json::from_str(&text).map_err(|error| refused(&error.to_string()))
}

fn result(state: &Path, name: &str) -> PathBuf {
    let name = name.split(',').next().unwrap_or(name).replace(' ', "-");
    state.join(name).with_extension("json")
}

fn trimmed(path: &str) -> String {
    fs::read_to_string(path)
        .unwrap_or_default()
        .trim()
        .to_owned()
}

fn date() -> Result<String, String> {
    let output = Command::new("date").args(["-u", "+%-d %B %Y"]).output();
    let output = output.map_err(|error| format!("date: {error}"))?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn found(program: &Program, times: [Vec<f64>; 2], [small, large]: [Counts; 2]) -> Value {
    let counts = |counts: Counts| {
        json!({
            "walks": counts.walks,
            "misses": counts.misses,
            "ns": (counts.hits_ps + counts.walks_ps) as f64 / 1e3,
        })
    };
    json!({
        "name": program.name,
        "counts": program.counts,
        "load": trimmed("/proc/loadavg"),
        "small_ns": times[0],
        "large_ns": times[1],
        "accesses": small.accesses,
        "small": counts(small),
        "large": counts(large),
    })
}

/// CPU time of a program here by pages of either size, run in turn.
fn native(program: &Program, rounds: u32) -> Result<[Vec<f64>; 2], String> {
    let clock = HostClock::new();
    let bytes = program.words * 8;
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..rounds {
        for (times, backing) in times.iter_mut().zip([Backing::Small, Backing::Large]) {
            let memory = Mapping::touched_by(bytes, backing);
            let mut memory = memory.map_err(|error| format!("{}: {error}", program.name))?;
            if backing == Backing::Large && !memory.is_large() {
                return Err(
                    "the kernel gives no pages of 2 MiB: THP must be `madvise` or `always`"
                        .to_owned(),
                );
            }
            let mut words = Plain(memory.words());
            program.prepared(words.0);
            let before = clock.cpu_ns();
            std::hint::black_box(program.plain(&mut words));
            times.push((clock.cpu_ns() - before) as f64);
        }
    }
    Ok(times)
}

/// What its accesses ask of TLBs by pages of either size.
fn simulated(program: &Program, machine: &Translation) -> [Counts; 2] {
    let mut memory = vec![1; program.words];
    program.prepared(&mut memory);
    let mut noted = Noted {
        words: &mut memory,
        simulators: [PageSize::K4, PageSize::M2].map(|size| (Simulator::new(machine), size)),
    };
    program.noted(&mut noted);
    noted.simulators.map(|(simulator, _)| simulator.counts())
}

/// Memory as it is.
pub struct Plain<'w>(&'w mut [u64]);

impl Words for Plain<'_> {
    fn load(&mut self, at: usize) -> u64 {
        self.0[at]
    }

    fn store(&mut self, at: usize, value: u64) {
        self.0[at] = value;
    }
}

/// Memory whose accesses are simulated.
pub struct Noted<'w> {
    words: &'w mut [u64],
    simulators: [(Simulator, PageSize); 2],
}

impl Noted<'_> {
    fn note(&mut self, at: usize) {
        let access = Access {
            address: BASE + 8 * at as u64,
            ..Access::default()
        };
        for (simulator, size) in &mut self.simulators {
            simulator.access(access, *size);
        }
    }
}

impl Words for Noted<'_> {
    fn load(&mut self, at: usize) -> u64 {
        self.note(at);
        self.words[at]
    }

    fn store(&mut self, at: usize, value: u64) {
        self.note(at);
        self.words[at] = value;
    }
}

fn shell(state: &Path, script: &str) -> Command {
    let mut shell = Command::new("sh");
    shell
        .current_dir(state)
        .args(["-c", script])
        .stdout(Stdio::null());
    shell
}

/// User time of sort(1), whose malloc asks for pages of 2 MiB or whose process gets none.
fn sort_natively(state: &Path, rounds: u32) -> Result<[Vec<f64>; 2], String> {
    crate::command::succeed(&mut shell(state, SORT_PREPARE))?;
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..rounds {
        for (times, large) in times.iter_mut().zip([false, true]) {
            let before = children_user_ns();
            for _ in 0..SORT_RUNS {
                let mut sort = shell(state, SORT_RUN);
                match large {
                    true => {
                        sort.env("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1");
                    }
                    // SAFETY: prctl is one system call, which allocates nothing.
                    false => unsafe {
                        sort.pre_exec(|| {
                            libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0);
                            Ok(())
                        });
                    },
                }
                crate::command::succeed(&mut sort)?;
            }
            times.push((children_user_ns() - before) / f64::from(SORT_RUNS));
        }
    }
    Ok(times)
}

/// User time of all children that have ended.
fn children_user_ns() -> f64 {
    // SAFETY: all zero is a value of this type, and the call writes no more than one.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_CHILDREN, &mut usage);
        usage
    };
    usage.ru_utime.tv_sec as f64 * 1e9 + usage.ru_utime.tv_usec as f64 * 1e3
}

/// What sort(1) asks of TLBs, as lackey tells its accesses.
fn sort_simulated(state: &Path, machine: &Translation) -> Result<[Counts; 2], String> {
    let lackey = "exec valgrind --tool=lackey --trace-mem=yes --log-fd=9 9>&1 >/dev/null \
                  sort --parallel=1 words";
    let mut command = shell(state, lackey);
    let child = command
        .env("LC_ALL", "C")
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let mut child: Child = child.map_err(|error| format!("valgrind: {error}"))?;
    let output = child.stdout.take().ok_or("no output of valgrind")?;
    let mut simulators = [PageSize::K4, PageSize::M2].map(|size| (Simulator::new(machine), size));
    let mut each = |streamed: Streamed| {
        for (simulator, size) in &mut simulators {
            let access = Access {
                address: streamed.address,
                fetch: streamed.kind == AccessKind::Execute,
                ..Access::default()
            };
            // Its heap is mapped by 2 MiB, not its text, which is the smaller part by far.
            let size = if access.fetch { PageSize::K4 } else { *size };
            simulator.access(access, size);
        }
    };
    let input = Input::new("lackey", Box::new(std::io::BufReader::new(output)));
    let mut progress = Progress::new(Style::Quiet, "simulating", 0, "bytes");
    let interrupt = Interrupt::manual();
    let read = vellum_import::stream(
        vec![input],
        Some(Format::Lackey),
        &mut progress,
        &interrupt,
        &mut each,
    );
    read.map_err(|error| error.to_string())?;
    let status = child.wait().map_err(|error| error.to_string())?;
    match status.success() {
        true => Ok(simulators.map(|(simulator, _)| simulator.counts())),
        false => Err(format!("valgrind: {status}")),
    }
}
