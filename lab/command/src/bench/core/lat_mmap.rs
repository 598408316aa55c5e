//! `lat_mmap`: map a file, store a byte in every 16 KiB of its first tenth, unmap it.

use vellum_engine::{Backing, FileSlot, Op, SpaceSlot, pages_of};

use super::ops::{map, write};
use super::run::{self, Machine, Part};
use super::script::{Phase, SETUP, Script, Timing, Writer};
use crate::bench::findings::Findings;
use crate::bench::lat_mmap::{Size, block_of, sizes};
use crate::bench::request::Request;
use crate::failure::Failure;
use vellum_terminal::progress::Interrupt;

const FILE: FileSlot = FileSlot(0);
const SPACE: SpaceSlot = SpaceSlot(0);

/// Where the file is mapped.
const START: u64 = 1 << 20;

/// Pages read in one operation.
const READ: u64 = 256;

/// Measures every size.
pub fn run(request: &Request, interrupt: &Interrupt) -> Result<Findings, Failure> {
    let shift = page_shift(request)?;
    let sizes = sizes(request.sizes.get("mebibytes"));
    let samples = request.sizes.get("samples");
    let script = script(&sizes, samples, shift);
    let tenth = sizes.last().map_or(0, |size| size.bytes / 10);
    let mut findings = Findings::default();
    let facts = vec![format!(
        "{samples} times each after one that is not timed: map the file shared, store a byte \
         every 16 KiB in its first tenth, unmap the whole. That tenth is in memory."
    )];
    let needs = (tenth / 4 * 5 + (128 << 20)).next_multiple_of(64 << 20);
    let part = Part::new("twenty sizes", facts, &script)
        .on(Machine::PREFAULTED)
        .needing(needs);
    run::add_part(&mut findings, part, request, interrupt, |run, measured| {
        let arms = 0..measured.designs.len();
        let figures = &run.figures;
        let arms = arms.map(|arm| {
            figures
                .iter()
                .map(|size| size.arms[arm].value / 1e3)
                .collect()
        });
        run.blocks = vec![block_of(&sizes, &arms.collect::<Vec<_>>())];
    })?;
    findings.notes = vec![run::NOT_MODELLED.to_owned()];
    Ok(findings)
}

/// Log2 of the bytes in a page, which all designs must share.
fn page_shift(request: &Request) -> Result<u32, Failure> {
    let shift = |design: &String| match pages_of(design) {
        Ok(pages) => Ok(pages.shift),
        Err(error) => Err(Failure::usage(error.to_string())),
    };
    let shifts = request.designs.iter().map(shift);
    let shifts = shifts.collect::<Result<Vec<u32>, Failure>>()?;
    match shifts.windows(2).all(|pair| pair[0] == pair[1]) {
        true => Ok(shifts.first().copied().unwrap_or(12)),
        false => Err(Failure::usage(
            "lat_mmap compares designs with pages of one size: choose the same format= for all",
        )),
    }
}

fn script(sizes: &[Size], samples: u64, shift: u32) -> Script {
    let mut writer = Writer::new(1);
    writer.phases_apart();
    let most = sizes.last().map_or(0, |size| size.bytes);
    let pages = most.div_ceil(1 << shift);
    let tenth = (most / 10).div_ceil(1 << shift);
    writer.op(Op::FileOpen { file: FILE, pages });
    for page in (0..tenth).step_by(READ as usize) {
        let pages = READ.min(tenth - page);
        writer.op(Op::FileRead {
            file: FILE,
            page,
            pages,
        });
        writer.cut(SETUP);
    }
    writer.op(Op::Create { space: SPACE });
    writer.cut(SETUP);
    let phase = |size: &Size| writer.phase(size.label(), "iteration", Timing::Slices);
    let phases: Vec<Phase> = sizes.iter().map(phase).collect();
    for (size, &phase) in sizes.iter().zip(&phases) {
        let ops = iteration(SPACE, FILE, *size, shift);
        ops.iter().for_each(|op| writer.op(*op));
        writer.cut(SETUP);
        for _ in 0..samples {
            ops.iter().for_each(|op| writer.op(*op));
            writer.piece(phase, 1);
        }
    }
    writer.finish()
}

/// What is done once: the first tenth of `size` is stored to.
pub fn iteration(space: SpaceSlot, file: FileSlot, size: Size, shift: u32) -> Vec<Op> {
    let pages = size.bytes >> shift;
    let mut ops = vec![map(space, START, pages, Backing::File { file, page: 0 })];
    // Bytes of one page fault once.
    let mut touched: Vec<u64> = size.touched().map(|byte| byte >> shift).collect();
    touched.dedup();
    ops.extend(touched.into_iter().map(|page| write(space, START + page)));
    ops.push(Op::Unmap {
        space,
        page: START,
        pages,
    });
    ops
}
