//! Tables that are texts with aligned columns, as kernbench, SDET, mmtests and this
//! program print them.
//!
//! The text stays what it is where it does not fit together: a table with a figure in a
//! wrong column would be worse than none.

use std::ops::Range;

use maud::{Markup, html};

use crate::grid::{Cell, Grid};

/// Text between gaps of two blanks or more, and the columns that it begins and ends at.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Piece {
    start: usize,
    end: usize,
    text: String,
}

/// The pieces of a line. Blanks in parentheses part nothing: `( 0.00%)` is one figure.
fn pieces(line: &str) -> Vec<Piece> {
    let mut pieces: Vec<Piece> = Vec::new();
    let mut depth = 0;
    let mut blanks = 2;
    for (place, letter) in line.chars().enumerate() {
        match letter {
            '(' => depth += 1,
            ')' if depth > 0 => depth -= 1,
            _ => {}
        }
        if letter == ' ' && depth == 0 {
            blanks += 1;
            continue;
        }
        if blanks > 1 {
            pieces.push(Piece {
                start: place,
                end: place,
                text: String::new(),
            });
        }
        if let Some(piece) = pieces.last_mut() {
            if blanks == 1 {
                piece.text.push(' ');
            }
            piece.text.push(letter);
            piece.end = place + 1;
        }
        blanks = 0;
    }
    pieces
}

/// The columns that rows have in common, as the range of places that each takes; none if
/// the rows do not have the same number of pieces, or pieces that are not aligned.
fn columns(rows: &[Vec<Piece>]) -> Option<Vec<Range<usize>>> {
    let first = rows.first()?;
    if first.len() < 2 || rows.iter().any(|row| row.len() != first.len()) {
        return None;
    }
    let column = |number: usize| {
        let pieces = || rows.iter().map(|row| &row[number]);
        let is_aligned = pieces().all(|piece| piece.end == first[number].end)
            || pieces().all(|piece| piece.start == first[number].start);
        let start = pieces().map(|piece| piece.start).min()?;
        let end = pieces().map(|piece| piece.end).max()?;
        is_aligned.then_some(start..end)
    };
    (0..first.len()).map(column).collect()
}

/// What a header says above each of the columns; none if a piece of it is not above
/// exactly one. In some formats it ends a place beside what it is above.
fn heads(header: &[Piece], columns: &[Range<usize>]) -> Option<Vec<String>> {
    let mut heads = vec![String::new(); columns.len()];
    for piece in header {
        let is_above = |column: &Range<usize>| piece.start < column.end && column.start < piece.end;
        let mut above = (0..columns.len()).filter(|number| is_above(&columns[*number]));
        match (above.next(), above.next()) {
            (Some(column), None) if heads[column].is_empty() => {
                heads[column].clone_from(&piece.text)
            }
            _ => return None,
        }
    }
    Some(heads)
}

/// The text as a table, if it is one: lines before it as a caption, a header, and two
/// rows at least, or one.
fn table(text: &str) -> Option<Grid> {
    let lines: Vec<Vec<Piece>> = text
        .lines()
        .map(|line| pieces(line.trim_end()))
        .filter(|pieces| !pieces.is_empty())
        .collect();
    // A title or two, then the header.
    for header in 0..lines.len().saturating_sub(1).min(3) {
        let (above, below) = lines.split_at(header + 1);
        let Some(columns) = columns(below) else {
            continue;
        };
        let Some(heads) = heads(&above[header], &columns) else {
            continue;
        };
        let caption: Vec<String> = above[..header]
            .iter()
            .flatten()
            .map(|piece| piece.text.clone())
            .collect();
        let mut grid = Grid::new(caption.join(" | "));
        let is_figure = |column: usize| {
            let mut texts = below.iter().map(|row| row[column].text.as_str());
            column > 0 && texts.all(|text| text == "-" || figure(text).is_some())
        };
        let figures: Vec<bool> = (0..columns.len()).map(is_figure).collect();
        for (head, is_figure) in heads.iter().zip(&figures) {
            grid = match is_figure {
                true => grid.number(head),
                false => grid.text(head),
            };
        }
        for row in below {
            let cells = row.iter().map(|piece| match figure(&piece.text) {
                Some(value) => Cell::number(value, &piece.text),
                None => Cell::text(&piece.text),
            });
            grid.row("", cells.collect());
        }
        return Some(grid);
    }
    None
}

