//! The simulated CPUs and their clocks, and what each kind of access does to them.

mod prices;
mod waiting;

use std::collections::VecDeque;
use std::ops::Range;

use vellum::sync::report::{Access, Kind};

use crate::clocks::{LATEST, NEVER, Tournament, key, time_of};
use crate::directory::{By, Directory, LineId, NOBODY, Served, Write};
use crate::locks::Locks;
use crate::places::{LINE, PAGE};
use vellum_description::{Description, WorkKind};

pub(crate) use prices::Prices;
use prices::bulk;

/// How far a CPU may run ahead of the others as long as it uses nothing but lines of its
/// own, in picoseconds. When another CPU uses such a line for the first time, it may see it
/// later than it should by that much.
const RUN_AHEAD: u64 = 1_000_000;
/// Lines that a CPU can have asked for ahead.
const PREFETCHES: usize = 16;

/// What a CPU is at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Activity {
    /// It runs, or would if it were its turn.
    Ready,
    /// It waits for a line to be written, at most until the deadline.
    Spinning { line: LineId, deadline: u64 },
    /// It waits to be woken.
    Sleeping,
    /// Its program has ended.
    Ended,
}

/// What a CPU did and what that took, times in picoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct CpuTotals {
    /// Its clock when counting began; 0 if everything counts.
    pub began_at: u64,
    /// Its clock when its program ended.
    pub ended_at: u64,
    /// Accesses to shared memory, by lines.
    pub accesses: u64,
    /// Those that had to fetch their line.
    pub misses: u64,
    /// Reports before which instructions are charged: accesses of any kind, and full fences.
    pub reports: u64,
    /// Bytes read, written and zeroed in bulk, as far as memory provided or took them.
    pub bulk_bytes: u64,
    /// Time spent spinning.
    pub spun: u64,
    /// Time spent asleep.
    pub slept: u64,
    /// Shootdowns sent.
    pub flushes: u64,
    /// Time until they had been answered.
    pub flushing: u64,
    /// Shootdowns received.
    pub interrupts: u64,
    /// Time spent on them.
    pub interrupted: u64,
}

/// One simulated CPU.
#[derive(Debug)]
pub(crate) struct CpuState {
    pub(crate) clock: u64,
    core: u32,
    sibling: Option<u32>,
    rank: u16,
    pub(crate) activity: Activity,
    /// The instructions before an access, by what the CPU is at, in picoseconds, and what a
    /// hit costs beside them.
    work: u64,
    hit: u64,
    /// The line loaded last, and how often it had been written.
    last_load: Option<(LineId, u32)>,
    /// Stores on their way: when each is done.
    stores: VecDeque<(u64, LineId)>,
    /// Lines on their way here: when each arrives.
    prefetches: VecDeque<(LineId, u64)>,
    /// Whether somebody has woken it before it went to sleep.
    permit: bool,
    /// Those who spin on the same line: the next and the one before.
    next_waiter: u16,
    previous_waiter: u16,
    /// When its interrupt handler is free again.
    handler_free: u64,
    /// Until when it waits for the answers to a shootdown of its own.
    awaiting: u64,
    /// Host addresses of its stack.
    pub(crate) stack: Range<usize>,
    pub(crate) totals: CpuTotals,
}

/// All that a run changes.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) cpus: Vec<CpuState>,
    pub(crate) directory: Directory,
    pub(crate) prices: Prices,
    pub(crate) locks: Locks,
    tournament: Tournament,
    /// Whose turn it is.
    pub(crate) current: u32,
    /// The smallest key of the others.
    others: u64,
    /// When counting begins, while it has not yet.
    count_from: Option<u64>,
}

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

