//! A workload of tasks on the simulated CPUs of a whole machine: tasks compute, ask the
//! core for something, wait for each other, and share the CPUs under a scheduler.
//!
//! A [`Program`] says what each task does. [`replay`] runs it on so many CPUs and says how
//! long that took, and how much of it the tasks computed (user time), the core worked
//! (system time), and the CPUs had nothing to do (idle time).
//!
//! The scheduler has a queue of runnable tasks for each CPU. A task that becomes runnable
//! goes to the CPU it last ran on if that is idle, else to an idle CPU near it, else to the
//! queue of the CPU that made it runnable. A CPU takes from its own queue first, and then
//! the task that has waited longest from the longest queue of its cluster, its socket, and
//! so on. At the end of its slice a task gives way to those in the queue of its CPU.
//!
//! What the simulation leaves out: a task that sleeps within an operation, for a lock of the
//! core, keeps its CPU meanwhile; that is idle time, though others may wait for the CPU. The
//! scheduler's own data is no simulated memory; a switch and a waking cost what the machine
//! description says. Files are on a device that takes no time; who reads them gets a copy of
//! the pages.

mod account;
mod kernel;
mod processor;
mod program;
mod queue;
mod run;
mod stop;

pub use program::{Flaw, Program, Step, TaskStream, Wait};
pub use stop::{Blocked, Stop};

use vellum_description::Description;
use vellum_engine::op::Divergence;
use vellum_sim::{CpuTotals, LineProfile, LockProfile, ProfiledLine};

use crate::kinds::{FrameKinds, LineClass, LockClass};
use crate::run::ScaleError;

/// How long a task runs while others wait, unless it is said otherwise: 10 ms.
pub const SLICE_NS: u64 = 10_000_000;

/// What is to be replayed.
#[derive(Clone, Copy, Debug)]
pub struct Request<'r> {
    /// The machine.
    pub machine: &'r Description,
    /// How many of its CPUs.
    pub cpus: usize,
    /// The design in option syntax. Its format has to be that of x86-64.
    pub design: &'r str,
    /// What the tasks do.
    pub program: &'r Program,
    /// Draws when each CPU starts, and who goes first at one time.
    pub seed: u64,
    /// How long a task runs while others wait for its CPU ([`SLICE_NS`]).
    pub slice_ns: u64,
    /// Memory of the whole machine, divided evenly among the nodes of the CPUs. Without it
    /// 256 MiB for each CPU, and 4 GiB at least.
    pub ram_bytes: Option<u64>,
}

/// What one CPU did with the time from where counting begins ([`TaskStream::beginning`]) to the
/// end of the last task. The three add up to [`Replayed::elapsed_ns`].
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct CpuShare {
    /// Tasks computed.
    pub user_ns: u64,
    /// The core worked, or the scheduler, or an interrupt was handled.
    pub system_ns: u64,
    /// There was nothing to do but what the core does in idle time, or its task slept for a
    /// lock of the core.
    pub idle_ns: u64,
}

/// How a replay went. All times are virtual.
#[derive(Clone, Debug)]
pub struct Replayed {
    /// From where counting begins to the end of the last task.
    pub elapsed_ns: u64,
    /// User time of all CPUs.
    pub user_ns: u64,
    /// System time of all CPUs.
    pub system_ns: u64,
    /// Idle time of all CPUs.
    pub idle_ns: u64,
    /// The three by CPU.
    pub by_cpu: Vec<CpuShare>,
    /// Operations that were executed.
    pub ops: u64,
    /// How often a CPU took up another task than the one it had run before.
    pub context_switches: u64,
    /// How often a task went on on another CPU than before.
    pub migrations: u64,
    /// How often a task gave way to another at the end of its slice.
    pub preemptions: u64,
    /// How often a task gave its CPU up because it had to wait for others.
    pub sleeps: u64,
    /// Operations that went otherwise than recorded: how, and how many, the first kind that
    /// was met first.
    pub divergences: Vec<(Divergence, u64)>,
    /// When each task of the program ended, after counting began.
    pub ended_at_ns: Vec<u64>,
    /// Where the CPUs lost time.
    pub profile: LineProfile,
    /// What locks they took.
    pub locks: LockProfile,
    /// What the simulator counted for each CPU until it had nothing left to do.
    pub cpus: Vec<CpuTotals>,
    /// What the core counted, by name, in a fixed order.
    pub counters: Vec<(&'static str, u64)>,
    pub(crate) kinds: FrameKinds,
}

impl Replayed {
    /// User and system time as a share of the elapsed time: 8.0 if eight CPUs were busy
    /// throughout.
    pub fn busy(&self) -> f64 {
        (self.user_ns + self.system_ns) as f64 / self.elapsed_ns.max(1) as f64
    }

    /// What a line of the profile is: for records of frames, of which frames.
    pub fn name_of(&self, line: &ProfiledLine) -> String {
        self.kinds.name_of(line)
    }

    /// The lines by class, in the order of their names.
    pub fn line_classes(&self) -> Vec<LineClass> {
        self.kinds.line_classes(&self.profile)
    }

    /// The locks by class, those waited for longest first.
    pub fn lock_classes(&self) -> Vec<LockClass> {
        self.kinds.classes(&self.locks)
    }
}

/// Replays a program.
///
/// # Errors
/// [`ScaleError`]: for a program that cannot be replayed, or stops because its tasks wait for
/// each other in a circle or the machine is out of memory, which task it was and where.
pub fn replay(request: &Request<'_>) -> Result<Replayed, ScaleError> {
    run::replay(request)
}
