//! What an embedder writes: handles of what there is, and of what has ended.

use super::*;
use crate::platform::GroupId;

#[test]
fn a_handle_of_what_has_ended_is_refused_by_each_call() {
    let vm = vm();
    let space = vm.create_space().unwrap();
    let copy = space;
    let page = space.map(&MapRequest::anonymous(1, RW)).unwrap();
    assert_eq!(space.exit(), Ok(true));
    let gone = MapError::NoSpace;
    assert_eq!(copy.map(&MapRequest::anonymous(1, RW)), Err(gone));
    assert_eq!(copy.load(), Err(gone));
    assert_eq!(copy.share(), Err(gone));
    assert_eq!(copy.heap(), Err(gone));
    assert_eq!(copy.stats(), Err(gone));
    assert_eq!(copy.translate(page), Err(gone));
    assert_eq!(copy.region_at(page), Err(gone));
    assert_eq!(copy.set_limits(Limits::default()), Err(gone));
    assert_eq!(copy.fork(), Err(gone));
    assert_eq!(copy.group().map(Group::id), Err(GroupError::NoSpace));
    let fault = copy.fault(page.address::<X86_64>(), Access::Read);
    assert_eq!(fault, Err(FaultError::NoSpace));
    let file = vm.create_file(FileRequest::shared_memory(9)).unwrap();
    file.release().unwrap();
    assert_eq!(file.size(), Err(FileError::NoObject));
    assert_eq!(file.stats(), Err(FileError::NoObject));
    assert_eq!(file.scan(0, 1), Err(FileError::NoObject));
    assert_eq!(file.sync(), Err(FileError::NoObject));
    let mount = vm.create_mount(9).unwrap();
    mount.release().unwrap();
    assert_eq!(mount.stats(), Err(FileError::NoMount));
    let request = FileRequest::in_mount(mount.id());
    assert_eq!(vm.create_file(request), Err(FileError::NoMount));
    vm.audit().unwrap();
}

#[test]
fn a_page_that_is_not_mapped_is_not_taken_for_a_missing_space() {
    let vm = vm();
    let space = vm.create_space().unwrap();
    let page = space.map(&MapRequest::anonymous(1, RW)).unwrap();
    assert_eq!(space.translate(page), Err(MapError::NotMapped));
    assert_eq!(
        space.region_at(page).unwrap().range,
        PageRange::new(page, 1)
    );
    let after = page.offset(1);
    assert_eq!(space.region_at(after), Err(MapError::NotMapped));
    assert_eq!(space.translate(X86_64::USER_END), Err(MapError::NotMapped));
}

#[test]
fn handles_are_alike_if_they_name_one_thing_of_one_manager() {
    let [ours, theirs] = [(); 2].map(|()| vm());
    let space = ours.create_space().unwrap();
    assert_eq!(ours.space(space.id()), space);
    assert_ne!(space.fork().unwrap(), space);
    assert_ne!(theirs.space(space.id()), space, "of another manager");
    assert_eq!(space.group().unwrap(), ours.group(GroupId::ROOT));
}

#[test]
fn pages_are_pinned_as_long_as_somebody_holds_them() {
    let vm = vm();
    let space = vm.create_space().unwrap();
    let start = space.map(&MapRequest::anonymous(3, RW)).unwrap();
    let pins = |frame: Pfn| vm.memory().frame(frame).counts().pins();
    let mut frames = [Pfn::NONE; 3];
    let pinned = space.pin_pages(start, Access::Write, &mut frames).unwrap();
    let first = pinned[0];
    assert_eq!(space.translate(start).unwrap().0, first);
    assert_eq!((pinned.len(), pins(first)), (3, 1));
    let kept = pinned.into_frames().to_vec();
    assert_eq!(
        pins(first),
        1,
        "nobody holds them, and nobody has unpinned them"
    );
    // SAFETY: given up above.
    drop(unsafe { PinnedPages::from_frames(&vm, &kept) });
    assert!(kept.iter().all(|&frame| pins(frame) == 0));
    assert_eq!(space.exit(), Ok(true));
    vm.audit().unwrap();
}

#[test]
fn each_request_reads_what_each_request_has_written() {
    let vm = vm();
    let file = vm.create_file(FileRequest::shared_memory(0)).unwrap();
    assert_eq!(file.write(WriteRequest::bytes(2, &[b"cd", b"ef"])), Ok(4));
    assert_eq!(file.write(WriteRequest::append(&[b"gh"])), Ok((6, 2)));
    let ab = WriteRequest::parts(0, 2, |_, filling| _ = filling.put(b"ab"));
    assert_eq!(file.write(ab), Ok(2));
    let second = WriteRequest::pages(1, 1, |index, page| page.fill(index));
    assert_eq!(file.write(second), Ok(1));
    assert_eq!(file.size(), Ok(2 * 4096));

    let open = file.open().unwrap();
    for file in [file, open.on(&vm)] {
        let (mut head, mut tail) = ([0; 3], [0; 5]);
        let buffers = &mut [&mut head[..], &mut tail[..]];
        assert_eq!(file.read(ReadRequest::bytes(0, buffers)), Ok(8));
        assert_eq!((&head, &tail), (b"abc", b"defgh"));
        let mut seen = Vec::new();
        let parts = ReadRequest::parts(4094, 4, |at, part| {
            let mut bytes = [9; 4];
            seen.push((at, part.read(0, &mut bytes), bytes));
            part.len()
        });
        assert_eq!(file.read(parts), Ok(4));
        assert_eq!(seen, [(0, 2, [0, 0, 9, 9]), (2, 2, [1, 0, 9, 9])]);
        let mut indices = Vec::new();
        let pages = ReadRequest::pages(0, 9, |index, _| indices.push(index));
        assert_eq!(file.read(pages), Ok(2));
        assert_eq!(indices, [0, 1]);
    }
    vm.close(open).unwrap();
    file.release().unwrap();
    vm.audit().unwrap();
}
