//! What is promised is counted, and refused where it would be too much (invariant 17).

mod random;

use super::*;
use crate::design::CommitMode;
use crate::frame::{CommitLimits, CommitPolicy, CommitShare, FailAt, Site};
use crate::platform::GroupId;
use crate::rmap::ReverseMap;
use crate::space::{FileError, FileRequest, GroupError, RemapPlacement, Space, WriteRequest};
use crate::swap::SwapArea;
use crate::table::{Aarch64_16K, Sv39};

const AT: u64 = 0x1000;
/// Pages that may be promised.
const MOST: u64 = 100;

/// A policy that promises at most [`MOST`] pages, with nothing reserved.
fn never(most: u64) -> CommitPolicy {
    CommitPolicy::Never(CommitLimits {
        most: CommitShare::Pages(most),
        admin_reserve: 0,
        user_reserve: 0,
    })
}

fn of<F: Format, R: ReverseMap>(options: &str) -> Vm<TestMachine, F, R> {
    run_on(0);
    let machine = TestMachine::with_frames(2, 2048, F::FRAME_SHIFT);
    Vm::new(machine, Design::parse(options).unwrap()).unwrap()
}

/// A manager that promises at most [`MOST`] pages.
fn strict<F: Format, R: ReverseMap>(options: &str) -> Vm<TestMachine, F, R> {
    let vm = of(&std::format!("commit=never,{options}"));
    vm.group(GroupId::ROOT)
        .set_commit_policy(never(MOST))
        .unwrap();
    vm
}

fn committed<F: Format, R: ReverseMap>(vm: &Vm<TestMachine, F, R>) -> u64 {
    vm.audit().unwrap();
    vm.stats().commit.committed
}

fn at(page: u64) -> Placement {
    Placement::Fixed(Vpn(AT + page))
}

/// Every way to get private memory.
fn private<F: Format, R: ReverseMap>(design: &str) {
    let vm = strict::<F, R>(design);
    let space = vm.create_space().unwrap();
    let map = |page, pages, prot| {
        let request = MapRequest::anonymous(pages, prot).at(at(page));
        space.map(&request).map(drop)
    };
    map(0, 60, RW).unwrap();
    assert_eq!(committed(&vm), 60);
    map(100, 60, Prot::READ).unwrap();
    assert_eq!(committed(&vm), 60, "what cannot be written is not charged");
    assert_eq!(
        space.protect(Vpn(AT + 100), 60, RW),
        Err(MapError::CommitLimit)
    );
    space.protect(Vpn(AT + 100), 40, RW).unwrap();
    assert_eq!(committed(&vm), 100);
    assert_eq!(map(200, 1, RW), Err(MapError::CommitLimit));
    assert_eq!(map(200, 1, Prot::READ), Ok(()));
    // What could be written once stays charged.
    space.protect(Vpn(AT + 100), 40, Prot::READ).unwrap();
    assert_eq!(committed(&vm), 100);
    space.protect(Vpn(AT + 90), 50, RW).unwrap_err();
    space.protect(Vpn(AT + 100), 40, RW).unwrap();
    // What is replaced makes room.
    map(0, 60, RW).unwrap();
    map(30, 60, RW).unwrap_err();
    map(100, 40, Prot::READ).unwrap();
    assert_eq!(committed(&vm), 60);
    let grow = |pages| space.remap(Vpn(AT), 60, pages, RemapPlacement::InPlace);
    assert_eq!(grow(101), Err(MapError::CommitLimit));
    grow(70).unwrap();
    // One that cannot grow in place and moves is charged once.
    map(70, 1, Prot::READ).unwrap();
    let moved = space.remap(Vpn(AT), 70, 95, RemapPlacement::MayMove);
    let start = moved.unwrap().range.start;
    assert_eq!(committed(&vm), 95);
    let back = space.remap(start, 95, 70, RemapPlacement::Fixed(Vpn(AT)));
    assert!(back.is_ok());
    assert_eq!(committed(&vm), 70);
    let over = |pages| space.remap(Vpn(AT), 70, pages, RemapPlacement::Fixed(Vpn(AT + 300)));
    assert_eq!(over(101), Err(MapError::CommitLimit));
    over(100).unwrap();
    assert_eq!(committed(&vm), 100);
    let shrunk = space.remap(Vpn(AT + 300), 100, 10, RemapPlacement::InPlace);
    assert_eq!(shrunk.map(|there| there.range.pages()), Ok(10));
    assert_eq!(committed(&vm), 10);
    space.unmap(Vpn(AT), 1000).unwrap();
    assert_eq!(committed(&vm), 0);

    space.set_heap_start(Vpn(AT)).unwrap();
    let heap = |pages| space.set_heap_end(Vpn(AT + pages));
    assert_eq!(heap(101), Err(MapError::CommitLimit));
    assert_eq!(space.heap().map(PageRange::pages), Ok(0));
    heap(100).unwrap();
    heap(90).unwrap();
    let stack = MapRequest::anonymous(1, RW).growing_down();
    space.map(&stack.at(at(1000))).unwrap();
    assert_eq!(committed(&vm), 91);
    let touch = |page| space.fault((AT + page) << F::FRAME_SHIFT, Access::Write);
    assert_eq!(touch(990), Err(FaultError::NoRegion), "10 pages more");
    assert!(touch(991).is_ok());
    assert_eq!(committed(&vm), 100);
    let file = vm.create_file(FileRequest::stored(1, 1 << 20)).unwrap();
    let private = MapRequest::object(file.id(), 0, 10, RW).at(at(2000));
    assert_eq!(space.map(&private), Err(MapError::CommitLimit));
    assert!(space.map(&private.shared()).is_ok());
    heap(0).unwrap();
    space.map(&private).unwrap();
    assert_eq!(committed(&vm), 20);
    assert_eq!(space.stats().unwrap().committed, 20);
    let loads = MapRequest::object(file.id(), 0, 10, Prot::READ).at(at(2000));
    space.map(&loads).unwrap();
    assert_eq!(committed(&vm), 10);
    space.exit().unwrap();
    assert_eq!(committed(&vm), 0);
}

