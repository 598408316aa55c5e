//! From a script to the figures of its phases.

use vellum_engine::{DeviceModel, EngineError};

use super::script::{NOTE, PhaseInfo, Script, Timing};
use crate::bench::findings::{self, Figure, Findings, Input, Run, Share, arms_of, figure_of};
use crate::bench::request::Request;
use crate::compare::{
    Arenas, CompareError, HostClock, Load, Measurement, Settings, attached, measure,
};
use crate::failure::Failure;
use crate::replay::ram::{self, Shortage};
use vellum_terminal::progress::Interrupt;

/// What every figure on the core leaves out.
pub const NOT_MODELLED: &str = "Not in these times: trap and system call entry and exit, real \
     inter-processor interrupts, cache and TLB misses of user code, devices.";

/// The machine that a script runs on.
#[derive(Clone, Copy, Debug)]
pub struct Machine {
    /// Nodes over which CPUs and memory are spread.
    pub nodes: usize,
    /// Share of unexplained divergences above which the run is refused.
    pub divergence_limit: f64,
    /// Leaves out recorded faults that a design does not meet: for workloads from traces.
    pub only_needed: bool,
    /// Takes all memory from the host before anything is timed: for scripts that go on
    /// coming to frames that they have not used yet.
    pub prefault: bool,
    /// The device that files and swap are on, if its time is counted.
    pub device: Option<DeviceModel>,
    /// Bytes of the machines of designs with groups, if their processes are in one group that may
    /// have as much as the other machines.
    pub around_group: Option<u64>,
}

impl Machine {
    /// A machine of one node, on which everything must go as the script says.
    pub const PLAIN: Machine = Machine {
        nodes: 1,
        divergence_limit: 0.0,
        only_needed: false,
        prefault: false,
        device: None,
        around_group: None,
    };

    /// The same, with all of its memory taken from the host.
    pub const PREFAULTED: Machine = Machine {
        prefault: true,
        ..Machine::PLAIN
    };
}

/// Memory of each simulated machine, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Ram {
    /// What it has.
    pub bytes: u64,
    /// What the workload is thought to need.
    needed: u64,
}

impl Ram {
    /// What `request` asks for, or else what is `needed`.
    pub fn of(request: &Request, needed: u64) -> Self {
        let machines = request.designs.len() + 1;
        let bytes = ram::choose(request.ram_bytes, needed, machines);
        Self { bytes, needed }
    }
}

/// Measures all designs of `request` on `load`. `place` says where the operation
/// of a CPU with an index is, if memory runs out there.
pub fn take(
    load: &dyn Load,
    machine: Machine,
    ram: Ram,
    request: &Request,
    interrupt: &Interrupt,
    place: impl FnOnce(usize, usize, Shortage) -> String,
) -> Result<Measurement, Failure> {
    let settings = Settings {
        designs: request.designs.clone(),
        passes: request.passes,
        slice_us: request.slice_us,
        seed: request.method.seed,
        style: request.style,
        divergence_limit: machine.divergence_limit,
        by_class: false,
        only_needed: machine.only_needed,
        entries: false,
    };
    let arenas = Arenas::new(settings.arms(), load.cpus(), ram.bytes).with_low(request.low_bytes);
    let arenas = arenas
        .with_device(machine.device)
        .with_memory_around_groups(machine.around_group);
    let arenas = match machine.prefault {
        true => arenas.prefaulted(),
        false => arenas,
    };
    let arenas = arenas.on_nodes(machine.nodes);
    let clock = HostClock::new();
    let builder = attached(&arenas, request.profiler.as_deref());
    measure(load, &builder, &clock, &settings, interrupt).map_err(|error| {
        if let CompareError::OutOfMemory {
            design,
            cpu,
            index,
            shortage,
        } = &error
        {
            let place = place(*cpu, *index, *shortage);
            let text = shortage.text(&place, ram.bytes.into(), ram.needed);
            return Failure::failed(format!("design `{design}`: {text}"));
        }
        let code = match &error {
            CompareError::Empty
            | CompareError::Engine {
                source: EngineError::Design(_),
                ..
            } => Failure::usage,
            CompareError::Diverged { .. } => Failure::refuted,
            CompareError::Interrupted => Failure::interrupted,
            _ => Failure::failed,
        };
        code(Failure::from(error).message().to_owned())
    })
}

/// A script with what is said about it.
#[derive(Debug)]
pub struct Part<'s> {
    title: &'s str,
    facts: Vec<String>,
    script: &'s Script,
    machine: Machine,
    needs: Option<u64>,
}

impl<'s> Part<'s> {
    /// A script called `title`, on a machine of one node; `facts` say what it consists of,
    /// one sentence each.
    pub fn new(title: &'s str, facts: Vec<String>, script: &'s Script) -> Self {
        Part {
            title,
            facts,
            script,
            machine: Machine::PLAIN,
            needs: None,
        }
    }

    /// The same on another machine.
    pub fn on(self, machine: Machine) -> Self {
        Part { machine, ..self }
    }

