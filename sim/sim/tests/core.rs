//! The core on simulated CPUs.

mod common;

use common::{assert_near, flat};
use vellum::addr::{Access, Prot};
use vellum::platform::{Machine, NodeId};
use vellum::rmap::Family;
use vellum::space::MapRequest;
use vellum::sync::atomic::Ordering;
use vellum::sync::bytes::FrameBytes;
use vellum::table::X86_64;
use vellum::{Design, Vm};
use vellum_sim::{Board, Cpu, Description, Filled, Homes, Outcome, PlacedHeap, Simulation};

#[global_allocator]
static HEAP: PlacedHeap = PlacedHeap;

type Manager = Vm<Board, X86_64, Family>;

/// A manager for the first `cpus` CPUs of a machine, and what it allocated.
fn manager(machine: &Description, cpus: usize, bytes_per_node: u64) -> (Box<Manager>, Filled) {
    let make = || {
        let board = Board::new(machine, cpus, bytes_per_node).unwrap_or_else(|e| panic!("{e}"));
        Box::new(Vm::new(board, Design::default()).unwrap_or_else(|e| panic!("{e:?}")))
    };
    PlacedHeap::fill(1 << 30, make).unwrap_or_else(|error| panic!("{error}"))
}

fn simulation(machine: &Description, cpus: usize, vm: &Manager, heap: Filled) -> Simulation {
    let mut simulation = Simulation::new(machine, cpus).unwrap_or_else(|error| panic!("{error}"));
    vm.platform()
        .place(&mut simulation)
        .expect("nothing else is placed");
    let homes = Homes::Node(NodeId(0));
    simulation
        .place("heap", heap.start, heap.bytes, homes)
        .expect("the heap is not memory of the board");
    simulation
}

/// Each CPU maps, stores to and unmaps pages in a space of its own, forks it and ends both.
fn many_spaces(vm: &Manager, cpu: &Cpu<'_>, rounds: usize) {
    cpu.syscall();
    let space = vm.create_space().expect("there is memory").id();
    for _ in 0..rounds {
        cpu.syscall();
        let first = vm
            .space(space)
            .map(&MapRequest::anonymous(32, Prot::READ_WRITE))
            .expect("there is room");
        for page in 0..32 {
            cpu.trap();
            let address = first.offset(page).address::<X86_64>();
            vm.space(space)
                .fault(address, Access::Write)
                .expect("it is mapped");
        }
        cpu.syscall();
        let child = vm.space(space).fork().expect("there is memory").id();
        for page in 0..4 {
            cpu.trap();
            let address = first.offset(page).address::<X86_64>();
            vm.space(child)
                .fault(address, Access::Write)
                .expect("it is mapped");
        }
        cpu.syscall();
        vm.space(child).exit().expect("it lives");
        cpu.syscall();
        vm.space(space).unmap(first, 32).expect("it lives");
    }
    cpu.syscall();
    vm.space(space).exit().expect("it lives");
}

fn run_many_spaces(machine: &Description, cpus: usize, seed: u64) -> Outcome<()> {
    let (vm, heap) = manager(machine, cpus, 64 << 20);
    let simulation = simulation(machine, cpus, &vm, heap).seed(seed, 1000);
    let outcome = simulation
        .run(|cpu| many_spaces(&vm, cpu, 4))
        .unwrap_or_else(|error| panic!("{error}"));
    if let Err(error) = vm.audit() {
        panic!("{cpus} CPUs, seed {seed}: {error}");
    }
    outcome
}

#[test]
fn the_core_reports_every_change_of_shared_memory() {
    let machine = flat(8);
    let (vm, heap) = manager(&machine, 8, 8 << 20);
    let simulation = simulation(&machine, 8, &vm, heap)
        .seed(3, 1000)
        .limit_ns(20_000_000);
    // SAFETY: the manager's memory outlives the run, and nobody else knows it.
    let simulation = unsafe { simulation.check_reports() };
    let shared = vm.create_space().expect("there is memory").id();
    let outcome = simulation.run(|cpu| {
        many_spaces(&vm, cpu, 3);
        // And in a space that all share.
        for _ in 0..3 {
            let first = vm
                .space(shared)
                .map(&MapRequest::anonymous(8, Prot::READ_WRITE))
                .expect("there is room");
            for page in 0..8 {
                let address = first.offset(page).address::<X86_64>();
                vm.space(shared)
                    .fault(address, Access::Write)
                    .expect("it is mapped");
            }
            vm.space(shared).unmap(first, 8).expect("it lives");
        }
    });
    let outcome = outcome.unwrap_or_else(|error| panic!("{error}"));
    assert!(outcome.cpus.iter().all(|cpu| cpu.accesses > 10_000));
    assert!(outcome.cpus.iter().any(|cpu| cpu.interrupts > 0));
    if let Err(error) = vm.audit() {
        panic!("{error}");
    }
}

