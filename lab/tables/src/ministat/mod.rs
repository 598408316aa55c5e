//! ministat: do the means of two sets of samples differ?
//!
//! A line of figures for each set, and for each but the first the difference of
//! its mean to that of the first: `Difference at 95.0% confidence` with its
//! interval if Student's t says so, else `No difference proven`. Both sets are
//! taken to have the same variance, which is estimated from both.
//!
//! `compat` is for comparing with ministat of FreeBSD 14 where it is wrong:
//!
//! * Its table of t has values for 99.8 % in the column for 99.5 %, so that it
//!   proves too little there. Above 100 degrees of freedom it takes the normal
//!   distribution, so that intervals are up to 1.3 % too narrow.
//! * A set that piles up less high than one before it cuts that one's highest
//!   points off the plot.

mod plot;

pub use plot::Plot;

use std::fmt::Write;

use crate::number::general;
use crate::series::{self, Mismatch};
pub use crate::student::Confidence;
use crate::{Series, student, summary};

/// What stands for each set, in the plot and before its figures.
const SYMBOLS: [char; 7] = ['x', '+', '*', '%', '#', '@', 'O'];

/// Sets that there are symbols for.
pub const MOST_SETS: usize = SYMBOLS.len();

/// Samples that a set needs.
pub const LEAST_SAMPLES: usize = 3;

/// What is printed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// Of the verdicts.
    pub confidence: Confidence,
    /// The plot, if there is to be one.
    pub plot: Option<Plot>,
    /// Whether there are verdicts.
    pub verdicts: bool,
    /// As ministat prints it, mistakes included.
    pub compat: bool,
}

/// A plot as ministat has it where the output is no terminal, and verdicts at
/// 95 %.
impl Default for Options {
    fn default() -> Self {
        Self {
            confidence: Confidence::P95,
            plot: Some(Plot::default()),
            verdicts: true,
            compat: false,
        }
    }
}

/// Sets cannot be compared.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Error {
    /// They do not fit beside each other.
    #[error(transparent)]
    Mismatch(#[from] Mismatch),
    /// There are more than symbols.
    #[error("{0} sets are more than ministat has symbols for; it has {MOST_SETS}")]
    TooMany(
        /// How many there are.
        usize,
    ),
    /// A set is too small.
    #[error("{name} has {}; at least {LEAST_SAMPLES} are needed", counted(*.samples))]
    TooFew {
        /// The set.
        name: String,
        /// How many it has.
        samples: usize,
    },
}

fn counted(samples: usize) -> String {
    match samples {
        1 => "1 sample".to_owned(),
        n => format!("{n} samples"),
    }
}

/// The block for each operation, the first set being the base. Where there are
/// several operations, or they have names, the name is on a line above each block
/// and an empty line below it.
///
/// # Errors
/// There are no sets, too many, too small ones, or they have different
/// operations.
pub fn block(sets: &[Series], options: &Options) -> Result<String, Error> {
    series::check(sets)?;
    if sets.len() > MOST_SETS {
        return Err(Error::TooMany(sets.len()));
    }
    let operations = &sets[0].operations;
    let one = |name: &str| -> Result<String, Error> {
        let set = |set: &Series| Set::new(set, name);
        let sets: Vec<Set> = sets.iter().map(set).collect::<Result<_, _>>()?;
        Ok(of_one(&sets, options))
    };
    if let [only] = operations.as_slice()
        && only.name.is_empty()
    {
        return one("");
    }
    let blocks = operations.iter().map(|operation| {
        let block = one(&operation.name)?;
        Ok(format!("{}\n{block}", operation.name))
    });
    Ok(blocks.collect::<Result<Vec<_>, Error>>()?.join("\n"))
}

/// A set with the figures that are printed of it.
struct Set {
    name: String,
    /// Ascending.
    points: Vec<f64>,
    median: f64,
    mean: f64,
    variance: f64,
}

impl Set {
    fn new(series: &Series, operation: &str) -> Result<Self, Error> {
        let samples = series.samples(operation).unwrap_or(&[]);
        if samples.len() < LEAST_SAMPLES {
            let name = match operation {
                "" => series.name.clone(),
                operation => format!("{operation} of {}", series.name),
            };
            return Err(Error::TooFew {
                name,
                samples: samples.len(),
            });
        }
        Ok(Self {
            name: series.name.clone(),
            points: summary::ascending(samples),
            median: summary::median(samples).unwrap_or(0.0),
            mean: summary::mean(samples).unwrap_or(0.0),
            variance: summary::variance(samples).unwrap_or(0.0),
        })
    }

    fn count(&self) -> f64 {
        self.points.len() as f64
    }

    fn deviation(&self) -> f64 {
        self.variance.sqrt()
    }
}

