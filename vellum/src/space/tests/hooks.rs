//! Fault hooks (userfaultfd), with every reverse-mapping design and some formats (invariant 18).

use std::collections::BTreeMap;
use std::string::String;
use std::vec;
use std::vec::Vec;

use super::*;
use crate::frame::{FailAt, Site};
use crate::platform::{HookAnswer, HookKind, HookedFault};
use crate::rmap::ReverseMap;
use crate::space::{HookError, Space, Supply};
use crate::swap::SwapArea;
use crate::table::{Format, X86Pae};

/// First page of a region with hooks.
const AT: u64 = 0x1000;
const PAGE: usize = 4096;
const MISSING: FaultError = FaultError::Hooked(HookKind::Missing);
const STORE: FaultError = FaultError::Hooked(HookKind::Store);
const MINOR: FaultError = FaultError::Hooked(HookKind::Minor);
const ALL: Traits = Traits::HOOK_MISSING.union(Traits::HOOK_STORES);

type On<'a, F, R> = Space<'a, TestMachine, F, R>;

fn vm_of<F: Format, R: ReverseMap>(design: &str) -> Vm<TestMachine, F, R> {
    run_on(0);
    let design = std::format!("{design},format={}", F::NAME);
    let vm = Vm::new(
        TestMachine::simple(2, 2048),
        Design::parse(&design).unwrap(),
    )
    .unwrap();
    vm.swap_on(SwapArea::new(77, 256)).unwrap();
    vm
}

fn map_at<F: Format, R: ReverseMap>(space: On<'_, F, R>, at: u64, request: MapRequest) {
    let placed = request.at(Placement::Fixed(Vpn(at)));
    assert_eq!(space.map(&placed), Ok(Vpn(at)));
}

fn pages(of: &[u8]) -> Vec<u8> {
    of.iter().flat_map(|byte| [*byte; PAGE]).collect()
}

/// The byte that a page is full of.
fn load<F: Format, R: ReverseMap>(space: On<'_, F, R>, page: u64) -> Result<u8, FaultError> {
    let mut bytes = [0; PAGE];
    let read = space.read(page << 12, &mut bytes)?;
    assert_eq!(read, PAGE);
    assert!(bytes.iter().all(|byte| *byte == bytes[0]), "torn");
    Ok(bytes[0])
}

/// Fills a page with a byte, as stores of the space's own would: the first faults.
fn store<F: Format, R: ReverseMap>(
    space: On<'_, F, R>,
    page: u64,
    byte: u8,
) -> Result<(), FaultError> {
    space.fault(page << 12, Access::Write)?;
    let written = space.write(page << 12, &[byte; PAGE])?;
    assert_eq!(written, PAGE);
    Ok(())
}

mod advised;

with_each_format! {
    a_missing_page_is_caught_by_every_access_until_it_is_supplied => missing;
    stores_to_protected_pages_are_caught_until_the_protection_ends => protected;
    pages_of_shared_memory_are_caught_as_missing_or_as_not_mapped => shared;
    protection_goes_to_swap_and_comes_back => swapped;
    a_forked_child_has_neither_hooks_nor_protection => forked;
    hooks_move_with_their_memory_and_what_is_dropped_is_missing => moved_and_dropped;
    calls_that_cannot_be_say_why_and_change_nothing => refused;
    random_calls_do_what_the_model_says => random;
}

fn missing<F: Format, R: ReverseMap>(design: &str) {
    let vm = vm_of::<F, R>(design);
    let space = vm.create_space().unwrap();
    map_at(space, AT, MapRequest::anonymous(8, RW));
    store(space, AT, 1).unwrap();
    space
        .hooks(Vpn(AT), 8)
        .register(Traits::HOOK_MISSING)
        .unwrap();
    assert_eq!(load(space, AT), Ok(1), "what was there stays: {design}");
    for access in [Access::Read, Access::Write] {
        assert_eq!(space.fault((AT + 1) << 12, access), Err(MISSING));
        let mut frames = [Pfn::NONE];
        let pinned = space.pin_pages(Vpn(AT + 1), access, &mut frames);
        assert!(matches!(pinned, Err(PinError::Fault(error)) if error == MISSING));
    }
    assert_eq!(space.populate(Vpn(AT), 8), Err(MISSING));
    let mut two = [0; 2 * PAGE];
    assert_eq!(
        space.read(AT << 12, &mut two),
        Ok(PAGE),
        "up to the missing one"
    );
    assert_eq!(space.write_forced((AT + 1) << 12, &[1]), Err(MISSING));
    assert_eq!(
        space.read_forced((AT + 1) << 12, &mut two[..1]),
        Err(MISSING)
    );
    let hooks = |page, count| space.hooks(Vpn(page), count);
    assert_eq!(
        hooks(AT + 1, 3).supply(Supply::Bytes(&pages(&[2, 3, 4]))),
        Ok(3)
    );
    assert_eq!(load(space, AT + 2), Ok(3));
    store(space, AT + 3, 5).unwrap();
    assert_eq!(
        hooks(AT + 3, 1).supply(Supply::Bytes(&pages(&[9]))),
        Err(HookError::Exists)
    );
    assert_eq!(load(space, AT + 3), Ok(5));
    // As far as it goes.
    assert_eq!(hooks(AT + 6, 1).supply(Supply::Zeroes), Ok(1));
    assert_eq!(hooks(AT + 4, 4).supply(Supply::Zeroes), Ok(2));
    assert_eq!(load(space, AT + 5), Ok(0));
    let frames = vm.audit().unwrap().frames.of(Kind::Anonymous);
    assert_eq!(frames, 4, "zeroes take no frame");
    store(space, AT + 5, 6).unwrap();
    assert_eq!(load(space, AT + 7), Err(MISSING));
    hooks(AT, 8).register(Traits::NONE).unwrap();
    assert_eq!(load(space, AT + 7), Ok(0));
    vm.audit().unwrap();
    assert_eq!(space.exit(), Ok(true));
    assert_eq!(vm.audit().unwrap().frames.of(Kind::Anonymous), 0);
}

