//! What a result is a part of: the whole workload, as it was recorded.

use serde::{Deserialize, Serialize};

/// CPU time of the whole workload when it was recorded, all copies together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Whole {
    /// Of all tasks, in programs and in the kernel, in nanoseconds.
    pub cpu_ns: u64,
    /// What the recorded kernel took of that for faults and for calls that concern memory or
    /// files, recording them included: an estimate from faults and calls in a row, and rather
    /// too low. Null if the recording has too few of those.
    pub memory_ns: Option<u64>,
}

/// What is said where nothing is known.
const UNKNOWN: &str = "unknown, since the recording has no CPU times.";

impl Whole {
    /// What share of the whole so many nanoseconds are.
    pub fn share(&self, ns: f64) -> f64 {
        ns / self.cpu_ns.max(1) as f64
    }

    fn time(&self) -> String {
        format!(
            "the {} of CPU time that the workload took when it was recorded",
            seconds(self.cpu_ns as f64)
        )
    }

    fn recorded(&self) -> String {
        match self.memory_ns {
            Some(ns) => format!(
                "Memory management was about {} of them in the recorded kernel",
                seconds(ns as f64)
            ),
            None => "What memory management took of them is unknown".to_owned(),
        }
    }
}

/// How two designs that take so many nanoseconds stand in the whole, if that is known.
/// `resolution` is the largest difference that would not have been significant, if none was.
pub fn of_two(whole: Option<&Whole>, [a_ns, b_ns]: [f64; 2], resolution: Option<f64>) -> String {
    let Some(whole) = whole else {
        return UNKNOWN.to_owned();
    };
    let difference = match resolution {
        Some(share) => format!(
            "what could not be told is at most {} of",
            percent(whole.share(share * a_ns))
        ),
        None => format!(
            "the difference is {} of",
            percent(whole.share((b_ns - a_ns).abs()))
        ),
    };
    format!(
        "{difference} {}. {}; for the same, A takes {} here and B {}.",
        whole.time(),
        whole.recorded(),
        seconds(a_ns),
        seconds(b_ns),
    )
}

/// How one design that takes so many nanoseconds stands in the whole, if that is known.
pub fn of_one(whole: Option<&Whole>, ns: f64) -> String {
    let Some(whole) = whole else {
        return UNKNOWN.to_owned();
    };
    format!(
        "this is {} of {}. {}; for the same, this design takes {} here.",
        percent(whole.share(ns)),
        whole.time(),
        whole.recorded(),
        seconds(ns),
    )
}

/// Percent with two digits that count.
fn percent(share: f64) -> String {
    format!("{} %", two_digits(share * 100.0))
}

/// Seconds with three digits that count, or two of less than a tenth.
fn seconds(ns: f64) -> String {
    match ns / 1e9 {
        whole if whole >= 100.0 => format!("{whole:.0} s"),
        tens if tens >= 10.0 => format!("{tens:.1} s"),
        ones if ones >= 0.1 => format!("{ones:.2} s"),
        small => format!("{} s", two_digits(small)),
    }
}

fn two_digits(number: f64) -> String {
    match number.abs() {
        0.0 => "0".to_owned(),
        size if size >= 10.0 => format!("{number:.0}"),
        size if size >= 1.0 => format!("{number:.1}"),
        size => {
            let zeros = (-size.log10()).ceil().clamp(1.0, 9.0) as usize;
            format!("{number:.*}", zeros + 1)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: Whole = Whole {
        cpu_ns: 17_000_000_000,
        memory_ns: Some(350_000_000),
    };

    #[test]
    fn a_difference_is_told_as_a_share_of_the_whole() {
        let said = of_two(Some(&WHOLE), [220e6, 206e6], None);
        let expected = "the difference is 0.082 % of the 17.0 s of CPU time that the \
                        workload took when it was recorded. Memory management was about 0.35 s of \
                        them in the recorded kernel; for the same, A takes 0.22 s here and B 0.21 s.";
        assert_eq!(said, expected);
    }

    #[test]
    fn without_a_difference_the_bound_is_told() {
        let said = of_two(Some(&WHOLE), [220e6, 221e6], Some(0.0078));
        let bound = "what could not be told is at most 0.010 % of the 17.0 s";
        assert!(said.starts_with(bound), "{said}");
    }

    #[test]
    fn what_the_recording_lacks_is_said_to_be_unknown() {
        assert_eq!(of_two(None, [1.0, 2.0], None), UNKNOWN);
        assert_eq!(of_one(None, 1.0), UNKNOWN);
        let whole = Whole {
            memory_ns: None,
            ..WHOLE
        };
        let said = of_one(Some(&whole), 333e6);
        assert!(said.contains("this is 2.0 % of the 17.0 s"), "{said}");
        assert!(said.contains("memory management took of them is unknown"));
    }

    #[test]
    fn numbers_have_the_digits_that_count() {
        let shown = [0.0, 0.00123, 0.0567, 0.999, 1.26, 12.6, 126.0].map(two_digits);
        assert_eq!(shown, ["0", "0.0012", "0.057", "1.00", "1.3", "13", "126"]);
        let shown = [0.0, 0.0042, 0.35, 17.0, 171.2].map(|s| seconds(s * 1e9));
        assert_eq!(shown, ["0 s", "0.0042 s", "0.35 s", "17.0 s", "171 s"]);
    }
}
