//! Processes of the host that execute the operations of a program: one for each space.
//!
//! A process waits at a pipe of its own for orders, which name operations by their numbers: it
//! has the list from the process that forked it. Between `fork` and `_exit` it takes no lock and
//! allocates nothing. It ends with the one that forked it, so all end with this program.

use std::collections::HashMap;
use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr;

use vellum_engine::{Backing, Call, FileSlot, Op, SpaceSlot};

use super::group::Group;
use super::process::{Process, Refused, checked, end_with_parent, enter, error, now};
use crate::host::HostError;

/// Bytes of an order (first operation, the one after the last, lane of a child) and of an
/// answer (error, CPU time, when it began, when it ended).
const MESSAGE: usize = 32;

/// Milliseconds after which it is looked at whether a process that does not answer lives.
const PATIENCE_MS: i32 = 500;

/// Times that long that a new process may take to say that it is there.
const GREETING: u32 = 60;

/// How long some operations took.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Took {
    /// CPU time of the processes that executed them, in nanoseconds.
    pub cpu_ns: u64,
    /// Time that passed.
    pub elapsed_ns: u64,
}

/// Processes that are alive at one time have a lane each.
struct Lane {
    orders: File,
    answers: File,
    process: Ends,
    pid: u32,
}

/// The ends that its process uses.
struct Ends {
    orders: OwnedFd,
    answers: OwnedFd,
}

/// The processes of a program, in a group.
pub struct Crew<'p> {
    ops: &'p [Op],
    /// Of each file, by slot.
    paths: &'p [CString],
    page_bytes: usize,
    group: &'p Group,
    entrance: File,
    lanes: Vec<Lane>,
    free: Vec<usize>,
    of_space: HashMap<SpaceSlot, usize>,
    /// The process that acted last: what a call on a file is made by.
    last: Option<usize>,
    children: Vec<libc::pid_t>,
}

