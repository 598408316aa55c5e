//! Text of ftrace, in the words of `perf script`: what the kernel prints (`trace`, `trace_pipe`),
//! what `trace-cmd report` prints, and events in the comments of function_graph.
//!
//! ```text
//! make-4711  (   4711) [001] d....  12.345678: page_fault_user: address=…
//! make-4711  [001]  12.345678: sys_enter_mmap:  addr: 0x00000000, …
//!  12.345678 |   1)  make-4711  |    |  /* sys_mmap(addr: 0, …) */
//! ```
//!
//! The name may hold blanks, dashes and brackets, and is what the kernel remembers of the task, which
//! is not always the task's; so it is not used. The process shows with option `record-tgid` only.

use std::borrow::Cow;

use super::event::{self, Not};
use super::line::{self, Line};

/// What a line is.
#[derive(Debug, PartialEq)]
pub enum Told<'a> {
    /// An event.
    Event(Line<'a>),
    /// So many events are missing here.
    Lost(u64),
    /// It should tell an event, and lacks something; which option brings it.
    Lacking(&'static str),
    /// Nothing of memory; what it is.
    Other(&'static str),
    /// Something else.
    Unknown,
}

/// Takes a line apart.
pub fn split(text: &str) -> Told<'_> {
    if let Some(line) = table(text) {
        return Told::Event(line);
    }
    if let Some(told) = graph(text) {
        return told;
    }
    let lost = text.split_once('[').and_then(|(_, text)| {
        let text = text.strip_prefix("LOST ").unwrap_or(text);
        let count = text.strip_suffix(" EVENTS]");
        count.or(text.strip_suffix(" EVENTS DROPPED]"))
    });
    if let Some(count) = lost.and_then(|count| count.parse().ok()) {
        return Told::Lost(count);
    }
    let is_about = ["cpus=", "version = ", "CPU ", "Buffer: ", "CPU:"];
    if is_about.iter().any(|begin| text.starts_with(begin)) {
        return Told::Other("lines about the recording");
    }
    match text.trim_start().starts_with("=> ") {
        true => Told::Other("lines of call chains"),
        false => Told::Unknown,
    }
}

/// Whether a line is one of ftrace's.
pub fn looks_like(text: &str) -> bool {
    !matches!(split(text), Told::Other(_) | Told::Unknown)
}

/// `make-4711 (4711) [001] d.... 12.345678: rest`.
fn table(text: &str) -> Option<Line<'_>> {
    let mut from = 0;
    // A name may hold what looks like a CPU.
    while let Some(found) = text[from..].find(" [") {
        let at = from + found;
        if let Some(line) = around(&text[..at], &text[at + 2..]) {
            return Some(line);
        }
        from = at + 2;
    }
    None
}

fn around<'a>(who: &'a str, rest: &'a str) -> Option<Line<'a>> {
    let (cpu, rest) = rest.split_once(']')?;
    let (pid, tid) = task(who)?;
    if !is_number(cpu) {
        return None;
    }
    let (first, after) = word(rest)?;
    let (time_ns, rest) = match line::time(first) {
        Some(time) => (time, after),
        // Whether interrupts are off, and so on.
        None => {
            let (second, after) = word(after)?;
            (line::time(second)?, after)
        }
    };
    let rest = rest.trim();
    (!rest.is_empty()).then_some(Line {
        name: "",
        pid,
        tid,
        time_ns,
        rest,
    })
}

/// `make-4711`, or `make-4711 ( 4711)`: the process, if it shows, and the task.
fn task(who: &str) -> Option<(Option<i64>, i64)> {
    let who = who.trim_end();
    let (task, process) = match who.strip_suffix(')').and_then(|who| who.rsplit_once('(')) {
        Some((task, process)) => (task.trim_end(), process.trim()),
        None => (who, ""),
    };
    let (_, tid) = task.rsplit_once('-')?;
    let pid = is_number(process).then(|| process.parse().ok()).flatten();
    is_number(tid).then(|| Some((pid, tid.parse().ok()?)))?
}

