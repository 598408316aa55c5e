//! Operations, and sequences of them from a seed.
//!
//! An operation names spaces, objects and pages by number among those that
//! exist when it is carried out, so that a sequence stays meaningful when
//! operations are left out.

use vellum::space::TakeDirty;

use super::model::{Access, EXECUTE, READ, WRITE};
use super::shape::Shape;
use super::space::Hooks;
use crate::support::Rng;

/// A page: at a fixed place, the nth that the space maps, or the one that was
/// touched last, in whatever space.
#[derive(Clone, Copy, Debug)]
pub enum Place {
    At(u64),
    Mapped(u64),
    Recent,
}

#[derive(Clone, Copy, Debug)]
pub enum Aim {
    Anywhere,
    Hint(Place),
    Fixed(Place),
    FixedFree(Place),
}

/// What pages are supplied of.
#[derive(Clone, Copy, Debug)]
pub enum Supply {
    /// Words of this value.
    Words {
        value: u64,
        watched: bool,
    },
    Zeroes,
}

#[derive(Clone, Copy, Debug)]
pub enum What {
    Create,
    Fork {
        space: u8,
    },
    Share {
        space: u8,
    },
    Exec {
        space: u8,
    },
    Exit {
        space: u8,
    },
    MapAnonymous {
        space: u8,
        aim: Aim,
        pages: u64,
        prot: u8,
        shared: bool,
        grows: bool,
    },
    MapObject {
        space: u8,
        object: u8,
        index: u64,
        aim: Aim,
        pages: u64,
        prot: u8,
        shared: bool,
    },
    /// Maps frames of the device.
    MapFrames {
        space: u8,
        first: u32,
        aim: Aim,
        pages: u64,
        prot: u8,
        shared: bool,
        at_once: bool,
    },
    Unmap {
        space: u8,
        place: Place,
        pages: u64,
    },
    Remap {
        space: u8,
        place: Place,
        pages: u64,
        new_pages: u64,
        aim: Aim,
        /// Whether its place stays mapped.
        leaves: bool,
    },
    Protect {
        space: u8,
        place: Place,
        pages: u64,
        prot: u8,
    },
    Brk {
        space: u8,
        pages: u64,
    },
    DontNeed {
        space: u8,
        place: Place,
        pages: u64,
    },
    Free {
        space: u8,
        place: Place,
        pages: u64,
    },
    Cold {
        space: u8,
        place: Place,
        pages: u64,
    },
    PageOut {
        space: u8,
        place: Place,
        pages: u64,
    },
    AdviseFolio {
        space: u8,
        place: Place,
        pages: u64,
        order: Option<u32>,
    },
    /// Whether a child has what is in a range.
    Inherit {
        space: u8,
        place: Place,
        pages: u64,
        forks: bool,
    },
    /// On which nodes pages come to lie; without a range, those of the space.
    NodePolicy {
        space: u8,
        place: Place,
        pages: u64,
        kind: u8,
    },
    /// Moves pages to a node, or to where their policies say.
    MovePages {
        space: u8,
        place: Place,
        pages: u64,
        node: u8,
    },
    /// Takes the frame of a page out of use, which holds what it should.
    Withdraw {
        space: u8,
        place: Place,
    },
    /// Locks a range, or unlocks it.
    Lock {
        space: u8,
        place: Place,
        pages: u64,
        locks: bool,
    },
    Populate {
        space: u8,
        place: Place,
        pages: u64,
    },
    Touch {
        space: u8,
        place: Place,
        access: Access,
        word: u16,
        value: u64,
    },
    /// Makes superpages of single pages.
    Collapse {
        space: u8,
        place: Place,
        least: u32,
    },
    /// Touches every `step`th page of a range.
    Sweep {
        space: u8,
        place: Place,
        pages: u64,
        step: u64,
        access: Access,
        value: u64,
    },
    Pin {
        space: u8,
        place: Place,
        pages: u64,
        writes: bool,
    },
    /// Gives a range fault hooks.
    Hook {
        space: u8,
        place: Place,
        pages: u64,
        hooks: Hooks,
    },
    /// Supplies what a fault hook catches.
    Supply {
        space: u8,
        place: Place,
        pages: u64,
        supply: Supply,
    },
    /// Asks what was written in a range.
    TakeDirty {
        space: u8,
        place: Place,
        pages: u64,
        how: TakeDirty,
    },
    /// Has stores to a range be caught, or not any more.
    Watch {
        space: u8,
        place: Place,
        pages: u64,
        watches: bool,
    },
    Unpin {
        nth: u8,
    },
    OpenFile {
        pages: u64,
    },
    OpenMemory {
        pages: u64,
    },
    Release {
        object: u8,
    },
    Truncate {
        object: u8,
        pages: u64,
    },
    /// Takes pages of shared memory out, or puts some in.
    Shift {
        object: u8,
        index: u64,
        pages: u64,
        up: bool,
    },
    Write {
        object: u8,
        index: u64,
        pages: u64,
        value: u64,
    },
    Read {
        object: u8,
        index: u64,
        pages: u64,
    },
    Sync {
        object: u8,
    },
    /// Has pages leave memory; `reclaim=off` does nothing.
    Reclaim {
        pages: u64,
    },
    Audit,
}

