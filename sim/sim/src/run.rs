//! Running a program on all CPUs: one coroutine each, on the calling thread, the CPU
//! with the lowest clock first.

mod charge;
mod cpu;

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr;
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};

use corosensei::{Coroutine, CoroutineResult, Yielder};
use vellum::platform::{CpuId, NodeId};
use vellum::sync::report::{Access, Kind, listen, spare_by};

use crate::directory::Directory;
use crate::line::NOBODY;
use crate::locks::LockProfile;
use crate::net::Net;
use crate::places::{Homes, PlaceError, Places};
use crate::profile::LineProfile;
use crate::random::Random;
use crate::stack::CpuStack;
use crate::state::{Activity, CpuTotals, State};
use vellum_description::{Description, MOST_CPUS};

pub use cpu::{Cpu, with_cpu};

thread_local! {
    /// The run whose CPU this thread is being.
    static ACTIVE: Cell<*const Run> = const { Cell::new(ptr::null()) };
    /// What tells this thread since its last failed run from all else; 0 before it is
    /// asked for.
    static ERA: Cell<u64> = const { Cell::new(0) };
}

/// A number for the time of this thread until a run of it fails. What programs were in
/// the middle of then is never completed.
pub(crate) fn era() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    if ERA.get() == 0 {
        ERA.set(NEXT.fetch_add(1, Ordering::Relaxed));
    }
    ERA.get()
}

/// A machine that programs can be run on, with what they share.
#[derive(Debug)]
pub struct Simulation {
    machine: Description,
    cpus: usize,
    seed: u64,
    start_within_ns: u64,
    limit_ns: u64,
    count_from_ns: u64,
    places: Places,
    checked: bool,
    is_hosted: bool,
}

/// Why there is no machine with so many CPUs.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "{asked} CPUs: {title} has {has}; a simulated machine has at least one, and no more than its description"
)]
pub struct TooManyCpus {
    /// CPUs asked for.
    pub asked: usize,
    /// CPUs that the description has.
    pub has: usize,
    /// What the machine is.
    pub title: String,
}

/// Why a run did not end well.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RunError {
    /// Some CPUs sleep and none is left that could wake them.
    #[error("CPUs {} sleep, and nobody is left to wake them", cpus(.sleeping))]
    Deadlock {
        /// Who sleeps.
        sleeping: Vec<CpuId>,
    },
    /// The limit has passed.
    #[error("CPU {} was not done after the limit of {limit_ns} virtual ns", .cpu.0)]
    TooLong {
        /// Who was the farthest behind.
        cpu: CpuId,
        /// The limit.
        limit_ns: u64,
    },
    /// A CPU used memory that was not placed, which has no line.
    #[error("CPU {} made an access ({kind:?}, {bytes} bytes) to memory that was not placed", .cpu.0)]
    Unplaced {
        /// Who.
        cpu: CpuId,
        /// What it did.
        kind: Kind,
        /// How many bytes.
        bytes: usize,
    },
    /// Placed memory was changed without a report.
    #[error("{place}+{offset:#x} was changed by an access that was not reported, by CPU {} or before", .cpu.0)]
    Unreported {
        /// Name of the place.
        place: String,
        /// The first byte found.
        offset: usize,
        /// Who ran when it was found.
        cpu: CpuId,
    },
    /// The host has no memory for a stack.
    #[error("no memory for the stack of a CPU: {0}")]
    NoStack(String),
    /// So many listeners listen already that the simulator cannot.
    #[error("{0}")]
    NoListener(String),
}

fn cpus(cpus: &[CpuId]) -> String {
    let numbers: Vec<String> = cpus.iter().map(|cpu| cpu.0.to_string()).collect();
    numbers.join(", ")
}

/// How a run went.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outcome<R> {
    /// What the program returned, by CPU.
    pub results: Vec<R>,
    /// The latest time at which a CPU's program ended, in picoseconds.
    pub elapsed: u64,
    /// What each CPU did.
    pub cpus: Vec<CpuTotals>,
    /// Bytes that the memory of each node provided or took in bulk.
    pub node_bytes: Vec<u64>,
    /// Where time was lost.
    pub profile: LineProfile,
    /// What locks were taken, and how long they were waited for.
    pub locks: LockProfile,
}

