//! Names of groups of spaces.

/// Names a group of spaces that has a limit ([`Vm::create_group`](crate::Vm::create_group)). Stale
/// names are noticed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct GroupId(u32);

impl GroupId {
    /// The group that every space begins in. It has no limit, and nothing is counted for it.
    pub const ROOT: GroupId = GroupId(0);
    /// Groups that there are at most, the root among them.
    pub(crate) const MOST: usize = 64;

    /// The name as a number, 0 for the root.
    pub const fn to_bits(self) -> u32 {
        self.0
    }

    /// From [`GroupId::to_bits`]. A number that names no group is noticed where it is used.
    pub const fn from_bits(bits: u32) -> GroupId {
        GroupId(bits)
    }

    /// The group's place among all.
    #[inline]
    pub(crate) const fn place(self) -> usize {
        self.0 as usize % GroupId::MOST
    }

    /// Which group in its place it is, as far as 20 bits tell. Never 0.
    pub(crate) const fn generation(self) -> u32 {
        self.0 / GroupId::MOST as u32 % ((1 << 20) - 1) + 1
    }

    /// The name of the next group in the same place, or of the first.
    pub(crate) const fn next(self, place: usize) -> GroupId {
        let most = GroupId::MOST as u32;
        // The highest bit stays free (`frame::Payer`).
        let generation = self.0 / most % (i32::MAX as u32 / most) + 1;
        GroupId(generation * most + place as u32)
    }
}
