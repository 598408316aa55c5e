//! Who has which cache line, and what getting one costs.
//!
//! A line is owned by one core, shared by several, or in memory only. What a core has got it
//! keeps until another writes it, or, if the description says how much its caches hold and the
//! line is its own, until it has fetched as many others since it used it last. A line serves one
//! transfer at a time, so that cores which want it at once queue up; of a line that
//! several cores have, a reader takes up only a slot.

use std::mem;

use vellum::platform::NodeId;

use crate::costs::{CostId, Costs};
use crate::places::{LINE, PAGE_LINES, Places, Slot, Spot};
use crate::profile::{LineCosts, PricedLine};
use crate::recent::RecentLines;
use crate::room::{Keeper, Room, Stamp};
use crate::sharers::SharerSets;
use crate::topology::{Level, Topology};
use vellum_description::Description;

/// No core, no CPU.
pub(crate) const NOBODY: u16 = u16::MAX;

/// A line of the directory: its page and its number there.
pub(crate) type LineId = u32;

/// What is known of one line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line {
    /// When it can be transferred again.
    free_at: u64,
    /// Of a line with an owner: when that used it last. Of another: the set of cores that share
    /// it; 0 if none does.
    held: u64,
    /// How often it was written.
    pub(crate) version: u32,
    /// Since when the same CPU owns it, or cores share it.
    since: Coarse,
    /// The core that owns it.
    owner: u16,
    /// The CPU of the owner that used it last.
    near: u16,
    /// First of the CPUs that spin on it.
    pub(crate) waiters: u16,
    /// Words that were written since it has its owner, a bit each.
    words: u8,
}

const NEW: Line = Line {
    free_at: 0,
    held: 0,
    version: 0,
    since: Coarse(0),
    owner: NOBODY,
    near: NOBODY,
    waiters: NOBODY,
    words: 0,
};

// Two to a line of the host.
const _: () = assert!(size_of::<Line>() == 32);

impl Line {
    /// The set of cores that share it; 0 if it has an owner, or nobody has it.
    #[inline]
    fn sharers(&self) -> u32 {
        match self.owner {
            NOBODY => self.held as u32,
            _ => 0,
        }
    }

    /// Whether a CPU of the core that owns it is the last that used it, or nobody has.
    #[inline]
    fn is_near(&self, by: By) -> bool {
        u32::from(self.owner) == by.core && (self.near == by.cpu || self.near == NOBODY)
    }

    /// When it can be used. Its owner may have run ahead of who uses it next, and who then sees
    /// what the owner did there: so that comes after.
    #[inline]
    fn after_owner(&self, by: By) -> u64 {
        match self.owner {
            NOBODY => by.now,
            _ if self.near == by.cpu => by.now,
            _ => by.now.max(self.held),
        }
    }

    /// It is the core's of who uses it at `now`.
    #[inline]
    fn own(&mut self, by: By, now: u64) {
        if u32::from(self.owner) != by.core || self.near != by.cpu {
            self.since = Coarse::of(now);
            self.owner = by.core as u16;
            self.near = by.cpu;
        }
        self.held = now;
    }

    /// It is shared by a set of cores from `now` on.
    fn share(&mut self, set: u32, now: u64) {
        self.owner = NOBODY;
        self.held = u64::from(set);
        self.since = Coarse::of(now);
    }
}

/// A time in microseconds, about, without the hours.
#[derive(Clone, Copy, Debug)]
struct Coarse(u32);

/// For how long nothing has to have happened to a line that its CPUs use without regard to the
/// others' clocks.
const SETTLED: u32 = 20;

impl Coarse {
    #[inline]
    fn of(time: u64) -> Coarse {
        Coarse((time >> 20) as u32)
    }

    /// Whether it is some time ago.
    #[inline]
    fn is_settled(self, now: u64) -> bool {
        Coarse::of(now).0.wrapping_sub(self.0) > SETTLED
    }
}

/// Who makes an access, when, and to which words of the line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct By {
    pub(crate) cpu: u16,
    pub(crate) core: u32,
    pub(crate) now: u64,
    pub(crate) words: u8,
}

/// How far a CPU's clock is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pace {
    /// It is its turn.
    Turn,
    /// It may use nothing but settled lines.
    Ahead,
}

/// How an access went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Served {
    /// When it is done.
    pub(crate) at: u64,
    /// From how far the line came; `None` if the core had it.
    pub(crate) from: Option<Level>,
}

/// How a line is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Write {
    Store,
    Update,
}

