//! The tables: what options there are, and what each can be set to.
//!
//! A row here is all that the parser, the help text, the dispatch and the
//! tests need to know of a reverse-mapping design, a format, a source of page
//! tables or an option.

use super::instances::PUBLISHED_RMAPS;
use super::{DesignError, OptionInfo, Values, check_built_in, index_of};

/// Makes the enum of an option's values from its rows.
macro_rules! choices {
    ($(#[$meta:meta])* $type:ident;
     $($(#[$about:meta])* $name:ident: $value:ident $text:literal;)+) => {
        choices! { $(#[$meta])* $type; $($(#[$about])* $value $text;)+ }
    };
    ($(#[$meta:meta])* $type:ident;
     $($(#[$about:meta])* $value:ident $text:literal;)+) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum $type {
            $($(#[$about])* $value,)+
        }

        impl $type {
            /// Every value, in the order of the table.
            pub const ALL: &'static [$type] = &[$($type::$value),+];

            /// The value as the option has it.
            pub const fn name(self) -> &'static str {
                match self {
                    $($type::$value => $text,)+
                }
            }
        }

        impl Values for $type {
            const ALL: &'static [$type] = $type::ALL;
            const NAMES: &'static [&'static str] = &[$($text),+];
        }
    };
}

every_rmap! { [choices]
    /// Which reverse-mapping design: `rmap=`.
    Rmap;
}

every_format! { [choices]
    /// Whose page-table format: `format=`. The names are those of
    /// [`crate::table::Format::NAME`] too.
    TableFormat;
}

choices! {
    /// How pages are found that have not been used for long: `aging=`.
    #[non_exhaustive]
    PageAging;
    /// An active and an inactive list for each node, with a second chance.
    Lru "lru";
    /// Generations by the time of the last use, which walks of page tables find.
    Generations "generations";
}

choices! {
    /// Which locks guard the lists of pv entries: `pvlock=`.
    #[non_exhaustive]
    PvLock;
    /// 256 of them, by a hash of the number of the 2 MiB.
    Hashed "hashed";
    /// One for each 2 MiB.
    Superpage "superpage";
    /// One byte for each page.
    Byte "byte";
    /// The same, which visits that only look share.
    ByteShared "byte-shared";
}

choices! {
    /// Where pv entries come from: `pvalloc=`.
    #[non_exhaustive]
    PvAlloc;
    /// Pages of 168 that belong to an address space.
    Chunks "chunks";
    /// The arena of the core that all nodes come from.
    Slab "slab";
}

choices! {
    /// Who waits for flushes of entries that have left their lists: `di=`.
    #[non_exhaustive]
    Di;
    /// Who visits a page, for those in a list under a lock.
    Locked "locked";
    /// The same, with a list that is changed by exchanges.
    Lockless "lockless";
    /// Nobody: references keep the page.
    Epoch "epoch";
}

choices! {
    /// In which order pages of pv entries are taken back: `pvlru=`.
    #[non_exhaustive]
    PvLru;
    /// By age, in one list for each node.
    Domain "domain";
    /// By age, in one list.
    Global "global";
    /// Address space by address space in turn, and of each its pages in turn.
    Pmap "pmap";
}

choices! {
    /// Which locks guard page tables: `pmaplock=`.
    #[non_exhaustive]
    PmapLock;
    /// One for each table.
    Table "table";
    /// One for all tables of an address space.
    Space "space";
}

choices! {
    /// Where table pages come from: `ptepage=`. [`crate::table::source_of`]
    /// makes the source.
    #[non_exhaustive]
    TableSource;
    /// Allocated and zeroed each time.
    Fresh "fresh";
    /// Allocated, and zeroed unless the frame's record says that it is zero.
    Noted "noted";
    /// Per-CPU lists of zero tables.
    Quicklist "quicklist";
    /// Allocated from the zero frames that the allocator keeps apart.
    ZeroAware "zeroaware";
    /// Per-CPU stacks of zero tables, whose cold end is given up.
    Warm "warm";
    /// The same with a depot of batches for each node.
    Depot "depot";
}

choices! {
    /// How quicklists sort tables: `quicklevels=`.
    #[non_exhaustive]
    QuickLevels;
    /// One list.
    Unified "unified";
    /// One for each level above the lowest, and none for that.
    Upper "upper";
    /// One for each level.
    Separate "separate";
}

choices! {
    /// What quicklists do with tables of other nodes: `quicknode=`.
    #[non_exhaustive]
    QuickNode;
    /// Give them to the allocator.
    Home "home";
    /// Keep them.
    Blind "blind";
}

choices! {
    /// What limits a quicklist: `quickmark=`.
    #[non_exhaustive]
    QuickMark;
    /// The free memory of the CPU's node.
    Node "node";
    /// The memory of the machine.
    Total "total";
}

choices! {
    /// Where the lowest page tables lie: `userpte=`.
    #[non_exhaustive]
    UserTables;
    /// In low memory while some is free, and then in high memory, where they also move
    /// when something else needs the low.
    Auto "auto";
    /// In high memory.
    High "high";
    /// In low memory.
    NoHigh "nohigh";
}

choices! {
    /// How an object keeps the regions that map it: `regions=`.
    #[non_exhaustive]
    RegionIndex;
    /// An interval tree, and several of them once CPUs wait for its lock.
    Auto "auto";
    /// Several interval trees, each with its own lock.
    Spread "spread";
    /// An interval tree.
    Tree "tree";
    /// Two lists, of private and of shared mappings, that are searched whole.
    List "list";
}

choices! {
    /// Which entries fork copies: `forkcopy=`.
    #[non_exhaustive]
    ForkCopy;
    /// Only those of regions that hold private pages.
    Needed "needed";
    /// All of them.
    All "all";
}

choices! {
    /// Whether private memory is mapped in superpages: `superpage=`.
    #[non_exhaustive]
    Superpages;
    /// It is not.
    Off "off";
    /// At the first use of a range that is large enough, where
    /// [`Advice::Huge`](crate::space::Advice::Huge) asks for it.
    Advise "advise";
    /// At the first use of a range that is large enough.
    Eager "eager";
    /// When all pages of such a range are used, which lie as a superpage needs them: a run of
    /// frames is set aside for them at the first.
    Reserve "reserve";
}

choices! {
    /// Which objects of shared memory are kept and mapped in superpages: `huge=`.
    #[non_exhaustive]
    HugePages;
    /// None, whatever they were told by [`File::set_huge`](crate::space::File::set_huge).
    Never "never";
    /// Those that were told so.
    Advise "advise";
    /// Those that were told so, and of all that were not told otherwise the ranges that lie
    /// before the end.
    WithinSize "within_size";
    /// All that were not told otherwise, also as they grow.
    Always "always";
}

choices! {
    /// Which files of a backing store are read and mapped in superpages: `filehuge=`.
    #[non_exhaustive]
    FileHuge;
    /// None, whatever they were told by [`File::set_huge`](crate::space::File::set_huge).
    Never "never";
    /// Those that were told so.
    Advise "advise";
    /// All that were not told otherwise.
    Always "always";
}

choices! {
    /// The largest folio, a run of frames for pages around the one that is stored to, that a
    /// fault maps page by page: `folio=`.
    #[non_exhaustive]
    Folio;
    /// None: a page.
    Off "off";
    /// None, but where [`Advice::Folio`](crate::space::Advice::Folio) asks for some.
    Advise "advise";
    /// 16 KiB.
    UpTo16K "16k";
    /// 32 KiB.
    UpTo32K "32k";
    /// 64 KiB.
    UpTo64K "64k";
    /// 128 KiB.
    UpTo128K "128k";
    /// 256 KiB.
    UpTo256K "256k";
    /// 512 KiB.
    UpTo512K "512k";
    /// 1 MiB.
    UpTo1M "1m";
}

impl Folio {
    /// Log2 of the most bytes of a folio.
    pub(crate) const MOST_SHIFT: u32 = 20;

    /// Log2 of the bytes of the largest folio where nothing was advised, if there are any.
    pub(crate) const fn shift(self) -> Option<u32> {
        match self {
            Folio::Off | Folio::Advise => None,
            Folio::UpTo16K => Some(14),
            Folio::UpTo32K => Some(15),
            Folio::UpTo64K => Some(16),
            Folio::UpTo128K => Some(17),
            Folio::UpTo256K => Some(18),
            Folio::UpTo512K => Some(19),
            Folio::UpTo1M => Some(Folio::MOST_SHIFT),
        }
    }
}

choices! {
    /// What faults of one space exclude: `faultlock=`.
    #[non_exhaustive]
    FaultLock;
    /// Each other at one table only.
    None "none";
    /// Each other: one lock is held from the beginning of a fault to its end.
    Space "space";
}

choices! {
    /// How files are read and written by bytes: `fileio=`.
    #[non_exhaustive]
    FileIo;
    /// Runs of pages, without page locks.
    Runs "runs";
    /// Page by page: found, locked, marked, unlocked.
    Pages "pages";
}

choices! {
    /// Where the release of a page lock looks for waiters: `pagelock=`.
    #[non_exhaustive]
    PageLocking;
    /// In a flag of the page.
    Waiters "waiters";
    /// In a wait table, each time.
    Hashed "hashed";
}

choices! {
    /// When a page that a write makes is marked as used: `accessed=`.
    #[non_exhaustive]
    AccessMarks;
    /// Before others can see it.
    Init "init";
    /// After it was written, as a page that was there.
    Atomic "atomic";
}

choices! {
    /// How flags are changed that nobody else changes at the time: `flags=`.
    #[non_exhaustive]
    FlagUpdates;
    /// By stores, and not at all if nothing would change.
    Plain "plain";
    /// By read-modify-writes.
    Atomic "atomic";
}

choices! {
    /// What free frames are kept in: `framelists=`.
    #[non_exhaustive]
    FrameLists;
    /// Runs of frame numbers for each CPU, and blocks of one sort for each zone.
    Runs "runs";
    /// Linked lists, for each CPU and each zone, by kind of page, frame by frame.
    Linked "linked";
}

choices! {
    /// When a zone that is full is remembered as such: `zonecache=`.
    #[non_exhaustive]
    ZoneCache;
    /// In a search that has asked which zones are full.
    Lazy "lazy";
    /// Whenever it is found full.
    Eager "eager";
    /// Never.
    Off "off";
}

choices! {
    /// How the kind of a page block is read and written: `blockflags=`.
    #[non_exhaustive]
    BlockFlags;
    /// As a part of a word.
    Word "word";
    /// Bit by bit.
    Bits "bits";
}

choices! {
    /// When the zone of a possible buddy is looked at: `buddycheck=`.
    #[non_exhaustive]
    BuddyCheck;
    /// After it was seen to be free and of the same size.
    Late "late";
    /// Before.
    Early "early";
}

choices! {
    /// When it is looked whether a request may have the reserve: `marks=`.
    #[non_exhaustive]
    MarkChecks;
    /// When a zone has been found to have nothing else.
    Late "late";
    /// For every zone first, and which zones may serve the request again for each.
    Early "early";
}

choices! {
    /// What is refused when memory is promised: `commit=`. [`CommitPolicy`](crate::frame::CommitPolicy)
    /// says more of each, and can be changed while the manager runs.
    #[non_exhaustive]
    CommitMode;
    /// Nothing, and nothing is counted.
    Off "off";
    /// A call that alone asks for more than there is.
    Heuristic "heuristic";
    /// Nothing.
    Always "always";
    /// What exceeds half of the frames, and swap.
    Never "never";
}

choices! {
    /// Whether there are groups of spaces, and what they are charged for: `groups=`.
    #[non_exhaustive]
    GroupMode;
    /// There are none.
    Off "off";
    /// Pages.
    On "on";
    /// Pages, page tables and records of regions.
    All "all";
}

/// A switch.
impl Values for bool {
    const ALL: &'static [bool] = &[true, false];
    const NAMES: &'static [&'static str] = &["on", "off"];
}

/// A number of pages, a power of two.
impl Values for u32 {
    const ALL: &'static [u32] = &[1, 2, 4, 8, 16, 32, 64];
    const NAMES: &'static [&'static str] = &["1", "2", "4", "8", "16", "32", "64"];
}

/// Makes [`Design`], [`OPTIONS`] and what reads and writes them from the rows.
macro_rules! options {
    ($($(#[$about:meta])* $name:literal $field:ident: $type:ty = $default:literal
       $(, only with $of:literal = [$($with:literal),+])?
       $(, published $published:expr)? $(, set by $who:ident)?;
       $summary:literal; $source:literal;)+) => {
        /// The options as values.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[non_exhaustive]
        pub struct Design {
            $(
                #[doc = concat!("`", $name, "=`: ", $summary, ".")]
                $(#[$about])*
                pub $field: $type,
            )+
        }

        impl Default for Design {
            fn default() -> Self {
                Design {
                    $($field: <$type as Values>::ALL
                        [const { index_of(<$type as Values>::NAMES, $default) }],)+
                }
            }
        }

        /// Every option.
        pub const OPTIONS: &[OptionInfo] = &[
            $(OptionInfo {
                name: $name,
                values: <$type as Values>::NAMES,
                default: $default,
                only_with: options!(@only $($of, [$($with),+])?),
                published: options!(@published $($published)?),
                summary: $summary,
                source: $source,
            },)+
        ];

        /// What embedders choose, option by option.
        impl Design {
            $(options! { @set $($who)? $field: $type, $name, $summary })+
        }

        impl Design {
            /// Looks whether this build has all that the design names.
            pub(crate) fn check_built_in(&self) -> Result<(), DesignError> {
                $(options!(@check self.$field, $name $(, $published)?);)+
                Ok(())
            }

            /// Sets the option `name`, one of [`OPTIONS`], to its value of this index.
            pub(super) fn set_value(&mut self, name: &str, index: usize) {
                match name {
                    $($name => self.$field = <$type as Values>::ALL[index],)+
                    _ => {}
                }
            }
        }

        impl core::fmt::Display for Design {
            /// Every option, in the syntax that [`Design::parse`] reads.
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                let mut separator = "";
                $(
                    write!(f, "{separator}{}=", $name)?;
                    f.write_str(Values::name(self.$field))?;
                    separator = ",";
                )+
                let _ = separator;
                Ok(())
            }
        }
    };
    (@set $field:ident: $type:ty, $name:literal, $summary:literal) => {};
    (@set embedders $field:ident: $type:ty, $name:literal, $summary:literal) => {
        #[doc = concat!("This design with another value of `", $name, "=`: ", $summary, ".")]
        #[must_use]
        pub const fn $field(mut self, value: $type) -> Design {
            self.$field = value;
            self
        }
    };
    (@check $value:expr, $name:literal) => {};
    (@check $value:expr, $name:literal, $published:expr) => {
        check_built_in($published, $name, Values::name($value))?
    };
    (@published) => { &[] };
    (@published $published:expr) => { $published };
    (@only) => { None };
    (@only $of:literal, $with:expr) => { Some(($of, &$with)) };
}

options! {
    "rmap" rmap: Rmap = "family", published PUBLISHED_RMAPS;
        "how a frame's page-table entries are found";
        "pte_chains (van Riel, McCracken 2002) against objrmap (McCracken 2003)";
    "direct" direct: bool = "on", only with "rmap" = ["chains", "partial"];
        "a frame mapped once points at its entry, without a chain node";
        "PageDirect (McCracken 2002); 90 % of anonymous mappings were singletons";
    "kinstamp" kin_stamp: bool = "on", only with "rmap" = ["family"];
        "family: lookups skip children forked before the page was made";
        "anonmm searched every relative (Dickins 2003)";
    "hint" hint: bool = "on", only with "rmap" = ["family"];
        "family: a page remembers one entry, all there is of most";
        "PageDirect (McCracken 2002) for designs without chains";
    "pvlock" pv_lock: PvLock = "byte", only with "rmap" = ["pv"];
        "pv: lists of entries under 256 locks, a lock for each 2 MiB, or for each page, which readers share or not";
        "one byte mutexes (Belousov 2020, D24217); a lock for each superpage (r353149, 2019)";
    "pvalloc" pv_alloc: PvAlloc = "chunks", only with "rmap" = ["pv"];
        "pv: entries from pages of their space, or from an arena";
        "to make UMA outperform pv chunks is hard (Belousov 2020)";
    "pvlru" pv_lru: PvLru = "domain", only with "rmap" = ["pv"];
        "pv: chunks to take back are found in a list for each node, in one, or space by space";
        "a list of chunks for each domain (r353149, 2019); a list of pmaps that rotates (Belousov 2020)";
    "di" di: Di = "epoch", only with "rmap" = ["pv"];
        "pv: whether visits wait for flushes of cleared entries, and how those are known";
        "delayed invalidation (Belousov), with a lock until 2019, without since (r347695)";
    "pmaplock" pmap_lock: PmapLock = "table", only with "rmap" = ["pv"];
        "pv: page tables are locked one by one, or all of an address space together";
        "PMAP_LOCK of FreeBSD, held while any entry of the space changes";
    "ptepage" table_source: TableSource = "noted", published &["quicklist", "warm", "depot"], set by embedders;
        "where page-table pages come from";
        "quicklists (Holt 2004) against allocating and zeroing each (Miller 2007)";
    "quicklevels" quick_levels: QuickLevels = "unified", only with "ptepage" = ["quicklist"];
        "quicklist: one list for all levels, one for each, or none for the lowest";
        "ia64 Linux 2.4 had one a level, 2.6.8 none for the lowest; one list for all (Holt 2005)";
    "quicknode" quick_node: QuickNode = "home", only with "ptepage" = ["quicklist"];
        "quicklist: tables of other nodes go to the allocator, or are kept";
        "tables trapped on another node after fork and migration (Holt 2004)";
    "quickmark" quick_mark: QuickMark = "node", only with "ptepage" = ["quicklist"];
        "quicklist: watermark from the node's free memory, or from all memory";
        "watermarks of all memory for lists of each CPU (Holt 2004)";
    /// A manager's own type parameter decides; this says which instance to build.
    "format" format: TableFormat = "x86-64";
        "page tables of which architecture; replays fold pages onto larger ones";
        "table pages of 16 KiB on ia64 (Miller 2007); the architectures' manuals";
    "userpte" user_tables: UserTables = "auto", only with "format" = ["x86-pae"], set by embedders;
        "whether page tables lie in high memory, on machines that have some";
        "userpte=nohigh (Campbell 2010): high tables cost a window each time";
    /// A power of two.
    "faultaround" fault_around: u32 = "16", set by embedders;
        "pages of a file that one read fault maps if they are cached";
        "fault-around (Shutemov 2014), 64 KiB in Linux";
    "faultlock" fault_lock: FaultLock = "none";
        "whether a fault keeps all others of its space out, with one spin lock";
        "page_table_lock against page table entries changed atomically (Lameter 2004)";
    "superpage" superpages: Superpages = "off", set by embedders;
        "whether private memory is mapped in superpages: whole at the first use, or when full";
        "transparent huge pages (Arcangeli 2011) against reservations (Navarro 2002)";
    "huge" huge: HugePages = "never", set by embedders;
        "whether shared memory and tmpfs are kept and mapped in superpages: not, where told, or everywhere";
        "huge= of tmpfs mounts (Shutemov 2016), Linux 4.8";
    "filehuge" file_huge: FileHuge = "never", set by embedders;
        "whether files of a backing store are read 2 MiB at a time, and mapped so until somebody stores";
        "read-only huge pages of files (Liu 2019), Linux 5.4";
    "folio" folio: Folio = "off", set by embedders;
        "the most private memory that a first store maps at once, page by page, from one run of frames";
        "large folios for anonymous memory (Roberts 2023), Linux 6.8; page clusters";
    "contiguous" contiguous: bool = "off", only with "folio" = ["64k", "128k", "256k", "512k", "1m", "advise"], set by embedders;
        "whether entries of folios say that they are contiguous, on AArch64 and RISC-V with pages of 4 KiB";
        "contpte (Roberts 2024), Linux 6.9; Svnapot";
    "regions" region_index: RegionIndex = "auto";
        "how an object's regions are found: by interval trees, one or several, or lists searched whole";
        "i_mmap lists until 2004, then priority search trees (Lakhan 2004); several are ours";
    "forkcopy" fork_copy: ForkCopy = "needed", set by embedders;
        "whether fork copies entries that a fault would find again";
        "lazy fork of file mappings (Piggin 2005); kernels of 2003 copied all";
    "reclaim" reclaim: bool = "off", set by embedders;
        "whether pages of files leave memory when it runs short, and calls that ran out start over";
        "kswapd and try_to_free_pages (Torvalds 1994); without, memory that is full is an error";
    "aging" page_aging: PageAging = "lru", only with "reclaim" = ["on"], set by embedders;
        "reclaim: how pages that have not been used for long are found";
        "split lists (van Riel 2008), refault distance (Weiner 2014); multi-gen LRU (Yu Zhao 2022)";
    "groups" groups: GroupMode = "off", only with "reclaim" = ["on"], set by embedders;
        "reclaim: whether spaces can be in groups, with limits of what they are charged for: pages, or page tables and records of regions, too";
        "memory control groups (Singh and Emelyanov 2008); of version 2 (Weiner 2016)";
    "commit" commit: CommitMode = "off", set by embedders;
        "whether memory is counted that was promised and may not be used yet, and what is refused";
        "vm.overcommit_memory (Cox 2002, Linux 2.5.30); heuristic and always existed in 2.4";
    "fileio" file_io: FileIo = "runs", published &["pages"];
        "whether files are read and written in runs of pages, or page by page under page locks";
        "the write path of tmpfs until 2014 (Gorman 2014)";
    "pagelock" page_locking: PageLocking = "waiters", only with "fileio" = ["pages"];
        "pages: unlocking looks for waiters in a flag of the page, or hashes into a table each time";
        "PG_waiters (Piggin; Gorman 2014), merged in 2016 in another form";
    "accessed" access_marks: AccessMarks = "init", only with "fileio" = ["pages"];
        "pages: a page that a write makes is marked as used before it is visible, or afterwards";
        "init_page_accessed (Gorman 2014)";
    "flags" flag_updates: FlagUpdates = "plain", only with "fileio" = ["pages"];
        "pages: flags that nobody else changes are stored and tested first, or always changed atomically";
        "__SetPageSwapBacked, __ClearPageActive, a test before ClearPageActive (Gorman 2014)";
    "framelists" frame_lists: FrameLists = "runs", published &["linked"];
        "whether free frames are kept in runs, or linked one by one by kind of page";
        "the page allocator of Linux until 2014 (Gorman 2014)";
    "zonecache" zone_cache: ZoneCache = "lazy", only with "framelists" = ["linked"];
        "linked: full zones are remembered by searches that ask, by all, or not";
        "do not update the zonelist cache unless it is active (Gorman 2014)";
    "blockflags" block_flags: BlockFlags = "word", only with "framelists" = ["linked"];
        "linked: the kind of a page block is read and set by word or bit by bit";
        "word-based pageblock flags (Gorman 2014): 1.27 to 0.5 % of dd to tmpfs";
    "buddycheck" buddy_check: BuddyCheck = "late", only with "framelists" = ["linked"];
        "linked: a buddy's zone is looked at after its state and order, or before";
        "only check the zone id if pages are buddies (Gorman 2014)";
    "marks" mark_checks: MarkChecks = "late", only with "framelists" = ["linked"];
        "linked: the right to the reserve is looked at after the watermark, or before";
        "ALLOC_NO_WATERMARK out of the fast path, classzone_idx once (Gorman 2014)";
}
