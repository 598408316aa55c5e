//! A net under the reports: finds bytes that changed without a report.
//!
//! It keeps a copy of all placed memory. What an access was reported to write is copied
//! when the next report comes, which is after the access was made. So a byte that
//! differs from its copy was written by an access that nobody reported. A change is
//! missed if a reported write to the same bytes follows before the next look. What a
//! spin lock guards counts as reported from the first time on that it was.

use std::collections::BTreeMap;

use vellum::sync::report::{Access, Kind};

/// Reports between two looks at all memory.
const INTERVAL: u32 = 1 << 14;

/// The first byte that changed without a report.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Hole {
    pub(crate) place: usize,
    pub(crate) offset: usize,
}

#[derive(Debug)]
struct Copied {
    memory: *const u8,
    copy: Box<[u8]>,
}

impl Copied {
    /// The memory as it is now.
    ///
    /// # Safety
    /// As for [`Net::new`].
    unsafe fn now(&self) -> &[u8] {
        // SAFETY: the caller's promise.
        unsafe { std::slice::from_raw_parts(self.memory, self.copy.len()) }
    }
}

/// Copies of all places.
#[derive(Debug)]
pub(crate) struct Net {
    places: Vec<Copied>,
    /// What is being written since the last report.
    pending: Option<Access>,
    /// What spin locks guard, as far as they have been taken.
    guarded: BTreeMap<usize, usize>,
    until_look: u32,
}

impl Net {
    /// A net under `places`, each a start and a length.
    ///
    /// # Safety
    /// All that memory can be read as long as the net is used, and nobody writes to it
    /// while one of its functions runs.
    pub(crate) unsafe fn new(places: impl Iterator<Item = (*const u8, usize)>) -> Net {
        let copied = |(memory, bytes): (*const u8, usize)| {
            // SAFETY: the caller's promise.
            let copy = unsafe { std::slice::from_raw_parts(memory, bytes) }.into();
            Copied { memory, copy }
        };
        Net {
            places: places.map(copied).collect(),
            pending: None,
            guarded: BTreeMap::new(),
            until_look: INTERVAL,
        }
    }

    /// An access is about to be made; the one before it has been. Returns the first hole
    /// if it was time to look.
    pub(crate) fn on_access(&mut self, access: &Access) -> Option<Hole> {
        self.settle();
        let writes = !matches!(
            access.kind,
            Kind::Load
                | Kind::Fence
                | Kind::FullFence
                | Kind::GuardedRead
                | Kind::BytesRead
                | Kind::Prefetch
                | Kind::PrefetchToWrite
                | Kind::LockAwaited
                | Kind::LockWaitEnded
                | Kind::LockTaken
                | Kind::LockReleased
        );
        self.pending = writes.then_some(*access);
        if access.kind == Kind::GuardedWrite {
            self.guarded.insert(access.address, access.bytes);
        }
        self.until_look -= 1;
        if self.until_look > 0 {
            return None;
        }
        self.look()
    }

    /// What was reported before has been written: copies it.
    fn settle(&mut self) {
        if let Some(access) = self.pending.take() {
            self.copy(access.address, access.bytes);
        }
    }

    fn copy(&mut self, address: usize, bytes: usize) {
        for place in &mut self.places {
            let start = address.wrapping_sub(place.memory.addr());
            if start < place.copy.len() {
                let end = place.copy.len().min(start + bytes);
                // SAFETY: the promise of whoever called `new`.
                let now = unsafe { place.now() }[start..end].to_vec();
                place.copy[start..end].copy_from_slice(&now);
            }
        }
    }

    /// Looks at all memory; what is being written now is not looked at.
    fn look(&mut self) -> Option<Hole> {
        self.until_look = INTERVAL;
        for (address, bytes) in self.guarded.clone() {
            self.copy(address, bytes);
        }
        let places = self.places.iter().enumerate();
        let mut holes = places.filter_map(|(number, place)| {
            // SAFETY: the promise of whoever called `new`.
            let now = unsafe { place.now() };
            if *now == *place.copy {
                return None;
            }
            let differs = |offset: &usize| now[*offset] != place.copy[*offset];
            let offset = (0..now.len()).find(differs)?;
            let place = number;
            Some(Hole { place, offset })
        });
        holes.next()
    }

    /// The first hole, when all accesses have been made.
    pub(crate) fn finish(&mut self) -> Option<Hole> {
        self.settle();
        self.look()
    }
}
