//! A line of strace: who, when, and what.
//!
//! ```text
//! 4711  1700000000.123456 munmap(0x7f0000000000, 4096) = 0
//! [pid  4711] 12:00:01.123456 wait4(-1,  <unfinished ...>
//! 4711<make> 1700000000.223456 [  61] [00007f9d6e434000] <... wait4 resumed>NULL, 0, NULL) = 4712
//! 4711       0.000040 +++ exited with 0 +++
//! ```

use std::borrow::Cow;

use super::text::MOST_TASKS;

/// Seconds from here on are no time. Sums of a few times stay below 2^64 ns.
const LATEST: u64 = 1 << 33;
/// strace fills ids up to this many columns and a space.
const COLUMNS: usize = 6;

/// A line taken apart.
#[derive(Clone, Debug, PartialEq)]
pub struct Line<'a> {
    pub pid: Option<u32>,
    pub time: Option<Stamp>,
    pub what: What<'a>,
}

/// The time of a line: nanoseconds since the epoch, midnight, or the line before.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stamp {
    pub ns: u64,
    /// It is filled up with spaces, or 0, as only those of `-r` are.
    pub since: bool,
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
    /// ` > /usr/lib/libc.so.6(mmap64+0x26) [0x1135b6]`, of `-k`.
    Stack,
    /// ` | 00000  7f 45 4c 46 …`, of `-e read` and `-e write`.
    Dump,
    /// The first or second line of the table of counts, of `-c` and `-C`.
    Table,
}

/// The line without what colours it.
pub fn plain(line: &str) -> Cow<'_, str> {
    if !line.contains('\x1b') {
        return Cow::Borrowed(line);
    }
    let mut out = String::with_capacity(line.len());
    let mut rest = line;
    while let Some((before, after)) = rest.split_once('\x1b') {
        out.push_str(before);
        // `ESC [ … letter`; other sequences are a letter.
        let ends = |c: char| c.is_ascii_alphabetic();
        rest = after.split_once(ends).map_or("", |(_, rest)| rest);
    }
    out.push_str(rest);
    Cow::Owned(out)
}

/// Takes a line apart. `None`: it is none of strace's, or ends early.
pub fn split(line: &str) -> Option<Line<'_>> {
    let line = line.trim_end();
    let alone = if is_message(line) {
        Some(What::Message)
    } else if line.starts_with(" > ") {
        Some(What::Stack)
    } else if line.starts_with(" | ") || line.starts_with(" * ") {
        Some(What::Dump)
    } else if line.starts_with("% time ") || line.starts_with("------ ") {
        Some(What::Table)
    } else {
        None
    };
    if let Some(what) = alone {
        return Some(Line {
            pid: None,
            time: None,
            what,
        });
    }
    let (pid, padded, rest) = take_pid(line);
    let (time, rest) = take_time(rest, padded);
    let what = match take_marks(rest) {
        rest if is_message(rest) => What::Message,
        rest => what(rest)?,
    };
    Some(Line { pid, time, what })
}

/// The beginning of a line that one of strace's messages interrupted, as it can
/// on a terminal: `clone(strace: Process 8 attached`.
pub fn interrupted(line: &str) -> Option<&str> {
    let at = line
        .find("strace: Process ")
        .or_else(|| line.find("Process "))?;
    let (begin, message) = line.split_at(at);
    let inside = begin.contains('(') && !message.contains('"');
    (inside && is_message(message)).then_some(begin)
}

/// `strace: …`; older ones say `Process 8 attached` and
/// `[ Process PID=8 runs in 32 bit mode. ]` without that.
fn is_message(text: &str) -> bool {
    if text.starts_with("strace: ") {
        return true;
    }
    if text.starts_with("[ Process PID=") {
        return text.ends_with(" mode. ]");
    }
    let Some((id, rest)) = text
        .strip_prefix("Process ")
        .and_then(|rest| rest.split_once(' '))
    else {
        return false;
    };
    let said = ["attached", "detached", "resumed", "suspended"];
    id.parse::<u32>().is_ok() && said.iter().any(|said| rest.starts_with(said))
}

