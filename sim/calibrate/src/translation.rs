//! TLBs of the host, by a pointer chase over pages: how many pages they reach, what a hit in the
//! second level and a page walk take, and whether pages of 2 MiB reach them at all.
//!
//! A chase loads one line of each of so many pages, each of which tells the next, in random order.
//! The same number of lines one after the other takes as much room in caches and hardly any in TLBs, so
//! the difference is translation. The method is that of Saavedra and Smith, "Measuring Cache and TLB
//! Performance" (1995).

use std::fs;
use std::hint::black_box;
use std::io;

use vellum_description::{
    Cache, Count, Holds, Nested, PageSize, Time, Tlb, Translation, WalkCache,
};
use vellum_tlb::{Access, Simulator};

use crate::Effort;
use crate::host::{Host, pin};
use crate::memory::{Backing, Mapping};
use crate::rounds::{Rounds, nanoseconds, shortened};

const PAGE: usize = 4096;
const LINE: usize = 64;
const WORD: usize = 8;
/// Bytes of a page of 2 MiB.
const LARGE: usize = 2 << 20;
/// Pages of the longest chase.
const MOST: usize = 1 << 14;
/// Pages at which those of 4 KiB miss the first level and are known to the second, on processors of
/// today.
const BETWEEN: usize = 384;
/// Share of the time that translation takes by pages of 4 KiB which those of 2 MiB have to save, to
/// be said to reach the TLB.
const REACHES: f64 = 0.5;

/// How long a load takes, by how the pages that are loaded from are mapped.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Reach {
    /// Loads from lines one after the other, in nanoseconds.
    pub dense_ns: f64,
    /// From lines of as many pages of 4 KiB.
    pub small_ns: f64,
    /// The same from memory that the kernel maps by 2 MiB.
    pub large_ns: f64,
}

impl Reach {
    /// Share of what translation takes by pages of 4 KiB that those of 2 MiB save.
    pub fn saved(&self) -> f64 {
        (self.small_ns - self.large_ns) / (self.small_ns - self.dense_ns)
    }

    /// Whether pages of 2 MiB are one entry of the TLB, as far as that can be told.
    pub fn reaches(&self) -> bool {
        self.saved() >= REACHES
    }

    /// What was found, in words.
    pub fn text(&self) -> String {
        let [dense, small, large] = [self.dense_ns, self.small_ns, self.large_ns].map(shortened);
        format!(
            "loads of a line in each of {BETWEEN} pages take {small} ns by pages of 4 KiB, {large} \
             ns by those of 2 MiB and {dense} ns without misses"
        )
    }
}

/// Whether pages of 2 MiB reach the TLB of the CPU that the calling thread runs on. `None`: the
/// kernel gives no such pages, or those of 4 KiB do not miss either.
///
/// # Errors
/// There is no memory.
pub fn reach(effort: Effort) -> io::Result<Option<Reach>> {
    let bytes = BETWEEN * PAGE;
    let mut small = Mapping::touched_by(bytes, Backing::Small)?;
    let mut large = Mapping::touched_by(bytes.next_multiple_of(LARGE), Backing::Large)?;
    if !large.is_large() {
        return Ok(None);
    }
    let least = |mapping: &mut Mapping, step| chase(mapping, BETWEEN, step, effort);
    let reach = Reach {
        dense_ns: least(&mut small, LINE),
        small_ns: least(&mut small, PAGE),
        large_ns: least(&mut large, PAGE),
    };
    let told = reach.small_ns - reach.dense_ns > 0.15 * reach.dense_ns;
    Ok(told.then_some(reach))
}

/// The addresses of a chase, in its order: a line of each of `count` parts of `step` bytes.
fn places(count: usize, step: usize) -> Vec<usize> {
    let mut random = fastrand::Rng::with_seed(count as u64);
    let lines = (step / LINE).min(PAGE / LINE);
    let mut places: Vec<usize> = (0..count)
        .map(|part| part * step + random.usize(..lines) * LINE)
        .collect();
    random.shuffle(&mut places);
    places
}

