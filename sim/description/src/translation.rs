//! Translation of addresses: TLBs, page walks, and what shortens them.

use std::fmt;

use serde::Deserialize;

use super::check::{Flaw, no_basis};
use super::figure::{Basis, Count, Figure, Time};
use super::write::{line, quoted};

/// Most TLBs, and most caches, that a description may have.
const MOST: usize = 16;

/// How a CPU translates addresses. A description may lack it; then nothing can be said of TLBs.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Translation {
    /// Levels of page tables.
    pub levels: Count,
    /// A step of a walk whose entry no cache has.
    pub memory: Time,
    /// What each walk takes beside its steps; nothing without it.
    pub walk: Option<Time>,
    /// The TLBs of a CPU.
    pub tlb: Vec<Tlb>,
    /// Page-walk caches (paging-structure caches): entries that name tables.
    #[serde(default)]
    pub walk_cache: Vec<WalkCache>,
    /// Caches that hold entries of page tables beside data, the innermost first.
    #[serde(default)]
    pub cache: Vec<Cache>,
    /// The other dimension of each walk, if the machine is a guest.
    pub nested: Option<Nested>,
}

/// A TLB.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tlb {
    /// 1 is asked first.
    pub level: u8,
    /// Which translations it holds.
    pub holds: Holds,
    /// Sizes of what one entry can map, ascending: of several sizes, they share the entries.
    /// Those between 4 KiB and 2 MiB are runs of page-table entries that the processor
    /// coalesces, of its own accord or by a hint.
    pub pages: Vec<PageSize>,
    /// Its entries.
    pub entries: Count,
    /// Entries of a set; as many as there are entries if it is fully associative.
    pub ways: Count,
    /// What a hit costs more than one in the first level; of levels after the first.
    pub hit: Option<Time>,
}

/// Which translations a TLB holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Holds {
    /// Those of loads and stores.
    Data,
    /// Those of instruction fetches.
    Instructions,
    /// Both.
    All,
}

impl Holds {
    /// The word in a file.
    pub const fn word(self) -> &'static str {
        match self {
            Holds::Data => "data",
            Holds::Instructions => "instructions",
            Holds::All => "all",
        }
    }

    /// Whether translations of fetches, or else of loads and stores, are held.
    pub const fn has(self, fetches: bool) -> bool {
        match self {
            Holds::All => true,
            Holds::Instructions => fetches,
            Holds::Data => !fetches,
        }
    }
}

/// What an entry of a TLB maps.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Deserialize)]
pub enum PageSize {
    /// A page of 4 KiB.
    #[serde(rename = "4K")]
    K4,
    /// Four of them, aligned and contiguous.
    #[serde(rename = "16K")]
    K16,
    /// Sixteen of them.
    #[serde(rename = "64K")]
    K64,
    /// A page of 2 MiB.
    #[serde(rename = "2M")]
    M2,
}

impl PageSize {
    /// All, the smallest first.
    pub const ALL: [PageSize; 4] = [PageSize::K4, PageSize::K16, PageSize::K64, PageSize::M2];

    /// Log2 of its bytes.
    pub const fn shift(self) -> u32 {
        match self {
            PageSize::K4 => 12,
            PageSize::K16 => 14,
            PageSize::K64 => 16,
            PageSize::M2 => 21,
        }
    }

    /// The word in a file.
    pub const fn word(self) -> &'static str {
        match self {
            PageSize::K4 => "4K",
            PageSize::K16 => "16K",
            PageSize::K64 => "64K",
            PageSize::M2 => "2M",
        }
    }
}

/// A page-walk cache.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WalkCache {
    /// Level of the tables whose entries it holds: with 2, a walk has one step left.
    pub level: u8,
    /// Its entries.
    pub entries: Count,
    /// Entries of a set.
    pub ways: Count,
}

/// A cache that walks read.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cache {
    /// Its size in KiB.
    pub size: Count,
    /// A step of a walk whose entry it has.
    pub hit: Time,
}

/// Nested paging: where a guest's tables and pages lie, the host's tables say.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nested {
    /// Pages that the host maps the guest's memory by: 4K or 2M. No entry of a TLB maps more.
    pub pages: PageSize,
    /// Where that is from.
    pub source: String,
    /// Levels of the host's tables.
    pub levels: Count,
    /// Translations of the guest's page tables that are kept.
    pub entries: Count,
    /// Entries of a set of them.
    pub ways: Count,
}

impl Translation {
    /// All figures, with their keys.
    pub(super) fn figures(&self) -> Vec<(String, &dyn Figure)> {
        let mut all: Vec<(String, &dyn Figure)> = vec![
            ("translation.levels".to_owned(), &self.levels),
            ("translation.memory".to_owned(), &self.memory),
        ];
        if let Some(walk) = &self.walk {
            all.push(("translation.walk".to_owned(), walk));
        }
        let numbered = |table: &str, number: usize, key: &str| {
            format!("translation.{table}.{}.{key}", number + 1)
        };
        for (number, tlb) in self.tlb.iter().enumerate() {
            all.push((numbered("tlb", number, "entries"), &tlb.entries));
            all.push((numbered("tlb", number, "ways"), &tlb.ways));
            if let Some(hit) = &tlb.hit {
                all.push((numbered("tlb", number, "hit"), hit));
            }
        }
        for (number, cache) in self.walk_cache.iter().enumerate() {
            all.push((numbered("walk_cache", number, "entries"), &cache.entries));
            all.push((numbered("walk_cache", number, "ways"), &cache.ways));
        }
        for (number, cache) in self.cache.iter().enumerate() {
            all.push((numbered("cache", number, "size"), &cache.size));
            all.push((numbered("cache", number, "hit"), &cache.hit));
        }
        if let Some(nested) = &self.nested {
            all.push(("translation.nested.levels".to_owned(), &nested.levels));
            all.push(("translation.nested.entries".to_owned(), &nested.entries));
            all.push(("translation.nested.ways".to_owned(), &nested.ways));
        }
        all
    }