/// An operation and the CPU that carries it out.
#[derive(Clone, Copy, Debug)]
pub struct Op {
    pub cpu: u8,
    pub what: What,
}

const AREA_PAGES: u64 = 64;

const PROTS: [u8; 10] = [
    0,
    READ,
    READ,
    WRITE,
    EXECUTE,
    READ | WRITE,
    READ | WRITE,
    READ | WRITE,
    READ | EXECUTE,
    READ | WRITE | EXECUTE,
];

/// Memory types, as rights have them.
const TYPES: [u8; 3] = [0, 0x10, 0x20];

fn place(rng: &mut Rng, shape: Shape) -> Place {
    if rng.one_in(5) {
        Place::Recent
    } else if rng.one_in(3) {
        Place::At(rng.pick(&shape.areas()) + rng.below(AREA_PAGES))
    } else {
        Place::Mapped(rng.below(1 << 20))
    }
}

fn aim(rng: &mut Rng, shape: Shape) -> Aim {
    match rng.below(8) {
        0 => Aim::Hint(place(rng, shape)),
        1 => Aim::FixedFree(place(rng, shape)),
        2 | 3 => Aim::Anywhere,
        4 => Aim::Fixed(Place::Mapped(rng.below(1 << 20))),
        _ => Aim::Fixed(Place::At(rng.pick(&shape.areas()) + rng.below(AREA_PAGES))),
    }
}

/// How long mappings may be, in pages.
#[derive(Clone, Copy, Debug)]
pub struct Lengths {
    /// Bounds them.
    pub longest: u64,
    /// Whether many are long enough for superpages.
    pub large: bool,
    /// Whether objects may be mapped in superpages.
    pub huge: bool,
    /// Whether pages are written to swap.
    pub swaps: bool,
    /// Whether folios are advised.
    pub folios: bool,
    /// Whether ranges have fault hooks, and are tracked.
    pub hooks: bool,
}

fn length(rng: &mut Rng, lengths: Lengths) -> u64 {
    let most = lengths.longest;
    if lengths.large && rng.one_in(4) {
        return 200 + rng.below(most);
    }
    match rng.below(40) {
        0 => 0,
        1 => rng.below(most) + 1,
        2..=12 => 1,
        _ => 1 + rng.below(24),
    }
}

fn access(rng: &mut Rng) -> Access {
    match rng.below(10) {
        0 => Access::Execute,
        1..=4 => Access::Read,
        _ => Access::Write,
    }
}

/// Maps memory that is large enough for superpages, uses a page of it, or makes superpages
/// of single pages.
fn of_superpages(rng: &mut Rng, shape: Shape, (space, lengths): (u8, Lengths), value: u64) -> What {
    let longest = lengths.longest;
    if lengths.huge && rng.one_in(5) {
        let aim = Aim::Fixed(Place::At(shape.table_pages(1) * (1 + rng.below(4))));
        let pages = 600 + rng.below(longest);
        return match value >> 1 & 3 {
            0 => What::OpenFile { pages },
            1 => What::MapObject {
                space,
                object: (value >> 8) as u8,
                index: 0,
                aim,
                pages,
                prot: [READ | EXECUTE, READ | WRITE][(value >> 3 & 1) as usize],
                shared: value >> 4 & 1 != 0,
            },
            _ => What::MapAnonymous {
                space,
                aim,
                pages,
                prot: READ | WRITE,
                shared: true,
                grows: false,
            },
        };
    }
    if rng.one_in(4) {
        let aim = match rng.one_in(3) {
            true => Aim::Anywhere,
            false => Aim::Fixed(Place::At(rng.pick(&shape.areas()[..3]))),
        };
        return What::MapAnonymous {
            space,
            aim,
            pages: 600 + rng.below(longest),
            prot: READ | WRITE,
            shared: false,
            grows: false,
        };
    }
    if rng.one_in(40) {
        // All pages of a range, and perhaps of the one after.
        return What::Sweep {
            space,
            place: Place::Mapped(rng.below(1 << 20)),
            pages: 700 + rng.below(400),
            step: 1,
            access: Access::Write,
            value,
        };
    }
    if rng.one_in(5) {
        return What::Collapse {
            space,
            place: Place::Mapped(rng.below(1 << 20)),
            least: 1 << rng.below(10),
        };
    }
    What::Touch {
        space,
        place: Place::Mapped(rng.below(1 << 20)),
        access: access(rng),
        word: rng.below(shape.words()) as u16,
        value,
    }
}

