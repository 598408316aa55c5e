//! Columns of numbers in text files.
//!
//! Each line is a row of columns, divided by blanks and tabs or by other
//! characters, but not within double quotes. From a column that begins with `#` on, the rest of a line is a
//! comment; empty lines count for nothing. Columns are chosen by number, from 1 on,
//! or by name. Then the first row names them.
//!
//! A file whose rows look like what `time` of BSD prints (`237.53 real 6782.41 user
//! 567.74 sys`) has the columns `real`, `user` and `sys`.

mod builds;
mod error;
mod fields;

pub use error::{Error, Wrong};

use std::fmt;
use std::str::FromStr;

use crate::freebsd_time;
use crate::kolivas::{Group, Load};
use crate::series::Operation;

/// A column.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Column {
    /// By its number, from 1 on.
    Number(usize),
    /// By its name in the first row.
    Name(String),
}

impl fmt::Display for Column {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Column::Number(number) => write!(f, "{number}"),
            Column::Name(name) => write!(f, "{name}"),
        }
    }
}

/// A text names no column.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("`{0}` is no column; write its number, from 1 on, or its name in the first row")]
pub struct NoSuchColumn(
    /// The text.
    pub String,
);

impl FromStr for Column {
    type Err = NoSuchColumn;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let number = !text.is_empty() && text.chars().all(|c| c.is_ascii_digit());
        match (number, text.parse()) {
            (true, Ok(number)) if number > 0 => Ok(Column::Number(number)),
            (false, _) if !text.is_empty() => Ok(Column::Name(text.to_owned())),
            _ => Err(NoSuchColumn(text.to_owned())),
        }
    }
}

/// A column with samples, and what is measured in it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Values {
    /// The column.
    pub column: Column,
    /// What its operation is called.
    pub operation: Option<String>,
}

/// From `COLUMN` or `COLUMN=OPERATION`.
impl FromStr for Values {
    type Err = NoSuchColumn;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (column, operation) = match text.split_once('=') {
            Some((column, operation)) => (column, Some(operation.to_owned())),
            None => (text, None),
        };
        Ok(Self {
            column: column.parse()?,
            operation,
        })
    }
}

/// How files are read.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Columns {
    /// The characters that divide columns; blanks and tabs if there are none.
    /// Several blanks and tabs in a row divide once, of others each divides.
    pub delimiters: String,
    /// The columns with samples. Without any it is the first, or with `operation`
    /// the first other one; of lines of `time` all three.
    pub values: Vec<Values>,
    /// The column that says which operation a row is a sample of.
    pub operation: Option<Column>,
}

const A_NUMBER: (&str, &str) = ("a number", "12.5");

/// A row that is no comment, with the number of its line.
struct Row<'t> {
    line: usize,
    fields: Vec<&'t str>,
}

impl Columns {
    fn rows<'t>(&self, text: &'t str) -> Vec<Row<'t>> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let lines = (1..).zip(text.lines());
        let row = |(line, text): (usize, &'t str)| {
            let mut fields = fields::divided(text, &self.delimiters);
            let comment = fields.iter().position(|field| field.starts_with('#'));
            fields.truncate(comment.unwrap_or(fields.len()));
            let fields: Vec<&str> = fields.into_iter().map(fields::unquoted).collect();
            let is_empty = fields.iter().all(|field| field.is_empty());
            (!is_empty).then_some(Row { line, fields })
        };
        lines.filter_map(row).collect()
    }

    /// The samples in `text`, which is the content of `file`, by operation in the
    /// order in which these first come.
    ///
    /// An operation is called by what the operation column has, by the name of the
    /// column of its samples (its own, or that given with it), or by both, joined by
    /// a hyphen. With one column chosen by number and no operation column it has no
    /// name.
    ///
    /// # Errors
    /// A column is missing or is no finite number; there are no numbers.
    pub fn parse(&self, file: &str, text: &str) -> Result<Vec<Operation>, Error> {
        let reader = Reader {
            columns: self,
            file,
        };
        reader.is_no_log(text)?;
        let rows = self.rows(text);
        let Some(first) = rows.first() else {
            return Err(reader.error(None, Wrong::Empty));
        };
        let by_number = self
            .values
            .iter()
            .any(|v| matches!(v.column, Column::Number(_)))
            || matches!(self.operation, Some(Column::Number(_)));
        if is_time(first) && !by_number {
            return reader.time(&rows);
        }
        reader.columns(&rows)
    }

    /// The builds that kernbench timed, by load in the order in which these first
    /// come: rows of the load ([`Load`]) and the six columns of
    /// [`Run`](crate::kolivas::Run); without the load where `load` is that of all rows.
    ///
    /// # Errors
    /// A row is another, or there is none.
    pub fn kernbench(
        &self,
        file: &str,
        text: &str,
        load: Option<Load>,
    ) -> Result<Vec<Group>, Error> {
        let reader = Reader {
            columns: self,
            file,
        };
        reader.is_no_log(text)?;
        let rows = self.rows(text);
        let mut groups: Vec<Group> = Vec::new();
        for row in &rows {
            let (load, run) = reader.kernbench(row, load)?;
            match groups.iter_mut().find(|group| group.load == load) {
                Some(group) => group.runs.push(run),
                None => groups.push(Group {
                    load,
                    runs: vec![run],
                }),
            }
        }
        match groups.is_empty() {
            true => Err(reader.error(None, Wrong::Empty)),
            false => Ok(groups),
        }
    }
}

