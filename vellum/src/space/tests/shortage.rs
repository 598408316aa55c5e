//! Calls that run out of memory while they cut regions: nothing is left behind, and
//! everything goes on as it was.

use super::*;
use crate::frame::{FailAt, Site};
use crate::rmap::{AnonVmaChain, ReverseMap};

/// The page that is cut out of a region of seven.
const PAGE: u64 = 1003;

/// Lets the first allocation at `site` fail that `change` makes, then the second, and
/// so on until it makes no more.
fn each_fails<R: ReverseMap>(
    site: Site,
    change: impl Fn(&TestVm<R>, SpaceId) -> Result<(), MapError>,
) {
    for after in 0.. {
        let vm = vm_with::<R>("", 1024);
        let space = vm.create_space().unwrap();
        map(&vm, space, PAGE - 3, MapRequest::anonymous(7, RW));
        touch(&vm, space, PAGE - 3, Access::Write);
        vm.memory().inject(Some(FailAt { site, after }));
        let result = change(&vm, space);
        vm.memory().inject(None);
        vm.audit().unwrap();
        if result.is_ok() {
            assert!(after > 0, "nothing is allocated");
            return;
        }
        assert_eq!(result, Err(MapError::OutOfMemory));
        for page in PAGE - 1..PAGE + 2 {
            touch(&vm, space, page, Access::Write);
        }
        assert_eq!(change(&vm, space), Ok(()));
        vm.exit(space).unwrap();
        vm.audit().unwrap();
    }
}

fn protect<R: ReverseMap>(vm: &TestVm<R>, space: SpaceId) -> Result<(), MapError> {
    vm.protect(space, Vpn(PAGE), 1, Prot::READ)
}

#[test]
fn a_region_that_cannot_be_cut_is_as_it_was() {
    each_fails::<Partial>(Site::Region, protect);
    each_fails::<AnonVmaChain>(Site::AnonVmaChain, protect);
}

#[test]
fn a_mapping_that_cannot_take_anothers_place_leaves_it_there() {
    each_fails::<Partial>(Site::Region, |vm, space| {
        let request = MapRequest::anonymous(1, Prot::READ.union(Prot::EXECUTE));
        let placed = request.at(Placement::Fixed(Vpn(PAGE)));
        vm.map(space, &placed).map(|_| ())
    });
}
