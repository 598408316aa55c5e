//! One workload on so many CPUs of a machine under one design.

use vellum::design::TableFormat;
use vellum::platform::NodeId;
use vellum::rmap::ReverseMap;
use vellum::{Design, with_rmap};
use vellum_description::Description;
use vellum_sim::{
    Board, BoardError, CpuTotals, Filled, HeapError, Homes, LineProfile, LockProfile, PlaceError,
    PlacedHeap, ProfiledLine, RunError, Simulation, TooManyCpus,
};

use crate::kinds::{FrameKinds, LineClass, LockClass};
use crate::replay::{Flaw, Stop};
use crate::work::{Clock, Manager, Refused, Stage};
use crate::workloads::Workload;

/// CPUs start at different times, up to so many nanoseconds apart.
pub(crate) const START_WITHIN_NS: u64 = 1000;
/// How long nothing is counted unless somebody knows better, in virtual nanoseconds: for what
/// each CPU does first, and until its caches are as they stay.
pub const WARM_UP_NS: u64 = 100_000;
/// Address space for what a manager allocates while it is made.
pub(crate) const HEAP_BYTES: usize = 8 << 30;
/// Memory of the machine for each CPU: so much that a CPU takes as many frames at a time
/// as it ever does. The host provides what is used of it.
pub(crate) const RAM_PER_CPU: u64 = 256 << 20;

/// What is to be run.
#[derive(Clone, Copy, Debug)]
pub struct Request<'r> {
    /// The machine.
    pub machine: &'r Description,
    /// How many of its CPUs.
    pub cpus: usize,
    /// The design in option syntax. Its format has to be that of x86-64.
    pub design: &'r str,
    /// What each CPU does.
    pub workload: &'static Workload,
    /// Draws when each CPU starts, who goes first at one time, and random numbers.
    pub seed: u64,
    /// How long nothing is counted.
    pub warm_up_ns: u64,
    /// How long things are counted after that.
    pub window_ns: u64,
}

/// What was found.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Things done within the window by all CPUs together.
    pub count: u64,
    /// Those by each CPU.
    pub by_cpu: Vec<u64>,
    /// The window in nanoseconds.
    pub window_ns: u64,
    /// What the CPUs did from the beginning of the window to their last access.
    pub cpus: Vec<CpuTotals>,
    /// Bytes that the memory of each node provided or took in bulk meanwhile.
    pub node_bytes: Vec<u64>,
    /// Where they lost time.
    pub profile: LineProfile,
    /// What locks they took.
    pub locks: LockProfile,
    kinds: FrameKinds,
}

impl Measured {
    /// Things done in a second of virtual time.
    pub fn rate(&self) -> f64 {
        self.count as f64 * 1e9 / self.window_ns as f64
    }

    /// What each thing done took of what the machine has.
    pub fn needs(&self) -> Needs {
        // Ending is as the rest, and is left out in proportion.
        let window = self.window_ns as f64 * 1e3 * self.cpus.len() as f64;
        let share = window / self.cpu_time().max(1) as f64;
        let each = |value: fn(&CpuTotals) -> u64| {
            let total: u64 = self.cpus.iter().map(value).sum();
            total as f64 * share / self.count.max(1) as f64
        };
        Needs {
            bulk_bytes: each(|cpu| cpu.bulk_bytes),
            shootdowns: each(|cpu| cpu.flushes),
            interrupts: each(|cpu| cpu.interrupts),
            busiest_node: self.busiest_node(),
        }
    }

    /// The largest share of the bytes moved in bulk that one node provided or took.
    fn busiest_node(&self) -> f64 {
        let all: u64 = self.node_bytes.iter().sum();
        let most = self.node_bytes.iter().copied().max().unwrap_or(0);
        match all {
            0 => 1.0,
            all => most as f64 / all as f64,
        }
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

    /// Time of all CPUs together from the beginning of the window on, in picoseconds.
    pub fn cpu_time(&self) -> u64 {
        let cpus = self.cpus.iter();
        cpus.map(|cpu| cpu.ended_at.saturating_sub(cpu.began_at))
            .sum()
    }
}

/// What one thing done takes, whoever else is at work.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Needs {
    /// Bytes zeroed, and copied, which count twice.
    pub bulk_bytes: f64,
    /// The largest share of these that the memory of one node provides or takes.
    pub busiest_node: f64,
    /// Shootdowns sent.
    pub shootdowns: f64,
    /// Interrupts for them, each to one CPU.
    pub interrupts: f64,
}