fn private_in_each<R: ReverseMap>(design: &str) {
    private::<X86_64, R>(design);
    private::<Sv39, R>(design);
    private::<Aarch64_16K, R>(design);
}

/// Fork takes as much again, or nothing.
fn forked<F: Format, R: ReverseMap>(design: &str) {
    let vm = strict::<F, R>(design);
    let space = vm.create_space().unwrap();
    for (page, pages, prot) in [(0, 30, RW), (40, 20, Prot::READ), (60, 10, RW)] {
        let request = MapRequest::anonymous(pages, prot).at(at(page));
        space.map(&request).unwrap();
    }
    space.fault(AT << F::FRAME_SHIFT, Access::Write).unwrap();
    let child = space.fork().unwrap();
    assert_eq!(committed(&vm), 80);
    assert_eq!(child.stats().unwrap().committed, 40);
    assert_eq!(space.fork().map(drop), Err(MapError::CommitLimit));
    assert_eq!(committed(&vm), 80);
    let child = child.exec().unwrap();
    assert_eq!(committed(&vm), 40);
    child.exit().unwrap();
    // A call that fails for another reason gives back what it was promised.
    for site in [Site::Space, Site::RootTable, Site::Region, Site::TablePage] {
        vm.memory().inject(Some(FailAt { site, after: 0 }));
        let failed = space.fork().map(Space::exit);
        vm.memory().inject(None);
        assert_eq!(committed(&vm), 40, "{site:?}: {failed:?}");
    }
    for after in 0..8 {
        vm.memory().inject(Some(FailAt {
            site: Site::Region,
            after,
        }));
        let cut = space.map(&MapRequest::anonymous(1, Prot::READ).at(at(10)));
        vm.memory().inject(None);
        committed(&vm);
        if cut.is_ok() {
            break;
        }
        assert_eq!(committed(&vm), 40);
    }
    assert_eq!(committed(&vm), 39);
    space.exit().unwrap();
    assert_eq!(committed(&vm), 0);
}

