//! Page walks: which tables they read, and where the entries lie.

use vellum_description::{PageSize, Translation};

use crate::sets::Sets;

/// Log2 of the bytes that the tables of one level more map each entry by.
const LEVEL_SHIFT: u32 = 9;
/// Log2 of the bytes of a cache line.
const LINE_SHIFT: u32 = 6;
/// Ways of the caches that walks read.
const WAYS: usize = 16;

/// A walk that is over.
pub struct Walk {
    pub steps: u64,
    pub ps: u64,
}

/// What lies in memory: data, the guest's tables or those of a machine that is none, and the host's
/// tables of the guest's data and of its tables.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Of {
    Data,
    Tables,
    HostData,
    /// Of the guest's tables of that level.
    HostTables(u32),
}

impl Of {
    fn number(self) -> u64 {
        match self {
            Of::Data => 0,
            Of::Tables => 1,
            Of::HostData => 2,
            Of::HostTables(level) => 3 + u64::from(level),
        }
    }
}

/// The caches of a CPU, as walks find them.
pub struct Caches {
    /// With picoseconds of a step, the innermost first.
    levels: Vec<(Sets, u64)>,
    memory_ps: u64,
    last: (u64, u64),
}

impl Caches {
    pub fn new(machine: &Translation) -> Caches {
        let lines = |kib: f64| (kib * 1024.0) as usize >> LINE_SHIFT;
        let caches = machine.cache.iter();
        let levels = caches.map(|cache| {
            let sets = lines(cache.size.count) / WAYS;
            (Sets::of(sets, WAYS), cache.hit.ps())
        });
        Caches {
            levels: levels.collect(),
            memory_ps: machine.memory.ps(),
            last: (u64::MAX, u64::MAX),
        }
    }

    /// Data is used.
    pub fn data(&mut self, space: u64, address: u64) {
        let line = (space, address >> LINE_SHIFT);
        if line != self.last {
            self.last = line;
            self.read(space, Of::Data, 0, line.1);
        }
    }

    /// Reads a line; how long it takes.
    fn read(&mut self, space: u64, of: Of, level: u32, line: u64) -> u64 {
        let place = space << 56 ^ of.number() << 52 ^ u64::from(level) << 48 ^ line;
        // Fibonacci hashing: the upper half is spread best.
        let hash = place.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut takes = self.memory_ps;
        // Caches further out are not asked, and so forget what an inner one has all the time.
        for (sets, ps) in &mut self.levels {
            if sets.touch(hash >> 32, hash | 1) {
                takes = *ps;
                break;
            }
        }
        takes
    }

    /// Reads the entry for `address` in tables of `level`.
    fn entry(&mut self, space: u64, of: Of, level: u32, address: u64, walk: &mut Walk) {
        let entry = address >> mapped(level);
        walk.steps += 1;
        walk.ps += self.read(space, of, level, entry >> 3);
    }
}

/// Log2 of the bytes that an entry of a table of `level` maps; the lowest tables have level 1.
fn mapped(level: u32) -> u32 {
    PageSize::K4.shift() + LEVEL_SHIFT * (level - 1)
}

/// Tables of one dimension, and the caches of their entries.
struct Tables {
    levels: u32,
    /// With the level of the tables whose entries are held, the lowest first.
    caches: Vec<(u32, Sets)>,
}

impl Tables {
    fn new(machine: &Translation, levels: f64) -> Tables {
        let caches = machine.walk_cache.iter();
        let caches = caches.map(|cache| {
            let sets = Sets::new(&cache.entries, &cache.ways);
            (u32::from(cache.level), sets)
        });
        let mut caches: Vec<_> = caches.collect();
        caches.sort_by_key(|(level, _)| *level);
        Tables {
            levels: levels as u32,
            caches,
        }
    }

    /// The level that a walk to an entry of `leaf` begins at. Every table that it passes is known
    /// afterwards.
    fn begin(&mut self, (space, of): (u64, Of), address: u64, leaf: u32) -> u32 {
        let mut begin = self.levels.max(leaf);
        for (level, sets) in self.caches.iter_mut().rev() {
            let entry = address >> mapped(*level);
            let key = 1 << 63 | space << 55 | of.number() << 51 | entry;
            if *level > leaf && sets.touch(entry, key) {
                begin = *level - 1;
            }
        }
        begin
    }
}

/// The page walker of a CPU.
pub struct Walker {
    /// What a walk takes beside its steps.
    beside_ps: u64,
    tables: Tables,
    host: Option<Host>,
}

struct Host {
    tables: Tables,
    pages: PageSize,
    /// Translations of the guest's tables.
    known: Sets,
}

impl Walker {
    pub fn new(machine: &Translation) -> Walker {
        let host = machine.nested.as_ref().map(|nested| Host {
            tables: Tables::new(machine, nested.levels.count),
            pages: nested.pages,
            known: Sets::new(&nested.entries, &nested.ways),
        });
        Walker {
            beside_ps: machine.walk.as_ref().map_or(0, |walk| walk.ps()),
            tables: Tables::new(machine, machine.levels.count),
            host,
        }
    }

    /// A walk to the leaf of `address`, one of 2 MiB if it is `large`.
    pub fn walk(&mut self, space: u64, address: u64, large: bool, caches: &mut Caches) -> Walk {
        let mut walk = Walk {
            steps: 0,
            ps: self.beside_ps,
        };
        let leaf = if large { 2 } else { 1 };
        let begin = self.tables.begin((space, Of::Tables), address, leaf);
        for level in (leaf..=begin).rev() {
            if let Some(host) = &mut self.host {
                // The table is a page of the guest, which maps 512 times what its entries do.
                let table = address >> (mapped(level) + LEVEL_SHIFT) << PageSize::K4.shift();
                let of = Of::HostTables(level);
                let page = table >> host.pages.shift();
                let key = 1 << 63 | space << 55 | of.number() << 51 | page;
                if !host.known.touch(page, key) {
                    host.walk((space, of), table, caches, &mut walk);
                }
            }
            caches.entry(space, Of::Tables, level, address, &mut walk);
        }
        if let Some(host) = &mut self.host {
            host.walk((space, Of::HostData), address, caches, &mut walk);
        }
        walk
    }
}

impl Host {
    /// Reads the host's tables for an address of the guest.
    fn walk(&mut self, of: (u64, Of), address: u64, caches: &mut Caches, walk: &mut Walk) {
        let leaf = if self.pages == PageSize::M2 { 2 } else { 1 };
        let begin = self.tables.begin(of, address, leaf);
        for level in (leaf..=begin).rev() {
            caches.entry(of.0, of.1, level, address, walk);
        }
    }
}
