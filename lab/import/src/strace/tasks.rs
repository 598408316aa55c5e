//! Tasks: who made whom, who is alive, whose id means whom.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};

use super::line::{Line, What};
use super::text::{Id, MOST_TASKS};
use super::{Importer, NAMELESS, calls, line};
use crate::ImportError;
use crate::report::Place;
use vellum_record::Body;

/// Ids from here on stand for children of which only another namespace's id is
/// known.
const UNNAMED: u32 = 1 << 30;
/// Such children that are kept in mind.
const MOST_UNNAMED: usize = 1024;
const _: () = assert!(UNNAMED > MOST_TASKS);

/// A line that waits until it shows who made its task.
struct Waiting {
    place: Place,
    time: u64,
    text: String,
}

/// A child that was made and did nothing yet; its creator calls it by an id
/// that seems to be another namespace's.
struct Unnamed {
    id: u32,
    parent: u32,
    local: u32,
}

/// What is known of tasks besides what the translation knows.
#[derive(Default)]
pub struct Tasks {
    /// The process of each live task.
    living: BTreeMap<u32, u32>,
    /// Live tasks of each process.
    members: HashMap<u32, BTreeSet<u32>>,
    /// Whoever was alive once.
    known: HashSet<u32>,
    /// Live tasks whose last call was `exit`, or `exit_group` of their process.
    leaving: BTreeSet<u32>,
    /// The text does not tell when tasks end (`strace -qqq`).
    quiet: bool,
    /// Tasks in the middle of making another one, in the order of their calls.
    creating: Vec<u32>,
    /// Children that acted before their creator's call ended, by creator.
    early: HashMap<u32, u32>,
    /// Lines of tasks that several others may have made.
    orphans: HashMap<u32, Vec<Waiting>>,
    unnamed: VecDeque<Unnamed>,
    unnamed_made: u32,
    /// What ids of other namespaces mean to a process, and to any.
    aliases: HashMap<(u32, u32), u32>,
    last_aliases: HashMap<u32, u32>,
    /// Tasks whose wait for a process ended, in `-ff` files that tell of it too
    /// early, and the other way round.
    awaiting: HashMap<u32, u32>,
    awaited: HashMap<u32, u32>,
    /// The process that lines without an id are about.
    nameless: Option<u32>,
    /// Children whose ids are guesses.
    pub guessed: u64,
}

