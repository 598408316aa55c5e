//! Every allocation the core makes is made to fail once, in scenarios that
//! reach all of its sites. The operation must answer that memory ran out and
//! leave everything as it was, each region and each entry (invariant 12);
//! repeated, it must succeed.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::drive::Driver;
use super::model::{Access, READ, WRITE, pristine};
use super::ops::{Aim, Op, Place, What};
use super::run::{PLATFORMS, arena, arena_for, catch};
use vellum::addr::{Pfn, Prot, Vpn};
use vellum::design::{Superpages, TableFormat, variants};
use vellum::frame::{FailAt, Site};
use vellum::platform::CpuId;
use vellum::rmap::{Partial, ReverseMap};
use vellum::space::{MapError, MapRequest, Placement};
use vellum::swap::SwapArea;
use vellum::table::{Format, X86_64};
use vellum::{Design, Vm};
use vellum_machine::mmu::{X86_PAE, walker};
use vellum_machine::{Arena, Machine, PatternStore};

use crate::support::{other_options, variants_on_pae, with_instance};

const RW: u8 = READ | WRITE;

fn map(at: u64, pages: u64, prot: u8, shared: bool) -> What {
    let aim = Aim::Fixed(Place::At(at));
    What::MapAnonymous {
        space: 0,
        aim,
        pages,
        prot,
        shared,
        grows: false,
    }
}

fn map_object(at: u64, pages: u64, prot: u8, shared: bool) -> What {
    let aim = Aim::Fixed(Place::At(at));
    What::MapObject {
        space: 0,
        object: 0,
        index: 2,
        aim,
        pages,
        prot,
        shared,
    }
}

fn touch(page: u64, access: Access) -> What {
    What::Touch {
        space: 0,
        place: Place::At(page),
        access,
        word: 7,
        value: page,
    }
}

fn sweep(page: u64, pages: u64, access: Access) -> What {
    What::Sweep {
        space: 0,
        place: Place::At(page),
        pages,
        step: 1,
        access,
        value: 99,
    }
}

const FORK: What = What::Fork { space: 0 };
const FILE: What = What::OpenFile { pages: 30 };
const MEMORY: What = What::OpenMemory { pages: 30 };

