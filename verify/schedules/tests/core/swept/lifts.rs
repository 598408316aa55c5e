//! What uses a page table beside its move from low to high memory.

use vellum::table::X86Pae;

use super::*;

/// Pages that one table of the lowest level maps.
const TABLE: u64 = 512;
const START: u64 = 8 * TABLE;
/// Where the next table but one begins.
const AWAY: u64 = START + 2 * TABLE;

swept! {
    a_store_beside_the_move_of_its_table_leaves_its_marks => store_marks;
    an_unmapping_of_a_region_beside_the_move_of_its_table_is_whole => unmap_region;
    a_truncation_beside_the_move_of_a_table_is_whole => truncate_file;
    pages_come_to_a_table_that_moves_and_loses_what_it_had => remap_pages;
}

type Pae<R> = World<R, X86Pae>;

/// A space with one private page, in which 1 is stored.
fn world<R: ReverseMap>() -> (Pae<R>, SpaceId) {
    let world = World::on(2, 320, "userpte=auto");
    let space = world.alone(|| {
        let space = world.vm.create_space().unwrap();
        assert!(world.vm.share_space(space));
        world.anonymous(space, START, 1);
        world.store(ZERO, space, at(START, 0), 1).unwrap();
        space
    });
    (world, space)
}

fn word<R: ReverseMap>(world: &Pae<R>, space: SpaceId, page: u64) -> Result<u64, FaultError> {
    world.alone(|| world.load(ZERO, space, at(page, 0)))
}

/// The processor marks an entry that no fault has marked: lost marks would have it do so
/// once more.
fn store_marks<R: ReverseMap>(preemption: &Preemption) {
    let (world, space) = world::<R>();
    world.alone(|| world.vm.advise(space, Vpn(START), 1, Advice::Free).unwrap());
    let store = |cpu| world.store(cpu, space, at(START, 0), 2).unwrap();
    let lift = |_| assert_eq!(world.vm.relieve_low(1), 1);
    world.run_preempted(preemption, [&store, &lift]);
    let marked = || world.machine().stats().dirty_set;
    let before = marked();
    world.alone(|| world.store(ZERO, space, at(START, 0), 3).unwrap());
    assert_eq!(marked(), before);
    world.finish(&[space], &[]);
}

fn unmap_region<R: ReverseMap>(preemption: &Preemption) {
    let (world, space) = world::<R>();
    let unmap = |_| world.vm.unmap(space, Vpn(START), 1).unwrap();
    let lift = |_| {
        world.vm.relieve_low(1);
    };
    world.run_preempted(preemption, [&unmap, &lift]);
    assert_eq!(word(&world, space, START), Err(FaultError::NoRegion));
    let shown = world.alone(|| world.vm.translate(space, Vpn(START)));
    assert_eq!(shown, None);
    world.finish(&[space], &[]);
}

/// A page of a file, mapped at a place.
fn file_at<R: ReverseMap>(world: &Pae<R>, space: SpaceId, page: u64) -> ObjectId {
    world.alone(|| {
        let file = world.vm.create_file(3, 1).unwrap();
        world.object(space, file, 0, page, 1, true);
        world.load(ZERO, space, at(page, 0)).unwrap();
        file
    })
}

fn truncate_file<R: ReverseMap>(preemption: &Preemption) {
    let (world, space) = world::<R>();
    let file = file_at(&world, space, START + 1);
    let truncate = |_| world.vm.truncate(file, 0).unwrap();
    let lift = |_| assert_eq!(world.vm.relieve_low(1), 1);
    world.run_preempted(preemption, [&truncate, &lift]);
    assert_eq!(word(&world, space, START + 1), Err(FaultError::PastEnd));
    assert_eq!(word(&world, space, START), Ok(1));
    world.finish(&[space], &[file]);
}

/// The table that the pages come to is kept for them, although the only page that it has is
/// taken away meanwhile.
fn remap_pages<R: ReverseMap>(preemption: &Preemption) {
    let (world, space) = world::<R>();
    let file = file_at(&world, space, AWAY + 1);
    let remap = |_| {
        let to = Placement::Fixed(Vpn(AWAY));
        world.vm.remap(space, Vpn(START), 1, 1, to).unwrap();
    };
    let others = |_| {
        world.vm.relieve_low(2);
        world.vm.truncate(file, 0).unwrap();
    };
    world.run_preempted(preemption, [&remap, &others]);
    assert_eq!(word(&world, space, AWAY), Ok(1));
    world.finish(&[space], &[file]);
}
