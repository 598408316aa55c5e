//! Traces of DynamoRIO's drmemtrace, collapsed to page touches: text of its view tool, and the
//! [`records`] themselves.
//!
//! ```text
//! 801397      601855:     1159769 read         8 byte(s) @ 0x00007fff8044f6c0 by PC 0x00007fc2c3aa91e9
//! 801398      601856:     1159769 <marker: timestamp 13319413770947383>
//! ```
//!
//! Old versions print one number before the colon, and `T` before the thread. The encoding of a long
//! instruction goes on in a line of its own. Timestamps come now and then; an access has the last one
//! of its thread. What the kernel does in a system call does not show.

mod records;

use crate::accesses::{self, Access, Kind, Process};
use crate::report::{Place, Report};
use crate::{Each, ImportError, Input, Streamed, Watch, each_as, notes};
use vellum_record::Sink;

pub use records::{begins, is_raw};

const OF_THE_KERNEL: &str = "what the kernel does itself";
const OF_THE_TIMESTAMPS: &str = "Times are those of the last timestamp before an access.";
const MADE_UP_TIMES: &str = "Times are made up: an access counts as a nanosecond.";

/// A line taken apart.
#[derive(Debug, PartialEq)]
enum Line {
    Access {
        thread: u32,
        access: Access,
    },
    /// Microseconds since some time.
    Timestamp {
        thread: u32,
        time_us: u64,
    },
    /// What the kernel does begins to show, or no longer shows.
    Kernel {
        begins: bool,
    },
    /// Something else of a thread; what it is.
    Other(&'static str),
}

/// `number number: thread details`.
fn parse(text: &str) -> Option<Line> {
    let (numbers, rest) = text.split_once(':')?;
    let mut numbers = numbers.split_whitespace();
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let first = numbers.next().is_some_and(is_number);
    if !first || !numbers.all(is_number) {
        return None;
    }
    let rest = rest.trim();
    let (thread, details) = rest.split_once(char::is_whitespace)?;
    // Of several workloads: `W1.T4711`.
    let thread = thread.rsplit('.').next()?;
    let thread = thread.strip_prefix('T').unwrap_or(thread).parse().ok()?;
    details_of(thread, details.trim_start())
}

fn details_of(thread: u32, details: &str) -> Option<Line> {
    if let Some(marker) = details.strip_prefix("<marker: ") {
        let time_us = marker.strip_prefix("timestamp ");
        let begins = marker.starts_with("trace start for ");
        if begins || marker.starts_with("trace end for ") {
            return Some(Line::Kernel { begins });
        }
        return Some(match time_us {
            Some(time) => Line::Timestamp {
                thread,
                time_us: time.strip_suffix('>')?.parse().ok()?,
            },
            None => Line::Other("markers"),
        });
    }
    if details.starts_with("<thread ") {
        return Some(Line::Other("ends of threads"));
    }
    let Some((what, place)) = details.split_once(" byte(s) @ ") else {
        // The rest of an instruction's encoding.
        let mut bytes = details.split_whitespace();
        let is_encoding = bytes.all(|byte| byte.len() == 2 && u8::from_str_radix(byte, 16).is_ok());
        return is_encoding.then_some(Line::Other("encodings of instructions"));
    };
    let (what, size) = what.trim_end().rsplit_once(char::is_whitespace)?;
    let kind = match what.trim_end() {
        "ifetch" => Kind::Execute,
        "read" => Kind::Read,
        "write" => Kind::Write,
        // They do not fault, or repeat an instruction that was fetched before.
        _ => {
            return Some(Line::Other(
                "prefetches, flushes and instructions that are not fetched",
            ));
        }
    };
    let address = place.split_whitespace().next()?.strip_prefix("0x")?;
    let access = Access {
        kind,
        address: u64::from_str_radix(address, 16).ok()?,
        size: size.parse().ok()?,
    };
    if access.address >= 1 << 63 {
        return Some(Line::Other(OF_THE_KERNEL));
    }
    access.is_sane().then_some(Line::Access { thread, access })
}

/// Whether a line is one of the view tool.
pub fn looks_like(line: &str) -> bool {
    match parse(line) {
        Some(Line::Access { .. } | Line::Timestamp { .. }) => true,
        Some(Line::Other(_) | Line::Kernel { .. }) => {
            line.contains(" <marker: ") || line.contains(" byte(s) @ 0x")
        }
        None => false,
    }
}

/// A process, and what its times begin with.
#[derive(Default)]
struct Traced {
    process: Process,
    origin_us: Option<u64>,
    now_us: u64,
    timestamps: u64,
    in_kernel: bool,
}

/// Imports the inputs: records as those of one run, text each as a process of its own.
pub fn import(
    mut inputs: Vec<Input>,
    sink: &mut dyn Sink,
    watch: &mut Watch<'_>,
) -> Result<Report, ImportError> {
    match are_records(&mut inputs)? {
        true => records::import(inputs, sink, watch),
        false => import_text(inputs, sink, watch),
    }
}

/// Hands on every access of the inputs.
pub fn stream(
    mut inputs: Vec<Input>,
    watch: &mut Watch<'_>,
    each: &mut Each<'_>,
) -> Result<Report, ImportError> {
    if are_records(&mut inputs)? {
        return records::stream(inputs, watch, each);
    }
    let mut report = Report::default();
    each_as(
        inputs,
        watch,
        &mut report,
        |traced: &mut Traced, place, text, report| match parse(text) {
            Some(Line::Access { thread, access }) if !traced.in_kernel => {
                each(Streamed::new(place.input as u64, thread, access));
            }
            _ => traced.take(place, text, report),
        },
    )?;
    Ok(report)
}

/// Whether the inputs are records; else they are text.
fn are_records(inputs: &mut [Input]) -> Result<bool, ImportError> {
    let mut of_records = 0;
    for input in &mut *inputs {
        let head = input.head(4).map_err(|source| ImportError::Read {
            name: input.name.clone(),
            source,
        })?;
        of_records += usize::from(begins(&head));
    }
    match of_records {
        0 => Ok(false),
        all if all == inputs.len() => Ok(true),
        _ => Err(ImportError::Format(
            "some files are records of drmemtrace and some are text: import them one by one"
                .to_owned(),
        )),
    }
}

fn import_text(
    inputs: Vec<Input>,
    sink: &mut dyn Sink,
    watch: &mut Watch<'_>,
) -> Result<Report, ImportError> {
    let mut report = Report::default();
    let traced = each_as(inputs, watch, &mut report, Traced::take)?;
    let has_times = traced.iter().any(|traced| traced.timestamps > 0);
    let processes = traced.into_iter().map(|traced| traced.process).collect();
    accesses::write(processes, sink, "drmemtrace", &mut report)?;
    let times = match has_times {
        true => OF_THE_TIMESTAMPS,
        false => MADE_UP_TIMES,
    };
    report.notes.push(times.to_owned());
    report.notes.push(
        "All threads of a text count as threads of one process; what system calls touch does not \
         show."
            .to_owned(),
    );
    notes::tell(sink, "drmemtrace text", &report);
    Ok(report)
}

impl Traced {
    fn take(&mut self, place: Place, text: &str, report: &mut Report) {
        let process = &mut self.process;
        match parse(text) {
            Some(Line::Kernel { begins }) => {
                self.in_kernel = begins;
                report.pass_over(place, "markers");
            }
            Some(Line::Access { .. }) if self.in_kernel => report.pass_over(place, OF_THE_KERNEL),
            Some(Line::Access { thread, access }) => {
                let made_up = || (process.accesses() + 1) / 1000;
                let time_us = match self.timestamps {
                    0 => made_up(),
                    _ => self.now_us,
                };
                let thread = process.thread(thread, time_us);
                process.take(thread, time_us, access);
                process.lasts_until(time_us);
            }
            Some(Line::Timestamp { thread, time_us }) => {
                // Threads take turns: the text is in the order of what they did.
                let origin = *self.origin_us.get_or_insert(time_us);
                self.timestamps += 1;
                self.now_us = self.now_us.max(time_us.saturating_sub(origin));
                process.thread(thread, self.now_us);
                process.lasts_until(self.now_us);
            }
            Some(Line::Other(what)) => report.pass_over(place, what),
            None if is_about(text) => report.pass_over(place, "lines about the text"),
            None => report.skip(place, "not a line of drmemtrace, or one that ends early"),
        }
    }
}

/// The head of the text, and what tools print after it.
fn is_about(text: &str) -> bool {
    let text = text.trim();
    text.is_empty()
        || [
            "Output format:",
            "<--",
            "---",
            "===",
            "View tool results:",
            "Trace invariant",
        ]
        .iter()
        .any(|begin| text.starts_with(begin))
        || text
            .split_once(" : ")
            .is_some_and(|(count, _)| count.trim().bytes().all(|b| b.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(kind: Kind, address: u64, size: u64) -> Option<Line> {
        let access = Access {
            kind,
            address,
            size,
        };
        Some(Line::Access {
            thread: 4711,
            access,
        })
    }

    #[test]
    fn lines_of_all_versions_come_apart() {
        for (line, expected) in [
            (
                "801394      601853:     4711 ifetch       2 byte(s) @ 0x00007fc2c3aa91e3 7f 1b  jnle $0x7f (untaken)",
                access(Kind::Execute, 0x7fc2_c3aa_91e3, 2),
            ),
            (
                " 4  1:  4711 read         8 byte(s) @ 0x00007fff8044f6c0 by PC 0x00007fc2c3aa91e9",
                access(Kind::Read, 0x7fff_8044_f6c0, 8),
            ),
            (
                "     2: T4711 write  4 byte(s) @ 0x1000 by PC 0x2",
                access(Kind::Write, 0x1000, 4),
            ),
            (
                "  2  1: W1.T4711 write  4 byte(s) @ 0x1000 by PC 0x2",
                access(Kind::Write, 0x1000, 4),
            ),
            (
                "  6  0:  4711 <marker: timestamp 13319413770947383>",
                Some(Line::Timestamp {
                    thread: 4711,
                    time_us: 13_319_413_770_947_383,
                }),
            ),
        ] {
            assert_eq!(parse(line), expected, "{line}");
            assert!(looks_like(line), "{line}");
        }
        for line in [
            "  7  0:  4711 <marker: tid 4711 on core 5>",
            " 94 68:  4711                                             00",
            "  9  1:  4711 prefetch  64 byte(s) @ 0x1000 by PC 0x2",
            "  9  1:  4711 <thread 4711 exited>",
        ] {
            assert!(matches!(parse(line), Some(Line::Other(_))), "{line}");
        }
    }

    #[test]
    fn other_lines_do_not() {
        for line in [
            "",
            "4711  1700000000.123456 brk(NULL) = 0x1000",
            "1 2: 4711 write 8 byte(s) @ 1000 by PC 0x2",
            "1 2: 4711 write 0 byte(s) @ 0x1000 by PC 0x2",
            "1 2: 4711 write 8 byte(s) @ 0x7fffffffffffffff by PC 0x2",
            "1 2: 99999999999 write 8 byte(s) @ 0x1000 by PC 0x2",
            "a 2: 4711 write 8 byte(s) @ 0x1000",
            "1 2: 4711 <marker: timestamp x>",
        ] {
            assert_eq!(parse(line), None, "{line}");
            assert!(!looks_like(line), "{line}");
        }
    }
}
