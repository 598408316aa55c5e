//! Who is to run where: a queue of runnable tasks for each CPU.

use std::collections::VecDeque;

use vellum_sim::Level;

/// The queues, and which CPUs look for something to do.
///
/// While a CPU is idle nothing is queued but what CPUs that have been woken are about to
/// take: whoever becomes idle looks through all queues first, and whatever becomes runnable
/// then goes to an idle CPU.
pub(crate) struct Queues {
    queues: Vec<VecDeque<u32>>,
    idle: Vec<bool>,
    idle_cpus: usize,
    /// CPUs that have been woken, or start, and take a task of their queue when they run:
    /// nobody else is to take that.
    coming: Vec<bool>,
    queued: usize,
    near: Nearness,
}

/// How near CPUs are to each other.
pub(crate) struct Nearness {
    /// By CPU, the first CPU of the part that it is in at each level.
    parts: Vec<[u32; Level::ALL.len()]>,
    /// By CPU, the other thread of its core.
    siblings: Vec<Option<usize>>,
}

impl Nearness {
    /// `level` says what is the smallest part that holds two CPUs.
    pub(crate) fn new(cpus: usize, level: impl Fn(usize, usize) -> Level) -> Nearness {
        let first = |cpu: usize, most: Level| {
            let first = (0..cpu).find(|&other| level(cpu, other) <= most);
            first.unwrap_or(cpu) as u32
        };
        let parts = |cpu: usize| Level::ALL.map(|level| first(cpu, level));
        let is_sibling =
            |cpu: usize, other: usize| other != cpu && level(cpu, other) == Level::Core;
        let sibling = |cpu: usize| (0..cpus).find(|&other| is_sibling(cpu, other));
        Nearness {
            parts: (0..cpus).map(parts).collect(),
            siblings: (0..cpus).map(sibling).collect(),
        }
    }

    fn level(&self, one: usize, other: usize) -> Level {
        let (one, other) = (&self.parts[one], &self.parts[other]);
        let same = |&level: &Level| one[level as usize] == other[level as usize];
        Level::ALL.into_iter().find(same).unwrap_or(Level::System)
    }

    /// Whether two CPUs are threads of one core.
    pub(crate) fn has_siblings(&self) -> bool {
        self.siblings.iter().any(Option::is_some)
    }
}

impl Queues {
    /// Nothing is runnable, and all CPUs are about to start.
    pub(crate) fn new(cpus: usize, near: Nearness) -> Queues {
        Queues {
            queues: vec![VecDeque::new(); cpus],
            idle: vec![false; cpus],
            idle_cpus: 0,
            coming: vec![true; cpus],
            queued: 0,
            near,
        }
    }

    /// Tasks in all queues.
    pub(crate) fn queued(&self) -> usize {
        self.queued
    }

    /// Whether others wait for the CPU.
    pub(crate) fn has_waiting(&self, cpu: usize) -> bool {
        !self.queues[cpu].is_empty()
    }

    /// Puts a task at the end of a CPU's queue.
    pub(crate) fn push(&mut self, cpu: usize, task: u32) {
        self.queues[cpu].push_back(task);
        self.queued += 1;
    }

    /// A CPU has nothing to run, or something again.
    pub(crate) fn set_idle(&mut self, cpu: usize, idle: bool) {
        if std::mem::replace(&mut self.idle[cpu], idle) != idle {
            match idle {
                true => self.idle_cpus += 1,
                false => self.idle_cpus -= 1,
            }
        }
    }

    /// Whether a CPU is idle.
    pub(crate) fn is_idle(&self, cpu: usize) -> bool {
        self.idle[cpu]
    }

    /// CPUs that are idle, ascending; they are not any more.
    pub(crate) fn take_idle(&mut self) -> Vec<usize> {
        let cpus: Vec<usize> = (0..self.idle.len()).filter(|&cpu| self.idle[cpu]).collect();
        self.idle.fill(false);
        self.idle_cpus = 0;
        cpus
    }

    /// Queues a task that has become runnable, by what was done on CPU `waker`. It last ran
    /// on CPU `last`, if it has. Returns the idle CPU that is to run it, if there is one.
    pub(crate) fn place(&mut self, task: u32, last: Option<usize>, waker: usize) -> Option<usize> {
        let found = self.idle_near(last.unwrap_or(waker));
        self.push(found.unwrap_or(waker), task);
        if let Some(cpu) = found {
            self.set_idle(cpu, false);
            self.coming[cpu] = true;
        }
        found
    }

