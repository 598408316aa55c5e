//! Frames that are taken out of use, by the sentences of madvise(2) on `MADV_HWPOISON` and
//! `MADV_SOFT_OFFLINE`.

use super::*;
use crate::frame::{NodePolicy, NodeSet};
use crate::platform::{NodeId, Zone};
use crate::space::FrameHealth::{Failed, Failing, Good};
use crate::space::{ReadRequest, WithdrawError, Withdrawn};
use crate::testing::range;

with_each_design_and_format! {
    a_free_frame_is_not_handed_out_any_more => unused;
    a_private_page_moves_for_all_who_map_it => private_moves;
    a_private_page_that_is_lost_faults_until_it_is_dropped => private_is_lost;
    a_page_of_a_file_is_dropped_or_its_users_are_told => of_files;
    a_page_of_shared_memory_moves => of_memory;
    a_superpage_is_split_for_one_of_its_frames => of_superpages;
    what_cannot_leave_a_frame_is_named => refused;
    without_memory_a_page_stays_where_it_is => no_memory;
    frames_go_one_after_the_other_and_what_they_hold_stays => all_but_a_few;
    the_memory_of_a_node_is_taken_away_and_comes_back => node;
}

fn frame_at<F: Format, R: ReverseMap>(space: AnySpace<'_, F, R>, page: u64) -> Pfn {
    space.translate(Vpn(AT + page)).unwrap().0
}

/// Memory is used up, and none of it lies in these frames.
fn exhaust<F: Format, R: ReverseMap>(vm: &AnyVm<F, R>, out: &[Pfn], design: &str) {
    let space = vm.create_space().unwrap();
    map_at(space, AT, MapRequest::anonymous(4096, RW));
    let mut made = 0;
    while space.fault((AT + made) << 12, Access::Write).is_ok() {
        assert!(!out.contains(&frame_at(space, made)), "{made} {design}");
        made += 1;
    }
    assert!(made > 100, "{made} {design}");
    vm.audit().unwrap();
    assert_eq!(space.exit(), Ok(true));
}

fn unused<F: Format, R: ReverseMap>(design: &str) {
    let vm = any_vm::<F, R>(design, 1024);
    let out = [Pfn(700), Pfn(513), Pfn(512), Pfn(767)];
    for frame in out {
        assert_eq!(
            vm.set_frame_health(frame, Failing),
            Ok(Withdrawn::Unused),
            "{design}"
        );
        vm.audit().unwrap();
        let again = vm.set_frame_health(frame, Failed);
        assert_eq!(again, Err(WithdrawError::Withdrawn), "{design}");
    }
    assert_eq!(vm.stats().frames.withdrawn, 4, "{design}");
    let none = vm.set_frame_health(Pfn(1 << 20), Failed);
    assert_eq!(none, Err(WithdrawError::NoFrame), "{design}");
    exhaust(&vm, &out, design);
    // One that this CPU has kept.
    let space = with_pages(&vm, MapRequest::anonymous(8, RW));
    let frame = frame_at(space, 2);
    advise(space, (2, 1), Advice::DontNeed).unwrap();
    assert_eq!(
        vm.set_frame_health(frame, Failed),
        Ok(Withdrawn::Unused),
        "{design}"
    );
    finish(&vm, &[space]);
}

fn private_moves<F: Format, R: ReverseMap>(design: &str) {
    let vm = any_vm::<F, R>(design, 1024);
    let space = with_pages(&vm, MapRequest::anonymous(8, RW));
    let child = space.fork().unwrap();
    put(child, AT + 1, 20);
    space.lock(Vpn(AT + 2), 1).unwrap();
    let mut out = Vec::new();
    for page in 0..4 {
        let frame = frame_at(space, page);
        out.push(frame);
        assert_eq!(
            vm.set_frame_health(frame, Failing),
            Ok(Withdrawn::Moved),
            "{design}"
        );
        assert_ne!(frame_at(space, page), frame, "{design}");
        assert_ne!(frame_at(child, page), frame, "{design}");
        vm.audit().unwrap();
    }
    let expected: Vec<_> = (1..9).map(Some).collect();
    assert_eq!(all(space, 8), expected, "{design}");
    assert_eq!(get(child, AT + 1), Ok(20), "{design}");
    assert_eq!(get(child, AT + 3), Ok(4), "{design}");
    put(space, AT + 3, 30);
    assert_eq!(get(child, AT + 3), Ok(4), "{design}");
    finish(&vm, &[space, child]);
    exhaust(&vm, &out, design);
}

