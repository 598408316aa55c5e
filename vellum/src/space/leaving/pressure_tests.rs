//! The order in which ways to make room are tried.

use core::cell::Cell;

use super::*;
use crate::addr::Pfn;
use crate::object::PageLock;
use crate::reclaim::{Used, Walked};
use crate::space::state::common::Mappings;
use crate::space::tests::vm;

/// Those who can have tables moved, once low memory is lacking.
struct Low {
    is_lacking: Cell<bool>,
    moved: Cell<u32>,
}

impl MakesRoom for Low {
    fn make_room_for(
        &self,
        _: Unpinned<'_>,
        _: Option<Lack>,
        _: Option<&dyn Lends>,
        _: &mut dyn FnMut(Unpinned<'_>) -> Option<Lack>,
    ) {
    }
}

impl Mappings for Low {
    fn group_loaded(&self, _: &Pin<'_>) -> GroupId {
        GroupId::ROOT
    }
    fn unmap_page(&self, _: &Pin<'_>, _: &PageLock, _: bool) {}
    fn take_dirty_marks(&self, _: &Pin<'_>, _: Pfn) {}
    fn zap_copies(&self, _: u32, _: u64) {}
    fn take_marks(&self, _: &Pin<'_>, _: Pfn) -> Used {
        Used::default()
    }
    fn swap_entries(&self, _: &Pin<'_>, _: Pfn, _: u64) -> u32 {
        0
    }
    fn drop_freed(&self, _: Pfn) -> bool {
        false
    }
    fn demote_all_of(&self, _: Unpinned<'_>, _: Pfn) -> bool {
        false
    }
    fn walk_tables(&self, _: Unpinned<'_>, _: (usize, u32), _: &mut dyn FnMut(Pfn)) -> Walked {
        Walked::default()
    }
    fn give_back_frames(&self, _: &Pin<'_>) -> u64 {
        0
    }
    fn make_room_for_nodes(&self) -> bool {
        false
    }
    fn make_low_room(&self, _: Unpinned<'_>, _: u32) -> Option<bool> {
        self.is_lacking.get().then(|| {
            self.moved.set(self.moved.get() + 1);
            true
        })
    }
    fn is_rescued(&self, _: Unpinned<'_>, _: Lack) -> bool {
        false
    }
}

#[test]
fn low_memory_may_be_lacking_after_other_memory_was() {
    let vm = vm();
    let low = Low {
        is_lacking: Cell::new(false),
        moved: Cell::new(0),
    };
    let cache = PageCache {
        mappings: &low,
        ..vm.page_cache()
    };
    let (mut unpinned, mut effort) = (Unpinned::at_door(), Effort::default());
    assert!(!cache.make_room(unpinned.reborrow(), &mut effort));
    low.is_lacking.set(true);
    assert!(cache.make_room(unpinned, &mut effort));
    assert_eq!(low.moved.get(), 1);
}
