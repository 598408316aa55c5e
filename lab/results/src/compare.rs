//! Results of `vellum compare` on the core.

use serde::{Deserialize, Serialize};

use crate::linux::EntryCost;
use crate::profile::Profile;
use crate::whole;
use crate::{Arms, Figure, Kind, Verdict, Whole};

pub use vellum_tables::kernbench::Row as KernbenchRow;

/// A comparison of two designs. Times are nanoseconds, sizes bytes, ratios and resolutions
/// shares (0.01 is 1 %).
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Compare {
    /// Version of the program.
    pub version: String,
    /// How the comparison was asked for.
    pub about: About,
    /// Each arm's design, complete, as its engine states it.
    pub designs: Arms<String>,
    /// Operations of the workload.
    pub ops: usize,
    /// Simulated CPUs.
    pub cpus: usize,
    /// Slices of the workload.
    pub slices: usize,
    /// Complete passes.
    pub passes: usize,
    /// Whether the user stopped the run early.
    pub interrupted: bool,
    /// CPU time in the core.
    pub cpu_ns: Arms<Figure>,
    /// Elapsed time of the slices.
    pub wall_ns: Arms<Figure>,
    /// What a device takes beside CPU time, if one was modelled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<WithDevice>,
    /// CPU time of B divided by that of A.
    pub ratio: Figure,
    /// CPU time of the control divided by that of A.
    pub control_ratio: Figure,
    /// Largest relative difference that is not significant; null with fewer than 5 passes.
    pub resolution: Option<f64>,
    /// How B stands against A in the core alone. Where `entries` has one, that is the answer.
    pub verdict: Verdict,
    /// The same with what programs pay for entering the kernel; absent in results of older
    /// versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entries: Option<WithEntries>,
    /// The whole workload, of which this is a part; null if the recording has no CPU times.
    #[serde(default)]
    pub whole: Option<Whole>,
    /// Cost of the clock taken off each interval of `classes`.
    pub clock_ns: u64,
    /// Time by class of operation, from a pass of its own, which does not add up to `cpu_ns`: read
    /// it as shares.
    pub classes: Vec<ClassRow>,
    /// Event counts.
    pub counters: Vec<CounterRow>,
    /// Memory by what it holds.
    pub memory: Vec<MemoryRow>,
    /// Operations that went otherwise than recorded, in the first pass and before it.
    pub divergences: Arms<Divergences>,
    /// Rows of the kernbench block.
    pub kernbench: Vec<KernbenchRow>,
    /// Sum of the slices' CPU times in each pass, in order.
    pub pass_cpu_ns: Arms<Vec<u64>>,
    /// Time and memory along the workload.
    #[serde(default)]
    pub along: Option<Along>,
    /// What no figure contains.
    pub not_modelled: String,
    /// Where the designs spend their time, with `--profile`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<Profile>,
}

impl Kind for Compare {
    const SCHEMA: &'static str = "vellum-compare/1";
}

/// What a comparison comes to.
#[derive(Clone, Copy, Debug)]
pub struct Conclusion<'c> {
    /// CPU time that is compared.
    pub cpu_ns: &'c Arms<Figure>,
    /// That of B divided by that of A.
    pub ratio: &'c Figure,
    /// That of the control divided by that of A.
    pub control_ratio: &'c Figure,
    /// Largest relative difference that is not significant.
    pub resolution: Option<f64>,
    /// The answer.
    pub verdict: Verdict,
}