impl<'p> Crew<'p> {
    /// Nobody yet. Pages have `page_bytes` bytes.
    ///
    /// # Errors
    /// No pipe can be had, or the group cannot be entered.
    pub fn new(
        ops: &'p [Op],
        paths: &'p [CString],
        page_bytes: usize,
        group: &'p Group,
    ) -> Result<Crew<'p>, HostError> {
        let doing = HostError::io("making pipes for the processes of the program");
        let lanes = (0..most_at_once(ops)).map(|_| Lane::new());
        let lanes: Vec<Lane> = lanes.collect::<io::Result<_>>().map_err(doing)?;
        let doing = HostError::io(format!("entering {}", group.path().display()));
        Ok(Crew {
            ops,
            paths,
            page_bytes,
            group,
            entrance: group.entrance().map_err(doing)?,
            free: (0..lanes.len()).rev().collect(),
            lanes,
            of_space: HashMap::new(),
            last: None,
            children: Vec::new(),
        })
    }

    /// Executes the operations from `first` up to `end`.
    ///
    /// # Errors
    /// The kernel refused one, or killed a process.
    pub fn execute(&mut self, first: usize, end: usize) -> Result<Took, HostError> {
        let mut took = Took::default();
        let mut at = first;
        while at < end {
            let op = self.ops[at];
            match op {
                Op::Create { space } => {
                    let lane = self.start()?;
                    self.of_space.insert(space, lane);
                    self.last = Some(lane);
                }
                Op::Fork { parent, child } => {
                    let (parent, lane) = (self.lane(parent)?, self.take_lane()?);
                    took.add(self.order(parent, at, at + 1, lane)?);
                    self.greet(lane)?;
                    self.of_space.insert(child, lane);
                    self.last = Some(parent);
                }
                Op::Exit { space } => {
                    let lane = self.lane(space)?;
                    took.add(self.order(lane, at, at + 1, 0)?);
                    self.of_space.remove(&space);
                    self.free.push(lane);
                }
                // There before it begins, and notes of the time.
                Op::FileOpen { .. } | Op::Lap { .. } => {}
                _ => {
                    let lane = self.executor(&op)?;
                    let same = |op: &&Op| self.executor(op).ok() == Some(lane) && goes_on(op);
                    let count = self.ops[at..end].iter().take_while(same).count().max(1);
                    took.add(self.order(lane, at, at + count, 0)?);
                    self.last = Some(lane);
                    at += count - 1;
                }
            }
            at += 1;
        }
        Ok(took)
    }

    /// Who executes `op`.
    fn executor(&self, op: &Op) -> Result<usize, HostError> {
        match op {
            Op::Map { space, .. } | Op::Call(Call::Access { space, .. }) => self.lane(*space),
            Op::Call(_) => self.last.ok_or_else(|| unknown(op)),
            _ => Err(unknown(op)),
        }
    }

    fn lane(&self, space: SpaceSlot) -> Result<usize, HostError> {
        let lane = self.of_space.get(&space).copied();
        lane.ok_or_else(|| HostError::Unsupported(format!("space {} has no process", space.0)))
    }

    fn take_lane(&mut self) -> Result<usize, HostError> {
        self.free
            .pop()
            .ok_or_else(|| HostError::Unsupported("too many processes at once".to_owned()))
    }

    /// Forks a process of this program, which enters the group.
    fn start(&mut self) -> Result<usize, HostError> {
        let lane = self.take_lane()?;
        // SAFETY: the child calls what `serve` does and leaves by `_exit`: system calls on
        // descriptors and memory that it has, no lock and no allocation.
        match unsafe { libc::fork() } {
            -1 => Err(HostError::io("starting a process")(
                io::Error::last_os_error(),
            )),
            0 => {
                let status = match enter(self.entrance.as_raw_fd()) {
                    Ok(()) => 0,
                    Err(error) => error,
                };
                self.serve(lane, status)
            }
            pid => {
                self.children.push(pid);
                self.greet(lane)?;
                Ok(lane)
            }
        }
    }

    /// Takes the first word of a process: its number.
    fn greet(&mut self, lane: usize) -> Result<(), HostError> {
        let doing = HostError::io(format!(
            "entering the control group {}",
            self.group.path().display()
        ));
        let [error, pid, ..] = self.answer(lane, false)?;
        match error {
            0 => {
                self.lanes[lane].pid = pid as u32;
                Ok(())
            }
            error => Err(doing(io::Error::from_raw_os_error(error as i32))),
        }
    }

    /// Has the process of a lane execute operations.
    fn order(
        &mut self,
        lane: usize,
        first: usize,
        end: usize,
        child: usize,
    ) -> Result<Took, HostError> {
        let message = packed([first as u64, end as u64, child as u64, 0]);
        let doing = HostError::io("giving an order to a process");
        self.lanes[lane].orders.write_all(&message).map_err(doing)?;
        let [error, cpu_ns, begun, ended] = self.answer(lane, true)?;
        match error {
            0 => Ok(Took {
                cpu_ns,
                elapsed_ns: ended.saturating_sub(begun),
            }),
            error => Err(HostError::Io {
                doing: format!("{:?} in a process of the host", self.ops[first]),
                source: io::Error::from_raw_os_error(error as i32),
            }),
        }
    }

    /// What the process of a lane says, whose number is known or is what it says now.
    fn answer(&mut self, lane: usize, is_known: bool) -> Result<[u64; 4], HostError> {
        let lane = &mut self.lanes[lane];
        let mut ready = libc::pollfd {
            fd: lane.answers.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        let mut waits = 0;
        // SAFETY: one descriptor that outlives the call.
        while unsafe { libc::poll(&mut ready, 1, PATIENCE_MS) } <= 0 {
            waits += 1;
            let is_gone = match is_known {
                true => !self.group.holds(lane.pid),
                false => waits > GREETING,
            };
            if is_gone {
                let why = match self.group.kills() {
                    0 => "a process of the program was killed",
                    _ => "the kernel killed a process of the program: its group had no memory",
                };
                return Err(HostError::Unsupported(why.to_owned()));
            }
        }
        let mut message = [0; MESSAGE];
        let doing = HostError::io("reading what a process answers");
        lane.answers.read_exact(&mut message).map_err(doing)?;
        Ok(words(&message))
    }
}

impl Took {
    fn add(&mut self, other: Took) {
        self.cpu_ns += other.cpu_ns;
        self.elapsed_ns += other.elapsed_ns;
    }
}

impl Drop for Crew<'_> {
    fn drop(&mut self) {
        for &pid in &self.children {
            // SAFETY: a child of this process that was not waited for. Those that it forked
            // are killed with it.
            unsafe {
                libc::kill(pid, libc::SIGKILL);
                libc::waitpid(pid, ptr::null_mut(), 0);
            }
        }
    }
}

fn unknown(op: &Op) -> HostError {
    HostError::Unsupported(format!("no process of the host does {op:?}"))
}

/// Whether an operation may be given with those before it in one order.
fn goes_on(op: &Op) -> bool {
    !matches!(
        op,
        Op::Create { .. } | Op::Fork { .. } | Op::Exit { .. } | Op::FileOpen { .. }
    )
}

