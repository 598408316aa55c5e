//! What a line of `perf script` says after who and when.

use super::calls;
use super::line::EVENTS;
use super::plain::PlainFault;
use crate::feed::ABSURD;
use vellum_record::{Identity, Mmap, Sample};

const PAGE: u64 = 4096;

/// An event.
#[derive(Clone, Debug, PartialEq)]
pub enum Event<'a> {
    Sample(Sample<'a>),
    /// `page-faults` and its kin.
    PlainFault(PlainFault<'a>),
    /// `task:task_newtask`.
    NewTask {
        child: i64,
        flags: u64,
    },
    Mmap {
        pid: i64,
        tid: i64,
        mmap: Mmap<'a>,
    },
    /// `PERF_RECORD_COMM`, and whether it comes from an exec.
    Comm {
        pid: i64,
        tid: i64,
        name: &'a str,
        exec: bool,
    },
    /// `PERF_RECORD_FORK`.
    Fork {
        pid: i64,
        tid: i64,
        ptid: i64,
    },
    /// `PERF_RECORD_EXIT`.
    Exit {
        tid: i64,
    },
    Lost {
        count: u64,
    },
    /// `sched:sched_process_fork`, `…_exec`, `…_exit`.
    SchedFork {
        child: i64,
    },
    SchedExec {
        tid: i64,
    },
    SchedExit {
        tid: i64,
    },
}

/// Why there is none.
#[derive(Clone, Debug, PartialEq)]
pub enum Not {
    /// It has nothing to do with memory; what it is.
    Concerned(String),
    /// It should have been understood; what is wrong.
    Whole(String),
}

fn damaged<T>(what: &str) -> Result<T, Not> {
    Err(Not::Whole(what.to_owned()))
}

/// Reads the text after the time.
pub fn parse(rest: &str) -> Result<Event<'_>, Not> {
    if let Some(record) = rest.strip_prefix("PERF_RECORD_") {
        return record_line(record);
    }
    let (event, fields) = name_and_fields(rest)?;
    if let Some(name) = event.strip_prefix("syscalls:sys_enter_") {
        return enter(name, fields);
    }
    if let Some(name) = event.strip_prefix("syscalls:sys_exit_") {
        return exit(name, fields);
    }
    let what = || match fields.is_empty() {
        true => Not::Whole(format!(
            "{event} without its fields (perf script -F +trace shows them)"
        )),
        false => Not::Whole(format!("fields of {event} are missing or no numbers")),
    };
    let named = |name, radix| number_after(fields, name, radix).ok_or_else(what);
    let sample = match event {
        "exceptions:page_fault_user" | "exceptions:page_fault_kernel" => {
            let address = named("address", 16)?;
            if address >= 1 << 56 {
                return Err(Not::Concerned(
                    "faults at the kernel's own addresses".into(),
                ));
            }
            Sample::Fault {
                address,
                code: named("error_code", 16)?,
                kernel: event.ends_with("kernel"),
            }
        }
        "raw_syscalls:sys_enter" => return raw_enter(fields),
        "raw_syscalls:sys_exit" => return raw_exit(fields),
        "task:task_newtask" => {
            return Ok(Event::NewTask {
                child: named("pid", 10)? as i64,
                flags: named("clone_flags", 16)?,
            });
        }
        "sched:sched_process_fork" => {
            let child = named("child_pid", 10)? as i64;
            return Ok(Event::SchedFork { child });
        }
        "sched:sched_process_exec" => {
            let tid = named("pid", 10)? as i64;
            return Ok(Event::SchedExec { tid });
        }
        "sched:sched_process_exit" => {
            let tid = named("pid", 10)? as i64;
            return Ok(Event::SchedExit { tid });
        }
        "filemap:mm_filemap_map_pages" | "filemap:mm_filemap_get_pages" => {
            let file = identity(fields).ok_or_else(what)?;
            let (first, last) = pages(fields).ok_or_else(what)?;
            match event.ends_with("map_pages") {
                true => Sample::MapPages { file, first, last },
                false => Sample::GetPages { file, first, last },
            }
        }
        "filemap:mm_filemap_add_to_page_cache" => Sample::AddToCache {
            file: identity(fields).ok_or_else(what)?,
            page: offset(fields).ok_or_else(what)?,
            order: u8::try_from(named("order", 10)?).map_err(|_| what())?,
        },
        "filemap:mm_filemap_delete_from_page_cache" => Sample::Drop {
            file: identity(fields).ok_or_else(what)?,
            page: offset(fields).ok_or_else(what)?,
        },
        "writeback:writeback_dirty_folio" => Sample::Dirty {
            disk: disk(fields).ok_or_else(what)?.as_bytes(),
            inode: named("ino", 10)?,
            page: named("index", 10).and_then(|page| match page < ABSURD / PAGE {
                true => Ok(page),
                false => Err(what()),
            })?,
        },
        "page-faults" | "faults" | "minor-faults" | "major-faults" => {
            return Ok(Event::PlainFault(PlainFault::parse(event, fields)));
        }
        "damon:damon_aggregated" => {
            return damaged("DAMON's samples among other events (--from damon reads them alone)");
        }
        _ => return Err(Not::Concerned(event_name(event))),
    };
    Ok(Event::Sample(sample))
}

