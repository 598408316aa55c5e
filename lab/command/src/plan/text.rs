//! The answer for a terminal.

use std::fmt::Write;

use super::arithmetic::{MOST_RAM, RECORD};
use crate::report::Detail;
use vellum_results::plan::{
    Begins, Cell, Findings, Measured, Plan, Row, Size, Sizes, Sweep, VALUES,
};
use vellum_terminal::table::{Table, grouped};
use vellum_terminal::text::{plural, wrapped};

/// The answer as tables and sentences. A summary of what was measured has the sentences, and of
/// the tables that of the replays.
pub fn render(plan: &Plan, detail: Detail) -> String {
    let mut text = arithmetic(plan);
    match (&plan.measured, detail) {
        (None, _) => text += &sizes(plan),
        (Some(measured), Detail::Summary) => {
            text += &need(measured);
            text += &begins(plan, measured);
            text += &sweep(&measured.sweep, measured.demand.core_ns);
            text += "--details prints what needs low memory, machines by size, and the price of a \
                     window.\n";
        }
        (Some(measured), Detail::Full) => {
            text += &demand(measured);
            text += &sizes(plan);
            text += &begins(plan, measured);
            text += &cost(measured);
            text += &sweep(&measured.sweep, measured.demand.core_ns);
            text += &room(plan, measured);
        }
    }
    if plan.interrupted {
        text += "INTERRUPTED: the rows above are complete, others are missing\n";
    }
    text
}

/// A size in the largest unit in which it is at least 1.
pub fn size(bytes: f64) -> String {
    let units = [("GiB", 30), ("MiB", 20), ("KiB", 10)];
    let unit = units
        .iter()
        .find(|(_, shift)| bytes >= f64::from(1 << *shift as u32));
    let Some((unit, shift)) = unit else {
        return format!("{bytes:.0} bytes");
    };
    let number = format!("{:.1}", bytes / f64::from(1 << *shift as u32));
    format!("{} {unit}", number.trim_end_matches(".0"))
}

fn whole(bytes: u64) -> String {
    size(bytes as f64)
}

fn arithmetic(plan: &Plan) -> String {
    let counted = &plan.arithmetic;
    wrapped(&format!(
        "{} of low memory are {} page tables. Each maps {} (PAE), all of them {}; with a slop of \
         {}, {}.",
        whole(counted.low_bytes),
        grouped(counted.tables),
        whole(counted.table_maps),
        whole(counted.mappable),
        counted.slop,
        size(counted.with_slop),
    ))
}

/// What was measured, in a sentence.
fn need(measured: &Measured) -> String {
    let demand = &measured.demand;
    wrapped(&format!(
        "{} of {}: {} must be low, {} of that page tables; {} of frames are in use at the peak.",
        plural(demand.copies as usize, "copy", "copies"),
        measured.trace,
        whole(demand.low_bytes()),
        whole(demand.tables_bytes),
        whole(demand.all_bytes),
    ))
}

fn demand(measured: &Measured) -> String {
    let demand = &measured.demand;
    let copies = plural(demand.copies as usize, "copy", "copies");
    let mut text = format!("\nmeasured: {copies} of {}\n", measured.trace);
    let mut table = Table::new(&["", "peak KiB", "KiB a copy"]);
    let copies = u64::from(demand.copies);
    let mut row = |name: &str, bytes: u64| {
        let of_copy = format!("{:.1}", bytes as f64 / 1024.0 / copies as f64);
        table.row(vec![name.to_owned(), grouped(bytes >> 10), of_copy]);
    };
    row("page tables", demand.tables_bytes);
    for held in demand.others.iter().filter(|held| held.bytes > 0) {
        row(&held.name, held.bytes);
    }
    row("all that must be low", demand.low_bytes());
    row("all frames in use", demand.all_bytes);
    text += &table.render(2);
    text + &wrapped(&format!(
        "{} faults, {} tables made; {:.3} s in the core without windows.",
        grouped(demand.faults),
        grouped(demand.tables_made),
        demand.core_ns as f64 / 1e9
    ))
}

fn sizes(plan: &Plan) -> String {
    let Sizes { rows, .. } = &plan.sizes;
    let slop = format!("slop {}", plan.arithmetic.slop);
    let mut header = vec!["memory", "frame table", "low memory left"];
    if plan.measured.is_some() {
        header.extend(["copies in low", &slop, "copies in all", "nohigh"]);
    }
    let mut table = Table::new(&header);
    for size in rows {
        table.row(row_of(size));
    }
    let mut text = format!("\nmachines\n{}", table.render(2));
    text += &wrapped(&format!(
        "The frame table has {RECORD} bytes a frame and lies in low memory. A kernel around the \
         manager has more there (stacks, inodes, buffers), for which there is the slop."
    ));
    text
}

/// From which size of memory on `nohigh` fails.
fn begins(plan: &Plan, measured: &Measured) -> String {
    let mut text = String::new();
    let copies = plural(measured.demand.copies as usize, "copy", "copies");
    for (what, begins) in [
        (format!("for {copies}"), plan.sizes.fails_for_measured),
        (
            "for as many copies as memory holds".to_owned(),
            plan.sizes.fails_when_full,
        ),
        (
            format!("for as many, with a slop of {}", plan.arithmetic.slop),
            plan.sizes.fails_when_full_with_slop,
        ),
    ] {
        if let Some(begins) = begins {
            let _ = writeln!(text, "nohigh fails {what}: {}", place(begins));
        }
    }
    text
}

