//! The rooms of `space/` stand on one another.

use std::fs;
use std::path::Path;
use std::vec::Vec;

/// From the ground up.
const ROOMS: [&str; 9] = [
    "state", "locks", "path", "regions", "large", "files", "leaving", "life", "handle",
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

/// A [`LockedSpace`](crate::space::state::locked::LockedSpace) is worth what those are who can make one.
#[test]
fn spaces_are_held_by_their_guard_and_where_nobody_can_be_at_work() {
    let space = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/space");
    let mut holders = Vec::new();
    for room in ROOMS {
        for entry in fs::read_dir(space.join(room)).expect("a room") {
            let file = entry.expect("an entry").path();
            let text = fs::read_to_string(&file).expect("text");
            let count = text.matches("HoldsSpace<'a, R> for ").count();
            let name = file.file_name().expect("a name").to_string_lossy();
            holders.extend((0..count).map(|_| std::format!("{room}/{name}")));
        }
    }
    holders.sort_unstable();
    let expected = ["life/create.rs", "life/inspect.rs", "locks/lock.rs"];
    assert_eq!(holders, expected);
}
