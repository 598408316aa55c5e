//! The regions of an object, as a tree and as lists.

use super::*;

std::thread_local! {
    /// How often a region was asked where it begins.
    static LOOKED: Cell<u64> = const { Cell::new(0) };
}

/// An item that maps pages `first..end`.
#[derive(Default)]
struct Extent {
    first: AtomicU64,
    end: AtomicU64,
    shared: AtomicBool,
    interval: Interval,
    link: AtomicU32,
}

impl Item for Extent {
    const SITE: Site = Site::Region;
    fn vacant() -> Self {
        Extent::default()
    }
    fn link(&self) -> &AtomicU32 {
        &self.link
    }
}

impl IntervalItem for Extent {
    fn interval(&self) -> &Interval {
        &self.interval
    }
    fn first_index(&self) -> u64 {
        LOOKED.set(LOOKED.get() + 1);
        self.first.load(Ordering::Relaxed)
    }
    fn end_index(&self) -> u64 {
        self.end.load(Ordering::Relaxed)
    }
}

impl MappedBy for Extent {
    fn is_shared(&self) -> bool {
        self.shared.load(Ordering::Relaxed)
    }
}

/// No regions yet, kept as `index` says.
fn regions<'a>(
    index: RegionIndex,
    arena: &'a Arena<Extent>,
    roots: &'a RegionRoots,
) -> ObjectRegions<'a, Extent> {
    ObjectRegions::new(index, arena, roots)
}

#[test]
fn stabbing_finds_what_a_search_of_all_finds() {
    for &index in RegionIndex::ALL {
        stabbing_finds_all(index);
    }
}

fn stabbing_finds_all(index: RegionIndex) {
    let memory = memory(4096);
    let arena: Arena<Extent> = arenas(&memory).make();
    let roots = RegionRoots::default();
    let regions = regions(index, &arena, &roots);
    let mut rng = Rng::new(6);
    let mut model: Vec<(Handle<Extent>, u64, u64)> = Vec::new();
    for step in 0..3000 {
        let pin = memory.pin();
        // Half of the intervals are one of ten, so that many items share each.
        let (first, end) = if rng.below(2) == 0 {
            let first = rng.below(10) as u64 * 40;
            (first, first + 60)
        } else {
            let first = rng.below(400) as u64;
            let longest = if rng.below(10) == 0 { 400 } else { 20 };
            (first, first + 1 + rng.below(longest) as u64)
        };
        let nth = rng.below(model.len().max(1));
        let set = |region: Handle<Extent>, first: u64, end: u64| {
            arena.get(region).first.store(first, Ordering::Relaxed);
            arena.get(region).end.store(end, Ordering::Relaxed);
        };
        match rng.below(8) {
            0..=2 if model.len() < 300 => {
                let handle = arena.alloc(&pin, &memory).unwrap();
                set(handle, first, end);
                let shared = &arena.get(handle).shared;
                shared.store(rng.below(2) == 0, Ordering::Relaxed);
                regions.insert(&pin, handle);
                model.push((handle, first, end));
            }
            3 if !model.is_empty() => {
                let item = &mut model[nth];
                regions.change(&pin, item.0, || set(item.0, first, end));
                (item.1, item.2) = (first, end);
            }
            4 if !model.is_empty() => {
                let (handle, ..) = model.swap_remove(nth);
                regions.remove(&pin, handle);
                arena.free(&pin, handle);
            }
            5 if !model.is_empty() && model[nth].2 - model[nth].1 > 1 => {
                let (head, from, to) = model[nth];
                let cut = from + 1 + rng.below((to - from - 1) as usize) as u64;
                let tail = arena.alloc(&pin, &memory).unwrap();
                regions.split(&pin, head, tail, || {
                    set(head, from, cut);
                    set(tail, cut, to);
                    let shared = arena.get(head).is_shared();
                    arena.get(tail).shared.store(shared, Ordering::Relaxed);
                });
                model[nth].2 = cut;
                model.push((tail, cut, to));
            }
            6 if !model.is_empty() => {
                let (head, from, middle) = model[nth];
                if let Some(other) = model.iter().position(|item| item.1 == middle) {
                    let (tail, _, to) = model[other];
                    regions.join(&pin, head, tail, || set(head, from, to));
                    arena.free(&pin, tail);
                    model[nth].2 = to;
                    model.swap_remove(other);
                }
            }
            _ => {}
        }
        // A search that ends early must not change what the next one finds.
        regions.overlapping(&pin, first, end, |_, _| match rng.below(3) {
            0 => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        });
        let mut found = Vec::new();
        regions.overlapping(&pin, first, end, |handle, _| {
            found.push(handle.raw());
            ControlFlow::Continue(())
        });
        found.sort_unstable();
        let overlaps = |item: &&(Handle<Extent>, u64, u64)| item.1 < end && first < item.2;
        let mut wanted: Vec<u32> = model
            .iter()
            .filter(overlaps)
            .map(|item| item.0.raw())
            .collect();
        wanted.sort_unstable();
        assert_eq!(found, wanted, "{index:?}, step {step}");
        assert_eq!(regions.check(), Ok(model.len() as u64));
    }
}

#[test]
fn regions_of_one_interval_are_visited_by_age_whatever_was_found_last() {
    for &index in RegionIndex::ALL {
        visited_by_age(index);
    }
}