/// The name that the kernel gives a task which executes the program of a
/// `sched:sched_process_exec` line: the first 15 bytes of its path's last part.
pub fn program(rest: &str) -> &str {
    let path = after(rest, "filename").and_then(|text| text.split_once(" pid="));
    let name = path.map_or("", |(path, _)| path.rsplit('/').next().unwrap_or(path));
    let end = (0..=name.len().min(15))
        .rev()
        .find(|end| name.is_char_boundary(*end));
    &name[..end.unwrap_or(0)]
}

/// The event's name as far as it is one.
pub fn event_name(event: &str) -> String {
    let name: String = event.chars().take(60).collect();
    format!("events {name}")
}

/// How many events a line stands for, where it says so (`-F +period`).
pub fn period(rest: &str) -> Option<u64> {
    rest.split(char::is_whitespace).next()?.parse().ok()
}

/// Takes the event and what follows it apart. Before the event may stand its
/// period (`-F +period`), after it how it was counted (`:u`).
fn name_and_fields(rest: &str) -> Result<(&str, &str), Not> {
    let rest = match rest.split_once(char::is_whitespace) {
        Some((period, rest)) if period.bytes().all(|b| b.is_ascii_digit()) => rest.trim_start(),
        _ => rest,
    };
    let (event, fields) = match rest.split_once(": ") {
        Some((event, fields)) => (event, fields.trim()),
        None => (rest.trim_end_matches(':'), ""),
    };
    let is_name = |text: &str| {
        let mut letters = text.chars();
        letters.next().is_some_and(char::is_alphabetic)
            && letters.all(|c| !c.is_whitespace() && (text.contains('/') || !"=(,".contains(c)))
    };
    // Without its event a line begins with the first field: `brk: 0x0`,
    // `address=0x…`, `NR 9 (…`, or with a result.
    if is_name(event) && (event.contains([':', '/']) || !fields.starts_with("0x")) {
        return Ok((without_modifier(event), fields));
    }
    match EVENTS.iter().any(|known| rest.contains(known)) {
        true => damaged(
            "events with something before their names (leave out what -F adds before the event)",
        ),
        false => damaged("lines without the name of their event (perf script -F +event shows it)"),
    }
}

/// `exceptions:page_fault_user:u` without its end.
fn without_modifier(event: &str) -> &str {
    let letters = |text: &str| text.chars().all(|c| "ukhGHpPSDWebI".contains(c));
    match event.rsplit_once(':') {
        Some((name, modifier)) if letters(modifier) && is_known_or_plain(name) => name,
        _ => event,
    }
}

/// Whether a name can end here: `subsystem:name`, or one of perf's own events.
fn is_known_or_plain(name: &str) -> bool {
    name.contains(':') || name.ends_with("-faults") || name == "faults"
}

/// The text after `name=` or `name ` in a list of fields.
fn after<'a>(fields: &'a str, name: &str) -> Option<&'a str> {
    let mut from = 0;
    while let Some(found) = fields[from..].find(name) {
        let at = from + found;
        let begins = at == 0 || fields[..at].ends_with([' ', ',']);
        let rest = &fields[at + name.len()..];
        if begins && let Some(value) = rest.strip_prefix(['=', ' ']) {
            return Some(value);
        }
        from = at + name.len();
    }
    None
}

fn number_after(fields: &str, name: &str, radix: u32) -> Option<u64> {
    number(after(fields, name)?, radix)
}

/// The number that `text` begins with, `0x` or not.
fn number(text: &str, radix: u32) -> Option<u64> {
    let (text, radix) = match text.strip_prefix("0x") {
        Some(text) => (text, 16),
        None => (text, radix),
    };
    let end = text
        .find(|c: char| !c.is_digit(radix))
        .unwrap_or(text.len());
    u64::from_str_radix(&text[..end], radix).ok()
}

