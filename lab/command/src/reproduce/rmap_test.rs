//! rmap-test: as published, with too little memory, and its lookups alone.

use super::bench::{self, Job};
use super::model::{self, Comparison, Section};
use super::published::{self, KERNELS_RMAP_TEST, RmapTest};
use super::schemes::{options, with_later};
use super::task::Task;
use super::zero::interrupted;
use crate::bench::core::run::ALL_PHASES;
use crate::bench::{PRESSURE, Run};
use crate::failure::Failure;
use crate::on::On;
use vellum_terminal::table::{Table, grouped};

/// The scheme of 2003 with the lists of regions that it searched then.
const LISTS: &str = "as=linux-2.5.66-mm4-objrmap";

/// A shape in words.
fn shape(case: &RmapTest) -> String {
    let (tasks, regions, pages) = case.shape;
    format!(
        "{} x {} x {pages}",
        grouped(tasks.into()),
        grouped(regions.into())
    )
}

/// The published test: reclaim looks pages up, because memory is short.
pub(super) fn under_pressure(task: &Task<'_>, section: &mut Section) -> Result<(), Failure> {
    section.method.push(
        "tasks map one file in many regions and touch all of it, with half of the memory that the \
         file and the page tables take; published are system seconds, ours CPU time of mapping, \
         touching and unmapping, reclaim and copies from the store included, the time of the device \
         not; each task touches each page once, where the published runs went over the file ten \
         times"
            .to_owned(),
    );
    let schemes = with_later(&["chains", "partial", "anonmm2003"], &[], section);
    let trees = options(&schemes, KERNELS_RMAP_TEST);
    let generations = |design: &str| format!("{design},aging=generations");
    let mut designs = trees.clone();
    let mut labels: Vec<String> = schemes.iter().map(|name| (*name).to_owned()).collect();
    let lists = designs.len();
    designs.push(LISTS.to_owned());
    labels.push("lists".to_owned());
    let aged = [(trees[0].as_str(), schemes[0]), (LISTS, "lists")];
    let last = trees.iter().zip(&schemes).next_back();
    let last = last.map(|(design, name)| (design.as_str(), *name));
    for (design, name) in aged.into_iter().chain(last) {
        designs.push(generations(design));
        labels.push(format!("{name}, generations"));
    }
    let mut job = Job::new("rmap-test", &designs);
    job.variants = vec![PRESSURE.to_owned()];
    if task.setting.quick {
        job.scale = 0.1;
        job.sizes = vec!["pages=60".to_owned()];
    }
    let findings = task.setting.run(&job, On::Core, task.interrupt)?;
    let cases = published::RMAP_TEST.iter().zip(&published::RMAP_TEST_TREE);
    for ((list, tree), run) in cases.zip(&findings.runs) {
        let shape = shape(list);
        let names: Vec<&str> = labels.iter().map(String::as_str).collect();
        let tables = format!("{}\n{}", phases(run, &names), pressure(run, &names));
        section
            .tables
            .push((format!("ours: {}", run.title), tables));
        let whole = bench::figure(run, ALL_PHASES)?;
        for (arm, label) in names.iter().enumerate().skip(1) {
            let ours = bench::times(&whole.arms[arm]);
            let what = format!("{shape}: {label} / chains");
            let published = match arm {
                arm if arm == lists => Some(list.list.0 / list.chains_s),
                // Trees of regions by age are all that was published.
                arm if arm < lists => tree.tree_s.map(|tree_s| tree_s / tree.chains_s),
                _ => None,
            };
            section.comparisons.push(match published {
                Some(published) => model::of_times(what, published, ours),
                None => model::beside(what, "-".to_owned(), ours.to_string(), "came later"),
            });
        }
    }
    interrupted(&findings)
}

/// What too little memory cost each design.
fn pressure(run: &Run, designs: &[&str]) -> String {
    let mut header = vec!["a pass"];
    header.extend(designs);
    let mut table = Table::new(&header);
    for row in &run.reclaim {
        let mut cells = vec![row.name.to_owned()];
        let values = row.values.iter().take(designs.len());
        cells.extend(values.map(|value| match row.name.ends_with("each") {
            true => format!("{value:.2}"),
            false => grouped(value.round() as u64),
        }));
        table.row(cells);
    }
    table.render(0)
}

