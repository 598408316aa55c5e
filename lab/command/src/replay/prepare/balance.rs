//! Which CPU a task runs on: the one with the least work still to come.

/// Work of the tasks on each CPU that has not been emitted yet.
///
/// A recording tells in advance how many events each task will have, so the
/// balance is better than a scheduler's guess, and always the same.
pub(super) struct Balance {
    /// Events still to come, by CPU.
    outstanding: Vec<u64>,
    /// Events still to come, by task of one copy and copy.
    remaining: Vec<u32>,
}

impl Balance {
    /// `events` are the events of each task.
    pub(super) fn new(cpus: usize, events: Vec<u32>) -> Self {
        Self {
            outstanding: vec![0; cpus],
            remaining: events,
        }
    }

    /// Chooses a CPU for `task`, which ran on `from` if anywhere. It stays
    /// unless another CPU has strictly less to do.
    pub(super) fn place(&mut self, task: usize, from: Option<u32>) -> u32 {
        if self.outstanding.len() == 1 {
            return 0;
        }
        let work = u64::from(self.remaining[task]);
        if let Some(from) = from {
            self.outstanding[from as usize] -= work;
        }
        let least = self.outstanding.iter().copied().min().unwrap_or(0);
        let chosen = match from {
            Some(from) if self.outstanding[from as usize] == least => from,
            _ => self
                .outstanding
                .iter()
                .position(|work| *work == least)
                .unwrap_or(0) as u32,
        };
        self.outstanding[chosen as usize] += work;
        chosen
    }

    /// Puts `task` on `cpu`.
    pub(super) fn assign(&mut self, task: usize, cpu: u32) {
        if self.outstanding.len() > 1 {
            self.outstanding[cpu as usize] += u64::from(self.remaining[task]);
        }
    }

    /// One event of `task`, which runs on `cpu`, is done.
    pub(super) fn done(&mut self, task: usize, cpu: u32) {
        if self.outstanding.len() > 1 {
            self.remaining[task] = self.remaining[task].saturating_sub(1);
            let outstanding = &mut self.outstanding[cpu as usize];
            *outstanding = outstanding.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_go_where_least_is_left_to_do() {
        let mut balance = Balance::new(2, vec![100, 10, 10, 5]);
        assert_eq!(balance.place(0, None), 0);
        assert_eq!(balance.place(1, None), 1);
        assert_eq!(balance.place(2, None), 1);
        for _ in 0..95 {
            balance.done(0, 0);
        }
        assert_eq!(balance.place(3, None), 0);
    }

    #[test]
    fn a_task_stays_where_it_is_when_nothing_is_better() {
        let mut balance = Balance::new(3, vec![7, 7]);
        balance.assign(0, 2);
        balance.assign(1, 0);
        assert_eq!(balance.place(0, Some(2)), 2);
    }
}
