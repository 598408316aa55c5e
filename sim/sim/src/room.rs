//! What caches have room for: lines of a core's own, and pages that a cluster has moved.

use crate::places::{LINE, Moved};
use vellum_description::{Description, Time};

const LINE_BYTES: u64 = LINE as u64;

/// How much had passed through the caches that have a line, when its owner used it last.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stamp {
    /// Lines that the core had fetched.
    fetched: u32,
    /// Lines that had been moved into its cluster.
    moved: u32,
}

impl Stamp {
    /// Of a line that nobody has used.
    pub(crate) const NONE: Stamp = Stamp {
        fetched: 0,
        moved: 0,
    };
}

/// Who has a line of a core's own still.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Keeper {
    Core,
    Cluster,
    Nobody,
}

/// What has passed through the caches.
#[derive(Debug)]
pub(crate) struct Room {
    /// Lines that a core's own caches hold; 0 if it loses none.
    own_lines: u32,
    /// Bytes that the caches of a cluster hold of what was moved in bulk; 0 if none.
    cache: u64,
    /// Lines that each core has fetched, those of pages moved in bulk included.
    fetched: Vec<u32>,
    /// Bytes that were moved into the caches of each cluster.
    moved: Vec<u64>,
    /// What a line takes that its core has lost and its cluster has.
    pub(crate) lost: u64,
    /// The share of the time of lost lines for which a core waits.
    exposed: f64,
}

impl Room {
    pub(crate) fn new(machine: &Description) -> Room {
        let processor = &machine.processor;
        let clusters = machine.cores().div_ceil(machine.topology.cores_per_cluster);
        Room {
            own_lines: (processor.own_cache.as_ref())
                .map_or(0, |kib| (kib.count * 1024.0) as u32 / LINE as u32),
            cache: (processor.cache.as_ref()).map_or(0, |kib| (kib.count as u64) << 10),
            fetched: vec![0; machine.cores()],
            moved: vec![0; clusters],
            lost: machine.lines.cached.as_ref().map_or(0, Time::ps),
            exposed: processor
                .exposed
                .as_ref()
                .map_or(1.0, |exposed| exposed.share),
        }
    }

    /// Whether cores lose lines.
    #[inline]
    pub(crate) fn is_limited(&self) -> bool {
        self.own_lines > 0
    }

    /// Of a line that a core uses now.
    #[inline]
    pub(crate) fn now(&self, core: u32, cluster: u32) -> Stamp {
        Stamp {
            fetched: self.fetched[core as usize],
            moved: (self.moved[cluster as usize] / LINE_BYTES) as u32,
        }
    }

    /// Of the lines of a page that a core has written in bulk.
    pub(crate) fn when_moved(&self, page: Moved, core: u32, cluster: u32) -> Stamp {
        let now = self.now(core, cluster);
        if self.cache == 0 {
            return now;
        }
        let since = self.moved[cluster as usize].saturating_sub(page.before) / LINE_BYTES;
        Stamp {
            fetched: now.fetched.wrapping_sub(since as u32),
            moved: (page.before / LINE_BYTES) as u32,
        }
    }

    /// Who has a line that was used at `then`.
    pub(crate) fn keeper(&self, then: Stamp, now: Stamp) -> Keeper {
        let moved = u64::from(now.moved.wrapping_sub(then.moved));
        if now.fetched.wrapping_sub(then.fetched) < self.own_lines {
            Keeper::Core
        } else if self.cache > 0 && moved >= self.cache / LINE_BYTES {
            Keeper::Nobody
        } else {
            Keeper::Cluster
        }
    }

    /// For how much of the time that a lost line takes its core waits.
    pub(crate) fn exposed(&self, price: u64) -> u64 {
        (price as f64 * self.exposed) as u64
    }

    /// A core has fetched so many bytes.
    #[inline]
    pub(crate) fn fetch(&mut self, core: u32, bytes: u64) {
        let fetched = &mut self.fetched[core as usize];
        *fetched = fetched.wrapping_add((bytes / LINE_BYTES) as u32);
    }

    /// A line has come into a cluster from memory.
    #[inline]
    pub(crate) fn move_line(&mut self, cluster: u32) {
        if self.own_lines > 0 && self.cache > 0 {
            self.moved[cluster as usize] += LINE_BYTES;
        }
    }

    /// A cluster moves bytes of a page in bulk. Returns whether it has the page. It has it
    /// afterwards, unless the page goes `around` its caches.
    pub(crate) fn move_page(
        &mut self,
        page: &mut Moved,
        bytes: u64,
        cluster: u32,
        around: bool,
    ) -> bool {
        let passed = &mut self.moved[cluster as usize];
        let now = *passed;
        let was_here = page.cluster == cluster + 1 && now - page.before < self.cache;
        page.cluster = if around { 0 } else { cluster + 1 };
        page.before = now;
        if !around {
            *passed += bytes;
        }
        was_here && !around
    }

    /// Whether clusters have pages at all.
    #[inline]
    pub(crate) fn has_pages(&self) -> bool {
        self.cache > 0
    }
}
