//! `vellum plan`: questions that have to be answered before a machine is bought or
//! configured.

use std::path::{Path, PathBuf};

use clap::builder::ValueHint;
use clap::{Args, Subcommand};
use vellum_description::Description;
use vellum_engine::{DeviceModel, gives};

use super::given::Given;
use super::outputs::{OutputFile, OutputPath};
use super::results::{self, OutputArgs, Results};
use super::{Failure, OrFail, import, size};
use crate::designs::{self, common_pages};
use crate::plan::arithmetic::{MOST_RAM, TABLE_MAPS};
use crate::plan::session::{Session, design};
use crate::plan::window::price_on;
use crate::plan::{Question, mappings, memory, memory_text, plan, text, tlb, tlb_text};
use crate::replay::{MAX_COPIES, MAX_CPUS, Options, Service, Streams, Workload, ram};
use crate::report::Detail;
use vellum_import::Format;
use vellum_results::Kind;
use vellum_results::plan::{Plan, Price};
use vellum_results::tlb::TlbPlan;
use vellum_terminal::progress::{Interrupt, Progress, Style};
use vellum_trace::TraceReader;

const EXAMPLES: &str = "\
`plan memory` asks how much memory a workload needs. It replays the workload on machines with less
and less memory, down from what is in use at the peak, whose pages leave for a device of a stated
speed, and prints what that takes: CPU time in the core, and time waited for the device.
docs/reclaim.md says how pages are chosen.

`plan tlb` asks what larger pages would save in TLB misses and page walks. It simulates the TLBs of a
described machine for a stream of accesses, by pages of 4 KiB, by aligned and contiguous blocks of 16
and 64 KiB, by pages of 2 MiB, and as designs have mapped the pages. Without a stream it gives a
bound. docs/tlb.md says what is simulated.

`plan userpte` asks where page tables should lie on a machine with high memory.
Without a trace it prints what the published text of 2010 counts. With one it replays the workload
on format=x86-pae, takes from it what low memory has to hold, and says at which size of memory
userpte=nohigh begins to fail. Then it replays with userpte=high, nohigh and auto on machines with
little low memory, and charges every window to a page table its price. docs/high-memory.md says
what windows are.

