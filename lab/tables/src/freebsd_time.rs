//! The line that FreeBSD's `time` prints for a run: wall-clock, user and system
//! time in seconds.

use crate::Series;

/// The names that stand behind the three times, in their order.
pub const COLUMNS: [&str; 3] = ["real", "user", "sys"];

/// The line, without its end, for times in seconds. They are cut off after two
/// decimals; a negative one counts as 0.
pub fn line(real_s: f64, user_s: f64, sys_s: f64) -> String {
    let times = COLUMNS.iter().zip([real_s, user_s, sys_s]);
    let column = |(name, seconds): (&&str, f64)| {
        // The nearest double to 0.29 is a little less than it.
        let hundredths = (seconds.max(0.0) * 100.0 + 1e-6).floor() as u64;
        format!("{:>9}.{:02} {name}", hundredths / 100, hundredths % 100)
    };
    times.map(column).collect::<Vec<_>>().join(" ")
}

/// The runs of `series`, a line each, if it has the operations [`COLUMNS`] with
/// equally many samples.
pub fn lines(series: &Series) -> Option<String> {
    let [real, user, sys] = COLUMNS.map(|name| series.samples(name));
    let (real, user, sys) = (real?, user?, sys?);
    if real.len() != user.len() || user.len() != sys.len() {
        return None;
    }
    let runs = real.iter().zip(user).zip(sys);
    let lines = runs.map(|((real, user), sys)| line(*real, *user, *sys) + "\n");
    Some(lines.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_have_nine_columns_and_two_decimals() {
        let expected = "      237.53 real      6782.41 user       567.74 sys";
        assert_eq!(line(237.53, 6782.41, 567.74), expected);
        let expected = "        0.29 real         0.07 user         0.00 sys";
        assert_eq!(line(0.29, 0.079_99, 0.009_99), expected);
    }
}
