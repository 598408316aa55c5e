//! Shared memory (`huge=`) and files (`filehuge=`) in superpages beside single pages.

use super::*;
use vellum::space::{FileRequest, WriteRequest};

const START: u64 = 0x10_0000;
const SUPERPAGE: u64 = 512;
const ROUNDS: usize = 9;

/// What a gigabyte of shared memory costs, its faults taken one after another.
#[derive(Default)]
struct Costs {
    first_use: Vec<f64>,
    second_use: Vec<f64>,
    exit: Vec<f64>,
    writes: Vec<f64>,
    tables: u64,
}

/// Maps an object in a new space, accesses every page that is not mapped by then, and returns the
/// space.
fn use_all<R: ReverseMap>(
    vm: &Manager<R>,
    request: MapRequest,
    access: Access,
    step: u64,
) -> SpaceId {
    let space = vm.create_space().expect("a space").id();
    let request = request.at(Placement::Fixed(Vpn(START)));
    vm.space(space).map(&request).expect("a region");
    for page in (0..PAGES_PER_GIB).step_by(step as usize) {
        vm.space(space)
            .fault((START + page) << 12, access)
            .expect("a page");
    }
    let resident = vm.space(space).stats().expect("a space").rss;
    let pages = resident.file + resident.shared_memory;
    assert_eq!(pages, PAGES_PER_GIB, "pages that no fault mapped");
    space
}

fn costs<R: ReverseMap>(machine: &Arc<Machine>, huge: &str, step: u64) -> Costs {
    let design = format!("rmap={},huge={huge}", R::NAME);
    let mut costs = Costs::default();
    machine.run_on(CpuId(0), || {
        let vm: Manager<R> = manager(machine, &design);
        for _ in 0..ROUNDS {
            let object = vm
                .create_file(FileRequest::shared_memory(PAGES_PER_GIB << 12))
                .expect("an object")
                .id();
            let request = MapRequest::object(object, 0, PAGES_PER_GIB, Prot::READ_WRITE).shared();
            let use_all = || use_all(&vm, request, Access::Write, step);
            let mut spaces = Vec::new();
            for uses in [&mut costs.first_use, &mut costs.second_use] {
                uses.push(timed(|| spaces.push(use_all())) / 1e6);
            }
            costs.tables = vm.space(spaces[1]).stats().expect("a space").table_bytes;
            let exit = timed(|| _ = vm.space(spaces[1]).exit().expect("the space"));
            costs.exit.push(exit / 1e6);
            vm.space(spaces[0]).exit().expect("the space");
            vm.file(object).release().expect("the object");
            let written = vm
                .create_file(FileRequest::shared_memory(PAGES_PER_GIB << 12))
                .expect("an object")
                .id();
            let block = vec![7; 1 << 20];
            let write = || {
                for at in (0..GIB).step_by(block.len()) {
                    let written = vm.file(written).write(WriteRequest::bytes(at, &[&block]));
                    assert_eq!(written, Ok(block.len()));
                }
            };
            costs.writes.push(timed(write) / 1e6);
            vm.file(written).release().expect("the object");
        }
        assert_eq!(vm.stats().events.superpage_failures, 0);
    });
    costs
}

pub fn shared_memory<R: ReverseMap>(arena: &Arc<Arena>) {
    let machine = machine(1, 3 * GIB, arena);
    for (huge, step) in [("never", 1), ("always", SUPERPAGE)] {
        let costs = costs::<R>(&machine, huge, step);
        let print = |what: &str, figures, note: &str| {
            let name = format!("1 GiB of shared memory, huge={huge}, {}: {what}", R::NAME);
            Figure(figures).print(&name, "ms", None, note);
        };
        let faults = format!("{} faults", PAGES_PER_GIB / step);
        print("first use", costs.first_use, &faults);
        let tables = format!("{faults}, {} KiB of tables", costs.tables >> 10);
        print("second space", costs.second_use, &tables);
        print("its exit", costs.exit, "");
        print("written", costs.writes, "calls of 1 MiB into a hole");
    }
}

/// Pages that a fault maps if they are cached, by the default.
const AROUND: u64 = 16;

/// A gigabyte of a file of a store that is as fast as memory, which one space after another
/// loads from, privately, as programs do from their text.
pub fn file<R: ReverseMap>(arena: &Arc<Arena>) {
    let machine = machine(1, 3 * GIB, arena);
    for (huge, steps) in [("never", [1, AROUND]), ("always", [SUPERPAGE, SUPERPAGE])] {
        let design = format!("rmap={},filehuge={huge}", R::NAME);
        let [mut uses, mut exits] = [(); 2].map(|()| [Vec::new(), Vec::new()]);
        let mut tables = [0; 2];
        machine.run_on(CpuId(0), || {
            let vm: Manager<R> = manager(&machine, &design);
            for _ in 0..ROUNDS {
                let file = vm
                    .create_file(FileRequest::stored(1, PAGES_PER_GIB << 12))
                    .expect("a file")
                    .id();
                let request = MapRequest::object(file, 0, PAGES_PER_GIB, Prot::READ_EXECUTE);
                let mut spaces = Vec::new();
                for (nth, step) in steps.into_iter().enumerate() {
                    let load_all = || use_all(&vm, request, Access::Read, step);
                    uses[nth].push(timed(|| spaces.push(load_all())) / 1e6);
                    let stats = vm.space(spaces[nth]).stats().expect("a space");
                    tables[nth] = stats.table_bytes;
                }
                for (nth, space) in spaces.into_iter().enumerate().rev() {
                    let exit = timed(|| _ = vm.space(space).exit().expect("the space"));
                    exits[nth].push(exit / 1e6);
                }
                vm.file(file).release().expect("the file");
            }
            assert_eq!(vm.stats().events.superpage_failures, 0);
        });
        let print = |what: &str, figures, note: &str| {
            let name = format!("1 GiB of a file, filehuge={huge}, {}: {what}", R::NAME);
            Figure(figures).print(&name, "ms", None, note);
        };
        let [first, second] = uses;
        let note = |nth: usize| {
            let (faults, tables) = (PAGES_PER_GIB / steps[nth], tables[nth] >> 10);
            format!("{faults} faults, {tables} KiB of tables")
        };
        print("first use, with reading", first, &note(0));
        print("second space", second, &note(1));
        let [last, exit] = exits;
        print("its exit", exit, "");
        print("exit of the first", last, "");
    }
}
