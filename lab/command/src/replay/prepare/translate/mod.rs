//! From events to operations, one event at a time.
//!
//! The translator keeps what it needs to know of the recorded system: tasks,
//! spaces with their regions, file lengths. It follows the replayed engine's
//! state, so an event that the engine could not execute is repaired here, and
//! counted in [`Repairs`].

mod calls;
mod family;
mod faults;
mod io;

use std::sync::Arc;

use vellum_engine::{FileSlot, Op, Prot, SpaceSlot};

use super::balance::Balance;
use super::files::Files;
use super::memory::Memory;
use super::merge::Next;
use super::schedule::{Item, Place, Resource, Scheduler, Use};
use super::space::{Slots, Space};
use super::survey::Survey;
use super::tasks::Task;
use super::{Options, PrepareError, Streams};
use crate::replay::Service;
use crate::replay::explain::Expectation;
use crate::replay::fold::{Fold, Plan};
use crate::replay::repairs::Repairs;
use crate::replay::workload::{Class, Workload};
use vellum_trace::{EventKind, Header};

/// Pages of the user half of the address space (47 address bits), but for the last, which Linux
/// gives to nobody either.
const USER_PAGES: u64 = (1 << 35) - 1;

/// Bytes of a page of the events at hand, as a shift: folded ones count the
/// engine's pages as if they had this size.
const PAGE_SHIFT: u32 = 12;

/// Frames that a CPU zeroes in one idle time, one for each microsecond of it, at
/// the most.
const IDLE_FRAMES: u64 = 1024;

type Done = Result<(), PrepareError>;

/// The state of the translation.
pub(super) struct Translator<'a> {
    header: &'a Header,
    options: Options,
    scheduler: Scheduler,
    /// If there is a stream for each CPU: what puts tasks there.
    balance: Option<Balance>,
    /// Tasks of copy 0, then of copy 1, and so on.
    tasks: Vec<Task>,
    slots: Slots,
    files: Files,
    repairs: Repairs,
    memory: Memory,
    /// Streams in which something has happened: when it last did, in microseconds of
    /// the merged recording.
    busy_until: Vec<u64>,
    /// Shared-memory objects made by mappings.
    objects: u32,
    events: u64,
    /// What the recorded kernel's service was, and how much of it was taken out.
    service: Service,
    /// Number of the event at hand.
    origin: u32,
    /// Copy of the event at hand.
    copy: u32,
    /// One for each copy, if the engine's pages are not those recorded.
    folds: Vec<Fold>,
    /// Reused: what an event was folded to.
    folded: Vec<EventKind>,
}

impl<'a> Translator<'a> {
    pub(super) fn new(
        header: &'a Header,
        options: &Options,
        survey: &Survey,
        plan: Option<&Arc<Plan>>,
    ) -> Self {
        let copies = options.copies as usize;
        let tasks = header.tasks.len() * copies;
        let (streams, scheduler, balance) = match options.streams {
            Streams::ByCpu(cpus) => {
                let balance = Balance::new(cpus, survey.events.repeat(copies));
                (cpus, Scheduler::by_cpu(cpus), Some(balance))
            }
            Streams::ByTask => (tasks, Scheduler::by_task(tasks), None),
        };
        Self {
            header,
            options: *options,
            scheduler,
            balance,
            tasks: vec![Task::default(); tasks],
            slots: Slots::new(streams),
            files: Files::new(header, options, survey),
            repairs: Repairs::default(),
            memory: Memory::default(),
            busy_until: vec![0; streams],
            objects: 0,
            events: 0,
            service: Service {
                prices: survey.service,
                ..Service::default()
            },
            origin: 0,
            copy: 0,
            folds: (0..copies)
                .filter_map(|_| Fold::new(options.pages, header.tasks.len(), plan))
                .collect(),
            folded: Vec::new(),
        }
    }

    /// Translates one event.
    pub(super) fn event(&mut self, next: &Next) -> Done {
        self.origin = next.index;
        self.copy = next.copy;
        let task = self.task_index(next.event.task);
        if let EventKind::Accessed { .. } = next.event.kind {
            return self.sample(task, next);
        }
        self.events += 1;
        if self.tasks[task].ended {
            self.repairs.meaningless += 1;
            return Ok(());
        }
        self.start_if_new(task)?;
        let stream = self.tasks[task].stream;
        if let Some(balance) = &mut self.balance {
            balance.done(task, stream);
            self.idle_until(stream, next.time_us)?;
        }
        if u64::from(next.index) < self.header.beginning {
            return self.fold_and_dispatch(task, next);
        }
        let ran_us = next.event.ran_us.unwrap_or(0);
        let owed = &mut self.tasks[task].owed;
        let user_ns = owed.user_ns(next.event.kind, ran_us, &self.service.prices);
        let ran_ns = ran_us.saturating_mul(1000);
        self.service.taken_ns += ran_ns - user_ns;
        self.service.of_ns += ran_ns;
        self.scheduler.compute(stream, user_ns);
        self.fold_and_dispatch(task, next)
    }

