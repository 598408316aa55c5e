//! `vellum dump`: a trace as text, one event a line.

use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

use clap::builder::ValueHint;
use clap::{Args, ValueEnum};

use super::{Failure, OrFail};
use vellum_import::perf_script;
use vellum_trace::{
    Access, Event, EventKind, FileId, Header, MapOrigin, Prot, TaskId, TraceReader,
};

const EXAMPLES: &str = "\
A line is: time in seconds, task number, process id, event, and what the event says.
If the trace has CPU times, the microseconds that the task ran since its event before
follow the process id (- if they are not known).
Numbers are decimal, addresses hexadecimal, lengths in bytes.

Examples:
  vellum dump build.vellum | less
  vellum dump build.vellum --kind map --kind unmap --task 17
  vellum dump build.vellum --from 2.5 --to 2.6
  vellum dump build.vellum --pid 4711 | grep libc
  vellum dump build.vellum --perf-script | vellum import - -o again.vellum";

/// Print the events of a trace as text
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct DumpArgs {
    /// The trace
    #[arg(value_hint = ValueHint::FilePath)]
    trace: PathBuf,

    /// Only these kinds of event (may be repeated)
    #[arg(short, long, value_enum)]
    kind: Vec<Kind>,

    /// Only the tasks with these numbers (may be repeated)
    #[arg(short, long, value_name = "NUMBER")]
    task: Vec<u32>,

    /// Only tasks of these processes, by recorded process id (may be repeated)
    #[arg(short, long, value_name = "PID")]
    pid: Vec<u32>,

    /// Only events at or after this time
    #[arg(long, value_name = "SECONDS", default_value_t = 0.0)]
    from: f64,

    /// Only events before this time
    #[arg(long, value_name = "SECONDS")]
    to: Option<f64>,

    /// Print the whole trace as `perf script` would, for `vellum import`
    /// (for a part of it, use `vellum cut` first)
    #[arg(long, conflicts_with_all = ["kind", "task", "pid", "from", "to"])]
    perf_script: bool,
}

/// Kinds of event by the names that the listing uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(super) enum Kind {
    Create,
    Exec,
    Exit,
    Wait,
    Map,
    Unmap,
    Protect,
    Remap,
    Brk,
    Advise,
    Fault,
    Around,
    Read,
    Write,
    Truncate,
    Accessed,
}

impl Kind {
    /// Every kind, in the order of their numbers.
    pub(super) const ALL: [Kind; 16] = [
        Kind::Create,
        Kind::Exec,
        Kind::Exit,
        Kind::Wait,
        Kind::Map,
        Kind::Unmap,
        Kind::Protect,
        Kind::Remap,
        Kind::Brk,
        Kind::Advise,
        Kind::Fault,
        Kind::Around,
        Kind::Read,
        Kind::Write,
        Kind::Truncate,
        Kind::Accessed,
    ];

    /// The kind of an event.
    pub(super) fn of(kind: &EventKind) -> Kind {
        match kind {
            EventKind::Create { .. } => Kind::Create,
            EventKind::Exec { .. } => Kind::Exec,
            EventKind::Exit => Kind::Exit,
            EventKind::Wait { .. } => Kind::Wait,
            EventKind::Map { .. } => Kind::Map,
            EventKind::Unmap { .. } => Kind::Unmap,
            EventKind::Protect { .. } => Kind::Protect,
            EventKind::Remap { .. } => Kind::Remap,
            EventKind::Brk { .. } => Kind::Brk,
            EventKind::Advise { .. } => Kind::Advise,
            EventKind::Fault { .. } => Kind::Fault,
            EventKind::MapAround { .. } => Kind::Around,
            EventKind::FileRead { .. } => Kind::Read,
            EventKind::FileWrite { .. } => Kind::Write,
            EventKind::Truncate { .. } => Kind::Truncate,
            EventKind::Accessed { .. } => Kind::Accessed,
        }
    }

