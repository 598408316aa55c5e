//! Numbers as C and awk print them.

/// `value` as C's `%.{precision}g` prints it: that many significant digits,
/// without zeros at the end, and with an exponent where it is below -4 or has as
/// many digits as the precision.
pub fn general(value: f64, precision: usize) -> String {
    if value.is_nan() {
        return "nan".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    let precision = precision.max(1);
    let scientific = format!("{value:.*e}", precision - 1);
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if exponent < -4 || exponent >= precision as i32 {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{}e{sign}{:02}", without_zeros(digits), exponent.abs());
    }
    let decimals = (precision as i32 - 1 - exponent) as usize;
    without_zeros(&format!("{value:.decimals$}")).to_owned()
}

fn without_zeros(digits: &str) -> &str {
    match digits.contains('.') {
        true => digits.trim_end_matches('0').trim_end_matches('.'),
        false => digits,
    }
}

/// `value` as `print` of awk has it: whole numbers in full, others with six
/// significant digits.
pub fn awk(value: f64) -> String {
    match value.fract() == 0.0 && value.abs() < 1e16 {
        true => format!("{}", value as i64),
        false => general(value, 6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Expected values: printf(1) of the GNU core utilities.
    #[test]
    fn significant_digits_are_as_printf_has_them() {
        for (value, precision, printed) in [
            (0.0, 6, "0"),
            (-263.65, 6, "-263.65"),
            (-46.297_160_5, 6, "-46.2972"),
            (100_000.0, 6, "100000"),
            (999_999.5, 6, "1e+06"),
            (1_878_100.0, 6, "1.8781e+06"),
            (0.000_1, 6, "0.0001"),
            (0.000_012_345_67, 6, "1.23457e-05"),
            (237.666_666_666, 8, "237.66667"),
            (6_782.41, 8, "6782.41"),
            (12.0, 8, "12"),
            (1e100, 6, "1e+100"),
            (0.5, 0, "0.5"),
            (2.5, 1, "2"),
            (f64::INFINITY, 6, "inf"),
            (f64::NEG_INFINITY, 6, "-inf"),
            (f64::NAN, 6, "nan"),
        ] {
            assert_eq!(general(value, precision), printed);
        }
    }

    #[test]
    fn awk_prints_whole_numbers_in_full() {
        assert_eq!(awk(2_250_203.0), "2250203");
        assert_eq!(awk(2_250_203.5), "2.2502e+06");
        assert_eq!(awk(-3.0), "-3");
        assert_eq!(awk(55.9), "55.9");
    }
}
