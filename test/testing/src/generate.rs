//! Random workloads that a real system could have produced: tasks that fork,
//! vfork, make threads, execute programs and wait; mappings of every kind; files
//! that are mapped, read, written and truncated.
//!
//! Everything follows from the seed.

use vellum_trace::{
    Access, Event, EventKind, File, FileId, Header, MapOrigin, Prot, Task, TaskId, TraceError,
};

const PAGE: u64 = 4096;
const FILES: u32 = 4;
const FILE_PAGES: u64 = 12;
const CLONE_VM: u64 = 0x100;
const CLONE_VFORK: u64 = 0x4000;

/// Seeds of random workloads: `0..count`, or as many more as the variable
/// `VELLUM_SEEDS` says, for a long search.
pub fn seeds(count: u64) -> std::ops::Range<u64> {
    let more = std::env::var("VELLUM_SEEDS").ok();
    0..more.and_then(|text| text.parse().ok()).unwrap_or(count)
}

/// The SplitMix64 generator.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

/// A recording in memory.
#[derive(Clone, Debug)]
pub struct Recording {
    pub header: Header,
    pub events: Vec<Event>,
}

impl Recording {
    /// Its events as a reader would give them.
    pub fn events(&self) -> impl Iterator<Item = Result<Event, TraceError>> + '_ {
        self.events.iter().copied().map(Ok)
    }

    /// One made by hand: `tasks` as parents, all events of task 0 unless given.
    pub fn of(parents: &[Option<u32>], sizes: &[u64], events: &[(u32, EventKind)]) -> Self {
        let header = Header {
            tasks: parents
                .iter()
                .enumerate()
                .map(|(number, parent)| task(number as u32, parent.map(TaskId)))
                .collect(),
            files: sizes.iter().map(|size| file(*size)).collect(),
            strings: vec!["program".into()],
            events: events.len() as u64,
            duration_us: events.len() as u64,
            ..Header::default()
        };
        let events = events
            .iter()
            .enumerate()
            .map(|(time, (task, kind))| Event {
                time_us: time as u64,
                task: TaskId(*task),
                kind: *kind,
                ran_us: None,
            })
            .collect();
        Self { header, events }
    }
}

fn task(number: u32, parent: Option<TaskId>) -> Task {
    Task {
        pid: 100 + number,
        process: 100 + number,
        parent,
    }
}

fn file(size: u64) -> File {
    File {
        name: String::new(),
        device: 1,
        inode: 1,
        size,
    }
}

#[derive(Clone, Copy)]
struct Mapping {
    start: u64,
    end: u64,
    prot: u8,
    shared: bool,
    file: Option<(u32, u64)>,
    stack: bool,
}

#[derive(Clone, Default)]
struct Space {
    mappings: Vec<Mapping>,
    heap: Option<(u64, u64)>,
    users: u32,
}

struct Process {
    alive: bool,
    space: usize,
    /// Vfork child it waits for.
    blocked: Option<usize>,
    vforked: bool,
    parent: Option<usize>,
}

struct Generator {
    random: Random,
    tasks: Vec<Process>,
    spaces: Vec<Space>,
    files: Vec<u64>,
    events: Vec<Event>,
    time: u64,
}

/// A workload of about `steps` events.
pub fn workload(seed: u64, steps: usize) -> Recording {
    let mut generator = Generator {
        random: Random::new(seed),
        tasks: vec![Process {
            alive: true,
            space: 0,
            blocked: None,
            vforked: false,
            parent: None,
        }],
        spaces: vec![Space {
            users: 1,
            ..Space::default()
        }],
        files: vec![FILE_PAGES; FILES as usize],
        events: Vec::new(),
        time: 0,
    };
    generator.exec(0);
    while generator.events.len() < steps {
        generator.step();
    }
    generator.end_everything();
    generator.finish()
}

impl Generator {
    fn emit(&mut self, task: usize, kind: EventKind) {
        self.time += self.random.below(3);
        self.events.push(Event {
            time_us: self.time,
            task: TaskId(task as u32),
            kind,
            ran_us: None,
        });
    }

