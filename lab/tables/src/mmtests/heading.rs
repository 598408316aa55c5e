//! Names of kernels above their columns.

/// The two lines above a column: the name up to its first hyphen, and what follows
/// it. `-rcN` belongs to the first: `3.15.0-rc3-vanilla` is `3.15.0-rc3` above
/// `vanilla`. A name without a hyphen stands in the second line alone.
pub fn heading(name: &str, compat: bool) -> [String; 2] {
    if compat {
        return as_published(name);
    }
    let Some((release, rest)) = name.split_once('-') else {
        return [String::new(), name.to_owned()];
    };
    let (candidate, after) = rest.split_once('-').unwrap_or((rest, ""));
    let digits = candidate.strip_prefix("rc");
    let is_candidate =
        |digits: &str| !digits.is_empty() && digits.chars().all(|digit| digit.is_ascii_digit());
    match digits.is_some_and(is_candidate) {
        true => [format!("{release}-{candidate}"), after.to_owned()],
        false => [release.to_owned(), rest.to_owned()],
    }
}

/// As mmtests does it: if `-rc` and a digit come in a piece from the first hyphen
/// on, which is the longer the later the hyphen comes, the name is divided four
/// characters behind the hyphen; without a hyphen one character before the end.
fn as_published(name: &str) -> [String; 2] {
    let name: Vec<char> = name.chars().collect();
    let Some(hyphen) = name.iter().position(|c| *c == '-') else {
        let first = &name[..name.len().saturating_sub(1)];
        return [first, &name].map(|part| part.iter().collect());
    };
    let piece = &name[hyphen..(2 * hyphen + 3).min(name.len())];
    let is_candidate = |four: &[char]| four[..3] == ['-', 'r', 'c'] && four[3].is_ascii_digit();
    let end = match piece.windows(4).any(is_candidate) {
        true => (hyphen + 4).min(name.len()),
        false => hyphen,
    };
    let rest = name.get(end + 1..).unwrap_or(&[]);
    [&name[..end], rest].map(|part| part.iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_divided_behind_the_release() {
        for (name, lines) in [
            ("3.15.0-rc3-vanilla", ["3.15.0-rc3", "vanilla"]),
            ("4.18.0-numa-v1r1", ["4.18.0", "numa-v1r1"]),
            ("3.15.0-rc3", ["3.15.0-rc3", ""]),
        ] {
            for compat in [false, true] {
                assert_eq!(heading(name, compat), lines, "{name}, {compat}");
            }
        }
    }

    #[test]
    fn what_mmtests_divides_elsewhere() {
        for (name, right, published) in [
            ("vanilla", ["", "vanilla"], ["vanill", "vanilla"]),
            ("6.1-rc10-x", ["6.1-rc10", "x"], ["6.1-rc1", "-x"]),
            (
                "5.10.100-a-rc1",
                ["5.10.100", "a-rc1"],
                ["5.10.100-a-r", "1"],
            ),
            ("", ["", ""], ["", ""]),
        ] {
            assert_eq!(heading(name, false), right);
            assert_eq!(heading(name, true), published);
        }
    }
}
