//! What a machine allows at most, if no CPU ever waits for another.

use vellum_description::Description;

use crate::run::Needs;

/// The most that so many CPUs can do, by what one of them does alone.
///
/// It is in proportion to the CPUs, less three things that no memory manager can help:
/// threads of one core are slower together; the bytes that are zeroed and copied have to
/// come from the memory of the nodes that they are on; and shootdowns interrupt those who are in the space.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Ceiling {
    /// Things done in a second, at most.
    pub rate: f64,
    /// What limits it.
    pub by: Limit,
}

/// What limits a ceiling.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Limit {
    /// The number of cores.
    Cores,
    /// Two threads on a core.
    Threads,
    /// The bandwidth of the nodes' memory.
    Bandwidth,
    /// Interrupts for shootdowns.
    Shootdowns,
}

impl Limit {
    /// In a word.
    pub fn name(self) -> &'static str {
        match self {
            Limit::Cores => "cores",
            Limit::Threads => "threads",
            Limit::Bandwidth => "bandwidth",
            Limit::Shootdowns => "shootdowns",
        }
    }
}

impl Ceiling {
    /// The ceiling of `cpus` CPUs, if one of them alone does `alone` things a second, and
    /// each of these `needs` so much.
    pub fn new(machine: &Description, cpus: usize, alone: f64, needs: &Needs) -> Ceiling {
        let cores = machine.cores();
        let doubled = cpus.saturating_sub(cores);
        let shared = machine
            .processor
            .shared_speed
            .as_ref()
            .map_or(1.0, |share| share.share);
        let speed = (cpus - 2 * doubled) as f64 + 2.0 * doubled as f64 * shared;
        let mut ceiling = Ceiling {
            rate: alone * speed,
            by: match doubled {
                0 => Limit::Cores,
                _ => Limit::Threads,
            },
        };
        let mut lower = |rate: f64, by: Limit| {
            if rate < ceiling.rate {
                ceiling = Ceiling { rate, by };
            }
        };
        let of_one_node = needs.bulk_bytes * needs.busiest_node;
        if of_one_node > 0.0 {
            let delivered = machine.bandwidth.node.gb_per_s * 1e9;
            lower(delivered / of_one_node, Limit::Bandwidth);
        }
        let each_ns = 1e9 / alone + flushes_ns(machine, needs);
        lower(speed * 1e9 / each_ns, Limit::Shootdowns);
        ceiling
    }
}

/// The least that the shootdowns of one thing done cost a CPU, in nanoseconds: as sender,
/// or as target of as many from each of the others, whichever is more, since it handles
/// theirs while it waits for its own.
fn flushes_ns(machine: &Description, needs: &Needs) -> f64 {
    if needs.interrupts == 0.0 {
        return 0.0;
    }
    let prices = &machine.flush;
    let answer = prices.handle.ns + prices.page.ns;
    let send = needs.interrupts * prices.send.ns + needs.shootdowns * (prices.arrive.ns + answer);
    send.max(needs.interrupts * answer)
}
