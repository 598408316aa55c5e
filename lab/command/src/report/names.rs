//! What to call designs that stand side by side.
//!
//! A complete design is a dozen options in a row. A report states it once, at its
//! top: for each arm the options in which the arms differ, and then those that all
//! have in common: in a summary only those that are not the default. Below, the difference
//! alone names an arm, if it is a single option.

use std::fmt::Write;

use super::Detail;

/// Columns of a terminal.
pub const WIDTH: usize = 100;

/// What arm `index` is called: `A`, `B`, … `Z`, `A2`, …
pub fn letter(index: usize) -> String {
    let letter = char::from(b'A' + (index % 26) as u8);
    match index / 26 {
        0 => letter.to_string(),
        round => format!("{letter}{}", round + 1),
    }
}

/// The options of `design` that are not the default. What is no option stays.
pub fn differences(design: &str) -> Vec<&str> {
    let options = design.split(',').filter(|option| !option.is_empty());
    options.filter(|option| !is_default(option)).collect()
}

/// Whether an option, `name=value`, has the value that it has by default.
fn is_default(option: &str) -> bool {
    let Some((name, value)) = option.split_once('=') else {
        return false;
    };
    let mut known = vellum_engine::options().iter();
    known.any(|info| info.name == name && info.default == value)
}

/// A design by the options that are not the default.
pub fn brief(design: &str) -> String {
    match differences(design).as_slice() {
        [] => "the default design".to_owned(),
        options => options.join(","),
    }
}

/// The designs of a report, or whatever else is compared.
#[derive(Clone, Debug)]
pub struct Names {
    /// The complete designs.
    full: Vec<String>,
    /// Of each, the options that not all have.
    own: Vec<Vec<String>>,
    /// The options that all have.
    shared: Vec<String>,
}

impl Names {
    /// Complete designs: options, separated by commas.
    pub fn of<'d>(designs: impl IntoIterator<Item = &'d str>) -> Self {
        let full: Vec<String> = designs.into_iter().map(str::to_owned).collect();
        let all: Vec<Vec<&str>> = full.iter().map(|text| text.split(',').collect()).collect();
        let is_shared = |option: &str| all.iter().all(|design| design.contains(&option));
        let part = |design: &[&str], shared: bool| -> Vec<String> {
            let options = design.iter().filter(|option| is_shared(option) == shared);
            options.map(|option| (*option).to_owned()).collect()
        };
        let own: Vec<Vec<String>> = all.iter().map(|design| part(design, false)).collect();
        // Of designs that are all the same nothing is told apart.
        let shared = match own.iter().all(Vec::is_empty) {
            true => Vec::new(),
            false => all.first().map_or_else(Vec::new, |first| part(first, true)),
        };
        Names { full, own, shared }
    }

    /// `label`, and behind it the one option that tells arm `arm` from the others,
    /// if one does.
    pub fn named(&self, arm: usize, label: &str) -> String {
        match self.alone(arm) {
            Some(option) => format!("{label} {option}"),
            None => label.to_owned(),
        }
    }

    /// The one option that tells arm `arm` from the others, if one does.
    pub fn alone(&self, arm: usize) -> Option<&str> {
        match self.own.get(arm).map(Vec::as_slice) {
            Some([option]) if self.own.iter().all(|own| own.len() == 1) => Some(option),
            _ => None,
        }
    }

    /// Lines that state every design: arm for arm what its `labels` stand for, then
    /// `control`, a line on its own, then what all have in common.
    pub fn lines<'l>(
        &self,
        labels: impl IntoIterator<Item = &'l str>,
        control: &str,
        detail: Detail,
    ) -> String {
        let mut text = String::new();
        for (arm, label) in labels.into_iter().enumerate() {
            let own = match self.own.get(arm).is_none_or(Vec::is_empty) {
                true => detail.design(self.full.get(arm).map_or("", String::as_str)),
                false => self.own[arm].join(","),
            };
            listed(&mut text, label, own.split(','));
        }
        let _ = writeln!(text, "  A'  {control}");
        let shared = self.shared.iter().map(String::as_str);
        let shared: Vec<&str> = match detail {
            Detail::Summary => shared.filter(|option| !is_default(option)).collect(),
            Detail::Full => shared.collect(),
        };
        if !shared.is_empty() {
            listed(&mut text, "all", shared.into_iter());
        }
        text
    }
}