    /// The same, where the script cannot tell how many bytes of memory it needs.
    pub fn needing(self, bytes: u64) -> Self {
        let needs = Some(bytes);
        Part { needs, ..self }
    }
}

/// Measures a part and appends what it found as a run. Returns whether the user wants no
/// more.
pub fn add(
    findings: &mut Findings,
    part: Part<'_>,
    request: &Request,
    interrupt: &Interrupt,
) -> Result<bool, Failure> {
    add_part(findings, part, request, interrupt, |_, _| ())
}

/// Measures a part and appends what it found, with what `more` makes of it.
/// Returns whether the user wants no more.
pub fn add_part(
    findings: &mut Findings,
    part: Part<'_>,
    request: &Request,
    interrupt: &Interrupt,
    more: impl FnOnce(&mut Run, &Measurement),
) -> Result<bool, Failure> {
    let script = part.script;
    let needed = part.needs.unwrap_or_else(|| {
        let of_benchmark = request.benchmark.ram_bytes;
        script.ram_bytes().max(of_benchmark)
    });
    let ram = Ram::of(request, needed);
    let place = |cpu, index, _| script.place(cpu, index);
    let measured = match take(script, part.machine, ram, request, interrupt, place) {
        Ok(measured) => measured,
        // What earlier runs found is worth printing.
        Err(failure) if failure.code() == Failure::INTERRUPTED && !findings.runs.is_empty() => {
            findings.interrupted = true;
            return Ok(true);
        }
        Err(failure) => return Err(failure),
    };
    findings.arms = arms_of(&request.designs, &measured.designs);
    let mut run = describe(part.title, part.facts, &measured);
    run.ram_bytes = Some(ram.bytes);
    run.figures = figures(script, &measured, request);
    more(&mut run, &measured);
    findings.runs.push(run);
    findings.interrupted |= measured.interrupted;
    Ok(measured.interrupted)
}

