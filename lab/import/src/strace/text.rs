//! What stands in the arguments and results of calls: numbers, strings,
//! descriptors.

use std::borrow::Cow;
use std::iter::Peekable;
use std::str::Bytes;

/// The arguments of a call, at commas that stand in no brackets, no string and
/// no name of a file.
pub fn arguments(text: &str) -> Vec<&str> {
    let bytes = text.as_bytes();
    let (mut parts, mut begin, mut depth, mut at) = (Vec::new(), 0, 0usize, 0);
    while at < bytes.len() && parts.len() < 16 {
        match bytes[at] {
            b'"' => at = end_of_string(bytes, at),
            b'<' if opens_name(bytes, at) => at = end_of_name(bytes, at),
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            b',' if depth == 0 => {
                parts.push(text[begin..at].trim());
                begin = at + 1;
            }
            _ => {}
        }
        at += 1;
    }
    let last = text[begin..].trim();
    if !last.is_empty() && parts.len() < 16 {
        parts.push(last);
    }
    parts
}

/// Where the string that begins at `at` ends.
fn end_of_string(bytes: &[u8], mut at: usize) -> usize {
    at += 1;
    while at < bytes.len() && bytes[at] != b'"' {
        at += if bytes[at] == b'\\' { 2 } else { 1 };
    }
    at
}

/// Whether `<` begins the name of what is behind a number: `3</etc/passwd>`,
/// `51<sh>`, not `21<<MAP_HUGE_SHIFT`.
fn opens_name(bytes: &[u8], at: usize) -> bool {
    let before = at.checked_sub(1).map(|before| bytes[before]);
    let number = before.is_some_and(|byte| byte.is_ascii_alphanumeric());
    number && bytes.get(at + 1) != Some(&b'<')
}

/// Where the name that begins at `at` ends. Names can hold names (`-yy`) and
/// arrows; other angle brackets in them are escaped.
fn end_of_name(bytes: &[u8], at: usize) -> usize {
    let mut depth = 0usize;
    for (place, byte) in bytes.iter().enumerate().skip(at) {
        match byte {
            b'<' => depth += 1,
            b'>' if bytes[place - 1] == b'-' => {}
            b'>' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return place;
        }
    }
    bytes.len()
}

/// A number at the beginning of `text`: decimal, `0x…` or `NULL`.
pub fn number(text: &str) -> Option<u64> {
    if text.starts_with("NULL") {
        return Some(0);
    }
    let (digits, radix) = match text.strip_prefix("0x") {
        Some(digits) => (digits, 16),
        None => (text, 10),
    };
    let end = digits
        .find(|c: char| !c.is_digit(radix))
        .unwrap_or(digits.len());
    u64::from_str_radix(&digits[..end], radix).ok()
}

/// A task's id: what the process calls it, and what strace does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Id {
    pub local: u32,
    /// `2 /* 52 in strace's PID NS */`.
    pub told: Option<u32>,
}

/// The largest id that Linux gives a task.
pub const MOST_TASKS: u32 = 1 << 22;

/// The id at the beginning of `text`.
pub fn task_id(text: &str) -> Option<Id> {
    let valid = |id: u64| u32::try_from(id).ok().filter(|id| *id <= MOST_TASKS);
    let local = number(text).and_then(valid)?;
    let told = text.split_once("/* ").and_then(|(_, rest)| {
        let (id, rest) = rest.split_once(' ')?;
        let id = id.parse().ok().and_then(valid);
        id.filter(|_| rest.starts_with("in strace's PID NS"))
    });
    Some(Id { local, told })
}

/// `text` without its comments: `0x3 /* PROT_READ|PROT_WRITE */`.
pub fn without_comments(text: &str) -> Cow<'_, str> {
    if !text.contains("/*") {
        return Cow::Borrowed(text);
    }
    let (mut out, mut rest) = (String::new(), text);
    while let Some((before, after)) = rest.split_once("/*") {
        out.push_str(before);
        rest = after.split_once("*/").map_or("", |(_, rest)| rest);
    }
    out.push_str(rest);
    Cow::Owned(out)
}

/// The string in quotes that `text` begins with, escapes taken away; shortened
/// ones end in dots that are left out.
pub fn string(text: &str) -> Option<String> {
    let end = end_of_string(text.as_bytes(), 0);
    if !text.starts_with('"') || text.as_bytes().get(end) != Some(&b'"') {
        return None;
    }
    Some(unescaped(&text[1..end]))
}

