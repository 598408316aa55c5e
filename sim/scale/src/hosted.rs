//! Operations on simulated CPUs as a hosted machine executes them: one program for each CPU,
//! without traps, a scheduler or shootdowns, and timed as replays on the core are. For
//! holding the simulator against runs of the plain core, and for calibrating it by them.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::mem;

use vellum::frame::Site;
use vellum::platform::NodeId;
use vellum::rmap::ReverseMap;
use vellum::{Design, frame, with_rmap};
use vellum_description::{Description, WorkKind};
use vellum_engine::op::{Call, Divergence, Op, OpError};
use vellum_sim::{
    Board, Cpu, CpuTotals, Homes, LineProfile, LockProfile, PlacedHeap, ProfiledLine, Simulation,
};

use crate::executor::{DONE, Executed, Executor};
use crate::kinds::{FrameKinds, LineClass, LockClass};
use crate::run::{HEAP_BYTES, START_WITHIN_NS, ScaleError, parse};
use crate::slots::Names;
use crate::work::Manager;
use crate::work_kind::kind_of;

/// How long a CPU that waits for another looks away at first, in picoseconds.
const FIRST_LOOK: u64 = 50_000;
/// The most, and how often it looks without that anybody gets on before it gives up.
const LONGEST_LOOK: u64 = 1_000_000;
const MOST_LOOKS: u64 = 10_000_000;
/// Nodes have whole such parts.
const RAM_UNIT: u64 = 1 << 20;
/// What errors call the programs.
const NAME: &str = "the hosted program";

/// Operations between which nothing is waited for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Part {
    /// One past the last of them.
    pub end: u32,
    /// What must hold before: a lane, and how many operations it has completed. It has to
    /// come before this part in one order of all parts.
    pub waits: Vec<(u32, u32)>,
}

/// What one CPU does.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lane<'l> {
    /// All its operations, in their order.
    pub ops: &'l [Op],
    /// What it does without waiting, which covers all of them.
    pub parts: Vec<Part>,
}

/// What is to be run.
#[derive(Clone, Copy, Debug)]
pub struct Request<'r> {
    /// The machine.
    pub machine: &'r Description,
    /// The design in option syntax. Its format has to be that of x86-64.
    pub design: &'r str,
    /// What each CPU does. There are as many CPUs as lanes.
    pub lanes: &'r [Lane<'r>],
    /// Where each slice ends, in operations of each lane: a barrier for all CPUs. The last
    /// ends where the lanes do.
    pub slices: &'r [Vec<u32>],
    /// Draws when each CPU starts, and who goes first at one time.
    pub seed: u64,
    /// Memory of the whole machine, divided evenly among the nodes of the CPUs.
    pub ram_bytes: u64,
}

/// What operations of one kind took.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Spent {
    /// Operations.
    pub ops: u64,
    /// Time in picoseconds.
    pub time: u64,
    /// Accesses that they reported, before each of which there are instructions.
    pub reports: u64,
}

/// Kinds that are told apart, and one for the rest.
pub const KINDS: usize = WorkKind::ALL.len() + 1;

/// How it went. Times are in picoseconds, and without those in which a CPU waited for
/// another between operations, or slept for a lock.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Time of all CPUs, by slice.
    pub by_slice: Vec<u64>,
    /// By kind of operation, in the order of [`WorkKind::ALL`], and then all others.
    pub by_kind: [Spent; KINDS],
    /// By the phase that each [`Op::Lap`] names: since the one before on the same CPU.
    pub by_lap: BTreeMap<u16, u64>,
    /// Table pages that CPUs keep at the end on another node than their own.
    pub trapped_tables: u64,
    /// Operations that went otherwise than recorded.
    pub divergences: u64,
    /// What the simulator counted, by CPU.
    pub cpus: Vec<CpuTotals>,
    /// Where the CPUs lost time.
    pub profile: LineProfile,
    /// What locks they took.
    pub locks: LockProfile,
    kinds: FrameKinds,
}

