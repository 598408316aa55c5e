//! Numbers that cost next to nothing to make, the same for every arm.

/// Where a sequence begins.
pub const SEED: u64 = 0x9e37_79b9_7f4a_7c15;

/// The next number below `bound`.
#[inline]
pub fn below(state: &mut u64, bound: usize) -> usize {
    *state = state
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1);
    (((*state >> 32) * bound as u64) >> 32) as usize
}
