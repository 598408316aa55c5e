//! `vellum bench`: named workloads, on the core or on the host's kernel.

#[cfg(feature = "simulation")]
mod on_sim;

use std::io::{self, Write};
use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, ValueHint};
use clap::{Args, ValueEnum};

#[cfg(not(feature = "simulation"))]
use super::absent::on_sim;
use super::kolivas::{self, KolivasArgs};
use super::profiling::{self, ProfileArgs};
use super::results::{OutputArgs, Results};
use super::simulated::SimArgs;
use super::{Failure, OrFail, size};

use crate::bench::findings;
use crate::bench::request::{self, CONFIDENCE, PASSES, Request, Sizes};
use crate::bench::{self, BENCHMARKS, Benchmark, Findings, text};
use crate::compare::Method;
use crate::on::On;
use crate::report::published;
use vellum_engine::DeviceModel;
use vellum_results::profile::Profile;
use vellum_terminal::progress::{Interrupt, Style};
use vellum_terminal::table::Table;

/// Builds of each arm of buildkernel on the host, as were published.
const BUILDS: u16 = 3;

const EXAMPLES: &str = "\
All designs and a control (the first once more) run side by side, slice by slice, as under
`vellum compare`; each phase of a benchmark has a figure, an interval and a verdict of its own.
On the host's kernel there is one design, and its control. On a simulated machine passes are seeds,
times are virtual, and the control is the same seed once more. docs/workloads.md describes the
workloads and has more examples; docs/measuring.md describes the method.

Examples:
  vellum bench --list
  vellum bench fork-family --on core --a rmap=chains --b rmap=partial
  vellum bench forkfault --variant read --variant cold --size forks=1024
  vellum bench rmap-test --scale 0.1 --designs rmap=chains --designs rmap=partial
  vellum bench sdet --on core --trace traces/sdet-like.vellum --json sdet.json
  vellum bench kernbench --on linux --tree ~/linux --format kolivas --optimal-jobs 4
  vellum bench kernbench --on sim --machine numa-q-16 --cpus 8 --trace part.vellum
  vellum bench reclaim --variant usemem --ram 256M --device ssd --a aging=lru --b aging=generations

Exit codes: 0 measured (whatever the verdict), 1 failed, 2 unusable arguments or trace,
3 an operation did not do what it should, 130 interrupted (what is finished is printed).";

/// Where `-h` sends its readers.
const MORE: &str = "\
--help lists all options, with examples; --list the benchmarks, with their sizes and variants.";

/// Headings of the options.
const WORKLOAD: &str = "The workload";
const MACHINE: &str = "The machine";
const METHOD: &str = "The measurement";

