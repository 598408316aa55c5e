//! The state of running processes when a recording of them begins.
//!
//! Nothing is stopped for it. The events are open before the first process is looked at, and each
//! process is read in a moment of which it is known when it began: what the events tell from then
//! on goes on top of what was read. Mapping a range, taking it away and touching a page leave the
//! same state whether or not the reading saw them already, so that they may be in both. When all
//! processes have been read, the state is whole, and there the trace begins.

use std::collections::BTreeSet;
use std::fs;
use std::io;

use crate::clock::monotonic_ns;
use crate::page_map::{Kind, PAGE, PageMap};
use crate::processes;
use crate::smaps::{Mapping, Touched};

/// How often processes are looked for that came meanwhile. One that was created after its creator
/// was read is known from the events.
const ROUNDS: u32 = 5;
/// Where addresses of programs end.
const USER_END: u64 = 1 << 56;
/// Programs of 32 bits have their stack below, others above.
const NARROW_END: u64 = 1 << 32;

/// A process as it was.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    pub pid: u32,
    /// Its threads, the first one first.
    pub tids: Vec<u32>,
    pub name: String,
    /// It runs a program of 32 bits.
    pub is_narrow: bool,
    /// Where its heap begins, if that is shown.
    pub heap: Option<u64>,
    /// What was mapped, and which pages were there.
    pub mappings: Vec<(Mapping, Vec<Touched>)>,
    /// When the reading began, by the clock of the records.
    pub read_ns: u64,
}

/// All processes as they were.
#[derive(Debug, Default)]
pub struct Beginning {
    /// In order of the time at which they were read.
    pub snapshots: Vec<Snapshot>,
    /// From when on the state is whole.
    pub whole_ns: u64,
    /// Pages of anonymous memory that a process and another both had.
    pub shared_pages: u64,
    /// Why which pages were there is made up, if it is.
    pub without_pages: Option<String>,
    /// Processes that this user may not read.
    pub unreadable: u64,
}

impl Beginning {
    /// Reads the processes that `list` gives, and then those that it gives more.
    pub fn read(mut list: impl FnMut() -> Vec<u32>) -> Beginning {
        let mut beginning = Beginning::default();
        let (mut seen, mut frames) = (BTreeSet::from([std::process::id()]), BTreeSet::new());
        for _ in 0..ROUNDS {
            let fresh: Vec<u32> = list().into_iter().filter(|pid| seen.insert(*pid)).collect();
            if fresh.is_empty() {
                break;
            }
            for pid in fresh {
                match beginning.read_process(pid, &mut frames) {
                    Ok(Some(snapshot)) => beginning.snapshots.push(snapshot),
                    Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                        beginning.unreadable += 1;
                    }
                    // It ended meanwhile.
                    Ok(None) | Err(_) => {}
                }
            }
        }
        beginning.whole_ns = monotonic_ns();
        beginning
    }

    /// Bytes that the processes have in huge pages now, as far as they have not ended.
    pub fn huge_now(&self) -> u64 {
        let texts = self.snapshots.iter().filter_map(|snapshot| {
            fs::read_to_string(format!("/proc/{}/smaps_rollup", snapshot.pid)).ok()
        });
        texts.map(|text| huge_of(&text)).sum()
    }

    /// Bytes of all mappings: what `part` says of each.
    pub fn sum(&self, part: impl Fn(&Mapping) -> u64) -> u64 {
        let all = self
            .snapshots
            .iter()
            .flat_map(|snapshot| &snapshot.mappings);
        all.fold(0, |sum: u64, (mapping, _)| {
            sum.saturating_add(part(mapping))
        })
    }

    fn read_process(
        &mut self,
        pid: u32,
        frames: &mut BTreeSet<u64>,
    ) -> io::Result<Option<Snapshot>> {
        let read_ns = monotonic_ns();
        let Some(process) = processes::read(pid).filter(|process| !process.is_of_kernel) else {
            return Ok(None);
        };
        let tids = processes::threads(pid)?;
        let Some((alive, text)) = smaps_of(pid, &tids)? else {
            return Ok(None);
        };
        let map = PageMap::of(format!("{pid}/task/{alive}"));
        let mut mappings = Vec::new();
        for mapping in mappings_of(&text) {
            let touched = match &map {
                Ok(map) => self.touched(&mapping, map, frames),
                Err(error) => Err(io::Error::new(error.kind(), error.to_string())),
            };
            let touched = touched.unwrap_or_else(|error| {
                self.without_pages.get_or_insert(error.to_string());
                mapping.made_up().to_vec()
            });
            mappings.push((mapping, touched));
        }
        let is_low = |mapping: &Mapping| mapping.name == "[stack]" && mapping.end <= NARROW_END;
        let name = fs::read_to_string(format!("/proc/{pid}/comm"))?;
        Ok(Some(Snapshot {
            pid,
            tids,
            name: name.trim_end_matches('\n').to_owned(),
            is_narrow: mappings.iter().any(|(mapping, _)| is_low(mapping)),
            heap: Some(process.heap).filter(|heap| *heap > 0),
            mappings,
            read_ns,
        }))
    }

    /// The pages of a mapping that are there. A page that several processes have since a fork is
    /// the first one's; to the others it is a page that they only read, so that a write faults.
    fn touched(
        &mut self,
        mapping: &Mapping,
        map: &PageMap,
        frames: &mut BTreeSet<u64>,
    ) -> io::Result<Vec<Touched>> {
        let (first, end) = (mapping.start / PAGE, mapping.end / PAGE);
        let mut touched = Vec::new();
        if mapping.resident + mapping.hugetlb == 0 || mapping.name.starts_with("[vvar") {
            return Ok(touched);
        }
        let mut dirty = mapping.touched().0;
        let mut runs = Vec::new();
        map.each_run(first, end, &mut |run| runs.push(run))?;
        for run in runs {
            let pages = run.end - run.first;
            match run.kind {
                // Of shared memory it shows how much was written, not which.
                Kind::File if mapping.shared => {
                    let written = dirty.min(pages);
                    dirty -= written;
                    add(&mut touched, run.first, written, true);
                    add(&mut touched, run.first + written, pages - written, false);
                }
                Kind::File | Kind::Zero => add(&mut touched, run.first, pages, false),
                Kind::Anonymous => map.each_present(run.first, run.end, &mut |page, entry| {
                    let frame = entry.frame();
                    let is_own = entry.is_exclusive() || (frame != 0 && frames.insert(frame));
                    self.shared_pages += u64::from(!is_own);
                    add(&mut touched, page, 1, is_own);
                })?,
            }
        }
        Ok(touched)
    }
}

