//! Statistics of samples.
//!
//! All are `None` where they are not defined: without samples, and as their
//! documentation says. Sums are formed in the order of the samples.

/// Arithmetic mean.
pub fn mean(samples: &[f64]) -> Option<f64> {
    let sum: f64 = samples.iter().sum();
    (!samples.is_empty()).then(|| sum / samples.len() as f64)
}

/// Harmonic mean, `n / Σ 1/x`: the right mean of rates over equal amounts of
/// work. Not defined where a sample is 0 or negative.
pub fn harmonic_mean(samples: &[f64]) -> Option<f64> {
    let defined = !samples.is_empty() && samples.iter().all(|x| *x > 0.0);
    let sum: f64 = samples.iter().map(|x| 1.0 / x).sum();
    defined.then(|| samples.len() as f64 / sum)
}

/// The median; the mean of the middle two if their number is even.
pub fn median(samples: &[f64]) -> Option<f64> {
    let sorted = ascending(samples);
    let upper = *sorted.get(sorted.len() / 2)?;
    let lower = sorted[(sorted.len() - 1) / 2];
    Some((lower + upper) / 2.0)
}

/// The smallest sample.
pub fn least(samples: &[f64]) -> Option<f64> {
    samples.iter().copied().reduce(f64::min)
}

/// The largest sample.
pub fn most(samples: &[f64]) -> Option<f64> {
    samples.iter().copied().reduce(f64::max)
}

/// The samples in ascending order.
pub fn ascending(samples: &[f64]) -> Vec<f64> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

/// Σ (x − mean)². The mean of equal samples can be a little off them, but they do
/// not deviate.
fn squares(samples: &[f64], mean: f64) -> f64 {
    if samples.windows(2).all(|pair| pair[0] == pair[1]) {
        return 0.0;
    }
    samples.iter().map(|x| (x - mean) * (x - mean)).sum()
}

/// Standard deviation of the samples themselves: they are divided by `n`.
pub fn population_deviation(samples: &[f64]) -> Option<f64> {
    let squares = squares(samples, mean(samples)?);
    Some((squares / samples.len() as f64).sqrt())
}

/// Variance of what the samples were drawn from: the squares are divided by
/// `n − 1`. Not defined for one sample.
pub fn variance(samples: &[f64]) -> Option<f64> {
    let squares = squares(samples, mean(samples)?);
    (samples.len() > 1).then(|| squares / (samples.len() - 1) as f64)
}

/// Standard deviation of what the samples were drawn from, the root of the
/// [`variance`].
pub fn deviation(samples: &[f64]) -> Option<f64> {
    variance(samples).map(f64::sqrt)
}

/// Standard deviation around the harmonic mean `H`, as mmtests has it:
/// `H² √(Σ (1/x − 1/H)² / n)`. Not defined for one sample, nor where the mean is
/// not.
pub fn harmonic_deviation(samples: &[f64]) -> Option<f64> {
    let mean = harmonic_mean(samples)?;
    let difference = |x: &f64| (1.0 / x - 1.0 / mean).powi(2);
    let squares: f64 = samples.iter().map(difference).sum();
    (samples.len() > 1).then(|| (squares * mean.powi(4) / samples.len() as f64).sqrt())
}

/// The best `percent` of the samples, best first, at least one of them: the
/// smallest, or the largest if `higher` is better. mmtests calls the mean of
/// these BAmean or, harmonic, BHmean.
pub fn best(samples: &[f64], percent: u8, higher: bool) -> Vec<f64> {
    let mut sorted = ascending(samples);
    if higher {
        sorted.reverse();
    }
    sorted.truncate((samples.len() * usize::from(percent) / 100).max(1));
    sorted
}

