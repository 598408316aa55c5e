//! The options of a design, and their parser. The tables in `tables.rs` are what
//! the parser, the help text, the dispatch, the tests and the benchmarks read.
//!
//! The syntax is that of kernel boot parameters: `rmap=chains,direct=off`. A
//! published kernel is one word: `as=linux-2.5.65-mm2`.

#[macro_use]
mod instances;
mod tables;

#[cfg(test)]
mod tests;

#[cfg(feature = "published")]
pub use crate::published::presets::{PRESETS, Preset};
pub use tables::{
    AccessMarks, BlockFlags, BuddyCheck, CommitMode, Design, Di, FaultLock, FileHuge, FileIo,
    FlagUpdates, Folio, ForkCopy, FrameLists, GroupMode, HugePages, MarkChecks, OPTIONS, PageAging,
    PageLocking, PmapLock, PvAlloc, PvLock, PvLru, QuickLevels, QuickMark, QuickNode, RegionIndex,
    Rmap, Superpages, TableFormat, TableSource, UserTables, ZoneCache,
};

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write;

use crate::platform::Parts;

/// One option: its name, values, default, and the argument it comes from.
#[derive(Clone, Copy, Debug)]
pub struct OptionInfo {
    /// Name before the `=`.
    pub name: &'static str,
    /// Values in words.
    pub values: &'static [&'static str],
    /// The value used when the option is not given.
    pub default: &'static str,
    /// The option changes something only while another, named first, has one of
    /// these values.
    pub only_with: Option<(&'static str, &'static [&'static str])>,
    /// One line: what it selects.
    pub summary: &'static str,
    /// The published argument it stands for.
    pub source: &'static str,
    /// Values that the feature `published` brings.
    pub published: &'static [&'static str],
}

impl OptionInfo {
    /// The option with this name.
    pub fn named(name: &str) -> Option<&'static OptionInfo> {
        OPTIONS.iter().find(|info| info.name == name)
    }

    /// Whether this option changes something only with some values of `option`,
    /// `value` among them.
    fn matters_with(&self, option: &str, value: &str) -> bool {
        self.only_with
            .is_some_and(|(of, values)| of == option && values.contains(&value))
    }

    /// The values that this build has.
    pub fn built_in(&self) -> impl DoubleEndedIterator<Item = &'static str> + use<> {
        let published = self.published;
        let values = self.values.iter().copied();
        values.filter(move |value| cfg!(feature = "published") || !published.contains(value))
    }

    /// The values that this build has and that are not the default.
    fn others(&self) -> impl DoubleEndedIterator<Item = &'static str> + use<> {
        let default = self.default;
        self.built_in().filter(move |value| *value != default)
    }
}

/// Looks whether this build has the value of an option, of which `published` are those that the
/// feature of this name brings.
fn check_built_in(published: &[&str], option: &str, value: &str) -> Result<(), DesignError> {
    if cfg!(feature = "published") || !published.contains(&value) {
        return Ok(());
    }
    Err(not_built_in(&format!("{option}={value}")))
}

/// The refusal of what only the feature `published` has.
fn not_built_in(what: &str) -> DesignError {
    DesignError(format!(
        "'{what}' is a published design, which this build is without: \
         the feature `published` of the crate `vellum` has it"
    ))
}

/// What an option can be set to.
trait Values: Copy + PartialEq + 'static {
    const ALL: &'static [Self];
    /// In the order of `ALL`.
    const NAMES: &'static [&'static str];

    /// The value as the option has it.
    fn name(self) -> &'static str {
        let index = Self::ALL.iter().position(|value| *value == self);
        index.map_or("", |index| Self::NAMES[index])
    }
}

/// Where `name` is among `names`. Evaluated when the crate is compiled: a
/// default that is no value does not compile.
const fn index_of(names: &[&str], name: &str) -> usize {
    let mut index = 0;
    while !is_same(names[index].as_bytes(), name.as_bytes()) {
        index += 1;
    }
    index
}

const fn is_same(a: &[u8], b: &[u8]) -> bool {
    let mut at = 0;
    while at < a.len() && at < b.len() && a[at] == b[at] {
        at += 1;
    }
    at == a.len() && at == b.len()
}