/// The text of `smaps`, and of which thread it is: a first thread that has ended shows nothing of
/// what the others go on using.
fn smaps_of(pid: u32, tids: &[u32]) -> io::Result<Option<(u32, String)>> {
    for &tid in tids {
        match fs::read_to_string(format!("/proc/{pid}/task/{tid}/smaps")) {
            Ok(text) if !text.is_empty() => return Ok(Some((tid, text))),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Err(error),
            Ok(_) | Err(_) => {}
        }
    }
    Ok(None)
}

/// Adds pages to runs of them.
fn add(touched: &mut Vec<Touched>, first: u64, pages: u64, written: bool) {
    match touched.last_mut() {
        _ if pages == 0 => {}
        Some(last) if last.written == written && last.first + last.pages == first => {
            last.pages += pages;
        }
        _ => touched.push(Touched {
            first,
            pages,
            written,
        }),
    }
}

/// The mappings of the text of `smaps`, without the kernel's own.
fn mappings_of(text: &str) -> Vec<Mapping> {
    let mut mappings: Vec<Mapping> = Vec::new();
    for line in text.lines() {
        match (Mapping::parse(line), mappings.last_mut()) {
            (Some(mapping), _) => mappings.push(mapping),
            (None, Some(last)) => {
                last.take(line);
            }
            (None, None) => {}
        }
    }
    mappings.retain(|mapping| mapping.end <= USER_END);
    mappings
}

/// Bytes in huge pages, from the sums of `smaps_rollup`.
fn huge_of(text: &str) -> u64 {
    let mut all = Mapping::default();
    for line in text.lines() {
        all.take(line);
    }
    all.huge
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_never_read_and_others_once() {
        let own = std::process::id();
        let parent = std::os::unix::process::parent_id();
        let beginning = Beginning::read(|| vec![own, parent, parent, u32::MAX]);
        let pids: Vec<u32> = beginning.snapshots.iter().map(|one| one.pid).collect();
        assert!(pids.is_empty() || pids == [parent], "{pids:?}");
    }

    #[test]
    fn runs_that_follow_one_another_and_are_alike_are_one() {
        let mut touched = Vec::new();
        for (first, pages, written) in [(3, 1, true), (4, 2, true), (6, 1, false), (9, 0, true)] {
            add(&mut touched, first, pages, written);
        }
        let run = |first, pages, written| Touched {
            first,
            pages,
            written,
        };
        assert_eq!(touched, [run(3, 3, true), run(6, 1, false)]);
    }

    #[test]
    fn the_sum_of_huge_pages_counts_those_of_all_kinds() {
        let text = "55d0c0000000-7ffd00000000 ---p 00000000 00:00 0  [rollup]\nRss:  8192 kB\n\
            AnonHugePages:      4096 kB\nShmemPmdMapped:     2048 kB\nFilePmdMapped:         0 kB\n";
        assert_eq!(huge_of(text), 6 << 20);
    }

    #[test]
    fn mappings_come_with_their_sizes_and_without_those_of_the_kernel() {
        let text = "1000-3000 rw-p 00000000 00:00 0 \nRss:  8 kB\nAnonymous:  4 kB\n\
            ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0 [vsyscall]\nRss: 0 kB\n";
        let mappings = mappings_of(text);
        assert_eq!(mappings.len(), 1);
        assert_eq!(mappings[0].touched(), (1, 1));
    }
}
