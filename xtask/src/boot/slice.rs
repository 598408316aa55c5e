//! A part of a recording as words for the replayer: operations, and between them checks of
//! what pages hold.

use std::collections::HashMap;
use std::path::Path;

use vellum_engine::{Access, Advice, Backing, Op, Pages, Sharing, SpaceSlot};
use vellum_lab::replay::{Options, Segment, Stream, Streams, Workload, prepare};
use vellum_trace::cut::{Copier, Selection};
use vellum_trace::{EventKind, TraceReader, TraceWriter};

use super::model::{Model, Page, Verdict, Word, is_callable};
use super::protocol::{FLAG_GROWS_DOWN, FLAG_SHARED, SLICE_HEAD, SLICE_MAGIC, advice, op, word};

/// Pages that are read back at most on each side of a fork; the others are read back when
/// they change hands the next time.
const MOST_AT_FORK: usize = 64;
/// Pages that are read back at most before a space ends.
const MOST_AT_END: usize = 512;

/// The creator waits until the child executes a program or ends.
const CLONE_VFORK: u64 = 0x4000;

/// A task that another created.
#[derive(Clone, Copy)]
struct Child {
    task: usize,
    /// Whether the creator waits until it has left the space.
    waits: bool,
}

/// A slice.
pub struct Slice {
    /// Its words.
    pub words: Vec<u64>,
    /// Processes and threads in it that do anything.
    pub tasks: usize,
    /// Operations of the recording.
    pub ops: u64,
    /// Memory that the replay needs, in bytes.
    pub ram: u64,
}

/// Cuts `trace` from `from_us` to `to_us`, and makes a slice of it. The cut is left at
/// `cut`, for `vellum replay`.
pub fn make(trace: &Path, cut: &Path, times: (u64, u64), pages: Pages) -> Result<Slice, String> {
    let (from_us, to_us) = times;
    write_cut(trace, cut, from_us, to_us).map_err(|error| error.to_string())?;
    let trace = TraceReader::open(cut).map_err(|error| error.to_string())?;
    let options = Options {
        streams: Streams::ByTask,
        pages,
        ..Options::default()
    };
    let workload = prepare(&trace, &options).map_err(|error| error.to_string())?;
    let mut children = HashMap::new();
    for (index, event) in trace.events().enumerate() {
        let event = event.map_err(|error| error.to_string())?;
        if let EventKind::Create { child, clone_flags } = event.kind {
            let waits = clone_flags & CLONE_VFORK != 0;
            children.insert(
                index as u32,
                Child {
                    task: child.0 as usize,
                    waits,
                },
            );
        }
    }
    Builder::new(&workload, children).build()
}

fn write_cut(
    trace: &Path,
    cut: &Path,
    from_us: u64,
    to_us: u64,
) -> Result<(), vellum_trace::TraceError> {
    let trace = TraceReader::open(trace)?;
    let mut writer = TraceWriter::create(cut, 1)?;
    let selection = Selection {
        root: None,
        from_us,
        to_us,
    };
    let mut copier = Copier::new(trace.header(), selection, &mut writer);
    for event in trace.events() {
        let event = event?;
        if event.time_us >= to_us {
            break;
        }
        copier.take(&event)?;
    }
    copier.finish();
    writer.finish().map(|_| ())
}

/// The operations of a segment.
fn range(segment: Segment) -> std::ops::Range<usize> {
    segment.start as usize..segment.end as usize
}

struct Builder<'w> {
    streams: &'w [Stream],
    workload: &'w Workload,
    /// The task that each recorded creation made, by the number of the event.
    children: HashMap<u32, Child>,
    model: Model,
    /// The words of each task.
    out: Vec<Vec<u64>>,
    /// The space that each task is in.
    space: Vec<Option<SpaceSlot>>,
    /// Positions of each stream that somebody waits for, ascending.
    announced: Vec<Vec<u32>>,
}

