//! The replayer: executes the words of one task of the slice.

use crate::protocol::{
    SLICE, SLICE_HEAD, STACK_PAGES, STACKS, WATCHED, call, count, op, pristine, program, stamp,
    stored, written,
};
use crate::sys::{Kind, ask, fail, must, probe};

const PAGE: u64 = 1 << crate::protocol::PAGE_SHIFT;

/// Word `index` of the slice.
fn word(index: u64) -> u64 {
    // SAFETY: the kernel mapped the slice there, and streams end before it does.
    unsafe { *((SLICE + index * 8) as *const u64) }
}

/// Files of the slice; the next number is free.
pub fn files() -> u64 {
    word(2)
}

/// First page of the stack of task `task`.
fn stack_page(task: u64) -> u64 {
    STACKS / PAGE + task * 2 * STACK_PAGES
}

/// A program that begins: the argument is the task, and where in its stream (behind bit 32).
pub fn run(argument: u64) -> ! {
    let task = argument & 0xffff_ffff;
    let at = match argument >> 32 {
        0 => word(SLICE_HEAD + task),
        at => at,
    };
    Replayer::new(task, at, 0).run()
}

/// A thread of such a program.
pub fn run_thread(task: u64) -> ! {
    Replayer::new(task, word(SLICE_HEAD + task), stack_page(task)).run()
}

struct Replayer {
    task: u64,
    at: u64,
    /// First page of the stack that is unmapped at the end; 0 if the space ends as well.
    stack: u64,
    counts: [u64; count::NAMES.len()],
}

impl Replayer {
    fn new(task: u64, at: u64, stack: u64) -> Replayer {
        Replayer {
            task,
            at,
            stack,
            counts: [0; count::NAMES.len()],
        }
    }

    fn next(&mut self) -> u64 {
        self.at += 1;
        word(self.at - 1)
    }

    fn run(mut self) -> ! {
        loop {
            let here = self.at;
            let first = self.next();
            let (what, flags, page) = (first as u8, first >> 8 & 0xff, first >> 16);
            self.execute(here, what, flags, page);
        }
    }

    /// Something is wrong at the word `here`.
    fn wrong(&self, here: u64, address: u64, more: u64) -> ! {
        fail(
            200 + (word(here) & 0xff),
            [self.task << 32 | here, address, more],
        )
    }

    /// A call that must be allowed.
    fn call<const N: usize>(&self, here: u64, number: u64, arguments: [u64; N]) -> u64 {
        let answer = ask(number, arguments);
        if answer == crate::protocol::REFUSED {
            self.wrong(here, arguments[0], number);
        }
        answer
    }

