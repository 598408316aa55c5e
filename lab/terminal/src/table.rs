//! Aligned tables, and numbers as people read them.

/// A table: the first column is text, the others are figures.
#[derive(Clone, Debug)]
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with this header, units included.
    pub fn new(header: &[&str]) -> Self {
        Self {
            rows: vec![header.iter().map(|&cell| cell.to_owned()).collect()],
        }
    }

    /// Lines of left-aligned columns without a header.
    pub fn lines(rows: impl Iterator<Item = Vec<String>>) -> String {
        let rows: Vec<Vec<String>> = rows.collect();
        let table = Self { rows };
        table.layout(0, |_| true)
    }

    /// Appends a row. Missing cells stay empty.
    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// The table with `indent` blanks before each line and no trailing blanks.
    pub fn render(&self, indent: usize) -> String {
        self.layout(indent, |column| column == 0)
    }

    fn layout(&self, indent: usize, left: impl Fn(usize) -> bool) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let mut text = String::new();
        for row in &self.rows {
            let mut line = " ".repeat(indent);
            for (column, cell) in row.iter().enumerate() {
                let blanks = widths[column].saturating_sub(cell.chars().count());
                let blanks = " ".repeat(blanks);
                if column > 0 {
                    line.push_str("  ");
                }
                match left(column) {
                    true => line.extend([cell.as_str(), &blanks]),
                    false => line.extend([blanks.as_str(), cell]),
                }
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

/// `1234567` as `1,234,567`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A figure with a mark after it if it is the better one, and room for the mark
/// if not.
pub fn marked(figure: String, better: bool) -> String {
    let mark = if better { " *" } else { "  " };
    figure + mark
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_right_aligned_under_their_header() {
        let mut table = Table::new(&["event", "A", "B"]);
        table.row(vec!["forks".into(), "1,424".into(), "7".into()]);
        table.row(vec!["rmap additions".into(), "9".into()]);
        let expected = "  event               A  B\n  \
                          forks           1,424  7\n  \
                          rmap additions      9\n";
        assert_eq!(table.render(2), expected);
    }

    #[test]
    fn thousands_are_grouped() {
        for (number, text) in [
            (0, "0"),
            (999, "999"),
            (1000, "1,000"),
            (7_460_123, "7,460,123"),
        ] {
            assert_eq!(grouped(number), text);
        }
    }
}
