//! Quicklists: per-CPU lists of all-zero tables, as the ia64 port of Linux kept
//! them until 2.6.8, with what Robin Holt wanted changed in 2004 as options.

use super::keep;
use super::lists::WordList;
use crate::addr::Pfn;
use crate::design::{Design, QuickLevels, QuickMark, QuickNode};
use crate::frame::{AuditError, AuditPlace, Keeper, OutOfMemory, PhysicalMemory};
use crate::platform::{CpuId, Machine, Zone};
use crate::sync::atomic::{AtomicU32, Ordering};
use crate::sync::limbo::Limbo;
use crate::sync::{PerCpu, Pin};
use crate::table::{Chain, Fresh, TablePageStats, TablePages, Wanted};

/// More levels than any format has.
const LEVELS: usize = 6;
/// Tables a CPU keeps when the old watermark makes it trim.
const OLD_LOW: u32 = 25;
/// The old high watermark beside what depends on the size of memory.
const OLD_HIGH: u64 = 500;

/// Lists of one CPU.
struct QuickCpu {
    lists: [WordList; LEVELS],
    waiting: Limbo,
    /// Tables in all lists.
    held: AtomicU32,
    /// Those of other nodes.
    foreign: AtomicU32,
    peak: AtomicU32,
}

/// `ptepage=quicklist`.
///
/// A list threads through the first words of its tables, which are cleared on the way out. The
/// options stand for the three complaints of the source: lists by level, for the lowest too or not,
/// or one for all; tables of other nodes kept, or handed straight to the allocator for their node;
/// the watermark from the memory of the whole machine, though every CPU has lists, or from what is
/// free on the CPU's node.
pub struct Quicklist {
    levels: QuickLevels,
    node: QuickNode,
    mark: QuickMark,
    old_high: u32,
    cpus: PerCpu<QuickCpu>,
}

impl Quicklist {
    /// Empty lists for every CPU of `memory`, with the design's `quick…=` options.
    pub fn new<P: Machine>(design: &Design, memory: &PhysicalMemory<P>) -> Quicklist {
        let free = memory.stats().free;
        let entries = memory.frame_size() as u64 / 8;
        let high = (free / entries + OLD_HIGH).min(free / 10);
        Quicklist {
            levels: design.quick_levels,
            node: design.quick_node,
            mark: design.quick_mark,
            old_high: high.clamp(u64::from(OLD_LOW), u64::from(u32::MAX)) as u32,
            cpus: PerCpu::new(memory.platform().cpus(), |_| QuickCpu {
                lists: [(); LEVELS].map(|()| WordList::new()),
                waiting: Limbo::default(),
                held: AtomicU32::new(0),
                foreign: AtomicU32::new(0),
                peak: AtomicU32::new(0),
            }),
        }
    }

    /// Most tables that a CPU of this node may keep.
    fn limit<P: Machine>(&self, memory: &PhysicalMemory<P>, pin: &Pin<'_>) -> u32 {
        match self.mark {
            QuickMark::Total => self.old_high,
            QuickMark::Node => keep::node_limit(memory, pin),
        }
    }

    /// Whether tables of this level are kept at all.
    #[inline]
    fn keeps(&self, level: u32) -> bool {
        level > 1 || self.levels != QuickLevels::Upper
    }

