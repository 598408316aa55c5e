//! Random calls beside a model that says of each page what it holds, whether it is a guard, and
//! what a child will have of it.

use super::*;

const PAGES: usize = 40;
/// Crosses the end of a page table.
const START: u64 = 512 - 20;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Page {
    /// `None` is a guard.
    byte: Option<u8>,
    is_forked: bool,
    is_wiped: bool,
}

type Model = [Option<Page>; PAGES];

#[derive(Clone, Copy, Debug)]
enum Call {
    Map,
    Unmap,
    Advise(Advice),
    Write(u8),
    Move(usize, MoveKind),
    Protect,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum MoveKind {
    One,
    Leave,
    All,
}

fn apply(model: &mut Model, (start, end): (usize, usize), call: Call) -> Result<(), MapError> {
    let was = *model;
    let is_covered = was[start..end].iter().all(Option::is_some);
    if let Call::Advise(_) | Call::Protect = call
        && !is_covered
        && !matches!(call, Call::Advise(Advice::DontNeed))
    {
        return Err(MapError::NotMapped);
    }
    if let Call::Move(to, kind) = call {
        let is_there = match kind {
            MoveKind::All => was[start].is_some(),
            _ => is_covered,
        };
        let len = end - start;
        let overlaps = to < end && start < to + len;
        if kind == MoveKind::All && overlaps {
            return Err(MapError::BadRange);
        }
        if !is_there {
            return Err(MapError::NotMapped);
        }
        if overlaps {
            return Err(MapError::BadRange);
        }
        for step in 0..len {
            let Some(page) = was[start + step] else {
                continue;
            };
            model[to + step] = Some(page);
            model[start + step] = (kind == MoveKind::Leave).then_some(Page {
                byte: Some(0),
                ..page
            });
        }
        return Ok(());
    }
    for page in &mut model[start..end] {
        match (call, page) {
            (Call::Map, page) => {
                *page = Some(Page {
                    byte: Some(0),
                    is_forked: true,
                    is_wiped: false,
                });
            }
            (Call::Unmap, page) => *page = None,
            (Call::Write(byte), Some(page)) => page.byte = page.byte.map(|_| byte),
            (Call::Advise(advice), Some(page)) => match advice {
                Advice::DontFork => page.is_forked = false,
                Advice::DoFork => page.is_forked = true,
                Advice::WipeOnFork => page.is_wiped = true,
                Advice::KeepOnFork => page.is_wiped = false,
                Advice::InstallGuards => page.byte = None,
                Advice::RemoveGuards => page.byte = page.byte.or(Some(0)),
                Advice::DontNeed => page.byte = page.byte.map(|_| 0),
                _ => {}
            },
            _ => {}
        }
    }
    match is_covered || matches!(call, Call::Map | Call::Unmap | Call::Write(_)) {
        true => Ok(()),
        false => Err(MapError::NotMapped),
    }
}

fn do_call<F: Format, R: ReverseMap>(
    space: AnySpace<'_, F, R>,
    (start, end): (usize, usize),
    call: Call,
) -> Result<(), MapError> {
    let (at, pages) = (Vpn(START + start as u64), (end - start) as u64);
    match call {
        Call::Map => {
            let request = MapRequest::anonymous(pages, RW).at(Placement::Fixed(at));
            space.map(&request).map(drop)
        }
        Call::Unmap => space.unmap(at, pages),
        Call::Advise(advice) => space.advise(at, pages, advice),
        Call::Write(byte) => {
            for page in 0..pages {
                let _ = space.write((at.0 + page) << 12, &[byte; 8]);
            }
            Ok(())
        }
        Call::Move(to, kind) => {
            let to = Vpn(START + to as u64);
            let placement = match kind {
                MoveKind::One => RemapPlacement::Fixed(to),
                MoveKind::Leave => RemapPlacement::LeaveFor(to),
                MoveKind::All => RemapPlacement::AllTo(to),
            };
            space.remap(at, pages, pages, placement).map(drop)
        }
        Call::Protect => {
            space.protect(at, pages, Prot::READ)?;
            space.protect(at, pages, RW)
        }
    }
}

fn some_call(rng: &mut Rng) -> Call {
    const ADVICE: [Advice; 12] = [
        Advice::DontFork,
        Advice::DoFork,
        Advice::WipeOnFork,
        Advice::KeepOnFork,
        Advice::InstallGuards,
        Advice::InstallGuards,
        Advice::RemoveGuards,
        Advice::DontNeed,
        Advice::PageOut,
        Advice::WillNeed,
        Advice::Huge,
        Advice::Sequential,
    ];
    match rng.below(12) {
        0..2 => Call::Map,
        2 => Call::Unmap,
        3..7 => Call::Advise(ADVICE[rng.below(ADVICE.len())]),
        7..10 => Call::Write(1 + rng.below(250) as u8),
        10 => {
            let kinds = [MoveKind::One, MoveKind::Leave, MoveKind::All];
            Call::Move(rng.below(PAGES), kinds[rng.below(3)])
        }
        _ => Call::Protect,
    }
}

/// What a child has.
fn forked(model: &Model) -> Model {
    model.map(|page| {
        let page = page.filter(|page| page.is_forked)?;
        let byte = if page.is_wiped { Some(0) } else { page.byte };
        Some(Page { byte, ..page })
    })
}

fn check<F: Format, R: ReverseMap>(space: AnySpace<'_, F, R>, model: &Model, told: &str) {
    for (page, expected) in model.iter().enumerate() {
        let found = get(space, START + page as u64);
        let expected = match expected {
            None => Err(FaultError::NoRegion),
            Some(Page { byte: None, .. }) => Err(FaultError::Protection),
            Some(Page {
                byte: Some(byte), ..
            }) => Ok(*byte),
        };
        assert_eq!(found, expected, "page {page}: {told}");
    }
}

fn calls<F: Format, R: ReverseMap>(design: &str, steps: usize, seed: u64) {
    let vm = any_vm::<F, R>(&std::format!("{design},superpage=advise"), 2048);
    vm.swap_on(SwapArea::new(SWAP, 200)).unwrap();
    let mut rng = Rng::new(seed);
    let mut spaces = std::vec![(vm.create_space().unwrap(), [None; PAGES])];
    for step in 0..steps {
        let nth = rng.below(spaces.len());
        let start = rng.below(PAGES - 1);
        let end = (start + 1 + rng.below(10)).min(PAGES);
        let mut call = some_call(&mut rng);
        if let Call::Move(to, _) = &mut call {
            *to = (*to).min(PAGES - (end - start));
        }
        let (space, model) = &mut spaces[nth];
        let mut after = *model;
        let expected = apply(&mut after, (start, end), call);
        let answer = do_call(*space, (start, end), call);
        let told = std::format!("step {step}: {call:?} of {start}..{end}: {answer:?} {design}");
        match call {
            // More than one region, which the model does not know of, is refused whole.
            Call::Move(_, MoveKind::One | MoveKind::Leave)
                if answer == Err(MapError::NotMapped) => {}
            _ => {
                assert_eq!(answer, expected, "{told}");
                *model = after;
            }
        }
        if rng.below(12) == 0 {
            let (space, model) = spaces[nth];
            let child = space.fork().unwrap();
            spaces.push((child, forked(&model)));
            if spaces.len() > 4 {
                let (gone, model) = spaces.swap_remove(rng.below(spaces.len()));
                check(gone, &model, &told);
                assert_eq!(gone.exit(), Ok(true));
            }
        }
        if step % 16 == 0 {
            let (space, model) = spaces[rng.below(spaces.len())];
            check(space, &model, &told);
            vm.audit()
                .unwrap_or_else(|error| panic!("{error:?}: {told}"));
        }
    }
    for (space, model) in &spaces {
        check(*space, model, "in the end");
    }
    let spaces: Vec<_> = spaces.into_iter().map(|(space, _)| space).collect();
    finish(&vm, &spaces);
}

fn in_each<F: Format, R: ReverseMap>(design: &str) {
    let steps = crate::testing::number("VELLUM_STEPS").unwrap_or(400) as usize;
    calls::<F, R>(design, steps, 58);
}

with_each_design_and_format! {
    memory_is_as_a_model_says_after_random_calls => in_each;
}
