//! A host has one kernel: what it is compared with is itself.
//!
//! Every workload of the host runs as two arms, A and the control A', which are
//! the same thing. Within a pass their order alternates (A A', A' A, ...), so
//! that a drift of the machine hits both alike. What the two differ by is what a
//! figure of another kernel, or of another day, must differ by to mean something.

use crate::host::HostError;
use crate::stats::Random;

/// Number of arms: A and A'.
pub const ARMS: usize = 2;

/// Results of two arms.
#[derive(Clone, Debug)]
pub struct Interleaved<T> {
    /// By arm, then by pass; complete passes only.
    pub arms: [Vec<T>; ARMS],
    /// Whether the user stopped before the last pass.
    pub interrupted: bool,
}

impl<T> Interleaved<T> {
    /// Calls `work` once for each arm in each pass. Which arm comes first in the
    /// first pass follows from `seed`; after that they alternate.
    ///
    /// # Errors
    /// What `work` failed with; an interruption only before the first complete
    /// pass.
    pub fn collect(
        passes: usize,
        seed: u64,
        mut work: impl FnMut(usize) -> Result<T, HostError>,
    ) -> Result<Self, HostError> {
        let mut result = Self {
            arms: [Vec::new(), Vec::new()],
            interrupted: false,
        };
        let first = Random::seeded(seed).below(ARMS);
        for pass in 0..passes {
            match Self::pass((first + pass) % ARMS, &mut work) {
                Ok(pass) => {
                    for (arm, value) in result.arms.iter_mut().zip(pass) {
                        arm.push(value);
                    }
                }
                Err(HostError::Interrupted) if pass > 0 => {
                    result.interrupted = true;
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(result)
    }

    /// One value for each arm, that of `first` made first.
    fn pass(
        first: usize,
        work: &mut impl FnMut(usize) -> Result<T, HostError>,
    ) -> Result<[T; ARMS], HostError> {
        let one = work(first)?;
        let other = work(1 - first)?;
        Ok(match first {
            0 => [one, other],
            _ => [other, one],
        })
    }

    /// Complete passes.
    pub fn passes(&self) -> usize {
        self.arms[0].len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_alternates_and_values_go_to_their_arm() {
        let mut order = Vec::new();
        let result = Interleaved::collect(3, 1, |arm| {
            order.push(arm);
            Ok(10 * arm)
        });
        let result = result.expect("nothing fails");
        assert_eq!(result.arms, [vec![0; 3], vec![10; 3]]);
        let first = order[0];
        let expected = [first, 1 - first, 1 - first, first, first, 1 - first];
        assert_eq!(order, expected);
    }

    #[test]
    fn an_interruption_keeps_complete_passes() {
        let collect = |calls: usize| {
            let mut left = calls;
            Interleaved::collect(4, 1, |arm| {
                left = left.checked_sub(1).ok_or(HostError::Interrupted)?;
                Ok(arm)
            })
        };
        assert!(matches!(collect(1), Err(HostError::Interrupted)));
        let kept = collect(5).expect("two passes are complete");
        assert_eq!((kept.passes(), kept.interrupted), (2, true));
        assert!(!collect(8).expect("all are").interrupted);
    }
}