    /// The kind's name.
    pub(super) fn name(self) -> &'static str {
        match self {
            Kind::Create => "create",
            Kind::Exec => "exec",
            Kind::Exit => "exit",
            Kind::Wait => "wait",
            Kind::Map => "map",
            Kind::Unmap => "unmap",
            Kind::Protect => "protect",
            Kind::Remap => "remap",
            Kind::Brk => "brk",
            Kind::Advise => "advise",
            Kind::Fault => "fault",
            Kind::Around => "around",
            Kind::Read => "read",
            Kind::Write => "write",
            Kind::Truncate => "truncate",
            Kind::Accessed => "accessed",
        }
    }
}

/// Prints the events that were asked for.
pub fn run(args: DumpArgs) -> Result<(), Failure> {
    let (from, to) = (micros(args.from)?, args.to.map(micros).transpose()?);
    let trace = TraceReader::open(&args.trace).blame_input()?;
    let header = trace.header();
    if args.perf_script {
        return print_perf_script(&trace);
    }
    for task in &args.task {
        if *task as usize >= header.tasks.len() {
            let tasks = header.tasks.len();
            return Err(Failure::usage(format!(
                "there is no task {task}: the trace has tasks 0 to {}",
                tasks.saturating_sub(1)
            )));
        }
    }
    let wanted = |event: &Event| {
        let process = header.tasks[event.task.0 as usize].process;
        (args.task.is_empty() || args.task.contains(&event.task.0))
            && (args.pid.is_empty() || args.pid.contains(&process))
            && (args.kind.is_empty() || args.kind.contains(&Kind::of(&event.kind)))
    };
    let mut out = BufWriter::new(io::stdout().lock());
    for event in trace.events_and_accesses() {
        let event = event.blame_input()?;
        if to.is_some_and(|to| event.time_us >= to) {
            break;
        }
        if event.time_us >= from && wanted(&event) {
            print(&mut out, header, &event)?;
        }
    }
    out.flush()?;
    Ok(())
}

fn print_perf_script(trace: &TraceReader) -> Result<(), Failure> {
    let out = BufWriter::new(io::stdout().lock());
    let mut writer = perf_script::Writer::new(out, trace.header())?;
    for event in trace.events() {
        writer.take(&event.blame_input()?)?;
    }
    let losses = writer.finish()?;
    if trace.header().accesses.is_some() {
        eprintln!(
            "vellum: perf script has no words for samples of accessed marks; they will not come back"
        );
    }
    if trace.header().cpu_times {
        eprintln!("vellum: perf script has no words for CPU times; they will not come back");
    }
    if losses.events > 0 {
        let count = losses.events;
        eprintln!(
            "vellum: {count} events are more than perf script can say; they will not come back equal"
        );
    }
    if losses.renamed > 0 {
        let count = losses.renamed;
        eprintln!("vellum: {count} tasks have other ids in the text: theirs were in use");
    }
    Ok(())
}

/// A time on the command line in microseconds.
pub(super) fn micros(seconds: f64) -> Result<u64, Failure> {
    if seconds.is_finite() && (0.0..=1e12).contains(&seconds) {
        return Ok((seconds * 1e6).round() as u64);
    }
    Err(Failure::usage(format!(
        "{seconds} is not a time in seconds from the start of the trace"
    )))
}

fn print(out: &mut impl Write, header: &Header, event: &Event) -> io::Result<()> {
    let pid = header.tasks[event.task.0 as usize].pid;
    let seconds = event.time_us as f64 / 1e6;
    let kind = Kind::of(&event.kind).name();
    write!(out, "{seconds:>12.6} {:>6} {pid:>7} ", event.task.0)?;
    if header.cpu_times {
        match event.ran_us {
            Some(ran_us) => write!(out, "{ran_us:>8} ")?,
            None => write!(out, "{:>8} ", "-")?,
        }
    }
    write!(out, "{kind:<8}")?;
    detail(out, header, &event.kind)?;
    writeln!(out)
}