    /// The CPU itself, if it is idle, or else the nearest that is: of whole cores first.
    fn idle_near(&self, cpu: usize) -> Option<usize> {
        if self.idle_cpus == 0 || self.idle[cpu] {
            return self.idle[cpu].then_some(cpu);
        }
        let idle = (0..self.idle.len()).filter(|&other| self.idle[other]);
        idle.min_by_key(|&other| {
            let level = self.near.level(cpu, other).max(Level::Cluster);
            let sibling = self.near.siblings[other];
            let is_shared = sibling.is_some_and(|sibling| !self.idle[sibling]);
            (is_shared, level, cpu.abs_diff(other))
        })
    }

    /// Tasks in a CPU's queue that another CPU may take.
    fn spare(&self, cpu: usize) -> usize {
        let own = usize::from(self.coming[cpu]);
        self.queues[cpu].len().saturating_sub(own)
    }

    /// The task that the CPU is to run next: from its own queue, or else the one that has
    /// waited longest in the longest queue of the nearest that have any.
    pub(crate) fn take(&mut self, cpu: usize) -> Option<u32> {
        self.coming[cpu] = false;
        if self.queued == 0 {
            return None;
        }
        let from = match self.queues[cpu].is_empty() {
            false => cpu,
            true => {
                let cpus = (0..self.queues.len()).filter(|&other| self.spare(other) > 0);
                cpus.min_by_key(|&other| {
                    let level = self.near.level(cpu, other).max(Level::Cluster);
                    let length = std::cmp::Reverse(self.spare(other));
                    (level, length, cpu.abs_diff(other))
                })?
            }
        };
        self.queued -= 1;
        self.queues[from].pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two clusters of two cores with two threads: CPUs 4 to 7 are the second threads.
    fn queues() -> Queues {
        let level = |one: usize, other: usize| {
            let (one, other) = (one % 4, other % 4);
            match one == other {
                true => Level::Core,
                false if one / 2 == other / 2 => Level::Cluster,
                false => Level::Socket,
            }
        };
        Queues::new(8, Nearness::new(8, level))
    }

    #[test]
    fn a_task_goes_to_its_cpu_then_to_near_idle_cores_then_to_threads_then_to_the_waker() {
        let mut queues = queues();
        for cpu in [1, 2, 3, 5, 6, 7] {
            queues.set_idle(cpu, true);
        }
        // CPU 0 is busy, and CPU 4, its other thread.
        assert_eq!(queues.place(10, Some(2), 0), Some(2));
        assert_eq!(queues.place(11, Some(2), 0), Some(3));
        assert_eq!(queues.place(12, None, 0), Some(1));
        assert_eq!(queues.place(13, None, 0), Some(5));
        assert_eq!(queues.place(14, None, 0), Some(6));
        assert_eq!(queues.place(15, Some(6), 0), Some(7));
        assert_eq!(queues.place(16, Some(6), 0), None);
        assert_eq!((queues.queued(), queues.take(0)), (7, Some(16)));
    }

    #[test]
    fn a_cpu_takes_its_own_tasks_first_and_then_from_the_longest_queue_that_is_near() {
        let mut queues = queues();
        // All have started, and found nothing.
        assert!((0..8).all(|cpu| queues.take(cpu).is_none()));
        for (cpu, task) in [(0, 1), (1, 2), (1, 3), (2, 4), (2, 5), (2, 6)] {
            queues.push(cpu, task);
        }
        let order: Vec<Option<u32>> = (0..7).map(|_| queues.take(0)).collect();
        let expected = [1, 2, 3, 4, 5, 6].map(Some);
        assert_eq!(order[..6], expected);
        assert_eq!((order[6], queues.queued()), (None, 0));
    }

    #[test]
    fn what_a_cpu_has_been_woken_for_is_not_taken_by_others() {
        let mut queues = queues();
        assert!((0..8).all(|cpu| queues.take(cpu).is_none()));
        queues.set_idle(3, true);
        assert_eq!(queues.place(1, None, 0), Some(3));
        queues.push(3, 2);
        assert_eq!((queues.take(2), queues.take(2)), (Some(1), None));
        assert_eq!((queues.take(3), queues.queued()), (Some(2), 0));
    }

    #[test]
    fn idle_cpus_are_known_until_they_are_taken() {
        let mut queues = queues();
        queues.set_idle(3, true);
        queues.set_idle(1, true);
        queues.set_idle(1, true);
        assert_eq!(queues.take_idle(), [1, 3]);
        assert_eq!(queues.place(1, None, 1), None);
    }
}