fn protected<F: Format, R: ReverseMap>(design: &str) {
    let vm = vm_of::<F, R>(design);
    let space = vm.create_space().unwrap();
    map_at(space, AT, MapRequest::anonymous(600, RW));
    store(space, AT, 1).unwrap();
    store(space, AT + 1, 2).unwrap();
    load(space, AT + 2).unwrap();
    let hooks = |page, count| space.hooks(Vpn(page), count);
    hooks(AT, 600).register(Traits::HOOK_STORES).unwrap();
    store(space, AT, 3).unwrap();
    hooks(AT, 600).protect().unwrap();
    for page in [AT, AT + 1, AT + 2, AT + 3, AT + 599] {
        assert_eq!(store(space, page, 9), Err(STORE), "{design}: {page:#x}");
        assert!(space.fault(page << 12, Access::Read).is_ok());
        assert_eq!(space.write_forced(page << 12, &[9]), Err(STORE));
        assert_eq!(
            space.update_word(page << 12, |_| Some(9)),
            Err(crate::space::UpdateError::Fault(STORE))
        );
    }
    // A change of rights and back gives none to store.
    for prot in [Prot::NONE, Prot::READ, RW] {
        space.protect(Vpn(AT), 600, prot).unwrap();
    }
    assert_eq!(store(space, AT, 9), Err(STORE));
    vm.audit().unwrap();
    hooks(AT + 1, 2).unprotect().unwrap();
    store(space, AT + 1, 4).unwrap();
    store(space, AT + 2, 5).unwrap();
    assert_eq!(store(space, AT + 3, 9), Err(STORE));
    assert_eq!([load(space, AT), load(space, AT + 1)], [Ok(3), Ok(4)]);
    // Supplied so, and registered anew without.
    space.advise(Vpn(AT + 5), 1, Advice::DontNeed).unwrap();
    assert_eq!(
        hooks(AT + 5, 1).supply(Supply::Protected(&pages(&[6]))),
        Ok(1)
    );
    assert_eq!(store(space, AT + 5, 9), Err(STORE));
    assert_eq!(load(space, AT + 5), Ok(6));
    hooks(AT, 300).register(Traits::HOOK_MISSING).unwrap();
    store(space, AT + 5, 7).unwrap();
    assert_eq!(store(space, AT + 300, 9), Err(STORE));
    vm.audit().unwrap();
    hooks(AT, 600).register(Traits::NONE).unwrap();
    store(space, AT + 300, 8).unwrap();
    assert_eq!(store(space, AT, 9).and_then(|()| load(space, AT)), Ok(9));
    vm.audit().unwrap();
}

