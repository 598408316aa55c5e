//! Accesses: what each costs the CPU that makes it.

use vellum::sync::report::{Access, Kind};

use super::{CpuState, State, TOO_LATE};
use crate::clocks::{LATEST, key};
use crate::costs::CostId;
use crate::line::{By, LineId, Pace, Served, Write};
use crate::places::LINE;

/// How far a CPU may run ahead of the others as long as it uses nothing but settled lines
/// (`Directory::is_settled`), in picoseconds. Whoever then takes such a line may get it that much
/// later than it should.
const RUN_AHEAD: u64 = 500_000;
/// Lines that a CPU can have asked for ahead.
const PREFETCHES: usize = 16;

/// Where an access goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Target {
    /// The stack of the CPU that makes it.
    Stack,
    /// A place, at an offset.
    Place(u16, usize),
    /// Memory that was not placed.
    Nowhere,
}

/// Whether an access is to words of one line. Atomics do not go across lines; some are wider than
/// a word.
#[inline]
pub(crate) fn is_of_words(access: &Access) -> bool {
    matches!(
        access.kind,
        Kind::Load | Kind::Store | Kind::ReadModifyWrite
    ) && access.address % LINE + access.bytes <= LINE
}

/// The words of a line that bytes from an offset in it are in, a bit each.
fn words(offset: usize, bytes: usize) -> u8 {
    let last = offset + bytes - 1;
    (offset / 8..=last / 8).fold(0, |words, word| words | 1 << word)
}

impl CpuState {
    /// A line that the CPU has written has been written so often now.
    #[inline]
    fn note_own_write(&mut self, id: LineId, version: u32) {
        if let Some((line, seen)) = &mut self.last_load
            && *line == id
            && seen.wrapping_add(1) == version
        {
            *seen = version;
        }
    }
}

impl State {
    #[inline]
    pub(crate) fn target(&mut self, address: usize) -> Target {
        if self.me().stack.contains(&address) {
            return Target::Stack;
        }
        match self.directory.places.find(address) {
            Some((place, offset)) => Target::Place(place, offset),
            None => Target::Nowhere,
        }
    }

    /// The first part of an access: the instructions before it, and stores that have to
    /// be done by then.
    #[inline]
    pub(crate) fn prepare(&mut self, kind: Kind) {
        if kind == Kind::Fence {
            return;
        }
        let work = self.me().work;
        self.me().totals.reports += 1;
        self.compute(work);
        if matches!(kind, Kind::FullFence | Kind::ReadModifyWrite) {
            self.drain();
        }
    }

    /// Waits until all stores are done.
    #[inline]
    pub(super) fn drain(&mut self) {
        if let Some(&(done, costs)) = self.me().stores.back() {
            self.drain_until(done, costs);
        }
    }

    fn drain_until(&mut self, done: u64, costs: CostId) {
        let me = self.me();
        me.stores.clear();
        let waited = done.saturating_sub(me.clock);
        me.clock += waited;
        if waited > 0 {
            self.directory.costs.at(costs).lost += waited;
        }
    }

    /// A full fence, and a hit for each of `others`.
    pub(crate) fn look_at(&mut self, others: u64) {
        self.drain();
        self.compute(self.prices.update + others * self.prices.hit);
    }

    /// Makes an access to words of a line that the running CPU's core has, if that is all there is
    /// to it and the CPU may, as [`State::prepare`] and [`State::carry_out`] would. Most accesses of
    /// most programs are such.
    #[inline]
    pub(crate) fn use_had(&mut self, access: &Access, id: LineId) -> bool {
        let how = match access.kind {
            Kind::Load => None,
            Kind::Store => Some(Write::Store),
            _ => Some(Write::Update),
        };
        let is_shared = self.is_shared();
        let me = &self.cpus[self.current as usize];
        let now = me.clock + self.prices.taken(me.work, is_shared);
        if (how.is_some() && !me.stores.is_empty()) || me.expects_until > now {
            return false;
        }
        let pace = if key(now, me.rank) <= self.others {
            Pace::Turn
        } else if !self.is_too_far_ahead(now) {
            Pace::Ahead
        } else {
            return false;
        };
        let by = By {
            cpu: self.current as u16,
            core: me.core,
            now,
            words: 1 << (access.address % LINE / 8),
        };
        let price = self.directory.price(how);
        let Some(version) = self.directory.use_had(id, by, (how, price), pace) else {
            return false;
        };
        let inside = price.min(self.prices.hit);
        let me = &mut self.cpus[self.current as usize];
        me.clock = now + price - inside + self.prices.taken(inside.min(me.hit), is_shared);
        me.totals.reports += 1;
        me.totals.accesses += 1;
        match how {
            None => me.last_load = Some((id, version)),
            Some(_) => me.note_own_write(id, version),
        }
        assert!(me.clock < LATEST, "{TOO_LATE}");
        true
    }

