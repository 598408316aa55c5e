//! Differences of two profiles, in the format of `diffprofile`.
//!
//! Each line is the change in ticks, the change as a percentage of the old
//! value, and the name; positive is more in the new profile, that is, worse. A
//! name that the old profile lacks counts as a change of 0 %, one that the new
//! profile lacks as -100 %. Lines are sorted by change, and `total` is one of
//! them; of a long list only both ends are shown. This is the format of Martin
//! Bligh's tool, as in the profiles he posted to linux-kernel on 22 March 2003.

use std::collections::BTreeMap;

use vellum_results::profile::{Change, Difference};
use vellum_terminal::table::{Table, grouped};

use crate::Profile;
use crate::groups::Groups;

/// Name of the line about all ticks.
const TOTAL: &str = "total";

/// Which lines are printed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shown {
    /// So many from each end.
    Ends(usize),
    /// Those that changed by at least so many ticks.
    AtLeast(u64),
}

/// How two profiles are compared and printed.
#[derive(Clone, Debug)]
pub struct Options {
    /// Which lines are printed.
    pub shown: Shown,
    /// Percentages by integer division rounding down, as autotest's version has
    /// them: -0.2 % prints as -1.0 %.
    pub compat: bool,
    /// The statistical error of each change behind its name.
    pub errors: bool,
    /// Functions that are added up.
    pub groups: Groups,
    /// The workload, for the heading; may be empty.
    pub title: String,
    /// What the heading calls the new profile.
    pub new_name: String,
}

impl Options {
    /// Ten lines from each end, built-in groups.
    pub fn new(new_name: impl Into<String>) -> Self {
        Self {
            shown: Shown::Ends(10),
            compat: false,
            errors: false,
            groups: Groups::built_in(),
            title: String::new(),
            new_name: new_name.into(),
        }
    }
}

/// What became of the ticks of `name`.
fn change(name: &str, [old, new]: [u64; 2], compat: bool) -> Change {
    let delta = i128::from(new) - i128::from(old);
    let percent = match (old, compat) {
        (0, _) => 0.0,
        (old, true) => (100 * delta).div_euclid(i128::from(old)) as f64,
        (old, false) => 100.0 * delta as f64 / old as f64,
    };
    Change {
        name: name.to_owned(),
        old,
        new,
        delta,
        percent,
        error: (old as f64 + new as f64).sqrt(),
    }
}

fn line(change: &Change) -> String {
    let Change {
        name,
        delta,
        percent,
        ..
    } = change;
    format!("{delta:>10}  {percent:>6.1}% {name}")
}

/// Compares two profiles.
pub fn diffprofile(old: &Profile, new: &Profile, options: &Options) -> Difference {
    let mut changes = changes(&old.flat(), &new.flat(), options.compat);
    changes.retain(|change| change.delta != 0);
    let groups = match options.groups.is_empty() {
        true => Vec::new(),
        false => {
            let sums = [old, new].map(|profile| options.groups.sums(profile));
            self::changes(&sums[0].flat(), &sums[1].flat(), options.compat)
        }
    };
    let title = match options.title.as_str() {
        "" => String::new(),
        title => format!("{title}, "),
    };
    Difference {
        heading: format!("diffprofile ({title}+ worse in {})", options.new_name),
        old: old.name.clone(),
        new: new.name.clone(),
        total: change(TOTAL, [old.total(), new.total()], options.compat),
        changes,
        groups,
    }
}

/// The lines of the format, the total among them, without the heading.
pub fn body(difference: &Difference, options: &Options) -> Vec<String> {
    let mut changes: Vec<&Change> = difference.changes.iter().collect();
    if difference.total.delta != 0 {
        changes.push(&difference.total);
    }
    sort(&mut changes);
    let line = |change: &&Change| match options.errors {
        false => line(change),
        true => format!(
            "{}  ({} -> {}, \u{b1}{:.0})",
            line(change),
            grouped(change.old),
            grouped(change.new),
            change.error
        ),
    };
    elided(&changes, options.shown, line)
}

