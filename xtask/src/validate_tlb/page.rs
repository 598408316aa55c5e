//! docs/results/tlb.md from kept results.

use std::fmt::Write;

use serde_json::Value;
use vellum_results::Spread;

/// How far simulated and measured may be apart: a share of what was measured, or of the run time.
const WITHIN: (f64, f64) = (0.30, 0.03);

/// One program, judged.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Judged {
    /// CPU time by pages of 4 KiB, in nanoseconds.
    base_ns: f64,
    /// What pages of 2 MiB save of it, as a share, over the rounds.
    measured: Spread,
    /// The same in simulation.
    simulated: f64,
    counts: bool,
}

impl Judged {
    fn of(kept: &Value) -> Option<Judged> {
        let list = |name: &str| -> Option<Vec<f64>> {
            kept[name].as_array()?.iter().map(Value::as_f64).collect()
        };
        let (small, large) = (list("small_ns")?, list("large_ns")?);
        let base_ns = Spread::of(small.iter().copied()).median;
        if base_ns.is_nan() {
            return None;
        }
        let saved = small
            .iter()
            .zip(&large)
            .map(|(small, large)| (small - large) / small);
        let ns = |by: &str| kept[by]["ns"].as_f64();
        Some(Judged {
            base_ns,
            measured: Spread::of(saved),
            simulated: (ns("small")? - ns("large")?) / base_ns,
            counts: kept["counts"] == true,
        })
    }

    fn agrees(&self) -> bool {
        let apart = (self.simulated - self.measured.median).abs();
        apart <= WITHIN.1 || apart <= WITHIN.0 * self.measured.median.abs()
    }

    /// Whether the sign is the same; rounds of both signs tell none.
    fn same_sign(&self) -> bool {
        let Spread {
            median,
            least,
            most,
        } = self.measured;
        median * self.simulated >= 0.0 || (least < 0.0 && most > 0.0)
    }
}

/// The page.
pub fn render(machine: &Value, kept: &[Value]) -> String {
    let text = |value: &Value| value.as_str().unwrap_or("unknown").to_owned();
    let mut page = format!(
        "# Simulated TLBs held against runs\n\n\
         Made by `cargo xtask validate-tlb` ([tlb.md](../tlb.md)) on {}: {}, Linux {}. Each program ran by \
         pages of 4 KiB and of 2 MiB in turn; *saved* is the share of its CPU time by 4 KiB that 2 MiB \
         save, faults left out. Simulated is the time of translation alone. Times agree if they are within 3 \
         points of the run time or 30 % of what was measured. The pointer chase is what the machine was \
         calibrated by, and does not count. *Load* is that of the machine (`/proc/loadavg`) when the program \
         had run.\n\n**{}**\n\n",
        text(&machine["date"]),
        text(&machine["title"]),
        text(&machine["kernel"]),
        text(&machine["reached"]),
    );
    page += "| program | CPU s | load | accesses | walks, 4 KiB | walks, 2 MiB | saved, measured | saved, \
             simulated | sign | time |\n|---|---|---|---|---|---|---|---|---|---|\n";
    let judged: Vec<(&Value, Judged)> = kept
        .iter()
        .filter_map(|kept| Some((kept, Judged::of(kept)?)))
        .collect();
    for (kept, judged) in &judged {
        let percent = |share: f64| format!("{:+.1}", 100.0 * share);
        let Spread {
            median,
            least,
            most,
        } = judged.measured;
        let [median, least, most] = [median, least, most].map(percent);
        let agrees = if judged.agrees() {
            "agrees"
        } else {
            "does not agree"
        };
        let load = text(&kept["load"]);
        _ = writeln!(
            page,
            "| {} | {:.3} | {} | {} | {} | {} | {median} % ({least} … {most}) | {} % | {} | {} |",
            text(&kept["name"]),
            judged.base_ns / 1e9,
            load.split(' ').next().unwrap_or(""),
            kept["accesses"],
            kept["small"]["walks"],
            kept["large"]["walks"],
            percent(judged.simulated),
            if judged.same_sign() {
                "same"
            } else {
                "DIFFERS"
            },
            if judged.counts {
                agrees
            } else {
                "does not count"
            },
        );
    }
    let load = |kept: &Value| text(&kept["load"]).split(' ').next()?.parse::<f64>().ok();
    let busiest = kept.iter().filter_map(load).fold(0.0, f64::max);
    if busiest > machine["cpus"].as_f64().unwrap_or(1.0) {
        _ = write!(
            page,
            "\n**Other programs ran meanwhile (load up to {busiest}), when the machine was calibrated, \
             too: times are no good, whatever they are.** Run it again on an idle machine.\n"
        );
    }
    let judged = judged.into_iter().map(|(_, judged)| judged);
    page + "\n" + &conclusion(machine["reaches"].as_bool(), judged)
}

