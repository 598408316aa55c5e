//! `vellum record`: runs a command, or watches running processes, and writes down what they
//! ask of memory management.

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use clap::builder::ValueHint;

use super::outputs::OutputPath;
use super::{Failure, size};
use vellum_record::{Ended, Options, Overhead, RecordError, Recording, Target};
use vellum_terminal::progress::{Interrupt, Style, say};
use vellum_trace::{AccessMarks, DEFAULT_LEVEL};

const EXAMPLES: &str = "\
The exit code is the command's own, or 0 for processes that ran already; 1 if the recording
failed.

Recording needs root, or the capabilities CAP_PERFMON and CAP_IPC_LOCK together with a
readable tracefs. If tracefs is not mounted, root mounts it for itself alone, where no
other process sees it. Transparent huge pages are switched off for the command and its
descendants, and for nothing else. Events are taken on every CPU; what other tasks did
is passed over, but needs room in the buffers.

Running processes (--pid, --cgroup) are left as they are, huge pages too: the trace begins with
their mappings and the pages that were in memory, from /proc/PID/smaps and pagemap. Ctrl-C, or
the end of --duration, ends the recording and writes the trace; they go on. A command that
--duration cuts off goes on, too: the trace is written at once, and vellum waits for the
command's end.

Examples:
  vellum record -- make -j4
  vellum record -o gcc.vellum -- gcc -O2 -c main.c
  vellum record --buffer 64M -o server.vellum -- ./run-server-benchmark
  vellum record --accesses 100ms -o server.vellum -- ./run-server-benchmark
  vellum record --duration 30s -o server.vellum --pid $(pidof redis-server)
  vellum record --duration 1s --every 2m -o day.vellum --pid $(pidof redis-server)
  vellum record --duration 1m --cgroup /sys/fs/cgroup/system.slice/nginx.service
  vellum record --measure-overhead 3 --prepare 'make clean' -- make -j4";

/// Record what a command, or running processes, and their descendants ask of memory management
#[derive(Args, Debug)]
#[command(
    override_usage = "vellum record [OPTIONS] [-o <FILE>] [--] <COMMAND>...\n       \
                      vellum record [OPTIONS] [-o <FILE>] --pid <PID>...\n       \
                      vellum record [OPTIONS] [-o <FILE>] --cgroup <DIR>",
    after_help = EXAMPLES
)]
pub struct RecordArgs {
    /// Write the trace to FILE; it appears when the recording is complete
    #[arg(short, long, value_name = "FILE", default_value = "trace.vellum", value_hint = ValueHint::FilePath)]
    output: OutputPath,

    /// Record these running processes and their descendants, until they end
    #[arg(short, long, value_name = "PID", num_args = 1.., value_delimiter = ',',
          value_parser = clap::value_parser!(u32).range(1..))]
    pid: Vec<u32>,

    /// Record the processes of a control group (cgroup, of version 1 or 2) and of those below
    /// it, and what they create
    #[arg(long, value_name = "DIR", conflicts_with = "pid", value_hint = ValueHint::DirPath)]
    cgroup: Option<PathBuf>,

    /// End the recording, not what is recorded, after this time (as 500ms, 30s or 5m)
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    duration: Option<Duration>,

    /// Sample: record again each TIME for the --duration, into FILE with a number before its
    /// extension, until the processes end or Ctrl-C. What happens in between is not recorded
    #[arg(long, value_name = "TIME", requires = "duration", conflicts_with_all = ["command", "measure_overhead"],
          value_parser = parse_duration)]
    every: Option<Duration>,

    /// Buffer for each CPU's events, rounded up to a power of two (K, M and G are
    /// understood)
    #[arg(long, value_name = "SIZE", default_value = "8M", value_parser = parse_buffer)]
    buffer: usize,

    /// Keep the trace although events were lost; it then says how many
    #[arg(long)]
    allow_lost: bool,

    /// How hard to compress the trace, from 1 (fast) to 22 (small)
    #[arg(long, value_name = "LEVEL", default_value_t = DEFAULT_LEVEL,
          value_parser = clap::value_parser!(i32).range(1..=22))]
    level: i32,

    /// Sample which pages are used again, every INTERVAL (as 100ms or 2s), from the accessed marks
    /// that the kernel shows: of each page by idle page tracking, else how many of each region
    #[arg(long, value_name = "INTERVAL", value_parser = parse_interval)]
    accesses: Option<Duration>,

    /// Write no trace: run the command N times four times, plain and recorded in
    /// the order A B B A, and print what recording costs
    #[arg(long, value_name = "N", conflicts_with_all = ["allow_lost", "level", "accesses", "pid", "cgroup", "duration"],
          value_parser = clap::value_parser!(u16).range(1..=1000))]
    measure_overhead: Option<u16>,

    /// Shell command to run before each measured run
    #[arg(long, value_name = "SHELL-COMMAND", requires = "measure_overhead")]
    prepare: Option<String>,

    /// Say nothing but errors
    #[arg(short, long)]
    quiet: bool,

    /// The command to record and its arguments
    #[arg(required_unless_present_any = ["pid", "cgroup"], conflicts_with_all = ["pid", "cgroup"],
          trailing_var_arg = true, value_name = "COMMAND", value_hint = ValueHint::CommandWithArguments)]
    command: Vec<OsString>,
}