/// A label, and behind it options in lines that fit a terminal.
fn listed<'o>(text: &mut String, label: &str, options: impl Iterator<Item = &'o str>) {
    let mut line = format!("  {label:<3} ");
    let indent = line.len();
    let mut is_first = true;
    for option in options {
        if !is_first {
            line.push(',');
            if line.chars().count() + option.chars().count() >= WIDTH {
                let _ = writeln!(text, "{line}");
                line = " ".repeat(indent);
            }
        }
        line.push_str(option);
        is_first = false;
    }
    let _ = writeln!(text, "{line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arms_are_named_by_the_one_option_in_which_they_differ() {
        let names = Names::of(["rmap=chains,direct=on", "rmap=partial,direct=on"]);
        assert_eq!(names.named(0, "A"), "A rmap=chains");
        assert_eq!(names.named(1, "B"), "B rmap=partial");
        let lines = "  A   rmap=chains\n  B   rmap=partial\n  A'  again\n  all direct=on\n";
        assert_eq!(names.lines(["A", "B"], "again", Detail::Full), lines);
    }

    #[test]
    fn several_differences_are_stated_once_and_name_nobody() {
        let names = Names::of([
            "rmap=chains,direct=on,hint=on",
            "rmap=family,direct=off,hint=on",
        ]);
        assert_eq!(names.named(0, "A"), "A");
        let lines = "  A   rmap=chains,direct=on\n  B   rmap=family,direct=off\n  A'  again\n  \
                     all hint=on\n";
        assert_eq!(names.lines(["A", "B"], "again", Detail::Full), lines);
    }

    #[test]
    fn one_design_alone_or_the_same_twice_is_stated_whole() {
        let names = Names::of(["rmap=chains,direct=on"; 2]);
        assert_eq!(names.named(1, "B"), "B");
        let lines = "  A   rmap=chains,direct=on\n  B   rmap=chains,direct=on\n  A'  again\n";
        assert_eq!(names.lines(["A", "B"], "again", Detail::Full), lines);
        let names = Names::of(["6.18.5"]);
        assert_eq!(
            names.lines(["A"], "again", Detail::Full),
            "  A   6.18.5\n  A'  again\n"
        );
    }

    #[test]
    fn of_three_designs_one_may_be_as_the_others_but_for_one_option() {
        let names = Names::of(["a=1,b=1", "a=2,b=1", "a=1,b=2"]);
        // Each is told from the others by both.
        assert_eq!(names.named(1, "B"), "B");
        let lines = "  A   a=1,b=1\n  B   a=2,b=1\n  C   a=1,b=2\n  A'  again\n";
        assert_eq!(names.lines(["A", "B", "C"], "again", Detail::Full), lines);
    }

    #[test]
    fn a_summary_names_only_what_is_not_the_default() {
        let complete = |given: &str| {
            let design = vellum::Design::parse(given).expect("a design");
            design.to_string()
        };
        assert_eq!(brief(&complete("")), "the default design");
        assert_eq!(
            brief(&complete("folio=64k,rmap=partial")),
            "rmap=partial,folio=64k"
        );
        assert_eq!(brief("6.18.5"), "6.18.5");
        let (a, b) = (complete("folio=64k"), complete("folio=64k,rmap=chains"));
        let names = Names::of([a.as_str(), &b]);
        let lines = "  A   rmap=family\n  B   rmap=chains\n  A'  again\n  all folio=64k\n";
        assert_eq!(names.lines(["A", "B"], "again", Detail::Summary), lines);
        let names = Names::of([a.as_str(), &a]);
        let lines = "  A   folio=64k\n  B   folio=64k\n  A'  again\n";
        assert_eq!(names.lines(["A", "B"], "again", Detail::Summary), lines);
    }

    #[test]
    fn no_line_is_wider_than_a_terminal() {
        let design = |n: usize| {
            let options: Vec<String> = (0..20).map(|i| format!("option{i}=value")).collect();
            format!("first={n},{}", options.join(","))
        };
        let (a, b) = (design(1), design(2));
        let lines = Names::of([a.as_str(), b.as_str()]).lines(["A", "B"], "again", Detail::Full);
        assert!(lines.lines().all(|line| line.len() <= WIDTH), "{lines}");
        assert_eq!(lines.matches("option19=value").count(), 1);
    }
}
