//! Calls of strace text as records.

use std::rc::Rc;

use super::Importer;
use super::names::{MAP_HUGE_SHIFT, advice, bits};
use super::text::{arguments, number, path_of_descriptor, string, task_id};
use crate::ImportError;
use crate::feed::ABSURD;
use vellum_record::{Body, Mmap, Sample, number as call};

const CLONE_THREAD: u64 = 0x1_0000;
const CLONE_VFORK_FLAGS: u64 = 0x4100;
const MAP_STACK: u64 = 0x2_0000;
const MAP_GROWSDOWN: u64 = 0x100;
const MAP_ANONYMOUS: u64 = 0x20;
const MAP_HUGETLB: u64 = 0x4_0000;
const MREMAP_DONTUNMAP: u64 = 4;
/// The logarithm of the usual size of huge pages.
const HUGE: u64 = 21;
/// Options of `wait4`: report tasks that stopped, or go on.
const WAIT_FOR_STOPS: u64 = 2 | 8;
/// The lowest byte of clone's flags is a signal.
const SIGNAL: u64 = 0xff;
const PAGE: u64 = 4096;

const UNREADABLE: &str = "a call on memory whose arguments cannot be read";
/// Of calls that tell nothing.
pub const UNCONCERNED: &str = "system calls that do not change memory";

/// Whether a call makes a task.
pub fn creates(name: &str) -> bool {
    matches!(name, "clone" | "clone3" | "fork" | "vfork")
}

/// Whether a call ends a task; true: and all of its process.
pub fn leaves(name: &str) -> Option<bool> {
    match name {
        "exit_group" => Some(true),
        "exit" | "_exit" => Some(false),
        _ => None,
    }
}

/// Whether a call tells something that a trace has.
pub fn tells(name: &str) -> bool {
    const TOLD: [&str; 21] = [
        "mmap",
        "mmap2",
        "old_mmap",
        "munmap",
        "mprotect",
        "pkey_mprotect",
        "mremap",
        "madvise",
        "brk",
        "wait4",
        "waitpid",
        "waitid",
        "execve",
        "execveat",
        "mlock",
        "mlock2",
        "mlockall",
        "shmat",
        "shmdt",
        "remap_file_pages",
        "map_shadow_stack",
    ];
    creates(name) || TOLD.contains(&name)
}

