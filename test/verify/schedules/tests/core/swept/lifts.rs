//! What uses a page table beside its move from low to high memory.

use std::sync::Arc;

use vellum::space::RemapPlacement;
use vellum::table::X86Pae;

use super::*;
use crate::rmap::finds;

/// Pages that one table of the lowest level maps.
const TABLE: u64 = 512;
const START: u64 = 8 * TABLE;
/// Where the next table but one begins.
const AWAY: u64 = START + 2 * TABLE;

swept! {
    a_store_beside_the_move_of_its_table_leaves_its_marks => store_marks;
    an_unmapping_of_a_region_beside_the_move_of_its_table_is_whole => unmap_region;
    a_truncation_beside_the_move_of_a_table_is_whole => truncate_file;
}

/// Entries are looked for by walking, once.
#[test]
fn a_mapping_is_found_beside_the_move_of_its_table() {
    vellum_schedules::sweep_task(0, 0.., find_page::<vellum::rmap::AnonVma>);
}

#[test]
fn pages_come_to_a_table_that_moves_and_loses_what_it_had() {
    vellum_schedules::run_scripted(remap_pages::<vellum::rmap::Family>);
}

type Pae<R> = World<R, X86Pae>;

/// A space with one private page, in which 1 is stored.
fn world<R: ReverseMap>() -> (Pae<R>, SpaceId) {
    let world = World::on(3, 320, "userpte=auto");
    let space = world.alone(|| {
        let space = world.space();
        world.vm.space(space).share().unwrap();
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
    world.alone(|| {
        world
            .vm
            .space(space)
            .advise(Vpn(START), 1, Advice::Free)
            .unwrap()
    });
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
    let unmap = |_| world.vm.space(space).unmap(Vpn(START), 1).unwrap();
    let lift = |_| {
        world.vm.relieve_low(1);
    };
    world.run_preempted(preemption, [&unmap, &lift]);
    assert_eq!(word(&world, space, START), Err(FaultError::NoRegion));
    let shown = world.alone(|| world.vm.space(space).translate(Vpn(START)));
    assert_eq!(shown, Err(MapError::NotMapped));
    world.finish(&[space], &[]);
}

/// A page of a file, mapped at a place.
fn file_at<R: ReverseMap>(world: &Pae<R>, space: SpaceId, page: u64) -> ObjectId {
    world.alone(|| {
        let file = world.stored(3, 1);
        world.object(space, file, 0, page, 1, true);
        world.load(ZERO, space, at(page, 0)).unwrap();
        file
    })
}

fn truncate_file<R: ReverseMap>(preemption: &Preemption) {
    let (world, space) = world::<R>();
    let file = file_at(&world, space, START + 1);
    let truncate = |_| world.vm.file(file).set_size(0).unwrap();
    let lift = |_| assert_eq!(world.vm.relieve_low(1), 1);
    world.run_preempted(preemption, [&truncate, &lift]);
    assert_eq!(word(&world, space, START + 1), Err(FaultError::PastEnd));
    assert_eq!(word(&world, space, START), Ok(1));
    world.finish(&[space], &[file]);
}

/// The table that the pages come to is kept for them, although the only page that it still has
/// when its place is free is taken away meanwhile.
fn remap_pages<R: ReverseMap>() {
    let (world, space) = world::<R>();
    let file = file_at(&world, space, AWAY + 1);
    world.alone(|| {
        world.anonymous(space, AWAY, 1);
        world.store(ZERO, space, at(AWAY, 0), 2).unwrap();
    });
    let world = Arc::new(world);
    // A look at an entry would wait for the holder of the table.
    let (frame, _) = world.alone(|| world.vm.space(space).translate(Vpn(AWAY)).unwrap());
    let is_free = {
        let world = Arc::clone(&world);
        let counts = move || world.vm.memory().frame(frame).counts();
        move || vellum_schedules::undisturbed(&counts).maps() == 0
    };
    let has_moved = {
        let (world, first) = (Arc::clone(&world), Cell::new(None));
        move || {
            let flushes = world.machine().stats().flush_requests;
            let before = first.get().unwrap_or(flushes);
            first.set(Some(before));
            flushes > before
        }
    };
    let remap = |_| {
        let to = RemapPlacement::Fixed(Vpn(AWAY));
        world.vm.space(space).remap(Vpn(START), 1, 1, to).unwrap();
    };
    let lift = |_| {
        world.vm.relieve_low(2);
    };
    let truncate = |_| world.vm.file(file).set_size(0).unwrap();
    // A call that has moved tables waits for all other CPUs before it ends.
    let steps = vec![
        Step::until(0, is_free),
        Step::until(1, has_moved),
        Step::end(2),
        Step::end(0),
        Step::end(1),
    ];
    world.run_by(steps, &[&remap, &lift, &truncate]);
    assert_eq!(word(&world, space, AWAY), Ok(1));
    world.finish(&[space], &[file]);
}

fn find_page<R: ReverseMap>(preemption: &Preemption) {
    let (world, space) = world::<R>();
    let frame = world.alone(|| world.vm.space(space).translate(Vpn(START)).unwrap().0);
    let find = |_| {
        let (found, hits) = finds(&world, frame, space, START);
        assert!(found, "missed, {hits} others found");
    };
    let lift = |_| {
        world.vm.relieve_low(1);
    };
    world.run_preempted(preemption, [&find, &lift]);
    world.finish(&[space], &[]);
}
