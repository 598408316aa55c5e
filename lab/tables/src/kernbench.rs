//! The kernbench block as Martin Bligh posted it to linux-kernel from 2003 on.
//!
//! A title, a header, and one row per kernel: the label right-aligned in 25
//! columns, then elapsed, system and user time in seconds and CPU in percent,
//! each in 12 columns with two decimals. Later posts end after the system time.

use std::fmt::Write;

/// Columns of a label.
pub const LABEL: usize = 25;

/// One kernel's (or design's) row.
#[derive(Clone, PartialEq, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Row {
    /// Name, up to [`LABEL`] characters.
    pub label: String,
    /// Wall-clock seconds.
    pub elapsed_s: f64,
    /// Seconds of CPU time in the kernel, all CPUs together.
    pub system_s: f64,
    /// Seconds of CPU time in user code, all CPUs together.
    pub user_s: Option<f64>,
    /// System and user time as a percentage of elapsed time.
    pub cpu_percent: Option<f64>,
}

/// The block for a workload described by `title` ("make -j vmlinux, maximal
/// tasks").
pub fn block(title: &str, rows: &[Row]) -> String {
    let mut text = format!("Kernbench: ({title})\n");
    let _ = writeln!(
        text,
        "{:25}{:>12}{:>12}{:>12}{:>12}",
        "", "Elapsed", "System", "User", "CPU"
    );
    for row in rows {
        let _ = write!(text, "{:>25}", row.label);
        let columns = [
            Some(row.elapsed_s),
            Some(row.system_s),
            row.user_s,
            row.cpu_percent,
        ];
        for value in columns.into_iter().flatten() {
            let _ = write!(text, "{value:12.2}");
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(label: &str, [elapsed_s, system_s, user_s, cpu_percent]: [f64; 4]) -> Row {
        Row {
            label: label.to_owned(),
            elapsed_s,
            system_s,
            user_s: Some(user_s),
            cpu_percent: Some(cpu_percent),
        }
    }

    /// The three blocks of "2.5.65-mm2 vs 2.5.65-mm3 (full objrmap)", linux-kernel,
    /// 22 March 2003.
    #[test]
    fn blocks_of_the_march_2003_post_come_out_byte_for_byte() {
        let blocks = [
            (
                "make -j N vmlinux, where N = 2 x num_cpus",
                [44.04, 80.63, 566.83, 1469.25],
                [44.21, 80.57, 567.61, 1466.00],
            ),
            (
                "make -j N vmlinux, where N = 16 x num_cpus",
                [44.27, 88.56, 574.21, 1496.75],
                [44.10, 89.24, 574.70, 1503.75],
            ),
            (
                "make -j vmlinux, maximal tasks",
                [44.30, 86.09, 572.75, 1488.25],
                [44.36, 86.86, 573.28, 1486.25],
            ),
        ];
        let printed: String = blocks
            .into_iter()
            .map(|(title, mm2, mm3)| {
                block(title, &[row("2.5.65-mm2", mm2), row("2.5.65-mm3", mm3)])
            })
            .collect();
        let posted = "\
Kernbench: (make -j N vmlinux, where N = 2 x num_cpus)
                              Elapsed      System        User         CPU
               2.5.65-mm2       44.04       80.63      566.83     1469.25
               2.5.65-mm3       44.21       80.57      567.61     1466.00
Kernbench: (make -j N vmlinux, where N = 16 x num_cpus)
                              Elapsed      System        User         CPU
               2.5.65-mm2       44.27       88.56      574.21     1496.75
               2.5.65-mm3       44.10       89.24      574.70     1503.75
Kernbench: (make -j vmlinux, maximal tasks)
                              Elapsed      System        User         CPU
               2.5.65-mm2       44.30       86.09      572.75     1488.25
               2.5.65-mm3       44.36       86.86      573.28     1486.25
";
        assert_eq!(printed, posted);
    }

    #[test]
    fn what_was_not_published_stays_empty() {
        let row = Row {
            user_s: None,
            cpu_percent: None,
            ..row("anon_vma", [44.66, 83.69, 0.0, 0.0])
        };
        let text = block("x", &[row]);
        let end = "                 anon_vma       44.66       83.69\n";
        assert!(text.ends_with(end), "{text}");
    }
}
