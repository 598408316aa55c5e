//! Frames that were taken for nodes of page caches, of trees of regions and of reverse mapping
//! come back when the nodes are gone.

use super::*;
use crate::rmap::ReverseMap;
use crate::space::FileRequest;

/// Frames of the manager's nodes.
fn node_frames<R: ReverseMap>(vm: &TestVm<R>) -> u64 {
    vm.audit().unwrap().frames.of(Kind::Slab)
}

/// A file whose pages lie so far apart that each has a node of its own.
fn many_radix_nodes<R: ReverseMap>(vm: &TestVm<R>, pages: u64) -> ObjectId {
    let size = pages * 64 * 4096;
    let file = vm
        .page_cache()
        .begin_file(&FileRequest::shared_memory(size))
        .unwrap();
    for page in 0..pages {
        let written = vm.page_cache().write_at(file, page * 64 * 4096, &[b"x"]);
        assert_eq!(written, Ok(1));
    }
    file
}

/// Regions two pages apart, one page each.
fn many_regions<R: ReverseMap>(vm: &TestVm<R>, space: SpaceId, regions: u64) {
    for region in 0..regions {
        map(vm, space, 16 + 2 * region, MapRequest::anonymous(1, RW));
    }
}

fn relieve<R: ReverseMap>(vm: &TestVm<R>) {
    for _ in 0..4 {
        vm.relieve();
    }
}

#[test]
fn a_peak_of_nodes_gives_its_frames_back() {
    let vm = vm_with::<ByRegions>("", 16_384);
    let space = vm.begin_space().unwrap();
    many_regions(&vm, space, 10);
    let before = (node_frames(&vm), vm.stats().memory);
    let other = vm.begin_space().unwrap();
    many_regions(&vm, other, 6000);
    let file = many_radix_nodes(&vm, 3000);
    let peak = vm.stats().memory;
    assert!(peak.region_nodes.frames > before.1.region_nodes.frames + 50);
    assert!(peak.radix_nodes.frames > before.1.radix_nodes.frames + 200);
    vm.page_cache().release_object(file).unwrap();
    vm.exit(other).unwrap();
    let gone = vm.stats().memory;
    assert_eq!(
        gone.region_nodes.frames, peak.region_nodes.frames,
        "nobody asked"
    );
    let around = vm.pin();
    relieve(&vm);
    assert_eq!(
        vm.stats().memory.radix_nodes.returned,
        0,
        "beside a caller's pin"
    );
    drop(around);
    relieve(&vm);
    let after = vm.stats().memory;
    // Two frames are the directory's, and one may hold slots of another CPU's.
    assert!(after.radix_nodes.frames <= 3, "{:?}", after.radix_nodes);
    assert_eq!(after.radix_nodes.peak_bytes, peak.radix_nodes.bytes);
    assert!(after.region_nodes.frames <= before.1.region_nodes.frames + 1);
    assert_eq!(after.regions.frames, gone.regions.frames, "regions stay");
    assert_eq!(regions(&vm, space).len(), 10);
    // A peak as high as before needs no more numbers.
    let again = many_radix_nodes(&vm, 3000);
    assert_eq!(
        vm.stats().memory.radix_nodes.frames,
        peak.radix_nodes.frames
    );
    assert_eq!(vm.stats().memory.radix_nodes.peak, peak.radix_nodes.peak);
    vm.page_cache().release_object(again).unwrap();
    vm.audit().unwrap();
}

/// Private pages that a space gets until there is no memory.
fn pages_until_full<R: ReverseMap>(vm: &TestVm<R>) -> u64 {
    let space = vm.begin_space().unwrap();
    map(vm, space, 1 << 20, MapRequest::anonymous(1 << 16, RW));
    let mut pages = 0;
    while vm
        .fault(space, ((1 << 20) + pages) << 12, Access::Write)
        .is_ok()
    {
        pages += 1;
    }
    vm.audit().unwrap();
    vm.exit(space).unwrap();
    pages
}

#[test]
fn whoever_runs_out_of_memory_gets_the_frames_of_nodes_that_are_gone() {
    for design in ["", "reclaim=off"] {
        let vm = vm_with::<ByRegions>(design, 2048);
        let before = pages_until_full(&vm);
        let file = many_radix_nodes(&vm, 600);
        let nodes = vm.stats().memory.radix_nodes.frames;
        assert!(nodes > 40, "{nodes}");
        vm.page_cache().release_object(file).unwrap();
        let after = pages_until_full(&vm);
        assert!(
            after + 20 >= before,
            "{design}: {before} pages before, {after} after"
        );
        assert!(vm.stats().memory.radix_nodes.returned > 20);
    }
}

#[cfg(feature = "published")]
#[test]
fn nodes_of_reverse_mapping_give_their_frames_back() {
    fn check<R: ReverseMap>(design: &str) {
        let vm = vm_with::<R>(design, 8192);
        let space = vm.begin_space().unwrap();
        map(&vm, space, 16, MapRequest::anonymous(2000, RW));
        for page in 0..2000 {
            touch(&vm, space, 16 + page, Access::Write);
        }
        let children: Vec<SpaceId> = (0..2).map(|_| vm.fork(space).unwrap()).collect();
        let peak = node_frames(&vm);
        for child in children {
            vm.exit(child).unwrap();
        }
        vm.exit(space).unwrap();
        assert_eq!(node_frames(&vm), peak, "{design}: nobody asked");
        relieve(&vm);
        let left = node_frames(&vm);
        assert!(
            left + 10 < peak,
            "{design}: {peak} at the peak, {left} left"
        );
        vm.audit().unwrap();
    }
    check::<crate::rmap::Chains>("rmap=chains");
    check::<crate::rmap::Pv>("rmap=pv,pvalloc=slab");
}
