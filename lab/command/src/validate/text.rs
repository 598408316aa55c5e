//! Tables of what came out.

use super::found::{RATIO_WITHIN, TOTAL_WITHIN};
use super::work::Calibrated;
use vellum_results::validation::Validation;
use vellum_terminal::table::Table;
use vellum_terminal::text::plural;

/// The tables.
pub fn render(found: &Validation) -> String {
    let mut text = format!("{}: {}\n", found.machine, found.title);
    if !found.uncalibrated.is_empty() {
        text += &format!(
            "Not calibrated: work.{}. `vellum calibrate --work` measures them.\n",
            found.uncalibrated.join(", work.")
        );
    }
    text += "\nCPU time in the core, all CPUs together\n";
    let header = [
        "",
        "CPUs",
        "design",
        "measured",
        "+-",
        "simulated",
        "error",
        "",
    ];
    let mut table = Table::new(&header);
    for total in &found.totals {
        table.row(vec![
            total.workload.clone(),
            total.cpus.to_string(),
            total.design.clone(),
            format!("{:.1} ms", total.measured_ns / 1e6),
            format!("{:.1} %", total.spread * 50.0),
            format!("{:.1} ms", total.simulated_ns / 1e6),
            format!("{:+.1} %", total.error * 100.0),
            mark(total.within),
        ]);
    }
    text += &table.render(2);
    text += "\nDesigns against the first\n";
    let header = ["", "CPUs", "design", "measured", "simulated", "points", ""];
    let mut table = Table::new(&header);
    for ratio in &found.ratios {
        table.row(vec![
            ratio.workload.clone(),
            ratio.cpus.to_string(),
            ratio.design.clone(),
            format!("{:.3}", ratio.measured),
            format!("{:.3}", ratio.simulated),
            format!("{:+.1}", ratio.difference * 100.0),
            mark(ratio.within),
        ]);
    }
    text += &table.render(2);
    if let Some(line) = &found.line_between {
        text += &format!(
            "\nA line from the nearest other core took {} to {} ns; {} says {}.\n",
            line.least_ns, line.most_ns, line.key, line.described_ns
        );
        if line.put_away > 0 {
            text += &format!(
                "{} on two CPUs put away, since it was not near that before or after: the host \
                 moves the CPUs.\n",
                plural(line.put_away, "measurement", "measurements")
            );
        }
        if line.kept > 0 {
            text += &format!(
                "{} on two CPUs kept although it was not.\n",
                plural(line.kept, "measurement", "measurements")
            );
        }
    }
    let known = found.totals.iter().filter_map(|total| {
        let cause = total.cause.as_ref()?;
        Some(format!(
            "  {}, {} on {}: {cause}.\n",
            total.workload,
            total.design,
            plural(total.cpus, "CPU", "CPUs")
        ))
    });
    let known: String = known.collect();
    if !known.is_empty() {
        text += "\nWhat is known of the misses\n";
        text += &known;
    }
    let ((near, totals), (close, ratios)) = (found.totals_within(), found.ratios_within());
    text += &format!(
        "\n{near} of {totals} totals are within {:.0} %, {close} of {ratios} ratios within {:.0} \
         points.\n",
        TOTAL_WITHIN * 100.0,
        RATIO_WITHIN * 100.0
    );
    text
}

/// How the time between accesses came about.
pub fn work(found: &Calibrated) -> String {
    let header = ["", "operations", "measured", "modelled", "accesses", "work"];
    let mut table = Table::new(&header);
    for share in &found.shares {
        table.row(vec![
            share.kind.key().to_owned(),
            share.ops.to_string(),
            format!("{:.0} ns", share.measured_ns),
            format!("{:.0} ns", share.modelled_ns),
            format!("{:.0}", share.reports),
            format!("{:.2} ns", share.work_ns),
        ]);
    }
    format!(
        "Each operation on one CPU: measured, as the model has it without hits and instructions,\nand \
         its accesses, over which the rest is spread\n{}",
        table.render(2)
    )
}

fn mark(within: bool) -> String {
    if within { "" } else { "miss" }.to_owned()
}
