//! An advice for a terminal.

use crate::report::Detail;
use vellum_results::Figure;
use vellum_results::advise::{Advice, Audience, Row, Said};
use vellum_results::run::command_line;
use vellum_terminal::table::{Table, grouped};
use vellum_terminal::text::{facts, mib, wrapped};

/// The whole advice; the summary leaves out prices, and how to try what makes no difference.
pub fn render(advice: &Advice, detail: Detail) -> String {
    let mut text = facts(&head(advice));
    let is_told = |row: &&Row| matches!(row.said, Said::Less | Said::More);
    let told: Vec<&Row> = advice.rows.iter().filter(is_told).collect();
    text.push('\n');
    if told.is_empty() {
        text += &wrapped(
            "Nothing that was tried or counted changes the CPU time of this workload by 0.1 % or \
             more, as far as it could be told.",
        );
    } else {
        let columns = [CPU, INTERVAL, PEAK, FAULTS];
        text += &table(&told, 1, &columns, advice.checked.is_some());
        text.push('\n');
        for (number, row) in told.iter().enumerate() {
            text += &explained(number + 1, row);
        }
    }
    text += &others(advice, told.len() + 1, detail);
    if let Some(checked) = &advice.checked {
        text.push('\n');
        text += &wrapped(&format!(
            "Measured: the command itself, {} runs of each setting in turn, against {} ({} s of \
             CPU time a run). The same settings against themselves: {}.",
            checked.rounds,
            checked.against,
            seconds(checked.cpu_ns),
            change(&checked.control),
        ));
    }
    if detail == Detail::Full {
        text += &prices(advice);
    }
    text.push_str("\nNot in any figure:\n");
    for unseen in &advice.unseen {
        text += &listed(unseen);
    }
    text
}

fn head(advice: &Advice) -> Vec<(&'static str, String)> {
    let asked = &advice.asked;
    let (faults, calls) = (&asked.faults, &asked.calls);
    let percent = |part: u64| 100.0 * part as f64 / faults.all.max(1) as f64;
    let mut head = vec![
        (
            "Workload",
            format!("{} ({})", advice.trace, command_line(&advice.command)),
        ),
        ("CPU time", cpu_time(advice)),
        (
            "Faults",
            format!(
                "{}: {:.0} % first touches of private memory, {:.0} % of files, {:.0} % stores to \
                 pages that were there; {:.0} % in system calls",
                grouped(faults.all),
                percent(faults.anonymous),
                percent(faults.file),
                percent(faults.present),
                percent(faults.kernel),
            ),
        ),
        (
            "Calls",
            format!(
                "{} mmap, {} munmap, {} mprotect, {} brk, {} madvise; {} fork, {} vfork, {} \
                 threads, {} execve; {} reads and {} writes of files",
                grouped(calls.mmap),
                grouped(calls.munmap),
                grouped(calls.mprotect),
                grouped(calls.brk),
                grouped(calls.madvise),
                grouped(calls.fork),
                grouped(calls.vfork),
                grouped(calls.thread),
                grouped(calls.execve),
                grouped(calls.read),
                grouped(calls.write),
            ),
        ),
        ("Memory", memory(advice)),
    ];
    if !asked.places.is_empty() {
        let places = asked.places.iter().map(|place| {
            let share = percent(place.faults);
            format!("{share:.0} % {} of {}", place.mapping, place.command)
        });
        let places: Vec<String> = places.collect();
        head.push(("Most faults", places.join("; ")));
    }
    let part = advice.part;
    if !part.is_all() {
        head.push((
            "Replayed",
            format!(
                "the first {} of {} events: a longer --seconds takes more",
                grouped(part.events),
                grouped(part.of_events)
            ),
        ));
    }
    head.push(("This machine", host(advice)));
    head
}

fn cpu_time(advice: &Advice) -> String {
    let Some(whole) = &advice.whole else {
        return "unknown: the recording has no CPU times".to_owned();
    };
    let all = seconds(whole.cpu_ns as f64);
    let of = match advice.part.is_all() {
        true => String::new(),
        false => " of the part that was replayed".to_owned(),
    };
    match advice
        .whole_of_part
        .and_then(|part| Some((part, part.memory_ns?)))
    {
        Some((part, ns)) => format!(
            "{all} s, with recording; about {:.1} %{of} in the kernel for faults and for calls on \
             memory and files (an estimate, rather too low)",
            100.0 * part.share(ns as f64),
        ),
        None => format!("{all} s; the share of memory management is unknown"),
    }
}

fn memory(advice: &Advice) -> String {
    let asked = &advice.asked;
    let tables = match (asked.tables_bytes, asked.frames_bytes) {
        (Some(tables), Some(frames)) => format!(
            "; page tables are {} of {} at the peak of what was replayed ({:.1} %)",
            mib(tables),
            mib(frames),
            100.0 * tables as f64 / frames.max(1) as f64
        ),
        _ => String::new(),
    };
    format!(
        "{} in use at the peak, {} of it private (an estimate){tables}",
        mib(asked.peak_bytes),
        mib(asked.peak_anonymous_bytes)
    )
}

fn host(advice: &Advice) -> String {
    let host = &advice.host;
    let thp = match &*host.thp {
        "" => "no transparent huge pages (THP)".to_owned(),
        set => format!("THP {set}"),
    };
    let on = host.mthp.iter().filter(|size| !size.ends_with(" never"));
    let on: Vec<&str> = on.map(|size| &**size).collect();
    let mthp = match on.is_empty() {
        true => "all sizes of mTHP never".to_owned(),
        false => format!("mTHP {}, other sizes never", on.join(", ")),
    };
    format!("Linux {}, {thp}, {mthp}", host.kernel)
}

