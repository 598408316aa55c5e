//! The rules that the events of a trace keep, checked in time order.
//!
//! The writer runs the same check as the reader, so a trace that was written
//! can be read, and whoever reads one need not look for nonsense again.

use crate::event::{Event, EventKind, FileId, TaskId};
use crate::header::Header;

/// Addresses, lengths and offsets in bytes stay below this.
pub const LIMIT: u64 = 1 << 62;
const PAGE: u64 = 4096;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Life {
    NotYet,
    Running,
    Over,
}

/// Checks a stream of events against the rules.
#[derive(Default)]
pub struct Rules {
    tasks: Vec<Life>,
    /// CPU time of each task so far.
    ran_us: Vec<u64>,
    last_us: u64,
}

impl Rules {
    /// Checks one more event. The text says which rule it breaks. Tables may
    /// grow from call to call, and only grow.
    pub fn check(&mut self, header: &Header, event: &Event) -> Result<(), String> {
        for task in &header.tasks[self.tasks.len()..] {
            // Tasks without parent are there from the start.
            self.tasks.push(match task.parent {
                None => Life::Running,
                Some(_) => Life::NotYet,
            });
        }
        if event.time_us < self.last_us {
            return Err(format!(
                "time {} us after time {} us",
                event.time_us, self.last_us
            ));
        }
        self.last_us = event.time_us;
        let task = event.task;
        match self.tasks.get(task.0 as usize) {
            None => return Err(format!("task {} is not in the table", task.0)),
            Some(Life::NotYet) => return Err(format!("task {} was not created", task.0)),
            Some(Life::Over) => return Err(format!("task {} has ended", task.0)),
            Some(Life::Running) => {}
        }
        self.check_cpu_time(header, event)?;
        self.check_kind(header, task, &event.kind)
    }

    /// A task cannot have run for longer than the trace lasted.
    fn check_cpu_time(&mut self, header: &Header, event: &Event) -> Result<(), String> {
        let Some(ran) = event.ran_us else {
            return Ok(());
        };
        if !header.cpu_times {
            return Err("a CPU time, although the header says that there are none".into());
        }
        let task = event.task.0 as usize;
        if self.ran_us.len() <= task {
            self.ran_us.resize(self.tasks.len(), 0);
        }
        let total = self.ran_us[task].checked_add(ran);
        match total.filter(|total| *total <= event.time_us) {
            Some(total) => self.ran_us[task] = total,
            None => {
                return Err(format!(
                    "task {task} ran for {} us and {ran} us, but it is only {} us since the start",
                    self.ran_us[task], event.time_us
                ));
            }
        }
        Ok(())
    }

    fn check_kind(
        &mut self,
        header: &Header,
        task: TaskId,
        kind: &EventKind,
    ) -> Result<(), String> {
        match *kind {
            EventKind::Create { child, .. } => self.create(header, task, child),
            EventKind::Exit => {
                self.tasks[task.0 as usize] = Life::Over;
                Ok(())
            }
            EventKind::Wait { child } => match self.tasks.get(child.0 as usize) {
                Some(Life::Over) => Ok(()),
                _ => Err(format!("a wait for task {}, which has not ended", child.0)),
            },
            EventKind::Exec { name } if name as usize >= header.strings.len() => {
                Err(format!("string {name} is not in the table"))
            }
            EventKind::Exec { .. } => Ok(()),
            EventKind::Map {
                address,
                length,
                prot,
                file,
                offset,
                ..
            } => {
                range(address, length)?;
                rights(prot.0)?;
                page_aligned("file offset", offset)?;
                file.map_or(Ok(()), |file| transfer(header, file, offset, length))
            }
            EventKind::Protect {
                address,
                length,
                prot,
            } => range(address, length).and_then(|()| rights(prot.0)),
            EventKind::Unmap { address, length }
            | EventKind::Advise {
                address, length, ..
            } => range(address, length),
            EventKind::Remap {
                address,
                length,
                new_address,
                new_length,
            } => range(address, length).and_then(|()| range(new_address, new_length)),
            EventKind::Brk { end } if end >= LIMIT => Err(format!("heap end {end:#x}")),
            EventKind::Brk { .. } => Ok(()),
            EventKind::Fault { address, .. } => range(address, 0),
            EventKind::MapAround { file, first, last } => {
                if first > last || last >= LIMIT / PAGE {
                    return Err(format!("pages {first} to {last} of a file"));
                }
                known_file(header, file)
            }
            EventKind::FileRead {
                file,
                offset,
                length,
            }
            | EventKind::FileWrite {
                file,
                offset,
                length,
            } => transfer(header, file, offset, length),
            EventKind::Truncate { file, size } => transfer(header, file, 0, size),
            EventKind::Accessed { .. } => Err("a sample among the events".into()),
        }
    }

