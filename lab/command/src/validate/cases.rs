//! What is run on both sides.

use vellum_engine::{Access, Backing, Call, Op, Prot, Sharing, SpaceSlot};
use vellum_trace::TraceReader;

use crate::bench::core::script::{SETUP, Script, Timing, Writer};
use crate::compare::Load;
use crate::failure::{Failure, OrFail};
use crate::replay::{Options, Streams, prepare_events};
use crate::shipped::shipped_trace;

/// The design that the others are held against.
pub const BASE: &str = "rmap=family";

/// Designs beside it in workloads in which reverse mapping has much to do.
const OTHERS: [&str; 2] = ["rmap=chains", "rmap=pv"];

/// A workload on so many CPUs.
pub struct Case {
    /// What it is.
    pub name: &'static str,
    /// Its operations.
    pub load: Box<dyn Load>,
    /// Phases that are timed.
    pub timed: Vec<u16>,
    /// The designs, the base first.
    pub designs: Vec<&'static str>,
    /// Memory of the machine.
    pub ram_bytes: u64,
    /// Whether all CPUs work throughout, so that times say whether they did at once.
    pub is_parallel: bool,
}

const START: u64 = 1 << 24;
/// Pages between what two CPUs have in one space: a table of the second level each.
const APART: u64 = 1 << 18;
/// Pages that one table has entries for.
const TABLE: u64 = 512;

const READ_WRITE: Prot = Prot {
    read: true,
    write: true,
    execute: false,
};

/// All workloads, each on one CPU and on two, and so many times shorter than they could be.
pub fn all(share: u64) -> Result<Vec<Case>, Failure> {
    let mut cases = Vec::new();
    for cpus in [1, 2] {
        cases.push(trace(
            "kernel build",
            "kernel-build.vellum",
            (800_000 / share, 1, cpus),
        )?);
        cases.push(trace(
            "snapshot server, 4 copies",
            "snapshot-server.vellum",
            (400_000 / share, 4, cpus),
        )?);
        cases.push(script(
            "forkfault, freed by the next CPU",
            forkfault(cpus, 1000 / share),
            false,
        ));
        cases.push(script(
            "frame pairs",
            frames(cpus, 0, 400_000 / share),
            cpus > 1,
        ));
        cases.push(script(
            "a contended lock",
            frames(cpus, 5, 100_000 / share),
            cpus > 1,
        ));
        cases.push(script(
            "faults in one space",
            faults(cpus, 6 / share.min(6)),
            cpus > 1,
        ));
    }
    Ok(cases)
}

/// The first `us` of a shipped trace.
fn trace(
    name: &'static str,
    file: &str,
    (us, copies, cpus): (u64, u32, usize),
) -> Result<Case, Failure> {
    let trace = TraceReader::open(shipped_trace(file)?).blame_input()?;
    let options = Options {
        streams: Streams::ByCpu(cpus),
        copies,
        ..Options::default()
    };
    let events = || {
        let is_before = move |event: &Result<vellum_trace::Event, _>| {
            event.as_ref().map_or(true, |event| event.time_us < us)
        };
        trace.events().take_while(is_before)
    };
    let workload = prepare_events(trace.header(), events, &options).blame_input()?;
    Ok(Case {
        name,
        ram_bytes: workload.ram_bytes(),
        load: Box::new(workload),
        timed: vec![SETUP.0],
        designs: [&[BASE], &OTHERS[..]].concat(),
        is_parallel: false,
    })
}

fn script(name: &'static str, script: Script, is_parallel: bool) -> Case {
    let phases = script.phases().iter().enumerate();
    let timed = phases.filter(|(_, phase)| phase.units > 0);
    Case {
        name,
        timed: timed.map(|(number, _)| number as u16).collect(),
        ram_bytes: script.ram_bytes().max(512 << 20),
        load: Box::new(script),
        designs: vec![BASE],
        is_parallel,
    }
}

fn private(space: SpaceSlot, page: u64, pages: u64) -> Op {
    Op::Map {
        space,
        page,
        pages,
        prot: READ_WRITE,
        sharing: Sharing::Private,
        backing: Backing::Anonymous,
        grows_down: false,
    }
}

fn touch(space: SpaceSlot, page: u64) -> Op {
    Op::Touch {
        space,
        page,
        access: Access::Write,
    }
}

/// A child that needs a table for each of its pages is made by the first CPU, runs on the
/// last, and is ended by the first.
fn forkfault(cpus: usize, forks: u64) -> Script {
    const FAULTS: u64 = 32;
    let mut writer = Writer::new(cpus);
    let child_phase = writer.phase("child", "child", Timing::Slices);
    let (parent, child) = (SpaceSlot(0), SpaceSlot(1));
    writer.op(Op::Create { space: parent });
    writer.op(private(parent, START, FAULTS * TABLE));
    writer.cut(SETUP);
    for _ in 0..forks {
        writer.op(Op::Fork { parent, child });
        writer.on(cpus - 1);
        (0..FAULTS).for_each(|place| writer.op(touch(child, START + place * TABLE)));
        writer.on(0);
        writer.op(Op::Exit { space: child });
        writer.piece(child_phase, 1);
    }
    writer.finish()
}

/// Every CPU allocates a block and frees it, over and over.
fn frames(cpus: usize, order: u32, rounds: u64) -> Script {
    const AT_ONCE: u64 = 1000;
    let mut writer = Writer::new(cpus);
    let pair = writer.phase("pair", "pair", Timing::Slices);
    for cpu in 0..cpus {
        writer.beside(cpu);
        for _ in 0..(rounds / AT_ONCE).max(1) {
            writer.op(Op::Call(Call::Frames {
                order,
                blocks: 1,
                rounds: AT_ONCE as u32,
            }));
        }
    }
    writer.beside(0);
    writer.piece(pair, rounds * cpus as u64);
    writer.finish()
}

/// Every CPU stores to fresh pages of its own in one space.
fn faults(cpus: usize, rounds: u64) -> Script {
    const PAGES: u64 = 4096;
    let mut writer = Writer::new(cpus);
    let fault = writer.phase("fault", "fault", Timing::Slices);
    let space = SpaceSlot(0);
    let start = |cpu: usize| START + cpu as u64 * APART;
    writer.op(Op::Create { space });
    (0..cpus).for_each(|cpu| writer.op(private(space, start(cpu), PAGES)));
    writer.cut(SETUP);
    for _ in 0..rounds.max(1) {
        for cpu in 0..cpus {
            writer.beside(cpu);
            (0..PAGES).for_each(|page| writer.op(touch(space, start(cpu) + page)));
        }
        writer.beside(0);
        writer.piece(fault, PAGES * cpus as u64);
        for cpu in 0..cpus {
            writer.op(Op::Advise {
                space,
                page: start(cpu),
                pages: PAGES,
                advice: vellum_engine::Advice::DontNeed,
            });
        }
        writer.cut(SETUP);
    }
    writer.finish()
}
