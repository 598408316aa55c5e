//! One stream for each task.
//!
//! There are too many tasks for clocks that say of each what it knows of every other.
//! A task remembers for whom it waited itself, and how far those had got; a wait for
//! the same or an earlier place is left out. What a third task implies is not.
//!
//! A segment begins with its waits, computes, and executes its operations. What a task
//! computed before an operation needs what the task itself waited for (its creation, the
//! end of a child), but not what the operation waits for: a segment without operations
//! is made for it then.

use std::collections::BTreeMap;

use super::{Item, Place, Resource, Schedule, Use, append};
use crate::replay::prepare::PrepareError;
use crate::replay::workload::{Segment, Stream, Wait};

/// Last accesses to a resource.
#[derive(Clone, Default)]
struct Accesses {
    /// Who changed it last.
    changed: Option<Place>,
    /// Since then, for each task that used it: the position of its last use.
    used: BTreeMap<u32, u32>,
}

/// A task's stream while it grows.
#[derive(Default)]
struct Growing {
    stream: Stream,
    /// Where segments begin because something is waited for or computed, ascending.
    marks: Vec<Mark>,
    /// Positions where a segment must end, because someone waits for them.
    ends: Vec<u32>,
    /// For each task that it waited for: how many operations of it.
    known: BTreeMap<u32, u32>,
    /// What it computed since the last mark or operation.
    computed_ns: u64,
}

struct Mark {
    position: u32,
    first_wait: u32,
    user_ns: u64,
}

/// Assigns operations to tasks and collects waits.
pub(in crate::replay::prepare) struct ByTask {
    growing: Vec<Growing>,
    spaces: Vec<Accesses>,
    files: Vec<Accesses>,
    /// Reused: what the operation at hand must wait for.
    needs: Vec<Place>,
}

impl ByTask {
    pub(super) fn new(tasks: usize) -> Self {
        Self {
            growing: (0..tasks).map(|_| Growing::default()).collect(),
            spaces: Vec::new(),
            files: Vec::new(),
            needs: Vec::new(),
        }
    }

    pub(super) fn stream(&mut self, task: u32) -> &mut Stream {
        &mut self.growing[task as usize].stream
    }

    /// The task computed for so long since what its stream holds.
    pub(super) fn compute(&mut self, task: u32, ns: u64) {
        let computed = &mut self.growing[task as usize].computed_ns;
        *computed = computed.saturating_add(ns);
    }

    pub(super) fn pause(&mut self, task: u32, causes: &[Place]) -> bool {
        let computed = self.growing[task as usize].computed_ns > 0;
        if computed {
            self.begin(task, causes);
        }
        computed
    }

    pub(super) fn emit(
        &mut self,
        task: u32,
        item: Item,
        causes: &[Place],
        uses: &[Use],
    ) -> Result<Place, PrepareError> {
        self.begin(task, causes);
        let position = append(self.stream(task), item)?;
        let place = Place {
            stream: task,
            position,
        };
        for usage in uses {
            self.account(place, *usage);
        }
        if !self.needs.is_empty() {
            self.join(place);
        }
        Ok(place)
    }

    /// Begins a segment at the end of the stream, if the task waits for one of `causes`
    /// or has computed.
    fn begin(&mut self, task: u32, causes: &[Place]) {
        let growing = &self.growing[task as usize];
        let place = Place {
            stream: task,
            position: growing.stream.ops.len() as u32,
        };
        let computed = growing.computed_ns > 0;
        self.needs.extend_from_slice(causes);
        if computed || !self.needs.is_empty() {
            self.join(place);
        }
    }

    /// Records one use and collects what it must wait for.
    fn account(&mut self, place: Place, usage: Use) {
        let (resources, index) = match usage.resource {
            Resource::Space(slot) => (&mut self.spaces, slot as usize),
            Resource::File(slot) => (&mut self.files, slot as usize),
        };
        if resources.len() <= index {
            resources.resize(index + 1, Accesses::default());
        }
        let accesses = &mut resources[index];
        self.needs.extend(accesses.changed);
        if usage.changes {
            let used = std::mem::take(&mut accesses.used).into_iter();
            self.needs
                .extend(used.map(|(stream, position)| Place { stream, position }));
            accesses.changed = Some(place);
        } else {
            accesses.used.insert(place.stream, place.position);
        }
    }

    /// Turns the collected needs, and what was computed, into a segment that begins at
    /// `place`.
    fn join(&mut self, place: Place) {
        let own = place.stream as usize;
        // Of each task the latest place counts, and comes first.
        self.needs.sort_unstable_by(|a, b| b.cmp(a));
        self.needs.dedup_by_key(|need| need.stream);
        let first_wait = self.growing[own].stream.waits.len() as u32;
        for need in self.needs.drain(..).rev() {
            let ops = need.position + 1;
            if need.stream == place.stream {
                continue;
            }
            let known = self.growing[own].known.entry(need.stream).or_default();
            if *known < ops {
                *known = ops;
                self.growing[own].stream.waits.push(Wait {
                    stream: need.stream,
                    ops,
                });
                self.growing[need.stream as usize].ends.push(ops);
            }
        }
        let growing = &mut self.growing[own];
        let user_ns = std::mem::take(&mut growing.computed_ns);
        let waits = growing.stream.waits.len() as u32 > first_wait;
        // Waits that come before nothing but other waits need no segment of their own.
        let before = growing.marks.last();
        let joined = before.is_some_and(|mark| mark.position == place.position)
            && before.is_some_and(|mark| mark.user_ns == 0);
        match joined {
            true => {
                if let Some(mark) = growing.marks.last_mut() {
                    mark.user_ns = user_ns;
                }
            }
            false if waits || user_ns > 0 => growing.marks.push(Mark {
                position: place.position,
                first_wait,
                user_ns,
            }),
            false => {}
        }
    }