fn private_is_lost<F: Format, R: ReverseMap>(design: &str) {
    let vm = any_vm::<F, R>(design, 1024);
    let space = with_pages(&vm, MapRequest::anonymous(8, RW));
    let child = space.fork().unwrap();
    let frame = frame_at(space, 3);
    assert_eq!(
        vm.set_frame_health(frame, Failed),
        Ok(Withdrawn::Lost),
        "{design}"
    );
    vm.audit().unwrap();
    let rss = space.stats().unwrap().rss.anonymous;
    assert_eq!(rss, 7, "{design}");
    let lost = Err(FaultError::Lost);
    for space in [space, child] {
        assert_eq!(get(space, AT + 3), Err(FaultError::Lost), "{design}");
        assert_eq!(space.fault((AT + 3) << 12, Access::Write), lost, "{design}");
        assert_eq!(space.write((AT + 3) << 12, &[1]), Err(FaultError::Lost));
        assert_eq!(get(space, AT + 4), Ok(5), "{design}");
    }
    // It goes where its memory goes.
    let grandchild = space.fork().unwrap();
    let to = RemapPlacement::Fixed(Vpn(AT + 20));
    space.remap(Vpn(AT + 2), 2, 2, to).unwrap();
    assert_eq!(get(space, AT + 21), Err(FaultError::Lost), "{design}");
    assert_eq!(get(grandchild, AT + 3), Err(FaultError::Lost), "{design}");
    space.protect(Vpn(AT + 20), 2, Prot::READ).unwrap();
    space.protect(Vpn(AT + 20), 2, RW).unwrap();
    vm.audit().unwrap();
    // Until it is dropped, or unmapped.
    advise(space, (21, 1), Advice::DontNeed).unwrap();
    assert_eq!(get(space, AT + 21), Ok(0), "{design}");
    child.unmap(Vpn(AT + 3), 1).unwrap();
    assert_eq!(get(child, AT + 3), Err(FaultError::NoRegion), "{design}");
    advise(grandchild, (0, 8), Advice::InstallGuards).unwrap();
    assert_eq!(get(grandchild, AT + 3), Err(FaultError::Protection));
    finish(&vm, &[space, child, grandchild]);
    exhaust(&vm, &[frame], design);
}

fn of_files<F: Format, R: ReverseMap>(design: &str) {
    let vm = any_vm::<F, R>(design, 1024);
    let space = vm.create_space().unwrap();
    let file = vm.create_file(FileRequest::stored(5, 8 << 12)).unwrap();
    let shown = MapRequest::object(file.id(), 0, 8, RW).shared();
    map_at(space, AT, shown);
    let opened = file.open().unwrap();
    let clean = get(space, AT).unwrap();
    put(space, AT + 1, 50);
    get(space, AT + 2).unwrap();
    let out = [0, 1, 2].map(|page| frame_at(space, page));
    assert_eq!(
        vm.set_frame_health(out[0], Failed),
        Ok(Withdrawn::Dropped),
        "{design}"
    );
    assert_eq!(get(space, AT), Ok(clean), "{design}");
    // What was stored is written first, as long as it is good.
    assert_eq!(
        vm.set_frame_health(out[1], Failing),
        Ok(Withdrawn::Dropped),
        "{design}"
    );
    assert_eq!(get(space, AT + 1), Ok(50), "{design}");
    vm.audit().unwrap();
    put(space, AT + 2, 60);
    assert_eq!(
        vm.set_frame_health(out[2], Failed),
        Ok(Withdrawn::Lost),
        "{design}"
    );
    assert_ne!(get(space, AT + 2), Ok(60), "{design}");
    assert_eq!(opened.on(&vm).sync(), Err(FileError::Io), "{design}");
    assert!(opened.on(&vm).sync().is_ok(), "{design}");
    vm.close(opened).unwrap();
    file.release().unwrap();
    finish(&vm, &[space]);
    exhaust(&vm, &out, design);
}

