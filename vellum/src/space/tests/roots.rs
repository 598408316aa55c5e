//! Roots with a kernel half, which is the platform's.

use std::sync::atomic::Ordering;

use super::*;
use crate::frame::{FailAt, Site};
use crate::table::Format;

/// Of x86-64: the kernel's entries could be anything, and lead nowhere here.
const KERNEL: u64 = 0x1234_5000 | 0x263;

#[test]
fn roots_have_a_kernel_half_from_before_they_are_loaded_until_they_end() {
    for source in crate::design::variants("ptepage") {
        run_on(0);
        let mut machine = TestMachine::simple(2, 2048);
        machine.kernel_half = Some(KERNEL);
        let design = Design::parse(&source).unwrap();
        let vm: TestVm = Vm::new(machine, design).unwrap();
        let roots = || vm.platform().roots.load(Ordering::Relaxed);
        for round in 1..4 {
            let parent = vm.begin_space().unwrap();
            // The last page that programs can map is beside the kernel's half.
            let last = X86_64::USER_END.0 - 1;
            for page in [0x100, last] {
                map(&vm, parent, page, MapRequest::anonymous(1, RW));
                touch(&vm, parent, page, Access::Write);
            }
            let child = vm.fork(parent).unwrap();
            let next = vm.exec(child).unwrap();
            assert_eq!(roots(), 2, "{source}, round {round}");
            for space in [parent, next] {
                let root = vm.load(space).unwrap().root;
                let kernel = vm.platform().peek(root)[2048..].chunks_exact(8);
                let whole = kernel.map(|entry| u64::from_ne_bytes(entry.try_into().unwrap()));
                assert!(whole.into_iter().all(|entry| entry == KERNEL));
            }
            vm.unmap(parent, Vpn(0), X86_64::USER_END.0).unwrap();
            let report = vm.audit().unwrap();
            assert_eq!((report.spaces, report.tables), (2, 2), "{source}");
            vm.exit(parent).unwrap();
            vm.exit(next).unwrap();
            assert_eq!(roots(), 0, "{source}");
            vm.audit().unwrap();
        }
    }
}

#[test]
fn a_root_that_cannot_be_made_gets_no_kernel_half() {
    run_on(0);
    let mut machine = TestMachine::simple(1, 2048);
    machine.kernel_half = Some(KERNEL);
    let vm: TestVm = Vm::new(machine, Design::default()).unwrap();
    let site = Site::RootTable;
    vm.memory().inject(Some(FailAt { site, after: 0 }));
    assert_eq!(vm.begin_space(), Err(MapError::OutOfMemory));
    assert_eq!(vm.platform().roots.load(Ordering::Relaxed), 0);
}