/// Rows in a table, numbered from `first` on, with these columns in the middle.
fn table(rows: &[&Row], first: usize, columns: &[Column], checked: bool) -> String {
    let mut header: Vec<&str> = std::iter::once("")
        .chain(columns.iter().map(|column| column.0))
        .collect();
    if checked {
        header.extend(["measured", "95 % interval"]);
    }
    let mut table = Table::new(&header);
    for (number, row) in rows.iter().enumerate() {
        let mut cells = vec![format!("{:>2}  {}", first + number, row.what)];
        cells.extend(columns.iter().map(|column| (column.1)(row)));
        if checked {
            cells.push(
                row.measured
                    .map_or_else(unknown, |own| percent(own.cpu.value)),
            );
            cells.push(row.measured.map_or_else(unknown, |own| bounds(&own.cpu)));
        }
        table.row(cells);
    }
    table.render(0)
}

/// A column: its heading, and what a row has in it.
type Column = (&'static str, fn(&Row) -> String);

const CPU: Column = ("CPU time", |row| {
    row.cpu.map_or_else(unknown, |cpu| percent(cpu.value))
});
const INTERVAL: Column = ("95 % interval", |row| {
    row.cpu.map_or_else(unknown, |cpu| bounds(&cpu))
});
const AT_MOST: Column = ("at most", |row| {
    row.bound.map_or_else(|| "unknown".to_owned(), share)
});
const PEAK: Column = ("peak memory", |row| row.peak.map_or_else(unknown, percent));
const FAULTS: Column = ("faults", |row| row.faults.map_or_else(unknown, percent));

fn explained(number: usize, row: &Row) -> String {
    let who = match row.audience {
        Audience::User => "a setting",
        Audience::Author => "a change of the program",
        Audience::Builder => "for who builds a kernel",
    };
    let effect = match row.said {
        Said::Less => "takes less CPU time; ",
        Said::More => "takes more CPU time; ",
        Said::Nothing | Said::Modelled | Said::Unknown => "",
    };
    let mut text = wrapped(&format!("{number}. {}: {effect}{who}.", row.what));
    if !row.place.is_empty() {
        text += &indented("where", &row.place);
    }
    for how in &row.how {
        text += &indented("try", how);
    }
    text += &indented("from", &format!("{}. {}", row.basis.text(), row.note));
    text
}

/// Rows without a difference, and those that are modelled.
fn others(advice: &Advice, first: usize, detail: Detail) -> String {
    let of = |wanted: &[Said]| -> Vec<&Row> {
        let rows = advice.rows.iter();
        rows.filter(|row| wanted.contains(&row.said)).collect()
    };
    let (none, modelled) = (of(&[Said::Nothing, Said::Unknown]), of(&[Said::Modelled]));
    let mut text = String::new();
    for (heading, rows, first, columns) in [
        (
            "No difference of 0.1 % or more was told; the bound is what could be:",
            &none,
            first,
            &[AT_MOST, PEAK, FAULTS][..],
        ),
        (
            "With less memory, at least, as a model of the device says, without an interval:",
            &modelled,
            first + none.len(),
            &[CPU][..],
        ),
    ] {
        if rows.is_empty() {
            continue;
        }
        text += &format!(
            "\n{heading}\n{}",
            table(rows, first, columns, advice.checked.is_some())
        );
        if detail == Detail::Full {
            text.push('\n');
            for (number, row) in rows.iter().enumerate() {
                text += &explained(first + number, row);
            }
        }
    }
    text
}

fn prices(advice: &Advice) -> String {
    let mut table = Table::new(&["ns", "95 % interval", "what it costs on this machine"]);
    for price in &advice.prices {
        let ns = |ns: f64| grouped(ns.max(0.0).round() as u64);
        table.row(vec![
            ns(price.ns.value),
            match (price.ns.low, price.ns.high) {
                (Some(low), Some(high)) => format!("{} .. {}", ns(low), ns(high)),
                _ => String::new(),
            },
            price.what.clone(),
        ]);
    }
    format!("\n{}", table.render(0))
}

/// A fact beside its name, below a row.
fn indented(name: &str, text: &str) -> String {
    let lines = facts(&[("      ", format!("{name}: {}", text.trim_end()))]);
    lines.trim_end().to_owned() + "\n"
}

fn listed(text: &str) -> String {
    facts(&[("*", text.to_owned())])
        .replacen("*  ", "* ", 1)
        .replace("\n   ", "\n  ")
}

fn unknown() -> String {
    "-".to_owned()
}

/// A change in percent, with its sign.
fn percent(share: f64) -> String {
    let percent = share * 100.0;
    match percent.abs() {
        size if size < 0.005 => "0 %".to_owned(),
        size if size < 1.0 => format!("{percent:+.2} %"),
        size if size < 100.0 => format!("{percent:+.1} %"),
        _ => format!("{percent:+.0} %"),
    }
}

/// A share in percent.
fn share(share: f64) -> String {
    let percent = share * 100.0;
    match percent.abs() {
        size if size < 0.01 => "0.01 %".to_owned(),
        size if size < 1.0 => format!("{percent:.2} %"),
        _ => format!("{percent:.1} %"),
    }
}

fn bounds(figure: &Figure) -> String {
    match (figure.low, figure.high) {
        (Some(low), Some(high)) => format!("{} .. {}", percent(low), percent(high)),
        _ => "none".to_owned(),
    }
}

fn change(figure: &Figure) -> String {
    format!("{} ({})", percent(figure.value), bounds(figure))
}

fn seconds(ns: f64) -> String {
    match ns / 1e9 {
        seconds if seconds >= 10.0 => format!("{seconds:.1}"),
        seconds => format!("{seconds:.3}"),
    }
}
