//! What a window to a page table in high memory costs.
//!
//! A window is opened by writing an entry of the CPU's own, and closed by clearing
//! it and flushing one address. The simulated machine does neither, so a price is
//! charged for each.

use serde::Serialize;
use vellum_description::Description;

use super::published::KERNBENCH_2010;

/// The price of a window.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Price {
    /// In nanoseconds.
    pub ns: f64,
    /// Where it comes from.
    pub source: String,
}

impl Price {
    /// The price on a described machine called `name`.
    pub fn on(name: &str, machine: &Description) -> Self {
        let (hit, page) = (&machine.lines.hit, &machine.flush.page);
        Self {
            ns: 2.0 * hit.ns + page.ns,
            source: format!(
                "{name}: two writes to a line in the CPU's own cache of {} ns ({}), and one \
                 address flushed for {} ns ({})",
                hit.ns, hit.source, page.ns, page.source
            ),
        }
    }

    /// A price that the user names.
    pub fn given(ns: f64) -> Self {
        Self {
            ns,
            source: "as given by --window-ns".to_owned(),
        }
    }

    /// What so many windows cost, in nanoseconds.
    pub fn of(&self, windows: u64) -> f64 {
        self.ns * windows as f64
    }
}

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
    fn a_window_is_two_writes_and_a_flush() {
        let mut machine = Description::named("xeon-e5-2690").expect("it is shipped");
        (machine.lines.hit.ns, machine.flush.page.ns) = (2.0, 70.0);
        let price = Price::on("mine", &machine);
        assert_eq!(price.ns, 74.0);
        assert!(price.source.starts_with("mine: "), "{}", price.source);
        assert_eq!(price.of(1000), 74_000.0);
    }

    #[test]
    fn what_was_saved_is_divided_among_the_windows() {
        let ns = derived_ns(3_837_000).expect("there are windows");
        assert!((ns - 1000.0).abs() < 1e-6, "{ns}");
        assert_eq!(derived_ns(0), None);
    }
}
