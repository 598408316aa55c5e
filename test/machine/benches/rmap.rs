//! What reverse mapping itself costs an entry: adding it for a new page,
//! duplicating it at fork, removing it, under every design.
//!
//! The calls are those that faults, forks and unmappings make, on 512 frames of
//! one table, hot and uncontended; nothing else is in the loop but the mapping
//! count that goes with each, which is measured without a design as well. Rows that
//! say `apart` have an operation for each page, as a fault is one.
//!
//! `cargo bench -p vellum-machine --bench rmap`

use std::mem;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Instant;

use vellum::addr::{PageRange, Pfn, Vpn};
use vellum::design::{Design, Rmap};
use vellum::frame::{Frame, Kind, PhysicalMemory, Request, Site};
use vellum::platform::CpuId;
use vellum::rmap::{Env, Place, RegionRef, ReverseMap, Run, Stretch, Topology};
use vellum::slab::ArenaMaker;
use vellum::sync::Pin;
use vellum::table::PteRef;
use vellum::with_rmap;
use vellum_machine::{Arena, Machine, MachineConfig};

const FRAMES: usize = 512;
const ROUNDS: usize = 401;
const START: Vpn = Vpn(0x10_0000);

/// Two regions, parent and child, that touch no other.
struct Regions<S>([S; 2]);

impl<S> Regions<S> {
    fn at(&self, which: usize) -> RegionRef<'_, S> {
        RegionRef {
            handle: which as u32 + 1,
            space: which as u32 + 1,
            pages: PageRange::new(START, FRAMES as u64),
            first: START.0,
            state: &self.0[which],
        }
    }
}

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
        self.at(handle as usize - 1)
    }

    fn siblings(&self, _pin: &Pin<'_>, _space: u32, _page: Vpn) -> [Option<RegionRef<'_, S>>; 2] {
        [None, None]
    }
}

/// Nanoseconds of each phase: one sample a round, for one entry.
#[derive(Default)]
struct Phases([Vec<f64>; 4]);

impl Phases {
    fn time(&mut self, phase: usize, work: impl FnOnce()) {
        let start = Instant::now();
        work();
        self.0[phase].push(start.elapsed().as_nanos() as f64 / FRAMES as f64);
    }

    fn print(mut self, name: &str) {
        print!("{name:<28}");
        for samples in &mut self.0 {
            samples.sort_by(f64::total_cmp);
            let (median, low) = (samples[samples.len() / 2], samples[0]);
            print!("{median:>8.1} ({low:>5.1})");
        }
        println!();
    }
}

struct Bench<'a> {
    env: Env<'a, Arc<Machine>>,
    frames: Vec<Pfn>,
    /// Frame numbers of two tables; their entries are named, not used.
    tables: [Pfn; 2],
}