/// Why nothing was measured.
#[derive(Debug, thiserror::Error)]
pub enum ScaleError {
    /// The design does not exist, or not here.
    #[error("{0}")]
    Design(String),
    /// The machine has fewer CPUs.
    #[error("{0}")]
    Cpus(#[from] TooManyCpus),
    /// The memory of the machine.
    #[error("{0}")]
    Board(#[from] BoardError),
    /// The heap of the manager.
    #[error("{0}")]
    Heap(#[from] HeapError),
    /// Its place.
    #[error("{0}")]
    Place(#[from] PlaceError),
    /// The manager could not be made.
    #[error("no manager for {cpus} CPUs: {why}")]
    Manager {
        /// How many CPUs it was for.
        cpus: usize,
        /// Why.
        why: String,
    },
    /// The simulation failed.
    #[error("{0}")]
    Run(#[from] RunError),
    /// The manager refused what a CPU asked for.
    #[error("{workload} on CPU {cpu}: {why}")]
    Refused {
        /// The workload.
        workload: &'static str,
        /// The CPU.
        cpu: usize,
        /// What it was told.
        why: String,
    },
    /// The program of tasks is malformed.
    #[error("{0}")]
    Program(#[from] Flaw),
    /// The lanes of hosted CPUs are malformed, or wait for each other for ever.
    #[error("{0}")]
    Lanes(String),
    /// The replay of a program stopped before its end.
    #[error("{0}")]
    Stopped(#[from] Stop),
    /// The manager's structures are not as they should be afterwards.
    #[error("{workload} on {cpus} CPUs leaves the manager damaged: {why}")]
    Damaged {
        /// The workload.
        workload: &'static str,
        /// How many CPUs.
        cpus: usize,
        /// What the audit found.
        why: String,
    },
}

/// Runs a workload.
///
/// # Errors
/// [`ScaleError`].
pub fn run(request: &Request<'_>) -> Result<Measured, ScaleError> {
    let design = parse(request.design)?;
    with_rmap!(design.rmap, R => simulate::<R>(request, design))
}

/// A design that simulated CPUs can have.
pub(crate) fn parse(design: &str) -> Result<Design, ScaleError> {
    let design = Design::parse(design).map_err(|error| ScaleError::Design(error.to_string()))?;
    match design.format {
        TableFormat::X86_64 => Ok(design),
        format => Err(ScaleError::Design(format!(
            "format={}: simulated CPUs have page tables of x86-64 only",
            format.name()
        ))),
    }
}

fn simulate<R: ReverseMap>(request: &Request<'_>, design: Design) -> Result<Measured, ScaleError> {
    let Request { machine, cpus, .. } = *request;
    let board = board(machine, cpus)?;
    let made = PlacedHeap::fill(HEAP_BYTES, || {
        Manager::<R>::new(board, design).map(Box::new)
    });
    let (vm, heap) = made?;
    let vm = vm.map_err(|error| ScaleError::Manager {
        cpus,
        why: error.to_string(),
    })?;
    let workload = request.workload.name;
    let refused = |cpu: usize| {
        move |why: Refused| ScaleError::Refused {
            workload,
            cpu,
            why: why.to_string(),
        }
    };
    vellum::probe::name_parts(&vm);
    let stage = Stage::new(&vm, request.workload.kind, cpus).map_err(refused(0))?;
    let measured = on_all_cpus(request, &stage, heap)?;
    stage.end().map_err(refused(0))?;
    vm.audit().map_err(|error| ScaleError::Damaged {
        workload,
        cpus,
        why: error.to_string(),
    })?;
    drop(vm);
    // SAFETY: the manager, which is all that was allocated there, has been dropped.
    unsafe { heap.discard() };
    Ok(measured)
}

/// The first CPUs of a machine, with the memory of the nodes that they are on.
fn board(machine: &Description, cpus: usize) -> Result<Board, ScaleError> {
    let on_a_node = machine.cpus().div_ceil(machine.nodes()).min(cpus) as u64;
    Ok(Board::new(machine, cpus, RAM_PER_CPU * on_a_node)?.without_bytes())
}

fn on_all_cpus<R: ReverseMap>(
    request: &Request<'_>,
    stage: &Stage<'_, R>,
    heap: Filled,
) -> Result<Measured, ScaleError> {
    let Request { machine, cpus, .. } = *request;
    let mut simulation = Simulation::new(machine, cpus)?.seed(request.seed, START_WITHIN_NS);
    stage.vm.platform().place(&mut simulation)?;
    simulation.place("heap", heap.start, heap.bytes, Homes::Node(NodeId(0)))?;
    let window_ps = request.window_ns * 1000;
    let begin = request.warm_up_ns * 1000;
    simulation = simulation.count_from_ns(request.warm_up_ns);
    let outcome = simulation.run(|cpu| {
        let mut clock = Clock {
            cpu,
            window: (begin, begin + window_ps),
            count: 0,
        };
        stage.work(&mut clock).map(|()| clock.count)
    })?;
    let mut by_cpu = Vec::with_capacity(cpus);
    for (cpu, result) in outcome.results.into_iter().enumerate() {
        by_cpu.push(result.map_err(|why| ScaleError::Refused {
            workload: request.workload.name,
            cpu,
            why: why.to_string(),
        })?);
    }
    Ok(Measured {
        count: by_cpu.iter().sum(),
        by_cpu,
        window_ns: request.window_ns,
        cpus: outcome.cpus,
        node_bytes: outcome.node_bytes,
        kinds: FrameKinds::new(stage.vm, &outcome.profile, &outcome.locks),
        profile: outcome.profile,
        locks: outcome.locks,
    })
}
