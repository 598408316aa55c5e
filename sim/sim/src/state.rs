//! The simulated CPUs and their clocks. What each kind of access does to them is in [`access`] and
//! [`bulk`].

mod access;
mod bulk;
mod prices;
mod waiting;

use std::collections::VecDeque;
use std::ops::Range;

use vellum::sync::report::Access;

use crate::clocks::{LATEST, NEVER, Tournament, key, rank_of, time_of};
use crate::costs::CostId;
use crate::directory::Directory;
use crate::line::{LineId, NOBODY};
use crate::locks::Locks;
use vellum_description::{Description, WorkKind};

pub(crate) use access::{Target, is_of_words};
pub(crate) use prices::Prices;

/// What is wrong with a clock at [`LATEST`].
const TOO_LATE: &str = "a virtual clock passed five hours";

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
    /// Stores on their way: when each is done, and where it is noted what that costs.
    stores: VecDeque<(u64, CostId)>,
    /// Lines on their way here: when each arrives.
    prefetches: VecDeque<(LineId, u64)>,
    /// When the last of them arrives.
    expects_until: u64,
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
    /// CPUs by rank.
    by_rank: Vec<u16>,
    /// Whose turn it is.
    pub(crate) current: u32,
    /// The smallest key of the others.
    others: u64,
    /// When counting begins, while it has not yet.
    count_from: Option<u64>,
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
                expects_until: 0,
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
        let mut by_rank = vec![0; count];
        for (number, cpu) in cpus.iter().enumerate() {
            tournament.set(cpu.rank, key(cpu.clock, cpu.rank));
            by_rank[usize::from(cpu.rank)] = number as u16;
        }
        State {
            cpus,
            directory,
            prices: Prices::new(machine),
            locks: Locks::new(count),
            tournament,
            by_rank,
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
    pub(crate) fn begin_counting(&mut self) {
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

    /// Whose turn comes first, and when.
    pub(crate) fn first(&self) -> Option<(u32, u64)> {
        self.whose(self.tournament.first())
    }

    /// Whose turn a key says it is, and when.
    #[inline]
    fn whose(&self, key: u64) -> Option<(u32, u64)> {
        let cpu = |key| u32::from(self.by_rank[usize::from(rank_of(key))]);
        (key != NEVER).then(|| (cpu(key), time_of(key)))
    }

    /// `cpu` runs from now on.
    #[inline]
    pub(crate) fn enter(&mut self, cpu: u32) {
        self.current = cpu;
        self.look_at_others();
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

    /// The running CPU does not run any more. Returns whose turn comes next, and when.
    #[inline]
    pub(crate) fn leave(&mut self) -> Option<(u32, u64)> {
        let cpu = &self.cpus[self.current as usize];
        let key = match cpu.activity {
            Activity::Ready => key(cpu.clock, cpu.rank),
            Activity::Spinning { deadline, .. } => key(deadline, cpu.rank),
            Activity::Sleeping | Activity::Ended => NEVER,
        };
        self.tournament.set(cpu.rank, key);
        // The host need not wait for the tournament to know whose stack comes next.
        let first = key.min(self.others);
        debug_assert!(first == self.tournament.first());
        self.whose(first)
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

    /// The keys of others may have changed, or the running CPU has.
    #[inline]
    fn look_at_others(&mut self) {
        let rank = self.me().rank;
        self.others = self.tournament.least_beside(rank);
    }

    fn set_key(&mut self, cpu: u32, key: u64) {
        self.tournament.set(self.cpus[cpu as usize].rank, key);
        self.look_at_others();
    }

    /// Whether the other thread of the running CPU's core takes part of it.
    fn is_shared(&self) -> bool {
        let sibling = self.cpus[self.current as usize].sibling;
        sibling.is_some_and(|sibling| {
            let activity = self.cpus[sibling as usize].activity;
            matches!(activity, Activity::Ready | Activity::Spinning { .. })
        })
    }

    /// How long the running CPU takes for what it computes in a time alone.
    #[inline]
    fn taken(&self, ps: u64) -> u64 {
        self.prices.taken(ps, self.is_shared())
    }

    /// The running CPU computes for a time.
    #[inline]
    pub(crate) fn compute(&mut self, ps: u64) {
        self.pass(self.taken(ps));
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
    #[inline]
    pub(crate) fn pass(&mut self, ps: u64) {
        let me = self.me();
        me.clock += ps;
        assert!(me.clock < LATEST, "{TOO_LATE}");
    }
}