fn forked_in_each<R: ReverseMap>(design: &str) {
    forked::<X86_64, R>(design);
    forked::<Sv39, R>(design);
    forked::<Aarch64_16K, R>(design);
}

/// Shared memory is charged once, by its length, until it ends.
fn shared<F: Format, R: ReverseMap>(design: &str) {
    let vm = strict::<F, R>(design);
    let space = vm.create_space().unwrap();
    let size = |pages: u64| pages << F::FRAME_SHIFT;
    let request = |pages| MapRequest::anonymous(pages, RW).shared();
    space.map(&request(60).at(at(0))).unwrap();
    assert_eq!(committed(&vm), 60);
    assert_eq!(space.map(&request(41)), Err(MapError::CommitLimit));
    let child = space.fork().unwrap();
    assert_eq!(committed(&vm), 60, "a child has the same memory");
    space.exit().unwrap();
    assert_eq!(committed(&vm), 60);
    child.unmap(Vpn(AT + 1), 59).unwrap();
    assert_eq!(committed(&vm), 60, "a part of it is mapped");
    let file = child.region_at(Vpn(AT)).unwrap().object.unwrap().0;
    assert_eq!(
        vm.file(file).set_size(size(101)),
        Err(FileError::CommitLimit)
    );
    vm.file(file).set_size(size(20)).unwrap();
    assert_eq!(committed(&vm), 20);
    child.exit().unwrap();
    assert_eq!(committed(&vm), 0);

    let make = |pages| vm.create_file(FileRequest::shared_memory(size(pages)));
    assert_eq!(make(101).map(drop), Err(FileError::CommitLimit));
    assert_eq!(committed(&vm), 0);
    let file = make(10).unwrap();
    file.write(WriteRequest::bytes(size(9), &[&[1; 100]]))
        .unwrap();
    assert_eq!(committed(&vm), 10);
    file.write(WriteRequest::bytes(size(29) + 5, &[&[1; 100]]))
        .unwrap();
    assert_eq!(committed(&vm), 30);
    let far = WriteRequest::bytes(size(100), &[&[1; 100]]);
    assert_eq!(file.write(far), Err(FileError::CommitLimit));
    assert_eq!(file.size(), Ok(size(29) + 105));
    // Without a page there is nothing written, and nothing promised for it.
    vm.memory().inject(Some(FailAt {
        site: Site::CachePage,
        after: 0,
    }));
    let failed = file.write(WriteRequest::bytes(size(40), &[&[1; 100]]));
    vm.memory().inject(None);
    assert_eq!(failed, Err(FileError::OutOfMemory));
    assert_eq!(committed(&vm), 30);
    file.release().unwrap();
    assert_eq!(committed(&vm), 0);
}

fn shared_in_each<R: ReverseMap>(design: &str) {
    shared::<X86_64, R>(design);
    shared::<Sv39, R>(design);
    shared::<Aarch64_16K, R>(design);
}

with_each_design! {
    private_memory_is_charged_when_it_can_be_written => private_in_each;
    a_child_is_promised_what_its_parent_was => forked_in_each;
    shared_memory_is_charged_when_it_is_made => shared_in_each;
}

