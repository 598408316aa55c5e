//! The options of a design: one table that the parser, the help text, the
//! documentation and the benchmarks read.
//!
//! The syntax is that of kernel boot parameters: `rmap=chains,direct=off`.

use alloc::format;
use alloc::string::String;
use core::fmt::Write;

/// One option: its name, values, default, and the argument it comes from.
#[derive(Clone, Copy, Debug)]
pub struct OptionInfo {
    /// Name before the `=`.
    pub name: &'static str,
    /// Values in words; for a number, its range.
    pub values: &'static [&'static str],
    /// The value used when the option is not given.
    pub default: &'static str,
    /// One line: what it selects.
    pub summary: &'static str,
    /// The published argument it stands for.
    pub source: &'static str,
}

/// Every option.
pub const OPTIONS: &[OptionInfo] = &[
    OptionInfo {
        name: "rmap",
        values: &["chains", "partial"],
        default: "partial",
        summary: "how a frame's page-table entries are found",
        source: "pte_chains (van Riel, McCracken 2002) against objrmap (McCracken 2003)",
    },
    OptionInfo {
        name: "direct",
        values: &["on", "off"],
        default: "on",
        summary: "a frame mapped once points at its entry, without a chain node",
        source: "PageDirect (McCracken 2002); 90 % of anonymous mappings were singletons",
    },
    OptionInfo {
        name: "ptepage",
        values: &["fresh"],
        default: "fresh",
        summary: "where page-table pages come from",
        source: "quicklists (Holt 2004) against allocating and zeroing each",
    },
    OptionInfo {
        name: "faultaround",
        values: &["1", "2", "4", "8", "16", "32", "64"],
        default: "16",
        summary: "pages of a file that one read fault maps if they are cached",
        source: "fault-around (Shutemov 2014), 64 KiB in Linux",
    },
    OptionInfo {
        name: "forkcopy",
        values: &["needed", "all"],
        default: "needed",
        summary: "whether fork copies entries that a fault would find again",
        source: "lazy fork of file mappings (Piggin 2005); kernels of 2003 copied all",
    },
];

/// Which reverse-mapping design.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rmap {
    /// PTE chains for every frame.
    Chains,
    /// Regions of the object for file pages, chains for anonymous ones.
    Partial,
}

/// Where table pages come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TableSource {
    /// Allocated and zeroed each time.
    Fresh,
}

/// Which entries fork copies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ForkCopy {
    /// Only those of regions that hold private pages.
    Needed,
    /// All of them.
    All,
}

/// The options as values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Design {
    /// `rmap=`
    pub rmap: Rmap,
    /// `direct=`
    pub direct: bool,
    /// `ptepage=`
    pub table_source: TableSource,
    /// `faultaround=`, in pages, a power of two.
    pub fault_around: u32,
    /// `forkcopy=`
    pub fork_copy: ForkCopy,
}

impl Default for Design {
    fn default() -> Self {
        Design {
            rmap: Rmap::Partial,
            direct: true,
            table_source: TableSource::Fresh,
            fault_around: 16,
            fork_copy: ForkCopy::Needed,
        }
    }
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
    /// Reads option syntax: `name=value` separated by commas or blanks.
    /// Options not given keep their default; a later one wins.
    ///
    /// # Errors
    /// [`DesignError`], which names the valid options or values.
    pub fn parse(text: &str) -> Result<Design, DesignError> {
        let mut design = Design::default();
        for part in text
            .split([',', ' '])
            .map(str::trim)
            .filter(|part| !part.is_empty())
        {
            let (name, value) = part.split_once('=').ok_or_else(|| {
                DesignError(format!("design option '{part}': expected name=value"))
            })?;
            design.set(name, value)?;
        }
        Ok(design)
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), DesignError> {
        let info = OPTIONS
            .iter()
            .find(|info| info.name == name)
            .ok_or_else(|| {
                let mut text = format!("unknown design option '{name}'; valid options:");
                for info in OPTIONS {
                    let _ = write!(text, " {}", info.name);
                }
                DesignError(text)
            })?;
        let index = info
            .values
            .iter()
            .position(|valid| *valid == value)
            .ok_or_else(|| {
                DesignError(format!(
                    "design option '{name}': '{value}' is not a value; valid values: {}",
                    info.values.join(", ")
                ))
            })?;
        match name {
            "rmap" => self.rmap = [Rmap::Chains, Rmap::Partial][index],
            "direct" => self.direct = index == 0,
            "ptepage" => self.table_source = TableSource::Fresh,
            "faultaround" => self.fault_around = 1 << index,
            _ => self.fork_copy = [ForkCopy::Needed, ForkCopy::All][index],
        }
        Ok(())
    }
}

impl core::fmt::Display for Design {
    /// Every option, in the syntax that [`Design::parse`] reads.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let rmap = match self.rmap {
            Rmap::Chains => "chains",
            Rmap::Partial => "partial",
        };
        let direct = if self.direct { "on" } else { "off" };
        let TableSource::Fresh = self.table_source;
        let copy = match self.fork_copy {
            ForkCopy::Needed => "needed",
            ForkCopy::All => "all",
        };
        write!(
            f,
            "rmap={rmap},direct={direct},ptepage=fresh,faultaround={},forkcopy={copy}",
            self.fault_around
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn what_display_writes_parse_reads() {
        for info in OPTIONS {
            for value in info.values {
                let design = Design::parse(&format!("{}={value}", info.name)).unwrap();
                assert_eq!(Design::parse(&design.to_string()).unwrap(), design);
                assert!(
                    design
                        .to_string()
                        .contains(&format!("{}={value}", info.name))
                );
            }
        }
    }

    #[test]
    fn defaults_in_the_table_are_the_defaults() {
        let mut text = String::new();
        for info in OPTIONS {
            let _ = write!(text, "{}={},", info.name, info.default);
        }
        assert_eq!(Design::parse(&text).unwrap(), Design::default());
    }

    #[test]
    fn a_refusal_names_the_valid_values() {
        let error = Design::parse("rmap=chain").unwrap_err();
        assert!(error.0.contains("chains, partial"), "{error}");
        let error = Design::parse("remap=chains").unwrap_err();
        assert!(error.0.contains(" rmap "), "{error}");
        assert!(Design::parse("rmap").is_err());
    }
}
