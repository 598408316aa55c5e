//! Events on every CPU, and the thread that drains them.
//!
//! Each CPU has one ring. A dummy event owns it and brings the side-band
//! records (maps, names, forks, exits, context switches); the tracepoints write
//! into the same ring, so one CPU's records are in order without sorting.
//!
//! The events are those of the CPU, whatever task it runs, and not of the
//! command with all its descendants inheriting them: a task that inherits
//! some forty events pays for it at its creation, at each context switch
//! and at its end, which was most of what recording a build cost. Records of
//! other tasks are told apart afterwards, by the tree of creations.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use crate::clock::monotonic_ns;
use crate::error::{RecordError, is_root};
use crate::faults::Batches;
use crate::perf::{self, Attr, Ring, flag};
use crate::spool::Spool;
use crate::tracepoint::{Layout, WANTED};
use crate::transfers::Watch;

/// How often rings are looked at even if no watermark was reached.
const IDLE_POLL_MS: libc::c_int = 250;

/// Open events and their rings. Dropping it stops the recording.
pub struct Session {
    cpus: Vec<u32>,
    /// Kept open: closing an event ends it.
    events: Vec<OwnedFd>,
    rings: Vec<(Ring, libc::c_int)>,
    /// What shows reads and writes on tmpfs, or why nothing does.
    transfers: Result<Watch, String>,
    /// What gathers faults; without it each is an event.
    faults: Option<Batches>,
    /// Why context switches are not recorded, if they are not.
    without_switches: Option<String>,
}

impl Session {
    /// Opens every event, not yet enabled, with `buffer` bytes (a power of two)
    /// for each CPU.
    pub fn open(layouts: &[Layout], buffer: usize) -> Result<Self, RecordError> {
        let cpus = online_cpus().map_err(RecordError::io("cannot list the online CPUs"))?;
        raise_file_limit();
        let mut session = Session {
            cpus: cpus.clone(),
            events: Vec::new(),
            rings: Vec::new(),
            transfers: Watch::load(layouts, &cpus),
            faults: Batches::load(&cpus).ok(),
            without_switches: None,
        };
        for cpu in cpus {
            session.open_cpu(cpu, layouts, buffer)?;
        }
        Ok(session)
    }

    fn open_cpu(&mut self, cpu: u32, layouts: &[Layout], buffer: usize) -> Result<(), RecordError> {
        let needed = (layouts.len() + 2) * self.cpus.len() + 34;
        let refused = |error| open_error(error, needed);
        let owner = self.open_owner(cpu, buffer).map_err(refused)?;
        let ring = Ring::map(&owner, buffer).map_err(|error| map_error(error, buffer))?;
        for (layout, wanted) in layouts.iter().zip(WANTED) {
            if self.faults.is_some() && wanted.point.is_fault() {
                continue;
            }
            let attr = attr(perf::TYPE_TRACEPOINT, u64::from(layout.id), 0, buffer);
            let event = perf::open(&attr, cpu).map_err(refused)?;
            let what = |action: &str| format!("cannot {action} event {}", wanted.label);
            if let Some(condition) = wanted.condition(self.transfers.is_ok()) {
                perf::set_filter(&event, &condition).map_err(RecordError::io(what("filter")))?;
            }
            perf::set_output(&event, &owner).map_err(RecordError::io(what("redirect")))?;
            // One event is enough for all CPUs.
            if let (Ok(watch), true) = (&self.transfers, self.rings.is_empty()) {
                watch
                    .attach(layout.point, &event)
                    .map_err(RecordError::io(what("watch")))?;
            }
            self.events.push(event);
        }
        if self.transfers.is_ok() || self.faults.is_some() {
            let attr = attr(perf::TYPE_SOFTWARE, perf::SW_BPF_OUTPUT, 0, buffer);
            let event = perf::open(&attr, cpu).map_err(refused)?;
            let what = || RecordError::io("cannot direct what BPF programs show");
            perf::set_output(&event, &owner).map_err(what())?;
            if let Ok(watch) = &self.transfers {
                watch.send(cpu, &event).map_err(what())?;
            }
            if let Some(faults) = &self.faults {
                faults.send(cpu, &event).map_err(what())?;
            }
            self.events.push(event);
        }
        self.rings.push((ring, owner.as_raw_fd()));
        self.events.push(owner);
        Ok(())
    }

