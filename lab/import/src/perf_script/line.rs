//! A line of `perf script`: who, when, and the rest.
//!
//! ```text
//! make  4711 [001]  12.345678: exceptions:page_fault_user: address=…
//! make  4711/4712   12.345678: PERF_RECORD_EXIT(4711:4712):(4700:4700)
//! ```
//!
//! The name may hold blanks, or be missing (`-F -comm`); what follows it may be
//! the thread's id alone or both ids; the CPU may be missing; after it may stand
//! the mode (`-F +misc`) and the time of day (`-F +tod`); times have six or nine
//! decimals. Id and time cannot be missing: [`lacking`] says which option left
//! them out.

/// Seconds from here on are no time. Sums of a few times stay below 2^64 ns.
pub const LATEST: u64 = 1 << 33;

/// A line taken apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Line<'a> {
    pub name: &'a str,
    /// The process, where the line shows it.
    pub pid: Option<i64>,
    pub tid: i64,
    pub time_ns: u64,
    /// The event and what it says.
    pub rest: &'a str,
}

/// Words before the time that matter: ids, CPU, mode, date and time of day, and
/// one before the ids.
const BEFORE: usize = 6;

/// Takes a line apart. `None`: it does not begin like one.
pub fn split(line: &str) -> Option<Line<'_>> {
    let mut tokens = Tokens { line, at: 0 };
    let mut before = Before::default();
    while let Some((at, token)) = tokens.next() {
        if let Some(time_ns) = time(token)
            && line.len() > tokens.at
            && let Some((ids_at, pid, tid)) = before.ids()
        {
            return Some(Line {
                name: line[..ids_at].trim(),
                pid,
                tid,
                time_ns,
                rest: line[tokens.at..].trim(),
            });
        }
        before.push(at, token);
    }
    None
}

/// The last words before the time.
#[derive(Default)]
struct Before<'a> {
    words: [(usize, &'a str); BEFORE],
    count: usize,
}

impl<'a> Before<'a> {
    fn push(&mut self, at: usize, token: &'a str) {
        if self.count == BEFORE {
            self.words.rotate_left(1);
            self.count -= 1;
        }
        self.words[self.count] = (at, token);
        self.count += 1;
    }

    /// Where the ids stand, and what they are.
    fn ids(&self) -> Option<(usize, Option<i64>, i64)> {
        let mut words = &self.words[..self.count];
        if let [rest @ .., (_, date), (_, clock)] = words
            && is_date(date)
            && clock.contains(':')
        {
            words = rest;
        }
        if let [rest @ .., (_, mode)] = words
            && is_mode(mode)
        {
            words = rest;
        }
        let cpu = words.last().is_some_and(|(_, cpu)| is_cpu(cpu));
        words = &words[..words.len() - usize::from(cpu)];
        let (at, ids) = words.last()?;
        let (pid, tid) = parse_ids(ids)?;
        let ambiguous = !cpu && pid.is_none() && is_latency(words);
        (!ambiguous).then_some((*at, pid, tid))
    }
}

/// What a line that [`split`] refuses lacks to be one of `perf script`, and
/// which option brings it back. `None`: it is something else.
pub fn lacking(line: &str) -> Option<&'static str> {
    let event = EVENTS.iter().filter_map(|event| line.find(event)).min()?;
    let mut before = Before::default();
    let mut tokens = Tokens {
        line: &line[..event],
        at: 0,
    };
    while let Some((at, token)) = tokens.next() {
        if time(token).is_some() {
            return Some(match is_latency(&before.words[..before.count]) {
                true => "lines whose CPU looks like a task's id (leave out --Latency)",
                false => "lines without the task's id (perf script -F +tid shows it)",
            });
        }
        before.push(at, token);
    }
    Some("lines without a time (perf script -F +time shows it)")
}

/// Whether the CPU stands without brackets, as `--Latency` prints it: a name,
/// and two numbers. The second would be taken for the task.
fn is_latency(words: &[(usize, &str)]) -> bool {
    matches!(words, [_, .., (_, tid), (_, cpu)] if id(tid).is_some() && id(cpu).is_some())
}

/// Beginnings of the events that only `perf script` prints so.
pub const EVENTS: [&str; 8] = [
    "syscalls:sys_enter_",
    "syscalls:sys_exit_",
    "raw_syscalls:sys_",
    "exceptions:page_fault_",
    "filemap:mm_filemap_",
    "sched:sched_process_",
    "task:task_newtask",
    "PERF_RECORD_",
];

/// Words between blanks, with their places.
struct Tokens<'a> {
    line: &'a str,
    at: usize,
}

impl<'a> Tokens<'a> {
    fn next(&mut self) -> Option<(usize, &'a str)> {
        let rest = &self.line[self.at..];
        let begin = self.at + (rest.len() - rest.trim_start().len());
        let token = self.line[begin..].split(char::is_whitespace).next()?;
        if token.is_empty() {
            return None;
        }
        self.at = begin + token.len();
        Some((begin, token))
    }
}

