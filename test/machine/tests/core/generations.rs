//! What `aging=generations` keeps in memory, held against the best that could be kept: Belady's
//! choice (1966), which knows what comes. Pages that had to be read are counted, not time.

use std::collections::BTreeSet;
use std::sync::Arc;

use vellum::addr::{Access, Prot, Vpn};
use vellum::platform::CpuId;
use vellum::reclaim::ReclaimStats;
use vellum::rmap::Family;
use vellum::space::{FileRequest, MapRequest, Placement, ReadRequest};
use vellum::swap::SwapArea;
use vellum::table::X86_64;
use vellum::{Design, Vm};
use vellum_machine::mmu::TlbGeometry;
use vellum_machine::{Arena, ArenaOptions, Machine, MachineConfig, PatternStore};

use crate::support::{self, Rng};

const MEMORY: u64 = 1500;
/// 1.2 times memory.
const PAGES: u64 = MEMORY * 6 / 5;
const START: u64 = 0x1000;
const CPU: CpuId = CpuId(0);

/// What the pages belong to, and how they are used.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Pages {
    Private,
    Mapped,
    ByCalls,
}

/// Pages that are accessed, from the first.
fn count(accesses: &[u64]) -> u64 {
    accesses.iter().max().map_or(0, |last| last + 1)
}

/// Pages that a cache of `room` pages has to read for the accesses from `from` on, if it always
/// drops the page that is not used for longest.
fn least_reads(accesses: &[u64], from: usize, room: u64) -> u64 {
    let mut next = vec![usize::MAX; count(accesses) as usize];
    let mut next_use = vec![0; accesses.len()];
    for (at, &page) in accesses.iter().enumerate().rev() {
        next_use[at] = next[page as usize];
        next[page as usize] = at;
    }
    let mut cached = BTreeSet::new();
    let mut reads = 0;
    for (at, &page) in accesses.iter().enumerate() {
        // A page that is cached is there with this access as its next use.
        if !cached.remove(&(at, page)) {
            reads += u64::from(at >= from);
            if cached.len() as u64 == room {
                cached.pop_last();
            }
        }
        cached.insert((next_use[at], page));
    }
    reads
}

/// Makes the accesses with little memory. Returns how many of those from `from`
/// on had to read a page, and what reclaim did for them.
fn reads(aging: &str, pages: Pages, accesses: &[u64], from: usize) -> (u64, ReclaimStats) {
    let config = MachineConfig {
        store: Arc::new(PatternStore::new(4096, |_, _| 0)),
        // A CPU marks no entry again that it has cached.
        tlb: TlbGeometry {
            sets: 4,
            ways: 2,
            upper_entries: 4,
        },
        ..MachineConfig::new(MEMORY << 12)
    };
    let options = ArenaOptions {
        huge_pages: false,
        prefault: false,
    };
    let arena = Arena::with_options(config.arena_bytes().unwrap(), options).unwrap();
    let machine = Machine::new(config, arena).unwrap();
    let design = Design::parse(&format!("reclaim=on,faultaround=1,aging={aging}")).unwrap();
    let vm: Vm<_, X86_64, Family> = Vm::new(machine, design).unwrap();
    let area = SwapArea::new(1 << 40, 4 * count(accesses));
    vm.swap_on(area).unwrap();
    let size = count(accesses);
    let machine = vm.platform();
    machine.run_on(CPU, || {
        let space = vm.create_space().unwrap().id();
        let file = vm
            .create_file(FileRequest::stored(1, size << 12))
            .unwrap()
            .id();
        let request = match pages {
            Pages::Private => MapRequest::anonymous(size, Prot::READ_WRITE),
            _ => MapRequest::object(file, 0, size, Prot::READ).shared(),
        };
        let at = Placement::Fixed(Vpn(START));
        vm.space(space).map(&request.at(at)).unwrap();
        let count = || match pages {
            Pages::Private => {
                vm.swap_stats().ins - vm.swap_stats().ahead + vm.swap_stats().ahead_used
            }
            _ => vm.stats().events.page_reads,
        };
        let mut before = (0, ReclaimStats::default());
        for (at, &page) in accesses.iter().enumerate() {
            if at == from {
                before = (count(), vm.stats().reclaim);
                vm.audit().unwrap();
            }
            let address = (START + page) << 12;
            match pages {
                Pages::Private => {
                    support::access(&vm, CPU, space, address, Access::Write, page).unwrap();
                }
                Pages::Mapped => {
                    support::access(&vm, CPU, space, address, Access::Read, 0).unwrap();
                }
                Pages::ByCalls => {
                    let mut word = [0; 8];
                    vm.file(file)
                        .read(ReadRequest::bytes(page << 12, &mut [&mut word]))
                        .unwrap();
                }
            }
        }
        vm.audit().unwrap();
        let mut stats = vm.stats().reclaim;
        stats.scanned -= before.1.scanned;
        stats.reclaimed -= before.1.reclaimed;
        (count() - before.0, stats)
    })
}