impl Measured {
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

/// Runs the lanes.
///
/// # Errors
/// [`ScaleError`].
pub fn run(request: &Request<'_>) -> Result<Measured, ScaleError> {
    check(request)?;
    let design = parse(request.design)?;
    with_rmap!(design.rmap, R => simulate::<R>(request, design))
}

/// How many nodes the first `cpus` CPUs of a machine are on.
///
/// # Errors
/// It has fewer.
pub fn nodes_of(machine: &Description, cpus: usize) -> Result<usize, ScaleError> {
    Ok(Board::nodes_of(machine, cpus)?)
}

/// Refuses what cannot be run.
fn check(request: &Request<'_>) -> Result<(), ScaleError> {
    let refuse = |why: String| Err(ScaleError::Lanes(why));
    let lanes = request.lanes;
    let len = |lane: &Lane<'_>| lane.ops.len() as u32;
    let ends: Vec<u32> = lanes.iter().map(len).collect();
    if request.slices.last() != Some(&ends) {
        return refuse(format!(
            "the last slice ends at {:?}, expected {ends:?}, where the lanes end",
            request.slices.last()
        ));
    }
    for (number, lane) in lanes.iter().enumerate() {
        let mut before = 0;
        for part in &lane.parts {
            if part.end < before {
                return refuse(format!(
                    "lane {number}: a part ends at {}, expected {before} at least",
                    part.end
                ));
            }
            before = part.end;
            for &(other, ops) in &part.waits {
                if lanes.get(other as usize).is_none_or(|lane| len(lane) < ops) {
                    return refuse(format!(
                        "lane {number} waits for {ops} operations of lane {other}, which has \
                         fewer or does not exist"
                    ));
                }
            }
        }
        if before != len(lane) {
            return refuse(format!(
                "the parts of lane {number} end at {before}, expected {}",
                len(lane)
            ));
        }
        let hosts = |op: &Op| match op {
            Op::Call(call) => !matches!(call, Call::Frames { .. }),
            op => matches!(op, Op::EmptyCaches),
        };
        if let Some(op) = lane.ops.iter().find(|op| hosts(op)) {
            return refuse(format!(
                "lane {number}: {op:?} cannot be executed on simulated CPUs"
            ));
        }
    }
    Ok(())
}

/// How far the lanes are. It is the host's, and costs nothing.
struct Progress {
    done: Vec<Cell<u32>>,
    /// How often anybody got on.
    steps: Cell<u64>,
    stuck: RefCell<Option<String>>,
}

impl Progress {
    fn holds(&self, waits: &[(u32, u32)]) -> bool {
        let holds = |&(lane, ops): &(u32, u32)| self.done[lane as usize].get() >= ops;
        waits.iter().all(holds)
    }