    /// Whether a CPU whose clock shows `time` may not go on, even on lines of its own.
    #[inline]
    fn is_too_far_ahead(&self, time: u64) -> bool {
        key(time, 0) > self.others.saturating_add(key(RUN_AHEAD, 0))
    }

    /// Whether an access can be made without regard to the others' clocks: to settled lines.
    pub(crate) fn is_free(&mut self, access: &Access, place: u16, offset: usize) -> bool {
        match access.kind {
            Kind::BytesRead
            | Kind::BytesWritten
            | Kind::BytesFilled
            | Kind::BytesZeroed
            | Kind::BytesZeroedAround => false,
            _ => {
                let end = offset + access.bytes.min(self.directory.places.left(place, offset));
                (offset / LINE..end.div_ceil(LINE)).all(|line| {
                    let id = self.directory.line_at(place, line * LINE);
                    self.is_settled(id, access.kind)
                })
            }
        }
    }

    /// The same of an access to one line.
    #[inline]
    pub(crate) fn is_settled(&self, line: LineId, kind: Kind) -> bool {
        let writes = !matches!(kind, Kind::Load | Kind::GuardedRead | Kind::Prefetch);
        let by = self.by(0);
        !self.is_too_far_ahead(by.now) && self.directory.is_settled(line, by, writes)
    }

    pub(super) fn by(&self, words: u8) -> By {
        let cpu = &self.cpus[self.current as usize];
        By {
            cpu: self.current as u16,
            core: cpu.core,
            now: cpu.clock,
            words,
        }
    }

    /// The second part of an access, when it is the running CPU's turn.
    pub(crate) fn carry_out(&mut self, access: &Access, target: Target) {
        match (access.kind, target) {
            (Kind::Fence, _) => {}
            (Kind::FullFence, _) => self.compute(self.prices.update),
            (Kind::Prefetch, Target::Place(place, offset)) => {
                self.prefetch(place, offset, access.bytes);
            }
            (Kind::PrefetchToWrite, Target::Place(place, offset)) => {
                self.prefetch_to_write(place, offset);
            }
            (Kind::Prefetch | Kind::PrefetchToWrite | Kind::Bookkeeping, _)
            | (Kind::LockAwaited | Kind::LockWaitEnded | Kind::LockTaken | Kind::LockReleased, _) =>
                {}
            (_, Target::Place(place, offset)) => self.access(access, place, offset),
            (_, Target::Stack | Target::Nowhere) => {
                let hit = self.me().hit;
                self.compute(hit);
            }
        }
    }

    fn access(&mut self, access: &Access, place: u16, offset: usize) {
        let bytes = access.bytes.min(self.directory.places.left(place, offset));
        match access.kind {
            Kind::BytesRead | Kind::BytesWritten => {
                // Reading is one half of copying, writing the other.
                let rates = self.prices.copy.map(|rate| rate * 2.0);
                self.stream(place, offset, bytes, rates, access.kind);
            }
            Kind::BytesFilled | Kind::BytesZeroed | Kind::BytesZeroedAround => {
                self.stream(place, offset, bytes, self.prices.zero, access.kind);
            }
            _ if is_of_words(access) => {
                let id = self.directory.line_at(place, offset);
                self.directory.recent.note(access.address, id);
                self.use_line(access, id);
            }
            Kind::Load | Kind::GuardedRead => self.read(place, offset, bytes),
            Kind::Store | Kind::ReadModifyWrite | Kind::GuardedWrite | Kind::PlainWrite => {
                self.overwrite(place, offset, bytes)
            }
            Kind::Fence
            | Kind::FullFence
            | Kind::Prefetch
            | Kind::PrefetchToWrite
            | Kind::Bookkeeping
            | Kind::LockAwaited
            | Kind::LockWaitEnded
            | Kind::LockTaken
            | Kind::LockReleased => {}
        }
    }

    /// The lines of some bytes, each with the words of it that are meant.
    fn lines(place: u16, offset: usize, bytes: usize) -> impl Iterator<Item = (u16, usize, u8)> {
        let end = offset + bytes;
        (offset / LINE..end.div_ceil(LINE)).map(move |line| {
            let start = line * LINE;
            let first = offset.max(start) - start;
            let bytes = end.min(start + LINE) - start - first;
            (place, start, words(first, bytes))
        })
    }

    /// Reads or writes words of a line. Places begin at lines, so that its address says which.
    pub(crate) fn use_line(&mut self, access: &Access, id: LineId) {
        let offset = access.address % LINE;
        match access.kind {
            Kind::Load => {
                let served = self
                    .directory
                    .read(id, self.by(words(offset, access.bytes)));
                let done = self.arrival(id, served.at);
                self.count(served.from.is_some());
                self.note_load(id);
                self.finish(done);
            }
            Kind::Store => self.store(id, offset),
            _ => self.update(id, offset),
        }
    }

