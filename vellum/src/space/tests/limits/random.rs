//! Random calls beside a model that counts what is there page by page.

use super::*;

const PAGES: usize = 48;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Page {
    prot: Prot,
    most: Prot,
    is_sealed: bool,
    is_locked: bool,
    folio: Option<u32>,
    offset: u64,
}

/// Pages from [`AT`] on.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Model([Option<Page>; PAGES]);

/// Regions, pages and locked pages.
type Counts = [u64; 3];

#[derive(Clone, Copy, Debug)]
enum Call {
    /// Rights, at most which, and whether locked.
    Map(Prot, Prot, bool),
    Unmap,
    Protect(Prot),
    Lock(bool),
    Folio(Option<u32>),
    /// Place and length.
    Remap(usize, usize),
    Seal,
}

impl Model {
    fn goes_on(&self, at: usize) -> bool {
        let (Some(before), Some(page)) = (self.0[at - 1], self.0[at]) else {
            return false;
        };
        let offset = before.offset + 1;
        Page { offset, ..before } == page
    }

    /// What there is, if regions do not go on at `edges`.
    fn counts(&self, edges: &[usize]) -> Counts {
        let begins = |at: &usize| {
            let is_new = *at == 0 || edges.contains(at) || !self.goes_on(*at);
            self.0[*at].is_some() && is_new
        };
        let pages = || self.0.iter().flatten();
        let locked = pages().filter(|page| page.is_locked).count();
        let regions = (0..PAGES).filter(begins).count();
        [regions, pages().count(), locked].map(|count| count as u64)
    }

    /// Whether all of it lies in one region.
    fn is_one(&self, start: usize, end: usize) -> bool {
        self.0[start].is_some() && (start + 1..end).all(|at| self.goes_on(at))
    }

    /// Why a rule refuses a call, if one does.
    fn rule(&self, (start, end): (usize, usize), call: Call) -> Option<MapError> {
        let exceeds = |prot: Prot, most: Prot| prot.bits() & !most.bits() != 0;
        if matches!(call, Call::Map(prot, most, _) if exceeds(prot, most)) {
            return Some(MapError::Rights);
        }
        let changed = match call {
            Call::Map(..) | Call::Unmap | Call::Protect(_) => [start..end, 0..0],
            Call::Remap(to, pages) => [start..end, to..to + pages],
            Call::Lock(_) | Call::Folio(_) | Call::Seal => return None,
        };
        let mut pages = changed.into_iter().flatten().filter_map(|at| self.0[at]);
        pages.find_map(|page| match call {
            _ if page.is_sealed => Some(MapError::Sealed),
            Call::Protect(prot) if exceeds(prot, page.most) => Some(MapError::Rights),
            _ => None,
        })
    }

    /// Does what a call does. `None` if that is refused whatever the limits are; otherwise with
    /// the places where regions count as two.
    fn apply(&mut self, start: usize, end: usize, call: Call) -> Option<Vec<usize>> {
        let was = self.0;
        if !matches!(call, Call::Map(..) | Call::Unmap)
            && self.0[start..end].iter().any(Option::is_none)
        {
            return None;
        }
        for at in start..end {
            let page = &mut self.0[at];
            match (call, page) {
                (Call::Map(prot, most, is_locked), page) => {
                    *page = Some(Page {
                        prot,
                        most,
                        is_sealed: false,
                        is_locked,
                        folio: None,
                        offset: AT + at as u64,
                    });
                }
                (Call::Unmap | Call::Remap(..), page) => *page = None,
                (Call::Protect(prot), Some(page)) => page.prot = prot,
                (Call::Lock(is_locked), Some(page)) => page.is_locked = is_locked,
                (Call::Folio(folio), Some(page)) => page.folio = folio,
                (Call::Seal, Some(page)) => page.is_sealed = true,
                (_, None) => return None,
            }
        }
        let Call::Remap(to, pages) = call else {
            return Some(Vec::new());
        };
        let overlaps = to < end && start < to + pages;
        if overlaps || !Model(was).is_one(start, end) {
            return None;
        }
        for nth in 0..pages {
            let page = was[start].unwrap();
            let offset = page.offset + nth as u64;
            self.0[to + nth] = Some(Page { offset, ..page });
        }
        Some(std::vec![to, to + pages])
    }
}

fn call<R: crate::rmap::ReverseMap>(
    vm: &TestVm<R>,
    space: SpaceId,
    (start, end): (usize, usize),
    call: Call,
) -> Result<(), MapError> {
    let (at, pages) = (Vpn(AT + start as u64), (end - start) as u64);
    match call {
        Call::Map(prot, most, is_locked) => {
            let traits = if is_locked {
                Traits::LOCKED
            } else {
                Traits::NONE
            };
            let request = MapRequest {
                traits,
                ..MapRequest::anonymous(pages, prot)
            };
            let request = request.at_most(most).at(Placement::Fixed(at));
            vm.map(space, &request).map(drop)
        }
        Call::Unmap => vm.unmap(space, at, pages),
        Call::Protect(prot) => vm.protect(space, at, pages, prot),
        Call::Lock(true) => vm.lock_pages(space, at, pages),
        Call::Lock(false) => vm.unlock_pages(space, at, pages),
        Call::Folio(order) => vm.advise(space, at, pages, Advice::Folio(order)),
        Call::Remap(to, new_pages) => {
            let to = RemapPlacement::Fixed(Vpn(AT + to as u64));
            vm.remap(space, at, pages, new_pages as u64, to).map(drop)
        }
        Call::Seal => vm.seal(space, at, pages),
    }
}

