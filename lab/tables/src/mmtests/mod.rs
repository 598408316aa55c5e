//! Comparison tables as mmtests prints them.
//!
//! Two lines with the names of the kernels, then a row for each statistic of each
//! operation: its value under each kernel, and in parentheses how it differs from
//! the first kernel's, in percent. **Positive is better,** whichever direction is
//! better for the quantity:
//!
//! | | better | change | special cases |
//! |---|---|---|---|
//! | [`gain`] | higher | `100 new / base - 100` | 0 if equal or `new` is 0; 100 if `base` is 0 |
//! | [`saving`] | lower | `100 - 100 new / base` | 0 if equal; 100 if `new` is 0; -99 if `base` is 0 |
//!
//! There are two [`Edition`]s of the tables. That of 2014 has the standard deviation
//! of the samples themselves (divided by `n`), and compares each row as the samples
//! are compared: where higher is better, a larger deviation is "better", too. That
//! of 2025 has the deviation of what was sampled (divided by `n - 1`), for which
//! less is always better. What is better if it is higher is taken to be a rate, so
//! that its mean and deviation are harmonic. A change of the mean stands between
//! asterisks if it is significant.
//!
//! Significant means that the means are farther apart than what both spread, 1.96
//! standard deviations each. These are deviations of samples, not errors of means:
//! the mark says that single runs hardly overlap. It does not come for a small
//! difference, however often that was measured. Ask [`ministat`](crate::ministat)
//! whether means differ.
//!
//! What is not defined is 0 with a change of 0 in 2025 (the deviation of one
//! sample, a harmonic mean of 0), and `NaN` in 2014.
//!
//! With `compat` the tables have what mmtests gets wrong:
//!
//! * 2014: `TrimMean` is the mean of all samples but the first two
//!   ([`summary::trimmed_mean_of_2014`](crate::summary::trimmed_mean_of_2014));
//! * both: a name without a hyphen stands in both lines of the heading, in the first
//!   without its last character, and release candidates from `-rc10` on are cut
//!   apart;
//! * 2025: -1 counts as not defined; if nothing spreads, a change is significant if
//!   it is more than 1.

mod heading;
mod rows;

pub use heading::heading;

use std::fmt::Write;

use crate::Series;
use crate::series::{self, Mismatch};
use rows::rows;

/// Which mmtests prints the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Edition {
    /// As of 2014 (commit `de80a8df`).
    Of2014,
    /// As of 2025 (commit `b2d30513`). Tables since 2018 look alike.
    #[default]
    Of2025,
}

/// How a table is made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// Which mmtests prints it.
    pub edition: Edition,
    /// Whether a higher value is better; else a lower one is.
    pub higher_is_better: bool,
    /// Decimals of the values.
    pub precision: usize,
    /// What the values are called, for one row for each operation instead of one
    /// for each statistic of it. It has the mean of the samples.
    pub value: Option<String>,
    /// Percentages of the samples of which, best first, the mean is shown
    /// (edition of 2025).
    pub best: Vec<u8>,
    /// As mmtests prints it, mistakes included.
    pub compat: bool,
}

/// The table of 2025 with two decimals, of what is better if it is lower, with the
/// means of the best 50, 95 and 99 % of the samples.
impl Default for Options {
    fn default() -> Self {
        Self {
            edition: Edition::Of2025,
            higher_is_better: false,
            precision: 2,
            value: None,
            best: vec![50, 95, 99],
            compat: false,
        }
    }
}

/// One kernel's column.
#[derive(Clone, PartialEq, Debug)]
pub struct Column {
    /// The two lines above it.
    pub heading: [String; 2],
    /// What it was measured to do.
    pub series: Series,
}

impl Column {
    /// The column of `series`, under its name as mmtests divides it.
    pub fn new(series: Series, compat: bool) -> Self {
        Self {
            heading: heading(&series.name, compat),
            series,
        }
    }
}

/// Columns of a value.
const FIELD: usize = 12;

impl Edition {
    /// Columns of a change in percent.
    fn change(self) -> usize {
        match self {
            Edition::Of2014 => 6,
            Edition::Of2025 => 7,
        }
    }
}

/// The table of `columns`, of which the first is the base.
///
/// # Errors
/// There are no columns, no samples, or columns with different operations.
pub fn table(columns: &[Column], options: &Options) -> Result<String, Mismatch> {
    let series: Vec<Series> = columns.iter().map(|column| column.series.clone()).collect();
    series::check(&series)?;
    let rows = rows(&series, options);
    let length = |text: &str| text.chars().count();
    let statistic = rows.iter().map(|row| length(&row.statistic)).max();
    let operation = rows.iter().map(|row| length(row.operation)).max();
    let (statistic, operation) = (statistic.unwrap_or(0), operation.unwrap_or(0));
    let mut text = String::new();
    let width = FIELD + options.edition.change() + 4;
    for line in 0..2 {
        let names: Vec<&str> = columns.iter().map(|c| c.heading[line].as_str()).collect();
        if line == 0 && !options.compat && names.iter().all(|name| name.is_empty()) {
            continue;
        }
        let _ = write!(text, "{:1$}", "", statistic + 1 + operation);
        for name in names {
            let _ = write!(text, "{name:>width$}");
        }
        text.push('\n');
    }
    for row in &rows {
        let _ = write!(
            text,
            "{:<statistic$} {:<operation$}",
            row.statistic, row.operation
        );
        for cell in &row.cells {
            let value = number(cell.value, FIELD, options.precision);
            let change = number(cell.change, options.edition.change(), 2);
            let _ = match cell.is_significant {
                false => write!(text, "{value} ({change}%)"),
                true => write!(text, "{value} *{change}%*"),
            };
        }
        text.push('\n');
    }
    Ok(text)
}