/// A run without figures.
pub fn describe(title: &str, mut facts: Vec<String>, measured: &Measurement) -> Run {
    facts.push(format!(
        "{} operations on {} in {} slices.",
        vellum_terminal::table::grouped(measured.ops as u64),
        vellum_terminal::text::plural(measured.cpus, "CPU", "CPUs"),
        vellum_terminal::table::grouped(measured.slices as u64),
    ));
    let arms = measured.designs.len();
    let counters: Vec<Vec<Vec<(&'static str, u64)>>> = (0..arms)
        .map(|arm| {
            let passes = measured.passes.iter();
            passes.map(|pass| pass.counters[arm].clone()).collect()
        })
        .collect();
    let memory: Vec<Vec<Vec<(&'static str, u64)>>> = (0..arms)
        .map(|arm| {
            let passes = measured.passes.iter();
            let peaks = passes.map(|pass| {
                let rows = pass.memory[arm].iter();
                rows.map(|(name, _, peak)| (*name, *peak)).collect()
            });
            peaks.collect()
        })
        .collect();
    Run {
        title: title.to_owned(),
        facts,
        passes: measured.passes.len(),
        counters: findings::rows(&counters),
        memory: findings::rows(&memory),
        per_lookup: per_lookup(measured),
        ..Run::default()
    }
}

/// What a lookup through reverse mapping met, the last pass of each arm taken:
/// entries that map the page, and looks at places that do not.
fn per_lookup(measured: &Measurement) -> Vec<Share> {
    let Some(last) = measured.passes.last() else {
        return Vec::new();
    };
    let count = |arm: usize, wanted: &str| -> u64 {
        let found = last.counters[arm].iter().find(|(name, _)| *name == wanted);
        found.map_or(0, |(_, count)| *count)
    };
    let arms = 0..measured.designs.len();
    if arms.clone().all(|arm| count(arm, LOOKUPS) == 0) {
        return Vec::new();
    }
    let share = |name: &str, wanted| Share {
        name: name.to_owned(),
        values: arms
            .clone()
            .map(|arm| count(arm, wanted) as f64 / count(arm, LOOKUPS).max(1) as f64)
            .collect(),
    };
    vec![
        share("entries found", "lookup hits"),
        share("false probes", "lookup false probes"),
    ]
}

/// The counter of pages looked up.
const LOOKUPS: &str = "pages looked up";

/// What the sum of all phases is called.
pub const ALL_PHASES: &str = "all phases";

/// The figures of every timed phase, and of all together where their slices are what
/// is timed.
fn figures(script: &Script, measured: &Measurement, request: &Request) -> Vec<Figure> {
    let phases = script
        .phases()
        .iter()
        .enumerate()
        .skip(usize::from(NOTE) + 1);
    let timed: Vec<_> = phases.filter(|(_, phase)| phase.units > 0).collect();
    let by_slices = |(_, phase): &(_, &PhaseInfo)| matches!(phase.timing, Timing::Slices);
    let whole = script.phases_make_a_whole() && timed.len() > 1;
    let together = (whole && timed.iter().all(by_slices)).then(|| {
        let numbers: Vec<u16> = timed.iter().map(|(number, _)| *number as u16).collect();
        let input = Input {
            name: ALL_PHASES,
            per: "run",
            units: 1.0,
            clock: "thread CPU time",
            times: slice_times(measured, &numbers),
            spread_units: None,
        };
        figure_of(&input, &request.method)
    });
    timed
        .into_iter()
        .flat_map(|(number, phase)| match phase.timing {
            Timing::Slices => slice_figures(phase, number as u16, measured, request),
            Timing::Laps => lap_figures(phase, number as u16, measured, request),
        })
        .chain(together)
        .collect()
}

/// A phase timed by slices: the time of its CPUs together, and where there are several
/// the time that passed.
fn slice_figures(
    phase: &PhaseInfo,
    number: u16,
    measured: &Measurement,
    request: &Request,
) -> Vec<Figure> {
    let figure = |name: &str, clock: &'static str, times: Vec<Vec<Vec<u64>>>| {
        let input = Input {
            name,
            per: phase.per,
            units: phase.units as f64,
            clock,
            times,
            spread_units: None,
        };
        figure_of(&input, &request.method)
    };
    let cpu = slice_times(measured, &[number]);
    let mut figures = vec![figure(&phase.name, "thread CPU time", cpu)];
    if measured.cpus > 1 {
        let name = format!("{}, elapsed", phase.name);
        figures.push(figure(&name, "monotonic clock", elapsed(measured, number)));
    }
    figures
}

/// Time from the beginning of each slice of a phase to its end, by arm and pass.
fn elapsed(measured: &Measurement, phase: u16) -> Vec<Vec<Vec<u64>>> {
    let of_phase = |times: &Vec<u64>| {
        let slices = times.iter().zip(&measured.phases);
        let mine = slices.filter(|(_, of)| **of == phase);
        mine.map(|(ns, _)| (*ns).max(1)).collect()
    };
    (0..measured.designs.len())
        .map(|arm| {
            let passes = measured.passes.iter();
            passes.map(|pass| of_phase(&pass.wall_ns[arm])).collect()
        })
        .collect()
}

/// A phase timed in laps: the first of each pass, which meets a machine on which
/// nothing has happened, apart from the others.
fn lap_figures(
    phase: &PhaseInfo,
    number: u16,
    measured: &Measurement,
    request: &Request,
) -> Vec<Figure> {
    let times = lap_times(measured, number);
    let laps = times[0][0].len();
    let each = phase.units as f64 / laps.max(1) as f64;
    let part = |name: &str, range: std::ops::Range<usize>| {
        let pick = |pass: &Vec<u64>| pass[range.clone()].to_vec();
        let pick_all = |passes: &Vec<Vec<u64>>| passes.iter().map(pick).collect();
        figure_of(
            &Input {
                name,
                per: phase.per,
                units: each * range.len() as f64,
                clock: "monotonic clock",
                times: times.iter().map(pick_all).collect(),
                spread_units: (range.len() > 1).then_some(each),
            },
            &request.method,
        )
    };
    match laps {
        0 => Vec::new(),
        1 => vec![part(&phase.name, 0..1)],
        laps => {
            let first = format!("{}, first child of a pass", phase.name);
            vec![part(&phase.name, 1..laps), part(&first, 0..1)]
        }
    }
}

/// Times of the slices of some phases, by arm and pass, the clock's cost taken off.
pub fn slice_times(measured: &Measurement, phases: &[u16]) -> Vec<Vec<Vec<u64>>> {
    let clock_ns = measured.clock_ns * measured.cpus as u64;
    let of_phase = |times: &Vec<u64>| {
        let slices = times.iter().zip(&measured.phases);
        let mine = slices.filter(|(_, of)| phases.contains(of));
        mine.map(|(ns, _)| ns.saturating_sub(clock_ns).max(1))
            .collect()
    };
    (0..measured.designs.len())
        .map(|arm| {
            let passes = measured.passes.iter();
            passes.map(|pass| of_phase(&pass.cpu_ns[arm])).collect()
        })
        .collect()
}

/// Laps of a phase, by arm and pass, the cost of the notes taken off.
fn lap_times(measured: &Measurement, phase: u16) -> Vec<Vec<Vec<u64>>> {
    let mut notes: Vec<u64> = measured
        .passes
        .iter()
        .flat_map(|pass| pass.laps.iter().flatten())
        .filter(|lap| lap.phase == NOTE)
        .map(|lap| lap.ns)
        .collect();
    notes.sort_unstable();
    let note_ns = notes.get(notes.len() / 2).copied().unwrap_or(0);
    (0..measured.designs.len())
        .map(|arm| {
            let passes = measured.passes.iter();
            let of_pass = passes.map(|pass| {
                let laps = pass.laps[arm].iter().filter(|lap| lap.phase == phase);
                laps.map(|lap| lap.ns.saturating_sub(note_ns).max(1))
                    .collect()
            });
            of_pass.collect()
        })
        .collect()
}