/// Records, or measures what recording costs.
pub fn run(args: RecordArgs) -> Result<(), Failure> {
    if let Some(rounds) = args.measure_overhead {
        return measure(&args, usize::from(rounds));
    }
    let interrupt = Interrupt::on_any_end()?;
    let options = Options {
        target: match args.cgroup {
            Some(path) => Target::Group(path),
            None if args.pid.is_empty() => Target::Command(args.command),
            None => Target::Processes(args.pid),
        },
        duration: args.duration,
        output: args.output.to_path_buf(),
        buffer: args.buffer,
        allow_lost: args.allow_lost,
        level: args.level,
        accesses: args.accesses,
        style: Style::detect(args.quiet),
    };
    if let Some(every) = args.every {
        return sample(options, every, args.quiet, &interrupt);
    }
    let recording = vellum_record::record(&options, &interrupt)?;
    say_where(&recording);
    if !args.quiet {
        tell(&recording);
    }
    let exit_code = match recording.going_on {
        Some(command) => command.wait(&interrupt)?,
        None => recording.exit_code,
    };
    if let Some(why) = recording.cut_short {
        return Err(Failure::failed(format!(
            "the recorded events could not be kept any more ({why}): the command went on to its end, \
             and {} has what was recorded until then",
            recording.path.display()
        )));
    }
    match exit_code {
        0 => Ok(()),
        code => Err(Failure::silent(code)),
    }
}

/// Says where a trace is that is not where it was to be.
fn say_where(recording: &Recording) {
    if let Some(why) = &recording.elsewhere {
        let path = recording.path.display();
        say(&format!("vellum: {why}; the trace is in {path}"));
    }
}

/// Records windows of time, one after the other, until what is recorded ends or the user asks.
fn sample(
    options: Options,
    every: Duration,
    quiet: bool,
    interrupt: &Interrupt,
) -> Result<(), Failure> {
    let window = options.duration.unwrap_or_default();
    if every <= window {
        return Err(Failure::usage(
            "--every must be longer than --duration, which is how long each window takes",
        ));
    }
    let (began, own_before) = (Instant::now(), vellum_record::own_cpu_seconds());
    let (mut windows, mut recorded, mut events_cost) = (0, 0.0, 0.0);
    loop {
        let next = Instant::now() + every;
        let options = Options {
            output: numbered(&options.output, windows + 1),
            style: match windows {
                0 => options.style,
                _ => Style::Quiet,
            },
            ..options.clone()
        };
        let recording = match vellum_record::record(&options, interrupt) {
            // What was recorded before has ended meanwhile.
            Err(RecordError::Target(_)) if windows > 0 => break,
            other => other?,
        };
        say_where(&recording);
        windows += 1;
        recorded += recording.seconds;
        events_cost += recording.cost.of_events();
        if !quiet {
            let (path, events) = (recording.path.display(), recording.events);
            say(&format!(
                "vellum: {path}: {events} events, {} lost",
                recording.lost
            ));
        }
        if recording.ended != Ended::Time {
            break;
        }
        while Instant::now() < next && !interrupt.requested() {
            let left = next.saturating_duration_since(Instant::now());
            std::thread::sleep(left.min(Duration::from_millis(100)));
        }
        if interrupt.requested() {
            break;
        }
    }
    if !quiet {
        let elapsed = began.elapsed().as_secs_f64();
        let cost = vellum_record::own_cpu_seconds() - own_before + events_cost;
        say(&format!(
            "vellum: {windows} windows, {recorded:.1} of {elapsed:.1} s; what happened in the other {:.1} % \
             of the time is not recorded. All of it, with writing the traces, cost at most {:.2} % \
             of one CPU",
            (1.0 - recorded / elapsed).max(0.0) * 100.0,
            cost / elapsed * 100.0,
        ));
    }
    Ok(())
}

