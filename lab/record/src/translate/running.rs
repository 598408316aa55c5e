//! Processes that ran when the recording began.

use super::{PAGE, Scope, Translator};
use crate::beginning::Snapshot;
use crate::error::RecordError;
use crate::sink::Sink;
use crate::smaps::{Mapping, Touched};
use crate::tracepoint::Layout;
use vellum_trace::{EventKind, FileId};

/// Rights of a heap that nobody changed.
const HEAP_RIGHTS: u8 = 3;

impl<'a> Translator<'a> {
    /// A translator for processes that are [expected](Self::expect) and their descendants.
    /// Times count from `began_ns`, when the events were enabled.
    pub(crate) fn of_running(layouts: &'a [Layout], sink: &'a mut dyn Sink, began_ns: u64) -> Self {
        let mut translator = Self::with_scope(layouts, sink, Scope::Running);
        translator.began_ns = Some(began_ns);
        translator
    }

    /// The process was there when the recording began, or came before it was read. Until then
    /// only its tasks are followed: what they do to its memory is in what was read.
    pub(crate) fn expect(&mut self, snapshot: &Snapshot) -> Result<(), RecordError> {
        for &tid in &snapshot.tids {
            self.adopt(snapshot.pid, tid);
            if let Some(live) = self.live.get_mut(&tid) {
                live.narrow = snapshot.is_narrow;
            }
        }
        self.unseen.narrow += u64::from(snapshot.is_narrow);
        let name = self.name(snapshot.name.clone());
        self.emit(snapshot.pid, EventKind::Exec { name })?;
        self.unread.insert(snapshot.pid);
        Ok(())
    }

    /// The process was read here, among the records.
    pub(crate) fn was_read(&mut self, snapshot: &Snapshot) -> Result<(), RecordError> {
        let since = self
            .began_ns
            .map(|began| snapshot.read_ns.saturating_sub(began));
        self.now_ns = self.now_ns.max(since.unwrap_or(0));
        // Its id may have been another process's when the recording began.
        if !self.threads.contains_key(&snapshot.pid) {
            self.expect(snapshot)?;
        }
        self.unread.remove(&snapshot.pid);
        let threads = self.threads.get(&snapshot.pid);
        let Some(&leader) = threads.and_then(|threads| threads.first()) else {
            return Ok(());
        };
        self.make_heap(leader, snapshot)?;
        for (mapping, touched) in &snapshot.mappings {
            let file = mapping.is_of_file().then(|| self.file_of(mapping, touched));
            if mapping.name.starts_with("/SYSV") {
                let length = mapping.end - mapping.start;
                self.attached.insert((snapshot.pid, mapping.start), length);
            }
            let mut put = |kind| self.emit(leader, kind);
            match snapshot.heap {
                Some(_) if mapping.name == "[heap]" => {
                    mapping.tell_touches(HEAP_RIGHTS, touched, &mut put)?;
                }
                _ => mapping.tell(file, touched, &mut put)?,
            }
        }
        for tid in self.threads.get(&snapshot.pid).cloned().unwrap_or_default() {
            self.deliver(tid)?;
        }
        Ok(())
    }

    /// Makes the heap as `brk` does: where it begins, and how far it goes, without the holes
    /// that were made since. What lies below its beginning in the same mapping is none of it.
    fn make_heap(&mut self, leader: u32, snapshot: &Snapshot) -> Result<(), RecordError> {
        let Some(begin) = snapshot.heap else {
            return Ok(());
        };
        self.emit(leader, EventKind::Brk { end: begin })?;
        let parts = snapshot.mappings.iter().map(|(mapping, _)| mapping);
        let parts: Vec<&Mapping> = parts.filter(|mapping| mapping.name == "[heap]").collect();
        let Some(end) = parts.last().map(|last| last.end).filter(|end| *end > begin) else {
            return Ok(());
        };
        self.emit(leader, EventKind::Brk { end })?;
        let mut next = begin.next_multiple_of(PAGE);
        for part in parts {
            if part.start < next {
                let below = Mapping {
                    end: part.end.min(next),
                    ..part.clone()
                };
                below.tell(None, &[], &mut |kind| self.emit(leader, kind))?;
            } else if part.start > next {
                let (address, length) = (next, part.start - next);
                self.emit(leader, EventKind::Unmap { address, length })?;
            }
            next = next.max(part.end);
        }
        Ok(())
    }

