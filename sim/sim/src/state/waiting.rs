//! Waiting of every kind: spinning, sleeping, and for the answers to shootdowns.

use super::{Activity, State};
use crate::clocks::key;
use crate::line::{LineId, NOBODY};

/// How long a CPU spins at first before it looks again by itself, in picoseconds: for
/// those who poll what is not in the line that they loaded last.
const SPIN_TIMEOUT: u64 = 200_000;
/// How often that doubles.
const LONGEST_SPIN: u32 = 6;

impl State {
    /// The running CPU spins: it looks again when the line that it loaded last has been
    /// written. Returns whether it has to wait for that.
    pub(crate) fn spin(&mut self, spins: u32) -> bool {
        self.compute(self.prices.hit);
        let Some((line, version)) = self.me().last_load else {
            return false;
        };
        if self.directory.line(line).version != version {
            return false;
        }
        let next = std::mem::replace(&mut self.directory.line(line).waiters, self.current as u16);
        if let Some(next) = self.cpus.get_mut(usize::from(next)) {
            next.previous_waiter = self.current as u16;
        }
        let me = self.me();
        me.next_waiter = next;
        me.previous_waiter = NOBODY;
        let deadline = me.clock + (SPIN_TIMEOUT << spins.min(LONGEST_SPIN));
        me.activity = Activity::Spinning { line, deadline };
        true
    }

    /// A line was written and can be read again at `at`.
    #[inline]
    pub(super) fn wake_spinners(&mut self, line: LineId, at: u64) {
        let waiters = &mut self.directory.line(line).waiters;
        if *waiters != NOBODY {
            let first = std::mem::replace(waiters, NOBODY);
            self.wake_from(first, line, at);
        }
    }

    #[cold]
    fn wake_from(&mut self, mut waiter: u16, line: LineId, at: u64) {
        while waiter != NOBODY {
            let cpu = u32::from(waiter);
            waiter = std::mem::replace(&mut self.cpus[cpu as usize].next_waiter, NOBODY);
            self.note_spun(cpu, line, at);
            self.awake_at(cpu, at);
            let state = &self.cpus[cpu as usize];
            let key = key(state.clock, state.rank);
            self.set_key(cpu, key);
        }
    }

    /// Takes a CPU whose deadline has come off the list of its line.
    pub(super) fn stop_spinning(&mut self, cpu: u32, line: LineId) {
        let me = &mut self.cpus[cpu as usize];
        let next = std::mem::replace(&mut me.next_waiter, NOBODY);
        let previous = std::mem::replace(&mut me.previous_waiter, NOBODY);
        match self.cpus.get_mut(usize::from(previous)) {
            Some(previous) => previous.next_waiter = next,
            None => self.directory.line(line).waiters = next,
        }
        if let Some(next) = self.cpus.get_mut(usize::from(next)) {
            next.previous_waiter = previous;
        }
        if let Activity::Spinning { deadline, .. } = self.cpus[cpu as usize].activity {
            self.note_spun(cpu, line, deadline);
        }
    }

    fn note_spun(&mut self, cpu: u32, line: LineId, until: u64) {
        let state = &mut self.cpus[cpu as usize];
        let spun = until.saturating_sub(state.clock);
        state.totals.spun += spun;
        self.directory.costs_of(line).spun += spun;
    }

    pub(super) fn awake_at(&mut self, cpu: u32, at: u64) {
        let state = &mut self.cpus[cpu as usize];
        state.clock = state.clock.max(at);
        state.activity = Activity::Ready;
    }

    /// The running CPU goes to sleep, unless somebody has woken it already. Returns
    /// whether it sleeps.
    pub(crate) fn sleep(&mut self) -> bool {
        if std::mem::take(&mut self.me().permit) {
            return false;
        }
        self.drain();
        self.pass(self.prices.sleep);
        self.me().activity = Activity::Sleeping;
        true
    }

    /// The running CPU wakes another, or leaves it a permit.
    pub(crate) fn wake(&mut self, cpu: u32) {
        self.pass(self.prices.wake);
        let at = self.me().clock + self.prices.wake_latency;
        let Some(other) = self.cpus.get_mut(cpu as usize) else {
            return;
        };
        if other.activity != Activity::Sleeping {
            other.permit = true;
            return;
        }
        other.totals.slept += at.saturating_sub(other.clock);
        self.awake_at(cpu, at);
        let other = &self.cpus[cpu as usize];
        let key = key(other.clock, other.rank);
        self.set_key(cpu, key);
    }

    /// The running CPU has the translations of some pages, or of all, forgotten by
    /// `targets`, and waits until they have answered.
    pub(crate) fn flush(&mut self, targets: impl Iterator<Item = u32>, pages: Option<u64>) {
        self.drain();
        let begun = self.me().clock;
        let invalidation = self.prices.invalidation(pages);
        let taken = self.prices.handle + invalidation;
        let mut answered = 0;
        let mut mine = 0;
        for target in targets {
            if target == self.current {
                mine = invalidation;
                continue;
            }
            self.pass(self.prices.send);
            let arrives = self.me().clock + self.prices.arrive;
            answered = answered.max(self.interrupt(target, arrives, taken));
        }
        // The sender forgets while the others do.
        self.pass(mine);
        let me = self.me();
        me.clock = me.clock.max(answered);
        me.awaiting = me.clock;
        me.totals.flushes += 1;
        me.totals.flushing += me.clock - begun;
        self.look_at_others();
    }

    /// A CPU is interrupted at `arrives` for the time `taken`, or when it is done with
    /// interrupts before; returns when it answers.
    fn interrupt(&mut self, target: u32, arrives: u64, taken: u64) -> u64 {
        let Some(cpu) = self.cpus.get_mut(target as usize) else {
            return arrives;
        };
        let answers = arrives.max(cpu.handler_free) + taken;
        cpu.handler_free = answers;
        match cpu.activity {
            // Its idle loop runs nothing that could be late.
            Activity::Sleeping | Activity::Ended => return answers,
            Activity::Ready | Activity::Spinning { .. } => {}
        }
        cpu.totals.interrupts += 1;
        cpu.totals.interrupted += taken;
        if arrives < cpu.awaiting {
            // It has nothing else to do until it has its own answers.
            cpu.clock = cpu.clock.max(answers);
        } else {
            cpu.clock += taken;
        }
        if cpu.activity == Activity::Ready {
            let key = key(cpu.clock, cpu.rank);
            self.tournament.set(cpu.rank, key);
        }
        answers
    }
}
