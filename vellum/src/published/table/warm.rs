//! Stacks of free tables, warm at one end and cold at the other.
//!
//! Two things are unlike quicklists. A stack holds frame numbers, so a table
//! that enters or leaves is not touched: if it has left the cache, that costs
//! its next user one miss instead of two or three. And what is given up is the
//! cold end, a batch at a time, not the table that was in use last.

use alloc::boxed::Box;

use super::keep;
use super::lists::TableDepot;
use crate::addr::Pfn;
use crate::frame::{AuditError, AuditPlace, Keeper, OutOfMemory, PhysicalMemory, Ring};
use crate::platform::{CpuId, Machine, Zone};
use crate::sync::atomic::{AtomicU32, Ordering};
use crate::sync::limbo::Limbo;
use crate::sync::{CachePadded, PerCpu, Pin, bytes};
use crate::table::{Chain, Fresh, TablePageStats, TablePages, Wanted};

/// Tables between the one taken and the one that is brought near: by the time
/// it is taken, a line that comes from memory has arrived.
const AHEAD: u32 = 2;
/// Most tables of a stack, whatever is free.
const MOST: u32 = 2048;
/// Most tables of a stack that has a depot behind it.
const MOST_WITH_DEPOT: u32 = 4 * TableDepot::BATCH;

struct WarmCpu {
    /// The zone whose tables are kept.
    home: usize,
    stack: Ring,
    waiting: Limbo,
    peak: AtomicU32,
}

impl WarmCpu {
    /// A table was taken from the stack, and is not to be had.
    #[cold]
    #[inline(never)]
    fn keep_after_all(&self, table: Pfn) -> Result<Pfn, OutOfMemory> {
        self.stack.push(table);
        Err(OutOfMemory)
    }

    /// Brings the table near that will be taken after `others`.
    #[inline]
    fn fetch<P: Machine>(&self, memory: &PhysicalMemory<P>, others: u32, wanted: Wanted) {
        if let Some(next) = self.stack.after(others) {
            bytes::prefetch(memory.frame(next));
            keep::prefetch(memory, next, wanted.entry);
        }
    }

    /// Prepares a table for the stack, or frees it because it is another node's.
    #[inline]
    fn admits<P: Machine>(&self, memory: &PhysicalMemory<P>, pin: &Pin<'_>, table: Pfn) -> bool {
        let is_ours = memory.frame(table).zone() == self.home;
        if is_ours {
            keep::enter(memory, pin, table);
        } else {
            keep::free(memory, pin, table);
        }
        is_ours
    }

    /// Tables of other nodes on the stack. There should be none: counted by
    /// looking, so that it shows if there are.
    fn foreign<P: Machine>(&self, memory: &PhysicalMemory<P>) -> impl Iterator<Item = Pfn> {
        // A stack that changes meanwhile may look longer than it is.
        let tables = self.stack.frames().take(MOST as usize);
        tables.filter(|&table| memory.frame(table).zone() != self.home)
    }

    fn note_peak(&self) {
        let now = self.stack.len();
        if now > self.peak.load(Ordering::Relaxed) {
            self.peak.store(now, Ordering::Relaxed);
        }
    }
}

/// `ptepage=warm` and `ptepage=depot`.
///
/// `depot` puts between the stack and the allocator what Jeff Bonwick put
/// between the CPU's magazines and the slab (2001): batches that any CPU of the
/// node can take. It is for tables that are freed on another CPU than the one
/// that needs the next, the case that David Miller held against quicklists.
pub struct Warm {
    cpus: PerCpu<WarmCpu>,
    /// One for each zone, of which those serve that are some CPU's home; or none.
    depots: Box<[CachePadded<TableDepot>]>,
}

impl Warm {
    /// Empty stacks for every CPU of `memory`, the allocator behind them.
    pub fn new<P: Machine>(memory: &PhysicalMemory<P>) -> Warm {
        let make = |cpu, place: *mut WarmCpu| {
            // SAFETY: the memory is zeroed, and for this alone; every field is written,
            // or zero where `Ring::init` says so.
            unsafe {
                (&raw mut (*place).home).write(memory.home_zone_of(cpu));
                Ring::init(&raw mut (*place).stack, TableDepot::BATCH, MOST);
                (&raw mut (*place).waiting).write(Limbo::default());
                (&raw mut (*place).peak).write(AtomicU32::new(0));
            }
        };
        Warm {
            // SAFETY: `make` leaves a value.
            cpus: unsafe { PerCpu::new_in_place(memory.platform().cpus(), make) },
            depots: Box::default(),
        }
    }

    /// Empty stacks, and a depot for each zone.
    pub(crate) fn with_depots<P: Machine>(memory: &PhysicalMemory<P>) -> Warm {
        let zones = 0..memory.zone_count();
        Warm {
            depots: zones.map(|_| CachePadded(TableDepot::new())).collect(),
            ..Warm::new(memory)
        }
    }

