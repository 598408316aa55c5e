//! What sources that keep tables have in common: watermarks, where records and
//! entries are, and the audit.

use super::lists::TableFrames;
use crate::addr::Pfn;
use crate::frame::{AuditError, AuditPlace, Frame, Kind, PhysicalMemory};
use crate::platform::Machine;
use crate::sync::atomic::AtomicU64;
use crate::sync::limbo::{Chain, Limbo};
use crate::sync::{Pin, bytes};

/// Tables that may be kept however little memory is free.
pub(super) const LEAST: u32 = 25;
/// Part of a node's free memory that may be kept beyond that.
const SHARE: u64 = 16;
/// Most tables freed by one trim.
pub(super) const TRIM: u32 = 16;
/// Retirements of one CPU after which it tries to move the epoch on, at least.
const ADVANCE_INTERVAL: u32 = 32;

impl<P: Machine> TableFrames for PhysicalMemory<P> {
    #[inline]
    fn link(&self, table: Pfn) -> &AtomicU64 {
        self.frame(table).rmap()
    }

    #[inline]
    fn first_entry(&self, table: Pfn) -> &AtomicU64 {
        // Atomic words only, until it is given to the allocator (invariant 4).
        &self.direct_bytes(table).words()[0]
    }
}

/// Most tables that may be kept with the memory that is free on the CPU's node:
/// the bound of the quicklists of Linux 2.6.12 and 2.6.22.
pub(super) fn node_limit<P: Machine>(memory: &PhysicalMemory<P>, pin: &Pin<'_>) -> u32 {
    let share = memory.home_free(pin) / SHARE;
    share.clamp(u64::from(LEAST), u64::from(u32::MAX)) as u32
}

/// Lets tables wait for their epoch; returns some whose epoch has passed.
pub(super) fn retire<P: Machine>(
    memory: &PhysicalMemory<P>,
    pin: &Pin<'_>,
    waiting: &Limbo,
    tables: Chain,
) -> [Chain; 2] {
    let displaced = waiting.add(memory, pin, tables);
    let interval = ADVANCE_INTERVAL.max(memory.platform().cpus() as u32);
    if !waiting.should_advance(tables.count(), interval) {
        return [displaced, Chain::EMPTY];
    }
    memory.epochs().try_advance_alone(pin);
    let passed = waiting.passed(pin);
    memory.note_waiting(waiting.len());
    [displaced, passed]
}

/// Tables that can be had although none is kept, because their epoch has passed.
#[cold]
pub(super) fn passed<P: Machine>(
    memory: &PhysicalMemory<P>,
    pin: &Pin<'_>,
    waiting: &Limbo,
) -> Chain {
    // Moving the epoch on writes a line of the whole machine: worth it for a
    // batch, and not for every table that is missing.
    if waiting.len() >= TRIM {
        memory.epochs().try_advance_alone(pin);
    }
    waiting.passed(pin)
}

/// Brings the line of an entry near that will probably be filled soon.
#[inline]
pub(super) fn prefetch<P: Machine>(memory: &PhysicalMemory<P>, table: Pfn, entry: usize) {
    let start = memory.direct(table).as_ptr();
    bytes::prefetch_at(start.wrapping_add(entry * size_of::<u64>()));
}

/// Prepares the record of a table that is kept from now on.
#[inline]
pub(super) fn enter<P: Machine>(memory: &PhysicalMemory<P>, pin: &Pin<'_>, table: Pfn) {
    let frame = memory.frame(table);
    frame.set_kind(Kind::Table);
    frame.init_counts(0, 0);
    memory.check_zero(pin, table);
}

/// Gives a table that nobody can see to the allocator.
pub(super) fn free<P: Machine>(memory: &PhysicalMemory<P>, pin: &Pin<'_>, table: Pfn) {
    memory.frame(table).init_counts(0, 0);
    memory.free_table(pin, table);
}

pub(super) fn wrong<T>(table: Pfn, what: &'static str) -> Result<T, AuditError> {
    Err(AuditError {
        place: AuditPlace::Frame(table),
        what,
    })
}

/// Checks tables that wait for their epoch; returns how many there are.
pub(super) fn audit_waiting<P: Machine>(
    memory: &PhysicalMemory<P>,
    waiting: &Limbo,
) -> Result<u64, AuditError> {
    let mut found = 0;
    for mut chain in waiting.chains() {
        if chain.is_empty() {
            continue;
        }
        while let Some(table) = chain.pop(memory).map(Pfn) {
            audit_kind(memory, table)?;
            found += 1;
        }
        if chain.head != Pfn::NONE.0 {
            return wrong(
                Pfn(chain.head),
                "the list of retired tables goes on beyond its count",
            );
        }
    }
    Ok(found)
}

fn audit_kind<P: Machine>(memory: &PhysicalMemory<P>, table: Pfn) -> Result<&Frame, AuditError> {
    if !memory.contains(table) {
        return wrong(
            table,
            "listed as a free page table, but not in the memory map",
        );
    }
    let frame = memory.frame(table);
    if frame.kind() != Kind::Table {
        return wrong(
            table,
            "listed as a free page table, but the record says otherwise",
        );
    }
    Ok(frame)
}

/// Checks one table that is kept: `threaded` through its first word or not.
pub(super) fn audit_kept<P: Machine>(
    memory: &PhysicalMemory<P>,
    table: Pfn,
    threaded: bool,
) -> Result<(), AuditError> {
    let frame = audit_kind(memory, table)?;
    if frame.counts().refs() != 0 {
        return wrong(table, "a page table is kept as free and is in use");
    }
    let entries = memory.direct_bytes(table).words();
    let link = usize::from(threaded);
    let is_zero = |word: &AtomicU64| word.load(crate::sync::atomic::Ordering::Relaxed) == 0;
    if !entries[link..].iter().all(is_zero) {
        return wrong(table, "a page table is kept as free and is not zero");
    }
    Ok(())
}
