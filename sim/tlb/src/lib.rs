//! What a stream of accesses asks of the TLBs of a machine: misses by level, page walks, and their
//! time.
//!
//! A [`Simulator`] is given one access after the other, and what maps its address ([`PageSize`]):
//! the machine ([`Translation`]) says what one entry of a TLB can map of that. A miss in the last
//! level is a walk, from the lowest table that a page-walk cache knows. Each step reads an entry,
//! which takes as long as the cache that has its line, or memory. Data goes through the same caches
//! and takes room there. On a guest each step, and the page itself, is translated by the host's tables
//! as well ("two-dimensional" walks; Bhargava et al., ASPLOS 2008).
//!
//! Everything is replaced by least recent use. Sets of TLBs are chosen by the lowest bits of the
//! page's number, those of caches by a hash of the line's, because where a page lies in physical
//! memory is not known. Where the host's entries lie is not known either: neighbours of the guest
//! are taken for neighbours of the host.
//!
//! ```
//! use vellum_description::{Description, PageSize};
//! use vellum_tlb::{Access, Simulator};
//!
//! let machine = Description::named("epyc-milan-1s")?;
//! let translation = machine.translation.ok_or("it has no TLBs")?;
//! let mut simulator = Simulator::new(&translation);
//! for page in 0..100 {
//!     let access = Access { address: page << 12, ..Access::default() };
//!     simulator.access(access, PageSize::K16);
//! }
//! assert_eq!(simulator.counts().misses[0], 25);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![deny(missing_docs)]

mod sets;
mod walk;

use vellum_description::{PageSize, Tlb, Translation};

use sets::Sets;
use walk::{Caches, Walker};

/// Levels of TLBs that are counted.
pub const LEVELS: usize = 3;
/// CPUs, and spaces, that are told apart; further ones share those of these.
pub const MOST: usize = 256;

/// An access to memory, within one page.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Access {
    /// The CPU that makes it, which has TLBs of its own.
    pub cpu: usize,
    /// The address space.
    pub space: usize,
    /// The first byte.
    pub address: u64,
    /// Whether an instruction is fetched.
    pub fetch: bool,
}

/// What was counted.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counts {
    /// Accesses that were translated.
    pub accesses: u64,
    /// Those of them that a TLB of each level, the first one first, was asked for and did not have.
    pub misses: [u64; LEVELS],
    /// Page walks.
    pub walks: u64,
    /// Entries of page tables that walks read, the host's included.
    pub steps: u64,
    /// Time of hits in levels after the first, in picoseconds.
    pub hits_ps: u64,
    /// Time of walks, in picoseconds.
    pub walks_ps: u64,
}

/// TLBs of a level for one kind of access.
struct Level {
    number: usize,
    hit_ps: u64,
    /// Indices into the TLBs of a CPU, with the sizes that one entry of it can map.
    tlbs: Vec<(usize, Vec<PageSize>)>,
}

impl Level {
    /// Which TLB can hold what `size` maps, and how much one entry of it maps.
    fn holding(&self, size: PageSize, large_table: bool) -> Option<(usize, PageSize)> {
        let fits = |held: &PageSize| *held <= size && (*held == PageSize::M2) == large_table;
        let best = |(tlb, sizes): &(usize, Vec<PageSize>)| {
            let held = sizes.iter().rev().find(|held| fits(held))?;
            Some((*tlb, *held))
        };
        self.tlbs
            .iter()
            .filter_map(best)
            .max_by_key(|(_, held)| *held)
    }
}

/// The TLBs of all CPUs, and what walks need.
pub struct Simulator {
    machine: Translation,
    /// For loads and stores, and for fetches.
    levels: [Vec<Level>; 2],
    cpus: Vec<Cpu>,
    caches: Caches,
    counts: Counts,
}

struct Cpu {
    tlbs: Vec<Sets>,
    walker: Walker,
}

impl Simulator {
    /// A machine whose TLBs and caches are empty. The description it is of has no
    /// [flaws](vellum_description::Description::flaws).
    pub fn new(machine: &Translation) -> Simulator {
        Simulator {
            levels: [false, true].map(|fetches| levels(&machine.tlb, fetches)),
            cpus: Vec::new(),
            caches: Caches::new(machine),
            counts: Counts::default(),
            machine: machine.clone(),
        }
    }

    /// What was counted so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Whether the machine's TLBs for instruction fetches are known; without them fetches are not
    /// counted.
    pub fn knows_fetches(&self) -> bool {
        !self.levels[1].is_empty()
    }

    /// One access, whose page lies in an aligned and contiguous run of `size`: with 16 and 64 KiB of
    /// pages of 4 KiB.
    pub fn access(&mut self, access: Access, size: PageSize) {
        let Access { address, fetch, .. } = access;
        let levels = &self.levels[usize::from(fetch)];
        if levels.is_empty() {
            return;
        }
        let number = access.cpu % MOST;
        while self.cpus.len() <= number {
            self.cpus.push(Cpu::new(&self.machine));
        }
        let cpu = &mut self.cpus[number];
        let space = (access.space % MOST) as u64;
        let counts = &mut self.counts;
        counts.accesses += 1;
        self.caches.data(space, address);
        // The host's pages bound what one entry maps of the guest's.
        let mapped = match &self.machine.nested {
            Some(nested) => size.min(nested.pages),
            None => size,
        };
        let mut found = false;
        for level in levels {
            let Some((tlb, held)) = level.holding(mapped, mapped == PageSize::M2) else {
                counts.misses[level.number] += u64::from(!found);
                continue;
            };
            if found {
                break;
            }
            // No processor has more than 57 bits of an address.
            let page = (address & ((1 << 57) - 1)) >> held.shift();
            let key = 1 << 63 | space << 48 | (held as u64) << 45 | page;
            found = cpu.tlbs[tlb].touch(page, key);
            match found {
                true => counts.hits_ps += level.hit_ps,
                false => counts.misses[level.number] += 1,
            }
        }
        if !found {
            let large = size == PageSize::M2;
            let walk = cpu.walker.walk(space, address, large, &mut self.caches);
            counts.walks += 1;
            counts.steps += walk.steps;
            counts.walks_ps += walk.ps;
        }
    }
}

impl Cpu {
    fn new(machine: &Translation) -> Cpu {
        let tlbs = machine.tlb.iter();
        Cpu {
            tlbs: tlbs.map(|tlb| Sets::new(&tlb.entries, &tlb.ways)).collect(),
            walker: Walker::new(machine),
        }
    }
}

fn levels(tlbs: &[Tlb], fetches: bool) -> Vec<Level> {
    let of_level = |number: usize| {
        let mut level = Level {
            number,
            hit_ps: 0,
            tlbs: Vec::new(),
        };
        for (index, tlb) in tlbs.iter().enumerate() {
            if usize::from(tlb.level) == number + 1 && tlb.holds.has(fetches) {
                level.hit_ps = tlb.hit.as_ref().map_or(0, |hit| hit.ps());
                level.tlbs.push((index, tlb.pages.clone()));
            }
        }
        (!level.tlbs.is_empty()).then_some(level)
    };
    (0..LEVELS).filter_map(of_level).collect()
}
