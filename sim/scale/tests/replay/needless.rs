//! What programs do without a fault takes no time, and what a design has them fault for does.

use vellum_engine::op::{Access, Call, Divergence, Op, SpaceSlot};
use vellum_scale::replay::{Program, Replayed, Request, replay};

use crate::{PAGE, create, exit, machine, map_pages, request, task, touch};

/// A task with two superpages' worth of memory, in which `ops` happen.
fn program(ops: impl IntoIterator<Item = Op>) -> Program {
    let mut all = vec![create(0), map_pages(0, 1024)];
    all.extend(ops);
    all.push(exit(0));
    Program {
        tasks: vec![task(&[(&[], 0, &all)])],
    }
}

fn replayed(program: &Program, design: &str) -> Replayed {
    let machine = machine();
    let request = Request {
        design,
        ..request(&machine, program, 1)
    };
    replay(&request).unwrap_or_else(|error| panic!("{design}: {error}"))
}

fn faults(replayed: &Replayed) -> u64 {
    assert_eq!(replayed.counters[0].0, "faults");
    replayed.counters[0].1
}

#[test]
fn faults_that_a_superpage_makes_needless_take_no_time() {
    let (one, all) = (
        program((0..1).map(|page| touch(0, page))),
        program((0..512).map(|page| touch(0, page))),
    );
    let design = "superpage=eager";
    let (one, all) = (replayed(&one, design), replayed(&all, design));
    assert_eq!((faults(&one), faults(&all)), (1, 1));
    assert_eq!(all.divergences, [(Divergence::MappedLarge, 511)]);
    assert_eq!(all.elapsed_ns, one.elapsed_ns);
    let off = replayed(
        &program((0..512).map(|page| touch(0, page))),
        "superpage=off",
    );
    assert_eq!((faults(&off), off.divergences.len()), (512, 0));
}

#[test]
fn a_page_that_is_mapped_without_the_right_faults() {
    let read = Op::Touch {
        space: SpaceSlot(0),
        page: PAGE,
        access: Access::Read,
    };
    // The zero page, then a page of its own, then nothing.
    let found = replayed(&program([read, touch(0, 0), touch(0, 0), read]), "");
    assert_eq!(faults(&found), 2);
    assert_eq!(found.divergences, [(Divergence::AlreadyMapped, 2)]);
}

#[test]
fn accesses_that_are_known_fault_where_the_design_has_no_page() {
    let access = Op::Call(Call::Access {
        space: SpaceSlot(0),
        page: PAGE,
        pages: 8,
        access: Access::Read,
    });
    let program = program([touch(0, 0), access, access]);
    let (off, eager) = (
        replayed(&program, "superpage=off"),
        replayed(&program, "superpage=eager"),
    );
    assert_eq!((faults(&off), faults(&eager)), (8, 1));
    assert_eq!(off.ops, program.ops());
    assert!(off.divergences.is_empty(), "{:?}", off.divergences);
}