/// The path of a window's trace.
fn numbered(path: &Path, number: u32) -> PathBuf {
    let mut name = path.file_stem().unwrap_or_default().to_owned();
    name.push(format!("-{number}"));
    if let Some(extension) = path.extension() {
        name.push(".");
        name.push(extension);
    }
    path.with_file_name(name)
}

/// Says what came of a recording.
fn tell(recording: &Recording) {
    if recording.own_tracefs {
        say(
            "vellum: tracefs is not mounted here; it was mounted for this process alone to \
             look up the kernel's events",
        );
    }
    if let Some(why) = &recording.without_cpu_times {
        say(&format!(
            "vellum: the trace has no CPU times: the kernel gave no records of context \
             switches ({why})"
        ));
    }
    if let Some(accesses) = recording.accesses
        && accesses.marks == AccessMarks::Regions
    {
        say(
            "vellum: this kernel does not show which pages of a region are used (that takes \
             CONFIG_IDLE_PAGE_TRACKING, and root), but how many: as many of those that are \
             resident are taken for used, the lowest addresses first",
        );
    }
    for note in [&recording.beginning, &recording.huge_pages]
        .into_iter()
        .flatten()
    {
        say(&format!("vellum: {note}"));
    }
    let bytes_per_event = recording.bytes as f64 / recording.events.max(1) as f64;
    say(&format!(
        "vellum: {}: {} events in {:.1} s, {:.1} MB, {bytes_per_event:.2} bytes an event, {} lost",
        recording.path.display(),
        recording.events,
        recording.seconds,
        recording.bytes as f64 / 1e6,
        recording.lost,
    ));
    if let Some(ran) = recording.ran_seconds.filter(|ran| *ran > 0.0) {
        say(&format!(
            "vellum: recording cost at most {:.1} % of the {ran:.2} s of CPU time that were recorded: {}",
            recording.cost.seconds() / ran * 100.0,
            recording.cost,
        ));
    }
    match (recording.ended, &recording.going_on) {
        (Ended::ByItself, _) => {}
        (_, Some(_)) => say("vellum: the time of the recording is over; the command goes on"),
        (_, None) => say("vellum: the recording is over; what was recorded goes on"),
    }
}

/// Records `command` into `output` for a command that goes on with it.
///
/// # Errors
/// It cannot be recorded, events were lost, or the command itself failed.
pub fn for_another(
    command: &[OsString],
    output: &Path,
    style: Style,
    interrupt: &Interrupt,
) -> Result<(), Failure> {
    let options = Options {
        style,
        ..Options::new(Target::Command(command.to_vec()), output.to_path_buf())
    };
    let recording = vellum_record::record(&options, interrupt)?;
    if interrupt.requested() {
        return Err(Failure::interrupted("interrupted while the command ran"));
    }
    if let Some(why) = recording.cut_short.or(recording.elsewhere) {
        return Err(Failure::failed(why));
    }
    match recording.exit_code {
        0 => Ok(()),
        code => Err(Failure::failed(format!(
            "the command ended with exit code {code}; there is no advice on a run that failed"
        ))),
    }
}

fn measure(args: &RecordArgs, rounds: usize) -> Result<(), Failure> {
    let interrupt = Interrupt::on_ctrl_c()?;
    let directory = match args.output.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_path_buf(),
        _ => PathBuf::from("."),
    };
    let quiet = args.quiet;
    let overhead = vellum_record::measure_overhead(
        &args.command,
        args.prepare.as_deref(),
        rounds,
        args.buffer,
        &directory,
        &interrupt,
        |line| {
            if !quiet {
                eprintln!("{line}");
            }
        },
    )?;
    print_overhead(&overhead, &mut io::stdout().lock())?;
    Ok(())
}

