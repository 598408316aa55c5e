//! A block of events as columns.
//!
//! Inside a block the events lie task by task, each task's in its own order,
//! so that a column holds like next to like. Readers put them back into time
//! order by merging: the least time first, and at equal times the lower task.
//! The writer shifts times by a microsecond where that would give another
//! order than the one it was given, so the merge is exact.
//!
//! Nothing carries over from one block to the next.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::column::{ColumnError, ColumnWriter, Columns};
use crate::event::{Event, TaskId};
use crate::kind::{KindColumns, KindReader, MAX_KIND_BYTES, TaskState};
use crate::varint::{self, Cursor, MAX_VARINT_BYTES};

/// Most events in a block.
pub const MAX_EVENTS: usize = 1 << 18;
/// Most bytes of columns that an event takes: two integers for a task that has
/// no other event, two for its times, and what its kind takes.
const MAX_EVENT_BYTES: usize = 4 * MAX_VARINT_BYTES + MAX_KIND_BYTES;
const TASKS: u16 = 1;
const TIME: u16 = 2;
const CPU_TIME: u16 = 16;
/// Events, time of the first and of the last.
pub const SUMMARY_BYTES: usize = 4 + 8 + 8;

/// What a block says about itself before its columns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Summary {
    pub events: u32,
    pub first_us: u64,
    pub last_us: u64,
}

impl Summary {
    fn put(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.events.to_le_bytes());
        out.extend_from_slice(&self.first_us.to_le_bytes());
        out.extend_from_slice(&self.last_us.to_le_bytes());
    }

    fn read(cursor: &mut Cursor<'_>) -> Option<Summary> {
        Some(Summary {
            events: cursor.u32()?,
            first_us: cursor.u64()?,
            last_us: cursor.u64()?,
        })
    }
}

/// Raises times just enough that merging by (time, task) gives the order of
/// `events`, starting no earlier than `not_before`. Returns the last time.
pub fn settle_times(events: &mut [Event], not_before: u64) -> u64 {
    let mut last = (not_before, TaskId(0));
    for event in events {
        event.time_us = event.time_us.max(last.0);
        if event.time_us == last.0 && event.task < last.1 {
            event.time_us += 1;
        }
        last = (event.time_us, event.task);
    }
    last.0
}

/// The payload of a block. `events` are in settled time order, not empty, and
/// at most [`MAX_EVENTS`].
pub fn encode(events: &[Event], level: i32) -> std::io::Result<Vec<u8>> {
    let summary = Summary {
        events: events.len() as u32,
        first_us: events[0].time_us,
        last_us: events[events.len() - 1].time_us,
    };
    let mut by_task: Vec<&Event> = events.iter().collect();
    by_task.sort_by_key(|event| event.task);
    let (mut tasks, mut times) = (Vec::new(), Vec::new());
    let mut cpu_times = Vec::new();
    let any_ran = events.iter().any(|event| event.ran_us.is_some());
    let mut kinds = KindColumns::default();
    let mut last_task = 0;
    for run in by_task.chunk_by(|a, b| a.task == b.task) {
        let task = run[0].task;
        varint::put(&mut tasks, u64::from(task.0 - last_task));
        varint::put(&mut tasks, run.len() as u64);
        last_task = task.0;
        let mut time = summary.first_us;
        let mut state = TaskState::default();
        for event in run {
            let step = event.time_us - time;
            varint::put(&mut times, step);
            if any_ran {
                varint::put(&mut cpu_times, cpu_time_code(step, event.ran_us));
            }
            time = event.time_us;
            kinds.push(&mut state, task, &event.kind);
        }
    }
    let mut columns = ColumnWriter::default();
    columns.add(TASKS, true, &tasks, level)?;
    columns.add(TIME, true, &times, level)?;
    kinds.add_to(&mut columns, level)?;
    columns.add(CPU_TIME, false, &cpu_times, level)?;
    let mut payload = Vec::new();
    summary.put(&mut payload);
    columns.finish(&mut payload);
    Ok(payload)
}

