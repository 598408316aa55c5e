//! Random sequences with several groups, with memory for a quarter of what is touched, beside a
//! model.

use super::*;
use crate::design::variants;
use crate::testing::number;
use crate::vm::Stats;

const FILE_PAGES: u64 = 300;
const FILE_AT: u64 = 9000;
const SPACES: usize = 10;

/// How large everything is.
#[derive(Clone, Copy)]
struct Size {
    frames: u32,
    /// Where each space has private memory, and how much.
    at: u64,
    pages: u64,
    /// Least that a group may have, and how much more at most.
    limits: (u64, usize),
    /// Pages that are stored to together.
    burst: usize,
}

const SMALL: Size = Size {
    frames: 400,
    at: AT,
    pages: 160,
    limits: (20, 100),
    burst: 1,
};

/// With two superpages in each space, and groups that have room for one or for none.
const LARGE: Size = Size {
    frames: 1400,
    at: 4096,
    pages: 1024,
    limits: (150, 700),
    burst: 12,
};

struct Member {
    id: SpaceId,
    /// What each private page holds.
    pages: Vec<u8>,
}

/// A manager and what it should show.
struct World<R: ReverseMap> {
    size: Size,
    vm: TestVm<R>,
    rng: Rng,
    groups: Vec<(GroupId, u64)>,
    spaces: Vec<Member>,
    file: ObjectId,
    file_bytes: Vec<u8>,
    refused: usize,
    /// Groups begin within any other, and have limits of every kind.
    is_nested: bool,
}

impl<R: ReverseMap> World<R> {
    fn new(options: &str, size: Size, seed: u64) -> Self {
        let vm = vm_with::<R>(options, size.frames);
        let slots = SPACES as u64 * size.pages + 2000;
        vm.swap_on(SwapArea { slots, ..SWAP }).unwrap();
        let file = vm.stored_pages(STORE, FILE_PAGES).unwrap();
        let mut world = World {
            size,
            vm,
            rng: Rng::new(seed),
            groups: Vec::new(),
            spaces: Vec::new(),
            file,
            file_bytes: vec![0; FILE_PAGES as usize],
            refused: 0,
            is_nested: options.contains("groups=all"),
        };
        for _ in 0..3 {
            world.new_group();
            world.new_space();
        }
        world
    }

    fn any_limit(&mut self) -> u64 {
        let (least, more) = self.size.limits;
        least + self.rng.below(more) as u64
    }

    fn new_group(&mut self) {
        let limit = self.any_limit();
        let within = match self.is_nested {
            true => self.any_group(),
            false => GroupId::ROOT,
        };
        let group = self.vm.page_cache().new_group_in(within, limit).unwrap();
        self.groups.push((group, limit));
        if self.is_nested {
            let [high, low, min] = [(); 3].map(|()| self.rng.below(2 * limit as usize) as u64);
            let change = |limits: &mut GroupLimits| {
                (limits.high, limits.low, limits.min) = (high, low / 4, min / 16);
            };
            (self.vm.page_cache())
                .set_group_limits(group, &change)
                .unwrap();
        }
    }

    fn any_group(&mut self) -> GroupId {
        match self.rng.below(self.groups.len() + 1) {
            0 => GroupId::ROOT,
            index => self.groups[index - 1].0,
        }
    }

    fn new_space(&mut self) {
        let id = self.vm.begin_space().unwrap();
        let group = self.any_group();
        self.vm.set_group(id, group).unwrap();
        let Size { at, pages, .. } = self.size;
        map(&self.vm, id, at, MapRequest::anonymous(pages, RW));
        let shared = MapRequest::object(self.file, 0, FILE_PAGES, RW).shared();
        map(&self.vm, id, FILE_AT, shared);
        let pages = vec![0; pages as usize];
        self.spaces.push(Member { id, pages });
    }

    /// Stores to the page `at`; whether there was memory for that.
    fn store(&mut self, space: usize, at: u64, byte: u8) -> bool {
        let mut frames = [Pfn::NONE];
        let id = self.spaces[space].id;
        let pinned = self.vm.pin_pages(id, Vpn(at), Access::Write, &mut frames);
        if pinned.is_err() {
            self.refused += 1;
            return false;
        }
        self.vm.platform().scribble(frames[0], byte);
        // SAFETY: pinned above.
        unsafe { self.vm.unpin(&frames) };
        true
    }

