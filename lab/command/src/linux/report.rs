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
use crate::report::Detail;
use crate::report::figures::{bounds, made_up, told_from};
use vellum_terminal::table::{Table, grouped};
use vellum_terminal::text::wrapped;

/// Why the unit is a pass.
const UNIT: &str = "A process cannot be stopped half-way for another arm to run: the unit of the statistics \
     is a pass, not a slice.";

/// How the host's time was taken.
const METHOD: &str = "CPU time: user and system time of the whole process tree as wait4 gives it, which is the \
     run time that the scheduler keeps, to the microsecond (only its division into user and system \
     comes from ticks). The replay's own cost is what the same tree takes with the same batches and \
     without memory operations.";

/// Why times by kind are not those of the verdict.
const APART: &str = "The verdict is on the passes. Times by kind come from one further replay on each side, \
     in which a clock is read wherever the kind of the operations changes. Reading it takes time, and \
     not all of a pass is between two readings, so they do not add up to a pass: read them as shares.";

/// A replay on the host, for a terminal.
pub fn replay_text(saved: &Saved, plan_notes: &[String], detail: Detail) -> String {
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
    if detail == Detail::Summary {
        text += &wrapped(&spread(&saved.times.host.net_ns));
        return text
            + "--details prints time by kind, and what each side does that the other does not.\n";
    }
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

/// How far the passes are apart.
fn spread(passes: &[u64]) -> String {
    let ends = passes.iter().min().zip(passes.iter().max());
    match (ends, passes.len()) {
        (None, _) => String::new(),
        (Some(_), 1) => "This is one pass and has no interval: -n makes several.".to_owned(),
        (Some((least, most)), _) => format!(
            "The events took {} to {} s, before subtracting entries.",
            seconds(*least as f64),
            seconds(*most as f64)
        ),
    }
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
pub fn comparison_text(found: &HostComparison, judged: &Judged, detail: Detail) -> String {
    let host = &found.host;
    let passes = found.core_ns.len();
    let mut text = format!("{}\n", host.trace.path);
    let _ = writeln!(
        text,
        "  A   {}",
        &host_line(&host.environment, host.cpu)[13..]
    );
    let _ = writeln!(text, "  B   {}", detail.design(&found.design));
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
    if detail == Detail::Summary {
        text += "\n";
        text += &verdict_text(judged, &found.before.ratio);
        text += "\n";
        text += &ratios(found);
        text += &slower_kinds(found);
        return text
            + "--details prints time by kind, and what each side does that the other does not.\n";
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
            bounds(&against.ratio, 4),
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
    let mut row = |name: String, ops: u64, times: [u64; 4]| {
        let mut cells = vec![name, grouped(ops)];
        cells.extend(times.map(|ns| format!("{:.1}", ns as f64 / 1e6)));
        let [.., after, core] = times;
        cells.push(match after {
            0 => "-".to_owned(),
            after => format!("{:.3}", core as f64 / after as f64),
        });
        table.row(cells);
    };
    let mut sums = (0, [0; 4]);
    for kind in &found.kinds {
        let host = &kind.host;
        let times = [host.gross_ns, host.net_ns(), host.after_ns(), kind.core_ns];
        row(host.kind.clone(), host.ops, times);
        sums.0 += host.ops;
        for (sum, ns) in sums.1.iter_mut().zip(times) {
            *sum += ns;
        }
    }
    row("all of these".to_owned(), sums.0, sums.1);
    let host = &found.host.times.host;
    let passes = [&host.gross_ns, &host.net_ns, &host.after_ns, &found.core_ns];
    let passes = passes.map(|passes| middle(passes).unwrap_or(0.0) as u64);
    row("median of the passes".to_owned(), found.host.ops, passes);
    table.render(0) + &wrapped(APART) + &slower_kinds(found)
}

/// The kinds in which the core is slower.
fn slower_kinds(found: &HostComparison) -> String {
    let slower = found.kinds.iter().filter(|kind| core_is_slower(kind));
    let slower: Vec<&str> = slower.map(|kind| kind.host.kind.as_str()).collect();
    match slower.is_empty() {
        true => {
            format!("The core is faster in every kind that has {JUDGED_FROM} operations.\n")
        }
        false => format!("The core is SLOWER in: {}.\n", slower.join(", ")),
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
        text += &made_up(resolution);
    }
    text
}

/// Time of a kind below which a ratio to it says nothing.
const LEAST_NS: u64 = 100_000;

/// Two saved results as tables. `judged` is what is said of them, as in the verdict.
pub fn saved_text(found: &SavedComparison, judged: &Judged, detail: Detail) -> String {
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
    let difference = |name: &str, a: &str, b: &str| difference((name, detail), a, b);
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
            bounds(&in_seconds, 4),
            format!("{:.4}", control.value),
        ]);
    }
    let _ = write!(text, "\n{}", times.render(0));
    let _ = writeln!(
        text,
        "B / A  {:.4}  ({})",
        apart.ratio.value,
        bounds(&apart.ratio, 4)
    );
    text += &verdict_text(judged, &apart.ratio);
    text += &wrapped(
        "The two did not run side by side: the interval covers what passes of one boot differ by, \
         not what boots of one kernel do. Save several boots of each to see that.",
    );
    if detail == Detail::Summary {
        return text + "--details prints time by kind.\n";
    }
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

/// What may differ and is too long for a table; in a summary, only if it does.
fn difference((name, detail): (&str, Detail), a: &str, b: &str) -> String {
    match a == b {
        true if detail == Detail::Summary => String::new(),
        true => format!("{name}: the same\n"),
        false => format!("{name} differs\n  A  {a}\n  B  {b}\n"),
    }
}