/// The lines of all places.
#[derive(Debug)]
pub(crate) struct Directory {
    pub(crate) topology: Topology,
    pub(crate) places: Places,
    pages: Vec<[Line; PAGE_LINES]>,
    /// When the owner of each line used it last; none if cores lose no lines.
    used: Vec<[Stamp; PAGE_LINES]>,
    pub(crate) recent: RecentLines,
    spots: Vec<Spot>,
    /// The node that each page of lines is on.
    homes: Vec<NodeId>,
    /// Pages that are not used.
    free_pages: Vec<u32>,
    pub(crate) costs: Costs,
    sharers: SharerSets,
    /// When the memory of each node is free.
    nodes: Vec<u64>,
    /// Bytes that the memory of each provided or took in bulk.
    streamed: Vec<u64>,
    room: Room,
    hit: u64,
    update: u64,
    slot: u64,
    /// How long a line keeps a node's memory busy.
    line_from_node: u64,
}

impl Directory {
    pub(crate) fn new(machine: &Description, places: Places) -> Directory {
        let topology = Topology::new(machine);
        Directory {
            sharers: SharerSets::new(topology.cores),
            topology,
            places,
            pages: Vec::new(),
            used: Vec::new(),
            recent: RecentLines::new(),
            spots: Vec::new(),
            homes: Vec::new(),
            free_pages: Vec::new(),
            costs: Costs::default(),
            nodes: vec![0; machine.nodes()],
            streamed: vec![0; machine.nodes()],
            room: Room::new(machine),
            hit: machine.lines.hit.ps(),
            update: machine.lines.update.ps(),
            slot: machine.lines.slot.ps(),
            line_from_node: machine.bandwidth.node.ps(LINE as u64),
        }
    }

    /// Makes an access to a line that the core has, if that is all there is to it and the CPU's
    /// pace allows it. Returns how often the line has been written then.
    #[inline]
    pub(crate) fn use_had(
        &mut self,
        id: LineId,
        by: By,
        how: Option<Write>,
        pace: Pace,
    ) -> Option<u32> {
        let id = id as usize;
        let line = &mut self.pages[id / PAGE_LINES][id % PAGE_LINES];
        let is_near = line.is_near(by);
        let has = match (is_near, how) {
            (true, None) => true,
            (true, Some(_)) => line.free_at <= by.now && line.waiters == NOBODY,
            (false, None) => {
                let set = line.sharers();
                set != 0 && self.sharers.contains(set, by.core)
            }
            (false, Some(_)) => false,
        };
        if !has || (pace == Pace::Ahead && !line.since.is_settled(by.now)) {
            return None;
        }
        if is_near {
            if self.room.is_limited() {
                let now = self.room.now(by.core, self.topology.cluster_of(by.core));
                let used = &mut self.used[id / PAGE_LINES][id % PAGE_LINES];
                if self.room.keeper(*used, now) != Keeper::Core {
                    return None;
                }
                *used = now;
            }
            line.own(by, by.now);
        }
        if let Some(how) = how {
            line.version = line.version.wrapping_add(1);
            line.words |= by.words;
            line.free_at = by.now
                + match how {
                    Write::Store => self.hit,
                    Write::Update => self.update,
                };
        }
        Some(line.version)
    }

    /// Whether a CPU can use a line without regard to the others' clocks: for some time nobody else
    /// has, or all have only read it.
    #[inline]
    pub(crate) fn is_settled(&self, id: LineId, by: By, writes: bool) -> bool {
        let line = self.line_of(id);
        let has = line.is_near(by) || (!writes && self.shares(line, by.core));
        has && line.since.is_settled(by.now)
    }

    /// Whether a core is one of several that have a line.
    #[inline]
    fn shares(&self, line: &Line, core: u32) -> bool {
        let set = line.sharers();
        set != 0 && self.sharers.contains(set, core)
    }

    /// The line at an offset of a place.
    #[inline]
    pub(crate) fn line_at(&mut self, place: u16, offset: usize) -> LineId {
        let (spot, line) = Places::spot(place, offset);
        let page = match *self.places.slot(place, offset) {
            Slot::Lines(page) => page,
            Slot::Untouched => self.begin_page(spot, offset, NOBODY),
            Slot::Filled(core) => self.begin_page(spot, offset, core),
        };
        page * PAGE_LINES as u32 + line as u32
    }

