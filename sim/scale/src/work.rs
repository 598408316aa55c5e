//! What a CPU does in each workload.

use vellum::addr::{Access, PageRange, Prot, Vpn};
use vellum::platform::{CpuId, CpuSet, CpuWords, Flush, Machine, SpaceTag};
use vellum::rmap::ReverseMap;
use vellum::space::{
    FaultError, FileError, FileRequest, MapError, MapRequest, Placement, ReadRequest, Source,
    Traits, WriteRequest,
};
use vellum::table::X86_64;
use vellum::{Vm, space};
use vellum_description::WorkKind;
use vellum_sim::{Board, Cpu};

use crate::workloads::{Files, Kind, Pages, Spaces};

pub(crate) type Manager<R> = Vm<Board, X86_64, R>;
type Space<'v, R> = space::Space<'v, Board, X86_64, R>;
type File<'v, R> = space::File<'v, Board, X86_64, R>;

/// Pages of a mapping that is faulted in page by page. Then it is made anew.
const MAPPED: u64 = 4096;
/// Pages of the file that all read or map.
const FILE: u64 = 4096;
/// Pages between what two CPUs have in a space that they share: a table of the second
/// level each.
const APART: u64 = 1 << 18;
/// Where in a space the first CPU's part begins.
const FIRST: u64 = 1 << 20;
/// Pages of a CPU's part of a file that all write. Then it is cut away and begun anew.
const PART: u64 = 1024;
/// Spaces that map the file of which CPUs look pages up, and its pages.
const MAPPED_BY: (usize, u64) = (16, 256);
/// Pages of a process that forks, and those its child stores to.
const FORKED: (u64, u64) = (64, 8);
const PAGE: usize = 4096;

/// Where a CPU's part of a space begins.
fn place(cpu: usize) -> Vpn {
    Vpn(FIRST + cpu as u64 * APART)
}

/// So many pages of shared memory.
fn memory(pages: u64) -> FileRequest {
    FileRequest::shared_memory(pages * PAGE as u64)
}

/// What a mapping of a file from its beginning shows.
fn all_of<R: ReverseMap>(file: File<'_, R>) -> Source {
    Source::Object {
        id: file.id(),
        page: 0,
    }
}

fn place_of(cpu: &Cpu<'_>) -> Vpn {
    place(usize::from(cpu.id().0))
}

