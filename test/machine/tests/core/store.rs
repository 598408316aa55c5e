//! A backing store that refuses reads and writes: nothing is lost, and the
//! next attempt succeeds.

use std::sync::Arc;

use vellum::addr::{Access, Prot, Vpn};
use vellum::frame::Kind;
use vellum::platform::CpuId;
use vellum::rmap::{Chains, Partial, ReverseMap};
use vellum::space::{
    FaultError, FileError, FileRequest, MapRequest, Placement, ReadRequest, WriteRequest,
};
use vellum::table::X86_64;
use vellum::{Design, ObjectId, SpaceId, Vm};
use vellum_machine::store::Transfer;
use vellum_machine::{Arena, BackingStore, Machine, MachineConfig, PatternStore};

use crate::support;

const START: Vpn = Vpn(1000);
const STORE: u64 = 9;

struct Setup<R: ReverseMap> {
    vm: Vm<Machine, X86_64, R>,
    store: Arc<PatternStore>,
    file: ObjectId,
    space: SpaceId,
}

/// A machine with a file of 16 pages mapped at [`START`].
fn setup<R: ReverseMap>(design: &str, shared: bool) -> Setup<R> {
    let store = Arc::new(PatternStore::new(4096, |store, page| store << 32 | page));
    let mut config = MachineConfig::new(4 << 20);
    config.store = Arc::clone(&store) as Arc<dyn BackingStore>;
    let arena = Arena::new(config.arena_bytes().unwrap()).unwrap();
    let machine = Machine::new(config, arena).unwrap();
    let vm = Vm::new(machine, Design::parse(design).unwrap()).unwrap();
    let (file, space) = vm.platform().run_on(CpuId(0), || {
        let file = vm
            .create_file(FileRequest::stored(STORE, 16 << 12))
            .unwrap()
            .id();
        let space = vm.create_space().unwrap().id();
        let mut request = MapRequest::object(file, 0, 16, Prot::READ_WRITE);
        if shared {
            request = request.shared();
        }
        vm.space(space)
            .map(&request.at(Placement::Fixed(START)))
            .unwrap();
        (file, space)
    });
    Setup {
        vm,
        store,
        file,
        space,
    }
}

impl<R: ReverseMap> Setup<R> {
    fn on<T>(&self, work: impl FnOnce() -> T) -> T {
        self.vm.platform().run_on(CpuId(0), work)
    }

    /// An access of a program; a store writes `value`.
    fn access(&self, page: u64, access: Access, value: u64) -> Result<u64, FaultError> {
        self.on(|| {
            let address = (START.0 + page) << 12;
            support::access(&self.vm, CpuId(0), self.space, address, access, value)
                .map_err(support::refused)
        })
    }

    fn cached(&self) -> u64 {
        self.on(|| self.vm.audit().unwrap().frames.of(Kind::Object))
    }

    fn stored(&self, page: u64) -> u64 {
        self.store.stored_word(STORE, page << 12).unwrap()
    }
}

fn for_designs(test: impl Fn(&str)) {
    for design in ["rmap=chains,faultaround=1", "rmap=partial,faultaround=16"] {
        test(design);
    }
}

fn failed_reads<R: ReverseMap>(design: &str) {
    for shared in [false, true] {
        let setup = setup::<R>(design, shared);
        setup.store.faults().fail_range(Transfer::Read, 3..4);
        for access in [Access::Read, Access::Write] {
            assert_eq!(setup.access(3, access, 5), Err(FaultError::Io));
            assert_eq!(setup.cached(), 0, "the page is not kept half filled");
        }
        let read = setup.on(|| {
            setup
                .vm
                .file(setup.file)
                .read(ReadRequest::pages(2, 4, |_, _| {}))
        });
        assert_eq!(read, Err(FileError::Io));
        assert_eq!(setup.cached(), 1, "the page before the bad one was read");
        assert_eq!(
            setup.access(4, Access::Read, 0),
            Ok(STORE << 32 | 4),
            "others can be read"
        );
        let pinned = setup.on(|| {
            let mut frames = [vellum::addr::Pfn::NONE; 4];
            setup
                .vm
                .space(setup.space)
                .pin_pages(START, Access::Read, &mut frames)
                .map(drop)
        });
        assert!(pinned.is_err(), "{design}");
        assert_eq!(
            setup.on(|| setup.vm.space(setup.space).populate(START, 16)),
            Err(FaultError::Io)
        );
        setup.store.faults().heal();
        assert_eq!(setup.access(3, Access::Read, 0), Ok(STORE << 32 | 3));
        setup
            .on(|| setup.vm.space(setup.space).populate(START, 16))
            .unwrap();
        setup.cached();
    }
}