impl State {
    /// CPUs whose clocks start at `starts`, with ranks that order them where their
    /// clocks agree.
    pub(crate) fn new(
        machine: &Description,
        directory: Directory,
        starts: &[u64],
        ranks: &[u16],
    ) -> State {
        let count = starts.len();
        let cpu = |number: usize| {
            let topology = &directory.topology;
            let sibling = topology.sibling(number as u32);
            CpuState {
                clock: starts[number],
                core: topology.core_of(number as u32),
                sibling: sibling.filter(|&sibling| (sibling as usize) < count),
                rank: ranks[number],
                activity: Activity::Ready,
                work: machine.processor.work.ps(),
                hit: machine.lines.hit.ps(),
                last_load: None,
                stores: VecDeque::new(),
                prefetches: VecDeque::new(),
                permit: false,
                next_waiter: NOBODY,
                previous_waiter: NOBODY,
                handler_free: 0,
                awaiting: 0,
                stack: 0..0,
                totals: CpuTotals::default(),
            }
        };
        let cpus: Vec<CpuState> = (0..count).map(cpu).collect();
        let mut tournament = Tournament::new(count);
        for (number, cpu) in cpus.iter().enumerate() {
            tournament.set(number as u32, key(cpu.clock, cpu.rank));
        }
        State {
            cpus,
            directory,
            prices: Prices::new(machine),
            locks: Locks::new(count),
            tournament,
            current: 0,
            others: NEVER,
            count_from: None,
        }
    }

    /// What CPUs do, and what that costs, is counted from a time on.
    pub(crate) fn count_from(&mut self, time: u64) {
        self.count_from = (time > 0).then_some(time);
    }

    /// Forgets what was counted so far.
    fn begin_counting(&mut self) {
        self.count_from = None;
        for cpu in &mut self.cpus {
            cpu.totals = CpuTotals {
                began_at: cpu.clock,
                ended_at: cpu.totals.ended_at,
                ..CpuTotals::default()
            };
        }
        self.directory.forget_costs();
        self.locks.forget_costs();
    }

    /// Whose turn comes next, and when.
    pub(crate) fn next(&self) -> Option<(u32, u64)> {
        let (key, cpu) = self.tournament.first();
        (key != NEVER).then_some((cpu, time_of(key)))
    }

    /// `cpu` runs from now on.
    pub(crate) fn enter(&mut self, cpu: u32) {
        self.tournament.set(cpu, NEVER);
        self.others = self.tournament.first().0;
        self.current = cpu;
        // It is the lowest clock of those who run. Who sleeps or spins counts from when it began to.
        let clock = self.cpus[cpu as usize].clock;
        if self.count_from.is_some_and(|time| clock >= time) {
            self.begin_counting();
        }
        if let Activity::Spinning { line, deadline } = self.cpus[cpu as usize].activity {
            self.stop_spinning(cpu, line);
            self.awake_at(cpu, deadline);
        }
    }

    /// The running CPU does not run any more.
    pub(crate) fn leave(&mut self) {
        let cpu = &self.cpus[self.current as usize];
        let key = match cpu.activity {
            Activity::Ready => key(cpu.clock, cpu.rank),
            Activity::Spinning { deadline, .. } => key(deadline, cpu.rank),
            Activity::Sleeping | Activity::Ended => NEVER,
        };
        self.tournament.set(self.current, key);
    }

    #[inline]
    pub(crate) fn me(&mut self) -> &mut CpuState {
        &mut self.cpus[self.current as usize]
    }

    /// Whether another CPU's turn is before that of the running one.
    #[inline]
    pub(crate) fn must_wait(&self) -> bool {
        let cpu = &self.cpus[self.current as usize];
        cpu.activity != Activity::Ready || key(cpu.clock, cpu.rank) > self.others
    }

    fn set_key(&mut self, cpu: u32, key: u64) {
        self.tournament.set(cpu, key);
        self.others = self.tournament.first().0;
    }

    /// Whether the other thread of the running CPU's core takes part of it.
    fn is_shared(&self) -> bool {
        let sibling = self.cpus[self.current as usize].sibling;
        sibling.is_some_and(|sibling| {
            let activity = self.cpus[sibling as usize].activity;
            matches!(activity, Activity::Ready | Activity::Spinning { .. })
        })
    }

