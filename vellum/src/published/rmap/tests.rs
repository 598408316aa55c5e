//! Tests of the designs on real tables, against lists kept beside them.

use core::ops::ControlFlow;
use std::vec;
use std::vec::Vec;

use super::chains::ENTRIES_PER_NODE;
use super::{Chains, Partial};
use crate::addr::{Pfn, Prot, Vpn};
use crate::design::Design;
use crate::frame::{FailAt, Kind, PhysicalMemory, Request, Site};
use crate::rmap::{
    Audited, Env, Place, RegionRef, ReverseMap, Run, Slot, Stretch, Topology, TracksEntries,
    Verdict,
};
use crate::slab::ArenaMaker;
use crate::sync::Pin;
use crate::table::{Format, Fresh, Marks, PteRef, Tables, Users, X86_64};
use crate::testing::{Rng, TestMachine, run_on};

type Memory = PhysicalMemory<TestMachine>;
type SpaceTables<'a> = Tables<'a, TestMachine, X86_64>;

fn memory() -> Memory {
    run_on(0);
    PhysicalMemory::new(TestMachine::simple(1, 4096)).unwrap()
}

fn arenas(memory: &Memory) -> ArenaMaker {
    // SAFETY: the arenas made are used with `memory` only, in the same test.
    unsafe { ArenaMaker::new(1, memory.frame_count(), memory.frame_size()) }
}

/// No objects, or one that each of the listed places maps a page of.
struct Places<'a> {
    tables: &'a SpaceTables<'a>,
    pages: Vec<Vpn>,
}

impl Topology<()> for Places<'_> {
    fn mappings_of(
        &self,
        pin: &Pin<'_>,
        _object: u32,
        (first, _): (u64, u64),
        visit: &mut dyn FnMut(Stretch) -> ControlFlow<()>,
    ) {
        let stretches = self.pages.iter().map(|&page| Stretch {
            index: first,
            pages: 1,
            entry: self.leaf(pin, 1, page),
        });
        let _ = { stretches }.try_for_each(visit);
    }

    fn leaf(&self, _pin: &Pin<'_>, _space: u32, page: Vpn) -> Option<PteRef> {
        let table = self.tables.leaf_table(page)?;
        let index = X86_64::index(page, 1) as u16;
        Some(PteRef { table, index })
    }

    fn region(&self, _handle: u32) -> RegionRef<'_, ()> {
        unreachable!("designs without region state ask for no region")
    }

    fn siblings(&self, _pin: &Pin<'_>, _space: u32, _page: Vpn) -> [Option<RegionRef<'_, ()>>; 2] {
        unreachable!("designs without region state ask for no region")
    }
}

/// The place of designs that ask nothing of it.
const NOWHERE: Place<'static, (), ()> = Place {
    space: 1,
    space_state: &(),
    region: &(),
    linear_offset: 0,
};

/// One frame under a design, and the list that its chain must be.
struct Listed<'a, R: ReverseMap> {
    rmap: &'a R,
    env: Env<'a, TestMachine>,
    tables: &'a SpaceTables<'a>,
    frame: Pfn,
    /// Pages in the order in which a visit finds them.
    model: Vec<u64>,
    direct: bool,
    /// Whether the frame has a chain rather than a direct entry.
    is_chain: bool,
}

impl<'a, R: ReverseMap<Region = (), Space = ()>> Listed<'a, R> {
    fn new(
        rmap: &'a R,
        memory: &'a Memory,
        pin: &'a Pin<'a>,
        tables: &'a SpaceTables<'a>,
        direct: bool,
    ) -> Self {
        let frame = memory
            .alloc(pin, Request::page(Site::AnonymousPage))
            .unwrap();
        memory.frame(frame).set_kind(Kind::Anonymous);
        Listed {
            rmap,
            env: Env { memory, pin },
            tables,
            frame,
            model: Vec::new(),
            direct,
            is_chain: false,
        }
    }

