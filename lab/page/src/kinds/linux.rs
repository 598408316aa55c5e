//! The host's own kernel: replayed alone, beside the core, and two saved results.

use maud::{Markup, html};

use super::arms::{self, RatioRow};
use super::{Answer, Named, Section, Shown};
use crate::draw::marks::Arm;
use crate::grid::{Cell, Grid};
use crate::words;
use vellum_results::linux::{
    Against, Environment, HostComparison, HostKind, Saved, SavedComparison, Times, middle,
};
use vellum_results::{Figure, Verdict};

/// What is said of times that pass by pass belong to a whole process tree.
const UNIT: &str = "A process cannot be stopped half-way for another arm to run, so that the unit of the \
                    statistics is a pass.";

fn median(passes: &[u64]) -> f64 {
    middle(passes).unwrap_or(0.0)
}

fn kernel(host: &Environment) -> String {
    format!("Linux {}", host.kernel)
}

/// Shows a replay on the host.
pub fn show_replay(saved: &Saved) -> Shown {
    let kernel = kernel(&saved.environment);
    let net = median(&saved.times.host.net_ns);
    let (unit, divisor) = words::time_unit(net);
    let passes = saved.times.host.net_ns.len() as u64;
    let mut arms = vec![Named::new(Arm::Number(0), "A", kernel.clone())];
    if !saved.times.control.net_ns.is_empty() {
        arms.push(Named::new(Arm::Control, "A'", "once more, the control"));
    }
    let control = median(&saved.times.control.net_ns);
    let alone: Vec<_> = saved.kinds.iter().map(|kind| (kind, None)).collect();
    let ratio = Figure {
        value: control / net,
        ..Figure::default()
    };
    Shown {
        title: format!("{} on {kernel}", words::file_name(&saved.trace.path)),
        answer: Answer {
            sentence: format!(
                "The events of {} take {} {unit} of CPU time on {kernel}, the replay's own cost taken off \
                 (median of {}).",
                words::file_name(&saved.trace.path),
                words::number(net / divisor),
                words::plural(passes, "pass", "passes")
            ),
            control: (arms.len() > 1).then_some(ratio),
            ..Answer::default()
        },
        sections: vec![
            Section::new("CPU time", times_table(saved)),
            Section::new("Passes", series(&arms, saved, &[])),
            Section::new("Time by kind of operation", kinds(&alone)),
        ],
        facts: facts(saved),
    }
}

/// Shows the host's kernel beside a design of the core.
pub fn show_against_core(comparison: &HostComparison) -> Shown {
    let host = &comparison.host;
    let kernel = kernel(&host.environment);
    let names = [
        Named::new(Arm::Number(0), "A", kernel.clone()),
        Named::new(Arm::Number(1), "B", "the core"),
        Named::new(Arm::Control, "A'", "A once more, the control"),
    ];
    let mut coverage = Grid::new("what each side does that the other does not")
        .text("subject")
        .text("host")
        .text("core");
    for row in &comparison.coverage {
        let cells = [&row.subject, &row.host, &row.core].map(Cell::text);
        coverage.row("", cells.to_vec());
    }
    let both = comparison.kinds.iter();
    let both: Vec<_> = both.map(|kind| (&kind.host, Some(kind.core_ns))).collect();
    let mut facts = facts(host);
    facts.push(("Design B".to_owned(), comparison.design.clone()));
    facts.push(("Seed".to_owned(), comparison.seed.to_string()));
    Shown {
        title: format!(
            "The core against {kernel}: {}",
            words::file_name(&host.trace.path)
        ),
        answer: answer(
            (&kernel, "the core"),
            &comparison.before.ratio,
            Some(comparison.before.control_ratio),
            comparison.before.resolution,
            comparison.verdict,
            comparison.interrupted,
        ),
        sections: vec![
            Section::new(
                "CPU time",
                html! {
                    (against(&comparison.before, &names, "before subtracting what entering the kernel costs"))
                    (against(&comparison.after, &names, "after subtracting it"))
                    p.note { (UNIT) }
                    (times_table(host))
                },
            ),
            Section::new(
                "Passes",
                series(&names, host, &[(&names[1], &comparison.core_ns)]),
            ),
            Section::new("Time by kind of operation", kinds(&both)),
            Section::new("What is comparable", coverage.render()),
        ],
        facts,
    }
}

