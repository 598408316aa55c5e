//! What is cut off a file that a store has is gone for good.

use crate::space::FileRequest;
use core::sync::atomic::Ordering;

use super::*;

/// Pages of the file, each full of 7, in memory and in the store.
const FULL: u64 = 4;
const LENGTH: u64 = FULL * 4096;

fn stored() -> World<X86_64> {
    let world = world::<X86_64>(true, u64::MAX);
    let bytes = [7; LENGTH as usize];
    assert_eq!(
        world.vm.page_cache().write_at(world.id, 0, &[&bytes]),
        Ok(bytes.len())
    );
    world.vm.file(world.id).sync().unwrap();
    assert_eq!(world.vm.platform().stored_pages(STORE), FULL);
    world
}

/// The file as its calls read it, and as its mappings show it at `places`.
fn shown(world: &World<X86_64>, places: &[u64]) -> Vec<Vec<u8>> {
    let mut all = vec![1; LENGTH as usize];
    let read = world.vm.page_cache().read_at(world.id, 0, &mut [&mut all]);
    assert_eq!(read, Ok(all.len()));
    let page = |page: u64| {
        let fault = world.vm.fault(world.space, page << 12, Access::Read);
        fault.unwrap();
        let (frame, _) = world.vm.translate(world.space, Vpn(page)).unwrap();
        world.vm.platform().peek(frame)
    };
    let mapped = |place: &u64| (*place..place + FULL).flat_map(page).copied().collect();
    [all].into_iter().chain(places.iter().map(mapped)).collect()
}

#[test]
fn what_was_cut_off_a_file_is_zero_when_the_file_grows() {
    const PRIVATE: u64 = PLACE + PAGES + 8;
    in_each_way(|| {
        for cut in [0, 100, 4096, 2 * 4096 + 4095] {
            // What is read first after the file has grown: the calls, or a mapping.
            for first in [&[][..], &[PLACE], &[PRIVATE]] {
                let world = stored();
                let request = MapRequest::object(world.id, 0, FULL, Prot::READ_WRITE);
                let request = request.at(Placement::Fixed(Vpn(PRIVATE)));
                world.vm.map(world.space, &request).unwrap();
                world.vm.page_cache().set_size(world.id, cut).unwrap();
                let left = cut.div_ceil(4096);
                assert_eq!(world.vm.platform().stored_pages(STORE), left, "at {cut}");
                world.vm.page_cache().set_size(world.id, LENGTH).unwrap();
                for place in first {
                    let place = *place + FULL - 1;
                    let fault = world.vm.fault(world.space, place << 12, Access::Read);
                    fault.unwrap();
                }
                let mut wanted = vec![0; LENGTH as usize];
                wanted[..cut as usize].fill(7);
                for bytes in shown(&world, &[PLACE, PRIVATE]) {
                    assert!(bytes == wanted, "what was cut off at {cut} came back");
                }
                world.vm.audit().unwrap();
                // What a manager finds that comes after.
                world.vm.exit(world.space).unwrap();
                world.vm.page_cache().release_object(world.id).unwrap();
                let again = world
                    .vm
                    .page_cache()
                    .begin_file(&FileRequest::stored(STORE, LENGTH))
                    .unwrap();
                let mut bytes = vec![1; LENGTH as usize];
                world
                    .vm
                    .page_cache()
                    .read_at(again, 0, &mut [&mut bytes])
                    .unwrap();
                assert!(bytes == wanted, "what was cut off at {cut} was kept");
            }
        }
    });
}

/// A write past the end makes it grow as well.
#[test]
fn what_was_cut_off_a_file_is_zero_when_a_write_makes_it_grow() {
    in_each_way(|| {
        let world = stored();
        world.vm.page_cache().set_size(world.id, 4097).unwrap();
        let end = LENGTH - 1;
        assert_eq!(
            world.vm.page_cache().write_at(world.id, end, &[&[9]]),
            Ok(1)
        );
        let mut wanted = vec![0; LENGTH as usize];
        wanted[..4097].fill(7);
        wanted[end as usize] = 9;
        for bytes in shown(&world, &[PLACE]) {
            assert!(bytes == wanted);
        }
        world.finish();
    });
}

#[test]
fn a_cut_that_the_store_refused_is_made_by_the_next_call() {
    let world = stored();
    let breaks = |is_broken| (world.vm.platform().broken_store).store(is_broken, Ordering::Relaxed);
    breaks(true);
    assert_eq!(
        world.vm.page_cache().set_size(world.id, 0),
        Err(FileError::Io)
    );
    assert_eq!(world.vm.page_cache().size(world.id), Some(0));
    breaks(false);
    world.vm.page_cache().set_size(world.id, 0).unwrap();
    world.vm.page_cache().set_size(world.id, LENGTH).unwrap();
    for bytes in shown(&world, &[PLACE]) {
        assert!(bytes == vec![0; LENGTH as usize]);
    }
    world.finish();
}
