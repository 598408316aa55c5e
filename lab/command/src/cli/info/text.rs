//! The summary as tables for people.

use std::io::{self, Write};

use super::survey::Report;

/// Commands that are listed unless all are asked for.
const TOP: usize = 12;

/// Digits in groups of three.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn mib(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

/// Prints the summary. `all` lists every command.
pub fn print(out: &mut impl Write, report: &Report, all: bool) -> io::Result<()> {
    head(out, report)?;
    counts(out, report)?;
    faults(out, report)?;
    commands(out, report, all)?;
    memory(out, report)?;
    if !report.invisible.is_empty() {
        writeln!(out, "\nwhat was invisible")?;
        for note in &report.invisible {
            writeln!(out, "  {note}")?;
        }
    }
    Ok(())
}

fn head(out: &mut impl Write, report: &Report) -> io::Result<()> {
    let mut line = |name: &str, value: String| writeln!(out, "{name:<12} {value}");
    line("trace", report.trace.clone())?;
    line(
        "size",
        format!(
            "{} bytes, {:.2} an event",
            grouped(report.file_bytes),
            report.bytes_per_event
        ),
    )?;
    line("command", report.command.join(" "))?;
    line(
        "machine",
        format!(
            "Linux {} {}, {} CPUs, {} of memory",
            report.kernel,
            report.architecture,
            report.cpus,
            mib(report.memory_bytes)
        ),
    )?;
    let huge = if report.transparent_huge_pages {
        "as the system had them"
    } else {
        "off"
    };
    line("huge pages", huge.to_owned())?;
    for cut in &report.cuts {
        line("cut", cut.clone())?;
    }
    line("time", format!("{:.6} s", report.seconds))?;
    let cpu_time = report.cpu_time.as_ref();
    line(
        "CPU time",
        cpu_time.map_or("not recorded".to_owned(), ToString::to_string),
    )?;
    if let Some(accesses) = &report.accesses {
        let known = match accesses.of_regions {
            true => "how many pages of each region",
            false => "each page",
        };
        let text = format!(
            "sampled every {} ms, {known}: {} pages in {} ranges",
            accesses.interval_us as f64 / 1e3,
            grouped(accesses.pages),
            grouped(accesses.ranges)
        );
        line("later uses", text)?;
    }
    line("tasks", grouped(report.tasks as u64))?;
    line("files", grouped(report.files as u64))?;
    line("lost events", grouped(report.lost))
}

fn counts(out: &mut impl Write, report: &Report) -> io::Result<()> {
    let creations = &report.creations;
    writeln!(out, "\n{:<22} {:>12}", "tasks by origin", "count")?;
    for (name, count) in [
        ("there from the start", creations.initial),
        ("vfork", creations.vfork),
        ("fork", creations.fork),
        ("thread", creations.thread),
        ("other, shared space", creations.shared_space),
    ] {
        writeln!(out, "  {name:<20} {:>12}", grouped(count))?;
    }
    writeln!(out, "\n{:<22} {:>12}", "events by kind", "count")?;
    for row in &report.events {
        writeln!(out, "  {:<20} {:>12}", row.kind, grouped(row.count))?;
    }
    writeln!(
        out,
        "  {:<20} {:>12}",
        "total",
        grouped(report.total_events)
    )?;
    writeln!(
        out,
        "  {:<20} {:>12}",
        "(pages offered around)",
        grouped(report.around_pages)
    )
}

fn faults(out: &mut impl Write, report: &Report) -> io::Result<()> {
    writeln!(
        out,
        "\n{:<10} {:>14} {:>14} {:>14} {:>14}",
        "faults", "user absent", "user present", "kernel absent", "kernel present"
    )?;
    for row in &report.faults {
        writeln!(
            out,
            "  {:<8} {:>14} {:>14} {:>14} {:>14}",
            row.access,
            grouped(row.user_absent),
            grouped(row.user_present),
            grouped(row.kernel_absent),
            grouped(row.kernel_present)
        )?;
    }
    Ok(())
}

fn commands(out: &mut impl Write, report: &Report, all: bool) -> io::Result<()> {
    writeln!(
        out,
        "\n{:<17} {:>8} {:>8} {:>11} {:>10} {:>9} {:>9} {:>9} {:>9} {:>10} {:>9}",
        "command",
        "execs",
        "creates",
        "faults",
        "on present",
        "maps",
        "unmaps",
        "protects",
        "brks",
        "reads",
        "writes"
    )?;
    let shown = if all { report.commands.len() } else { TOP };
    for row in report.commands.iter().take(shown) {
        writeln!(
            out,
            "  {:<15} {:>8} {:>8} {:>11} {:>10} {:>9} {:>9} {:>9} {:>9} {:>10} {:>9}",
            row.command,
            grouped(row.execs),
            grouped(row.creations),
            grouped(row.faults),
            grouped(row.cow_faults),
            grouped(row.maps),
            grouped(row.unmaps),
            grouped(row.protects),
            grouped(row.brks),
            grouped(row.reads),
            grouped(row.writes)
        )?;
    }
    if report.commands.len() > shown {
        let more = report.commands.len() - shown;
        writeln!(out, "  and {more} more (--all lists them)")?;
    }
    Ok(())
}

fn memory(out: &mut impl Write, report: &Report) -> io::Result<()> {
    writeln!(out, "\nmemory, as far as the trace tells")?;
    writeln!(
        out,
        "  {:<28} {:>14}",
        "anonymous pages",
        grouped(report.anonymous_pages)
    )?;
    writeln!(
        out,
        "  {:<28} {:>14}  {:.1} %",
        "singletons (one mapper ever)",
        grouped(report.singleton_pages),
        report.singleton_share * 100.0
    )?;
    for (name, bytes) in [
        ("peak", report.peak_bytes),
        ("peak anonymous", report.peak_anonymous_bytes),
        ("peak of files", report.peak_file_bytes),
    ] {
        writeln!(out, "  {name:<28} {:>14}", mib(bytes))?;
    }
    if report.unmapped_faults > 0 {
        writeln!(
            out,
            "  {:<28} {:>14}",
            "faults without a mapping",
            grouped(report.unmapped_faults)
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_by_thousands() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1_000), "1,000");
        assert_eq!(grouped(12_345_678), "12,345,678");
    }
}
