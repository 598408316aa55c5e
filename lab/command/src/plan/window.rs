//! What a window to a page table in high memory costs.
//!
//! A window is opened by writing an entry of the CPU's own, and closed by clearing
//! it and flushing one address. The simulated machine does neither, so a price is
//! charged for each.

use vellum_description::Description;
use vellum_results::plan::Price;

/// The price on a described machine called `name`.
pub fn price_on(name: &str, machine: &Description) -> Price {
    let (hit, page) = (&machine.lines.hit, &machine.flush.page);
    Price {
        ns: 2.0 * hit.ns + page.ns,
        source: format!(
            "{name}: two writes to a line in the CPU's own cache of {} ns ({}), and one \
             address flushed for {} ns ({})",
            hit.ns, hit.source, page.ns, page.source
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_two_writes_and_a_flush() {
        let mut machine = Description::named("xeon-e5-2690").expect("it is shipped");
        (machine.lines.hit.ns, machine.flush.page.ns) = (2.0, 70.0);
        let price = price_on("mine", &machine);
        assert_eq!(price.ns, 74.0);
        assert!(price.source.starts_with("mine: "), "{}", price.source);
        assert_eq!(price.of(1000), 74_000.0);
    }
}
