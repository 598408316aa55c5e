//! Sampling profiles of what this process does.
//!
//! Every thread that does work of an [`Arm`] of a profiler has a timer that
//! interrupts it at random moments. The signal handler walks the stack and notes
//! the return addresses under the arm that the thread works for. So one
//! interleaved run yields a profile of each arm of a comparison, and whatever
//! disturbs the machine is in all of them.
//!
//! * **No permission is needed.** The timers are ordinary POSIX timers of the
//!   monotonic clock, which the kernel backs with high-resolution timers; timers of
//!   CPU time would fire on the kernel's tick only, 250 times a second.
//! * **Moments are drawn from an exponential distribution**, so that samples are a
//!   Poisson process: they do not fall into step with slices, a count of `n` has a
//!   standard error of `√n`, and it makes no difference that the clock goes on
//!   between slices.
//! * **Time that a thread waits for a host CPU does not count.** A signal that was
//!   held back because its thread was not running is told by its lateness.
//! * **A sample costs a signal and a walk** of some microseconds in the arm that
//!   it hits. It is part of the times that the comparison reports.
//! * **Frame pointers are not needed**: stacks are walked by the unwind tables
//!   that every Rust program has. Names come from symbols and debug information,
//!   inlined functions included.

mod ring;
mod signal;
mod thread;
mod unwind;

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::symbols::Symbols;
use crate::{Profile, Stack};
use thread::Sampled;
pub(crate) use unwind::Modules;

/// Samples a second on each thread unless told otherwise.
pub const DEFAULT_RATE_HZ: u32 = 1000;

/// A profile could not be taken.
#[derive(Debug, thiserror::Error)]
pub enum SampleError {
    /// A timer could not be made.
    #[error("no timer for sampling: {0}; raise the limit of pending signals (ulimit -i)")]
    Timer(io::Error),
    /// The handler could not be installed.
    #[error("no handler for the signal of sampling timers: {0}")]
    Handler(io::Error),
    /// This program's own code could not be found.
    #[error("{what}: {source}; without it, call stacks cannot be walked")]
    Modules {
        /// What was to be read.
        what: String,
        /// What the system said.
        source: io::Error,
    },
    /// Nothing was sampled.
    #[error(
        "not one sample of {arm} was taken: the run is too short for the sampling rate; raise \
         --profile-rate or run more passes"
    )]
    TooShort {
        /// The arm without samples.
        arm: String,
    },
}

/// What came of a run.
#[derive(Clone, Debug)]
pub struct Samples {
    /// One profile for each arm, in order.
    pub profiles: Vec<Profile>,
    /// Samples for which the buffers had no room.
    pub lost: u64,
    /// Samples a second that were aimed at.
    pub rate_hz: u32,
}

/// Call stacks by arm: return addresses, innermost first.
type Counts = HashMap<(u32, Box<[u64]>), u64>;

/// Samples the work of its arms.
#[derive(Debug)]
pub struct Profiler {
    shared: Arc<Shared>,
}

/// What a profiler and its arms share.
#[derive(Debug)]
struct Shared {
    /// Tells this profiler from others of the process.
    number: u64,
    /// In the names of functions that only call what is sampled.
    caller: &'static str,
    rate_hz: u32,
    active: AtomicBool,
    modules: Arc<Modules>,
    threads: Mutex<Vec<&'static Sampled>>,
    counts: Mutex<Counts>,
    failed: Mutex<Option<SampleError>>,
}

impl Profiler {
    /// Gets ready to sample `rate_hz` times a second on each thread. Functions
    /// whose name contains `caller` are left out at the outer end of stacks: they
    /// only call what is sampled. It is usually the `module_path!()` of the caller
    /// of [`Arm::run`].
    ///
    /// # Errors
    /// The operating system refuses timers, or this program's code cannot be read.
    pub fn start(rate_hz: u32, caller: &'static str) -> Result<Self, SampleError> {
        static NUMBER: AtomicU64 = AtomicU64::new(1);
        signal::install().map_err(SampleError::Handler)?;
        let shared = Arc::new(Shared {
            number: NUMBER.fetch_add(1, Ordering::Relaxed),
            caller,
            rate_hz: rate_hz.max(1),
            active: AtomicBool::new(true),
            modules: Arc::new(Modules::of_this_process()?),
            threads: Mutex::default(),
            counts: Mutex::default(),
            failed: Mutex::default(),
        });
        // Refused now rather than when the run is over.
        shared.sampled()?;
        Ok(Self { shared })
    }

