//! Scenarios that reach the core's allocations, with pages of one size.

use super::super::model::{Access, READ, WRITE};
use super::super::ops::{Aim, Place, Supply, What};
use super::super::space::Hooks;
use vellum::space::TakeDirty;

pub const RW: u8 = READ | WRITE;

pub fn map(at: u64, pages: u64, prot: u8, shared: bool) -> What {
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

pub fn map_object(at: u64, pages: u64, prot: u8, shared: bool) -> What {
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

pub fn touch(page: u64, access: Access) -> What {
    What::Touch {
        space: 0,
        place: Place::At(page),
        access,
        word: 7,
        value: page,
    }
}

pub fn sweep(page: u64, pages: u64, access: Access) -> What {
    What::Sweep {
        space: 0,
        place: Place::At(page),
        pages,
        step: 1,
        access,
        value: 99,
    }
}

pub const FORK: What = What::Fork { space: 0 };
pub const FILE: What = What::OpenFile { pages: 30 };
pub const MEMORY: What = What::OpenMemory { pages: 30 };

/// A name, what comes before, and the operation whose allocations fail.
pub type Scenario = (&'static str, Vec<What>, What);

pub fn scenarios(far: u64) -> Vec<Scenario> {
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
    let hook = |at, pages| What::Hook {
        space: 0,
        place: place(at),
        pages,
        hooks: Hooks {
            missing: true,
            stores: true,
        },
    };
    let remap = |to, pages, new_pages| What::Remap {
        leaves: false,
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
            "a supplied page",
            vec![Create, map(500, 9, RW, false), hook(500, 9)],
            What::Supply {
                space: 0,
                place: place(505),
                pages: 1,
                supply: Supply::Words {
                    value: 7,
                    watched: true,
                },
            },
        ),
        (
            "a hook in the middle",
            vec![Create, map(500, 9, RW, false)],
            hook(503, 3),
        ),
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
        (
            "asking what was written in the middle",
            wide.clone(),
            What::TakeDirty {
                space: 0,
                place: place(505),
                pages: 9,
                how: TakeDirty::default(),
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
                leaves: false,
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
                leaves: false,
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
