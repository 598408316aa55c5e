//! Files that many regions map: `rmap-test` and `shared-file`.
//!
//! What a lookup costs when a page has many mappings, or may have many. Reclaim,
//! which makes such lookups in a kernel, does not exist in the core yet: the
//! pages are visited by a scanner that asks of each who maps it and takes the
//! accessed marks, as page aging does.

use vellum_engine::{Access, Backing, FileSlot, Op, Prot, Sharing, SpaceSlot};

use super::run::{self, Machine};
use super::script::{Phase, SETUP, Script, Slots, Timing, Writer};
use crate::bench::findings::Findings;
use crate::bench::request::Request;
use crate::cli::{Failure, fault_around};
use vellum_terminal::progress::Interrupt;
use vellum_terminal::table::grouped;

/// Where regions begin, in pages.
const START: u64 = 1 << 20;

/// Pages of a file that the scanner visits in one operation.
const SCAN_PAGES: u64 = 64;

const FILE: FileSlot = FileSlot(0);

const SCANNER: &str = "There is no reclaim yet: a scanner visits every page of the file at a set \
     rate (size visits: times for each page) and asks who maps it, as page aging would, up to 16 \
     neighbours at a time: designs that search regions look for them together.";

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
                writer.op(Op::ScanFile { file, page, pages });
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
        Op::Map {
            space,
            page: self.start(region),
            pages: self.pages,
            prot: Prot {
                read: true,
                write: true,
                execute: false,
            },
            sharing: Sharing::Shared,
            backing: Backing::File {
                file: FILE,
                page: (self.offset)(region, self.pages),
            },
            grows_down: false,
        }
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
    let window = windows.min().unwrap_or(1);
    let shape = |tasks: u64, regions: u64, pages: u64| Regions {
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
    };
    let shapes = [
        shape(sizes.get("tasks"), sizes.get("regions"), sizes.get("pages")),
        shape(1, sizes.get("wide-regions"), sizes.get("wide-pages")),
    ];
    let mut findings = Findings::default();
    for shape in shapes {
        let title = format!(
            "{} x {} x {}",
            crate::report::text::plural(shape.tasks as usize, "task", "tasks"),
            crate::report::text::plural(shape.regions as usize, "region", "regions"),
            crate::report::text::plural(shape.pages as usize, "page", "pages"),
        );
        let facts = vec![format!(
            "A file of {} pages, each mapped by {}; one fault maps up to {window} pages.",
            grouped(shape.file_pages),
            crate::report::text::plural(shape.tasks as usize, "task", "tasks"),
        )];
        if run::add(
            &mut findings,
            &title,
            facts,
            &shape.script(),
            Machine {
                divergence_limit: 0.01,
                ..Machine::PLAIN
            },
            request,
            interrupt,
        )? {
            break;
        }
    }
    findings.notes = notes();
    Ok(findings)
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
    };
    let title = format!(
        "{} of the same {} pages",
        crate::report::text::plural(regions.regions as usize, "region", "regions"),
        grouped(pages)
    );
    let mappings = regions.regions * regions.touched;
    let facts = vec![format!(
        "{} mappings: a page has {:.1} on average, and each region might map any.",
        grouped(mappings),
        mappings as f64 / pages as f64
    )];
    let mut findings = Findings::default();
    run::add(
        &mut findings,
        &title,
        facts,
        &regions.script(),
        Machine::PLAIN,
        request,
        interrupt,
    )?;
    findings.notes = notes();
    Ok(findings)
}
