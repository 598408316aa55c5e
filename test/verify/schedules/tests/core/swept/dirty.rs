//! A migration that copies what dirty tracking reports, while other tasks store, or clear marks and
//! entries: when it ends, the copy is what was stored.

use std::sync::Mutex;

use super::*;
use vellum::addr::PageRange;
use vellum::space::TakeDirty;

swept! {
    a_copy_is_what_was_stored_beside_the_calls => marked;
    a_copy_is_what_was_stored_beside_calls_that_protect => protected;
    a_copy_is_what_was_stored_though_pages_went_to_swap => swapped;
    a_copy_of_a_file_is_what_was_stored_though_it_was_written_back => written_back;
    a_copy_of_a_file_is_what_was_stored_though_it_left_memory => left;
    a_copy_of_a_file_is_what_was_stored_though_its_region_was_cut => cut;
    a_copy_of_a_file_is_what_was_stored_though_its_regions_became_one => merged;
}

const PAGES: u64 = 2;

/// A copy of the pages from one on, a word of each.
struct Copied(Mutex<Vec<u64>>);

impl Copied {
    fn new() -> Copied {
        Copied(Mutex::new(vec![0; PAGES as usize]))
    }

    /// Copies what was written.
    fn go_on<R: ReverseMap>(
        &self,
        world: &World<R>,
        (cpu, space): (CpuId, SpaceId),
        first: u64,
        how: TakeDirty,
    ) {
        let mut told = Vec::new();
        let range = PageRange::new(Vpn(first), PAGES);
        let taken = (world.vm.space(space)).take_dirty(range, how, |pages| told.push(pages));
        taken.unwrap();
        for page in told.iter().flat_map(|pages| pages.start.0..pages.end.0) {
            let word = world.load(cpu, space, at(page, 0)).unwrap();
            self.0.lock().unwrap()[(page - first) as usize] = word;
        }
    }

    /// Copies what is left, which nobody stores to any more, and compares.
    fn finish<R: ReverseMap>(&self, world: &World<R>, space: SpaceId, first: u64) {
        world.alone(|| self.go_on(world, (ZERO, space), first, TakeDirty::default()));
        for page in 0..PAGES {
            let word = load(world, space, first + page).unwrap();
            assert_eq!(self.0.lock().unwrap()[page as usize], word, "page {page}");
        }
        world.alone(|| world.vm.audit().unwrap());
    }
}

/// A space of two tasks, with private memory that a migration has copied once.
fn tracked<R: ReverseMap>() -> (World<R>, SpaceId, Copied) {
    let mut world = World::<R>::new(2, 300, "");
    world.swap_on(8);
    let copied = Copied::new();
    let space = world.alone(|| {
        let space = world.space();
        world.vm.space(space).share().unwrap();
        world.anonymous(space, PRIVATE, PAGES);
        world.store(ZERO, space, at(PRIVATE, 0), 1).unwrap();
        copied.go_on(&world, (ZERO, space), PRIVATE, TakeDirty::default());
        space
    });
    (world, space, copied)
}

fn stores<R: ReverseMap>(world: &World<R>, cpu: CpuId, space: SpaceId, first: u64) {
    for value in 2..5 {
        let page = first + value % PAGES;
        world.store(cpu, space, at(page, 0), value).unwrap();
    }
}

fn beside<R: ReverseMap>(preemption: &Preemption, how: TakeDirty) {
    let (world, space, copied) = tracked::<R>();
    let store = |cpu| stores(&world, cpu, space, PRIVATE);
    let migrate = |cpu| copied.go_on(&world, (cpu, space), PRIVATE, how);
    world.run_preempted(preemption, [&store, &migrate]);
    copied.finish(&world, space, PRIVATE);
    world.finish_swap(&[space], &[]);
}

fn marked<R: ReverseMap>(preemption: &Preemption) {
    beside::<R>(preemption, TakeDirty::default());
}

fn protected<R: ReverseMap>(preemption: &Preemption) {
    let how = TakeDirty {
        write_protects: true,
        splits: false,
    };
    beside::<R>(preemption, how);
}

fn page_out<R: ReverseMap>(world: &World<R>, space: SpaceId, first: u64) {
    let advised = (world.vm.space(space)).advise(Vpn(first), PAGES, Advice::PageOut);
    advised.unwrap();
}

fn swapped<R: ReverseMap>(preemption: &Preemption) {
    let (world, space, copied) = tracked::<R>();
    world.alone(|| stores(&world, ZERO, space, PRIVATE));
    let out = |_| page_out(&world, space, PRIVATE);
    let migrate = |cpu| copied.go_on(&world, (cpu, space), PRIVATE, TakeDirty::default());
    world.run_preempted(preemption, [&out, &migrate]);
    copied.finish(&world, space, PRIVATE);
    world.finish_swap(&[space], &[]);
}

/// A file that a migration has copied once, and that was stored to since then.
fn stored<R: ReverseMap>() -> (Shared<R>, Copied) {
    let shared = Shared::<R>::new(true, "");
    let (world, space) = (&shared.world, shared.space);
    let copied = Copied::new();
    world.alone(|| {
        copied.go_on(world, (ZERO, space), SECOND, TakeDirty::default());
        stores(world, ZERO, space, SECOND);
    });
    (shared, copied)
}

fn written_back<R: ReverseMap>(preemption: &Preemption) {
    let (shared, copied) = stored::<R>();
    let (world, space) = (&shared.world, shared.space);
    let sync = |_| assert_eq!(world.vm.file(shared.object).sync(), Ok(PAGES));
    let migrate = |cpu| copied.go_on(world, (cpu, space), SECOND, TakeDirty::default());
    world.run_preempted(preemption, [&sync, &migrate]);
    copied.finish(world, space, SECOND);
    shared.finish();
}

fn left<R: ReverseMap>(preemption: &Preemption) {
    let (shared, copied) = stored::<R>();
    let (world, space) = (&shared.world, shared.space);
    let out = |_| page_out(world, space, SECOND);
    let migrate = |cpu| copied.go_on(world, (cpu, space), SECOND, TakeDirty::default());
    world.run_preempted(preemption, [&out, &migrate]);
    copied.finish(world, space, SECOND);
    shared.finish();
}

/// The rights of the first page, before its pages leave memory and meanwhile.
fn change_regions<R: ReverseMap>(preemption: &Preemption, [before, meanwhile]: [Prot; 2]) {
    let (shared, copied) = stored::<R>();
    let (world, space) = (&shared.world, shared.space);
    let protect = |prot| world.vm.space(space).protect(Vpn(SECOND), 1, prot).unwrap();
    world.alone(|| protect(before));
    let out = |_| page_out(world, space, SECOND);
    let change = |_| protect(meanwhile);
    world.run_preempted(preemption, [&out, &change]);
    copied.finish(world, space, SECOND);
    shared.finish();
}

fn cut<R: ReverseMap>(preemption: &Preemption) {
    change_regions::<R>(preemption, [RW, Prot::READ]);
}

fn merged<R: ReverseMap>(preemption: &Preemption) {
    change_regions::<R>(preemption, [Prot::READ, RW]);
}