/// Gives a range fault hooks, does something about what they catch, or asks what was written.
fn of_hooks(rng: &mut Rng, shape: Shape, (space, lengths): (u8, Lengths), value: u64) -> What {
    let place = place(rng, shape);
    let pages = length(rng, lengths);
    match rng.below(11) {
        8.. => What::TakeDirty {
            space,
            place,
            pages: pages * 4,
            how: TakeDirty {
                write_protects: rng.one_in(2),
                splits: rng.one_in(2),
            },
        },
        0 | 1 => What::Hook {
            space,
            place,
            pages,
            hooks: Hooks {
                missing: rng.one_in(2),
                stores: !rng.one_in(3),
            },
        },
        2..=4 => What::Watch {
            space,
            place,
            // All of them are mapped, and compared from then on.
            pages: pages.min(64),
            watches: !rng.one_in(3),
        },
        _ => What::Supply {
            space,
            place,
            pages: pages.min(5),
            supply: match rng.one_in(3) {
                true => Supply::Zeroes,
                false => Supply::Words {
                    value,
                    watched: rng.one_in(2),
                },
            },
        },
    }
}

fn what(rng: &mut Rng, shape: Shape, lengths: Lengths) -> What {
    let space = rng.below(256) as u8;
    let object = rng.below(256) as u8;
    let value = rng.next() | 1;
    if lengths.swaps && rng.one_in(6) {
        return What::PageOut {
            space,
            place: place(rng, shape),
            pages: 1 + rng.below(64),
        };
    }
    if lengths.folios && rng.one_in(16) {
        return What::AdviseFolio {
            space,
            place: place(rng, shape),
            pages: length(rng, lengths),
            order: rng.one_in(4).then(|| rng.below(12) as u32),
        };
    }
    if lengths.hooks && rng.one_in(6) {
        return of_hooks(rng, shape, (space, lengths), value);
    }
    if lengths.large && rng.one_in(3) {
        return of_superpages(rng, shape, (space, lengths), value);
    }
    match rng.below(100) {
        0 | 1 => What::Create,
        2..=6 => What::Fork { space },
        7 => What::Share { space },
        8 => What::Exec { space },
        9..=11 => What::Exit { space },
        12..=18 => What::MapAnonymous {
            space,
            aim: aim(rng, shape),
            pages: length(rng, lengths),
            prot: rng.pick(&PROTS),
            shared: rng.one_in(4),
            grows: rng.one_in(6),
        },
        19..=26 => What::MapObject {
            space,
            object,
            index: rng.below(12),
            aim: aim(rng, shape),
            pages: length(rng, lengths),
            prot: rng.pick(&PROTS),
            shared: rng.one_in(2),
        },
        27..=30 => What::Unmap {
            space,
            place: place(rng, shape),
            pages: length(rng, lengths),
        },
        31..=36 => {
            let pages = length(rng, lengths);
            let leaves = rng.one_in(5);
            let new_pages = if leaves || rng.one_in(3) {
                pages
            } else {
                length(rng, lengths)
            };
            What::Remap {
                space,
                place: place(rng, shape),
                pages,
                new_pages,
                aim: aim(rng, shape),
                leaves,
            }
        }
        37..=42 => {
            let prot = rng.pick(&PROTS);
            What::Protect {
                space,
                place: place(rng, shape),
                pages: length(rng, lengths),
                prot,
            }
        }
        43 | 44 => What::Brk {
            space,
            pages: rng.below(24),
        },
        45 => {
            let (place, pages) = (place(rng, shape), length(rng, lengths));
            match value >> 1 & 3 {
                0 => What::NodePolicy {
                    space,
                    place,
                    pages,
                    kind: rng.below(7) as u8,
                },
                1 => What::MovePages {
                    space,
                    place,
                    pages,
                    node: rng.below(3) as u8,
                },
                2 if rng.one_in(3) => What::Withdraw { space, place },
                2 => What::Inherit {
                    space,
                    place,
                    pages,
                    forks: pages % 3 == 0,
                },
                _ => What::Inherit {
                    space,
                    place,
                    pages,
                    forks: rng.one_in(3),
                },
            }
        }
        46 | 47 => What::DontNeed {
            space,
            place: place(rng, shape),
            pages: length(rng, lengths),
        },
        48 => {
            let (place, pages) = (place(rng, shape), length(rng, lengths));
            match pages % 3 == 0 {
                true => What::Cold {
                    space,
                    place,
                    pages,
                },
                false => What::Free {
                    space,
                    place,
                    pages,
                },
            }
        }
        49 => What::Populate {
            space,
            place: place(rng, shape),
            pages: match lengths.large {
                true => length(rng, lengths),
                false => length(
                    rng,
                    Lengths {
                        longest: 64,
                        ..lengths
                    },
                ),
            },
        },
        50..=67 => What::Touch {
            space,
            place: place(rng, shape),
            access: access(rng),
            word: rng.below(shape.words()) as u16,
            value,
        },
        68..=79 => What::Sweep {
            space,
            place: place(rng, shape),
            pages: 1 + rng.below(32),
            step: 1 + rng.below(3),
            access: access(rng),
            value,
        },
        80 | 81 => {
            let pages = 1 + rng.below(4);
            What::Pin {
                space,
                place: place(rng, shape),
                pages,
                writes: rng.one_in(2),
            }
        }
        82 => What::Unpin { nth: object },
        83 => What::OpenFile {
            pages: 1 + rng.below(40),
        },
        84 => What::OpenMemory {
            pages: 1 + rng.below(40),
        },
        85 => What::Release { object },
        86 => What::Shift {
            object,
            index: rng.below(12),
            pages: 1 + rng.below(6),
            up: rng.one_in(2),
        },
        87 => What::Truncate {
            object,
            pages: rng.below(32),
        },
        89..=92 => What::Write {
            object,
            index: rng.below(32),
            pages: 1 + rng.below(6),
            value,
        },
        93..=95 => What::Read {
            object,
            index: rng.below(32),
            pages: 1 + rng.below(16),
        },
        // Few pages, and more are unlocked: memory that is locked cannot run short.
        97 if value & 2 == 0 => What::Lock {
            space,
            place: Place::Mapped(value >> 44),
            pages: 1 + (value >> 8) % if value & 4 == 0 { 12 } else { 100 },
            locks: value & 4 == 0,
        },
        88 => What::MapFrames {
            space,
            // Aligned as large leaves are, or not.
            first: ((value >> 1 & 1) * shape.table_pages(1) + (value >> 2 & 3) % 3) as u32,
            aim: match rng.one_in(3) {
                true => aim(rng, shape),
                false => Aim::Fixed(Place::At(shape.table_pages(1) * (1 + rng.below(3)))),
            },
            pages: match rng.one_in(3) {
                true => shape.table_pages(1).min(1024) + rng.below(40),
                false => length(rng, lengths),
            },
            prot: rng.pick(&PROTS) | rng.pick(&TYPES),
            shared: !rng.one_in(5),
            at_once: rng.one_in(2),
        },
        96 | 97 => What::Sync { object },
        98 => What::Reclaim { pages: value % 40 },
        _ => What::Audit,
    }
}

/// The operations of a seed.
pub fn sequence(seed: u64, shape: Shape, count: usize, lengths: Lengths) -> Vec<Op> {
    let mut rng = Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d);
    let mut ops = vec![
        Op {
            cpu: 0,
            what: What::Create,
        },
        Op {
            cpu: 0,
            what: What::OpenFile { pages: 30 },
        },
        Op {
            cpu: 0,
            what: What::OpenMemory { pages: 20 },
        },
    ];
    ops.extend((0..count).map(|_| Op {
        cpu: rng.below(256) as u8,
        what: what(&mut rng, shape, lengths),
    }));
    ops
}