impl Simulation {
    /// `cpus` CPUs of a machine, the first threads of its first cores first.
    ///
    /// # Errors
    /// [`TooManyCpus`] if the machine does not have so many, or none were asked for.
    pub fn new(machine: &Description, cpus: usize) -> Result<Simulation, TooManyCpus> {
        let has = machine.cpus().min(MOST_CPUS);
        if !(1..=has).contains(&cpus) {
            return Err(TooManyCpus {
                asked: cpus,
                has,
                title: machine.title.clone(),
            });
        }
        Ok(Simulation {
            machine: machine.clone(),
            cpus,
            seed: 0,
            start_within_ns: 0,
            limit_ns: u64::MAX,
            count_from_ns: 0,
            places: Places::default(),
            checked: false,
            is_hosted: false,
        })
    }

    /// Who goes first where clocks agree, where the CPUs' random numbers begin, and when
    /// within the first `start_within_ns` nanoseconds each CPU starts.
    #[must_use]
    pub fn seed(mut self, seed: u64, start_within_ns: u64) -> Simulation {
        self.seed = seed;
        self.start_within_ns = start_within_ns;
        self
    }

    /// Virtual nanoseconds after which a run fails.
    #[must_use]
    pub fn limit_ns(mut self, limit_ns: u64) -> Simulation {
        self.limit_ns = limit_ns;
        self
    }

    /// Virtual nanoseconds after which counting begins. What CPUs do before, and where they lose
    /// time, is in no figure but [`Outcome::elapsed`] and [`CpuTotals::ended_at`].
    #[must_use]
    pub fn count_from_ns(mut self, count_from_ns: u64) -> Simulation {
        self.count_from_ns = count_from_ns;
        self
    }

    /// For programs on a hosted machine, which has locks of the host. What is done with the
    /// bytes of frames costs nothing and is no place where another CPU may go on, since such a
    /// lock may be held meanwhile. And what CPUs are in the middle of when a run fails is left
    /// as it is for good, with what it holds: nothing of it is used any more.
    #[must_use]
    pub fn hosted(mut self) -> Simulation {
        self.is_hosted = true;
        self
    }

    /// Names host memory that programs share. Nobody looks at it here; it need only be
    /// the same memory as long as the program runs.
    ///
    /// # Errors
    /// [`PlaceError`].
    pub fn place<T: ?Sized>(
        &mut self,
        name: &str,
        memory: *const T,
        bytes: usize,
        homes: Homes,
    ) -> Result<(), PlaceError> {
        self.places.add(name, memory.cast(), bytes, homes)
    }

    /// Nobody looks at what is written to whole pages of the memory that was placed last, but that
    /// what is zeroed is zero.
    ///
    /// # Safety
    /// That memory is a private mapping without a file, to which nobody holds a Rust reference but
    /// to atomic words.
    pub(crate) unsafe fn spare_last(&mut self) {
        // SAFETY: the caller's promise; a run is the calling thread's.
        unsafe { self.places.spare_last() };
    }

    /// Names a value that programs share, on a node. It begins a line.
    ///
    /// # Errors
    /// [`PlaceError`].
    pub fn place_value<T>(
        &mut self,
        name: &str,
        value: &T,
        node: NodeId,
    ) -> Result<(), PlaceError> {
        let start = ptr::from_ref(value);
        self.place(name, start, size_of::<T>(), Homes::Node(node))
    }

    /// Has runs fail where the program changes placed memory without reporting it. Takes
    /// time and as much memory again.
    ///
    /// # Safety
    /// All memory that has been placed, or is placed later, can be read while the program
    /// runs, and nothing but the program changes it meanwhile.
    #[must_use]
    pub unsafe fn check_reports(mut self) -> Simulation {
        self.checked = true;
        self
    }

