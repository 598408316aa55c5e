//! What the core is compiled for: the tables of reverse-mapping designs and of page-table
//! formats, and macros that choose a type from each.

/// Values of `rmap=` that the feature `published` brings.
pub(super) const PUBLISHED_RMAPS: &[&str] = &[
    "chains",
    "partial",
    "anonmm2003",
    "anonmm",
    "anon_vma",
    "anon_vma_chain",
    "pv",
];

/// Calls a macro with the table of reverse-mapping designs that are built in: after the
/// arguments a row `name: Type "value";` for each, where `Type` is one of [`crate::rmap`]
/// and `name` is that of its module.
///
/// `every_rmap! { [the_macro] arguments }` becomes `the_macro! { arguments rows }`.
#[cfg(feature = "published")]
#[macro_export]
macro_rules! every_rmap {
    ([$($then:tt)+] $($arguments:tt)*) => {
        $($then)+! { $($arguments)*
            /// PTE chains for every frame.
            chains: Chains "chains";
            /// Regions of the object for file pages, chains for anonymous ones.
            partial: Partial "partial";
            /// Regions of the object; one address in every space of a family,
            /// with a lock in each page.
            anonmm2003: Anonmm2003 "anonmm2003";
            /// The same without the locks.
            anonmm: Anonmm "anonmm";
            /// Regions of the object; the regions related by fork or cut.
            anon_vma: AnonVma "anon_vma";
            /// The same with a list of their own for the pages of each forked
            /// region.
            anon_vma_chain: AnonVmaChain "anon_vma_chain";
            /// Regions of the object for file pages, the tree of relatives for
            /// private ones.
            family: Family "family";
            /// An entry of a list for each mapping of each frame, in pages of such
            /// entries that belong to an address space.
            pv: Pv "pv";
        }
    };
}

/// Calls a macro with the table of reverse-mapping designs that are built in: after the
/// arguments a row `name: Type "value";` for each, where `Type` is one of [`crate::rmap`]
/// and `name` is that of its module. The feature `published` brings more rows.
///
/// `every_rmap! { [the_macro] arguments }` becomes `the_macro! { arguments rows }`.
#[cfg(not(feature = "published"))]
#[macro_export]
macro_rules! every_rmap {
    ([$($then:tt)+] $($arguments:tt)*) => {
        $($then)+! { $($arguments)*
            /// Regions of the object for file pages, the tree of relatives for
            /// private ones.
            family: Family "family";
        }
    };
}

/// Calls a macro with the table of page-table formats, as [`every_rmap!`] does:
/// a row `name: Type "value";` for each, where `Type` is one of [`crate::table`].
#[macro_export]
macro_rules! every_format {
    ([$($then:tt)+] $($arguments:tt)*) => {
        $($then)+! { $($arguments)*
            /// x86-64 with four levels.
            x86_64: X86_64 "x86-64";
            /// x86-64 with five levels.
            x86_64_la57: X86_64La57 "x86-64-la57";
            /// 32-bit x86 with PAE.
            x86_pae: X86Pae "x86-pae";
            /// AArch64 with pages of 4 KiB.
            aarch64_4k: Aarch64_4K "aarch64-4k";
            /// AArch64 with pages of 16 KiB.
            aarch64_16k: Aarch64_16K "aarch64-16k";
            /// AArch64 with pages of 64 KiB.
            aarch64_64k: Aarch64_64K "aarch64-64k";
            /// RISC-V with three levels.
            sv39: Sv39 "sv39";
            /// RISC-V with four levels.
            sv48: Sv48 "sv48";
        }
    };
}

/// Evaluates an expression with `$R` as the type of the design that a value of
/// [`Rmap`](crate::design::Rmap) stands for.
#[macro_export]
macro_rules! with_rmap {
    ($rmap:expr, $R:ident => $body:expr) => {
        $crate::every_rmap! { [$crate::with_rmap] @match $rmap, $R, $body; }
    };
    (@match $rmap:expr, $R:ident, $body:expr;
     $($(#[$about:meta])* $name:ident: $design:ident $value:literal;)*) => {
        match $rmap {
            $($crate::design::Rmap::$design => {
                type $R = $crate::rmap::$design;
                $body
            })*
        }
    };
}

/// Evaluates an expression with `$F` as the type of the format that a value of
/// [`TableFormat`](crate::design::TableFormat) stands for.
#[macro_export]
macro_rules! with_format {
    ($format:expr, $F:ident => $body:expr) => {
        $crate::every_format! { [$crate::with_format] @match $format, $F, $body; }
    };
    (@match $format:expr, $F:ident, $body:expr;
     $($(#[$about:meta])* $name:ident: $layout:ident $value:literal;)*) => {
        match $format {
            $($crate::design::TableFormat::$layout => {
                type $F = $crate::table::$layout;
                $body
            })*
        }
    };
}