impl Compare {
    /// What it comes to: with entries where they were counted.
    pub fn conclusion(&self) -> Conclusion<'_> {
        match &self.entries {
            Some(with) => Conclusion {
                cpu_ns: &with.cpu_ns,
                ratio: &with.ratio,
                control_ratio: &with.control_ratio,
                resolution: with.resolution,
                verdict: with.verdict,
            },
            None => Conclusion {
                cpu_ns: &self.cpu_ns,
                ratio: &self.ratio,
                control_ratio: &self.control_ratio,
                resolution: self.resolution,
                verdict: self.verdict,
            },
        }
    }

    /// What its CPU time is.
    pub fn what_is_compared(&self) -> &'static str {
        match self.entries {
            Some(_) => "CPU time for memory management, entries into the kernel included",
            None => "CPU time in the core",
        }
    }

    /// The time in the core by class: each class has the share of it that it had in the pass that
    /// timed classes by themselves. So classes add up to `cpu_ns`.
    pub fn class_times(&self) -> Vec<ClassTime<'_>> {
        let sums = Arms::of(|arm| {
            let times = self.classes.iter().map(|row| *row.cpu_ns.list()[arm]);
            times.sum::<u64>().max(1) as f64
        });
        let time = |row: &ClassRow, arm: usize| {
            let share = *row.cpu_ns.list()[arm] as f64 / sums.list()[arm];
            share * self.cpu_ns.list()[arm].value
        };
        let times = self.classes.iter().map(|row| ClassTime {
            class: &row.class,
            ops: row.ops,
            ns: Arms::of(|arm| time(row, arm)),
        });
        times.collect()
    }

    /// How the designs stand in the whole workload, in words.
    pub fn of_the_whole(&self) -> String {
        let found = self.conclusion();
        let untold = match found.verdict {
            Verdict::NotProven(_) => found.resolution,
            _ => None,
        };
        let times = [found.cpu_ns.a.value, found.cpu_ns.b.value];
        whole::of_two(self.whole.as_ref(), times, untold)
    }

    /// What is said of TLB misses, where the designs map pages of different sizes.
    pub fn translation(&self) -> Option<&'static str> {
        let value = |design: &'static str, of: &str| {
            let mut options = of
                .split([',', ' '])
                .filter_map(|option| option.split_once('='));
            options
                .find(|(name, _)| *name == design)
                .map(|(_, value)| value.to_owned())
        };
        let differs = |name| value(name, &self.designs.a) != value(name, &self.designs.b);
        let sizes = ["superpage", "folio", "huge", "filehuge", "format"];
        sizes.into_iter().any(differs).then_some(
            "Time saved by fewer TLB misses is not in this: a trace has no accesses. `vellum plan \
             tlb` simulates it from a stream of them.",
        )
    }
}

/// What a class of operation has of the time in the core.
#[derive(Clone, PartialEq, Debug)]
pub struct ClassTime<'c> {
    /// The class.
    pub class: &'c str,
    /// Operations of the class in the workload.
    pub ops: u64,
    /// In nanoseconds.
    pub ns: Arms<f64>,
}

impl ClassTime<'_> {
    /// Whether B differs from A by more than the control does.
    pub fn differs(&self) -> bool {
        let Arms { a, b, control } = self.ns;
        (b - a).abs() > (control - a).abs()
    }
}

/// CPU time in the core and that of entering the kernel: each fault that a design meets and each
/// call counts with its price.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct WithEntries {
    /// What an entry costs on this machine, measured in the run.
    pub price: EntryCost,
    /// Faults that programs meet in a pass: those recorded that the design has not made
    /// needless, and those of accesses that are known.
    pub traps: Arms<u64>,
    /// System calls in a pass.
    pub calls: Arms<u64>,
    /// CPU time in the core and of entries.
    pub cpu_ns: Arms<Figure>,
    /// That of B divided by that of A.
    pub ratio: Figure,
    /// That of the control divided by that of A.
    pub control_ratio: Figure,
    /// Largest relative difference that is not significant; null with fewer than 5 passes.
    pub resolution: Option<f64>,
    /// The answer: how B stands against A.
    pub verdict: Verdict,
}

/// How a comparison was asked for.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct About {
    /// The trace's path as given.
    pub trace: String,
    /// Design A as given.
    pub a: String,
    /// Design B as given.
    pub b: String,
    /// Passes wanted.
    pub passes: usize,
    /// Copies of the recorded process family that run at once.
    pub copies: u32,
    /// Memory of each simulated machine.
    pub ram_bytes: u64,
    /// Slice length aimed at, in microseconds.
    pub slice_us: u64,
    /// Confidence of the intervals, as a share.
    pub confidence: f64,
    /// Bootstrap resamples.
    pub resamples: usize,
    /// Seed of the resampling.
    pub seed: u64,
}

