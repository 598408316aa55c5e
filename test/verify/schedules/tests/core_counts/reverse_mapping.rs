//! Locked instructions of reverse mapping: how many each design's calls take,
//! against the table in docs/reverse-mapping.md.

use std::fmt::Write;
use std::ops::ControlFlow;
use std::sync::Arc;

use vellum::addr::{Access, PageRange, Pfn, Prot, Vpn};
use vellum::design::{Design, Rmap};
use vellum::frame::{Frame, Kind as FrameKind, PhysicalMemory, Request, Site};
use vellum::platform::CpuId;
use vellum::rmap::{Env, Place, RegionRef, ReverseMap, Run, Stretch, Topology, Verdict};
use vellum::slab::ArenaMaker;
use vellum::space::MapRequest;
use vellum::sync::Pin;
use vellum::table::{PteRef, X86_64};
use vellum::with_rmap;
use vellum_machine::{Arena, ArenaOptions, Machine, MachineConfig};
use vellum_schedules::{Kind, record_accesses};

use super::{Manager, manager};

const DOCUMENT: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../../docs/reverse-mapping.md"
);

/// The calls, as the table names them.
const CALLS: [&str; 16] = [
    "add, private page, fresh",
    "the same after a page of another space",
    "add, page of an object, the first entry",
    "add, page of an object, another",
    "duplicate, private page",
    "duplicate, page of an object",
    "remove, private page, one of two",
    "remove, private page, the last",
    "remove, page of an object, one of two",
    "remove, page of an object, the last",
    "turn, page that the space made",
    "turn, page that its parent made",
    "the same after a page of a third space",
    "unmapped, private page",
    "visit, private page mapped once",
    "visit, page of an object mapped once",
];

const START: Vpn = Vpn(0x10_0000);

/// Spaces by number: two relatives, and one that is none.
const PARENT: usize = 0;
const CHILD: usize = 1;
const OTHER: usize = 2;

/// A region in each space; they touch no other.
struct Regions<S>([S; 3]);

impl<S> Topology<S> for Regions<S> {
    fn mappings_of(
        &self,
        _pin: &Pin<'_>,
        _object: u32,
        _pages: (u64, u64),
        _visit: &mut dyn FnMut(Stretch) -> ControlFlow<()>,
    ) {
    }

    fn leaf(&self, _pin: &Pin<'_>, _space: u32, _page: Vpn) -> Option<PteRef> {
        None
    }

    fn region(&self, handle: u32) -> RegionRef<'_, S> {
        RegionRef {
            handle,
            space: handle,
            pages: PageRange::new(START, 512),
            first: START.0,
            state: &self.0[handle as usize - 1],
        }
    }

    fn siblings(&self, _pin: &Pin<'_>, _space: u32, _page: Vpn) -> [Option<RegionRef<'_, S>>; 2] {
        [None, None]
    }
}

/// Read-modify-writes and full fences of `work`.
fn locked(work: impl FnOnce()) -> usize {
    let ((), accesses) = record_accesses(work);
    accesses.count(Kind::ReadModifyWrite) + accesses.count(Kind::FullFence)
}

/// What stands around the calls of one design.
struct Bench<'a, R: ReverseMap> {
    rmap: &'a R,
    env: Env<'a, Arc<Machine>>,
    spaces: [R::Space; 3],
    regions: Regions<R::Region>,
    tables: [Pfn; 3],
}

