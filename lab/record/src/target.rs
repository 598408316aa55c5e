//! What is recorded: a command, or processes that are running already.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use crate::error::{RecordError, is_root};
use crate::processes::{self, Tree};

/// What to record.
#[derive(Clone, Debug)]
pub enum Target {
    /// A command with its arguments, which is started for it, and its descendants; not empty.
    Command(Vec<OsString>),
    /// Running processes and their descendants; not empty.
    Processes(Vec<u32>),
    /// The processes of a control group and of those below it, and their descendants.
    Group(PathBuf),
}

/// Running processes to be recorded.
pub struct Running {
    /// Those that were named, each with a descriptor that tells its end.
    named: Vec<(u32, OwnedFd)>,
    tree: Tree,
    group: Option<PathBuf>,
}

impl Running {
    /// The processes of these ids and their descendants.
    ///
    /// # Errors
    /// One of them cannot be recorded; the message says why.
    pub fn of_processes(pids: &[u32]) -> Result<Running, RecordError> {
        let mut named = Vec::new();
        for &pid in pids {
            // Open before it is looked at: the id cannot go to another process in between.
            let descriptor = open(pid);
            check(pid).map_err(RecordError::Target)?;
            let descriptor = descriptor.map_err(RecordError::io(format!("process {pid}")))?;
            named.push((pid, descriptor));
        }
        Ok(Running {
            named,
            tree: Tree::of(pids),
            group: None,
        })
    }

    /// The processes of the group whose directory is `path`, of version 1 or 2.
    ///
    /// # Errors
    /// It is no group, or nothing in it can be recorded.
    pub fn of_group(path: &Path) -> Result<Running, RecordError> {
        let members = members(path).map_err(|error| {
            RecordError::Target(format!(
                "{} is no control group that can be read: its cgroup.procs: {error}",
                path.display()
            ))
        })?;
        if members.iter().all(|pid| *pid == std::process::id()) {
            let what = match members.is_empty() {
                true => "no process",
                false => "no process but vellum itself",
            };
            let path = path.display();
            return Err(RecordError::Target(format!("{what} is in {path}")));
        }
        Ok(Running {
            named: Vec::new(),
            tree: Tree::of(&members),
            group: Some(path.to_path_buf()),
        })
    }

    /// The processes that there are now.
    pub fn processes(&mut self) -> Vec<u32> {
        let mut all = self.tree.processes();
        if let Some(group) = &self.group {
            all.extend(members(group).unwrap_or_default());
        }
        all
    }

    /// The processes and their descendants, for who looks at them in turns.
    pub fn tree(&mut self) -> Tree {
        Tree::of(&self.processes())
    }

    /// Waits for `milliseconds` at most, and says whether those that were named have ended, or
    /// all that were in the group.
    pub fn wait(&self, milliseconds: libc::c_int) -> bool {
        let mut waits: Vec<libc::pollfd> = self
            .named
            .iter()
            .map(|(_, descriptor)| libc::pollfd {
                fd: descriptor.as_raw_fd(),
                events: libc::POLLIN,
                revents: 0,
            })
            .collect();
        let mut poll = |milliseconds| {
            // SAFETY: the array is as long as stated and outlives the call.
            unsafe { libc::poll(waits.as_mut_ptr(), waits.len() as _, milliseconds) };
            waits.retain(|wait| wait.revents == 0);
            waits.is_empty()
        };
        match &self.group {
            None => {
                // One that has ended would end each wait at once.
                let have_ended = poll(0);
                have_ended || poll(milliseconds)
            }
            Some(group) => {
                poll(milliseconds);
                members(group).is_ok_and(|members| members.is_empty())
            }
        }
    }

    /// The words of the command that the first process runs, and in a sentence what is recorded.
    pub fn describe(&self) -> (Vec<String>, String) {
        let pids: Vec<String> = self.named.iter().map(|(pid, _)| pid.to_string()).collect();
        let (first, what) = match (&self.group, &self.named[..]) {
            (Some(group), _) => {
                let first = members(group).unwrap_or_default().first().copied();
                (first, format!("the control group {}", group.display()))
            }
            (None, [(pid, _)]) => (Some(*pid), format!("process {pid}")),
            (None, named) => {
                let first = named.first().map(|(pid, _)| *pid);
                (first, format!("processes {}", pids.join(", ")))
            }
        };
        (first.map(words).unwrap_or_default(), what)
    }
}

