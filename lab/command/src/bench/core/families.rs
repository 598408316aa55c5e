//! Forks: `fork-family` and `mremap-after-fork`.

use vellum_engine::{Op, SpaceSlot};

use super::ops::{exit_all, fork_all, process, write};
use super::run::{self, Part};
use super::script::{Phase, Script, Slots, Timing, Writer};
use crate::bench::findings::Findings;
use crate::bench::request::Request;
use crate::failure::Failure;
use vellum_terminal::progress::Interrupt;
use vellum_terminal::table::grouped;

/// First page of the parent's memory.
pub(super) const START: u64 = 1 << 20;
/// Where children move it to.
const ELSEWHERE: u64 = 1 << 24;

pub(super) const LOOKUPS: &str = "Lookups go through the page table of the space that is named: they ask of \
     each page found there who else maps it, and take the accessed marks, as page aging would.";

/// Looks up the pages `first..end` of `space`.
pub(super) fn scan(writer: &mut Writer, phase: Phase, space: SpaceSlot, first: u64, end: u64) {
    for page in (first..end).step_by(32) {
        let pages = 32.min(end - page);
        writer.op(Op::ScanSpace { space, page, pages });
        writer.piece(phase, pages);
    }
}

/// One parent, many children, each with copies of its own of some pages.
pub fn fork_family(request: &Request, interrupt: &Interrupt) -> Result<Findings, Failure> {
    let sizes = &request.sizes;
    let (children, pages) = (sizes.get("children"), sizes.get("pages"));
    let (shared, visits) = (sizes.get("shared"), sizes.get("visits"));
    let title = format!(
        "{} of one parent, {} pages copied in each",
        vellum_terminal::text::plural(children as usize, "child", "children"),
        grouped(pages)
    );
    let facts = vec![
        format!(
            "The parent has {} pages; each child writes to the first {}, the others stay shared \
             by all.",
            grouped(pages + shared),
            grouped(pages)
        ),
        format!(
            "At the end {} frames are mapped once and {} frames {} times.",
            grouped(pages * (children + 1)),
            grouped(shared),
            grouped(children + 1)
        ),
    ];
    let mut findings = Findings::default();
    run::add(
        &mut findings,
        Part::new(&title, facts, &family(children, pages, shared, visits)),
        request,
        interrupt,
    )?;
    findings.notes = vec![LOOKUPS.to_owned(), run::NOT_MODELLED.to_owned()];
    Ok(findings)
}

fn family(children: u64, pages: u64, shared: u64, visits: u64) -> Script {
    let mut writer = Writer::new(1);
    let fork = writer.phase("fork", "child", Timing::Slices);
    let copy = writer.phase("copy", "page", Timing::Slices);
    let of_parent = writer.phase("lookup of a parent's page", "lookup", Timing::Slices);
    let of_child = writer.phase("lookup of a child's page", "lookup", Timing::Slices);
    let of_shared = writer.phase("lookup of a shared page", "lookup", Timing::Slices);
    let exit = writer.phase("exit", "child", Timing::Slices);
    let mut slots = Slots::default();
    let parent = process(&mut writer, &mut slots, START, pages + shared);
    let family = fork_all(&mut writer, &mut slots, parent, children, fork);
    for child in &family {
        (START..START + pages).for_each(|page| writer.op(write(*child, page)));
        writer.piece(copy, pages);
    }
    for _ in 0..visits {
        scan(&mut writer, of_parent, parent, START, START + pages);
    }
    for child in &family {
        scan(&mut writer, of_child, *child, START, START + pages);
    }
    let (first, end) = (START + pages, START + pages + shared);
    scan(&mut writer, of_shared, parent, first, end);
    exit_all(&mut writer, &family, exit);
    writer.finish()
}

/// Children that move what they share with their parent, so that a page has
/// another address in each.
pub fn mremap_after_fork(request: &Request, interrupt: &Interrupt) -> Result<Findings, Failure> {
    let sizes = &request.sizes;
    let (children, pages) = (sizes.get("children"), sizes.get("pages"));
    let title = format!(
        "{}, {} pages moved in each",
        vellum_terminal::text::plural(children as usize, "child", "children"),
        grouped(pages)
    );
    let facts = vec![
        "Every other child moves the memory as a whole, to a place of its own; the rest leave it \
         where it is. A design may copy a page rather than move it: the copies on write say so."
            .to_owned(),
    ];
    let mut findings = Findings::default();
    run::add(
        &mut findings,
        Part::new(&title, facts, &moves(children, pages)),
        request,
        interrupt,
    )?;
    findings.notes = vec![LOOKUPS.to_owned(), run::NOT_MODELLED.to_owned()];
    Ok(findings)
}

fn moves(children: u64, pages: u64) -> Script {
    let mut writer = Writer::new(1);
    let fork = writer.phase("fork", "child", Timing::Slices);
    let moved = writer.phase("mremap", "page", Timing::Slices);
    let lookup = writer.phase("lookup", "lookup", Timing::Slices);
    let exit = writer.phase("exit", "child", Timing::Slices);
    let mut slots = Slots::default();
    let parent = process(&mut writer, &mut slots, START, pages);
    let family = fork_all(&mut writer, &mut slots, parent, children, fork);
    for (number, child) in (0u64..).zip(&family).step_by(2) {
        writer.op(Op::Remap {
            space: *child,
            page: START,
            pages,
            new_page: ELSEWHERE + number * 16,
            new_pages: pages,
        });
        writer.piece(moved, pages);
    }
    for page in (START..START + pages).step_by(8) {
        let pages = 8.min(START + pages - page);
        let space = parent;
        writer.op(Op::ScanSpace { space, page, pages });
        writer.piece(lookup, pages);
    }
    exit_all(&mut writer, &family, exit);
    writer.finish()
}
