//! Runs of a build as FreeBSD's `time` prints them, and what ministat says of designs.

use std::fmt::Write;

use vellum_tables::{Operation, Series, freebsd_time, ministat};

/// The runs of a build under one design.
#[derive(Clone, PartialEq, Debug)]
pub struct Builds {
    /// What the design is called.
    pub name: String,
    /// Wall-clock, user and system seconds of each run.
    pub runs: Vec<[f64; 3]>,
}

impl Builds {
    fn series(&self) -> Series {
        let operation = |(column, name): (usize, &&str)| Operation {
            name: (*name).to_owned(),
            samples: self.runs.iter().map(|run| run[column]).collect(),
        };
        let columns = freebsd_time::COLUMNS.iter().enumerate();
        Series {
            name: self.name.clone(),
            operations: columns.map(operation).collect(),
        }
    }
}

/// The lines of every design below its name, and then its differences from the first
/// design in real, user and system time.
pub fn block(title: &str, builds: &[Builds]) -> String {
    let mut text = format!("{title}\n");
    let series: Vec<Series> = builds.iter().map(Builds::series).collect();
    for builds in builds {
        let lines = builds.runs.iter();
        let lines = lines.map(|[real, user, sys]| freebsd_time::line(*real, *user, *sys) + "\n");
        let _ = write!(text, "{}\n{}", builds.name, lines.collect::<String>());
    }
    if builds.len() > 1 {
        match ministat::block(&series, &ministat::Options::default()) {
            Ok(verdicts) => text += &format!("\n{verdicts}"),
            Err(error) => text += &format!("\nno verdict: {error}\n"),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn builds(name: &str, runs: &[[f64; 3]]) -> Builds {
        Builds {
            name: name.to_owned(),
            runs: runs.to_vec(),
        }
    }

    /// The first machine of Belousov, 29 March 2020.
    #[test]
    fn the_published_runs_give_the_published_lines_and_verdicts() {
        let stock = builds(
            "stock",
            &[
                [237.53, 6782.41, 567.74],
                [238.08, 6769.18, 569.86],
                [237.39, 6783.97, 570.91],
            ],
        );
        let patched = builds(
            "patched",
            &[
                [227.86, 6730.43, 307.43],
                [226.40, 6737.99, 304.76],
                [227.33, 6733.44, 305.36],
            ],
        );
        let text = block("make -s -j 40", &[stock, patched]);
        let first = "make -s -j 40\nstock\n      237.53 real      6782.41 user       567.74 sys\n";
        assert!(text.starts_with(first), "{text}");
        for part in [
            "\npatched\n      227.86 real      6730.43 user       307.43 sys\n",
            "\nreal\nx stock\n+ patched\n",
            "\t-10.47 +/- 1.32093\n",
            "\nsys\nx stock\n",
            "\t-263.653 +/- 3.42621\n\t-46.2953% +/- 0.463659%\n",
        ] {
            assert!(text.contains(part), "{part} in\n{text}");
        }
    }

    #[test]
    fn one_design_has_lines_alone_and_too_few_runs_no_verdict() {
        let one = builds("6.18", &[[1.0, 2.0, 3.0]]);
        let alone = block("make", std::slice::from_ref(&one));
        assert_eq!(
            alone,
            "make\n6.18\n        1.00 real         2.00 user         3.00 sys\n"
        );
        let both = block("make", &[one.clone(), one]);
        assert!(
            both.contains("no verdict: real of 6.18 has 1 sample"),
            "{both}"
        );
    }
}
