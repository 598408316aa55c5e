//! Regions of an address space: finding one, and mapping and unmapping among
//! 32 and among 1000 of them. Regions of four pages with gaps of four, nothing
//! touched.

use std::hint::black_box;

use memory_addr::VirtAddr;
use memory_set::{MappingBackend, MemoryArea, MemorySet};
use vellum::addr::{PageRange, Prot, Vpn};

use crate::measure::{Arm, Timed};
use crate::ours::{NAMES, Spaces, private};
use crate::rows::Rows;
use crate::{Failure, random};

const RAM: u64 = 64 << 20;
const FIRST: u64 = 0x10_0000;
const PAGES: u64 = 4;
const STRIDE: u64 = 8;
/// Lookups in a batch, so that a slice and its warm-up see most regions.
const BATCH: u64 = 1024;

/// Where region number `index` begins.
fn start(index: u64) -> u64 {
    FIRST + index * STRIDE
}

/// It maps nothing: the tables have a group of their own, and ours touches
/// none either as long as no page is.
#[derive(Clone)]
struct NoTables;

impl MappingBackend for NoTables {
    type Addr = VirtAddr;
    type Flags = u8;
    type PageTable = ();

    fn map(&self, _: VirtAddr, _: usize, _: u8, (): &mut ()) -> bool {
        true
    }
    fn unmap(&self, _: VirtAddr, _: usize, (): &mut ()) -> bool {
        true
    }
    fn protect(&self, _: VirtAddr, _: usize, _: u8, (): &mut ()) -> bool {
        true
    }
}

type Set = MemorySet<NoTables>;

fn byte(page: u64) -> VirtAddr {
    VirtAddr::from((page << 12) as usize)
}

fn map(set: &mut Set, page: u64, flags: u8) {
    let area = MemoryArea::new(byte(page), (PAGES << 12) as usize, flags, NoTables);
    set.map(area, &mut (), false).expect("mapped");
}

fn set_of(regions: u64) -> Set {
    let mut set = Set::new();
    for index in 0..regions {
        map(&mut set, start(index), 1);
    }
    set
}

fn space_of(regions: u64) -> Result<Spaces, Failure> {
    let ours = Spaces::new(RAM, false)?;
    ours.run(|vm, space| {
        (0..regions).try_for_each(|index| {
            let range = PageRange::new(Vpn(start(index)), PAGES);
            vm.space(space)
                .map(&private(range, Prot::READ_WRITE))
                .map(drop)
        })
    })
    .map_err(Failure::because("mapping"))?;
    Ok(ours)
}

/// The page to look for: any page of any region.
fn wanted(state: &mut u64, regions: u64) -> u64 {
    let place = random::below(state, (regions * PAGES) as usize) as u64;
    start(place / PAGES) + place % PAGES
}

fn find_arms(regions: u64, arms: &mut Vec<Arm>) -> Result<(), Failure> {
    for name in NAMES {
        let ours = space_of(regions)?;
        let mut state = random::SEED;
        arms.push(Arm::new(name, move |count| {
            ours.run(|vm, space| {
                Timed::of(count * BATCH, || {
                    for _ in 0..count * BATCH {
                        let found = vm.space(space).region_at(Vpn(wanted(&mut state, regions)));
                        assert!(black_box(found).is_ok());
                    }
                })
            })
        }));
    }
    let set = set_of(regions);
    let mut state = random::SEED;
    arms.push(Arm::new("memory_set", move |count| {
        Timed::of(count * BATCH, || {
            for _ in 0..count * BATCH {
                let found = set.find(byte(wanted(&mut state, regions)));
                assert!(black_box(found).is_some());
            }
        })
    }));
    Ok(())
}

/// Puts a region of other rights into a gap, and takes it out again.
fn change_arms(regions: u64, arms: &mut Vec<Arm>) -> Result<(), Failure> {
    let gap = move |state: &mut u64| start(random::below(state, regions as usize) as u64) + PAGES;
    for name in NAMES {
        let ours = space_of(regions)?;
        let mut state = random::SEED;
        arms.push(Arm::new(name, move |count| {
            ours.run(|vm, space| {
                Timed::of(count, || {
                    for _ in 0..count {
                        let range = PageRange::new(Vpn(gap(&mut state)), PAGES);
                        let request = private(range, Prot::READ);
                        vm.space(space).map(&request).expect("mapped");
                        vm.space(space).unmap(range.start, PAGES).expect("unmapped");
                    }
                })
            })
        }));
    }
    let mut set = set_of(regions);
    let mut state = random::SEED;
    arms.push(Arm::new("memory_set", move |count| {
        Timed::of(count, || {
            for _ in 0..count {
                let page = gap(&mut state);
                map(&mut set, page, 2);
                let bytes = (PAGES << 12) as usize;
                set.unmap(byte(page), bytes, &mut ()).expect("unmapped");
            }
        })
    }));
    Ok(())
}

/// Runs the group.
pub fn run(rows: &mut Rows<'_>) -> Result<(), Failure> {
    rows.row("find a page's region among 32", |arms| find_arms(32, arms))?;
    rows.row("find a page's region among 1000", |arms| {
        find_arms(1000, arms)
    })?;
    rows.row("map and unmap a region among 32", |arms| {
        change_arms(32, arms)
    })?;
    rows.row("map and unmap a region among 1000", |arms| {
        change_arms(1000, arms)
    })
}
