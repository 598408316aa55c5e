//! Source 1 on two nodes of a simulated machine: what a table costs that another CPU or
//! another node has had in its cache or in its memory, which no machine at hand can show.

use vellum_scale::hosted::nodes_of;

use super::bench::Simulated;
use super::judge::Factor;
use super::model::{self, Section};
use super::one::{MIGRATIONS, designs, problems, sources};
use super::published;
use super::simulated::{Compared, change, method};
use super::task::{Entry, Task};
use crate::bench::core::forkfault::Program;
use crate::failure::Failure;
use crate::simulate::{lanes, ratio_of};
use crate::stats::median;
use vellum_terminal::jobs::run_all;
use vellum_terminal::table::{Table, grouped};

/// The only format that simulated CPUs have.
const FORMAT: &str = "x86-64";

/// Memory of each machine.
const RAM_BYTES: u64 = 512 << 20;

/// Samples of seeds that intervals are from.
const RESAMPLES: usize = 2000;

/// Copies of the part of the kernel build.
const COPIES: u32 = 4;
const QUICK_COPIES: u32 = 1;

/// The published program: children, faults of each, and entries of a table.
const PROGRAM: Program = Program {
    forks: 128,
    faults: 32,
    resident: 0,
    stride: 512,
};

/// Where the second CPU of a variant is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Other {
    /// There is none.
    None,
    /// On the node of the first.
    Near,
    /// On another node.
    Far,
}

/// Variants of the program, what they stand for, and where the second CPU is.
const VARIANTS: [(&str, &str, Other); 6] = [
    ("read", "one CPU", Other::None),
    ("cross", "freed on another CPU", Other::Near),
    ("cross", "freed on another node", Other::Far),
    ("migrate", "two nodes, ends on the other", Other::Far),
    ("moved", "two nodes, run on the other", Other::Far),
    ("after", "run where others have ended", Other::Far),
];

/// The sections in order.
pub const SECTIONS: &[Entry] = &[
    ("forkfault", &[published::AUGUST_2004], forkfault),
    (
        "the three problems",
        &[published::AUGUST_2004],
        three_problems,
    ),
    ("whole workloads", &[published::QUICKLISTS_2007], workloads),
];

/// What one run says.
#[derive(Clone, Copy)]
struct Once {
    /// Nanoseconds of a fork, of a fault, of an exit.
    fork: f64,
    fault: f64,
    exit: f64,
    /// Table pages that CPUs keep at its end on another node than their own.
    trapped: u64,
}

/// A figure of it.
type Figure = fn(&Once) -> f64;

/// One variant under several designs.
struct Runs {
    /// By design, by seed.
    runs: Vec<Vec<Once>>,
    seed: u64,
}

impl Runs {
    /// The median over the seeds.
    fn typical(&self, design: usize, of: Figure) -> f64 {
        let each: Vec<f64> = self.runs[design].iter().map(of).collect();
        median(&each).unwrap_or(f64::NAN)
    }

    /// How many times as long as under `design` a fault takes under the first.
    fn times_as_fast(&self, design: usize) -> Result<Factor, Failure> {
        let pairs = self.runs[0].iter().zip(&self.runs[design]);
        let ratios: Vec<f64> = pairs.map(|(base, ours)| base.fault / ours.fault).collect();
        let ratio = ratio_of("fault", &ratios, RESAMPLES, self.seed);
        let ratio = ratio.ok_or_else(|| {
            Failure::usage("a reproduction on a simulated machine needs 5 seeds at least")
        })?;
        Ok(Factor::of(&ratio))
    }
}

/// The machine, and how many CPUs one needs for a second that is near, and one that is far.
struct Place<'t> {
    task: &'t Task<'t>,
    on: &'t Simulated,
}

