//! One simulated CPU: takes tasks and runs them, and is idle when there are none.

use std::cell::RefCell;

use vellum::addr::Vpn;
use vellum::platform::CpuId;
use vellum::probe::is_mapped_for;
use vellum::rmap::ReverseMap;
use vellum::table::X86_64;
use vellum_description::Description;
use vellum_engine::op::{Access, Call, Divergence, Op, SpaceSlot};
use vellum_sim::{Board, Cpu, CpuTotals};

use super::account::Use;
use super::kernel::{Kernel, Woken};
use super::program::Program;
use super::stop::Stop;
use crate::executor::Executor;
use crate::work_kind::kind_of;

/// The most that a task computes at once where the speed of a core's threads depends on
/// what the other is doing, in picoseconds: the simulator looks at that once.
const SHARED_CHUNK: u64 = 100_000_000;
/// The most elsewhere.
const CHUNK: u64 = 10_000_000_000;
/// Hours of virtual time that a replay may take. The simulator's clocks end at five.
const HOURS: u64 = 4;
const LIMIT: u64 = HOURS * 3600 * 1_000_000_000_000;
/// Frames that an idle CPU zeroes before it looks for tasks again.
const IDLE_FRAMES: u32 = 16;
const PAGE: f64 = 4096.0;

/// What the description says about the scheduler's work, and what the caller does, in
/// picoseconds.
#[derive(Clone, Copy)]
pub(crate) struct Prices {
    /// From one task to another, or to idling.
    switch: u64,
    /// Making a task runnable, beside waking a CPU.
    wake: u64,
    /// Copying a page of a file to who reads it.
    copy: u64,
    slice: u64,
    chunk: u64,
}

impl Prices {
    pub(crate) fn new(machine: &Description, slice_ns: u64, has_siblings: bool) -> Prices {
        Prices {
            switch: machine.system.sleep.ps(),
            wake: machine.system.wake.ps(),
            copy: (PAGE * 1000.0 / machine.bandwidth.copy.gb_per_s).round() as u64,
            slice: slice_ns.max(1).saturating_mul(1000),
            chunk: if has_siblings { SHARED_CHUNK } else { CHUNK },
        }
    }
}

/// What the CPUs of a replay have in common.
pub(crate) struct Machine<'m, R: ReverseMap> {
    pub(crate) program: &'m Program,
    pub(crate) kernel: RefCell<Kernel<'m>>,
    pub(crate) executor: Executor<'m, Board, X86_64, R>,
    pub(crate) prices: Prices,
}

/// Why a task does not run any more.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Left {
    /// It waits for others, or has ended.
    Gone,
    /// Its slice has ended and another has to run.
    Preempted,
    /// The replay is over.
    Over,
}

/// A CPU of the machine.
pub(crate) struct Processor<'c, 'r, 'm, R: ReverseMap> {
    machine: &'c Machine<'m, R>,
    cpu: &'c Cpu<'r>,
    number: usize,
    /// What the CPU had done when its account was last charged.
    charged: CpuTotals,
    /// When the task that runs has had its slice.
    slice_end: u64,
    woken: Vec<Woken>,
}

impl<'c, 'r, 'm, R: ReverseMap> Processor<'c, 'r, 'm, R> {
    pub(crate) fn new(machine: &'c Machine<'m, R>, cpu: &'c Cpu<'r>) -> Self {
        Processor {
            machine,
            cpu,
            number: usize::from(cpu.id().0),
            charged: CpuTotals::default(),
            slice_end: 0,
            woken: Vec::new(),
        }
    }

    /// Runs tasks until the last one of the machine has ended.
    pub(crate) fn work(&mut self) {
        self.charge(Use::Idle);
        // Whether the CPU has just been woken, which includes the switch to a task.
        let mut is_switched = false;
        loop {
            if self.machine.kernel.borrow().is_over() {
                return self.wake_all();
            }
            let taken = self.machine.kernel.borrow_mut().take(self.number);
            match taken {
                Some((task, is_other)) => {
                    if is_other && !is_switched {
                        self.cpu.compute_ps(self.machine.prices.switch);
                    }
                    is_switched = false;
                    self.run(task);
                }
                None => is_switched = self.idle(),
            }
        }
    }

    /// Waits for its turn, and accounts for the time that has passed.
    fn charge(&mut self, what: Use) {
        self.cpu.compute_ps(0);
        let now = self.cpu.now();
        let totals = self.cpu.totals();
        let mut before = std::mem::replace(&mut self.charged, totals);
        if before.began_at != totals.began_at {
            before = CpuTotals::default();
        }
        let apart = match what {
            // The kernel handles interrupts.
            Use::User => (totals.interrupted - before.interrupted, Use::System),
            // Who sleeps for a lock of the core does not work.
            Use::System | Use::Idle => (totals.slept - before.slept, Use::Idle),
        };
        let mut kernel = self.machine.kernel.borrow_mut();
        let end = kernel.end;
        kernel.accounts[self.number].charge_parts(now, end, what, apart);
    }