    /// What is wrong beside figures out of range.
    pub(super) fn flaws(&self) -> Vec<Flaw> {
        let mut flaws = Vec::new();
        let mut flaw = |key: String, message: String| flaws.push(Flaw { key, message });
        let levels = self.levels.count as u8;
        for (key, count) in [("tlb", self.tlb.len()), ("cache", self.cache.len())] {
            if count > MOST {
                let message = format!("{count} of them: expected at most {MOST}");
                flaw(format!("translation.{key}"), message);
            }
        }
        for (number, tlb) in self.tlb.iter().enumerate() {
            let key = |key: &str| format!("translation.tlb.{}.{key}", number + 1);
            if !(1..=3).contains(&tlb.level) {
                flaw(key("level"), format!("{}: expected 1 to 3", tlb.level));
            }
            if tlb.pages.is_empty() || !tlb.pages.is_sorted_by(|one, other| one < other) {
                let expected = "expected sizes of pages, ascending: 4K, 16K, 64K, 2M";
                flaw(key("pages"), expected.to_owned());
            }
            if (tlb.level > 1) != tlb.hit.is_some() {
                let expected = "expected of levels after the first, and of those only";
                flaw(key("hit"), expected.to_owned());
            }
            if let Some(message) = sets(&tlb.entries, &tlb.ways) {
                flaw(key("ways"), message);
            }
        }
        for fetches in [false, true] {
            let of_kind = || self.tlb.iter().filter(|tlb| tlb.holds.has(fetches));
            let of_pages = |level| {
                of_kind().any(|tlb| tlb.level == level && tlb.pages.contains(&PageSize::K4))
            };
            // A machine whose fetches are not described has none of their TLBs.
            if (!fetches || of_kind().next().is_some()) && !of_pages(1) {
                let what = if fetches { "instructions" } else { "data" };
                let message = format!("expected one of level 1 that holds {what} and 4K");
                flaw("translation.tlb".to_owned(), message);
            }
        }
        for (number, cache) in self.walk_cache.iter().enumerate() {
            let key = |key: &str| format!("translation.walk_cache.{}.{key}", number + 1);
            if !(2..=levels).contains(&cache.level) {
                let message = format!("{}: expected 2 to {levels}", cache.level);
                flaw(key("level"), message);
            }
            if self.walk_cache[..number]
                .iter()
                .any(|other| other.level == cache.level)
            {
                flaw(
                    key("level"),
                    format!("{}: there is one already", cache.level),
                );
            }
            if let Some(message) = sets(&cache.entries, &cache.ways) {
                flaw(key("ways"), message);
            }
        }
        let sizes = self.cache.iter().map(|cache| cache.size.count);
        let times = self.cache.iter().map(|cache| cache.hit.ns);
        if !sizes.is_sorted() || !times.chain([self.memory.ns]).is_sorted() {
            let message = "expected sizes and times that ascend, up to the time of memory";
            flaw("translation.cache".to_owned(), message.to_owned());
        }
        if let Some(nested) = &self.nested {
            if ![PageSize::K4, PageSize::M2].contains(&nested.pages) {
                let message = format!("{}: expected 4K or 2M", nested.pages.word());
                flaw("translation.nested.pages".to_owned(), message);
            }
            if Basis::of(&nested.source).is_none() {
                flaw(
                    "translation.nested.source".to_owned(),
                    no_basis(&nested.source),
                );
            }
            if let Some(message) = sets(&nested.entries, &nested.ways) {
                flaw("translation.nested.ways".to_owned(), message);
            }
        }
        flaws
    }
}

/// What is wrong with entries and ways.
fn sets(entries: &Count, ways: &Count) -> Option<String> {
    let (entries, ways) = (entries.count, ways.count);
    (entries % ways != 0.0).then(|| format!("{ways}: expected a divisor of {entries} entries"))
}

impl fmt::Display for Translation {
    /// Its tables as a description has them, to be appended to one.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "[translation]")?;
        line(f, "levels", &self.levels)?;
        line(f, "memory", &self.memory)?;
        if let Some(walk) = &self.walk {
            line(f, "walk", walk)?;
        }
        for tlb in &self.tlb {
            let pages: Vec<String> = tlb.pages.iter().map(|size| quoted(size.word())).collect();
            writeln!(f, "\n[[translation.tlb]]\nlevel = {}", tlb.level)?;
            writeln!(f, "holds = {}", quoted(tlb.holds.word()))?;
            writeln!(f, "pages = [{}]", pages.join(", "))?;
            line(f, "entries", &tlb.entries)?;
            line(f, "ways", &tlb.ways)?;
            if let Some(hit) = &tlb.hit {
                line(f, "hit", hit)?;
            }
        }
        for cache in &self.walk_cache {
            writeln!(f, "\n[[translation.walk_cache]]\nlevel = {}", cache.level)?;
            line(f, "entries", &cache.entries)?;
            line(f, "ways", &cache.ways)?;
        }
        for cache in &self.cache {
            writeln!(f, "\n[[translation.cache]]")?;
            line(f, "size", &cache.size)?;
            line(f, "hit", &cache.hit)?;
        }
        if let Some(nested) = &self.nested {
            writeln!(f, "\n[translation.nested]")?;
            writeln!(f, "pages = {}", quoted(nested.pages.word()))?;
            writeln!(f, "source = {}", quoted(&nested.source))?;
            line(f, "levels", &nested.levels)?;
            line(f, "entries", &nested.entries)?;
            line(f, "ways", &nested.ways)?;
        }
        Ok(())
    }
}
