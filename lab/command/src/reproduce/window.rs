//! What a window to a page table in high memory would have to cost to explain what was published.

use super::published::KERNBENCH_2010;

/// The price at which `windows` would take what the published kernel build saved. It
/// is derived, and means something if `windows` are those of a kernel build.
pub fn derived_ns(windows: u64) -> Option<f64> {
    let [high, low] = KERNBENCH_2010.map(|block| block.system_s.0);
    (windows > 0).then(|| (high - low) * 1e9 / windows as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_saved_is_divided_among_the_windows() {
        let ns = derived_ns(3_837_000).expect("there are windows");
        assert!((ns - 1000.0).abs() < 1e-6, "{ns}");
        assert_eq!(derived_ns(0), None);
    }
}
