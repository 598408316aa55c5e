//! A line of strace: who, when, and what.
//!
//! ```text
//! 4711  1700000000.123456 munmap(0x7f0000000000, 4096) = 0
//! [pid  4711] 12:00:01.123456 wait4(-1,  <unfinished ...>
//! 4711  1700000000.223456 <... wait4 resumed>NULL, 0, NULL) = 4712
//! 4711  1700000000.323456 +++ exited with 0 +++
//! ```

/// Seconds from here on are no time. Sums of a few times stay below 2^64 ns.
const LATEST: u64 = 1 << 33;

/// A line taken apart. Times are nanoseconds since the epoch or midnight.
#[derive(Clone, Debug, PartialEq)]
pub struct Line<'a> {
    pub pid: Option<u32>,
    pub time_ns: Option<u64>,
    pub what: What<'a>,
}

/// What a line tells.
#[derive(Clone, Debug, PartialEq)]
pub enum What<'a> {
    /// A whole call: name, arguments, result.
    Call {
        name: &'a str,
        args: &'a str,
        result: &'a str,
    },
    /// A call that goes on: name, and its arguments so far.
    Unfinished { name: &'a str, args: &'a str },
    /// The end of one: name, and the rest of the line.
    Resumed { name: &'a str, rest: &'a str },
    /// `+++ exited …`, `+++ killed …`.
    Ended,
    /// `+++ superseded by execve in pid 4712 +++`: whose program took over.
    Superseded { by: u32 },
    /// `--- SIGCHLD … ---`, `--- stopped by … ---`.
    Signal,
    /// What strace says about itself.
    Message,
}

/// Takes a line apart. `None`: it is none of strace's, or ends early.
pub fn split(line: &str) -> Option<Line<'_>> {
    let line = line.trim_end();
    if line.starts_with("strace: ") {
        return Some(Line {
            pid: None,
            time_ns: None,
            what: What::Message,
        });
    }
    let (pid, rest) = take_pid(line);
    let (time_ns, rest) = take_time(rest);
    Some(Line {
        pid,
        time_ns,
        what: what(rest)?,
    })
}

/// `[pid  4711] ` or `4711  `.
fn take_pid(line: &str) -> (Option<u32>, &str) {
    if let Some(rest) = line.strip_prefix("[pid")
        && let Some((pid, rest)) = rest.split_once(']')
        && let Ok(pid) = pid.trim().parse()
    {
        return (Some(pid), rest.trim_start());
    }
    if let Some((word, rest)) = line.split_once(' ')
        && let Ok(pid) = word.parse()
    {
        return (Some(pid), rest.trim_start());
    }
    (None, line)
}

/// `1700000000.123456 ` or `12:00:01.123456 ` or `12:00:01 `.
fn take_time(line: &str) -> (Option<u64>, &str) {
    if let Some((word, rest)) = line.split_once(' ')
        && let Some(time) = time(word)
    {
        return (Some(time), rest.trim_start());
    }
    (None, line)
}