/// `12.345678 |   1)  make-4711  |    |  /* … */`.
fn graph(text: &str) -> Option<Told<'_>> {
    let comment = text
        .trim_end()
        .strip_suffix("*/")
        .and_then(|text| text.split_once("/* "));
    let is_call = || {
        let mut columns = text.split('|');
        let cpu = columns.find(|column| column.trim_start().split_once(')').is_some_and(is_cpu));
        cpu.is_some() && (columns.next().is_some() || text.contains(" us"))
    };
    let Some((before, rest)) = comment else {
        return is_call().then_some(Told::Other("functions that function_graph shows"));
    };
    let mut columns = before.split('|').map(str::trim);
    let time = columns.clone().find_map(line::seconds);
    let cpu = columns.find_map(|column| column.split_once(')').filter(|cpu| is_cpu(*cpu)))?;
    let who = match cpu.1.trim() {
        "" => columns.next().unwrap_or(""),
        who => who,
    };
    let Some((pid, tid)) = task(who) else {
        return Some(Told::Lacking(
            "lines without their task (option funcgraph-proc shows it)",
        ));
    };
    let Some(time_ns) = time else {
        return Some(Told::Lacking(
            "lines without a time (option funcgraph-abstime shows it)",
        ));
    };
    Some(Told::Event(Line {
        name: "",
        pid,
        tid,
        time_ns,
        rest: rest.trim(),
    }))
}

fn is_cpu((number, _): (&str, &str)) -> bool {
    is_number(number)
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.len() < 10 && text.bytes().all(|b| b.is_ascii_digit())
}

/// The first word, and what follows it.
fn word(text: &str) -> Option<(&str, &str)> {
    let text = text.trim_start();
    let end = text.find(char::is_whitespace)?;
    Some(text.split_at(end))
}

/// What follows the time, as `perf script` would print it.
pub fn in_words_of_perf(rest: &str) -> Result<Cow<'_, str>, Not> {
    if let Some(call) = rest.strip_prefix("sys_")
        && let Some(call) = call_in_words_of_perf(call)
    {
        return Ok(call.into());
    }
    let Some((name, _)) = rest.split_once(':') else {
        return Err(Not::Concerned("functions and their callers".into()));
    };
    let subsystem = match name {
        "page_fault_user" | "page_fault_kernel" => "exceptions",
        "task_newtask" => "task",
        "sched_process_fork" | "sched_process_exec" | "sched_process_exit" => "sched",
        "writeback_dirty_folio" => "writeback",
        _ if name.starts_with("mm_filemap_") => "filemap",
        _ => return Err(Not::Concerned(event::event_name(name))),
    };
    Ok(format!("{subsystem}:{rest}").into())
}

