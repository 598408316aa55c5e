//! Tasks and a tiny scheduler: one queue, and on each CPU a loop that takes from it.
//!
//! A task sleeps by [`park`] and is woken by [`unpark`], which are the manager's too. The
//! scheduler's lock is held from before a task gives its CPU up until whoever runs next is
//! on its own stack, so that nobody runs a task whose registers are not yet saved.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU64, Ordering};

use vellum::SpaceId;

use crate::arch::cpu::{self, CPUS, Cpu};
use crate::arch::flush;
use crate::arch::trap::{SWITCHED_WORDS, TrapFrame};
use crate::check::report;
use crate::lock::SpinLock;
use crate::{heap, vm};

/// Tasks there can be at one time.
const MOST: usize = 1024;
const STACK: usize = 32 << 10;
/// Lies at the far end of every stack.
const CANARY: u64 = 0x5afe_57ac_c0de_cafe;

/// A task. Its place is used again after it has ended and was waited for.
pub struct Task {
    /// Stack pointer while it does not run.
    saved: UnsafeCell<u64>,
    /// End of its kernel stack, or 0 before it has one.
    stack: AtomicU64,
    /// Its space as bits, or 0.
    space: AtomicU64,
    recover: AtomicU64,
    code: AtomicU64,
}

// SAFETY: `saved` is reached under the scheduler's lock.
unsafe impl Sync for Task {}

static TASKS: [Task; MOST] = [const {
    Task {
        saved: UnsafeCell::new(0),
        stack: AtomicU64::new(0),
        space: AtomicU64::new(0),
        recover: AtomicU64::new(0),
        code: AtomicU64::new(0),
    }
}; MOST];

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// No task.
    Free,
    /// It runs, or is in the queue.
    Awake,
    /// The same, and a wake came that it has not slept for.
    Woken,
    Asleep,
    /// It has ended; nobody has asked for its code.
    Ended,
}

struct Scheduler {
    state: [State; MOST],
    /// Who waits for the end of each task.
    waiter: [Option<u16>; MOST],
    /// Tasks that could run, a ring.
    queue: [u16; MOST],
    first: usize,
    queued: usize,
    /// CPUs that halt.
    idle: u64,
    alive: usize,
}

static SCHEDULER: SpinLock<Scheduler> = SpinLock::new(Scheduler {
    state: [State::Free; MOST],
    waiter: [None; MOST],
    queue: [0; MOST],
    first: 0,
    queued: 0,
    idle: 0,
    alive: 0,
});

unsafe extern "C" {
    fn switch_stacks(leave: *mut u64, go_on: u64);
    fn task_begin();
}

impl Scheduler {
    fn enqueue(&mut self, task: usize) {
        self.queue[(self.first + self.queued) % MOST] = task as u16;
        self.queued += 1;
        if self.idle != 0 {
            let cpu = &CPUS[self.idle.trailing_zeros() as usize];
            self.idle &= self.idle - 1;
            cpu::wake(cpu);
        }
    }

    fn wake(&mut self, task: usize) {
        match self.state[task] {
            State::Asleep => {
                self.state[task] = State::Awake;
                self.enqueue(task);
            }
            State::Awake => self.state[task] = State::Woken,
            State::Woken | State::Free | State::Ended => {}
        }
    }

    fn dequeue(&mut self) -> Option<usize> {
        let task = (self.queued > 0).then(|| self.queue[self.first])?;
        self.first = (self.first + 1) % MOST;
        self.queued -= 1;
        Some(usize::from(task))
    }
}

impl Task {
    /// The space it runs in.
    pub fn space(&self) -> Option<SpaceId> {
        match self.space.load(Ordering::Relaxed) {
            0 => None,
            bits => Some(SpaceId::from_bits(bits)),
        }
    }

    /// Where it goes on after a refused probe.
    pub fn recover(&self) -> u64 {
        self.recover.load(Ordering::Relaxed)
    }

    /// Sets that.
    pub fn set_recover(&self, address: u64) {
        self.recover.store(address, Ordering::Relaxed);
    }

    /// Its number.
    pub fn number(&self) -> u64 {
        ((&raw const *self as usize - TASKS.as_ptr() as usize) / size_of::<Task>()) as u64
    }
}

/// The task that runs here.
pub fn current() -> &'static Task {
    // SAFETY: tasks are static.
    unsafe { &*Cpu::this().current.load(Ordering::Relaxed) }
}

/// Makes a task that begins as `frame` says, in `space` (whose user it is) or, in the
/// kernel, in none.
pub fn create(frame: TrapFrame, space: Option<SpaceId>) -> Option<u64> {
    let mut scheduler = SCHEDULER.lock();
    let number = scheduler
        .state
        .iter()
        .position(|state| *state == State::Free)?;
    let task = &TASKS[number];
    if task.stack.load(Ordering::Relaxed) == 0 {
        task.stack.store(heap::stack(STACK), Ordering::Relaxed);
    }
    let end = task.stack.load(Ordering::Relaxed);
    task.space
        .store(space.map_or(0, SpaceId::to_bits), Ordering::Relaxed);
    let maker = Cpu::this().current.load(Ordering::Relaxed);
    // SAFETY: null, or a task.
    let recover = unsafe { maker.as_ref() }.map_or(0, Task::recover);
    task.recover.store(recover, Ordering::Relaxed);
    let frame_at = end - size_of::<TrapFrame>() as u64;
    // SAFETY: the stack is this task's alone, which does not run yet. Below the frame lies
    // what `switch_stacks` takes off.
    unsafe {
        ((end - STACK as u64) as *mut u64).write(CANARY);
        (frame_at as *mut TrapFrame).write(frame);
        let saved = (frame_at as *mut u64).sub(SWITCHED_WORDS);
        saved
            .add(SWITCHED_WORDS - 1)
            .write(task_begin as *const () as u64);
        *task.saved.get() = saved as u64;
    }
    scheduler.state[number] = State::Awake;
    scheduler.alive += 1;
    scheduler.enqueue(number);
    Some(number as u64)
}

