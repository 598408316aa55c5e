//! What the cache of an object says of its pages, and gives back.

use std::vec::Vec;

use super::*;
use crate::frame::MappingsCounted;
use crate::platform::GroupId;
use crate::sync::Turn;

type Cache = Objects<()>;

fn cache(memory: &Memory) -> Cache {
    Objects::new(&arenas(memory), RegionIndex::Tree)
}

fn file(objects: &Cache, memory: &Memory, pages: u64) -> ObjectId {
    let kind = ObjectKind::File { store: 0 };
    let pin = memory.pin();
    objects.create(memory, &pin, kind, pages << 12, 0).unwrap()
}

/// Makes and fills the page at `index`; its cache has the only reference.
fn filled(objects: &Cache, memory: &Memory, file: ObjectId, index: u64) -> Pfn {
    let pin = memory.pin();
    let page = objects
        .page(memory, &pin, (file.handle, index), GroupId::ROOT.into())
        .unwrap();
    let CachedPage::Fill(lock) = page else {
        panic!("a new page of a file has to be filled, not {page:?}");
    };
    let page = lock.page();
    objects.filled(memory, &pin, lock);
    memory.put(&pin, page);
    page
}

/// An object that nobody else knows.
struct Alone<'o>(&'o Object);

impl HoldsPages for Alone<'_> {
    fn object(&self) -> &Object {
        self.0
    }
}

/// Every reason for which a page that was found in the cache may not be mapped.
#[test]
fn a_page_is_attached_only_unlocked_and_below_the_end_of_its_object() {
    let memory = memory(512);
    let objects = cache(&memory);
    let (id, other) = (file(&objects, &memory, 8), file(&objects, &memory, 8));
    let page = filled(&objects, &memory, id, 4);
    let is_attached = |id: ObjectId| {
        let place = (objects.get(id.handle), id.handle);
        objects.is_attached(&memory, page, place, 4, MappingsCounted::now())
    };
    assert!(is_attached(id));
    assert!(!is_attached(other), "another object");
    let lock = objects.locks.try_lock(&memory, page).unwrap();
    assert!(!is_attached(id), "locked");
    objects.locks.unlock(&memory, &memory.pin(), lock);
    let object = objects.get(id.handle);
    objects.set_size_then(&Alone(object), (4 << 12, 4), || ());
    assert!(!is_attached(id), "behind the end");
    objects.set_size_then(&Alone(object), (8 << 12, 8), || ());
    assert!(is_attached(id));
    // With a reference the frame stays what it is when it has left the cache.
    let pin = memory.pin();
    assert!(memory.frame(page).try_get(Turn::at(&pin, page.0)));
    let lock = objects.locks.try_lock(&memory, page).unwrap();
    objects.detach(&memory, &pin, object, 4, &lock);
    objects.locks.unlock(&memory, &pin, lock);
    assert!(!is_attached(id), "detached");
}

/// Frames that could not be had are not charged, nor are those given back.
#[test]
fn a_run_charges_its_mount_with_the_frames_it_has() {
    let memory = memory(512);
    let objects = cache(&memory);
    let pin = memory.pin();
    let mount = objects.create_mount(&memory, &pin, 20).unwrap();
    let used = || objects.mount_stats(mount).unwrap().used;
    let joined = objects.join_mount(&pin, mount).unwrap();
    let kind = ObjectKind::SharedMemory;
    let id = objects.create(&memory, &pin, kind, 64 << 12, joined);
    let handle = id.unwrap().handle;
    let fail_after = |after| {
        let site = Site::CachePage;
        memory.inject(Some(FailAt { site, after }));
    };
    fail_after(3);
    let new = (NewPages::Written, GroupId::ROOT.into());
    let alloc = |frames: &mut [Pfn]| objects.alloc_run(&memory, &pin, (handle, 0), new, frames);
    let mut frames = [Pfn::NONE; 64];
    assert_eq!((alloc(&mut frames[..10]), used()), (Ok(3), 3));
    assert_eq!(frames[3], Pfn::NONE, "it could not be had");
    fail_after(0);
    assert_eq!(alloc(&mut [Pfn::NONE; 10]), Err(CacheError::OutOfMemory));
    assert_eq!(used(), 3);
    memory.inject(None);
    objects.drop_frames(&memory, &pin, handle, &frames[..3]);
    assert_eq!(used(), 0);
    assert_eq!(
        (alloc(&mut frames), used()),
        (Ok(20), 20),
        "as many as it may"
    );
}

/// A fault that could not see the cut makes a page in the midst of those that a
/// truncation has locked.
#[test]
fn a_run_of_pages_leaves_without_what_others_have_put_between_them() {
    let memory = memory(512);
    let objects = cache(&memory);
    let id = file(&objects, &memory, 8);
    let pages: Vec<Pfn> = (0..5)
        .map(|index| filled(&objects, &memory, id, index))
        .collect();
    let locked = [pages[0], pages[1], pages[3]];
    for page in locked {
        assert!(objects.locks.try_lock(&memory, page).is_some());
    }
    let (pin, object) = (memory.pin(), objects.get(id.handle));
    objects.detach_run(&memory, &pin, object, 0..5, &locked);
    assert_eq!(object.cached(), 2);
    for (index, &page) in (0..).zip(&pages) {
        let stays = !locked.contains(&page);
        let found = objects.peek(&pin, object, index);
        assert_eq!(found, stays.then_some(page), "page {index}");
        assert_eq!(memory.frame(page).owner() != 0, stays, "page {index}");
    }
}

/// A search that has come to a node goes on reading it after it has left the tree.
#[test]
fn a_node_is_not_used_anew_while_a_search_may_be_in_it() {
    let memory = memory(512);
    let nodes = arenas(&memory).make();
    let roots = [AtomicU64::new(0), AtomicU64::new(0)];
    let searcher = memory.pin();
    let [tree, other] = [&roots[0], &roots[1]].map(|root| tree_at(&nodes, root, &searcher));
    let insert = |tree: &Radix<'_>, frame| {
        Radix::prepare(&nodes, &searcher, &memory).unwrap();
        tree.insert(3, Pfn(frame)).unwrap();
    };
    insert(&tree, 1);
    let leaf = tree.leaf(3).unwrap();
    assert_eq!(tree.remove(3), Some(Pfn(1)));
    insert(&other, 2);
    assert_eq!(leaf.frame(3), None, "the search is in another tree");
}