/// Nanoseconds of a load, in the round that was disturbed least.
fn chase(mapping: &mut Mapping, count: usize, step: usize, effort: Effort) -> f64 {
    let loads = match effort {
        Effort::Full => 200_000,
        Effort::Quick => 20_000,
    };
    let places = places(count, step);
    let words = mapping.words();
    for (at, place) in places.iter().enumerate() {
        words[place / WORD] = (places[(at + 1) % count] / WORD) as u64;
    }
    let mut place = places[0] / WORD;
    let rounds = Rounds::take(effort, 9, || {
        let all = nanoseconds(|| {
            for _ in 0..loads {
                place = words[black_box(place)] as usize;
            }
        });
        all / f64::from(loads)
    });
    black_box(place);
    rounds.least()
}

/// What translation adds to a load of one of so many pages.
struct Steps {
    pages: Vec<usize>,
    ns: Vec<f64>,
    dense: Vec<f64>,
}

impl Steps {
    fn measure(mapping: &mut Mapping, effort: Effort) -> Steps {
        // Four steps to a doubling.
        let all = (12..).map(|step| 2f64.powf(f64::from(step) / 4.0) as usize);
        let pages: Vec<usize> = all.take_while(|pages| *pages <= MOST).collect();
        let mut steps = Steps {
            ns: Vec::new(),
            dense: Vec::new(),
            pages,
        };
        for &count in &steps.pages {
            let dense = chase(mapping, count, LINE, effort);
            steps.dense.push(dense);
            steps.ns.push(chase(mapping, count, PAGE, effort) - dense);
        }
        steps
    }

    /// The most pages that add at most `ns`, as do all that are fewer, but for one outlier.
    fn reach(&self, ns: f64) -> usize {
        let above = |at: usize| self.ns.get(at).is_some_and(|added| *added > ns);
        let first = (0..self.ns.len()).find(|at| above(*at) && above(at + 1));
        match first {
            Some(at) => self.pages[at.saturating_sub(1)],
            None => MOST,
        }
    }

    /// The median of what is added between so many pages and so many.
    fn between(&self, from: usize, to: usize) -> f64 {
        let steps = self.pages.iter().zip(&self.ns);
        let within = steps.filter(|(pages, _)| (from..=to).contains(*pages));
        Rounds::of(within.map(|(_, ns)| ns.max(0.0)).collect()).median()
    }
}

/// What else is known of the host.
pub(crate) struct Known<'k> {
    /// A hit, a line from the last cache and one from memory.
    pub hit: &'k Time,
    pub cached: Option<&'k Time>,
    pub memory: &'k Time,
}

/// The TLBs of the first CPU, and whether pages of 2 MiB reach them.
pub(crate) fn of_host(
    host: &Host,
    known: &Known<'_>,
    effort: Effort,
) -> io::Result<(Translation, Option<Reach>)> {
    pin(host.first().cpu)?;
    let reach = reach(effort)?;
    let mut mapping = Mapping::touched_by(MOST * PAGE, Backing::Small)?;
    let steps = Steps::measure(&mut mapping, effort);
    // A cycle and more: a hit takes four or five of them.
    let first = steps.reach(0.3 * known.hit.ns).clamp(8, 512);
    let hit = steps.between(2 * first, 4 * first);
    // Far beyond what TLBs of today hold, and within the caches of a core.
    let missed = steps.between(MOST / 2, MOST);
    let second = steps.reach((hit + missed) / 2.0).clamp(4 * first, MOST);
    let second = second.next_multiple_of(16);
    let chased =
        "a load of a line in each of so many pages, less one of as many lines of few pages";
    let measured = |what: &str| format!("measured: {chased}; {what}");
    let assumed = |count: usize, why: &str| Count::new(count as f64, format!("assumed: {why}"));
    let count = |count: usize, what: &str| Count::new(count as f64, measured(what));
    let hit = Time::new(
        shortened(hit),
        measured("the median of two to four times what the first level has"),
    );
    let tlb = |level, holds, pages: &[PageSize], entries: Count, ways: Count| Tlb {
        level,
        holds,
        pages: pages.to_vec(),
        entries,
        ways,
        hit: (level > 1).then(|| hit.clone()),
    };
    let usual = "as processors of today have";
    let full = "fully associative";
    let (small, large) = ([PageSize::K4], [PageSize::M2]);
    let of_first = count(first, "the most that add less than a third of a hit");
    let mut translation = Translation {
        levels: assumed(4, "Linux on x86-64 and AArch64 with pages of 4 KiB"),
        memory: Time::new(known.memory.ns, "derived: memory.own"),
        walk: None,
        tlb: vec![
            tlb(1, Holds::Data, &small, of_first, assumed(first, full)),
            tlb(
                1,
                Holds::Data,
                &large,
                assumed(32, usual),
                assumed(32, full),
            ),
            tlb(
                1,
                Holds::Instructions,
                &small,
                assumed(64, usual),
                assumed(8, usual),
            ),
            tlb(
                1,
                Holds::Instructions,
                &large,
                assumed(8, usual),
                assumed(8, full),
            ),
            tlb(
                2,
                Holds::All,
                &[PageSize::K4, PageSize::M2],
                count(
                    second,
                    "the most that add less than half of a miss; that pages of 2 MiB share them is assumed",
                ),
                assumed(16, usual),
            ),
        ],
        walk_cache: [(2, 32), (3, 4)]
            .map(|(level, entries)| WalkCache {
                level,
                entries: assumed(entries, usual),
                ways: assumed(4, usual),
            })
            .to_vec(),
        cache: caches(host, known, &steps),
        nested: None,
    };
    if is_guest() {
        let (pages, source) = match &reach {
            Some(reach) if reach.reaches() => (PageSize::M2, format!("measured: {}", reach.text())),
            Some(reach) => (PageSize::K4, format!("measured: {}", reach.text())),
            None => (
                PageSize::K4,
                "assumed: no pages of 2 MiB could be had, or none miss".to_owned(),
            ),
        };
        translation.nested = Some(Nested {
            pages,
            source,
            levels: assumed(4, "as hosts of today have"),
            entries: assumed(32, usual),
            ways: assumed(4, usual),
        });
    }
    translation.walk = Some(beside(
        &translation,
        missed,
        &measured("what is left of a walk"),
    ));
    Ok((translation, reach))
}