impl<'t> Place<'t> {
    fn new(task: &'t Task<'t>) -> Result<Place<'t>, Failure> {
        let on = task.simulated()?;
        Ok(Place { task, on })
    }

    /// How many CPUs there have to be. An error says why there are none such.
    fn cpus(&self, other: Other) -> Result<usize, String> {
        let nodes = |cpus: usize| nodes_of(&self.on.machine, cpus).unwrap_or(0);
        match other {
            Other::None => Ok(1),
            Other::Near if self.on.cpus >= 2 && nodes(2) == 1 => Ok(2),
            Other::Near => Err("no node has two of the CPUs".to_owned()),
            Other::Far => (2..=self.on.cpus)
                .find(|&cpus| nodes(cpus) > 1)
                .ok_or_else(|| "the CPUs are all on one node".to_owned()),
        }
    }

    /// Simulates a variant under each design with each seed.
    fn run(&self, variant: &str, cpus: usize, designs: &[String]) -> Result<Runs, Failure> {
        let setting = self.task.setting;
        let program = match setting.quick {
            true => Program {
                forks: 4,
                ..PROGRAM
            },
            false => PROGRAM,
        };
        let seeds = setting.passes as u64;
        let tasks: Vec<(usize, u64)> = (0..designs.len())
            .flat_map(|design| (0..seeds).map(move |seed| (design, setting.seed + seed)))
            .collect();
        let one = |&(design, seed): &(usize, u64)| {
            self.once(program, variant, cpus, &designs[design], seed)
        };
        let wanted = tasks.len();
        let mut found: Vec<((usize, u64), Once)> = Vec::new();
        run_all(
            tasks,
            self.on.jobs,
            self.task.interrupt,
            one,
            |task, run| {
                found.push((task, run));
                Ok::<(), Failure>(())
            },
        )?;
        if found.len() < wanted {
            return Err(Failure::interrupted("interrupted"));
        }
        found.sort_by_key(|(task, _)| *task);
        let mut runs = vec![Vec::new(); designs.len()];
        for ((design, _), run) in found {
            runs[design].push(run);
        }
        Ok(Runs {
            runs,
            seed: setting.seed,
        })
    }

    fn once(
        &self,
        program: Program,
        variant: &str,
        cpus: usize,
        design: &str,
        seed: u64,
    ) -> Result<Once, Failure> {
        let script = program.script(variant, cpus);
        let run = lanes(&self.on.machine, &script, (design, RAM_BYTES), seed, &[]);
        let run = run.map_err(|failure| failure.context(format!("{variant} under {design}")))?;
        let of = |name: &str| {
            let mut phases = (0..).zip(script.phases());
            let found = phases.find(|(_, phase)| phase.name == name);
            let per_unit = found.and_then(|(number, phase)| {
                let time = run.by_lap.get(&number)?;
                Some(time / phase.units as f64)
            });
            per_unit
                .ok_or_else(|| Failure::failed(format!("{variant} has no {name} that is timed")))
        };
        Ok(Once {
            fork: of("fork")?,
            fault: of("fault")?,
            exit: of("exit")?,
            trapped: run.trapped_tables,
        })
    }

    /// What is said of each section.
    fn method(&self, section: &mut Section) {
        section.method.push(format!(
            "the published program on CPUs of {} ({}), in virtual time, with {} seeds of starts; \
             4 KiB tables of x86-64, the only ones that are simulated, where the published machine \
             had 16 KiB; no traps in the times; means over the children, medians over the seeds",
            self.on.machine_name, self.on.machine.title, self.task.setting.passes,
        ));
    }
}

fn forkfault(task: &Task<'_>, section: &mut Section) -> Result<(), Failure> {
    let place = Place::new(task)?;
    place.method(section);
    let sources = sources(section)?;
    let designs = designs(FORMAT, &sources);
    let mut header = vec!["ns per fault"];
    header.extend(&sources);
    let mut table = Table::new(&header);
    for (variant, what, other) in VARIANTS {
        let cpus = match place.cpus(other) {
            Ok(cpus) => cpus,
            Err(why) => {
                let missing = model::missing(what, "-".to_owned(), why);
                section.comparisons.push(missing);
                continue;
            }
        };
        let runs = place.run(variant, cpus, &designs)?;
        let figures: [(&str, Figure); 3] = [
            ("", |run| run.fault),
            (", fork", |run| run.fork),
            (", exit", |run| run.exit),
        ];
        for (name, of) in figures {
            let mut cells = vec![format!("{what}{name}")];
            let each = (0..designs.len()).map(|design| format!("{:.1}", runs.typical(design, of)));
            cells.extend(each);
            table.row(cells);
        }
        for (design, source) in sources.iter().enumerate().skip(1) {
            let ours = runs.times_as_fast(design)?;
            let what = format!("{what}: fresh / {source}");
            let (published, says) = match (variant, *source) {
                ("read", "quicklist") => (
                    format!("{} x", published::FORKFAULT_CLAIM),
                    "16 KiB tables there",
                ),
                _ => ("-".to_owned(), "not published"),
            };
            let row = model::beside(what, published, ours.to_string(), says);
            section.comparisons.push(row);
        }
    }
    section.tables.push(("ours".to_owned(), table.render(0)));
    Ok(())
}