fn shared<F: Format, R: ReverseMap>(design: &str) {
    let vm = vm_of::<F, R>(design);
    let memory = vm.memory_pages(6).unwrap();
    let [space, other] = [(); 2].map(|()| vm.create_space().unwrap());
    for space in [space, other] {
        map_at(space, AT, MapRequest::object(memory, 0, 8, RW).shared());
    }
    store(other, AT, 1).unwrap();
    let hooks = |page, count| space.hooks(Vpn(page), count);
    hooks(AT, 8)
        .register(ALL.union(Traits::HOOK_MINOR))
        .unwrap();
    assert_eq!(load(space, AT), Err(MINOR), "{design}");
    assert_eq!(load(space, AT + 1), Err(MISSING));
    assert_eq!(load(space, AT + 6), Err(FaultError::PastEnd));
    assert_eq!(
        hooks(AT, 1).supply(Supply::Bytes(&pages(&[9]))),
        Err(HookError::Exists)
    );
    assert_eq!(hooks(AT, 2).supply(Supply::Present), Ok(1));
    assert_eq!(
        hooks(AT + 1, 1).supply(Supply::Present),
        Err(HookError::NoPage)
    );
    assert_eq!(hooks(AT, 1).supply(Supply::Present), Err(HookError::Exists));
    assert_eq!(
        hooks(AT + 6, 1).supply(Supply::Present),
        Err(HookError::PastEnd)
    );
    assert_eq!(load(space, AT), Ok(1));
    assert_eq!(
        hooks(AT + 1, 2).supply(Supply::Bytes(&pages(&[2, 3]))),
        Ok(2)
    );
    assert_eq!(hooks(AT + 3, 1).supply(Supply::Zeroes), Ok(1));
    assert_eq!(hooks(AT + 5, 2).supply(Supply::Zeroes), Ok(1), "to the end");
    assert_eq!(
        hooks(AT + 6, 1).supply(Supply::Zeroes),
        Err(HookError::PastEnd)
    );
    let seen = [1, 2, 3, 5].map(|page| load(other, AT + page));
    assert_eq!(seen, [Ok(2), Ok(3), Ok(0), Ok(0)]);
    // The other space maps a page that this one has not asked for.
    store(other, AT + 4, 4).unwrap();
    assert_eq!(load(space, AT + 4), Err(MINOR));
    hooks(AT, 8).protect().unwrap();
    assert_eq!(store(space, AT + 1, 9), Err(STORE));
    store(other, AT + 1, 5).unwrap();
    assert_eq!(load(space, AT + 1), Ok(5));
    // What is protected stays where it is; the rest leaves.
    other.unmap(Vpn(AT), 8).unwrap();
    space.advise(Vpn(AT), 8, Advice::PageOut).unwrap();
    assert_eq!(store(space, AT + 1, 9), Err(STORE));
    vm.audit().unwrap();
    hooks(AT, 8).unprotect().unwrap();
    store(space, AT + 1, 6).unwrap();
    space.advise(Vpn(AT), 8, Advice::PageOut).unwrap();
    assert_eq!(load(space, AT + 1), Err(MINOR), "in swap, and there");
    assert_eq!(hooks(AT + 1, 1).supply(Supply::Present), Ok(1));
    assert_eq!(load(space, AT + 1), Ok(6));
    // Protected without another hook, pages come to be.
    hooks(AT, 8).register(Traits::HOOK_STORES).unwrap();
    space.advise(Vpn(AT), 8, Advice::DontNeed).unwrap();
    hooks(AT, 8).protect().unwrap();
    assert_eq!(store(space, AT + 4, 9), Err(STORE));
    assert_eq!(load(space, AT + 4), Ok(4));
    vm.audit().unwrap();
    for space in [space, other] {
        assert_eq!(space.exit(), Ok(true));
    }
    vm.page_cache().release_object(memory).unwrap();
    vm.audit().unwrap();
}

fn swapped<F: Format, R: ReverseMap>(design: &str) {
    let vm = vm_of::<F, R>(design);
    let space = vm.create_space().unwrap();
    map_at(space, AT, MapRequest::anonymous(6, RW));
    for page in 0..6 {
        store(space, AT + page, page as u8 + 1).unwrap();
    }
    let hooks = |page, count| space.hooks(Vpn(page), count);
    let out = || space.advise(Vpn(AT), 6, Advice::PageOut).unwrap();
    hooks(AT, 6).register(ALL).unwrap();
    hooks(AT, 3).protect().unwrap();
    out();
    assert_eq!(space.stats().unwrap().swapped, 6, "{design}");
    // What is in swap already can be protected as well, and be so no longer.
    hooks(AT + 3, 1).protect().unwrap();
    hooks(AT + 2, 1).unprotect().unwrap();
    vm.audit().unwrap();
    assert_eq!(
        hooks(AT, 1).supply(Supply::Bytes(&pages(&[9]))),
        Err(HookError::Exists)
    );
    for page in [0, 1, 3] {
        assert_eq!(store(space, AT + page, 9), Err(STORE), "{page}");
        assert_eq!(load(space, AT + page), Ok(page as u8 + 1));
        assert_eq!(store(space, AT + page, 9), Err(STORE), "{page}");
    }
    store(space, AT + 2, 7).unwrap();
    out();
    let child = space.fork().unwrap();
    assert_eq!(store(space, AT, 9), Err(STORE), "not lost by fork");
    for page in [0, 3] {
        store(child, AT + page, 8).unwrap();
    }
    vm.audit().unwrap();
    out();
    vm.swap_off(77).unwrap();
    assert_eq!(store(space, AT + 3, 9), Err(STORE), "not lost by swapoff");
    store(space, AT + 2, 8).unwrap();
    assert_eq!(load(space, AT + 3), Ok(4));
    vm.audit().unwrap();
}

