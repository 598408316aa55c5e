//! Differences of two profiles, in the format of `diffprofile`.
//!
//! Each line is the change in ticks, the change as a percentage of the old
//! value, and the name; positive is more in the new profile, that is, worse. A
//! name that the old profile lacks counts as a change of 0 %, one that the new
//! profile lacks as -100 %. Lines are sorted by change; of a long list only both
//! ends are shown.

use std::collections::BTreeMap;

/// The lines for two profiles of `(name, ticks)`, at most `ends` from each end.
/// Entries of the same name are added up. Unchanged names are left out.
pub fn lines(old: &[(&str, u64)], new: &[(&str, u64)], ends: usize) -> Vec<String> {
    let mut profiles: BTreeMap<&str, [i128; 2]> = BTreeMap::new();
    for (side, profile) in [old, new].into_iter().enumerate() {
        for &(name, ticks) in profile {
            profiles.entry(name).or_default()[side] += i128::from(ticks);
        }
    }
    let mut changes: Vec<(i128, f64, &str)> = profiles
        .into_iter()
        .filter(|(_, [old, new])| old != new)
        .map(|(name, [old, new])| {
            let percent = match old {
                0 => 0.0,
                old => 100.0 * (new - old) as f64 / old as f64,
            };
            (new - old, percent, name)
        })
        .collect();
    changes.sort_by(|a, b| b.0.cmp(&a.0).then(a.2.cmp(b.2)));
    let line = |&(delta, percent, name): &(i128, f64, &str)| {
        format!("{delta:>10}  {percent:>6.1}% {name}")
    };
    if changes.len() <= 2 * ends {
        return changes.iter().map(line).collect();
    }
    let mut lines: Vec<String> = changes[..ends].iter().map(line).collect();
    lines.push("...".to_owned());
    lines.extend(changes[changes.len() - ends..].iter().map(line));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `total` of the kernbench profile in the post of 22 March 2003: 330 ticks
    /// fewer, printed as -0.2 %.
    #[test]
    fn the_published_total_comes_out_byte_for_byte() {
        let lines = lines(&[("total", 165_000)], &[("total", 164_670)], 10);
        assert_eq!(lines, ["      -330    -0.2% total"]);
    }

    #[test]
    fn an_overflowing_percentage_keeps_its_distance() {
        let lines = lines(
            &[("find_trylock_page", 14)],
            &[("find_trylock_page", 3823)],
            10,
        );
        assert_eq!(lines, ["      3809  27207.1% find_trylock_page"]);
    }

    #[test]
    fn appearing_is_0_percent_and_vanishing_is_minus_100() {
        let lines = lines(
            &[("pte_chain_alloc", 99), ("find_vma", 525)],
            &[("set_page_dirty", 353), ("find_vma", 571)],
            10,
        );
        assert_eq!(
            lines,
            [
                "       353     0.0% set_page_dirty",
                "        46     8.8% find_vma",
                "       -99  -100.0% pte_chain_alloc",
            ]
        );
    }

    #[test]
    fn names_that_occur_twice_are_added_up() {
        let lines = lines(&[("f", 10), ("f", 10)], &[("f", 30)], 10);
        assert_eq!(lines, ["        10    50.0% f"]);
    }

    #[test]
    fn a_long_list_shows_both_ends() {
        let names: Vec<String> = (0..30).map(|n| format!("f{n:02}")).collect();
        let old: Vec<(&str, u64)> = names.iter().map(|name| (name.as_str(), 100)).collect();
        let new: Vec<(&str, u64)> = (100u64..)
            .map(|n| n - 14)
            .zip(&names)
            .map(|(ticks, name)| (name.as_str(), ticks))
            .collect();
        let lines = lines(&old, &new, 3);
        assert_eq!(
            lines,
            [
                "        15    15.0% f29",
                "        14    14.0% f28",
                "        13    13.0% f27",
                "...",
                "       -12   -12.0% f02",
                "       -13   -13.0% f01",
                "       -14   -14.0% f00",
            ]
        );
    }
}