/// Spaces that are there at one time, at the most.
fn most_at_once(ops: &[Op]) -> usize {
    let (mut now, mut most) = (0_usize, 0);
    for op in ops {
        match op {
            Op::Create { .. } | Op::Fork { .. } => now += 1,
            Op::Exit { .. } => now = now.saturating_sub(1),
            _ => {}
        }
        most = most.max(now);
    }
    most
}

fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut ends = [0; 2];
    // SAFETY: an array of two descriptors.
    if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call returned descriptors that nobody else owns.
    Ok(unsafe { (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])) })
}

impl Lane {
    fn new() -> io::Result<Lane> {
        let ((orders, give), (answers, tell)) = (pipe()?, pipe()?);
        Ok(Lane {
            orders: give.into(),
            answers: answers.into(),
            process: Ends {
                orders,
                answers: tell,
            },
            pid: 0,
        })
    }
}

fn packed(words: [u64; 4]) -> [u8; MESSAGE] {
    let mut message = [0; MESSAGE];
    for (place, word) in message.chunks_exact_mut(8).zip(words) {
        place.copy_from_slice(&word.to_ne_bytes());
    }
    message
}

fn words(message: &[u8; MESSAGE]) -> [u64; 4] {
    let mut words = [0; 4];
    for (word, bytes) in words.iter_mut().zip(message.chunks_exact(8)) {
        let mut one = [0; 8];
        one.copy_from_slice(bytes);
        *word = u64::from_ne_bytes(one);
    }
    words
}

// What follows runs in the processes.

/// What becomes of a process after an order.
enum Next {
    Stays,
    /// It is the child that was forked, whose lane this is.
    IsChild(usize),
    Ends,
}

impl Crew<'_> {
    /// Says that it is there, with what went wrong so far, and does what it is ordered to.
    fn serve(&self, mut lane: usize, status: Refused) -> ! {
        let mut process = Process::new();
        let mut order = [0_u8; MESSAGE];
        self.hello(lane, status);
        loop {
            let orders = self.lanes[lane].process.orders.as_raw_fd();
            // SAFETY: the buffer is as long as stated. Messages are shorter than what a pipe
            // takes at once.
            let read = unsafe { libc::read(orders, order.as_mut_ptr().cast(), MESSAGE) };
            if read != MESSAGE as isize {
                // SAFETY: ends the process.
                unsafe { libc::_exit(1) }
            }
            let [first, end, child, _] = words(&order);
            let begun = now(libc::CLOCK_MONOTONIC);
            let cpu_begun = now(libc::CLOCK_PROCESS_CPUTIME_ID);
            let done = self.carry_out(&mut process, first as usize..end as usize, child as usize);
            let cpu_ns = now(libc::CLOCK_PROCESS_CPUTIME_ID).saturating_sub(cpu_begun);
            let ended = now(libc::CLOCK_MONOTONIC);
            match done {
                Ok(Next::IsChild(mine)) => {
                    lane = mine;
                    self.hello(lane, end_with_parent().err().unwrap_or(0));
                }
                Ok(Next::Stays) => self.say(lane, [0, cpu_ns, begun, ended]),
                Ok(Next::Ends) => {
                    self.say(lane, [0, cpu_ns, begun, ended]);
                    // SAFETY: ends the process.
                    unsafe { libc::_exit(0) }
                }
                Err(error) => self.say(lane, [error as u64, 0, begun, ended]),
            }
        }
    }

    fn hello(&self, lane: usize, status: Refused) {
        // SAFETY: takes nothing.
        let pid = unsafe { libc::getpid() };
        self.say(lane, [status as u64, pid as u64, 0, 0]);
    }

    fn say(&self, lane: usize, answer: [u64; 4]) {
        let message = packed(answer);
        let answers = self.lanes[lane].process.answers.as_raw_fd();
        // SAFETY: the message is as long as stated.
        unsafe { libc::write(answers, message.as_ptr().cast(), MESSAGE) };
    }

    fn carry_out(
        &self,
        process: &mut Process,
        ops: std::ops::Range<usize>,
        child: usize,
    ) -> Result<Next, Refused> {
        for op in self.ops.get(ops).ok_or(libc::EINVAL)? {
            match *op {
                // SAFETY: as in `start`; this process has one thread.
                Op::Fork { .. } => match unsafe { libc::fork() } {
                    -1 => return Err(error()),
                    0 => return Ok(Next::IsChild(child)),
                    _ => {}
                },
                Op::Exit { .. } => {
                    process.unmap()?;
                    return Ok(Next::Ends);
                }
                Op::Map {
                    page,
                    pages,
                    backing,
                    ..
                } => {
                    let file = match backing {
                        Backing::Anonymous => None,
                        Backing::File { file, .. } => Some(self.path(file)?),
                    };
                    let range = self.range(page, pages)?;
                    process.map(range, file)?;
                }
                Op::Call(Call::Access {
                    page,
                    pages,
                    access,
                    ..
                }) => {
                    let range = self.range(page, pages)?;
                    process.access(range, self.page_bytes, access, page)?;
                }
                Op::Call(Call::ReadThrough { file, block }) => {
                    process.read_through(self.path(file)?, block as usize)?;
                }
                Op::Call(Call::Write {
                    file,
                    at,
                    block,
                    bytes,
                }) => process.write(self.path(file)?, at, block as usize, bytes)?,
                Op::Call(Call::SetSize { file, bytes }) => {
                    let length = i64::try_from(bytes).map_err(|_| libc::EFBIG)?;
                    // SAFETY: the path ends in a zero byte and outlives the call.
                    checked(unsafe { libc::truncate(self.path(file)?.as_ptr(), length) }.into())?;
                }
                _ => return Err(libc::ENOSYS),
            }
        }
        Ok(Next::Stays)
    }

    fn path(&self, file: FileSlot) -> Result<&CString, Refused> {
        self.paths.get(file.0 as usize).ok_or(libc::ENOENT)
    }

    /// Pages in bytes: start and length.
    fn range(&self, page: u64, pages: u64) -> Result<(usize, usize), Refused> {
        let bytes = |pages: u64| (pages as usize).checked_mul(self.page_bytes);
        let range = bytes(page).zip(bytes(pages));
        range.ok_or(libc::EOVERFLOW)
    }
}