    /// The depot of this CPU's node, if the design has depots.
    fn depot(&self, pin: &Pin<'_>) -> Option<&TableDepot> {
        self.depots
            .get(self.cpus.get(pin).home)
            .map(|depot| &depot.0)
    }

    /// Most tables of the stack of a CPU of this node.
    fn limit<P: Machine>(&self, memory: &PhysicalMemory<P>, pin: &Pin<'_>) -> u32 {
        let most = if self.depots.is_empty() {
            MOST
        } else {
            MOST_WITH_DEPOT
        };
        keep::node_limit(memory, pin).min(most)
    }

    /// Puts tables on the stack whose epoch has passed.
    fn settle<P: Machine>(
        &self,
        memory: &PhysicalMemory<P>,
        pin: &Pin<'_>,
        cpu: &WarmCpu,
        mut tables: Chain,
    ) {
        if tables.is_empty() {
            return;
        }
        let limit = self.limit(memory, pin);
        if cpu.stack.len() + tables.count() <= limit {
            let passed = core::iter::from_fn(|| tables.pop(memory).map(Pfn));
            (cpu.stack).extend(passed.filter(|&table| cpu.admits(memory, pin, table)));
        } else {
            while let Some(table) = tables.pop(memory).map(Pfn) {
                self.put(memory, pin, cpu, table, limit);
            }
        }
        cpu.note_peak();
    }

    fn put<P: Machine>(
        &self,
        memory: &PhysicalMemory<P>,
        pin: &Pin<'_>,
        cpu: &WarmCpu,
        table: Pfn,
        limit: u32,
    ) {
        if cpu.admits(memory, pin, table) {
            if cpu.stack.len() >= limit {
                self.spill(memory, pin, cpu);
            }
            cpu.stack.push(table);
        }
    }

    /// Gives the coldest batch to the depot, or to the allocator if there is
    /// none or it is full.
    #[cold]
    fn spill<P: Machine>(&self, memory: &PhysicalMemory<P>, pin: &Pin<'_>, cpu: &WarmCpu) {
        cpu.note_peak();
        let mut batch = Chain::EMPTY;
        while batch.count() < TableDepot::BATCH
            && let Some(table) = cpu.stack.pop_oldest()
        {
            batch.push(memory, table.0);
        }
        let limit = keep::node_limit(memory, pin);
        match self.depot(pin) {
            Some(depot)
                if batch.count() == TableDepot::BATCH
                    && depot.len() + TableDepot::BATCH <= limit =>
            {
                depot.push(memory, batch, pin);
            }
            _ => {
                self.give(memory, pin, batch);
            }
        }
    }

    /// Gives tables that nobody can see to the allocator; returns how many.
    fn give<P: Machine>(
        &self,
        memory: &PhysicalMemory<P>,
        pin: &Pin<'_>,
        mut tables: Chain,
    ) -> u32 {
        let count = tables.count();
        let trimmed = &memory.table_counters(pin).trimmed;
        trimmed.add(u64::from(count));
        while let Some(table) = tables.pop(memory).map(Pfn) {
            keep::free(memory, pin, table);
        }
        count
    }

    /// Takes a table although the stack is empty.
    #[cold]
    #[inline(never)]
    fn take_elsewhere<P: Machine>(
        &self,
        memory: &PhysicalMemory<P>,
        pin: &Pin<'_>,
        wanted: Wanted,
    ) -> Result<Pfn, OutOfMemory> {
        let cpu = self.cpus.get(pin);
        self.refill(memory, pin, cpu);
        if cpu.stack.len() == 0 {
            return Fresh::zeroed(memory, pin, wanted);
        }
        for others in 0..=AHEAD {
            cpu.fetch(memory, others, wanted);
        }
        self.take(memory, pin, wanted)
    }

    /// Fills the empty stack, if there are tables for it.
    fn refill<P: Machine>(&self, memory: &PhysicalMemory<P>, pin: &Pin<'_>, cpu: &WarmCpu) {
        if cpu.waiting.len() > 0 {
            let tables = keep::passed(memory, pin, &cpu.waiting);
            self.settle(memory, pin, cpu, tables);
            if cpu.stack.len() > 0 {
                return;
            }
        }
        let depot = self.depot(pin);
        if let Some(mut batch) = depot.and_then(|depot| depot.pop(memory, pin)) {
            (cpu.stack).extend(core::iter::from_fn(|| batch.pop(memory).map(Pfn)));
        }
    }
}

impl<P: Machine> Keeper<P> for Warm {
    fn limbo(&self, cpu: CpuId) -> Option<&Limbo> {
        Some(&self.cpus.of(cpu).waiting)
    }

    fn give_up(&self, memory: &PhysicalMemory<P>, pin: &Pin<'_>) {
        if !memory.is_own_pin(pin) {
            return self.give_up(memory, &memory.pin());
        }
        let cpu = self.cpus.get(pin);
        self.settle(memory, pin, cpu, cpu.waiting.passed(pin));
        let mut tables = Chain::EMPTY;
        while let Some(table) = cpu.stack.pop_oldest() {
            tables.push(memory, table.0);
        }
        self.give(memory, pin, tables);
        if let Some(depot) = self.depot(pin) {
            while let Some(batch) = depot.pop(memory, pin) {
                self.give(memory, pin, batch);
            }
        }
    }
}