    fn check(&mut self, space: usize, at: u64, byte: u8) {
        let id = self.spaces[space].id;
        match self.vm.fault(id, at << 12, Access::Read) {
            Ok(_) => {
                let (frame, _) = self.vm.translate(id, Vpn(at)).unwrap();
                let bytes = self.vm.platform().peek(frame);
                assert!(bytes.iter().all(|&found| found == byte), "page {at}");
            }
            Err(FaultError::OutOfMemory | FaultError::GroupLimit(_)) => self.refused += 1,
            Err(error) => panic!("page {at}: {error}"),
        }
    }

    fn step(&mut self) {
        let space = self.rng.below(self.spaces.len());
        let page = self.rng.below(self.size.pages as usize);
        let at = self.size.at + page as u64;
        let index = self.rng.below(FILE_PAGES as usize);
        let byte = self.rng.below(255) as u8 + 1;
        match self.rng.below(100) {
            0..40 => {
                let end = self.spaces[space].pages.len().min(page + self.size.burst);
                for page in page..end {
                    if self.store(space, self.size.at + page as u64, byte) {
                        self.spaces[space].pages[page] = byte;
                    }
                }
            }
            40..58 => {
                let expected = self.spaces[space].pages[page];
                self.check(space, at, expected);
            }
            58..66 => {
                if self.store(space, FILE_AT + index as u64, byte) {
                    self.file_bytes[index] = byte;
                }
            }
            66..72 => self.check(space, FILE_AT + index as u64, self.file_bytes[index]),
            72..80 => {
                self.vm.load(self.spaces[space].id).unwrap();
                let bytes = [byte; 4096];
                match self
                    .vm
                    .page_cache()
                    .write_at(self.file, (index as u64) << 12, &[&bytes])
                {
                    Ok(written) => {
                        assert_eq!(written, bytes.len());
                        self.file_bytes[index] = byte;
                    }
                    Err(_) => self.refused += 1,
                }
            }
            80..84 if self.spaces.len() < SPACES => {
                if let Ok(id) = self.vm.fork(self.spaces[space].id) {
                    let pages = self.spaces[space].pages.clone();
                    self.spaces.push(Member { id, pages });
                }
            }
            80..86 if self.spaces.len() > 3 => {
                let gone = self.spaces.swap_remove(space);
                self.vm.exit(gone.id).unwrap();
            }
            86..90 => {
                let group = self.any_group();
                self.vm.set_group(self.spaces[space].id, group).unwrap();
            }
            90..93 => {
                let advice = [Advice::DontNeed, Advice::PageOut][self.rng.below(2)];
                let id = self.spaces[space].id;
                self.vm.advise(id, Vpn(at), 1, advice).unwrap();
                if advice == Advice::DontNeed {
                    self.spaces[space].pages[page] = 0;
                }
            }
            93..95 => {
                let place = self.rng.below(self.groups.len());
                let limit = self.any_limit();
                let group = self.groups[place].0;
                self.vm.page_cache().set_group_limit(group, limit).unwrap();
                self.groups[place].1 = limit;
            }
            95 if self.groups.len() < 6 => self.new_group(),
            96 if self.groups.len() > 1 => self.end_group(),
            _ => self.new_space_if_few(),
        }
    }

    fn new_space_if_few(&mut self) {
        if self.spaces.len() < 5 {
            self.new_space();
        }
    }

    fn end_group(&mut self) {
        let place = self.rng.below(self.groups.len());
        let (group, limit) = self.groups.swap_remove(place);
        let is_around = |&(other, _): &(GroupId, u64)| {
            other != group
                && self
                    .vm
                    .page_cache()
                    .memory
                    .groups()
                    .unwrap()
                    .is_around(group, other)
        };
        if self.groups.iter().any(is_around) {
            let ended = self.vm.page_cache().end_group(group);
            assert_eq!(ended, Err(GroupError::InUse));
            self.groups.push((group, limit));
            return;
        }
        for space in &self.spaces {
            if self.vm.group_of(space.id) == Some(group) {
                assert_eq!(
                    self.vm.page_cache().end_group(group),
                    Err(GroupError::InUse)
                );
                self.vm.set_group(space.id, GroupId::ROOT).unwrap();
            }
        }
        self.vm.page_cache().end_group(group).unwrap();
    }

