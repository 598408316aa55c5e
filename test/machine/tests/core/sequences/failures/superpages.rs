//! Scenarios with superpages.

use vellum::design::Superpages;

use super::super::model::{Access, READ};
use super::super::ops::{Aim, Place, What};
use super::scenarios::{FORK, RW, Scenario, map, sweep, touch};

pub const FIRST_USE: &str = "the first use of a superpage";

/// With superpages: the one of pages 512 to 1023, which fork shares.
pub fn superpage_scenarios(superpages: Superpages) -> Vec<Scenario> {
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
        leaves: false,
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

/// With superpages of shared memory: the one of pages 512 to 1023.
pub fn huge_scenarios() -> Vec<Scenario> {
    scenarios_of_object(vec![What::Create, map(512, 800, RW, true)], Access::Write)
}

/// The same of a file, of which loads make one.
pub fn huge_file_scenarios() -> Vec<Scenario> {
    let mapped = What::MapObject {
        space: 0,
        object: 0,
        index: 0,
        aim: Aim::Fixed(Place::At(512)),
        pages: 800,
        prot: RW,
        shared: true,
    };
    let fresh = vec![What::Create, What::OpenFile { pages: 1200 }, mapped];
    let mut scenarios = scenarios_of_object(fresh.clone(), Access::Read);
    let mut used = fresh;
    used.push(touch(600, Access::Read));
    let store = touch(700, Access::Write);
    scenarios.push(("a store to a superpage of a file", used, store));
    scenarios
}

/// With a superpage of pages 512 to 1023, which show an object and become one at the first
/// `access`.
fn scenarios_of_object(fresh: Vec<What>, access: Access) -> Vec<Scenario> {
    use Access::{Read, Write};
    let place = Place::At;
    let mut used = fresh.clone();
    used.extend([
        touch(600, access),
        map(3000, 20, RW, false),
        sweep(3000, 20, Write),
    ]);
    let mut shared = used.clone();
    shared.extend([FORK, touch(510, Write)]);
    let mut scenarios = vec![
        (FIRST_USE, fresh.clone(), touch(600, Write)),
        (FIRST_USE, fresh, touch(600, Read)),
    ];
    let remap = |from, to| What::Remap {
        leaves: false,
        space: 0,
        place: place(from),
        pages: 9,
        new_pages: 9,
        aim: Aim::Fixed(place(to)),
    };
    let part = What::Unmap {
        space: 0,
        place: place(700),
        pages: 20,
    };
    let protect = What::Protect {
        space: 0,
        place: place(512),
        pages: 3,
        prot: READ,
    };
    let page_out = What::PageOut {
        space: 0,
        place: place(520),
        pages: 4,
    };
    let operations = [
        ("unmapping a part of an object's superpage", part),
        ("fork with an object's superpage", FORK),
        ("moving a part of an object's superpage", remap(700, 5000)),
        ("moving into an object's superpage", remap(3000, 700)),
        ("protecting a part of an object's superpage", protect),
        ("paging out a part of an object's superpage", page_out),
    ];
    for before in [used, shared] {
        scenarios.extend(operations.map(|(name, last)| (name, before.clone(), last)));
    }
    scenarios
}