fn forked<F: Format, R: ReverseMap>(design: &str) {
    for forks in ["", ",forkcopy=all"] {
        let vm = vm_of::<F, R>(&std::format!("{design}{forks}"));
        let memory = vm.memory_pages(4).unwrap();
        let parent = vm.create_space().unwrap();
        map_at(parent, AT, MapRequest::anonymous(6, RW));
        map_at(
            parent,
            AT + 8,
            MapRequest::object(memory, 0, 4, RW).shared(),
        );
        store(parent, AT, 1).unwrap();
        store(parent, AT + 8, 2).unwrap();
        load(parent, AT + 1).unwrap();
        for (page, count) in [(AT, 6), (AT + 8, 4)] {
            let hooks = parent.hooks(Vpn(page), count);
            hooks.register(ALL).unwrap();
            hooks.protect().unwrap();
        }
        let child = parent.fork().unwrap();
        vm.audit().unwrap();
        for page in [AT, AT + 1, AT + 8] {
            assert_eq!(store(parent, page, 9), Err(STORE), "{design}");
        }
        assert_eq!(load(parent, AT + 2), Err(MISSING));
        for page in [AT + 8, AT + 9, AT, AT + 1, AT + 2] {
            store(child, page, 3).unwrap();
        }
        assert_eq!([load(parent, AT), load(parent, AT + 8)], [Ok(1), Ok(3)]);
        let hooks = child.hooks(Vpn(AT), 1);
        assert_eq!(hooks.protect(), Err(HookError::NotHooked));
        // The parent's page is copied only when the protection has ended.
        parent.hooks(Vpn(AT), 6).unprotect().unwrap();
        store(parent, AT, 4).unwrap();
        assert_eq!([load(parent, AT), load(child, AT)], [Ok(4), Ok(3)]);
        // A page that both have is copied to be pinned: a store, to whom watches.
        let third = parent.fork().unwrap();
        parent.hooks(Vpn(AT), 6).protect().unwrap();
        let mut frames = [Pfn::NONE];
        let pinned = parent.pin_pages(Vpn(AT), Access::Read, &mut frames);
        assert!(matches!(pinned, Err(PinError::Fault(error)) if error == STORE));
        vm.audit().unwrap();
        for space in [parent, child, third] {
            assert_eq!(space.exit(), Ok(true));
        }
    }
}

fn moved_and_dropped<F: Format, R: ReverseMap>(design: &str) {
    let vm = vm_of::<F, R>(design);
    let space = vm.create_space().unwrap();
    map_at(space, AT, MapRequest::anonymous(4, RW));
    for page in 0..3 {
        store(space, AT + page, page as u8 + 1).unwrap();
    }
    // So that moving copies, where a design needs that.
    let child = space.fork().unwrap();
    space.hooks(Vpn(AT), 4).register(ALL).unwrap();
    space.hooks(Vpn(AT), 4).protect().unwrap();
    let to = AT + 0x700;
    space
        .remap(Vpn(AT), 4, 6, RemapPlacement::Fixed(Vpn(to)))
        .unwrap();
    vm.audit().unwrap();
    assert_eq!(store(space, to + 1, 9), Err(STORE), "{design}");
    assert_eq!(load(space, to + 1), Ok(2));
    for page in [3, 5] {
        assert_eq!(load(space, to + page), Err(MISSING));
    }
    assert_eq!(load(child, AT + 1), Ok(2));
    space.advise(Vpn(to), 2, Advice::DontNeed).unwrap();
    assert_eq!(load(space, to), Err(MISSING));
    assert_eq!(space.hooks(Vpn(to), 1).supply(Supply::Zeroes), Ok(1));
    store(space, to, 5).unwrap();
    space.unmap(Vpn(to), 1).unwrap();
    assert_eq!(
        space.hooks(Vpn(to), 1).supply(Supply::Zeroes),
        Err(HookError::NotHooked)
    );
    map_at(space, to, MapRequest::anonymous(1, RW));
    assert_eq!(load(space, to), Ok(0), "what comes in its place has none");
    vm.audit().unwrap();
}

fn refused<F: Format, R: ReverseMap>(design: &str) {
    let vm = vm_of::<F, R>(design);
    let space = vm.create_space().unwrap();
    let (file, memory) = (vm.stored_pages(1, 4).unwrap(), vm.memory_pages(4).unwrap());
    map_at(space, AT, MapRequest::anonymous(4, RW));
    map_at(space, AT + 4, MapRequest::object(file, 0, 2, RW).shared());
    map_at(space, AT + 6, MapRequest::object(memory, 0, 2, RW));
    let bounded = MapRequest::anonymous(2, Prot::READ).at_most(Prot::READ);
    map_at(space, AT + 8, bounded);
    let hooks = |page, count| space.hooks(Vpn(page), count);
    for (page, count, traits, error) in [
        (AT + 3, 2, ALL, MapError::WrongKind),
        (AT + 6, 1, ALL, MapError::WrongKind),
        (AT, 1, Traits::HOOK_MINOR, MapError::WrongKind),
        (AT, 1, Traits::LOCKED, MapError::WrongKind),
        (AT + 8, 1, ALL, MapError::Rights),
        (AT + 9, 2, ALL, MapError::NotMapped),
        (AT, 0, ALL, MapError::BadRange),
        (F::USER_END.0, 1, ALL, MapError::BadRange),
    ] {
        let registered = hooks(page, count).register(traits);
        assert_eq!(registered, Err(error), "{design}: {page:#x}");
    }
    let nobody = vm.space(SpaceId::from_bits(u64::MAX)).hooks(Vpn(AT), 1);
    assert_eq!(nobody.register(ALL), Err(MapError::NoSpace));
    assert_eq!(nobody.supply(Supply::Zeroes), Err(HookError::NoSpace));
    assert_eq!(nobody.protect(), Err(HookError::NoSpace));
    assert_eq!(nobody.wake(), Err(HookError::NoSpace));
    let page = pages(&[1]);
    assert_eq!(
        hooks(AT, 1).supply(Supply::Bytes(&page)),
        Err(HookError::NotHooked)
    );
    assert_eq!(hooks(AT, 1).protect(), Err(HookError::NotHooked));
    hooks(AT, 2).register(Traits::HOOK_MISSING).unwrap();
    assert_eq!(
        hooks(AT, 2).supply(Supply::Bytes(&page)),
        Err(HookError::BadRange)
    );
    assert_eq!(
        hooks(AT, 0).supply(Supply::Bytes(&[])),
        Err(HookError::BadRange)
    );
    assert_eq!(
        hooks(AT, 1).supply(Supply::Protected(&page)),
        Err(HookError::NotHooked)
    );
    assert_eq!(
        hooks(AT, 1).supply(Supply::Present),
        Err(HookError::NotHooked)
    );
    hooks(AT, 1).register(Traits::HOOK_STORES).unwrap();
    assert_eq!(hooks(AT, 2).protect(), Err(HookError::NotHooked));
    assert_eq!(hooks(AT, 2).unprotect(), Err(HookError::NotHooked));
    store(space, AT, 1).unwrap();
    // Rights come before hooks.
    space.protect(Vpn(AT + 1), 1, Prot::READ).unwrap();
    assert_eq!(
        space.write((AT + 1) << 12, &[1]),
        Err(FaultError::Protection)
    );
    assert_eq!(load(space, AT + 1), Err(MISSING));
    let pin = vm.pin();
    assert_eq!(hooks(AT, 1).protect(), Err(HookError::Pinned));
    assert_eq!(hooks(AT, 1).register(ALL), Err(MapError::Pinned));
    drop(pin);
    vm.audit().unwrap();
}

