//! The page cache: which frame holds a page of a file, out of 65,536.

use std::collections::{BTreeMap, HashMap};
use std::hint::black_box;

use vellum::addr::Pfn;
use vellum::design::RegionIndex;
use vellum::object::{CachedPage, Object, ObjectKind, Objects};
use vellum::platform::{CpuId, GroupId};
use vellum::slab::ArenaMaker;

use crate::measure::{Arm, Timed};
use crate::ours::{self, Memory, NAMES};
use crate::rows::Rows;
use crate::{Failure, random};

const KEYS: u64 = 65_536;
const RAM: u64 = 512 << 20;
/// Lookups in a batch, so that a slice and its warm-up see most of the pages.
const BATCH: u64 = 16_384;

/// Ours: a file with all its pages cached. The objects go before the memory.
struct Cache {
    objects: Objects<()>,
    handle: u32,
    memory: Memory,
}

impl Cache {
    fn new() -> Result<Cache, Failure> {
        let memory = ours::memory(RAM)?;
        // SAFETY: what is made is used with the memory beside it, whose size
        // this is, and dropped before it.
        let maker = unsafe { ArenaMaker::new(2, memory.frame_count(), memory.frame_size()) };
        let objects = Objects::new(&maker, RegionIndex::Tree);
        let board = memory.platform();
        let handle = board.run_on(CpuId(0), || {
            let pin = memory.pin();
            let file = ObjectKind::File { store: 1 };
            let id = objects.create(&memory, &pin, file, KEYS << 12, 0)?;
            let handle = id.to_bits() as u32;
            for index in 0..KEYS {
                let page = objects.page(&memory, &pin, (handle, index), GroupId::ROOT.into())?;
                if let CachedPage::Fill(lock) = page {
                    let page = lock.page();
                    objects.filled(&memory, &pin, lock);
                    // SAFETY: the reference that `page` gave; the cache has its own.
                    unsafe { memory.put_raw(&pin, page, 0) };
                }
            }
            Ok::<u32, vellum::object::CacheError>(handle)
        });
        Ok(Cache {
            handle: handle.map_err(Failure::because("a file of 65,536 pages"))?,
            objects,
            memory,
        })
    }

    /// Calls `look` for `count` random keys. The object is at hand, as the
    /// others have their map.
    fn run(
        &self,
        state: &mut u64,
        count: u64,
        mut look: impl FnMut(&Cache, &vellum::sync::Pin<'_>, &Object<()>, u64),
    ) -> Timed {
        let board = self.memory.platform();
        board.run_on(CpuId(0), || {
            let pin = self.memory.pin();
            let object = self.objects.get(self.handle);
            Timed::of(count * BATCH, || {
                for _ in 0..count * BATCH {
                    look(
                        self,
                        &pin,
                        object,
                        random::below(state, KEYS as usize) as u64,
                    );
                }
            })
        })
    }
}

/// The floor: 64 slots a node, three levels, nothing that keeps a page from
/// being taken away while it is looked at.
struct Radix {
    nodes: Vec<[u32; 64]>,
}

impl Radix {
    fn new() -> Radix {
        let mut radix = Radix {
            nodes: vec![[0; 64]],
        };
        for key in 0..KEYS {
            let mut node = 0;
            for level in [2, 1] {
                let slot = (key >> (6 * level)) as usize & 63;
                if radix.nodes[node][slot] == 0 {
                    radix.nodes.push([0; 64]);
                    radix.nodes[node][slot] = radix.nodes.len() as u32 - 1;
                }
                node = radix.nodes[node][slot] as usize;
            }
            radix.nodes[node][key as usize & 63] = frame_of(key) + 1;
        }
        radix
    }

    #[inline]
    fn get(&self, key: u64) -> Option<u32> {
        let mut node = 0;
        for level in [2, 1] {
            node = self.nodes[node][(key >> (6 * level)) as usize & 63] as usize;
            if node == 0 {
                return None;
            }
        }
        let slot = self.nodes[node][key as usize & 63];
        (slot != 0).then(|| slot - 1)
    }
}

fn frame_of(key: u64) -> u32 {
    0x1000 + key as u32
}

fn arm(name: &'static str, get: impl Fn(u64) -> Option<u32> + 'static) -> Arm {
    let mut state = random::SEED;
    Arm::new(name, move |count| {
        Timed::of(count * BATCH, || {
            for _ in 0..count * BATCH {
                let found = get(random::below(&mut state, KEYS as usize) as u64);
                assert!(black_box(found).is_some());
            }
        })
    })
}

fn arms(arms: &mut Vec<Arm>) -> Result<(), Failure> {
    for name in NAMES {
        let cache = Cache::new()?;
        let mut state = random::SEED;
        arms.push(Arm::new(name, move |count| {
            cache.run(&mut state, count, |cache, pin, object, key| {
                let found: Option<Pfn> = cache.objects.peek(pin, object, key);
                assert!(black_box(found).is_some());
            })
        }));
    }
    let cache = Cache::new()?;
    let mut state = random::SEED;
    arms.push(Arm::new("Vellum, with a reference", move |count| {
        cache.run(&mut state, count, |cache, pin, object, key| {
            let found = cache.objects.lookup(&cache.memory, pin, object, key);
            let page = black_box(found).expect("cached");
            // SAFETY: the reference that `lookup` gave.
            unsafe { cache.memory.put_raw(pin, page, 0) };
        })
    }));
    let radix = Radix::new();
    arms.push(arm("bare radix", move |key| radix.get(key)));
    let map: HashMap<u64, u32> = (0..KEYS).map(|key| (key, frame_of(key))).collect();
    arms.push(arm("HashMap", move |key| map.get(&key).copied()));
    let tree: BTreeMap<u64, u32> = (0..KEYS).map(|key| (key, frame_of(key))).collect();
    arms.push(arm("BTreeMap", move |key| tree.get(&key).copied()));
    Ok(())
}

/// Runs the group.
pub fn run(rows: &mut Rows<'_>) -> Result<(), Failure> {
    rows.row("find one of 65536 cached pages", arms)
}