#[test]
fn a_page_that_cannot_be_read_is_an_error_until_it_can() {
    for_designs(|design| {
        if design.starts_with("rmap=chains") {
            failed_reads::<Chains>(design);
        } else {
            failed_reads::<Partial>(design);
        }
    });
}

fn failed_writes<R: ReverseMap>(design: &str) {
    let setup = setup::<R>(design, true);
    for page in 2..6 {
        setup.access(page, Access::Write, 100 + page).unwrap();
    }
    setup.store.faults().fail_range(Transfer::Write, 3..5);
    assert_eq!(
        setup.on(|| setup.vm.file(setup.file).sync()),
        Err(FileError::Io)
    );
    assert_eq!(
        [2, 5].map(|page| setup.stored(page)),
        [102, 105],
        "the others are written"
    );
    assert_eq!(setup.stored(3), STORE << 32 | 3, "{design}");
    // A store between the attempts is not lost either.
    setup.access(2, Access::Write, 202).unwrap();
    setup.access(4, Access::Write, 204).unwrap();
    assert_eq!(
        setup.on(|| setup.vm.file(setup.file).sync()),
        Err(FileError::Io)
    );
    setup.store.faults().heal();
    assert_eq!(
        setup.on(|| setup.vm.file(setup.file).sync()),
        Ok(2),
        "what failed is still dirty"
    );
    assert_eq!(
        [2, 3, 4, 5].map(|page| setup.stored(page)),
        [202, 103, 204, 105],
        "{design}"
    );
    assert_eq!(setup.on(|| setup.vm.file(setup.file).sync()), Ok(0));
    setup.on(|| setup.vm.audit()).unwrap();
}

#[test]
fn a_page_that_cannot_be_written_stays_dirty_until_it_can() {
    failed_writes::<Chains>("rmap=chains");
    failed_writes::<Partial>("rmap=partial");
}

#[test]
fn pages_lost_at_the_end_of_an_object_are_counted() {
    let setup = setup::<Partial>("rmap=partial", true);
    setup.access(3, Access::Write, 7).unwrap();
    setup.store.faults().fail_range(Transfer::Write, 0..100);
    setup.on(|| {
        setup.vm.file(setup.file).release().unwrap();
        assert_eq!(setup.vm.space(setup.space).exit(), Ok(true));
        assert_eq!(setup.vm.stats().events.lost_objects, 1);
        assert_eq!(setup.vm.audit().unwrap().frames.of(Kind::Object), 0);
        assert_eq!(
            setup.vm.file(setup.file).release(),
            Err(FileError::NoObject)
        );
    });
}

#[test]
fn a_page_overwritten_as_a_whole_is_not_read_first() {
    let setup = setup::<Partial>("rmap=partial", true);
    setup.store.faults().fail_range(Transfer::Read, 0..100);
    setup
        .on(|| {
            setup
                .vm
                .file(setup.file)
                .write(WriteRequest::pages(4, 2, |page, bytes| bytes.fill(page)))
        })
        .unwrap();
    assert_eq!(setup.access(5, Access::Read, 0), Ok(5));
    assert_eq!(setup.on(|| setup.vm.file(setup.file).sync()), Ok(2));
    assert_eq!(setup.stored(5), 5);
}

/// Every nth transfer fails: whatever the operation, an error and no harm.
#[test]
fn a_store_that_fails_now_and_then_loses_nothing() {
    let setup = setup::<Chains>("rmap=chains", true);
    setup.store.faults().fail_every(3);
    for page in 0..16 {
        let tries = (0..10).find(|_| setup.access(page, Access::Write, 1000 + page).is_ok());
        assert!(tries.is_some(), "page {page}");
    }
    let synced = (0..20).find(|_| setup.on(|| setup.vm.file(setup.file).sync()).is_ok());
    assert!(synced.is_some());
    for page in 0..16 {
        assert_eq!(setup.stored(page), 1000 + page);
    }
    setup.cached();
}
