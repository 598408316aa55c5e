//! Who has which cache line, and what getting one costs.
//!
//! A line is owned by one core, shared by several, or in memory only. What a core has got it
//! keeps until another writes it, or, if the description says how much its caches hold and the
//! line is its own, until it has fetched as many others since it used it last. A line serves one
//! transfer at a time, so that cores which want it at once queue up; of a line that
//! several cores have, a reader takes up only a slot.

mod pages;

use std::mem;

use vellum::platform::NodeId;

use crate::costs::{CostId, Costs};
use crate::line::{By, Line, LineId, NOBODY, Pace, Served, Write};
use crate::places::{LINE, PAGE_LINES, Places, Spot};
use crate::profile::{LineCosts, PricedLine};
use crate::recent::RecentLines;
use crate::room::{Keeper, Room, Stamp};
use crate::sharers::SharerSets;
use crate::topology::{Level, Topology};
use vellum_description::Description;

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

    /// Makes an access to a line that the core has, at its price, if that is all there is to it and
    /// the CPU's pace allows it. Returns how often the line has been written then.
    #[inline]
    pub(crate) fn use_had(
        &mut self,
        id: LineId,
        by: By,
        (how, price): (Option<Write>, u64),
        pace: Pace,
    ) -> Option<u32> {
        let id = id as usize;
        let line = &mut self.pages[id / PAGE_LINES][id % PAGE_LINES];
        let is_near = line.is_near(by);
        let has = match (is_near, how) {
            (true, None) => true,
            (true, Some(_)) => line.free_at <= by.now && line.waiters == NOBODY,
            (false, None) => self.sharers.contains(line.sharers(), by.core),
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
        if how.is_some() {
            line.version = line.version.wrapping_add(1);
            line.words |= by.words;
            line.free_at = by.now + price;
        }
        Some(line.version)
    }

    /// Whether a CPU can use a line without regard to the others' clocks: for some time nobody else
    /// has, or all have only read it.
    #[inline]
    pub(crate) fn is_settled(&self, id: LineId, by: By, writes: bool) -> bool {
        let line = self.line_of(id);
        let has = line.is_near(by) || (!writes && self.sharers.contains(line.sharers(), by.core));
        has && line.since.is_settled(by.now)
    }

    /// What an access to a line that the core has costs, a read or how it is written.
    #[inline]
    pub(crate) fn price(&self, how: Option<Write>) -> u64 {
        match how {
            None | Some(Write::Store) => self.hit,
            Some(Write::Update) => self.update,
        }
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
        let sharers = line.sharers();
        if self.sharers.contains(sharers, by.core) {
            return Served {
                at: now + self.hit,
                from: None,
            };
        }
        let start = now.max(line.free_at);
        let home = self.home(id);
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
            let price = self.price(Some(how));
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
        self.costs.id(id, &self.spots)
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