    fn runnable(&mut self) -> usize {
        let candidates: Vec<usize> = (0..self.tasks.len())
            .filter(|task| self.tasks[*task].alive && self.tasks[*task].blocked.is_none())
            .collect();
        candidates[self.random.below(candidates.len() as u64) as usize]
    }

    fn space(&mut self, task: usize) -> &mut Space {
        &mut self.spaces[self.tasks[task].space]
    }

    fn step(&mut self) {
        let task = self.runnable();
        match self.random.below(100) {
            0..55 => self.fault(task),
            55..63 => self.map(task),
            63..67 => self.unmap(task),
            67..70 => self.protect(task),
            70..73 => self.remap(task),
            73..76 => self.brk(task),
            76..79 => self.advise(task),
            79..82 => self.file_read(task),
            82..85 => self.file_write(task),
            85..87 => self.truncate(task),
            87..95 => self.create(task),
            95..97 => self.exec(task),
            _ => self.exit(task),
        }
    }

    fn create(&mut self, task: usize) {
        let living = self.tasks.iter().filter(|task| task.alive).count();
        if living > 6 {
            return;
        }
        let child = self.tasks.len();
        let flags = [0, 0, CLONE_VM | CLONE_VFORK, CLONE_VM][self.random.below(4) as usize];
        let vforked = flags & CLONE_VFORK != 0;
        let space = if flags & CLONE_VM != 0 {
            self.space(task).users += 1;
            self.tasks[task].space
        } else {
            let mut copy = self.space(task).clone();
            copy.users = 1;
            self.spaces.push(copy);
            self.spaces.len() - 1
        };
        self.tasks.push(Process {
            alive: true,
            space,
            blocked: None,
            vforked,
            parent: Some(task),
        });
        self.emit(
            task,
            EventKind::Create {
                child: TaskId(child as u32),
                clone_flags: flags,
            },
        );
        if vforked {
            self.tasks[task].blocked = Some(child);
        }
    }

    fn leave(&mut self, task: usize) {
        self.space(task).users -= 1;
        if let Some(parent) = self.tasks[task].parent
            && self.tasks[parent].blocked == Some(task)
        {
            self.tasks[parent].blocked = None;
        }
        self.tasks[task].vforked = false;
    }

    fn exec(&mut self, task: usize) {
        // A program with threads would end them first.
        if self.space(task).users > 1 && !self.tasks[task].vforked {
            return;
        }
        self.leave(task);
        self.spaces.push(Space {
            users: 1,
            ..Space::default()
        });
        self.tasks[task].space = self.spaces.len() - 1;
        self.emit(task, EventKind::Exec { name: 0 });
        let image = |start: u64, pages: u64, prot, file| Mapping {
            start,
            end: start + pages,
            prot,
            shared: false,
            file,
            stack: false,
        };
        self.put_map(task, image(0x400, 4, 5, Some((0, 0))), MapOrigin::Exec);
        self.put_map(task, image(0x404, 3, 3, Some((0, 4))), MapOrigin::Exec);
        let stack = Mapping {
            stack: true,
            ..image(0x7_0000, 3, 3, None)
        };
        self.put_map(task, stack, MapOrigin::Exec);
    }

    fn exit(&mut self, task: usize) {
        let living = self.tasks.iter().filter(|task| task.alive).count();
        if living > 1 && task != 0 {
            self.end(task);
        }
    }

    fn end(&mut self, task: usize) {
        self.emit(task, EventKind::Exit);
        self.leave(task);
        self.tasks[task].alive = false;
        if let Some(parent) = self.tasks[task].parent
            && self.tasks[parent].alive
            && self.tasks[parent].blocked.is_none()
            && self.random.below(2) == 0
        {
            let child = TaskId(task as u32);
            self.emit(parent, EventKind::Wait { child });
        }
    }

    fn end_everything(&mut self) {
        while self.tasks.iter().any(|task| task.alive) {
            let task = self.runnable();
            self.end(task);
        }
    }

    fn put_map(&mut self, task: usize, mapping: Mapping, origin: MapOrigin) {
        self.emit(
            task,
            EventKind::Map {
                address: mapping.start * PAGE,
                length: (mapping.end - mapping.start) * PAGE,
                prot: Prot(mapping.prot),
                shared: mapping.shared,
                grows_down: mapping.stack,
                file: mapping.file.map(|(file, _)| FileId(file)),
                offset: mapping.file.map_or(0, |(_, page)| page * PAGE),
                origin,
            },
        );
        self.cut(task, mapping.start, mapping.end);
        self.space(task).mappings.push(mapping);
    }

