//! A program on so many CPUs of a machine under one design.

use std::cell::RefCell;

use vellum::platform::{CpuId, NodeId};
use vellum::rmap::ReverseMap;
use vellum::{Design, with_rmap};
use vellum_sim::{Board, Filled, Homes, Outcome, PlacedHeap, Simulation};

use super::kernel::Kernel;
use super::processor::{Machine, Prices, Processor};
use super::queue::Nearness;
use super::{Replayed, Request};
use crate::core_counters::core_counters;
use crate::executor::Executor;
use crate::kinds::FrameKinds;
use crate::run::{HEAP_BYTES, RAM_PER_CPU, START_WITHIN_NS, ScaleError, parse};
use crate::slots::Names;
use crate::work::Manager;

/// Memory of a machine of few CPUs.
const LEAST_RAM: u64 = 4 << 30;
/// Nodes have whole such parts.
const RAM_UNIT: u64 = 1 << 20;
/// What errors call the program.
const NAME: &str = "the replayed program";

pub(crate) fn replay(request: &Request<'_>) -> Result<Replayed, ScaleError> {
    request.program.check()?;
    let design = parse(request.design)?;
    with_rmap!(design.rmap, R => simulate::<R>(request, design))
}

fn simulate<R: ReverseMap>(request: &Request<'_>, design: Design) -> Result<Replayed, ScaleError> {
    let board = board(request)?;
    let near = Nearness::new(request.cpus, |one, other| {
        board.level(CpuId(one as u16), CpuId(other as u16))
    });
    let made = PlacedHeap::fill(HEAP_BYTES, || {
        Manager::<R>::new(board, design).map(Box::new)
    });
    let (vm, heap) = made?;
    let vm = vm.map_err(|error| ScaleError::Manager {
        cpus: request.cpus,
        why: error.to_string(),
    })?;
    vellum::probe::name_parts(&vm);
    let names = Names::new();
    let executor = Executor {
        vm: &vm,
        names: &names,
    };
    let machine = Machine {
        program: request.program,
        prices: Prices::new(request.machine, request.slice_ns, near.has_siblings()),
        kernel: RefCell::new(Kernel::new(request.program, request.cpus, near)),
        executor,
    };
    let outcome = on_all_cpus(request, &machine, heap)?;
    let kernel = machine.kernel.into_inner();
    let result = match kernel.stop {
        Some(why) => Err(why.into()),
        None => Ok(replayed(kernel, &vm, outcome)),
    };
    executor.clear();
    if result.is_ok() {
        vm.audit().map_err(|error| ScaleError::Damaged {
            workload: NAME,
            cpus: request.cpus,
            why: error.to_string(),
        })?;
    }
    drop(vm);
    // SAFETY: the manager, which is all that was allocated there, has been dropped.
    unsafe { heap.discard() };
    result
}

/// The first CPUs of the machine, and the memory of the nodes that they are on.
fn board(request: &Request<'_>) -> Result<Board, ScaleError> {
    let Request { machine, cpus, .. } = *request;
    let least = LEAST_RAM.max(RAM_PER_CPU * cpus as u64);
    let ram = request.ram_bytes.unwrap_or(least);
    let each = ram.div_ceil(Board::nodes_of(machine, cpus)? as u64);
    let board = Board::new(machine, cpus, each.next_multiple_of(RAM_UNIT))?;
    Ok(board.with_files().without_bytes())
}

fn on_all_cpus<R: ReverseMap>(
    request: &Request<'_>,
    machine: &Machine<'_, R>,
    heap: Filled,
) -> Result<Outcome<()>, ScaleError> {
    let simulation = Simulation::new(request.machine, request.cpus)?;
    let mut simulation = simulation.seed(request.seed, START_WITHIN_NS);
    machine.executor.vm.platform().place(&mut simulation)?;
    simulation.place("heap", heap.start, heap.bytes, Homes::Node(NodeId(0)))?;
    Ok(simulation.run(|cpu| Processor::new(machine, cpu).work())?)
}

fn replayed<R: ReverseMap>(kernel: Kernel<'_>, vm: &Manager<R>, outcome: Outcome<()>) -> Replayed {
    let (began, end) = (kernel.began, kernel.end.unwrap_or(0));
    let since = |end: u64| end.saturating_sub(began) / 1000;
    let accounts = kernel.accounts.iter();
    let by_cpu: Vec<_> = accounts.map(|account| account.share(end)).collect();
    Replayed {
        elapsed_ns: since(end),
        user_ns: by_cpu.iter().map(|share| share.user_ns).sum(),
        system_ns: by_cpu.iter().map(|share| share.system_ns).sum(),
        idle_ns: by_cpu.iter().map(|share| share.idle_ns).sum(),
        by_cpu,
        ops: kernel.ops,
        context_switches: kernel.context_switches,
        migrations: kernel.migrations,
        preemptions: kernel.preemptions,
        sleeps: kernel.sleeps,
        ended_at_ns: kernel.ends().into_iter().map(since).collect(),
        kinds: FrameKinds::new(vm, &outcome.profile, &outcome.locks),
        profile: outcome.profile,
        locks: outcome.locks,
        cpus: outcome.cpus,
        counters: core_counters(&vm.stats()),
        divergences: kernel.divergences,
    }
}