    /// Does what can be done while nothing is runnable, and sleeps when there is nothing.
    /// Returns whether it slept.
    fn idle(&mut self) -> bool {
        let Machine {
            kernel, executor, ..
        } = self.machine;
        kernel.borrow_mut().queues.set_idle(self.number, true);
        let has_work = executor.vm.idle();
        let zeroed = executor.vm.zero_idle(IDLE_FRAMES);
        self.charge(Use::Idle);
        // Whoever has made a task runnable meanwhile, or ended the last, found it idle, and
        // has taken the mark away.
        let mut has_slept = false;
        if !has_work && zeroed == 0 && kernel.borrow().queues.is_idle(self.number) {
            let before = self.cpu.now();
            self.cpu.sleep();
            let passed = self.cpu.now() - before;
            has_slept = passed > 0;
            let switch = passed.min(self.machine.prices.switch);
            {
                let mut kernel = kernel.borrow_mut();
                let end = kernel.end;
                kernel.accounts[self.number].charge(before + switch, end, Use::System);
            }
            self.charge(Use::Idle);
        }
        kernel.borrow_mut().queues.set_idle(self.number, false);
        has_slept
    }

    /// The replay is over: those who sleep have to know.
    fn wake_all(&self) {
        let idle = self.machine.kernel.borrow_mut().queues.take_idle();
        for cpu in idle {
            self.cpu.wake(CpuId(cpu as u16));
        }
    }

    /// Runs a task for as long as it can and may.
    fn run(&mut self, task: u32) {
        self.slice_end = self.cpu.now().saturating_add(self.machine.prices.slice);
        let space = self.machine.kernel.borrow().tasks[task as usize].space;
        self.load(space);
        self.charge(Use::System);
        let left = loop {
            if let Some(left) = self.step(task) {
                break left;
            }
        };
        if left == Left::Preempted {
            let mut kernel = self.machine.kernel.borrow_mut();
            kernel.preempt(self.number, task);
        }
    }

    /// Makes a space that of the CPU, if there is one and it still exists.
    fn load(&self, space: Option<SpaceSlot>) {
        let executor = self.machine.executor;
        if let Some(space) = space.and_then(|slot| executor.space(slot).ok()) {
            let _ = space.load();
        }
    }

    /// Goes on with a task until the end of its step. `None` if there is another step, and
    /// the task may begin it.
    fn step(&mut self, task: u32) -> Option<Left> {
        let kernel = &self.machine.kernel;
        let stream = &self.machine.program.tasks[task as usize];
        let (number, has_begun) = {
            let kernel = kernel.borrow();
            let state = &kernel.tasks[task as usize];
            (state.step, state.user_left.is_some())
        };
        let Some(step) = stream.steps.get(number) else {
            kernel.borrow_mut().finish(task, self.cpu.now());
            return Some(Left::Gone);
        };
        if !has_begun {
            let mut kernel = kernel.borrow_mut();
            kernel.tasks[task as usize].user_left = Some(step.user_ns.saturating_mul(1000));
        }
        if let Some(left) = self.compute(task) {
            return Some(left);
        }
        loop {
            let done = kernel.borrow().tasks[task as usize].done;
            if done == step.end {
                break;
            }
            self.execute(task, &stream.ops[done as usize]);
            if let Some(left) = self.must_leave(task) {
                return Some(left);
            }
        }
        self.next_step(task)
    }

    /// The task has done its step. It blocks, if it has to wait before the next.
    fn next_step(&mut self, task: u32) -> Option<Left> {
        let kernel = &self.machine.kernel;
        let is_begun = kernel.borrow_mut().advance(task);
        if is_begun {
            self.charge(Use::System);
            self.cpu.count_from_now();
            let now = self.cpu.now();
            kernel.borrow_mut().begin(now, self.number, &mut self.woken);
            self.wake();
        }
        let blocks = kernel.borrow_mut().blocks(task);
        if !blocks {
            return None;
        }
        // The call in which it waits. Being listed already, it can be woken meanwhile, and
        // run elsewhere then.
        self.cpu.syscall();
        self.charge(Use::System);
        kernel.borrow_mut().leave();
        Some(Left::Gone)
    }

    /// The task computes what its step has left of that.
    fn compute(&mut self, task: u32) -> Option<Left> {
        loop {
            let chunk = {
                let mut kernel = self.machine.kernel.borrow_mut();
                let left = kernel.tasks[task as usize].user_left.as_mut()?;
                let rest = self.slice_end.saturating_sub(self.cpu.now());
                let chunk = (*left).min(self.machine.prices.chunk).min(rest.max(1));
                *left -= chunk;
                chunk
            };
            if chunk == 0 {
                return None;
            }
            self.cpu.compute_ps(chunk);
            self.charge(Use::User);
            if let Some(left) = self.must_leave(task) {
                return Some(left);
            }
        }
    }