/// The words of the command that a process runs; its name where it shows none.
fn words(pid: u32) -> Vec<String> {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let line = String::from_utf8_lossy(&line);
    match line.trim_end_matches('\0') {
        "" => {
            let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            vec![name.trim_end().to_owned()]
        }
        line => line.split('\0').map(str::to_owned).collect(),
    }
}

/// A descriptor of a process, which can be read when the process has ended.
fn open(pid: u32) -> io::Result<OwnedFd> {
    let pid = i32::try_from(pid).map_err(|_| io::Error::from_raw_os_error(libc::ESRCH))?;
    // SAFETY: takes two integers.
    let descriptor = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor as libc::c_int) })
}

/// Why a process cannot be recorded, if it cannot.
fn check(pid: u32) -> Result<(), String> {
    if pid == std::process::id() {
        return Err(format!("process {pid} is vellum itself"));
    }
    let Some(process) = processes::read(pid) else {
        return Err(format!("there is no process {pid}"));
    };
    if process.is_of_kernel {
        return Err(format!(
            "{pid} is a thread of the kernel, which has no memory of its own"
        ));
    }
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let value = |key: &str| status.lines().find_map(|line| line.strip_prefix(key));
    if let Some(leader) = value("Tgid:").map(str::trim)
        && leader != pid.to_string()
    {
        return Err(format!(
            "{pid} is a thread; give its process, which is {leader}"
        ));
    }
    let threads = processes::threads(pid).unwrap_or_default();
    if process.is_zombie && threads.len() < 2 {
        return Err(format!("process {pid} has ended"));
    }
    let alive = threads.last().copied().unwrap_or(pid);
    let maps = fs::read_to_string(format!("/proc/{pid}/task/{alive}/smaps"));
    let maps = maps.map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => {
            let cure = match is_root() {
                true => ", and something on this machine protects it from root, too",
                false => "; run vellum as root (or with CAP_SYS_PTRACE)",
            };
            let user = value("Uid:").and_then(|ids| ids.split_whitespace().next());
            format!(
                "the memory of process {pid} may not be read: it belongs to user {}{cure}",
                user.unwrap_or("unknown")
            )
        }
        _ => format!("the mappings of process {pid} cannot be read: {error}"),
    })?;
    let stack = maps.lines().find(|line| line.ends_with("[stack]"));
    // An address of 32 bits has up to 8 digits.
    let is_narrow = |line: &str| {
        line.split('-')
            .next()
            .is_some_and(|from| from.trim_start_matches('0').len() <= 8)
    };
    match stack.is_some_and(is_narrow) {
        true => Err(format!(
            "process {pid} runs a program of 32 bits, whose system calls have numbers of their own \
             and are not understood"
        )),
        false => Ok(()),
    }
}

/// The processes of a control group and of those below it, as far as they are visible here.
fn members(path: &Path) -> io::Result<Vec<u32>> {
    let text = fs::read_to_string(path.join("cgroup.procs"))?;
    let mut all: Vec<u32> = text.lines().filter_map(|line| line.parse().ok()).collect();
    // Those of other namespaces have the number 0.
    all.retain(|pid| *pid != 0);
    for entry in fs::read_dir(path)?.flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            // A group can go at any time.
            all.extend(members(&entry.path()).unwrap_or_default());
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_recorded_is_refused_with_the_reason() {
        let refusal = |pid| check(pid).unwrap_err();
        assert!(refusal(std::process::id()).contains("vellum itself"));
        assert!(refusal(u32::MAX).contains("there is no process"));
        // The kernel's first thread, where it is visible.
        if processes::read(2).is_some_and(|process| process.is_of_kernel) {
            assert!(refusal(2).contains("thread of the kernel"));
        }
        let mut child = std::process::Command::new("true").spawn().unwrap();
        while !processes::read(child.id()).is_some_and(|process| process.is_zombie) {
            std::thread::yield_now();
        }
        assert!(refusal(child.id()).contains("has ended"));
        child.wait().unwrap();
    }

    #[test]
    fn a_thread_is_refused_with_its_process() {
        let (tell, told) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            // SAFETY: takes nothing and cannot fail.
            tell.send(unsafe { libc::gettid() } as u32).unwrap();
            let _ = ended.recv();
        });
        let refusal = check(told.recv().unwrap()).unwrap_err();
        assert!(
            refusal.contains(&std::process::id().to_string()),
            "{refusal}"
        );
        drop(end);
        thread.join().unwrap();
    }

    #[test]
    fn a_directory_that_is_no_group_is_refused() {
        let Err(error) = Running::of_group(Path::new("/nonexistent")) else {
            panic!("it was taken for a group");
        };
        assert!(error.to_string().contains("no control group"), "{error}");
    }
}