    /// Translates a sample of accessed marks. The task may have ended meanwhile.
    fn sample(&mut self, task: usize, next: &Next) -> Done {
        let Task { started, ended, .. } = self.tasks[task];
        match started && !ended {
            true => self.fold_and_dispatch(task, next),
            false => Ok(()),
        }
    }

    fn fold_and_dispatch(&mut self, task: usize, next: &Next) -> Done {
        let Some(fold) = self.folds.get_mut(next.copy as usize) else {
            return self.dispatch(task, next.event.kind);
        };
        let mut folded = std::mem::take(&mut self.folded);
        fold.event(next.event.task, next.event.kind, &mut folded)?;
        let done = folded
            .drain(..)
            .try_for_each(|kind| self.dispatch(task, kind));
        self.folded = folded;
        done
    }

    /// Log2 of the recorded pages in one of the engine's.
    fn fold_shift(&self) -> u32 {
        self.folds.first().map_or(0, Fold::shift)
    }

    fn dispatch(&mut self, task: usize, kind: EventKind) -> Done {
        match kind {
            EventKind::Create { child, clone_flags } => self.create(task, child, clone_flags),
            EventKind::Exec { .. } => self.exec(task),
            EventKind::Exit => self.exit(task),
            EventKind::Wait { child } => self.wait(task, child),
            EventKind::Map { .. } => self.map(task, kind),
            EventKind::Unmap { address, length } => self.unmap(task, address, length),
            EventKind::Protect {
                address,
                length,
                prot,
            } => self.protect(task, address, length, prot),
            EventKind::Remap {
                address,
                length,
                new_address,
                new_length,
            } => self.remap(task, (address, length), (new_address, new_length)),
            EventKind::Brk { end } => self.brk(task, end),
            EventKind::Advise {
                address,
                length,
                advice,
            } => self.advise(task, address, length, advice),
            EventKind::Fault {
                address, access, ..
            } => self.fault(task, address >> PAGE_SHIFT, access_of(access), Class::Fault),
            EventKind::MapAround { file, first, last } => self.map_around(task, file, first, last),
            EventKind::FileRead {
                file,
                offset,
                length,
            } => self.file_read(task, file, offset, length),
            EventKind::FileWrite {
                file,
                offset,
                length,
            } => self.file_write(task, file, offset, length),
            EventKind::Truncate { file, size } => self.truncate(task, file, size),
            EventKind::Accessed { address, length } => self.accessed(task, address, length),
        }
    }

    /// The finished workload.
    pub(super) fn finish(self) -> Workload {
        let schedule = self.scheduler.finish();
        let first = |origin: &u32| u64::from(*origin) >= self.header.beginning;
        let beginning = schedule.streams.iter().map(|stream| {
            let origins = &stream.origins;
            origins.iter().position(first).unwrap_or(origins.len()) as u32
        });
        let beginning = beginning.collect();
        Workload {
            streams: schedule.streams,
            cuts: schedule.cuts,
            spaces: self.slots.spaces.len() as u32,
            files: self.files.into_origins(),
            events: self.events,
            copies: self.options.copies,
            fault_around: self.options.fault_around,
            pages: self.options.pages,
            repairs: self.repairs,
            peak_pages: self.memory.peak(),
            beginning,
            service: self.header.cpu_times.then_some(self.service),
            accesses: self.header.accesses,
        }
    }

    fn task_index(&self, task: vellum_trace::TaskId) -> usize {
        self.copy as usize * self.header.tasks.len() + task.0 as usize
    }

    /// The space that `task` is in.
    fn space(&mut self, task: usize) -> &mut Space {
        &mut self.slots.spaces[self.tasks[task].space as usize]
    }

    /// Appends an operation that goes as recorded.
    fn put(
        &mut self,
        task: usize,
        op: Op,
        class: Class,
        uses: &[Use],
    ) -> Result<Place, PrepareError> {
        self.put_expecting(task, op, class, Expectation::AsRecorded, uses)
    }