    fn execute(&mut self, here: u64, what: u8, flags: u64, page: u64) {
        let address = page * PAGE;
        match what {
            op::LOAD => self.access(here, Kind::Load, address, 0),
            op::FETCH => self.access(here, Kind::Fetch, address, 0),
            op::STORE => {
                let value = stamp(self.next());
                self.access(
                    here,
                    Kind::Store,
                    address + WATCHED[flags as usize & 1],
                    value,
                );
            }
            op::STORE_FILE => {
                let value = stored(self.next(), self.next());
                let word = WATCHED[flags as usize & 1];
                self.access(here, Kind::Store, address + word, value);
            }
            op::REFUSED => {
                let kind = [Kind::Load, Kind::Store, Kind::Fetch][flags as usize % 3];
                if probe(kind, address, 0).is_some() {
                    self.wrong(here, address, 0);
                }
                self.counts[count::REFUSALS as usize] += 1;
            }
            op::CHECK => {
                let number = self.next();
                let value = if number == 0 { 0 } else { stamp(number) };
                let found = self.read(here, address + WATCHED[flags as usize & 1]);
                if found != value {
                    self.wrong(here, address, found);
                }
            }
            op::CHECK_FILE => self.check_file(here, flags, address),
            op::MAP => {
                let (pages, file, file_page) = (self.next(), self.next(), self.next());
                self.call(here, call::MAP, [page, pages, flags, file, file_page]);
            }
            op::UNMAP => {
                let pages = self.next();
                self.call(here, call::UNMAP, [page, pages]);
            }
            op::PROTECT => {
                let pages = self.next();
                self.call(here, call::PROTECT, [page, pages, flags]);
            }
            op::REMAP => {
                let (pages, to, new_pages) = (self.next(), self.next(), self.next());
                self.call(here, call::REMAP, [page, pages, to, new_pages]);
            }
            op::BRK => {
                let end = self.next();
                self.call(here, call::BRK, [page, end]);
            }
            op::ADVISE => {
                let pages = self.next();
                // A range with a hole is refused, and treated all the same.
                ask(call::ADVISE, [page, pages, flags]);
            }
            op::FORK | op::SHARE => self.create(here, what == op::FORK, page),
            op::EXEC => {
                self.report();
                let argument = self.at << 32 | self.task;
                self.call(
                    here,
                    call::EXEC,
                    [program::REPLAY, argument, self.task, self.stack],
                );
            }
            op::EXIT => {
                self.report();
                ask(call::EXIT, [0, self.stack, self.task << 32 | page]);
            }
            op::FILE_OPEN => {
                let pages = self.next();
                self.call(here, call::FILE_OPEN, [page, pages]);
            }
            op::FILE_READ | op::FILE_WRITE => {
                let (first, pages) = (self.next(), self.next());
                let number = if what == op::FILE_READ {
                    call::FILE_READ
                } else {
                    call::FILE_WRITE
                };
                self.call(here, number, [page, first, pages]);
            }
            op::TRUNCATE => {
                let pages = self.next();
                self.call(here, call::TRUNCATE, [page, pages]);
            }
            op::PROGRESS => _ = ask(call::PROGRESS, [self.task, page]),
            op::AWAIT => {
                let done = self.next();
                ask(call::AWAIT, [page, done]);
            }
            _ => self.wrong(here, u64::from(what), 0),
        }
        self.counts[count::OPS as usize] += 1;
    }

    fn access(&mut self, here: u64, kind: Kind, address: u64, value: u64) {
        if probe(kind, address, value).is_none() {
            self.wrong(here, address, 0);
        }
        let which = if kind == Kind::Store {
            count::STORES
        } else {
            count::LOADS
        };
        self.counts[which as usize] += 1;
    }

    fn read(&mut self, here: u64, address: u64) -> u64 {
        self.counts[count::CHECKS as usize] += 1;
        match probe(Kind::Load, address, 0) {
            Some(found) => found,
            None => self.wrong(here, address, 0),
        }
    }

    fn check_file(&mut self, here: u64, flags: u64, address: u64) {
        let (file, index) = (self.next(), self.next());
        for offset in WATCHED {
            let found = self.read(here, address + offset);
            let right = found == pristine(file, index)
                || flags & 1 != 0 && found == written(file, index)
                || flags & 2 != 0 && found == stored(file, index)
                || flags & 4 != 0 && found == 0;
            if !right {
                self.wrong(here, address + offset, found);
            }
        }
    }

    fn create(&mut self, here: u64, fork: bool, child: u64) {
        if fork {
            if self.call(here, call::FORK, [0]) == 0 {
                // The stack is a copy of the parent's, at its place.
                *self = Replayer::new(child, word(SLICE_HEAD + child), 0);
            }
            return;
        }
        let stack = stack_page(child);
        must(210, call::MAP, [stack, STACK_PAGES, 3]);
        unsafe extern "C" {
            fn thread_start();
        }
        let end = (stack + STACK_PAGES) * PAGE;
        self.call(
            here,
            call::THREAD,
            [thread_start as *const () as u64, end, child],
        );
    }

    fn report(&mut self) {
        for (which, number) in self.counts.iter_mut().enumerate() {
            ask(call::COUNT, [which as u64, *number]);
            *number = 0;
        }
    }
}