fn conclusion(reaches: Option<bool>, judged: impl Iterator<Item = Judged>) -> String {
    let all: Vec<Judged> = judged.collect();
    let counted: Vec<&Judged> = all.iter().filter(|judged| judged.counts).collect();
    let agree = counted.iter().filter(|judged| judged.agrees()).count();
    let signs = all.iter().filter(|judged| judged.same_sign()).count();
    let why = match reaches {
        Some(true) if agree == counted.len() => {
            "Pages of 2 MiB reach the TLB, and times can be believed as far as the table goes."
        }
        Some(true) => "Not all times agree: believe counts, not times.",
        Some(false) => {
            "Pages of 2 MiB do not reach this machine's TLB, because its host maps its memory by 4 KiB: \
             believe counts, not times. What larger pages save on a machine whose TLB they reach, \
             this one cannot show."
        }
        None => {
            "Whether pages of 2 MiB reach this machine's TLB is not known: believe counts, not times."
        }
    };
    format!(
        "The sign is right for {signs} of {}, and {agree} of {} programs that count agree in time. {why}\n",
        all.len(),
        counted.len(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn kept(small: [f64; 3], large: [f64; 3], simulated: [f64; 2]) -> Judged {
        let value = json!({
            "small_ns": small, "large_ns": large, "counts": true,
            "small": { "ns": simulated[0] }, "large": { "ns": simulated[1] },
        });
        Judged::of(&value).expect("whole")
    }

    #[test]
    fn programs_are_judged_by_the_difference_of_both_sizes() {
        let saves_half = |simulated| kept([10.0, 10.0, 12.0], [5.0, 5.0, 6.0], simulated);
        assert_eq!(saves_half([6.0, 1.0]).measured, Spread::of([0.5; 3]));
        assert!(saves_half([6.0, 1.0]).agrees() && saves_half([4.0, 0.4]).agrees());
        assert!(!saves_half([4.0, 0.6]).agrees());
        assert!(!saves_half([1.0, 2.0]).same_sign());
        // Three points are within reach whatever share of the difference they are.
        let little = kept([100.0; 3], [99.0; 3], [3.9, 0.0]);
        assert!(little.agrees());
        // Rounds that cannot tell contradict no sign.
        assert!(kept([10.0; 3], [10.1, 9.9, 10.1], [1.0, 0.0]).same_sign());
    }

    #[test]
    fn a_busy_machine_is_named_before_the_conclusion() {
        let kept = |load: &str| {
            json!({
                "name": "a", "load": load, "counts": true, "accesses": 1,
                "small_ns": [2.0], "large_ns": [1.0],
                "small": { "ns": 1.0, "walks": 1 }, "large": { "ns": 0.0, "walks": 0 },
            })
        };
        let machine = json!({ "cpus": 2, "reaches": true });
        let page = |load| render(&machine, &[kept(load)]);
        assert!(page("7.10 5.00 2.00 1/1 1").contains("times are no good"));
        let quiet = page("0.50 5.00 2.00 1/1 1");
        assert!(!quiet.contains("times are no good"), "{quiet}");
        assert!(
            quiet.contains("| a | 0.000 | 0.50 | 1 | 1 | 0 | +50.0 %"),
            "{quiet}"
        );
    }

    #[test]
    fn times_are_not_to_be_believed_where_large_pages_do_not_reach_the_tlb() {
        let agrees = kept([10.0; 3], [5.0; 3], [6.0, 1.0]);
        let said = |reaches| conclusion(reaches, [agrees].into_iter());
        assert!(said(Some(true)).contains("times can be believed"));
        assert!(said(Some(false)).contains("believe counts, not times"));
        assert!(said(None).contains("believe counts, not times"));
        let off = kept([10.0; 3], [5.0; 3], [1.0, 0.0]);
        let said = conclusion(Some(true), [off].into_iter());
        assert!(
            said.contains("0 of 1 programs") && said.contains("counts, not times"),
            "{said}"
        );
    }
}
