//! The x86-64 walker against random tables and a reading of the manual that
//! shares nothing with it.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use crate::common::*;
use vellum::addr::{Access, Pfn};
use vellum_machine::mmu::FaultReason;
use vellum_machine::{Arena, ArenaOptions, Machine, MachineConfig};

/// Numbers from a seed (xorshift).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// An offset of one of these numbers of bits.
    fn offset(&mut self, bits: [u32; 4]) -> u64 {
        let bits = bits[self.below(4) as usize];
        self.below(1 << bits)
    }

    fn chance(&mut self, one_in: u64) -> bool {
        self.below(one_in) == 0
    }
}

/// Tables, and the same entries by level and address prefix.
struct Case<'m> {
    tables: Tables<'m>,
    entries: BTreeMap<(u32, u64), u64>,
    addresses: Vec<u64>,
}

const GIB: u64 = 1 << 30;

fn shift(level: u32) -> u32 {
    12 + 9 * (level - 1)
}

impl<'m> Case<'m> {
    fn new(machine: &'m Machine, random: &mut Random) -> Self {
        let mut case = Case {
            tables: Tables::new(machine, Pfn(0x100)),
            entries: BTreeMap::new(),
            addresses: Vec::new(),
        };
        for _ in 0..40 {
            case.map(random);
        }
        case
    }

    /// Maps at a random place, near an earlier one more often than not.
    fn map(&mut self, random: &mut Random) {
        let near = !self.addresses.is_empty() && !random.chance(3);
        let base = if near {
            self.addresses[random.below(self.addresses.len() as u64) as usize]
        } else {
            (random.next() as i64 >> 16) as u64
        };
        let address = (base ^ random.offset([13, 22, 31, 40])) & !7;
        let level = [1, 1, 1, 2, 2, 3][random.below(6) as usize];
        let blocked = (level + 1..=4).any(|above| {
            let entry = self.entries.get(&(above, address >> shift(above)));
            entry.is_some_and(|entry| entry & PS != 0)
        });
        if blocked || self.entries.contains_key(&(level, address >> shift(level))) {
            return;
        }
        for above in (level + 1..=4).rev() {
            let key = (above, address >> shift(above));
            if !self.entries.contains_key(&key) {
                let slot = self.tables.entry(address, above, ALL);
                let table = self.tables.fresh();
                let entry = u64::from(table.0) << 12 | random_bits(random);
                // Keep it present while tables are built below it.
                slot.store(entry | P, Ordering::Relaxed);
                self.entries.insert(key, entry | P);
            }
        }
        // Page frames lie in the second GiB, aligned to the page.
        let frame = 0x40000 + (random.below(GIB) >> shift(level) << (shift(level) - 12));
        let mut entry = frame << 12 | random_bits(random);
        if level > 1 {
            entry |= PS;
        }
        if random.chance(20) {
            entry ^= [1 << 51, 1 << 44, 1 << 13][random.below(3) as usize];
        }
        if random.chance(10) {
            entry &= !P;
        }
        self.tables
            .entry(address, level, ALL)
            .store(entry, Ordering::Relaxed);
        self.entries.insert((level, address >> shift(level)), entry);
        self.addresses.push(address);
    }

    /// What the manual says about an access: the physical address, or why not.
    fn expected(&self, address: u64, access: Access) -> Result<u64, FaultReason> {
        let (mut write, mut user, mut no_execute) = (true, true, false);
        for level in (1..=4u32).rev() {
            let entry = self
                .entries
                .get(&(level, address >> shift(level)))
                .copied()
                .unwrap_or(0);
            let level_name = level as u8;
            if entry & P == 0 {
                return Err(FaultReason::NotPresent { level: level_name });
            }
            let mut reserved = entry & 0x000f_f000_0000_0000;
            if entry & PS != 0 && (level == 2 || level == 3) {
                let size_bits = (1u64 << shift(level)) - 1;
                reserved |= entry & size_bits & !0x1fff;
            }
            if reserved != 0 {
                return Err(FaultReason::Reserved {
                    level: level_name,
                    bits: reserved,
                });
            }
            write &= entry & RW != 0;
            user &= entry & US != 0;
            no_execute |= entry & NX != 0;
            if level == 1 || entry & PS != 0 {
                let size_bits = (1u64 << shift(level)) - 1;
                return match access {
                    _ if !user => Err(FaultReason::Supervisor),
                    Access::Write if !write => Err(FaultReason::ReadOnly),
                    Access::Execute if no_execute => Err(FaultReason::NoExecute),
                    _ => Ok(entry & 0x0000_0fff_ffff_f000 & !size_bits | address & size_bits),
                };
            }
        }
        unreachable!("level 1 ends the walk");
    }
}

/// Mostly permissive bits, with those that hardware ignores thrown in.
fn random_bits(random: &mut Random) -> u64 {
    let mut bits = ALL;
    if random.chance(6) {
        bits &= !RW;
    }
    if random.chance(12) {
        bits &= !US;
    }
    if random.chance(6) {
        bits |= NX;
    }
    // PWT, PCD, the ignored bits 9 to 11 and 52 to 58.
    bits | random.next() & (0x18 | 0xe00 | 0x7f << 52)
}

#[test]
fn random_tables_translate_as_the_manual_says() {
    let config = MachineConfig {
        base_pfn: Pfn(0),
        ..MachineConfig::new(2 * GIB)
    };
    let options = ArenaOptions {
        huge_pages: false,
        prefault: false,
    };
    let bytes = config.arena_bytes().unwrap();
    let arena = Arena::with_options(bytes, options).unwrap();
    let machine = Machine::new(config, arena).unwrap();
    let mmu = mmu(&machine, 0);
    let (mut translated, mut refused) = (0, 0);
    for seed in 1..=60u64 {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let case = Case::new(&machine, &mut random);
        flush(&machine, 1, None, true);
        for _ in 0..400 {
            let near = case.addresses[random.below(case.addresses.len() as u64) as usize];
            let address = near ^ random.offset([9, 13, 21, 30]) & !7;
            let access = [Access::Read, Access::Write, Access::Execute][random.below(3) as usize];
            let expected = case.expected(address, access);
            let stamp = random.next();
            let place = expected.ok().map(|physical| {
                let frame = Pfn((physical >> 12) as u32);
                word(&machine, frame, (physical & 0xfff) as usize)
            });
            if let Some(place) = place {
                place.store(stamp, Ordering::Relaxed);
            }
            let root = case.tables.root;
            let found = match access {
                Access::Read => mmu.load(SPACE, root, address),
                Access::Execute => mmu.fetch(SPACE, root, address),
                Access::Write => mmu.store(SPACE, root, address, !stamp).map(|()| stamp),
            };
            let wanted = expected.map(|_| stamp);
            assert_eq!(
                found.map_err(|fault| fault.reason),
                wanted,
                "seed {seed}, {access:?} at {address:#x}"
            );
            if let (Access::Write, Some(place)) = (access, place) {
                assert_eq!(place.load(Ordering::Relaxed), !stamp, "seed {seed}");
            }
            match expected {
                Ok(_) => translated += 1,
                Err(_) => refused += 1,
            }
        }
    }
    assert!(
        translated > 1000 && refused > 1000,
        "{translated} translated, {refused} refused"
    );
}