    fn map(&mut self, task: usize) {
        let start = 0x1000 + self.random.below(24) * 8;
        let pages = 1 + self.random.below(12);
        let file = (self.random.below(2) == 0).then(|| {
            let file = self.random.below(u64::from(FILES)) as u32;
            (file, self.random.below(6))
        });
        let mapping = Mapping {
            start,
            end: start + pages,
            prot: [3, 3, 3, 1, 5, 7][self.random.below(6) as usize],
            shared: self.random.below(2) == 0,
            file,
            stack: false,
        };
        self.put_map(task, mapping, MapOrigin::Mmap);
    }

    /// Takes `start..end` out of the mappings.
    fn cut(&mut self, task: usize, start: u64, end: u64) {
        let space = self.space(task);
        let mut left = Vec::new();
        for mapping in space.mappings.drain(..) {
            if mapping.start < start.min(mapping.end) {
                left.push(Mapping {
                    end: mapping.end.min(start),
                    ..mapping
                });
            }
            if mapping.end > end.max(mapping.start) {
                left.push(mapping.from(end.max(mapping.start)));
            }
        }
        space.mappings = left;
    }

    fn any_mapping(&mut self, task: usize) -> Option<Mapping> {
        let choice = self.random.next();
        let mappings = &self.space(task).mappings;
        let count = mappings.len() as u64;
        (count > 0).then(|| mappings[(choice % count) as usize])
    }

    /// A part of `mapping`, as start and end.
    fn part(&mut self, mapping: &Mapping) -> (u64, u64) {
        let pages = mapping.end - mapping.start;
        let start = mapping.start + self.random.below(pages);
        (start, start + 1 + self.random.below(mapping.end - start))
    }

    fn unmap(&mut self, task: usize) {
        let Some(mapping) = self.any_mapping(task) else {
            return;
        };
        let (start, end) = self.part(&mapping);
        let (address, length) = (start * PAGE, (end - start) * PAGE);
        self.emit(task, EventKind::Unmap { address, length });
        self.cut(task, start, end);
    }

    fn protect(&mut self, task: usize) {
        let Some(mapping) = self.any_mapping(task) else {
            return;
        };
        let (start, end) = self.part(&mapping);
        let prot = [0, 1, 3, 3, 5][self.random.below(5) as usize];
        self.emit(
            task,
            EventKind::Protect {
                address: start * PAGE,
                length: (end - start) * PAGE,
                prot: Prot(prot),
            },
        );
        self.cut(task, start, end);
        let mut middle = mapping.from(start);
        middle.end = end;
        middle.prot = prot;
        self.space(task).mappings.push(middle);
    }

    fn remap(&mut self, task: usize) {
        let anonymous = |m: &Mapping| m.file.is_none() && !m.shared && !m.stack;
        let Some(mapping) = self.any_mapping(task).filter(anonymous) else {
            return;
        };
        let (start, end) = self.part(&mapping);
        let pages = 1 + self.random.below(10);
        let target = match self.random.below(3) {
            0 if pages <= end - start => start,
            _ => 0x2000 + self.random.below(24) * 8,
        };
        let overlaps = target < end && start < target + pages && target != start;
        if overlaps {
            return;
        }
        self.emit(
            task,
            EventKind::Remap {
                address: start * PAGE,
                length: (end - start) * PAGE,
                new_address: target * PAGE,
                new_length: pages * PAGE,
            },
        );
        self.cut(task, start, end);
        self.cut(task, target, target + pages);
        self.space(task).mappings.push(Mapping {
            start: target,
            end: target + pages,
            ..mapping
        });
    }

    fn brk(&mut self, task: usize) {
        let pages = self.random.below(12);
        let Some((start, before)) = self.space(task).heap else {
            self.space(task).heap = Some((0x800, 0x800));
            self.emit(task, EventKind::Brk { end: 0x800 * PAGE });
            return;
        };
        let end = start + pages;
        self.emit(task, EventKind::Brk { end: end * PAGE });
        self.cut(task, end.min(before), end.max(before));
        let space = self.space(task);
        space.heap = Some((start, end));
        if end > before {
            space.mappings.push(Mapping {
                start: before,
                end,
                prot: 3,
                shared: false,
                file: None,
                stack: false,
            });
        }
    }