    #[inline]
    fn list<'a>(&self, cpu: &'a QuickCpu, level: u32) -> &'a WordList {
        let index = match self.levels {
            QuickLevels::Unified => 0,
            QuickLevels::Upper | QuickLevels::Separate => {
                (level.max(1) as usize - 1).min(LEVELS - 1)
            }
        };
        &cpu.lists[index]
    }

    /// Takes the youngest table of a list.
    #[inline]
    fn pop<P: Machine>(
        &self,
        memory: &PhysicalMemory<P>,
        pin: &Pin<'_>,
        cpu: &QuickCpu,
        list: &WordList,
    ) -> Option<Pfn> {
        let table = list.pop(memory)?;
        cpu.held.store(held(cpu) - 1, Ordering::Relaxed);
        if self.node == QuickNode::Blind && !memory.is_home(pin, table) {
            let foreign = cpu.foreign.load(Ordering::Relaxed) - 1;
            cpu.foreign.store(foreign, Ordering::Relaxed);
        }
        memory.check_zero(pin, table);
        Some(table)
    }

    /// Takes in tables whose epoch has passed.
    fn settle<P: Machine>(&self, memory: &PhysicalMemory<P>, pin: &Pin<'_>, mut tables: Chain) {
        if tables.is_empty() {
            return;
        }
        let limit = self.limit(memory, pin);
        while let Some(table) = tables.pop(memory).map(Pfn) {
            let level = memory.frame(table).table().level();
            self.put(memory, pin, table, level, limit);
        }
    }

    fn put<P: Machine>(
        &self,
        memory: &PhysicalMemory<P>,
        pin: &Pin<'_>,
        table: Pfn,
        level: u32,
        limit: u32,
    ) {
        let cpu = self.cpus.get(pin);
        let is_foreign = !memory.is_home(pin, table);
        let is_kept = (!is_foreign || self.node == QuickNode::Blind && memory.is_direct(table))
            && self.keeps(level);
        if !is_kept {
            return keep::free(memory, pin, table);
        }
        let before = held(cpu);
        if before >= limit {
            match self.mark {
                QuickMark::Total => self.shrink(memory, pin, cpu, before - OLD_LOW),
                QuickMark::Node => {
                    memory.table_counters(pin).trimmed.bump();
                    return keep::free(memory, pin, table);
                }
            }
        }
        keep::enter(memory, pin, table);
        self.list(cpu, level).push(memory, table);
        let now = held(cpu) + 1;
        cpu.held.store(now, Ordering::Relaxed);
        if now > cpu.peak.load(Ordering::Relaxed) {
            cpu.peak.store(now, Ordering::Relaxed);
        }
        if is_foreign {
            let foreign = cpu.foreign.load(Ordering::Relaxed) + 1;
            cpu.foreign.store(foreign, Ordering::Relaxed);
        }
    }

    /// Gives up to `count` tables to the allocator, one of each list in turn.
    fn shrink<P: Machine>(
        &self,
        memory: &PhysicalMemory<P>,
        pin: &Pin<'_>,
        cpu: &QuickCpu,
        count: u32,
    ) {
        let mut left = count;
        while left > 0 && held(cpu) > 0 {
            for list in &cpu.lists {
                if left == 0 {
                    break;
                }
                if let Some(table) = self.pop(memory, pin, cpu, list) {
                    memory.table_counters(pin).trimmed.bump();
                    keep::free(memory, pin, table);
                    left -= 1;
                }
            }
        }
    }
}

#[inline]
fn held(cpu: &QuickCpu) -> u32 {
    cpu.held.load(Ordering::Relaxed)
}

impl<P: Machine> Keeper<P> for Quicklist {
    fn limbo(&self, cpu: CpuId) -> Option<&Limbo> {
        Some(&self.cpus.of(cpu).waiting)
    }

    fn give_up(&self, memory: &PhysicalMemory<P>, pin: &Pin<'_>) {
        if !memory.is_own_pin(pin) {
            return self.give_up(memory, &memory.pin());
        }
        let cpu = self.cpus.get(pin);
        self.settle(memory, pin, cpu.waiting.passed(pin));
        self.shrink(memory, pin, cpu, u32::MAX);
    }
}