/// Heading, lines, and the sums over groups.
pub fn text(difference: &Difference, options: &Options) -> String {
    let mut text = format!("{}\n", difference.heading);
    for line in body(difference, options) {
        text.push_str(&line);
        text.push('\n');
    }
    if !difference.groups.is_empty() {
        text.push_str(&group_table(difference));
    }
    text
}

/// The sums over groups as a table. `*` marks changes of more than twice their standard
/// error.
fn group_table(difference: &Difference) -> String {
    let mut table = Table::new(&["group sums", "old", "new", "change", "\u{b1}", "%", ""]);
    for change in difference.groups.iter().chain([&difference.total]) {
        table.row(vec![
            change.name.clone(),
            grouped(change.old),
            grouped(change.new),
            format!("{:+}", change.delta),
            format!("{:.0}", change.error),
            format!("{:+.1}", change.percent),
            if change.is_significant() { "*" } else { " " }.to_owned(),
        ]);
    }
    table.render(0)
}

/// Changes of names in either profile, sorted; those that did not change, too.
fn changes(old: &BTreeMap<&str, u64>, new: &BTreeMap<&str, u64>, compat: bool) -> Vec<Change> {
    let mut pairs: BTreeMap<&str, [u64; 2]> = BTreeMap::new();
    for (side, profile) in [old, new].into_iter().enumerate() {
        for (name, ticks) in profile {
            pairs.entry(name).or_default()[side] = *ticks;
        }
    }
    let mut changes: Vec<Change> = pairs
        .into_iter()
        .map(|(name, ticks)| change(name, ticks, compat))
        .collect();
    sort(&mut changes);
    changes
}

/// By change, descending; equal changes by percentage, descending, as the posted
/// profiles have them, then by name.
fn sort<C: std::borrow::Borrow<Change>>(changes: &mut [C]) {
    changes.sort_by(|a, b| {
        let (a, b) = (a.borrow(), b.borrow());
        let by_change = b.delta.cmp(&a.delta);
        let by_percent = || b.percent.total_cmp(&a.percent);
        by_change
            .then_with(by_percent)
            .then_with(|| a.name.cmp(&b.name))
    });
}

/// The lines of `changes` that are shown, with `...` for those that are not.
fn elided<C: std::borrow::Borrow<Change>>(
    changes: &[C],
    shown: Shown,
    line: impl Fn(&C) -> String,
) -> Vec<String> {
    let (head, tail) = match shown {
        Shown::Ends(ends) => (ends.min(changes.len()), changes.len().saturating_sub(ends)),
        Shown::AtLeast(ticks) => {
            let large = |change: &C| change.borrow().delta.unsigned_abs() >= u128::from(ticks);
            let head = changes.partition_point(|c| c.borrow().delta > 0 && large(c));
            let tail = changes.partition_point(|c| c.borrow().delta >= 0 || !large(c));
            (head, tail)
        }
    };
    if head >= tail {
        return changes.iter().map(line).collect();
    }
    let mut lines: Vec<String> = changes[..head].iter().map(&line).collect();
    lines.push("...".to_owned());
    lines.extend(changes[tail..].iter().map(&line));
    lines
}

/// The lines for two profiles of `(name, ticks)`, at most `ends` from each end.
/// Entries of the same name are added up. Unchanged names are left out.
pub fn lines(old: &[(&str, u64)], new: &[(&str, u64)], ends: usize) -> Vec<String> {
    let flat = |profile: &[(&str, u64)]| {
        let mut flat = Profile::default();
        for (name, ticks) in profile {
            flat.add(vec![(*name).into()], *ticks);
        }
        flat
    };
    let (old, new) = (flat(old), flat(new));
    let mut changes = changes(&old.flat(), &new.flat(), false);
    changes.retain(|change| change.delta != 0);
    elided(&changes, Shown::Ends(ends), line)
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