    fn place(&self) -> Place<'static, (), ()> {
        NOWHERE
    }

    fn add(&mut self, page: u64, forks: bool) {
        let mut ctx = R::Ctx::default();
        self.rmap
            .prepare(&self.env, &mut ctx, self.place(), 1)
            .unwrap();
        // What was prepared is enough: nothing else is allocated.
        self.env.memory.inject(Some(FailAt {
            site: Site::ChainNode,
            after: 0,
        }));
        let table = self.tables.lock_or_make(Vpn(page), &mut 0).unwrap();
        let index = X86_64::index(Vpn(page), 1);
        table.fill(
            index,
            X86_64::leaf(self.frame, 1, Prot::READ, Marks::default()),
        );
        table.count_made(1);
        self.env.memory.frame(self.frame).add_mapping().unwrap();
        let run = Run::single(self.frame, table.pte(index), Vpn(page));
        let fresh = self.model.is_empty() && !self.is_chain && !forks;
        if forks {
            self.rmap.duplicate(&self.env, &mut ctx, &run, self.place());
        } else {
            self.rmap
                .add(&self.env, &mut ctx, &run, self.place(), fresh);
        }
        drop(table);
        self.rmap.finish(&self.env, ctx);
        self.env.memory.inject(None);
        self.is_chain |= !self.direct || !self.model.is_empty();
        self.model.insert(0, page);
    }

    /// The head's first entry fills the gap.
    fn forget(&mut self, place: usize) {
        self.model[place] = self.model[0];
        self.model.remove(0);
        self.is_chain &= !self.model.is_empty();
    }

    fn remove(&mut self, place: usize) {
        let page = Vpn(self.model[place]);
        let table = self.tables.lock(page).unwrap();
        let index = X86_64::index(page, 1);
        table.clear(index, Users::None);
        table.count_cleared(1);
        let mut ctx = R::Ctx::default();
        let run = Run::single(self.frame, table.pte(index), page);
        self.rmap.remove(&self.env, &mut ctx, &run, self.place());
        self.env.memory.frame(self.frame).remove_mapping();
        self.env.memory.frame(self.frame).put();
        drop(table);
        self.rmap.finish(&self.env, ctx);
        self.forget(place);
    }

    fn shift(&mut self, place: usize, to: u64) {
        let from = Vpn(self.model[place]);
        let target = self.tables.lock_or_make(Vpn(to), &mut 0).unwrap();
        let target_pte = target.pte(X86_64::index(Vpn(to), 1));
        drop(target);
        let source = self.tables.lock(from).unwrap();
        let index = X86_64::index(from, 1);
        let entry = source.clear(index, Users::None);
        source.count_cleared(1);
        let old = Run::single(self.frame, source.pte(index), from);
        drop(source);
        let target = self.tables.lock(Vpn(to)).unwrap();
        target.fill(X86_64::index(Vpn(to), 1), entry);
        target.count_made(1);
        let new = Run::single(self.frame, target_pte, Vpn(to));
        let mut ctx = R::Ctx::default();
        self.rmap
            .shift(&self.env, &mut ctx, &old, &new, self.place());
        self.rmap.finish(&self.env, ctx);
        self.model[place] = to;
    }

    /// Visits with verdicts as `decide` says; checks order and report.
    fn visit(&mut self, mut decide: impl FnMut(usize) -> Verdict) {
        let topology = Places {
            tables: self.tables,
            pages: vec![],
        };
        let mut found = Vec::new();
        let mut verdicts = Vec::new();
        let visitor = &mut |slot: &Slot<'_, X86_64>| {
            let verdict = decide(found.len());
            found.push(slot.page().0);
            verdicts.push(verdict);
            if verdict == Verdict::Unmapped {
                slot.clear();
            }
            verdict
        };
        let report = self
            .rmap
            .visit::<_, X86_64>(&self.env, &topology, self.frame, visitor);
        let mut place = 0;
        let mut unmapped = 0;
        for (page, verdict) in found.iter().zip(&verdicts) {
            assert_eq!(*page, self.model[place]);
            match verdict {
                Verdict::Keep => place += 1,
                Verdict::Unmapped => {
                    self.forget(place);
                    self.env.memory.frame(self.frame).put();
                    unmapped += 1;
                }
                Verdict::Stop => break,
            }
        }
        let stopped = verdicts.last() == Some(&Verdict::Stop);
        assert!(
            stopped || place == self.model.len(),
            "the visit ended early"
        );
        assert_eq!(
            (report.hits, report.unmapped),
            (found.len() as u32, unmapped)
        );
        assert_eq!((report.false_probes, report.lock_failures), (0, 0));
        if self.direct && self.model.len() == 1 {
            self.is_chain = false;
        }
        self.check();
    }

    fn nodes(&self) -> u64 {
        if self.is_chain {
            self.model.len().div_ceil(ENTRIES_PER_NODE) as u64
        } else {
            0
        }
    }

    fn check(&self) {
        let maps = self.env.memory.frame(self.frame).counts().maps();
        assert_eq!(maps, self.model.len() as u32);
        self.rmap.check_frame(&self.env, self.frame, maps).unwrap();
        self.rmap
            .check_frame(&self.env, self.frame, maps + 1)
            .unwrap_err();
    }
}

