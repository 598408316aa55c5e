//! What is counted, what is wrong, and the JSON at the end.

use core::fmt::{self, Write};
use core::sync::atomic::{AtomicU64, Ordering};

use vellum::vm::AuditReport;

use crate::arch::cpu::{self, CPUS};
use crate::arch::{flush, io};
use crate::lock::SpinLock;
use crate::protocol::count;
use crate::{say, vm};

/// How often something was done, and how long it took in all and at least.
pub struct Cost {
    times: AtomicU64,
    sum: AtomicU64,
    least: AtomicU64,
}

impl Cost {
    pub const fn new() -> Cost {
        Cost {
            times: AtomicU64::new(0),
            sum: AtomicU64::new(0),
            least: AtomicU64::new(u64::MAX),
        }
    }

    /// Once more. Only the CPU whose count it is calls this.
    #[inline]
    pub fn add(&self, cycles: u64) {
        let bump =
            |word: &AtomicU64, by| word.store(word.load(Ordering::Relaxed) + by, Ordering::Relaxed);
        bump(&self.times, 1);
        bump(&self.sum, cycles);
        if cycles < self.least.load(Ordering::Relaxed) {
            self.least.store(cycles, Ordering::Relaxed);
        }
    }
}

/// What each CPU counts.
pub struct CpuCounts {
    /// `Vm::fault`, without the trap.
    pub fault: Cost,
    /// `Vm::fork`.
    pub fork: Cost,
    /// Flushes that concerned other CPUs.
    pub shootdown: Cost,
    /// Flushes that did not.
    pub local_flush: Cost,
    /// One `invlpg`.
    pub invlpg: Cost,
    /// One entry written and one `invlpg`: what a window to high memory takes.
    pub window: Cost,
}

impl CpuCounts {
    pub const fn new() -> CpuCounts {
        CpuCounts {
            fault: Cost::new(),
            fork: Cost::new(),
            shootdown: Cost::new(),
            local_flush: Cost::new(),
            invlpg: Cost::new(),
            window: Cost::new(),
        }
    }
}

static COUNTS: [AtomicU64; count::NAMES.len()] = [const { AtomicU64::new(0) }; count::NAMES.len()];
static FAILURES: AtomicU64 = AtomicU64::new(0);
/// Where each failure is printed, so that lines do not mix.
static PRINTING: SpinLock<()> = SpinLock::new(());

/// Something is wrong.
pub fn fail(what: fmt::Arguments<'_>) {
    // The first of them say what is wrong; a thousand more would not say more.
    if FAILURES.fetch_add(1, Ordering::Relaxed) < 20 {
        let _line = PRINTING.lock();
        say!("FAILED: {what}");
    }
}

/// Something is wrong, and programs may wait for each other for good: ends the machine.
pub fn give_up(what: fmt::Arguments<'_>) -> ! {
    fail(what);
    io::end(1)
}

/// How often.
pub fn failures() -> u64 {
    FAILURES.load(Ordering::Relaxed)
}

/// Adds to a count of [`count`].
pub fn count(which: u64, number: u64) {
    if let Some(counter) = COUNTS.get(which as usize) {
        counter.fetch_add(number, Ordering::Relaxed);
    }
}

/// One object of JSON, field by field.
struct Object {
    first: bool,
}

impl Object {
    fn field(&mut self, name: &str, value: fmt::Arguments<'_>) {
        let comma = if self.first { "{" } else { "," };
        self.first = false;
        let _ = write!(io::SERIAL.lock(), "{comma}\"{name}\":{value}");
    }
}

fn cost(object: &mut Object, name: &str, of: impl Fn(&CpuCounts) -> &Cost) {
    let (mut times, mut sum, mut least) = (0, 0, u64::MAX);
    for cpu in &CPUS {
        let cost = of(&cpu.counts);
        times += cost.times.load(Ordering::Relaxed);
        sum += cost.sum.load(Ordering::Relaxed);
        least = least.min(cost.least.load(Ordering::Relaxed));
    }
    let mean = sum / times.max(1);
    let least = if times == 0 { 0 } else { least };
    object.field(
        name,
        format_args!("{{\"times\":{times},\"mean\":{mean},\"least\":{least}}}"),
    );
}

/// Prints everything, on one line.
pub fn print(counted: bool, written_back: u64, path: &[u64], audit: &AuditReport) {
    let mut report = Object { first: true };
    let name = cpu::hypervisor();
    let name = name
        .as_ref()
        .map_or("", |name| core::str::from_utf8(name).unwrap_or("unknown"));
    let name = name.trim_end_matches('\0');
    let unit = match (counted, name) {
        (true, _) => "instructions",
        (false, "TCGTCGTCGTCG") => "emulated time, which says nothing",
        (false, _) => "cycles",
    };
    report.field("machine", format_args!("\"{name}\""));
    report.field("cpus", format_args!("{}", cpu::running()));
    report.field("rmap", format_args!("\"{}\"", crate::DESIGN));
    report.field("tagged", format_args!("{}", flush::is_tagged()));
    report.field("unit", format_args!("\"{unit}\""));
    cost(&mut report, "fault", |counts| &counts.fault);
    cost(&mut report, "fork", |counts| &counts.fork);
    cost(&mut report, "shootdown", |counts| &counts.shootdown);
    cost(&mut report, "local_flush", |counts| &counts.local_flush);
    cost(&mut report, "invlpg", |counts| &counts.invlpg);
    cost(&mut report, "window", |counts| &counts.window);
    for (name, mean) in super::path::KINDS.iter().zip(path) {
        report.field(name, format_args!("{mean}"));
    }
    for (name, counter) in count::NAMES.iter().zip(&COUNTS) {
        report.field(name, format_args!("{}", counter.load(Ordering::Relaxed)));
    }
    let events = vm().stats().events;
    for (name, value) in [
        ("faults", events.faults),
        ("spurious_faults", events.spurious_faults),
        ("zero_fills", events.zero_fills),
        ("file_maps", events.file_maps),
        ("cow_copies", events.cow_copies),
        ("cow_reuses", events.cow_reuses),
        ("tables_made", events.tables_made),
        ("tables_freed", events.tables_freed),
        ("forks", events.forks),
        ("fork_entries", events.fork_entries),
        ("maps", events.maps),
        ("unmaps", events.unmaps),
        ("exits", events.exits),
        ("page_reads", events.page_reads),
        ("page_writes", events.page_writes),
        ("written_back", written_back),
        ("spaces_left", audit.spaces),
        ("entries_left", audit.entries),
        ("failures", failures()),
    ] {
        report.field(name, format_args!("{value}"));
    }
    say!("}}");
}
