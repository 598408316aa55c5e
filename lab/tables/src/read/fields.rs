//! Dividing a line into columns.

/// The columns of a line. Without `delimiters` blanks and tabs divide, several at once; of
/// other delimiters each divides. What a column has in double quotes divides nothing.
pub(super) fn divided<'t>(line: &'t str, delimiters: &str) -> Vec<&'t str> {
    let others: Vec<char> = delimiters.chars().filter(|c| !is_blank(*c)).collect();
    if others.is_empty() {
        let divides = |c: char| match delimiters.is_empty() {
            true => is_blank(c),
            false => delimiters.contains(c),
        };
        return words(line.trim_end(), divides);
    }
    let parts = split(line, |c| others.contains(&c));
    if !delimiters.contains(is_blank) {
        return parts.into_iter().map(str::trim).collect();
    }
    let parts = parts.into_iter().map(str::trim);
    parts
        .flat_map(|part| match part {
            "" => vec![""],
            part => words(part, is_blank),
        })
        .collect()
}

/// A column without the double quotes around it.
pub(super) fn unquoted(field: &str) -> &str {
    let inner = field
        .strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'));
    inner.unwrap_or(field)
}

fn is_blank(c: char) -> bool {
    c == ' ' || c == '\t'
}

/// Columns with something in them.
fn words(line: &str, divides: impl Fn(char) -> bool) -> Vec<&str> {
    let mut fields = split(line, divides);
    fields.retain(|field| !field.is_empty());
    fields
}

/// The parts between characters that divide, and are not in quotes.
fn split(line: &str, divides: impl Fn(char) -> bool) -> Vec<&str> {
    let (mut fields, mut start, mut quoted_until) = (Vec::new(), 0, 0);
    for (at, letter) in line.char_indices() {
        if at < quoted_until {
            continue;
        }
        if letter == '"' && line[start..at].trim().is_empty() {
            quoted_until = at + quoted(&line[at..]);
        } else if divides(letter) {
            fields.push(&line[start..at]);
            start = at + letter.len_utf8();
        }
    }
    fields.push(&line[start..]);
    fields
}

/// How many bytes a quotation takes that `text` begins with, quotes included; two quotes in
/// it are one that does not end it. Without an end it is none.
fn quoted(text: &str) -> usize {
    let mut at = 1;
    while let Some(next) = text[at..].find('"') {
        at += next + 1;
        if !text[at..].starts_with('"') {
            return at;
        }
        at += 1;
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_keep_what_divides() {
        for (line, delimiters, fields) in [
            (
                r#""f<int, long>/8",1000, 99.5"#,
                ",",
                vec![r#""f<int, long>/8""#, "1000", "99.5"],
            ),
            (r#""a b" 2"#, "", vec![r#""a b""#, "2"]),
            (r#""a, b" 2,3"#, ", ", vec![r#""a, b""#, "2", "3"]),
            (r#""a ""x"", b",2"#, ",", vec![r#""a ""x"", b""#, "2"]),
            (r#"5" disk,2"#, ",", vec![r#"5" disk"#, "2"]),
            (r#""open,2"#, ",", vec![r#""open"#, "2"]),
            (",,", ",", vec!["", "", ""]),
        ] {
            assert_eq!(divided(line, delimiters), fields, "{line}");
        }
        assert_eq!(unquoted(r#""f<int, long>/8""#), "f<int, long>/8");
        assert_eq!(unquoted("\""), "\"");
    }
}
