//! What is wrong with a file.

use crate::kolivas;

/// What is wrong with a file, and where.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{file}{}: {what}", line.map_or_else(String::new, |line| format!(", line {line}")))]
pub struct Error {
    /// The file.
    pub file: String,
    /// The line, from 1 on, if it is one that is wrong.
    pub line: Option<usize>,
    /// What is wrong.
    pub what: Wrong,
}

/// What can be wrong.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Wrong {
    /// No line has numbers.
    #[error("there are no numbers in it")]
    Empty,
    /// A row ends too early.
    #[error("{}; column {wanted} should be {what}", there_are(*.columns))]
    TooShort {
        /// Columns it has.
        columns: usize,
        /// The column that is missing.
        wanted: usize,
        /// What was expected there.
        what: &'static str,
    },
    /// A row has more columns than it may.
    #[error("{}; expected {wanted}: {what}", there_are(*.columns))]
    TooLong {
        /// Columns it has.
        columns: usize,
        /// Columns it may have.
        wanted: usize,
        /// Which they are.
        what: &'static str,
    },
    /// Something is no number.
    #[error("column {column} is `{text}`; expected {what}, as in {example}")]
    NoNumber {
        /// The column.
        column: usize,
        /// What is there.
        text: String,
        /// What was expected.
        what: &'static str,
        /// Such a thing.
        example: &'static str,
    },
    /// The first row has another text where it should name columns.
    #[error("no column is called `{name}`; this row names the columns {}", names.join(", "))]
    NoSuchName {
        /// The name.
        name: String,
        /// What there is.
        names: Vec<String>,
    },
    /// The first row of numbers is one of names.
    #[error(
        "column {column} is `{text}`; expected a number, as in 12.5 (if this row names the \
             columns, choose them by name)"
    )]
    PerhapsNames {
        /// The column.
        column: usize,
        /// What is there.
        text: String,
    },
    /// A row is unlike those before it.
    #[error("this is no line of time(1), as those before it are; expected {example}")]
    NotTime {
        /// Such a line.
        example: &'static str,
    },
    /// What kernbench writes when it is done.
    #[error(
        "this is a log of kernbench: it has means and deviations, not the samples that they are \
         of; give the times of the builds, as `vellum bench kernbench --runs-out FILE` writes them"
    )]
    KernbenchLog,
    /// A load that kernbench does not know.
    #[error("column 1: {0}")]
    NoLoad(#[from] kolivas::NoSuchLoad),
    /// Nothing says what load a row is of.
    #[error("column 1 is a number; kernbench needs the load there, as in optimal-16")]
    LoadMissing,
}

fn there_are(columns: usize) -> String {
    match columns {
        1 => "there is 1 column".to_owned(),
        n => format!("there are {n} columns"),
    }
}