/// `[pid  4711] `, `4711  ` or `4711<make> `, whether more spaces follow than
/// fill up the column, and the rest without them.
fn take_pid(line: &str) -> (Option<u32>, bool, &str) {
    let (pid, width, rest) = if let Some(rest) = line.strip_prefix("[pid")
        && let Some((id, rest)) = take_id(rest.trim_start())
        && let Some(rest) = rest.strip_prefix(']')
    {
        (Some(id), 1, rest)
    } else if let Some((id, rest)) = take_id(line)
        && rest.starts_with(' ')
    {
        let used = line.len() - rest.len();
        (Some(id), COLUMNS.saturating_sub(used).max(1), rest)
    } else {
        (None, 0, line)
    };
    let trimmed = rest.trim_start_matches(' ');
    (pid, rest.len() - trimmed.len() > width, trimmed)
}

/// `4711` or `4711<make>`.
fn take_id(text: &str) -> Option<(u32, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit())?;
    let id = text[..end].parse().ok().filter(|id| *id <= MOST_TASKS)?;
    let rest = &text[end..];
    match rest.strip_prefix('<') {
        None => Some((id, rest)),
        Some(name) => {
            let end = name.find(['>', '\n']).filter(|end| *end <= 64)?;
            Some((id, &name[end + 1..]))
        }
    }
}

/// `1700000000.123456 `, `12:00:01.123456 `, `12:00:01 ` or `     0.000040 `.
fn take_time(text: &str, padded: bool) -> (Option<Stamp>, &str) {
    if let Some((word, rest)) = text.split_once(' ')
        && let Some(ns) = time(word)
        // Whole seconds could be anything: only the epoch's are as large.
        && (word.contains(['.', ':']) || padded || ns > u64::from(MOST_TASKS) * 1_000_000_000)
    {
        let since = !word.contains(':') && (padded || ns == 0);
        return (Some(Stamp { ns, since }), rest.trim_start());
    }
    (None, text)
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
    } else if !whole.is_empty() && digits(whole) {
        whole.parse().ok()?
    } else {
        return None;
    };
    (seconds < LATEST).then(|| seconds * 1_000_000_000 + part)
}

/// Passes over what can stand before a call: `(+     0.000040)` with two kinds
/// of times, `[  61]` with `-n`, `[00007f9d6e434000]` with `-i`.
fn take_marks(mut text: &str) -> &str {
    loop {
        let rest = if let Some(rest) = text.strip_prefix("(+") {
            rest.split_once(") ")
        } else if let Some(rest) = text.strip_prefix('[') {
            let mark = |c: char| c.is_ascii_hexdigit() || c == ' ' || c == '?';
            rest.split_once("] ")
                .filter(|(inner, _)| inner.chars().all(mark))
        } else {
            None
        };
        match rest {
            Some((_, rest)) => text = rest.trim_start(),
            None => return text,
        }
    }
}