    /// Opens the event that brings the side-band records, with those of
    /// context switches if the kernel has them.
    fn open_owner(&mut self, cpu: u32, buffer: usize) -> io::Result<OwnedFd> {
        let side_band =
            flag::MMAP | flag::MMAP2 | flag::MMAP_DATA | flag::COMM | flag::COMM_EXEC | flag::TASK;
        let (owner, refused) = with_switches_if_there_are(side_band, |flags| {
            let attr = attr(perf::TYPE_SOFTWARE, perf::SW_DUMMY, flags, buffer);
            perf::open(&attr, cpu)
        })?;
        if refused.is_some() {
            self.without_switches = refused;
        }
        Ok(owner)
    }

    /// Begins to record.
    pub fn enable(&mut self) -> io::Result<()> {
        self.events.iter().try_for_each(perf::enable)?;
        self.faults.as_mut().map_or(Ok(()), Batches::start)
    }

    /// Why reads and writes on tmpfs do not show, if they do not.
    pub fn without_transfers(&self) -> Option<&str> {
        self.transfers.as_ref().err().map(String::as_str)
    }

    /// Why context switches are not recorded, if they are not.
    pub fn without_switches(&self) -> Option<&str> {
        self.without_switches.as_deref()
    }

    /// Number of CPUs that are observed.
    pub fn cpus(&self) -> usize {
        self.cpus.len()
    }

    /// Drains the rings into `spool` on a thread of its own until
    /// [`Drain::finish`].
    pub fn drain_into(self, spool: Spool) -> io::Result<Drain> {
        let stop = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&stop);
        let builder = std::thread::Builder::new().name("drain".into());
        let thread = builder.spawn(move || self.drain(spool, &seen))?;
        Ok(Drain { stop, thread })
    }

    /// If records cannot be kept in the spool's file, those that are there are kept in memory,
    /// and recording ends; the command goes on.
    fn drain(mut self, mut spool: Spool, stop: &AtomicBool) -> Drained {
        let mut waits: Vec<libc::pollfd> = self
            .rings
            .iter()
            .map(|&(_, fd)| libc::pollfd {
                fd,
                events: libc::POLLIN,
                revents: 0,
            })
            .collect();
        let mut records = Vec::new();
        loop {
            // Read before draining: what was recorded before the stop is drained.
            let last_round = stop.load(Ordering::Acquire) || spool.is_cut();
            if last_round && let Some(faults) = &mut self.faults {
                faults.stop();
            }
            let began_ns = monotonic_ns();
            for (cpu, (ring, _)) in self.rings.iter_mut().enumerate() {
                records.clear();
                if ring.drain(&mut records) > 0 {
                    spool.append(cpu, &records);
                }
            }
            if last_round {
                self.take_left(&mut spool);
                spool.is_complete_until(began_ns);
                let watch = self.transfers.as_ref().ok();
                return Drained {
                    spool,
                    passed_calls: watch.map_or(0, Watch::passed_calls),
                };
            }
            if spool.is_cut() {
                continue;
            }
            // SAFETY: the array is as long as stated and outlives the call.
            unsafe { libc::poll(waits.as_mut_ptr(), waits.len() as _, IDLE_POLL_MS) };
            for wait in &mut waits {
                // A CPU that went offline.
                if wait.revents & libc::POLLHUP != 0 {
                    wait.fd = -1;
                }
            }
        }
    }

    /// Takes the faults that no ring has got yet.
    fn take_left(&self, spool: &mut Spool) {
        let Some(faults) = &self.faults else {
            return;
        };
        match faults.left() {
            Ok(left) => {
                for (cpu, bytes) in left {
                    if let Some(place) = self.cpus.iter().position(|known| *known == cpu) {
                        spool.append(place, &bytes);
                    }
                }
            }
            Err(why) => spool.cut_short(why),
        }
        spool.missed(faults.missed());
    }
}

/// What a drain thread brings home.
pub struct Drained {
    pub spool: Spool,
    /// System calls of no interest, by whatever task.
    pub passed_calls: u64,
}