fn time(word: &str) -> Option<u64> {
    let (whole, fraction) = word.split_once('.').unwrap_or((word, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(fraction) || fraction.len() > 9 {
        return None;
    }
    let scale = 10u64.pow(9 - fraction.len() as u32);
    let part = if fraction.is_empty() {
        0
    } else {
        fraction.parse::<u64>().ok()? * scale
    };
    let seconds = if whole.contains(':') {
        let mut seconds = 0u64;
        for (count, unit) in whole.split(':').enumerate() {
            if count == 3 || unit.len() != 2 || !digits(unit) {
                return None;
            }
            seconds = seconds * 60 + unit.parse::<u64>().ok()?;
        }
        seconds
    } else if !whole.is_empty() && digits(whole) && word.contains('.') {
        whole.parse().ok()?
    } else {
        return None;
    };
    (seconds < LATEST).then(|| seconds * 1_000_000_000 + part)
}

fn what(text: &str) -> Option<What<'_>> {
    if let Some(inner) = text.strip_prefix("+++ ") {
        let inner = inner.strip_suffix(" +++")?;
        let superseded = inner.strip_prefix("superseded by execve in pid ");
        return Some(match superseded {
            Some(pid) => What::Superseded {
                by: pid.parse().ok()?,
            },
            None => What::Ended,
        });
    }
    if text.starts_with("--- ") {
        return text.ends_with(" ---").then_some(What::Signal);
    }
    if let Some(rest) = text.strip_prefix("<... ") {
        let (name, rest) = rest.split_once(" resumed>")?;
        return is_name(name).then_some(What::Resumed { name, rest });
    }
    let (name, rest) = text.split_once('(')?;
    if !is_name(name) {
        return None;
    }
    if let Some(args) = rest.strip_suffix("<unfinished ...>") {
        return Some(What::Unfinished { name, args });
    }
    let (args, result) = end_of_call(rest)?;
    Some(What::Call { name, args, result })
}

fn is_name(text: &str) -> bool {
    !text.is_empty()
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// Splits `args) = result` behind the arguments.
pub fn end_of_call(text: &str) -> Option<(&str, &str)> {
    let at = text.rfind(" = ")?;
    let args = text[..at].trim_end().strip_suffix(')')?;
    let result = text[at + 3..].trim();
    (!result.is_empty()).then_some((args, result))
}

/// The arguments of a call, at commas that stand in no brackets and no string.
pub fn arguments(text: &str) -> Vec<&str> {
    let (mut parts, mut begin, mut depth) = (Vec::new(), 0, 0usize);
    let (mut quoted, mut escaped) = (false, false);
    for (at, byte) in text.bytes().enumerate() {
        if quoted {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => quoted = false,
                _ => {}
            }
            continue;
        }
        match byte {
            b'"' => quoted = true,
            b'(' | b'[' | b'{' | b'<' => depth += 1,
            // `=>` is an arrow.
            b'>' if text[..at].ends_with('=') => {}
            b')' | b']' | b'}' | b'>' => depth = depth.saturating_sub(1),
            b',' if depth == 0 => {
                parts.push(text[begin..at].trim());
                begin = at + 1;
            }
            _ => {}
        }
        if parts.len() == 16 {
            return parts;
        }
    }
    let last = text[begin..].trim();
    if !last.is_empty() {
        parts.push(last);
    }
    parts
}

/// A number at the beginning of `text`: decimal, `0x…`, `0…` or `NULL`.
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

/// The string in quotes that `text` begins with, escapes taken away; shortened
/// ones end in dots that are left out.
pub fn string(text: &str) -> Option<String> {
    let mut bytes = text.strip_prefix('"')?.bytes();
    let mut out = Vec::new();
    loop {
        match bytes.next()? {
            b'"' => return Some(String::from_utf8_lossy(&out).into_owned()),
            b'\\' => match bytes.next()? {
                b'n' => out.push(b'\n'),
                b't' => out.push(b'\t'),
                other => out.push(other),
            },
            byte => out.push(byte),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_apart_with_and_without_ids_and_times() {
        for (line, pid, time_ns) in [
            ("brk(NULL) = 0x1000", None, None),
            ("12  brk(NULL)                = 0x1000", Some(12), None),
            ("12  1.5 brk(NULL) = 0x1000", Some(12), Some(1_500_000_000)),
            (
                "[pid    12] 00:01:01.000001 brk(NULL) = 0x1000",
                Some(12),
                Some(61_000_001_000),
            ),
            (
                "12:00:00 brk(NULL) = 0x1000",
                None,
                Some(43_200_000_000_000),
            ),
        ] {
            let what = What::Call {
                name: "brk",
                args: "NULL",
                result: "0x1000",
            };
            let expected = Line { pid, time_ns, what };
            assert_eq!(split(line), Some(expected), "{line}");
        }
    }

    #[test]
    fn lines_that_end_early_are_none() {
        for line in [
            "",
            "12",
            "12 1.5",
            "brk(",
            "brk(NULL)",
            "brk(NULL) =",
            "brk(NULL) = ",
            "<... brk resu",
            "+++ exited with 0",
            "--- SIGCHLD {si_signo",
            "not strace at all",
        ] {
            assert_eq!(split(line), None, "{line}");
        }
    }

    #[test]
    fn arguments_are_parted_outside_of_brackets_and_strings() {
        assert_eq!(
            arguments(r#"3</a,b>, "x, \" y", {a=1, b=[2, 3]} => {c=4}, 5"#),
            ["3</a,b>", r#""x, \" y""#, "{a=1, b=[2, 3]} => {c=4}", "5"]
        );
        assert_eq!(string(r#""a\"b\n"..., 3"#), Some("a\"b\n".to_owned()));
        assert_eq!(number("0x10</x>"), Some(16));
    }
}
