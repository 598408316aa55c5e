//! What designs that search relatives find hard: `late-mappers` and
//! `generations`.

use vellum_engine::Op;

use super::families::{LOOKUPS, START, scan};
use super::ops::{exit_all, fork_all, private, process, write};
use super::run::{self, Part};
use super::script::{SETUP, Script, Slots, Timing, Writer};
use crate::bench::findings::Findings;
use crate::bench::request::Request;
use crate::failure::Failure;
use vellum_terminal::progress::Interrupt;
use vellum_terminal::table::grouped;
use vellum_terminal::text::plural;

/// A parent's pages that few of very many children still have, those few being the
/// last that a search from the youngest on comes to.
pub fn late_mappers(request: &Request, interrupt: &Interrupt) -> Result<Findings, Failure> {
    let sizes = &request.sizes;
    let (children, mappers) = (sizes.get("children"), sizes.get("mappers"));
    let (pages, visits) = (sizes.get("pages"), sizes.get("visits"));
    if mappers > children {
        let text = format!("mappers={mappers} is too large: there are {children} children");
        return Err(Failure::usage(text));
    }
    let title = format!(
        "{} of one parent, {} of which keep its pages",
        plural(children as usize, "child", "children"),
        grouped(mappers),
    );
    let facts = vec![format!(
        "The parent writes {} and forks; then it and all children but the {} oldest give them up. \
         A lookup has {} to find.",
        plural(pages as usize, "page", "pages"),
        grouped(mappers),
        plural(mappers as usize, "entry", "entries"),
    )];
    let script = late(children, mappers, pages, visits);
    one(&title, facts, &script, request, interrupt)
}

fn late(children: u64, mappers: u64, pages: u64, visits: u64) -> Script {
    let mut writer = Writer::new(1);
    let fork = writer.phase("fork", "child", Timing::Slices);
    let give_up = writer.phase("give up", "child", Timing::Slices);
    let lookup = writer.phase("lookup", "lookup", Timing::Slices);
    let exit = writer.phase("exit", "child", Timing::Slices);
    let mut slots = Slots::default();
    let parent = process(&mut writer, &mut slots, START, pages);
    let family = fork_all(&mut writer, &mut slots, parent, children, fork);
    let (oldest, others) = family.split_at(mappers as usize);
    for &space in others.iter().chain([&parent]) {
        let page = START;
        writer.op(Op::Unmap { space, page, pages });
        writer.piece(give_up, 1);
    }
    for _ in 0..visits {
        scan(&mut writer, lookup, oldest[0], START, START + pages);
    }
    exit_all(&mut writer, &family, exit);
    writer.finish()
}

/// A line of processes, each forked by the one before it, in which the pages that
/// each wrote survive.
pub fn generations(request: &Request, interrupt: &Interrupt) -> Result<Findings, Failure> {
    let sizes = &request.sizes;
    let (generations, pages) = (sizes.get("generations"), sizes.get("pages"));
    let visits = sizes.get("visits");
    let mut all = Findings::default();
    for variant in &request.variants {
        let living = variant.name == "living";
        let title = format!("{}: {}", variant.name, variant.summary);
        let facts = vec![format!(
            "{}, each of which writes {} of its own before it forks the next. The last one has \
             {} pages.",
            plural(generations as usize, "generation", "generations"),
            plural(pages as usize, "page", "pages"),
            grouped(generations * pages),
        )];
        let script = line(generations, pages, visits, living);
        let mut found = one(&title, facts, &script, request, interrupt)?;
        all.arms = found.arms;
        all.notes = found.notes;
        all.runs.append(&mut found.runs);
        if found.interrupted {
            all.interrupted = true;
            break;
        }
    }
    Ok(all)
}

fn line(generations: u64, pages: u64, visits: u64, living: bool) -> Script {
    let mut writer = Writer::new(1);
    let touch = writer.phase("write", "page", Timing::Slices);
    let fork = writer.phase("fork", "generation", Timing::Slices);
    let exit = writer.phase("exit", "generation", Timing::Slices);
    let lookup = writer.phase("lookup", "lookup", Timing::Slices);
    let mut slots = Slots::default();
    let mut space = slots.fresh();
    writer.op(Op::Create { space });
    writer.op(private(space, START, generations * pages));
    writer.cut(SETUP);
    let mut ancestors = Vec::new();
    for generation in 0..generations {
        let first = START + generation * pages;
        (first..first + pages).for_each(|page| writer.op(write(space, page)));
        writer.piece(touch, pages);
        if generation + 1 == generations {
            break;
        }
        let (parent, child) = (space, slots.fresh());
        writer.op(Op::Fork { parent, child });
        writer.piece(fork, 1);
        match living {
            true => ancestors.push(parent),
            false => {
                writer.op(Op::Exit { space: parent });
                writer.piece(exit, 1);
            }
        }
        space = child;
    }
    let end = START + generations * pages;
    for _ in 0..visits {
        scan(&mut writer, lookup, space, START, end);
    }
    ancestors.push(space);
    exit_all(&mut writer, &ancestors, exit);
    writer.finish()
}

/// Measures a script as the only run of a benchmark.
fn one(
    title: &str,
    facts: Vec<String>,
    script: &Script,
    request: &Request,
    interrupt: &Interrupt,
) -> Result<Findings, Failure> {
    let mut findings = Findings::default();
    run::add(
        &mut findings,
        Part::new(title, facts, script),
        request,
        interrupt,
    )?;
    findings.notes = vec![LOOKUPS.to_owned(), run::NOT_MODELLED.to_owned()];
    Ok(findings)
}