fn visited_by_age(index: RegionIndex) {
    let memory = memory(4096);
    let arena: Arena<Extent> = arenas(&memory).make();
    let roots = RegionRoots::default();
    let regions = regions(index, &arena, &roots);
    let pin = memory.pin();
    let mut by_age = Vec::new();
    for _ in 0..6 {
        let handle = arena.alloc(&pin, &memory).unwrap();
        arena.get(handle).end.store(8, Ordering::Relaxed);
        regions.insert(&pin, handle);
        by_age.push(handle);
    }
    // Also when the oldest goes, one in the middle, and the youngest.
    for gone in [None, Some(0), Some(2), Some(3)] {
        if let Some(nth) = gone {
            regions.remove(&pin, by_age.remove(nth));
        }
        regions.overlapping(&pin, 0, 1, |handle, _| {
            match Some(&handle) == by_age.last() {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        });
        let mut visited = Vec::new();
        regions.pass_by_age(&pin, (3, 4), &mut Pass::default(), |handle, _| {
            visited.push(handle);
            ControlFlow::Continue(())
        });
        assert_eq!(visited, by_age);
    }
}

/// However often a pass lets go of the lock, it sees every region that stays,
/// comes back to the one it let go at, and misses none that was moved meanwhile
/// (invariant 11).
#[test]
fn a_pass_that_is_interrupted_sees_every_region() {
    for &index in RegionIndex::ALL {
        interrupted_pass(index);
    }
}

fn interrupted_pass(index: RegionIndex) {
    let memory = memory(4096);
    let arena: Arena<Extent> = arenas(&memory).make();
    let mut rng = Rng::new(11);
    let pin = memory.pin();
    for _ in 0..40 {
        let roots = RegionRoots::default();
        let regions = regions(index, &arena, &roots);
        let place = |handle, rng: &mut Rng| {
            let item: &Extent = arena.get(handle);
            let first = rng.below(6) as u64;
            let end = first + 1 + rng.below(3) as u64;
            item.first.store(first, Ordering::Relaxed);
            item.end.store(end, Ordering::Relaxed);
        };
        let mut all = Vec::new();
        for _ in 0..20 {
            let handle = arena.alloc(&pin, &memory).unwrap();
            place(handle, &mut rng);
            let shared = &arena.get(handle).shared;
            shared.store(rng.below(2) == 0, Ordering::Relaxed);
            regions.insert(&pin, handle);
            all.push(handle);
        }
        // What truncation takes away; nothing else gives a region any.
        let mut full: BTreeMap<u32, u32> = all.iter().map(|handle| (handle.raw(), 2)).collect();
        let mut pass = Pass::default();
        loop {
            let mut seen = 0;
            let done = regions.pass_by_age(&pin, (0, 100), &mut pass, |handle, _| {
                seen += 1;
                let left = full.get_mut(&handle.raw()).unwrap();
                if *left == 0 {
                    return ControlFlow::Continue(());
                }
                *left -= 1;
                ControlFlow::Break(())
            });
            if done {
                break;
            }
            assert!(seen > 0);
            let nth = rng.below(all.len());
            match rng.below(8) {
                0 => regions.change(&pin, all[nth], || place(all[nth], &mut rng)),
                1 => {
                    let gone = all.swap_remove(nth);
                    regions.remove(&pin, gone);
                    full.remove(&gone.raw());
                }
                2 => {
                    let handle = arena.alloc(&pin, &memory).unwrap();
                    place(handle, &mut rng);
                    regions.insert(&pin, handle);
                    all.push(handle);
                    full.insert(handle.raw(), 0);
                }
                _ => {}
            }
        }
        assert!(full.values().all(|&left| left == 0), "{full:?}");
        for handle in all {
            regions.remove(&pin, handle);
            arena.free(&pin, handle);
        }
    }
}

const ITEMS: u64 = 4096;

#[test]
fn stabbing_a_tree_stops_when_told_and_looks_at_few_items() {
    let looked = stabbing_looks_at(RegionIndex::Tree);
    assert!(looked < 100, "{looked}");
}

#[test]
fn stabbing_lists_stops_when_told_and_looks_at_every_item() {
    assert_eq!(stabbing_looks_at(RegionIndex::List), ITEMS);
}

/// How often a search for one page asks a region where it begins.
fn stabbing_looks_at(index: RegionIndex) -> u64 {
    let memory = memory(4096);
    let arena: Arena<Extent> = arenas(&memory).make();
    let roots = RegionRoots::default();
    let regions = regions(index, &arena, &roots);
    let pin = memory.pin();
    for number in 0..ITEMS {
        let handle = arena.alloc(&pin, &memory).unwrap();
        arena
            .get(handle)
            .first
            .store(number * 10, Ordering::Relaxed);
        arena
            .get(handle)
            .end
            .store(number * 10 + 15, Ordering::Relaxed);
        regions.insert(&pin, handle);
    }
    let mut hits = vec![];
    LOOKED.set(0);
    regions.overlapping(&pin, 20_003, 20_004, |_, item| {
        hits.push(item.first.load(Ordering::Relaxed));
        ControlFlow::Continue(())
    });
    let looked = LOOKED.get();
    assert_eq!(hits, [19_990, 20_000]);
    let mut visits = 0;
    regions.overlapping(&pin, 0, u64::MAX, |_, _| {
        visits += 1;
        if visits == 3 {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    assert_eq!(visits, 3);
    looked
}
