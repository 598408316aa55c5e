//! `rmap-primitives`: calls in which reverse mapping adds, duplicates and
//! removes, hot and uncontended.
//!
//! The time of a call is that of everything in it. What differs between designs
//! is what reverse mapping costs; `cargo bench -p vellum-machine --bench rmap`
//! times the operations of the designs by themselves.

use vellum_engine::{Advice, Op};

use super::ops::{private, write};
use super::run::{self, Part};
use super::script::{SETUP, Script, Slots, Timing, Writer};
use crate::bench::findings::Findings;
use crate::bench::request::Request;
use crate::failure::Failure;
use vellum_terminal::progress::Interrupt;

const START: u64 = 1 << 20;

/// Measures it.
pub fn run(request: &Request, interrupt: &Interrupt) -> Result<Findings, Failure> {
    let pages = request.sizes.get("pages");
    let rounds = request.sizes.get("rounds");
    let facts = vec![
        "touch: first store to a page, one add in it. fork: one duplicate for each page. \
         exit: one remove for each page of the child, which shares them. discard: one remove \
         for each page of the parent, which is freed."
            .to_owned(),
    ];
    let mut findings = Findings::default();
    run::add(
        &mut findings,
        Part::new(
            &format!("{pages} pages, {rounds} rounds"),
            facts,
            &script(pages, rounds),
        ),
        request,
        interrupt,
    )?;
    findings.notes = vec![
        "The calls do more than reverse mapping: read the differences between designs.".to_owned(),
        run::NOT_MODELLED.to_owned(),
    ];
    Ok(findings)
}

fn script(pages: u64, rounds: u64) -> Script {
    let mut writer = Writer::new(1);
    let touch = writer.phase("touch", "page", Timing::Slices);
    let fork = writer.phase("fork", "page", Timing::Slices);
    let exit = writer.phase("exit", "page", Timing::Slices);
    let discard = writer.phase("discard", "page", Timing::Slices);
    let mut slots = Slots::default();
    let (parent, child) = (slots.fresh(), slots.fresh());
    writer.op(Op::Create { space: parent });
    writer.op(private(parent, START, pages));
    writer.cut(SETUP);
    for _ in 0..rounds {
        for first in (START..START + pages).step_by(512) {
            let end = (first + 512).min(START + pages);
            (first..end).for_each(|page| writer.op(write(parent, page)));
            writer.piece(touch, end - first);
        }
        writer.op(Op::Fork { parent, child });
        writer.piece(fork, pages);
        writer.op(Op::Exit { space: child });
        writer.piece(exit, pages);
        writer.op(Op::Advise {
            space: parent,
            page: START,
            pages,
            advice: Advice::DontNeed,
        });
        writer.piece(discard, pages);
    }
    writer.finish()
}
