//! Published tables in the formats in which they were published.

use std::fmt::Write;

use super::published::{Kernbench, ProfileLine};
use vellum_tables::{kernbench, sdet};

/// A kernbench block; what was not published stays empty.
pub fn kernbench(title: &str, rows: &[Kernbench]) -> String {
    let rows = rows.iter().map(|row| kernbench::Row {
        label: row.label.to_owned(),
        elapsed_s: row.elapsed_s,
        system_s: row.system_s,
        user_s: row.user_and_cpu.map(|figures| figures.0),
        cpu_percent: row.user_and_cpu.map(|figures| figures.1),
    });
    kernbench::block(title, &rows.collect::<Vec<_>>())
}

/// An SDET block of percentages; a deviation that is not known stays empty.
/// `name` is what the workload is called: only the published one is SDET.
pub fn sdet(name: &str, scripts: u32, rows: &[(String, f64, Option<f64>)]) -> String {
    let row = |(label, percent, deviation): &(String, f64, Option<f64>)| sdet::Row {
        label: label.clone(),
        throughput_percent: *percent,
        deviation_percent: *deviation,
    };
    let title = format!("{name} {scripts}  (see disclaimer)");
    sdet::block(&title, &rows.iter().map(row).collect::<Vec<_>>())
}

/// Profile lines, with the mark of what the post left out between those that
/// grew and those that shrank.
pub fn diffprofile(lines: &[ProfileLine]) -> String {
    let mut text = String::new();
    let mut grew = true;
    for (ticks, percent, name) in lines {
        if grew && *ticks < 0 {
            text.push_str("...\n");
            grew = false;
        }
        let _ = writeln!(text, "{ticks:>10}  {percent:>6.1}% {name}");
    }
    text
}

/// Two texts side by side, the second right of the first's longest line.
pub fn beside(left: &str, right: &str) -> String {
    let width = left.lines().map(|line| line.chars().count()).max();
    let width = width.unwrap_or(0) + 3;
    let mut text = String::new();
    let (mut left, mut right) = (left.lines(), right.lines());
    loop {
        let line = match (left.next(), right.next()) {
            (None, None) => return text,
            (left, right) => {
                let (left, right) = (left.unwrap_or(""), right.unwrap_or(""));
                let blanks = width - left.chars().count();
                format!("{left}{:blanks$}{right}", "")
            }
        };
        text.push_str(line.trim_end());
        text.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::super::published;
    use super::*;

    #[test]
    fn the_posted_sdet_block_comes_out_byte_for_byte() {
        let rows: Vec<_> = published::SDET_2003[6]
            .iter()
            .zip(["2.5.65-mm2", "2.5.65-mm3"])
            .map(|((mean, sd), label)| (label.to_owned(), *mean, Some(*sd)))
            .collect();
        let posted = "\
SDET 64  (see disclaimer)
                           Throughput    Std. Dev
               2.5.65-mm2       100.0%         0.1%
               2.5.65-mm3       101.0%         0.4%
";
        assert_eq!(sdet("SDET", 64, &rows), posted);
    }

    #[test]
    fn the_posted_profile_lines_come_out_byte_for_byte() {
        let text = diffprofile(published::DIFFPROFILE_KERNBENCH);
        assert!(
            text.starts_with("       353     0.0% set_page_dirty\n"),
            "{text}"
        );
        let middle =
            "        31     4.9% handle_mm_fault\n...\n       -36   -80.0% profile_exit_mmap\n";
        assert!(text.contains(middle), "{text}");
        assert!(text.contains("      -330    -0.2% total\n"), "{text}");
    }

    #[test]
    fn texts_of_different_heights_stand_side_by_side() {
        assert_eq!(beside("a\nbbb\n", "c\n"), "a     c\nbbb\n");
        assert_eq!(beside("a\n", "c\ndd\n"), "a   c\n    dd\n");
    }
}
