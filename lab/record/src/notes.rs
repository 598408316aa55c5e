//! What a trace says about itself: the machine, and what could not be seen.

use std::ffi::CStr;

use crate::beginning::Beginning;
use crate::translate::Noticed;
use crate::write::{Attached, Recorded};
use vellum_trace::{AccessMarks, Accesses, Environment};

/// This machine.
pub fn environment() -> Environment {
    // SAFETY: an all-zero `utsname` is a valid value of byte arrays.
    let mut name: libc::utsname = unsafe { std::mem::zeroed() };
    // SAFETY: the struct outlives the call, which fills it with C strings.
    unsafe { libc::uname(&mut name) };
    let text = |field: &[libc::c_char]| {
        let bytes: Vec<u8> = field.iter().map(|byte| *byte as u8).collect();
        let text = CStr::from_bytes_until_nul(&bytes).unwrap_or_default();
        text.to_string_lossy().into_owned()
    };
    // SAFETY: both calls take an integer.
    let memory = unsafe { libc::sysconf(libc::_SC_PHYS_PAGES) * libc::sysconf(libc::_SC_PAGESIZE) };
    Environment {
        kernel: text(&name.release),
        architecture: text(&name.machine),
        memory: memory.max(0) as u64,
        ..Environment::default()
    }
}

/// What could not be seen, one sentence each.
pub fn invisible(
    noticed: &Noticed,
    recorded: &Recorded,
    accesses: Option<Accesses>,
) -> Vec<String> {
    let tmpfs = match &recorded.without_transfers {
        Some(why) => format!(
            "Reads and writes of tmpfs files by system call do not show ({why}); mappings of them \
             do."
        ),
        None => "Reads and writes of tmpfs files were followed from the descriptors of system \
                 calls, by a BPF program; those by io_uring do not show."
            .to_owned(),
    };
    let mut notes = Vec::new();
    if let Some(attached) = recorded.running() {
        notes.extend(of_running(attached));
    }
    notes.extend([
        "Pages that the kernel touches through its own pins (arguments of exec, direct I/O) cause \
         no fault event."
            .to_owned(),
        tmpfs,
        "Writes to a file's page that is dirty already do not show.".to_owned(),
        "Waits other than wait4 (waitid, pidfd, signals) do not show.".to_owned(),
    ]);
    if let Some(why) = recorded.spool.why_cut() {
        notes.push(format!(
            "What the command did after the last event does not show: the recorded events could not \
             be kept ({why})."
        ));
    }
    if let Some(why) = &recorded.without_switches {
        notes.push(format!(
            "How long tasks ran between their events does not show: the kernel gave no records of \
             context switches ({why})."
        ));
    }
    if let Some(accesses) = accesses {
        notes.push(
            "How often and in what order pages were used between two samples of accessed marks does \
             not show, nor whether they were stored to."
                .to_owned(),
        );
        if accesses.marks == AccessMarks::Regions {
            notes.push(
                "Which pages of a region were used does not show, but how many: those with the \
                 lowest addresses are taken for them."
                    .to_owned(),
            );
        }
    }
    let unseen = &noticed.unseen;
    for (count, what) in [
        (
            unseen.populated,
            "mappings were populated at once (MAP_POPULATE, MAP_LOCKED); the pages do not show.",
        ),
        (
            unseen.locked,
            "calls locked memory (mlock); the pages they populated do not show.",
        ),
        (
            unseen.huge,
            "mappings of explicit huge pages were recorded as mappings of small ones.",
        ),
        (
            unseen.nameless,
            "mappings of files were recorded as anonymous: the kernel did not report the file.",
        ),
        (
            unseen.narrow,
            "programs were of 32 bits; their system calls, and so their mappings, do not show.",
        ),
        (
            noticed.still_running,
            "tasks still ran when the recording ended; what they did later does not show.",
        ),
    ] {
        if count > 0 {
            notes.push(format!("{count} {what}"));
        }
    }
    notes
}

/// What of running processes was found when the recording began.
pub fn of_beginning(beginning: &Beginning) -> String {
    let resident = beginning.sum(|mapping| mapping.resident.saturating_add(mapping.hugetlb));
    let mappings: usize = beginning
        .snapshots
        .iter()
        .map(|one| one.mappings.len())
        .sum();
    let processes = match beginning.snapshots.len() {
        1 => "1 process as it was".to_owned(),
        several => format!("{several} processes as they were"),
    };
    format!(
        "the trace begins with {processes}: {mappings} mappings, {} KiB in memory",
        resident / 1024
    )
}

/// What huge pages hide of running processes.
pub fn of_huge_pages(attached: &Attached) -> String {
    format!(
        "transparent huge pages were left as they are: {} KiB of the processes were in huge pages \
         when the recording began, and {} KiB when it ended; a fault brings such a page whole, and \
         first uses of its other 511 parts do not show",
        attached.beginning.sum(|mapping| mapping.huge) / 1024,
        attached.huge_at_end / 1024
    )
}

/// Sentences about the recording of running processes.
fn of_running(attached: &Attached) -> Vec<String> {
    let beginning = &attached.beginning;
    let sentence = |text: &str| {
        let mut letters = text.chars();
        let first = letters.next().map(|letter| letter.to_ascii_uppercase());
        first
            .into_iter()
            .chain(letters)
            .chain(['.'])
            .collect::<String>()
    };
    let mut notes = vec![
        format!("Recorded from {}, which ran already.", attached.what),
        sentence(&format!(
            "{}; the page cache has no other pages",
            of_beginning(beginning)
        )),
        sentence(&of_huge_pages(attached)),
    ];
    let kib = |bytes: u64| bytes / 1024;
    for (count, what) in [
        (
            beginning.shared_pages,
            "pages were shared since a fork, or by other means, when the recording began; where the \
             kernel shows which they are, one process has them, and to the others they are pages that \
             were only read.",
        ),
        (
            kib(beginning.sum(|mapping| mapping.swapped)),
            "KiB were in swap when the recording began, and count as never touched.",
        ),
        (
            kib(beginning.sum(|mapping| mapping.hugetlb)),
            "KiB were in pages of hugetlb when the recording began, and count as small ones.",
        ),
        (
            beginning.unreadable,
            "processes may not be read by the user who recorded, and are left out.",
        ),
    ] {
        if count > 0 {
            notes.push(format!("{count} {what}"));
        }
    }
    if let Some(why) = &beginning.without_pages {
        notes.push(format!(
            "Which pages were in memory when the recording began could not be read everywhere \
             ({why}); there the first pages of a mapping, or the last of a stack, are taken for them."
        ));
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spool::Spool;
    use crate::syscalls::Unseen;
    use crate::write::Subject;
    use std::time::SystemTime;

    #[test]
    fn a_trace_says_why_it_has_no_cpu_times() {
        let noticed = Noticed {
            lost: 0,
            still_running: 0,
            ran_us: 0,
            unseen: Unseen::default(),
        };
        let notes = |without_switches: Option<&str>| {
            let recorded = Recorded {
                spool: Spool::create(&std::env::temp_dir()).unwrap(),
                prices: crate::price::Prices::default(),
                passed_calls: 0,
                recorder_seconds: 0.0,
                cpus: 1,
                without_transfers: None,
                without_switches: without_switches.map(str::to_owned),
                used: Vec::new(),
                began: SystemTime::now(),
                subject: Subject::Command { root: 1 },
            };
            invisible(&noticed, &recorded, None).join("\n")
        };
        assert!(notes(Some("Invalid argument")).contains("context switches (Invalid argument)"));
        assert!(!notes(None).contains("context switches"));
    }
}