fn print_overhead(overhead: &Overhead, out: &mut impl Write) -> io::Result<()> {
    writeln!(
        out,
        "{:<8} {:>10} {:>10} {:>9}  95 % interval",
        "", "plain s", "recorded s", "overhead"
    )?;
    for (name, ratio, plain, recorded) in [
        (
            "elapsed",
            overhead.elapsed,
            overhead.plain.0,
            overhead.recorded.0,
        ),
        ("CPU", overhead.cpu, overhead.plain.1, overhead.recorded.1),
    ] {
        let percent = |ratio: f64| (ratio - 1.0) * 100.0;
        let interval = match ratio.interval {
            Some((low, high)) => format!("{:+.1} % to {:+.1} %", percent(low), percent(high)),
            None => "none from a single round".to_owned(),
        };
        let mean = format!("{:+.1} %", percent(ratio.mean));
        writeln!(
            out,
            "{name:<8} {plain:>10.3} {recorded:>10.3} {mean:>9}  {interval}"
        )?;
    }
    writeln!(
        out,
        "rounds of four runs (plain, recorded, recorded, plain): {}",
        overhead.rounds
    )?;
    if let Some(last) = &overhead.last {
        let share = overhead.priced / overhead.plain.1 * 100.0;
        writeln!(
            out,
            "by events times the price of one: at most {share:.1} % of the CPU time; in the last run \
             {last}"
        )?;
    }
    Ok(())
}

/// The time from one sample to the next: a millisecond to an hour.
fn parse_interval(text: &str) -> Result<Duration, String> {
    let refused = || format!("`{text}` is no interval; write 1ms to 3600s, as in 100ms or 2s");
    let time = parse_time(text).ok_or_else(refused)?;
    let most = Duration::from_secs(3600);
    Some(time).filter(|time| *time <= most).ok_or_else(refused)
}

/// How long a recording takes: a millisecond to a year.
fn parse_duration(text: &str) -> Result<Duration, String> {
    let refused = || format!("`{text}` is no time; write it as in 500ms, 30s, 5m or 2h");
    parse_time(text).ok_or_else(refused)
}

/// A time with its unit, from a millisecond to a year.
fn parse_time(text: &str) -> Option<Duration> {
    const UNITS: [(&str, f64); 4] = [("ms", 1.0), ("s", 1e3), ("m", 60e3), ("h", 3600e3)];
    const YEAR_MS: f64 = 365.0 * 24.0 * 3600e3;
    let units = UNITS.iter();
    let mut numbers = units.filter_map(|(unit, ms)| Some((text.strip_suffix(unit)?, ms)));
    let (number, unit_ms) = numbers.next()?;
    let ms = number.trim().parse::<f64>().ok()? * unit_ms;
    (1.0..=YEAR_MS)
        .contains(&ms)
        .then(|| Duration::from_micros((ms * 1000.0) as u64))
}

/// The size of a buffer: up to 1 GiB.
fn parse_buffer(text: &str) -> Result<usize, String> {
    match size::parse(text)? {
        bytes @ 1..=0x4000_0000 => Ok(bytes as usize),
        _ => Err("the buffer of a CPU is at most 1G".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_have_a_unit_and_limits() {
        assert_eq!(parse_interval("100ms"), Ok(Duration::from_millis(100)));
        assert_eq!(parse_interval("1.5s"), Ok(Duration::from_millis(1500)));
        for bad in [
            "", "100", "0ms", "0.5ms", "2h", "61m", "NaNs", "-1s", "1e9s", "ms",
        ] {
            assert!(parse_interval(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn windows_are_numbered_before_the_extension() {
        let name = |path: &str| numbered(Path::new(path), 12).display().to_string();
        assert_eq!(name("a/day.vellum"), "a/day-12.vellum");
        assert_eq!(name("day"), "day-12");
    }

    #[test]
    fn the_time_of_a_recording_may_be_long() {
        assert_eq!(parse_duration("5m"), Ok(Duration::from_secs(300)));
        assert_eq!(parse_duration("2h"), Ok(Duration::from_secs(7200)));
        for bad in ["", "30", "0s", "9000h", "-1m", "s"] {
            assert!(parse_duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn buffers_take_suffixes_and_have_a_limit() {
        assert_eq!(parse_buffer("8M"), Ok(8 << 20));
        assert_eq!(parse_buffer("1G"), Ok(1 << 30));
        for bad in ["", "M", "2G", "0"] {
            assert!(parse_buffer(bad).is_err(), "{bad}");
        }
    }
}
