//! What the requests to a store would take on a real device.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use vellum::platform::{IoError, SlotError};
use vellum::sync::bytes::FrameBytes;

use super::BackingStore;

/// A device with one queue: a request takes its latency and then its bytes, and whoever asked
/// waits for it. A page that follows the page before in the same direction belongs to the same
/// request, as block layers merge them.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct DeviceModel {
    /// From asking to the first byte of a read, in nanoseconds.
    pub read_ns: u64,
    /// From asking until a write is taken, in nanoseconds, bytes aside.
    pub write_ns: u64,
    /// Bytes that it moves in a second.
    pub bytes_per_s: u64,
}

impl DeviceModel {
    /// Of that name: `nvme`, `ssd` or `disk`.
    ///
    /// Rounded figures of the kind, assumed, not of one product: flash behind NVMe, 80 us, 20
    /// us and 3 GB/s; behind SATA, 120 us, 60 us and 500 MB/s; a disk of 7,200 rotations a
    /// minute, half a rotation and a mean seek, 12 ms, and 150 MB/s.
    pub fn named(name: &str) -> Option<DeviceModel> {
        let (read_ns, write_ns, bytes_per_s) = match name {
            "nvme" => (80_000, 20_000, 3_000_000_000),
            "ssd" => (120_000, 60_000, 500_000_000),
            "disk" => (12_000_000, 12_000_000, 150_000_000),
            _ => return None,
        };
        Some(DeviceModel {
            read_ns,
            write_ns,
            bytes_per_s,
        })
    }

    /// The names that there are.
    pub const NAMES: [&str; 3] = ["nvme", "ssd", "disk"];
}

/// What a device was asked for.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct DeviceUse {
    /// Pages read.
    pub pages_read: u64,
    /// Requests in which they were.
    pub reads: u64,
    /// Pages written.
    pub pages_written: u64,
    /// Requests in which they were.
    pub writes: u64,
    /// Time of the reads in nanoseconds.
    pub read_ns: u64,
    /// Time of the writes.
    pub write_ns: u64,
}

/// Pages that were written, and how long that took.
#[derive(Clone, Copy, Default)]
struct Writes {
    pages: u64,
    ns: u64,
}

impl Writes {
    /// Pages in a second, if there were any.
    fn speed(self) -> Option<u64> {
        let pages = u128::from(self.pages) * 1_000_000_000;
        let speed = pages.checked_div(u128::from(self.ns))?;
        Some(u64::try_from(speed).unwrap_or(u64::MAX))
    }
}

/// How many of the last requests say who writes at present.
const RECENT: usize = 8;

#[derive(Default)]
struct State {
    used: DeviceUse,
    /// What each store was given. A swap area goes another way about it than a file.
    writes: HashMap<u64, Writes>,
    /// Store, page after the last, and whether it was a write.
    next: Option<(u64, u64, bool)>,
    /// The stores of the last requests that wrote, in no order.
    written: [Option<u64>; RECENT],
}

impl State {
    /// How many stores were written to at present, `store` among them.
    fn sharing_with(&self, store: u64) -> u64 {
        let mut stores = self.written;
        stores.sort_unstable();
        let mut count = u64::from(!stores.contains(&Some(store)));
        let mut before = None;
        for &found in stores.iter().filter(|found| found.is_some()) {
            count += u64::from(found != before);
            before = found;
        }
        count
    }
}

/// A store whose requests are counted and timed by a model. They take no time of the host's.
pub struct TimedStore {
    inner: Arc<dyn BackingStore>,
    model: DeviceModel,
    throttles: bool,
    state: Mutex<State>,
}

impl TimedStore {
    /// `inner` on such a device.
    pub fn new(inner: Arc<dyn BackingStore>, model: DeviceModel) -> TimedStore {
        TimedStore {
            inner,
            model,
            throttles: false,
            state: Mutex::default(),
        }
    }

