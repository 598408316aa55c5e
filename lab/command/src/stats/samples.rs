//! The measured times of one arm, and the sum of their slice medians.

/// Times of the same slices in several passes, in nanoseconds, ordered within
/// each slice so that medians of resampled passes cost one short walk.
#[derive(Clone, Debug)]
pub struct Samples {
    slices: usize,
    passes: usize,
    /// `slices` rows of `passes` entries (nanoseconds, pass), ascending.
    ranked: Vec<(u64, u32)>,
}

impl Samples {
    /// Collects passes, each a time per slice.
    ///
    /// # Panics
    /// The passes do not all have the same number of slices.
    pub fn from_passes(passes: &[&[u64]]) -> Self {
        let slices = passes.first().map_or(0, |pass| pass.len());
        assert!(
            passes.iter().all(|pass| pass.len() == slices),
            "every pass must time the same slices"
        );
        let mut ranked = Vec::with_capacity(slices * passes.len());
        for slice in 0..slices {
            let begin = ranked.len();
            ranked.extend(
                (0u32..)
                    .zip(passes)
                    .map(|(pass, times)| (times[slice], pass)),
            );
            ranked[begin..].sort_unstable();
        }
        Self {
            slices,
            passes: passes.len(),
            ranked,
        }
    }

    /// Number of passes.
    pub fn passes(&self) -> usize {
        self.passes
    }

    /// Number of slices.
    pub fn slices(&self) -> usize {
        self.slices
    }

    /// The arm's time in nanoseconds: the sum over the slices of the median over
    /// the passes.
    pub fn total(&self) -> f64 {
        self.total_weighted(&vec![1; self.passes])
    }

    /// [`Samples::total`] of the sample in which pass `p` occurs `weights[p]`
    /// times.
    ///
    /// # Panics
    /// There is not one weight per pass, or all are zero.
    pub fn total_weighted(&self, weights: &[u32]) -> f64 {
        assert_eq!(weights.len(), self.passes, "one weight per pass");
        let count: u32 = weights.iter().sum();
        assert!(count > 0, "an empty sample has no median");
        // 0-based ranks of the middle one or two.
        let (lower, upper) = ((count - 1) / 2, count / 2);
        let mut sum = 0u64;
        for row in self.ranked.chunks_exact(self.passes) {
            let mut seen = 0;
            let mut low = None;
            for &(time, pass) in row {
                seen += weights[pass as usize];
                if seen > lower && low.is_none() {
                    low = Some(time);
                }
                if seen > upper {
                    sum += low.unwrap_or(time) + time;
                    break;
                }
            }
        }
        sum as f64 / 2.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn total_is_the_sum_of_slice_medians() {
        // Medians 2, 10 and 300, each from another pass.
        let passes: [&[u64]; 3] = [&[1, 10, 300], &[2, 90, 100], &[3, 5, 900]];
        let samples = Samples::from_passes(&passes);
        assert_eq!((samples.slices(), samples.passes()), (3, 3));
        assert_eq!(samples.total(), 312.0);
    }

    #[test]
    fn an_even_number_of_passes_takes_the_middle_of_two() {
        let passes: [&[u64]; 2] = [&[1, 10], &[2, 30]];
        assert_eq!(Samples::from_passes(&passes).total(), 1.5 + 20.0);
    }

    #[test]
    fn weights_stand_for_repeated_passes() {
        let passes: [&[u64]; 3] = [&[7, 1], &[3, 2], &[5, 9]];
        let samples = Samples::from_passes(&passes);
        let drawn: [&[u64]; 3] = [passes[2], passes[2], passes[1]];
        assert_eq!(
            samples.total_weighted(&[0, 1, 2]),
            Samples::from_passes(&drawn).total()
        );
    }

    #[test]
    fn a_workload_without_slices_takes_no_time() {
        assert_eq!(Samples::from_passes(&[&[], &[]]).total(), 0.0);
    }
}