fn rights(prot: Prot) -> String {
    let letter = |bit: u8, letter: char| if prot.0 & bit != 0 { letter } else { '-' };
    [letter(1, 'r'), letter(2, 'w'), letter(4, 'x')]
        .iter()
        .collect()
}

fn file_text(header: &Header, file: FileId) -> String {
    let entry = &header.files[file.0 as usize];
    if entry.name.is_empty() {
        return format!("file {} (inode {})", file.0, entry.inode);
    }
    format!("file {} {}", file.0, entry.name)
}

fn child_text(header: &Header, child: TaskId) -> String {
    format!("{} (pid {})", child.0, header.tasks[child.0 as usize].pid)
}

/// Names of the clone flags that matter for memory.
fn clone_text(flags: u64) -> String {
    let mut text = format!("{flags:#x}");
    for (bit, name) in [(0x100, "VM"), (0x4000, "VFORK"), (0x1_0000, "THREAD")] {
        if flags & bit != 0 {
            text.push(' ');
            text.push_str(name);
        }
    }
    text
}

fn detail(out: &mut impl Write, header: &Header, kind: &EventKind) -> io::Result<()> {
    match *kind {
        EventKind::Create { child, clone_flags } => {
            let (child, flags) = (child_text(header, child), clone_text(clone_flags));
            write!(out, " {child} flags {flags}")
        }
        EventKind::Exec { name } => write!(out, " {}", header.strings[name as usize]),
        EventKind::Exit => Ok(()),
        EventKind::Wait { child } => write!(out, " {}", child_text(header, child)),
        EventKind::Map {
            address,
            length,
            prot,
            shared,
            grows_down,
            file,
            offset,
            origin,
        } => {
            let sharing = if shared { 's' } else { 'p' };
            write!(out, " {address:#x} {length} {}{sharing}", rights(prot))?;
            match file {
                Some(file) => write!(out, " {} at {offset}", file_text(header, file))?,
                None => write!(out, " anonymous")?,
            }
            let stack = if grows_down { " grows-down" } else { "" };
            let by_exec = if origin == MapOrigin::Exec {
                " by-exec"
            } else {
                ""
            };
            write!(out, "{stack}{by_exec}")
        }
        EventKind::Unmap { address, length } => write!(out, " {address:#x} {length}"),
        EventKind::Protect {
            address,
            length,
            prot,
        } => write!(out, " {address:#x} {length} {}", rights(prot)),
        EventKind::Remap {
            address,
            length,
            new_address,
            new_length,
        } => write!(
            out,
            " {address:#x} {length} to {new_address:#x} {new_length}"
        ),
        EventKind::Brk { end } => write!(out, " {end:#x}"),
        EventKind::Advise {
            address,
            length,
            advice,
        } => write!(out, " {address:#x} {length} advice {advice}"),
        EventKind::Fault {
            address,
            access,
            kernel,
            present,
        } => {
            let access = match access {
                Access::Read => "read",
                Access::Write => "write",
                Access::Execute => "execute",
            };
            let kernel = if kernel { " in-kernel" } else { "" };
            let present = if present { " present" } else { "" };
            write!(out, " {address:#x} {access}{kernel}{present}")
        }
        EventKind::MapAround { file, first, last } => {
            write!(out, " {} pages {first} to {last}", file_text(header, file))
        }
        EventKind::FileRead {
            file,
            offset,
            length,
        }
        | EventKind::FileWrite {
            file,
            offset,
            length,
        } => write!(out, " {} {length} at {offset}", file_text(header, file)),
        EventKind::Accessed { address, length } => write!(out, " {address:#x} {length:#x}"),
        EventKind::Truncate { file, size } => {
            write!(out, " {} to {size}", file_text(header, file))
        }
    }
}
