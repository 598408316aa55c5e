//! Creation, exec, exit and wait.

use vellum_engine::Op;

use super::{Done, Translator, changes_space, slot};
use crate::replay::prepare::Streams;
use crate::replay::prepare::space::Space;
use crate::replay::prepare::tasks::{CLONE_VFORK, CLONE_VM};
use crate::replay::workload::Class;
use vellum_trace::TaskId;

impl Translator<'_> {
    /// Gives a task that was there from the start its empty space.
    pub(super) fn start_if_new(&mut self, task: usize) -> Done {
        if self.tasks[task].started {
            return Ok(());
        }
        let id = task % self.header.tasks.len();
        if self.header.tasks[id].parent.is_some() {
            self.repairs.unknown_task += 1;
        }
        let stream = self.place(task, None);
        let space = self.new_space(stream);
        let state = &mut self.tasks[task];
        state.started = true;
        state.stream = stream;
        state.space = space;
        let op = Op::Create { space: slot(space) };
        self.put(task, op, Class::Fork, &[changes_space(space)])?;
        Ok(())
    }

    pub(super) fn create(&mut self, parent: usize, child: TaskId, flags: u64) -> Done {
        let child = self.task_index(child);
        if self.tasks[child].started {
            self.repairs.meaningless += 1;
            return Ok(());
        }
        let stream = self.tasks[parent].stream;
        let from = self.tasks[parent].space;
        let (space, place) = if flags & CLONE_VM != 0 {
            self.space(parent).users += 1;
            let op = Op::Share { space: slot(from) };
            let place = self.put(parent, op, Class::Share, &[changes_space(from)])?;
            (from, place)
        } else {
            let above = self.space(parent).node;
            let node = self.memory.begin(Some(above));
            let copy = self.space(parent).fork(node);
            let space = self.slots.take(stream, copy);
            let op = Op::Fork {
                parent: slot(from),
                child: slot(space),
            };
            let uses = [changes_space(from), changes_space(space)];
            (space, self.put(parent, op, Class::Fork, &uses)?)
        };
        // A vfork child runs instead of its parent until it executes a program.
        let own = match &mut self.balance {
            Some(balance) if flags & CLONE_VFORK != 0 => {
                balance.assign(child, stream);
                stream
            }
            _ => self.place(child, None),
        };
        let state = &mut self.tasks[child];
        state.started = true;
        state.space = space;
        state.stream = own;
        state.vfork_parent = (flags & CLONE_VFORK != 0).then_some(parent);
        self.cause(child, Some(place));
        Ok(())
    }

    pub(super) fn exec(&mut self, task: usize) -> Done {
        let old = self.tasks[task].space;
        let stream = self.place(task, Some(self.tasks[task].stream));
        self.tasks[task].stream = stream;
        let new = self.new_space(stream);
        let op = Op::Exec {
            old: slot(old),
            new: slot(new),
        };
        let uses = [changes_space(old), changes_space(new)];
        self.put(task, op, Class::Exec, &uses)?;
        self.tasks[task].space = new;
        self.leave(task, stream, old);
        Ok(())
    }

    pub(super) fn exit(&mut self, task: usize) -> Done {
        let (space, stream) = (self.tasks[task].space, self.tasks[task].stream);
        let op = Op::Exit { space: slot(space) };
        self.put(task, op, Class::Exit, &[changes_space(space)])?;
        self.tasks[task].ended = true;
        self.leave(task, stream, space);
        Ok(())
    }

    /// `task` has just left `space`; a parent in vfork continues.
    fn leave(&mut self, task: usize, stream: u32, space: u32) {
        if let Some(node) = self.slots.leave(stream, space) {
            self.memory.end(node);
        }
        if let Some(parent) = self.tasks[task].vfork_parent.take() {
            let released = self.tasks[task].last;
            self.cause(parent, released);
        }
    }

    /// The slot of an empty space that a task in `stream` makes.
    fn new_space(&mut self, stream: u32) -> u32 {
        let space = Space {
            node: self.memory.begin(None),
            users: 1,
            ..Space::default()
        };
        self.slots.take(stream, space)
    }

    pub(super) fn wait(&mut self, parent: usize, child: TaskId) -> Done {
        let child = self.task_index(child);
        let ended = self.tasks[child].last;
        self.pause(parent);
        self.cause(parent, ended);
        if self.options.streams == Streams::ByTask && ended.is_some() {
            let state = &self.tasks[child];
            self.slots.inherit(self.tasks[parent].stream, state.stream);
        }
        Ok(())
    }
}