fn is_cpu(token: &str) -> bool {
    let inner = token.strip_prefix('[').and_then(|t| t.strip_suffix(']'));
    inner.is_some_and(|cpu| !cpu.is_empty() && cpu.bytes().all(|b| b.is_ascii_digit()))
}

/// `-F +misc`: the mode, and what kind of record it is.
fn is_mode(token: &str) -> bool {
    token.len() <= 5 && token.chars().all(|c| "KUHGgMESp".contains(c))
}

/// `2026-11-29`.
fn is_date(token: &str) -> bool {
    token.len() == 10 && token.bytes().all(|b| b.is_ascii_digit() || b == b'-')
}

fn parse_ids(token: &str) -> Option<(Option<i64>, i64)> {
    match token.split_once('/') {
        Some((pid, tid)) => Some((Some(id(pid)?), id(tid)?)),
        None => Some((None, id(token)?)),
    }
}

/// An id; perf prints -1 where it knows none.
fn id(text: &str) -> Option<i64> {
    let id: i64 = text.parse().ok()?;
    (-1..=i64::from(i32::MAX)).contains(&id).then_some(id)
}

/// `12.345678:` in nanoseconds.
pub fn time(token: &str) -> Option<u64> {
    seconds(token.strip_suffix(':')?)
}

/// `12.345678` in nanoseconds.
pub fn seconds(text: &str) -> Option<u64> {
    let (seconds, fraction) = text.split_once('.')?;
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if !digits(seconds) || !digits(fraction) || fraction.len() > 9 {
        return None;
    }
    let scale = 10u64.pow(9 - fraction.len() as u32);
    let whole: u64 = seconds.parse().ok().filter(|whole| *whole < LATEST)?;
    let part: u64 = fraction.parse::<u64>().ok()? * scale;
    Some(whole * 1_000_000_000 + part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_apart_whatever_the_columns() {
        for (line, name, pid, tid, time_ns) in [
            (
                "  make  4711 [001]  12.345678: e: x",
                "make",
                None,
                4711,
                12_345_678_000,
            ),
            (
                "make 4711/4712 12.345678901: e: x",
                "make",
                Some(4711),
                4712,
                12_345_678_901,
            ),
            (":-1 -1 [000] 0.000000: e: x", ":-1", None, -1, 0),
            ("  4711 [001] 1.000000: e: x", "", None, 4711, 1_000_000_000),
            (
                "4711/4712 1.000000: e: x",
                "",
                Some(4711),
                4712,
                1_000_000_000,
            ),
            (
                "K 7 [001] KEp   1.000000: e: x",
                "K",
                None,
                7,
                1_000_000_000,
            ),
            (
                "make 7 [001] U 2026-11-29 06:34:42.123456 1.000000: e: x",
                "make",
                None,
                7,
                1_000_000_000,
            ),
            (
                "my 1/2 prog [003] 7/8 [000] 1.000000: e: x",
                "my 1/2 prog [003]",
                Some(7),
                8,
                1_000_000_000,
            ),
        ] {
            let split = split(line).unwrap_or_else(|| panic!("{line}"));
            assert_eq!(split.name, name);
            assert_eq!((split.pid, split.tid, split.time_ns), (pid, tid, time_ns));
            assert_eq!(split.rest, "e: x");
        }
    }

    #[test]
    fn other_lines_do_not() {
        for line in [
            "",
            "\t    7f00 main+0x1 (/bin/x)",
            "12.345678: e: x",
            "make [001] 12.345678: e",
            "make-4711 [001] d... 12.345678: e",
            "make 4711 12.345678:",
            "make 47x1 12.345678: e",
            "make 4711 99999999999999999999.345678: e",
            "make 4711 8589934592.000000: e",
            "# cmdline : perf record",
        ] {
            assert_eq!(split(line), None, "{line}");
        }
    }

    #[test]
    fn a_cpu_without_brackets_is_not_taken_for_the_task() {
        let line = "demo      100   1 12.345678: PERF_RECORD_EXIT(1:1):(1:1)";
        assert_eq!(split(line), None);
        assert!(lacking(line).is_some_and(|text| text.contains("--Latency")));
        for line in [
            "demo 100 12.345678: e: x",
            "7 100 12.345678: e: x",
            "a 7 100/100 1.0: e: x",
            "a 7 100 [001] 1.0: e: x",
        ] {
            assert!(split(line).is_some_and(|line| line.tid == 100), "{line}");
        }
    }

    #[test]
    fn what_a_line_lacks_is_named() {
        for (line, option) in [
            (
                "make [001] 12.345678: syscalls:sys_enter_brk: brk: 0x0",
                "+tid",
            ),
            ("make 4711 [001] syscalls:sys_enter_brk: brk: 0x0", "+time"),
        ] {
            assert!(
                lacking(line).is_some_and(|text| text.contains(option)),
                "{line}"
            );
        }
        assert_eq!(lacking("make 4711 [001] what: ever"), None);
    }
}