    /// Lines of a page are used one by one from now on, all of which a core has, or nobody.
    #[cold]
    #[inline(never)]
    fn begin_page(&mut self, spot: Spot, offset: usize, owner: u16) -> u32 {
        let used = match owner {
            core if core != NOBODY && self.room.is_limited() => {
                let moved = *self.places.moved(spot.place, offset);
                let core = u32::from(core);
                let cluster = self.topology.cluster_of(core);
                self.room.when_moved(moved, core, cluster)
            }
            _ => Stamp::NONE,
        };
        let home = self.places.home(spot.place, Places::offset(spot));
        let line = Line { owner, ..NEW };
        let page = match self.free_pages.pop() {
            Some(page) => {
                let index = page as usize;
                // Whoever has loaded a line that was here does not take it for the one that is.
                for before in &mut self.pages[index] {
                    let version = before.version.wrapping_add(1);
                    *before = Line { version, ..line };
                }
                if self.room.is_limited() {
                    self.used[index] = [used; PAGE_LINES];
                }
                self.spots[index] = spot;
                self.homes[index] = home;
                page
            }
            None => {
                if self.room.is_limited() {
                    self.used.push([used; PAGE_LINES]);
                }
                self.pages.push([line; PAGE_LINES]);
                self.spots.push(spot);
                self.homes.push(home);
                self.pages.len() as u32 - 1
            }
        };
        self.costs.begin_page(page, spot);
        *self.places.slot(spot.place, offset) = Slot::Lines(page);
        page
    }

    /// All of a page is written in bulk, so that its lines need not be told apart, unless somebody
    /// spins on one of them. Returns whether that is so.
    fn end_page(&mut self, place: u16, offset: usize, page: u32) -> bool {
        let lines = &self.pages[page as usize];
        if lines.iter().any(|line| line.waiters != NOBODY) {
            return false;
        }
        for line in lines {
            match line.sharers() {
                0 => {}
                set => self.sharers.free(set),
            }
        }
        self.recent.forget_page(self.places.address(place, offset));
        self.free_pages.push(page);
        true
    }

    /// A line that its owner uses: if it has lost it for want of room, from where it comes back,
    /// and what that takes from `start` on.
    #[inline]
    fn regain(&mut self, id: LineId, core: u32, start: u64) -> Option<(Level, u64)> {
        if !self.room.is_limited() {
            return None;
        }
        let now = self.room.now(core, self.topology.cluster_of(core));
        let then = mem::replace(self.used(id), now);
        let (level, price) = match self.room.keeper(then, now) {
            Keeper::Core => return None,
            Keeper::Cluster => (Level::Cluster, self.room.lost),
            Keeper::Nobody => {
                let home = self.home(id);
                self.fetch(core, home, start)
            }
        };
        self.note_fetch(id, core);
        Some((level, self.room.exposed(price).max(self.hit)))
    }

    /// A core has fetched a line.
    #[inline]
    fn note_fetch(&mut self, id: LineId, core: u32) {
        if self.room.is_limited() {
            self.room.fetch(core, LINE as u64);
            self.stamp(id, core);
        }
    }

    /// The core that has the line uses it.
    fn stamp(&mut self, id: LineId, core: u32) {
        if self.room.is_limited() {
            *self.used(id) = self.room.now(core, self.topology.cluster_of(core));
        }
    }

    fn used(&mut self, id: LineId) -> &mut Stamp {
        let id = id as usize;
        &mut self.used[id / PAGE_LINES][id % PAGE_LINES]
    }

    #[inline]
    pub(crate) fn line(&mut self, id: LineId) -> &mut Line {
        let id = id as usize;
        &mut self.pages[id / PAGE_LINES][id % PAGE_LINES]
    }

    #[inline]
    fn line_of(&self, id: LineId) -> &Line {
        let id = id as usize;
        &self.pages[id / PAGE_LINES][id % PAGE_LINES]
    }

    #[inline]
    fn home(&self, id: LineId) -> NodeId {
        self.homes[id as usize / PAGE_LINES]
    }

