//! Output of readprofile, the profiler of the Linux kernel's timer tick: `ticks
//! symbol load`, at the end `total`. Its verbose form has the address in front
//! and the ticks behind the symbol. Lines without a load are read, too.

use super::{Reader, Refused, says_something};
use crate::Profile;

const LINE: Refused = "a line of readprofile: ticks, a symbol, and its load";

pub struct Readprofile;

impl Reader for Readprofile {
    fn line(&mut self, line: &str, profile: &mut Profile) -> Result<(), Refused> {
        if !says_something(line) {
            return Ok(());
        }
        let (symbol, ticks) = split(line).ok_or(LINE)?;
        match symbol {
            "total" => profile.state_total(ticks),
            symbol => profile.add(vec![symbol.into()], ticks),
        }
        Ok(())
    }
}

fn split(line: &str) -> Option<(&str, u64)> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let (symbol, ticks, load) = match fields[..] {
        [ticks, symbol] => (symbol, ticks, None),
        [ticks, symbol, load] => (symbol, ticks, Some(load)),
        [_address, symbol, ticks, load] => (symbol, ticks, Some(load)),
        _ => return None,
    };
    if let [address, _, _, _] = fields[..] {
        u64::from_str_radix(address, 16).ok()?;
    }
    if let Some(load) = load {
        load.parse::<f64>().ok()?;
    }
    // A number in the symbol's place belongs to another format.
    symbol.parse::<f64>().is_err().then_some(())?;
    Some((symbol, ticks.parse().ok()?))
}

pub fn begins_with(line: &str) -> bool {
    split(line).is_some()
}

#[cfg(test)]
mod tests {
    use super::super::tests::read;

    #[test]
    fn the_stated_total_is_no_function() {
        let text = "  3521 default_idle                 55.0156\n    12 find_vma   0.1250\n  4000 total    0.0020\n";
        let profile = read(text).unwrap();
        assert_eq!(profile.total(), 4000);
        assert_eq!(profile.flat().len(), 2);
        assert_eq!(profile.flat()["default_idle"], 3521);
        assert!(!profile.has_callers());
    }

    #[test]
    fn the_verbose_form_is_read() {
        let text =
            "00000000c0105000 default_idle    12   0.1875\n0000000000000000 total   13  0.0\n";
        let profile = read(text).unwrap();
        assert_eq!(profile.flat()["default_idle"], 12);
        assert_eq!(profile.total(), 13);
    }

    #[test]
    fn damaged_lines_are_refused() {
        for line in [
            "default_idle",
            "12 default_idle x",
            "c0 f 1.5 0.1",
            "1 2 3 4 5",
        ] {
            let text = format!("  12 find_vma   0.1250\n{line}\n");
            let error = read(&text).unwrap_err().to_string();
            assert!(error.starts_with("in.txt:2: "), "{error}");
        }
    }
}