/// Calls that need memory of all kinds, of which one allocation may fail. Whether none did.
fn calls<F: Format, R: ReverseMap>(space: On<'_, F, R>, far: u64) -> bool {
    let hooks = |page, count| space.hooks(Vpn(page), count);
    let registered = hooks(AT + 1, 0x1fff).register(ALL).is_ok();
    registered
        & (hooks(far, 2).supply(Supply::Protected(&pages(&[1, 2]))) == Ok(2))
        & (hooks(AT + 700, 1).supply(Supply::Zeroes) == Ok(1))
        & hooks(far, 700).protect().is_ok()
        & hooks(far, 700).unprotect().is_ok()
}

fn out_of_memory<R: ReverseMap>(design: &str) {
    let far = AT + 0x1800;
    let plans = Site::ALL
        .iter()
        .flat_map(|site| [(*site, false), (*site, true)]);
    for (site, is_shared) in plans {
        for after in 0.. {
            let vm = vm_of::<X86_64, R>(design);
            let space = vm.create_space().unwrap();
            let memory = vm.memory_pages(0x2000).unwrap();
            let request = match is_shared {
                true => MapRequest::object(memory, 0, 0x2000, RW).shared(),
                false => MapRequest::anonymous(0x2000, RW),
            };
            map_at(space, AT, request);
            vm.memory().inject(Some(FailAt { site, after }));
            let is_well = calls(space, far);
            vm.memory().inject(None);
            let is_past = vm.memory().reached(site) <= u64::from(after);
            assert!(is_well || !is_past, "{design}: {site:?} {after}");
            vm.audit().unwrap();
            // Nothing is in the way of another try.
            space.hooks(Vpn(AT + 1), 0x1fff).register(ALL).unwrap();
            for (page, byte) in [(far, 1), (far + 1, 2)] {
                let supply = || {
                    space
                        .hooks(Vpn(page), 1)
                        .supply(Supply::Bytes(&pages(&[byte])))
                };
                assert!(matches!(supply(), Ok(1) | Err(HookError::Exists)));
                assert_eq!(supply(), Err(HookError::Exists), "{design}: {site:?}");
            }
            assert_eq!(load(space, far + 1), Ok(2));
            assert_eq!(space.exit(), Ok(true));
            vm.page_cache().release_object(memory).unwrap();
            vm.audit().unwrap();
            if is_past {
                break;
            }
        }
    }
}

with_each_design! {
    memory_that_runs_out_leaves_pages_missing => out_of_memory;
}

/// What a model knows of a page.
#[derive(Clone, Copy, Default, PartialEq, Debug)]
struct Page {
    /// What it is full of, if it is there: of private memory in the space, of shared in the object.
    byte: Option<u8>,
    is_protected: bool,
}

/// A region, and what it must show.
struct Model {
    at: u64,
    is_shared: bool,
    hooks: Traits,
    pages: Vec<Page>,
}

const PAGES: u64 = 24;

impl Model {
    /// What catches an access to a page that the space maps, or does not.
    fn caught(&self, page: u64, stores: bool, is_mapped: bool) -> Option<FaultError> {
        let state = self.pages[page as usize];
        let is_there = match self.is_shared {
            true => is_mapped,
            false => state.byte.is_some(),
        };
        if is_there {
            return (stores && state.is_protected).then_some(STORE);
        }
        match state.byte {
            None => self.hooks.has(Traits::HOOK_MISSING).then_some(MISSING),
            Some(_) => self.hooks.has(Traits::HOOK_MINOR).then_some(MINOR),
        }
    }

