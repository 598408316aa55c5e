//! What a fault hook is told, and what it answers.

use super::Access;

/// Why a fault is handed to a hook.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum HookKind {
    /// The page is not there (`UFFD_PAGEFAULT_MODE_MISSING`).
    Missing,
    /// A store to a page that is watched (`UFFD_PAGEFAULT_MODE_WP`).
    Store,
    /// The page of shared memory is there, and the space does not map it yet
    /// (`UFFD_PAGEFAULT_MODE_MINOR`).
    Minor,
}

/// A fault that a hook catches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HookedFault {
    /// The name of the space, from [`SpaceId::to_bits`](crate::SpaceId::to_bits).
    pub space: u64,
    /// First byte of the page.
    pub address: u64,
    /// The access.
    pub access: Access,
    /// Why it is handed over.
    pub kind: HookKind,
}

/// What becomes of a call whose access a hook catches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HookAnswer {
    /// It fails with [`FaultError::Hooked`](crate::space::FaultError::Hooked), and whoever made it
    /// repeats it when the page is there. That is also what becomes of callers who are pinned.
    Fail,
    /// Its task sleeps ([`Sleep`](super::Sleep)) until the page has changed or somebody wakes those
    /// who wait for it, and then the fault begins again.
    Wait,
}