/// Designs, in option syntax, that give an option each of its values. A value
/// with which other options start to matter comes several times: with their
/// defaults, with each of their other values alone, and with the last value of
/// them all together. This is what tests and benchmarks run over; there are
/// none if there is no such option.
pub fn variants(option: &str) -> Vec<String> {
    let mut designs = Vec::new();
    let values = OptionInfo::named(option).map(OptionInfo::built_in);
    for value in values.into_iter().flatten() {
        let alone = format!("{option}={value}");
        let matter = |info: &&OptionInfo| info.matters_with(option, value);
        let mut together = alone.clone();
        let mut count = 0;
        designs.push(alone.clone());
        for info in OPTIONS.iter().filter(matter) {
            for other in info.others() {
                designs.push(format!("{alone},{}={other}", info.name));
            }
            if let Some(last) = info.others().next_back() {
                let _ = write!(together, ",{}={last}", info.name);
                count += 1;
            }
        }
        if count > 1 {
            designs.push(together);
        }
    }
    designs
}

/// A design string was refused; the text says where and what is valid.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DesignError(pub String);

impl core::fmt::Display for DesignError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(&self.0)
    }
}

impl core::error::Error for DesignError {}

impl Design {
    /// The options of this design that need a part of the core that `parts` leaves out.
    pub(crate) fn without_its_part(&self, parts: Parts) -> Option<&'static str> {
        let published = self.frame_lists == FrameLists::Linked || self.file_io == FileIo::Pages;
        let superpages = self.superpages != Superpages::Off
            || self.huge != HugePages::Never
            || self.file_huge != FileHuge::Never
            || self.folio != Folio::Off;
        [
            (
                published && !parts.published,
                "framelists=linked or fileio=pages",
            ),
            (
                superpages && !parts.superpages,
                "superpage=, huge=, filehuge= or folio=",
            ),
            (self.reclaim && !parts.reclaim, "reclaim=on"),
            (self.commit != CommitMode::Off && !parts.commit, "commit="),
        ]
        .into_iter()
        .find_map(|(is_missing, option)| is_missing.then_some(option))
    }

    /// Reads option syntax: `name=value` separated by commas or blanks.
    /// Options not given keep their default; a later one wins. `as=` sets all of
    /// them to what a published kernel did, with the feature `published`.
    ///
    /// # Errors
    /// [`DesignError`], which names the valid options or values.
    pub fn parse(text: &str) -> Result<Design, DesignError> {
        let mut design = Design::default();
        for part in Design::parts(text) {
            let (name, value) = part.split_once('=').ok_or_else(|| {
                DesignError(format!("design option '{part}': expected name=value"))
            })?;
            design.set(name, value)?;
        }
        Ok(design)
    }

    /// Whether option syntax gives the option `name` (or `as`), with whatever value.
    pub fn gives(text: &str, name: &str) -> bool {
        Design::parts(text).any(|part| part.split_once('=').is_some_and(|given| given.0 == name))
    }

    fn parts(text: &str) -> impl Iterator<Item = &str> {
        let is_separator = |letter: char| letter == ',' || letter.is_whitespace();
        text.split(is_separator).filter(|part| !part.is_empty())
    }

    #[cfg(not(feature = "published"))]
    fn published(name: &str) -> Result<Design, DesignError> {
        Err(not_built_in(&format!("as={name}")))
    }

    /// The design of a published kernel.
    #[cfg(feature = "published")]
    fn published(name: &str) -> Result<Design, DesignError> {
        let preset = PRESETS.iter().find(|preset| preset.name == name);
        let preset = preset.ok_or_else(|| {
            let mut text = format!("'as={name}': there is no such kernel; valid ones:");
            for preset in PRESETS {
                let _ = write!(text, " {}", preset.name);
            }
            DesignError(text)
        })?;
        Design::parse(preset.settings)
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), DesignError> {
        if name == "as" {
            *self = Design::published(value)?;
            return Ok(());
        }
        let info = OptionInfo::named(name).ok_or_else(|| {
            let mut text = format!("unknown design option '{name}'; valid options:");
            for info in OPTIONS {
                let _ = write!(text, " {}", info.name);
            }
            text += "; or as=, for a published kernel";
            DesignError(text)
        })?;
        check_built_in(info.published, name, value)?;
        let index = info
            .values
            .iter()
            .position(|valid| *valid == value)
            .ok_or_else(|| {
                DesignError(format!(
                    "design option '{name}': '{value}' is not a value; valid values: {}",
                    info.built_in().collect::<Vec<_>>().join(", ")
                ))
            })?;
        self.set_value(name, index);
        Ok(())
    }
}