    /// The page is there from now on.
    fn fault_in(&mut self, page: u64) -> &mut Page {
        let state = &mut self.pages[page as usize];
        state.byte.get_or_insert(0);
        state
    }
}

/// One call on a region, held against its model.
fn step<F: Format, R: ReverseMap>(space: On<'_, F, R>, model: &mut Model, rng: &mut Rng) -> String {
    let page = rng.below(PAGES as usize) as u64;
    let count = 1 + rng.below((PAGES - page).min(5) as usize) as u64;
    let byte = 1 + rng.below(200) as u8;
    let place = model.at + page;
    let hooks = space.hooks(Vpn(place), count);
    let one = space.hooks(Vpn(place), 1);
    let is_mapped = |page: u64| space.translate(Vpn(page)).is_ok();
    let was_mapped = is_mapped(place);
    let range = page as usize..(page + count) as usize;
    let kind = rng.below(14);
    match kind {
        0 | 1 => {
            let caught = model.caught(page, true, was_mapped);
            let stored = store(space, place, byte);
            assert_eq!(stored.err(), caught);
            if caught.is_none() {
                model.fault_in(page).byte = Some(byte);
            }
        }
        2 | 3 => {
            let caught = model.caught(page, false, was_mapped);
            let wanted = caught.map_or_else(|| Ok(model.fault_in(page).byte.unwrap()), Err);
            assert_eq!(load(space, place), wanted);
        }
        4..=6 => {
            let is_protected = kind == 5;
            let state = model.pages[page as usize];
            let supplied = match kind {
                4 => one.supply(Supply::Bytes(&pages(&[byte]))),
                5 => one.supply(Supply::Protected(&pages(&[byte]))),
                _ => one.supply(Supply::Zeroes),
            };
            let lacks = is_protected && !model.hooks.has(Traits::HOOK_STORES);
            let wanted = match state.byte {
                _ if model.hooks == Traits::NONE || lacks => Err(HookError::NotHooked),
                Some(_) => Err(HookError::Exists),
                None => Ok(1),
            };
            assert_eq!(supplied, wanted);
            if wanted.is_ok() {
                let byte = Some(if kind == 6 { 0 } else { byte });
                model.pages[page as usize] = Page { byte, is_protected };
            }
        }
        7 => {
            let present = model.pages[page as usize].byte.is_some();
            let wanted = match model.is_shared && model.hooks != Traits::NONE {
                false => Err(HookError::NotHooked),
                true if was_mapped => Err(HookError::Exists),
                true if present => Ok(1),
                true => Err(HookError::NoPage),
            };
            let mapped = one.supply(Supply::Present);
            // Private memory that is there says so first.
            let is_there = !model.is_shared && model.hooks != Traits::NONE && present;
            assert_eq!(
                mapped,
                if is_there {
                    Err(HookError::Exists)
                } else {
                    wanted
                }
            );
        }
        8 | 9 => {
            let wanted = model.hooks.has(Traits::HOOK_STORES);
            let mapped = range.clone().map(|page| is_mapped(model.at + page as u64));
            let mapped: Vec<bool> = mapped.collect();
            let done = if kind == 8 {
                hooks.protect()
            } else {
                hooks.unprotect()
            };
            assert_eq!(done.is_ok(), wanted, "{done:?}");
            for (page, is_mapped) in range.zip(mapped) {
                let is_caught = model.caught(page as u64, false, is_mapped).is_some();
                if wanted && kind == 9 {
                    model.pages[page].is_protected = false;
                } else if wanted && !is_caught {
                    model.fault_in(page as u64).is_protected = true;
                }
            }
        }
        10 => {
            space.advise(Vpn(place), count, Advice::DontNeed).unwrap();
            for page in range {
                let state = &mut model.pages[page];
                state.is_protected = false;
                state.byte = state.byte.filter(|_| model.is_shared);
            }
        }
        11 => {
            space.advise(Vpn(place), count, Advice::PageOut).unwrap();
            for page in range {
                let stays = model.is_shared && model.pages[page].is_protected;
                assert!(!stays || is_mapped(model.at + page as u64));
            }
        }
        12 => {
            let of = [
                Traits::HOOK_MISSING,
                Traits::HOOK_STORES,
                Traits::HOOK_MINOR,
            ];
            let kinds = if model.is_shared { 3 } else { 2 };
            let chosen = of[..kinds].iter().filter(|_| rng.below(2) == 0);
            model.hooks = chosen.fold(Traits::NONE, |all, one| all.union(*one));
            let whole = space.hooks(Vpn(model.at), PAGES);
            whole.register(model.hooks).unwrap();
            if !model.hooks.has(Traits::HOOK_STORES) {
                model
                    .pages
                    .iter_mut()
                    .for_each(|page| page.is_protected = false);
            }
        }
        _ if rng.below(2) == 0 => {
            let to = model.at ^ 0x100;
            let placed = RemapPlacement::Fixed(Vpn(to));
            space.remap(Vpn(model.at), PAGES, PAGES, placed).unwrap();
            model.at = to;
        }
        _ => {
            let child = space.fork().unwrap();
            let state = model.pages[page as usize];
            assert_eq!(load(child, place), Ok(state.byte.unwrap_or(0)));
            match model.is_shared {
                true => drop(model.fault_in(page)),
                false => store(child, place, byte).unwrap(),
            }
            assert_eq!(child.exit(), Ok(true));
        }
    }
    std::format!("{kind} at {page} for {count}, byte {byte}")
}

