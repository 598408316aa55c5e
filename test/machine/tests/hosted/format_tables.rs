//! Random tables that the core's formats made, walked by the machine's MMU,
//! which has its own reading of the manuals: each access comes out where the
//! page was mapped, or is refused as its rights say, and leaves the marks that
//! the format then reads.

use std::collections::BTreeMap;
use std::sync::Arc;

use vellum::addr::{Access, Pfn, Prot, Vpn};
use vellum::frame::{PhysicalMemory, Request, Site};
use vellum::platform::{CpuId, CpuSet, SpaceTag};
use vellum::sync::Pin;
use vellum::table::{FlushTarget, Format, Fresh, Gather, Marks, Tables, Users};
use vellum_machine::mmu::{FaultReason, walker};
use vellum_machine::{Arena, ArenaOptions, Machine, MachineConfig};

/// Numbers from a seed (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) % limit
    }

    fn one_of<T: Copy>(&mut self, values: &[T]) -> T {
        values[self.below(values.len() as u64) as usize]
    }
}

/// What was mapped, and the marks it must have by now.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Page {
    frame: Pfn,
    prot: Prot,
    marks: Marks,
}

type Memory = PhysicalMemory<Arc<Machine>>;

struct Case<'m, F> {
    tables: Tables<'m, Arc<Machine>, F>,
    root: Pfn,
    tag: SpaceTag,
    /// By level and page divided by what the level covers.
    pages: BTreeMap<(u32, u64), Page>,
}

const ACCESSES: [Access; 3] = [Access::Read, Access::Write, Access::Execute];

/// Why the architecture refuses `access` to a page with these rights. On
/// x86-64 whatever is mapped may be read; everywhere what may be written may.
fn refused(format: &str, prot: Prot, access: Access) -> Option<FaultReason> {
    let reads = prot.can_read() || prot.can_write() || format.starts_with("x86");
    match access {
        Access::Read if !reads => Some(FaultReason::NoRead),
        Access::Write if !prot.can_write() => Some(FaultReason::ReadOnly),
        Access::Execute if !prot.can_execute() => Some(FaultReason::NoExecute),
        _ => None,
    }
}

impl<'m, F: Format> Case<'m, F> {
    fn new(memory: &'m Memory, pin: &'m Pin<'_>, number: u64) -> Self {
        let root = Tables::<_, F>::make_root(memory, &Fresh, pin, 1).expect("a root");
        Case {
            // SAFETY: the root was made in the line before, and is freed by nobody.
            tables: unsafe { Tables::new(memory, &Fresh, pin, root, 1) },
            root,
            tag: SpaceTag(number as u32),
            pages: BTreeMap::new(),
        }
    }

    /// Where `page` is mapped: the level and what is there.
    fn find(&self, page: u64) -> Option<((u32, u64), Page)> {
        (1..=F::LEVELS).find_map(|level| {
            let key = (level, page / F::pages_at(level));
            self.pages.get(&key).map(|found| (key, *found))
        })
    }

    fn map(&mut self, random: &mut Random, frames: &[Pfn], near: &mut Vec<u64>) {
        let base = match random.below(3) {
            0 => random.below(F::USER_END.0),
            _ => *near
                .get(random.below(near.len().max(1) as u64) as usize)
                .unwrap_or(&0),
        };
        let spread = random.one_of(&[1, F::ENTRIES as u64, F::pages_at(3), 1 << 20]);
        let page = (base ^ random.below(spread + 1)).min(F::USER_END.0 - 1);
        // Leaves whose frames a frame number can count.
        let largest = (1..=F::MAX_LEAF_LEVEL).rfind(|level| F::pages_at(*level) <= 1 << 27);
        let level = random
            .one_of(&[1, 1, 1, 2, largest.unwrap_or(1)])
            .min(F::MAX_LEAF_LEVEL);
        let covered = page / F::pages_at(level);
        let taken = (level..=F::LEVELS).any(|above| {
            let key = (above, page / F::pages_at(above));
            self.pages.contains_key(&key)
        });
        if taken {
            return;
        }
        let table = self
            .tables
            .lock_or_make_at(Vpn(page), level, &mut 0)
            .expect("tables");
        let index = F::index(Vpn(page), level);
        if table.load(index) != 0 {
            // A table with smaller pages is there.
            return;
        }
        let frame = match level {
            1 => random.one_of(frames),
            // Beyond the machine's memory: the fault names the frame.
            _ => Pfn(((random.below(3) + 1) << 28 >> (F::FRAME_SHIFT - 12)) as u32),
        };
        let mapped = Page {
            frame,
            prot: Prot::from_bits(random.one_of(&[0, 1, 2, 3, 4, 5, 7, 3])),
            marks: random.one_of(&[Marks::default(), Marks::ACCESSED, Marks::DIRTY]),
        };
        table.fill(index, F::leaf(frame, level, mapped.prot, mapped.marks));
        table.count_made(1);
        drop(table);
        self.pages.insert((level, covered), mapped);
        near.push(page);
    }