/// Who the schemes with a search tree are here, beside the one with chains.
const TREES: &[&str] = &[
    "partial",
    "anonmm2003",
    "anonmm",
    "anon_vma",
    "anon_vma_chain",
];

/// Every page looked up by a scanner, on machines with enough memory.
pub(super) fn by_scanner(task: &Task<'_>, section: &mut Section) -> Result<(), Failure> {
    section.method.push(
        "the same shapes with enough memory: a scanner looks up every page of the file once, and \
         the whole is mapping, touching, looking up and unmapping; what a lookup costs is larger in \
         it than in the published system seconds"
            .to_owned(),
    );
    let all = with_later(&["chains", "partial", "anonmm2003"], TREES, section);
    let mut designs = options(&all, KERNELS_RMAP_TEST);
    // The scheme of 2003 once more, with the lists that it searched then.
    let lists = designs.len();
    designs.push("as=linux-2.5.66-mm4-objrmap".to_owned());
    let mut labels = all.clone();
    labels.push("partial, lists");
    let mut job = Job::new("rmap-test", &designs);
    if task.setting.quick {
        job.scale = 0.1;
        job.sizes = vec!["pages=60".to_owned()];
    }
    let findings = task.setting.run(&job, On::Core, task.interrupt)?;
    let cases = published::RMAP_TEST.iter().zip(&published::RMAP_TEST_TREE);
    // Each shape is looked up page by page, and then sixteen neighbours at a time.
    for ((list, tree), runs) in cases.zip(findings.runs.chunks_exact(2)) {
        let shape = shape(list);
        for run in runs {
            section
                .tables
                .push((format!("ours: {}", run.title), phases(run, &labels)));
        }
        let alone = bench::figure(&runs[0], ALL_PHASES)?;
        let together = bench::figure(&runs[1], ALL_PHASES)?;
        for (arm, design) in all.iter().enumerate().skip(1) {
            let what = format!("{shape}: {design} (tree) / chains");
            let published = tree
                .tree_s
                .map_or(f64::NAN, |tree_s| tree_s / tree.chains_s);
            let [alone, together] = [alone, together].map(|figure| {
                model::of_times(what.clone(), published, bench::times(&figure.arms[arm]))
            });
            section.comparisons.extend(both_ways(alone, together));
        }
        let times = list.list.0 / list.chains_s;
        let [alone, together] = [alone, together].map(|figure| {
            let what = format!("{shape}: partial (lists) / chains");
            model::of_times(what, times, bench::times(&figure.arms[lists]))
        });
        section.comparisons.extend(both_ways(alone, together));
    }
    interrupted(&findings)
}

/// A figure with lookups page by page, as the published kernels made them, and with
/// sixteen at a time: only the first is judged.
fn both_ways(alone: Comparison, together: Comparison) -> [Comparison; 2] {
    let says = match alone.disagrees && !together.disagrees {
        true => "agrees only if sixteen are looked up at a time",
        false => "not judged: the published kernels looked up page by page",
    };
    [
        Comparison {
            what: format!("{}, page by page", alone.what),
            ..alone
        },
        Comparison {
            what: format!("{}, sixteen at a time", together.what),
            says: says.to_owned(),
            disagrees: false,
            ..together
        },
    ]
}

/// Nanoseconds of one unit of each phase by design.
fn phases(run: &Run, designs: &[&str]) -> String {
    let mut header = vec!["ns"];
    header.extend(designs);
    let mut table = Table::new(&header);
    for figure in &run.figures {
        let mut cells = vec![format!("{}, per {}", figure.name, figure.per)];
        let arms = figure.arms.iter().take(designs.len());
        cells.extend(arms.map(|arm| format!("{:.1}", arm.value)));
        table.row(cells);
    }
    table.render(0)
}