fn of_one(sets: &[Set], options: &Options) -> String {
    let mut text = String::new();
    for (symbol, set) in SYMBOLS.iter().zip(sets) {
        let _ = writeln!(text, "{symbol} {}", set.name);
    }
    if let Some(plot) = &options.plot {
        text += &plot::draw(plot, sets, options.compat);
    }
    text += "    N           Min           Max        Median           Avg        Stddev\n";
    for (index, set) in sets.iter().enumerate() {
        let _ = write!(text, "{} {:3}", SYMBOLS[index], set.points.len());
        let figures = [
            set.points[0],
            set.points[set.points.len() - 1],
            set.median,
            set.mean,
            set.deviation(),
        ];
        for value in figures {
            let _ = write!(text, " {:>13}", general(value, 8));
        }
        text.push('\n');
        if index > 0 && options.verdicts {
            text += &Difference::new(set, &sets[0], options).text(options.confidence);
        }
    }
    text
}

/// How the mean of a set differs from that of the base.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Difference {
    /// The difference of the means.
    pub value: f64,
    /// Half the width of its interval.
    pub error: f64,
    /// The difference in percent of the base's mean.
    pub percent: f64,
    /// Half the width of the interval of that. The mean of the base, which is
    /// divided by, is uncertain as well.
    pub percent_error: f64,
    /// The standard deviation estimated from both sets.
    pub pooled: f64,
}

impl Difference {
    fn new(set: &Set, base: &Set, options: &Options) -> Self {
        let (n, m) = (set.count(), base.count());
        let freedom = set.points.len() + base.points.len() - 2;
        let t = student::quantile(freedom, options.confidence, options.compat);
        let freedom = freedom as f64;
        let (of_set, of_base) = ((n - 1.0) * set.variance, (m - 1.0) * base.variance);
        let pooled = ((of_set + of_base) / freedom).sqrt();
        let ratio = set.mean / base.mean;
        let relative = (of_set + of_base * ratio * ratio) * (n + m) / (n * m * freedom);
        let value = set.mean - base.mean;
        Self {
            value,
            error: t * pooled * (1.0 / n + 1.0 / m).sqrt(),
            percent: value * 100.0 / base.mean,
            percent_error: t * relative.sqrt() * 100.0 / base.mean,
            pooled,
        }
    }

    /// Of samples, at least two of each, against those of a base; nothing if there
    /// are fewer.
    pub fn of(samples: &[f64], base: &[f64], options: &Options) -> Option<Self> {
        let set = |samples: &[f64]| {
            Some(Set {
                name: String::new(),
                points: summary::ascending(samples),
                median: summary::median(samples)?,
                mean: summary::mean(samples)?,
                variance: summary::variance(samples)?,
            })
        };
        Some(Self::new(&set(samples)?, &set(base)?, options))
    }

    /// Whether the interval excludes 0.
    pub fn is_proven(&self) -> bool {
        self.value.abs() > self.error
    }

    fn text(&self, confidence: Confidence) -> String {
        let percent = confidence.percent();
        if !self.is_proven() {
            return format!("No difference proven at {percent:.1}% confidence\n");
        }
        let [value, error, relative, relative_error, pooled] = [
            self.value,
            self.error,
            self.percent,
            self.percent_error,
            self.pooled,
        ]
        .map(|value| general(value, 6));
        format!(
            "Difference at {percent:.1}% confidence\n\t{value} +/- {error}\n\t{relative}% +/- \
             {relative_error}%\n\t(Student's t, pooled s = {pooled})\n"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIGURES: Options = Options {
        confidence: Confidence::P95,
        plot: None,
        verdicts: true,
        compat: false,
    };

    #[test]
    fn what_cannot_be_compared_is_refused() {
        let said = |sets: &[Series]| block(sets, &FIGURES).expect_err("refused").to_string();
        let small = Series::single("b", [1.0, 2.0]);
        assert_eq!(said(&[small]), "b has 2 samples; at least 3 are needed");
        let one = Series::single("b", [1.0]);
        assert_eq!(said(&[one]), "b has 1 sample; at least 3 are needed");
        let set = Series::single("a", [1.0, 2.0, 3.0]);
        assert!(said(&vec![set; 8]).contains("it has 7"));
        assert_eq!(said(&[]), "there are no samples");
    }

    #[test]
    fn operations_have_blocks_of_their_own() {
        let operation = |name: &str, factor: f64| crate::Operation {
            name: name.to_owned(),
            samples: [1.0, 2.0, 3.0].map(|x| x * factor).to_vec(),
        };
        let set = |name: &str, factor| Series {
            name: name.to_owned(),
            operations: vec![operation("real", factor), operation("sys", 1.0)],
        };
        let text = block(&[set("a", 1.0), set("b", 100.0)], &FIGURES).expect("blocks");
        assert!(text.starts_with("real\nx a\n+ b\n    N "), "{text}");
        assert_eq!(text.matches("\n\nsys\nx a\n").count(), 1, "{text}");
        assert!(text.ends_with("No difference proven at 95.0% confidence\n"));
    }
}
