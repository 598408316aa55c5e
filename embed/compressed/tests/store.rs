//! The store beside a model.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use vellum_compressed::{
    Below, Exclusive, GetError, Loaded, Pool, PutError, Refused, Scratch, SizeError, Stats, Store,
};

const PAGE: usize = 4096;

type Memory = Vec<u8>;

struct Lock(Mutex<Pool<Memory>>);

impl Exclusive<Pool<Memory>> for Lock {
    fn new(pool: Pool<Memory>) -> Self {
        Lock(Mutex::new(pool))
    }

    fn with<R>(&self, work: impl FnOnce(&mut Pool<Memory>) -> R) -> R {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Called in the middle of a write to the disk, with the slot.
type Hook = Box<dyn Fn(&TestStore, u64) + Send>;

/// What is below: pages, in which order they came, and slots that refuse.
#[derive(Default)]
struct Disk {
    pages: Mutex<HashMap<u64, Vec<u8>>>,
    order: Mutex<Vec<u64>>,
    refuses: Mutex<Option<u64>>,
    hook: Mutex<Option<Hook>>,
    store: OnceLock<Weak<TestStore>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Below for Disk {
    fn write(&self, slot: u64, page: &[u8]) -> Result<(), Refused> {
        if *lock(&self.refuses) == Some(slot) {
            return Err(Refused);
        }
        // Once.
        if let Some(hook) = lock(&self.hook).take() {
            let store = self.store.get().and_then(Weak::upgrade);
            hook(&store.expect("the store"), slot);
        }
        lock(&self.order).push(slot);
        lock(&self.pages).insert(slot, page.to_vec());
        Ok(())
    }
}

type TestStore = Store<Lock, Memory, Disk>;

const SLOTS: u64 = 1000;

fn store(bytes: usize, below: bool) -> Arc<TestStore> {
    // What the memory holds does not matter.
    let memory = vec![0xa5; bytes];
    let store = Store::new(memory, PAGE, SLOTS, below.then(Disk::default)).expect("sizes");
    let store = Arc::new(store);
    if let Some(disk) = store.below() {
        let _ = disk.store.set(Arc::downgrade(&store));
    }
    store
}

/// Numbers that look random.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

/// A page whose first `random` bytes are random and whose others repeat a little.
fn page(seed: u64, random: usize) -> Vec<u8> {
    let mut rng = Rng(seed);
    let random_byte = |at: usize| at < random;
    (0..PAGE)
        .map(|at| match random_byte(at) {
            true => rng.next() as u8,
            false => (at / 24) as u8 ^ seed as u8,
        })
        .collect()
}

fn same(word: u64) -> Vec<u8> {
    word.to_le_bytes().repeat(PAGE / 8)
}

/// Reads a page back from wherever it is.
fn read(store: &TestStore, slot: u64, scratch: &mut Scratch) -> Option<Vec<u8>> {
    match store.get(slot, scratch) {
        Ok(Loaded::Same(word)) => Some(same(word)),
        Ok(Loaded::Page(page)) => Some(page.to_vec()),
        Ok(Loaded::Below) => lock(&store.below()?.pages).get(&slot).cloned(),
        Err(_) => None,
    }
}

fn disk(store: &TestStore) -> &Disk {
    store.below().expect("a disk")
}

#[test]
fn pages_of_all_kinds_come_back() {
    let pages = [
        same(0),
        same(0x0123_4567_89ab_cdef),
        page(1, 0),
        page(2, 1000),
        page(3, 2500),
        // Saves less than an eighth, and more.
        page(4, 3560),
        page(5, 3100),
        page(6, PAGE),
        // Not a repeated word: the last byte differs.
        [&same(7)[..PAGE - 1], &[9]].concat(),
    ];
    for below in [false, true] {
        let store = store(64 << 10, below);
        let mut scratch = Scratch::new(PAGE);
        for (slot, page) in pages.iter().enumerate() {
            store.put(slot as u64 * 100, page, &mut scratch).unwrap();
            store.audit().unwrap();
        }
        for (slot, page) in pages.iter().enumerate() {
            let found = read(&store, slot as u64 * 100, &mut scratch);
            assert_eq!(found.as_ref(), Some(page), "page {slot}, below: {below}");
        }
        let stats = store.stats();
        let passed_on = if below { 2 } else { 0 };
        assert_eq!((stats.taken, stats.same), (9 - passed_on, 2));
        assert_eq!(
            (stats.incompressible, stats.passed_on),
            (passed_on, passed_on)
        );
        assert_eq!(stats.pages, stats.taken);
    }
}

#[test]
fn a_page_of_one_word_takes_no_block() {
    let store = store(64 << 10, false);
    let mut scratch = Scratch::new(PAGE);
    let empty = store.stats().used;
    for slot in 0..8 {
        store.put(slot, &same(slot), &mut scratch).unwrap();
    }
    let stats = store.stats();
    // Eight slots have one block of entries.
    assert_eq!((stats.used - empty, stats.page_bytes), (128, 0));
    assert_eq!(
        (stats.same, stats.taken_same, stats.bytes_each()),
        (8, 8, 0)
    );
}

#[test]
fn a_slot_that_is_freed_gives_back_its_bytes() {
    let store = store(64 << 10, false);
    let mut scratch = Scratch::new(PAGE);
    let empty = store.stats().used;
    for round in 0..3 {
        for slot in 0..20 {
            let page = match slot % 3 {
                0 => same(slot),
                1 => page(slot, 900),
                _ => page(slot, 0),
            };
            store.put(slot * 7, &page, &mut scratch).unwrap();
        }
        assert!(store.stats().used > empty + 7 * 1000);
        for slot in (0..20).rev() {
            store.free(slot * 7);
            store.audit().unwrap();
        }
        let stats = store.stats();
        assert_eq!((stats.used, stats.pages, stats.page_bytes), (empty, 0, 0));
        assert_eq!(stats.taken, 20 * (round + 1));
        assert_eq!(store.get(7, &mut scratch), Err(GetError::Missing));
    }
    // What is not there can be freed, too.
    store.free(3);
    store.free(u64::MAX);
}

#[test]
fn the_limit_is_the_memory_and_every_byte_of_it_serves_any_page() {
    let store = store(32 << 10, false);
    let mut scratch = Scratch::new(PAGE);
    let mut rng = Rng(11);
    // Pages of many lengths come and go, so that free blocks lie everywhere.
    for _ in 0..2000 {
        let slot = rng.below(60);
        match rng.below(3) {
            0 => store.free(slot),
            _ => {
                let page = page(rng.next(), rng.below(2000) as usize);
                let _ = store.put(slot, &page, &mut scratch);
            }
        }
        assert!(store.stats().used <= store.stats().limit);
    }
    assert!(store.stats().full > 0, "{:?}", store.stats());
    (0..60).for_each(|slot| store.free(slot));
    // One page as it is takes 34 blocks; beside the table 7 of them fit into 252.
    for slot in 0..7 {
        assert!(store.has_room());
        let page = page(slot, PAGE);
        store.put(slot, &page, &mut scratch).unwrap();
    }
    assert!(!store.has_room());
    let full = store.put(7, &page(7, PAGE), &mut scratch);
    assert_eq!(full, Err(PutError::Full));
    // One that needs little still fits.
    store.put(7, &same(1), &mut scratch).unwrap();
    assert_eq!(read(&store, 3, &mut scratch), Some(page(3, PAGE)));
    store.free(3);
    assert!(store.has_room());
    store.put(9, &page(9, PAGE), &mut scratch).unwrap();
    assert_eq!(store.get(3, &mut scratch), Err(GetError::Missing));
    store.audit().unwrap();
    assert!(store.stats().used_peak > store.stats().limit - 34 * 128);
}

#[test]
fn at_the_limit_the_oldest_pages_are_written_back_first() {
    let store = store(32 << 10, true);
    let mut scratch = Scratch::new(PAGE);
    let all: Vec<Vec<u8>> = (0..60).map(|slot| page(slot, 1000)).collect();
    // Pages of one word take no room and stay.
    store.put(900, &same(5), &mut scratch).unwrap();
    for (slot, page) in all.iter().enumerate() {
        store.put(slot as u64, page, &mut scratch).unwrap();
        store.audit().unwrap();
    }
    let stats = store.stats();
    assert!(stats.written_back > 20, "{stats:?}");
    let order: Vec<u64> = (0..stats.written_back).collect();
    assert_eq!(*lock(&disk(&store).order), order);
    assert_eq!(stats.pages, 61 - stats.written_back);
    assert_eq!((stats.passed_on, stats.full), (0, 0));
    for (slot, page) in all.iter().enumerate() {
        let found = read(&store, slot as u64, &mut scratch);
        assert_eq!(found.as_ref(), Some(page), "{slot}");
    }
    // A page that was put anew is young again.
    let oldest = stats.written_back;
    (store.put(oldest, &all[0], &mut scratch)).unwrap();
    assert_eq!(store.write_back(2, &mut scratch), Ok(2));
    let order = lock(&disk(&store).order).clone();
    assert_eq!(order[order.len() - 2..], [oldest + 1, oldest + 2]);
    // All of them, and then there is none.
    let left = store.stats().pages - 1;
    assert_eq!(store.write_back(1000, &mut scratch), Ok(left));
    assert_eq!(store.stats().pages, 1);
    assert_eq!(read(&store, oldest, &mut scratch).as_ref(), Some(&all[0]));
    store.audit().unwrap();
}

#[test]
fn a_page_that_cannot_be_written_back_stays_and_the_new_one_goes_below() {
    let store = store(32 << 10, true);
    let mut scratch = Scratch::new(PAGE);
    *lock(&disk(&store).refuses) = Some(0);
    let mut slot = 0;
    while store.stats().refused_below == 0 {
        let page = page(slot, 1000);
        store.put(slot, &page, &mut scratch).unwrap();
        slot += 1;
    }
    let stats = store.stats();
    assert_eq!((stats.passed_on, stats.incompressible), (1, 0));
    assert_eq!(*lock(&disk(&store).order), [slot - 1]);
    // The next to be written back is another.
    store.put(slot, &page(slot, 1000), &mut scratch).unwrap();
    assert_eq!(lock(&disk(&store).order)[1..], [1]);
    for slot in 0..=slot {
        let found = read(&store, slot, &mut scratch);
        assert_eq!(found, Some(page(slot, 1000)), "{slot}");
    }
    // What does not compress is refused with its slot.
    let refused = store.put(0, &page(0, PAGE), &mut scratch);
    assert_eq!(refused, Err(PutError::Refused));
    store.audit().unwrap();
}

/// Fills the store until the next page has the one of slot 0 written back, and does `meanwhile`
/// in the middle of that.
fn beside_writing_back(meanwhile: impl Fn(&TestStore, &mut Scratch) + Send + 'static) {
    let store = store(32 << 10, true);
    let mut scratch = Scratch::new(PAGE);
    let mut slot = 0;
    loop {
        let free = store.stats().limit - store.stats().used;
        if free < 3000 {
            break;
        }
        store.put(slot, &page(slot, 1000), &mut scratch).unwrap();
        slot += 1;
    }
    let hook = move |store: &TestStore, slot: u64| {
        assert_eq!(slot, 0);
        meanwhile(store, &mut Scratch::new(PAGE));
    };
    *lock(&disk(&store).hook) = Some(Box::new(hook));
    for slot in 500..503 {
        store.put(slot, &page(slot, 1000), &mut scratch).unwrap();
    }
    assert!(
        lock(&disk(&store).hook).is_none(),
        "nothing was written back"
    );
    store.audit().unwrap();
    for slot in (1..slot).chain(500..503) {
        let found = read(&store, slot, &mut scratch);
        assert_eq!(found, Some(page(slot, 1000)), "{slot}");
    }
    (0..SLOTS).for_each(|slot| store.free(slot));
    store.audit().unwrap();
    assert_eq!((store.stats().pages, store.stats().page_bytes), (0, 0));
}

#[test]
fn a_page_is_there_while_it_is_written_back() {
    beside_writing_back(|store, scratch| {
        assert!(matches!(store.get(0, scratch), Ok(Loaded::Page(_))));
        assert_eq!(read(store, 0, scratch), Some(page(0, 1000)));
    });
}

#[test]
fn a_slot_freed_while_its_page_is_written_back_is_free() {
    beside_writing_back(|store, _| {
        let before = store.stats();
        store.free(0);
        store.free(0);
        let after = store.stats();
        assert_eq!(after.pages, before.pages - 1);
        assert!(after.page_bytes < before.page_bytes);
    });
}

#[test]
fn a_slot_used_anew_while_its_old_page_is_written_back_has_the_new_one() {
    for new in [same(3), page(77, 300)] {
        let store = store(32 << 10, true);
        let mut scratch = Scratch::new(PAGE);
        store.put(0, &page(0, 1000), &mut scratch).unwrap();
        let taken = new.clone();
        let hook = move |store: &TestStore, _: u64| {
            let mut scratch = Scratch::new(PAGE);
            store.free(0);
            store.put(0, &taken, &mut scratch).unwrap();
            // It is not written back while the old one is.
            assert_eq!(store.write_back(5, &mut scratch), Ok(0));
        };
        *lock(&disk(&store).hook) = Some(Box::new(hook));
        assert_eq!(store.write_back(1, &mut scratch), Ok(1));
        assert_eq!(read(&store, 0, &mut scratch), Some(new.clone()));
        store.audit().unwrap();
        // Afterwards it is, and that is what is below.
        let _ = store.write_back(1, &mut scratch);
        assert_eq!(read(&store, 0, &mut scratch), Some(new));
        store.audit().unwrap();
    }
}

#[test]
fn an_older_page_of_a_slot_never_lands_below_after_a_newer_one() {
    let store = store(32 << 10, true);
    let mut scratch = Scratch::new(PAGE);
    store.put(0, &page(0, 1000), &mut scratch).unwrap();
    let hook = |store: &TestStore, _: u64| {
        let mut scratch = Scratch::new(PAGE);
        store.free(0);
        // It does not compress, and could only go where the old one is going.
        let put = store.put(0, &page(9, PAGE), &mut scratch);
        assert_eq!(put, Err(PutError::Full));
        assert_eq!(store.stats().full, 1);
    };
    *lock(&disk(&store).hook) = Some(Box::new(hook));
    assert_eq!(store.write_back(1, &mut scratch), Ok(1));
    store.audit().unwrap();
    // From now on it can.
    store.put(0, &page(9, PAGE), &mut scratch).unwrap();
    assert_eq!(read(&store, 0, &mut scratch), Some(page(9, PAGE)));
}

#[test]
fn what_makes_no_sense_is_refused() {
    let of = |bytes, page, slots| {
        let store = TestStore::new(vec![0; bytes], page, slots, None);
        store.map(|_| ()).unwrap_err()
    };
    assert_eq!(of(64 << 10, 0, 10), SizeError::Page);
    assert_eq!(of(64 << 10, 4097, 10), SizeError::Page);
    assert_eq!(of(64 << 10, 16 << 20, 10), SizeError::Page);
    assert_eq!(of(64 << 10, PAGE, 0), SizeError::Slots);
    assert_eq!(of(64 << 10, PAGE, u64::from(u32::MAX)), SizeError::Slots);
    assert_eq!(of(0, PAGE, 10), SizeError::Memory);
    assert_eq!(of(4096, PAGE, 10), SizeError::Memory);
    assert_eq!(of(64 << 10, PAGE, 200_000), SizeError::Memory);
    let store = store(64 << 10, false);
    let mut scratch = Scratch::new(PAGE);
    let page = same(1);
    let invalid = Err(PutError::Invalid);
    assert_eq!(store.put(SLOTS, &page, &mut scratch), invalid);
    assert_eq!(store.put(1 << 40, &page, &mut scratch), invalid);
    assert_eq!(store.put(0, &page[1..], &mut scratch), invalid);
    assert_eq!(store.put(0, &page, &mut Scratch::new(8192)), invalid);
    assert_eq!(store.get(SLOTS, &mut scratch), Err(GetError::Invalid));
    let mut small = Scratch::new(8);
    assert_eq!(store.get(0, &mut small), Err(GetError::Invalid));
    assert_eq!(store.get(0, &mut scratch), Err(GetError::Missing));
    assert_eq!(store.write_back(3, &mut scratch), Ok(0));
    let last = SLOTS - 1;
    store.put(last, &page, &mut scratch).unwrap();
    assert_eq!(read(&store, last, &mut scratch), Some(page));
}

#[test]
fn pages_of_every_size_of_the_formats_come_back() {
    for bytes in [4096, 8192, 16384, 65536] {
        let store: Store<Lock, Memory, Disk> =
            Store::new(vec![1; 400 << 10], bytes, 50, None).unwrap();
        let mut scratch = Scratch::new(bytes);
        let pages = [0, 1000, bytes - 1000, bytes].map(|random| {
            let mut rng = Rng(random as u64);
            let byte = |at: usize| match at < random {
                true => rng.next() as u8,
                false => (at / 90) as u8,
            };
            (0..bytes).map(byte).collect::<Vec<u8>>()
        });
        for (slot, page) in (0..).zip(&pages) {
            store.put(slot, page, &mut scratch).unwrap();
        }
        for (slot, page) in (0..).zip(&pages) {
            assert_eq!(store.get(slot, &mut scratch), Ok(Loaded::Page(page)));
        }
        store.audit().unwrap();
    }
}

/// Random calls beside a map of what each slot holds.
fn random_calls(seed: u64, below: bool) -> Stats {
    let store = store(48 << 10, below);
    let mut scratch = Scratch::new(PAGE);
    let (mut rng, mut model) = (Rng(seed), HashMap::<u64, Vec<u8>>::new());
    for step in 0..1500 {
        // Slots lie close to each other, and far from each other.
        let slot = rng.below(40) * if rng.below(4) == 0 { 23 } else { 1 };
        if below && rng.below(15) == 0 {
            *lock(&disk(&store).refuses) = (rng.below(2) == 0).then(|| rng.below(40));
        }
        match rng.below(10) {
            0..=4 => {
                let random = [0, 700, 1500, 2500, PAGE][rng.below(5) as usize];
                let page = match rng.below(6) {
                    0 => same(rng.below(3)),
                    _ => page(rng.next(), random),
                };
                match store.put(slot, &page, &mut scratch) {
                    Ok(()) => model.insert(slot, page),
                    Err(PutError::Full) if !below => model.remove(&slot),
                    Err(PutError::Refused) if below => model.remove(&slot),
                    Err(error) => panic!("seed {seed}, step {step}: {error}"),
                };
            }
            5 | 6 => {
                store.free(slot);
                model.remove(&slot);
            }
            7 => {
                let _ = store.write_back(rng.below(3), &mut scratch);
            }
            _ => {
                let found = read(&store, slot, &mut scratch);
                if let Some(page) = model.get(&slot) {
                    assert_eq!(
                        found.as_ref(),
                        Some(page),
                        "seed {seed}, step {step}: {slot}"
                    );
                }
            }
        }
        (store.audit()).unwrap_or_else(|what| panic!("seed {seed}, step {step}: {what}"));
    }
    for (slot, page) in &model {
        let found = read(&store, *slot, &mut scratch);
        assert_eq!(
            found.as_ref(),
            Some(page),
            "seed {seed}, at the end: {slot}"
        );
    }
    let stats = store.stats();
    store.clear();
    store.audit().unwrap();
    assert_eq!(store.stats().pages, 0);
    stats
}

#[test]
fn random_calls_agree_with_a_model() {
    let seeds = 20..32;
    println!("seeds {seeds:?}");
    let mut all = Stats::default();
    for seed in seeds {
        for below in [false, true] {
            let stats = random_calls(seed, below);
            all.full += stats.full;
            all.written_back += stats.written_back;
            all.refused_below += stats.refused_below;
            all.incompressible += stats.incompressible;
        }
    }
    let reached = [
        all.full,
        all.written_back,
        all.refused_below,
        all.incompressible,
    ];
    assert!(reached.iter().all(|&count| count > 20), "{all:?}");
}

#[test]
fn threads_with_slots_of_their_own_do_not_disturb_each_other() {
    let store = store(64 << 10, true);
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let store = &store;
            scope.spawn(move || {
                let mut scratch = Scratch::new(PAGE);
                let mut rng = Rng(thread);
                let mut model = HashMap::new();
                for _ in 0..700 {
                    let slot = rng.below(30) * 3 + thread;
                    match rng.below(4) {
                        0 => {
                            store.free(slot);
                            model.remove(&slot);
                        }
                        1 | 2 => {
                            let page = page(rng.next(), rng.below(2500) as usize);
                            // The old page of the slot may be on its way below.
                            match store.put(slot, &page, &mut scratch) {
                                Ok(()) => model.insert(slot, page),
                                Err(error) => {
                                    assert_eq!(error, PutError::Full);
                                    model.remove(&slot)
                                }
                            };
                        }
                        _ => {
                            let found = read(store, slot, &mut scratch);
                            if let Some(page) = model.get(&slot) {
                                assert_eq!(found.as_ref(), Some(page), "slot {slot}");
                            }
                        }
                    }
                }
            });
        }
    });
    store.audit().unwrap();
    assert!(store.stats().written_back > 0);
}