    /// Reads from the line.
    pub(crate) fn read(&mut self, id: LineId, by: By) -> Served {
        let line = *self.line_of(id);
        let now = line.after_owner(by);
        if u32::from(line.owner) == by.core {
            let served = match self.regain(id, by.core, now) {
                Some((level, price)) => Served {
                    at: now + price,
                    from: Some(level),
                },
                None => self.own_or_siblings(&line, by, now, self.hit),
            };
            self.line(id).own(by, now);
            if served.from.is_some_and(|level| level > Level::Core) {
                self.note_miss(id, by, &line, served, false);
            }
            return served;
        }
        if self.shares(&line, by.core) {
            return Served {
                at: now + self.hit,
                from: None,
            };
        }
        let start = now.max(line.free_at);
        let home = self.home(id);
        let sharers = line.sharers();
        let (level, price) = if line.owner != NOBODY {
            let owner = u32::from(line.owner);
            let (level, price) = self.topology.transfer(by.core, owner, home);
            let set = self.sharers.new_set();
            self.sharers.insert(set, owner);
            self.sharers.insert(set, by.core);
            let line = self.line(id);
            line.share(set, now);
            line.free_at = start + price;
            (level, price)
        } else if sharers != 0 {
            let nearest = self.sharers.nearest(&self.topology, sharers, by.core);
            let (level, price) = self.topology.transfer(by.core, nearest, home);
            self.sharers.insert(sharers, by.core);
            let slot = self.slot;
            self.line(id).free_at = start + slot;
            (level, price)
        } else {
            let (level, price) = self.fetch(by.core, home, start);
            let line = self.line(id);
            line.own(by, now);
            line.free_at = start + price;
            (level, price)
        };
        let served = Served {
            at: start + price,
            from: Some(level),
        };
        self.note_fetch(id, by.core);
        self.note_miss(id, by, &line, served, false);
        served
    }

    /// Writes to the line, for which the core has to own it.
    pub(crate) fn write(&mut self, id: LineId, by: By, how: Write) -> Served {
        let line = *self.line_of(id);
        let now = line.after_owner(by);
        let owned = u32::from(line.owner) == by.core;
        // It may still be on its way here, for a store before.
        let start = now.max(line.free_at);
        let served = if owned {
            let price = match how {
                Write::Store => self.hit,
                Write::Update => self.update,
            };
            match self.regain(id, by.core, start) {
                Some((level, fetching)) => Served {
                    at: start + fetching + price - self.hit.min(price),
                    from: Some(level),
                },
                None => self.own_or_siblings(&line, by, start, price),
            }
        } else {
            let home = self.home(id);
            let sharers = line.sharers();
            let (level, price) = if line.owner != NOBODY {
                self.topology.transfer(by.core, u32::from(line.owner), home)
            } else if sharers != 0 {
                let level = self.sharers.farthest(&self.topology, sharers, by.core);
                let level = if level > Level::Cluster {
                    level.max(self.topology.to_memory(by.core, home))
                } else {
                    level
                };
                self.sharers.free(sharers);
                (level, self.topology.transfer_at(level))
            } else {
                self.fetch(by.core, home, start)
            };
            self.note_fetch(id, by.core);
            Served {
                at: start + price,
                from: Some(level),
            }
        };
        let now_line = self.line(id);
        now_line.own(by, now);
        now_line.free_at = served.at;
        now_line.version = now_line.version.wrapping_add(1);
        now_line.words = if owned {
            line.words | by.words
        } else {
            by.words
        };
        if served.from.is_some() {
            self.note_miss(id, by, &line, served, true);
        }
        served
    }

    /// Gets the line for the core as a write would, without writing. `None` if the core owns it.
    pub(crate) fn take(&mut self, id: LineId, by: By) -> Option<Served> {
        let before = *self.line(id);
        if u32::from(before.owner) == by.core {
            return None;
        }
        let served = self.write(id, by, Write::Store);
        // Nobody has changed a word.
        let line = self.line(id);
        (line.version, line.words) = (before.version, 0);
        Some(served)
    }

    /// An access to a line that the core owns: a hit, unless the core's other thread used it last.
    #[inline]
    fn own_or_siblings(&self, line: &Line, by: By, start: u64, price: u64) -> Served {
        match line.is_near(by) {
            true => Served {
                at: start + price,
                from: None,
            },
            false => Served {
                at: start + self.topology.transfer_at(Level::Core),
                from: Some(Level::Core),
            },
        }
    }

    /// A line from memory: the price with the wait for the node.
    fn fetch(&mut self, core: u32, home: NodeId, start: u64) -> (Level, u64) {
        let (level, price) = self.topology.memory_price(core, home);
        self.room.move_line(self.topology.cluster_of(core));
        let busy = self.line_from_node;
        let begun = self.occupy(home, start, busy);
        (level, begun - start + price)
    }

    /// Keeps a node's memory busy for a time; returns when that begins.
    fn occupy(&mut self, node: NodeId, start: u64, busy: u64) -> u64 {
        let free_at = &mut self.nodes[usize::from(node.0)];
        let begun = start.max(*free_at);
        *free_at = begun + busy;
        begun
    }