/// Run a benchmark under several designs, or on the host's kernel
#[derive(Args, Debug)]
#[command(after_help = MORE, after_long_help = EXAMPLES)]
pub struct BenchArgs {
    /// Which benchmark (`--list` describes them)
    #[arg(required_unless_present = "list", value_parser = names())]
    name: Option<String>,
    /// List the benchmarks with their sizes and variants, and end
    #[arg(long)]
    list: bool,
    /// Where it runs
    #[arg(long, value_enum, default_value_t = On::Core)]
    on: On,
    /// Design A, which the others are held against
    #[arg(long, value_name = "DESIGN", conflicts_with = "designs")]
    a: Option<String>,
    /// Design B
    #[arg(long, value_name = "DESIGN", conflicts_with = "designs")]
    b: Option<String>,
    /// A design, as often as there are designs, the base first; instead of --a and --b
    #[arg(long, value_name = "DESIGN")]
    designs: Vec<String>,
    /// One of the benchmark's sizes
    #[arg(long = "size", value_name = "NAME=NUMBER", help_heading = WORKLOAD)]
    sizes: Vec<String>,
    /// Multiplies the sizes that are not given
    #[arg(
        long,
        value_name = "FACTOR",
        default_value_t = 1.0,
        allow_negative_numbers = true,
        help_heading = WORKLOAD
    )]
    scale: f64,
    /// A variant of the benchmark, or `all` [default: the first; of reclaim all]
    #[arg(long = "variant", value_name = "NAME", help_heading = WORKLOAD)]
    variants: Vec<String>,
    /// Trace to replay, where the benchmark replays traces
    #[arg(long = "trace", value_name = "FILE", value_hint = ValueHint::FilePath,
          help_heading = WORKLOAD)]
    traces: Vec<PathBuf>,
    /// Kernel source tree to build, for kernbench (configured) and buildkernel (clean) on the host
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath,
          help_heading = WORKLOAD, hide_short_help = true)]
    tree: Option<PathBuf>,
    /// How buildkernel configures it: a target of make, as tinyconfig, or a file like .config
    /// [default: defconfig]
    #[arg(long, value_name = "CONFIG", requires = "tree", value_hint = ValueHint::FilePath,
          help_heading = WORKLOAD, hide_short_help = true)]
    config: Option<String>,
    /// What `make` builds in it [default: vmlinux; with --format kolivas and of buildkernel what it
    /// builds by itself]
    #[arg(long, value_name = "TARGET", requires = "tree",
          help_heading = WORKLOAD, hide_short_help = true)]
    target: Option<String>,
    /// Passes over the workload; multiples of twice the arms balance the order of execution
    /// [default: 6; with --format kolivas 5, and 3 if it is to be fast]
    #[arg(short = 'n', long, value_name = "PASSES",
          value_parser = clap::value_parser!(u16).range(1..=1000))]
    passes: Option<u16>,
    /// Simulated CPUs, where the benchmark replays traces; the most, where it goes from one to
    /// several [default: 1; with --on sim all that the machine has]
    #[arg(long, value_name = "N", help_heading = MACHINE)]
    cpus: Option<usize>,
    /// Memory of each simulated machine, with `reclaim --on linux` of the control group, and under
    /// designs with groups=on of the group that the processes of `reclaim` are then in
    /// [default: what the workload needs, as far as the host has it]
    #[arg(long, value_name = "SIZE", value_parser = size::parse,
          help_heading = MACHINE, hide_short_help = true)]
    ram: Option<u64>,
    /// How much of that memory is low memory, which can be addressed directly [default: all
    /// of it, up to what the format can have]
    #[arg(long, value_name = "SIZE", value_parser = size::parse,
          help_heading = MACHINE, hide_short_help = true)]
    lowmem: Option<u64>,
    /// reclaim on the core, and rmap-test under pressure: the device that pages leave for and come
    /// from: `nvme` (80 us for a read, 20 us for a write, 3 GB/s), `ssd` (120 us, 60 us, 500 MB/s)
    /// or `disk` (12 ms, 12 ms, 150 MB/s) [default: nvme]
    #[arg(long, value_name = "DEVICE", value_parser = PossibleValuesParser::new(DeviceModel::NAMES),
          hide_possible_values = true, help_heading = MACHINE, hide_short_help = true)]
    device: Option<String>,
    /// Length of a slice in microseconds of CPU time
    #[arg(long, value_name = "US", default_value_t = 1000,
          help_heading = METHOD, hide_short_help = true,
          value_parser = clap::value_parser!(u64).range(10..=10_000_000))]
    slice: u64,
    #[command(flatten)]
    output: OutputArgs,
    /// Print the samples of each figure in this format instead of our tables
    #[arg(long, value_enum, help_heading = METHOD, hide_short_help = true)]
    format: Option<Format>,
    /// No progress
    #[arg(long, short)]
    quiet: bool,
    /// Seed of orders, shuffles and the bootstrap
    #[arg(long, value_name = "S", default_value_t = 1, help_heading = METHOD, hide_short_help = true)]
    seed: u64,
    /// Bootstrap resamples
    #[arg(long, value_name = "R", default_value_t = 2000,
          help_heading = METHOD, hide_short_help = true,
          value_parser = clap::value_parser!(u32).range(100..=1_000_000))]
    resamples: u32,
    #[command(flatten)]
    profiling: ProfileArgs,
    #[command(flatten)]
    sim: SimArgs,
    #[command(flatten)]
    kolivas: KolivasArgs,
}

/// Formats of others.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Format {
    /// Statistics of the passes against those of A, in percent, as mmtests has them
    Mmtests,
    /// Whether the means of the passes differ, by Student's t
    Ministat,
    /// Con Kolivas's kernbench: his loads, and averages of each, of kernbench on the host
    Kolivas,
}

fn names() -> PossibleValuesParser {
    PossibleValuesParser::new(BENCHMARKS.iter().map(|benchmark| benchmark.name))
}

