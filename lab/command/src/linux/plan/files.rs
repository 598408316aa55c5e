//! Files of the plan: who has put off something that uses which.
//!
//! Only files that the workload writes or cuts need an order between spaces; of
//! all others nothing is kept.

use vellum_engine::Op;

/// State of the files, by number.
pub(super) struct Files {
    first_lengths: Vec<u64>,
    changes: Vec<bool>,
    /// Spaces that have put off a use.
    users: Vec<Vec<u32>>,
    /// The space that has put off a change.
    changer: Vec<Option<u32>>,
}

impl Files {
    pub(super) fn new(files: usize, ops: &[Op]) -> Self {
        let mut state = Self {
            first_lengths: vec![0; files],
            changes: vec![false; files],
            users: vec![Vec::new(); files],
            changer: vec![None; files],
        };
        for op in ops {
            match *op {
                Op::FileOpen { file, pages } => state.first_lengths[file.0 as usize] = pages,
                Op::FileWrite { file, .. } | Op::Truncate { file, .. } => {
                    state.changes[file.0 as usize] = true;
                }
                _ => {}
            }
        }
        state
    }

    /// Lengths that the files begin with, in pages.
    pub(super) fn first_lengths(&self) -> &[u64] {
        &self.first_lengths
    }

    /// Spaces other than `space` that have to do what they put off before `space`
    /// uses (or changes) `file`.
    pub(super) fn before(&self, file: u32, space: u32, changes: bool) -> Vec<u32> {
        let file = file as usize;
        match changes {
            true => {
                let users = self.users[file].iter().copied();
                users.filter(|user| *user != space).collect()
            }
            false => {
                let changer = self.changer[file];
                changer.filter(|user| *user != space).into_iter().collect()
            }
        }
    }

    /// Remembers a use; whether it is the first that `space` has put off.
    pub(super) fn note(&mut self, file: u32, space: u32, changes: bool) -> bool {
        let file = file as usize;
        if !self.changes[file] {
            return false;
        }
        if changes {
            self.changer[file] = Some(space);
        }
        let users = &mut self.users[file];
        let first = !users.contains(&space);
        if first {
            users.push(space);
        }
        first
    }

    /// `space` has done what it put off.
    pub(super) fn done(&mut self, file: u32, space: u32) {
        let file = file as usize;
        self.users[file].retain(|user| *user != space);
        if self.changer[file] == Some(space) {
            self.changer[file] = None;
        }
    }
}