fn place(begins: Begins) -> String {
    match begins {
        Begins::Always => "on every machine with high memory".to_owned(),
        Begins::Above(bytes) => format!("above {} of memory", whole(bytes)),
        Begins::Never => format!("never (PAE addresses {})", whole(MOST_RAM)),
    }
}

fn row_of(size: &Size) -> Vec<String> {
    let mut cells = vec![
        whole(size.ram_bytes),
        whole(size.frame_table_bytes),
        whole(size.left_bytes),
    ];
    if let Some(fits) = size.fits {
        cells.extend([fits.low, fits.low_with_slop, fits.all].map(grouped));
        let measured = if fits.measured { "goes on" } else { "FAILS" };
        cells.push(measured.to_owned());
    }
    cells
}

/// What the windows of `high` come to.
fn cost(measured: &Measured) -> String {
    let mut text = String::from("\nprice of a window\n");
    let price = &measured.price;
    text += &wrapped(&format!("{:.1} ns; {}.", price.ns, price.source));
    let whole = |row: &&Row| row.cells[0].failed.is_none();
    let Some(row) = measured.sweep.rows.iter().rev().find(whole) else {
        return text;
    };
    let (high, faults) = (&row.cells[0], measured.demand.faults.max(1));
    text += &wrapped(&format!(
        "`high` opens {} windows to page tables, {:.2} a fault, which cost {:.2} ms, {:.1} % of \
         the time in the core.",
        grouped(high.windows),
        high.windows as f64 / faults as f64,
        high.charged_ns / 1e6,
        percent(high, measured.demand.core_ns),
    ));
    text
}

/// What the windows take in percent of the time in the core without them.
fn percent(cell: &Cell, core_ns: u64) -> f64 {
    100.0 * cell.charged_ns / (core_ns as f64).max(1.0)
}

fn sweep(sweep: &Sweep, core_ns: u64) -> String {
    let mut header = vec!["low memory", "of the need"];
    header.extend(VALUES);
    let mut table = Table::new(&header);
    for row in &sweep.rows {
        let mut cells = vec![whole(row.low_bytes), format!("{:.2}", row.part)];
        cells.extend(row.cells.iter().map(|cell| match &cell.failed {
            Some(place) => format!("FAILS at {place}"),
            None => format!(
                "{} {:>6.1} %",
                grouped(cell.windows),
                percent(cell, core_ns)
            ),
        }));
        table.row(cells);
    }
    let mut text = format!(
        "\nreplays with little low memory: windows to page tables, and what they cost\n{}",
        table.render(2)
    );
    for sentence in sentences(&sweep.findings) {
        text += &wrapped(&sentence);
    }
    text
}

/// Where the machines stand among the replays.
fn room(plan: &Plan, measured: &Measured) -> String {
    let need = measured.demand.low_bytes() as f64;
    let rows = &plan.sizes.rows;
    let part = |size: Option<&Size>| size.map_or(0.0, |size| size.left_bytes as f64 / need);
    wrapped(&format!(
        "The smallest of the machines above leaves {:.1} times the need, the largest {:.1} times.",
        part(rows.first()),
        part(rows.last()),
    ))
}

fn sentences(findings: &Findings) -> Vec<String> {
    let list = |sizes: &mut dyn Iterator<Item = u64>| {
        let sizes: Vec<String> = sizes.map(whole).collect();
        sizes.join(", ")
    };
    let crossing = match findings.crossing_bytes {
        Some(low) => format!(
            "The curves cross at {} of low memory: with less `nohigh` fails and `high` can be a \
             win, from there on `high` costs more than `nohigh`.",
            whole(low)
        ),
        None => "The curves do not cross: `nohigh` failed with the most low memory, too.".into(),
    };
    let failed = match findings.auto_failed_alone.as_slice() {
        [] => "`auto` never failed where `high` did not.".to_owned(),
        sizes => format!(
            "`auto` FAILED where `high` did not, with {} of low memory.",
            list(&mut sizes.iter().copied())
        ),
    };
    let behind = match findings.auto_behind.as_slice() {
        [] => "`auto` was within 1 % of the better of the two with every size.".to_owned(),
        sizes => {
            let most = sizes.iter().map(|size| size.1).fold(0.0, f64::max);
            format!(
                "`auto` was more than 1 % behind the better of the two with {} of low memory, by \
                 {most:.1} % at most.",
                list(&mut sizes.iter().map(|size| size.0))
            )
        }
    };
    let free = match findings.auto_free_bytes {
        Some(low) => format!("It opened no window from {} on.", whole(low)),
        None => "It opened windows with every size.".to_owned(),
    };
    vec![crossing, failed, format!("{behind} {free}")]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_the_unit_in_which_they_are_short() {
        for (bytes, text) in [
            (500.0, "500 bytes"),
            (1536.0, "1.5 KiB"),
            (805_306_368.0, "768 MiB"),
            (38.4 * 1_073_741_824.0, "38.4 GiB"),
        ] {
            assert_eq!(size(bytes), text);
        }
    }

    #[test]
    fn what_auto_does_worse_is_said() {
        let findings = Findings {
            auto_failed_alone: vec![1 << 20],
            auto_behind: vec![(2 << 20, 3.0), (3 << 20, 7.25)],
            ..Findings::default()
        };
        let text = sentences(&findings).join("\n");
        for part in [
            "do not cross",
            "FAILED where `high` did not, with 1 MiB",
            "with 2 MiB, 3 MiB of low memory, by 7.2 %",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
