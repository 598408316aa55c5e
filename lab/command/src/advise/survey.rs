//! What a workload asks of memory management, counted from its trace.
//!
//! Everything here is an exact count of events, and says so where it is used. What an event
//! costs is not known here.

use std::collections::HashMap;

use super::spaces::{Gone, Mappings, PAGE, Space, What};
use vellum_results::advise::{Asked, Calls, Faults, Place};
use vellum_trace::model::Model;
use vellum_trace::{Access, Event, EventKind, Header, MapOrigin, TaskId};

const CLONE_VM: u64 = 0x100;
const CLONE_VFORK: u64 = 0x4000;
const CLONE_THREAD: u64 = 0x1_0000;
const MADV_DONTNEED: u32 = 4;
const MADV_FREE: u32 = 8;

/// Places that are told.
const PLACES: usize = 5;

/// Pages from which on a mapping could be filled in one call.
const LEAST_FILLED: u64 = 16;

/// Share of a mapping's pages that are touched if it is touched nearly whole.
const NEARLY_WHOLE: f64 = 0.9;

/// A count, and of it the place with the most.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Counted {
    /// How many.
    pub count: u64,
    /// Where most are, in words.
    pub place: String,
    /// How many are there.
    pub there: u64,
}

/// Forks whose child soon executes a program.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct ForkExecs {
    /// How many, and which command makes most of them.
    pub forks: Counted,
    /// Private pages that the forks shared with their children, all together.
    pub pages: u64,
    /// Stores that faulted since, in either process, because the page was shared.
    pub copies: u64,
}

/// What the counts are of that advice is about.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Patterns {
    /// First touches in mappings that are touched nearly whole.
    pub filled: Counted,
    /// Pages of these mappings that are not touched.
    pub unfilled_pages: u64,
    /// Mappings that follow one of the same size and rights.
    pub alike: Counted,
    /// Touches of pages that `brk` or `munmap` had given up.
    pub trimmed: Counted,
    /// Of these, those that `brk` had given up.
    pub trimmed_by_brk: u64,
    /// Touches of pages that `madvise` had given up.
    pub advised: Counted,
    /// Forks before programs are executed.
    pub fork_execs: ForkExecs,
}

/// A fork, until its child executes a program.
#[derive(Clone, Copy, Default, Debug)]
struct Forked {
    pages: u64,
    copies: u64,
    command: usize,
    executed: bool,
}

/// Counts events as they come.
pub struct Survey<'h> {
    header: &'h Header,
    asked: Asked,
    model: Model,
    spaces: Vec<Option<(Space, u32)>>,
    of_task: HashMap<TaskId, usize>,
    mappings: Mappings,
    places: HashMap<(usize, What), u64>,
    alike: HashMap<usize, u64>,
    trimmed: HashMap<(usize, What), u64>,
    advised: HashMap<(usize, What), u64>,
    trimmed_by_brk: u64,
    /// By child.
    forks: HashMap<TaskId, Forked>,
    /// The child of the last fork of each space.
    last_child: HashMap<usize, TaskId>,
}