/// The number that a figure begins with: `-0.1 % (-1.1 to +0.9)`, `1,234`, `100.0%`.
fn figure(text: &str) -> Option<f64> {
    let text = text.trim_start_matches(['+', '*']);
    let digits = |letter: char| letter.is_ascii_digit() || ".,-".contains(letter);
    let end = text.find(|letter| !digits(letter)).unwrap_or(text.len());
    text[..end].replace(',', "").parse().ok()
}

/// The text as a table if it is one, or else as it is.
pub fn shown(text: &str) -> Markup {
    match table(text) {
        Some(grid) => grid.render(),
        None => html! { pre { (text) } },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(text: &str) -> Vec<Vec<String>> {
        let page = table(text).expect("a table").render().into_string();
        let rows = page.split("<tr>").skip(1);
        let cell = |cell: &str| {
            let text = &cell[cell.find('>').map_or(0, |end| end + 1)..];
            let end = text.find("</t").unwrap_or(0);
            text[..end].to_owned()
        };
        let cells = |row: &str| {
            let cells = row
                .split("<t")
                .skip(1)
                .filter(|cell| !cell.starts_with("body"));
            cells.map(cell).collect()
        };
        rows.map(cells).collect()
    }

    #[test]
    fn kernbench_and_sdet_blocks_are_tables() {
        let kernbench = "\
Kernbench: (make -j vmlinux, maximal tasks)
                              Elapsed      System        User         CPU
               2.5.65-mm2       44.30       86.09      572.75     1488.25
               2.5.65-mm3       44.36       86.86      573.28     1486.25
";
        assert_eq!(
            rows(kernbench),
            [
                ["", "Elapsed", "System", "User", "CPU"],
                ["2.5.65-mm2", "44.30", "86.09", "572.75", "1488.25"],
                ["2.5.65-mm3", "44.36", "86.86", "573.28", "1486.25"],
            ]
        );
        let sdet = "\
SDET 64  (see disclaimer)
                           Throughput    Std. Dev
               2.5.65-mm2       100.0%         0.1%
               2.5.65-mm3       101.0%         0.4%
";
        assert_eq!(rows(sdet)[0], ["", "Throughput", "Std. Dev"]);
        assert_eq!(rows(sdet)[2], ["2.5.65-mm3", "101.0%", "0.4%"]);
    }

    #[test]
    fn tables_of_mmtests_keep_value_and_change_together() {
        let mmtests = "\
                              A                      B
                    rmap=chains           rmap=partial
Min       fork      200.00 (   0.00%)      100.00 (  50.00%)
Amean     fork      300.00 (   0.00%)      100.00 *  66.67%*
";
        let text = shown(mmtests).into_string();
        // The mark of significance breaks the column: the text stays.
        assert!(text.starts_with("<pre>"), "{text}");
        let plain = mmtests.replace("*  66.67%*", "(  66.67%)");
        assert!(shown(&plain).into_string().contains("200.00 (   0.00%)"));
    }

    #[test]
    fn text_that_is_no_table_stays_text() {
        for text in [
            "",
            "one line",
            "two words\nthree words more",
            "a  b\n1  2\n10  20 30  4\n",
            "       353     0.0% set_page_dirty\n...\n       -36   -80.0% profile_exit_mmap\n",
        ] {
            assert!(shown(text).into_string().starts_with("<pre>"), "{text}");
        }
    }
}
