//! The block in which throughput of SDET has been posted to linux-kernel: for a
//! number of users, each kernel's throughput as a percentage of the first one's
//! and its standard deviation as a percentage of its own mean.

use std::fmt::Write;

use crate::summary;

/// One kernel's (or design's) row.
#[derive(Clone, PartialEq, Debug)]
pub struct Row {
    /// Name, up to 25 characters.
    pub label: String,
    /// Throughput as a percentage of the first row's.
    pub throughput_percent: f64,
    /// Standard deviation as a percentage of the row's own mean, where it is known.
    pub deviation_percent: Option<f64>,
}

/// The rows of kernels whose throughput (scripts an hour) was `runs`.
pub fn rows(kernels: &[(String, Vec<f64>)]) -> Vec<Row> {
    let mean = |runs: &[f64]| summary::mean(runs).unwrap_or(0.0);
    let first = kernels.first().map_or(0.0, |(_, runs)| mean(runs));
    let row = |(label, runs): &(String, Vec<f64>)| {
        let mean = mean(runs);
        Row {
            label: label.clone(),
            throughput_percent: 100.0 * mean / first,
            deviation_percent: Some(100.0 * summary::deviation(runs).unwrap_or(0.0) / mean),
        }
    };
    kernels.iter().map(row).collect()
}

/// The block called `title` (`SDET 64  (see disclaimer)`).
pub fn block(title: &str, rows: &[Row]) -> String {
    let mut text = format!("{title}\n");
    let _ = writeln!(text, "{:25}{:>12}{:>12}", "", "Throughput", "Std. Dev");
    for row in rows {
        let _ = write!(text, "{:>25}{:12.1}%", row.label, row.throughput_percent);
        if let Some(deviation) = row.deviation_percent {
            let _ = write!(text, "{deviation:12.1}%");
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(label: &str, throughput_percent: f64, deviation_percent: f64) -> Row {
        Row {
            label: label.to_owned(),
            throughput_percent,
            deviation_percent: Some(deviation_percent),
        }
    }

    /// The first and the last block of "2.5.65-mm2 vs 2.5.65-mm3 (full objrmap)",
    /// linux-kernel, 22 March 2003.
    #[test]
    fn blocks_of_the_march_2003_post_come_out_byte_for_byte() {
        let printed = block(
            "SDET 1  (see disclaimer)",
            &[row("2.5.65-mm2", 100.0, 2.2), row("2.5.65-mm3", 98.9, 2.0)],
        ) + &block(
            "SDET 128  (see disclaimer)",
            &[row("2.5.65-mm2", 100.0, 0.5), row("2.5.65-mm3", 100.8, 0.6)],
        );
        let posted = "\
SDET 1  (see disclaimer)
                           Throughput    Std. Dev
               2.5.65-mm2       100.0%         2.2%
               2.5.65-mm3        98.9%         2.0%
SDET 128  (see disclaimer)
                           Throughput    Std. Dev
               2.5.65-mm2       100.0%         0.5%
               2.5.65-mm3       100.8%         0.6%
";
        assert_eq!(printed, posted);
    }

    #[test]
    fn rows_are_percentages_of_the_first_and_of_themselves() {
        let rows = rows(&[
            ("a".to_owned(), vec![90.0, 100.0, 110.0]),
            ("b".to_owned(), vec![200.0, 200.0, 200.0]),
        ]);
        assert_eq!(
            (rows[0].throughput_percent, rows[0].deviation_percent),
            (100.0, Some(10.0))
        );
        assert_eq!(
            (rows[1].throughput_percent, rows[1].deviation_percent),
            (200.0, Some(0.0))
        );
    }
}