impl<P: Machine> TablePages<P> for Quicklist {
    fn take(
        &self,
        memory: &PhysicalMemory<P>,
        pin: &Pin<'_>,
        wanted: Wanted,
    ) -> Result<Pfn, OutOfMemory> {
        if !memory.is_own_pin(pin) {
            return self.take(memory, &memory.pin(), wanted);
        }
        if !self.keeps(wanted.level) || wanted.zone == Zone::High {
            return Fresh::zeroed(memory, pin, wanted);
        }
        let cpu = self.cpus.get(pin);
        let list = self.list(cpu, wanted.level);
        if list.len() == 0 {
            if cpu.waiting.len() > 0 {
                let tables = keep::passed(memory, pin, &cpu.waiting);
                self.settle(memory, pin, tables);
            }
            if list.len() == 0 {
                return Fresh::zeroed(memory, pin, wanted);
            }
        }
        if memory.fail_now(wanted.site) {
            return Err(OutOfMemory);
        }
        let table = self.pop(memory, pin, cpu, list).ok_or(OutOfMemory)?;
        memory.table_counters(pin).taken.bump();
        Ok(table)
    }

    unsafe fn give_back(&self, memory: &PhysicalMemory<P>, pin: &Pin<'_>, table: Pfn, level: u32) {
        let cpu = self.cpus.get(pin);
        let limit = if held(cpu) < keep::LEAST {
            keep::LEAST
        } else {
            self.limit(memory, pin)
        };
        self.put(memory, pin, table, level, limit);
    }

    unsafe fn retire(&self, memory: &PhysicalMemory<P>, pin: &Pin<'_>, tables: Chain) {
        let cpu = self.cpus.get(pin);
        for passed in keep::retire(memory, pin, &cpu.waiting, tables) {
            self.settle(memory, pin, passed);
        }
    }

    fn trim(&self, memory: &PhysicalMemory<P>, pin: &Pin<'_>) -> u32 {
        if !memory.is_own_pin(pin) {
            return self.trim(memory, &memory.pin());
        }
        let cpu = self.cpus.get(pin);
        memory.epochs().try_advance();
        self.settle(memory, pin, cpu.waiting.passed(pin));
        let before = held(cpu);
        let limit = self.limit(memory, pin);
        match self.mark {
            QuickMark::Total if before > limit => {
                self.shrink(memory, pin, cpu, before - OLD_LOW);
            }
            QuickMark::Total => {}
            QuickMark::Node => {
                let excess = before.saturating_sub(limit);
                self.shrink(memory, pin, cpu, excess.min(keep::TRIM));
            }
        }
        before - held(cpu)
    }

    fn stats(&self, memory: &PhysicalMemory<P>) -> TablePageStats {
        let mut stats = TablePageStats::counted(memory);
        for cpu in self.cpus.iter() {
            stats.held += u64::from(held(cpu));
            stats.held_peak += u64::from(cpu.peak.load(Ordering::Relaxed));
            stats.trapped += u64::from(cpu.foreign.load(Ordering::Relaxed));
            stats.waiting += u64::from(cpu.waiting.len());
        }
        stats
    }

    fn audit(&self, memory: &PhysicalMemory<P>) -> Result<u64, AuditError> {
        let mut found = 0;
        for (number, cpu) in (0..).zip(self.cpus.iter()) {
            let home = memory.home_zone_of(CpuId(number));
            let (mut kept, mut foreign) = (0, 0);
            for list in &cpu.lists {
                let mut table = list.first();
                for _ in 0..list.len() {
                    keep::audit_kept(memory, table, true)?;
                    foreign += u32::from(memory.frame(table).zone() != home);
                    table = WordList::after(memory, table);
                    kept += 1;
                }
                if !table.is_none() {
                    return Err(AuditError {
                        place: AuditPlace::Frame(table),
                        what: "a list of page tables goes on beyond its count",
                    });
                }
            }
            if foreign != cpu.foreign.load(Ordering::Relaxed) {
                return Err(AuditError {
                    place: AuditPlace::Arena,
                    what: "a CPU's count of page tables of other nodes is not that of its lists",
                });
            }
            if kept != held(cpu) {
                return Err(AuditError {
                    place: AuditPlace::Arena,
                    what: "a CPU's count of kept page tables is not that of its lists",
                });
            }
            found += u64::from(kept) + keep::audit_waiting(memory, &cpu.waiting)?;
        }
        Ok(found)
    }
}
