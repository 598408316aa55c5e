//! The regions of an object: in one tree, in several, and in lists.

use super::super::regions::ObjectRegions;
use super::super::spread::Spread;
use super::*;

const CPUS: usize = 4;

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
    set: AtomicU32,
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
    fn set(&self) -> &AtomicU32 {
        &self.set
    }
}

/// The regions of one object.
struct Setup {
    memory: Memory,
    arena: Arena<Extent>,
    spread: Box<Spread>,
    roots: RegionRoots,
    /// Users of the object: whoever opened it, and those of regions.
    users: AtomicU32,
}

impl Setup {
    /// None yet, to be kept as `index` says.
    fn new(index: RegionIndex) -> Setup {
        run_on(0);
        let memory = PhysicalMemory::new(TestMachine::simple(CPUS, 4096)).unwrap();
        // SAFETY: the arenas made are used with this memory only.
        let arenas = unsafe { ArenaMaker::new(CPUS, memory.frame_count(), memory.frame_size()) };
        Setup {
            arena: arenas.make(),
            spread: Spread::new(index, &arenas),
            roots: RegionRoots::default(),
            users: AtomicU32::new(1),
            memory,
        }
    }

    fn regions(&self) -> ObjectRegions<'_, Extent> {
        ObjectRegions::new(&self.spread, &self.arena, (1, &self.roots, &self.users))
    }

    fn alloc(&self) -> Handle<Extent> {
        self.arena.alloc(&self.memory.pin(), &self.memory).unwrap()
    }

    fn free(&self, handle: Handle<Extent>) {
        self.arena.free(&self.memory.pin(), handle);
    }

    /// Adds a region, a copy of another if there is one, with a user.
    fn insert(&self, handle: Handle<Extent>, original: Option<Handle<Extent>>) {
        let pin = self.memory.pin();
        assert!(self.regions().hold(&pin, original));
        let (memory, regions) = (&self.memory, self.regions());
        match original {
            Some(original) => regions.insert_copy(memory, &pin, original, handle),
            None => regions.insert(memory, &pin, handle),
        }
    }

    fn remove(&self, handle: Handle<Extent>) {
        assert!(!self.regions().remove(&self.memory.pin(), handle));
    }

    /// As when many have waited.
    fn spread(&self) {
        let pin = self.memory.pin();
        let _guard = self.roots.lock(&pin);
        if self.roots.further() == 0 {
            self.spread.spread(&self.memory, &pin, &self.roots);
        }
    }

    /// Goes on on another CPU, and has those that may have further sets get them at some time.
    fn go_on(&self, rng: &mut Rng) {
        run_on(rng.below(CPUS) as u16);
        if self.spread.index == RegionIndex::Auto && rng.below(100) == 0 {
            self.spread();
        }
    }
}

#[test]
fn stabbing_finds_what_a_search_of_all_finds() {
    for &index in RegionIndex::ALL {
        stabbing_finds_all(index);
    }
}

