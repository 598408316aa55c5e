//! Results of the host for people and for programs.

use std::fmt::Write;

use vellum_results::Figure;
use vellum_results::linux::{
    Against, BothKinds, Coverage, EntryCost, Environment, HostComparison, HostKind, HostTimes,
    Saved, SavedComparison, middle,
};

use super::coverage;
use super::kinds::{JUDGED_FROM, core_is_slower};
use super::summary::entered_ns;
use crate::compare::{Judged, Reason, Verdict};
use crate::report::text::{NO_INTERVAL, told_from, wrapped};
use vellum_terminal::table::{Table, grouped};

/// Why the unit is a pass.
const UNIT: &str = "A process cannot be stopped half-way for another arm to run: the unit of the statistics \
     is a pass, not a slice.";

/// How the host's time was taken.
const METHOD: &str = "CPU time: user and system time of the whole process tree as wait4 gives it, which is the \
     run time that the scheduler keeps, to the microsecond (only its division into user and system \
     comes from ticks). The replay's own cost is what the same tree takes with the same batches and \
     without memory operations.";

/// A replay on the host: tables.
pub fn replay_text(saved: &Saved, plan_notes: &[String]) -> String {
    let mut text = format!("{}\n", saved.trace.path);
    let _ = writeln!(text, "{}", host_line(&saved.environment, saved.cpu));
    let passes = saved.times.host.net_ns.len();
    let _ = writeln!(
        text,
        "{} events, {} operations in {} batches; {passes} {}\n",
        grouped(saved.trace.events),
        grouped(saved.ops),
        grouped(saved.times.batches),
        if passes == 1 { "pass" } else { "passes" },
    );
    for note in plan_notes {
        let _ = writeln!(text, "{note}");
    }
    text += &host_times(&saved.times, &saved.entry);
    text += "\n";
    text += &kinds_text(&saved.kinds);
    text += "\n";
    text += &wrapped(METHOD);
    text += "\n";
    text += &coverage_text(&coverage::rows(&saved.environment));
    text
}

fn host_line(host: &Environment, cpu: usize) -> String {
    format!(
        "host         Linux {}, {}, {} CPUs (all on CPU {cpu}), {} MiB; huge pages off",
        host.kernel,
        host.cpu,
        host.cpus,
        grouped(host.memory >> 20)
    )
}

fn seconds(ns: f64) -> String {
    format!("{:.4}", ns / 1e9)
}

/// Gross, own, net, entries, after: medians over the passes.
fn host_times(times: &HostTimes, entry: &EntryCost) -> String {
    let of = |values: &[u64]| middle(values).unwrap_or(0.0);
    let faults = of(&times.host.faults) as u64;
    let mut table = Table::new(&["CPU time on the host, median of passes", "seconds"]);
    let mut row = |name: String, ns: f64| table.row(vec![name, seconds(ns)]);
    row("whole process tree".into(), of(&times.host.gross_ns));
    row(
        "  the replay's own: the same tree, empty".into(),
        of(&times.own_ns),
    );
    row(
        "the events, before subtracting entries".into(),
        of(&times.host.net_ns),
    );
    row(
        format!(
            "  entries: {} faults x {:.0} ns + {} calls x {:.0} ns",
            grouped(faults),
            entry.trap_ns,
            grouped(times.calls),
            entry.syscall_ns
        ),
        entered_ns(times, entry),
    );
    row(
        "the events, after subtracting entries".into(),
        of(&times.host.after_ns),
    );
    let mut text = table.render(0);
    let _ = writeln!(
        text,
        "a trap: {}; a system call: getppid",
        entry.trap_method
    );
    if times.refused > 0 {
        let _ = writeln!(
            text,
            "{} operations were refused by the host's kernel",
            grouped(times.refused)
        );
    }
    text
}

fn kinds_text(kinds: &[HostKind]) -> String {
    let mut table = Table::new(&[
        "kind, ms of CPU time",
        "operations",
        "whole",
        "own",
        "events",
        "after entries",
        "ns each",
    ]);
    for kind in kinds {
        let mut row = vec![kind.kind.clone(), grouped(kind.ops)];
        let times = [kind.gross_ns, kind.own_ns, kind.net_ns(), kind.after_ns()];
        row.extend(times.map(|ns| format!("{:.1}", ns as f64 / 1e6)));
        row.push(each(kind.after_ns(), kind.ops));
        table.row(row);
    }
    table.render(0) + "from one replay of its own, timed by kind: read it as shares\n"
}

