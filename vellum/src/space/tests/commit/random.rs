//! Random calls beside a model that knows of each page what is promised for it.

use super::*;
use std::vec;

const PAGES: usize = 40;
const SPACES: usize = 3;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Page {
    /// Whether it can be written, is charged, and need not be.
    Private(bool, bool, bool),
    /// A page of shared memory of this number.
    Shared(usize, bool),
}

/// What each space maps from [`AT`] on, and how long each shared memory is.
#[derive(Clone, Default)]
struct Model {
    spaces: Vec<[Option<Page>; PAGES]>,
    /// Which pages a child has nothing of.
    not_forked: Vec<[bool; PAGES]>,
    lengths: Vec<u64>,
}

#[derive(Clone, Copy, Debug)]
enum Call {
    Map {
        writes: bool,
        shared: bool,
        free: bool,
    },
    Unmap,
    Protect(bool),
    /// To there, and whether the place that is left stays mapped.
    Move(usize, bool),
    Inherit(bool),
    Fork,
    Exit,
}

impl Model {
    /// Pages that private memory is charged for.
    fn private(&self) -> u64 {
        let pages = self.spaces.iter().flatten().flatten();
        let charged = pages.filter(|page| matches!(page, Page::Private(_, true, _)));
        charged.count() as u64
    }

    fn promised(&self) -> u64 {
        let lives = |nth: usize| {
            let mut pages = self.spaces.iter().flatten().flatten();
            pages.any(|page| matches!(page, Page::Shared(of, _) if *of == nth))
        };
        let shared = (0..self.lengths.len()).filter(|&nth| lives(nth));
        self.private() + shared.map(|nth| self.lengths[nth]).sum::<u64>()
    }

    fn data(&self, space: usize) -> u64 {
        let pages = self.spaces[space].iter().flatten();
        pages
            .filter(|page| matches!(page, Page::Private(true, ..)))
            .count() as u64
    }

    /// Does what a call does. Returns what it asks for: what it takes from private memory makes
    /// room, and shared memory ends only with the call. `None` if it is refused whatever may be
    /// promised.
    fn apply(&mut self, at: usize, (start, end): (usize, usize), call: Call) -> Option<u64> {
        let (before, mut made) = (self.private(), 0);
        match call {
            Call::Map {
                writes,
                shared,
                free,
            } => {
                let page = match shared {
                    true => {
                        self.lengths
                            .push(if free { 0 } else { (end - start) as u64 });
                        made = self.lengths[self.lengths.len() - 1];
                        Page::Shared(self.lengths.len() - 1, writes)
                    }
                    false => Page::Private(writes, writes && !free, free),
                };
                self.spaces[at][start..end].fill(Some(page));
                self.not_forked[at][start..end].fill(false);
            }
            Call::Unmap => self.spaces[at][start..end].fill(None),
            Call::Protect(writes) => {
                for page in &mut self.spaces[at][start..end] {
                    match page.as_mut()? {
                        Page::Private(can, charged, free) => {
                            *can = writes;
                            *charged |= writes && !*free;
                        }
                        Page::Shared(_, can) => *can = writes,
                    }
                }
            }
            Call::Inherit(is_forked) => {
                for page in start..end {
                    self.spaces[at][page]?;
                    self.not_forked[at][page] = !is_forked;
                }
            }
            Call::Move(to, leaves) => {
                let pages = end - start;
                if to < end && start < to + pages {
                    return None;
                }
                let moved = self.spaces[at][start..end].to_vec();
                if !leaves {
                    self.spaces[at][start..end].fill(None);
                }
                self.spaces[at][to..to + pages].copy_from_slice(&moved);
                self.not_forked[at].copy_within(start..end, to);
            }
            Call::Fork => {
                let mut child = self.spaces[at];
                for (page, is_lost) in child.iter_mut().zip(self.not_forked[at]) {
                    *page = page.filter(|_| !is_lost);
                }
                self.spaces.push(child);
                self.not_forked.push([false; PAGES]);
            }
            Call::Exit => {
                self.spaces.swap_remove(at);
                self.not_forked.swap_remove(at);
            }
        }
        Some(self.private().saturating_sub(before) + made)
    }
}

fn some_call(rng: &mut Rng) -> Call {
    match rng.below(18) {
        0..6 => Call::Map {
            writes: rng.below(3) > 0,
            shared: rng.below(4) == 0,
            free: rng.below(5) == 0,
        },
        6..8 => Call::Unmap,
        8..12 => Call::Protect(rng.below(2) == 0),
        12..14 => Call::Move(rng.below(PAGES), rng.below(3) == 0),
        14 => Call::Inherit(rng.below(3) == 0),
        15..17 => Call::Fork,
        _ => Call::Exit,
    }
}