    /// One access, and what must come of it.
    fn access(&mut self, machine: &Machine, page: u64, access: Access, value: u64) -> bool {
        // SAFETY: the root is that of tables which this test makes, whose pages
        // are frames it has allocated or that do not exist.
        let mmu = unsafe { machine.mmu(CpuId(0)) };
        let address = (page << F::FRAME_SHIFT) + value % (F::FRAME_SIZE as u64 / 8) * 8;
        let found = match access {
            Access::Read => mmu.load(self.tag, self.root, address),
            Access::Execute => mmu.fetch(self.tag, self.root, address),
            Access::Write => mmu
                .store(self.tag, self.root, address, value)
                .map(|()| value),
        };
        let reason = found.map_err(|fault| fault.reason);
        let Some((key, mapped)) = self.find(page).filter(|(_, page)| !page.prot.is_none()) else {
            assert!(
                matches!(reason, Err(FaultReason::NotPresent { .. })),
                "{reason:?}"
            );
            return false;
        };
        if let Some(why) = refused(F::NAME, mapped.prot, access) {
            assert_eq!(reason, Err(why), "{mapped:?}");
            return false;
        }
        let frame = mapped.frame.offset((page % F::pages_at(key.0)) as u32);
        match reason {
            // No word is there to be written, but the walk has marked the entry.
            Err(reason) => assert_eq!(reason, FaultReason::NoMemory { frame }),
            Ok(word) => {
                assert_eq!(key.0, 1);
                let offset = address as usize % F::FRAME_SIZE;
                assert_eq!(machine.ram_word(frame, offset), Some(word));
            }
        }
        let marks = &mut self.pages.get_mut(&key).expect("a page").marks;
        marks.accessed = true;
        marks.dirty |= access == Access::Write;
        true
    }

    /// Gives all tables back.
    fn end(self, memory: &'m Memory, pin: &'m Pin<'_>) {
        let target = FlushTarget {
            tag: self.tag,
            cpus: CpuSet::from_bits(1),
        };
        // SAFETY: only tables are put in; CPU 0 has walked them, and no other.
        let mut gather = unsafe { Gather::new(memory, &Fresh, pin, target) };
        for &(level, covered) in self.pages.keys() {
            let page = Vpn(covered * F::pages_at(level));
            let table = self.tables.lock(page).expect("the page is mapped");
            table.clear(F::index(page, level), Users::Hardware);
            table.count_cleared(1);
            gather.stale(page);
            self.tables.unlink_if_empty(table, &mut gather);
        }
        drop(gather);
        // SAFETY: the root was made for this case, of which nothing is left.
        unsafe { Tables::<_, F>::retire_root(memory, &Fresh, pin, self.root) };
    }

    /// The entries say what was mapped, with the marks of the accesses since.
    fn check(&self) {
        for (&(level, covered), wanted) in &self.pages {
            let (entry, found) = self.tables.peek(Vpn(covered * F::pages_at(level)));
            assert_eq!(found, level);
            assert_eq!(F::frame(entry, level), wanted.frame);
            assert_eq!(F::marks(entry), wanted.marks, "{wanted:?}");
            assert_eq!(F::is_writable(entry), wanted.prot.can_write());
        }
    }
}

/// Tables of each format; `VELLUM_CASES` sets another number. Each is walked 600 times.
fn seeds() -> u64 {
    let cases = std::env::var("VELLUM_CASES").ok();
    cases.map_or(6, |cases| cases.parse().expect("VELLUM_CASES is a number"))
}

fn random_tables_are_walked_as_they_were_made<F: Format>() {
    let walker = walker(F::NAME).expect("every format has a walker");
    assert_eq!(walker.frame_shift(), F::FRAME_SHIFT);
    assert_eq!(u32::from(walker.root_level()), F::LEVELS);
    for page in [0, F::USER_END.0 - 1] {
        assert!(walker.is_canonical(page << F::FRAME_SHIFT));
    }
    // Of 4 GiB the kernel has one by convention; elsewhere the format says so.
    let end = F::USER_END.0.next_power_of_two();
    assert!(!walker.is_canonical(end << F::FRAME_SHIFT));
    let config = MachineConfig {
        base_pfn: Pfn(0),
        ..MachineConfig::new(96 << 20)
    }
    .with_walker(walker);
    let options = ArenaOptions {
        huge_pages: false,
        prefault: false,
    };
    let arena = Arena::with_options(config.arena_bytes().unwrap(), options).unwrap();
    let machine = Arc::new(Machine::new(config, arena).unwrap());
    machine.run_on(CpuId(0), || {
        let memory = PhysicalMemory::new(Arc::clone(&machine)).unwrap();
        let request = Request::page(Site::AnonymousPage).zeroed();
        let frames: Vec<Pfn> = (0..64)
            .map(|_| memory.alloc(&memory.pin(), request).unwrap())
            .collect();
        let (mut allowed, mut denied) = (0, 0);
        for seed in 1..=seeds() {
            println!("{}: seed {seed}", F::NAME);
            let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            // Of its own, so that the epoch moves on and tables can be used again.
            let pin = memory.pin();
            let mut case = Case::<F>::new(&memory, &pin, seed);
            let mut near = vec![F::USER_END.0 - 1];
            for _ in 0..40 {
                case.map(&mut random, &frames, &mut near);
            }
            case.check();
            for _ in 0..600 {
                let page = random.one_of(&near) ^ random.one_of(&[0, 0, 1, 3, F::ENTRIES as u64]);
                let page = page.min(F::USER_END.0 - 1);
                let access = random.one_of(&ACCESSES);
                match case.access(&machine, page, access, random.below(u64::MAX)) {
                    true => allowed += 1,
                    false => denied += 1,
                }
            }
            case.check();
            case.end(&memory, &pin);
        }
        assert_eq!(
            memory.stats().used(),
            frames.len() as u64,
            "all tables are free"
        );
        assert!(
            allowed > 500 && denied > 500,
            "{allowed} allowed, {denied} denied"
        );
    });
}

macro_rules! one_test_each {
    ($($(#[$about:meta])* $name:ident: $format:ident $value:literal;)*) => {
        mod random_tables_are_walked_as_they_were_made_on {
            $(#[test] fn $name() {
                super::random_tables_are_walked_as_they_were_made::<vellum::table::$format>();
            })*
        }
    };
}

vellum::every_format! { [one_test_each] }
