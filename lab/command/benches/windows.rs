//! What windows cost that are never opened: a recorded workload with all page tables in
//! low memory, on `x86-pae` and on the same format without windows (`Format::Reach`).
//!
//! `cargo bench -p vellum-lab --bench windows -- [TRACE [EVENTS]]` replays the first
//! EVENTS of the trace on both, under callgrind, and compares the instructions of the
//! two replays. They are the same in every run. It takes about a minute for each million
//! of events, and needs valgrind. Without arguments: the first million of the shipped
//! kernel build.

use std::fmt::Display;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use vellum::Design;
use vellum::addr::{Geometry, Pfn, Prot, Vpn};
use vellum::rmap::Family;
use vellum::table::{Direct, Format, Marks, Reach, Swapped, Windowed, X86Pae};
use vellum_engine::{Arena, Config, CoreEngine, Engine, machine};
use vellum_lab::replay::{Options, Workload, prepare_events, run};
use vellum_trace::TraceReader;

const DESIGN: &str = "format=x86-pae,userpte=nohigh";
const LOW: u64 = 64 << 20;
const EVENTS: usize = 1_000_000;
const SHIPPED: &str = "traces/kernel-build.vellum";

/// x86-PAE with tables reached in one way or the other.
struct Pae<W>(PhantomData<W>);

// SAFETY: that of `X86Pae`.
unsafe impl<W: Reach + 'static> Geometry for Pae<W> {
    const FRAME_SHIFT: u32 = X86Pae::FRAME_SHIFT;
}

// SAFETY: everything but where tables may lie is that of `X86Pae`.
unsafe impl<W: Reach + Send + Sync + 'static> Format for Pae<W> {
    const NAME: &'static str = X86Pae::NAME;
    type Reach = W;
    const LEVELS: u32 = X86Pae::LEVELS;
    const MAX_LEAF_LEVEL: u32 = X86Pae::MAX_LEAF_LEVEL;
    const USER_END: Vpn = X86Pae::USER_END;
    const FIXED_ROOT: bool = X86Pae::FIXED_ROOT;

    #[inline]
    fn table_entry(table: Pfn, level: u32) -> u64 {
        X86Pae::table_entry(table, level)
    }
    #[inline]
    fn leaf(frame: Pfn, level: u32, prot: Prot, marks: Marks) -> u64 {
        X86Pae::leaf(frame, level, prot, marks)
    }
    #[inline]
    fn is_mapped(entry: u64) -> bool {
        X86Pae::is_mapped(entry)
    }
    #[inline]
    fn is_leaf(entry: u64, level: u32) -> bool {
        X86Pae::is_leaf(entry, level)
    }
    #[inline]
    fn frame(entry: u64, level: u32) -> Pfn {
        X86Pae::frame(entry, level)
    }
    #[inline]
    fn prot(entry: u64, level: u32) -> Prot {
        X86Pae::prot(entry, level)
    }
    #[inline]
    fn is_writable(entry: u64) -> bool {
        X86Pae::is_writable(entry)
    }
    #[inline]
    fn marks(entry: u64) -> Marks {
        X86Pae::marks(entry)
    }
    #[inline]
    fn write_protect(entry: u64) -> u64 {
        X86Pae::write_protect(entry)
    }
    #[inline]
    fn with_marks(entry: u64, marks: Marks) -> u64 {
        X86Pae::with_marks(entry, marks)
    }
    #[inline]
    fn with_prot(entry: u64, level: u32, prot: Prot) -> u64 {
        X86Pae::with_prot(entry, level, prot)
    }
    #[inline]
    fn swap(page: Swapped) -> u64 {
        X86Pae::swap(page)
    }
    #[inline]
    fn swapped(entry: u64) -> Swapped {
        X86Pae::swapped(entry)
    }
}

/// How the tables are reached, by the names that this program gives itself.
const WAYS: [&str; 2] = ["direct", "windowed"];

fn main() -> ExitCode {
    // What `cargo bench` passes on to every program.
    let arguments = std::env::args()
        .skip(1)
        .filter(|argument| argument != "--bench");
    let arguments: Vec<String> = arguments.collect();
    let done = match arguments.first() {
        Some(way) if WAYS.contains(&way.as_str()) => {
            Input::read(&arguments[1..]).and_then(|input| replay(way, &input))
        }
        _ => Input::read(&arguments).and_then(|input| compare(&input)),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("windows: {message}");
            ExitCode::FAILURE
        }
    }
}

/// What is replayed.
struct Input {
    trace: PathBuf,
    events: usize,
}