impl Importer<'_> {
    /// Whether a task was ever alive.
    pub(super) fn knows(&self, tid: u32) -> bool {
        self.tasks.known.contains(&tid)
    }

    pub(super) fn knows_anybody(&self) -> bool {
        !self.tasks.known.is_empty()
    }

    /// The process whose end a task waited for, if that is still to come.
    pub(super) fn waits_for(&self, tid: u32) -> Option<u32> {
        self.tasks.awaiting.get(&tid).copied()
    }

    /// Takes over from the translation whether a task is alive.
    pub(super) fn follow(&mut self, tid: u32) {
        match self.feed.translator.process_of(tid) {
            Some(process) => {
                if self.tasks.living.insert(tid, process) != Some(process) {
                    self.tasks.known.insert(tid);
                    self.tasks.members.entry(process).or_default().insert(tid);
                }
            }
            None => {
                if let Some(process) = self.tasks.living.remove(&tid)
                    && let Some(members) = self.tasks.members.get_mut(&process)
                {
                    members.remove(&tid);
                    if members.is_empty() {
                        self.tasks.members.remove(&process);
                    }
                }
                self.tasks.leaving.remove(&tid);
            }
        }
    }

    /// Which task a line is about. The first process has lines without its id
    /// until there is a second one, and whoever is alone has.
    pub(super) fn task(&mut self, told: Option<u32>, what: &What<'_>) -> u32 {
        let tasks = &self.tasks;
        let Some(told) = told else {
            let stays = |tid: &u32| !tasks.leaving.contains(tid);
            // A process lives on when its first thread is gone.
            let nameless = tasks.nameless.filter(|tid| tasks.members.contains_key(tid));
            if let Some(nameless) = nameless.filter(stays) {
                return nameless;
            }
            let mut others = tasks.living.keys().copied().filter(stays);
            let (alone, other) = (others.next(), others.next());
            return match (alone, other, nameless) {
                (Some(alone), None, _) => alone,
                (_, _, Some(leaving)) => leaving,
                _ => *self.tasks.nameless.get_or_insert(NAMELESS),
            };
        };
        if tasks.nameless == Some(NAMELESS) && told != NAMELESS && !tasks.living.contains_key(&told)
        {
            // In the middle of a call it does nothing but end it.
            let own = match self.pending.get(&NAMELESS) {
                Some(call) => matches!(what, What::Resumed { name, .. } if *name == call.name),
                None => true,
            };
            if own {
                self.tasks.nameless = Some(told);
                self.rename(NAMELESS, told);
            }
        }
        told
    }

    /// A live task is known under another id from now on.
    fn rename(&mut self, from: u32, to: u32) {
        self.feed.translator.rename(from, to);
        self.files.rename(from, to);
        // Threads of a process follow its first one.
        let threads = self.tasks.members.remove(&from).unwrap_or_default();
        for tid in threads {
            self.tasks.living.remove(&tid);
            self.follow(tid);
        }
        self.follow(from);
        self.follow(to);
        if let Some(pending) = self.pending.remove(&from) {
            self.pending.insert(to, pending);
        }
        let tasks = &mut self.tasks;
        tasks.known.remove(&from);
        for creator in &mut tasks.creating {
            *creator = if *creator == from { to } else { *creator };
        }
        if let Some(child) = tasks.early.remove(&from) {
            tasks.early.insert(to, child);
        }
        for child in &mut tasks.unnamed {
            child.parent = if child.parent == from {
                to
            } else {
                child.parent
            };
        }
    }

    /// A task is in the middle of making another one.
    pub(super) fn begins_creation(&mut self, tid: u32) {
        self.tasks.creating.push(tid);
    }

    /// A task's call is over.
    pub(super) fn ends_call(&mut self, tid: u32) {
        self.tasks.creating.retain(|creator| *creator != tid);
    }

    /// Makes sure that a task's creator is known, if its call is still in
    /// progress. False: it does not show yet which it is, and the line waits.
    pub(super) fn adopt_child(
        &mut self,
        tid: u32,
        time: u64,
        text: &str,
    ) -> Result<bool, ImportError> {
        let place = self.feed.place;
        let waiting = || Waiting {
            place,
            time,
            text: text.to_owned(),
        };
        if let Some(lines) = self.tasks.orphans.get_mut(&tid) {
            lines.push(waiting());
            return Ok(false);
        }
        // A process goes on under its id when another thread executes a program.
        if self.tasks.living.contains_key(&tid) || self.tasks.members.contains_key(&tid) {
            return Ok(true);
        }
        if self.name_child(tid) {
            return Ok(true);
        }
        let early = &self.tasks.early;
        let mut creators = self.tasks.creating.iter().copied();
        let mut creators = creators.by_ref().filter(|tid| !early.contains_key(tid));
        let (first, second) = (creators.next(), creators.next());
        let Some(parent) = first else {
            return Ok(true);
        };
        if second.is_none()
            && let Some(call) = self.pending.get(&parent)
            && calls::clone_flags(&call.name, &call.args).is_some()
        {
            let (name, args) = (call.name.clone(), call.args.clone());
            self.tasks.early.insert(parent, tid);
            self.created(time, parent, tid, &name, &args)?;
            return Ok(true);
        }
        self.tasks.orphans.insert(tid, vec![waiting()]);
        Ok(false)
    }

    /// Whether a task that appears is a child whose id was another namespace's.
    fn name_child(&mut self, tid: u32) -> bool {
        let unnamed = &self.tasks.unnamed;
        let same = unnamed.iter().position(|child| child.local == tid);
        let oldest = || unnamed.iter().position(|child| child.parent < tid);
        let Some(at) = same.or_else(oldest) else {
            return false;
        };
        let Some(child) = self.tasks.unnamed.remove(at) else {
            return false;
        };
        if child.local != tid {
            self.tasks.guessed += 1;
        }
        self.rename(child.id, tid);
        self.call_it(self.process(child.parent), child.local, tid);
        true
    }

    /// What a process means by an id.
    fn call_it(&mut self, process: u32, local: u32, tid: u32) {
        if local != tid {
            self.tasks.aliases.insert((process, local), tid);
            self.tasks.last_aliases.insert(local, tid);
        }
    }

    /// Whom a process means by an id.
    fn meaning(&mut self, process: u32, id: Id) -> u32 {
        if let Some(told) = id.told {
            return told;
        }
        let local = id.local;
        if let Some(tid) = self.tasks.aliases.get(&(process, local)) {
            return *tid;
        }
        let mut unnamed = self.tasks.unnamed.iter();
        if let Some(at) = unnamed.position(|child| child.local == local)
            && let Some(child) = self.tasks.unnamed.remove(at)
        {
            return self.keep_id(&child);
        }
        if self.knows(local) {
            return local;
        }
        *self.tasks.last_aliases.get(&local).unwrap_or(&local)
    }

    /// A child that never appeared under another id has the one that its
    /// creator calls it by, if nobody else has it.
    fn keep_id(&mut self, child: &Unnamed) -> u32 {
        if self.tasks.living.contains_key(&child.local) {
            return child.id;
        }
        self.rename(child.id, child.local);
        child.local
    }

    /// Takes the lines of a task that waited for its creator.
    fn release(&mut self, tid: u32) -> Result<(), ImportError> {
        let place = self.feed.place;
        for waiting in self.tasks.orphans.remove(&tid).unwrap_or_default() {
            self.feed.place = waiting.place;
            if let Some(line) = line::split(&waiting.text) {
                self.take(tid, waiting.time, &line)?;
            }
        }
        self.feed.place = place;
        Ok(())
    }

    /// The call that made a task returned to its creator, who calls it `id`.
    pub(super) fn creation_ended(
        &mut self,
        time: u64,
        parent: u32,
        id: Id,
        (name, args): (&str, &str),
    ) -> Result<(), ImportError> {
        let process = self.process(parent);
        // Ids grow, and those of a younger namespace are smaller.
        let foreign = id.told.is_none() && id.local < parent;
        let child = id.told.unwrap_or(id.local);
        if let Some(early) = self.tasks.early.remove(&parent)
            && (early == child || foreign)
        {
            self.tasks.guessed += u64::from(early != child);
            self.call_it(process, id.local, early);
            return Ok(());
        }
        if child == parent {
            self.feed.skip("a task without a usable id");
            return Ok(());
        }
        if !foreign || self.tasks.orphans.contains_key(&child) {
            self.call_it(process, id.local, child);
            self.created(time, parent, child, name, args)?;
            return self.release(child);
        }
        let orphans = self.tasks.orphans.iter();
        let oldest = orphans
            .filter(|(tid, _)| **tid > parent)
            .min_by_key(|(tid, lines)| (lines[0].time, **tid))
            .map(|(tid, _)| *tid);
        if let Some(tid) = oldest {
            self.tasks.guessed += 1;
            self.call_it(process, id.local, tid);
            self.created(time, parent, tid, name, args)?;
            return self.release(tid);
        }
        if self.separate && !self.clock.has_times() {
            return Err(ImportError::Format(
                "files of tasks in other PID namespaces cannot be put in order without times: \
                 record with strace -ff -ttt, or with --pidns-translation"
                    .to_owned(),
            ));
        }
        self.tasks.unnamed_made += 1;
        let unnamed = UNNAMED + self.tasks.unnamed_made;
        self.created(time, parent, unnamed, name, args)?;
        if self.tasks.living.contains_key(&unnamed) {
            self.tasks.unnamed.push_back(Unnamed {
                id: unnamed,
                parent,
                local: id.local,
            });
            if self.tasks.unnamed.len() > MOST_UNNAMED
                && let Some(oldest) = self.tasks.unnamed.pop_front()
            {
                self.keep_id(&oldest);
            }
        }
        Ok(())
    }

    /// A task's last call: it ends, or with it its process.
    pub(super) fn leaves(&mut self, time: u64, tid: u32, whole: bool) -> Result<(), ImportError> {
        let leaving: Vec<u32> = match self.tasks.members.get(&self.process(tid)) {
            Some(members) if whole => members.iter().copied().collect(),
            _ => vec![tid],
        };
        if !self.tasks.quiet {
            self.tasks.leaving.extend(leaving);
            return Ok(());
        }
        leaving
            .into_iter()
            .try_for_each(|tid| self.ended(time, tid))
    }

    /// The text shows that tasks end without telling it.
    fn quieten(&mut self, time: u64) -> Result<(), ImportError> {
        self.tasks.quiet = true;
        let leaving = std::mem::take(&mut self.tasks.leaving);
        leaving
            .into_iter()
            .try_for_each(|tid| self.ended(time, tid))
    }

    /// A task ended.
    pub(super) fn ended(&mut self, time: u64, tid: u32) -> Result<(), ImportError> {
        if let Some(call) = self.pending.remove(&tid)
            && calls::creates(&call.name)
        {
            self.ends_call(tid);
        }
        let process = self.process(tid);
        self.give(time, tid, Body::Exit)?;
        if !self.tasks.members.contains_key(&process) {
            self.files.forget(process);
            if let Some(waiter) = self.tasks.awaited.remove(&process) {
                self.tasks.awaiting.remove(&waiter);
                return self.wait(time, waiter, process);
            }
        }
        Ok(())
    }

    /// All tasks of a process have ended, whether the text told it or not.
    fn all_ended(&mut self, time: u64, process: u32) -> Result<(), ImportError> {
        let members = self.tasks.members.get(&process);
        let members: Vec<u32> = members.into_iter().flatten().copied().collect();
        if members.iter().any(|tid| self.tasks.leaving.contains(tid)) {
            self.quieten(time)?;
        }
        let alive = |tid: &u32| self.tasks.living.contains_key(tid);
        let members: Vec<u32> = members.into_iter().filter(alive).collect();
        members
            .into_iter()
            .try_for_each(|tid| self.ended(time, tid))
    }

    /// An id is given to a new task: whoever had it has ended.
    pub(super) fn reuse(&mut self, time: u64, tid: u32) -> Result<(), ImportError> {
        if !self.tasks.living.contains_key(&tid) {
            return Ok(());
        }
        if self.tasks.leaving.contains(&tid) {
            self.quieten(time)?;
        }
        match self.tasks.living.contains_key(&tid) {
            true => self.ended(time, tid),
            false => Ok(()),
        }
    }

    /// A task waited for the end of a process, which it calls `id`.
    pub(super) fn waited(&mut self, time: u64, tid: u32, id: Id) -> Result<(), ImportError> {
        let process = self.meaning(self.process(tid), id);
        if self.tasks.members.contains_key(&process) {
            if self.separate {
                self.tasks.awaiting.insert(tid, process);
                self.tasks.awaited.insert(process, tid);
                return Ok(());
            }
            self.all_ended(time, process)?;
        } else if !self.knows(process) {
            self.feed.pass_over("waits for tasks that do not show");
            return Ok(());
        }
        self.wait(time, tid, process)
    }

    /// A task goes on: the end that it waited for came before.
    pub(super) fn goes_on(&mut self, time: u64, tid: u32) -> Result<(), ImportError> {
        match self.tasks.awaiting.get(&tid).copied() {
            Some(process) => self.all_ended(time, process),
            None => Ok(()),
        }
    }

    /// A thread's `execve` goes on under the id of its process's first thread.
    /// Without that thread's end in the text, the call's end tells it.
    pub(super) fn find_executing(
        &mut self,
        time: u64,
        tid: u32,
        name: &str,
    ) -> Result<(), ImportError> {
        let is_in_it = |tid: u32| self.pending.get(&tid).is_some_and(|call| call.name == name);
        if !matches!(name, "execve" | "execveat") || is_in_it(tid) {
            return Ok(());
        }
        let mut members = self.tasks.members.get(&tid).into_iter().flatten().copied();
        match members.find(|member| *member != tid && is_in_it(*member)) {
            Some(by) => self.superseded(time, tid, by),
            None => Ok(()),
        }
    }

    /// All threads of a process are gone but the one that executes a program,
    /// whose call goes on under the process's id.
    pub(super) fn superseded(&mut self, time: u64, tid: u32, by: u32) -> Result<(), ImportError> {
        let members = self.tasks.members.get(&self.process(tid));
        let members: Vec<u32> = members.into_iter().flatten().copied().collect();
        for member in members {
            if member != by {
                self.pending.remove(&member);
                self.give(time, member, Body::Exit)?;
            }
        }
        if let Some(pending) = self.pending.remove(&by) {
            self.pending.insert(tid, pending);
        }
        Ok(())
    }

    /// A process runs a program: of its tasks one is left.
    pub(super) fn executed(&mut self, tid: u32) {
        let members = self.tasks.members.get(&self.process(tid));
        let members: Vec<u32> = members.into_iter().flatten().copied().collect();
        members.into_iter().for_each(|member| self.follow(member));
    }

    /// Whatever waits for something that does not come.
    pub(super) fn settle(&mut self, time: u64) -> Result<(), ImportError> {
        let mut orphans: Vec<u32> = self.tasks.orphans.keys().copied().collect();
        orphans.sort_unstable();
        for tid in orphans {
            self.release(tid)?;
        }
        for child in std::mem::take(&mut self.tasks.unnamed) {
            self.keep_id(&child);
        }
        let mut awaiting: Vec<u32> = self.tasks.awaiting.keys().copied().collect();
        awaiting.sort_unstable();
        for tid in awaiting {
            self.goes_on(time, tid)?;
        }
        self.quieten(time)
    }

    /// Takes a line apart for which [`Importer::adopt_child`] was asked.
    pub(super) fn take(&mut self, tid: u32, time: u64, line: &Line<'_>) -> Result<(), ImportError> {
        self.goes_on(time, tid)?;
        self.take_what(tid, time, line)
    }
}
