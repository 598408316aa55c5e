//! Samples of our own in the formats in which others publish theirs.

use vellum_results::bench::Block;
use vellum_tables::{Series, ministat, mmtests};

/// A format that takes times of several arms.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Format {
    /// Statistics of the passes against those of A, in percent, as mmtests has
    /// them
    Mmtests,
    /// Whether the means of the passes differ, by Student's t
    Ministat,
}

impl Format {
    /// Whether the format can show `passes` of `arms`.
    ///
    /// # Errors
    /// It cannot; the text says what it can.
    pub fn takes(self, arms: usize, passes: usize) -> Result<(), String> {
        let (most, least) = (ministat::MOST_SETS, ministat::LEAST_SAMPLES);
        match self {
            Format::Ministat if arms > most => Err(format!(
                "ministat compares {most} sets at most, and the designs with the control are {arms}"
            )),
            Format::Ministat if passes < least => Err(format!(
                "ministat needs at least {least} samples: take -n {least} or more"
            )),
            _ => Ok(()),
        }
    }
}

/// Columns of a name that stands above a column of mmtests' table with room
/// before it.
const NAME: usize = 21;

/// What stands above an arm's column.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Arm {
    heading: [String; 2],
}

impl Arm {
    /// The arm called `label`, which is `design` if that is to be shown.
    pub fn new(label: &str, design: Option<&str>) -> Self {
        let design = design.filter(|design| design.chars().count() <= NAME);
        Self {
            heading: [label.to_owned(), design.unwrap_or("").to_owned()],
        }
    }

    fn name(&self) -> String {
        let [label, design] = &self.heading;
        format!("{label} {design}").trim_end().to_owned()
    }
}

/// A time under every arm.
#[derive(Clone, PartialEq, Debug)]
pub struct Figure {
    /// What was timed.
    pub name: String,
    /// What one unit of it is.
    pub per: String,
    /// Nanoseconds of a unit, by arm and pass.
    pub ns: Vec<Vec<f64>>,
}

/// The table of `arms` in a block as mmtests printed it in the year of `edition`.
pub fn block_table(block: &Block, edition: mmtests::Edition, arms: &[Arm]) -> String {
    let columns = arms.iter().enumerate().map(|(arm, named)| mmtests::Column {
        heading: named.heading.clone(),
        series: Series {
            name: named.name(),
            operations: block
                .operations
                .iter()
                .map(|operation| vellum_tables::Operation {
                    name: operation.name.clone(),
                    samples: operation.samples.get(arm).cloned().unwrap_or_default(),
                })
                .collect(),
        },
    });
    let options = mmtests::Options {
        edition,
        higher_is_better: block.higher_is_better,
        precision: 4,
        value: block.value.clone(),
        ..mmtests::Options::default()
    };
    let table = mmtests::table(&columns.collect::<Vec<_>>(), &options);
    let table = table.unwrap_or_else(|error| format!("{error}\n"));
    format!("{}\n{table}", block.title)
}

/// What a time is shown in: divisor and name.
pub fn unit(ns: f64) -> (f64, &'static str) {
    match ns {
        ns if ns < 1e5 => (1.0, "ns"),
        ns if ns < 1e8 => (1e3, "us"),
        ns if ns < 1e10 => (1e6, "ms"),
        _ => (1e9, "s"),
    }
}

/// The figures in one format, an operation each. What the format cannot show is
/// said instead.
pub fn table(format: Format, arms: &[Arm], figures: &[Figure]) -> String {
    let series: Vec<Series> = (0..arms.len())
        .map(|arm| series(arms, arm, figures))
        .collect();
    let table = match format {
        Format::Mmtests => {
            let columns = arms
                .iter()
                .zip(series)
                .map(|(arm, series)| mmtests::Column {
                    heading: arm.heading.clone(),
                    series,
                });
            let columns: Vec<mmtests::Column> = columns.collect();
            let table = mmtests::table(&columns, &mmtests::Options::default());
            table.map_err(|error| error.to_string())
        }
        Format::Ministat => {
            let block = ministat::block(&series, &ministat::Options::default());
            block.map_err(|error| error.to_string())
        }
    };
    table.unwrap_or_else(|error| format!("{error}\n"))
}

fn series(arms: &[Arm], arm: usize, figures: &[Figure]) -> Series {
    let operation = |figure: &Figure| {
        let first = figure.ns.first().and_then(|passes| passes.first());
        let (divisor, unit) = unit(first.copied().unwrap_or(0.0));
        let passes = figure.ns.get(arm).map_or(&[][..], Vec::as_slice);
        vellum_tables::Operation {
            name: format!("{}, {unit} per {}", figure.name, figure.per),
            samples: passes.iter().map(|ns| ns / divisor).collect(),
        }
    };
    Series {
        name: arms[arm].name(),
        operations: figures.iter().map(operation).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_shown_in_a_unit_that_suits_them() {
        assert_eq!(unit(35.2).1, "ns");
        assert_eq!(unit(250_000.0).1, "us");
        assert_eq!(unit(2e9).1, "ms");
        assert_eq!(unit(44e9).1, "s");
    }

    fn figure(a: [f64; 3], b: [f64; 3]) -> Figure {
        Figure {
            name: "fork".to_owned(),
            per: "child".to_owned(),
            ns: vec![a.to_vec(), b.to_vec()],
        }
    }

    fn arms() -> [Arm; 2] {
        let long = "rmap=anon_vma_chain,superpage=off";
        [
            Arm::new("A", Some("rmap=chains")),
            Arm::new("B", Some(long)),
        ]
    }

    #[test]
    fn passes_are_the_samples_of_mmtests() {
        let figures = [figure([2e5, 3e5, 4e5], [1e5, 1e5, 1e5])];
        let text = table(Format::Mmtests, &arms(), &figures);
        let expected = "
                                                  A                      B
                                        rmap=chains
Min       fork, us per child      200.00 (   0.00%)      100.00 (  50.00%)
Amean     fork, us per child      300.00 (   0.00%)      100.00 *  66.67%*
";
        let lines = text.lines().map(|line| line.trim_end().to_owned() + "\n");
        let begin = "\n".to_owned() + &lines.collect::<String>();
        assert!(begin.starts_with(expected), "{begin}");
    }

    #[test]
    fn passes_are_the_samples_of_ministat() {
        let figures = [figure([2.0, 3.0, 4.0], [20.0, 30.0, 40.0])];
        let text = table(Format::Ministat, &arms(), &figures);
        let begin = "fork, ns per child\nx A rmap=chains\n+ B\n+---";
        assert!(text.starts_with(begin), "{text}");
        let end = "Difference at 95.0% confidence\n\t27 +/- 16.1072\n";
        assert!(text.contains(end), "{text}");
    }

    #[test]
    fn what_ministat_cannot_show_is_said_before_and_after() {
        assert!(Format::Ministat.takes(8, 6).is_err());
        assert!(Format::Ministat.takes(3, 2).is_err());
        assert_eq!(Format::Ministat.takes(7, 3), Ok(()));
        assert_eq!(Format::Mmtests.takes(8, 1), Ok(()));
        let cut_short = Figure {
            ns: vec![vec![1.0], vec![1.0]],
            ..figure([0.0; 3], [0.0; 3])
        };
        let text = table(Format::Ministat, &arms(), &[cut_short]);
        assert!(text.contains("has 1 sample; at least 3"), "{text}");
    }
}
