//! Several files of one run (`strace -ff -o FILE`), in one order.
//!
//! Such files are named after their task and lack the column with its id. The
//! line with the least time comes first. Where times are equal or missing, a
//! file waits for the line that makes its task, and a file whose task waited
//! for the end of another waits for the other's file: `-ff` shows a call where
//! it began, with its result.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use super::{Importer, line};
use crate::report::Place;
use crate::{ImportError, Input, Watch};

/// The next line of an input.
struct Head {
    place: Place,
    text: String,
    cut: bool,
}

struct Source {
    input: Input,
    index: usize,
    /// The task in the file's name.
    pid: Option<u32>,
    time_ns: u64,
    head: Option<Head>,
    /// One of its lines was taken, or it waited for its task long enough.
    begun: bool,
}

impl Source {
    fn advance(&mut self, watch: &mut Watch<'_>) -> Result<(), ImportError> {
        let before = self.input.bytes();
        let next = self.input.next_line();
        let next = next.map_err(|source| ImportError::Read {
            name: self.input.name.clone(),
            source,
        })?;
        if next.is_some() {
            watch.line(self.input.bytes() - before)?;
        }
        self.head = next.map(|(text, cut)| {
            let stamp = line::split(&line::plain(&text)).and_then(|line| line.time);
            self.time_ns = self.time_ns.max(stamp.map_or(0, |stamp| stamp.ns));
            Head {
                place: Place {
                    input: self.index,
                    line: self.input.line(),
                },
                text,
                cut,
            }
        });
        Ok(())
    }

    /// Whether it begins with what the first process does first.
    fn executes(&self) -> bool {
        let head = self.head.as_ref().and_then(|head| line::split(&head.text));
        head.is_some_and(
            |line| matches!(line.what, line::What::Call { name, .. } if name == "execve"),
        )
    }
}

/// The process that `name.4711` is about.
fn pid_of_name(name: &str) -> Option<u32> {
    name.rsplit_once('.')?.1.parse().ok()
}

/// Files that are not at their end.
#[derive(Default)]
struct Order {
    /// Those whose next line can be taken: time, rank, number.
    ready: BinaryHeap<Reverse<(u64, bool, usize)>>,
    /// Those whose task could be made by a line of the same time.
    unborn: HashMap<u32, usize>,
    /// Those whose task waited for the end of another, by the other.
    held: HashMap<u32, Vec<usize>>,
    /// The file of each task.
    open: HashMap<u32, usize>,
}

impl Order {
    fn new(sources: &[Source]) -> Order {
        let mut order = Order::default();
        for source in sources.iter().filter(|source| source.head.is_some()) {
            if let (true, Some(pid)) = (sources.len() > 1, source.pid) {
                order.open.insert(pid, source.index);
            }
            let rank = !source.executes();
            order
                .ready
                .push(Reverse((source.time_ns, rank, source.index)));
        }
        order
    }

    fn add(&mut self, source: &Source) {
        self.ready
            .push(Reverse((source.time_ns, true, source.index)));
    }

    /// The file whose line is the next one.
    fn next(&mut self, sources: &mut [Source], importer: &Importer<'_>) -> Option<usize> {
        loop {
            let Some(Reverse((time, rank, index))) = self.ready.pop() else {
                // Whatever they wait for does not come.
                if self.release_unborn(sources) || self.release_held(sources) {
                    continue;
                }
                return None;
            };
            let parked = self.unborn.values().next().copied();
            if parked.is_some_and(|parked| sources[parked].time_ns < time) {
                self.ready.push(Reverse((time, rank, index)));
                self.release_unborn(sources);
                continue;
            }
            let source = &sources[index];
            let beside = self.ready.peek().is_some_and(|next| next.0.0 == time);
            if let Some(pid) = source.pid
                && beside
                && !source.begun
                && importer.knows_anybody()
                && !importer.knows(pid)
            {
                self.unborn.insert(pid, index);
                continue;
            }
            sources[index].begun = true;
            return Some(index);
        }
    }

    fn release_unborn(&mut self, sources: &mut [Source]) -> bool {
        let mut parked: Vec<usize> = self.unborn.drain().map(|(_, index)| index).collect();
        parked.sort_unstable();
        for index in &parked {
            sources[*index].begun = true;
            self.add(&sources[*index]);
        }
        !parked.is_empty()
    }

    fn release_held(&mut self, sources: &[Source]) -> bool {
        let mut parked: Vec<usize> = self.held.drain().flat_map(|(_, all)| all).collect();
        parked.sort_unstable();
        parked.iter().for_each(|index| self.add(&sources[*index]));
        !parked.is_empty()
    }

    /// A line of the file was taken.
    fn taken(&mut self, index: usize, sources: &[Source], importer: &mut Importer<'_>) {
        let source = &sources[index];
        if let Some(born) = importer.newborn.take()
            && let Some(index) = self.unborn.remove(&born)
        {
            self.add(&sources[index]);
        }
        if source.head.is_none() {
            if let Some(pid) = source.pid {
                self.open.remove(&pid);
                for index in self.held.remove(&pid).unwrap_or_default() {
                    self.add(&sources[index]);
                }
            }
            return;
        }
        match source.pid.and_then(|pid| importer.waits_for(pid)) {
            Some(other) if self.open.contains_key(&other) => {
                self.held.entry(other).or_default().push(index);
            }
            _ => self.add(source),
        }
    }
}

/// Gives the importer each line, in order.
pub fn each_line(
    inputs: Vec<Input>,
    watch: &mut Watch<'_>,
    importer: &mut Importer<'_>,
) -> Result<u64, ImportError> {
    let mut sources = Vec::new();
    for (index, input) in inputs.into_iter().enumerate() {
        let pid = pid_of_name(&input.name);
        let mut source = Source {
            input,
            index,
            pid,
            time_ns: 0,
            head: None,
            begun: false,
        };
        source.advance(watch)?;
        sources.push(source);
    }
    let mut order = Order::new(&sources);
    let mut lines = 0;
    while let Some(index) = order.next(&mut sources, importer) {
        let source = &mut sources[index];
        if let Some(head) = source.head.take() {
            lines += 1;
            importer.take_line(head.place, source.pid, &head.text, head.cut)?;
        }
        source.advance(watch)?;
        order.taken(index, &sources, importer);
    }
    Ok(lines)
}