    /// Waits until all hold. `None` if the run is over.
    fn wait(&self, cpu: &Cpu<'_>, waits: &[(u32, u32)]) -> Option<()> {
        let (mut look, mut looks, mut seen) = (FIRST_LOOK, 0, self.steps.get());
        while !self.holds(waits) {
            if self.stuck.borrow().is_some() {
                return None;
            }
            cpu.compute_ps(look);
            look = (look * 2).min(LONGEST_LOOK);
            looks += 1;
            if seen != self.steps.get() {
                (seen, looks) = (self.steps.get(), 0);
            }
            if looks == MOST_LOOKS {
                let text = format!("CPU {} waits for {waits:?} for ever", cpu.id().0);
                self.stuck.borrow_mut().get_or_insert(text);
            }
        }
        Some(())
    }
}

/// What one CPU found.
#[derive(Default)]
struct Found {
    by_slice: Vec<u64>,
    by_kind: [Spent; KINDS],
    by_lap: BTreeMap<u16, u64>,
    divergences: u64,
}

fn simulate<R: ReverseMap>(request: &Request<'_>, design: Design) -> Result<Measured, ScaleError> {
    let cpus = request.lanes.len();
    let nodes = Board::nodes_of(request.machine, cpus)? as u64;
    let each = request.ram_bytes.div_ceil(nodes).next_multiple_of(RAM_UNIT);
    let board = Board::new(request.machine, cpus, each)?.hosted();
    let made = PlacedHeap::fill(HEAP_BYTES, || {
        Manager::<R>::new(board, design).map(Box::new)
    });
    let (vm, heap) = made?;
    let vm = vm.map_err(|error| ScaleError::Manager {
        cpus,
        why: error.to_string(),
    })?;
    vellum::probe::name_parts(&vm);
    let names = Names::new();
    let executor = Executor {
        vm: &vm,
        names: &names,
    };
    let progress = Progress {
        done: request.lanes.iter().map(|_| Cell::new(0)).collect(),
        steps: Cell::new(0),
        stuck: RefCell::new(None),
    };
    let simulation = Simulation::new(request.machine, cpus)?;
    let mut simulation = simulation.seed(request.seed, START_WITHIN_NS);
    vm.platform().place(&mut simulation)?;
    simulation.place("heap", heap.start, heap.bytes, Homes::Node(NodeId(0)))?;
    let outcome = simulation.run(|cpu| lane(request, executor, &progress, cpu))?;
    let trapped_tables = vm.stats().tables.trapped;
    executor.clear();
    if let Some(why) = progress.stuck.into_inner() {
        return Err(ScaleError::Lanes(why));
    }
    vm.audit().map_err(|error| ScaleError::Damaged {
        workload: NAME,
        cpus,
        why: error.to_string(),
    })?;
    let mut measured = Measured {
        by_slice: vec![0; request.slices.len()],
        by_kind: Default::default(),
        by_lap: BTreeMap::new(),
        trapped_tables,
        divergences: 0,
        kinds: FrameKinds::new(&vm, &outcome.profile, &outcome.locks),
        cpus: outcome.cpus,
        profile: outcome.profile,
        locks: outcome.locks,
    };
    for found in outcome.results {
        let slices = measured.by_slice.iter_mut().zip(found.by_slice);
        slices.for_each(|(sum, time)| *sum += time);
        for (sum, spent) in measured.by_kind.iter_mut().zip(found.by_kind) {
            sum.ops += spent.ops;
            sum.time += spent.time;
            sum.reports += spent.reports;
        }
        for (phase, time) in found.by_lap {
            *measured.by_lap.entry(phase).or_default() += time;
        }
        measured.divergences += found.divergences;
    }
    drop(vm);
    // SAFETY: the manager, which is all that was allocated there, has been dropped.
    unsafe { heap.discard() };
    Ok(measured)
}

/// Executes the lane of one CPU.
fn lane<R: ReverseMap>(
    request: &Request<'_>,
    executor: Executor<'_, Board, vellum::table::X86_64, R>,
    progress: &Progress,
    cpu: &Cpu<'_>,
) -> Found {
    let number = usize::from(cpu.id().0);
    let lane = &request.lanes[number];
    let mut found = Found::default();
    let mut parts = lane.parts.iter().peekable();
    let (mut done, mut lap) = (0, 0);
    for slice in request.slices {
        let mut spent = 0;
        while done < slice[number] {
            let Some(part) = parts.peek() else { break };
            if progress.wait(cpu, &part.waits).is_none() {
                return found;
            }
            let end = part.end.min(slice[number]);
            if end == part.end {
                parts.next();
            }
            for op in &lane.ops[done as usize..end as usize] {
                let kind = kind_of(op);
                cpu.begin(kind);
                let (begun, before) = (cpu.now(), cpu.totals());
                let executed = match *op {
                    Op::Call(Call::Frames {
                        order,
                        blocks,
                        rounds,
                    }) => frames(executor.vm, order, blocks, rounds),
                    Op::Lap { .. } => DONE,
                    _ => executor.execute(op),
                };
                found.divergences += u64::from(is_divergence(&executed));
                let totals = cpu.totals();
                let slept = totals.slept - before.slept;
                let time = (cpu.now() - begun).saturating_sub(slept);
                let sum = &mut found.by_kind[kind.map_or(KINDS - 1, |kind| kind as usize)];
                sum.ops += 1;
                sum.time += time;
                sum.reports += totals.reports - before.reports;
                spent += time;
                lap += time;
                if let Op::Lap { phase } = *op {
                    *found.by_lap.entry(phase).or_default() += mem::take(&mut lap);
                }
            }
            done = end;
            progress.done[number].set(done);
            progress.steps.set(progress.steps.get() + 1);
            // Others see it from now on.
            cpu.begin(None);
            cpu.compute_ps(0);
        }
        found.by_slice.push(spent);
        let all: Vec<(u32, u32)> = (0..).zip(slice.iter().copied()).collect();
        if progress.wait(cpu, &all).is_none() {
            return found;
        }
    }
    found
}

fn is_divergence(executed: &Executed) -> bool {
    matches!(
        executed,
        Ok(Some(Divergence::AlreadyMapped | Divergence::Failed(_))) | Err(_)
    )
}

/// As the hosted engines do for [`Call::Frames`].
fn frames<R: ReverseMap>(vm: &Manager<R>, order: u32, blocks: u32, rounds: u32) -> Executed {
    if order > frame::MAX_ORDER {
        return Err(OpError::Invalid);
    }
    let request = frame::Request {
        order,
        ..frame::Request::page(Site::AnonymousPage)
    };
    let mut held = Vec::with_capacity(blocks as usize);
    for _ in 0..rounds {
        for _ in 0..blocks {
            let block = vm.memory().alloc(&vm.pin(), request);
            held.push(block.map_err(|_| OpError::OutOfMemory)?);
        }
        for block in held.drain(..) {
            block.free(&vm.pin());
        }
    }
    DONE
}