fn random_lists<R: ReverseMap<Region = (), Space = ()>>(design: &str) {
    let design = Design::parse(design).unwrap();
    let memory = memory();
    let pin = memory.pin();
    let rmap = R::new(&design, 1, &arenas(&memory));
    let root = SpaceTables::make_root(&memory, &Fresh, &pin, 1).unwrap();
    // SAFETY: the root was made for this test, of this memory.
    let tables = unsafe { Tables::new(&memory, &Fresh, &pin, root, 1) };
    let mut rng = Rng::new(7);
    let list = || Listed::new(&rmap, &memory, &pin, &tables, design.direct);
    let mut frames = [list(), list(), list()];
    let mut used = std::collections::BTreeSet::new();
    for step in 0..6000 {
        let frame = &mut frames[rng.below(3)];
        let length = frame.model.len();
        let page = rng.below(1500) as u64;
        let most = [3, 9, 40][step / 200 % 3];
        match rng.below(10) {
            0..=4 if length < most && used.insert(page) => frame.add(page, rng.below(2) == 0),
            5 | 6 if length > 0 => {
                let place = rng.below(length);
                used.remove(&frame.model[place]);
                frame.remove(place);
            }
            7 if length > 0 && used.insert(page) => {
                let place = rng.below(length);
                used.remove(&frame.model[place]);
                frame.shift(place, page);
            }
            8 => {
                let before: Vec<u64> = frame.model.clone();
                let verdicts = [
                    Verdict::Keep,
                    Verdict::Keep,
                    Verdict::Unmapped,
                    Verdict::Unmapped,
                ];
                let stop = rng.below(60);
                frame.visit(|nth| {
                    if nth == stop {
                        Verdict::Stop
                    } else {
                        verdicts[rng.below(4)]
                    }
                });
                for page in before.iter().filter(|page| !frame.model.contains(page)) {
                    used.remove(page);
                }
            }
            _ => frame.visit(|_| Verdict::Keep),
        }
        let nodes: u64 = frames.iter().map(Listed::nodes).sum();
        assert_eq!(rmap.live_nodes(), nodes, "step {step}");
    }
    for frame in &mut frames {
        frame.visit(|_| Verdict::Unmapped);
        assert_eq!(frame.model, []);
    }
    assert_eq!(rmap.live_nodes(), 0);
    rmap.audit_nodes().unwrap();
}

#[test]
fn chains_are_lists_in_which_only_the_head_has_room() {
    random_lists::<Chains>("rmap=chains");
}

#[test]
fn chains_without_direct_entries_have_a_node_for_every_frame() {
    random_lists::<Chains>("rmap=chains,direct=off");
}

#[test]
fn private_pages_have_chains_under_partial_too() {
    random_lists::<Partial>("rmap=partial");
}

#[test]
fn a_chain_becomes_direct_only_when_a_visit_finds_one_entry() {
    let memory = memory();
    let pin = memory.pin();
    let rmap = Chains::new(&Design::default(), 1, &arenas(&memory));
    let root = SpaceTables::make_root(&memory, &Fresh, &pin, 1).unwrap();
    // SAFETY: the root was made for this test, of this memory.
    let tables = unsafe { Tables::new(&memory, &Fresh, &pin, root, 1) };
    let mut frame = Listed::new(&rmap, &memory, &pin, &tables, true);
    frame.add(1, false);
    assert_eq!(rmap.live_nodes(), 0, "one entry needs no node");
    for page in 2..=8 {
        frame.add(page, true);
    }
    assert_eq!(rmap.live_nodes(), 2, "eight entries need two");
    for _ in 0..7 {
        frame.remove(3.min(frame.model.len() - 1));
    }
    assert_eq!(
        rmap.live_nodes(),
        1,
        "a process that forks again finds its node"
    );
    frame.visit(|_| Verdict::Keep);
    assert_eq!(rmap.live_nodes(), 0);
    frame.remove(0);
    frame.check();
}