/// The flags of a creation, without the signal.
pub fn clone_flags(name: &str, args: &str) -> Option<u64> {
    match name {
        "fork" => Some(0),
        "vfork" => Some(CLONE_VFORK_FLAGS),
        _ => {
            let text = match args.split_once("flags=") {
                Some((_, rest)) => rest.split([',', '}', ')']).next()?.trim(),
                // Raw arguments; those of clone3 are an address.
                None if name == "clone" && args.starts_with("0x") => args.split(',').next()?,
                None => return None,
            };
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

/// Whether what `wait4` returned had ended: its status says so, or nobody asked
/// for tasks that stopped.
fn has_ended(args: &[&str]) -> bool {
    let status = args.get(1).copied().unwrap_or("");
    let options = args.get(2).copied().unwrap_or("");
    if status.contains("WIFEXITED") || status.contains("WIFSIGNALED") {
        return true;
    }
    let stopped = ["WIFSTOPPED", "WIFCONTINUED"];
    let asked = ["WSTOPPED", "WUNTRACED", "WCONTINUED"];
    !stopped.iter().any(|word| status.contains(word))
        && !asked.iter().any(|word| options.contains(word))
        && number(options).unwrap_or(0) & WAIT_FOR_STOPS == 0
}

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
        self.calls += 1;
        if let Some(whole) = leaves(name) {
            return self.leaves(time, tid, whole);
        }
        if result.starts_with('-') || result.starts_with('?') {
            self.feed.pass_over("calls that failed or did not return");
            return Ok(());
        }
        if result.contains("(INJECTED") && !result.contains("(INJECTED: args)") {
            self.feed
                .pass_over("calls that strace did not let the kernel do (-e inject)");
            return Ok(());
        }
        if tells(name) {
            self.told += 1;
            return self.telling(time, tid, name, args, result);
        }
        let process = self.process(tid);
        if name == "process_madvise" {
            self.feed.skip("calls on the memory of another process");
        } else if !self.files.call(process, name, &arguments(args), result) {
            self.feed.pass_over(UNCONCERNED);
        }
        Ok(())
    }

    /// A call that tells something, and succeeded.
    fn telling(
        &mut self,
        time: u64,
        tid: u32,
        name: &str,
        text: &str,
        result: &str,
    ) -> Result<(), ImportError> {
        let args = arguments(text);
        let value = number(result);
        match name {
            "mmap" | "mmap2" | "old_mmap" => self.mmap(time, tid, name, &args, value),
            "munmap" => self.range(time, tid, call::MUNMAP, &args, 2, value),
            "mprotect" | "pkey_mprotect" => self.range(time, tid, call::MPROTECT, &args, 3, value),
            "mremap" => self.range(time, tid, call::MREMAP, &args, 4, value),
            "madvise" => self.range(time, tid, call::MADVISE, &args, 3, value),
            "brk" => self.ends(time, tid, call::BRK, [0; 6], value),
            "wait4" | "waitpid" => match value {
                Some(0) => Ok(()),
                _ => self.wait_ended(time, tid, has_ended(&args), result),
            },
            "waitid" => self.waitid_ended(time, tid, &args),
            "mlock" => self.ends(time, tid, call::MLOCK, [0; 6], value),
            "mlock2" => self.ends(time, tid, call::MLOCK2, [0; 6], value),
            "mlockall" => self.ends(time, tid, call::MLOCKALL, [0; 6], value),
            "execve" | "execveat" => self.exec(time, tid, name, &args),
            "map_shadow_stack" => {
                self.feed.skip("mappings of shadow stacks");
                Ok(())
            }
            _ if creates(name) => match task_id(result).filter(|id| id.local > 0) {
                Some(id) => self.creation_ended(time, tid, id, (name, text)),
                None => self.unreadable(),
            },
            _ => {
                self.feed
                    .skip("calls on shared-memory segments, whose lengths do not show");
                Ok(())
            }
        }
    }

    fn wait_ended(
        &mut self,
        time: u64,
        tid: u32,
        ended: bool,
        id: &str,
    ) -> Result<(), ImportError> {
        match task_id(id) {
            Some(id) if ended => self.waited(time, tid, id),
            Some(_) => {
                self.feed.pass_over("waits for tasks that had not ended");
                Ok(())
            }
            None => {
                self.feed.skip("a wait for a task without a usable id");
                Ok(())
            }
        }
    }

    /// `waitid(P_PID, 51, {si_signo=SIGCHLD, si_code=CLD_EXITED, si_pid=51, …}, WEXITED, NULL)`.
    fn waitid_ended(&mut self, time: u64, tid: u32, args: &[&str]) -> Result<(), ImportError> {
        let (told, options) = (args.get(2), args.get(3));
        let Some((_, id)) = told.and_then(|told| told.split_once("si_pid=")) else {
            self.feed.pass_over("waits for tasks that had not ended");
            return Ok(());
        };
        let ends = ["CLD_EXITED", "CLD_KILLED", "CLD_DUMPED"];
        let ended = told.is_some_and(|told| ends.iter().any(|end| told.contains(end)))
            && !options.is_some_and(|options| options.contains("WNOWAIT"));
        self.wait_ended(time, tid, ended, id)
    }

    /// A task was told that a process had ended.
    pub(super) fn wait(&mut self, time: u64, tid: u32, child: u32) -> Result<(), ImportError> {
        self.sample(time, tid, call::WAIT4, [0; 6], child.into())
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
                _ => super::text::number(text),
            };
            match value {
                Some(value) => args[index] = value,
                None => return self.unreadable(),
            }
        }
        if texts.len() < needed || args[..3].iter().any(|value| *value >= ABSURD) {
            return self.unreadable();
        }
        if number == call::MREMAP && (args[3] & MREMAP_DONTUNMAP != 0 || args[1] == 0) {
            self.feed
                .skip("mremap with MREMAP_DONTUNMAP or of length 0, which moves no mapping");
            return Ok(());
        }
        self.ends(time, tid, number, args, result)
    }

    /// The offset that `mmap2` has in pages, and old versions of strace print
    /// as it is.
    fn offset(&mut self, name: &str, offset: u64) -> Option<u64> {
        if name != "mmap2" {
            return Some(offset);
        }
        self.offsets_in_pages |= !offset.is_multiple_of(PAGE);
        match self.offsets_in_pages {
            true => offset.checked_mul(PAGE).filter(|offset| *offset < ABSURD),
            false => Some(offset),
        }
    }

    fn mmap(
        &mut self,
        time: u64,
        tid: u32,
        name: &str,
        texts: &[&str],
        result: Option<u64>,
    ) -> Result<(), ImportError> {
        let mut parts = || {
            let [_, length, prot, flags, descriptor, offset] = texts[..] else {
                return None;
            };
            let (prot, flags) = (bits(prot)?, bits(flags)?);
            let length = number(length).filter(|length| *length < ABSURD)?;
            let length = length.checked_next_multiple_of(unit(flags))?;
            let offset = number(offset).filter(|offset| *offset < ABSURD)?;
            Some((length, prot, flags, descriptor, self.offset(name, offset)?))
        };
        let (Some((length, prot, flags, descriptor, offset)), Some(address)) = (parts(), result)
        else {
            return self.unreadable();
        };
        if address >= ABSURD || length >= ABSURD {
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
        let path = args.get(at).and_then(|path| string(path));
        // With an empty path the descriptor is the program.
        let path = match path {
            Some(path) if at == 1 && path.is_empty() => args.first().and_then(|descriptor| {
                let known = self.files.path(self.process(tid), descriptor);
                path_of_descriptor(descriptor).or(known.map(|path| path.to_string()))
            }),
            other => other,
        };
        if self.command.is_empty()
            && let Some(list) = args.get(at + 1).and_then(|list| list.strip_prefix('['))
        {
            let words = arguments(list.trim_end_matches(']'));
            self.command = words.into_iter().filter_map(string).collect();
        }
        let path = path.unwrap_or_else(|| {
            self.feed.skip("the name of a program that cannot be read");
            "unknown".to_owned()
        });
        let program = path.rsplit('/').next().unwrap_or(&path);
        let program: String = program.chars().take(15).collect();
        let name = program.as_bytes();
        self.give(time, tid, Body::Comm { name, exec: true })?;
        self.executed(tid);
        Ok(())
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
        let Some(clone_flags) = clone_flags(name, args) else {
            self.feed
                .skip("the creation of a task whose flags cannot be read (leave out -e raw)");
            return Ok(());
        };
        self.reuse(time, child)?;
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
        self.give(time, parent, Body::Event(Sample::NewTask { clone_flags }))?;
        self.follow(child);
        self.newborn = Some(child);
        Ok(())
    }
}

/// What lengths of mappings with these flags are multiples of.
fn unit(flags: u64) -> u64 {
    if flags & MAP_HUGETLB == 0 {
        return PAGE;
    }
    match flags >> MAP_HUGE_SHIFT & 0x3f {
        0 => 1 << HUGE,
        size => 1 << size.clamp(12, 34),
    }
}
