//! The stacks of simulated CPUs.
//!
//! The host maps stacks at multiples of their size, and all CPUs that wait are at the same depth:
//! what they use there would compete for a few sets of the host's caches. So each stack begins
//! some lines farther down than that of the CPU before.

use std::io;
use std::ops::Range;

use corosensei::stack::{DefaultStack, Stack, StackPointer};

use crate::places::LINE;

/// Bytes of a stack.
const BYTES: usize = 256 << 10;
/// From one CPU's beginning to the next one's: an odd number of lines, so that all sets of a cache
/// get their share.
const STEP: usize = 17 * LINE;
/// Where it goes round: this much a way of the largest second-level caches holds.
const ROUND: usize = 128 << 10;

/// A stack with a guard page below it.
pub(crate) struct CpuStack {
    whole: DefaultStack,
    /// Bytes above its beginning that are not used.
    above: usize,
}

impl CpuStack {
    /// That of a CPU.
    pub(crate) fn new(cpu: usize) -> io::Result<CpuStack> {
        Ok(CpuStack {
            whole: DefaultStack::new(BYTES + ROUND)?,
            above: cpu * STEP % ROUND,
        })
    }

    /// Its host addresses.
    pub(crate) fn range(&self) -> Range<usize> {
        self.limit().get()..self.base().get()
    }
}

// SAFETY: a part of a stack, at least `BYTES` of it, that ends where that does and begins some
// whole lines farther down, which is aligned as a stack has to be. The host provides it, and its
// guard page, for as long as the whole is there.
unsafe impl Stack for CpuStack {
    fn base(&self) -> StackPointer {
        let base = self.whole.base();
        StackPointer::new(base.get() - self.above).unwrap_or(base)
    }

    fn limit(&self) -> StackPointer {
        self.whole.limit()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stacks_begin_at_lines_of_their_own_and_are_as_long_as_promised() {
        let stacks = (0..200).map(|cpu| CpuStack::new(cpu).expect("memory for a stack"));
        let stacks: Vec<CpuStack> = stacks.collect();
        let mut begins: Vec<usize> = stacks
            .iter()
            .map(|stack| {
                let range = stack.range();
                assert!(range.len() >= BYTES && range.end.is_multiple_of(LINE));
                let whole = stack.whole.base().get();
                assert!(range.start == stack.whole.limit().get() && range.end <= whole);
                whole - range.end
            })
            .collect();
        begins.sort_unstable();
        begins.dedup();
        assert_eq!(begins.len(), stacks.len());
    }
}