fn each(ns: u64, ops: u64) -> String {
    format!("{:.0}", ns as f64 / ops.max(1) as f64)
}

fn coverage_text(rows: &[Coverage]) -> String {
    let mut text = "what each side does that the other does not\n".to_owned();
    for row in rows {
        let _ = writeln!(text, "  {}", row.subject);
        let _ = writeln!(text, "    host  {}", row.host);
        let _ = writeln!(text, "    core  {}", row.core);
    }
    text
}

/// Puts together what was measured.
pub fn comparison(
    host: Saved,
    design: String,
    core_ns: Vec<u64>,
    (before, after): (Against, Against),
    kinds: Vec<BothKinds>,
    (interrupted, seed): (bool, u64),
    verdict: Verdict,
) -> HostComparison {
    HostComparison {
        verdict,
        coverage: coverage::rows(&host.environment),
        host,
        design,
        core_ns,
        before,
        after,
        kinds,
        unit: "pass".to_owned(),
        interrupted,
        seed,
    }
}

/// A comparison with the core as tables. `judged` is what is said of it, as in the verdict.
pub fn comparison_text(found: &HostComparison, judged: &Judged) -> String {
    let host = &found.host;
    let passes = found.core_ns.len();
    let mut text = format!("{}\n", host.trace.path);
    let _ = writeln!(
        text,
        "  A   {}",
        &host_line(&host.environment, host.cpu)[13..]
    );
    let _ = writeln!(text, "  B   {}", found.design);
    let _ = writeln!(text, "  A'  as A, once more: the control");
    let _ = writeln!(
        text,
        "{} operations; {passes} {}; seed {}",
        grouped(host.ops),
        if passes == 1 { "pass" } else { "passes" },
        found.seed
    );
    if found.interrupted {
        text += "INTERRUPTED: the figures are of the complete passes\n";
    }
    text += &wrapped(UNIT);
    text += "\n";
    text += &host_times(&host.times, &host.entry);
    text += "\n";
    text += &ratios(found);
    text += &verdict_text(judged, &found.before.ratio);
    text += "\n";
    text += &both_text(found);
    text += "\n";
    text += &wrapped(METHOD);
    text += "\n";
    text += &coverage_text(&found.coverage);
    text
}

fn ratios(found: &HostComparison) -> String {
    let mut table = Table::new(&[
        "",
        "A host, s",
        "B core, s",
        "B / A",
        "95 % interval",
        "A' / A",
    ]);
    for (name, against) in [
        ("before subtracting entries", &found.before),
        ("after", &found.after),
    ] {
        table.row(vec![
            name.to_owned(),
            seconds(against.host_ns.value),
            seconds(against.core_ns.value),
            format!("{:.4}", against.ratio.value),
            bounds(&against.ratio),
            format!("{:.4}", against.control_ratio.value),
        ]);
    }
    table.render(0)
}

fn both_text(found: &HostComparison) -> String {
    let mut table = Table::new(&[
        "kind, ms of CPU time",
        "operations",
        "A whole",
        "A events",
        "A after entries",
        "B core",
        "B/A after",
    ]);
    let mut slower = Vec::new();
    for kind in &found.kinds {
        let host = &kind.host;
        let mut row = vec![host.kind.clone(), grouped(host.ops)];
        let times = [host.gross_ns, host.net_ns(), host.after_ns(), kind.core_ns];
        row.extend(times.map(|ns| format!("{:.1}", ns as f64 / 1e6)));
        row.push(match host.after_ns() {
            0 => "-".to_owned(),
            after => format!("{:.3}", kind.core_ns as f64 / after as f64),
        });
        if core_is_slower(kind) {
            slower.push(host.kind.as_str());
        }
        table.row(row);
    }
    let verdict = match slower.is_empty() {
        true => {
            format!("The core is faster in every kind that has {JUDGED_FROM} operations.\n")
        }
        false => format!("The core is SLOWER in: {}.\n", slower.join(", ")),
    };
    table.render(0) + &verdict
}

fn bounds(figure: &Figure) -> String {
    match (figure.low, figure.high) {
        (Some(low), Some(high)) => format!("{low:.4} .. {high:.4}"),
        _ => NO_INTERVAL.to_owned(),
    }
}