    /// Number of CPUs.
    pub fn cpus(&self) -> usize {
        self.cpus
    }

    /// Runs `program` on every CPU until all have ended, all caches being empty at first.
    ///
    /// # Errors
    /// [`RunError`].
    ///
    /// # Panics
    /// If the program panicked on a CPU, or the caller is itself a program that runs.
    pub fn run<R>(self, program: impl Fn(&Cpu<'_>) -> R) -> Result<Outcome<R>, RunError> {
        assert!(
            ACTIVE.get().is_null(),
            "a simulated CPU cannot run a simulation"
        );
        listen_once()?;
        let mut random = Random::new(self.seed);
        let ranks = random.permutation(self.cpus);
        let starts: Vec<u64> = (0..self.cpus)
            .map(|_| random.below(self.start_within_ns * 1000 + 1))
            .collect();
        // SAFETY: the promise of whoever called `check_reports`. The net is used on this
        // thread only, which makes no access to that memory meanwhile.
        let net = (self.checked).then(|| unsafe { Net::new(self.places.memory()) });
        let directory = Directory::new(&self.machine, self.places);
        let mut state = State::new(&self.machine, directory, &starts, &ranks);
        state.count_from(self.count_from_ns * 1000);
        let run = Run {
            state: RefCell::new(state),
            yielders: (0..self.cpus).map(|_| Cell::new(ptr::null())).collect(),
            muted: Cell::new(0),
            failure: RefCell::new(None),
            net: net.map(RefCell::new),
            is_hosted: self.is_hosted,
            seed: self.seed,
        };
        let results = run.drive(&program, self.limit_ns)?;
        // What programs did is complete, and nothing else is wrong with it.
        let hole = run.net.as_ref().and_then(|net| net.borrow_mut().finish());
        if let Some(hole) = hole {
            return Err(run.unreported(hole));
        }
        let mut state = run.state.into_inner();
        let totals: Vec<CpuTotals> = state.cpus.iter().map(|cpu| cpu.totals).collect();
        Ok(Outcome {
            results,
            elapsed: totals.iter().map(|cpu| cpu.ended_at).max().unwrap_or(0),
            cpus: totals,
            node_bytes: state.directory.streamed().to_vec(),
            profile: LineProfile::new(state.directory.all_costs()),
            locks: state.locks.profile(&mut state.directory.places),
        })
    }
}

/// Listens to the core's accesses, once for the process.
fn listen_once() -> Result<(), RunError> {
    static LISTENING: Once = Once::new();
    let mut refused = None;
    LISTENING.call_once(|| {
        refused = listen(on_access).err();
        spare_by(is_spared);
    });
    match refused {
        None => Ok(()),
        Some(error) => Err(RunError::NoListener(error.to_string())),
    }
}

fn on_access(access: Access) {
    let run = ACTIVE.get();
    if !run.is_null() {
        // SAFETY: `Turn` set it to a run that is borrowed for as long as it is set.
        unsafe { &*run }.on_access(&access);
    }
}

fn is_spared(start: usize, bytes: usize) -> bool {
    let run = ACTIVE.get();
    // SAFETY: as in `on_access`.
    !run.is_null() && unsafe { &*run }.is_spared(start, bytes)
}

type Program = Coroutine<(), (), Result<(), Box<dyn std::any::Any + Send>>, CpuStack>;

/// What a run is made of.
struct Run {
    state: RefCell<State>,
    /// How each CPU's coroutine gives way, while it is suspended or runs.
    yielders: Vec<Cell<*const Yielder<(), ()>>>,
    /// Depth of `Cpu::unreported`.
    muted: Cell<u32>,
    failure: RefCell<Option<RunError>>,
    net: Option<RefCell<Net>>,
    /// See [`Simulation::hosted`].
    is_hosted: bool,
    seed: u64,
}

/// The thread is a CPU of a run until this is dropped.
struct Turn(*const Run);

impl Turn {
    fn begin(run: &Run) -> Turn {
        Turn(ACTIVE.replace(ptr::from_ref(run)))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        ACTIVE.set(self.0);
    }
}

impl Run {
    fn drive<R>(
        &self,
        program: &impl Fn(&Cpu<'_>) -> R,
        limit_ns: u64,
    ) -> Result<Vec<R>, RunError> {
        let count = self.yielders.len();
        let results: Vec<Cell<Option<R>>> = (0..count).map(|_| Cell::new(None)).collect();
        // Dropped before what the programs borrow: `results`, `program` and `self`.
        let mut coroutines: Vec<Program> = Vec::with_capacity(count);
        for (number, result) in results.iter().enumerate() {
            let stack =
                CpuStack::new(number).map_err(|error| RunError::NoStack(error.to_string()))?;
            self.state.borrow_mut().cpus[number].stack = stack.range();
            let body = move |yielder: &Yielder<(), ()>, ()| {
                self.yielders[number].set(yielder);
                let cpu = Cpu {
                    run: self,
                    id: CpuId(number as u16),
                };
                let ended = catch_unwind(AssertUnwindSafe(|| program(&cpu)));
                self.end();
                ended.map(|value| result.set(Some(value)))
            };
            // SAFETY: the coroutines are driven to completion or dropped before this
            // returns, or forgotten and then never resumed (`give_up`), and what `body`
            // borrows was made before them.
            coroutines.push(unsafe { Coroutine::with_stack_unchecked(stack, body) });
        }
        match self.take_turns(&mut coroutines, limit_ns) {
            Ok(()) => Ok(results.into_iter().filter_map(Cell::into_inner).collect()),
            Err(Stopped::Failed(error)) => {
                self.give_up(coroutines);
                ERA.set(0);
                Err(error)
            }
            Err(Stopped::Panicked(panic)) => {
                self.give_up(coroutines);
                ERA.set(0);
                resume_unwind(panic)
            }
        }
    }

    fn take_turns(&self, coroutines: &mut [Program], limit_ns: u64) -> Result<(), Stopped> {
        let limit = limit_ns.saturating_mul(1000);
        let _turns = Turn::begin(self);
        let mut next = self.state.borrow().first();
        while let Some((cpu, time)) = next {
            if time > limit {
                let cpu = CpuId(cpu as u16);
                return Err(Stopped::Failed(RunError::TooLong { cpu, limit_ns }));
            }
            self.state.borrow_mut().enter(cpu);
            let resumed = coroutines[cpu as usize].resume(());
            let has_failed = self.failure.borrow().is_some();
            if has_failed && let Some(error) = self.failure.take() {
                return Err(Stopped::Failed(error));
            }
            match resumed {
                CoroutineResult::Yield(()) | CoroutineResult::Return(Ok(())) => {}
                CoroutineResult::Return(Err(panic)) => return Err(Stopped::Panicked(panic)),
            }
            next = self.state.borrow_mut().leave();
        }
        let state = self.state.borrow();
        let sleeps = |&cpu: &usize| state.cpus[cpu].activity == Activity::Sleeping;
        let sleeping: Vec<CpuId> = (0..state.cpus.len())
            .filter(sleeps)
            .map(|cpu| CpuId(cpu as u16))
            .collect();
        if sleeping.is_empty() {
            Ok(())
        } else {
            Err(Stopped::Failed(RunError::Deadlock { sleeping }))
        }
    }

    /// Ends programs that will not run any more.
    fn give_up(&self, coroutines: Vec<Program>) {
        if cfg!(panic = "unwind") && !self.is_hosted {
            drop(coroutines);
        } else {
            // Their stacks stay, and so does what they own.
            std::mem::forget(coroutines);
        }
    }

    /// The program of the running CPU has ended.
    fn end(&self) {
        let mut state = self.state.borrow_mut();
        let me = state.me();
        me.activity = Activity::Ended;
        me.totals.ended_at = me.clock;
    }
}

enum Stopped {
    Failed(RunError),
    Panicked(Box<dyn std::any::Any + Send>),
}

const _: () = assert!(MOST_CPUS < NOBODY as usize);