/// A system call's result: hexadecimal, or decimal with a sign.
fn result(text: &str) -> Option<u64> {
    match text.strip_prefix('-') {
        Some(digits) => Some(number(digits, 10)?.wrapping_neg()),
        None => number(text, 10),
    }
}

/// `dev=254:0 ino=4f8cb` or `dev 254:0 ino 4f8cb`.
fn identity(fields: &str) -> Option<Identity> {
    let device = after(fields, "dev")?;
    let (major, rest) = device.split_once(':')?;
    Some(Identity {
        device: device_number(major.parse().ok()?, number(rest, 10)?)?,
        inode: number_after(fields, "ino", 16)?,
    })
}

fn device_number(major: u64, minor: u64) -> Option<u32> {
    (major < 1 << 12 && minor < 1 << 20).then_some((major << 20 | minor) as u32)
}

fn offset(fields: &str) -> Option<u64> {
    let offset = number_after(fields, "ofs", 10)?;
    (offset < ABSURD).then_some(offset / PAGE)
}

/// `ofs=0-8191`: the first and the last page.
fn pages(fields: &str) -> Option<(u64, u64)> {
    let (first, last) = after(fields, "ofs")?.split_once('-')?;
    let (first, last) = (number(first, 10)? / PAGE, number(last, 10)? / PAGE);
    (first <= last && last < ABSURD / PAGE).then_some((first, last))
}

/// `bdi 254:0: ino=…`: the disk's name.
fn disk(fields: &str) -> Option<&str> {
    let name = after(fields, "bdi")?.split_whitespace().next()?;
    Some(name.trim_end_matches(':'))
}

fn enter<'a>(name: &str, fields: &str) -> Result<Event<'a>, Not> {
    let Some(number) = calls::number_of(name) else {
        return unrelated_call();
    };
    let mut args = [0; 6];
    let mut given = 0;
    for field in fields.split(", ").filter(|field| !field.is_empty()).take(6) {
        let value = field
            .split_once(": ")
            .and_then(|(_, value)| self::number(value, 16));
        let Some(value) = value else { break };
        args[given] = value;
        given += 1;
    }
    checked_enter(number, given, args)
}

fn checked_enter<'a>(number: u64, given: usize, args: [u64; 6]) -> Result<Event<'a>, Not> {
    match calls::check(number, given, &args) {
        Ok(()) => Ok(Event::Sample(Sample::Enter { number, args })),
        Err(what) => damaged(what),
    }
}

fn unrelated_call<T>() -> Result<T, Not> {
    Err(Not::Concerned(
        "system calls that do not change memory".into(),
    ))
}

fn exit<'a>(name: &str, fields: &str) -> Result<Event<'a>, Not> {
    let Some(number) = calls::number_of(name) else {
        return unrelated_call();
    };
    // Flags (`-F +flags`) may stand before it.
    match fields.split_whitespace().find_map(result) {
        Some(result) => Ok(Event::Sample(Sample::Exit { number, result })),
        None => damaged("a system call without its result"),
    }
}

/// `NR 9 (0, 2000, 3, 22, ffffffff, 0)`.
fn raw_enter<'a>(fields: &str) -> Result<Event<'a>, Not> {
    let call = after(fields, "NR").and_then(|text| text.split_once(" ("));
    let Some((call, list)) = call else {
        return damaged("a system call without its arguments");
    };
    let Some(number) = number(call, 10) else {
        return damaged("a system call without its number");
    };
    if !calls::matters(number) {
        return unrelated_call();
    }
    let mut args = [0; 6];
    let mut given = 0;
    for text in list.trim_end_matches(')').split(", ").take(6) {
        let Some(value) = self::number(text, 16) else {
            break;
        };
        args[given] = value;
        given += 1;
    }
    checked_enter(number, given, args)
}

/// `NR 9 = 140371898925056`.
fn raw_exit<'a>(fields: &str) -> Result<Event<'a>, Not> {
    let call = after(fields, "NR").and_then(|text| text.split_once(" = "));
    let Some((number, result)) =
        call.and_then(|(call, end)| Some((number(call, 10)?, result(end)?)))
    else {
        return damaged("a system call without its result");
    };
    match calls::matters(number) {
        true => Ok(Event::Sample(Sample::Exit { number, result })),
        false => unrelated_call(),
    }
}