impl<'w> Builder<'w> {
    fn new(workload: &'w Workload, children: HashMap<u32, Child>) -> Self {
        let streams = workload.streams();
        let mut announced = vec![Vec::new(); streams.len()];
        for stream in streams {
            for wait in (0..stream.segments().len()).flat_map(|segment| stream.waits(segment)) {
                announced[wait.stream as usize].push(wait.ops);
            }
        }
        for positions in &mut announced {
            positions.sort_unstable();
            positions.dedup();
        }
        Builder {
            streams,
            workload,
            children,
            model: Model::default(),
            out: vec![Vec::new(); streams.len()],
            space: vec![None; streams.len()],
            announced,
        }
    }

    fn build(mut self) -> Result<Slice, String> {
        for op in self.streams.iter().flat_map(|stream| stream.ops()) {
            self.model.survey(op);
        }
        self.survey_stores();
        self.in_order(Self::segment)?;
        // Tasks that the recording left alive end here.
        for task in 0..self.streams.len() {
            // A task that shares its space may still be at work when this one ends.
            if let Some(space) = self.space[task] {
                let check = !self.model.was_shared(space);
                self.end(task, check);
            }
        }
        Ok(self.assemble())
    }

    /// Which pages of files are stored to through shared mappings, by a first pass over
    /// everything with a model of its own.
    fn survey_stores(&mut self) {
        let mut model = Model::default();
        let mut found = Vec::new();
        let order = self.in_order(|builder, task, segment| {
            let stream = &builder.streams[task];
            for operation in &stream.ops()[range(stream.segments()[segment])] {
                match *operation {
                    Op::Touch {
                        space,
                        page,
                        access,
                    } => {
                        if let Verdict::Allowed(region, Some(_)) = model.access(space, page, access)
                            && region.shared
                            && let Some([Word::File(file, index), _]) = model.page(space, page)
                        {
                            found.push((file, index));
                        }
                    }
                    _ => model.apply(operation),
                }
            }
        });
        debug_assert!(order.is_ok(), "waits point backwards");
        for (file, index) in found {
            self.model.survey_store(file, index);
        }
    }

    /// Calls `each` with every task and segment of its stream, in an order that the waits
    /// allow.
    fn in_order(&mut self, mut each: impl FnMut(&mut Self, usize, usize)) -> Result<(), String> {
        let streams = self.streams;
        let mut done = vec![0u32; streams.len()];
        let mut segment = vec![0usize; streams.len()];
        loop {
            let mut moved = false;
            for (task, stream) in streams.iter().enumerate() {
                while let Some(next) = stream.segments().get(segment[task]) {
                    let waits = stream.waits(segment[task]);
                    if waits
                        .iter()
                        .any(|wait| done[wait.stream as usize] < wait.ops)
                    {
                        break;
                    }
                    each(self, task, segment[task]);
                    done[task] = next.end;
                    segment[task] += 1;
                    moved = true;
                }
            }
            if !moved {
                break;
            }
        }
        let stuck = streams
            .iter()
            .zip(&segment)
            .position(|(stream, at)| *at < stream.segments().len());
        stuck.map_or(Ok(()), |task| {
            Err(format!("task {task} of the cut waits for good"))
        })
    }

    fn put(&mut self, task: usize, words: &[u64]) {
        self.out[task].extend_from_slice(words);
    }

    /// Checks what page `page` shows to `task`.
    fn check(&mut self, task: usize, space: SpaceSlot, page: u64) {
        let Some(words) = self.model.page(space, page) else {
            return;
        };
        for (which, content) in words.into_iter().enumerate() {
            if let Word::Stamp(number) = content {
                self.put(task, &[word(op::CHECK, which as u64, page), number]);
            }
        }
        if let [Word::File(file, index), other] = words
            && other == words[0]
        {
            let may = self.model.may(file, index);
            self.put(task, &[word(op::CHECK_FILE, may, page), file, index]);
        }
    }

    /// Checks private pages of `start..end`: `most` of them, evenly spread.
    fn check_private(
        &mut self,
        task: usize,
        space: SpaceSlot,
        (start, end): (u64, u64),
        most: usize,
    ) {
        let pages = self.model.private(space, start, end);
        let step = pages.len().div_ceil(most).max(1);
        for page in pages.into_iter().step_by(step) {
            self.check(task, space, page);
        }
    }