    /// The running CPU computes for a time.
    pub(crate) fn compute(&mut self, ps: u64) {
        let ps = if self.is_shared() {
            ps * self.prices.shared_time / 1000
        } else {
            ps
        };
        self.pass(ps);
    }

    /// What the running CPU is at from now on, which decides what lies between accesses.
    pub(crate) fn begin(&mut self, kind: Option<WorkKind>) {
        let work = kind.and_then(|kind| self.prices.work_of[kind as usize]);
        let (general, hit) = (self.prices.work, self.prices.hit);
        let me = self.me();
        // What was calibrated has hits in it: a processor goes on meanwhile.
        (me.work, me.hit) = work.map_or((general, hit), |work| (work, 0));
    }

    /// Something happens to a lock on the running CPU, which costs nothing by itself.
    pub(crate) fn lock(&mut self, access: &Access) {
        let cpu = self.current as usize;
        let now = self.cpus[cpu].clock;
        self.locks.note(cpu, access.kind, access.address, now);
    }

    /// Time passes for the running CPU.
    pub(crate) fn pass(&mut self, ps: u64) {
        let me = self.me();
        me.clock += ps;
        assert!(me.clock < LATEST, "a virtual clock passed five hours");
    }

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
    fn drain(&mut self) {
        let me = self.me();
        let Some(&(done, line)) = me.stores.back() else {
            return;
        };
        me.stores.clear();
        let waited = done.saturating_sub(me.clock);
        me.clock += waited;
        if waited > 0 {
            self.directory.costs(line).lost += waited;
        }
    }

    /// A full fence, and a hit for each of `others`.
    pub(crate) fn look_at(&mut self, others: u64) {
        self.drain();
        self.compute(self.prices.update + others * self.prices.hit);
    }

    /// Whether an access can be made without regard to the others' clocks: to lines that
    /// the CPU alone has used, for long.
    pub(crate) fn is_private(&mut self, access: &Access, place: u16, offset: usize) -> bool {
        let ahead = self.others.saturating_add(key(RUN_AHEAD, 0));
        if key(self.me().clock, 0) > ahead {
            return false;
        }
        match access.kind {
            Kind::Fence | Kind::FullFence => true,
            Kind::BytesRead
            | Kind::BytesWritten
            | Kind::BytesFilled
            | Kind::BytesZeroed
            | Kind::BytesZeroedAround => false,
            _ => {
                let cpu = self.current as u16;
                let end = offset + access.bytes.min(self.directory.places.left(place, offset));
                (offset / LINE..end.div_ceil(LINE)).all(|line| {
                    let id = self.directory.line_at(place, line * LINE);
                    self.directory.is_private(id, cpu)
                })
            }
        }
    }

