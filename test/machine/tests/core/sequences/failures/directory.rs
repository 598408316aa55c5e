//! Memory for more nodes than a directory has room for.

use std::sync::Arc;

use vellum::addr::{Prot, Vpn};
use vellum::frame::{FailAt, Site};
use vellum::platform::CpuId;
use vellum::rmap::Partial;
use vellum::space::{MapError, MapRequest, Placement};
use vellum::table::{Format, X86_64};
use vellum::{Design, Vm};
use vellum_machine::mmu::walker;
use vellum_machine::{Machine, PatternStore};

use super::super::model::pristine;
use super::super::run::{MOST_PAGES, PLATFORMS, Platform, arena};

/// An arena's directory grows by a frame when its leaf is full: far into the
/// life of a space with very many regions.
#[test]
fn a_directory_that_cannot_grow_fails_one_mapping() {
    let arena = arena();
    let store = Arc::new(PatternStore::new(4096, pristine));
    // A smaller machine's share for regions ends before the first directory is full.
    let platform = Platform {
        pages: MOST_PAGES,
        ..PLATFORMS[0]
    };
    let machine = Machine::new(
        platform.config(walker(X86_64::NAME).unwrap(), store),
        Arc::clone(&arena),
    )
    .unwrap();
    let vm = Vm::<Machine, X86_64, Partial>::new(machine, Design::default()).unwrap();
    vm.platform().run_on(CpuId(0), || {
        let space = vm.create_space().unwrap().id();
        let request = |number: u64| {
            let prot = if number.is_multiple_of(2) {
                Prot::READ
            } else {
                Prot::READ_WRITE
            };
            MapRequest::anonymous(1, prot).at(Placement::FixedFree(Vpn(1000 + number)))
        };
        vm.space(space).map(&request(0)).unwrap();
        let site = Site::SlabDirectory;
        vm.memory().inject(Some(FailAt { site, after: 0 }));
        let failed = (1..)
            .find(|&number| vm.space(space).map(&request(number)).is_err())
            .unwrap();
        assert!(
            failed > 1000 && vm.memory().reached(site) == 1,
            "the first directory has room"
        );
        assert_eq!(vm.space(space).stats().unwrap().pages, failed);
        vm.audit().unwrap();
        vm.memory().inject(Some(FailAt {
            site: Site::SlabFrame,
            after: 0,
        }));
        assert_eq!(
            vm.space(space).map(&request(failed)),
            Err(MapError::OutOfMemory)
        );
        vm.memory().inject(None);
        vm.space(space).map(&request(failed)).unwrap();
        vm.audit().unwrap();
        assert_eq!(vm.space(space).exit(), Ok(true));
        vm.audit().unwrap();
    });
}
