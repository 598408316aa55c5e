//! Every place that allocates, by number, so that each can be made to fail.

macro_rules! sites {
    ($($(#[$about:meta])* $site:ident,)+) => {
        /// A place in the core that asks for memory.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[repr(u16)]
        #[non_exhaustive]
        pub enum Site {
            $($(#[$about])* $site,)+
        }

        impl Site {
            /// Every site, in order of its number.
            pub const ALL: &'static [Site] = &[$(Site::$site),+];
        }
    };
}

sites! {
    /// A private page on first write.
    AnonymousPage,
    /// The copy that a write to a shared page makes.
    CopyOnWrite,
    /// The copy that fork makes of a pinned page.
    ForkCopy,
    /// A page of the page cache.
    CachePage,
    /// A page table.
    TablePage,
    /// The top-level table of a space.
    RootTable,
    /// A frame for an arena's nodes.
    SlabFrame,
    /// A frame for an arena's directory.
    SlabDirectory,
    /// An address space.
    Space,
    /// A region.
    Region,
    /// An object.
    Object,
    /// Further sets for an object's regions. Without them, it has one.
    RegionSets,
    /// A mount, whose objects share a limit of pages.
    Mount,
    /// A node of an object's page tree.
    RadixNode,
    /// A node of a PTE chain.
    ChainNode,
    /// A member of a bundle of forked spaces.
    Anonmm,
    /// A node of a page's further addresses.
    AddressChain,
    /// An anon_vma.
    AnonVma,
    /// A link between a region and an anon_vma.
    AnonVmaChain,
    /// A node in the tree of related spaces (`rmap=family`).
    KinNode,
    /// A node of the tree of a space's regions.
    RegionNode,
    /// A tract of a space that many CPUs change at once. Without it, they wait for each other.
    Tract,
    /// A superpage on first use. Without it, single pages do.
    Superpage,
    /// What pv entries keep of an address space.
    PvSpace,
    /// A page of pv entries.
    PvChunk,
    /// A pv entry of an arena (`pvalloc=slab`).
    PvEntry,
    /// A run of frames set aside (`superpage=reserve`, `huge=`). Without it, any frames do.
    Reservation,
    /// A page that comes back from swap.
    SwapIn,
    /// A run of frames for the pages around one that is stored to (`folio=`). Without it, a
    /// smaller one or one page does.
    Folio,
    /// A page that is supplied for a fault hook.
    Supplied,
    /// Where a page moves to ([`Space::move_pages`](crate::space::Space::move_pages)). Without it, the
    /// page stays.
    MovedPage,
}