    /// The arm of this number, counted from 0.
    pub fn arm(&self, arm: usize) -> Arm {
        Arm {
            shared: Arc::clone(&self.shared),
            tag: arm as u32 + 1,
        }
    }

    /// Samples taken so far.
    pub fn taken(&self) -> u64 {
        let threads = lock(&self.shared.threads);
        threads.iter().map(|sampled| sampled.taken()).sum()
    }

    /// Ends sampling and resolves what was sampled to names; `arms` are the names
    /// of the profiles, in the order of the arms. Work that has not ended is no
    /// longer sampled.
    ///
    /// # Errors
    /// A thread could not be sampled, or an arm has no samples.
    pub fn finish(&self, arms: &[String]) -> Result<Samples, SampleError> {
        let shared = &self.shared;
        shared.active.store(false, Ordering::SeqCst);
        let mut lost = 0;
        for sampled in lock(&shared.threads).iter() {
            sampled.stop();
            sampled.drain(&mut lock(&shared.counts));
            lost += sampled.lost();
        }
        if let Some(error) = lock(&shared.failed).take() {
            return Err(error);
        }
        let mut profiles: Vec<Profile> = arms.iter().map(Profile::new).collect();
        let mut symbols = Symbols::new(&shared.modules);
        for ((tag, addresses), ticks) in lock(&shared.counts).drain() {
            // Tags are arms counted from 1.
            if let Some(profile) = profiles.get_mut(tag as usize - 1) {
                profile.add(stack(&mut symbols, shared.caller, &addresses), ticks);
            }
        }
        match profiles.iter().find(|profile| profile.is_empty()) {
            Some(profile) => Err(SampleError::TooShort {
                arm: profile.name.clone(),
            }),
            None => Ok(Samples {
                profiles,
                lost,
                rate_hz: shared.rate_hz,
            }),
        }
    }
}

impl Drop for Profiler {
    fn drop(&mut self) {
        self.shared.active.store(false, Ordering::SeqCst);
        for sampled in lock(&self.shared.threads).iter() {
            sampled.stop();
        }
    }
}

/// One of the things that are compared.
#[derive(Clone, Debug)]
pub struct Arm {
    shared: Arc<Shared>,
    /// The arm, counted from 1.
    tag: u32,
}

impl Arm {
    /// Does `work`, on this thread and sampled for this arm.
    pub fn run(&self, work: impl FnOnce()) {
        let Some(sampled) = self.shared.sampled_if_possible() else {
            return work();
        };
        sampled.inside(self.tag, work);
        if sampled.is_half_full() {
            sampled.drain(&mut lock(&self.shared.counts));
        }
    }
}

impl Shared {
    /// The calling thread's timer and buffers.
    fn sampled(&self) -> Result<&'static Sampled, SampleError> {
        thread::of_this_thread(self.number, || {
            let sampled = Sampled::new(self.rate_hz, &self.modules).map_err(SampleError::Timer)?;
            lock(&self.threads).push(sampled);
            Ok(sampled)
        })
    }

    /// As [`Shared::sampled`]; what fails is kept for [`Profiler::finish`].
    fn sampled_if_possible(&self) -> Option<&'static Sampled> {
        if !self.active.load(Ordering::Relaxed) {
            return None;
        }
        let sampled = self.sampled();
        sampled
            .map_err(|error| lock(&self.failed).get_or_insert(error).to_string())
            .ok()
    }
}

/// Names of a stack, outermost first, from the first frame of the sampled work on.
fn stack(symbols: &mut Symbols<'_>, caller: &str, addresses: &[u64]) -> Stack {
    let mut names = Stack::new();
    for (depth, address) in addresses.iter().enumerate().rev() {
        // A return address is behind its call, perhaps in the next function.
        let probe = if depth == 0 { *address } else { address - 1 };
        names.extend(symbols.frames(probe));
    }
    // Outermost are frames of this module and of its caller.
    let is_own = |name: &&Arc<str>| name.contains(OWN) || name.contains(caller);
    let own = names.iter().take_while(is_own).count();
    match own {
        0 => names.insert(0, CUT_OFF.into()),
        own if names[own..].iter().all(|name| name.contains(ARMING)) => {
            names = vec![SAMPLER.into()];
        }
        own => drop(names.drain(..own)),
    }
    names
}

/// In the names of functions of this module.
const OWN: &str = "profile::sample::";
/// The system call by which this module sets the next sample's time.
const ARMING: &str = "timer_settime";
/// What the sampler itself took.
const SAMPLER: &str = "(sampler)";
/// Outermost in stacks that could not be walked to the end.
const CUT_OFF: &str = "(callers unknown)";

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing that panics leaves these half-changed.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
