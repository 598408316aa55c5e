//! `rmap-test` as it was published: tasks that map one file in many regions and touch all of it,
//! on a machine that has too little memory for the file.

use vellum_engine::{Backing, FileSlot, Op, SpaceSlot};

use super::programs::{START, access};
use super::{TIMES, measures, settled};
use crate::bench::core::ops::map;
use crate::bench::core::run::{self, Machine, Part};
use crate::bench::core::script::{Phase, SETUP, Script, Slots, Timing, Writer};
use crate::bench::findings::Findings;
use crate::bench::request::{Request, Sizes};
use crate::designs::common_pages;
use crate::failure::Failure;
use crate::report::device::sentence_of;
use vellum_engine::Access;
use vellum_terminal::progress::Interrupt;
use vellum_terminal::table::grouped;
use vellum_terminal::text::plural;

const FILE: FileSlot = FileSlot(0);

/// Regions in a piece of mapping and unmapping.
const REGIONS: u64 = 16;

/// Entries of a page table.
const ENTRIES: u64 = 512;

/// Tables of a space above those of the lowest level, and one for a place between two.
const UPPER: u64 = 4;

const PRESSURE: &str = "Who finds no memory reclaims, and asks reverse mapping of each page who uses \
     it and whose entries it is to clear: no scanner does. Tasks take turns region by region, so that \
     a page comes to be mapped by all of them before it leaves.";

/// Tasks and what each maps.
#[derive(Clone, Copy, Debug)]
struct Shape {
    tasks: u64,
    /// Regions of each task.
    regions: u64,
    /// Pages of each region.
    pages: u64,
}

impl Shape {
    /// Both published shapes.
    fn both(sizes: &Sizes) -> [Shape; 2] {
        let shape = |tasks, regions, pages| Shape {
            tasks,
            regions: sizes.get(regions),
            pages: sizes.get(pages),
        };
        [
            shape(sizes.get("tasks"), "regions", "pages"),
            shape(1, "wide-regions", "wide-pages"),
        ]
    }

    fn file_pages(self) -> u64 {
        self.regions * self.pages
    }

    /// Regions lie a page apart, so that they are not merged.
    fn start(self, region: u64) -> u64 {
        START + region * (self.pages + 1)
    }

    /// Pages of the file and tables that map it everywhere.
    fn needs(self) -> u64 {
        let tables = (self.regions * (self.pages + 1)).div_ceil(ENTRIES) + UPPER;
        self.file_pages() + self.tasks * tables
    }

    /// Maps, touches everything `sweeps` times, and unmaps.
    fn script(self, sweeps: u64) -> Script {
        let mut writer = Writer::new(1);
        // A fault may bring neighbours, and what has not left is mapped still.
        writer.tolerate_mapped();
        let mapping = writer.phase("map", "region", Timing::Slices);
        let touching = writer.phase("touch", "touch", Timing::Slices);
        let unmapping = writer.phase("unmap", "region", Timing::Slices);
        let mut slots = Slots::default();
        let tasks: Vec<SpaceSlot> = (0..self.tasks).map(|_| slots.fresh()).collect();
        let pages = self.file_pages();
        writer.op(Op::FileOpen { file: FILE, pages });
        for &space in &tasks {
            writer.op(Op::Create { space });
        }
        writer.cut(SETUP);
        self.each_region(&mut writer, mapping, &tasks, |space, region| {
            let page = region * self.pages;
            let backing = Backing::File { file: FILE, page };
            map(space, self.start(region), self.pages, backing)
        });
        for _ in 0..sweeps {
            for region in 0..self.regions {
                for &space in &tasks {
                    let page = self.start(region);
                    writer.op(access(space, page, self.pages, Access::Read));
                    writer.piece(touching, self.pages);
                }
            }
        }
        self.each_region(&mut writer, unmapping, &tasks, |space, region| Op::Unmap {
            space,
            page: self.start(region),
            pages: self.pages,
        });
        writer.finish()
    }

    fn each_region(
        self,
        writer: &mut Writer,
        phase: Phase,
        tasks: &[SpaceSlot],
        op: impl Fn(SpaceSlot, u64) -> Op,
    ) {
        for &space in tasks {
            for first in (0..self.regions).step_by(REGIONS as usize) {
                let last = self.regions.min(first + REGIONS);
                (first..last).for_each(|region| writer.op(op(space, region)));
                writer.piece(phase, last - first);
            }
        }
    }

    fn title(self) -> String {
        format!(
            "{} x {} x {}, with too little memory",
            plural(self.tasks as usize, "task", "tasks"),
            plural(self.regions as usize, "region", "regions"),
            plural(self.pages as usize, "page", "pages"),
        )
    }
}

/// Both shapes on machines with too little memory.
///
/// # Errors
/// A design or a size is refused, memory ran out, or the user stopped before there was anything
/// to report.
pub fn under_pressure(request: &Request, interrupt: &Interrupt) -> Result<Findings, Failure> {
    let (request, name, device) = settled(request)?;
    let sizes = &request.sizes;
    let (percent, sweeps) = (sizes.get("memory"), sizes.get("sweeps"));
    let shift = common_pages(&request.designs)?.shift;
    let mut findings = Findings::default();
    for shape in Shape::both(sizes) {
        let bytes = (shape.needs() * percent / 100).max(1) << shift;
        let facts = vec![
            format!(
                "A file of {} pages, each mapped by {} and touched by each {}, on machines with \
                 {percent} % of what the file and the page tables take.",
                grouped(shape.file_pages()),
                plural(shape.tasks as usize, "task", "tasks"),
                plural(sweeps as usize, "time", "times"),
            ),
            sentence_of(&name, &device),
        ];
        let script = shape.script(sweeps);
        let title = shape.title();
        let part = Part::new(&title, facts, &script)
            .on(Machine {
                device: Some(device),
                divergence_limit: 0.01,
                ..Machine::PREFAULTED
            })
            .needing(bytes);
        let done = run::add_part(&mut findings, part, &request, interrupt, |run, measured| {
            run.reclaim = measures::of(run, measured);
        })?;
        if done {
            break;
        }
    }
    findings.notes = [PRESSURE, TIMES, super::NOT_MODELLED]
        .map(str::to_owned)
        .to_vec();
    Ok(findings)
}