    /// What a task waits for, and then does.
    fn segment(&mut self, task: usize, segment: usize) {
        let stream = &self.streams[task];
        for wait in stream.waits(segment) {
            self.put(
                task,
                &[
                    word(op::AWAIT, 0, u64::from(wait.stream)),
                    u64::from(wait.ops),
                ],
            );
        }
        for position in range(stream.segments()[segment]) {
            self.translate(task, position, &stream.ops()[position]);
            let done = position as u32 + 1;
            if self.announced[task].binary_search(&done).is_ok() && self.space[task].is_some() {
                self.put(task, &[word(op::PROGRESS, 0, u64::from(done))]);
            }
        }
    }

    fn translate(&mut self, task: usize, position: usize, operation: &Op) {
        match *operation {
            Op::Touch {
                space,
                page,
                access,
            } => return self.touch(task, space, page, access),
            Op::Create { space } => self.space[task] = Some(space),
            Op::Fork { parent, child } => {
                let number = self.child(task, position).task;
                self.put(task, &[word(op::FORK, 0, number as u64)]);
                self.model.apply(operation);
                self.space[number] = Some(child);
                for (who, space) in [(number, child), (task, parent)] {
                    self.check_private(who, space, (0, u64::MAX), MOST_AT_FORK);
                }
                return;
            }
            Op::Share { space } => {
                let child = self.child(task, position);
                self.put(task, &[word(op::SHARE, 0, child.task as u64)]);
                self.space[child.task] = Some(space);
                self.model.share(space, child.waits);
                return;
            }
            Op::Exec { old, new } => {
                self.check_private(task, old, (0, u64::MAX), MOST_AT_END);
                self.put(task, &[word(op::EXEC, 0, 0)]);
                self.space[task] = Some(new);
            }
            Op::Exit { .. } => {
                self.end(task, true);
                return;
            }
            Op::Map {
                page,
                pages,
                prot,
                sharing,
                backing,
                grows_down,
                space,
            } => {
                self.check_private(task, space, (page, page + pages), MOST_AT_FORK);
                let mut flags = u64::from(prot.read)
                    | u64::from(prot.write) << 1
                    | u64::from(prot.execute) << 2;
                flags |= if sharing == Sharing::Shared {
                    FLAG_SHARED
                } else {
                    0
                };
                flags |= if grows_down { FLAG_GROWS_DOWN } else { 0 };
                let (file, first) = match backing {
                    Backing::File { file, page } => (u64::from(file.0) + 1, page),
                    Backing::Anonymous => (0, 0),
                };
                self.put(task, &[word(op::MAP, flags, page), pages, file, first]);
            }
            Op::Unmap { space, page, pages } => {
                self.check_private(task, space, (page, page + pages), MOST_AT_FORK);
                self.put(task, &[word(op::UNMAP, 0, page), pages]);
            }
            Op::Protect {
                page, pages, prot, ..
            } => {
                let rights = u64::from(prot.read)
                    | u64::from(prot.write) << 1
                    | u64::from(prot.execute) << 2;
                self.put(task, &[word(op::PROTECT, rights, page), pages]);
            }
            Op::Remap {
                space,
                page,
                pages,
                new_page,
                new_pages,
            } => {
                self.put(
                    task,
                    &[word(op::REMAP, 0, page), pages, new_page, new_pages],
                );
                self.model.apply(operation);
                self.check_private(task, space, (new_page, new_page + new_pages), usize::MAX);
                return;
            }
            Op::Brk { start, end, .. } => self.put(task, &[word(op::BRK, 0, start), end]),
            Op::Advise {
                page,
                pages,
                advice,
                space,
            } => {
                let number = match advice {
                    Advice::DontNeed => advice::DONT_NEED,
                    Advice::Free => advice::FREE,
                    Advice::Cold => advice::COLD,
                    Advice::PageOut => advice::PAGE_OUT,
                    // What faults map at once is left to the kernel's design.
                    Advice::Folio(_) => return,
                };
                self.put(task, &[word(op::ADVISE, number, page), pages]);
                self.model.apply(operation);
                self.check(task, space, page);
                return;
            }
            Op::FileOpen { file, pages } => {
                self.put(task, &[word(op::FILE_OPEN, 0, u64::from(file.0)), pages])
            }
            Op::FileRead { file, page, pages } => {
                self.put(
                    task,
                    &[word(op::FILE_READ, 0, u64::from(file.0)), page, pages],
                );
            }
            Op::FileWrite { file, page, pages } => {
                self.put(
                    task,
                    &[word(op::FILE_WRITE, 0, u64::from(file.0)), page, pages],
                );
            }
            Op::Truncate { file, pages } => {
                self.put(task, &[word(op::TRUNCATE, 0, u64::from(file.0)), pages])
            }
            // What no trace asks for, or not without being told of a tmpfs.
            Op::TmpfsOpen { .. }
            | Op::ScanSpace { .. }
            | Op::ScanFile { .. }
            | Op::EmptyCaches
            | Op::Idle { .. }
            | Op::Call(_)
            | Op::Lap { .. } => {}
        }
        self.model.apply(operation);
    }