    fn create(&mut self, header: &Header, task: TaskId, child: TaskId) -> Result<(), String> {
        let Some(life) = self.tasks.get_mut(child.0 as usize) else {
            return Err(format!("task {} is not in the table", child.0));
        };
        if header.tasks[child.0 as usize].parent != Some(task) {
            return Err(format!("task {} is not a child of {}", child.0, task.0));
        }
        if *life != Life::NotYet {
            return Err(format!("task {} is created twice", child.0));
        }
        *life = Life::Running;
        Ok(())
    }
}

/// Checks a sample of accessed marks, of which the one before was at `last_us`. The task may have
/// ended meanwhile.
pub fn check_access(header: &Header, event: &Event, last_us: u64) -> Result<(), String> {
    if header.accesses.is_none() {
        return Err("accessed marks, although the header says that there are none".into());
    }
    if event.time_us < last_us {
        return Err(format!("time {} us after time {last_us} us", event.time_us));
    }
    if event.task.0 as usize >= header.tasks.len() {
        return Err(format!("task {} is not in the table", event.task.0));
    }
    match event.kind {
        EventKind::Accessed { address, length } if length > 0 => {
            page_aligned("length", length).and_then(|()| range(address, length))
        }
        EventKind::Accessed { .. } => Err("no page was accessed".into()),
        _ => Err("an event among the samples".into()),
    }
}

fn known_file(header: &Header, file: FileId) -> Result<(), String> {
    if (file.0 as usize) < header.files.len() {
        return Ok(());
    }
    Err(format!("file {} is not in the table", file.0))
}

fn transfer(header: &Header, file: FileId, offset: u64, length: u64) -> Result<(), String> {
    known_file(header, file)?;
    if offset >= LIMIT || length >= LIMIT || offset + length >= LIMIT {
        return Err(format!("{length} bytes at offset {offset} of a file"));
    }
    Ok(())
}

fn page_aligned(what: &str, value: u64) -> Result<(), String> {
    if value.is_multiple_of(PAGE) {
        return Ok(());
    }
    Err(format!("{what} {value:#x} is not page-aligned"))
}

fn range(address: u64, length: u64) -> Result<(), String> {
    page_aligned("address", address)?;
    if address >= LIMIT || length >= LIMIT || address + length >= LIMIT {
        return Err(format!("{length:#x} bytes at address {address:#x}"));
    }
    Ok(())
}

fn rights(prot: u8) -> Result<(), String> {
    if prot <= 7 {
        return Ok(());
    }
    Err(format!("rights {prot:#x}"))
}

/// Checks what can be checked of the tables alone: a parent comes before its
/// children.
pub fn check_header(header: &Header) -> Result<(), String> {
    for (index, task) in header.tasks.iter().enumerate() {
        if let Some(parent) = task.parent
            && parent.0 as usize >= index
        {
            return Err(format!("task {index} comes before its parent {}", parent.0));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::header::Task;

    #[test]
    fn a_cpu_time_that_the_header_does_not_announce_is_refused() {
        let mut header = Header {
            tasks: vec![Task {
                pid: 1,
                process: 1,
                parent: None,
            }],
            ..Header::default()
        };
        let event = Event {
            time_us: 5,
            task: TaskId(0),
            kind: EventKind::Brk { end: 0 },
            ran_us: Some(5),
        };
        let mut rules = Rules::default();
        assert!(rules.check(&header, &event).is_err());
        header.cpu_times = true;
        assert_eq!(rules.check(&header, &event), Ok(()));
    }
}
