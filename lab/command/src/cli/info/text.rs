//! The summary as tables for people.

use std::io::{self, Write};

use super::survey::Report;
use crate::report::Detail;
use vellum_terminal::table::grouped;
use vellum_terminal::text::{facts, mib, plural};

/// Commands that a summary lists.
const BUSIEST: usize = 4;

/// Kinds of events that a summary lists.
const KINDS: usize = 6;

/// Prints the summary.
pub fn print(out: &mut impl Write, report: &Report, detail: Detail) -> io::Result<()> {
    let mut rows = head(report);
    let lost = ("lost events", grouped(report.lost));
    if detail == Detail::Summary {
        rows.extend((report.lost > 0).then_some(lost));
        rows.extend(brief(report));
        let more = "--details prints every count, all commands, and what was invisible.";
        return writeln!(out, "{}{more}", facts(&rows));
    }
    let [tasks, files] = [report.tasks, report.files].map(|count| grouped(count as u64));
    for (name, value) in rows
        .into_iter()
        .chain([("tasks", tasks), ("files", files), lost])
    {
        writeln!(out, "{name:<12} {value}")?;
    }
    counts(out, report)?;
    faults(out, report)?;
    commands(out, report)?;
    memory(out, report)?;
    if !report.invisible.is_empty() {
        writeln!(out, "\nwhat was invisible")?;
        for note in &report.invisible {
            writeln!(out, "  {note}")?;
        }
    }
    Ok(())
}

/// Events, faults, commands and memory in words, without what is zero.
fn brief(report: &Report) -> Vec<(&'static str, String)> {
    let list = |rows: &mut dyn Iterator<Item = (String, u64)>| {
        let rows = rows.filter(|row| row.1 > 0);
        let rows = rows.map(|(name, count)| format!("{} {name}", grouped(count)));
        rows.collect::<Vec<String>>().join(", ")
    };
    let named = |name: &str, count: u64| (name.to_owned(), count);
    let creations = &report.creations;
    let mut origins = [
        named("there from the start", creations.initial),
        named("by vfork", creations.vfork),
        named("by fork", creations.fork),
        named("threads", creations.thread),
        named("in a shared space", creations.shared_space),
    ]
    .into_iter();
    let mut events: Vec<(String, u64)> = report
        .events
        .iter()
        .map(|row| named(row.kind, row.count))
        .collect();
    events.sort_by_key(|row| std::cmp::Reverse(row.1));
    let mut kinds = report.faults.iter().flat_map(|row| {
        let what = match row.access {
            "read" => "reads",
            "write" => "writes",
            _ => "instruction fetches",
        };
        let absent = row.user_absent + row.kernel_absent;
        let present = row.user_present + row.kernel_present;
        [
            named(&format!("{what} of absent pages"), absent),
            named(&format!("{what} of present pages"), present),
        ]
    });
    let others = report.commands.iter().skip(BUSIEST).map(|row| row.faults);
    let others = named("by other commands", others.sum());
    let commands = report.commands.iter().take(BUSIEST);
    let commands = commands.map(|row| named(&format!("by {}", row.command), row.faults));
    let mut rows = vec![
        (
            "tasks",
            format!("{}: {}", grouped(report.tasks as u64), list(&mut origins)),
        ),
        ("files", grouped(report.files as u64)),
        ("events", {
            let listed = list(&mut events.into_iter().take(KINDS));
            format!("{}: {listed}, …", grouped(report.total_events))
        }),
        ("faults", list(&mut kinds)),
        ("", list(&mut commands.chain([others]))),
        (
            "pages",
            format!(
                "{} in use at the peak ({} anonymous at theirs, {} of files): an estimate, from first \
                 use, or being mapped around a fault, to the end of mapping or file. `vellum \
                 replay` counts frames in use, as the core needs them",
                mib(report.peak_bytes),
                mib(report.peak_anonymous_bytes),
                mib(report.peak_file_bytes)
            ),
        ),
        (
            "singletons",
            format!(
                "{:.1} % of {} anonymous pages, which no fork ever shared",
                report.singleton_share * 100.0,
                grouped(report.anonymous_pages)
            ),
        ),
    ];
    if report.unmapped_faults > 0 {
        let count = grouped(report.unmapped_faults);
        rows.push(("not mapped", format!("{count} faults without a mapping")));
    }
    if !report.invisible.is_empty() {
        let notes = plural(report.invisible.len(), "note", "notes");
        rows.push((
            "invisible",
            format!("{notes} on what was not recorded (--details)"),
        ));
    }
    rows
}

/// The trace, and where it was made.
fn head(report: &Report) -> Vec<(&'static str, String)> {
    let huge = match report.transparent_huge_pages {
        true => "as the system had them",
        false => "off",
    };
    let mut rows = vec![
        ("trace", report.trace.clone()),
        (
            "size",
            format!(
                "{} bytes, {:.2} an event",
                grouped(report.file_bytes),
                report.bytes_per_event
            ),
        ),
        ("command", report.command.join(" ")),
        (
            "machine",
            format!(
                "Linux {} {}, {} CPUs, {} of memory",
                report.kernel,
                report.architecture,
                report.cpus,
                mib(report.memory_bytes)
            ),
        ),
        ("huge pages", huge.to_owned()),
    ];
    rows.extend(report.cuts.iter().map(|cut| ("cut", cut.clone())));
    rows.extend(report.memory_groups.iter().map(|group| {
        let (limit, used) = (mib(group.limit_bytes), mib(group.used_bytes));
        let text = format!(
            "{} (cgroup): limit {limit}, {used} at the start",
            group.path
        );
        ("memory group", text)
    }));
    if report.beginning_events > 0 {
        let count = grouped(report.beginning_events);
        let text = format!("the first {count} events make the state that was there");
        rows.push(("beginning", text));
    }
    let cpu_time = report.cpu_time.as_ref();
    let cpu_time = cpu_time.map_or("not recorded".to_owned(), ToString::to_string);
    rows.extend([
        ("time", format!("{:.6} s", report.seconds)),
        ("CPU time", cpu_time),
    ]);
    rows.extend(report.accesses.as_ref().map(|accesses| {
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
        ("later uses", text)
    }));
    rows
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

fn commands(out: &mut impl Write, report: &Report) -> io::Result<()> {
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
    for row in &report.commands {
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
        ("peak of pages in use", report.peak_bytes),
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
