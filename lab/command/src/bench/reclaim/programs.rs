//! What the programs do, in operations: the same on the core and on the host's kernel.

use vellum_engine::{Access, Backing, Call, FileSlot, Op, SpaceSlot};

use super::zipf::Zipf;
use crate::bench::core::ops::map;
use crate::bench::core::script::{Phase, SETUP, Script, Slots, Timing, Writer};
use crate::bench::request::Sizes;
use crate::failure::Failure;
use crate::stats::Random;
use vellum_terminal::table::grouped;
use vellum_terminal::text::plural;

/// First page of every mapping of private memory.
pub(super) const START: u64 = 1 << 19;

/// First page of a mapping of a file.
const FILE_START: u64 = START + (1 << 18);

/// Pages that one process touches before another has its turn.
const TURN: u64 = 64;

/// Requests in a piece.
const REQUESTS: u64 = 256;

/// Parts of a snapshot, between which the server works.
const PARTS: u64 = 64;

/// Bytes of a call that reads or writes a file.
const BLOCK: u64 = 64 << 10;

/// The most that each size may be, and why.
const LIMITS: [(&str, u64, &str); 9] = [
    ("set", 800, OF_SWAP),
    ("touched", 800, OF_SWAP),
    ("keys", 800, OF_SWAP),
    ("process", 400, OF_TWO),
    ("server", 400, OF_TWO),
    ("times", 10_000, ""),
    ("processes", 10_000, ""),
    ("rounds", 10_000, ""),
    ("requests", 100_000_000, ""),
];

const OF_SWAP: &str = " percent of memory, as swap has 800";

const OF_TWO: &str = " percent of memory: swap has 800, and a forked child may come to have as much \
     as its parent";

/// Memory that a program is held against.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    /// Pages.
    pub pages: u64,
    /// Log2 of the bytes of a page.
    pub shift: u32,
}

impl Memory {
    /// So many percent of it, in pages.
    fn percent(self, percent: u64) -> u64 {
        (self.pages * percent / 100).max(1)
    }

    /// So many pages, in words.
    fn named(self, pages: u64) -> String {
        let bytes = pages << self.shift;
        match bytes {
            ..0x100_0000 => format!("{} KiB", grouped(bytes >> 10)),
            _ => format!("{} MiB", grouped(bytes >> 20)),
        }
    }
}

/// A program, ready to run.
#[derive(Debug)]
pub struct Program {
    /// What it does.
    pub script: Script,
    /// What that consists of, one sentence each.
    pub facts: Vec<String>,
    /// Files, by slot, of so many pages, that are there before it begins.
    pub files: Vec<u64>,
    /// The most pages that may be in swap at a time; 0 if it does without.
    pub swap_pages: u64,
}

/// The program called `name`, with these numbers.
///
/// # Errors
/// There is none, or the numbers make no sense.
pub fn program(name: &str, sizes: &Sizes, memory: Memory, seed: u64) -> Result<Program, Failure> {
    for (size, most, why) in LIMITS {
        let value = sizes.get(size);
        if value > most {
            return Err(Failure::usage(format!(
                "{size}={value} is too large: at most {most}{why}"
            )));
        }
    }
    match name {
        "readonce" => Ok(readonce(sizes, memory)),
        "usemem" => Ok(usemem(sizes, memory)),
        "cache-server" => Ok(cache_server(sizes, memory, seed)),
        "fork-swapped" => Ok(fork_swapped(sizes, memory)),
        "snapshots" => Ok(snapshots(sizes, memory, seed)),
        _ => Err(Failure::usage(format!("reclaim has no program {name}"))),
    }
}

pub(super) fn access(space: SpaceSlot, page: u64, pages: u64, access: Access) -> Op {
    Op::Call(Call::Access {
        space,
        page,
        pages,
        access,
    })
}

/// A new process with so much private memory.
fn process(writer: &mut Writer, slots: &mut Slots, pages: u64) -> SpaceSlot {
    let space = slots.fresh();
    writer.op(Op::Create { space });
    writer.op(map(space, START, pages, Backing::Anonymous));
    space
}

/// All pages of a process, a piece for each turn.
fn all(writer: &mut Writer, space: SpaceSlot, pages: u64, how: Access, phase: Phase) {
    for first in (0..pages).step_by(TURN as usize) {
        let count = TURN.min(pages - first);
        writer.op(access(space, START + first, count, how));
        writer.piece(phase, count);
    }
}

