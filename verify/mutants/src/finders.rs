//! Which test found a mutant the last time: a measurement from nothing begins with
//! that test, and so takes minutes rather than hours. It judges nothing by it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

fn path(root: &Path) -> PathBuf {
    root.join("verify/mutants/finders.txt")
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

/// Writes the file anew.
///
/// # Errors
/// It could not be written.
pub fn write<'a>(
    root: &Path,
    finders: impl Iterator<Item = (&'a str, &'a str)>,
) -> Result<(), String> {
    let sorted: BTreeMap<&str, &str> = finders.collect();
    let mut text = String::new();
    for (mutant, test) in sorted {
        let _ = writeln!(text, "{mutant}: {test}");
    }
    let path = path(root);
    fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))
}