/// The name behind a number: `/etc/passwd` of `3</etc/passwd>(deleted)`.
pub fn path_of_descriptor(text: &str) -> Option<String> {
    let at = text
        .find('<')
        .filter(|at| opens_name(text.as_bytes(), *at))?;
    let end = end_of_name(text.as_bytes(), at);
    let name = text.get(at + 1..end).filter(|_| end < text.len())?;
    // -yy adds the numbers of devices.
    let name = name.split('<').next().unwrap_or(name);
    Some(unescaped(name.trim_end_matches(" (deleted)")))
}

/// A string without its escapes, as C has them.
fn unescaped(text: &str) -> String {
    if !text.contains('\\') {
        return text.to_owned();
    }
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes().peekable();
    while let Some(byte) = bytes.next() {
        if byte != b'\\' {
            out.push(byte);
            continue;
        }
        match bytes.next() {
            Some(b'x') => out.push(digits(&mut bytes, 0, 16)),
            Some(octal @ b'0'..=b'7') => out.push(digits(&mut bytes, octal - b'0', 8)),
            Some(b'n') => out.push(b'\n'),
            Some(b't') => out.push(b'\t'),
            Some(b'r') => out.push(b'\r'),
            Some(b'v') => out.push(0xb),
            Some(b'f') => out.push(0xc),
            Some(other) => out.push(other),
            None => {}
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// At most two more digits of an escape.
fn digits(bytes: &mut Peekable<Bytes<'_>>, first: u8, radix: u8) -> u8 {
    let mut value = first;
    for _ in 0..2 {
        let digit = bytes.peek().map(|byte| char::from(*byte));
        let Some(digit) = digit.and_then(|digit| digit.to_digit(radix.into())) else {
            break;
        };
        value = value.wrapping_mul(radix).wrapping_add(digit as u8);
        bytes.next();
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_parted_outside_of_brackets_strings_and_names() {
        assert_eq!(
            arguments(r#"3</a,b>, "x, \" y", {a=1, b=[2, 3]} => {c=4}, 5"#),
            ["3</a,b>", r#""x, \" y""#, "{a=1, b=[2, 3]} => {c=4}", "5"]
        );
        assert_eq!(
            arguments("7<TCP:[1.2.3.4:5->6.7.8.9:10]>, 8</a(b\"c>, 9</dev/null<char 1:3>>"),
            [
                "7<TCP:[1.2.3.4:5->6.7.8.9:10]>",
                "8</a(b\"c>",
                "9</dev/null<char 1:3>>"
            ]
        );
        assert_eq!(
            arguments("MAP_HUGETLB|21<<MAP_HUGE_SHIFT, -1, 0"),
            ["MAP_HUGETLB|21<<MAP_HUGE_SHIFT", "-1", "0"]
        );
    }

    #[test]
    fn strings_lose_their_escapes_whichever_they_are() {
        for (text, expected) in [
            (r#""a\"b\n"..., 3"#, "a\"b\n"),
            (r#""\x2f\x62\x69\x6e", 3"#, "/bin"),
            (r#""\303\244\0\1012""#, "ä\0A2"),
        ] {
            assert_eq!(string(text).as_deref(), Some(expected), "{text}");
        }
        for text in ["", "\"", "\"a", "\"a\\", "NULL", "0x1234"] {
            assert_eq!(string(text), None, "{text}");
        }
    }

    #[test]
    fn descriptors_tell_their_files() {
        for (text, expected) in [
            ("3</lib/x>", Some("/lib/x")),
            ("3</tmp/x>(deleted)", Some("/tmp/x")),
            ("3</tmp/x (deleted)>", Some("/tmp/x")),
            ("3</dev/null<char 1:3>>", Some("/dev/null")),
            (r"3<\x2f\x61\74\76>", Some("/a<>")),
            ("3</tmp/x", None),
            ("3", None),
        ] {
            assert_eq!(path_of_descriptor(text).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn numbers_and_ids_end_where_they_do() {
        assert_eq!(number("0x10</x>"), Some(16));
        assert_eq!(without_comments("1 /* a|b */|2 /* c"), "1 |2 ");
        let id = |local, told| Some(Id { local, told });
        assert_eq!(task_id("71<sh>"), id(71, None));
        assert_eq!(task_id("0x47"), id(71, None));
        assert_eq!(task_id("2 /* 52 in strace's PID NS */"), id(2, Some(52)));
        assert_eq!(task_id("2 /* 52 of something */"), id(2, None));
        assert_eq!(task_id("4294967295"), None);
    }
}
