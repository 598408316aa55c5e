//! Each operation that takes something away, with another CPU that holds the
//! old translation: it must not get away with using it (invariant 6).

use vellum::addr::{Access, Prot, Vpn};
use vellum::platform::CpuId;
use vellum::rmap::Chains;
use vellum::space::{Advice, FaultError, FileRequest, MapRequest, Placement, RemapPlacement};
use vellum::table::X86_64;
use vellum::{Design, ObjectId, SpaceId, Vm};
use vellum_machine::{Arena, Machine, MachineConfig};

use crate::support;

const RW: Prot = Prot::READ_WRITE;

struct Setup {
    vm: Vm<Machine, X86_64, Chains>,
    space: SpaceId,
}

fn setup() -> Setup {
    let mut config = MachineConfig::new(8 << 20);
    config.cpus = 2;
    let arena = Arena::new(config.arena_bytes().unwrap()).unwrap();
    let machine = Machine::new(config, arena).unwrap();
    let design = Design::parse("rmap=chains,faultaround=1").unwrap();
    let vm = Vm::new(machine, design).unwrap();
    let space = vm
        .platform()
        .run_on(CpuId(0), || vm.create_space().unwrap().id());
    Setup { vm, space }
}

impl Setup {
    /// Changes are made by CPU 0.
    fn on<T>(&self, work: impl FnOnce(&Vm<Machine, X86_64, Chains>) -> T) -> T {
        self.vm.platform().run_on(CpuId(0), || work(&self.vm))
    }

    fn map(&self, page: u64, request: MapRequest) {
        let request = request.at(Placement::Fixed(Vpn(page)));
        self.on(|vm| vm.space(self.space).map(&request).unwrap());
    }

    fn map_file(&self, page: u64) -> ObjectId {
        let file = self.on(|vm| {
            vm.create_file(FileRequest::stored(1, 8 << 12))
                .unwrap()
                .id()
        });
        self.map(page, MapRequest::object(file, 0, 8, RW).shared());
        file
    }

    fn access(
        &self,
        cpu: u16,
        id: SpaceId,
        page: u64,
        access: Access,
        value: u64,
    ) -> Result<u64, FaultError> {
        self.vm.platform().run_on(CpuId(cpu), || {
            support::access(&self.vm, CpuId(cpu), id, page << 12, access, value)
                .map_err(support::refused)
        })
    }

    /// Accesses of a program on CPU 1.
    fn load(&self, page: u64) -> Result<u64, FaultError> {
        self.access(1, self.space, page, Access::Read, 0)
    }

    fn store(&self, page: u64, value: u64) -> Result<u64, FaultError> {
        self.access(1, self.space, page, Access::Write, value)
    }
}

#[test]
fn moved_pages_are_gone_from_where_they_were() {
    let setup = setup();
    setup.map(1000, MapRequest::anonymous(3, RW));
    setup.map(1010, MapRequest::anonymous(1, RW));
    setup.store(1010, 4).unwrap();
    setup.store(1001, 5).unwrap();
    setup.store(1002, 6).unwrap();
    let placement = RemapPlacement::Fixed(Vpn(5000));
    setup.on(|vm| {
        vm.space(setup.space)
            .remap(Vpn(1000), 3, 3, placement)
            .unwrap()
    });
    assert_eq!(setup.load(1001), Err(FaultError::NoRegion));
    assert_eq!(setup.store(1002, 9), Err(FaultError::NoRegion));
    assert_eq!([setup.load(5001), setup.load(5002)], [Ok(5), Ok(6)]);
}

#[test]
fn a_space_with_the_tag_of_another_sees_nothing_of_it() {
    let setup = setup();
    let mut tags = std::collections::BTreeSet::new();
    let mut reused = 0;
    for round in 1..=600 {
        let space = setup.on(|vm| vm.create_space().unwrap().id());
        let loaded = setup.on(|vm| vm.space(space).load().unwrap());
        reused += u32::from(!tags.insert(loaded.tag));
        // Another page for each tag, so that none pushes another out of the TLB.
        let page = 1000 + u64::from(loaded.tag.0) % 200;
        let request = MapRequest::anonymous(1, RW).at(Placement::Fixed(Vpn(page)));
        setup.on(|vm| vm.space(space).map(&request).unwrap());
        assert_eq!(
            setup.access(1, space, page, Access::Read, 0),
            Ok(0),
            "round {round}"
        );
        let resident = setup.on(|vm| vm.space(space).stats()).unwrap().rss;
        assert_eq!(resident.zero, 1, "round {round}: the load needed no fault");
        setup.access(1, space, page, Access::Write, round).unwrap();
        assert_eq!(setup.on(|vm| vm.space(space).exit()), Ok(true));
    }
    assert!(reused > 100, "{reused} tags were used again");
}