/// Called by `task_begin`, on the stack of a task that has just begun.
#[unsafe(no_mangle)]
extern "C" fn task_begun() {
    // SAFETY: the loop that switched here forgot its guard.
    unsafe { SCHEDULER.unlock() }
}

/// Gives the CPU to its loop until somebody runs this task again. The scheduler is locked
/// before and after.
fn leave() {
    let task = current();
    let bottom = task.stack.load(Ordering::Relaxed) - STACK as u64;
    // SAFETY: the far end of the task's own stack.
    let canary = unsafe { *(bottom as *const u64) };
    assert!(canary == CANARY, "a kernel stack overflowed");
    // SAFETY: the lock is held; the loop's stack pointer was left by `run_cpu`.
    unsafe { switch_stacks(task.saved.get(), *Cpu::this().idle_stack.get()) }
}

/// Lets others run, if there are any.
pub fn give_way() {
    let mut scheduler = SCHEDULER.lock();
    if scheduler.queued > 0 {
        scheduler.enqueue(current().number() as usize);
        core::mem::forget(scheduler);
        leave();
        task_begun();
    }
}

/// Sleeps until [`unpark`]; one that came first counts.
pub fn park() {
    let mut scheduler = SCHEDULER.lock();
    let state = &mut scheduler.state[current().number() as usize];
    if *state == State::Woken {
        *state = State::Awake;
        return;
    }
    *state = State::Asleep;
    core::mem::forget(scheduler);
    leave();
    task_begun();
}

/// Wakes a task, if there is one of this number.
pub fn unpark(number: u64) {
    SCHEDULER.lock().wake(number as usize);
}

/// Sleeps until no other task is left. For the first task, which is number 0.
pub fn wait_for_all_others() {
    while SCHEDULER.lock().alive > 1 {
        park();
    }
}

/// Sleeps until a task has ended; its exit code. Its place becomes free. One task waits for
/// another at the most.
pub fn wait_for(number: u64) -> Option<u64> {
    let number = usize::try_from(number)
        .ok()
        .filter(|number| *number < MOST)?;
    loop {
        let mut scheduler = SCHEDULER.lock();
        match scheduler.state[number] {
            State::Free => return None,
            State::Ended => {
                scheduler.state[number] = State::Free;
                return Some(TASKS[number].code.load(Ordering::Relaxed));
            }
            _ => scheduler.waiter[number] = Some(current().number() as u16),
        }
        drop(scheduler);
        park();
    }
}

/// The task that runs goes on in another space, or in none.
pub fn set_space(space: Option<SpaceId>) {
    current()
        .space
        .store(space.map_or(0, SpaceId::to_bits), Ordering::Relaxed);
    match space.and_then(|space| vm().space(space).load().ok()) {
        Some(loaded) => flush::load(loaded),
        None => flush::unload(),
    }
}

/// Leaves the space for none; it ends with its last task.
pub fn leave_space() {
    let space = current().space();
    // No CPU may have the root loaded when the space ends.
    set_space(None);
    if let Some(space) = space
        && let Err(error) = vm().space(space).exit()
    {
        report::fail(format_args!("a space does not end: {error}"));
    }
}

/// Ends the task that runs. If it is `detached`, its place is free at once.
pub fn exit(code: u64, detached: bool) -> ! {
    leave_space();
    let task = current();
    task.code.store(code, Ordering::Relaxed);
    let mut scheduler = SCHEDULER.lock();
    let number = task.number() as usize;
    // The place is taken under the lock, so not before this stack is left.
    scheduler.state[number] = if detached { State::Free } else { State::Ended };
    scheduler.alive -= 1;
    if scheduler.alive == 1 {
        scheduler.wake(0);
    }
    if let Some(waiter) = scheduler.waiter[number].take() {
        scheduler.wake(usize::from(waiter));
    }
    core::mem::forget(scheduler);
    leave();
    unreachable!("a task that has ended ran");
}

/// What a CPU does for good: run tasks, or halt until there is one.
pub fn run_cpu() -> ! {
    let cpu = Cpu::this();
    loop {
        let mut scheduler = SCHEDULER.lock();
        let Some(number) = scheduler.dequeue() else {
            scheduler.idle |= 1 << cpu.index();
            drop(scheduler);
            cpu::halt();
            SCHEDULER.lock().idle &= !(1 << cpu.index());
            continue;
        };
        let task = &TASKS[number];
        cpu.current
            .store((&raw const *task).cast_mut(), Ordering::Relaxed);
        cpu.set_trap_stack(task.stack.load(Ordering::Relaxed));
        if let Some(loaded) = task.space().and_then(|space| vm().space(space).load().ok()) {
            flush::load(loaded);
        }
        core::mem::forget(scheduler);
        // SAFETY: the lock is held, and goes on being held by the task until it is on its
        // own stack; it comes back with the lock held.
        unsafe { switch_stacks(cpu.idle_stack.get(), *task.saved.get()) };
        cpu.current.store(core::ptr::null_mut(), Ordering::Relaxed);
        // Another CPU may end the space as soon as the lock is free.
        flush::unload();
        task_begun();
    }
}