/// The running drain thread.
pub struct Drain {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Drained>,
}

impl Drain {
    /// Drains once more and returns what was recorded.
    pub fn finish(self) -> Drained {
        self.stop.store(true, Ordering::Release);
        match self.thread.join() {
            Ok(drained) => drained,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

/// Opens an event with `flags` and records of context switches. If that is refused, but
/// not without them, returns also why.
fn with_switches_if_there_are<T>(
    flags: u64,
    open: impl Fn(u64) -> io::Result<T>,
) -> io::Result<(T, Option<String>)> {
    match open(flags | flag::CONTEXT_SWITCH) {
        Ok(event) => Ok((event, None)),
        Err(error) => Ok((open(flags)?, Some(error.to_string()))),
    }
}

/// An event that delivers every occurrence and carries the monotonic clock, by
/// which CPUs are merged.
fn attr(kind: u32, config: u64, flags: u64, buffer: usize) -> Attr {
    let mut attr = Attr::default();
    attr.kind = kind;
    attr.config = config;
    attr.sample_period = 1;
    attr.sample_type = perf::SAMPLE_TID | perf::SAMPLE_TIME | perf::SAMPLE_RAW;
    attr.flags = flags | flag::DISABLED | flag::WATERMARK | flag::SAMPLE_ID_ALL | flag::USE_CLOCKID;
    attr.wakeup_watermark = (buffer / 4) as u32;
    attr.clockid = libc::CLOCK_MONOTONIC;
    attr
}

fn open_error(error: io::Error, needed: usize) -> RecordError {
    match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => RecordError::NoPerfmon {
            binary: std::env::current_exe().unwrap_or_else(|_| "vellum".into()),
            root: is_root(),
        },
        Some(libc::ENOSYS) => RecordError::NoPerfEvents,
        Some(libc::EMFILE) => RecordError::TooManyFiles { needed },
        _ => RecordError::io("cannot open an event")(error),
    }
}

fn map_error(error: io::Error, bytes: usize) -> RecordError {
    match error.raw_os_error() {
        Some(libc::EPERM | libc::ENOMEM) => RecordError::BufferRefused {
            bytes,
            kib: bytes / 1024 + 4,
        },
        _ => RecordError::io("cannot map an event buffer")(error),
    }
}

/// Raises the soft limit on descriptors to the hard one. A failure shows when a
/// descriptor is refused.
fn raise_file_limit() {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: both calls get a pointer to a live limit.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) == 0 {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
        }
    }
}

/// Numbers of the online CPUs.
pub fn online_cpus() -> io::Result<Vec<u32>> {
    let text = fs::read_to_string("/sys/devices/system/cpu/online")?;
    parse_cpu_list(text.trim())
        .ok_or_else(|| io::Error::other(format!("unexpected list of CPUs: {}", text.trim())))
}

fn parse_cpu_list(text: &str) -> Option<Vec<u32>> {
    let mut cpus = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        cpus.extend(first.parse::<u32>().ok()?..=last.parse::<u32>().ok()?);
    }
    Some(cpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_without_records_of_context_switches_is_recorded_without_them() {
        let refuses = |what: u64| {
            move |flags: u64| match flags & what {
                0 => Ok(flags),
                _ => Err(io::Error::from_raw_os_error(libc::EINVAL)),
            }
        };
        let (flags, why) = with_switches_if_there_are(flag::TASK, refuses(0)).unwrap();
        assert_eq!((flags, why), (flag::TASK | flag::CONTEXT_SWITCH, None));
        let (flags, why) =
            with_switches_if_there_are(flag::TASK, refuses(flag::CONTEXT_SWITCH)).unwrap();
        assert_eq!(flags, flag::TASK);
        assert!(why.expect("a reason").contains("Invalid argument"));
        assert!(with_switches_if_there_are(flag::TASK, refuses(flag::TASK)).is_err());
    }

    #[test]
    fn cpu_lists_are_read_as_the_kernel_writes_them() {
        assert_eq!(parse_cpu_list("0"), Some(vec![0]));
        assert_eq!(parse_cpu_list("0-2,5,7-8"), Some(vec![0, 1, 2, 5, 7, 8]));
        assert_eq!(parse_cpu_list("0-"), None);
    }
}
