//! Faults of many spaces, a space for each CPU, on more and more CPUs of a described
//! machine: throughput, and the lines that time was lost on with most CPUs.
//!
//! ```text
//! cargo run --release -p vellum-sim --example faults -- epyc-milan-2s 1,2,4,8,16,32,64
//! ```

use std::error::Error;

use vellum::addr::{Access, Prot};
use vellum::platform::NodeId;
use vellum::rmap::Family;
use vellum::space::MapRequest;
use vellum::table::X86_64;
use vellum::{Design, Vm};
use vellum_sim::{Board, Description, Homes, Outcome, PlacedHeap, Simulation};

#[global_allocator]
static HEAP: PlacedHeap = PlacedHeap;

type Manager = Vm<Board, X86_64, Family>;

const PAGES: u64 = 512;
const ROUNDS: u64 = 4;
const NODE_BYTES: u64 = 1 << 30;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let name = arguments.next().unwrap_or("epyc-milan-2s".to_owned());
    let list = arguments.next().unwrap_or("1,2,4,8,16,32,64".to_owned());
    let machine = Description::named(&name)?;
    println!("{}", machine.title);
    println!(
        "{:>6} {:>14} {:>10} {:>8}",
        "CPUs", "faults/s", "us/fault", "scaling"
    );
    let mut first: Option<f64> = None;
    let mut last = None;
    for cpus in list.split(',') {
        let cpus: usize = cpus.trim().parse()?;
        let outcome = faults(&machine, cpus)?;
        let count = cpus as u64 * PAGES * ROUNDS;
        let seconds = outcome.elapsed as f64 / 1e12;
        let rate = count as f64 / seconds;
        let each = rate / cpus as f64;
        let scaling = each / *first.get_or_insert(each);
        println!("{cpus:>6} {rate:>14.0} {:>10.3} {scaling:>8.3}", 1e6 / each);
        last = Some(outcome);
    }
    if let Some(outcome) = last {
        println!("\nWhere time was lost with most CPUs:\n{}", outcome.profile);
    }
    Ok(())
}

/// Each CPU maps memory in a space of its own, stores to each page, and unmaps it.
fn faults(machine: &Description, cpus: usize) -> Result<Outcome<()>, Box<dyn Error>> {
    let board = Board::new(machine, cpus, NODE_BYTES)?;
    let (vm, heap) = PlacedHeap::fill(1 << 32, || {
        Manager::new(board, Design::default()).map(Box::new)
    })?;
    let vm = vm.map_err(|error| error.to_string())?;
    let mut simulation = Simulation::new(machine, cpus)?.seed(1, 1000);
    vm.platform().place(&mut simulation)?;
    simulation.place("heap", heap.start, heap.bytes, Homes::Node(NodeId(0)))?;
    let outcome = simulation.run(|cpu| {
        cpu.syscall();
        let space = vm.create_space().expect("there is memory").id();
        for _ in 0..ROUNDS {
            cpu.syscall();
            let request = MapRequest::anonymous(PAGES, Prot::READ_WRITE);
            let start = vm.space(space).map(&request).expect("there is room");
            for page in 0..PAGES {
                cpu.trap();
                let address = start.offset(page).address::<X86_64>();
                vm.space(space)
                    .fault(address, Access::Write)
                    .expect("it is mapped");
            }
            cpu.syscall();
            vm.space(space).unmap(start, PAGES).expect("it lives");
        }
        cpu.syscall();
        vm.space(space).exit().expect("it lives");
    })?;
    vm.audit().map_err(|error| error.to_string())?;
    Ok(outcome)
}