fn of_memory<F: Format, R: ReverseMap>(design: &str) {
    let vm = any_vm::<F, R>(design, 1024);
    let space = vm.create_space().unwrap();
    let id = vm.memory_pages(8).unwrap();
    map_at(space, AT, MapRequest::object(id, 0, 8, RW).shared());
    map_at(space, AT + 20, MapRequest::object(id, 0, 8, RW));
    put(space, AT + 3, 9);
    assert_eq!(get(space, AT + 23), Ok(9));
    let frame = frame_at(space, 3);
    assert_eq!(
        vm.set_frame_health(frame, Failing),
        Ok(Withdrawn::Moved),
        "{design}"
    );
    assert_eq!((get(space, AT + 3), get(space, AT + 23)), (Ok(9), Ok(9)));
    let second = frame_at(space, 3);
    assert_ne!(second, frame, "{design}");
    // What is lost is so for all, until a hole is made.
    put(space, AT + 24, 7);
    assert_eq!(
        vm.set_frame_health(second, Failed),
        Ok(Withdrawn::Lost),
        "{design}"
    );
    vm.audit().unwrap();
    for page in [AT + 3, AT + 23] {
        assert_eq!(get(space, page), Err(FaultError::Lost), "{design}");
        let store = space.fault(page << 12, Access::Write);
        assert_eq!(store, Err(FaultError::Lost), "{design}");
    }
    assert_eq!(get(space, AT + 24), Ok(7), "a copy is a page of its own");
    let mut byte = [0];
    let read = vm
        .file(id)
        .read(ReadRequest::bytes(3 << 12, &mut [&mut byte]));
    assert_eq!(read, Err(FileError::Io), "{design}");

    space.advise(Vpn(AT + 3), 1, Advice::Remove).unwrap();
    assert_eq!(get(space, AT + 3), Ok(0), "{design}");
    vm.file(id).release().unwrap();
    finish(&vm, &[space]);
    exhaust(&vm, &[frame], design);
}

fn of_superpages<F: Format, R: ReverseMap>(design: &str) {
    let vm = any_vm::<F, R>(&std::format!("{design},superpage=eager"), 4096);
    let space = vm.create_space().unwrap();
    map_at(space, AT, MapRequest::anonymous(1024, RW));
    for page in 0..1024 {
        put(space, AT + page, page as u8);
    }
    let child = space.fork().unwrap();
    let out = [frame_at(space, 100), frame_at(space, 512)];
    for frame in out {
        assert_eq!(
            vm.set_frame_health(frame, Failing),
            Ok(Withdrawn::Moved),
            "{design}"
        );
        vm.audit().unwrap();
    }
    let lost = frame_at(space, 700);
    assert_eq!(
        vm.set_frame_health(lost, Failed),
        Ok(Withdrawn::Lost),
        "{design}"
    );
    for space in [space, child] {
        for page in 0..1024 {
            let wanted = match page {
                700 => Err(FaultError::Lost),
                page => Ok(page as u8),
            };
            assert_eq!(get(space, AT + page), wanted, "{page} {design}");
        }
    }
    finish(&vm, &[space, child]);
}

fn refused<F: Format, R: ReverseMap>(design: &str) {
    let vm = any_vm::<F, R>(design, 1024);
    let space = with_pages(&vm, MapRequest::anonymous(16, RW));
    let mut frames = [Pfn(0)];
    let pins = space
        .pin_pages(Vpn(AT), Access::Write, &mut frames)
        .unwrap();
    for health in [Failing, Failed] {
        let answer = vm.set_frame_health(pins[0], health);
        assert_eq!(answer, Err(WithdrawError::Pinned), "{design}");
    }
    assert_eq!(get(space, AT), Ok(1), "{design}");
    drop(pins);
    // The zero page, tables, and what the manager keeps.
    assert_eq!(get(space, AT + 9), Ok(0));
    let zero = frame_at(space, 9);
    assert_eq!(
        vm.set_frame_health(zero, Failed),
        Err(WithdrawError::Kept),
        "{design}"
    );
    let mut kept = 0;
    vm.for_each_frame(|frame| {
        let record = vm.memory.frame(frame);
        if matches!(record.kind(), Kind::Table | Kind::Slab) && record.counts().refs() > 0 {
            assert_eq!(
                vm.set_frame_health(frame, Failed),
                Err(WithdrawError::Kept),
                "{design}"
            );
            kept += 1;
        }
    });
    assert!(kept > 4, "{kept} {design}");
    let pin = vm.pin();
    let answer = vm.set_frame_health(Pfn(900), Failing);
    assert_eq!(answer, Err(WithdrawError::CallerPinned), "{design}");
    drop(pin);
    finish(&vm, &[space]);
}