/// `enter: NR 9 (…)`, `enter_mmap: addr: …` (trace-cmd), `mmap(addr: …)`, `mmap -> 0x…` (the kernel).
fn call_in_words_of_perf(call: &str) -> Option<String> {
    if call.starts_with("enter: ") || call.starts_with("exit: ") {
        return Some(format!("raw_syscalls:sys_{call}"));
    }
    let name_ends = call.find(|c: char| !c.is_ascii_alphanumeric() && c != '_')?;
    let (name, rest) = call.split_at(name_ends);
    if let Some(result) = rest.strip_prefix(" -> ") {
        return Some(format!("syscalls:sys_exit_{name}: {result}"));
    }
    if let Some(arguments) = rest.strip_prefix('(') {
        let arguments = arguments.trim_end_matches(')');
        return Some(format!("syscalls:sys_enter_{name}: {arguments}"));
    }
    let is_named = name.starts_with("enter_") || name.starts_with("exit_");
    (is_named && rest.starts_with(':')).then(|| format!("syscalls:sys_{call}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(text: &str) -> (Option<i64>, i64, u64, &str) {
        match split(text) {
            Told::Event(line) => (line.pid, line.tid, line.time_ns, line.rest),
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn lines_come_apart_whatever_the_columns() {
        for (text, pid) in [
            ("  make-4711  [001] d.... 12.345678: e: x", None),
            (
                "  make-4711  (   4700) [001] d.... 12.345678: e: x",
                Some(4700),
            ),
            ("  make-4711  (-------) [001] 12.345678: e: x", None),
            ("  my-2 [0] prog [007]-4711 [001] 12.345678: e: x", None),
            ("v:   <...>-4711 [001] 12.345678000: e: x", None),
            (
                " 12.345678 |   1)   make-4711  |               |  /* e: x */",
                None,
            ),
            (
                " 12.345678 |   1)  <idle>-4711  | d... |  0.1 us  |  /* e: x */",
                None,
            ),
        ] {
            assert_eq!(event(text), (pid, 4711, 12_345_678_000, "e: x"), "{text}");
        }
    }

    #[test]
    fn lines_without_an_event_are_told_apart() {
        assert_eq!(split("CPU:2 [LOST 17 EVENTS]"), Told::Lost(17));
        assert_eq!(split("CPU:2 [9 EVENTS DROPPED]"), Told::Lost(9));
        for text in [
            "cpus=2",
            "version = 7",
            "CPU 1 is empty",
            "Buffer: v",
            " => do_mmap",
        ] {
            assert!(matches!(split(text), Told::Other(_)), "{text}");
        }
        for text in [
            " 1)   0.105 us    |  up_read();",
            " 0)               |  do_mmap() {",
        ] {
            assert!(matches!(split(text), Told::Other(_)), "{text}");
        }
        for (text, option) in [
            (
                " 1)               |  /* page_fault_user: address=0x1 */",
                "funcgraph-proc",
            ),
            (
                " 1)  make-4711    |               |  /* e: x */",
                "funcgraph-abstime",
            ),
        ] {
            assert!(
                matches!(split(text), Told::Lacking(what) if what.contains(option)),
                "{text}"
            );
        }
        for text in [
            "",
            "make 4711 [001] 12.345678: e: x",
            "make-4711 [001] e: x",
            "  [",
            "a-1 [0]",
        ] {
            assert_eq!(split(text), Told::Unknown, "{text}");
        }
    }

    #[test]
    fn events_are_said_in_the_words_of_perf() {
        for (text, expected) in [
            (
                "page_fault_user: address=0x1",
                "exceptions:page_fault_user: address=0x1",
            ),
            (
                "sys_mmap(addr: 0, len: 2000)",
                "syscalls:sys_enter_mmap: addr: 0, len: 2000",
            ),
            ("sys_mmap -> 0x7f00", "syscalls:sys_exit_mmap: 0x7f00"),
            (
                "sys_enter_brk:   brk: 0x0",
                "syscalls:sys_enter_brk:   brk: 0x0",
            ),
            ("sys_exit_brk:   0x1", "syscalls:sys_exit_brk:   0x1"),
            (
                "sys_enter: NR 9 (0, 2000)",
                "raw_syscalls:sys_enter: NR 9 (0, 2000)",
            ),
            ("sys_exit: NR 9 = 1", "raw_syscalls:sys_exit: NR 9 = 1"),
            ("task_newtask: pid=1", "task:task_newtask: pid=1"),
            (
                "mm_filemap_map_pages: dev 1:2",
                "filemap:mm_filemap_map_pages: dev 1:2",
            ),
        ] {
            assert_eq!(in_words_of_perf(text).as_deref(), Ok(expected));
        }
        for text in [
            "sched_switch: prev_comm=a",
            "sys_mmap",
            "do_mmap <-ksys_mmap",
            "sys_: x",
        ] {
            assert!(
                matches!(in_words_of_perf(text), Err(Not::Concerned(_))),
                "{text}"
            );
        }
    }
}