impl<R: ReverseMap> Bench<'_, R> {
    fn record(&self, frame: Pfn) -> &Frame {
        // SAFETY: the frames were allocated for the bench, which changes their counts
        // as the core would.
        unsafe { self.env.memory.record(frame) }
    }

    fn place(&self, space: usize) -> Place<'_, R::Region, R::Space> {
        Place {
            space: space as u32 + 1,
            space_state: &self.spaces[space],
            region: &self.regions.0[space],
            linear_offset: 0,
        }
    }

    fn run(&self, frame: Pfn, space: usize) -> Run {
        let pte = PteRef {
            table: self.tables[space],
            index: 7,
        };
        Run::single(frame, pte, START.offset(7))
    }

    /// Counts a call on the entry of `frame` in a space.
    fn call(
        &self,
        frame: Pfn,
        space: usize,
        call: impl FnOnce(&R, &mut R::Ctx, &Run, Place<'_, R::Region, R::Space>),
    ) -> usize {
        let mut ctx = R::Ctx::default();
        self.rmap
            .prepare(&self.env, &mut ctx, self.place(space), 1)
            .unwrap();
        let run = self.run(frame, space);
        let count = locked(|| call(self.rmap, &mut ctx, &run, self.place(space)));
        self.rmap.finish(&self.env, ctx);
        count
    }

    /// The first store to a private page.
    fn make(&self, frame: Pfn, space: usize) -> usize {
        self.record(frame).init_counts(1, 1);
        self.call(frame, space, |rmap, ctx, run, place| {
            rmap.add(&self.env, ctx, run, place, true);
        })
    }

    /// A load of a page of an object.
    fn map(&self, frame: Pfn, space: usize) -> usize {
        self.record(frame).add_mapping().unwrap();
        self.call(frame, space, |rmap, ctx, run, place| {
            rmap.add(&self.env, ctx, run, place, false);
        })
    }

    /// The child's entry, by fork.
    fn fork(&self, frame: Pfn) -> usize {
        self.record(frame).add_mapping().unwrap();
        self.call(frame, CHILD, |rmap, ctx, run, place| {
            rmap.duplicate(&self.env, ctx, run, place);
        })
    }

    /// Clears an entry, not a private page's last.
    fn unmap(&self, frame: Pfn, space: usize) -> usize {
        let count = self.call(frame, space, |rmap, ctx, run, place| {
            rmap.remove(&self.env, ctx, run, place);
        });
        self.record(frame).remove_mapping();
        self.record(frame).put();
        count
    }

    /// Clears a private page's last entry; what that takes, and what its end does.
    fn end(&self, frame: Pfn, space: usize) -> (usize, usize) {
        let count = self.call(frame, space, |rmap, ctx, run, place| {
            rmap.remove(&self.env, ctx, run, place);
        });
        assert!(self.record(frame).take_last());
        let unmapped = locked(|| self.rmap.unmapped(&self.env, frame));
        (count, unmapped)
    }

    fn turn(&self, frame: Pfn, space: usize) -> usize {
        self.call(frame, space, |rmap, ctx, run, place| {
            rmap.turn(&self.env, ctx, run, place);
        })
    }

    /// The calls in the order of [`CALLS`]. The core's own counts of references and
    /// mappings are kept outside of them.
    fn counts(&self, private: Pfn, third: Pfn, cached: Pfn) -> [usize; 14] {
        let mut counts = [0; 14];
        self.make(third, OTHER);
        counts[1] = self.make(private, PARENT);
        self.end(private, PARENT);
        counts[0] = self.make(private, PARENT);
        counts[10] = self.turn(private, PARENT);
        counts[4] = self.fork(private);
        counts[6] = self.unmap(private, CHILD);
        self.fork(private);
        self.unmap(private, PARENT);
        counts[11] = self.turn(private, CHILD);
        (counts[7], counts[13]) = self.end(private, CHILD);
        self.make(private, PARENT);
        self.fork(private);
        self.unmap(private, PARENT);
        self.end(third, OTHER);
        self.make(third, OTHER);
        counts[12] = self.turn(private, CHILD);
        self.end(private, CHILD);
        self.end(third, OTHER);

        counts[2] = self.map(cached, PARENT);
        counts[3] = self.map(cached, CHILD);
        counts[8] = self.unmap(cached, CHILD);
        counts[5] = self.fork(cached);
        self.unmap(cached, CHILD);
        counts[9] = self.unmap(cached, PARENT);
        counts
    }
}