impl<'h> Survey<'h> {
    /// Of a trace with this header.
    pub fn new(header: &'h Header) -> Survey<'h> {
        Survey {
            header,
            asked: Asked {
                duration_us: header.duration_us,
                tasks: header.tasks.len() as u64,
                ..Asked::default()
            },
            model: Model::default(),
            spaces: Vec::new(),
            of_task: HashMap::new(),
            mappings: Mappings::default(),
            places: HashMap::new(),
            alike: HashMap::new(),
            trimmed: HashMap::new(),
            advised: HashMap::new(),
            trimmed_by_brk: 0,
            forks: HashMap::new(),
            last_child: HashMap::new(),
        }
    }

    /// Counts one event.
    pub fn take(&mut self, event: &Event) {
        self.model.take(event);
        self.count(&event.kind);
        let number = self.space_of(event.task);
        match event.kind {
            EventKind::Create { child, clone_flags } => self.create(number, child, clone_flags),
            EventKind::Exec { name } => self.exec(event.task, name as usize + 1),
            EventKind::Exit => self.leave(event.task),
            EventKind::Fault {
                address,
                access,
                kernel,
                present,
            } => self.fault(
                (number, event.task),
                address / PAGE,
                access,
                (kernel, present),
            ),
            _ => self.change(number, &event.kind),
        }
    }

    fn count(&mut self, kind: &EventKind) {
        let calls: &mut Calls = &mut self.asked.calls;
        let counter = match kind {
            EventKind::Create { clone_flags, .. } => match *clone_flags {
                flags if flags & CLONE_THREAD != 0 => &mut calls.thread,
                flags if flags & CLONE_VM != 0 => &mut calls.vfork,
                _ => &mut calls.fork,
            },
            EventKind::Exec { .. } => &mut calls.execve,
            EventKind::Map {
                origin: MapOrigin::Mmap,
                ..
            } => &mut calls.mmap,
            EventKind::Unmap { .. } => &mut calls.munmap,
            EventKind::Protect { .. } => &mut calls.mprotect,
            EventKind::Remap { .. } => &mut calls.mremap,
            EventKind::Brk { .. } => &mut calls.brk,
            EventKind::Advise { .. } => &mut calls.madvise,
            EventKind::FileRead { .. } => &mut calls.read,
            EventKind::FileWrite { .. } => &mut calls.write,
            _ => return,
        };
        *counter += 1;
    }

    /// The number of the space that `task` uses, made if it has none.
    fn space_of(&mut self, task: TaskId) -> usize {
        if let Some(number) = self.of_task.get(&task) {
            return *number;
        }
        self.enter(task, Space::default())
    }

    fn enter(&mut self, task: TaskId, space: Space) -> usize {
        let number = self.spaces.len();
        self.spaces.push(Some((space, 1)));
        self.of_task.insert(task, number);
        number
    }

    fn leave(&mut self, task: TaskId) {
        let Some(number) = self.of_task.remove(&task) else {
            return;
        };
        if let Some((_, users)) = &mut self.spaces[number] {
            *users -= 1;
            if *users == 0 {
                self.spaces[number] = None;
                self.last_child.remove(&number);
            }
        }
    }

    fn create(&mut self, number: usize, child: TaskId, flags: u64) {
        let Some((space, users)) = &mut self.spaces[number] else {
            return;
        };
        if flags & CLONE_VM != 0 {
            *users += 1;
            self.of_task.insert(child, number);
            return;
        }
        let forked = Forked {
            pages: space.resident,
            command: space.command,
            ..Forked::default()
        };
        let copy = space.fork(&self.mappings);
        self.enter(child, copy);
        // The kernel waits for the child of a vfork, copy or not.
        if flags & CLONE_VFORK == 0 {
            self.forks.insert(child, forked);
            self.last_child.insert(number, child);
        }
    }

    fn exec(&mut self, task: TaskId, command: usize) {
        if let Some(forked) = self.forks.get_mut(&task) {
            forked.executed = true;
        }
        self.leave(task);
        self.enter(task, Space::running(command));
    }

    fn fault(
        &mut self,
        (number, task): (usize, TaskId),
        page: u64,
        access: Access,
        (kernel, present): (bool, bool),
    ) {
        let Some((space, _)) = &mut self.spaces[number] else {
            return;
        };
        let command = space.command;
        let faults: &mut Faults = &mut self.asked.faults;
        faults.all += 1;
        faults.kernel += u64::from(kernel);
        let what = if present {
            faults.present += 1;
            space.what(&self.mappings, page)
        } else {
            let touch = space.touch(&mut self.mappings, page);
            let what = touch.map(|touch| touch.what);
            match what {
                Some(What::File(_) | What::Shared) => faults.file += 1,
                _ => faults.anonymous += 1,
            }
            if let Some((what, why)) = touch.and_then(|touch| Some((touch.what, touch.again?))) {
                let counts = match why {
                    Gone::Advised => &mut self.advised,
                    Gone::Brk | Gone::Unmapped => &mut self.trimmed,
                };
                *counts.entry((command, what)).or_default() += 1;
                self.trimmed_by_brk += u64::from(why == Gone::Brk);
            }
            what
        };
        if let Some(what) = what {
            *self.places.entry((command, what)).or_default() += 1;
        }
        if present && access == Access::Write {
            self.copied(number, task);
        }
    }

    /// A store found a page that was there: the last fork of the space may be why, or the one
    /// that made it.
    fn copied(&mut self, number: usize, task: TaskId) {
        let own = self.forks.get(&task).filter(|own| !own.executed);
        let child = match own {
            Some(_) => Some(task),
            None => self.last_child.get(&number).copied(),
        };
        if let Some(forked) = child.and_then(|child| self.forks.get_mut(&child)) {
            forked.copies += 1;
        }
    }

    fn change(&mut self, number: usize, kind: &EventKind) {
        let Some((space, _)) = &mut self.spaces[number] else {
            return;
        };
        let all = &mut self.mappings;
        let pages = |address: u64, length: u64| (address / PAGE, (address + length).div_ceil(PAGE));
        match *kind {
            EventKind::Map {
                address,
                length,
                prot,
                shared,
                grows_down,
                file,
                origin,
                ..
            } => {
                let range = pages(address, length);
                let what = match file {
                    Some(file) => What::File(file),
                    None if shared => What::Shared,
                    None if grows_down => What::Stack,
                    None => What::Anonymous(order(range.1 - range.0)),
                };
                let is_another = space.map(all, range, what, prot.0);
                if is_another && origin == MapOrigin::Mmap {
                    *self.alike.entry(space.command).or_default() += 1;
                }
            }
            EventKind::Unmap { address, length } => {
                let (first, end) = pages(address, length);
                space.remove(first, end, Gone::Unmapped);
            }
            EventKind::Remap {
                address,
                length,
                new_address,
                new_length,
            } => space.relocate(all, pages(address, length), pages(new_address, new_length)),
            EventKind::Brk { end } => space.brk(all, end),
            EventKind::Advise {
                address,
                length,
                advice: MADV_DONTNEED | MADV_FREE,
            } => {
                let (first, end) = pages(address, length);
                space.give_up(first, end, Gone::Advised);
            }
            _ => {}
        }
    }

    /// The counts, and what advice is about.
    pub fn finish(mut self) -> (Asked, Patterns) {
        let totals = self.model.totals();
        self.asked.peak_bytes = totals.peak * PAGE;
        self.asked.peak_anonymous_bytes = totals.peak_anonymous * PAGE;
        let mut places: Vec<((usize, What), u64)> = self.places.drain().collect();
        places.sort_by(|one, other| other.1.cmp(&one.1).then(one.0.cmp(&other.0)));
        let place = |((command, what), faults): &((usize, What), u64)| Place {
            command: command_name(self.header, *command),
            mapping: mapping_name(self.header, *what),
            faults: *faults,
        };
        self.asked.places = places.iter().take(PLACES).map(place).collect();
        let patterns = self.patterns();
        (self.asked, patterns)
    }

    fn patterns(&self) -> Patterns {
        let (mut filled, mut unfilled_pages) = (HashMap::new(), 0);
        for mapping in self.mappings.iter() {
            let is_private = matches!(mapping.what, What::Heap | What::Anonymous(_));
            let is_large = mapping.pages >= LEAST_FILLED;
            let least = NEARLY_WHOLE * mapping.pages as f64;
            if is_private && is_large && mapping.touched as f64 >= least {
                let place = (mapping.command, mapping.what);
                *filled.entry(place).or_default() += mapping.touched;
                unfilled_pages += mapping.pages.saturating_sub(mapping.touched);
            }
        }
        let of_places = |counts: &HashMap<(usize, What), u64>| {
            counted(counts, |(command, what)| {
                let command = command_name(self.header, *command);
                format!("{} of {command}", mapping_name(self.header, *what))
            })
        };
        let of_commands = |counts: &HashMap<usize, u64>| {
            counted(counts, |command| command_name(self.header, *command))
        };
        let mut execs = ForkExecs::default();
        let mut by_command = HashMap::new();
        for forked in self.forks.values().filter(|forked| forked.executed) {
            *by_command.entry(forked.command).or_default() += 1;
            execs.pages += forked.pages;
            execs.copies += forked.copies;
        }
        execs.forks = of_commands(&by_command);
        Patterns {
            filled: of_places(&filled),
            unfilled_pages,
            alike: of_commands(&self.alike),
            trimmed: of_places(&self.trimmed),
            trimmed_by_brk: self.trimmed_by_brk,
            advised: of_places(&self.advised),
            fork_execs: execs,
        }
    }
}

/// All of `counts`, with the place that has most.
fn counted<K: Ord>(counts: &HashMap<K, u64>, name: impl Fn(&K) -> String) -> Counted {
    let most = counts.iter().max_by(|one, other| {
        let by_count = one.1.cmp(other.1);
        by_count.then_with(|| other.0.cmp(one.0))
    });
    Counted {
        count: counts.values().sum(),
        place: most.map_or_else(String::new, |(place, _)| name(place)),
        there: most.map_or(0, |(_, there)| *there),
    }
}

/// The power of two, as an exponent, that so many pages round up to.
fn order(pages: u64) -> u32 {
    pages.max(1).next_power_of_two().trailing_zeros()
}

fn command_name(header: &Header, command: usize) -> String {
    let name = command
        .checked_sub(1)
        .and_then(|name| header.strings.get(name));
    name.map_or_else(|| "(before exec)".to_owned(), Clone::clone)
}

fn mapping_name(header: &Header, what: What) -> String {
    match what {
        What::Heap => "heap (brk)".to_owned(),
        What::Stack => "stack".to_owned(),
        What::Shared => "shared memory".to_owned(),
        What::Anonymous(order) => {
            let kib = 4u64 << order;
            match kib >> 10 {
                0 => format!("private memory mapped by up to {kib} KiB"),
                mib => format!("private memory mapped by up to {mib} MiB"),
            }
        }
        What::File(file) => {
            let name = header.files.get(file.0 as usize).map(|file| &file.name);
            let name = name.filter(|name| !name.is_empty());
            name.map_or_else(|| "a file without a name".to_owned(), Clone::clone)
        }
    }
}