impl Bench<'_> {
    #[inline]
    fn record(&self, frame: Pfn) -> &Frame {
        // SAFETY: the frames were allocated for the bench, which changes their counts
        // as the core would.
        unsafe { self.env.memory.record(frame) }
    }

    fn run(&self, which: usize, index: usize) -> Run {
        let pte = PteRef {
            table: self.tables[which],
            index: index as u16,
        };
        Run::single(self.frames[index], pte, START.offset(index as u64))
    }

    /// The mapping counts alone, as the core keeps them for every design.
    fn counts(&self) {
        let mut phases = Phases::default();
        let record = |frame| self.record(frame);
        for _ in 0..ROUNDS {
            let each = |work: &dyn Fn(Pfn)| self.frames.iter().for_each(|&frame| work(frame));
            phases.time(0, || each(&|frame| record(frame).init_counts(1, 1)));
            phases.time(1, || {
                each(&|frame| {
                    record(frame).add_mapping();
                });
            });
            let unmap = |frame: Pfn| {
                record(frame).remove_mapping();
                record(frame).put();
            };
            phases.time(2, || each(&unmap));
            phases.time(3, || {
                each(&|frame| {
                    record(frame).take_last();
                });
            });
        }
        phases.print("(mapping count alone)");
    }

    /// All pages in one operation, or `apart`, each in one of its own, as faults are: then
    /// what an operation begins and ends with is included.
    fn design<R: ReverseMap>(&self, name: &str, rmap: &R, apart: bool) {
        let env = &self.env;
        let record = |frame| self.record(frame);
        let spaces = [R::Space::default(), R::Space::default()];
        let regions = Regions([R::Region::default(), R::Region::default()]);
        let mut ctx = R::Ctx::default();
        rmap.space_executed(env, &spaces[0], 1).expect("memory");
        rmap.space_forked(env, &spaces[0], &spaces[1], 2)
            .expect("memory");
        rmap.prepare_private(env, &regions, regions.at(0))
            .expect("memory");
        rmap.region_forked(env, &regions, regions.at(0), regions.at(1))
            .expect("memory");
        let place = |which: usize| Place {
            space: which as u32 + 1,
            space_state: &spaces[which],
            region: &regions.0[which],
            linear_offset: 0,
        };
        let prepare = |ctx: &mut R::Ctx, which: usize, count: usize| {
            rmap.prepare(env, ctx, place(which), count).expect("memory");
        };
        let begin = |ctx: &mut R::Ctx| {
            if apart {
                rmap.finish(env, mem::take(ctx));
            }
        };
        let begin_to_add = |ctx: &mut R::Ctx, which: usize| {
            if apart {
                begin(ctx);
                prepare(ctx, which, 1);
            }
        };
        let mut phases = Phases::default();
        for _ in 0..ROUNDS {
            prepare(&mut ctx, 0, FRAMES);
            phases.time(0, || {
                for index in 0..FRAMES {
                    record(self.frames[index]).init_counts(1, 1);
                    begin_to_add(&mut ctx, 0);
                    rmap.add(env, &mut ctx, &self.run(0, index), place(0), true);
                }
            });
            prepare(&mut ctx, 1, FRAMES);
            phases.time(1, || {
                for index in 0..FRAMES {
                    record(self.frames[index]).add_mapping();
                    begin_to_add(&mut ctx, 1);
                    rmap.duplicate(env, &mut ctx, &self.run(1, index), place(1));
                }
            });
            phases.time(2, || {
                for index in 0..FRAMES {
                    begin(&mut ctx);
                    rmap.remove(env, &mut ctx, &self.run(1, index), place(1));
                    record(self.frames[index]).remove_mapping();
                    record(self.frames[index]).put();
                }
            });
            phases.time(3, || {
                for index in 0..FRAMES {
                    begin(&mut ctx);
                    rmap.remove(env, &mut ctx, &self.run(0, index), place(0));
                    record(self.frames[index]).take_last();
                    rmap.unmapped(env, self.frames[index]);
                }
            });
        }
        rmap.finish(env, ctx);
        phases.print(name);
        for which in [1, 0] {
            rmap.region_ended(env, &regions, regions.at(which));
            rmap.space_ended(env, &spaces[which]);
        }
    }
}

fn main() {
    let arena = Arena::new(64 << 20).expect("memory");
    let machine = Machine::new(MachineConfig::new(64 << 20), arena).expect("a machine");
    let machine = Arc::new(machine);
    machine.run_on(CpuId(0), || {
        let memory = PhysicalMemory::new(Arc::clone(&machine)).expect("memory");
        let pin = memory.pin();
        let request = Request::page(Site::AnonymousPage);
        let frame = || memory.alloc(&pin, request).expect("memory");
        let tables = [frame(), frame()];
        let frames: Vec<Pfn> = (0..FRAMES).map(|_| frame()).collect();
        for &frame in &frames {
            // SAFETY: the frame has just been allocated.
            unsafe { memory.record(frame) }.set_kind(Kind::Anonymous);
        }
        let env = Env {
            memory: &memory,
            pin: &pin,
        };
        let bench = Bench {
            env,
            frames,
            tables,
        };
        println!("ns an entry, median (fastest), mapping count included; hot, one CPU");
        println!(
            "{:<28}{:>16}{:>16}{:>16}{:>16}",
            "", "add", "duplicate", "remove one of 2", "remove the last"
        );
        bench.counts();
        let others = Rmap::ALL.iter().filter(|&&rmap| rmap != Rmap::Pv);
        let others = others.map(|rmap| format!("rmap={}", rmap.name()));
        let locks = ["hashed", "superpage", "byte"].map(|lock| format!("rmap=pv,pvlock={lock}"));
        let together = others.chain(locks.clone()).map(|text| (text, false));
        let apart = ["rmap=family".to_owned()].into_iter().chain(locks);
        for (text, apart) in together.chain(apart.map(|text| (text, true))) {
            let design = Design::parse(&text).expect("a design");
            // SAFETY: the arenas become part of the design made here, which is
            // used with `memory` alone and dropped before it.
            let arenas = unsafe { ArenaMaker::new(1, memory.frame_count(), memory.frame_size()) };
            let arenas = arenas.spanning(memory.view().span(), 1);
            let mut name = text.trim_start_matches("rmap=").to_owned();
            if apart {
                name.push_str(", apart");
            }
            with_rmap!(design.rmap, R => bench.design(&name, &R::new(&design, 1, &arenas), apart));
        }
    });
}