#[test]
fn files_in_a_mount_are_charged_page_by_page() {
    let vm = strict::<X86_64, ByRegions>("");
    let mount = vm.create_mount(u64::MAX).unwrap();
    let file = vm.create_file(FileRequest::in_mount(mount.id())).unwrap();
    file.set_size(1000 << 12).unwrap();
    assert_eq!(committed(&vm), 0);
    file.write(WriteRequest::bytes(5 << 12, &[&[1; 2 << 12]]))
        .unwrap();
    assert_eq!(committed(&vm), 2);
    let space = vm.create_space().unwrap();
    let view = MapRequest::object(file.id(), 0, 1000, RW).shared();
    space.map(&view.at(at(0))).unwrap();
    assert_eq!(committed(&vm), 2);
    for page in 100..198 {
        space.fault((AT + page) << 12, Access::Write).unwrap();
    }
    assert_eq!(committed(&vm), 100);
    let fault = space.fault((AT + 200) << 12, Access::Write);
    assert_eq!(fault, Err(FaultError::Full));
    let more = WriteRequest::bytes(300 << 12, &[&[1; 1]]);
    assert_eq!(
        file.write(more),
        Err(FileError::Full),
        "ENOSPC, as on tmpfs"
    );
    file.punch_hole(100 << 12, 50 << 12).unwrap();
    assert_eq!(committed(&vm), 50);
    assert_eq!(
        file.write(WriteRequest::bytes(300 << 12, &[&[1; 60 << 12]])),
        Ok(50 << 12)
    );
    space.exit().unwrap();
    file.release().unwrap();
    assert_eq!(committed(&vm), 0);
}

#[test]
fn a_stock_of_another_cpu_hides_nothing() {
    let vm = of::<X86_64, ByRegions>("commit=never");
    let root = vm.group(GroupId::ROOT);
    root.set_commit_policy(never(100_000)).unwrap();
    let spaces = [0, 1].map(|_| vm.create_space().unwrap());
    let map = |cpu: u16, pages| {
        run_on(cpu);
        spaces[usize::from(cpu)].map(&MapRequest::anonymous(pages, RW))
    };
    map(0, 1).unwrap();
    map(1, 1).unwrap();
    assert!(vm.stats().commit.stocked > 0);
    assert_eq!(committed(&vm), 2);
    // All that is left, and not a page more, from either CPU.
    map(0, 99_999).unwrap_err();
    map(1, 99_997).unwrap();
    assert_eq!(vm.stats().commit.stocked, 0);
    map(0, 1).unwrap();
    for cpu in [0, 1] {
        assert_eq!(map(cpu, 1), Err(MapError::CommitLimit));
    }
    // What one CPU gives back another can have.
    run_on(0);
    let start = spaces[0]
        .map(&MapRequest::anonymous(5, Prot::READ))
        .unwrap();
    let first = start.offset(5);
    spaces[0].unmap(first, 1).unwrap();
    assert_eq!(committed(&vm), 99_999);
    map(1, 1).unwrap();
    // A limit that is lowered refuses what comes.
    root.set_commit_policy(never(10)).unwrap();
    assert_eq!(committed(&vm), 100_000);
    assert_eq!(map(0, 1), Err(MapError::CommitLimit));
    run_on(0);
    for space in spaces {
        space.exit().unwrap();
    }
    assert_eq!(committed(&vm), 0);
}