    pub(super) fn finish(self) -> Schedule {
        let streams = self.growing.into_iter().map(Growing::finish).collect();
        Schedule {
            streams,
            cuts: Vec::new(),
        }
    }
}

impl Growing {
    fn finish(mut self) -> Stream {
        let len = self.stream.ops.len() as u32;
        let waits = self.stream.waits.len() as u32;
        if self.computed_ns > 0 {
            self.marks.push(Mark {
                position: len,
                first_wait: waits,
                user_ns: self.computed_ns,
            });
        }
        self.ends.push(0);
        self.ends.sort_unstable();
        self.ends.dedup();
        self.ends.retain(|end| *end < len);
        let mut ends = self.ends.iter().copied().peekable();
        for mark in &self.marks {
            while let Some(end) = ends.next_if(|end| *end < mark.position) {
                self.stream.begin_segment(end, mark.first_wait, 0);
            }
            ends.next_if_eq(&mark.position);
            let (position, first_wait) = (mark.position, mark.first_wait);
            self.stream
                .begin_segment(position, first_wait, mark.user_ns);
        }
        for end in ends {
            self.stream.begin_segment(end, waits, 0);
        }
        if let Some(last) = self.stream.segments.last_mut() {
            last.end = len;
        }
        self.stream
    }
}

impl Stream {
    /// Ends the last segment at `start`, where the next one begins.
    fn begin_segment(&mut self, start: u32, first_wait: u32, user_ns: u64) {
        if let Some(last) = self.segments.last_mut() {
            last.end = start;
        }
        self.segments.push(Segment {
            start,
            end: start,
            first_wait,
        });
        self.user_ns.push(user_ns);
    }
}

#[cfg(test)]
mod tests {
    use vellum_engine::{Op, SpaceSlot};

    use super::*;
    use crate::replay::explain::Expectation;
    use crate::replay::workload::Class;

    fn item(space: u32) -> Item {
        Item {
            op: Op::Create {
                space: SpaceSlot(space),
            },
            class: Class::Fork,
            expectation: Expectation::AsRecorded,
            origin: 0,
        }
    }

    fn change(space: u32) -> Use {
        Use {
            resource: Resource::Space(space),
            changes: true,
        }
    }

    /// Start, end, waits and computing of each segment of a task.
    fn segments(schedule: &Schedule, task: usize) -> Vec<(u32, u32, Vec<Wait>, u64)> {
        let stream = &schedule.streams[task];
        let each = stream.segments().iter().enumerate();
        each.map(|(index, segment)| {
            let waits = stream.waits(index).to_vec();
            (segment.start, segment.end, waits, stream.user_ns(index))
        })
        .collect()
    }

    fn wait(stream: u32, ops: u32) -> Vec<Wait> {
        vec![Wait { stream, ops }]
    }

    #[test]
    fn a_task_computes_before_what_its_operation_waits_for() {
        let mut tasks = ByTask::new(2);
        tasks.emit(0, item(0), &[], &[change(0)]).expect("room");
        tasks.compute(1, 30);
        tasks.compute(1, 12);
        tasks.emit(1, item(1), &[], &[change(0)]).expect("room");
        tasks.emit(1, item(1), &[], &[change(0)]).expect("room");
        let schedule = tasks.finish();
        let wanted = [(0, 0, vec![], 42), (0, 2, wait(0, 1), 0)];
        assert_eq!(segments(&schedule, 1), wanted);
    }

    #[test]
    fn a_task_computes_after_what_it_waited_for_itself() {
        let mut tasks = ByTask::new(2);
        let created = tasks.emit(0, item(0), &[], &[]).expect("room");
        tasks.emit(0, item(0), &[], &[]).expect("room");
        tasks.compute(1, 7);
        assert!(tasks.pause(1, &[created]));
        assert!(!tasks.pause(1, &[created]), "nothing was computed since");
        tasks.compute(1, 5);
        let ended = Place {
            stream: 0,
            position: 1,
        };
        tasks.emit(1, item(1), &[ended], &[]).expect("room");
        tasks.compute(1, 3);
        let schedule = tasks.finish();
        let wanted = [
            (0, 0, wait(0, 1), 7),
            (0, 1, wait(0, 2), 5),
            (1, 1, vec![], 3),
        ];
        assert_eq!(segments(&schedule, 1), wanted);
        let plain = [(0, 1, vec![], 0), (1, 2, vec![], 0)];
        assert_eq!(segments(&schedule, 0), plain);
    }

    #[test]
    fn of_several_places_of_a_task_the_latest_is_waited_for() {
        let mut tasks = ByTask::new(3);
        let mut places = Vec::new();
        for _ in 0..3 {
            places.push(tasks.emit(0, item(0), &[], &[]).expect("room"));
        }
        places.push(tasks.emit(1, item(0), &[], &[]).expect("room"));
        tasks.emit(2, item(0), &places, &[]).expect("room");
        tasks.emit(2, item(0), &places[..2], &[]).expect("room");
        let schedule = tasks.finish();
        let both = [wait(0, 3), wait(1, 1)].concat();
        assert_eq!(segments(&schedule, 2), [(0, 2, both, 0)]);
    }
}