fn random<F: Format, R: ReverseMap>(design: &str) {
    let vm = vm_of::<F, R>(design);
    let memory = vm.memory_pages(PAGES).unwrap();
    let space = vm.create_space().unwrap();
    let new = |at, is_shared| Model {
        at,
        is_shared,
        hooks: Traits::NONE,
        pages: vec![Page::default(); PAGES as usize],
    };
    let mut models = [new(AT, false), new(AT + 0x1000, true)];
    map_at(space, AT, MapRequest::anonymous(PAGES, RW));
    let request = MapRequest::object(memory, 0, PAGES, RW).shared();
    map_at(space, AT + 0x1000, request);
    let mut rng = Rng::new(5);
    let mut done = BTreeMap::new();
    for number in 0..1500 {
        let which = rng.below(2);
        let before = std::format!("{design} {}: step {number}, {which}", F::NAME);
        let told = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            step(space, &mut models[which], &mut rng)
        }));
        let told = told.unwrap_or_else(|_| panic!("{before}; before: {done:?}"));
        done.insert(number, told);
        done.remove(&(number - 20));
        if number % 50 == 0 {
            vm.audit()
                .unwrap_or_else(|error| panic!("{before}: {error:?}; {done:?}"));
        }
    }
    assert_eq!(space.exit(), Ok(true));
    vm.page_cache().release_object(memory).unwrap();
    vm.audit().unwrap();
}

/// Whoever waits is woken by these, and goes on.
#[test]
fn tasks_that_wait_go_on_when_their_page_is_resolved() {
    type Resolve = fn(On<'_, X86_64, ByRegions>);
    let supply: Resolve = |space| {
        assert_eq!(
            space.hooks(Vpn(AT), 1).supply(Supply::Bytes(&pages(&[7]))),
            Ok(1)
        );
    };
    let far: Resolve = |space| {
        let quiet = space.hooks(Vpn(AT), 1).quiet();
        assert_eq!(quiet.supply(Supply::Bytes(&pages(&[7]))), Ok(1));
        // More pages than the table of those who wait has lists.
        space.hooks(Vpn(AT - 100), 200).wake().unwrap();
    };
    let unregister: Resolve = |space| space.hooks(Vpn(AT), 4).register(Traits::NONE).unwrap();
    let unmap: Resolve = |space| space.unmap(Vpn(AT), 4).unwrap();
    let moves: Resolve = |space| {
        let placed = RemapPlacement::Fixed(Vpn(AT + 64));
        space.remap(Vpn(AT), 4, 4, placed).unwrap();
    };
    let gone = Err(FaultError::NoRegion);
    for (resolve, wanted) in [
        (supply, Ok(7)),
        (far, Ok(7)),
        (unregister, Ok(0)),
        (unmap, gone),
        (moves, gone),
    ] {
        let vm = vm();
        let space = vm.create_space().unwrap();
        map_at(space, AT, MapRequest::anonymous(4, RW));
        space.hooks(Vpn(AT), 4).register(ALL).unwrap();
        let (told, hears) = std::sync::mpsc::channel();
        let told = Mutex::new(told);
        let hook = move |fault: &HookedFault| {
            assert_eq!((fault.kind, fault.address), (HookKind::Missing, AT << 12));
            told.lock().unwrap().send(fault.space).unwrap();
            HookAnswer::Wait
        };
        *vm.platform().hook.lock().unwrap() = Some(Arc::new(hook));
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                run_on(1);
                load(space, AT)
            });
            assert_eq!(hears.recv().unwrap(), space.id().to_bits());
            run_on(0);
            resolve(space);
            assert_eq!(waiter.join().unwrap(), wanted);
        });
        vm.audit().unwrap();
    }
}

#[test]
fn a_task_that_is_woken_in_vain_is_told_of_again_and_can_be_ended() {
    let vm = vm();
    let space = vm.create_space().unwrap();
    map_at(space, AT, MapRequest::anonymous(4, RW));
    space.hooks(Vpn(AT), 4).register(ALL).unwrap();
    let (told, hears) = std::sync::mpsc::channel();
    let told = Mutex::new((told, 0));
    let hook = move |_: &HookedFault| {
        let mut told = told.lock().unwrap();
        told.1 += 1;
        told.0.send(told.1).unwrap();
        match told.1 {
            3 => HookAnswer::Fail,
            _ => HookAnswer::Wait,
        }
    };
    *vm.platform().hook.lock().unwrap() = Some(Arc::new(hook));
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            run_on(1);
            load(space, AT)
        });
        let mut heard = 0;
        while heard < 3 {
            heard = hears.try_recv().unwrap_or(heard);
            run_on(0);
            space.hooks(Vpn(AT), 1).wake().unwrap();
            std::thread::yield_now();
        }
        assert_eq!(waiter.join().unwrap(), Err(MISSING));
    });
    // Who is pinned does not wait.
    *vm.platform().hook.lock().unwrap() = Some(Arc::new(|_| HookAnswer::Wait));
    let pin = vm.pin();
    assert_eq!(space.fault(AT << 12, Access::Read), Err(MISSING));
    drop(pin);
    vm.audit().unwrap();
}

