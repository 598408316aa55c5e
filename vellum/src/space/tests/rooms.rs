//! The rooms of `space/` stand on one another.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::vec::Vec;

/// From the ground up.
const ROOMS: [&str; 10] = [
    "state", "locks", "steps", "leaves", "regions", "path", "files", "leaving", "life", "handle",
];

/// The names that follow `crate::space::` in the code of a text.
fn named(text: &str) -> Vec<&str> {
    let code = text
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"));
    code.flat_map(|line| line.split("crate::space::").skip(1))
        .map(|rest| {
            let end = rest.find(|c: char| c != '_' && !c.is_alphanumeric());
            &rest[..end.unwrap_or(rest.len())]
        })
        .collect()
}

#[test]
fn rooms_import_from_those_below_them_only() {
    let space = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/space");
    let mut imports = 0;
    for (height, room) in ROOMS.iter().enumerate() {
        for entry in fs::read_dir(space.join(room)).expect("a room") {
            let file = entry.expect("an entry").path();
            let text = fs::read_to_string(&file).expect("text");
            for name in named(&text) {
                let from = ROOMS.iter().position(|other| *other == name);
                imports += usize::from(from.is_some());
                assert!(
                    from.is_none_or(|from| from < height),
                    "{}: imports from `{name}`, which does not lie below `{room}`",
                    file.display()
                );
            }
        }
    }
    assert!(imports > 100, "imports are found: {imports}");
}

/// The names of functions that a text defines: methods of a manager's that are not a trait's, and
/// others.
fn functions(code: &str) -> [Vec<&str>; 2] {
    let mut names = [Vec::new(), Vec::new()];
    let mut is_inside = false;
    for line in code
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"))
    {
        if MANAGERS.iter().any(|start| line.starts_with(start)) {
            is_inside = true;
        } else if line.starts_with('}') {
            is_inside = false;
        } else if let Some((_, rest)) = line.split_once("fn ") {
            let end = rest.find(|c: char| c != '_' && !c.is_alphanumeric());
            names[usize::from(!is_inside)].push(&rest[..end.unwrap_or(rest.len())]);
        }
    }
    names
}

/// How methods begin of a manager, and of what it is made of.
const MANAGERS: [&str; 3] = [
    "impl<P: Platform, F: Format, R: ReverseMap> Vm<P, F, R> {",
    "impl<P: Platform> PageCache<'_, P> {",
    "impl<P: Platform> Common<P> {",
];

/// The names that are called in a text on a manager, or on what `self` may be, which is told.
fn called(code: &str) -> Vec<(&str, bool)> {
    const VM: [&str; 4] = ["vm.", "Vm::<P, F, R>::", "(self.vm).", "page_cache()."];
    const OWN: [&str; 2] = ["self.", "Self::"];
    let mut names = Vec::new();
    for line in code
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"))
    {
        for (place, _) in line.match_indices('(') {
            let before = &line[..place];
            let start = before.rfind(|c: char| c != '_' && !c.is_alphanumeric());
            let start = start.map_or(0, |start| start + 1);
            let is_on = |on: &[&str]| on.iter().any(|on| before[..start].ends_with(on));
            if is_on(&VM) || is_on(&OWN) {
                names.push((&before[start..], is_on(&OWN)));
            }
        }
    }
    names
}

/// Most functions are methods of `Vm`, which imports do not show. What a room needs from one above
/// it, it declares as a trait, and that one implements it.
#[test]
fn rooms_call_methods_of_those_below_them_only() {
    let space = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/space");
    let mut texts = Vec::new();
    for (height, room) in ROOMS.iter().enumerate() {
        for entry in fs::read_dir(space.join(room)).expect("a room") {
            let file = entry.expect("an entry").path();
            let text = fs::read_to_string(&file).expect("text");
            texts.push((height, file, text));
        }
    }
    // A name may stand for several methods, as of traits: then the lowest is meant.
    let mut homes = BTreeMap::new();
    let mut others = BTreeSet::new();
    for (height, _, text) in &texts {
        let [methods, functions] = functions(text);
        for name in methods {
            let home = homes.entry(name).or_insert(*height);
            *home = (*home).min(*height);
        }
        others.extend(functions);
    }
    let mut calls = 0;
    for (height, file, text) in &texts {
        for (name, is_own) in called(text) {
            // Whose it is cannot be seen if others have functions of that name, too.
            let home = homes
                .get(name)
                .filter(|_| !is_own || !others.contains(name));
            calls += usize::from(home.is_some());
            assert!(
                home.is_none_or(|home| home <= height),
                "{}: calls `{name}`, which is in `{}`",
                file.display(),
                home.map_or("", |&home| ROOMS[home])
            );
        }
    }
    assert!(
        homes.len() > 400 && calls > 1000,
        "{} methods, {calls} calls",
        homes.len()
    );
}

#[test]
fn space_has_no_other_rooms() {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/space/mod.rs"));
    let text = text.expect("text");
    let modules = text
        .lines()
        .filter_map(|line| line.strip_prefix("mod ")?.strip_suffix(';'));
    let rooms: Vec<&str> = modules.filter(|name| !name.ends_with("tests")).collect();
    // There in the order of the alphabet, as they are formatted.
    let mut expected = ROOMS;
    expected.sort_unstable();
    assert_eq!(rooms, expected);
}

/// The files of rooms in which a text stands, as often as it does.
fn places_of(text: &str) -> Vec<std::string::String> {
    let space = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/space");
    let mut places = Vec::new();
    for room in ROOMS {
        for entry in fs::read_dir(space.join(room)).expect("a room") {
            let file = entry.expect("an entry").path();
            let count = fs::read_to_string(&file)
                .expect("text")
                .matches(text)
                .count();
            let name = file.file_name().expect("a name").to_string_lossy();
            places.extend((0..count).map(|_| std::format!("{room}/{name}")));
        }
    }
    places.sort_unstable();
    places
}

/// A [`LockedSpace`](crate::space::state::locked::LockedSpace) is worth what those are who can make one.
#[test]
fn spaces_are_held_by_their_guard_and_where_nobody_can_be_at_work() {
    let holders = places_of("HoldsSpace<'a, R> for ");
    assert_eq!(
        holders,
        ["life/create.rs", "life/inspect.rs", "locks/lock.rs"]
    );
    let whole = places_of("WholeSpace::with_all_locks(");
    assert_eq!(whole, ["life/fork.rs", "locks/lock.rs"]);
}

/// So is a [`Closed`](crate::space::state::closed::Closed).
#[test]
fn regions_are_closed_in_one_place() {
    for maker in ["ClosedRegion::waited_for(", "Closed::one_of("] {
        let makers = places_of(maker);
        assert!(
            makers.iter().all(|place| place == "locks/closed.rs"),
            "{makers:?}"
        );
        assert!(!makers.is_empty(), "{maker}");
    }
    let gates = [places_of("gate.close()"), places_of("gate.open()")].concat();
    let made = ["locks/closed.rs", "state/closed.rs", "state/tree.rs"];
    assert!(
        gates.iter().all(|place| made.contains(&place.as_str())),
        "{gates:?}"
    );
}