fn stabbing_finds_all(index: RegionIndex) {
    let setup = Setup::new(index);
    let (memory, arena, regions) = (&setup.memory, &setup.arena, setup.regions());
    let mut rng = Rng::new(6);
    let mut model: Vec<(Handle<Extent>, u64, u64)> = Vec::new();
    for step in 0..3000 {
        setup.go_on(&mut rng);
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
            0..=1 if model.len() < 300 => {
                let handle = setup.alloc();
                set(handle, first, end);
                let shared = &arena.get(handle).shared;
                shared.store(rng.below(2) == 0, Ordering::Relaxed);
                setup.insert(handle, None);
                model.push((handle, first, end));
            }
            2 if !model.is_empty() && model.len() < 300 => {
                let (original, first, end) = model[nth];
                let handle = setup.alloc();
                set(handle, first, end);
                let shared = arena.get(original).is_shared();
                arena.get(handle).shared.store(shared, Ordering::Relaxed);
                setup.insert(handle, Some(original));
                model.push((handle, first, end));
            }
            3 if !model.is_empty() => {
                let item = &mut model[nth];
                regions.change(&pin, item.0, || set(item.0, first, end));
                (item.1, item.2) = (first, end);
            }
            4 if !model.is_empty() => {
                let (handle, ..) = model.swap_remove(nth);
                setup.remove(handle);
                setup.free(handle);
            }
            5 if !model.is_empty() && model[nth].2 - model[nth].1 > 1 => {
                let (head, from, to) = model[nth];
                let cut = from + 1 + rng.below((to - from - 1) as usize) as u64;
                let tail = setup.alloc();
                assert!(regions.hold(&pin, Some(head)));
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
                    setup.users.fetch_sub(1, Ordering::Relaxed);
                    setup.free(tail);
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
        // Sets may keep some.
        assert!(setup.users.load(Ordering::Relaxed) as usize > model.len());
    }
    for (handle, ..) in model {
        setup.remove(handle);
    }
    assert_eq!(setup.users.load(Ordering::Relaxed), 1, "{index:?}");
}

#[test]
fn the_last_region_takes_all_users_along_that_its_set_has_kept() {
    let setup = Setup::new(RegionIndex::Spread);
    let handles = [(); 20].map(|()| setup.alloc());
    for (nth, &handle) in handles.iter().enumerate() {
        run_on((nth % CPUS) as u16);
        setup.arena.get(handle).end.store(8, Ordering::Relaxed);
        setup.insert(handle, None);
    }
    // Whoever opened it lets go.
    assert!(setup.users.fetch_sub(1, Ordering::Relaxed) > 1);
    let pin = setup.memory.pin();
    for (nth, &handle) in handles.iter().enumerate() {
        let is_last = setup.regions().remove(&pin, handle);
        assert_eq!(is_last, nth == handles.len() - 1);
    }
    assert_eq!(setup.users.load(Ordering::Relaxed), 0);
    assert!(!setup.regions().hold(&pin, None));
}

#[test]
fn regions_of_one_interval_are_visited_by_age_whatever_was_found_last() {
    for &index in RegionIndex::ALL {
        visited_by_age(index);
    }
}

fn visited_by_age(index: RegionIndex) {
    let setup = Setup::new(index);
    let (memory, arena, regions) = (&setup.memory, &setup.arena, setup.regions());
    let pin = memory.pin();
    let mut by_age = Vec::new();
    for _ in 0..6 {
        let handle = setup.alloc();
        arena.get(handle).end.store(8, Ordering::Relaxed);
        setup.insert(handle, by_age.last().copied());
        by_age.push(handle);
    }
    // Also when the oldest goes, one in the middle, and the youngest.
    for gone in [None, Some(0), Some(2), Some(3)] {
        if let Some(nth) = gone {
            setup.remove(by_age.remove(nth));
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
    let mut rng = Rng::new(11);
    for _ in 0..40 {
        let setup = Setup::new(index);
        let (memory, arena, regions) = (&setup.memory, &setup.arena, setup.regions());
        let place = |handle, rng: &mut Rng| {
            let item: &Extent = arena.get(handle);
            let first = rng.below(6) as u64;
            let end = first + 1 + rng.below(3) as u64;
            item.first.store(first, Ordering::Relaxed);
            item.end.store(end, Ordering::Relaxed);
        };
        let mut all = Vec::new();
        for _ in 0..20 {
            setup.go_on(&mut rng);
            let handle = setup.alloc();
            place(handle, &mut rng);
            let shared = &arena.get(handle).shared;
            shared.store(rng.below(2) == 0, Ordering::Relaxed);
            setup.insert(handle, None);
            all.push(handle);
        }
        // What truncation takes away; a fork gives its copy as much as the original has left.
        let mut full: BTreeMap<u32, u32> = all.iter().map(|handle| (handle.raw(), 2)).collect();
        let mut pass = Pass::default();
        loop {
            setup.go_on(&mut rng);
            let pin = memory.pin();
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
            match rng.below(10) {
                0 => regions.change(&pin, all[nth], || place(all[nth], &mut rng)),
                1 => {
                    let gone = all.swap_remove(nth);
                    setup.remove(gone);
                    full.remove(&gone.raw());
                }
                2 => {
                    let handle = setup.alloc();
                    place(handle, &mut rng);
                    setup.insert(handle, None);
                    all.push(handle);
                    full.insert(handle.raw(), 0);
                }
                3 => {
                    let original = all[nth];
                    let handle = setup.alloc();
                    let (from, to) = (arena.get(original), arena.get(handle));
                    for (from, to) in [(&from.first, &to.first), (&from.end, &to.end)] {
                        to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
                    }
                    to.shared.store(from.is_shared(), Ordering::Relaxed);
                    setup.insert(handle, Some(original));
                    all.push(handle);
                    full.insert(handle.raw(), full[&original.raw()]);
                }
                4 if all.len() > 1 => {
                    let head = all[nth];
                    let tail = all.swap_remove((nth + 1) % all.len());
                    let is_shared = arena.get(tail).is_shared();
                    // Wherever the two lie: what both had is the head's.
                    if arena.get(head).is_shared() == is_shared {
                        regions.join(&pin, head, tail, || place(head, &mut rng));
                        let more = full.remove(&tail.raw()).unwrap();
                        *full.get_mut(&head.raw()).unwrap() += more;
                    } else {
                        all.push(tail);
                    }
                }
                _ => {}
            }
        }
        assert!(full.values().all(|&left| left == 0), "{index:?}: {full:?}");
        assert_eq!(regions.check(), Ok(all.len() as u64));
        for handle in all {
            setup.remove(handle);
            setup.free(handle);
        }
    }
}

#[test]
fn a_join_leaves_no_users_in_a_set_without_regions() {
    let setup = Setup::new(RegionIndex::Spread);
    let insert = |cpu, first, end| {
        run_on(cpu);
        let handle = setup.alloc();
        let extent = setup.arena.get(handle);
        extent.first.store(first, Ordering::Relaxed);
        extent.end.store(end, Ordering::Relaxed);
        setup.insert(handle, None);
        handle
    };
    // The first is in the object's own set.
    let first = insert(0, 0, 8);
    let [head, other] = [insert(0, 0, 8), insert(0, 0, 8)];
    let tail = insert(3, 8, 16);
    setup.remove(other);
    let pin = setup.memory.pin();
    setup.regions().join(&pin, head, tail, || {
        setup.arena.get(head).end.store(16, Ordering::Relaxed);
    });
    // The tail's user, and whoever opened the object.
    setup.users.fetch_sub(2, Ordering::Relaxed);
    assert!(!setup.regions().remove(&pin, first));
    assert!(setup.regions().remove(&pin, head));
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
    let setup = Setup::new(index);
    let (memory, arena, regions) = (&setup.memory, &setup.arena, setup.regions());
    let pin = memory.pin();
    for number in 0..ITEMS {
        let handle = setup.alloc();
        arena
            .get(handle)
            .first
            .store(number * 10, Ordering::Relaxed);
        arena
            .get(handle)
            .end
            .store(number * 10 + 15, Ordering::Relaxed);
        setup.insert(handle, None);
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