fn three_problems(task: &Task<'_>, section: &mut Section) -> Result<(), Failure> {
    let place = Place::new(task)?;
    place.method(section);
    section.method.push(
        "the three problems that the post names, each brought back alone, then all together. What \
         trapped tables cost is felt by the next child that runs where they are"
            .to_owned(),
    );
    let cpus = place.cpus(Other::Far).map_err(Failure::failed)?;
    let states = problems(FORMAT);
    let mut all = designs(FORMAT, &["fresh"]);
    all.extend(states.iter().map(|state| state.1.clone()));
    let mut labels = vec!["fresh"];
    labels.extend(states.iter().map(|state| state.0.as_str()));
    let mut header = vec![""];
    header.extend(&labels);
    let mut table = Table::new(&header);
    let mut after = None;
    for (variant, what, cpus) in [
        ("read", "one CPU", 1),
        ("migrate", "two nodes, ends on the other", cpus),
        ("after", "run where others have ended", cpus),
    ] {
        let runs = place.run(variant, cpus, &all)?;
        let mut cells = vec![format!("{what}: ns per fault")];
        let each = (0..all.len()).map(|arm| runs.typical(arm, |run| run.fault));
        cells.extend(each.map(|ns| format!("{ns:.1}")));
        table.row(cells);
        after = Some(runs);
    }
    let trapped = |forks: u64, design: &str| {
        let program = Program { forks, ..PROGRAM };
        let run = place.once(program, "migrate", cpus, design, task.setting.seed);
        run.map(|run| run.trapped)
    };
    let [few, many] = MIGRATIONS;
    let mut by_one = Vec::new();
    for design in &all {
        let more = trapped(many, design)?.saturating_sub(trapped(few, design)?);
        by_one.push(more / (many - few));
    }
    let mut cells = vec!["trapped by one migration".to_owned()];
    cells.extend(by_one.iter().map(|count| grouped(*count)));
    table.row(cells);
    section.tables.push(("ours".to_owned(), table.render(0)));
    for (arm, label) in labels.iter().enumerate().skip(1) {
        let what = format!("{label}: table pages trapped by a migration");
        let published = published::TRAPPED_PAGES.into();
        section.comparisons.push(match label {
            &"node" | &"all" => model::of_counts(what, published, by_one[arm]),
            _ => model::beside(
                what,
                format!("about {published}"),
                grouped(by_one[arm]),
                "not this problem",
            ),
        });
        if let Some(after) = &after {
            let ours = after.times_as_fast(arm)?;
            section.comparisons.push(model::beside(
                format!("{label}, run where others have ended: fresh / quicklist"),
                "-".to_owned(),
                ours.to_string(),
                "not published",
            ));
        }
    }
    Ok(())
}

fn workloads(task: &Task<'_>, section: &mut Section) -> Result<(), Failure> {
    let place = Place::new(task)?;
    let names = sources(section)?;
    let designs = designs(FORMAT, &names);
    let compared = Compared {
        task,
        names,
        designs,
    };
    let copies = match task.setting.quick {
        true => QUICK_COPIES,
        false => COPIES,
    };
    let findings = compared.on(place.on, &[task.simulated_build()?], copies)?;
    let of = "copies of a part of the recorded kernel build at once; no end-to-end gain was ever \
              published: its absence was why quicklists were removed (Linux 5.4, 2019)";
    method(section, &findings, of);
    for (number, name) in compared.names.iter().enumerate().skip(1) {
        for (figure, what) in [("system_s", "system time"), ("elapsed_s", "elapsed time")] {
            let ours = change(&compared.ratio(&findings, number, figure)?, false);
            section.comparisons.push(model::beside(
                format!("kernel build, {what}: {name} against fresh"),
                "none".to_owned(),
                ours.to_string(),
                "not published",
            ));
        }
    }
    Ok(())
}
