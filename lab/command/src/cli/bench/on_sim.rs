//! `vellum bench --on sim`: whether the options fit, before anything is simulated.

use super::super::{Failure, bench_sim, refuse};
use super::{BenchArgs, Format, designs, sizes};
use crate::bench::{self, BENCHMARKS};
use vellum_terminal::progress::Style;

/// The benchmark on a simulated machine.
pub fn run((name, args): (&str, &BenchArgs)) -> Result<(), Failure> {
    let benchmark = bench::find(name).map_err(Failure::usage)?;
    let Some(replayed) = benchmark.sim else {
        let names = BENCHMARKS.iter().filter(|other| other.sim.is_some());
        let names: Vec<&str> = names.map(|other| other.name).collect();
        return Err(Failure::usage(format!(
            "--on sim is for benchmarks that replay traces: {}; `vellum scale` has workloads \
             for more and more simulated CPUs",
            names.join(", ")
        )));
    };
    let strangers = [
        (args.tree.is_some(), "--tree"),
        (args.config.is_some(), "--config"),
        (args.lowmem.is_some(), "--lowmem"),
        (args.device.is_some(), "--device"),
        (args.profiling.wanted(), "--profile-out"),
        (!args.variants.is_empty(), "--variant"),
    ];
    refuse(&strangers, "not with --on sim: leave it out")?;
    let is_kolivas = match args.format {
        None => None,
        Some(Format::Kolivas) => Some(&args.kolivas),
        Some(_) => {
            return Err(Failure::usage(
                "with --on sim the figures are of seeds: leave out --format, or give kolivas",
            ));
        }
    };
    if let Some(option) = args.kolivas.given().filter(|_| is_kolivas.is_none()) {
        return Err(Failure::usage(format!("{option} is for --format kolivas")));
    }
    bench_sim::run(bench_sim::Request {
        benchmark,
        replayed,
        designs: designs(benchmark, args)?,
        named: args.a.is_some() || args.b.is_some() || !args.designs.is_empty(),
        sizes: sizes(benchmark, args)?,
        traces: &args.traces,
        passes: args.passes,
        cpus: args.cpus,
        ram: args.ram,
        seed: args.seed,
        resamples: args.resamples as usize,
        sim: &args.sim,
        kolivas: is_kolivas,
        output: &args.output,
        style: Style::detect(args.quiet),
    })
}