impl<P: Machine> TablePages<P> for Warm {
    fn take(
        &self,
        memory: &PhysicalMemory<P>,
        pin: &Pin<'_>,
        wanted: Wanted,
    ) -> Result<Pfn, OutOfMemory> {
        if !memory.is_own_pin(pin) {
            return self.take(memory, &memory.pin(), wanted);
        }
        if wanted.zone == Zone::High {
            return Fresh::zeroed(memory, pin, wanted);
        }
        let cpu = self.cpus.get(pin);
        let Some(table) = cpu.stack.pop() else {
            return self.take_elsewhere(memory, pin, wanted);
        };
        if memory.fail_now(wanted.site) {
            return cpu.keep_after_all(table);
        }
        cpu.fetch(memory, AHEAD, wanted);
        memory.check_zero(pin, table);
        memory.table_counters(pin).taken.bump();
        Ok(table)
    }

    unsafe fn give_back(&self, memory: &PhysicalMemory<P>, pin: &Pin<'_>, table: Pfn, _: u32) {
        let cpu = self.cpus.get(pin);
        let limit = if cpu.stack.len() < keep::LEAST {
            keep::LEAST
        } else {
            self.limit(memory, pin)
        };
        self.put(memory, pin, cpu, table, limit);
        cpu.note_peak();
    }

    unsafe fn retire(&self, memory: &PhysicalMemory<P>, pin: &Pin<'_>, tables: Chain) {
        let cpu = self.cpus.get(pin);
        for passed in keep::retire(memory, pin, &cpu.waiting, tables) {
            self.settle(memory, pin, cpu, passed);
        }
    }

    fn trim(&self, memory: &PhysicalMemory<P>, pin: &Pin<'_>) -> u32 {
        if !memory.is_own_pin(pin) {
            return self.trim(memory, &memory.pin());
        }
        let cpu = self.cpus.get(pin);
        memory.epochs().try_advance();
        self.settle(memory, pin, cpu, cpu.waiting.passed(pin));
        let excess = cpu.stack.len().saturating_sub(self.limit(memory, pin));
        let mut tables = Chain::EMPTY;
        for _ in 0..excess.min(keep::TRIM) {
            if let Some(table) = cpu.stack.pop_oldest() {
                tables.push(memory, table.0);
            }
        }
        if tables.is_empty()
            && let Some(depot) = self.depot(pin)
            && depot.len() > keep::node_limit(memory, pin)
            && let Some(batch) = depot.pop(memory, pin)
        {
            return self.give(memory, pin, batch);
        }
        self.give(memory, pin, tables)
    }

    fn stats(&self, memory: &PhysicalMemory<P>) -> TablePageStats {
        let mut stats = TablePageStats::counted(memory);
        for cpu in self.cpus.iter() {
            stats.held += u64::from(cpu.stack.len());
            stats.held_peak += u64::from(cpu.peak.load(Ordering::Relaxed));
            let foreign = cpu.foreign(memory);
            stats.trapped += foreign.count() as u64;
            stats.waiting += u64::from(cpu.waiting.len());
        }
        for depot in &self.depots {
            stats.held += u64::from(depot.len());
            stats.held_peak += u64::from(depot.peak());
        }
        stats
    }

    fn audit(&self, memory: &PhysicalMemory<P>) -> Result<u64, AuditError> {
        let mut found = 0;
        for cpu in self.cpus.iter() {
            for table in cpu.stack.frames() {
                keep::audit_kept(memory, table, false)?;
                found += 1;
            }
            if let Some(table) = cpu.foreign(memory).next() {
                return keep::wrong(table, "a page table is kept by a CPU of another node");
            }
            found += keep::audit_waiting(memory, &cpu.waiting)?;
        }
        let pin = memory.pin();
        for depot in &self.depots {
            found += self.audit_depot(memory, &pin, depot)?;
        }
        Ok(found)
    }
}

impl Warm {
    /// Checks the tables of a depot, batch by batch.
    fn audit_depot<P: Machine>(
        &self,
        memory: &PhysicalMemory<P>,
        pin: &Pin<'_>,
        depot: &TableDepot,
    ) -> Result<u64, AuditError> {
        let mut found = 0;
        for mut batch in depot.batches(memory, pin) {
            while let Some(table) = batch.pop(memory).map(Pfn) {
                keep::audit_kept(memory, table, false)?;
                found += 1;
            }
            if found > depot.len() {
                break;
            }
        }
        if found != depot.len() {
            return Err(AuditError {
                place: AuditPlace::Arena,
                what: "a depot's count of page tables is not that of its batches",
            });
        }
        Ok(u64::from(found))
    }
}
