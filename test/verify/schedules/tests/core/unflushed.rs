//! Calls of a space beside somebody who has taken entries away without the space's lock and has not
//! flushed yet: one CPU truncates a file, or has a page leave for swap, and stands still when the
//! first entry is gone. A third CPU has the old translations in its TLB, and must not go on with
//! them once the call has returned.

use std::sync::{Arc, OnceLock};

use crate::world::{RW, World, at};
use vellum::addr::{Prot, Vpn};
use vellum::platform::CpuId;
use vellum::rmap::ReverseMap;
use vellum::space::{Advice, FaultError, MapRequest, Placement, RemapPlacement};
use vellum::{ObjectId, SpaceId};
use vellum_schedules::Step;

const ZERO: CpuId = CpuId(0);
/// Has the old translations.
const WARM: CpuId = CpuId(2);
/// Where pages are mapped.
const PAGE: u64 = 0x1000;
const ELSEWHERE: u64 = 0x3000;
const SUPERPAGE: u64 = 512;
/// Mapped in the same table for as long as that is to stay.
const BESIDE: u64 = PAGE + SUPERPAGE - 1;
const GONE: Result<u64, FaultError> = Err(FaultError::NoRegion);

scripted! {
    what_replaces_pages_that_are_cut_off_is_what_every_cpu_sees => replaced;
    unmapped_pages_that_are_cut_off_are_not_read => unmapped;
    unmapped_pages_are_not_read_whose_table_truncation_has_emptied => unmapped_with_table;
    unmapped_pages_are_not_read_of_which_one_is_cut_off => unmapped_in_part;
    unmapped_copies_that_are_cut_off_are_not_read => unmapped_copies;
    an_unmapped_superpage_that_is_cut_off_is_not_read => unmapped_superpage;
    pages_that_are_cut_off_are_not_read_where_they_moved_from => moved;
    protected_pages_that_are_cut_off_are_not_stored_to => protected;
    a_discarded_page_is_not_read_on_its_way_to_swap => discarded;
    a_protected_page_is_not_stored_to_on_its_way_to_swap => protected_swapped;
    what_is_stored_after_a_fork_is_not_the_childs_on_its_way_to_swap => forked;
}

/// A space of two CPUs, and an object that it maps.
struct Case<R: ReverseMap> {
    world: Arc<World<R>>,
    space: SpaceId,
    object: ObjectId,
    /// From `PAGE` on.
    pages: u64,
}

impl<R: ReverseMap> Case<R> {
    /// With `pages` pages of an object mapped, each used by the CPU that is to know it.
    fn of_object(pages: u64, shared: bool, design: &str) -> Self {
        Case::new(design, pages, |world, space, object| {
            world.object(space, object, 0, PAGE, pages, shared);
        })
    }

    /// With a private page that can go to swap.
    fn of_swap() -> Self {
        Case::new("", 1, |world, space, _| world.anonymous(space, PAGE, 1))
    }

    fn new(design: &str, pages: u64, map: impl FnOnce(&World<R>, SpaceId, ObjectId)) -> Self {
        let mut world = World::<R>::new(3, 256 + 2 * pages, design);
        world.swap_on(8);
        let (space, object) = world.alone(|| {
            let space = world.space();
            let object = world.memory(pages);
            map(&world, space, object);
            world.vm.space(space).share().unwrap();
            (space, object)
        });
        let case = Case {
            world: Arc::new(world),
            space,
            object,
            pages,
        };
        for page in 0..pages.min(2) {
            case.store(WARM, page, 1).unwrap();
        }
        case
    }

    /// Has the table of the pages stay.
    fn keep_table(self) -> Self {
        self.world.alone(|| {
            self.world.anonymous(self.space, BESIDE, 1);
            let beside = at(BESIDE, 0);
            self.world.store(ZERO, self.space, beside, 1).unwrap();
        });
        self
    }

    /// Outside of the schedule.
    fn store(&self, cpu: CpuId, page: u64, value: u64) -> Result<(), FaultError> {
        let world = &self.world;
        let store = || world.store(cpu, self.space, at(PAGE + page, 0), value);
        vellum_schedules::undisturbed(|| world.machine().run_on(cpu, store))
    }

    /// Runs `take` to where it has taken the first page away, and then `call`; `look` uses what
    /// the TLB of the CPU that knows the pages still has.
    fn run(
        self,
        take: impl Fn(&Self) + Sync,
        call: impl Fn(&Self) + Sync,
        look: impl Fn(&Self) + Sync,
    ) {
        let is_taken = {
            let (world, space) = (Arc::clone(&self.world), self.space);
            move || {
                vellum_schedules::undisturbed(|| {
                    world.vm.space(space).translate(Vpn(PAGE)).is_err()
                })
            }
        };
        let steps = vec![Step::until(0, is_taken), Step::end(1), Step::end(0)];
        let call = || {
            call(&self);
            look(&self);
        };
        self.world.run_by(steps, &[&|_| take(&self), &|_| call()]);
        self.world.finish(&[self.space], &[self.object]);
    }