    /// The same, whose writers are throttled if they are faster than it: it tells how fast it was
    /// with what was written to their file so far. If several stores are written to at present, of
    /// which one may be a swap area, each gets its part.
    #[must_use]
    pub fn throttling(self) -> TimedStore {
        TimedStore {
            throttles: true,
            ..self
        }
    }

    /// How long the bytes of a page take.
    fn page_ns(&self) -> u64 {
        self.inner.page_bytes() as u64 * 1_000_000_000 / self.model.bytes_per_s.max(1)
    }

    fn charge(&self, store: u64, index: u64, is_write: bool) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let follows = state.next == Some((store, index, is_write));
        state.next = Some((store, index.saturating_add(1), is_write));
        let used = &mut state.used;
        let (pages, requests, time, latency) = match is_write {
            false => (
                &mut used.pages_read,
                &mut used.reads,
                &mut used.read_ns,
                self.model.read_ns,
            ),
            true => (
                &mut used.pages_written,
                &mut used.writes,
                &mut used.write_ns,
                self.model.write_ns,
            ),
        };
        let taken = self.page_ns() + if follows { 0 } else { latency };
        *pages += 1;
        *time += taken;
        *requests += u64::from(!follows);
        if is_write {
            let place = used.writes as usize % RECENT;
            if !follows {
                state.written[place] = Some(store);
            }
            let writes = state.writes.entry(store).or_default();
            writes.pages += 1;
            writes.ns += taken;
        }
    }
}

impl BackingStore for TimedStore {
    fn page_bytes(&self) -> usize {
        self.inner.page_bytes()
    }

    fn read_page(&self, store: u64, index: u64, bytes: FrameBytes<'_>) -> Result<(), IoError> {
        self.charge(store, index, false);
        self.inner.read_page(store, index, bytes)
    }

    fn write_page(&self, store: u64, index: u64, bytes: &[u8]) -> Result<(), IoError> {
        self.charge(store, index, true);
        self.inner.write_page(store, index, bytes)
    }

    fn write_slot(&self, store: u64, slot: u64, bytes: &[u8]) -> Result<(), SlotError> {
        self.charge(store, slot, true);
        self.inner.write_slot(store, slot, bytes)
    }

    fn write_speed(&self, store: u64) -> Option<u64> {
        if !self.throttles {
            return self.inner.write_speed(store);
        }
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let measured = state.writes.get(&store).and_then(|writes| writes.speed());
        // As long as nothing was written there is only the model to go by.
        let alone = Writes {
            pages: 1,
            ns: (self.page_ns() + self.model.write_ns).max(1),
        };
        let speed = measured.or(alone.speed())?;
        Some(speed / state.sharing_with(store))
    }

    fn has_swap_room(&self, store: u64) -> bool {
        self.inner.has_swap_room(store)
    }

    fn slot_freed(&self, store: u64, slot: u64) {
        self.inner.slot_freed(store, slot);
    }

    fn discard_pages(&self, store: u64, pages: Range<u64>) -> Result<(), IoError> {
        self.inner.discard_pages(store, pages)
    }

    fn find_page(&self, store: u64, index: u64, stored: bool) -> Option<u64> {
        self.inner.find_page(store, index, stored)
    }

    fn flush(&self) -> Result<(), IoError> {
        self.inner.flush()
    }

    fn stored_word(&self, store: u64, offset: u64) -> Option<u64> {
        self.inner.stored_word(store, offset)
    }

    fn discard(&self, store: u64) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.writes.remove(&store);
        drop(state);
        self.inner.discard(store);
    }

    fn used(&self) -> Option<DeviceUse> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        Some(state.used)
    }
}

#[cfg(test)]
mod tests {
    use vellum::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::store::PatternStore;