/// What walks take beside their steps: what the longest chases add, less what simulated steps take.
fn beside(machine: &Translation, missed: f64, source: &str) -> Time {
    let mut simulator = Simulator::new(machine);
    let places = places(MOST, PAGE);
    let mut before = simulator.counts();
    for round in 0..2 {
        if round == 1 {
            before = simulator.counts();
        }
        for place in &places {
            let access = Access {
                address: *place as u64,
                ..Access::default()
            };
            simulator.access(access, PageSize::K4);
        }
    }
    let after = simulator.counts();
    let loads = (after.accesses - before.accesses) as f64;
    let took = (after.walks_ps - before.walks_ps + after.hits_ps - before.hits_ps) as f64;
    let walks = (after.walks - before.walks).max(1) as f64;
    let left = (missed * loads - took / 1e3) / walks;
    Time::new(shortened(left.max(0.0)), source)
}

/// The caches that walks read, as far as they are known; none is slower than the next.
fn caches(host: &Host, known: &Known<'_>, steps: &Steps) -> Vec<Cache> {
    let own = host.own_cache_bytes();
    let kib = |bytes: usize, what: &str| {
        Count::new(
            (bytes >> 10) as f64,
            format!("stated: the kernel, size of {what}"),
        )
    };
    let mut caches = vec![Cache {
        size: kib(host.first_cache_bytes().max(1 << 14), "the first cache"),
        hit: Time::new(known.hit.ns, "derived: lines.hit"),
    }];
    // The longest dense chase that the cache holds half of.
    let at = steps
        .pages
        .iter()
        .rposition(|lines| lines * LINE <= own / 2);
    if let Some(at) = at {
        let ns = steps.dense[at].max(known.hit.ns);
        let lines = steps.pages[at];
        caches.push(Cache {
            size: kib(own, "the largest cache before the last"),
            hit: Time::new(
                shortened(ns),
                format!(
                    "measured: loads that depend on one another, in random order in {lines} lines"
                ),
            ),
        });
    }
    if let Some(cached) = known.cached {
        caches.push(Cache {
            size: kib(host.last_cache_bytes(), "the last cache"),
            hit: Time::new(cached.ns, "derived: lines.cached"),
        });
    }
    let mut most = known.memory.ns;
    for cache in caches.iter_mut().rev() {
        // On a busy machine a nearer one may seem slower.
        cache.hit.ns = cache.hit.ns.min(most);
        most = cache.hit.ns;
    }
    caches
}

/// Whether a hypervisor runs this machine, as its processor says.
fn is_guest() -> bool {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let flags = info.lines().find(|line| line.starts_with("flags"));
    flags.is_some_and(|flags| flags.split_whitespace().any(|flag| flag == "hypervisor"))
}
