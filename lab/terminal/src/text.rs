//! Sentences, and facts under each other, in lines that fit a terminal.

/// Columns of a line of text.
const WIDTH: usize = 96;

/// `1 pass`, `6 passes`.
pub fn plural(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// `13.1 MiB`.
pub fn mib(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

/// `text` in lines of at most 96 characters.
pub fn wrapped(text: &str) -> String {
    indented(text, 0)
}

/// Facts under each other: the name of each, and beside it what it is, in lines of at most 96
/// characters.
pub fn facts(facts: &[(&str, String)]) -> String {
    let lengths = facts.iter().map(|(name, _)| name.chars().count());
    let indent = lengths.max().unwrap_or(0) + 2;
    let mut text = String::new();
    for (name, fact) in facts {
        let lines = indented(fact, indent);
        text += &format!("{name:<indent$}{}", lines.trim_start());
    }
    text
}

/// `text` in lines of at most 96 characters, of which the first `indent` are blank.
fn indented(text: &str, indent: usize) -> String {
    let mut lines = " ".repeat(indent);
    let mut length = 0;
    for word in text.split_whitespace() {
        let word_length = word.chars().count();
        if length > 0 && indent + length + 1 + word_length > WIDTH {
            lines.push('\n');
            lines += &" ".repeat(indent);
            length = 0;
        } else if length > 0 {
            lines.push(' ');
            length += 1;
        }
        lines.push_str(word);
        length += word_length;
    }
    lines.push('\n');
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_text_is_broken_between_words() {
        let text = wrapped(&"word ".repeat(30));
        assert_eq!(text.lines().count(), 2);
        assert!(text.lines().all(|line| line.len() <= WIDTH), "{text}");
        assert_eq!(wrapped("short"), "short\n");
    }

    #[test]
    fn facts_are_aligned_and_their_further_lines_too() {
        let text = facts(&[("a", "one".to_owned()), ("long", "word ".repeat(30))]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "a     one");
        assert!(lines[1].starts_with("long  word"), "{text}");
        assert!(lines[2].starts_with("      word"), "{text}");
        assert!(lines.iter().all(|line| line.len() <= WIDTH), "{text}");
    }
}
