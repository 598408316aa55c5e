//! Memory that has run out: who is named, and what the platform can do about it.

use std::sync::{Arc, Mutex};
use std::vec;

use super::*;
use crate::platform::{Rescue, Victim};
use crate::space::FileError;
use crate::swap::SwapArea;

const AT: u64 = 1000;

/// A space with `pages` private pages.
fn filled(vm: &TestVm, pages: u64) -> SpaceId {
    let space = vm.begin_space().unwrap();
    map(vm, space, AT, MapRequest::anonymous(5000, RW));
    for page in 0..pages {
        touch(vm, space, AT + page, Access::Write);
    }
    space
}

/// Stores to pages of a space until that fails; returns how many it could.
fn fill(vm: &TestVm, space: SpaceId, from: u64) -> u64 {
    let store = |page: &u64| vm.fault(space, (AT + page) << 12, Access::Write);
    let failed = (from..).find(|page| store(page).is_err()).unwrap();
    assert_eq!(store(&failed), Err(FaultError::OutOfMemory));
    vm.audit().unwrap();
    failed
}

/// Has the platform note who is named, and have `end` do something about it each time.
pub(super) fn watch(
    vm: &Arc<TestVm>,
    mut end: impl FnMut(&TestVm, SpaceId) -> Rescue + Send + 'static,
) -> Arc<Mutex<Vec<Victim>>> {
    let named: Arc<Mutex<Vec<Victim>>> = Arc::default();
    let (notes, weak) = (Arc::clone(&named), Arc::downgrade(vm));
    let rescue = move |victim: Option<Victim>| {
        let victim = victim.unwrap();
        notes.lock().unwrap().push(victim);
        let vm = weak.upgrade().unwrap();
        end(&vm, SpaceId::from_bits(victim.space))
    };
    *vm.platform().rescue.lock().unwrap() = Some(std::boxed::Box::new(rescue));
    named
}

#[test]
fn the_space_whose_end_frees_most_is_named_and_nothing_has_changed() {
    for design in ["", "reclaim=on"] {
        let vm = Arc::new(vm_with::<ByRegions>(design, 600));
        let (small, big) = (filled(&vm, 40), filled(&vm, 120));
        let named = watch(&vm, |_, _| Rescue::Fail);
        let stored = fill(&vm, small, 40);
        let named = core::mem::take(&mut *named.lock().unwrap());
        assert_eq!(named.len(), 2, "{design}: once for each failure");
        assert_eq!(named[0], named[1], "and alike");
        let wanted = if stored > 120 { small } else { big };
        assert_eq!(named[0].space, wanted.to_bits(), "{design}");
        let stats = vm.space_stats(wanted).unwrap();
        let tables = stats.table_bytes >> 12;
        assert_eq!(named[0].pages, stats.rss.anonymous + tables, "{design}");
        assert_eq!(vm.choose_victim(), Some(named[0]));
        assert_eq!(vm.space_stats(small).unwrap().rss.anonymous, stored);
        for space in [small, big] {
            assert_eq!(vm.exit(space), Ok(true));
        }
        assert_eq!(vm.choose_victim(), None);
        vm.audit().unwrap();
    }
}

#[test]
fn a_call_goes_on_when_a_space_has_ended() {
    let vm = Arc::new(vm_with::<ByRegions>("reclaim=on", 600));
    let (caller, big) = (filled(&vm, 10), filled(&vm, 300));
    let named = watch(&vm, |vm, victim| match vm.exit(victim) {
        Ok(true) => Rescue::Again,
        _ => Rescue::Fail,
    });
    for page in 0..300 {
        touch(&vm, caller, AT + page, Access::Write);
    }
    let named: Vec<u64> = (named.lock().unwrap().iter())
        .map(|victim| victim.space)
        .collect();
    assert_eq!(named, [big.to_bits()]);
    assert_eq!(vm.exit(big), Err(MapError::NoSpace));
    vm.audit().unwrap();
}

#[test]
fn pages_in_swap_count_and_those_of_objects_do_not() {
    let vm = vm_with::<ByRegions>("", 600);
    vm.swap_on(SwapArea::new(7, 100)).unwrap();
    let (swapped, shared) = (filled(&vm, 30), filled(&vm, 20));
    vm.advise(swapped, Vpn(AT), 30, Advice::PageOut).unwrap();
    map(&vm, shared, 9000, MapRequest::anonymous(60, RW).shared());
    for page in 0..60 {
        touch(&vm, shared, 9000 + page, Access::Write);
    }
    let victim = vm.choose_victim().unwrap();
    assert_eq!(victim.space, swapped.to_bits());
    assert!((30..40).contains(&victim.pages), "{victim:?}");
}

#[test]
fn a_platform_that_frees_nothing_is_not_asked_for_ever() {
    let vm = Arc::new(vm_with::<ByRegions>("", 300));
    let caller = filled(&vm, 1);
    let named = watch(&vm, |_, _| Rescue::Again);
    let stored = fill(&vm, caller, 1);
    assert_eq!(named.lock().unwrap().len(), 2 * 16);
    assert_eq!(vm.space_stats(caller).unwrap().rss.anonymous, stored);
}

#[test]
fn a_write_that_fails_has_told_how_much_it_wrote() {
    let vm = Arc::new(vm_with::<ByRegions>("reclaim=on", 300));
    filled(&vm, 20);
    let named = watch(&vm, |_, _| Rescue::Fail);
    let memory = vm.memory_pages(0).unwrap();
    let bytes = vec![5; 1000 << 12];
    let written = vm.page_cache().write_at(memory, 0, &[&bytes]).unwrap();
    assert!((100 << 12..280 << 12).contains(&written), "{written}");
    let more = vm.page_cache().write_at(memory, written as u64, &[&bytes]);
    assert_eq!(more, Err(FileError::OutOfMemory));
    assert_eq!(vm.page_cache().size(memory), Some(written as u64));
    assert_eq!(named.lock().unwrap().len(), 2);
    vm.audit().unwrap();
}
