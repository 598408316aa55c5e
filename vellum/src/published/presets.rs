//! Published kernels, each as one word: `as=linux-2.5.65-mm2`.

/// A published kernel: every option that matters to it, as it had it.
///
/// Options that follow `as=` change it: `as=linux-2.5.65-mm2,rmap=chains`. What no
/// option stands for (semaphores, pages of 4 KiB on two or three levels) is that
/// of this manager.
#[derive(Clone, Copy, Debug)]
pub struct Preset {
    /// What `as=` calls it.
    pub name: &'static str,
    /// Its options, in option syntax. Others are at their default and change
    /// nothing.
    pub settings: &'static str,
    /// The published text or merge that says so.
    pub source: &'static str,
    /// One line: what the kernel stands for.
    pub meaning: &'static str,
}

/// What does not matter to texts about forks, faults and page tables, which read and
/// write no files by calls, measured no allocator of pages, and had memory enough: as in the
/// default.
macro_rules! no_files {
    () => {
        ",fileio=runs,framelists=runs,reclaim=off,commit=off"
    };
}

// All have `reclaim=off` and `commit=off`: they had both, but what is published of them was measured
// with memory enough.

// All have `faultlock=none`: the page_table_lock of those before 2.6.15 was held for a part of
// a fault only, and the texts that they stand for are not about it.

/// What i386 and x86-64 kernels until 2.6.13 had in common, but for reverse
/// mapping: tables allocated and zeroed, a fault for each page, every entry
/// copied by fork, regions of an object in lists until 2.6.7.
macro_rules! until_2004 {
    ($rmap:literal, $regions:literal) => {
        concat!(
            "rmap=",
            $rmap,
            ",ptepage=fresh,format=x86-64,faultaround=1,faultlock=none,superpage=off,huge=never,",
            "filehuge=never,folio=off,regions=",
            $regions,
            ",forkcopy=all",
            no_files!()
        )
    };
}

/// ia64 with pages of 16 KiB, for which another format of this size stands.
macro_rules! ia64 {
    ($quick:literal, $forkcopy:literal) => {
        concat!(
            "rmap=anon_vma,ptepage=quicklist,",
            $quick,
            ",format=aarch64-16k,faultaround=1,faultlock=none,superpage=off,huge=never,",
            "filehuge=never,folio=off,regions=tree,forkcopy=",
            $forkcopy,
            no_files!()
        )
    };
}

/// x86-64 from 2.6.14 on, which forks without copying what a fault finds again.
macro_rules! in_2007 {
    ($tables:literal) => {
        concat!(
            "rmap=anon_vma,",
            $tables,
            ",format=x86-64,faultaround=1,faultlock=none,superpage=off,huge=never,",
            "filehuge=never,folio=off,regions=tree,forkcopy=needed",
            no_files!()
        )
    };
}

/// x86-64 in May 2014, with what the patches to tmpfs, the page cache and the page
/// allocator changed.
macro_rules! in_2014 {
    ($changed:literal) => {
        concat!(
            "rmap=anon_vma_chain,ptepage=fresh,format=x86-64,faultaround=16,",
            "faultlock=none,superpage=off,huge=never,filehuge=never,folio=off,regions=tree,",
            "forkcopy=needed,reclaim=off,commit=off,fileio=pages,framelists=linked,",
            $changed
        )
    };
}

/// FreeBSD 13 on amd64: page tables known to be zero are not zeroed again, a fault maps
/// up to eight pages around, private memory comes from reservations, fork copies every entry,
/// and the tables of an address space have one lock.
macro_rules! freebsd_13 {
    ($locks:literal) => {
        concat!(
            "rmap=pv,",
            $locks,
            ",pvalloc=chunks,di=lockless,pmaplock=space,ptepage=noted,format=x86-64,faultaround=8,",
            "faultlock=none,superpage=reserve,huge=never,filehuge=never,folio=off,",
            "regions=auto,forkcopy=all",
            no_files!()
        )
    };
}

