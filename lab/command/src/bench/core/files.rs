//! Files that many regions map: `rmap-test` and `shared-file`.
//!
//! What a lookup costs when a page has many mappings, or may have many. Memory is
//! not short here: the pages are visited by a scanner that asks of each who maps it
//! and takes the accessed marks, as page aging does.

use vellum_engine::{Access, Backing, FileSlot, Op, SpaceSlot};

use super::ops::map;
use super::run::{self, Machine, Part};
use super::script::{Phase, SETUP, Script, Slots, Timing, Writer};
use crate::bench::findings::{Figure, Findings, Standing};
use crate::bench::request::Request;
use crate::compare::Verdict;
use crate::designs::fault_around;
use crate::failure::Failure;
use vellum_terminal::progress::Interrupt;
use vellum_terminal::table::grouped;

/// Where regions begin, in pages.
const START: u64 = 1 << 20;

/// Pages of a file that the scanner visits in one operation.
const SCAN_PAGES: u64 = 64;

/// Both ways, in the order of the runs of a shape.
const WAYS: [Asks; 2] = [Asks::PageByPage, Asks::SixteenAtATime];

const FILE: FileSlot = FileSlot(0);

const SCANNER: &str = "Memory is not short: a scanner visits every page of the file at a set \
     rate (size visits: times for each page) and asks who maps it, as page aging would.";

/// How many pages the scanner asks for at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Asks {
    /// For one, as the kernels did that the published figures are of.
    PageByPage,
    /// For 64 neighbours, which the core takes sixteen at a time: designs that
    /// search regions look for sixteen together.
    SixteenAtATime,
}

impl Asks {
    fn text(self) -> &'static str {
        match self {
            Asks::PageByPage => "looked up page by page",
            Asks::SixteenAtATime => "looked up sixteen neighbours at a time",
        }
    }
}

fn notes() -> Vec<String> {
    vec![SCANNER.to_owned(), run::NOT_MODELLED.to_owned()]
}

/// Regions of a file, phase by phase: map, touch, scan, unmap.
struct Regions {
    tasks: u64,
    /// Regions of each task.
    regions: u64,
    /// Pages of each region.
    pages: u64,
    /// First page of the file that region `n` maps.
    offset: fn(region: u64, pages: u64) -> u64,
    file_pages: u64,
    /// Pages that region `n` touches, `step` apart, are those from `first` on.
    touched: u64,
    step: u64,
    first: fn(region: u64, pages: u64) -> u64,
    access: Access,
    visits: u64,
    asks: Asks,
}

impl Regions {
    fn script(&self) -> Script {
        let mut writer = Writer::new(1);
        writer.tolerate_mapped();
        let map = writer.phase("map", "region", Timing::Slices);
        let touch = writer.phase("touch", "fault", Timing::Slices);
        let scan = writer.phase("scan", "lookup", Timing::Slices);
        let unmap = writer.phase("unmap", "region", Timing::Slices);
        let mut slots = Slots::default();
        let tasks: Vec<SpaceSlot> = (0..self.tasks).map(|_| slots.fresh()).collect();
        writer.op(Op::FileOpen {
            file: FILE,
            pages: self.file_pages,
        });
        for page in (0..self.file_pages).step_by(256) {
            writer.op(Op::FileRead {
                file: FILE,
                page,
                pages: 256.min(self.file_pages - page),
            });
            writer.cut(SETUP);
        }
        for task in &tasks {
            writer.op(Op::Create { space: *task });
        }
        writer.cut(SETUP);
        for task in &tasks {
            self.each_region(&mut writer, map, |writer, region| {
                writer.op(self.map(*task, region));
                1
            });
        }
        for task in &tasks {
            self.each_region(&mut writer, touch, |writer, region| {
                self.touch(writer, *task, region)
            });
        }
        for _ in 0..self.visits {
            for page in (0..self.file_pages).step_by(SCAN_PAGES as usize) {
                let pages = SCAN_PAGES.min(self.file_pages - page);
                let file = FILE;
                match self.asks {
                    Asks::SixteenAtATime => writer.op(Op::ScanFile { file, page, pages }),
                    Asks::PageByPage => (page..page + pages).for_each(|page| {
                        writer.op(Op::ScanFile {
                            file,
                            page,
                            pages: 1,
                        });
                    }),
                }
                writer.piece(scan, pages);
            }
        }
        for task in &tasks {
            self.each_region(&mut writer, unmap, |writer, region| {
                writer.op(Op::Unmap {
                    space: *task,
                    page: self.start(region),
                    pages: self.pages,
                });
                1
            });
        }
        writer.finish()
    }