impl Input {
    fn read(arguments: &[String]) -> Result<Self, String> {
        let events = arguments.get(1).map_or(Ok(EVENTS), |text| {
            let number = text
                .parse()
                .map_err(|_| format!("{text:?} is no number of events"));
            number.and_then(|number| match number {
                0 => Err("there has to be an event to replay".to_owned()),
                _ => Ok(number),
            })
        })?;
        let given = arguments.first().map_or(SHIPPED, String::as_str);
        // Cargo runs benches in the directory of the package, users run cargo above it.
        let trace = match Path::new(given).exists() {
            true => PathBuf::from(given),
            false => Path::new(env!("CARGO_MANIFEST_DIR"))
                .join("../..")
                .join(given),
        };
        Ok(Self { trace, events })
    }

    fn workload(&self) -> Result<Workload, String> {
        let trace = TraceReader::open(&self.trace).map_err(text)?;
        let options = Options {
            pages: vellum_engine::pages_of(DESIGN).map_err(text)?,
            ..Options::default()
        };
        let events = || trace.events().take(self.events);
        prepare_events(trace.header(), events, &options).map_err(text)
    }
}

fn text(error: impl Display) -> String {
    error.to_string()
}

/// Replays on an engine of one of the two formats.
fn replay(way: &str, input: &Input) -> Result<(), String> {
    let workload = input.workload()?;
    let engine: Box<dyn Engine> = match way {
        "direct" => Box::new(engine::<Direct>(&workload)?),
        _ => Box::new(engine::<Windowed>(&workload)?),
    };
    let unexplained = counted_by_callgrind(&workload, engine.as_ref());
    let mut counters = engine.counters().into_iter();
    let windows = counters.find(|counter| counter.0 == "windows to page tables");
    match (unexplained, windows.map(|counter| counter.1)) {
        (0, Some(0)) => Ok(()),
        (0, opened) => Err(format!(
            "{opened:?} windows to page tables, but none is needed"
        )),
        _ => Err(format!(
            "{unexplained} operations went otherwise than recorded"
        )),
    }
}

fn engine<W: Reach + Send + Sync + 'static>(
    workload: &Workload,
) -> Result<CoreEngine<Pae<W>, Family>, String> {
    let config = Config {
        low_bytes: Some(LOW),
        ..Config::new(DESIGN, workload.cpus(), workload.ram_bytes() + LOW)
    };
    let arena = Arena::new(config.ram_bytes as usize).map_err(text)?;
    let design = Design::parse(DESIGN).map_err(text)?;
    CoreEngine::new(machine(&config, arena).map_err(text)?, design).map_err(text)
}

/// The part whose instructions are counted. Returns what went otherwise than recorded,
/// and nothing explains.
#[inline(never)]
fn counted_by_callgrind(workload: &Workload, engine: &dyn Engine) -> u64 {
    run(workload, engine, |_| true).divergences.unexplained()
}

fn compare(input: &Input) -> Result<(), String> {
    let [direct, windowed] = WAYS.map(|way| instructions(way, input));
    let (direct, windowed) = (direct?, windowed?);
    println!(
        "instructions without windows  {direct:>15}\n\
         with windows, none opened     {windowed:>15}  {:+.2} %",
        100.0 * (windowed as f64 / direct as f64 - 1.0)
    );
    Ok(())
}

/// The instructions that callgrind counts in a replay.
fn instructions(way: &str, input: &Input) -> Result<u64, String> {
    let out = std::env::temp_dir().join(format!("windows-{way}-{}.out", std::process::id()));
    let own = std::env::current_exe().map_err(text)?;
    let mut command = Command::new("valgrind");
    command
        .args([
            "--tool=callgrind",
            "--toggle-collect=*counted_by_callgrind*",
        ])
        .arg(format!("--callgrind-out-file={}", out.display()))
        .arg(own)
        .arg(way)
        .arg(&input.trace)
        .arg(input.events.to_string())
        .stdout(Stdio::null());
    let status = command
        .output()
        .map_err(|error| format!("running valgrind: {error}"))?;
    if !status.status.success() {
        return Err(format!(
            "the replay under valgrind failed ({}):\n{}",
            status.status,
            String::from_utf8_lossy(&status.stderr)
        ));
    }
    let profile =
        std::fs::read_to_string(&out).map_err(|error| format!("{}: {error}", out.display()))?;
    println!("{way}: {}", out.display());
    let mut totals = profile
        .lines()
        .filter_map(|line| line.strip_prefix("totals: "));
    let total = totals.next().and_then(|total| total.trim().parse().ok());
    total.ok_or_else(|| format!("{}: no totals", out.display()))
}