fn what(text: &str) -> Option<What<'_>> {
    if let Some(inner) = text.strip_prefix("+++ ") {
        let inner = inner.strip_suffix(" +++")?;
        let superseded = inner.strip_prefix("superseded by execve in pid ");
        return Some(match superseded {
            Some(pid) => What::Superseded {
                by: take_id(&format!("{pid} "))?.0,
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
    if let Some(args) = unfinished(rest) {
        return Some(What::Unfinished { name, args });
    }
    let (args, result) = end_of_call(rest)?;
    Some(What::Call { name, args, result })
}

/// The arguments so far of a call that goes on, or that strace saw no end of.
fn unfinished(text: &str) -> Option<&str> {
    let (args, mark) = text.split_at(text.rfind('<')?);
    let mark = mark.strip_prefix('<')?.strip_suffix("...>")?;
    let goes_on =
        matches!(mark, "unfinished " | "detached ") || mark.starts_with("pid changed to ");
    goes_on.then_some(args)
}

fn is_name(text: &str) -> bool {
    !text.is_empty()
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// Splits `args) = result` behind the arguments.
pub fn end_of_call(text: &str) -> Option<(&str, &str)> {
    text.rmatch_indices(" = ").find_map(|(at, _)| {
        let args = text[..at].trim_end().strip_suffix(')')?;
        let result = text[at + 3..].trim();
        (!result.is_empty()).then_some((args, result))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALL: What<'static> = What::Call {
        name: "brk",
        args: "NULL",
        result: "0x1000",
    };

    #[test]
    fn lines_come_apart_whatever_columns_they_have() {
        const NOON: u64 = 43_200_000_000_000;
        for (line, pid, ns) in [
            ("brk(NULL) = 0x1000", None, None),
            ("12  brk(NULL)                = 0x1000", Some(12), None),
            ("12  1.5 brk(NULL) = 0x1000", Some(12), Some(1_500_000_000)),
            (
                "[pid    12] 00:01:01.000001 brk(NULL) = 0x1000",
                Some(12),
                Some(61_000_001_000),
            ),
            ("12:00:00 brk(NULL) = 0x1000", None, Some(NOON)),
            (
                "12    12:00:00 (+     0.000365) brk(NULL) = 0x1000",
                Some(12),
                Some(NOON),
            ),
            ("12<a b] c> brk(NULL) = 0x1000", Some(12), None),
            (
                "[pid 12<demo>] 12:00:00 [  12] [00007f00] brk(NULL) = 0x1000",
                Some(12),
                Some(NOON),
            ),
            ("[????????????????] brk(NULL) = 0x1000", None, None),
            (
                "12345 1700000000 brk(NULL) = 0x1000",
                Some(12345),
                Some(1_700_000_000_000_000_000),
            ),
            (
                "1700000000 brk(NULL) = 0x1000",
                None,
                Some(1_700_000_000_000_000_000),
            ),
        ] {
            let time = ns.map(|ns| Stamp { ns, since: false });
            let what = CALL;
            assert_eq!(split(line), Some(Line { pid, time, what }), "{line}");
        }
    }

    #[test]
    fn times_since_the_line_before_are_known_by_their_spaces() {
        for (line, pid, ns) in [
            ("     0.000207 brk(NULL) = 0x1000", None, 207_000),
            (
                "12345      0.000207 brk(NULL) = 0x1000",
                Some(12345),
                207_000,
            ),
            ("12         0.000207 brk(NULL) = 0x1000", Some(12), 207_000),
            (
                "[pid    12]      0.000207 brk(NULL) = 0x1000",
                Some(12),
                207_000,
            ),
            (
                "12<demo>      0.000207 brk(NULL) = 0x1000",
                Some(12),
                207_000,
            ),
            (
                "12345      1 brk(NULL) = 0x1000",
                Some(12345),
                1_000_000_000,
            ),
        ] {
            let time = Some(Stamp { ns, since: true });
            let what = CALL;
            assert_eq!(split(line), Some(Line { pid, time, what }), "{line}");
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
            "[pid 12",
            "12<x",
        ] {
            assert_eq!(split(line), None, "{line}");
        }
    }

    #[test]
    fn calls_end_where_their_arguments_do() {
        let call = |name, args, result| Some(What::Call { name, args, result });
        assert_eq!(
            what(r#"write(1, "a) = b", 6) = 6"#),
            call("write", r#"1, "a) = b", 6"#, "6")
        );
        assert_eq!(
            what(r#"open("/a = b", 0)  = 3</a = b>"#),
            call("open", r#""/a = b", 0"#, "3</a = b>")
        );
        for mark in ["unfinished", "detached", "pid changed to 12"] {
            let text = format!("execve(\"/x\", <{mark} ...>");
            let (name, args) = ("execve", "\"/x\", ");
            assert_eq!(what(&text), Some(What::Unfinished { name, args }));
        }
    }

    #[test]
    fn messages_and_what_other_options_add_are_known_for_what_they_are() {
        for (line, expected) in [
            ("strace: Process 8 attached", What::Message),
            ("Process 8 attached (waiting for parent)", What::Message),
            ("Process 7 resumed (parent 8 ready)", What::Message),
            ("[ Process PID=8 runs in 32 bit mode. ]", What::Message),
            ("8 [ Process PID=8 runs in x32 mode. ]", What::Message),
            (" > /bin/demo(main+0x11) [0x1161]", What::Stack),
            (" | 00000  7f 45 4c 46 |", What::Dump),
            ("% time     seconds  usecs/call     calls", What::Table),
            (
                "+++ superseded by execve in pid 9<x> +++",
                What::Superseded { by: 9 },
            ),
        ] {
            assert_eq!(split(line).map(|line| line.what), Some(expected), "{line}");
        }
        assert_eq!(interrupted("clone(Process 8 attached"), Some("clone("));
        assert_eq!(
            interrupted("[pid 7] vfork(strace: Process 8 attached"),
            Some("[pid 7] vfork(")
        );
        assert_eq!(interrupted("strace: Process 8 attached"), None);
        assert_eq!(interrupted("write(1, \"Process 8 attached\", 9) = 9"), None);
    }

    #[test]
    fn colours_are_taken_away() {
        assert_eq!(
            plain("\x1b[1;31mbrk\x1b[0m(NULL)\x1b[K = 1"),
            "brk(NULL) = 1"
        );
        assert_eq!(plain("brk(NULL) = 1"), "brk(NULL) = 1");
    }
}
