//! A recording from beginning to end.

use std::ffi::{CStr, OsString};
use std::os::fd::{FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use crate::accesses::{Marks, Sampling, Used};
use crate::child::{Child, Ending, own_cpu_seconds};
use crate::error::RecordError;
use crate::merge::merge;
use crate::place::{Place, directory_of};
use crate::session::Session;
use crate::spool::Spool;
use crate::tracefs::Tracefs;
use crate::tracepoint::{self, Layout};
use crate::translate::{Noticed, Translator};
use vellum_terminal::progress::{Interrupt, Progress, Style};
use vellum_trace::{AccessMarks, Accesses, Environment, TraceError, TraceWriter};

/// How often the recorder looks whether it was interrupted.
const WATCH_MS: libc::c_int = 200;

/// What to record and where to.
#[derive(Clone, Debug)]
pub struct Options {
    /// The command and its arguments; not empty.
    pub command: Vec<OsString>,
    /// Where the trace goes.
    pub output: PathBuf,
    /// Bytes of buffer for each CPU; rounded up to a power of two.
    pub buffer: usize,
    /// Keep a trace although events were lost.
    pub allow_lost: bool,
    /// Compression level of the trace (zstd's scale).
    pub level: i32,
    /// How often accessed marks are sampled, if they are.
    pub accesses: Option<Duration>,
    /// How progress is shown while the trace is written.
    pub style: Style,
}

/// What a recording came to.
#[derive(Clone, Debug)]
pub struct Recording {
    /// Where the trace is.
    pub path: PathBuf,
    /// Why it is not where it was to be, if it is not.
    pub elsewhere: Option<String>,
    /// Why it ends before the command did, if it does.
    pub cut_short: Option<String>,
    /// The command's exit code, as a shell reports it.
    pub exit_code: u8,
    /// Events in the trace.
    pub events: u64,
    /// Length of the trace in bytes.
    pub bytes: u64,
    /// Events that the kernel dropped.
    pub lost: u64,
    /// How long the command ran, in seconds.
    pub seconds: f64,
    /// Bytes of raw records that the kernel delivered.
    pub record_bytes: u64,
    /// Tracefs was not mounted; the kernel's events were looked up in a mount
    /// for this process alone, which is gone.
    pub own_tracefs: bool,
    /// Why the trace has no CPU times, if it has none.
    pub without_cpu_times: Option<String>,
    /// How accessed marks were sampled, if they were.
    pub accesses: Option<Accesses>,
}

/// One run of the command.
pub(super) struct Run {
    pub ending: Ending,
    pub seconds: f64,
    pub root: u32,
    pub began: SystemTime,
    /// CPU time that the recorder spent meanwhile, in seconds.
    pub recorder_seconds: f64,
    /// What was recorded, if the run was.
    pub recorded: Option<Recorded>,
}

/// What a recorded run left.
pub(super) struct Recorded {
    pub spool: Spool,
    /// CPUs in it.
    pub cpus: usize,
    /// Why reads and writes on tmpfs do not show, if they do not.
    pub without_transfers: Option<String>,
    /// Why context switches were not recorded, if they were not.
    pub without_switches: Option<String>,
    /// Pages that were used, in order of time, if accessed marks were sampled.
    pub used: Vec<Used>,
}

/// Checks that this process may record, opening every event once.
///
/// # Errors
/// The message names the one thing that is missing and how to grant it.
pub fn check_permission() -> Result<(), RecordError> {
    let layouts = tracepoint::read_layouts(&Tracefs::open()?)?;
    Session::open(&layouts, 1 << 16).map(drop)
}

/// Runs the command, records it and writes the trace. The trace appears under
/// its name only when it is complete.
///
/// # Errors
/// The recording cannot begin, the command cannot be run, events were lost and
/// that is not allowed, or the trace cannot be written.
pub fn record(options: &Options, interrupt: &Interrupt) -> Result<Recording, RecordError> {
    // A file that grows over its limit is an error, not the end.
    // SAFETY: sets no handler.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    let tracefs = Tracefs::open()?;
    let layouts = tracepoint::read_layouts(&tracefs)?;
    let own_tracefs = tracefs.is_own();
    drop(tracefs);
    let place = Place::of(&options.output)?;
    let spool = Spool::create(directory_of(&options.output)).map_err(RecordError::io(format!(
        "cannot write beside {}",
        options.output.display()
    )))?;
    let marks = match options.accesses {
        Some(interval) => Some((Marks::find().map_err(RecordError::NoMarks)?, interval)),
        None => None,
    };
    let accesses = marks.as_ref().map(|(marks, interval)| Accesses {
        interval_us: interval.as_micros() as u64,
        marks: marks.tell(),
    });
    let (command, buffer) = (&options.command, options.buffer);
    let run = run_recorded(command, &layouts, buffer, spool, marks, interrupt)?;
    let recorded = run.recorded.as_ref().expect("the run was recorded");
    let mut elsewhere = None;
    for path in place.candidates() {
        let written = write(&path, options, &run, recorded, &layouts, accesses);
        let (events, bytes, lost) = match written {
            Ok(totals) => totals,
            // The next place may take it.
            Err(error @ RecordError::Trace(TraceError::Io { .. })) => {
                elsewhere.get_or_insert(error);
                continue;
            }
            Err(error) => return Err(error),
        };
        return Ok(Recording {
            path,
            elsewhere: elsewhere.map(|error| error.to_string()),
            cut_short: recorded.spool.why_cut().map(ToString::to_string),
            exit_code: run.ending.exit_code(),
            events,
            bytes,
            lost,
            seconds: run.seconds,
            record_bytes: recorded.spool.record_bytes(),
            own_tracefs,
            without_cpu_times: recorded.without_switches.clone(),
            accesses,
        });
    }
    Err(elsewhere.expect("no candidate took the trace"))
}

/// Writes the trace of a run to `path`. Returns how many events and bytes it has, and how
/// many events were lost.
fn write(
    path: &Path,
    options: &Options,
    run: &Run,
    recorded: &Recorded,
    layouts: &[Layout],
    accesses: Option<Accesses>,
) -> Result<(u64, u64, u64), RecordError> {
    let (spool, cpus) = (&recorded.spool, recorded.cpus);
    let mut writer = TraceWriter::create(path, options.level)?;
    let header = writer.header_mut();
    header.environment = environment(&options.command, cpus);
    header.cpu_times = recorded.without_switches.is_none();
    header.accesses = accesses;
    let label = "writing the trace";
    let mut progress = Progress::new(options.style, label, spool.record_bytes(), "bytes");
    let mut translator = Translator::new(layouts, &mut writer, run.root);
    let mut used = recorded.used.iter().peekable();
    merge(spool, cpus, |record, bytes| {
        progress.advance(bytes as u64);
        while let Some(used) = used.next_if(|used| used.time_ns <= record.time_ns) {
            translator.accessed(used)?;
        }
        translator.take(record)
    })?;
    let noticed = translator.finish(Some(run.began));
    progress.finish();
    if noticed.lost > 0 && !options.allow_lost {
        return Err(RecordError::Lost {
            lost: noticed.lost,
            suggestion: size_text(buffer_bytes(options.buffer) * 4),
        });
    }
    let header = writer.header_mut();
    header.lost = noticed.lost;
    header.invisible = invisible(&noticed, recorded, accesses);
    let (events, bytes) = writer.finish()?;
    Ok((events, bytes, noticed.lost))
}

fn buffer_bytes(buffer: usize) -> usize {
    buffer.next_power_of_two().max(1 << 16)
}

fn size_text(bytes: usize) -> String {
    match bytes >> 20 {
        0 => format!("{}K", bytes >> 10),
        mebibytes => format!("{mebibytes}M"),
    }
}

/// Runs the command with its events going to `spool`.
pub(super) fn run_recorded(
    command: &[OsString],
    layouts: &[Layout],
    buffer: usize,
    spool: Spool,
    marks: Option<(Marks, Duration)>,
    interrupt: &Interrupt,
) -> Result<Run, RecordError> {
    let before = own_cpu_seconds();
    let mut child = Child::hold(command, true)?;
    let session = Session::open(layouts, buffer_bytes(buffer))?;
    let cpus = session.cpus();
    let without_transfers = session.without_transfers().map(str::to_owned);
    let without_switches = session.without_switches().map(str::to_owned);
    session
        .enable()
        .map_err(RecordError::io("cannot enable the events"))?;
    let drain = session
        .drain_into(spool)
        .map_err(RecordError::io("cannot start the drain thread"))?;
    let root = child.pid() as u32;
    let sampling = marks.map(|(marks, interval)| Sampling::start(root, interval, marks));
    let sampling = sampling.transpose();
    let sampling = sampling.map_err(RecordError::io("cannot start the sampling thread"))?;
    let run = watch(&mut child, interrupt);
    let used = sampling.map_or_else(Vec::new, Sampling::finish);
    let spool = drain.finish();
    Ok(Run {
        recorder_seconds: own_cpu_seconds() - before,
        recorded: Some(Recorded {
            spool,
            cpus,
            without_transfers,
            without_switches,
            used,
        }),
        ..run?
    })
}

/// Runs the command as it is recorded, huge pages off, but unobserved.
pub(super) fn run_plain(command: &[OsString], interrupt: &Interrupt) -> Result<Run, RecordError> {
    let mut child = Child::hold(command, true)?;
    watch(&mut child, interrupt)
}

/// Releases the command and waits for its end. A signal that asks this process to end is
/// passed on to the command, and its end awaited all the same.
fn watch(child: &mut Child, interrupt: &Interrupt) -> Result<Run, RecordError> {
    // SAFETY: takes two integers.
    let pidfd = unsafe { libc::syscall(libc::SYS_pidfd_open, child.pid(), 0) };
    if pidfd < 0 {
        let error = std::io::Error::last_os_error();
        return Err(RecordError::io("cannot watch the command")(error));
    }
    // SAFETY: a new descriptor that nobody else owns.
    let _owned = unsafe { OwnedFd::from_raw_fd(pidfd as libc::c_int) };
    let (began, started) = (SystemTime::now(), Instant::now());
    child.release()?;
    let mut told = None;
    loop {
        let mut wait = libc::pollfd {
            fd: pidfd as libc::c_int,
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one entry that outlives the call.
        unsafe { libc::poll(&mut wait, 1, WATCH_MS) };
        let ended = child.try_wait();
        if let Some(ending) = ended.map_err(RecordError::io("cannot wait for the command"))? {
            return Ok(Run {
                ending,
                seconds: started.elapsed().as_secs_f64(),
                root: child.pid() as u32,
                began,
                recorder_seconds: 0.0,
                recorded: None,
            });
        }
        let signal = interrupt.signal();
        if let Some(signal) = signal.filter(|signal| told != Some(*signal)) {
            told = Some(signal);
            child.pass_on(signal);
        }
    }
}

fn environment(command: &[OsString], cpus: usize) -> Environment {
    // SAFETY: an all-zero `utsname` is a valid value of byte arrays.
    let mut name: libc::utsname = unsafe { std::mem::zeroed() };
    // SAFETY: the struct outlives the call, which fills it with C strings.
    unsafe { libc::uname(&mut name) };
    let text = |field: &[libc::c_char]| {
        let bytes: Vec<u8> = field.iter().map(|byte| *byte as u8).collect();
        let text = CStr::from_bytes_until_nul(&bytes).unwrap_or_default();
        text.to_string_lossy().into_owned()
    };
    // SAFETY: both calls take an integer.
    let memory = unsafe { libc::sysconf(libc::_SC_PHYS_PAGES) * libc::sysconf(libc::_SC_PAGESIZE) };
    Environment {
        kernel: text(&name.release),
        architecture: text(&name.machine),
        cpus: cpus as u32,
        memory: memory.max(0) as u64,
        command: command
            .iter()
            .map(|word| word.to_string_lossy().into_owned())
            .collect(),
        thp_off: true,
        cuts: Vec::new(),
    }
}

/// What could not be seen, one sentence each.
fn invisible(noticed: &Noticed, recorded: &Recorded, accesses: Option<Accesses>) -> Vec<String> {
    let tmpfs = match &recorded.without_transfers {
        Some(why) => format!(
            "Reads and writes of tmpfs files by system call do not show ({why}); mappings of them \
             do."
        ),
        None => "Reads and writes of tmpfs files were followed from the descriptors of system \
                 calls, by a BPF program; those by io_uring do not show."
            .to_owned(),
    };
    let mut notes = vec![
        "Pages that the kernel touches through its own pins (arguments of exec, direct I/O) cause \
         no fault event."
            .to_owned(),
        tmpfs,
        "Writes to a file's page that is dirty already do not show.".to_owned(),
        "Waits other than wait4 (waitid, pidfd, signals) do not show.".to_owned(),
    ];
    if let Some(why) = recorded.spool.why_cut() {
        notes.push(format!(
            "What the command did after the last event does not show: the recorded events could not \
             be kept ({why})."
        ));
    }
    if let Some(why) = &recorded.without_switches {
        notes.push(format!(
            "How long tasks ran between their events does not show: the kernel gave no records of \
             context switches ({why})."
        ));
    }
    if let Some(accesses) = accesses {
        notes.push(
            "How often and in what order pages were used between two samples of accessed marks does \
             not show, nor whether they were stored to."
                .to_owned(),
        );
        if accesses.marks == AccessMarks::Regions {
            notes.push(
                "Which pages of a region were used does not show, but how many: those with the \
                 lowest addresses are taken for them."
                    .to_owned(),
            );
        }
    }
    let unseen = &noticed.unseen;
    for (count, what) in [
        (
            unseen.populated,
            "mappings were populated at once (MAP_POPULATE, MAP_LOCKED); the pages do not show.",
        ),
        (
            unseen.locked,
            "calls locked memory (mlock); the pages they populated do not show.",
        ),
        (
            unseen.huge,
            "mappings of explicit huge pages were recorded as mappings of small ones.",
        ),
        (
            unseen.nameless,
            "mappings of files were recorded as anonymous: the kernel did not report the file.",
        ),
        (
            unseen.narrow,
            "programs were of 32 bits; their system calls, and so their mappings, do not show.",
        ),
        (
            noticed.still_running,
            "tasks still ran when the command ended; what they did later does not show.",
        ),
    ] {
        if count > 0 {
            notes.push(format!("{count} {what}"));
        }
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::syscalls::Unseen;

    #[test]
    fn buffer_sizes_are_powers_of_two_and_read_like_the_option() {
        assert_eq!(buffer_bytes(5 << 20), 8 << 20);
        assert_eq!(buffer_bytes(1), 1 << 16);
        assert_eq!(size_text(8 << 20), "8M");
        assert_eq!(size_text(1 << 16), "64K");
    }

    #[test]
    fn a_trace_says_why_it_has_no_cpu_times() {
        let noticed = Noticed {
            lost: 0,
            still_running: 0,
            unseen: Unseen::default(),
        };
        let notes = |without_switches: Option<&str>| {
            let recorded = Recorded {
                spool: Spool::create(&std::env::temp_dir()).unwrap(),
                cpus: 1,
                without_transfers: None,
                without_switches: without_switches.map(str::to_owned),
                used: Vec::new(),
            };
            invisible(&noticed, &recorded, None).join("\n")
        };
        assert!(notes(Some("Invalid argument")).contains("context switches (Invalid argument)"));
        assert!(!notes(None).contains("context switches"));
    }
}