/// Eight times around, of which the last four count.
fn circle() -> (Vec<u64>, usize) {
    let accesses = (0..8 * PAGES).map(|access| access % PAGES).collect();
    (accesses, 4 * PAGES as usize)
}

/// As many accesses, any page as likely as any other.
fn at_random() -> (Vec<u64>, usize) {
    let mut rng = Rng(20);
    let accesses = (0..8 * PAGES).map(|_| rng.below(PAGES)).collect();
    (accesses, 4 * PAGES as usize)
}

/// All pages once, and then nine in ten accesses to a fifth of them, which another fifth replaces
/// in the middle.
fn skewed() -> (Vec<u64>, usize) {
    let mut rng = Rng(21);
    let access = |at: u64| {
        let often = at / (6 * PAGES) * (PAGES / 2);
        match rng.below(10) {
            0 => rng.below(PAGES),
            _ => often + rng.below(PAGES / 5),
        }
    };
    let accesses = (0..PAGES).chain((0..12 * PAGES).map(access));
    (accesses.collect(), 3 * PAGES as usize)
}

const ALL: [Pages; 3] = [Pages::Private, Pages::Mapped, Pages::ByCalls];

/// Lists of an age miss every time: what leaves is what will be used next. The rate at which a
/// program gets on that waits for its reads is to be a quarter of the best at least.
#[test]
fn generations_keep_what_fits_of_a_circle() {
    let (accesses, from) = circle();
    let least = least_reads(&accesses, from, MEMORY);
    for pages in ALL {
        let (by_age, _) = reads("lru", pages, &accesses, from);
        let (reads, stats) = reads("generations", pages, &accesses, from);
        println!("{pages:?}: {reads} pages read, lru {by_age}, at least {least}");
        assert!(by_age as usize > (accesses.len() - from) * 9 / 10);
        assert!(reads <= 4 * least, "{pages:?}: {reads}, {stats:?}");
        assert!(stats.scanned <= 2 * stats.reclaimed, "{pages:?}: {stats:?}");
    }
}

/// Who does not know what comes reads, at the least, the share of pages that does not fit. The
/// rate is to be half of that at least.
#[test]
fn generations_at_random_are_as_good_as_any_choice() {
    let (accesses, from) = at_random();
    let least = (accesses.len() - from) as u64 * (PAGES - MEMORY) / PAGES;
    for pages in ALL {
        let (by_age, _) = reads("lru", pages, &accesses, from);
        let (reads, stats) = reads("generations", pages, &accesses, from);
        println!(
            "{pages:?}: {reads} pages read, lru {by_age}, at least {least}, {} scanned for {}",
            stats.scanned, stats.reclaimed
        );
        assert!(reads <= 2 * least, "{pages:?}: {reads}, {stats:?}");
    }
}

#[test]
fn a_set_that_is_used_instead_of_another_takes_its_place() {
    let (accesses, from) = skewed();
    for pages in ALL {
        let (by_age, _) = reads("lru", pages, &accesses, from);
        let (reads, stats) = reads("generations", pages, &accesses, from);
        println!(
            "{pages:?}: {reads} pages read, lru {by_age}, {} scanned for {}",
            stats.scanned, stats.reclaimed
        );
        // A tenth of the accesses are to any page.
        let cold = (accesses.len() - from) as u64 / 10;
        assert!(reads <= cold * 2 / 3, "{pages:?}: {reads}, {stats:?}");
    }
}

/// Four programs that touch twice as much as there is, three times over (`usemem`).
#[test]
fn few_pages_are_scanned_for_each_that_is_reclaimed() {
    const PARTS: u64 = 4;
    let accesses: Vec<u64> = (0..3 * 2 * MEMORY)
        .map(|access| {
            let (part, step) = (access % PARTS, access / PARTS);
            part * (2 * MEMORY / PARTS) + step % (2 * MEMORY / PARTS)
        })
        .collect();
    for (aging, most) in [("lru", 3), ("generations", 2)] {
        for pages in ALL {
            let (_, stats) = reads(aging, pages, &accesses, 0);
            let (scanned, reclaimed) = (stats.scanned, stats.reclaimed);
            println!("{pages:?} {aging}: {scanned} scanned for {reclaimed}");
            assert!(reclaimed > 2 * MEMORY, "{pages:?}: {stats:?}");
            assert!(scanned <= most * reclaimed, "{pages:?}: {stats:?}");
        }
    }
}