    /// Appends an operation of `task` after everything it must wait for.
    fn put_expecting(
        &mut self,
        task: usize,
        op: Op,
        class: Class,
        expectation: Expectation,
        uses: &[Use],
    ) -> Result<Place, PrepareError> {
        let state = &mut self.tasks[task];
        if let Some(last) = state.last
            && last.stream != state.stream
        {
            state.causes.push(last);
        }
        for usage in uses.iter().filter(|usage| usage.changes) {
            if let Resource::Space(slot) = usage.resource {
                self.slots.spaces[slot as usize].recent.clear();
            }
        }
        let space = &mut self.slots.spaces[state.space as usize];
        let shared = self.memory.is_shared(space.node);
        let holding = space.presence.holding(shared);
        self.memory.note(space.node, holding);
        let item = Item {
            op,
            class,
            expectation,
            origin: self.origin,
        };
        let place = self
            .scheduler
            .emit(state.stream, item, &state.causes, uses)?;
        state.causes.clear();
        state.last = Some(place);
        Ok(place)
    }

    /// Something happens on `cpu` at `now`. If nothing did for as long as makes a
    /// CPU idle, the idle loop runs first.
    fn idle_until(&mut self, cpu: u32, now: u64) -> Done {
        let since = std::mem::replace(&mut self.busy_until[cpu as usize], now);
        let gap = now.saturating_sub(since);
        match self.options.idle_us {
            Some(least) if gap >= least.max(1) => {}
            _ => return Ok(()),
        }
        let item = Item {
            op: Op::Idle {
                frames: gap.min(IDLE_FRAMES) as u32,
            },
            class: Class::Idle,
            expectation: Expectation::AsRecorded,
            origin: self.origin,
        };
        self.scheduler.emit(cpu, item, &[], &[])?;
        Ok(())
    }

    /// `task` waits for `place` before its next operation.
    fn cause(&mut self, task: usize, place: Option<Place>) {
        if self.options.streams.are_several() {
            self.tasks[task].causes.extend(place);
        }
    }

    /// What `task` computed until now came before what it will wait for.
    fn pause(&mut self, task: usize) {
        let state = &mut self.tasks[task];
        if self.scheduler.pause(state.stream, &state.causes) {
            state.causes.clear();
        }
    }

    /// The stream for `task`, which has that of `from` if any.
    fn place(&mut self, task: usize, from: Option<u32>) -> u32 {
        match &mut self.balance {
            Some(balance) => balance.place(task, from),
            None => task as u32,
        }
    }
}

/// An operation changes the space in `slot`.
fn changes_space(slot: u32) -> Use {
    Use {
        resource: Resource::Space(slot),
        changes: true,
    }
}

/// An operation uses the space in `slot` together with others.
fn uses_space(slot: u32) -> Use {
    Use {
        resource: Resource::Space(slot),
        changes: false,
    }
}

/// An operation changes `file`.
fn changes_file(file: FileSlot) -> Use {
    Use {
        resource: Resource::File(file.0),
        changes: true,
    }
}

/// An operation uses `file` together with others.
fn uses_file(file: FileSlot) -> Use {
    Use {
        resource: Resource::File(file.0),
        changes: false,
    }
}

fn slot(space: u32) -> SpaceSlot {
    SpaceSlot(space)
}

/// The rights as x86 enforces them: whatever can be written or executed can be
/// read.
fn prot_of(prot: vellum_trace::Prot) -> Prot {
    Prot {
        read: prot.0 & 7 != 0,
        write: prot.0 & 2 != 0,
        execute: prot.0 & 4 != 0,
    }
}

fn access_of(access: vellum_trace::Access) -> vellum_engine::Access {
    match access {
        vellum_trace::Access::Read => vellum_engine::Access::Read,
        vellum_trace::Access::Write => vellum_engine::Access::Write,
        vellum_trace::Access::Execute => vellum_engine::Access::Execute,
    }
}

/// Pages of a byte range, `start..end`; `None` if it is empty or leaves the
/// user half of the address space.
fn user_pages(address: u64, length: u64) -> Option<(u64, u64)> {
    let (start, end) = byte_pages(address, length)?;
    (end <= USER_PAGES).then_some((start, end))
}

/// Pages that a byte range touches, `start..end`; `None` if it is empty or
/// overflows.
fn byte_pages(offset: u64, length: u64) -> Option<(u64, u64)> {
    let end = offset.checked_add(length)?;
    (length > 0).then(|| (offset >> PAGE_SHIFT, end.div_ceil(1 << PAGE_SHIFT)))
}