    /// The file of a mapping, as long as the pages that are there make it.
    fn file_of(&mut self, mapping: &Mapping, touched: &[Touched]) -> FileId {
        let file = self.named_file(mapping.device, mapping.inode, &mapping.name);
        let length = mapping.end - mapping.start;
        self.files.mapped(file, mapping.offset + length);
        let is_on_disk = mapping.device >> 20 != 0;
        let there = touched.last().map_or(0, |last| {
            ((last.first + last.pages) * PAGE).saturating_sub(mapping.start)
        });
        let there = match mapping.name.ends_with(" (deleted)") {
            // It can no more be asked for its length.
            true => length,
            false => there,
        };
        if is_on_disk && there > 0 {
            self.files.used(file, mapping.offset + there);
        }
        file
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::raw::{Body, Record};
    use crate::sample::Sample;
    use crate::syscalls::number;
    use vellum_trace::model::Model;
    use vellum_trace::{Access, Event, Header, TraceError};

    const PID: u32 = 70;
    const THREAD: u32 = 71;

    #[derive(Default)]
    struct Kept {
        header: Header,
        model: Model,
        events: Vec<EventKind>,
    }

    impl Sink for Kept {
        fn header_mut(&mut self) -> &mut Header {
            &mut self.header
        }

        fn push(&mut self, event: &Event) -> Result<(), TraceError> {
            self.model.take(event);
            self.events.push(event.kind);
            Ok(())
        }
    }

    fn mapping(start: u64, end: u64, name: &str) -> Mapping {
        Mapping {
            start,
            end,
            prot: HEAP_RIGHTS,
            name: name.to_owned(),
            ..Mapping::default()
        }
    }

    fn snapshot(mappings: Vec<(Mapping, Vec<Touched>)>) -> Snapshot {
        Snapshot {
            pid: PID,
            tids: vec![PID, THREAD],
            name: "p".to_owned(),
            mappings,
            read_ns: 100_000,
            ..Snapshot::default()
        }
    }

    fn event(time_ns: u64, tid: u32, sample: Sample<'_>) -> Record<'_> {
        Record {
            time_ns,
            pid: PID,
            tid,
            body: Body::Event(sample),
        }
    }

    fn fault(page: u64) -> Sample<'static> {
        Sample::Fault {
            address: page * PAGE,
            code: 2,
            kernel: false,
        }
    }

    /// What comes of records, some of before and some of after the process was read.
    fn kept(snapshot: &Snapshot, before: &[Record<'_>], after: &[Record<'_>]) -> Kept {
        let mut kept = Kept::default();
        let mut translator = Translator::of_running(&[], &mut kept, 0);
        translator.expect(snapshot).unwrap();
        before
            .iter()
            .for_each(|record| translator.take(record).unwrap());
        translator.was_read(snapshot).unwrap();
        after
            .iter()
            .for_each(|record| translator.take(record).unwrap());
        translator.finish(None);
        kept
    }

    fn pages(kept: &Kept) -> Vec<u64> {
        let spaces = kept
            .model
            .spaces()
            .flat_map(|(_, space)| space.entries.keys());
        let mut pages: Vec<u64> = spaces.copied().collect();
        pages.sort_unstable();
        pages
    }

    fn one_mapping() -> Snapshot {
        let touched = Touched {
            first: 1,
            pages: 2,
            written: true,
        };
        snapshot(vec![(mapping(PAGE, 9 * PAGE, ""), vec![touched])])
    }

    #[test]
    fn what_came_before_the_reading_is_in_it_and_what_comes_after_counts() {
        let kept = kept(
            &one_mapping(),
            &[
                event(50_000, PID, fault(7)),
                event(60_000, THREAD, fault(200)),
            ],
            &[
                event(150_000, THREAD, fault(2)),
                event(160_000, THREAD, fault(5)),
            ],
        );
        assert_eq!(pages(&kept), [1, 2, 5]);
        assert_eq!(kept.model.totals().unmapped_faults, 0);
        assert_eq!(kept.model.spaces().count(), 1);
        let writes = EventKind::Fault {
            address: 5 * PAGE,
            access: Access::Write,
            kernel: false,
            present: false,
        };
        assert_eq!(kept.events.last(), Some(&writes));
    }

    #[test]
    fn a_call_that_began_before_the_reading_counts_when_it_ends() {
        let enter = Sample::Enter {
            number: number::MUNMAP,
            args: [2 * PAGE, PAGE, 0, 0, 0, 0],
        };
        let exit = Sample::Exit {
            number: number::MUNMAP,
            result: 0,
        };
        let kept = kept(
            &one_mapping(),
            &[event(90_000, PID, enter)],
            &[event(110_000, PID, exit)],
        );
        assert_eq!(pages(&kept), [1]);
    }

    #[test]
    fn a_thread_that_came_before_the_list_of_threads_was_read_is_one_task() {
        let created = Record {
            time_ns: 105_000,
            pid: PID,
            tid: THREAD,
            body: Body::Fork { ptid: PID },
        };
        let flags = Sample::NewTask {
            clone_flags: 0x1_0100,
        };
        let kept = kept(
            &one_mapping(),
            &[],
            &[
                created,
                event(106_000, PID, flags),
                event(107_000, THREAD, fault(4)),
            ],
        );
        assert_eq!(kept.header.tasks.len(), 2);
        let creations = kept.events.iter();
        let creations = creations.filter(|kind| matches!(kind, EventKind::Create { .. }));
        assert_eq!(creations.count(), 1);
        assert_eq!(pages(&kept), [1, 2, 4]);
    }

    #[test]
    fn an_id_that_another_process_had_at_first_is_the_one_that_was_read() {
        let exit = |tid| Record {
            time_ns: 20_000,
            pid: PID,
            tid,
            body: Body::Exit,
        };
        let kept = kept(
            &one_mapping(),
            &[exit(THREAD), exit(PID)],
            &[event(150_000, PID, fault(3))],
        );
        assert_eq!(pages(&kept), [1, 2, 3]);
        assert_eq!(kept.model.totals().unmapped_faults, 0);
    }

    #[test]
    fn a_heap_is_one_that_brk_moves_with_its_holes_and_without_what_lies_below() {
        let begin = 0x10 * PAGE + 0x800;
        let part = |first: u64, end: u64| (mapping(first * PAGE, end * PAGE, "[heap]"), vec![]);
        let mut snapshot = snapshot(vec![part(0x10, 0x14), part(0x16, 0x18)]);
        snapshot.heap = Some(begin);
        let kept = kept(&snapshot, &[], &[]);
        let (_, space) = kept.model.spaces().next().unwrap();
        assert_eq!(space.heap, Some((begin, 0x18 * PAGE)));
        let is_heap = |page| space.regions.find(page).map(|(.., region)| region.heap);
        let found: Vec<Option<bool>> = (0x10..0x19).map(is_heap).collect();
        let expected = [Some(false), Some(true), Some(true), Some(true), None, None];
        assert_eq!(found[..6], expected);
        assert_eq!(found[6..], [Some(true), Some(true), None]);
    }
}