/// A name, what comes before, and the operation whose allocations fail.
type Scenario = (&'static str, Vec<What>, What);

fn scenarios(far: u64) -> Vec<Scenario> {
    use Access::{Read, Write};
    use What::Create;
    let place = Place::At;
    let stack = What::MapAnonymous {
        space: 0,
        aim: Aim::Fixed(Place::At(600)),
        pages: 4,
        prot: RW,
        shared: false,
        grows: true,
    };
    let many_forks = |mut before: Vec<What>, forks| {
        before.extend(std::iter::repeat_n(FORK, forks));
        before
    };
    // Private pages in three tables, one of them beside a second region's.
    let wide = vec![
        Create,
        map(500, 30, RW, false),
        map(1 << 18, 4, RW, false),
        map(530, 4, READ, false),
        sweep(500, 30, Write),
        sweep(1 << 18, 4, Write),
        sweep(530, 4, Read),
    ];
    let pinned = |pages| {
        let mut before = wide.clone();
        before.push(What::Pin {
            space: 0,
            place: place(505),
            pages,
            writes: true,
        });
        before.push(What::Pin {
            space: 0,
            place: place(520),
            pages,
            writes: true,
        });
        before
    };
    let swapped = |forks| {
        let mut before = many_forks(wide.clone(), forks);
        before.push(What::PageOut {
            space: 0,
            place: place(505),
            pages: 20,
        });
        before
    };
    let remap = |to, pages, new_pages| What::Remap {
        space: 0,
        place: place(505),
        pages,
        new_pages,
        aim: Aim::Fixed(Place::At(to)),
    };
    vec![
        ("the first space", vec![], Create),
        ("a space", vec![Create], Create),
        ("exec", wide.clone(), What::Exec { space: 0 }),
        ("the first object", vec![], FILE),
        ("a mapping", vec![Create], map(500, 9, RW, false)),
        (
            "a mapping of shared memory",
            vec![Create],
            map(500, 9, RW, true),
        ),
        (
            "a mapping of a file",
            vec![Create, FILE],
            map_object(500, 9, RW, true),
        ),
        (
            "a mapping over the middle of another",
            wide.clone(),
            map(510, 5, READ, false),
        ),
        (
            "a mapping over the ends of two others",
            wide.clone(),
            map(525, 7, RW, true),
        ),
        (
            "the first store",
            vec![Create, map(500, 30, RW, false)],
            touch(505, Write),
        ),
        ("a store", wide.clone(), touch((1 << 18) + 1, Write)),
        (
            "the first load",
            vec![Create, map(500, 30, RW, false)],
            touch(505, Read),
        ),
        (
            "a load from a file",
            vec![Create, FILE, map_object(500, 9, READ, false)],
            touch(503, Read),
        ),
        (
            "a store to a file",
            vec![Create, FILE, map_object(500, 9, RW, true)],
            touch(503, Write),
        ),
        (
            "a store to a private view of a file",
            vec![Create, FILE, map_object(500, 9, RW, false)],
            touch(503, Write),
        ),
        (
            "a store to a page of a file that was only read so far",
            vec![
                Create,
                FILE,
                map_object(500, 9, RW, false),
                touch(503, Read),
            ],
            touch(503, Write),
        ),
        (
            "a load of shared memory with cached pages around it",
            vec![
                Create,
                MEMORY,
                What::Write {
                    object: 0,
                    index: 0,
                    pages: 20,
                    value: 5,
                },
                map_object(500, 16, RW, true),
            ],
            touch(503, Read),
        ),
        (
            "a store to a page that was only read so far",
            vec![Create, map(500, 30, RW, false), touch(505, Read)],
            touch(505, Write),
        ),
        (
            "a store to a page shared by fork",
            many_forks(wide.clone(), 1),
            touch(505, Write),
        ),
        ("fork", wide.clone(), FORK),
        (
            "fork with pages shared already",
            many_forks(wide.clone(), 1),
            FORK,
        ),
        (
            "fork when every chain has a full head",
            many_forks(wide.clone(), 7),
            FORK,
        ),
        ("fork with pinned pages", pinned(4), FORK),
        (
            "fork with files and shared memory",
            vec![
                Create,
                FILE,
                map_object(500, 20, RW, true),
                map_object(520, 20, RW, false),
                sweep(500, 40, Read),
                touch(525, Write),
                touch(505, Write),
                map(600, 5, RW, true),
                touch(601, Write),
            ],
            FORK,
        ),
        (
            "unmapping the middle",
            wide.clone(),
            What::Unmap {
                space: 0,
                place: place(505),
                pages: 9,
            },
        ),
        (
            "unmapping across two regions",
            wide.clone(),
            What::Unmap {
                space: 0,
                place: place(525),
                pages: 7,
            },
        ),
        (
            "protecting the middle",
            wide.clone(),
            What::Protect {
                space: 0,
                place: place(505),
                pages: 9,
                prot: READ,
            },
        ),
        (
            "protecting across two regions",
            wide.clone(),
            What::Protect {
                space: 0,
                place: place(525),
                pages: 7,
                prot: 0,
            },
        ),
        ("a move across tables", wide.clone(), remap(far - 3, 9, 9)),
        ("a move that grows", wide.clone(), remap(far - 3, 9, 12)),
        (
            "a move of pages shared by fork",
            many_forks(wide.clone(), 2),
            remap(far - 3, 9, 9),
        ),
        ("a move that shrinks", wide.clone(), remap(far - 3, 9, 6)),
        (
            "a move onto another region",
            wide.clone(),
            remap((1 << 18) - 3, 9, 9),
        ),
        (
            "growing by a move",
            wide.clone(),
            What::Remap {
                space: 0,
                place: place(505),
                pages: 9,
                new_pages: 40,
                aim: Aim::Anywhere,
            },
        ),
        (
            "shrinking",
            wide.clone(),
            What::Remap {
                space: 0,
                place: place(505),
                pages: 9,
                new_pages: 4,
                aim: Aim::Anywhere,
            },
        ),
        ("brk", vec![Create], What::Brk { space: 0, pages: 5 }),
        (
            "brk into the middle of what replaced the heap",
            vec![
                Create,
                What::Brk { space: 0, pages: 8 },
                map(2 * 512 - 6, 12, RW, false),
            ],
            What::Brk { space: 0, pages: 4 },
        ),
        ("stack growth", vec![Create, stack], touch(590, Write)),
        (
            "populate",
            vec![Create, map(500, 30, RW, false)],
            What::Populate {
                space: 0,
                place: place(505),
                pages: 20,
            },
        ),
        (
            "pinning a page for reading",
            vec![Create, map(500, 30, RW, false)],
            What::Pin {
                space: 0,
                place: place(505),
                pages: 1,
                writes: false,
            },
        ),
        ("a load from swap", swapped(0), touch(507, Read)),
        ("a store to swap", swapped(0), touch(507, Write)),
        ("a load from shared swap", swapped(2), touch(507, Read)),
        ("fork of what is in swap", swapped(1), FORK),
        ("moving what is in swap", swapped(1), remap(far, 9, 9)),
        (
            "pinning what is in swap",
            swapped(1),
            What::Pin {
                space: 0,
                place: place(505),
                pages: 1,
                writes: true,
            },
        ),
        (
            "pinning a page for writing",
            many_forks(wide.clone(), 2),
            What::Pin {
                space: 0,
                place: place(505),
                pages: 1,
                writes: true,
            },
        ),
        (
            "a write",
            vec![FILE],
            What::Write {
                object: 0,
                index: 3,
                pages: 4,
                value: 5,
            },
        ),
        (
            "a write far behind the end",
            vec![
                FILE,
                What::Write {
                    object: 0,
                    index: 3,
                    pages: 4,
                    value: 5,
                },
            ],
            What::Write {
                object: 0,
                index: 1 << 30,
                pages: 2,
                value: 5,
            },
        ),
        (
            "a read",
            vec![FILE],
            What::Read {
                object: 0,
                index: 3,
                pages: 9,
            },
        ),
    ]
}

const FIRST_USE: &str = "the first use of a superpage";
const FIRST_OF_FOLIO: &str = "the first store to a folio";

/// With superpages: the one of pages 512 to 1023, which fork shares.
fn superpage_scenarios(superpages: Superpages) -> Vec<Scenario> {
    use Access::{Read, Write};
    let place = Place::At;
    let fresh = vec![What::Create, map(500, 800, RW, false)];
    let mut own = fresh.clone();
    let mut nearly = fresh.clone();
    nearly.push(sweep(512, 511, Write));
    own.extend([
        match superpages {
            Superpages::Reserve => sweep(512, 512, Write),
            _ => touch(600, Write),
        },
        map(3000, 20, RW, false),
        sweep(3000, 20, Write),
    ]);
    let mut shared = own.clone();
    shared.extend([FORK, FORK, touch(510, Write)]);
    // One mapping of several is of single pages, so that the frames have a record each.
    let mut divided = shared.clone();
    divided.push(touch(777, Write));
    let part = |place, pages| What::Unmap {
        space: 0,
        place,
        pages,
    };
    let remap = |from, to| What::Remap {
        space: 0,
        place: place(from),
        pages: 9,
        new_pages: 9,
        aim: Aim::Fixed(Place::At(to)),
    };
    let mut scenarios = vec![
        (FIRST_USE, fresh.clone(), touch(600, Write)),
        (FIRST_USE, fresh, touch(600, Read)),
        (FIRST_USE, nearly, touch(1023, Write)),
        (
            "a part of a superpage that nobody shares",
            own.clone(),
            part(place(700), 20),
        ),
        ("fork of a superpage", own.clone(), FORK),
    ];
    own.push(part(place(700), 1));
    own.push(map(700, 1, RW, false));
    scenarios.push((
        "making a superpage of single pages",
        own,
        What::Collapse {
            space: 0,
            place: place(512),
            least: 511,
        },
    ));
    for before in [shared, divided] {
        let operations = [
            ("unmapping a part of a superpage", part(place(700), 20)),
            ("unmapping all of a superpage", part(place(500), 600)),
            ("a store to a superpage", touch(600, Write)),
            ("fork of a shared superpage", FORK),
            ("moving a part of a superpage", remap(700, 5000)),
            ("moving into a superpage", remap(3000, 700)),
            (
                "protecting a part of a superpage",
                What::Protect {
                    space: 0,
                    place: place(512),
                    pages: 3,
                    prot: READ,
                },
            ),
            (
                "advice about a part of a superpage",
                What::DontNeed {
                    space: 0,
                    place: place(1000),
                    pages: 100,
                },
            ),
            (
                "a pin in a superpage",
                What::Pin {
                    space: 0,
                    place: place(600),
                    pages: 2,
                    writes: false,
                },
            ),
        ];
        scenarios.extend(operations.map(|(name, last)| (name, before.clone(), last)));
    }
    scenarios
}

/// With folios: what maps one, and calls about a part of one that is shared.
fn folio_scenarios() -> Vec<Scenario> {
    use Access::{Read, Write};
    let place = Place::At;
    let fresh = vec![What::Create, map(500, 100, RW, false)];
    let mut own = fresh.clone();
    own.push(touch(520, Write));
    let mut shared = own.clone();
    shared.push(FORK);
    let advise = |pages| What::AdviseFolio {
        space: 0,
        place: place(520),
        pages,
        order: Some(2),
    };
    let mut scenarios = vec![
        (FIRST_OF_FOLIO, fresh.clone(), touch(520, Write)),
        (FIRST_OF_FOLIO, own.clone(), touch(530, Write)),
        (
            FIRST_OF_FOLIO,
            fresh,
            What::Populate {
                space: 0,
                place: place(512),
                pages: 40,
            },
        ),
        ("advice about folios", own.clone(), advise(9)),
        ("fork of a folio", own.clone(), FORK),
    ];
    let operations = [
        (
            "unmapping a part of a folio",
            What::Unmap {
                space: 0,
                place: place(515),
                pages: 5,
            },
        ),
        (
            "moving a part of a folio",
            What::Remap {
                space: 0,
                place: place(515),
                pages: 5,
                new_pages: 5,
                aim: Aim::Fixed(Place::At(5000)),
            },
        ),
        ("a store to a shared folio", touch(517, Write)),
        ("a load from a shared folio", touch(517, Read)),
        (
            "a pin in a shared folio",
            What::Pin {
                space: 0,
                place: place(517),
                pages: 1,
                writes: true,
            },
        ),
    ];
    for before in [own, shared] {
        scenarios.extend(operations.map(|(name, last)| (name, before.clone(), last)));
    }
    scenarios
}

fn driver<F: Format, R: ReverseMap>(design: Design, arena: &Arc<Arena>) -> Driver<F, R> {
    let store = Arc::new(PatternStore::new(4096, pristine));
    let mut config = PLATFORMS[0].config(walker(F::NAME).unwrap(), store);
    if config.biting_windows {
        config.high_from = Some(Pfn(0x600));
    }
    let machine = Machine::new(config, Arc::clone(arena)).unwrap();
    let mut vm = Vm::new(machine, design).unwrap();
    let area = SwapArea {
        store: 1 << 30,
        slots: 200,
        priority: 0,
    };
    vm.swap_on(area).unwrap();
    let mut driver = Driver::new(vm, 3, true);
    driver.most = 12;
    driver
}

/// Has an allocation of the last operation fail, or none. Returns how many
/// allocations there were at each site until then.
fn fail_one<F: Format, R: ReverseMap>(
    design: Design,
    arena: &Arc<Arena>,
    (name, before, last): &Scenario,
    failure: Option<FailAt>,
) -> Result<Vec<u64>, String> {
    let mut driver = driver::<F, R>(design, arena);
    driver.watches = false;
    let on = |cpu, what: &What| Op { cpu, what: *what };
    for (number, what) in before.iter().enumerate() {
        driver.apply(&on(number as u8 / 3, what))?;
    }
    let vm = Arc::clone(&driver.vm);
    driver.watches = true;
    let only_counts = FailAt {
        site: Site::TablePage,
        after: u32::MAX,
    };
    vm.memory().inject(Some(failure.unwrap_or(only_counts)));
    driver.apply(&on(1, last))?;
    vm.memory().inject(None);
    driver.watches = false;
    let counts = Site::ALL.iter().map(|&site| vm.memory().reached(site));
    let counts: Vec<u64> = counts.collect();
    // A frame that is missing within a run of pages only makes the run shorter.
    let shortens = |plan: FailAt| plan.site == Site::CachePage && plan.after > 0;
    // Single pages do instead of a superpage, and reclaim may have something to take.
    let may_pass = [FIRST_USE, FIRST_OF_FOLIO].contains(name)
        || design.reclaim && driver.vm.stats().reclaim.reclaimed > 0
        || matches!(last, What::Write { .. }) && failure.is_some_and(shortens);
    let failures = if may_pass {
        driver.shortages.min(1)
    } else {
        u32::from(failure.is_some())
    };
    if driver.shortages != failures {
        return Err(format!("{} operations failed", driver.shortages));
    }
    driver
        .apply(&on(0, &What::Audit))
        .map_err(|error| format!("after the failure: {error}"))?;
    driver
        .apply(&on(2, last))
        .map_err(|error| format!("repeated: {error}"))?;
    if driver.shortages != failures {
        return Err("the operation failed once more without reason".into());
    }
    driver
        .finish()
        .map_err(|error| format!("in the end: {error}"))?;
    Ok(counts)
}

#[test]
fn every_allocation_may_fail() {
    let (plain, shared) = (arena(), arena_for(&X86_PAE));
    let mut reached = BTreeSet::new();
    let mut wrong = Vec::new();
    // Every design, with the other options' other values in turn; and every source.
    let mut designs = Vec::new();
    for (number, rmap) in variants("rmap").into_iter().enumerate() {
        designs.push(format!("{rmap},{}", other_options(number)));
    }
    for source in variants("ptepage") {
        designs.push(format!("rmap=partial,{source}"));
    }
    designs.extend(variants_on_pae());
    let plain_designs = designs.len();
    // Each reverse mapping once.
    for rmap in variants("rmap").iter().filter(|rmap| !rmap.contains(',')) {
        designs.push(format!("{rmap},superpage=eager"));
    }
    // Those that keep something for each entry, and that keep nothing.
    for rmap in ["chains", "family", "pv"] {
        designs.push(format!("rmap={rmap},superpage=reserve"));
    }
    designs.push("format=x86-pae,superpage=eager".into());
    designs.push("format=x86-pae,superpage=reserve".into());
    let before_folios = designs.len();
    for rmap in variants("rmap").iter().filter(|rmap| !rmap.contains(',')) {
        designs.push(format!("{rmap},folio=64k"));
    }
    designs.push("format=x86-pae,folio=64k".into());
    for (number, text) in designs.iter().enumerate() {
        let design = Design::parse(text).unwrap();
        let (arena, far) = match design.format {
            TableFormat::X86Pae => (&shared, 2 << 18),
            _ => (&plain, 1 << 27),
        };
        let scenarios = match number < plain_designs {
            true => scenarios(far),
            false if number < before_folios => superpage_scenarios(design.superpages),
            false => folio_scenarios(),
        };
        for scenario in &scenarios {
            let run = |failure| {
                let run = || with_instance!(design, F, R => fail_one::<F, R>(design, arena, scenario, failure));
                catch(run).map_err(|error| format!("{text}: {}: {failure:?}: {error}", scenario.0))
            };
            // Nothing fails at first: what the operation reaches can fail.
            let counts = match run(None) {
                Ok(counts) => counts,
                Err(error) => {
                    wrong.push(error);
                    continue;
                }
            };
            for (&site, count) in Site::ALL.iter().zip(counts) {
                // Sources of tables change nothing about other sites.
                let is_table = matches!(site, Site::TablePage | Site::RootTable);
                if text.contains("ptepage") && !is_table {
                    continue;
                }
                for after in 0..count as u32 {
                    reached.insert(site as u16);
                    if let Err(error) = run(Some(FailAt { site, after })) {
                        wrong.push(error);
                        break;
                    }
                }
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{} failures:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    // No operation of a scenario makes mounts; the core's own tests do.
    let missed = Site::ALL
        .iter()
        .filter(|&&site| site != Site::Mount && !reached.contains(&(site as u16)));
    assert_eq!(
        missed.collect::<Vec<_>>(),
        [] as [&Site; 0],
        "sites that no scenario reaches"
    );
}

/// An arena's directory grows by a frame when its leaf is full: far into the
/// life of a space with very many regions.
#[test]
fn a_directory_that_cannot_grow_fails_one_mapping() {
    let arena = arena();
    let store = Arc::new(PatternStore::new(4096, pristine));
    let machine = Machine::new(
        PLATFORMS[0].config(walker(X86_64::NAME).unwrap(), store),
        Arc::clone(&arena),
    )
    .unwrap();
    let vm = Vm::<Machine, X86_64, Partial>::new(machine, Design::default()).unwrap();
    vm.platform().run_on(CpuId(0), || {
        let space = vm.create_space().unwrap();
        let request = |number: u64| {
            let prot = if number.is_multiple_of(2) {
                Prot::READ
            } else {
                Prot::READ_WRITE
            };
            MapRequest::anonymous(1, prot).at(Placement::FixedFree(Vpn(1000 + number)))
        };
        vm.map(space, &request(0)).unwrap();
        let site = Site::SlabDirectory;
        vm.memory().inject(Some(FailAt { site, after: 0 }));
        let failed = (1..)
            .find(|&number| vm.map(space, &request(number)).is_err())
            .unwrap();
        assert!(
            failed > 1000 && vm.memory().reached(site) == 1,
            "the first directory has room"
        );
        assert_eq!(vm.space_stats(space).unwrap().pages, failed);
        vm.audit().unwrap();
        vm.memory().inject(Some(FailAt {
            site: Site::SlabFrame,
            after: 0,
        }));
        assert_eq!(vm.map(space, &request(failed)), Err(MapError::OutOfMemory));
        vm.memory().inject(None);
        vm.map(space, &request(failed)).unwrap();
        vm.audit().unwrap();
        assert_eq!(vm.exit(space), Ok(true));
        vm.audit().unwrap();
    });
}
