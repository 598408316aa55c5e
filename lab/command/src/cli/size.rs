//! Sizes on the command line, `512M`, `4G`, `1.5G`, and parts of a size, `0.5` or `50%`.

/// Bytes from a number with an optional suffix K, M, G or T (powers of 1024),
/// also written `KiB` or `KB`.
///
/// # Errors
/// The text is no such size; the message says what is.
pub fn parse(text: &str) -> Result<u64, String> {
    let refused = || format!("`{text}` is not a size; write bytes, or a number with K, M, G or T");
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let suffix = text[digits.len()..].to_ascii_uppercase();
    let unit: u64 = match suffix
        .strip_suffix("IB")
        .or(suffix.strip_suffix('B'))
        .unwrap_or(&suffix)
    {
        "" => 1,
        "K" => 1 << 10,
        "M" => 1 << 20,
        "G" => 1 << 30,
        "T" => 1 << 40,
        _ => return Err(refused()),
    };
    let number: f64 = digits.trim().parse().map_err(|_| refused())?;
    let bytes = number * unit as f64;
    match bytes.is_finite() && bytes >= 1.0 && bytes <= (1u64 << 53) as f64 {
        true => Ok(bytes as u64),
        false => Err(refused()),
    }
}

/// A part of something, from a fraction (`0.25`) or a percentage (`25%`).
///
/// # Errors
/// The text is neither; the message says what is.
pub fn parse_part(text: &str) -> Result<f64, String> {
    let refused = || {
        format!(
            "`{text}` is not a part; write a fraction such as 0.25, or a percentage such as 25%"
        )
    };
    let (digits, unit) = match text.strip_suffix('%') {
        Some(digits) => (digits, 100.0),
        None => (text, 1.0),
    };
    match digits.trim().parse::<f64>() {
        Ok(number) if number.is_finite() => Ok(number / unit),
        _ => Err(refused()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_binary_suffixes() {
        for (text, bytes) in [
            ("4096", 4096),
            ("64k", 64 << 10),
            ("512M", 512 << 20),
            ("1.5G", 3 << 29),
            ("2GiB", 2 << 30),
            ("2 GB", 2 << 30),
        ] {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn parts_are_fractions_or_percentages() {
        for (text, part) in [("0.25", 0.25), ("1", 1.0), ("10%", 0.1), ("150 %", 1.5)] {
            assert_eq!(parse_part(text), Ok(part), "{text}");
        }
        for text in ["", "%", "half", "nan", "inf", "1G", "10%%"] {
            assert!(parse_part(text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_no_size_is_refused() {
        for text in ["", "M", "-1G", "0", "1X", "lots", "1e300G", "nan"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