    fn advise(&mut self, task: usize) {
        let Some(mapping) = self.any_mapping(task) else {
            return;
        };
        let (start, end) = self.part(&mapping);
        let lazily = mapping.file.is_none() && !mapping.shared && self.random.below(2) == 0;
        self.emit(
            task,
            EventKind::Advise {
                address: start * PAGE,
                length: (end - start) * PAGE,
                advice: if lazily { 8 } else { 4 },
            },
        );
    }

    fn fault(&mut self, task: usize) {
        let Some(mapping) = self.any_mapping(task) else {
            return;
        };
        let wanted = self.random.below(3);
        let access = match (mapping.prot & 7, wanted) {
            (prot, 0 | 1) if prot & 2 != 0 => Access::Write,
            (prot, 1 | 2) if prot & 4 != 0 => Access::Execute,
            (prot, _) if prot != 0 => Access::Read,
            _ => return,
        };
        let mut page = mapping.start + self.random.below(mapping.end - mapping.start);
        let below = mapping.start - 1 - self.random.below(3);
        let free = |m: &Mapping| m.end <= below || mapping.start <= m.start;
        if mapping.stack
            && self.random.below(4) == 0
            && below > 0x6_fff0
            && self.space(task).mappings.iter().all(free)
        {
            page = below;
            let space = self.space(task);
            if let Some(stack) = space.mappings.iter_mut().find(|m| m.start == mapping.start) {
                stack.start = page;
            }
        }
        if let Some((file, first)) = mapping.file
            && first + (page - mapping.start.min(page)) >= self.files[file as usize]
        {
            return;
        }
        let kernel = self.random.below(20) == 0;
        self.emit(
            task,
            EventKind::Fault {
                address: page * PAGE,
                access,
                kernel,
                present: false,
            },
        );
    }

    fn any_file(&mut self) -> (FileId, u64) {
        let file = self.random.below(u64::from(FILES)) as u32;
        (FileId(file), self.files[file as usize])
    }

    fn file_read(&mut self, task: usize) {
        let (file, pages) = self.any_file();
        if pages > 0 {
            let offset = self.random.below(pages * PAGE);
            let length = 1 + self.random.below(pages * PAGE - offset);
            self.emit(
                task,
                EventKind::FileRead {
                    file,
                    offset,
                    length,
                },
            );
        }
    }

    fn file_write(&mut self, task: usize) {
        let (file, pages) = self.any_file();
        let offset = self.random.below((pages + 2) * PAGE);
        let length = 1 + self.random.below(3 * PAGE);
        self.emit(
            task,
            EventKind::FileWrite {
                file,
                offset,
                length,
            },
        );
        let end = (offset + length).div_ceil(PAGE);
        let known = &mut self.files[file.0 as usize];
        *known = (*known).max(end);
    }

    fn truncate(&mut self, task: usize) {
        let (file, _) = self.any_file();
        let pages = self.random.below(FILE_PAGES + 4);
        let size = pages * PAGE;
        self.emit(task, EventKind::Truncate { file, size });
        self.files[file.0 as usize] = pages;
    }

    fn finish(self) -> Recording {
        let header = Header {
            tasks: self
                .tasks
                .iter()
                .enumerate()
                .map(|(number, state)| task(number as u32, state.parent.map(|p| TaskId(p as u32))))
                .collect(),
            files: (0..FILES).map(|_| file(FILE_PAGES * PAGE)).collect(),
            strings: vec!["program".into()],
            events: self.events.len() as u64,
            duration_us: self.time,
            ..Header::default()
        };
        Recording {
            header,
            events: self.events,
        }
    }
}

impl Mapping {
    /// Its upper part from `start` on.
    fn from(&self, start: u64) -> Self {
        let skipped = start - self.start;
        Mapping {
            start,
            file: self.file.map(|(file, page)| (file, page + skipped)),
            ..*self
        }
    }
}