fn no_memory<F: Format, R: ReverseMap>(design: &str) {
    let vm = any_vm::<F, R>(design, 1024);
    let space = with_pages(&vm, MapRequest::anonymous(8, RW));
    for &site in Site::ALL {
        vm.memory().inject(Some(FailAt { site, after: 0 }));
        let frame = frame_at(space, 3);
        let answer = vm.set_frame_health(frame, Failing);
        vm.memory().inject(None);
        match answer {
            Ok(Withdrawn::Moved) => assert_ne!(frame_at(space, 3), frame),
            other => assert_eq!(other, Err(WithdrawError::OutOfMemory), "{site:?} {design}"),
        }
        assert_eq!(get(space, AT + 3), Ok(4), "{site:?} {design}");
        vm.audit().unwrap();
    }
    finish(&vm, &[space]);
}

/// Nearly all frames in random order, under private memory, shared memory and a file.
fn all_but_a_few<F: Format, R: ReverseMap>(design: &str) {
    let vm = any_vm::<F, R>(design, 512);
    let space = with_pages(&vm, MapRequest::anonymous(8, RW));
    let id = vm.memory_pages(8).unwrap();
    map_at(space, AT + 8, MapRequest::object(id, 0, 8, RW).shared());
    let file = vm.create_file(FileRequest::stored(5, 8 << 12)).unwrap();
    let shown = MapRequest::object(file.id(), 0, 8, RW).shared();
    map_at(space, AT + 16, shown);
    for page in 8..24 {
        put(space, AT + page, page as u8 + 1);
    }
    let child = space.fork().unwrap();
    let mut rng = Rng::new(7);
    let mut out = 0;
    for _ in 0..600 {
        let frame = Pfn(0x100 + rng.below(512) as u32);
        match vm.set_frame_health(frame, Failing) {
            Ok(_) => out += 1,
            Err(WithdrawError::OutOfMemory) => break,
            Err(_) => {}
        }
        let page = rng.below(24) as u64;
        let space = [space, child][rng.below(2)];
        let byte = get(space, AT + page);
        assert!(byte == Ok(page as u8 + 1) || byte == Err(FaultError::OutOfMemory));
    }
    assert!(out > 200, "{out} {design}");
    assert_eq!(vm.stats().frames.withdrawn, out, "{design}");
    vm.audit().unwrap();
    vm.file(id).release().unwrap();
    file.release().unwrap();
    finish(&vm, &[space, child]);
}

fn node<F: Format, R: ReverseMap>(design: &str) {
    run_on(0);
    let map = [range(0, 512, 0, Zone::Low), range(512, 512, 1, Zone::Low)];
    let parsed = Design::parse(design).unwrap();
    let vm: AnyVm<F, R> = Vm::new(TestMachine::new(&[0, 0], &map), parsed).unwrap();
    let space = vm.create_space().unwrap();
    map_at(space, AT, MapRequest::anonymous(16, RW));
    let second = NodePolicy::Bind {
        nodes: [NodeId(1)].into_iter().collect::<NodeSet>(),
        home: None,
    };
    space.set_node_policy(None, Some(second)).unwrap();
    for page in 0..8 {
        put(space, AT + page, page as u8 + 1);
        assert!(frame_at(space, page).0 >= 512, "{design}");
    }
    let first = frame_at(space, 0);
    space.set_node_policy(None, None).unwrap();
    assert_eq!(
        vm.set_frame_health(first, Good),
        Err(WithdrawError::InUse),
        "{design}"
    );
    for frame in (512..1024).map(Pfn) {
        let done = vm.set_frame_health(frame, Failing);
        assert!(done.is_ok(), "{frame:?} {done:?} {design}");
    }
    assert_eq!(vm.stats().frames.withdrawn, 512, "{design}");
    vm.audit().unwrap();
    for page in 0..8 {
        assert!(frame_at(space, page).0 < 512, "{design}");
        assert_eq!(get(space, AT + page), Ok(page as u8 + 1), "{design}");
    }
    space.set_node_policy(None, Some(second)).unwrap();
    let fault = space.fault((AT + 9) << 12, Access::Write);
    assert_eq!(fault, Err(FaultError::OutOfMemory), "{design}");
    for frame in (512..1024).map(Pfn) {
        let done = vm.set_frame_health(frame, Good);
        assert_eq!(done, Ok(Withdrawn::Readmitted), "{frame:?} {design}");
    }
    assert_eq!(vm.stats().frames.withdrawn, 0, "{design}");
    put(space, AT + 9, 10);
    assert!(frame_at(space, 9).0 >= 512, "{design}");
    finish(&vm, &[space]);
}
