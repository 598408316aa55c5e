//! Numbers and names as people read them.

use vellum_terminal::table::grouped;

use vellum_results::Figure;

/// A share as percent, with as many digits as tell something.
pub fn percent(share: f64) -> String {
    let percent = share * 100.0;
    match percent.abs() {
        size if size >= 100.0 => format!("{percent:.0}\u{a0}%"),
        size if size >= 10.0 => format!("{percent:.1}\u{a0}%"),
        _ => format!("{percent:.2}\u{a0}%"),
    }
}

/// A ratio with four digits.
pub fn ratio(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.1}"),
        size if size >= 10.0 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}

/// The bounds of an interval; empty if there are none.
pub fn bounds(figure: &Figure, shown: impl Fn(f64) -> String) -> String {
    match (figure.low, figure.high) {
        (Some(low), Some(high)) => format!("{} .. {}", shown(low), shown(high)),
        _ => String::new(),
    }
}

/// The value, and its bounds in parentheses if there are any.
pub fn with_bounds(figure: &Figure, shown: impl Fn(f64) -> String) -> String {
    let value = shown(figure.value);
    match bounds(figure, &shown) {
        bounds if bounds.is_empty() => value,
        bounds => format!("{value} ({bounds})"),
    }
}

/// The unit in which times like this one are read: what it is called, and nanoseconds
/// in one.
pub fn time_unit(ns: f64) -> (&'static str, f64) {
    match ns.abs() {
        size if size >= 1e9 => ("s", 1e9),
        size if size >= 1e6 => ("ms", 1e6),
        size if size >= 1e3 => ("\u{b5}s", 1e3),
        _ => ("ns", 1.0),
    }
}

/// A number with four digits or so.
pub fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 1e4 => grouped(value.abs().round() as u64),
        size if size >= 1e3 => format!("{value:.0}"),
        size if size >= 100.0 => format!("{value:.1}"),
        size if size >= 10.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

/// A number with as many digits after the point as it needs, three at the most.
pub fn plain(value: f64) -> String {
    let text = format!("{value:.3}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    text.to_owned()
}

/// A number with four digits or so and its sign.
pub fn signed(value: f64) -> String {
    match value {
        value if value < 0.0 => format!("\u{2212}{}", number(-value)),
        value if value > 0.0 => format!("+{}", number(value)),
        _ => "0".to_owned(),
    }
}

/// A size.
pub fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["bytes", "KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    match (unit, value.fract() == 0.0 || value >= 100.0) {
        (0, _) => format!("{bytes} bytes"),
        (_, true) => format!("{value:.0} {}", UNITS[unit]),
        (_, false) => format!("{value:.1} {}", UNITS[unit]),
    }
}

/// The last part of a path.
pub fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// `1 pass`, `2 passes`.
pub fn plural(count: u64, one: &str, several: &str) -> String {
    match count {
        1 => format!("1 {one}"),
        count => format!("{} {several}", grouped(count)),
    }
}

/// What is called a design: as it was given, or that it is the default one.
pub fn design(given: &str) -> &str {
    match given.trim().is_empty() {
        true => "the default design",
        false => given,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_digits_that_tell_something() {
        assert_eq!(percent(0.0441), "4.41\u{a0}%");
        assert_eq!(number(1_234_567.0), "1,234,567");
        assert_eq!(signed(-12.3456), "\u{2212}12.35");
        assert_eq!(bytes(3 << 29), "1.5 GiB");
        assert_eq!(bytes(700), "700 bytes");
        assert_eq!(time_unit(44e9), ("s", 1e9));
        assert_eq!(plural(1, "pass", "passes"), "1 pass");
    }
}