/// A line of `time`, for messages.
const TIME: &str = "`237.53 real 6782.41 user 567.74 sys`";

fn is_time(row: &Row<'_>) -> bool {
    let names = row.fields.iter().skip(1).step_by(2);
    row.fields.len() == 6 && names.eq(freebsd_time::COLUMNS.iter())
}

/// Reads one file.
struct Reader<'r> {
    columns: &'r Columns,
    file: &'r str,
}

impl Reader<'_> {
    fn error(&self, line: Option<usize>, what: Wrong) -> Error {
        Error {
            file: self.file.to_owned(),
            line,
            what,
        }
    }

    /// Refuses what kernbench writes of its runs, which begins with the kernel and the date.
    fn is_no_log(&self, text: &str) -> Result<(), Error> {
        let is_mean =
            |line: &str| line.starts_with("Average ") && line.contains("Run (std deviation)");
        match (1..).zip(text.lines()).find(|(_, line)| is_mean(line)) {
            Some((line, _)) => Err(self.error(Some(line), Wrong::KernbenchLog)),
            None => Ok(()),
        }
    }

    /// Refuses a row that has more columns than are named: it is not known which is which.
    fn is_named(&self, row: &Row<'_>, names: &Row<'_>) -> Result<(), Error> {
        let last = row.fields.iter().rposition(|field| !field.is_empty());
        let (columns, wanted) = (last.map_or(0, |last| last + 1), names.fields.len());
        let what = Wrong::TooLong {
            columns,
            wanted,
            what: "those that the first row names (double quotes keep what divides columns)",
        };
        match columns > wanted {
            true => Err(self.error(Some(row.line), what)),
            false => Ok(()),
        }
    }

    /// The field of column `column`, which is to hold `what`.
    fn field<'t>(
        &self,
        row: &Row<'t>,
        column: usize,
        what: &'static str,
    ) -> Result<&'t str, Error> {
        let field = row.fields.get(column - 1).copied();
        let missing = || Wrong::TooShort {
            columns: row.fields.len(),
            wanted: column,
            what,
        };
        field.ok_or_else(|| self.error(Some(row.line), missing()))
    }

    fn number(
        &self,
        row: &Row<'_>,
        column: usize,
        expected: (&'static str, &'static str),
    ) -> Result<f64, Error> {
        let field = self.field(row, column, expected.0)?;
        self.number_in(field, row, column, expected)
    }

    /// The number in `field`, which is column `column` or a part of it.
    fn number_in(
        &self,
        field: &str,
        row: &Row<'_>,
        column: usize,
        expected: (&'static str, &'static str),
    ) -> Result<f64, Error> {
        let number = field.parse().ok().filter(|number: &f64| number.is_finite());
        number.ok_or_else(|| self.no_number(field, row, column, expected))
    }

    fn no_number(
        &self,
        field: &str,
        row: &Row<'_>,
        column: usize,
        (what, example): (&'static str, &'static str),
    ) -> Error {
        let wrong = Wrong::NoNumber {
            column,
            text: field.to_owned(),
            what,
            example,
        };
        self.error(Some(row.line), wrong)
    }

    /// The number of a column; `names` is the row that names columns.
    fn find(&self, column: &Column, names: Option<&Row<'_>>) -> Result<usize, Error> {
        let (name, names) = match (column, names) {
            (Column::Number(number), _) => return Ok(*number),
            (Column::Name(name), Some(names)) => (name, names),
            (Column::Name(_), None) => return Err(self.error(None, Wrong::Empty)),
        };
        let place = names.fields.iter().position(|field| field == name);
        let missing = || Wrong::NoSuchName {
            name: name.clone(),
            names: names
                .fields
                .iter()
                .map(|field| format!("`{field}`"))
                .collect(),
        };
        match place {
            Some(place) => Ok(place + 1),
            None => Err(self.error(Some(names.line), missing())),
        }
    }

    fn columns(&self, rows: &[Row<'_>]) -> Result<Vec<Operation>, Error> {
        let Columns {
            values, operation, ..
        } = self.columns;
        let by_name = |column: &Column| matches!(column, Column::Name(_));
        let chosen = values.iter().map(|values| &values.column).chain(operation);
        let names = rows.first().filter(|_| chosen.into_iter().any(by_name));
        let rows = &rows[usize::from(names.is_some())..];
        let operation = match operation {
            Some(column) => Some(self.find(column, names)?),
            None => None,
        };
        let mut chosen = Vec::new();
        for value in values {
            let number = self.find(&value.column, names)?;
            let name = match (&value.operation, &value.column) {
                (Some(name), _) | (None, Column::Name(name)) => name.clone(),
                (None, Column::Number(_)) if values.len() == 1 => String::new(),
                (None, Column::Number(number)) => format!("column-{number}"),
            };
            chosen.push((number, name));
        }
        if chosen.is_empty() {
            let first = if operation == Some(1) { 2 } else { 1 };
            chosen.push((first, String::new()));
        }
        let mut operations = Operations::default();
        for (index, row) in rows.iter().enumerate() {
            if let Some(names) = names {
                self.is_named(row, names)?;
            }
            let of = match operation {
                Some(column) => self.field(row, column, "the name of an operation")?,
                None => "",
            };
            for (column, name) in &chosen {
                let sample = self.number(row, *column, A_NUMBER);
                let sample = sample.map_err(|error| match (index, error.what) {
                    (0, Wrong::NoNumber { column, text, .. })
                        if names.is_none() && text.contains(char::is_alphabetic) =>
                    {
                        self.error(error.line, Wrong::PerhapsNames { column, text })
                    }
                    (_, what) => self.error(error.line, what),
                })?;
                let name = match (of, name.as_str()) {
                    (one, "") | ("", one) => one.to_owned(),
                    // Of one column the operation says enough.
                    (of, _) if chosen.len() == 1 => of.to_owned(),
                    (of, name) => format!("{of}-{name}"),
                };
                operations.add(name, sample);
            }
        }
        match operations.0.is_empty() {
            true => Err(self.error(None, Wrong::Empty)),
            false => Ok(operations.0),
        }
    }

    fn time(&self, rows: &[Row<'_>]) -> Result<Vec<Operation>, Error> {
        let mut chosen: Vec<(usize, String)> = Vec::new();
        for value in &self.columns.values {
            let place = freebsd_time::COLUMNS
                .iter()
                .position(|name| matches!(&value.column, Column::Name(column) if column == name));
            let Some(place) = place else {
                let name = value.column.to_string();
                let names = freebsd_time::COLUMNS
                    .map(|name| format!("`{name}`"))
                    .to_vec();
                return Err(self.error(Some(rows[0].line), Wrong::NoSuchName { name, names }));
            };
            let name = value.operation.clone();
            let name = name.unwrap_or_else(|| freebsd_time::COLUMNS[place].to_owned());
            chosen.push((2 * place + 1, name));
        }
        if chosen.is_empty() {
            let all = (1..).step_by(2).zip(freebsd_time::COLUMNS);
            chosen.extend(all.map(|(column, name)| (column, name.to_owned())));
        }
        let mut operations = Operations::default();
        for row in rows {
            if !is_time(row) {
                return Err(self.error(Some(row.line), Wrong::NotTime { example: TIME }));
            }
            for (column, name) in &chosen {
                operations.add(name.clone(), self.number(row, *column, A_NUMBER)?);
            }
        }
        Ok(operations.0)
    }
}

/// Operations in the order in which they first come.
#[derive(Default)]
struct Operations(Vec<Operation>);

impl Operations {
    fn add(&mut self, name: String, sample: f64) {
        match self.0.iter_mut().find(|operation| operation.name == name) {
            Some(operation) => operation.samples.push(sample),
            None => self.0.push(Operation {
                name,
                samples: vec![sample],
            }),
        }
    }
}

#[cfg(test)]
mod tests;