fn verdict_text(judged: &Judged, ratio: &Figure) -> String {
    let difference = |less| {
        format!(
            "Verdict: difference. {less} needs less CPU time; B / A is {:.4}.\n",
            ratio.value
        )
    };
    let mut text = match judged.verdict {
        Verdict::Less => difference("B"),
        Verdict::More => difference("A"),
        Verdict::NotProven(reason) => {
            let why = match reason {
                Reason::WithinChance => "B / A is no farther from 1 than chance can come to",
                Reason::WithinStray => "a control strays as far",
                Reason::TooFewPasses => "fewer than 5 passes",
            };
            format!("Verdict: no difference proven ({why}).\n")
        }
    };
    if let Some(resolution) = &judged.resolution {
        text += &told_from(resolution);
    }
    text
}

/// Time of a kind below which a ratio to it says nothing.
const LEAST_NS: u64 = 100_000;

/// Two saved results as tables. `judged` is what is said of them, as in the verdict.
pub fn saved_text(found: &SavedComparison, judged: &Judged) -> String {
    let (a, b) = (&found.a, &found.b);
    let mut text = format!("{}\n", a.trace.path);
    let mut hosts = Table::new(&["", "A", "B"]);
    let size = |of: &Saved| format!("{} MiB", grouped(of.environment.memory >> 20));
    let passes = |of: &Saved| of.times.host.net_ns.len().to_string();
    let entry = |of: &Saved| format!("{:.0} / {:.0}", of.entry.trap_ns, of.entry.syscall_ns);
    let rows: [(&str, String, String); 5] = [
        (
            "kernel",
            a.environment.kernel.clone(),
            b.environment.kernel.clone(),
        ),
        ("CPU", a.environment.cpu.clone(), b.environment.cpu.clone()),
        ("memory", size(a), size(b)),
        ("passes", passes(a), passes(b)),
        ("trap / system call, ns", entry(a), entry(b)),
    ];
    for (name, a, b) in rows {
        hosts.row(vec![name.to_owned(), a, b]);
    }
    text += &hosts.render(0);
    let (of_a, of_b) = (&a.environment, &b.environment);
    text += &difference("build", &of_a.build, &of_b.build);
    text += &difference("configuration", &of_a.config, &of_b.config);
    text += &difference("command line", &of_a.command_line, &of_b.command_line);
    text += &difference("huge pages", &of_a.huge_pages, &of_b.huge_pages);
    let joined = |of: &Environment| of.mitigations.join("; ");
    text += &difference("mitigations", &joined(of_a), &joined(of_b));
    text += &difference("boot", &of_a.boot, &of_b.boot);
    let mut times = Table::new(&[
        "CPU time of the events",
        "seconds",
        "95 % interval",
        "A' / A",
    ]);
    let apart = &found.apart;
    for (name, figure, control) in [
        ("A", &apart.a_ns, &apart.control_ratios[0]),
        ("B", &apart.b_ns, &apart.control_ratios[1]),
    ] {
        let in_seconds = figure.in_units_of(1e9);
        times.row(vec![
            name.to_owned(),
            format!("{:.4}", in_seconds.value),
            bounds(&in_seconds),
            format!("{:.4}", control.value),
        ]);
    }
    let _ = write!(text, "\n{}", times.render(0));
    let _ = writeln!(
        text,
        "B / A  {:.4}  ({})",
        apart.ratio.value,
        bounds(&apart.ratio)
    );
    text += &verdict_text(judged, &apart.ratio);
    text += &wrapped(
        "The two did not run side by side: the interval covers what passes of one boot differ by, \
         not what boots of one kernel do. Save several boots of each to see that.",
    );
    text += "\n";
    text += &saved_kinds(found);
    text
}

fn saved_kinds(found: &SavedComparison) -> String {
    let mut table = Table::new(&["kind, ms of CPU time", "A events", "B events", "B / A"]);
    for a in &found.a.kinds {
        let Some(b) = found.b.kinds.iter().find(|b| b.kind == a.kind) else {
            continue;
        };
        let (a_ns, b_ns) = (a.net_ns(), b.net_ns());
        table.row(vec![
            a.kind.clone(),
            format!("{:.1}", a_ns as f64 / 1e6),
            format!("{:.1}", b_ns as f64 / 1e6),
            match a_ns < LEAST_NS {
                true => "-".to_owned(),
                false => format!("{:.3}", b_ns as f64 / a_ns as f64),
            },
        ]);
    }
    table.render(0)
}

/// What may differ and is too long for a table.
fn difference(name: &str, a: &str, b: &str) -> String {
    match a == b {
        true => format!("{name}: the same\n"),
        false => format!("{name} differs\n  A  {a}\n  B  {b}\n"),
    }
}
