//! Text of `valgrind --tool=lackey --trace-mem=yes`, collapsed to page touches.
//!
//! Lackey prints every access: `I  addr,size` an instruction fetch, ` L` a load,
//! ` S` a store, ` M` a load and store. There are no times; an access counts as a
//! nanosecond.

use crate::accesses::{self, Access, Kind, Process};
use crate::report::{Place, Report};
use crate::{ImportError, Input, Watch, each_as, notes};
use vellum_record::Sink;

/// The access that a line tells.
pub fn parse(line: &str) -> Option<Access> {
    let mut words = line.split_whitespace();
    let kind = match words.next()? {
        "I" => Kind::Execute,
        "L" => Kind::Read,
        "S" | "M" => Kind::Write,
        _ => return None,
    };
    let (address, size) = words.next()?.split_once(',')?;
    let access = Access {
        kind,
        address: u64::from_str_radix(address, 16).ok()?,
        size: size.parse().ok()?,
    };
    (access.is_sane() && words.next().is_none()).then_some(access)
}

/// Whether a line is one of lackey's.
pub fn looks_like(line: &str) -> bool {
    parse(line).is_some() || message(line).is_some_and(|(_, text)| text.starts_with("Lackey"))
}

/// `==4711== text`.
fn message(line: &str) -> Option<(u32, &str)> {
    let (pid, text) = line.strip_prefix("==")?.split_once("==")?;
    Some((pid.parse().ok()?, text.trim()))
}

/// Imports the inputs, each as a process of its own.
pub fn import(
    inputs: Vec<Input>,
    sink: &mut dyn Sink,
    watch: &mut Watch<'_>,
) -> Result<Report, ImportError> {
    let mut report = Report::default();
    let processes = each_as(inputs, watch, &mut report, take)?;
    accesses::write(processes, sink, "lackey", &mut report)?;
    report
        .notes
        .push("Times are made up: an access counts as a nanosecond.".to_owned());
    notes::tell(sink, "lackey text", &report);
    Ok(report)
}

/// Takes a line of a process.
pub fn take(process: &mut Process, place: Place, text: &str, report: &mut Report) {
    if let Some(access) = parse(text) {
        let thread = process.thread(0, 0);
        let time_us = (process.accesses() + 1) / 1000;
        process.take(thread, time_us, access);
        process.lasts_until(process.accesses().div_ceil(1000));
        return;
    }
    match message(text) {
        Some((pid, said)) => {
            match process.pid {
                None => process.pid = Some(pid),
                Some(known) if known != pid => {
                    report.skip(place, "output of another process in the same file: run valgrind with --log-file=NAME.%p");
                    return;
                }
                Some(_) => {}
            }
            if let Some(command) = said.strip_prefix("Command: ") {
                process.command = command.split_whitespace().map(str::to_owned).collect();
            }
        }
        None if text.trim().is_empty() => {}
        None if text.starts_with("--") => report.pass_over(place, "valgrind's own messages"),
        None => report.skip(place, "no access of lackey's, or one that ends early"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nonsense_is_no_access() {
        for line in [
            "",
            "I",
            "I  1000",
            "I  1000,",
            "I  1000,0",
            "I  1000,99999999",
            " L ffffffffffffffff,8",
            " X 1000,4",
            " L 1000,4 more",
        ] {
            assert_eq!(parse(line), None, "{line}");
        }
    }
}