Examples:
  vellum plan memory traces/snapshot-server.vellum
  vellum plan memory traces/kernel-build.vellum --device disk --parts 1,0.5,0.25 --svg memory.svg
  vellum plan memory traces/snapshot-server.vellum --parts 1,0.75,0.5 --compressed 20
  vellum plan memory smaps.txt
  valgrind --tool=lackey --trace-mem=yes --log-file=lackey.txt ls
  vellum plan tlb --stream lackey.txt --machine this.toml
  vellum plan tlb lackey.txt --stream lackey.txt --designs superpage=eager --designs folio=64k
  vellum plan tlb --stream drmemtrace.ls.*.dir/trace/*
  vellum plan tlb server.vellum --walks 81234567
  vellum plan userpte
  vellum plan userpte --lowmem 896M --ram 2G..64G
  vellum plan userpte traces/kernel-build.vellum --copies 4
  vellum plan userpte traces/sdet-like.vellum --parts 0.5,1,2 --svg plan.svg --json plan.json

Exit codes: 0 answered, 1 failed, 2 unusable arguments or trace, 3 the replay diverged from the
recording, 130 interrupted (complete rows are printed).";

/// Answer questions about a machine before it is configured
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct PlanArgs {
    #[command(subcommand)]
    question: Asked,
}

#[derive(Subcommand, Debug)]
enum Asked {
    Memory(MemoryArgs),
    Tlb(TlbArgs),
    Userpte(UserpteArgs),
}

/// How much memory does a workload need?
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
struct MemoryArgs {
    /// A workload: a trace, or a text that `vellum import` reads
    #[arg(value_hint = ValueHint::FilePath)]
    trace: PathBuf,
    /// Copies of the recorded process family that run at once
    #[arg(long, value_name = "K", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_COPIES)))]
    copies: u32,
    /// Sizes of memory to replay with, in parts of what is in use at the peak (0.5 or 50%)
    #[arg(long, value_name = "N,N,...", value_delimiter = ',', value_parser = size::parse_part,
          default_values_t = [1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.25, 0.2])]
    parts: Vec<f64>,
    /// What pages leave for: `nvme` (80 us for a read, 20 us for a write, 3 GB/s), `ssd` (120 us,
    /// 60 us, 500 MB/s) or `disk` (12 ms, 12 ms, 150 MB/s)
    #[arg(long, value_name = "DEVICE", default_value = "nvme",
          value_parser = clap::builder::PossibleValuesParser::new(DeviceModel::NAMES))]
    device: String,
    /// Options of the design; `reclaim=on` is added
    #[arg(long, value_name = "OPTIONS", default_value = "")]
    design: String,
    /// Set so much of each size of memory aside for a compressed store in front of swap, in
    /// percent (docs/swap.md). What pages hold is assumed, as the trace does not have it
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(1..=90))]
    compressed: Option<u8>,
    /// Memory of the machine that the peak is measured on [default: what the trace and its
    /// copies need, as far as the host has it]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    ram: Option<u64>,
    /// Seed of the shifts between copies
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// Draw it
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    svg: Option<OutputPath>,
    #[command(flatten)]
    output: OutputArgs,
    /// No progress
    #[arg(long, short)]
    quiet: bool,
}

/// What would larger pages save in TLB misses and page walks?
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
struct TlbArgs {
    /// A workload, whose pages --designs map and whose samples of accesses give a bound: a trace, or
    /// a text that `vellum import` reads
    #[arg(value_hint = ValueHint::FilePath)]
    trace: Option<PathBuf>,
    /// Accesses one by one: text of valgrind's lackey, text or records of DynamoRIO's drmemtrace; `-`
    /// is standard input. Several files are one run
    #[arg(long, value_name = "FILE", num_args = 1.., value_hint = ValueHint::FilePath)]
    stream: Vec<PathBuf>,
    /// Which tool told the accesses
    #[arg(long, value_enum, value_name = "FORMAT", requires = "stream")]
    from: Option<Format>,
    /// A machine of `vellum machines`, or a file that ends in .toml, with TLBs
    #[arg(long, value_name = "MACHINE", default_value = "epyc-milan-1s",
          value_hint = ValueHint::FilePath)]
    machine: String,
    /// Simulate the mappings that this design makes of the trace, too; can be given several times
    #[arg(long, value_name = "OPTIONS", requires_all = ["trace", "stream"])]
    designs: Vec<String>,
    /// Without a stream: page walks that hardware counted, as `perf stat -e
    /// dtlb_load_misses.walk_completed,dtlb_store_misses.walk_completed` prints them on Intel's
    /// processors and `-e dTLB-load-misses` on AMD's
    #[arg(long, value_name = "N", conflicts_with = "stream")]
    walks: Option<u64>,
    /// Memory of the machine that designs are replayed on [default: what the trace needs]
    #[arg(long, value_name = "SIZE", value_parser = size::parse, requires = "designs")]
    ram: Option<u64>,
    #[command(flatten)]
    output: OutputArgs,
    /// No progress
    #[arg(long, short)]
    quiet: bool,
}

/// Where should page tables lie on a machine with high memory?
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
struct UserpteArgs {
    /// A workload: a trace, or a text that `vellum import` reads
    #[arg(value_hint = ValueHint::FilePath)]
    trace: Option<PathBuf>,
    /// Copies of the recorded process family that run at once
    #[arg(long, value_name = "K", default_value_t = 1, requires = "trace",
          value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_COPIES)))]
    copies: u32,
    /// Simulated CPUs
    #[arg(long, value_name = "N", default_value_t = 1, requires = "trace",
          value_parser = clap::value_parser!(u16).range(1..=MAX_CPUS as i64))]
    cpus: u16,
    /// Low memory of the machines that are planned
    #[arg(long, value_name = "SIZE", default_value = "768M", value_parser = size::parse)]
    lowmem: u64,
    /// Their memory: the least and the most, in doublings
    #[arg(long, value_name = "SIZE..SIZE", default_value = "4G..64G", value_parser = range)]
    ram: (u64, u64),
    /// Only one part of low memory in so many can be had for page tables
    #[arg(long, value_name = "N", default_value_t = 10.0)]
    slop: f64,
    /// Low memory of the machines that are replayed on, in parts of what was needed (0.5 or 50%)
    #[arg(long, value_name = "N,N,...", value_delimiter = ',', requires = "trace",
          value_parser = size::parse_part,
          default_values_t = [0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 2.5, 4.0])]
    parts: Vec<f64>,
    /// Memory of the machines that are replayed on [default: what the trace and its copies
    /// need, as far as the host has it]
    #[arg(long, value_name = "SIZE", value_parser = size::parse, requires = "trace")]
    machine_ram: Option<u64>,
    /// More options of the design, beside format= and userpte=
    #[arg(long, value_name = "OPTIONS", default_value = "", requires = "trace")]
    design: String,
    /// A machine of `vellum machines`, or a file that ends in .toml, whose prices a window has
    #[arg(long, value_name = "MACHINE", default_value = "xeon-e5-2690",
          value_hint = ValueHint::FilePath)]
    machine: String,
    /// Price of a window in nanoseconds, instead
    #[arg(long, value_name = "NS", conflicts_with = "machine")]
    window_ns: Option<f64>,
    /// Seed of the shifts between copies
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// Draw it
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    svg: Option<OutputPath>,
    #[command(flatten)]
    output: OutputArgs,
    /// No progress
    #[arg(long, short)]
    quiet: bool,
}

/// Two sizes with two dots between them, or one.
fn range(text: &str) -> Result<(u64, u64), String> {
    match text.split_once("..") {
        Some((from, to)) => Ok((size::parse(from)?, size::parse(to)?)),
        None => size::parse(text).map(|size| (size, size)),
    }
}

/// Answers the question.
pub fn run(args: PlanArgs) -> Result<(), Failure> {
    match args.question {
        Asked::Memory(args) => needed(&args),
        Asked::Tlb(args) => tlb_misses(&args),
        Asked::Userpte(args) => userpte(&args),
    }
}

fn needed(args: &MemoryArgs) -> Result<(), Failure> {
    let mut parts = args.parts.clone();
    if let Some(part) = parts.iter().find(|part| !(0.01..=10.0).contains(*part)) {
        return Err(Failure::usage(format!(
            "--parts {part}: expected 0.01 to 10"
        )));
    }
    parts.sort_by(|one, other| other.total_cmp(one));
    parts.dedup();
    let (results, drawing) = open(
        &args.output,
        args.svg.as_ref(),
        std::slice::from_ref(&args.trace),
    )?;
    let interrupt = Interrupt::on_ctrl_c().doing(|| "catching Ctrl-C")?;
    let style = Style::detect(args.quiet);
    let options = Options {
        streams: Streams::ByCpu(1),
        copies: args.copies,
        seed: args.seed,
        ..Options::default()
    };
    let given = Given::open(&args.trace, style, &interrupt)?;
    let workload = prepare(given.path(), &args.design, options, style)?;
    let question = memory::Question {
        trace: args.trace.display().to_string(),
        design: args.design.clone(),
        parts,
        device: args.device.clone(),
        ram_bytes: ram::choose(args.ram, workload.ram_bytes(), 1),
        compressed: args.compressed,
    };
    let answer = memory::plan(&question, &workload, style, &interrupt)?;
    finish(
        results,
        drawing,
        &answer,
        |detail| memory_text::render(&answer, detail),
        answer.interrupted,
    )
}

fn tlb_misses(args: &TlbArgs) -> Result<(), Failure> {
    let machine = Description::named(&args.machine);
    let machine = machine.map_err(|error| Failure::usage(error.to_string()))?;
    let translation = tlb::translation(&args.machine, &machine)?;
    let (results, _) = open(&args.output, None, args.trace.as_slice())?;
    let interrupt = Interrupt::on_ctrl_c().doing(|| "catching Ctrl-C")?;
    let style = Style::detect(args.quiet);
    let given = args.trace.as_ref();
    let given = given.map(|path| Given::open(path, style, &interrupt));
    let given = given.transpose()?;
    let nested = translation.nested.as_ref();
    let mut plan = TlbPlan {
        machine: args.machine.clone(),
        title: machine.title.clone(),
        host_pages: nested.map(|nested| nested.pages.word().to_owned()),
        trace: args.trace.as_ref().map(|path| path.display().to_string()),
        stream: None,
        rows: Vec::new(),
        bound: None,
        whole: None,
    };
    let mut made = Vec::new();
    if let Some(given) = &given {
        let workload = prepare(
            given.path(),
            &common(&args.designs)?,
            Options::default(),
            style,
        )?;
        plan.whole = workload.service().and_then(Service::whole);
        let ram = ram::choose(args.ram, workload.ram_bytes(), 1);
        for design in &args.designs {
            let mappings = mappings::made_by(design, &workload, ram, (style, &interrupt))?;
            made.push((design.clone(), mappings));
        }
    }
    if args.stream.is_empty() {
        let trace = given.as_ref().map(|given| TraceReader::open(given.path()));
        let trace = trace.transpose()?;
        plan.bound = Some(tlb::bound(translation, trace.as_ref(), args.walks)?);
    } else {
        let (inputs, bytes) = import::open_all(&args.stream)?;
        let mut progress = Progress::new(style, "simulating", bytes, "bytes");
        let run = (inputs, args.from);
        let report = tlb::simulate(
            &mut plan,
            translation,
            run,
            made,
            (&mut progress, &interrupt),
        );
        progress.finish();
        let report = report.map_err(import::failure)?;
        let names: Vec<String> = plan.stream.iter().flat_map(|s| s.files.clone()).collect();
        if !args.quiet {
            let skipped = import::skipped(&report, &names);
            skipped.iter().for_each(|line| eprintln!("vellum: {line}"));
        }
    }
    results.print(|detail| tlb_text::render(&plan, detail), &plan)
}

/// One of the designs, if all have pages of 4 KiB, as the simulator of TLBs.
fn common(designs: &[String]) -> Result<String, Failure> {
    let pages = common_pages(designs)?;
    match pages.shift {
        12 => Ok(designs.first().cloned().unwrap_or_default()),
        shift => Err(Failure::usage(format!(
            "--designs: pages of {} KiB; TLBs are simulated for formats with pages of 4 KiB",
            1 << (shift - 10)
        ))),
    }
}

fn userpte(args: &UserpteArgs) -> Result<(), Failure> {
    let question = question(args)?;
    let price = price(args)?;
    let (results, drawing) = open(&args.output, args.svg.as_ref(), args.trace.as_slice())?;
    let answer = answer(args, &question, &price)?;
    finish(
        results,
        drawing,
        &answer,
        |detail| text::render(&answer, detail),
        answer.interrupted,
    )
}

/// Where results go, and the picture.
fn open(
    output: &OutputArgs,
    svg: Option<&OutputPath>,
    traces: &[PathBuf],
) -> Result<(Results, Option<OutputFile>), Failure> {
    let mut results = Results::open(output)?;
    results.read_from(traces)?;
    let drawing = svg.map(OutputPath::create);
    Ok((results, drawing.transpose()?))
}

/// Draws and prints the answer.
fn finish(
    results: Results,
    drawing: Option<OutputFile>,
    answer: &impl Kind,
    text: impl FnOnce(Detail) -> String,
    interrupted: bool,
) -> Result<(), Failure> {
    if let Some(file) = drawing {
        file.commit(&results::picture(answer)?)?;
    }
    results.print(text, answer)?;
    match interrupted {
        true => Err(Failure::interrupted("")),
        false => Ok(()),
    }
}

fn answer(args: &UserpteArgs, question: &Question, price: &Price) -> Result<Plan, Failure> {
    let Some(path) = &args.trace else {
        return plan(question, None);
    };
    let interrupt = Interrupt::on_ctrl_c().doing(|| "catching Ctrl-C")?;
    let style = Style::detect(args.quiet);
    let workload = load(args, path, style, &interrupt)?;
    let ram = ram::choose(args.machine_ram, workload.ram_bytes(), 1);
    let session = Session::new(&workload, &args.design, ram, style, &interrupt);
    plan(question, Some((path.display().to_string(), session, price)))
}

/// The trace, ready for the format.
fn load(
    args: &UserpteArgs,
    path: &Path,
    style: Style,
    interrupt: &Interrupt,
) -> Result<Workload, Failure> {
    let mut taken = ["format", "userpte", "as"].into_iter();
    if let Some(name) = taken.find(|name| gives(&args.design, name)) {
        return Err(Failure::usage(format!(
            "--design: {name}= sets what is planned; leave it out"
        )));
    }
    let designs = [design("nohigh", &args.design)];
    let options = Options {
        streams: Streams::ByCpu(usize::from(args.cpus)),
        copies: args.copies,
        seed: args.seed,
        ..Options::default()
    };
    let given = Given::open(path, style, interrupt)?;
    prepare(given.path(), &designs[0], options, style)
}

/// A trace with something in it, ready for a design.
fn prepare(path: &Path, design: &str, options: Options, style: Style) -> Result<Workload, Failure> {
    let design = [design.to_owned()];
    let (_, workload) = designs::load(&[path.to_owned()], &design, options, style)?;
    match workload.ops() {
        0 => Err(Failure::usage(format!(
            "{}: the trace has no operations; there is nothing to measure",
            path.display()
        ))),
        _ => Ok(workload),
    }
}

fn question(args: &UserpteArgs) -> Result<Question, Failure> {
    let (from, to) = args.ram;
    let refused = |text: String| Err(Failure::usage(text));
    if from > to {
        return refused("--ram: the first size is larger than the second".to_owned());
    }
    if to > MOST_RAM {
        return refused("--ram: x86-pae addresses 64 GiB of memory; name no more".to_owned());
    }
    if args.lowmem >= from {
        return refused(
            "--lowmem: there is no high memory if all memory is low; name less than --ram begins \
             with"
                .to_owned(),
        );
    }
    if args.lowmem < TABLE_MAPS {
        return refused("--lowmem: no machine has less than 2 MiB of low memory".to_owned());
    }
    if !(args.slop.is_finite() && args.slop >= 1.0) {
        return refused(format!("--slop {}: expected 1 or more", args.slop));
    }
    let mut parts = args.parts.clone();
    if let Some(part) = parts.iter().find(|part| !(0.01..=100.0).contains(*part)) {
        return refused(format!("--parts {part}: expected 0.01 to 100"));
    }
    parts.sort_by(f64::total_cmp);
    parts.dedup();
    Ok(Question {
        low_bytes: args.lowmem,
        ram: args.ram,
        slop: args.slop,
        parts,
    })
}

fn price(args: &UserpteArgs) -> Result<Price, Failure> {
    match args.window_ns {
        Some(ns) if ns.is_finite() && ns >= 0.0 => Ok(Price {
            ns,
            source: "as given by --window-ns".to_owned(),
        }),
        Some(ns) => Err(Failure::usage(format!(
            "--window-ns {ns}: expected nanoseconds, 0 or more"
        ))),
        None => {
            let machine = Description::named(&args.machine);
            let machine = machine.map_err(|error| Failure::usage(error.to_string()))?;
            Ok(price_on(&args.machine, &machine))
        }
    }
}