#[test]
fn preparation_is_the_only_call_that_fails() {
    let memory = memory();
    let pin = memory.pin();
    let env = Env {
        memory: &memory,
        pin: &pin,
    };
    let rmap = Chains::new(&Design::default(), 1, &arenas(&memory));
    memory.inject(Some(FailAt {
        site: Site::ChainNode,
        after: 0,
    }));
    assert!(rmap.prepare(&env, &mut (), NOWHERE, 512).is_err());
    memory.inject(None);
    rmap.prepare(&env, &mut (), NOWHERE, 512).unwrap();
    assert_eq!(rmap.live_nodes(), 0, "prepared is not used");
}

/// `partial` on pages of an object: entries are looked for where regions say,
/// and not further than the mapping count says.
#[test]
fn partial_finds_an_objects_entries_through_its_regions() {
    let memory = memory();
    let pin = memory.pin();
    let env = Env {
        memory: &memory,
        pin: &pin,
    };
    let rmap = Partial::new(&Design::default(), 1, &arenas(&memory));
    let root = SpaceTables::make_root(&memory, &Fresh, &pin, 1).unwrap();
    // SAFETY: the root was made for this test, of this memory.
    let tables = unsafe { Tables::new(&memory, &Fresh, &pin, root, 1) };
    let page = memory.alloc(&pin, Request::page(Site::CachePage)).unwrap();
    let frame = memory.frame(page);
    frame.set_kind(Kind::Object);
    frame.set_owner(5);
    let map = |at: u64, pfn| {
        let table = tables.lock_or_make(Vpn(at), &mut 0).unwrap();
        let leaf = X86_64::leaf(pfn, 1, Prot::READ, Marks::DIRTY);
        table.fill(X86_64::index(Vpn(at), 1), leaf);
        table.count_made(1);
    };
    for at in [10, 600, 700] {
        map(at, page);
        frame.add_mapping().unwrap();
        // Of entries of an object the design keeps the number.
        let pte = PteRef {
            table: root,
            index: 0,
        };
        let place = Place {
            space: 1,
            space_state: &(),
            region: &(),
            linear_offset: 0,
        };
        let run = Run::single(page, pte, Vpn(at));
        rmap.add(&env, &mut (), &run, place, false);
    }
    map(11, Pfn(0x900));
    // A region whose table is missing, one that shows another page, one whose
    // entry is empty, three hits, and one that need not be looked at.
    let pages = [5 << 18, 11, 12, 600, 10, 700, 13].map(Vpn).to_vec();
    let topology = Places {
        tables: &tables,
        pages,
    };
    let mut found = Vec::new();
    let report = rmap.visit::<_, X86_64>(&env, &topology, page, &mut |slot| {
        assert!(slot.take_dirty() && !slot.take_dirty());
        assert!(slot.take_accessed() && !slot.take_accessed());
        found.push((slot.space(), slot.page().0));
        Verdict::Keep
    });
    assert_eq!(found, [(1, 600), (1, 10), (1, 700)]);
    assert_eq!(
        (report.hits, report.false_probes, report.unmapped),
        (3, 3, 0)
    );
    let report = rmap.visit::<_, X86_64>(&env, &topology, page, &mut |_| Verdict::Stop);
    assert_eq!(report.hits, 1);
    let mut turn = 0;
    let report = rmap.visit::<_, X86_64>(&env, &topology, page, &mut |slot| {
        turn += 1;
        if turn == 2 {
            return Verdict::Keep;
        }
        slot.clear();
        Verdict::Unmapped
    });
    assert_eq!(
        (report.hits, report.unmapped, frame.counts().maps()),
        (3, 2, 1)
    );
    let report = rmap.visit::<_, X86_64>(&env, &topology, page, &mut |_| Verdict::Keep);
    assert_eq!(report.hits, 1);
    assert_eq!(rmap.live_nodes(), 0, "pages of objects have no nodes");
}
