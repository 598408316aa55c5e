//! A line of `perf script`: who, when, and the rest.
//!
//! ```text
//! make  4711 [001]  12.345678: exceptions:page_fault_user: address=…
//! make  4711/4712   12.345678: PERF_RECORD_EXIT(4711:4712):(4700:4700)
//! ```
//!
//! The name may hold blanks; what follows it may be the thread's id alone or
//! both ids; the CPU may be missing; times have six or nine decimals.

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

/// Takes a line apart. `None`: it does not begin like one.
pub fn split(line: &str) -> Option<Line<'_>> {
    let mut tokens = Tokens { line, at: 0 };
    let mut before: [Option<(usize, &str)>; 2] = [None, None];
    let mut count = 0;
    while let Some((at, token)) = tokens.next() {
        if let Some(time_ns) = time(token)
            && count >= 2
            && line.len() > tokens.at
        {
            let ids = match before {
                [Some(ids), Some((_, cpu))] if is_cpu(cpu) && count >= 3 => Some(ids),
                [_, Some(ids)] => Some(ids),
                _ => None,
            };
            if let Some((ids_at, ids)) = ids
                && let Some((pid, tid)) = parse_ids(ids)
            {
                let name = line[..ids_at].trim();
                let rest = line[tokens.at..].trim();
                return (!name.is_empty()).then_some(Line {
                    name,
                    pid,
                    tid,
                    time_ns,
                    rest,
                });
            }
        }
        before = [before[1], Some((at, token))];
        count += 1;
    }
    None
}

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
fn time(token: &str) -> Option<u64> {
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
            "4711 12.345678: e",
            "make 4711 12.345678:",
            "make 47x1 12.345678: e",
            "make 4711 99999999999999999999.345678: e",
            "make 4711 8589934592.000000: e",
            "# cmdline : perf record",
        ] {
            assert_eq!(split(line), None, "{line}");
        }
    }
}
