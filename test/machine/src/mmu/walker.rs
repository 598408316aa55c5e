//! What a page-table format means to an MMU, apart from any one format.
//!
//! A walk goes from the root's level down to a leaf at level 1 or above. A
//! format says which entry of a table an address selects, what an entry means,
//! and how an access marks it. It is written from the architecture's manual
//! and shares no code with the memory manager, so that one checks the other.

use std::ops::BitAnd;

use vellum::addr::{Access, Pfn};

/// What a translation allows simulated programs to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rights {
    /// Loads.
    pub read: bool,
    /// Stores.
    pub write: bool,
    /// Instruction fetches.
    pub execute: bool,
    /// Anything at all from a program.
    pub user: bool,
}

impl Rights {
    /// Everything.
    pub const ALL: Rights = Rights {
        read: true,
        write: true,
        execute: true,
        user: true,
    };

    /// Why `access` by a program is not allowed, if it is not.
    pub fn refuse(self, access: Access) -> Option<FaultReason> {
        let allowed = match access {
            _ if !self.user => return Some(FaultReason::Supervisor),
            Access::Read => self.read,
            Access::Write => self.write,
            Access::Execute => self.execute,
        };
        (!allowed).then_some(match access {
            Access::Read => FaultReason::NoRead,
            Access::Write => FaultReason::ReadOnly,
            Access::Execute => FaultReason::NoExecute,
        })
    }
}

impl BitAnd for Rights {
    type Output = Rights;
    fn bitand(self, other: Rights) -> Rights {
        Rights {
            read: self.read & other.read,
            write: self.write & other.write,
            execute: self.execute & other.execute,
            user: self.user & other.user,
        }
    }
}

/// Why an access was not carried out.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FaultReason {
    /// The entry at this level is not present.
    NotPresent {
        /// Level of the entry; 1 maps single pages.
        level: u8,
    },
    /// A load from a page that may not be read.
    NoRead,
    /// A store to a page that may not be written.
    ReadOnly,
    /// An instruction fetch from a page that is not executable.
    NoExecute,
    /// The page is not for programs.
    Supervisor,
    /// An entry has bits set that must be zero.
    Reserved {
        /// Level of the entry.
        level: u8,
        /// The offending bits.
        bits: u64,
    },
    /// The format needs software to set the accessed or dirty bit.
    Unmarked {
        /// Level of the entry.
        level: u8,
    },
    /// The root lies where no processor of the format can load it.
    BadRoot {
        /// Its frame.
        frame: Pfn,
    },
    /// The address is not one the format can translate.
    NonCanonical,
    /// The address is not a multiple of 8.
    Misaligned,
    /// The address has two cached translations of different sizes. No handler can resolve that.
    Conflict,
    /// A table or page lies in a frame that does not exist.
    NoMemory {
        /// The frame.
        frame: Pfn,
    },
}

/// What a table entry says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Entry {
    /// Nothing: the walk ends in a fault.
    Absent,
    /// Bits are set that must be zero: the walk ends in a fault.
    Reserved(u64),
    /// The next table.
    Table {
        /// Frame of the table.
        table: Pfn,
        /// Limits for everything below.
        rights: Rights,
    },
    /// A page.
    Leaf {
        /// First frame of the page.
        frame: Pfn,
        /// What the entry allows.
        rights: Rights,
        /// Whether the page is marked as written.
        dirty: bool,
    },
}

/// A page-table format as the hardware sees it.
pub trait Walker: Send + Sync {
    /// Name of the format.
    fn name(&self) -> &'static str;

    /// Log2 of the frame size, which is also the size of a page and of a table.
    fn frame_shift(&self) -> u32;

    /// Level of the root table; level 1 maps single pages.
    fn root_level(&self) -> u8;

    /// How many entries of a root are read when a processor loads it. Walks use what
    /// was read then. None: walks read the root in memory.
    fn root_registers(&self) -> usize {
        0
    }

    /// The first frame in which a root cannot be loaded any more, if there is one.
    fn roots_end(&self) -> Option<Pfn> {
        None
    }

    /// Whether a fault makes the processor forget where the tables of the address are, and
    /// not only what the leaf said.
    fn forgets_tables_at_faults(&self) -> bool {
        false
    }

    /// Whether an address of this size can be translated: for programs, or, where the
    /// format does not divide addresses, for the kernel.
    fn is_canonical(&self, address: u64) -> bool;

    /// Log2 of the bytes that one entry of a table at `level` covers.
    fn coverage_shift(&self, level: u8) -> u32 {
        self.frame_shift() + u32::from(level - 1) * (self.frame_shift() - 3)
    }

    /// The entry that `address` selects in a table at `level`.
    fn index(&self, address: u64, level: u8) -> usize {
        let index_bits = self.frame_shift() - 3;
        (address >> self.coverage_shift(level)) as usize & ((1 << index_bits) - 1)
    }

    /// What an entry of a table at `level` means.
    fn decode(&self, entry: u64, level: u8) -> Entry;

    /// Log2 of the pages of the run that a leaf says it is one of: naturally aligned, by frames
    /// that lie the same way, with the same rights. The processor then caches a translation of
    /// the whole run.
    fn run_order(&self, _entry: u64, _level: u8) -> Option<u32> {
        None
    }

    /// Whether an address with two cached translations of different sizes is an error, and not
    /// translated by either.
    fn has_conflicts(&self) -> bool {
        false
    }

    /// The entry marked as accessed, and as written if `write`. `write` comes
    /// with leaves only.
    ///
    /// # Errors
    /// [`FaultReason::Unmarked`] if the hardware leaves marking to software.
    fn mark(&self, entry: u64, level: u8, write: bool) -> Result<u64, FaultReason>;
}