/// Files that are read once beside a working set that is used all the time.
fn readonce(sizes: &Sizes, memory: Memory) -> Program {
    let (private, mapped) = {
        let set = memory.percent(sizes.get("set")).max(2);
        (set / 2, set - set / 2)
    };
    let times = sizes.get("times");
    let file_pages = (memory.pages / 16).max(1);
    let count = (memory.pages * times).div_ceil(file_pages);
    let mut writer = Writer::new(1);
    // A fault on the mapped file may bring neighbours.
    writer.tolerate_mapped();
    let fill = writer.phase("first touch of the set", "touch", Timing::Slices);
    let read = writer.phase("read once", "page", Timing::Slices);
    let again = writer.phase("touch of the set", "touch", Timing::Slices);
    let file = |number: u64| FileSlot(number as u32);
    let files: Vec<u64> = std::iter::once(mapped)
        .chain((0..count).map(|_| file_pages))
        .collect();
    for (number, &pages) in files.iter().enumerate() {
        let file = file(number as u64);
        writer.op(Op::FileOpen { file, pages });
    }
    let space = process(&mut writer, &mut Slots::default(), private);
    let backing = Backing::File {
        file: file(0),
        page: 0,
    };
    writer.op(map(space, FILE_START, mapped, backing));
    writer.cut(SETUP);
    let set = |writer: &mut Writer, how: Access, phase: Phase| {
        writer.op(access(space, START, private, how));
        writer.op(access(space, FILE_START, mapped, Access::Read));
        writer.piece(phase, private + mapped);
    };
    set(&mut writer, Access::Write, fill);
    for number in 1..=count {
        writer.op(Op::Call(Call::ReadThrough {
            file: file(number),
            block: BLOCK,
        }));
        writer.piece(read, file_pages);
        set(&mut writer, Access::Read, again);
    }
    Program {
        script: writer.finish(),
        facts: vec![format!(
            "{} of private memory and {} of a mapped file are the working set, read after each \
             of {} files of {}: {times} times memory, each file once.",
            memory.named(private),
            memory.named(mapped),
            grouped(count),
            memory.named(file_pages),
        )],
        files,
        swap_pages: 0,
    }
}

/// Processes that store to more memory than there is, in turn.
fn usemem(sizes: &Sizes, memory: Memory) -> Program {
    let processes = sizes.get("processes");
    let rounds = sizes.get("rounds");
    let pages = (memory.percent(sizes.get("touched")) / processes).max(1);
    let mut writer = Writer::new(1);
    let first = writer.phase("first store", "touch", Timing::Slices);
    let again = writer.phase("store again", "touch", Timing::Slices);
    let mut slots = Slots::default();
    let spaces: Vec<SpaceSlot> = (0..processes)
        .map(|_| process(&mut writer, &mut slots, pages))
        .collect();
    writer.cut(SETUP);
    for round in 0..rounds {
        let phase = if round == 0 { first } else { again };
        for at in (0..pages).step_by(TURN as usize) {
            let count = TURN.min(pages - at);
            for &space in &spaces {
                writer.op(access(space, START + at, count, Access::Write));
            }
            writer.piece(phase, count * processes);
        }
    }
    Program {
        script: writer.finish(),
        facts: vec![format!(
            "{} with {} each, stored to page by page from the beginning to the end, {} at a time \
             by each in turn, {}.",
            plural(processes as usize, "process", "processes"),
            memory.named(pages),
            plural(TURN as usize, "page", "pages"),
            plural(rounds as usize, "round", "rounds"),
        )],
        files: Vec::new(),
        swap_pages: pages * processes,
    }
}

/// A server whose requests are for few pages often and for most seldom.
fn cache_server(sizes: &Sizes, memory: Memory, seed: u64) -> Program {
    let pages = memory.percent(sizes.get("keys"));
    let requests = sizes.get("requests");
    let skew = sizes.get("skew");
    let mut random = Random::seeded(seed);
    let zipf = Zipf::new(pages as u32, skew as f64 / 100.0, &mut random);
    let mut writer = Writer::new(1);
    let fill = writer.phase("fill", "touch", Timing::Slices);
    let request = writer.phase("request", "touch", Timing::Slices);
    let space = process(&mut writer, &mut Slots::default(), pages);
    writer.cut(SETUP);
    all(&mut writer, space, pages, Access::Write, fill);
    serve(
        &mut writer,
        (space, request),
        requests,
        (&zipf, &mut random),
    );
    Program {
        script: writer.finish(),
        facts: vec![format!(
            "{} of private memory, stored to once, and {} requests for a page each by Zipf's law \
             with the exponent {:.2}, of which a tenth stores.",
            memory.named(pages),
            grouped(requests),
            skew as f64 / 100.0,
        )],
        files: Vec::new(),
        swap_pages: pages,
    }
}

/// Requests for a page each, of which a tenth stores.
fn serve(
    writer: &mut Writer,
    (space, phase): (SpaceSlot, Phase),
    requests: u64,
    (zipf, random): (&Zipf, &mut Random),
) {
    for first in (0..requests).step_by(REQUESTS as usize) {
        let count = REQUESTS.min(requests - first);
        for _ in 0..count {
            let how = match random.below(10) {
                0 => Access::Write,
                _ => Access::Read,
            };
            writer.op(access(space, START + zipf.draw(random), 1, how));
        }
        writer.piece(phase, count);
    }
}

