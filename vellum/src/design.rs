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
        values: &[
            "chains",
            "partial",
            "anonmm2003",
            "anonmm",
            "anon_vma",
            "anon_vma_chain",
            "family",
        ],
        default: "family",
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
        name: "kinstamp",
        values: &["on", "off"],
        default: "on",
        summary: "family: lookups skip children forked before the page was made",
        source: "anonmm searched every relative (Dickins 2003)",
    },
    OptionInfo {
        name: "hint",
        values: &["on", "off"],
        default: "on",
        summary: "family: a page remembers one entry, all there is of most",
        source: "PageDirect (McCracken 2002) for designs without chains",
    },
    OptionInfo {
        name: "ptepage",
        values: &["fresh", "noted", "quicklist", "zeroaware", "warm", "depot"],
        default: "noted",
        summary: "where page-table pages come from",
        source: "quicklists (Holt 2004) against allocating and zeroing each (Miller 2007)",
    },
    OptionInfo {
        name: "quicklevels",
        values: &["unified", "separate"],
        default: "unified",
        summary: "quicklist: one list for all levels, or one for each",
        source: "ia64 Linux 2.6.8 had one a level; one list for all (Holt 2005)",
    },
    OptionInfo {
        name: "quicknode",
        values: &["home", "blind"],
        default: "home",
        summary: "quicklist: tables of other nodes go to the allocator, or are kept",
        source: "tables trapped on another node after fork and migration (Holt 2004)",
    },
    OptionInfo {
        name: "quickmark",
        values: &["node", "total"],
        default: "node",
        summary: "quicklist: watermark from the node's free memory, or from all memory",
        source: "watermarks of all memory for lists of each CPU (Holt 2004)",
    },
    OptionInfo {
        name: "format",
        values: &[
            "x86-64",
            "x86-64-la57",
            "aarch64-4k",
            "aarch64-16k",
            "aarch64-64k",
            "sv39",
            "sv48",
        ],
        default: "x86-64",
        summary: "page tables of which architecture; replays fold pages onto larger ones",
        source: "table pages of 16 KiB on ia64 (Miller 2007); the architectures' manuals",
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
    /// Regions of the object; one address in every space of a family, with a
    /// lock in each page.
    Anonmm2003,
    /// The same without the locks.
    Anonmm,
    /// Regions of the object; the regions related by fork or cut.
    AnonVma,
    /// The same with a list of their own for the pages of each forked region.
    AnonVmaChain,
    /// Regions of the object for file pages, the tree of relatives for private ones.
    Family,
}

/// In the order of the option's values.
const RMAPS: [Rmap; 7] = [
    Rmap::Chains,
    Rmap::Partial,
    Rmap::Anonmm2003,
    Rmap::Anonmm,
    Rmap::AnonVma,
    Rmap::AnonVmaChain,
    Rmap::Family,
];

/// Where table pages come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TableSource {
    /// Allocated and zeroed each time.
    Fresh,
    /// Allocated, and zeroed unless the frame's record says that it is zero.
    Noted,
    /// Per-CPU lists of zero tables.
    Quicklist,
    /// Allocated from the zero frames that the allocator keeps apart.
    ZeroAware,
    /// Per-CPU stacks of zero tables, whose cold end is given up.
    Warm,
    /// The same with a depot of batches for each node.
    Depot,
}

/// How quicklists sort tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum QuickLevels {
    /// One list.
    #[default]
    Unified,
    /// One for each level.
    Separate,
}

/// What quicklists do with tables of other nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum QuickNode {
    /// Give them to the allocator.
    #[default]
    Home,
    /// Keep them.
    Blind,
}

/// What limits a quicklist.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum QuickMark {
    /// The free memory of the CPU's node.
    #[default]
    Node,
    /// The memory of the machine.
    Total,
}

/// The options of `ptepage=quicklist`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct QuicklistOptions {
    /// `quicklevels=`
    pub levels: QuickLevels,
    /// `quicknode=`
    pub node: QuickNode,
    /// `quickmark=`
    pub mark: QuickMark,
}

/// In the order of the option's values.
const TABLE_SOURCES: [TableSource; 6] = [
    TableSource::Fresh,
    TableSource::Noted,
    TableSource::Quicklist,
    TableSource::ZeroAware,
    TableSource::Warm,
    TableSource::Depot,
];

