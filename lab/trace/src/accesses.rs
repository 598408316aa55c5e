//! Samples of accessed marks as columns: which pages were used since the sample before.
//!
//! They lie in sections of their own, which a reader that does not know them skips: an event of
//! kind [`EventKind::Accessed`] is no event of an `EVNT` section.

use crate::column::{ColumnError, ColumnWriter, Columns};
use crate::event::{Event, EventKind, TaskId};
use crate::varint::{self, Cursor, MAX_VARINT_BYTES, zigzag};

/// Most ranges in a section.
pub const MAX_RANGES: usize = 1 << 18;
/// Most bytes of columns that a range takes: four integers.
const MAX_RANGE_BYTES: usize = 4 * MAX_VARINT_BYTES;

const TIMES: u16 = 1;
const TASKS: u16 = 2;
const PAGES: u16 = 3;
const LENGTHS: u16 = 4;
const KNOWN: [u16; 4] = [TIMES, TASKS, PAGES, LENGTHS];
const PAGE_SHIFT: u32 = 12;

/// What a range is told apart by from the one before.
#[derive(Default)]
struct Last {
    time_us: u64,
    task: u32,
    end: u64,
}

/// The payload of a section. Every event is [`EventKind::Accessed`], in order of time, and there
/// are at most [`MAX_RANGES`].
pub fn encode(ranges: &[Event], level: i32) -> std::io::Result<Vec<u8>> {
    let [mut times, mut tasks, mut pages, mut lengths] = [const { Vec::new() }; 4];
    let mut last = Last::default();
    for event in ranges {
        let EventKind::Accessed { address, length } = event.kind else {
            continue;
        };
        let (first, count) = (address >> PAGE_SHIFT, length >> PAGE_SHIFT);
        varint::put(&mut times, event.time_us - last.time_us);
        let task = i64::from(event.task.0) - i64::from(last.task);
        varint::put(&mut tasks, zigzag(task));
        varint::put(&mut pages, zigzag(first as i64 - last.end as i64));
        varint::put(&mut lengths, count);
        last = Last {
            time_us: event.time_us,
            task: event.task.0,
            end: first + count,
        };
    }
    let mut payload = (ranges.len() as u32).to_le_bytes().to_vec();
    let mut columns = ColumnWriter::default();
    columns.add(TIMES, true, &times, level)?;
    columns.add(TASKS, true, &tasks, level)?;
    columns.add(PAGES, true, &pages, level)?;
    columns.add(LENGTHS, true, &lengths, level)?;
    columns.finish(&mut payload);
    Ok(payload)
}

/// The ranges that a payload holds.
pub fn decode(payload: &[u8]) -> Result<Vec<Event>, ColumnError> {
    let damaged = |what: &str| ColumnError::Damaged(what.to_owned());
    let mut cursor = Cursor::new(payload);
    let count = cursor.u32().ok_or_else(|| damaged("it is cut short"))?;
    if count as usize > MAX_RANGES {
        return Err(ColumnError::Damaged(format!(
            "a section of {count} ranges (at most {MAX_RANGES} are possible)"
        )));
    }
    let most = count as usize * MAX_RANGE_BYTES;
    let columns = Columns::decode(payload.get(4..).unwrap_or(&[]), &KNOWN, most)?;
    let mut times = columns.get(TIMES);
    let mut tasks = columns.get(TASKS);
    let mut pages = columns.get(PAGES);
    let mut lengths = columns.get(LENGTHS);
    let mut last = Last::default();
    let mut ranges = Vec::new();
    let mut next = || {
        let time_us = last.time_us.checked_add(times.varint()?)?;
        let task = i64::from(last.task).checked_add(tasks.signed()?)?;
        let task = u32::try_from(task).ok()?;
        let first = (last.end as i64).checked_add(pages.signed()?)?;
        let (first, count) = (u64::try_from(first).ok()?, lengths.varint()?);
        let end = first.checked_add(count).filter(|end| *end < 1 << 50)?;
        last = Last { time_us, task, end };
        Some(Event {
            time_us,
            task: TaskId(task),
            kind: EventKind::Accessed {
                address: first << PAGE_SHIFT,
                length: count << PAGE_SHIFT,
            },
            ran_us: None,
        })
    };
    for _ in 0..count {
        ranges.push(next().ok_or_else(|| damaged("a range cannot be read"))?);
    }
    let rest = [times, tasks, pages, lengths];
    match rest.iter().all(Cursor::is_empty) {
        true => Ok(ranges),
        false => Err(damaged("there are more ranges than it says")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(time_us: u64, task: u32, page: u64, pages: u64) -> Event {
        Event {
            time_us,
            task: TaskId(task),
            kind: EventKind::Accessed {
                address: page << PAGE_SHIFT,
                length: pages << PAGE_SHIFT,
            },
            ran_us: None,
        }
    }

    #[test]
    fn ranges_are_read_back_and_a_wrong_number_is_refused() {
        let ranges = [
            range(100, 3, 0x7f00_0000, 2),
            range(100, 3, 0x10, 1),
            range(1 << 40, 0, (1 << 49) - 1, 1),
        ];
        let payload = encode(&ranges, 3).unwrap();
        assert_eq!(decode(&payload).unwrap(), ranges);
        for count in [2u32, 4, u32::MAX] {
            let mut wrong = payload.clone();
            wrong[..4].copy_from_slice(&count.to_le_bytes());
            assert!(
                matches!(decode(&wrong), Err(ColumnError::Damaged(_))),
                "{count}"
            );
        }
        assert!(decode(&[]).is_err());
    }

    #[test]
    fn more_ranges_than_a_section_holds_are_refused_however_small_they_are() {
        let ranges = vec![range(1, 0, 0, 0); MAX_RANGES + 1];
        let ends = |ranges: &[Event]| decode(&encode(ranges, 3).unwrap());
        assert_eq!(ends(&ranges[1..]).unwrap().len(), MAX_RANGES);
        assert!(matches!(
            ends(&ranges),
            Err(ColumnError::Damaged(reason)) if reason.contains("at most 262144")
        ));
    }
}