    /// Moves bytes in bulk from or to memory, which keeps its node busy for a time; returns when
    /// the node is done with them.
    pub(crate) fn stream(
        &mut self,
        (place, offset): (u16, usize),
        bytes: u64,
        start: u64,
        busy: u64,
    ) -> u64 {
        let node = self.places.home(place, offset);
        self.streamed[usize::from(node.0)] += bytes;
        self.occupy(node, start, busy) + busy
    }

    /// Bytes of a page are moved in bulk by a core. Returns whether its caches have the page.
    /// They have it afterwards, unless it goes `around` them.
    pub(crate) fn is_cached(
        &mut self,
        (place, offset): (u16, usize),
        bytes: u64,
        core: u32,
        around: bool,
    ) -> bool {
        if !around {
            self.room.fetch(core, bytes);
        }
        if !self.room.has_pages() {
            return false;
        }
        let cluster = self.topology.cluster_of(core);
        let page = self.places.moved(place, offset);
        self.room.move_page(page, bytes, cluster, around)
    }

    /// Bytes of a place were written in bulk, until `at`. Calls `woken` with each line
    /// that somebody spins on.
    pub(crate) fn fill(
        &mut self,
        (place, offset): (u16, usize),
        bytes: usize,
        by: By,
        at: u64,
        mut woken: impl FnMut(&mut Directory, LineId),
    ) {
        let end = offset + bytes.min(self.places.left(place, offset));
        let page_bytes = PAGE_LINES * LINE;
        let mut from = offset;
        while from < end {
            let to = end.min((from / page_bytes + 1) * page_bytes);
            let slot = *self.places.slot(place, from);
            let whole = to - from == page_bytes;
            let is_filled = match slot {
                Slot::Filled(_) => whole,
                Slot::Untouched => {
                    if whole {
                        self.places.discard(place, from);
                    }
                    whole
                }
                Slot::Lines(page) => {
                    let ended = whole && self.end_page(place, from, page);
                    if ended {
                        self.places.discard(place, from);
                    }
                    ended
                }
            };
            if is_filled {
                *self.places.slot(place, from) = Slot::Filled(by.core as u16);
            } else {
                for offset in (from..to).step_by(LINE) {
                    let id = self.line_at(place, offset);
                    self.take_over(id, by, at);
                    woken(self, id);
                }
            }
            from = to;
        }
    }

    fn take_over(&mut self, id: LineId, by: By, at: u64) {
        let set = self.line_of(id).sharers();
        if set != 0 {
            self.sharers.free(set);
        }
        self.stamp(id, by.core);
        let line = self.line(id);
        line.own(by, by.now);
        line.words = u8::MAX;
        line.version = line.version.wrapping_add(1);
        line.free_at = line.free_at.max(at);
    }

    #[inline]
    fn note_miss(&mut self, id: LineId, by: By, before: &Line, served: Served, writes: bool) {
        let hit = self.hit;
        let costs = self.costs_of(id);
        costs.lost += (served.at - by.now).saturating_sub(hit);
        if writes {
            costs.write_misses += 1;
        } else {
            costs.read_misses += 1;
        }
        // Another CPU wrote it, but not what this one is after.
        if before.words != 0 && before.near != by.cpu && before.words & by.words == 0 {
            costs.false_misses += 1;
        }
    }

    /// Bytes that the memory of each node provided or took in bulk.
    pub(crate) fn streamed(&self) -> &[u64] {
        &self.streamed
    }

    /// Forgets what lines have cost and nodes have moved.
    pub(crate) fn forget_costs(&mut self) {
        self.costs.forget();
        self.streamed.fill(0);
    }

    /// Where the costs of a line are.
    #[inline]
    pub(crate) fn cost_id(&mut self, id: LineId) -> CostId {
        let spot = self.spots[id as usize / PAGE_LINES];
        self.costs.id(id, spot)
    }

    #[inline]
    pub(crate) fn costs_of(&mut self, id: LineId) -> &mut LineCosts {
        let id = self.cost_id(id);
        self.costs.at(id)
    }

    /// Every line with costs.
    pub(crate) fn all_costs(&self) -> impl Iterator<Item = PricedLine<'_>> {
        self.costs.all().map(|(spot, line, costs)| {
            let (place, start) = self.places.named(spot.place);
            let offset = Places::offset(spot) + line * LINE;
            PricedLine {
                place,
                offset,
                address: start + offset,
                costs,
            }
        })
    }
}