/// Runs a benchmark and prints what it found.
pub fn run(args: BenchArgs) -> Result<(), Failure> {
    let Some(name) = args.name.as_deref().filter(|_| !args.list) else {
        io::stdout().lock().write_all(list().as_bytes())?;
        return Ok(());
    };
    if args.on == On::Sim {
        return on_sim::run((name, &args));
    }
    args.sim.refuse(&[])?;
    let format = match args.format {
        None => None,
        Some(Format::Mmtests) => Some(published::Format::Mmtests),
        Some(Format::Ministat) => Some(published::Format::Ministat),
        Some(Format::Kolivas) => return kolivas(name, &args),
    };
    if let Some(option) = args.kolivas.given() {
        return Err(Failure::usage(format!("{option} is for --format kolivas")));
    }
    let mut request = request(name, &args)?;
    let mut results = Results::open(&args.output)?;
    results.read_from(&request.traces)?;
    if let Some(format) = format {
        results.with(format, request.designs.len() + 1, request.passes)?;
    }
    let interrupt = Interrupt::on_ctrl_c().doing(|| "catching Ctrl-C")?;
    if request.on == On::Linux && args.profiling.wanted() {
        return Err(Failure::usage(
            "only the core is profiled: use perf record with --on linux, and `vellum diffprofile`",
        ));
    }
    let profiling = args.profiling.start()?;
    request.profiler = profiling.profiler();
    let findings = bench::run(&request, &interrupt)?;
    let (profile, failed) = match profiling.finish(&request.designs, name).transpose() {
        Ok(profile) => (profile, None),
        Err(failure) => (None, Some(failure)),
    };
    print(&request, &findings, profile, format, results)?;
    if let Some(failure) = failed {
        return Err(failure);
    }
    match findings.interrupted {
        true => Err(Failure::interrupted(
            "interrupted; what was complete is printed",
        )),
        false => Ok(()),
    }
}

/// Kernbench with the loads and in the format of Con Kolivas.
fn kolivas(name: &str, args: &BenchArgs) -> Result<(), Failure> {
    if name != "kernbench" || args.on != On::Linux {
        return Err(Failure::usage(
            "--format kolivas is for `vellum bench kernbench`, with --on linux or --on sim",
        ));
    }
    // It has loads of its own, and no designs.
    designs(bench::find(name).map_err(Failure::usage)?, args)?;
    let strangers = [
        (!args.sizes.is_empty(), "--size"),
        (args.scale != 1.0, "--scale"),
        (!args.variants.is_empty(), "--variant"),
        (!args.traces.is_empty(), "--trace"),
        (args.cpus.is_some(), "--cpus"),
        (args.ram.is_some(), "--ram"),
        (args.device.is_some(), "--device"),
        (args.profiling.wanted(), "--profile"),
    ];
    if let Some((_, option)) = strangers.iter().find(|option| option.0) {
        return Err(Failure::usage(format!(
            "{option} is not for --format kolivas: its loads are chosen by --single, --no-half, \
             --no-optimal, --optimal-jobs and --no-maximal"
        )));
    }
    let build = kolivas::Build {
        tree: args.tree.as_deref(),
        target: args.target.as_deref(),
        passes: args.passes,
        output: &args.output,
        style: Style::detect(args.quiet),
    };
    kolivas::run(&args.kolivas, &build)
}