/// Whose page-table format.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum TableFormat {
    /// x86-64 with four levels.
    #[default]
    X86_64,
    /// x86-64 with five levels.
    X86_64La57,
    /// AArch64 with pages of 4 KiB.
    Aarch64_4K,
    /// AArch64 with pages of 16 KiB.
    Aarch64_16K,
    /// AArch64 with pages of 64 KiB.
    Aarch64_64K,
    /// RISC-V with three levels.
    Sv39,
    /// RISC-V with four levels.
    Sv48,
}

impl TableFormat {
    /// In the order of the option's values.
    const ALL: [TableFormat; 7] = [
        TableFormat::X86_64,
        TableFormat::X86_64La57,
        TableFormat::Aarch64_4K,
        TableFormat::Aarch64_16K,
        TableFormat::Aarch64_64K,
        TableFormat::Sv39,
        TableFormat::Sv48,
    ];

    /// The option's value, which is [`crate::table::Format::NAME`] too.
    pub const fn name(self) -> &'static str {
        match self {
            TableFormat::X86_64 => "x86-64",
            TableFormat::X86_64La57 => "x86-64-la57",
            TableFormat::Aarch64_4K => "aarch64-4k",
            TableFormat::Aarch64_16K => "aarch64-16k",
            TableFormat::Aarch64_64K => "aarch64-64k",
            TableFormat::Sv39 => "sv39",
            TableFormat::Sv48 => "sv48",
        }
    }
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
    /// `kinstamp=`
    pub kin_stamp: bool,
    /// `hint=`
    pub hint: bool,
    /// `ptepage=`
    pub table_source: TableSource,
    /// `quicklevels=`, `quicknode=`, `quickmark=`
    pub quicklist: QuicklistOptions,
    /// `format=`. A manager's own type parameter decides; this says which
    /// instance to build.
    pub format: TableFormat,
    /// `faultaround=`, in pages, a power of two.
    pub fault_around: u32,
    /// `forkcopy=`
    pub fork_copy: ForkCopy,
}

impl Default for Design {
    fn default() -> Self {
        Design {
            rmap: Rmap::Family,
            direct: true,
            kin_stamp: true,
            hint: true,
            table_source: TableSource::Noted,
            quicklist: QuicklistOptions::default(),
            format: TableFormat::X86_64,
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
            "rmap" => self.rmap = RMAPS[index],
            "direct" => self.direct = index == 0,
            "kinstamp" => self.kin_stamp = index == 0,
            "hint" => self.hint = index == 0,
            "ptepage" => self.table_source = TABLE_SOURCES[index],
            "quicklevels" => {
                self.quicklist.levels = [QuickLevels::Unified, QuickLevels::Separate][index];
            }
            "quicknode" => self.quicklist.node = [QuickNode::Home, QuickNode::Blind][index],
            "quickmark" => self.quicklist.mark = [QuickMark::Node, QuickMark::Total][index],
            "format" => self.format = TableFormat::ALL[index],
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
            Rmap::Anonmm2003 => "anonmm2003",
            Rmap::Anonmm => "anonmm",
            Rmap::AnonVma => "anon_vma",
            Rmap::AnonVmaChain => "anon_vma_chain",
            Rmap::Family => "family",
        };
        let switch = |on| if on { "on" } else { "off" };
        let direct = switch(self.direct);
        let (stamp, hint) = (switch(self.kin_stamp), switch(self.hint));
        let source = match self.table_source {
            TableSource::Fresh => "fresh",
            TableSource::Noted => "noted",
            TableSource::Quicklist => "quicklist",
            TableSource::ZeroAware => "zeroaware",
            TableSource::Warm => "warm",
            TableSource::Depot => "depot",
        };
        let levels = match self.quicklist.levels {
            QuickLevels::Unified => "unified",
            QuickLevels::Separate => "separate",
        };
        let node = match self.quicklist.node {
            QuickNode::Home => "home",
            QuickNode::Blind => "blind",
        };
        let mark = match self.quicklist.mark {
            QuickMark::Node => "node",
            QuickMark::Total => "total",
        };
        let copy = match self.fork_copy {
            ForkCopy::Needed => "needed",
            ForkCopy::All => "all",
        };
        write!(
            f,
            "rmap={rmap},direct={direct},kinstamp={stamp},hint={hint},ptepage={source},quicklevels={levels},\
             quicknode={node},quickmark={mark},format={},faultaround={},forkcopy={copy}",
            self.format.name(),
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
        assert!(error.0.contains("chains, partial, "), "{error}");
        let error = Design::parse("remap=chains").unwrap_err();
        assert!(error.0.contains(" rmap "), "{error}");
        assert!(Design::parse("rmap").is_err());
    }
}