#[cfg(test)]
mod tests {
    use vellum_engine::Access;

    use super::super::group::Places;
    use super::super::programs::{Memory, program};
    use super::*;
    use crate::bench::find;
    use crate::bench::request::Sizes;
    use crate::compare::Load;

    /// A group with room for everything; none where this user may make none.
    fn group() -> Option<Group> {
        Group::new(&Places::find().ok()?, 256 << 20).ok()
    }

    #[test]
    fn processes_fork_touch_and_end_as_the_program_says() {
        let Some(group) = group() else { return };
        let benchmark = find("reclaim").expect("there is one");
        let sizes = Sizes::new(benchmark, 1.0, &[]).expect("sizes");
        let memory = Memory {
            pages: 512,
            shift: 12,
        };
        let program = program("fork-swapped", &sizes, memory, 1).expect("a program");
        let ops = program.script.ops(0);
        let mut crew = Crew::new(ops, &[], 4096, &group).expect("a crew");
        let took = crew.execute(0, ops.len()).expect("it runs");
        assert!(took.cpu_ns > 0 && took.elapsed_ns > 0, "{took:?}");
        let faults = group.counts().into_iter().find(|count| count.0 == "faults");
        let faults = faults.expect("every kernel counts them").1;
        // Three times: the other process's pages, and the child's copies; once: the parent's.
        let least = 3 * (512 + 384) + 384;
        assert!(faults >= least, "{faults} of {least}");
        assert_eq!(crew.of_space.len(), 1, "the parent lives");
        let parent = crew.lanes[crew.of_space[&SpaceSlot(0)]].pid;
        assert!(group.holds(parent));
        let path = group.path().to_owned();
        drop(crew);
        drop(group);
        assert!(!path.exists());
    }

    #[test]
    fn an_access_that_is_not_mapped_is_an_error_and_not_a_crash() {
        let Some(group) = group() else { return };
        let space = SpaceSlot(0);
        let ops = [
            Op::Create { space },
            Op::Call(Call::Access {
                space,
                page: 1 << 16,
                pages: 1,
                access: Access::Read,
            }),
            Op::Call(Call::SetSize {
                file: FileSlot(0),
                bytes: 0,
            }),
        ];
        let mut crew = Crew::new(&ops, &[], 4096, &group).expect("a crew");
        crew.execute(0, 1).expect("a process");
        for (at, error) in [(1, libc::EFAULT), (2, libc::ENOENT)] {
            match crew.execute(at, at + 1) {
                Err(HostError::Io { source, .. }) => {
                    assert_eq!(source.raw_os_error(), Some(error));
                }
                other => panic!("{other:?}"),
            }
        }
    }
}
