//! What a window to a page table in high memory costs.
//!
//! A window is opened by writing an entry of the CPU's own, and closed by clearing
//! it and flushing one address. The simulated machine does neither, so a price is
//! charged for each.

use serde::Serialize;
use vellum_description::Description;

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
}
