//! Profiles: where time went, by function, from whatever sampled it.
//!
//! A [`Profile`] is a multiset of call stacks. [`read`] makes one from the text
//! that other profilers print, [`sample`] from what this process does.
//! [`diffprofile`] compares two of them, [`groups`] adds
//! functions up by what they are for, and [`flame`] draws the comparison.

pub mod diffprofile;
pub mod files;
pub mod flame;
pub mod groups;
mod names;
pub mod read;
pub mod sample;
mod symbols;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

/// A call stack by function names, outermost first, never empty.
pub type Stack = Vec<Arc<str>>;

/// Ticks (samples, or whatever unit the profiler counted) by call stack.
///
/// A profile of functions alone has stacks of one frame.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Profile {
    /// What the profile is of: a design, or the path it was read from.
    pub name: String,
    stacks: BTreeMap<Stack, u64>,
    stated_total: Option<u64>,
}

impl Profile {
    /// A profile without ticks.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            ..Self::default()
        }
    }

    /// Adds `ticks` to a stack. One without frames is ignored.
    pub fn add(&mut self, stack: Stack, ticks: u64) {
        if !stack.is_empty() {
            let sum = self.stacks.entry(stack).or_default();
            *sum = sum.saturating_add(ticks);
        }
    }

    /// States the sum, where the profiler printed one: it may include ticks that
    /// no function got.
    pub fn state_total(&mut self, ticks: u64) {
        self.stated_total = Some(self.stated_total.unwrap_or(0).saturating_add(ticks));
    }

    /// Stacks with their ticks, in the order of their names.
    pub fn stacks(&self) -> impl Iterator<Item = (&[Arc<str>], u64)> {
        self.stacks
            .iter()
            .map(|(stack, ticks)| (stack.as_slice(), *ticks))
    }

    /// Ticks by function, callees not included.
    pub fn flat(&self) -> BTreeMap<&str, u64> {
        let mut flat: BTreeMap<&str, u64> = BTreeMap::new();
        for (stack, ticks) in &self.stacks {
            if let Some(function) = stack.last() {
                let sum = flat.entry(function).or_default();
                *sum = sum.saturating_add(*ticks);
            }
        }
        flat
    }

    /// All ticks: what the profiler stated, or the sum.
    pub fn total(&self) -> u64 {
        let sum = || {
            self.stacks
                .values()
                .fold(0, |a: u64, b| a.saturating_add(*b))
        };
        self.stated_total.unwrap_or_else(sum)
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.stacks.values().all(|ticks| *ticks == 0)
    }

    /// Whether any tick has a caller, so that a flame graph shows something.
    pub fn has_callers(&self) -> bool {
        self.stacks.keys().any(|stack| stack.len() > 1)
    }

    /// The profile with every name replaced by `rename` of it.
    #[must_use]
    pub fn renamed(&self, rename: impl Fn(&str) -> String) -> Self {
        let mut renamed = Self::new(self.name.clone());
        renamed.stated_total = self.stated_total;
        for (stack, ticks) in &self.stacks {
            let stack = stack.iter().map(|name| rename(name).into()).collect();
            renamed.add(stack, *ticks);
        }
        renamed
    }

    /// Folded stacks: `outermost;…;innermost ticks`, one stack a line.
    pub fn folded(&self) -> String {
        let mut text = String::new();
        for (stack, ticks) in &self.stacks {
            let _ = writeln!(text, "{} {ticks}", folded_stack(stack));
        }
        text
    }
}

/// Folded stacks of two profiles, `outermost;…;innermost old new`, the input of
/// differential flame graph tools.
pub fn folded_pair(old: &Profile, new: &Profile) -> String {
    let mut pairs: BTreeMap<&[Arc<str>], [u64; 2]> = BTreeMap::new();
    for (side, profile) in [old, new].into_iter().enumerate() {
        for (stack, ticks) in profile.stacks() {
            pairs.entry(stack).or_default()[side] += ticks;
        }
    }
    let mut text = String::new();
    for (stack, [old, new]) in pairs {
        let _ = writeln!(text, "{} {old} {new}", folded_stack(stack));
    }
    text
}

/// Frames joined by semicolons; a semicolon in a name becomes a colon.
fn folded_stack(stack: &[Arc<str>]) -> String {
    let names: Vec<String> = stack.iter().map(|name| name.replace(';', ":")).collect();
    names.join(";")
}

/// A function's name without what compilers append to clones of it (`.isra.0`,
/// `.constprop.1`, `.part.2`, `.cold`, `.llvm.123`), whose numbers change from
/// build to build.
pub fn without_clone_suffix(name: &str) -> &str {
    const SUFFIXES: [&str; 6] = [
        ".isra.",
        ".constprop.",
        ".part.",
        ".cold",
        ".llvm.",
        ".lto_priv.",
    ];
    let cut = SUFFIXES.iter().filter_map(|suffix| name.find(suffix)).min();
    match cut {
        Some(cut) if cut > 0 => &name[..cut],
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stack(names: &str) -> Stack {
        names.split(';').map(Arc::from).collect()
    }

    #[test]
    fn a_function_has_the_ticks_of_all_stacks_that_end_in_it() {
        let mut profile = Profile::new("p");
        profile.add(stack("main;fault;add"), 3);
        profile.add(stack("main;fork;add"), 4);
        profile.add(stack("main;fork;add"), 1);
        profile.add(stack("main;fork"), 2);
        profile.add(Vec::new(), 100);
        let flat = profile.flat();
        assert_eq!(flat, BTreeMap::from([("add", 8), ("fork", 2)]));
        assert_eq!(profile.total(), 10);
        assert_eq!(
            profile.folded(),
            "main;fault;add 3\nmain;fork 2\nmain;fork;add 5\n"
        );
    }

    #[test]
    fn a_pair_of_folded_profiles_keeps_what_only_one_has() {
        let (mut old, mut new) = (Profile::new("old"), Profile::new("new"));
        old.add(stack("a;b"), 1);
        old.add(stack("a;c"), 2);
        new.add(stack("a;c"), 5);
        new.add(stack("a;x;y"), 7);
        assert_eq!(folded_pair(&old, &new), "a;b 1 0\na;c 2 5\na;x;y 0 7\n");
    }

    #[test]
    fn clones_of_a_function_get_its_name_back() {
        for (clone, name) in [
            ("update_active.constprop.0", "update_active"),
            ("zap_pte_range.isra.0.cold", "zap_pte_range"),
            ("__do_fault.part.12", "__do_fault"),
            (".text.lock.namei", ".text.lock.namei"),
            (".cold", ".cold"),
        ] {
            assert_eq!(without_clone_suffix(clone), name);
        }
    }
}