fn sequences<F: Format, R: ReverseMap>(design: &str, steps: u32, seed: u64) {
    let vm = of::<F, R>(&std::format!("commit=never,reclaim=on,groups=on,{design}"));
    let root = vm.group(GroupId::ROOT);
    let mut rng = Rng::new(seed);
    let (mut limit, mut strict) = (u64::MAX, false);
    let mut model = Model::default();
    let mut spaces: Vec<Space<'_, TestMachine, F, R>> = vec![];
    let groups = [0, 1].map(|_| vm.create_group(u64::MAX).unwrap());
    let (mut done, mut refused) = (0, 0);
    for step in 0..steps {
        run_on(rng.below(2) as u16);
        if step % 40 == 0 {
            // A mode in which what asks for it is not charged, and one in which it is.
            strict = rng.below(4) > 0;
            limit = if strict {
                20 + rng.below(120) as u64
            } else {
                u64::MAX
            };
            let policy = if strict {
                never(limit)
            } else {
                CommitPolicy::Always
            };
            root.set_commit_policy(policy).unwrap();
        }
        if spaces.is_empty() {
            spaces.push(vm.create_space().unwrap());
            model.spaces.push([None; PAGES]);
            model.not_forked.push([false; PAGES]);
        }
        let at = rng.below(spaces.len());
        let space = spaces[at];
        if rng.below(20) == 0 {
            let group = [GroupId::ROOT, groups[0].id(), groups[1].id()][rng.below(3)];
            space.set_group(group).unwrap();
        }
        if rng.below(20) == 0 {
            let _ = space.divide(Vpn(AT + rng.below(PAGES) as u64));
        }
        let start = rng.below(PAGES - 1);
        let mut end = start + 1 + rng.below((PAGES - start).min(12));
        let mut call = some_call(&mut rng);
        if let Call::Map { free, .. } = &mut call {
            *free &= !strict;
        }
        if let Call::Move(to, _) = call {
            end = end.min(start + (PAGES - to));
        }
        if matches!(call, Call::Fork) && spaces.len() == SPACES {
            call = Call::Exit;
        }
        let data_limit = match rng.below(4) {
            0 => rng.below(PAGES) as u64,
            _ => u64::MAX,
        };
        let limits = Limits {
            data_pages: data_limit,
            ..Limits::default()
        };
        space.set_limits(limits).unwrap();
        let (first, pages) = (Vpn(AT + start as u64), (end - start) as u64);
        let before = vm.stats().commit.committed;
        let prot = |writes: bool| if writes { RW } else { Prot::READ };
        let answer = match call {
            Call::Map {
                writes,
                shared,
                free,
            } => {
                let mut request = MapRequest::anonymous(pages, prot(writes));
                request = if shared { request.shared() } else { request };
                request = if free { request.no_reserve() } else { request };
                space.map(&request.at(Placement::Fixed(first))).map(drop)
            }
            Call::Unmap => space.unmap(first, pages),
            Call::Protect(writes) => space.protect(first, pages, prot(writes)),
            Call::Inherit(true) => space.advise(first, pages, Advice::DoFork),
            Call::Inherit(false) => space.advise(first, pages, Advice::DontFork),
            Call::Move(to, leaves) => {
                let to = Vpn(AT + to as u64);
                let to = match leaves {
                    true => RemapPlacement::LeaveFor(to),
                    false => RemapPlacement::Fixed(to),
                };
                space.remap(first, pages, pages, to).map(drop)
            }
            Call::Fork => space.fork().map(|child| {
                spaces.push(child);
            }),
            Call::Exit => space.exit().map(|_| {
                spaces.swap_remove(at);
            }),
        };
        let mut after = model.clone();
        let asked = after.apply(at, (start, end), call);
        let told =
            std::format!("{design}, seed {seed}, step {step}: {call:?} {start}..{end}: {answer:?}");
        let fits = |asked: u64| asked == 0 || before + asked <= limit;
        match answer {
            Ok(()) => {
                assert!(
                    asked.is_some_and(fits),
                    "{told}: {asked:?}, {before}, {limit}"
                );
                if let Call::Map { .. } | Call::Protect(_) = call {
                    let (old, new) = (model.data(at), after.data(at));
                    assert!(new <= data_limit || new <= old, "{told}");
                }
                model = after;
                done += 1;
            }
            Err(MapError::CommitLimit) => {
                assert!(
                    asked.is_some_and(|asked| !fits(asked)),
                    "{told}: {asked:?}, {before}, {limit}"
                );
                refused += 1;
            }
            Err(MapError::Limit) => {
                assert!(after.data(at) > data_limit.max(model.data(at)), "{told}");
            }
            // A hole, or more than one region.
            Err(MapError::NotMapped | MapError::BadRange) => {
                assert!(
                    !matches!(call, Call::Map { .. } | Call::Unmap | Call::Fork),
                    "{told}"
                );
            }
            Err(_) => panic!("{told}"),
        }
        let counted = vm.stats().commit.committed;
        assert_eq!(counted, model.promised(), "{told}");
        if step % 32 == 0 {
            vm.audit().unwrap();
        }
        if let Some(space) = spaces.first() {
            let page = AT + rng.below(PAGES) as u64;
            let _ = space.fault(page << F::FRAME_SHIFT, Access::Write);
        }
    }
    assert!(
        done > steps / 3 && refused > steps / 150,
        "{done} {refused}"
    );
    for space in spaces {
        space.exit().unwrap();
    }
    for group in groups {
        group.end().unwrap();
    }
    assert_eq!(committed(&vm), 0);
}

fn in_all<R: ReverseMap>(design: &str) {
    sequences::<X86_64, R>(design, 150, 61);
    sequences::<Sv39, R>(design, 150, 62);
    sequences::<Aarch64_16K, R>(design, 150, 63);
}

#[test]
fn what_is_promised_and_refused_is_what_a_model_says() {
    let steps = crate::testing::number("VELLUM_STEPS").unwrap_or(4000) as u32;
    sequences::<X86_64, ByRegions>("", steps, 60);
}

with_each_design! {
    every_design_promises_what_a_model_says => in_all;
}
