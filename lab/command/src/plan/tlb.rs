//! What larger pages would save in TLB misses and page walks: `vellum plan tlb`.
//!
//! Every access of a stream goes to one simulator for each way of mapping: everything by pages of
//! one size, or what a design had mapped by the time a process of the trace ended ([`mappings`]).
//! Without a stream, samples of used pages and counted walks give bounds.
//!
//! [`mappings`]: super::mappings

use std::collections::{BTreeMap, HashMap, HashSet};

use vellum_description::{Description, PageSize, Translation};
use vellum_import::{AccessKind, Format, ImportError, Input, Report, Streamed};
use vellum_results::tlb::{Bound, Least, Row, Stream, TlbPlan};
use vellum_terminal::progress::{Interrupt, Progress};
use vellum_tlb::{Access, Simulator};
use vellum_trace::{AccessMarks, EventKind, TraceError, TraceReader};

use super::mappings::Mappings;
use crate::failure::Failure;

const PAGE_SHIFT: u32 = PageSize::K4.shift();
/// Pages that are told apart in samples: 64 GiB of them.
const MOST_PAGES: usize = 1 << 24;

/// One way of mapping.
enum Mapped {
    By(PageSize),
    Design(String, Vec<Mappings>),
}

struct Arm {
    mapped: Mapped,
    simulator: Simulator,
    by_size: [u64; 4],
    unmapped: u64,
    /// The space of each process, by its number.
    spaces: Vec<Option<usize>>,
}

impl Arm {
    fn new(machine: &Translation, mapped: Mapped) -> Arm {
        Arm {
            mapped,
            simulator: Simulator::new(machine),
            by_size: [0; 4],
            unmapped: 0,
            spaces: Vec::new(),
        }
    }

    fn access(&mut self, access: Access) {
        if access.fetch && !self.simulator.knows_fetches() {
            return;
        }
        let page = access.address >> PAGE_SHIFT;
        let size = match &mut self.mapped {
            Mapped::By(size) => *size,
            Mapped::Design(_, spaces) => {
                while self.spaces.len() <= access.space {
                    let space = space_of(spaces, &self.spaces, page);
                    self.spaces.push(space);
                }
                let space = self.spaces[access.space].and_then(|space| spaces.get_mut(space));
                space
                    .and_then(|space| space.block(page))
                    .unwrap_or_else(|| {
                        self.unmapped += 1;
                        PageSize::K4
                    })
            }
        };
        self.by_size[size as usize] += 1;
        self.simulator.access(access, size);
    }

    fn row(self) -> Row {
        let counts = self.simulator.counts();
        let (pages, design) = match self.mapped {
            Mapped::By(size) => (Some(size.word().to_owned()), None),
            Mapped::Design(design, _) => (None, Some(design)),
        };
        Row {
            pages,
            design,
            accesses: counts.accesses,
            by_size: self.by_size,
            unmapped: self.unmapped,
            misses: counts.misses,
            walks: counts.walks,
            steps: counts.steps,
            hits_ns: counts.hits_ps as f64 / 1e3,
            walks_ns: counts.walks_ps as f64 / 1e3,
        }
    }
}

/// The space of a process that begins with `page`: the first that maps it and is no other
/// process's, else the first that maps it.
fn space_of(spaces: &mut [Mappings], taken: &[Option<usize>], page: u64) -> Option<usize> {
    let mapping: Vec<usize> = (0..spaces.len())
        .filter(|space| spaces[*space].block(page).is_some())
        .collect();
    let free = mapping.iter().find(|space| !taken.contains(&Some(**space)));
    free.or(mapping.first()).copied()
}

/// Gives a number to each of what is named.
struct Numbers<N> {
    numbers: HashMap<N, usize>,
    last: Option<(N, usize)>,
}

impl<N: Copy + Eq + std::hash::Hash> Numbers<N> {
    fn new() -> Self {
        Numbers {
            numbers: HashMap::new(),
            last: None,
        }
    }

    fn of(&mut self, name: N) -> usize {
        match self.last {
            Some((last, number)) if last == name => number,
            _ => {
                let next = self.numbers.len();
                let number = *self.numbers.entry(name).or_insert(next);
                self.last = Some((name, number));
                number
            }
        }
    }
}

/// The table of a description that is needed.
///
/// # Errors
/// It has none.
pub fn translation<'m>(name: &str, machine: &'m Description) -> Result<&'m Translation, Failure> {
    machine.translation.as_ref().ok_or_else(|| {
        Failure::usage(format!(
            "{name}: the description has no table `translation`, so its TLBs are not known; \
             `vellum calibrate -o this.toml` measures those of this machine, and `vellum machines` \
             lists others"
        ))
    })
}

