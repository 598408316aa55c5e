//! Calls of strace text as records.

use std::rc::Rc;

use super::line::{arguments, number, string};
use super::names::{advice, bits};
use super::{Importer, NAMELESS};
use crate::ImportError;
use crate::feed::ABSURD;
use vellum_record::{Body, Mmap, Sample, number as call};

const CLONE_THREAD: u64 = 0x1_0000;
const CLONE_VFORK_FLAGS: u64 = 0x4100;
const MAP_STACK: u64 = 0x2_0000;
const MAP_GROWSDOWN: u64 = 0x100;
const MAP_ANONYMOUS: u64 = 0x20;
/// The lowest byte of clone's flags is a signal.
const SIGNAL: u64 = 0xff;
const PAGE: u64 = 4096;

/// Whether a call makes a task.
pub fn creates(name: &str) -> bool {
    matches!(name, "clone" | "clone3" | "fork" | "vfork")
}

const UNREADABLE: &str = "a call on memory whose arguments cannot be read";

impl Importer<'_> {
    /// A whole call.
    pub(super) fn call(
        &mut self,
        time: u64,
        tid: u32,
        name: &str,
        args: &str,
        result: &str,
    ) -> Result<(), ImportError> {
        let args_text = args;
        let args = arguments(args);
        if result.starts_with('-') || result.starts_with('?') {
            self.feed.pass_over("calls that failed or did not return");
            return Ok(());
        }
        let value = number(result);
        match name {
            "mmap" | "mmap2" => self.mmap(time, tid, &args, value),
            "munmap" => self.range(time, tid, call::MUNMAP, &args, 2, value),
            "mprotect" => self.range(time, tid, call::MPROTECT, &args, 3, value),
            "mremap" => self.range(time, tid, call::MREMAP, &args, 4, value),
            "madvise" => self.range(time, tid, call::MADVISE, &args, 3, value),
            "brk" => match value {
                Some(_) => self.ends(time, tid, call::BRK, [0; 6], value),
                None => self.unreadable(),
            },
            "wait4" => match value {
                Some(child) if child > 0 => self.sample(time, tid, call::WAIT4, [0; 6], child),
                _ => Ok(()),
            },
            "mlock" => self.ends(time, tid, call::MLOCK, [0; 6], value),
            "mlock2" => self.ends(time, tid, call::MLOCK2, [0; 6], value),
            "mlockall" => self.ends(time, tid, call::MLOCKALL, [0; 6], value),
            "execve" | "execveat" => self.exec(time, tid, name, &args),
            _ if creates(name) => match value.and_then(|child| u32::try_from(child).ok()) {
                Some(child) if child > 0 => self.creation_ended(time, tid, child, name, args_text),
                _ => self.unreadable(),
            },
            "shmat" | "shmdt" | "remap_file_pages" => {
                self.feed
                    .skip("calls on shared-memory segments, whose lengths do not show");
                Ok(())
            }
            _ => {
                let process = self.process(tid);
                if !self.files.call(process, name, &args, result) {
                    self.feed
                        .pass_over("system calls that do not change memory");
                }
                Ok(())
            }
        }
    }

    fn unreadable(&mut self) -> Result<(), ImportError> {
        self.feed.skip(UNREADABLE);
        Ok(())
    }

    /// A call with its end, as two records.
    fn sample(
        &mut self,
        time: u64,
        tid: u32,
        number: u64,
        args: [u64; 6],
        result: u64,
    ) -> Result<(), ImportError> {
        self.give(time, tid, Body::Event(Sample::Enter { number, args }))?;
        self.give(time, tid, Body::Event(Sample::Exit { number, result }))
    }

    fn ends(
        &mut self,
        time: u64,
        tid: u32,
        number: u64,
        args: [u64; 6],
        result: Option<u64>,
    ) -> Result<(), ImportError> {
        match result {
            Some(result) => self.sample(time, tid, number, args, result),
            None => self.unreadable(),
        }
    }

    /// `munmap`, `mprotect`, `mremap`, `madvise`.
    fn range(
        &mut self,
        time: u64,
        tid: u32,
        number: u64,
        texts: &[&str],
        needed: usize,
        result: Option<u64>,
    ) -> Result<(), ImportError> {
        let mut args = [0; 6];
        for (index, text) in texts.iter().take(needed).enumerate() {
            let value = match (number, index) {
                (call::MPROTECT, 2) | (call::MREMAP, 3) => bits(text),
                (call::MADVISE, 2) => advice(text),
                _ => super::line::number(text),
            };
            match value {
                Some(value) => args[index] = value,
                None => return self.unreadable(),
            }
        }
        if texts.len() < needed || args[0] >= ABSURD || args[1] >= ABSURD {
            return self.unreadable();
        }
        self.ends(time, tid, number, args, result)
    }

    fn mmap(
        &mut self,
        time: u64,
        tid: u32,
        texts: &[&str],
        result: Option<u64>,
    ) -> Result<(), ImportError> {
        let parts = || {
            let [_, length, prot, flags, descriptor, offset] = texts[..] else {
                return None;
            };
            let length = number(length).filter(|length| *length < ABSURD)?;
            let offset = number(offset).filter(|offset| *offset < ABSURD)?;
            Some((length, bits(prot)?, bits(flags)?, descriptor, offset))
        };
        let (Some((length, prot, flags, descriptor, offset)), Some(address)) = (parts(), result)
        else {
            return self.unreadable();
        };
        if address >= ABSURD {
            return self.unreadable();
        }
        let enter = Sample::Enter {
            number: call::MMAP,
            args: [0, length, prot, flags, 0, offset],
        };
        self.give(time, tid, Body::Event(enter))?;
        if flags & MAP_ANONYMOUS == 0
            && let Some(path) = self.files.path(self.process(tid), descriptor)
        {
            self.mapped(time, tid, &path, (address, length, offset))?;
        }
        let exit = Sample::Exit {
            number: call::MMAP,
            result: address,
        };
        let stack = flags & (MAP_STACK | MAP_GROWSDOWN) != 0;
        self.from_end.set(stack);
        let done = self.give(time, tid, Body::Event(exit));
        self.from_end.set(false);
        done
    }

    /// What the kernel would report of a mapping of a file.
    fn mapped(
        &mut self,
        time: u64,
        tid: u32,
        path: &Rc<str>,
        (address, length, offset): (u64, u64, u64),
    ) -> Result<(), ImportError> {
        let file = self.files.identify(path);
        let mmap = Mmap {
            address,
            length: length.next_multiple_of(PAGE),
            offset,
            major: file.device >> 20,
            minor: file.device & 0xf_ffff,
            inode: file.inode,
            prot: 0,
            flags: 0,
            name: path.as_bytes(),
        };
        self.give(time, tid, Body::Mmap(mmap))
    }

    fn exec(&mut self, time: u64, tid: u32, name: &str, args: &[&str]) -> Result<(), ImportError> {
        let at = if name == "execveat" { 1 } else { 0 };
        let Some(path) = args.get(at).and_then(|path| string(path)) else {
            return self.unreadable();
        };
        if self.command.is_empty()
            && let Some(list) = args.get(at + 1).and_then(|list| list.strip_prefix('['))
        {
            let words = arguments(list.trim_end_matches(']'));
            self.command = words.into_iter().filter_map(string).collect();
        }
        let program = path.rsplit('/').next().unwrap_or(&path);
        let program: String = program.chars().take(15).collect();
        let name = program.as_bytes();
        self.give(time, tid, Body::Comm { name, exec: true })
    }

    /// The flags of a creation, without the signal.
    fn clone_flags(name: &str, args: &str) -> Option<u64> {
        match name {
            "fork" => Some(0),
            "vfork" => Some(CLONE_VFORK_FLAGS),
            _ => {
                let at = args.find("flags=")? + "flags=".len();
                let text = args[at..].split([',', '}', ')']).next()?.trim();
                // A plain fork has nothing but a signal, or 0.
                let flags = bits(text).or_else(|| text.starts_with("SIG").then_some(0))?;
                Some(if name == "clone" {
                    flags & !SIGNAL
                } else {
                    flags
                })
            }
        }
    }

    /// A task was made.
    pub(super) fn created(
        &mut self,
        time: u64,
        parent: u32,
        child: u32,
        name: &str,
        args: &str,
    ) -> Result<(), ImportError> {
        let Some(clone_flags) = Self::clone_flags(name, args) else {
            self.feed
                .skip("the creation of a task whose flags cannot be read");
            return Ok(());
        };
        let process = self.process(parent);
        let pid = if clone_flags & CLONE_THREAD != 0 {
            process
        } else {
            child
        };
        self.files.fork(process, pid);
        self.feed.give(&vellum_record::Record {
            time_ns: time,
            pid,
            tid: child,
            body: Body::Fork { ptid: parent },
        })?;
        self.give(time, parent, Body::Event(Sample::NewTask { clone_flags }))
    }

    /// The call that made a task returned to its creator.
    fn creation_ended(
        &mut self,
        time: u64,
        parent: u32,
        child: u32,
        name: &str,
        args: &str,
    ) -> Result<(), ImportError> {
        if child == NAMELESS || self.early.remove(&child) {
            return Ok(());
        }
        self.created(time, parent, child, name, args)?;
        self.release(child)
    }
}
