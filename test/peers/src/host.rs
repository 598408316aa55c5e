//! Ours beside the host's kernel: a page touched, a copy broken, a fork, a
//! mapping's whole life.
//!
//! The kernel's side is a process of its own with huge pages off
//! ([`crate::host_process`]), which does one slice when it is told to, so that
//! the two are interleaved like any other arms. Its time contains what a
//! kernel pays and a hosted manager does not: entering the kernel, real
//! flushes, accounting.

use std::cell::RefCell;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::rc::Rc;

use vellum::addr::{Access, PageRange, Prot, Vpn};
use vellum_lab::host::forkfault::TrapCost;

use crate::Failure;
use crate::host_process::{COMMAND, FORK_PAGES, Operation, PAGES};
use crate::measure::{Arm, Timed, cpu_time};
use crate::ours::{NAMES, Spaces, private};
use crate::rows::Rows;

const KERNEL: &str = "host kernel";
const RAM: u64 = 192 << 20;
const FIRST: u64 = 0x10_0000;
/// Forks copy 64 MiB; figures are for a GiB.
pub const GIB: u64 = (1 << 18) / FORK_PAGES;

/// The process that asks the host's kernel.
struct Process {
    child: Child,
    /// Closed before the process is waited for: that ends it.
    asks: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Process {
    fn start() -> Result<Process, Failure> {
        let failed = Failure::because("starting the process that asks the host's kernel");
        let program = std::env::current_exe().map_err(&failed)?;
        let mut child = Command::new(program)
            .arg(COMMAND)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(&failed)?;
        let (asks, answers) = (child.stdin.take(), child.stdout.take());
        let answers = answers.ok_or_else(|| Failure("a process without output".into()))?;
        Ok(Process {
            child,
            asks,
            answers: BufReader::new(answers),
        })
    }

    fn ask(&mut self, question: &str) -> Result<String, Failure> {
        let failed = Failure::because("asking the host's kernel");
        if let Some(asks) = &mut self.asks {
            writeln!(asks, "{question}").map_err(&failed)?;
        }
        let mut line = String::new();
        self.answers.read_line(&mut line).map_err(&failed)?;
        match line.trim_end() {
            "" => Err(Failure(
                "the process that asks the host's kernel ended".into(),
            )),
            answer => Ok(answer.to_owned()),
        }
    }

    fn slice(&mut self, operation: Operation, count: u64) -> Result<Timed, Failure> {
        let answer = self.ask(&format!("{} {count}", operation.name()))?;
        let (ns, done) = answer.split_once(' ').unwrap_or((&answer, ""));
        match (ns.parse(), done.parse()) {
            (Ok(ns), Ok(count)) => Ok(Timed { ns, count }),
            _ => Err(Failure(format!("{}: {answer}", operation.name()))),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.asks = None;
        // It ends when its input does. If it cannot be waited for it is gone.
        let _ = self.child.wait();
    }
}

fn range() -> PageRange {
    PageRange::new(Vpn(FIRST), PAGES)
}

/// Runs `work` with the space, whose failure is a defect of ours.
fn batch(
    ours: &Spaces,
    work: impl FnOnce() -> Result<Timed, Box<dyn std::error::Error>>,
) -> Result<Timed, Failure> {
    ours.run(|_, _| work())
        .map_err(|error| Failure(format!("ours: {error}")))
}

fn touch(ours: &Spaces, range: PageRange) -> Result<(), Box<dyn std::error::Error>> {
    for page in range.start.0..range.end.0 {
        ours.vm.space(ours.space).fault(page << 12, Access::Write)?;
    }
    Ok(())
}

/// Times `work`, which may fail.
fn timed(
    count: u64,
    work: impl FnOnce() -> Result<(), Box<dyn std::error::Error>>,
) -> Result<Timed, Box<dyn std::error::Error>> {
    let mut result = Ok(());
    let ns = cpu_time(|| result = work());
    result.map(|()| Timed { ns, count })
}

/// One batch of ours, as the process does it with the kernel.
fn one(ours: &Spaces, operation: Operation) -> Result<Timed, Failure> {
    let (vm, space) = (&ours.vm, ours.space);
    let map = || vm.space(space).map(&private(range(), Prot::READ_WRITE));
    let unmap = || vm.space(space).unmap(range().start, PAGES);
    batch(ours, || match operation {
        Operation::Fault => {
            map()?;
            let done = timed(PAGES, || touch(ours, range()))?;
            unmap()?;
            Ok(done)
        }
        Operation::Copy => {
            map()?;
            touch(ours, range())?;
            let child = vm.space(space).fork()?.id();
            let done = timed(PAGES, || touch(ours, range()))?;
            vm.space(child).exit()?;
            unmap()?;
            Ok(done)
        }
        Operation::Fork => {
            let mut child = None;
            let done = timed(1, || {
                child = Some(vm.space(space).fork()?.id());
                Ok(())
            })?;
            if let Some(child) = child {
                vm.space(child).exit()?;
            }
            Ok(Timed {
                ns: done.ns * GIB,
                ..done
            })
        }
        Operation::Cycle => timed(PAGES, || {
            map()?;
            touch(ours, range())?;
            unmap()?;
            Ok(())
        }),
    })
}

fn arms(
    process: &Rc<RefCell<Process>>,
    operation: Operation,
    arms: &mut Vec<Arm>,
) -> Result<(), Failure> {
    for name in NAMES {
        let ours = Spaces::new(RAM, true)?;
        if operation == Operation::Fork {
            let whole = PageRange::new(Vpn(FIRST), FORK_PAGES);
            batch(&ours, || {
                ours.vm
                    .space(ours.space)
                    .map(&private(whole, Prot::READ_WRITE))?;
                touch(&ours, whole)?;
                Ok(Timed::default())
            })?;
        }
        arms.push(Arm::fallible(name, move |count| {
            let mut sum = Timed::default();
            for _ in 0..count {
                sum += one(&ours, operation)?;
            }
            Ok(sum)
        }));
    }
    let process = Rc::clone(process);
    arms.push(Arm::fallible(KERNEL, move |count| {
        process.borrow_mut().slice(operation, count)
    }));
    Ok(())
}

/// Runs the group; returns what entering the kernel costs here.
pub fn run(rows: &mut Rows<'_>) -> Result<Option<TrapCost>, Failure> {
    if rows.interrupted() {
        return Ok(None);
    }
    let process = Rc::new(RefCell::new(Process::start()?));
    for (operation, name) in [
        (Operation::Fault, "first write to a page"),
        (Operation::Copy, "write to a page shared by fork: copy"),
        (Operation::Fork, "fork of 1 GiB touched (64 MiB, times 16)"),
        (Operation::Cycle, "map 128 pages, touch, unmap, a page"),
    ] {
        rows.row(name, |list| arms(&process, operation, list))?;
    }
    let answer = process.borrow_mut().ask("trap 1")?;
    Ok(answer.parse().ok())
}
