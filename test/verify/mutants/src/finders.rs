//! Which test found a mutant the last time: a measurement from nothing begins with
//! that test, and so takes minutes rather than hours. It judges nothing by it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use crate::list::Mutant;

fn path(root: &Path) -> PathBuf {
    root.join("test/verify/mutants/finders.txt")
}

/// The file's lines, `mutant: package test`. What does not read so is passed over:
/// it would only be where to begin.
pub fn read(root: &Path) -> BTreeMap<String, String> {
    let text = fs::read_to_string(path(root)).unwrap_or_default();
    let pairs = text.lines().filter_map(|line| line.split_once(": "));
    pairs
        .map(|(mutant, test)| (mutant.to_owned(), test.to_owned()))
        .collect()
}

/// The tests that found mutants of the list: what is known here, and of others what was noted
/// before.
pub fn noted(
    mutants: &[Mutant],
    found: impl Fn(&Mutant) -> Option<String>,
    before: BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    let finder = |mutant: &Mutant| found(mutant).or_else(|| before.get(&mutant.name).cloned());
    mutants
        .iter()
        .filter_map(|mutant| Some((mutant.name.clone(), finder(mutant)?)))
        .collect()
}

/// Writes the file anew.
///
/// # Errors
/// It could not be written.
pub fn write(root: &Path, finders: &BTreeMap<String, String>) -> Result<(), String> {
    let mut text = String::new();
    for (mutant, test) in finders {
        let _ = writeln!(text, "{mutant}: {test}");
    }
    let path = path(root);
    fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mutant(name: &str) -> Mutant {
        Mutant {
            name: name.into(),
            file: "a.rs".into(),
            after: None,
            original: "x".into(),
            mutated: "y".into(),
            why: "it is wrong".into(),
            equivalent: None,
            finding: false,
        }
    }

    #[test]
    fn what_was_noted_before_stays_as_long_as_the_mutant_does() {
        let mutants = ["changed", "kept", "never found"].map(mutant);
        let before = [
            ("changed", "old"),
            ("kept", "its test"),
            ("gone", "another"),
        ];
        let before = before.map(|(name, test)| (name.to_owned(), test.to_owned()));
        let found = |mutant: &Mutant| (mutant.name == "changed").then(|| "new".to_owned());
        let noted = noted(&mutants, found, BTreeMap::from(before));
        let noted: Vec<_> = noted
            .iter()
            .map(|(name, test)| (&**name, &**test))
            .collect();
        assert_eq!(noted, [("changed", "new"), ("kept", "its test")]);
    }
}
