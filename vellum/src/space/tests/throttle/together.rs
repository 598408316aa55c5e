//! Dirty pages of several files, and of what groups are charged for.

use super::*;
use crate::SpaceId;
use crate::platform::GroupId;
use crate::space::FileRequest;

/// A manager of files, none of which is held back by its store.
struct Files {
    world: World,
    ids: Vec<ObjectId>,
    /// A space of the root.
    home: SpaceId,
    /// Pages of each.
    written: Vec<u64>,
}

impl Files {
    fn new(options: &str, count: u64) -> Files {
        Files::on(1, options, count)
    }

    fn on(cpus: usize, options: &str, count: u64) -> Files {
        let world = world_on(cpus, options, u64::MAX);
        let more = (1..count).map(|file| {
            world
                .vm
                .page_cache()
                .begin_file(&FileRequest::stored(STORE + file, 0))
                .unwrap()
        });
        let ids: Vec<_> = core::iter::once(world.id).chain(more).collect();
        Files {
            written: vec![0; ids.len()],
            home: world.vm.begin_space().unwrap(),
            world,
            ids,
        }
    }

    /// Pages of all files that may be dirty.
    fn limit(&self) -> u64 {
        self.world.vm.stats().frames.total / 5
    }

    /// Appends a call's pages to a file. Returns how many its store was given.
    fn append(&mut self, file: usize) -> u64 {
        let data = vec![7; (CALL * PAGE) as usize];
        let place = self.written[file] * PAGE;
        let written = self
            .world
            .vm
            .page_cache()
            .write_at(self.ids[file], place, &[&data]);
        assert_eq!(written, Ok(data.len()));
        self.written[file] += CALL;
        let given = self.world.given();
        assert!(given <= most(CALL), "a call waited for {given} pages");
        given
    }

    fn dirty_of(&self, file: usize) -> u64 {
        self.world
            .vm
            .page_cache()
            .object_stats(self.ids[file])
            .unwrap()
            .dirty
    }

    fn dirty(&self) -> u64 {
        (0..self.ids.len()).map(|file| self.dirty_of(file)).sum()
    }

    /// Loads a space of a new group.
    fn in_group(&self, limit: u64) -> (GroupId, SpaceId) {
        let group = self.world.vm.page_cache().new_group(limit).unwrap();
        let space = self.world.vm.begin_space().unwrap();
        self.world.vm.set_group(space, group).unwrap();
        self.world.vm.load(space).unwrap();
        (group, space)
    }

    /// The only space of a group ends, and the group.
    fn end(&self, group: GroupId, space: SpaceId) {
        self.world.vm.load(self.home).unwrap();
        self.world.vm.exit(space).unwrap();
        self.world.vm.page_cache().end_group(group).unwrap();
        self.world.vm.audit().unwrap();
    }

    fn dirty_in(&self, group: GroupId) -> u64 {
        self.world.vm.audit().unwrap();
        self.world.vm.page_cache().group_stats(group).unwrap().dirty
    }

    fn finish(self) {
        for &id in &self.ids {
            self.world.vm.page_cache().release_object(id).unwrap();
        }
        assert_eq!(self.world.vm.audit().unwrap().objects, 0);
    }
}

#[test]
fn files_together_have_no_more_than_a_fifth_of_memory_dirty() {
    for options in crate::testing::built_in([
        "reclaim=on",
        "reclaim=on,fileio=pages",
        "reclaim=on,framelists=linked",
    ]) {
        let mut files = Files::new(options, 8);
        let limit = files.limit();
        let mut paid = 0;
        for call in 0..200 {
            paid += files.append(call % 8);
            assert!(files.dirty() <= limit, "{} after {call}", files.dirty());
        }
        assert!(files.dirty() > limit / 2, "{options}: {}", files.dirty());
        assert_eq!(paid + files.dirty(), 200 * CALL, "{options}");
        assert_eq!(files.world.throttled(), paid);
        files.world.vm.audit().unwrap();
        files.finish();
    }
}

#[test]
fn what_every_cpu_has_made_dirty_counts() {
    const CPUS: usize = 24;
    let mut files = Files::on(CPUS, "reclaim=on,groups=on", 4);
    let limit = files.limit();
    let (group, _) = files.in_group(2000);
    for call in 0..100 {
        run_on((call % CPUS) as u16);
        files.append(call % 4);
        assert!(files.dirty() <= limit, "{} after {call}", files.dirty());
    }
    assert!(files.dirty() > limit / 2, "{}", files.dirty());
    assert!(files.dirty_in(group) > 0);
    run_on(0);
    files.finish();
}