#[test]
fn superpages_are_split_to_be_protected_and_none_is_made_over_hooks() {
    for design in ["superpage=eager", "superpage=reserve", "folio=64k"] {
        let vm: TestVm = vm_with(design, 8192);
        let space = vm.create_space().unwrap();
        let base = 0x10000;
        map_at(space, base, MapRequest::anonymous(1024, RW));
        for page in 0..512 {
            store(space, base + page, 1).unwrap();
        }
        let is_large = !design.starts_with("folio");
        assert_eq!(large_leaves(&vm, space.id()).len(), usize::from(is_large));
        let hooks = |page, count| space.hooks(Vpn(page), count);
        hooks(base, 1024).register(Traits::HOOK_STORES).unwrap();
        hooks(base + 5, 1).protect().unwrap();
        assert_eq!(store(space, base + 5, 9), Err(STORE));
        store(space, base + 6, 2).unwrap();
        hooks(base, 1024).protect().unwrap();
        for page in [0, 6, 511, 512, 1023] {
            assert_eq!(store(space, base + page, 9), Err(STORE), "{design}: {page}");
        }
        let report = space.collapse(Vpn(base), 2, 1).unwrap();
        assert_eq!(report.collapsed, 0);
        hooks(base, 1024).unprotect().unwrap();
        for page in 0..1024 {
            store(space, base + page, 3).unwrap();
        }
        assert!(large_leaves(&vm, space.id()).is_empty());
        vm.audit().unwrap();
        hooks(base, 1024).register(Traits::NONE).unwrap();
        let report = space.collapse(Vpn(base), 2, 1).unwrap();
        assert_eq!(report.collapsed, if is_large { 2 } else { 0 });
        assert_eq!(load(space, base + 700), Ok(3));
        vm.audit().unwrap();
    }
}

#[test]
fn superpages_of_shared_memory_are_split_to_be_protected() {
    let vm: TestVm = vm_with("huge=always", 4096);
    let memory = vm.memory_pages(1024).unwrap();
    let space = vm.create_space().unwrap();
    let base = 0x10000;
    map_at(
        space,
        base,
        MapRequest::object(memory, 0, 1024, RW).shared(),
    );
    store(space, base, 1).unwrap();
    assert_eq!(large_leaves(&vm, space.id()), [base]);
    let hooks = |page, count| space.hooks(Vpn(page), count);
    hooks(base, 1024).register(Traits::HOOK_STORES).unwrap();
    hooks(base, 1024).protect().unwrap();
    for page in [0, 511, 512, 1023] {
        assert_eq!(store(space, base + page, 9), Err(STORE), "{page}");
    }
    assert_eq!(load(space, base), Ok(1));
    hooks(base, 1024).unprotect().unwrap();
    store(space, base + 700, 2).unwrap();
    vm.audit().unwrap();
}

#[test]
fn what_is_made_in_a_range_with_minor_hooks_is_mapped_alone() {
    let vm: TestVm = vm_with("faultaround=16", 1024);
    let memory = vm.memory_pages(16).unwrap();
    let [space, other] = [(); 2].map(|()| vm.create_space().unwrap());
    for space in [space, other] {
        map_at(space, AT, MapRequest::object(memory, 0, 16, RW).shared());
    }
    store(other, AT + 1, 1).unwrap();
    let hooks = space.hooks(Vpn(AT), 16);
    hooks.register(Traits::HOOK_MINOR).unwrap();
    assert_eq!(load(space, AT), Ok(0));
    assert_eq!(load(space, AT + 1), Err(MINOR));
    assert_eq!(space.hooks(Vpn(AT + 1), 1).supply(Supply::Present), Ok(1));
    assert_eq!(load(space, AT + 1), Ok(1));
    vm.audit().unwrap();
}

#[test]
fn entries_of_32_bit_machines_have_the_mark_too() {
    let vm = vm_of::<X86Pae, ByRegions>("");
    let space = vm.create_space().unwrap();
    map_at(space, AT, MapRequest::anonymous(4, RW));
    store(space, AT, 1).unwrap();
    space.hooks(Vpn(AT), 4).register(ALL).unwrap();
    space.hooks(Vpn(AT), 4).protect().unwrap();
    space.advise(Vpn(AT), 4, Advice::PageOut).unwrap();
    assert_eq!(store(space, AT, 9), Err(STORE));
    assert_eq!(load(space, AT), Ok(1));
    vm.audit().unwrap();
}