/// What the calls on entries take: on one entry, hot and uncontended, as faults,
/// forks and unmappings make them.
fn calls<R: ReverseMap>(design: &Design) -> [usize; 14] {
    let config = MachineConfig::new(16 << 20);
    let options = ArenaOptions {
        huge_pages: false,
        prefault: false,
    };
    let arena = Arena::with_options(config.arena_bytes().unwrap(), options).unwrap();
    let machine = Arc::new(Machine::new(config, arena).unwrap());
    machine.run_on(CpuId(0), || {
        let memory = PhysicalMemory::new(Arc::clone(&machine)).unwrap();
        let pin = memory.pin();
        let frame = |kind| {
            let request = Request::page(Site::AnonymousPage);
            let frame = memory.alloc(&pin, request).unwrap();
            // SAFETY: the frame has just been allocated.
            unsafe { memory.record(frame) }.set_kind(kind);
            frame
        };
        let [private, third, cached] = [
            FrameKind::Anonymous,
            FrameKind::Anonymous,
            FrameKind::Object,
        ]
        .map(frame);
        // SAFETY: as above; nobody else knows the frame.
        unsafe { memory.record(cached) }.init_counts(1, 0);
        // SAFETY: the arenas become part of the design made here, which is used
        // with `memory` alone and dropped before it.
        let arenas = unsafe { ArenaMaker::new(1, memory.frame_count(), memory.frame_size()) };
        let arenas = arenas.spanning(memory.view().span(), 1);
        let rmap = &R::new(design, 1, &arenas);
        let bench = Bench {
            rmap,
            env: Env {
                memory: &memory,
                pin: &pin,
            },
            spaces: [(); 3].map(|()| R::Space::default()),
            regions: Regions([(); 3].map(|()| R::Region::default())),
            tables: [FrameKind::Table; 3].map(frame),
        };
        let (env, spaces, regions) = (&bench.env, &bench.spaces, &bench.regions);
        rmap.space_executed(env, &spaces[PARENT], 1).unwrap();
        rmap.space_executed(env, &spaces[OTHER], 3).unwrap();
        for handle in [1, 3] {
            rmap.prepare_private(env, regions, regions.region(handle))
                .unwrap();
        }
        rmap.space_forked(env, &spaces[PARENT], &spaces[CHILD], 2)
            .unwrap();
        rmap.region_forked(env, regions, regions.region(1), regions.region(2))
            .unwrap();
        // The first round fills the CPU's caches.
        bench.counts(private, third, cached);
        let counts = bench.counts(private, third, cached);
        for space in [OTHER, CHILD, PARENT] {
            rmap.region_ended(env, regions, regions.region(space as u32 + 1));
            rmap.space_ended(env, &spaces[space]);
        }
        counts
    })
}

/// What visits of a private page and of a page of an object take, each mapped
/// once; the lock of the entry's table is among it.
fn visits<R: ReverseMap>() -> [usize; 2] {
    let vm: Manager<R> = manager("faultaround=1");
    vm.platform().run_on(CpuId(0), || {
        let space = vm.create_space().unwrap().id();
        let shared = MapRequest::anonymous(1, Prot::READ_WRITE).shared();
        let requests = [MapRequest::anonymous(1, Prot::READ_WRITE), shared];
        requests.map(|request| {
            let page = vm.space(space).map(&request).unwrap();
            vm.space(space)
                .fault(page.address::<X86_64>(), Access::Write)
                .unwrap();
            let (frame, _) = vm.space(space).translate(page).unwrap();
            let pin = vm.pin();
            // SAFETY: visits that keep every entry change nothing.
            let layers = unsafe { vellum::probe::layers(&vm) };
            let env = Env {
                memory: layers.memory,
                pin: &pin,
            };
            let visit = || {
                let report = layers
                    .rmap
                    .visit::<_, X86_64>(&env, &vm, frame, &mut |_| Verdict::Keep);
                assert_eq!(report.hits, 1, "{}", R::NAME);
            };
            // A visit may leave something behind for the next.
            visit();
            locked(visit)
        })
    })
}

#[test]
fn locked_instructions_of_reverse_mapping_are_as_documented() {
    let mut columns = Vec::new();
    for &rmap in Rmap::ALL {
        let mut design = Design::default();
        design.rmap = rmap;
        columns.push(with_rmap!(rmap, R => [&calls::<R>(&design)[..], &visits::<R>()].concat()));
    }
    let mut table = String::from("| locked instructions |");
    for rmap in Rmap::ALL {
        let _ = write!(table, " `{}` |", rmap.name());
    }
    table += "\n|---|";
    table += &"---|".repeat(columns.len());
    table += "\n";
    for (row, call) in CALLS.iter().enumerate() {
        let _ = write!(table, "| {call} |");
        for column in &columns {
            let _ = write!(table, " {} |", column[row]);
        }
        table += "\n";
    }
    let document = std::fs::read_to_string(DOCUMENT).expect("the document is there");
    assert!(
        document.contains(&table),
        "docs/reverse-mapping.md has another table than this:\n{table}"
    );
}