/// Simulates the accesses of `inputs` by pages of each size, and as each of `designs` has mapped
/// them. The rows go into `plan`.
///
/// # Errors
/// The inputs cannot be read or are damaged, hardly any access is to what the trace maps, or the
/// user interrupted.
pub fn simulate(
    plan: &mut TlbPlan,
    machine: &Translation,
    (inputs, format): (Vec<Input>, Option<Format>),
    designs: Vec<(String, Vec<Mappings>)>,
    (progress, interrupt): (&mut Progress, &Interrupt),
) -> Result<Report, ImportError> {
    let files = inputs.iter().map(|input| input.name.clone()).collect();
    let by_size = PageSize::ALL.map(Mapped::By).into_iter();
    let by_design = designs.into_iter();
    let by_design = by_design.map(|(design, made)| Mapped::Design(design, made));
    let all = by_size.chain(by_design);
    let mut arms: Vec<Arm> = all.map(|mapped| Arm::new(machine, mapped)).collect();
    let (mut data, mut fetches) = (0, 0);
    let (mut processes, mut threads) = (Numbers::new(), Numbers::new());
    let mut each = |streamed: Streamed| {
        let fetch = streamed.kind == AccessKind::Execute;
        *(if fetch { &mut fetches } else { &mut data }) += 1;
        let space = processes.of(streamed.process);
        let cpu = threads.of((streamed.process, streamed.thread));
        let last = streamed.address + (streamed.size - 1);
        for page in streamed.address >> PAGE_SHIFT..=last >> PAGE_SHIFT {
            let access = Access {
                cpu,
                space,
                address: streamed.address.max(page << PAGE_SHIFT),
                fetch,
            };
            arms.iter_mut().for_each(|arm| arm.access(access));
        }
    };
    let (format, report) = vellum_import::stream(inputs, format, progress, interrupt, &mut each)?;
    plan.stream = Some(Stream {
        files,
        tool: format.name().to_owned(),
        data,
        fetches,
        fetches_simulated: arms
            .first()
            .is_some_and(|arm| arm.simulator.knows_fetches()),
        processes: processes.numbers.len() as u64,
        threads: threads.numbers.len() as u64,
        skipped: report.skips(),
    });
    plan.rows = arms.into_iter().map(Arm::row).collect();
    match plan.rows.iter().find(|row| 2 * row.unmapped > row.accesses) {
        Some(row) => Err(ImportError::Format(format!(
            "{} of {} accesses are to pages that the trace does not map: trace and stream are of \
             different runs, and a program has other addresses in each; give the stream as the \
             trace, too (it is imported), or leave the trace out",
            row.unmapped, row.accesses
        ))),
        None => Ok(report),
    }
}

/// The least number of walks that samples of used pages allow, and the longest time of `walks` that
/// hardware counted.
///
/// # Errors
/// The trace is damaged, or there is neither.
pub fn bound(
    machine: &Translation,
    trace: Option<&TraceReader>,
    walks: Option<u64>,
) -> Result<Bound, Failure> {
    let sampled = trace.and_then(|trace| Some((trace, trace.header().accesses?)));
    let mut bound = Bound {
        samples: 0,
        interval_us: 0,
        of_regions: false,
        least: Vec::new(),
        walks,
        most_ns: walks.map(|walks| walks as f64 * longest(machine)),
    };
    if let Some((trace, accesses)) = sampled {
        bound.interval_us = accesses.interval_us;
        bound.of_regions = accesses.marks == AccessMarks::Regions;
        let used = used(trace, bound.of_regions)?;
        bound.samples = used.len() as u64;
        for size in [PageSize::K4, PageSize::M2] {
            let room = room(machine, size);
            let of_sample = |used: &[u64; 2]| used[usize::from(size == PageSize::M2)];
            let missed = used
                .values()
                .map(|used| of_sample(used).saturating_sub(room));
            bound.least.push(Least {
                pages: size.word().to_owned(),
                walks: missed.sum(),
            });
        }
    }
    match (sampled, walks) {
        (None, None) => Err(Failure::usage(
            "nothing is known of accesses: give a --stream of them (valgrind's lackey, DynamoRIO's \
             drmemtrace), a trace that was made with `vellum record --accesses`, or the --walks \
             that hardware counted; a trace of faults has no accesses",
        )),
        _ => Ok(bound),
    }
}

/// Used pages of 4 KiB and of 2 MiB in each sample, by its time. Of regions whose pages are only
/// counted, those of 2 MiB are the fewest that hold so many.
fn used(trace: &TraceReader, of_regions: bool) -> Result<BTreeMap<u64, [u64; 2]>, TraceError> {
    let mut used: BTreeMap<u64, [u64; 2]> = BTreeMap::new();
    let mut large: HashSet<(u32, u64)> = HashSet::new();
    let mut of = None;
    for event in trace.events_and_accesses() {
        let event = event?;
        let EventKind::Accessed { address, length } = event.kind else {
            continue;
        };
        if of != Some(event.time_us) {
            of = Some(event.time_us);
            large.clear();
        }
        let counts = used.entry(event.time_us).or_default();
        counts[0] += length >> PAGE_SHIFT;
        let shift = PageSize::M2.shift();
        if of_regions {
            counts[1] = counts[0].div_ceil(1 << (shift - PAGE_SHIFT));
            continue;
        }
        let last = address.saturating_add(length.max(1) - 1);
        let blocks = (address >> shift..=last >> shift).take(MOST_PAGES);
        let new = blocks.filter(|block| large.insert((event.task.0, *block)));
        counts[1] += new.count() as u64;
    }
    Ok(used)
}

/// Translations of so large pages that the TLBs of a CPU hold at the most.
fn room(machine: &Translation, size: PageSize) -> u64 {
    let size = match &machine.nested {
        Some(nested) => size.min(nested.pages),
        None => size,
    };
    let holding = machine.tlb.iter().filter(|tlb| tlb.pages.contains(&size));
    holding.map(|tlb| tlb.entries.count as u64).sum()
}

/// The longest walk in nanoseconds: every entry is read, and all from memory.
fn longest(machine: &Translation) -> f64 {
    let levels = machine.levels.count;
    let steps = match &machine.nested {
        Some(nested) => (levels + 1.0) * (nested.levels.count + 1.0) - 1.0,
        None => levels,
    };
    let beside = machine.walk.as_ref().map_or(0.0, |walk| walk.ns);
    steps * machine.memory.ns + beside
}