/// Code of the CPU time of an event that lies `step` after the task's event
/// before: 0 if it is not known. Tasks mostly run from one event to the next,
/// so the code is of the difference between the two. It can be negative: a
/// task's first event in a block counts from the block's first event, and the
/// writer raises times.
fn cpu_time_code(step: u64, ran_us: Option<u64>) -> u64 {
    match ran_us {
        // The addition wraps only for times that no clock reaches.
        Some(ran) => varint::zigzag(step.wrapping_sub(ran) as i64).wrapping_add(1),
        None => 0,
    }
}

/// The inverse of [`cpu_time_code`].
fn cpu_time(step: u64, code: u64) -> Option<u64> {
    let difference = varint::unzigzag(code.checked_sub(1)?);
    Some(step.wrapping_sub(difference as u64))
}

fn damaged(reason: impl Into<String>) -> ColumnError {
    ColumnError::Damaged(reason.into())
}

/// The events of a payload in time order.
pub fn decode(payload: &[u8]) -> Result<Vec<Event>, ColumnError> {
    let mut cursor = Cursor::new(payload);
    let summary = Summary::read(&mut cursor).ok_or_else(|| damaged("the block is cut short"))?;
    if summary.events == 0 || summary.events as usize > MAX_EVENTS {
        return Err(damaged(format!(
            "a block of {} events (1 to {MAX_EVENTS} are possible)",
            summary.events
        )));
    }
    let mut known = vec![TASKS, TIME, CPU_TIME];
    known.extend(KindReader::COLUMNS);
    let most = summary.events as usize * MAX_EVENT_BYTES;
    let columns = Columns::decode(&payload[SUMMARY_BYTES..], &known, most)?;
    let (events, runs) = decode_runs(&columns, summary)?;
    let merged = merge(&events, &runs);
    let ends = (merged[0].time_us, merged[merged.len() - 1].time_us);
    if ends != (summary.first_us, summary.last_us) {
        return Err(damaged("the block's times differ from its summary"));
    }
    Ok(merged)
}

/// Where a task's events begin and end.
type Run = (usize, usize);

/// All events task by task, and where each task's begin and end.
fn decode_runs(columns: &Columns, summary: Summary) -> Result<(Vec<Event>, Vec<Run>), ColumnError> {
    let mut tasks = columns.get(TASKS);
    let mut times = columns.get(TIME);
    let mut cpu_times = columns.get(CPU_TIME);
    let any_ran = !cpu_times.is_empty();
    let mut kinds = KindReader::new(columns);
    let total = summary.events as usize;
    let mut events: Vec<Event> = Vec::new();
    let mut runs = Vec::new();
    let mut task = 0u32;
    while !tasks.is_empty() {
        let step = tasks.varint().and_then(|step| u32::try_from(step).ok());
        let count = tasks.varint().and_then(|count| usize::try_from(count).ok());
        let (Some(step), Some(count)) = (step, count) else {
            return Err(damaged("the task directory is cut short"));
        };
        let next = task
            .checked_add(step)
            .filter(|_| step > 0 || runs.is_empty());
        task = next.ok_or_else(|| damaged("the task directory is not ascending"))?;
        if count == 0 || count > total - events.len() {
            return Err(damaged("the task directory does not add up"));
        }
        let begin = events.len();
        let mut time_us = summary.first_us;
        let mut state = TaskState::default();
        for _ in 0..count {
            let step = times.varint();
            let step = step.ok_or_else(|| damaged("the time column is cut short"))?;
            time_us = time_us
                .checked_add(step)
                .ok_or_else(|| damaged("a time overflows"))?;
            let ran_us = if any_ran {
                let code = cpu_times.varint();
                cpu_time(
                    step,
                    code.ok_or_else(|| damaged("the CPU time column is cut short"))?,
                )
            } else {
                None
            };
            let kind = kinds.next(&mut state, TaskId(task)).map_err(damaged)?;
            events.push(Event {
                time_us,
                task: TaskId(task),
                kind,
                ran_us,
            });
        }
        runs.push((begin, events.len()));
    }
    let rest = !times.is_empty() || !cpu_times.is_empty() || !kinds.is_empty();
    if events.len() != total || rest {
        return Err(damaged(
            "the columns do not hold the number of events stated",
        ));
    }
    Ok((events, runs))
}