    /// Whether the task has to stop here.
    fn must_leave(&mut self, task: u32) -> Option<Left> {
        let mut kernel = self.machine.kernel.borrow_mut();
        let now = self.cpu.now();
        if now > LIMIT {
            kernel
                .stop
                .get_or_insert(Stop::TooLong { task, hours: HOURS });
        }
        if kernel.is_over() {
            return Some(Left::Over);
        }
        if now < self.slice_end {
            return None;
        }
        if kernel.queues.has_waiting(self.number) {
            return Some(Left::Preempted);
        }
        self.slice_end = now.saturating_add(self.machine.prices.slice);
        None
    }

    /// Executes the task's next operation, and wakes who waited for it. What programs do without
    /// a fault takes no time.
    fn execute(&mut self, task: u32, op: &Op) {
        let how = match *op {
            Op::Touch {
                space,
                page,
                access,
            } => match self.mapped_by(space, page, access) {
                None => self.carry_out(task, op),
                needless => needless,
            },
            Op::Call(Call::Access {
                space,
                page,
                pages,
                access,
            }) => {
                let mut pages = page..page.saturating_add(pages);
                pages.find_map(|page| self.use_page(task, space, page, access))
            }
            _ => self.carry_out(task, op),
        };
        self.complete(task, op, how);
    }

    /// A program's use of a page, which faults if it has to. Returns how the fault failed, if it
    /// did.
    fn use_page(
        &mut self,
        task: u32,
        space: SpaceSlot,
        page: u64,
        access: Access,
    ) -> Option<Divergence> {
        let touch = Op::Touch {
            space,
            page,
            access,
        };
        if self.mapped_by(space, page, access).is_some() {
            return None;
        }
        let how = self.carry_out(task, &touch);
        self.charge(Use::System);
        how
    }

    /// What has mapped a page with the right to an access, so that the access does not fault. A
    /// program finds out without the kernel, and in no time that is not its own. It is the CPU's
    /// turn: what others did before is there.
    fn mapped_by(&self, space: SpaceSlot, page: u64, access: Access) -> Option<Divergence> {
        let space = self.machine.executor.space(space).ok()?;
        let access = crate::executor::access(access);
        self.cpu.unreported(|| {
            is_mapped_for(space, Vpn(page), access)
                .then(|| Executor::<Board, X86_64, R>::mapped_by(space, Vpn(page)))
        })
    }

    /// Enters the kernel, executes an operation there, and returns how it went otherwise than
    /// recorded, if it did.
    fn carry_out(&mut self, task: u32, op: &Op) -> Option<Divergence> {
        let Machine {
            executor, prices, ..
        } = self.machine;
        self.cpu.begin(kind_of(op));
        self.enter(task, op);
        let how = match executor.execute(op) {
            Ok(how) => how,
            Err(error) => Some(Divergence::Failed(error)),
        };
        self.cpu.begin(None);
        if let Op::FileRead { pages, .. } = *op {
            self.cpu.compute_ps(pages.saturating_mul(prices.copy));
        }
        how
    }

    /// Ends an operation that went so, and wakes who waited for it.
    fn complete(&mut self, task: u32, op: &Op, how: Option<Divergence>) {
        let kernel = &self.machine.kernel;
        if let Op::Exec { new, .. } = *op {
            kernel.borrow_mut().tasks[task as usize].space = Some(new);
            self.load(Some(new));
        } else if let Op::Exit { .. } = *op {
            kernel.borrow_mut().tasks[task as usize].space = None;
        }
        self.charge(Use::System);
        {
            let mut kernel = kernel.borrow_mut();
            if let Some(how) = how {
                kernel.diverged(task, how);
            }
            kernel.complete(self.number, task, &mut self.woken);
        }
        self.wake();
    }

    /// Wakes whom an event has made runnable.
    fn wake(&mut self) {
        let mut woken = std::mem::take(&mut self.woken);
        for woken in woken.drain(..) {
            match woken {
                Woken::On(cpu) => self.cpu.wake(CpuId(cpu as u16)),
                Woken::Queued => self.cpu.compute_ps(self.machine.prices.wake),
            }
            self.charge(Use::System);
        }
        self.woken = woken;
    }

    /// Enters the kernel for an operation, from the space that the task is in.
    fn enter(&self, task: u32, op: &Op) {
        match op {
            Op::Touch { .. } => self.cpu.trap(),
            // What the kernel does by itself.
            Op::ScanSpace { .. } | Op::ScanFile { .. } | Op::Idle { .. } => {}
            _ => self.cpu.syscall(),
        }
        let Some(space) = caller(op) else { return };
        let mut kernel = self.machine.kernel.borrow_mut();
        let current = kernel.tasks[task as usize].space.replace(space);
        drop(kernel);
        if current != Some(space) {
            self.load(Some(space));
        }
    }
}

/// The space that a task is in when it asks for an operation.
fn caller(op: &Op) -> Option<SpaceSlot> {
    match *op {
        Op::Fork { parent: space, .. }
        | Op::Exec { old: space, .. }
        | Op::Share { space }
        | Op::Exit { space }
        | Op::Map { space, .. }
        | Op::Unmap { space, .. }
        | Op::Protect { space, .. }
        | Op::Remap { space, .. }
        | Op::Brk { space, .. }
        | Op::Advise { space, .. }
        | Op::Touch { space, .. } => Some(space),
        _ => None,
    }
}