fn some_range(rng: &mut Rng) -> (usize, usize) {
    let start = rng.below(PAGES - 1);
    let most = (PAGES - start).min(1 + rng.below(16));
    (start, start + 1 + rng.below(most))
}

fn some_call(rng: &mut Rng) -> Call {
    let prot = [Prot::READ, RW, Prot::NONE][rng.below(3)];
    match rng.below(12) {
        0..3 => {
            let most = [Prot::READ_WRITE.union(Prot::EXECUTE), RW, Prot::READ][rng.below(3)];
            Call::Map(prot, most, rng.below(4) == 0)
        }
        3..5 => Call::Unmap,
        5..8 => Call::Protect(prot),
        8 => Call::Lock(rng.below(2) == 0),
        9 => Call::Folio([None, Some(2)][rng.below(2)]),
        _ => {
            let (to, end) = some_range(rng);
            Call::Remap(to, end - to)
        }
    }
}

/// Whether a call divides the space now and then, and how exact the model is.
#[derive(Clone, Copy)]
struct Mode {
    divides: bool,
    /// Regions that match are always one.
    merges: bool,
}

fn calls<R: crate::rmap::ReverseMap>(design: &str, mode: Mode, steps: u32) {
    let vm = vm_with::<R>(&std::format!("{design},folio=advise"), 2048);
    let mut space = vm.begin_space().unwrap();
    let mut rng = Rng::new(51);
    let mut model = Model([None; PAGES]);
    let mut limits = Limits::default();
    let (mut done, mut refused, mut ruled_out) = (0, 0, 0);
    let stats = |space| {
        let stats = vm.space_stats(space).unwrap();
        [u64::from(stats.regions), stats.pages, stats.locked]
    };
    for step in 0..steps {
        if step % 256 == 255 {
            // Seals end with their space.
            assert_eq!(vm.exit(space), Ok(true));
            space = vm.begin_space().unwrap();
            model = Model([None; PAGES]);
        }
        if step % 64 == 0 || step % 256 == 255 {
            limits.regions = 2 + rng.below(9) as u32;
            limits.pages = 16 + rng.below(40) as u64;
            limits.locked_pages = rng.below(20) as u64;
            vm.set_limits(space, limits).unwrap();
        }
        if mode.divides && step % 4 == 0 {
            let cut = AT + rng.below(PAGES) as u64;
            let _ = vm.divide_space(space, Vpn(cut)).unwrap();
        }
        let (start, mut end) = some_range(&mut rng);
        let asked = match rng.below(60) {
            0 => Call::Seal,
            _ => some_call(&mut rng),
        };
        if let Call::Seal = asked {
            end = start + 1;
        }
        let rule = model.rule((start, end), asked);
        let mut after = model.clone();
        let expected = after.apply(start, end, asked);
        let most = [u64::from(limits.regions), limits.pages, limits.locked_pages];
        let fits = |before: Counts, after: Counts| {
            (0..3).all(|nth| after[nth] <= most[nth].max(before[nth]))
        };
        let (before, had) = (stats(space), entries(&vm, space));
        let answer = call(&vm, space, (start, end), asked);
        let told = std::format!("step {step}: {asked:?} of {start}..{end}: {answer:?}, {most:?}");
        match answer {
            Err(ruled @ (MapError::Sealed | MapError::Rights)) => {
                assert_eq!(rule, Some(ruled), "{told}");
                ruled_out += 1;
            }
            Ok(()) => {
                assert!(rule.is_none() && expected.is_some(), "{told}");
                assert!(fits(before, stats(space)), "{told}");
                model = after;
                done += 1;
            }
            Err(MapError::Limit) => {
                assert_eq!(rule, None, "{told}");
                let edges = expected.as_ref().unwrap();
                let allowed = fits(model.counts(&[]), after.counts(edges));
                assert!(!(mode.merges && allowed), "{told}");
                if !mode.divides {
                    assert_eq!(entries(&vm, space), had, "{told}");
                }
                refused += 1;
            }
            Err(_) => assert!(expected.is_none() || !mode.merges, "{told}"),
        }
        let counts = model.counts(&[]);
        assert_eq!(stats(space)[1..], counts[1..], "{told}");
        if mode.merges && !mode.divides {
            assert_eq!(stats(space), counts, "{told}");
        }
        let page = rng.below(PAGES) as u64;
        let _ = vm.fault(space, (AT + page) << 12, Access::Write);
        if step % 64 == 0 {
            vm.audit().unwrap();
        }
    }
    assert!(done > steps / 5 && refused > steps / 10, "{done} {refused}");
    assert!(ruled_out > steps / 40, "{ruled_out}");
    vm.exit(space).unwrap();
    vm.audit().unwrap();
}

#[test]
fn calls_are_refused_by_what_would_be_there_in_the_end() {
    let mode = Mode {
        divides: false,
        merges: true,
    };
    calls::<ByRegions>("", mode, 6000);
}

#[test]
fn calls_in_tracts_are_refused_by_what_would_be_there_in_the_end() {
    let mode = Mode {
        divides: true,
        merges: true,
    };
    calls::<ByRegions>("", mode, 6000);
}

fn in_each_design<R: crate::rmap::ReverseMap>(design: &str) {
    for divides in [false, true] {
        let mode = Mode {
            divides,
            merges: false,
        };
        calls::<R>(design, mode, 400);
    }
}

with_each_design! {
    no_call_leaves_more_than_the_limits_allow => in_each_design;
}