/// What the arms took with a device.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct WithDevice {
    /// The device.
    #[serde(flatten)]
    pub device: Device,
    /// Its time in one pass, medians over the passes.
    pub device_ns: Arms<f64>,
    /// CPU time in the core and that of the device, one after the other; null with several
    /// CPUs, of which one may work while another waits.
    pub elapsed_ns: Option<Arms<f64>>,
}

/// A device, as it is modelled.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Device {
    /// What it is called.
    pub name: String,
    /// From the request to the first byte of a read, in nanoseconds.
    pub read_ns: u64,
    /// From the request until a write is taken, bytes aside, in nanoseconds.
    pub write_ns: u64,
    /// Bytes in a second.
    pub bytes_per_s: u64,
}

/// CPU time of one class of operation, from a pass of its own.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ClassRow {
    /// The class.
    pub class: String,
    /// Operations of the class in the workload.
    pub ops: u64,
    /// Intervals timed, each a run of operations of the class.
    pub intervals: u64,
    /// CPU time without the clock's own cost.
    pub cpu_ns: Arms<u64>,
}

/// A count over the passes. They differ only where CPUs race.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Count {
    /// Median.
    pub median: u64,
    /// Smallest.
    pub low: u64,
    /// Largest.
    pub high: u64,
}

/// How often something happened in one pass.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CounterRow {
    /// What was counted.
    pub name: String,
    /// In which passes.
    pub pass: CountedIn,
    /// How often in one pass.
    pub count: Counted,
}

/// In which passes something was counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CountedIn {
    /// In every timed pass.
    Timed,
    /// In the one pass over the instrumented build.
    Atomics,
}

/// A count under each arm.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Counted {
    /// Under design A.
    pub a: Count,
    /// Under design B.
    pub b: Count,
    /// Under the control, which has no part in the pass that counts atomics.
    pub control: Option<Count>,
}

/// Memory held for one purpose.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MemoryRow {
    /// What it holds.
    pub name: String,
    /// Bytes at the end of the workload.
    pub end_bytes: Arms<Count>,
    /// Bytes at the peak.
    pub peak_bytes: Arms<Count>,
}

/// Operations of one pass that went otherwise than recorded, those included that are left out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Divergences {
    /// Those of them that are recorded faults of pages that the design has mapped. Timed passes
    /// leave them out; results of older versions have none.
    #[serde(default)]
    pub needless: u64,
    /// Those that the recording explains.
    pub explained: u64,
    /// Those that nothing explains.
    pub unexplained: u64,
}

/// Places in a workload, from its beginning to its end.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Places {
    /// Operations of all CPUs before each place.
    pub ops: Vec<u64>,
    /// The number of the trace's event, from 0, that the last of these operations came
    /// from; empty where the workload is not one copy of one trace.
    #[serde(default)]
    pub events: Vec<u64>,
}

/// Time along the workload, in up to 2000 stretches of neighbouring slices.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Along {
    /// The end of each stretch.
    #[serde(flatten)]
    pub places: Places,
    /// CPU time of each stretch: medians of its slices over the passes, added up, as in the
    /// totals.
    pub cpu_ns: Arms<Vec<u64>>,
    /// Memory in the course of the pass that times classes of operations.
    #[serde(default)]
    pub memory: MemoryAlong,
}

/// Memory along the workload, at about 200 places.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct MemoryAlong {
    /// Where it was looked at.
    #[serde(flatten)]
    pub places: Places,
    /// By what it holds.
    pub kinds: Vec<Held>,
}

/// Bytes held for one purpose at each place.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Held {
    /// What they hold.
    pub name: String,
    /// Under A.
    pub a: Vec<u64>,
    /// Under B.
    pub b: Vec<u64>,
}