    /// The task that the creation at `position` of a stream made.
    fn child(&self, task: usize, position: usize) -> Child {
        let event = self.streams[task].origins()[position];
        self.children[&event]
    }

    fn touch(&mut self, task: usize, space: SpaceSlot, page: u64, access: Access) {
        match self.model.access(space, page, access) {
            Verdict::Open => {}
            Verdict::Refused => {
                let kind = match access {
                    Access::Read => 0,
                    Access::Write => 1,
                    Access::Execute => 2,
                };
                self.put(task, &[word(op::REFUSED, kind, page)]);
            }
            Verdict::Allowed(_, Some((which, content))) => {
                let which = which as u64;
                match content {
                    Word::Stamp(number) => self.put(task, &[word(op::STORE, which, page), number]),
                    Word::File(file, index) => {
                        self.put(task, &[word(op::STORE_FILE, which, page), file, index]);
                    }
                    Word::Unknown => {}
                }
                self.check(task, space, page);
            }
            Verdict::Allowed(region, None) => {
                let page_now: Page = self.model.page(space, page).unwrap_or([Word::Unknown; 2]);
                let fetch = access == Access::Execute && is_callable(&self.model, &page_now);
                if !fetch && !region.prot.read {
                    return;
                }
                let what = if fetch { op::FETCH } else { op::LOAD };
                self.put(task, &[word(what, 0, page)]);
                self.check(task, space, page);
            }
        }
    }

    /// The task ends.
    fn end(&mut self, task: usize, check: bool) {
        let Some(space) = self.space[task].take() else {
            return;
        };
        if check {
            self.check_private(task, space, (0, u64::MAX), MOST_AT_END);
        }
        let ops = self.streams[task].ops().len() as u64;
        self.put(task, &[word(op::EXIT, 0, ops)]);
        self.model.apply(&Op::Exit { space });
    }

    fn assemble(self) -> Slice {
        let created: Vec<bool> = {
            let mut created = vec![false; self.streams.len()];
            for (task, stream) in self.streams.iter().enumerate() {
                for (position, operation) in stream.ops().iter().enumerate() {
                    if matches!(operation, Op::Fork { .. } | Op::Share { .. }) {
                        created[self.child(task, position).task] = true;
                    }
                }
            }
            created
        };
        let roots: Vec<u64> = (0..self.streams.len())
            .filter(|task| !created[*task] && !self.out[*task].is_empty())
            .map(|task| task as u64)
            .collect();
        let tasks = self.streams.len();
        let ended = self.out.iter().filter(|words| !words.is_empty()).count();
        let files = self.workload.files().len() as u64;
        let mut words = vec![SLICE_MAGIC, tasks as u64, files, roots.len() as u64];
        let mut at = SLICE_HEAD + tasks as u64 + roots.len() as u64;
        for out in &self.out {
            words.push(at);
            at += out.len() as u64;
        }
        words.extend(&roots);
        words.extend(self.out.into_iter().flatten());
        Slice {
            words,
            tasks: ended,
            ops: self.workload.ops(),
            ram: self.workload.ram_bytes_on(4),
        }
    }
}
