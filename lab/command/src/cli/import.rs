//! `vellum import`: a trace from what other tools printed.

use std::fs::File;
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};

use clap::Args;
use clap::builder::ValueHint;

use super::outputs::OutputPath;
use super::{Failure, OrFail};
use vellum_import::{DEFAULT_TOUCH_LIMIT, Format, ImportError, Input, Options, Report};
use vellum_terminal::progress::{Interrupt, Progress, Style};
use vellum_trace::{DEFAULT_LEVEL, TraceWriter};

const EXAMPLES: &str = "\
What the text is follows from its lines unless --from says it. Lines that the trace lacks are
listed by reason with their numbers; --strict makes them an error. What each importer takes,
and what it has to make up, is in docs/import-export.md.

Text to import is made like this (the whole list of events is in docs/import-export.md):
  perf record -d -e exceptions:page_fault_user,syscalls:sys_enter_mmap,… -- make
  perf script --show-task-events --show-mmap-events > perf.txt
  trace-cmd record -e exceptions -e sched_process_* -e task_newtask -e syscalls:sys_*_mmap … make
  trace-cmd report > ftrace.txt        # or the kernel's own trace and trace_pipe
  strace -f -ttt -y --seccomp-bpf -e trace=%memory,%process,%desc -o strace.txt make
  valgrind --tool=lackey --trace-mem=yes --log-file=lackey.txt ls
  perf record -e page-faults -c 1 -d -- make
  perf script -F +addr --show-task-events --show-mmap-events > faults.txt
  drrun -t drmemtrace -offline -- ls   # the files in its directory trace are read as they are
  damo record PID                      # damon.data is read as it is
  cat /proc/PID/smaps > smaps.txt      # a process as it is at one moment

Examples:
  vellum import perf.txt -o build.vellum
  vellum import strace.txt -o build.vellum --touch-limit 64
  strace -f -ttt -y make 2>&1 >/dev/null | vellum import - -o build.vellum --from strace
  vellum import drmemtrace.ls.*.dir/trace/* -o ls.vellum
  vellum import lackey.txt -o ls.vellum --strict

Texts that are compressed with gzip, zlib, zstd or zip need not be unpacked. `vellum info` and
`vellum plan` read a single file of any of these without an import.";

/// Make a trace of what perf script, ftrace, strace, lackey, drmemtrace, DAMON or smaps tell
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct ImportArgs {
    /// The text; `-` is standard input. Several files are one run: parts of a
    /// perf script, files of `strace -ff`, processes under lackey, threads under drmemtrace
    #[arg(required = true, value_name = "FILE", value_hint = ValueHint::FilePath)]
    files: Vec<PathBuf>,

    /// Write the trace to TRACE
    #[arg(short, long, value_name = "TRACE", value_hint = ValueHint::FilePath)]
    output: OutputPath,

    /// Which tool printed the text
    #[arg(long, value_enum, value_name = "FORMAT")]
    from: Option<Format>,

    /// Fail if any line cannot be used
    #[arg(long)]
    strict: bool,

    /// strace: touch at most this many pages of a mapping when it appears
    /// (strace sees no faults); 0 touches none
    #[arg(long, value_name = "PAGES", default_value_t = DEFAULT_TOUCH_LIMIT)]
    touch_limit: u64,

    /// How hard to compress the trace, from 1 (fast) to 22 (small)
    #[arg(long, value_name = "LEVEL", default_value_t = DEFAULT_LEVEL,
          value_parser = clap::value_parser!(i32).range(1..=22))]
    level: i32,

    /// Say nothing but errors
    #[arg(short, long)]
    quiet: bool,
}

/// Imports.
pub fn run(args: ImportArgs) -> Result<(), Failure> {
    let interrupt = Interrupt::on_ctrl_c()?;
    let (inputs, bytes) = open_all(&args.files)?;
    let names: Vec<String> = inputs.iter().map(|input| input.name.clone()).collect();
    let options = Options {
        format: args.from,
        touch_limit: args.touch_limit,
    };
    let mut writer = TraceWriter::create(&*args.output, args.level)?;
    let style = Style::detect(args.quiet);
    let mut progress = Progress::new(style, "importing", bytes, "bytes");
    let result = vellum_import::import(inputs, &options, &mut writer, &mut progress, &interrupt);
    progress.finish();
    let (format, report) = result.map_err(failure)?;
    if args.strict && report.skips() > 0 {
        let (skips, unit, list) = (report.skips(), report.unit(), skipped(&report, &names));
        return Err(Failure::usage(format!(
            "{skips} {unit}s could not be used, and --strict was given; nothing was written\n{}",
            list.join("\n")
        )));
    }
    let (events, size) = writer.finish()?;
    if !args.quiet {
        for line in report.text(&names) {
            eprintln!("vellum: {line}");
        }
        let (output, mb) = (args.output.display(), size as f64 / 1e6);
        let what = made_of(format, &report);
        eprintln!("vellum: {output}: {events} events of {what}, {mb:.1} MB");
    }
    Ok(())
}

fn is_stdin(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// What a trace was made of, and how much of it.
pub fn made_of(format: Format, report: &Report) -> String {
    let (count, unit, tool) = (report.lines, report.unit(), format.name());
    match unit {
        "line" => format!("{count} lines of {tool} text"),
        _ => format!("{count} {unit}s of {tool}"),
    }
}

/// Inputs of one run, and their length together.
///
/// # Errors
/// One cannot be read, or standard input is to be read twice.
pub fn open_all(paths: &[PathBuf]) -> Result<(Vec<Input>, u64), Failure> {
    if paths.iter().filter(|path| is_stdin(path)).count() > 1 {
        return Err(Failure::usage("standard input (-) can be read only once"));
    }
    let mut inputs = Vec::new();
    let mut bytes = 0;
    for path in paths {
        let (input, length) = open(path)?;
        inputs.push(input);
        bytes += length;
    }
    Ok((inputs, bytes))
}

/// An input and its length, 0 if that is not known.
///
/// # Errors
/// It cannot be read.
pub fn open(path: &Path) -> Result<(Input, u64), Failure> {
    if is_stdin(path) {
        let reader = BufReader::new(io::stdin());
        return Ok((Input::new("standard input", Box::new(reader)), 0));
    }
    let name = path.display().to_string();
    let file = File::open(path).blame_input().doing(|| &name)?;
    let metadata = file.metadata().blame_input().doing(|| &name)?;
    if metadata.is_dir() {
        let records = path.join("trace");
        let files = match records.is_dir() {
            true => format!("{}/*", records.display()),
            false => "the files in it".to_owned(),
        };
        return Err(Failure::usage(format!(
            "{name}: it is a directory; give {files}"
        )));
    }
    let reader = BufReader::with_capacity(1 << 16, file);
    Ok((Input::new(name, Box::new(reader)), metadata.len()))
}

/// What a failed import ends with.
pub fn failure(error: ImportError) -> Failure {
    match error {
        ImportError::Format(_) | ImportError::Unknown { .. } | ImportError::Nothing { .. } => {
            Failure::usage(error.to_string())
        }
        ImportError::Interrupted => Failure::interrupted(error.to_string()),
        other => other.into(),
    }
}

/// The lines of a report about what was skipped.
pub fn skipped(report: &Report, names: &[String]) -> Vec<String> {
    let lines = report.text(names).into_iter();
    lines.filter(|line| line.starts_with("skipped")).collect()
}