/// As printf of Perl has it.
fn number(value: f64, width: usize, decimals: usize) -> String {
    match value.is_infinite() {
        true => format!("{:>width$}", if value > 0.0 { "Inf" } else { "-Inf" }),
        false => format!("{value:width$.decimals$}"),
    }
}

/// The change from `base` to `new`, in percent, where higher is better.
pub fn gain(new: f64, base: f64) -> f64 {
    if new == base || new == 0.0 {
        0.0
    } else if base == 0.0 {
        100.0
    } else {
        new * 100.0 / base - 100.0
    }
}

/// The change from `base` to `new`, in percent, where lower is better.
pub fn saving(new: f64, base: f64) -> f64 {
    if new == base {
        0.0
    } else if new == 0.0 {
        100.0
    } else if base == 0.0 {
        -99.0
    } else {
        100.0 - new * 100.0 / base
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_and_their_special_cases() {
        let rounded = |percent: f64| format!("{percent:.2}");
        assert_eq!(rounded(gain(275.1917, 160.6807)), "71.27");
        assert_eq!(rounded(saving(2652.0, 2188.0)), "-21.21");
        assert_eq!(rounded(gain(3891.2, 4096.0)), "-5.00");
        assert_eq!(rounded(saving(0.39, 0.41)), "4.88");
        assert_eq!(
            [gain(0.0, 5.0), gain(5.0, 0.0), gain(0.0, 0.0)],
            [0.0, 100.0, 0.0]
        );
        let savings = [saving(0.0, 5.0), saving(5.0, 0.0), saving(0.0, 0.0)];
        assert_eq!(savings, [100.0, -99.0, 0.0]);
    }

    #[test]
    fn a_base_without_a_harmonic_mean_makes_no_change_undefined() {
        let series =
            |name, samples: [f64; 3]| Column::new(crate::Series::single(name, samples), false);
        let columns = [
            series("a", [-1.0, -2.0, -3.0]),
            series("b", [1.0, 2.0, 3.0]),
        ];
        for edition in [Edition::Of2014, Edition::Of2025] {
            for higher_is_better in [false, true] {
                let options = Options {
                    edition,
                    higher_is_better,
                    ..Options::default()
                };
                let text = table(&columns, &options).unwrap();
                assert!(!text.contains("NaN"), "{text}");
            }
        }
    }

    fn columns(values: [(&str, &[(&str, f64)]); 2], compat: bool) -> Vec<Column> {
        let column = |(name, operations): (&str, &[(&str, f64)])| {
            let operation = |(name, value): &(&str, f64)| crate::Operation {
                name: (*name).to_owned(),
                samples: vec![*value],
            };
            let series = Series {
                name: name.to_owned(),
                operations: operations.iter().map(operation).collect(),
            };
            Column::new(series, compat)
        };
        values.map(column).to_vec()
    }

    #[test]
    fn a_row_for_each_operation_under_a_name_of_its_values() {
        let values = [
            (
                "3.15.0-rc3-vanilla",
                &[("107M", 557.0), ("1073M", 4981.0)][..],
            ),
            ("3.15.0-rc3-lockpage", &[("107M", 544.0), ("1073M", 4154.0)]),
        ];
        let options = Options {
            edition: Edition::Of2014,
            precision: 4,
            value: Some("Procs".to_owned()),
            ..Options::default()
        };
        let text = table(&columns(values, false), &options).expect("a table");
        let expected = "
                       3.15.0-rc3            3.15.0-rc3
                          vanilla              lockpage
Procs 107M     557.0000 (  0.00%)    544.0000 (  2.33%)
Procs 1073M   4981.0000 (  0.00%)   4154.0000 ( 16.60%)
";
        assert_eq!(format!("\n{text}"), expected);
    }

    #[test]
    fn an_operation_that_a_kernel_lacks_is_refused() {
        let values = [
            ("old", &[("read", 5.0), ("write", 7.0)][..]),
            ("new", &[("write", 6.0)]),
        ];
        let refused = table(&columns(values, false), &Options::default());
        let said = refused.expect_err("refused").to_string();
        assert_eq!(said, "new has no samples of `read`, which old has");
    }

    #[test]
    fn one_sample_has_no_deviation() {
        let values = [("old", &[("read", 5.0)][..]), ("new", &[("read", 6.0)])];
        let options = Options::default();
        let text = table(&columns(values, false), &options).expect("a table");
        let row = "Stddev    read        0.00 (   0.00%)        0.00 (   0.00%)\n";
        assert!(text.contains(row), "{text}");
        for higher_is_better in [false, true] {
            let options = Options {
                edition: Edition::Of2014,
                higher_is_better,
                compat: true,
                ..Options::default()
            };
            let text = table(&columns(values, true), &options).expect("a table");
            let row = "TrimMean read         NaN (   NaN%)         NaN (   NaN%)\n";
            assert!(text.contains(row), "{text}");
        }
    }

    #[test]
    fn names_without_a_hyphen_take_one_line() {
        let values = [("old", &[("", 5.0)][..]), ("new", &[("", 6.0)])];
        let options = Options {
            value: Some("Time".to_owned()),
            ..Options::default()
        };
        let text = table(&columns(values, false), &options).expect("a table");
        let expected = "
                         old                    new
Time         5.00 (   0.00%)        6.00 ( -20.00%)
";
        assert_eq!(format!("\n{text}"), expected);
    }
}
