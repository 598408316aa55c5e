//! Who cites the invariants of ARCHITECTURE.md by their numbers.
//!
//! A number is cited as `invariant 5`, or several as `invariants 5, 7 and 12`,
//! in comments and in text that tests print. Each number of the list must be
//! cited by a `SAFETY:` comment, which relies on the invariant, or by a test,
//! which checks it; and each number that is cited must be in the list.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Where the list is, and the heading above it.
const LIST: &str = "ARCHITECTURE.md";
const HEADING: &str = "## Invariants";

/// Folders without sources or documents of the project, and this one, whose
/// text is about citations.
const SKIPPED: [&str; 4] = ["target", ".git", "traces", "xtask"];

/// Where a number was cited.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum By {
    Safety,
    Test,
    Other,
}

#[derive(Default)]
struct Cited {
    by_safety: u32,
    by_tests: u32,
    others: u32,
    /// File and line of one citation.
    example: String,
}

/// Checks the citations and says how often each number is cited.
pub fn run() -> Result<(), String> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
    let list = read(&root.join(LIST))?;
    let numbers = listed(&list);
    if numbers.is_empty() {
        return Err(format!(
            "{LIST} has no list of invariants under “{HEADING}”"
        ));
    }
    let mut files = Vec::new();
    collect(&root, &mut files)?;
    let mut cited: BTreeMap<u32, Cited> = BTreeMap::new();
    for file in &files {
        let name = file.strip_prefix(&root).unwrap_or(file);
        for (number, line, by) in citations(name, &read(file)?) {
            let entry = cited.entry(number).or_default();
            match by {
                By::Safety => entry.by_safety += 1,
                By::Test => entry.by_tests += 1,
                By::Other => entry.others += 1,
            }
            entry.example = format!("{}:{line}", name.display());
        }
    }
    println!("invariant  SAFETY  tests  elsewhere");
    let mut wrong = Vec::new();
    for &number in &numbers {
        let none = Cited::default();
        let found = cited.get(&number).unwrap_or(&none);
        println!(
            "{number:>9}  {:>6}  {:>5}  {:>9}",
            found.by_safety, found.by_tests, found.others
        );
        if found.by_safety + found.by_tests == 0 {
            wrong.push(format!(
                "invariant {number} is cited by no SAFETY comment and by no test"
            ));
        }
    }
    for (number, found) in &cited {
        if !numbers.contains(number) {
            wrong.push(format!(
                "{} cites invariant {number}, which {LIST} does not have",
                found.example
            ));
        }
    }
    if wrong.is_empty() {
        return Ok(());
    }
    Err(wrong.join("\n"))
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

/// Adds the Rust sources and documents below `folder`.
fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> Result<(), String> {
    let fail = |error: std::io::Error| format!("{}: {error}", folder.display());
    for entry in fs::read_dir(folder).map_err(fail)? {
        let entry = entry.map_err(fail)?;
        let path = entry.path();
        if entry.file_type().map_err(fail)?.is_dir() {
            let skipped = |name: &std::ffi::OsStr| SKIPPED.iter().any(|skipped| name == *skipped);
            if !path.file_name().is_some_and(skipped) {
                collect(&path, files)?;
            }
        } else if path
            .extension()
            .is_some_and(|end| end == "rs" || end == "md")
        {
            files.push(path);
        }
    }
    Ok(())
}

/// The numbers of the list.
fn listed(text: &str) -> Vec<u32> {
    let lines = text.lines().skip_while(|line| *line != HEADING).skip(1);
    let list = lines.take_while(|line| !line.starts_with("## "));
    list.filter_map(|line| line.split_once(". ")?.0.parse().ok())
        .collect()
}

/// The numbers that a file cites, with the line where each comment or line of
/// text begins.
fn citations(name: &Path, text: &str) -> Vec<(u32, usize, By)> {
    let mut found = Vec::new();
    let is_test = is_test(name);
    let mut note = |block: &str, line: usize| {
        let by = if is_test {
            By::Test
        } else if block.contains("SAFETY:") {
            By::Safety
        } else {
            By::Other
        };
        found.extend(numbers(block).into_iter().map(|number| (number, line, by)));
    };
    // A comment is read as a whole, since a citation may lie across two lines.
    let mut comment = String::new();
    let mut begun = 1;
    for (nth, line) in text.lines().enumerate() {
        let line = line.trim_start();
        let rest = line
            .strip_prefix("///")
            .or_else(|| line.strip_prefix("//!"))
            .or_else(|| line.strip_prefix("//"));
        if let Some(rest) = rest {
            if comment.is_empty() {
                begun = nth + 1;
            }
            comment += rest;
            comment.push(' ');
            continue;
        }
        note(&comment, begun);
        comment.clear();
        note(line, nth + 1);
    }
    note(&comment, begun);
    found
}

/// Whether a file is part of the tests, by its place or name.
fn is_test(name: &Path) -> bool {
    let in_tests = |part: &std::ffi::OsStr| part == "tests" || part == "verify";
    let stem = name.file_stem().unwrap_or_default().to_string_lossy();
    name.iter().any(in_tests) || stem == "tests" || stem.ends_with("_tests")
}

/// The numbers behind each “invariant” or “invariants” of a text.
fn numbers(text: &str) -> Vec<u32> {
    let mut found = Vec::new();
    for (at, word) in text.match_indices("nvariant") {
        let mut rest = &text[at + word.len()..];
        rest = rest.strip_prefix('s').unwrap_or(rest);
        loop {
            rest = rest.trim_start();
            rest = rest.strip_prefix("and ").unwrap_or(rest).trim_start();
            let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
            let Ok(number) = rest[..digits].parse() else {
                break;
            };
            found.push(number);
            rest = &rest[digits..];
            match rest.strip_prefix(',') {
                Some(more) => rest = more,
                None if rest.trim_start().starts_with("and ") => {}
                None => break,
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_alone_and_in_lists() {
        assert_eq!(numbers("(invariant 5); Invariant 12."), [5, 12]);
        assert_eq!(numbers("invariants 5, 7 and 12 of 13"), [5, 7, 12]);
        assert_eq!(numbers("invariants 1, 2, and 3"), [1, 2, 3]);
        assert!(numbers("the invariant of 5 pages, invariants hold").is_empty());
    }

    #[test]
    fn a_comment_is_told_from_a_test_and_read_across_lines() {
        let text = "// SAFETY: it stays (invariant\n// 7).\nlet x = 1; // invariant 3\n";
        let found = |name: &str| citations(Path::new(name), text);
        assert_eq!(
            found("vellum/src/a.rs"),
            [(7, 1, By::Safety), (3, 3, By::Other)]
        );
        assert_eq!(
            found("machine/tests/core/a.rs"),
            [(7, 1, By::Test), (3, 3, By::Test)]
        );
    }

    #[test]
    fn the_list_ends_with_its_section() {
        let text = "1. no\n## Invariants\n\n1. (A) One.\n   more\n2. Two.\n\n## Order\n\n3. no\n";
        assert_eq!(listed(text), [1, 2]);
    }
}