/// Shows two saved results.
pub fn show_saved(comparison: &SavedComparison) -> Shown {
    let (a, b) = (&comparison.a, &comparison.b);
    let (of_a, of_b) = (kernel(&a.environment), kernel(&b.environment));
    let apart = &comparison.apart;
    let (unit, divisor) = words::time_unit(apart.a_ns.value);
    let one = Figure {
        value: 1.0,
        ..Figure::default()
    };
    let control = |arm: usize, label: &str| {
        Named::new(
            Arm::Control,
            label,
            format!("{} once more, its control", ["A", "B"][arm]),
        )
    };
    let rows = [
        RatioRow {
            named: Named::new(Arm::Number(0), "A", of_a.clone()),
            time: apart.a_ns.in_units_of(divisor),
            ratio: one,
            resolution: None,
            says: "base".to_owned(),
        },
        RatioRow {
            named: Named::new(Arm::Number(1), "B", of_b.clone()),
            time: apart.b_ns.in_units_of(divisor),
            ratio: apart.ratio,
            resolution: apart.resolution,
            says: arms::says(comparison.verdict).to_owned(),
        },
    ];
    let controls = html! {
        p {
            (control(0, "A'").whole()) ": ratio " (words::ratio(apart.control_ratios[0].value))
            " (" (words::bounds(&apart.control_ratios[0], words::ratio)) "). "
            (control(1, "B'").whole()) ": ratio " (words::ratio(apart.control_ratios[1].value))
            " (" (words::bounds(&apart.control_ratios[1], words::ratio)) ")."
        }
        p.note {
            "The two did not run side by side: the interval covers what passes of one boot differ by, not what \
             boots of one kernel do."
        }
    };
    let mut facts = Vec::new();
    for (label, saved) in [("A", a), ("B", b)] {
        let host = &saved.environment;
        facts.push((
            format!("Host {label}"),
            format!(
                "{}, {}, {}, {}",
                kernel(host),
                host.cpu,
                words::plural(host.cpus as u64, "CPU", "CPUs"),
                words::bytes(host.memory)
            ),
        ));
    }
    Shown {
        title: format!("{of_b} against {of_a}: {}", words::file_name(&a.trace.path)),
        answer: answer(
            (&format!("A ({of_a})"), &format!("B ({of_b})")),
            &apart.ratio,
            Some(apart.control_ratios[0]),
            apart.resolution,
            comparison.verdict,
            false,
        ),
        sections: vec![
            Section::new(
                "CPU time",
                html! {
                    (arms::ratios(&rows, &format!("CPU time, {unit}"), "CPU time of the events"))
                    (controls)
                },
            ),
            Section::new("Passes", saved_passes(a, b, (&of_a, &of_b))),
            Section::new("Time by kind of operation", saved_kinds(a, b)),
        ],
        facts,
    }
}

fn answer(
    names: (&str, &str),
    ratio: &Figure,
    control: Option<Figure>,
    resolution: Option<f64>,
    verdict: Verdict,
    interrupted: bool,
) -> Answer {
    Answer {
        sentence: arms::sentence(names, ratio, verdict, "CPU time"),
        ratio: Some(*ratio),
        control,
        resolution,
        told: Some(verdict.is_difference()),
        warning: interrupted
            .then(|| "Interrupted: the figures are of the complete passes.".to_owned()),
    }
}

fn against(against: &Against, names: &[Named; 3], which: &str) -> Markup {
    let (unit, divisor) = words::time_unit(against.host_ns.value);
    let one = Figure {
        value: 1.0,
        ..Figure::default()
    };
    let row = |arm: usize, time: &Figure, ratio: Figure, resolution, says: &str| RatioRow {
        named: names[arm].clone(),
        time: time.in_units_of(divisor),
        ratio,
        resolution,
        says: says.to_owned(),
    };
    let rows = [
        row(0, &against.host_ns, one, None, "base"),
        row(1, &against.core_ns, against.ratio, against.resolution, ""),
        row(
            2,
            &against.control_ns,
            against.control_ratio,
            None,
            "control",
        ),
    ];
    arms::ratios(
        &rows,
        &format!("CPU time, {unit}"),
        &format!(
            "CPU time of the events, {which}. Shaded: what is too near to 1 to be told from it"
        ),
    )
}

/// What the CPU time of the tree is made of.
fn times_table(saved: &Saved) -> Markup {
    let times = &saved.times;
    let entered = |times: &Times| median(&times.net_ns) - median(&times.after_ns);
    let (unit, divisor) = words::time_unit(median(&times.host.gross_ns));
    let mut grid = Grid::new("CPU time of the process tree on the host, medians of the passes")
        .text("what")
        .number(unit);
    for (name, ns) in [
        ("whole process tree", median(&times.host.gross_ns)),
        (
            "the replay's own: the same tree without memory operations",
            median(&times.own_ns),
        ),
        (
            "the events, before subtracting entries",
            median(&times.host.net_ns),
        ),
        (
            "entries: traps of faults, and system calls",
            entered(&times.host),
        ),
        (
            "the events, after subtracting entries",
            median(&times.host.after_ns),
        ),
    ] {
        grid.row(
            "",
            vec![
                Cell::text(name),
                Cell::number(ns, words::number(ns / divisor)),
            ],
        );
    }
    html! {
        (grid.render())
        p.note {
            "A trap takes " (words::number(saved.entry.trap_ns)) " ns here, a system call "
            (words::number(saved.entry.syscall_ns)) " ns."
        }
    }
}