/// Mean of the samples that are left when the one farthest from the mean is
/// dropped until the confidence interval of the mean is narrow enough: its half
/// width, 2.58 standard errors, at most 1 % of the mean. At least three samples
/// are left; if they are still too far apart, it is the mean of all.
///
/// This is what mmtests of 2014 meant by `TrimMean`.
pub fn trimmed_mean(samples: &[f64]) -> Option<f64> {
    let all = mean(samples)?;
    let mut left = samples.to_vec();
    loop {
        let (mean, deviation) = (mean(&left)?, population_deviation(&left)?);
        let half_width = 2.58 * deviation / (left.len() as f64).sqrt();
        if half_width <= mean.abs() / 100.0 {
            return Some(mean);
        }
        if left.len() <= 3 {
            return Some(all);
        }
        let distance = |index: &usize| (left[*index] - mean).abs();
        let farther = |a: usize, b: usize| if distance(&b) > distance(&a) { b } else { a };
        let farthest = (0..left.len()).reduce(farther)?;
        left.remove(farthest);
    }
}

/// What mmtests of 2014 printed as `TrimMean`: it passed the samples alone to a
/// function that takes a confidence and a limit first, so that the first two
/// samples became these. Hence it is the mean of the others: with a confidence
/// that it does not know (it knows 95 and 99) nothing is trimmed. Not defined for
/// two samples.
pub fn trimmed_mean_of_2014(samples: &[f64]) -> Option<f64> {
    mean(samples.get(2..)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_and_deviations() {
        let samples = [2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0];
        assert_eq!(mean(&samples), Some(5.0));
        assert_eq!(population_deviation(&samples), Some(2.0));
        assert_eq!(variance(&samples), Some(32.0 / 7.0));
        assert_eq!(deviation(&[175.39; 5]), Some(0.0));
        assert_eq!(deviation(&[1.0]), None);
        assert_eq!(population_deviation(&[1.0]), Some(0.0));
        assert_eq!(median(&samples), Some(4.5));
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!((least(&samples), most(&samples)), (Some(2.0), Some(9.0)));
        for of_none in [mean, median, least, most, deviation, trimmed_mean] {
            assert_eq!(of_none(&[]), None);
        }
    }

    #[test]
    fn rates_over_equal_work_have_a_harmonic_mean() {
        // 60 km there at 30 km/h and back at 60 km/h take 3 h.
        assert_eq!(harmonic_mean(&[30.0, 60.0]), Some(40.0));
        assert_eq!(harmonic_mean(&[30.0, 0.0]), None);
        // H² √(((1/30 − 1/40)² + (1/60 − 1/40)²) / 2) = 1600 / 120.
        let deviation = harmonic_deviation(&[30.0, 60.0]).expect("defined");
        assert!((deviation - 1600.0 / 120.0).abs() < 1e-9, "{deviation}");
    }

    #[test]
    fn the_best_are_the_first_of_a_sorted_list() {
        let samples: Vec<f64> = (1..=20).rev().map(f64::from).collect();
        assert_eq!(best(&samples, 10, false), [1.0, 2.0]);
        assert_eq!(best(&samples, 10, true), [20.0, 19.0]);
        assert_eq!(best(&samples, 1, true), [20.0]);
        assert_eq!(best(&samples, 100, false).len(), 20);
    }

    #[test]
    fn outliers_are_dropped_until_the_mean_is_sure() {
        let mut samples = vec![100.0, 100.1, 99.9, 100.0, 100.1, 99.9, 100.0, 100.0];
        assert_eq!(trimmed_mean(&samples), mean(&samples));
        samples.push(150.0);
        let trimmed = trimmed_mean(&samples).expect("there are samples");
        assert!((trimmed - 100.0).abs() < 1e-9, "{trimmed}");
        // Nothing to be sure of: the mean of all.
        assert_eq!(trimmed_mean(&[1.0, 2.0, 3.0, 10.0]), Some(4.0));
    }

    #[test]
    fn the_trimmed_mean_of_2014_swallows_two_samples() {
        assert_eq!(trimmed_mean_of_2014(&[1.0, 2.0, 30.0, 40.0]), Some(35.0));
        assert_eq!(trimmed_mean_of_2014(&[1.0, 2.0]), None);
        assert_eq!(trimmed_mean_of_2014(&[1.0]), None);
    }
}