    /// Reads lines, which are asked for together.
    fn read(&mut self, place: u16, offset: usize, bytes: usize) {
        let mut done = 0;
        for (place, start, words) in Self::lines(place, offset, bytes) {
            let id = self.directory.line_at(place, start);
            let served = self.directory.read(id, self.by(words));
            done = done.max(self.arrival(id, served.at));
            self.count(served.from.is_some());
        }
        self.finish(done);
    }

    fn count(&mut self, missed: bool) {
        let totals = &mut self.me().totals;
        totals.accesses += 1;
        totals.misses += u64::from(missed);
    }

    /// An access is done at `done`. What the sibling takes of the core is added to hits
    /// alone: a transfer takes no longer for it.
    #[inline]
    fn finish(&mut self, done: u64) {
        let taken = done.saturating_sub(self.me().clock);
        let inside = taken.min(self.prices.hit);
        let me = self.me();
        me.clock = done - inside;
        let inside = inside.min(me.hit);
        self.compute(inside);
    }

    /// When a line that was asked for ahead is here. What has arrived is not looked at: whether it
    /// is still listed depends on which way accesses to it went.
    #[inline]
    fn arrival(&mut self, id: LineId, at: u64) -> u64 {
        let me = self.me();
        if me.expects_until <= me.clock {
            return at;
        }
        let clock = me.clock;
        let is_it = |&(line, arrives): &(LineId, u64)| line == id && arrives > clock;
        let place = me.prefetches.iter().position(is_it);
        let arrives = place.and_then(|place| me.prefetches.remove(place));
        arrives.map_or(at, |(_, arrives)| at.max(arrives))
    }

    fn store(&mut self, id: LineId, offset: usize) {
        let by = self.by(1 << (offset / 8));
        let served = self.directory.write(id, by, Write::Store);
        self.note_own_write(id);
        self.count(served.from.is_some());
        let hit = self.prices.hit;
        let most = self.prices.store_buffer;
        let me = self.me();
        // Stores become visible in their order.
        let before = me.stores.back().map_or(0, |&(done, _)| done);
        let done = served.at.max(before);
        let clock = me.clock;
        while me.stores.front().is_some_and(|&(done, _)| done <= clock) {
            me.stores.pop_front();
        }
        if served.from.is_some() || done > clock + hit {
            let costs = self.directory.cost_id(id);
            self.cpus[self.current as usize]
                .stores
                .push_back((done, costs));
        }
        let me = self.me();
        let mut waited = 0;
        if me.stores.len() > most
            && let Some((oldest, _)) = me.stores.pop_front()
        {
            waited = oldest.saturating_sub(clock);
        }
        self.finish(clock + waited + hit);
        if waited > 0 {
            self.directory.costs_of(id).lost += waited;
        }
        self.wake_spinners(id, done);
    }

    /// What the running CPU would wait for, if it waited.
    #[inline]
    fn note_load(&mut self, id: LineId) {
        let version = self.directory.line(id).version;
        self.me().last_load = Some((id, version));
    }

    /// What the running CPU writes itself is nothing to wait for.
    #[inline]
    fn note_own_write(&mut self, id: LineId) {
        let version = self.directory.line(id).version;
        self.me().note_own_write(id, version);
    }

    fn update(&mut self, id: LineId, offset: usize) {
        let by = self.by(1 << (offset / 8));
        let served = self.directory.write(id, by, Write::Update);
        self.note_own_write(id);
        self.count(served.from.is_some());
        let done = self.arrival(id, served.at);
        self.finish(done);
        self.wake_spinners(id, done);
    }

    /// Writes lines, which are asked for together.
    fn overwrite(&mut self, place: u16, offset: usize, bytes: usize) {
        let mut done = 0;
        for (place, start, words) in Self::lines(place, offset, bytes) {
            let id = self.directory.line_at(place, start);
            let served = self.directory.write(id, self.by(words), Write::Store);
            done = done.max(self.arrival(id, served.at));
            self.count(served.from.is_some());
            self.wake_spinners(id, served.at);
        }
        self.finish(done);
    }

    /// Asks for a line ahead. What is asked for by the page is part of what zeroing
    /// costs.
    fn prefetch(&mut self, place: u16, offset: usize, bytes: usize) {
        if bytes > LINE {
            return;
        }
        let id = self.directory.line_at(place, offset);
        let served = self.directory.read(id, self.by(0));
        self.note_prefetch(id, served);
    }

    /// Asks for a line ahead, and has all others give it up.
    fn prefetch_to_write(&mut self, place: u16, offset: usize) {
        let id = self.directory.line_at(place, offset);
        if let Some(served) = self.directory.take(id, self.by(0)) {
            self.note_prefetch(id, served);
        }
    }

    fn note_prefetch(&mut self, id: LineId, served: Served) {
        if served.from.is_none() {
            return;
        }
        let me = self.me();
        let clock = me.clock;
        me.prefetches.retain(|&(_, arrives)| arrives > clock);
        if me.prefetches.len() == PREFETCHES {
            me.prefetches.pop_front();
        }
        me.prefetches.push_back((id, served.at));
        me.expects_until = me.expects_until.max(served.at);
    }
}