/// Forks of a process that another one has pushed out of memory.
fn fork_swapped(sizes: &Sizes, memory: Memory) -> Program {
    let pages = memory.percent(sizes.get("process"));
    let rounds = sizes.get("rounds");
    let mut writer = Writer::new(1);
    let store = writer.phase("store", "touch", Timing::Slices);
    let push = writer.phase("push out", "touch", Timing::Slices);
    let fork = writer.phase("fork", "page", Timing::Slices);
    let child_loads = writer.phase("child loads", "touch", Timing::Slices);
    let child_stores = writer.phase("child stores", "touch", Timing::Slices);
    let parent_loads = writer.phase("parent loads", "touch", Timing::Slices);
    let exit = writer.phase("exit", "page", Timing::Slices);
    let mut slots = Slots::default();
    let parent = process(&mut writer, &mut slots, pages);
    writer.cut(SETUP);
    for _ in 0..rounds {
        all(&mut writer, parent, pages, Access::Write, store);
        let other = process(&mut writer, &mut slots, memory.pages);
        writer.cut(SETUP);
        all(&mut writer, other, memory.pages, Access::Write, push);
        writer.op(Op::Exit { space: other });
        writer.cut(SETUP);
        let child = slots.fresh();
        writer.op(Op::Fork { parent, child });
        writer.piece(fork, pages);
        all(&mut writer, child, pages, Access::Read, child_loads);
        all(&mut writer, child, pages, Access::Write, child_stores);
        all(&mut writer, parent, pages, Access::Read, parent_loads);
        writer.op(Op::Exit { space: child });
        writer.piece(exit, pages);
    }
    Program {
        script: writer.finish(),
        facts: vec![format!(
            "A process with {} of private memory, and one that stores to as much as memory is and \
             ends. Then the first forks; its child loads from all pages and stores to them, and \
             the parent loads from all. {}.",
            memory.named(pages),
            plural(rounds as usize, "round", "rounds"),
        )],
        files: Vec::new(),
        swap_pages: 2 * pages + memory.pages,
    }
}

/// A server that goes on while forked children write what it holds to a file.
fn snapshots(sizes: &Sizes, memory: Memory, seed: u64) -> Program {
    let pages = memory.percent(sizes.get("server"));
    let rounds = sizes.get("rounds");
    let skew = sizes.get("skew");
    let mut random = Random::seeded(seed);
    let zipf = Zipf::new(pages as u32, skew as f64 / 100.0, &mut random);
    let mut writer = Writer::new(1);
    let fill = writer.phase("fill", "touch", Timing::Slices);
    let fork = writer.phase("fork", "page", Timing::Slices);
    let request = writer.phase("request", "touch", Timing::Slices);
    let save = writer.phase("snapshot", "page", Timing::Slices);
    let exit = writer.phase("exit", "page", Timing::Slices);
    let file = FileSlot(0);
    writer.op(Op::FileOpen { file, pages: 0 });
    let mut slots = Slots::default();
    let server = process(&mut writer, &mut slots, pages);
    writer.cut(SETUP);
    all(&mut writer, server, pages, Access::Write, fill);
    // As many stores to as many pages as it has.
    let part = pages.div_ceil(PARTS);
    for _ in 0..rounds {
        let child = slots.fresh();
        let parent = server;
        writer.op(Op::Fork { parent, child });
        writer.piece(fork, pages);
        for first in (0..pages).step_by(part as usize) {
            let count = part.min(pages - first);
            writer.op(access(child, START + first, count, Access::Read));
            writer.op(Op::Call(Call::Write {
                file,
                at: first << memory.shift,
                block: BLOCK,
                bytes: count << memory.shift,
            }));
            writer.piece(save, count);
            for _ in 0..count {
                let page = START + zipf.draw(&mut random);
                writer.op(access(server, page, 1, Access::Write));
            }
            writer.piece(request, count);
        }
        writer.op(Op::Exit { space: child });
        writer.piece(exit, pages);
        writer.op(Op::Call(Call::SetSize { file, bytes: 0 }));
        writer.cut(SETUP);
    }
    Program {
        script: writer.finish(),
        facts: vec![format!(
            "A server with {} of private memory forks a child, which loads from every page and \
             writes as much to a file; meanwhile the server stores to pages by Zipf's law with \
             the exponent {:.2}, as often as it has pages. {}.",
            memory.named(pages),
            skew as f64 / 100.0,
            plural(rounds as usize, "snapshot", "snapshots"),
        )],
        files: vec![0],
        swap_pages: 2 * pages,
    }
}