/// Why a CPU could not go on.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum Refused {
    #[error("{0}")]
    Map(#[from] MapError),
    #[error("{0}")]
    Fault(#[from] FaultError),
    #[error("{0}")]
    File(#[from] FileError),
}

type Done = Result<(), Refused>;

/// What the CPUs of a workload have in common.
pub(crate) struct Stage<'v, R: ReverseMap> {
    pub(crate) vm: &'v Manager<R>,
    pub(crate) kind: Kind,
    space: Option<Space<'v, R>>,
    file: Option<File<'v, R>>,
    /// Spaces that map the file, in which nothing runs.
    mappers: Vec<Space<'v, R>>,
}

/// Counts what a CPU does until its time is up.
pub(crate) struct Clock<'c, 'r> {
    pub(crate) cpu: &'c Cpu<'r>,
    /// The window within which things count, in picoseconds.
    pub(crate) window: (u64, u64),
    pub(crate) count: u64,
}

impl Clock<'_, '_> {
    /// One more was done.
    fn count(&mut self) {
        let now = self.cpu.now();
        self.count += u64::from(self.window.0 <= now && now < self.window.1);
    }

    fn is_over(&self) -> bool {
        self.cpu.now() >= self.window.1
    }
}

impl<'v, R: ReverseMap> Stage<'v, R> {
    /// Makes what all share, outside of simulated time.
    pub(crate) fn new(vm: &'v Manager<R>, kind: Kind, cpus: usize) -> Result<Self, Refused> {
        let mut stage = Stage {
            vm,
            kind,
            space: None,
            file: None,
            mappers: Vec::new(),
        };
        match kind {
            Kind::MapUnmap(Spaces::Shared) => stage.space = Some(vm.create_space()?),
            Kind::Faults(Spaces::Shared) => stage.map_for_all(cpus, Source::Anonymous)?,
            Kind::CachedFaults(spaces) => {
                let file = stage.cached_file(FILE)?;
                stage.file = Some(file);
                if spaces == Spaces::Shared {
                    stage.map_for_all(cpus, all_of(file))?;
                }
            }
            Kind::Read => stage.file = Some(stage.cached_file(FILE)?),
            Kind::LookUp(_) => stage.map_by_many()?,
            Kind::Write(Files::Shared) => {
                // As long as it will be: writes within a file do not wait for its end.
                stage.file = Some(vm.create_file(memory(PART * cpus as u64))?);
            }
            _ => {}
        }
        Ok(stage)
    }

    /// Makes a space in which each CPU has its mapping already: they would all wait for
    /// each other to make them.
    fn map_for_all(&mut self, cpus: usize, source: Source) -> Done {
        let space = self.vm.create_space()?;
        self.space = Some(space);
        (0..cpus).try_for_each(|cpu| self.map_at(space, place(cpu), MAPPED, source))
    }

    /// Makes a file of which each page is mapped by several spaces.
    fn map_by_many(&mut self) -> Done {
        let (spaces, pages) = MAPPED_BY;
        let file = self.cached_file(pages)?;
        self.file = Some(file);
        for _ in 0..spaces {
            let space = self.vm.create_space()?;
            self.mappers.push(space);
            self.map_at(space, place(0), pages, all_of(file))?;
            for page in 0..pages {
                let address = place(0).offset(page).address::<X86_64>();
                space.fault(address, Access::Read)?;
            }
        }
        Ok(())
    }

    fn cached_file(&self, pages: u64) -> Result<File<'v, R>, Refused> {
        let file = self.vm.create_file(memory(pages))?;
        let mut next = 0;
        while next < pages {
            let left = pages - next;
            let request = WriteRequest::pages(next, left, |page, bytes| bytes.fill(page));
            next += file.write(request)?;
        }
        Ok(file)
    }

    /// Does the CPU's part until its time is up, and leaves nothing behind.
    pub(crate) fn work(&self, clock: &mut Clock<'_, '_>) -> Done {
        match self.kind {
            Kind::Faults(_) => self.faults(clock, Source::Anonymous),
            Kind::CachedFaults(_) => {
                let file = self.file.expect("made in `new`");
                self.faults(clock, all_of(file))
            }
            Kind::MapUnmap(_) => self.map_unmap(clock),
            Kind::ForkExit => self.fork_exit(clock),
            Kind::Read => self.read(clock),
            Kind::Write(files) => self.write(clock, files),
            Kind::LookUp(pages) => self.look_up(clock, pages),
            Kind::Shootdowns => {
                self.shootdowns(clock);
                Ok(())
            }
        }
    }

    /// The space that the CPU works in.
    fn own_space(&self, cpu: &Cpu<'_>) -> Result<Space<'v, R>, Refused> {
        match self.space {
            Some(space) => Ok(space),
            None => {
                cpu.begin(Some(WorkKind::Fork));
                cpu.syscall();
                Ok(self.vm.create_space()?)
            }
        }
    }

    /// Ends the space, unless others are in it.
    fn leave(&self, cpu: &Cpu<'_>, space: Space<'v, R>) -> Done {
        if self.space.is_none() {
            cpu.begin(Some(WorkKind::Exit));
            cpu.syscall();
            space.exit()?;
        }
        Ok(())
    }

    fn map(&self, cpu: &Cpu<'_>, space: Space<'v, R>, pages: u64, source: Source) -> Done {
        cpu.begin(Some(WorkKind::Map));
        cpu.syscall();
        self.map_at(space, place_of(cpu), pages, source)
    }

    fn map_at(&self, space: Space<'v, R>, place: Vpn, pages: u64, source: Source) -> Done {
        let is_file = source != Source::Anonymous;
        let request = MapRequest {
            prot: match is_file {
                true => Prot::READ,
                false => Prot::READ_WRITE,
            },
            traits: match is_file {
                true => Traits::SHARED,
                false => Traits::NONE,
            },
            source,
            placement: Placement::FixedFree(place),
            ..MapRequest::anonymous(pages, Prot::READ_WRITE)
        };
        space.map(&request)?;
        Ok(())
    }

    fn fault(&self, cpu: &Cpu<'_>, space: Space<'v, R>, page: Vpn, access: Access) -> Done {
        cpu.begin(Some(WorkKind::Fault));
        cpu.trap();
        space.fault(page.address::<X86_64>(), access)?;
        Ok(())
    }

    fn faults(&self, clock: &mut Clock<'_, '_>, source: Source) -> Done {
        let cpu = clock.cpu;
        let access = match source {
            Source::Anonymous => Access::Write,
            Source::Object { .. } | Source::Frames { .. } => Access::Read,
        };
        let space = self.own_space(cpu)?;
        let first = place_of(cpu);
        // Not all at the same page of the file at the same time.
        let start = cpu.random().below(MAPPED);
        if self.space.is_none() {
            self.map(cpu, space, MAPPED, source)?;
        }
        loop {
            for page in 0..MAPPED {
                if clock.is_over() {
                    return self.leave(cpu, space);
                }
                let page = first.offset((start + page) % MAPPED);
                self.fault(cpu, space, page, access)?;
                clock.count();
            }
            cpu.begin(Some(WorkKind::Map));
            cpu.syscall();
            space.unmap(first, MAPPED)?;
            self.map(cpu, space, MAPPED, source)?;
        }
    }

    fn map_unmap(&self, clock: &mut Clock<'_, '_>) -> Done {
        let cpu = clock.cpu;
        let space = self.own_space(cpu)?;
        let first = place_of(cpu);
        while !clock.is_over() {
            self.map(cpu, space, 1, Source::Anonymous)?;
            self.fault(cpu, space, first, Access::Write)?;
            cpu.begin(Some(WorkKind::Map));
            cpu.syscall();
            space.unmap(first, 1)?;
            clock.count();
        }
        self.leave(cpu, space)
    }

    fn fork_exit(&self, clock: &mut Clock<'_, '_>) -> Done {
        let cpu = clock.cpu;
        let space = self.own_space(cpu)?;
        let first = place_of(cpu);
        let (pages, stores) = FORKED;
        self.map(cpu, space, pages, Source::Anonymous)?;
        for page in 0..pages {
            self.fault(cpu, space, first.offset(page), Access::Write)?;
        }
        while !clock.is_over() {
            cpu.begin(Some(WorkKind::Fork));
            cpu.syscall();
            // The parent runs when it forks.
            space.load()?;
            let child = space.fork()?;
            for page in 0..stores {
                self.fault(cpu, child, first.offset(page), Access::Write)?;
            }
            cpu.begin(Some(WorkKind::Exit));
            cpu.syscall();
            child.exit()?;
            clock.count();
        }
        self.leave(cpu, space)
    }

    fn read(&self, clock: &mut Clock<'_, '_>) -> Done {
        let cpu = clock.cpu;
        let file = self.file.expect("made in `new`");
        let mut random = cpu.random();
        let mut buffer = [0; PAGE];
        while !clock.is_over() {
            cpu.begin(Some(WorkKind::File));
            cpu.syscall();
            let place = random.below(FILE) * PAGE as u64;
            file.read(ReadRequest::bytes(place, &mut [&mut buffer]))?;
            clock.count();
        }
        Ok(())
    }

    fn write(&self, clock: &mut Clock<'_, '_>, files: Files) -> Done {
        let cpu = clock.cpu;
        let buffer = [7; PAGE];
        let (file, first) = match files {
            Files::Shared => {
                let file = self.file.expect("made in `new`");
                (file, u64::from(cpu.id().0) * PART)
            }
            Files::Own => {
                cpu.begin(Some(WorkKind::File));
                cpu.syscall();
                (self.vm.create_file(memory(PART))?, 0)
            }
        };
        let bytes = |page: u64| page * PAGE as u64;
        while !clock.is_over() {
            for page in first..first + PART {
                if clock.is_over() {
                    break;
                }
                cpu.begin(Some(WorkKind::File));
                cpu.syscall();
                file.write(WriteRequest::bytes(bytes(page), &[&buffer]))?;
                clock.count();
            }
            cpu.begin(Some(WorkKind::File));
            cpu.syscall();
            file.punch_hole(bytes(first), bytes(PART))?;
        }
        if files == Files::Own {
            cpu.begin(Some(WorkKind::File));
            cpu.syscall();
            file.release()?;
        }
        Ok(())
    }

    /// What aging does that goes over pages without order.
    fn look_up(&self, clock: &mut Clock<'_, '_>, pages: Pages) -> Done {
        let cpu = clock.cpu;
        let file = self.file.expect("made in `new`");
        let count = match pages {
            Pages::One => 1,
            Pages::Any => MAPPED_BY.1,
        };
        let mut random = cpu.random();
        cpu.begin(None);
        while !clock.is_over() {
            file.scan(random.below(count), 1)?;
            clock.count();
        }
        Ok(())
    }

    /// What threads of one process do to each other when each gives a page back.
    fn shootdowns(&self, clock: &mut Clock<'_, '_>) {
        let cpu = clock.cpu;
        let platform = self.vm.platform();
        let shift = CpuWords::shift_for(platform.cpus());
        let mut words = [0; CpuWords::COUNT];
        for other in 0..platform.cpus() {
            let (word, bit) = CpuWords::place(CpuId(other as u16), shift);
            words[word] |= bit;
        }
        let words = CpuWords::new(words, shift);
        let request = Flush {
            space: SpaceTag(0),
            range: Some(PageRange::new(place_of(cpu), 1)),
            tables: false,
        };
        while !clock.is_over() {
            cpu.syscall();
            platform.flush(cpu.id(), CpuSet::of(&words), &request);
            clock.count();
        }
    }

    /// Ends what all shared, outside of simulated time.
    pub(crate) fn end(self) -> Done {
        for space in self.mappers.into_iter().chain(self.space) {
            space.exit()?;
        }
        if let Some(file) = self.file {
            file.release()?;
        }
        Ok(())
    }
}
