//! Rows as CSV (RFC 4180, line ends as on Unix): a line of column names, then
//! a line for each event. What an event does not have is empty; flags are
//! `true` and `false`; texts with commas, quotes or line ends stand in quotes.

use std::io::{self, Write};

use super::rows::{COLUMNS, Row, Value};

/// Writes the line of column names.
///
/// # Errors
/// `out` cannot be written to.
pub fn head(out: &mut impl Write) -> io::Result<()> {
    let names: Vec<&str> = COLUMNS.iter().map(|column| column.name).collect();
    writeln!(out, "{}", names.join(","))
}

/// Writes a row.
///
/// # Errors
/// `out` cannot be written to.
pub fn row(out: &mut impl Write, row: &Row<'_>) -> io::Result<()> {
    for (index, column) in COLUMNS.iter().enumerate() {
        if index > 0 {
            out.write_all(b",")?;
        }
        match (column.get)(row) {
            Some(Value::Number(number)) => write!(out, "{number}")?,
            Some(Value::Flag(flag)) => write!(out, "{flag}")?,
            Some(Value::Text(text)) => field(out, text)?,
            None => {}
        }
    }
    out.write_all(b"\n")
}

fn field(out: &mut impl Write, text: &str) -> io::Result<()> {
    if text.contains([',', '"', '\n', '\r']) {
        return write!(out, "\"{}\"", text.replace('"', "\"\""));
    }
    out.write_all(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_quoted_only_where_they_must_be() {
        let mut out = Vec::new();
        for text in ["plain path", "a,b", "say \"x\""] {
            field(&mut out, text).unwrap();
            out.push(b'\n');
        }
        assert_eq!(out, b"plain path\n\"a,b\"\n\"say \"\"x\"\"\"\n");
    }
}