/// Passes of the host and its control, and of `more`.
fn series(names: &[Named], saved: &Saved, more: &[(&Named, &[u64])]) -> Markup {
    let (unit, divisor) = words::time_unit(median(&saved.times.host.net_ns));
    let scaled = |values: &[u64]| -> Vec<f64> {
        let values = values.iter().map(|&ns| ns as f64 / divisor);
        values.collect()
    };
    let mut arms = vec![(names[0].clone(), scaled(&saved.times.host.net_ns))];
    arms.extend(
        more.iter()
            .map(|(named, values)| ((*named).clone(), scaled(values))),
    );
    if let (Some(control), false) = (names.last(), saved.times.control.net_ns.is_empty()) {
        arms.push((control.clone(), scaled(&saved.times.control.net_ns)));
    }
    arms::passes(
        &arms,
        &format!("CPU time of the events, {unit}"),
        "CPU time of the events in each pass",
    )
}

fn saved_passes(a: &Saved, b: &Saved, (of_a, of_b): (&str, &str)) -> Markup {
    let (unit, divisor) = words::time_unit(median(&a.times.host.net_ns));
    let arm = |arm: usize, label: &str, name: &str, saved: &Saved| {
        let values = saved.times.host.net_ns.iter();
        let values = values.map(|&ns| ns as f64 / divisor);
        (Named::new(Arm::Number(arm), label, name), values.collect())
    };
    arms::passes(
        &[arm(0, "A", of_a, a), arm(1, "B", of_b, b)],
        &format!("CPU time of the events, {unit}"),
        "CPU time of the events in each pass of each result",
    )
}

/// Kinds on the host, and the time of the core where it is compared.
fn kinds(kinds: &[(&HostKind, Option<u64>)]) -> Markup {
    let times = kinds
        .iter()
        .map(|(kind, core)| kind.net_ns().max(core.unwrap_or(0)));
    let largest = times.max().unwrap_or(0) as f64;
    let with_core = kinds.iter().any(|(_, core)| core.is_some());
    let (unit, divisor) = words::time_unit(largest);
    let mut grid = Grid::new("from one replay of its own, timed by kind: read it as shares")
        .text("kind")
        .number("operations")
        .number(format!("host, {unit}"))
        .number(format!("after entries, {unit}"));
    if with_core {
        grid = grid
            .number(format!("core, {unit}"))
            .number("core / host after");
    }
    grid = grid.picture(match with_core {
        true => html! { "host before entries, core" },
        false => html! { "host before entries" },
    });
    for (kind, core) in kinds {
        let time = |ns: u64| Cell::number(ns as f64, words::number(ns as f64 / divisor));
        let mut cells = vec![
            Cell::text(&kind.kind),
            Cell::number(kind.ops as f64, vellum_terminal::table::grouped(kind.ops)),
            time(kind.net_ns()),
            time(kind.after_ns()),
        ];
        let mut bars = vec![(Arm::Number(0), kind.net_ns() as f64)];
        if let Some(core) = *core {
            cells.push(time(core));
            cells.push(ratio_cell(core, kind.after_ns()));
            bars.push((Arm::Number(1), core as f64));
        }
        let title = format!(
            "{}: host {} {unit}",
            kind.kind,
            words::number(kind.net_ns() as f64 / divisor)
        );
        cells.push(arms::bar_cell(&bars, largest, &title));
        grid.row("", cells);
    }
    grid.render()
}

/// One time by another; nothing if that is 0.
fn ratio_cell(ns: u64, base_ns: u64) -> Cell {
    let ratio = ns as f64 / base_ns as f64;
    match base_ns {
        0 => Cell::empty(),
        _ => Cell::number(ratio, words::ratio(ratio)),
    }
}

fn saved_kinds(a: &Saved, b: &Saved) -> Markup {
    let times = a.kinds.iter().chain(&b.kinds).map(HostKind::net_ns);
    let largest = times.max().unwrap_or(0) as f64;
    let (unit, divisor) = words::time_unit(largest);
    let mut grid = Grid::new("CPU time of the events by kind: read it as shares")
        .text("kind")
        .number(format!("A, {unit}"))
        .number(format!("B, {unit}"))
        .number("B / A")
        .picture(html! { "A and B as bars" });
    for kind in &a.kinds {
        let Some(other) = b.kinds.iter().find(|other| other.kind == kind.kind) else {
            continue;
        };
        let ratio = ratio_cell(other.net_ns(), kind.net_ns());
        let [of_a, of_b] = [kind, other].map(|kind| kind.net_ns() as f64);
        let bars = [(Arm::Number(0), of_a), (Arm::Number(1), of_b)];
        grid.row(
            "",
            vec![
                Cell::text(&kind.kind),
                Cell::number(of_a, words::number(of_a / divisor)),
                Cell::number(of_b, words::number(of_b / divisor)),
                ratio,
                arms::bar_cell(&bars, largest, &kind.kind),
            ],
        );
    }
    grid.render()
}

fn facts(saved: &Saved) -> Vec<(String, String)> {
    vec![
        (
            "Workload".to_owned(),
            format!(
                "{}, {}",
                words::plural(saved.trace.events, "event", "events"),
                words::plural(saved.ops, "operation", "operations")
            ),
        ),
        (
            "Checksum of the trace".to_owned(),
            format!("CRC-32 {}", saved.trace.crc32),
        ),
        (
            "CPU".to_owned(),
            format!("everything ran on CPU {}", saved.cpu),
        ),
    ]
}