#[test]
fn the_zero_page_gives_way_on_every_cpu() {
    let setup = setup();
    setup.map(1000, MapRequest::anonymous(1, RW));
    assert_eq!(setup.load(1000), Ok(0));
    setup
        .access(0, setup.space, 1000, Access::Write, 7)
        .unwrap();
    assert_eq!(setup.load(1000), Ok(7));
}

#[test]
fn a_copied_page_gives_way_on_every_cpu() {
    let setup = setup();
    setup.map(1000, MapRequest::anonymous(1, RW));
    setup.store(1000, 6).unwrap();
    let child = setup.on(|vm| vm.space(setup.space).fork().unwrap().id());
    assert_eq!(setup.load(1000), Ok(6));
    setup
        .access(0, setup.space, 1000, Access::Write, 7)
        .unwrap();
    assert_eq!(setup.load(1000), Ok(7));
    assert_eq!(setup.access(1, child, 1000, Access::Read, 0), Ok(6));
}

#[test]
fn fork_takes_the_right_to_store_on_every_cpu() {
    let setup = setup();
    setup.map(1000, MapRequest::anonymous(1, RW));
    setup.store(1000, 6).unwrap();
    let child = setup.on(|vm| vm.space(setup.space).fork().unwrap().id());
    setup.store(1000, 7).unwrap();
    assert_eq!(setup.access(0, child, 1000, Access::Read, 0), Ok(6));
}

#[test]
fn a_store_after_a_sync_is_written_by_the_next() {
    let setup = setup();
    let file = setup.map_file(1000);
    for value in 1..4 {
        setup.store(1000, value).unwrap();
        assert_eq!(setup.on(|vm| vm.file(file).sync()), Ok(1));
        assert_eq!(setup.vm.platform().store().stored_word(1, 0), Some(value));
    }
}

#[test]
fn rights_taken_are_gone_on_every_cpu() {
    let setup = setup();
    setup.map(1000, MapRequest::anonymous(2, RW));
    setup.store(1000, 6).unwrap();
    let protect = |prot| setup.on(|vm| vm.space(setup.space).protect(Vpn(1000), 1, prot).unwrap());
    protect(Prot::READ);
    assert_eq!(setup.store(1000, 7), Err(FaultError::Protection));
    assert_eq!(setup.load(1000), Ok(6));
    protect(Prot::NONE);
    assert_eq!(setup.load(1000), Err(FaultError::Protection));
    protect(RW);
    assert_eq!(setup.store(1000, 8), Ok(8));
}

#[test]
fn pages_unmapped_dropped_or_truncated_are_gone_on_every_cpu() {
    let setup = setup();
    setup.map(1000, MapRequest::anonymous(3, RW));
    let file = setup.map_file(2000);
    setup.store(1000, 6).unwrap();
    setup.store(1001, 6).unwrap();
    setup.store(2003, 6).unwrap();
    setup.on(|vm| {
        vm.space(setup.space)
            .advise(Vpn(1000), 1, Advice::DontNeed)
            .unwrap()
    });
    assert_eq!(setup.load(1000), Ok(0));
    setup.on(|vm| vm.space(setup.space).unmap(Vpn(1001), 1).unwrap());
    assert_eq!(setup.load(1001), Err(FaultError::NoRegion));
    setup.on(|vm| vm.file(file).set_size(3 << 12).unwrap());
    assert_eq!(setup.load(2003), Err(FaultError::PastEnd));
}

#[test]
fn a_freed_table_is_walked_by_no_cpu() {
    let setup = setup();
    for round in 1..50 {
        // The last page of its tables, and then others for the same addresses.
        setup.map(1 << 27, MapRequest::anonymous(2, RW));
        setup.store(1 << 27, round).unwrap();
        setup.on(|vm| vm.space(setup.space).unmap(Vpn(1 << 27), 2).unwrap());
        setup.map((1 << 27) + 1, MapRequest::anonymous(2, RW));
        assert_eq!(setup.load((1 << 27) + 1), Ok(0));
        setup.store((1 << 27) + 2, round).unwrap();
        setup.on(|vm| vm.space(setup.space).unmap(Vpn((1 << 27) + 1), 2).unwrap());
        setup.on(|vm| vm.audit()).unwrap();
    }
}

/// A region without private pages of its own takes in one that has some: fork
/// must not take it for one whose entries faults find again.
#[test]
fn private_pages_are_copied_after_their_region_was_merged() {
    let setup = setup();
    setup.map(1000, MapRequest::anonymous(2, RW));
    setup.map(
        1002,
        MapRequest::anonymous(2, Prot::READ_WRITE.union(Prot::EXECUTE)),
    );
    setup.store(1003, 6).unwrap();
    setup.on(|vm| vm.space(setup.space).protect(Vpn(1002), 2, RW).unwrap());
    assert_eq!(
        setup
            .on(|vm| vm.space(setup.space).stats())
            .unwrap()
            .regions,
        1
    );
    let child = setup.on(|vm| vm.space(setup.space).fork().unwrap().id());
    assert_eq!(setup.access(1, child, 1003, Access::Read, 0), Ok(6));
}
