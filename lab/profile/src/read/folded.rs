//! Folded stacks, one a line: names from the outermost to the innermost, joined
//! by semicolons, a blank, and the number of ticks.

use super::{Reader, Refused, says_something};
use crate::{Profile, Stack};

const LINE: Refused = "a folded stack and its ticks, such as `main;fork;copy 12`";
const ONE_COUNT: Refused = "one number of ticks, not two: give the two profiles as two files";

const WHOLE: Refused = "a whole number of ticks: fractions, as of times or shares, are multiplied \
    first, as in awk '{ $NF = int($NF * 1000) } 1'";

pub struct Folded;

impl Reader for Folded {
    fn line(&mut self, line: &str, profile: &mut Profile) -> Result<(), Refused> {
        if !says_something(line) {
            return Ok(());
        }
        let (frames, ticks) = split(line).ok_or_else(|| match has_fraction(line) {
            true => WHOLE,
            false => LINE,
        })?;
        let last = frames.rsplit(';').next().unwrap_or(frames);
        if frames.contains(';') && last.contains(' ') && split(last).is_some() {
            return Err(ONE_COUNT);
        }
        let frames = frames.split(';').map(str::trim);
        let stack: Stack = frames
            .filter(|name| !name.is_empty())
            .map(Into::into)
            .collect();
        if stack.is_empty() {
            return Err(LINE);
        }
        profile.add(stack, ticks);
        Ok(())
    }
}

fn split(line: &str) -> Option<(&str, u64)> {
    let (frames, ticks) = line.trim_end().rsplit_once(char::is_whitespace)?;
    let frames = frames.trim();
    Some((frames, ticks.parse().ok()?)).filter(|(frames, _)| !frames.is_empty())
}

fn has_fraction(line: &str) -> bool {
    let last = line.split_whitespace().next_back();
    last.is_some_and(|last| last.contains('.') && last.parse::<f64>().is_ok_and(|it| it >= 0.0))
}

pub fn begins_with(line: &str) -> bool {
    split(line).is_some() || line.contains(';') && has_fraction(line)
}

#[cfg(test)]
mod tests {
    use super::super::tests::read;

    #[test]
    fn names_may_hold_blanks_and_comments_are_skipped() {
        let text = "# made by hand\nmain;<impl A for B>::f 3\n\nmain;operator new 4\nmain 1\n";
        let profile = read(text).unwrap();
        assert_eq!(profile.flat()["<impl A for B>::f"], 3);
        assert_eq!(profile.flat()["operator new"], 4);
        assert_eq!(profile.flat()["main"], 1);
        assert!(profile.has_callers());
    }

    #[test]
    fn two_counts_are_a_comparison_already() {
        let error = read("main;f 3 4\n").unwrap_err().to_string();
        assert!(error.contains("two files"), "{error}");
    }

    #[test]
    fn fractions_are_refused_with_a_cure() {
        for text in ["main;f 1.5\n", "main;f 3\nmain;g 0.25\n"] {
            let error = read(text).unwrap_err().to_string();
            assert!(error.contains("multiplied first"), "{error}");
        }
    }

    #[test]
    fn damaged_lines_are_refused() {
        for line in [
            "main;f",
            "main;f -3",
            "main;f 1.5",
            ";; 4",
            "main;f 99999999999999999999",
        ] {
            assert!(read(&format!("a;b 1\n{line}\n")).is_err(), "{line}");
        }
    }
}