    /// Pieces of 16 regions; `each` returns the units it did.
    fn each_region(
        &self,
        writer: &mut Writer,
        phase: Phase,
        each: impl Fn(&mut Writer, u64) -> u64,
    ) {
        for first in (0..self.regions).step_by(16) {
            let last = self.regions.min(first + 16);
            let units = (first..last).map(|region| each(writer, region)).sum();
            writer.piece(phase, units);
        }
    }

    /// Regions lie apart, so that they are not merged, each from the start of
    /// a fault-around window on.
    fn start(&self, region: u64) -> u64 {
        START + region * (self.pages + 1).next_multiple_of(1024)
    }

    fn map(&self, space: SpaceSlot, region: u64) -> Op {
        let backing = Backing::File {
            file: FILE,
            page: (self.offset)(region, self.pages),
        };
        map(space, self.start(region), self.pages, backing)
    }

    fn touch(&self, writer: &mut Writer, space: SpaceSlot, region: u64) -> u64 {
        let mut faults = 0;
        let mut step = 0;
        while step < self.touched {
            let page = ((self.first)(region, self.pages) + step) % self.pages;
            writer.op(Op::Touch {
                space,
                page: self.start(region) + page,
                access: self.access,
            });
            faults += 1;
            step += self.step;
        }
        faults
    }
}

/// Andrew Morton's rmap-test of 2003 in its two shapes: many tasks with many
/// regions, and one task with very many small ones.
pub fn rmap_test(request: &Request, interrupt: &Interrupt) -> Result<Findings, Failure> {
    let sizes = &request.sizes;
    // One fault maps what lies around it. Designs with different windows get
    // the faults of the narrowest, of which others find some pages mapped.
    let windows = request.designs.iter().map(|design| fault_around(design));
    let windows = windows.collect::<Result<Vec<u64>, Failure>>()?;
    let window = windows.into_iter().min().unwrap_or(1);
    let shape = |tasks: u64, regions: u64, pages: u64, asks: Asks| Regions {
        tasks,
        regions,
        pages,
        offset: |region, pages| region * pages,
        file_pages: regions * pages,
        touched: pages,
        step: window,
        first: |_, _| 0,
        access: Access::Read,
        visits: sizes.get("visits"),
        asks,
    };
    let (tasks, regions, pages) = (sizes.get("tasks"), sizes.get("regions"), sizes.get("pages"));
    let (wide, wide_pages) = (sizes.get("wide-regions"), sizes.get("wide-pages"));
    let shapes = WAYS.map(|asks| shape(tasks, regions, pages, asks));
    let wide_shapes = WAYS.map(|asks| shape(1, wide, wide_pages, asks));
    let mut findings = Findings::default();
    for shape in shapes.into_iter().chain(wide_shapes) {
        let title = format!(
            "{} x {} x {}, {}",
            vellum_terminal::text::plural(shape.tasks as usize, "task", "tasks"),
            vellum_terminal::text::plural(shape.regions as usize, "region", "regions"),
            vellum_terminal::text::plural(shape.pages as usize, "page", "pages"),
            shape.asks.text(),
        );
        let facts = vec![format!(
            "A file of {} pages, each mapped by {}; one fault maps up to {window} pages.",
            grouped(shape.file_pages),
            vellum_terminal::text::plural(shape.tasks as usize, "task", "tasks"),
        )];
        if run::add(
            &mut findings,
            Part::new(&title, facts, &shape.script()).on(Machine {
                divergence_limit: 0.01,
                ..Machine::PLAIN
            }),
            request,
            interrupt,
        )? {
            break;
        }
    }
    findings.notes = notes();
    findings.notes.extend(only_together(&findings));
    Ok(findings)
}