#[test]
fn a_writer_pays_for_what_it_makes_dirty_and_not_for_files_that_nobody_writes_to() {
    let mut files = Files::new("reclaim=on", 2);
    let limit = files.limit();
    // While nobody knows how fast stores are, nobody is throttled.
    let vm = Arc::clone(&files.world.vm);
    let set_speed = |pages| vm.platform().write_speed.store(pages, Ordering::Relaxed);
    set_speed(0);
    while files.dirty_of(0) <= limit + 100 {
        assert_eq!(files.append(0), 0);
    }
    set_speed(u64::MAX);
    let others = files.dirty_of(0);
    for call in 0..100 {
        files.append(1);
        let own = files.dirty_of(1);
        assert_eq!(
            own, 0,
            "call {call}: all that it has made dirty, and no more"
        );
    }
    assert_eq!(files.dirty_of(0), others);
    // Who writes there makes up for it.
    while files.dirty() > limit {
        assert!(files.append(0) >= 2 * CALL);
    }
    files.finish();
}

#[test]
fn what_is_dirty_counts_where_it_becomes_clean_in_whatever_way() {
    let mut files = Files::new("reclaim=on", 3);
    let limit = files.limit();
    let half = limit / 2 / CALL;
    for round in 0..4 {
        // Up to a half nobody pays, if what was dirty before is counted no more.
        for call in 0..half {
            assert_eq!(files.append(call as usize % 3), 0, "round {round}");
        }
        let vm = Arc::clone(&files.world.vm);
        for (file, &id) in files.ids.iter().enumerate() {
            match (round + file) % 3 {
                0 => assert!(vm.file(id).sync().unwrap() > 0),
                1 => vm.page_cache().set_size(id, 0).unwrap(),
                _ => while vm.page_cache().write_back(id, 100).unwrap() > 0 {},
            }
        }
        files.world.given();
        assert_eq!(files.dirty(), 0);
        vm.audit().unwrap();
    }
    files.finish();
}

#[test]
fn a_group_has_no_more_than_a_fifth_of_its_limit_dirty() {
    let mut files = Files::new("reclaim=on,groups=on", 3);
    let (group, inside) = files.in_group(1000);
    let mut most = 0;
    for call in 0..60 {
        files.append(call % 2);
        most = most.max(files.dirty_in(group));
    }
    assert!((100..=200).contains(&most), "{most}");
    let dirty = files.dirty_in(group);
    // Others do not pay for it.
    files.world.vm.load(files.home).unwrap();
    for _ in 0..10 {
        assert_eq!(files.append(2), 0);
    }
    assert_eq!(files.dirty_in(group), dirty);
    assert_eq!(files.dirty(), dirty + 10 * CALL);
    // What may be dirty changes with the limit.
    files
        .world
        .vm
        .page_cache()
        .set_group_limit(group, 2000)
        .unwrap();
    files.world.vm.load(inside).unwrap();
    while files.dirty_in(group) + CALL <= 200 {
        assert_eq!(files.append(0), 0);
    }
    assert!(files.dirty_in(group) > 190);
    files.finish();
}

#[test]
fn a_group_without_a_limit_has_what_all_may_have() {
    let mut files = Files::new("reclaim=on,groups=on", 2);
    let limit = files.limit();
    let (group, _) = files.in_group(u64::MAX);
    let mut most = 0;
    for call in 0..150 {
        files.append(call % 2);
        most = most.max(files.dirty_in(group));
    }
    assert!((limit / 2..=limit).contains(&most), "{most} of {limit}");
    files.finish();
}

#[test]
fn dirty_pages_of_a_group_that_has_ended_are_no_others() {
    let mut files = Files::new("reclaim=on,groups=on", 2);
    for round in 0..3 {
        let (group, space) = files.in_group(1000);
        assert_eq!(files.dirty_in(group), 0, "round {round}");
        let before = files.dirty();
        for _ in 0..5 {
            files.append(round % 2);
        }
        assert_eq!(files.dirty_in(group), files.dirty() - before);
        files.end(group, space);
        if round == 1 {
            // Those of the first are written when another has its place.
            let (next, space) = files.in_group(1000);
            files.append(1);
            assert!(files.world.vm.file(files.ids[0]).sync().unwrap() > 0);
            files.world.given();
            assert_eq!(files.dirty_in(next), CALL);
            files.end(next, space);
        }
    }
    files.finish();
}