    fn cut(&self) {
        self.world.vm.file(self.object).set_size(0).unwrap();
    }

    fn page_out(&self) {
        let advised = (self.world.vm)
            .space(self.space)
            .advise(Vpn(PAGE), 1, Advice::PageOut);
        advised.unwrap();
    }

    fn unmap(&self) {
        let unmapped = self.world.vm.space(self.space).unmap(Vpn(PAGE), self.pages);
        unmapped.unwrap();
    }

    fn protect(&self) {
        let protected =
            (self.world.vm)
                .space(self.space)
                .protect(Vpn(PAGE), self.pages, Prot::READ);
        protected.unwrap();
    }

    fn expect(&self, expected: Result<u64, FaultError>) {
        let seen = self.world.load(WARM, self.space, at(PAGE, 0));
        assert_eq!(seen, expected, "by an old translation");
    }

    fn expect_no_store(&self) {
        let stored = self.world.store(WARM, self.space, at(PAGE, 0), 2);
        let protected = Err(FaultError::Protection);
        assert_eq!(stored, protected, "by an old translation");
    }
}

fn replaced<R: ReverseMap>() {
    let case = Case::<R>::of_object(1, true, "").keep_table();
    let replace = |case: &Case<R>| {
        let request = MapRequest::anonymous(1, RW).at(Placement::Fixed(Vpn(PAGE)));
        case.world.vm.space(case.space).map(&request).unwrap();
    };
    case.run(Case::cut, replace, |case| case.expect(Ok(0)));
}

fn unmapped<R: ReverseMap>() {
    let case = Case::<R>::of_object(1, true, "").keep_table();
    case.run(Case::cut, Case::unmap, |case| case.expect(GONE));
}

fn unmapped_with_table<R: ReverseMap>() {
    let case = Case::<R>::of_object(1, true, "");
    case.run(Case::cut, Case::unmap, |case| case.expect(GONE));
}

fn unmapped_in_part<R: ReverseMap>() {
    let case = Case::<R>::of_object(2, true, "").keep_table();
    case.run(Case::cut, Case::unmap, |case| case.expect(GONE));
}

fn unmapped_copies<R: ReverseMap>() {
    let case = Case::<R>::of_object(1, false, "").keep_table();
    case.run(Case::cut, Case::unmap, |case| case.expect(GONE));
}

fn unmapped_superpage<R: ReverseMap>() {
    let case = Case::<R>::of_object(SUPERPAGE, true, "huge=always");
    assert_eq!(case.world.vm.stats().events.superpage_maps, 1);
    case.run(Case::cut, Case::unmap, |case| case.expect(GONE));
}

fn moved<R: ReverseMap>() {
    let case = Case::<R>::of_object(1, true, "").keep_table();
    let remap = |case: &Case<R>| {
        let to = RemapPlacement::Fixed(Vpn(ELSEWHERE));
        let moved = case.world.vm.space(case.space).remap(Vpn(PAGE), 1, 1, to);
        moved.unwrap();
    };
    case.run(Case::cut, remap, |case| case.expect(GONE));
}

fn protected<R: ReverseMap>() {
    let case = Case::<R>::of_object(1, true, "").keep_table();
    case.run(Case::cut, Case::protect, Case::expect_no_store);
}

fn discarded<R: ReverseMap>() {
    let discard = |case: &Case<R>| {
        let advised = (case.world.vm)
            .space(case.space)
            .advise(Vpn(PAGE), 1, Advice::DontNeed);
        advised.unwrap();
    };
    let case = Case::<R>::of_swap().keep_table();
    case.run(Case::page_out, discard, |case| case.expect(Ok(0)));
}

fn protected_swapped<R: ReverseMap>() {
    Case::<R>::of_swap().run(Case::page_out, Case::protect, Case::expect_no_store);
}

fn forked<R: ReverseMap>() {
    let case = Case::<R>::of_swap();
    let child = OnceLock::new();
    let page_out = |case: &Case<R>| {
        case.page_out();
        let child = *child.get().unwrap();
        assert_eq!(case.world.load(ZERO, child, at(PAGE, 0)), Ok(1));
        assert_eq!(case.world.vm.space(child).exit(), Ok(true));
    };
    let fork = |case: &Case<R>| {
        child
            .set(case.world.vm.space(case.space).fork().unwrap().id())
            .unwrap()
    };
    let store = |case: &Case<R>| {
        let stored = case.world.store(WARM, case.space, at(PAGE, 0), 2);
        stored.unwrap();
    };
    case.run(page_out, fork, store);
}
