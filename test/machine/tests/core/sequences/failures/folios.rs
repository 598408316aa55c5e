//! Scenarios with folios.

use super::super::model::Access;
use super::super::ops::{Aim, Place, What};
use super::scenarios::{FORK, RW, Scenario, map, touch};

pub const FIRST_OF_FOLIO: &str = "the first store to a folio";

/// With folios: what maps one, and calls about a part of one that is shared.
pub fn folio_scenarios() -> Vec<Scenario> {
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
                leaves: false,
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