#[test]
fn each_mode_refuses_what_linux_refuses() {
    let all = 2048;
    let vm = of::<X86_64, ByRegions>("commit=heuristic");
    let frames = vm.memory().frame_count() as u64;
    assert!(frames <= all);
    let space = vm.create_space().unwrap();
    let map = |pages| space.map(&MapRequest::anonymous(pages, RW)).map(drop);
    assert_eq!(map(frames + 1), Err(MapError::CommitLimit));
    for _ in 0..3 {
        map(frames).unwrap();
    }
    assert_eq!(committed(&vm), 3 * frames);
    assert_eq!(vm.stats().commit.limit, frames / 2);
    vm.swap_on(SwapArea::new(7, 100)).unwrap();
    assert_eq!(vm.stats().commit.limit, frames / 2 + 100);
    map(frames + 100).unwrap();
    assert_eq!(map(frames + 101), Err(MapError::CommitLimit));
    let free = MapRequest::anonymous(frames + 101, RW).no_reserve();
    let start = space.map(&free).unwrap();
    let traits = |start| space.region_at(start).unwrap().traits;
    assert!(traits(start).has(Traits::NO_RESERVE) && !traits(start).has(Traits::COMMITTED));
    space.map(&free.shared()).unwrap();
    assert_eq!(committed(&vm), 4 * frames + 100);
    // It stays so whatever the rights are, and then in another mode.
    let root = vm.group(GroupId::ROOT);
    root.set_commit_policy(CommitPolicy::Never(CommitLimits {
        most: CommitShare::Percent(400),
        admin_reserve: 10,
        user_reserve: 0,
    }))
    .unwrap();
    assert_eq!(vm.stats().commit.limit, 4 * frames + 100);
    space.protect(start, 1, Prot::READ).unwrap();
    space.protect(start, 1, RW).unwrap();
    // Who asks now is charged all the same.
    let ignored = MapRequest::anonymous(1, RW).no_reserve();
    assert_eq!(space.map(&ignored), Err(MapError::CommitLimit));
    vm.swap_off(7).unwrap();
    assert_eq!(vm.stats().commit.limit, 4 * frames);
    space.exit().unwrap();
    let space = vm.create_space().unwrap();
    // A reserve is for administrators.
    let map = |pages| space.map(&MapRequest::anonymous(pages, RW)).map(drop);
    map(4 * frames - 10).unwrap();
    assert_eq!(map(1), Err(MapError::CommitLimit));
    let limits = |is_admin| Limits {
        is_admin,
        ..Limits::default()
    };
    space.set_limits(limits(true)).unwrap();
    map(10).unwrap();
    assert_eq!(map(1), Err(MapError::CommitLimit));
    root.set_commit_policy(CommitPolicy::Always).unwrap();
    map(1 << 30).unwrap();
    assert_eq!(committed(&vm), 4 * frames + (1 << 30));
    space.exit().unwrap();
    assert_eq!(committed(&vm), 0);
}

#[test]
fn a_large_space_leaves_something_to_others() {
    let vm = of::<X86_64, ByRegions>("commit=never");
    let policy = CommitPolicy::Never(CommitLimits {
        most: CommitShare::Pages(1000),
        admin_reserve: 0,
        user_reserve: 20,
    });
    vm.group(GroupId::ROOT).set_commit_policy(policy).unwrap();
    let large = vm.create_space().unwrap();
    let map = |space: Space<'_, TestMachine, X86_64, ByRegions>, pages| {
        space.map(&MapRequest::anonymous(pages, RW)).map(drop)
    };
    map(large, 960).unwrap();
    // A 32nd of what it has is more than 20.
    assert_eq!(map(large, 21), Err(MapError::CommitLimit));
    map(large, 20).unwrap();
    let small = vm.create_space().unwrap();
    map(small, 20).unwrap();
    assert_eq!(map(small, 1), Err(MapError::CommitLimit));
    vm.audit().unwrap();
}

#[test]
fn a_group_is_promised_no_more_than_its_limit() {
    let vm = of::<X86_64, ByRegions>("commit=always,reclaim=on,groups=on");
    let groups = [0, 1].map(|_| vm.create_group(u64::MAX).unwrap());
    groups[0].set_commit_limit(50).unwrap();
    let space = vm.create_space().unwrap();
    space.set_group(groups[0].id()).unwrap();
    space.load().unwrap();
    let map = |pages| space.map(&MapRequest::anonymous(pages, RW)).map(drop);
    let of = |nth: usize| {
        vm.audit().unwrap();
        groups[nth].stats().unwrap().committed
    };
    map(30).unwrap();
    assert_eq!(map(21), Err(MapError::CommitLimit));
    space.map(&MapRequest::anonymous(20, RW).shared()).unwrap();
    assert_eq!((of(0), groups[0].stats().unwrap().commit_limit), (50, 50));
    assert_eq!(space.fork().map(drop), Err(MapError::CommitLimit));
    // What is private goes with a space, and shared memory stays with whom it was made for.
    space.set_group(groups[1].id()).unwrap();
    assert_eq!((of(0), of(1)), (20, 30));
    map(1000).unwrap();
    assert_eq!(of(1), 1030);
    space.set_group(groups[0].id()).unwrap();
    assert_eq!((of(0), of(1)), (1050, 0), "it brings what it has");
    assert_eq!(map(1), Err(MapError::CommitLimit));
    space.set_group(GroupId::ROOT).unwrap();
    // Shared memory outlives its group; what comes in its place is charged nothing for it.
    groups[0].end().unwrap();
    assert_eq!(committed(&vm), 1050);
    let next = vm.create_group(u64::MAX).unwrap();
    assert_eq!(next.stats().unwrap().committed, 0);
    space.exit().unwrap();
    assert_eq!(next.stats().unwrap().committed, 0);
    assert_eq!(committed(&vm), 0);
    let root = vm.group(GroupId::ROOT);
    assert_eq!(root.set_commit_limit(1), Err(GroupError::NoGroup));
    assert_eq!(
        next.set_commit_policy(CommitPolicy::Always),
        Err(GroupError::NoGroup)
    );
    assert_eq!(groups[0].set_commit_limit(1), Err(GroupError::NoGroup));
}