    fn audit(&self) {
        self.vm.audit().unwrap();
        for &(group, limit) in &self.groups {
            let stats = self.vm.page_cache().group_stats(group).unwrap();
            // What a space that comes brings, and what is needed to give memory back.
            let more = if self.is_nested { 2 * SPACES as u64 } else { 0 };
            assert!(stats.usage <= limit + more, "{stats:?}");
            assert_eq!(stats.limits.max, limit);
        }
    }
}

/// Returns what happened.
fn run<R: ReverseMap>(options: &str, size: Size, seed: u64, steps: usize) -> Stats {
    let steps = number("VELLUM_STEPS").map_or(steps, |steps| steps as usize);
    let mut world = World::<R>::new(options, size, seed);
    for step in 0..steps {
        world.step();
        if step % 100 == 0 {
            world.audit();
        }
    }
    for space in 0..world.spaces.len() {
        for page in 0..size.pages {
            let expected = world.spaces[space].pages[page as usize];
            world.check(space, size.at + page, expected);
        }
    }
    world.audit();
    let stats = world.vm.stats();
    let reclaim = &stats.reclaim;
    assert!(
        reclaim.reclaimed > steps as u64 / 20,
        "{options}: {reclaim:?}"
    );
    assert!(world.refused < steps / 10, "{options}: {}", world.refused);
    while let Some(space) = world.spaces.pop() {
        world.vm.exit(space.id).unwrap();
    }
    world.vm.page_cache().release_object(world.file).unwrap();
    for &(group, _) in &world.groups {
        let left = world.vm.page_cache().group_stats(group).unwrap();
        assert_eq!((left.usage, left.tables, left.records), (0, 0, 0));
    }
    // Those within others first.
    while !world.groups.is_empty() {
        let ends = |&(group, _): &(GroupId, u64)| world.vm.page_cache().end_group(group).is_err();
        world.groups.retain(ends);
    }
    world.vm.audit().unwrap();
    stats
}

#[test]
fn what_groups_hold_is_as_it_was_written_with_every_reverse_mapping() {
    for text in variants("rmap") {
        let design = Design::parse(&text).unwrap();
        let options = std::format!("{text},reclaim=on,groups=on");
        crate::with_rmap!(design.rmap, R => run::<R>(&options, SMALL, 20, 4000));
    }
}

#[test]
fn what_groups_hold_in_superpages_is_as_it_was_written_with_every_reverse_mapping() {
    let mut counts = [0; 4];
    for (number, text) in variants("rmap").into_iter().enumerate() {
        let design = Design::parse(&text).unwrap();
        let (aging, superpage) = (AGINGS[number / 2 % 2], ["eager", "reserve"][number % 2]);
        let options =
            std::format!("{text},reclaim=on,groups=on,aging={aging},superpage={superpage}");
        let stats = crate::with_rmap!(design.rmap, R => run::<R>(&options, LARGE, 22, 1200));
        let (events, runs) = (stats.events, stats.frames.reservations);
        let more = [
            events.superpage_maps,
            events.superpage_demotions,
            runs.made,
            runs.broken,
        ];
        counts
            .iter_mut()
            .zip(more)
            .for_each(|(sum, more)| *sum += more);
    }
    let least = if cfg!(feature = "published") { 5 } else { 3 };
    assert!(
        counts.iter().all(|&count| count > least),
        "superpages mapped and split, runs set aside and broken: {counts:?}"
    );
}

#[test]
fn what_groups_hold_is_as_it_was_written_with_generations() {
    for seed in 0..3 {
        run::<ByRegions>("reclaim=on,groups=on,aging=generations", SMALL, seed, 2000);
    }
}

#[test]
fn what_groups_within_groups_hold_is_as_it_was_written_with_every_reverse_mapping() {
    for (number, text) in variants("rmap").into_iter().enumerate() {
        let design = Design::parse(&text).unwrap();
        let aging = AGINGS[number % 2];
        let options = std::format!("{text},reclaim=on,groups=all,aging={aging}");
        crate::with_rmap!(design.rmap, R => run::<R>(&options, SMALL, 21, 2500));
    }
}
