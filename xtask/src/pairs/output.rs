//! Reads the figures that a benchmark of the core prints for people.
//!
//! All of them print a line for each row: its name, then figures in columns that are two blanks
//! or more apart, each perhaps with one word for its unit, and in parentheses what else is known
//! of the figure. Rows stand below headings, which have no figure.

use std::collections::BTreeMap;

/// A figure: what it is of, and the number of its column.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Name {
    /// The heading of several tables, the heading of the table, and the name of the row.
    pub row: String,
    pub column: usize,
}

/// The figures of one run, in the order in which they were printed.
#[derive(Default, Debug)]
pub struct Figures {
    pub order: Vec<Name>,
    pub values: BTreeMap<Name, f64>,
}

impl Figures {
    pub fn read(text: &str) -> Figures {
        let mut figures = Figures::default();
        let (mut part, mut heading) = (String::new(), String::new());
        for line in text.lines() {
            let cells = cells(line);
            let Some((&name, rest)) = cells.split_first() else {
                continue;
            };
            if let Some(title) = name.strip_prefix("=== ") {
                part = format!("{}: ", title.split([':', ',']).next().unwrap_or(title));
                heading.clear();
                continue;
            }
            let values: Vec<f64> = rest.iter().map_while(|cell| figure(cell)).collect();
            if values.is_empty() && !line.starts_with(' ') {
                heading.clear();
                if rest.is_empty() {
                    heading = format!("{name}: ");
                }
            }
            for (column, value) in values.into_iter().enumerate() {
                let row = match line.starts_with(' ') {
                    true => format!("{part}{heading}{name}"),
                    false => format!("{part}{name}"),
                };
                let name = Name { row, column };
                if figures.values.insert(name.clone(), value).is_none() {
                    figures.order.push(name);
                }
            }
        }
        figures
    }
}

/// The cells of a line, without what is in parentheses.
fn cells(line: &str) -> Vec<&str> {
    // A parenthesis at the beginning is a name.
    let begin = line.len() - line.trim_start().len();
    let mut cells = Vec::new();
    let mut rest = &line[begin..];
    let mut is_first = true;
    while !rest.is_empty() {
        let end = match (rest.find("  "), rest.find(" (")) {
            (Some(gap), Some(open)) if !is_first => gap.min(open),
            (None, Some(open)) if !is_first => open,
            (gap, _) => gap.unwrap_or(rest.len()),
        };
        cells.push(rest[..end].trim());
        rest = rest[end..].trim_start();
        is_first = false;
        if let Some(inner) = rest.strip_prefix('(') {
            rest = inner.split_once(')').map_or("", |(_, after)| after);
            rest = rest.trim_start();
        }
    }
    cells.retain(|cell| !cell.is_empty());
    cells
}

/// A positive number, perhaps with one word for its unit.
fn figure(cell: &str) -> Option<f64> {
    let mut words = cell.split(' ');
    let value: f64 = words.next()?.parse().ok()?;
    let unit = words.next().unwrap_or("");
    let is_unit = !unit.ends_with([',', ';']) && words.next().is_none();
    (is_unit && value.is_finite() && value > 0.0).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Vec<(String, usize, f64)> {
        let figures = Figures::read(text);
        let value = |name: &Name| (name.row.clone(), name.column, figures.values[name]);
        figures.order.iter().map(value).collect()
    }

    #[test]
    fn a_row_has_a_median_and_what_else_is_known_of_it() {
        let text = "\
write fault, 4 MiB set reused, chains    152.45 ns      (139.88 .. 932.51)  bar 150 missed  4096 bytes zeroed
two threads of one space against one (1.7 or more)             2.00 x       (1.13 .. 2.82)  faults only
";
        let rows = read(text);
        assert_eq!(
            rows,
            [
                (
                    "write fault, 4 MiB set reused, chains".to_owned(),
                    0,
                    152.45
                ),
                (
                    "two threads of one space against one (1.7 or more)".to_owned(),
                    0,
                    2.0
                ),
            ]
        );
    }

    #[test]
    fn a_table_has_several_columns_below_a_heading() {
        let text = "\
ns an entry, median (fastest); hot
                                     add       duplicate
(mapping count alone)        1.6 (  1.3)     3.2 (  2.6)
rmap=chains                 11.6 (  9.2)    30.4 ( 25.2)
";
        let rows = read(text);
        assert_eq!(
            rows,
            [
                ("(mapping count alone)".to_owned(), 0, 1.6),
                ("(mapping count alone)".to_owned(), 1, 3.2),
                ("rmap=chains".to_owned(), 0, 11.6),
                ("rmap=chains".to_owned(), 1, 30.4),
            ]
        );
    }

    #[test]
    fn rows_of_the_same_name_are_told_apart_by_their_headings() {
        let text = "
=== x86-64: tables of 4 KiB

table taken, ns
  fresh       82.3  (80.9 .. 108.2)   fresh takes 1.00 times as long (1.00 .. 1.00)

fault, ns
  fresh      111.5  (109.6 .. 381.3)   fresh takes 1.00 times as long (1.00 .. 1.00)
  fresh              25664 tables, 0.0 % not zeroed

=== private pages, stored to, ns a page
  fresh      157.7 fault      82.1 use     239.8 both; 0.1 in idle time
";
        let rows = read(text);
        assert_eq!(
            rows,
            [
                ("x86-64: table taken, ns: fresh".to_owned(), 0, 82.3),
                ("x86-64: fault, ns: fresh".to_owned(), 0, 111.5),
                ("private pages: fresh".to_owned(), 0, 157.7),
                ("private pages: fresh".to_owned(), 1, 82.1),
            ]
        );
    }
}