fn merge(events: &[Event], runs: &[Run]) -> Vec<Event> {
    let mut merged = Vec::with_capacity(events.len());
    let mut heads: BinaryHeap<_> = runs
        .iter()
        .map(|&(begin, end)| Reverse((events[begin].time_us, events[begin].task, begin, end)))
        .collect();
    while let Some(Reverse((_, task, mut at, end))) = heads.pop() {
        let limit = heads
            .peek()
            .map(|Reverse((time, other, ..))| (*time, *other));
        // Stay on this task while it is ahead of all others: it mostly is.
        while at < end && limit.is_none_or(|limit| (events[at].time_us, task) <= limit) {
            merged.push(events[at]);
            at += 1;
        }
        if at < end {
            heads.push(Reverse((events[at].time_us, task, at, end)));
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::column::MAX_COLUMN;
    use crate::event::EventKind;

    fn events(cpu_times: [Option<u64>; 3]) -> Vec<Event> {
        let times = [100, 250, 400].into_iter().zip(cpu_times);
        let event = |(time_us, ran_us)| Event {
            time_us,
            task: TaskId(2),
            kind: EventKind::Brk { end: 0 },
            ran_us,
        };
        times.map(event).collect()
    }

    /// The block of [`events`] with other bytes in its column of CPU times.
    fn with_cpu_times(bytes: &[u8]) -> Vec<u8> {
        let payload = encode(&events([None; 3]), 3).unwrap();
        let ids: Vec<u16> = (TASKS..CPU_TIME).collect();
        let columns = Columns::decode(&payload[SUMMARY_BYTES..], &ids, MAX_COLUMN).unwrap();
        let mut set = ColumnWriter::default();
        for id in ids {
            let mut cursor = columns.get(id);
            let column: Vec<u8> = std::iter::from_fn(|| cursor.byte()).collect();
            set.add(id, true, &column, 3).unwrap();
        }
        set.add(CPU_TIME, false, bytes, 3).unwrap();
        let mut changed = payload[..SUMMARY_BYTES].to_vec();
        set.finish(&mut changed);
        changed
    }

    #[test]
    fn cpu_times_come_back_whatever_they_are() {
        for cpu_times in [
            [Some(100), Some(150), Some(150)],
            [Some(0), None, Some(300)],
            [Some(u64::MAX), Some(1 << 63), Some(1 << 62)],
            [None; 3],
        ] {
            let events = events(cpu_times);
            assert_eq!(decode(&encode(&events, 3).unwrap()).unwrap(), events);
        }
    }

    #[test]
    fn a_task_that_ran_all_the_time_takes_a_byte_an_event() {
        let events = events([Some(0), Some(150), Some(150)]);
        assert_eq!(encode(&events, 3).unwrap(), with_cpu_times(&[1, 1, 1]));
    }

    #[test]
    fn a_reader_that_does_not_know_cpu_times_skips_them() {
        let payload = encode(&events([Some(0), Some(1), None]), 3).unwrap();
        let mut known = vec![TASKS, TIME];
        known.extend(KindReader::COLUMNS);
        assert!(Columns::decode(&payload[SUMMARY_BYTES..], &known, MAX_COLUMN).is_ok());
    }

    #[test]
    fn a_column_of_cpu_times_of_another_length_is_refused() {
        for (bytes, reason) in [
            (&[1, 1][..], "CPU time column is cut short"),
            (&[1, 1, 0x80], "CPU time column is cut short"),
            (&[0xff; 30], "CPU time column is cut short"),
            (&[1, 1, 1, 1], "number of events stated"),
        ] {
            match decode(&with_cpu_times(bytes)) {
                Err(ColumnError::Damaged(text)) => assert!(text.contains(reason), "{text}"),
                other => panic!("{bytes:?}: {other:?}"),
            }
        }
    }

    #[test]
    fn columns_longer_than_the_events_can_fill_are_refused_unread() {
        let long = vec![1; 3 * MAX_EVENT_BYTES + 1];
        match decode(&with_cpu_times(&long)) {
            Err(ColumnError::Damaged(text)) => assert!(text.contains("claim more than"), "{text}"),
            other => panic!("{other:?}"),
        }
    }
}