/// What follows `PERF_RECORD_`.
fn record_line(text: &str) -> Result<Event<'_>, Not> {
    let parsed = if let Some(text) = text.strip_prefix("MMAP2 ") {
        return mmap(text);
    } else if let Some(text) = text.strip_prefix("MMAP ") {
        return match text.starts_with("-1/") {
            true => Err(Not::Concerned(event_name("PERF_RECORD_MMAP"))),
            false => damaged("PERF_RECORD_MMAP, which tells neither rights nor file"),
        };
    } else if let Some(text) = text.strip_prefix("COMM exec: ") {
        comm(text, true)
    } else if let Some(text) = text.strip_prefix("COMM: ") {
        comm(text, false)
    } else if let Some(text) = text.strip_prefix("FORK(") {
        fork(text)
    } else if let Some(text) = text.strip_prefix("EXIT(") {
        ids(text).map(|((_, tid), _)| Event::Exit { tid })
    } else if let Some(text) = text.strip_prefix("LOST") {
        let count = text.split_whitespace().find_map(|word| number(word, 10));
        count.map(|count| Event::Lost { count })
    } else {
        let name = text.split([' ', '(', ':']).next().unwrap_or("");
        return Err(Not::Concerned(event_name(&format!("PERF_RECORD_{name}"))));
    };
    parsed.ok_or_else(|| Not::Whole("a PERF_RECORD line that ends early".into()))
}

/// `name:4711/4712`.
fn comm(text: &str, exec: bool) -> Option<Event<'_>> {
    let (name, ids) = text.rsplit_once(':')?;
    let (pid, tid) = ids.split_once('/')?;
    Some(Event::Comm {
        pid: pid.parse().ok()?,
        tid: tid.trim().parse().ok()?,
        name,
        exec,
    })
}

fn fork<'a>(text: &str) -> Option<Event<'a>> {
    let ((pid, tid), (_, ptid)) = ids(text)?;
    Some(Event::Fork { pid, tid, ptid })
}

/// `4711:4712):(4700:4701)`.
fn ids(text: &str) -> Option<((i64, i64), (i64, i64))> {
    let (child, parent) = text.split_once("):(")?;
    let pair = |text: &str| -> Option<(i64, i64)> {
        let (pid, tid) = text.split_once(':')?;
        Some((pid.parse().ok()?, tid.parse().ok()?))
    };
    Some((pair(child)?, pair(parent.trim_end().trim_end_matches(')'))?))
}

/// `4711/4711: [0x7f00(0x1000) @ 0 fe:00 409602 0]: r--p /etc/passwd`.
fn mmap(text: &str) -> Result<Event<'_>, Not> {
    let parts = || -> Option<(i64, i64, Mmap<'_>)> {
        let (ids, rest) = text.split_once(": [")?;
        let (pid, tid) = ids.split_once('/')?;
        let (place, rest) = rest.split_once("]: ")?;
        let (rights, name) = rest.split_once(' ').unwrap_or((rest, ""));
        let (range, file) = place.split_once(" @ ")?;
        let (address, length) = range.split_once('(')?;
        let mut file = file.split(' ');
        let offset = number(file.next()?, 10)?;
        let device = file.next()?;
        let (device, inode) = match device.split_once(':') {
            Some(device) => (Some(device), number(file.next()?, 10)?),
            None => (None, 0),
        };
        let (major, minor) = match device {
            Some((major, minor)) => (number(major, 16)?, number(minor, 16)?),
            None => (0, 0),
        };
        device_number(major, minor)?;
        let right = |letter, bit| if rights.contains(letter) { bit } else { 0 };
        let mmap = Mmap {
            address: number(address, 16)?,
            length: number(length, 16)?,
            offset,
            major: major as u32,
            minor: minor as u32,
            inode,
            prot: right('r', 1) | right('w', 2) | right('x', 4),
            flags: if rights.contains('s') { 1 } else { 2 },
            name: name.as_bytes(),
        };
        Some((pid.parse().ok()?, tid.parse().ok()?, mmap))
    };
    match parts() {
        Some((_, _, mmap)) if mmap.address >= 1 << 56 => Err(Not::Concerned(
            "mappings at the kernel's own addresses".into(),
        )),
        Some((pid, tid, mmap)) => {
            let sane = [mmap.address, mmap.length, mmap.offset];
            match sane.iter().all(|value| *value < ABSURD) {
                true => Ok(Event::Mmap { pid, tid, mmap }),
                false => damaged("a mapping whose place cannot be"),
            }
        }
        None => damaged("a mapping whose place or file cannot be read"),
    }
}