#[test]
fn a_manager_that_counts_nothing_refuses_nothing() {
    let vm = vm();
    assert_eq!(vm.design().commit, CommitMode::Off);
    let space = vm.create_space().unwrap();
    let request = MapRequest::anonymous(1 << 30, RW).no_reserve();
    let start = space.map(&request).unwrap();
    let traits = space.region_at(start).unwrap().traits;
    assert!(!traits.has(Traits::NO_RESERVE) && !traits.has(Traits::COMMITTED));
    let root = vm.group(GroupId::ROOT);
    assert_eq!(
        root.set_commit_policy(CommitPolicy::Always),
        Err(GroupError::NotCounted)
    );
    assert_eq!(vm.stats().commit, Default::default());
    vm.audit().unwrap();
}

/// `RLIMIT_DATA`.
fn data<R: ReverseMap>(design: &str) {
    let vm = vm_with::<R>(design, 2048);
    let space = vm.create_space().unwrap();
    let limits = Limits {
        data_pages: 20,
        ..Limits::default()
    };
    space.set_limits(limits).unwrap();
    let map = |page, pages, prot| {
        let request = MapRequest::anonymous(pages, prot).at(at(page));
        space.map(&request).map(drop)
    };
    let had = || {
        vm.audit().unwrap();
        space.stats().unwrap().data
    };
    assert_eq!(map(0, 21, RW), Err(MapError::Limit));
    map(0, 10, RW).unwrap();
    map(100, 50, Prot::READ).unwrap();
    let shared = MapRequest::anonymous(50, RW).shared();
    space.map(&shared).unwrap();
    let stack = MapRequest::anonymous(30, RW).growing_down();
    space.map(&stack.at(at(5000))).unwrap();
    assert_eq!(had(), 10);
    assert_eq!(space.protect(Vpn(AT + 100), 11, RW), Err(MapError::Limit));
    space.protect(Vpn(AT + 100), 10, RW).unwrap();
    assert_eq!(had(), 20);
    // What is replaced, or is data already, makes no more of it.
    map(100, 10, RW).unwrap();
    space.protect(Vpn(AT), 10, RW.union(Prot::EXECUTE)).unwrap();
    assert_eq!(map(200, 1, RW), Err(MapError::Limit));
    let grown = space.remap(Vpn(AT), 10, 11, RemapPlacement::MayMove);
    assert_eq!(grown, Err(MapError::Limit));
    space.protect(Vpn(AT + 105), 5, Prot::READ).unwrap();
    assert_eq!(had(), 15);
    space.set_heap_start(Vpn(AT + 9000)).unwrap();
    assert_eq!(space.set_heap_end(Vpn(AT + 9006)), Err(MapError::Limit));
    space.set_heap_end(Vpn(AT + 9005)).unwrap();
    let child = space.fork().unwrap();
    assert_eq!(child.stats().unwrap().data, 20);
    assert_eq!(had(), 20);
}

with_each_design! {
    data_is_limited => data;
}