    #[test]
    fn pages_that_follow_each_other_are_one_request() {
        let model = DeviceModel {
            read_ns: 1000,
            write_ns: 300,
            bytes_per_s: 4_096_000_000,
        };
        let store = TimedStore::new(Arc::new(PatternStore::new(4096, |_, _| 7)), model);
        let words: Vec<AtomicU64> = (0..512).map(AtomicU64::new).collect();
        let read = |file, page| {
            let read = store.read_page(file, page, FrameBytes::of_words(&words));
            read.expect("nothing fails");
        };
        // A run of three, one elsewhere, one of another file, and the next of that.
        for (file, page) in [(1, 4), (1, 5), (1, 6), (1, 4), (2, 5), (2, 6)] {
            read(file, page);
        }
        assert_eq!(words[0].load(Ordering::Relaxed), 7);
        // A write does not go on where a read was.
        for page in [7, 8] {
            store
                .write_page(2, page, &[0; 4096])
                .expect("nothing fails");
        }
        let expected = DeviceUse {
            pages_read: 6,
            reads: 3,
            pages_written: 2,
            writes: 1,
            read_ns: 3 * 1000 + 6 * 1000,
            write_ns: 300 + 2 * 1000,
        };
        assert_eq!(store.used(), Some(expected));
    }

    #[test]
    fn its_speed_is_what_it_has_measured_and_is_shared_by_those_who_write() {
        let model = DeviceModel {
            read_ns: 1000,
            write_ns: 3000,
            bytes_per_s: 4_096_000_000,
        };
        let inner = Arc::new(PatternStore::new(4096, |_, _| 0));
        let silent = TimedStore::new(Arc::clone(&inner) as Arc<dyn BackingStore>, model);
        assert_eq!(silent.write_speed(1), None);
        let store = TimedStore::new(inner, model).throttling();
        // A page by itself, as nothing is known yet: 4 us.
        assert_eq!(store.write_speed(1), Some(250_000));
        let write = |file, page| {
            let written = store.write_page(file, page, &[0; 4096]);
            written.expect("nothing fails");
        };
        // Three in one request: 6 us.
        (0..3).for_each(|page| write(1, page));
        assert_eq!(store.write_speed(1), Some(500_000));
        // One that begins to write shares it already.
        assert_eq!(store.write_speed(2), Some(125_000));
        // Another four in requests of their own, of two files: 8 us for 2 pages of each.
        for file in [2, 3, 2, 3] {
            write(file, 10);
        }
        for (file, speed) in [(1, 500_000), (2, 250_000), (3, 250_000)] {
            assert_eq!(store.write_speed(file), Some(speed / 3), "{file}");
        }
        // Those who have not written for long do not count.
        (0..8).for_each(|request| write(4, 2 * request));
        assert_eq!(store.write_speed(4), Some(250_000));
        // A file that is gone has left nothing to another of its number.
        store.discard(1);
        assert_eq!(store.write_speed(1), Some(250_000 / 2));
    }

    #[test]
    fn swap_takes_a_part_of_the_device_and_says_nothing_of_the_speed_of_files() {
        const SWAP: u64 = 77;
        let model = DeviceModel {
            read_ns: 1000,
            write_ns: 3000,
            bytes_per_s: 4_096_000_000,
        };
        let inner = Arc::new(PatternStore::new(4096, |_, _| 0));
        let store = TimedStore::new(inner, model).throttling();
        // A file in one request, swap in requests of a page each.
        for page in 0..30 {
            let written = store.write_page(1, page, &[0; 4096]);
            written.expect("nothing fails");
        }
        let alone = 30_000_000_000 / 33_000;
        assert_eq!(store.write_speed(1), Some(alone));
        for slot in 0..1000 {
            let written = store.write_slot(SWAP, 2 * slot, &[0; 4096]);
            written.expect("nothing fails");
            let speed = store.write_speed(1);
            assert_eq!(speed, Some(alone / 2), "after {slot}");
        }
    }

    #[test]
    fn every_name_has_a_model() {
        for name in DeviceModel::NAMES {
            assert!(DeviceModel::named(name).is_some(), "{name}");
        }
        assert_eq!(DeviceModel::named("tape"), None);
    }
}