/// Names what is less than the first design only because sixteen neighbours are
/// looked up together.
fn only_together(findings: &Findings) -> Vec<String> {
    let mut notes = Vec::new();
    let less =
        |figure: &Figure, arm: usize| figure.arms[arm].standing == Standing::Judged(Verdict::Less);
    for runs in findings.runs.chunks_exact(WAYS.len()) {
        let [single, together] = runs else { continue };
        for (figure, batched) in single.figures.iter().zip(&together.figures) {
            let arms = 0..figure.arms.len();
            let only = arms.filter(|arm| less(batched, *arm) && !less(figure, *arm));
            let labels: Vec<&str> = only.map(|arm| findings.arms[arm].label.as_str()).collect();
            if !labels.is_empty() {
                notes.push(format!(
                    "ONLY SIXTEEN AT A TIME: less than A in {} of {}: {}.",
                    figure.name,
                    together.title,
                    labels.join(", ")
                ));
            }
        }
    }
    notes
}

/// Every region could map every page, and few do: the worst case of a design
/// that looks through regions. Where the pages that are touched lie in one
/// region after the other, it is as good as any.
pub fn shared_file(request: &Request, interrupt: &Interrupt) -> Result<Findings, Failure> {
    let sizes = &request.sizes;
    let pages = sizes.get("pages");
    let regions = Regions {
        tasks: 1,
        regions: sizes.get("regions"),
        pages,
        offset: |_, _| 0,
        file_pages: pages,
        touched: sizes.get("touched").min(pages),
        step: 1,
        first: |region, pages| region % pages,
        // A store maps its own page and none around it.
        access: Access::Write,
        visits: sizes.get("visits"),
        asks: Asks::SixteenAtATime,
    };
    let title = format!(
        "{} of the same {} pages",
        vellum_terminal::text::plural(regions.regions as usize, "region", "regions"),
        grouped(pages)
    );
    let mappings = regions.regions * regions.touched;
    let facts = vec![format!(
        "{} mappings: a page has {:.1} on average, and each region might map any. Pages are {}.",
        grouped(mappings),
        mappings as f64 / pages as f64,
        regions.asks.text(),
    )];
    let mut findings = Findings::default();
    run::add(
        &mut findings,
        Part::new(&title, facts, &regions.script()),
        request,
        interrupt,
    )?;
    findings.notes = notes();
    Ok(findings)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::findings::{Input, arms_of, figure_of};
    use crate::compare::Method;

    /// A run whose second design takes `percent` of what the first takes.
    fn run(title: &str, percent: u64) -> crate::bench::Run {
        let method = Method {
            confidence: 0.95,
            resamples: 100,
            seed: 1,
        };
        let times = [100, percent, 100].map(|ns| vec![vec![ns, 2 * ns]; 6]);
        let input = Input {
            name: "scan",
            per: "lookup",
            units: 1.0,
            clock: "thread CPU time",
            times: times.to_vec(),
            spread_units: None,
        };
        crate::bench::Run {
            title: title.to_owned(),
            figures: vec![figure_of(&input, &method)],
            ..Default::default()
        }
    }

    #[test]
    fn what_is_less_only_sixteen_at_a_time_is_named() {
        let given = ["rmap=chains".to_owned(), "rmap=partial".to_owned()];
        let of = |single, together| Findings {
            arms: arms_of(&given, &given),
            runs: vec![run("one", single), run("sixteen", together)],
            ..Findings::default()
        };
        let notes = only_together(&of(120, 80));
        assert_eq!(
            notes,
            ["ONLY SIXTEEN AT A TIME: less than A in scan of sixteen: B."]
        );
        for (single, together) in [(80, 80), (120, 120), (80, 120)] {
            assert!(only_together(&of(single, together)).is_empty());
        }
    }
}