/// Every published kernel, by age.
pub const PRESETS: &[Preset] = &[
    Preset {
        name: "linux-2.5.62",
        settings: until_2004!("chains,direct=on", "list"),
        source: "pte_chains with PageDirect (van Riel, McCracken 2002), in Linux 2.5.33 to 2.6.6",
        meaning: "chains for every page, before object-based reverse mapping",
    },
    Preset {
        name: "linux-2.5.65-mm2",
        settings: until_2004!("partial,direct=on", "list"),
        source: "objrmap-2.5.62-5 (McCracken 2003); Bligh, 22 March 2003",
        meaning: "object-based for pages of files, chains for others; the base of March 2003",
    },
    Preset {
        name: "linux-2.5.65-mm3",
        settings: until_2004!("anonmm2003", "list"),
        source: "anobjrmap (Dickins 2003); Bligh, 22 March 2003",
        meaning: "object-based for all pages: what March 2003 compared with -mm2",
    },
    Preset {
        name: "linux-2.5.66-mm4",
        settings: until_2004!("chains,direct=on", "list"),
        source: "rmap-test (Morton, April 2003)",
        meaning: "chains for every page: the base of rmap-test",
    },
    Preset {
        name: "linux-2.5.66-mm4-objrmap",
        settings: until_2004!("partial,direct=on", "list"),
        source: "rmap-test (Morton, April 2003)",
        meaning: "object-based with lists of regions: the worst case of rmap-test",
    },
    Preset {
        name: "linux-2.6.5-rc1",
        settings: until_2004!("chains,direct=on", "list"),
        source: "Bligh, March 2004",
        meaning: "chains for every page: `virgin` in March 2004",
    },
    Preset {
        name: "linux-2.6.5-rc1-partial",
        settings: until_2004!("partial,direct=on", "list"),
        source: "objrmap (McCracken); Bligh, March 2004",
        meaning: "object-based for pages of files: `partial` in March 2004",
    },
    Preset {
        name: "linux-2.6.5-rc1-anonmm",
        settings: until_2004!("anonmm", "list"),
        source: "anonmm (Dickins 2004); Bligh, March 2004",
        meaning: "object-based, private pages by space and address: `hugh` in March 2004",
    },
    Preset {
        name: "linux-2.6.5-rc1-anon_vma",
        settings: until_2004!("anon_vma", "list"),
        source: "anon_vma (Arcangeli 2004); Bligh, March 2004",
        meaning: "object-based, private pages by related regions: `anon_vma` in March 2004",
    },
    Preset {
        name: "linux-2.6.5-rc2-prio_tree",
        settings: until_2004!("partial,direct=on", "tree"),
        source: "priority search trees against rmap-test (Lakhan, March 2004)",
        meaning: "object-based for pages of files, regions in trees instead of lists",
    },
    Preset {
        name: "linux-2.6.7",
        settings: until_2004!("anon_vma", "tree"),
        source: "anon_vma and priority search trees as merged (Arcangeli, Lakhan, Dickins, May 2004)",
        meaning: "object-based reverse mapping without chains, as merged",
    },
    Preset {
        name: "linux-2.6.8-ia64",
        settings: ia64!("quicklevels=upper,quicknode=blind,quickmark=total", "all"),
        source: "Holt, 5 August 2004; include/asm-ia64/pgalloc.h of 2.6.8",
        meaning: "quicklists of upper levels and none for the lowest: what Holt complained about",
    },
    Preset {
        name: "linux-2.4-ia64",
        settings: ia64!(
            "quicklevels=separate,quicknode=blind,quickmark=total",
            "all"
        ),
        source: "Holt, 5 August 2004",
        meaning: "a quicklist for each level, as Holt missed them; it had no reverse mapping at all",
    },
    Preset {
        name: "linux-2.6.12-ia64",
        settings: ia64!("quicklevels=unified,quicknode=home,quickmark=node", "all"),
        source: "Holt 2005, merged as fde740e4dd4a",
        meaning: "one quicklist for all levels, foreign tables sent home, watermark of the node",
    },
    Preset {
        name: "linux-2.6.20-ia64",
        settings: ia64!(
            "quicklevels=unified,quicknode=home,quickmark=node",
            "needed"
        ),
        source: "2.6.20 (2007); lazy fork of file mappings (Piggin 2005)",
        meaning: "the same with a fork that leaves out what a fault finds again",
    },
    Preset {
        name: "linux-2.6.20",
        settings: in_2007!("ptepage=fresh"),
        source: "Lameter 2007, without quicklists",
        meaning: "x86-64, every table allocated and zeroed: the base of 2007",
    },
    Preset {
        name: "linux-2.6.22",
        settings: in_2007!("ptepage=quicklist,quicklevels=unified,quicknode=blind,quickmark=node"),
        source: "Lameter 2007, merged as 6225e93735ac",
        meaning: "x86-64 with generic quicklists, which keep tables of any node",
    },
    Preset {
        name: "linux-2.6.38",
        settings: concat!(
            "rmap=anon_vma_chain,ptepage=fresh,format=x86-64,faultaround=1,faultlock=none,\
             superpage=eager,huge=never,filehuge=never,folio=off,regions=tree,forkcopy=needed",
            no_files!()
        ),
        source: "transparent huge pages (Arcangeli 2011), `always`",
        meaning: "x86-64 with superpages for private memory at the first use",
    },
    Preset {
        name: "linux-3.15-rc3",
        settings: in_2014!(
            "pagelock=hashed,accessed=atomic,flags=atomic,zonecache=eager,blockflags=bits,\
             buddycheck=early,marks=early"
        ),
        source: "Gorman, 1 May 2014: `vanilla`",
        meaning: "files page by page, frames one by one: the base of the tmpfs patches of 2014",
    },
    Preset {
        name: "linux-3.15-rc3-lockpage",
        settings: in_2014!(
            "pagelock=waiters,accessed=init,flags=plain,zonecache=lazy,blockflags=word,\
             buddycheck=late,marks=late"
        ),
        source: "Gorman, 1 May 2014: `lockpage-v2r33`",
        meaning: "the same with all of these patches, PG_waiters among them",
    },
    Preset {
        name: "freebsd-13-hashed",
        settings: freebsd_13!("pvlock=hashed,pvlru=global"),
        source: "Belousov, 29 March 2020 (D24217): stock, a kernel without NUMA",
        meaning: "pv entries with 256 locks for the lists of all pages and one list of chunks",
    },
    Preset {
        name: "freebsd-13-superpage",
        settings: freebsd_13!("pvlock=superpage,pvlru=domain"),
        source: "r353149 (October 2019): stock, a kernel with NUMA",
        meaning: "pv entries with a lock for each 2 MiB and a list of chunks for each node",
    },
    Preset {
        name: "freebsd-13-obm",
        settings: freebsd_13!("pvlock=byte,pvlru=pmap"),
        source: "Belousov, 29 March 2020 (D24217): one byte mutexes, and no list of chunks",
        meaning: "pv entries with a lock of one byte for each page, spaces in turn",
    },
];