    fn by(&self, words: u8) -> By {
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
            Kind::BytesRead => {
                // The other half is that of the writing.
                let rates = self.prices.copy.map(|rate| rate * 2.0);
                self.stream(place, offset, bytes, rates, access.kind);
            }
            Kind::BytesWritten => {
                let rates = self.prices.copy.map(|rate| rate * 2.0);
                self.stream(place, offset, bytes, rates, access.kind);
            }
            Kind::BytesFilled | Kind::BytesZeroed | Kind::BytesZeroedAround => {
                self.stream(place, offset, bytes, self.prices.zero, access.kind);
            }
            Kind::Load | Kind::GuardedRead => self.read(access.kind, place, offset, bytes),
            Kind::Store => self.store(place, offset),
            Kind::ReadModifyWrite => self.update(place, offset),
            Kind::GuardedWrite | Kind::PlainWrite => self.overwrite(place, offset, bytes),
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
            let last = end.min(start + LINE) - start - 1;
            let words = (first / 8..=last / 8).fold(0u8, |words, word| words | 1 << word);
            (place, start, words)
        })
    }

    /// Reads lines, which are asked for together.
    fn read(&mut self, kind: Kind, place: u16, offset: usize, bytes: usize) {
        let mut done = 0;
        for (place, start, words) in Self::lines(place, offset, bytes) {
            let id = self.directory.line_at(place, start);
            let served = self.directory.read(id, self.by(words));
            done = done.max(self.arrival(id, served.at));
            self.count(served.from.is_some());
            if kind == Kind::Load {
                let version = self.directory.line(id).version;
                self.me().last_load = Some((id, version));
            }
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
    fn finish(&mut self, done: u64) {
        let taken = done.saturating_sub(self.me().clock);
        let inside = taken.min(self.prices.hit);
        let me = self.me();
        me.clock = done - inside;
        let inside = inside.min(me.hit);
        self.compute(inside);
    }

    /// When a line that was asked for ahead is here.
    fn arrival(&mut self, id: LineId, at: u64) -> u64 {
        let prefetches = &mut self.me().prefetches;
        if prefetches.is_empty() {
            return at;
        }
        match prefetches.iter().position(|&(line, _)| line == id) {
            Some(place) => {
                let (_, arrives) = prefetches.remove(place).unwrap_or((id, at));
                at.max(arrives)
            }
            None => at,
        }
    }

    fn store(&mut self, place: u16, offset: usize) {
        let id = self.directory.line_at(place, offset);
        let by = self.by(1 << (offset % LINE / 8));
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
            me.stores.push_back((done, id));
        }
        let mut waited = 0;
        if me.stores.len() > most
            && let Some((oldest, _)) = me.stores.pop_front()
        {
            waited = oldest.saturating_sub(clock);
        }
        self.finish(clock + waited + hit);
        if waited > 0 {
            self.directory.costs(id).lost += waited;
        }
        self.wake_spinners(id, done);
    }

    /// What the running CPU writes itself is nothing to wait for.
    fn note_own_write(&mut self, id: LineId) {
        let version = self.directory.line(id).version;
        if let Some((line, seen)) = &mut self.me().last_load
            && *line == id
            && seen.wrapping_add(1) == version
        {
            *seen = version;
        }
    }

    fn update(&mut self, place: u16, offset: usize) {
        let id = self.directory.line_at(place, offset);
        let by = self.by(1 << (offset % LINE / 8));
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

    /// Reads or writes bytes in bulk: as fast as the core can, from memory or from its
    /// caches, and its share of the node's memory allows.
    fn stream(
        &mut self,
        place: u16,
        offset: usize,
        bytes: usize,
        [memory, cached]: [f64; 2],
        kind: Kind,
    ) {
        let core = self.me().core;
        let around = kind == Kind::BytesZeroedAround;
        let (mut near, mut far) = (0, 0);
        let mut at = offset;
        while at < offset + bytes {
            let next = (offset + bytes).min((at / PAGE + 1) * PAGE);
            let part = (next - at) as u64;
            match self.directory.is_cached((place, at), part, core, around) {
                true => near += part,
                false => far += part,
            }
            at = next;
        }
        let clock = self.me().clock;
        let node_done = match far {
            0 => clock,
            _ => {
                let busy = bulk(far, self.prices.node);
                self.directory.stream((place, offset), far, clock, busy)
            }
        };
        let time = bulk(far, memory) + bulk(near, cached);
        self.compute(time.max(self.prices.hit));
        let me = self.me();
        me.clock = me.clock.max(node_done);
        me.totals.bulk_bytes += far;
        let at = me.clock;
        if kind != Kind::BytesRead {
            let by = self.by(u8::MAX);
            let mut woken = Vec::new();
            self.directory
                .fill((place, offset), bytes, by, at, |directory, id| {
                    if directory.line(id).waiters != NOBODY {
                        woken.push(id);
                    }
                });
            for id in woken {
                self.wake_spinners(id, at);
            }
        }
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
        let prefetches = &mut self.me().prefetches;
        if served.from.is_some() {
            if prefetches.len() == PREFETCHES {
                prefetches.pop_front();
            }
            prefetches.push_back((id, served.at));
        }
    }
}
