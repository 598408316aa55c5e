//! Which space each task of a recording is in.

use vellum_trace::{EventKind, TaskId};

/// `CLONE_VM`: the child runs in its parent's space.
const CLONE_VM: u64 = 0x100;

/// A new space, which is not a copy of another: the how-manyth of which task.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Begun {
    task: TaskId,
    nth: u32,
}

/// Something for each space of a recording, as the tasks come and go.
#[derive(Debug)]
pub(super) struct Spaces<S> {
    /// Space of each task, and how many it has begun.
    tasks: Vec<(Option<usize>, u32)>,
    spaces: Vec<Used<S>>,
    /// Places in `spaces` that are free.
    free: Vec<usize>,
}

#[derive(Debug)]
struct Used<S> {
    users: u32,
    space: S,
}

impl<S: Clone> Spaces<S> {
    /// For a recording with `tasks` tasks, none of which has a space yet.
    pub(super) fn new(tasks: usize) -> Self {
        Spaces {
            tasks: vec![(None, 0); tasks],
            spaces: Vec::new(),
            free: Vec::new(),
        }
    }

    /// Follows an event of `task` that makes, copies or ends spaces; false for every
    /// other. `begin` gives what goes with a new space.
    pub(super) fn follow(
        &mut self,
        task: TaskId,
        kind: EventKind,
        begin: impl Fn(Begun) -> S,
    ) -> bool {
        match kind {
            EventKind::Create { child, clone_flags } => {
                let parent = self.place(task, begin);
                if let Some((None, _)) = self.tasks.get(child.0 as usize) {
                    let place = self.create(parent, clone_flags);
                    self.tasks[child.0 as usize].0 = Some(place);
                }
            }
            EventKind::Exec { .. } => {
                let old = self.place(task, &begin);
                self.leave(old);
                self.set(task, None);
                self.place(task, begin);
            }
            EventKind::Exit => {
                let old = self.place(task, begin);
                self.leave(old);
                self.set(task, None);
            }
            _ => return false,
        }
        true
    }

    /// The space of a task, which begins one if it has none.
    pub(super) fn of(&mut self, task: TaskId, begin: impl Fn(Begun) -> S) -> &mut S {
        let place = self.place(task, begin);
        &mut self.spaces[place].space
    }

    fn place(&mut self, task: TaskId, begin: impl Fn(Begun) -> S) -> usize {
        let known = self.tasks.get_mut(task.0 as usize);
        let nth = match known {
            Some((Some(place), _)) => return *place,
            Some((None, begun)) => {
                *begun += 1;
                *begun - 1
            }
            None => 0,
        };
        let place = self.add(begin(Begun { task, nth }));
        self.set(task, Some(place));
        place
    }

    fn set(&mut self, task: TaskId, space: Option<usize>) {
        if let Some(entry) = self.tasks.get_mut(task.0 as usize) {
            entry.0 = space;
        }
    }

    fn create(&mut self, parent: usize, clone_flags: u64) -> usize {
        if clone_flags & CLONE_VM != 0 {
            self.spaces[parent].users += 1;
            return parent;
        }
        let copy = self.spaces[parent].space.clone();
        self.add(copy)
    }

    fn add(&mut self, space: S) -> usize {
        let used = Used { users: 1, space };
        match self.free.pop() {
            Some(place) => {
                self.spaces[place] = used;
                place
            }
            None => {
                self.spaces.push(used);
                self.spaces.len() - 1
            }
        }
    }

    fn leave(&mut self, place: usize) {
        let used = &mut self.spaces[place];
        used.users -= 1;
        if used.users == 0 {
            self.free.push(place);
        }
    }
}