#[test]
fn the_core_takes_the_same_picoseconds_with_the_same_seed() {
    let machine = Description::named("epyc-milan-2s").unwrap_or_else(|error| panic!("{error}"));
    let one = run_many_spaces(&machine, 24, 5);
    let moved: Vec<Vec<u8>> = (1..100).map(|size| vec![1; size * 4099]).collect();
    let other = run_many_spaces(&machine, 24, 5);
    drop(moved);
    assert!(one == other, "two runs of one seed differ");
}

#[test]
fn only_cpus_that_use_a_space_are_interrupted_for_it() {
    const USERS: [u16; 4] = [2, 65, 66, 130];
    let machine = flat(192);
    let (vm, heap) = manager(&machine, 192, 256 << 20);
    let space = vm.create_space().expect("there is memory").id();
    let outcome = simulation(&machine, 192, &vm, heap).run(|cpu| {
        if USERS.contains(&cpu.id().0) {
            vm.space(space).load().expect("it lives");
        }
        for _ in 0..100 {
            cpu.compute_ns(1000);
            if cpu.id().0 == USERS[0] {
                let first = vm
                    .space(space)
                    .map(&MapRequest::anonymous(4, Prot::READ_WRITE))
                    .expect("there is room");
                let address = first.address::<X86_64>();
                vm.space(space)
                    .fault(address, Access::Write)
                    .expect("it is mapped");
                vm.space(space).unmap(first, 4).expect("it lives");
            }
        }
    });
    let outcome = outcome.unwrap_or_else(|error| panic!("{error}"));
    let interrupted = (0..192).filter(|&cpu| outcome.cpus[usize::from(cpu)].interrupts > 0);
    assert_eq!(interrupted.collect::<Vec<u16>>(), USERS[1..]);
}

#[test]
fn a_run_on_one_cpu_takes_as_long_on_a_larger_machine() {
    let one = run_many_spaces(&flat(1), 1, 0).elapsed as f64;
    let other = run_many_spaces(&flat(64), 1, 0).elapsed as f64;
    assert_near("one CPU of 64", other, one, 0.1);
}

/// What words of two frames hold after both were filled, one was written to, copied to the other,
/// and zeroed after another write to all of it.
fn bytes_of(board: Board) -> [u64; 4] {
    let mut simulation = Simulation::new(&flat(1), 1).unwrap_or_else(|error| panic!("{error}"));
    board
        .place(&mut simulation)
        .expect("nothing else is placed");
    let first = board.memory_map()[0].start;
    let frame = |number: u32| {
        // SAFETY: a frame of the board, which is there for as long as this is used, and whose
        // bytes are reached in no other way.
        unsafe { FrameBytes::new(board.frame(first.offset(number)), 1 << board.frame_shift()) }
    };
    let run = simulation.run(|_| {
        let (one, other) = (frame(0), frame(1));
        let word = |bytes: FrameBytes<'_>| bytes.words()[3].load(Ordering::Relaxed);
        one.fill(7);
        other.fill(8);
        let filled = word(one);
        one.words()[3].store(9, Ordering::Relaxed);
        let written = word(one);
        other.copy_from(one);
        let copied = word(other);
        other.write(0, &[1; 4096]);
        other.zero_range(0..4096);
        one.write(0, &[1; 4096]);
        one.zero();
        assert_eq!(word(other), 0);
        [filled, written, copied, word(one)]
    });
    run.unwrap_or_else(|error| panic!("{error}")).results[0]
}

#[test]
fn without_bytes_pages_hold_the_words_that_were_written_and_else_are_zero() {
    let board = || Board::new(&flat(1), 1, 1 << 20).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(bytes_of(board()), [7, 9, 9, 0]);
    assert_eq!(bytes_of(board().without_bytes()), [0, 9, 0, 0]);
}
