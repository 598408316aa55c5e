//! The first process of a tree, and what `/proc` says about any of them.

use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering::Relaxed;

use super::files::ScratchFiles;
use super::memory::Shared;
use super::protocol::{self, FD_HANDED, Slot, op};
use super::sys;
use super::{LinuxError, STUB};
use vellum_terminal::job::Job;

/// Starts the stub as the leader of a new process group.
pub(super) fn spawn(shared: &Shared, files: &ScratchFiles) -> Result<Job, LinuxError> {
    let doing = || LinuxError::io("starting the first process of the tree");
    let mut stub = sys::memory_file(c"vellum-stub", true).map_err(doing())?;
    stub.write_all(STUB).map_err(doing())?;
    let [slots, ring] = shared.files();
    let handed: [&File; 4] = [slots, ring, &stub, files.directory()];
    let handed = handed.map(|file| file.as_raw_fd());
    let mut command = Command::new(format!("/proc/self/fd/{}", stub.as_raw_fd()));
    command
        .arg0("a")
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    // SAFETY: the closure calls nothing but `dup2`, which is allowed between fork
    // and execve.
    unsafe {
        command.pre_exec(move || {
            for (from, to) in handed.into_iter().zip(FD_HANDED..) {
                if libc::dup2(from, to) < 0 {
                    return Err(std::io::Error::last_os_error());
                }
            }
            Ok(())
        });
    }
    Job::start(&mut command).map_err(doing())
}

/// Whether a task is neither gone nor ended.
pub(super) fn is_running(tid: u32) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{tid}/stat")) else {
        return false;
    };
    // The state follows the name, which is in parentheses and may contain some.
    let state = stat
        .rsplit(") ")
        .next()
        .and_then(|rest| rest.chars().next());
    !matches!(state, Some('Z' | 'X'))
}

/// Page faults of a process so far.
pub(super) fn faults_so_far(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or("").split(' ').collect();
    // Field 10 of the line, `minflt`; the state is field 3.
    let minor = fields.get(7).and_then(|field| field.parse().ok());
    minor.unwrap_or(0)
}

/// Range and name of a line of `/proc/PID/maps`.
pub(super) fn mapped_range(line: &str) -> Option<(u64, u64, String)> {
    let mut fields = line.split_ascii_whitespace();
    let (start, end) = fields.next()?.split_once('-')?;
    let name = fields.nth(4).unwrap_or("anonymous");
    let number = |text| u64::from_str_radix(text, 16).ok();
    Some((number(start)?, number(end)?, name.to_owned()))
}

/// The first operation that the host refused.
pub(super) fn describe(slot: &Slot) -> String {
    let words = slot.failed_words.each_ref().map(|word| word.load(Relaxed));
    let error = std::io::Error::from_raw_os_error(slot.failed_error.load(Relaxed) as i32);
    let what = match protocol::op_of(words[0]) {
        op::READ => "load from",
        op::WRITE => "store to",
        op::MAP => "mmap at",
        op::UNMAP => "munmap at",
        op::PROTECT => "mprotect at",
        op::REMAP => "mremap at",
        op::DROP | op::FREE | op::COLD | op::PAGE_OUT => "madvise at",
        _ => return format!("on file {}: {error}", words[1]),
    };
    let address = protocol::page_of(words[0]) << 12;
    format!("{what} {address:#x}: {error}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_maps_is_a_range_and_a_name() {
        let line = "7ffc1000-7ffc3000 rw-p 00000000 00:00 0                  [stack]";
        let range = (0x7ffc_1000, 0x7ffc_3000, "[stack]".to_owned());
        assert_eq!(mapped_range(line), Some(range));
        let anonymous = mapped_range("1000-2000 r--p 00000000 00:00 0");
        assert_eq!(anonymous, Some((0x1000, 0x2000, "anonymous".to_owned())));
        assert_eq!(mapped_range(""), None);
    }

    #[test]
    fn this_process_runs_and_has_faulted() {
        assert!(is_running(std::process::id()));
        assert!(faults_so_far(std::process::id()) > 0);
        assert!(sys::cpu_ns(std::process::id()).is_some_and(|ns| ns > 0));
    }
}