fn request(name: &str, args: &BenchArgs) -> Result<Request, Failure> {
    let benchmark = bench::find(name).map_err(Failure::usage)?;
    let on = args.on;
    if !benchmark.runs(on) {
        let places = On::ALL.map(|on| benchmark.runs(on).then_some(on.name()));
        let place = places.into_iter().flatten().next().unwrap_or_default();
        return Err(Failure::usage(format!(
            "{name} runs only with --on {place}"
        )));
    }
    let variants = request::variants(benchmark, &args.variants).map_err(Failure::usage)?;
    let models = match name {
        "reclaim" => on == On::Core,
        "rmap-test" => variants
            .iter()
            .any(|variant| variant.name == bench::PRESSURE),
        _ => false,
    };
    if args.device.is_some() && !models {
        return Err(Failure::usage(
            "--device is for `vellum bench reclaim` and `rmap-test --variant pressure` on the core: \
             others have no device whose time is modelled",
        ));
    }
    let builds = name == "buildkernel";
    if args.config.is_some() && !builds {
        return Err(Failure::usage(
            "--config is for buildkernel: kernbench builds a tree as it is configured",
        ));
    }
    let passes = match builds && on == On::Linux {
        true => BUILDS,
        false => PASSES,
    };
    Ok(Request {
        benchmark,
        on,
        designs: designs(benchmark, args)?,
        passes: usize::from(args.passes.unwrap_or(passes)),
        cpus: args.cpus.unwrap_or(1),
        ram_bytes: args.ram,
        low_bytes: args.lowmem,
        device: args.device.clone(),
        slice_us: args.slice,
        method: Method {
            confidence: CONFIDENCE,
            resamples: args.resamples as usize,
            seed: args.seed,
        },
        sizes: sizes(benchmark, args)?,
        variants,
        traces: args.traces.clone(),
        tree: args.tree.clone(),
        configuration: args.config.clone(),
        target: args.target.clone(),
        style: Style::detect(args.quiet),
        profiler: None,
    })
}

/// The sizes asked for, when there are the traces.
fn sizes(benchmark: &Benchmark, args: &BenchArgs) -> Result<Sizes, Failure> {
    if !(args.scale > 0.0 && args.scale <= 1e6) {
        return Err(Failure::usage(format!(
            "`{}` is no factor for --scale; write a positive number, as in 0.1",
            args.scale
        )));
    }
    for trace in &args.traces {
        if !trace.is_file() {
            return Err(Failure::usage(format!(
                "{}: no such file; give --trace a recording of `vellum record`",
                trace.display()
            )));
        }
    }
    Sizes::new(benchmark, args.scale, &args.sizes).map_err(Failure::usage)
}

/// The designs asked for; those of the benchmark where none is named.
fn designs(benchmark: &Benchmark, args: &BenchArgs) -> Result<Vec<String>, Failure> {
    let given = args.a.is_some() || args.b.is_some() || !args.designs.is_empty();
    if args.on == On::Linux && given {
        return Err(Failure::usage(
            "designs are designs of the core: leave them out with --on linux",
        ));
    }
    if !args.designs.is_empty() {
        return Ok(args.designs.clone());
    }
    let defaults = benchmark.designs;
    let or_default = |design: &Option<String>, index: usize| {
        let default = defaults[index.min(defaults.len() - 1)];
        design.clone().unwrap_or_else(|| default.to_owned())
    };
    match (&args.a, &args.b) {
        (None, None) => Ok(defaults.iter().map(|&design| design.to_owned()).collect()),
        // One design against itself shows how still the machine is.
        (Some(a), None) => Ok(vec![a.clone()]),
        (a, b) => Ok(vec![or_default(a, 0), or_default(b, 1)]),
    }
}

/// The benchmarks, with their sizes and variants.
fn list() -> String {
    let mut text = String::new();
    for benchmark in BENCHMARKS {
        let places = On::ALL.into_iter().filter(|on| benchmark.runs(*on));
        let places: Vec<&str> = places.map(On::name).collect();
        let places = places.join(", ");
        text += &format!("{} ({places}): {}\n", benchmark.name, benchmark.summary);
        let sizes = benchmark.sizes.iter();
        let rows = sizes.map(|size| {
            vec![
                format!("  --size {}={}", size.name, size.default),
                size.summary.to_owned(),
            ]
        });
        let variants = benchmark.variants.iter();
        let rows = rows.chain(variants.map(|variant| {
            vec![
                format!("  --variant {}", variant.name),
                variant.summary.to_owned(),
            ]
        }));
        text += &Table::lines(rows);
    }
    text
}

fn print(
    request: &Request,
    findings: &Findings,
    profile: Option<Profile>,
    format: Option<published::Format>,
    results: Results,
) -> Result<(), Failure> {
    let mut result = findings::result(request, findings);
    result.profile = profile;
    let tables = |detail| {
        let profile = result.profile.as_ref();
        let profile = profile.map(|profile| format!("\n{}", profiling::text(profile)));
        let tables = match format {
            Some(format) => text::render_as(format, request, findings, detail),
            None => text::render(request, findings, detail),
        };
        tables + &profile.unwrap_or_default()
    };
    results.print(tables, &result)
}
